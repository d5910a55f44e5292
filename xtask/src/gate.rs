//! The instruction gate: compares the instruction count of the hot path with a committed figure.
//!
//! Callgrind counts instructions almost without noise, so a change of one per cent reflects a code
//! change. The figure depends on the compiler and on valgrind; it is stored with both, and the gate
//! is skipped, and counted as skipped, if they differ. The C library copies and compares memory with
//! other instructions on other processors, so it is asked to use only those that every x86-64
//! processor has. The gate covers only the library, not the kernel.

use crate::guard::{self, Job};
use crate::repo::{self, Repo};
use crate::steps::Outcome;
use crate::tools;
use anyhow::{Context, bail};

const FILE: &str = "xtask/gate.toml";
/// Builds the program and the hot path with the same features of their dependencies.
pub(crate) const BUILD: &str =
    "build --locked --release --package ioloom-cli --package ioloom-gate";
/// Processor features that the C library must not use, and the size from which it copies past the
/// cache, which it would compute from the size of the cache.
const PLAIN_PROCESSOR: &str = "glibc.cpu.x86_non_temporal_threshold=0xc0000:glibc.cpu.hwcaps=\
                               -AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-AVX_Fast_Unaligned_Load,\
                               -BMI2,-ERMS,-FSRM";
const SOURCE: &str = "crates/test/gate/src/main.rs";

/// The committed figure.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Figure {
    rustc: String,
    valgrind: String,
    instructions: u64,
    tolerance_per_mille: u64,
}

impl Figure {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let value = |key: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim().trim_matches('"').to_owned())
                .with_context(|| format!("{FILE}: '{key}' is missing"))
        };
        let number = |key: &str| {
            let text = value(key)?.replace('_', "");
            text.parse::<u64>().with_context(|| format!("{FILE}: {key} = {text}"))
        };
        Ok(Self {
            rustc: value("rustc")?,
            valgrind: value("valgrind")?,
            instructions: number("instructions")?,
            tolerance_per_mille: number("tolerance_per_mille")?,
        })
    }

    fn text(&self) -> String {
        format!(
            "# Written by `cargo xtask gate --bless`; explain changes in the commit message.\n\
             rustc = \"{}\"\nvalgrind = \"{}\"\ninstructions = {}\ntolerance_per_mille = {}\n",
            self.rustc, self.valgrind, self.instructions, self.tolerance_per_mille
        )
    }

    fn judge(&self, now: &Self) -> Outcome {
        if self.rustc != now.rustc || self.valgrind != now.valgrind {
            return Outcome::Skipped(format!(
                "the figure is for {}, {}, but {}, {} are installed",
                self.rustc, self.valgrind, now.rustc, now.valgrind
            ));
        }
        let change = 100.0 * (now.instructions as f64 / self.instructions as f64 - 1.0);
        let note =
            format!("{} instructions, {change:+.2} % of {}", now.instructions, self.instructions);
        let moved = u128::from(now.instructions.abs_diff(self.instructions)) * 1000;
        if moved <= u128::from(self.instructions) * u128::from(self.tolerance_per_mille) {
            Outcome::Passed(note)
        } else {
            Outcome::Failed(format!(
                "{note}; find the cause, or run `cargo xtask gate --bless` and explain why"
            ))
        }
    }
}

/// Counts instructions, and compares or writes the figure.
pub(crate) fn run(repo: &Repo, bless: bool) -> anyhow::Result<Outcome> {
    if !repo.root.join(SOURCE).is_file() {
        return Ok(Outcome::Skipped(format!("{SOURCE} is missing")));
    }
    if tools::find("valgrind").is_none() {
        return Ok(Outcome::Skipped("valgrind is not installed".to_owned()));
    }
    let kept = repo.root.join(FILE);
    if !bless && !kept.is_file() {
        return Ok(Outcome::Skipped(format!("{FILE} is missing; write it with --bless")));
    }
    let mut now = count(repo)?;
    if bless {
        if let Ok(text) = std::fs::read_to_string(&kept) {
            now.tolerance_per_mille = Figure::parse(&text)?.tolerance_per_mille;
        }
        std::fs::write(&kept, now.text()).with_context(|| format!("write {FILE}"))?;
        return Ok(Outcome::Passed(format!("{} instructions written", now.instructions)));
    }
    let text = std::fs::read_to_string(&kept).with_context(|| format!("read {FILE}"))?;
    Ok(Figure::parse(&text)?.judge(&now))
}

fn count(repo: &Repo) -> anyhow::Result<Figure> {
    let build: Vec<&str> = BUILD.split(' ').collect();
    let built = Job::new("cargo", &build, &repo.root, 1200).run()?;
    if !built.fine() {
        bail!("build: {}", built.word());
    }
    let target = repo.target_dir()?;
    let program = target.join("release/ioloom-gate");
    let out = format!("--callgrind-out-file={}", target.join("callgrind.out").display());
    let program = program.to_string_lossy();
    let args = ["--tool=callgrind", &out, &program];
    let job = Job::new("valgrind", &args, &repo.root, 300).env("GLIBC_TUNABLES", PLAIN_PROCESSOR);
    let ended = job.run()?;
    if !ended.fine() {
        bail!("valgrind: {}", ended.word());
    }
    let instructions = ended.lines.iter().find_map(|line| collected(line));
    let version = guard::ask("valgrind", &["--version"], &repo.root)?;
    Ok(Figure {
        rustc: repo::rustc_version(&repo.root)?,
        valgrind: version.trim().to_owned(),
        instructions: instructions.context("valgrind printed no count ('Collected : N')")?,
        tolerance_per_mille: 10,
    })
}

/// Returns the count of a line such as `==12== Collected : 4567`.
fn collected(line: &str) -> Option<u64> {
    line.split_once("Collected :")?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(instructions: u64) -> Figure {
        Figure {
            rustc: "rustc 1.95.0 (abc 2026-04-14)".to_owned(),
            valgrind: "valgrind-3.19.0".to_owned(),
            instructions,
            tolerance_per_mille: 10,
        }
    }

    #[test]
    fn figures_read_back_as_written() {
        assert_eq!(Figure::parse(&figure(1_234_567).text()).unwrap(), figure(1_234_567));
        assert!(Figure::parse("rustc = \"x\"").is_err());
    }

    #[test]
    fn one_per_cent_passes_and_more_does_not() {
        let kept = figure(1_000_000);
        for now in [990_000, 1_000_000, 1_010_000] {
            assert!(matches!(kept.judge(&figure(now)), Outcome::Passed(_)), "{now}");
        }
        for now in [989_000, 1_011_000] {
            assert!(matches!(kept.judge(&figure(now)), Outcome::Failed(_)), "{now}");
        }
    }

    #[test]
    fn another_compiler_is_skipped_not_judged() {
        let mut other = figure(5);
        other.rustc = "rustc 1.96.0".to_owned();
        assert!(matches!(figure(1_000_000).judge(&other), Outcome::Skipped(_)));
    }

    #[test]
    fn the_count_of_callgrind_is_read() {
        assert_eq!(collected("==123== Collected : 45678"), Some(45678));
        assert_eq!(collected("==123== Events    : Ir"), None);
    }
}
