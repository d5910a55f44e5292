//! `cargo xtask fuzz-copy` and `fuzz-du`: random cases for the system's programs and ours.
//!
//! A case is a random tree with random options and arguments ([`copy`], [`du`]). Both programs run
//! on equal starts, and an independent checker compares what they leave or print. Differences that
//! are intended are on a list in the code, each with its reason; any other one fails the command. A
//! failed case is made smaller and printed with its seed: `fuzz-du 1 SEED` repeats it alone.

mod copy;
mod copy_accepted;
mod copy_case;
mod copy_names;
mod copy_parents;
mod copy_run;
mod du;
mod place;
mod program;
mod random;
mod snapshot;
pub(crate) mod sweep;
mod tree;

use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::{Context, bail};
use place::Place;
pub(crate) use place::enter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Attempts to make a failed case smaller.
const ATTEMPTS_MAX: u64 = 300;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Copy,
    Du,
}

impl What {
    const fn command(self) -> &'static str {
        match self {
            Self::Copy => "fuzz-copy",
            Self::Du => "fuzz-du",
        }
    }

    const fn file_systems(self) -> &'static [&'static str] {
        match self {
            Self::Copy => &place::ALL,
            Self::Du => &["tmpfs", "ext4", "xfs", "btrfs", "overlay"],
        }
    }

    const fn accepted(self) -> &'static [&'static str] {
        match self {
            Self::Copy => &copy_accepted::ACCEPTED,
            Self::Du => &du::ACCEPTED,
        }
    }
}

/// A case of either kind.
#[derive(Debug, Clone)]
enum Case {
    Copy(copy_case::Case),
    Du(du::Case),
}

impl Case {
    fn draw(what: What, seed: u64, root: bool) -> Self {
        match what {
            What::Copy => Self::Copy(copy_case::Case::draw(seed, root)),
            What::Du => Self::Du(du::Case::draw(seed, root)),
        }
    }

    fn differences(
        &self,
        (place, reference): (&Place, &Place),
        program: &Path,
        number: u64,
    ) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Copy(case) => case.differences(place, reference, program, number),
            Self::Du(case) => case.differences((place, reference), program, number),
        }
    }

    fn simpler(&self) -> Vec<Self> {
        match self {
            Self::Copy(case) => case.simpler().into_iter().map(Self::Copy).collect(),
            Self::Du(case) => case.simpler().into_iter().map(Self::Du).collect(),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Copy(case) => case.describe(),
            Self::Du(case) => case.describe(),
        }
    }
}

/// The arguments of a run.
struct Options {
    count: u64,
    seed: u64,
    file_systems: Vec<String>,
    /// Whether the user named the file systems; all of them must then be mounted.
    named: bool,
    /// Whether only the plain user's cases run.
    plain: bool,
    program: Option<PathBuf>,
}

impl Options {
    fn parse(what: What, words: &[&str]) -> anyhow::Result<Self> {
        let usage = || {
            let command = what.command();
            format!("usage: {command} N SEED [--fs NAME,NAME] [--user] [--program PATH]")
        };
        let [count, seed, rest @ ..] = words else { bail!("{}", usage()) };
        let number = |word: &str| word.parse().with_context(|| format!("'{word}': {}", usage()));
        let file_systems = what.file_systems().iter().map(|name| (*name).to_owned()).collect();
        let (count, seed) = (number(count)?, number(seed)?);
        let mut options =
            Self { count, seed, file_systems, named: false, plain: false, program: None };
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            let mut value = || rest.next().with_context(usage);
            match *word {
                "--user" => options.plain = true,
                "--fs" => {
                    options.file_systems = value()?.split(',').map(str::to_owned).collect();
                    options.named = true;
                }
                "--program" => options.program = Some(PathBuf::from(value()?)),
                _ => bail!("{word}: unknown option; {}", usage()),
            }
        }
        for name in &options.file_systems {
            place::check_name(name)?;
        }
        Ok(options)
    }
}

/// Runs the cases, in a private mount namespace as root.
pub(crate) fn run(repo: &Repo, what: What, words: &[&str]) -> anyhow::Result<ExitCode> {
    let options = Options::parse(what, words)?;
    let all: Vec<&str> = std::iter::once(what.command()).chain(words.iter().copied()).collect();
    if let Some(code) = place::enter(&all)? {
        return Ok(code);
    }
    let program = match &options.program {
        Some(program) => program.clone(),
        None => repo.target_dir()?.join("debug/ioloom"),
    };
    let outcome = run_inside(what, &options, &program)?;
    Ok(ExitCode::from(u8::from(!outcome.print_alone(what.command()))))
}

fn run_inside(what: What, options: &Options, program: &Path) -> anyhow::Result<Outcome> {
    // The plain user must reach the program.
    let own = std::env::temp_dir().join(format!("ioloom-fuzz-{}.program", std::process::id()));
    if std::fs::hard_link(program, &own).is_err() {
        std::fs::copy(program, &own)
            .with_context(|| format!("{}: build the program first", program.display()))?;
    }
    let ended = cases(what, options, &own);
    let _ = std::fs::remove_file(&own);
    ended
}

fn cases(what: What, options: &Options, program: &Path) -> anyhow::Result<Outcome> {
    let root = rustix::process::getuid().is_root();
    let (mut places, mut missing) = (Vec::new(), Vec::new());
    for name in &options.file_systems {
        match Place::mount(name) {
            Ok(place) if options.named && place.name != *name => {
                bail!("cannot mount {name}: root is required");
            }
            Ok(place) => places.push(place),
            Err(error) if options.named => {
                return Err(error).with_context(|| format!("cannot mount {name}"));
            }
            Err(error) => missing.push(format!("{name} ({error:#})")),
        }
    }
    missing.iter().for_each(|missing| println!("skipped: {missing}"));
    if places.is_empty() {
        return Ok(Outcome::Skipped("no file system can be mounted".to_owned()));
    }
    let reference = Place::mount_as("tmpfs", "reference")?;
    println!("accepted differences:");
    what.accepted().iter().for_each(|accepted| println!("  - {accepted}"));
    let mut different = Vec::new();
    for number in 0..options.count {
        let seed = options.seed.wrapping_add(number);
        let place = &places[(seed % places.len() as u64) as usize];
        let as_root = root && !options.plain && !seed.is_multiple_of(3);
        let case = Case::draw(what, seed, as_root);
        let found = case
            .differences((place, &reference), program, seed)
            .with_context(|| format!("seed {seed} on {}\n{}", place.name, case.describe()))?;
        if !found.is_empty() {
            different.push(seed);
            report(&case, (place, &reference), program, seed, found)?;
        }
        if number % 100 == 99 {
            println!("{} cases, {} with differences", number + 1, different.len());
        }
    }
    let names: Vec<&str> = places.iter().map(|place| place.name.as_str()).collect();
    let summary = format!("{} cases on {}", options.count, names.join(", "));
    Ok(if different.is_empty() {
        Outcome::Passed(summary)
    } else {
        let seeds: Vec<String> = different.iter().map(u64::to_string).collect();
        Outcome::Failed(format!("{summary}; {} differ: {}", seeds.len(), seeds.join(" ")))
    })
}

/// Makes a failed case smaller while it differs, and prints it.
fn report(
    case: &Case,
    places: (&Place, &Place),
    program: &Path,
    seed: u64,
    found: Vec<String>,
) -> anyhow::Result<()> {
    let (mut case, mut found, mut attempts) = (case.clone(), found, 0);
    'smaller: loop {
        for simpler in case.simpler() {
            attempts += 1;
            if attempts > ATTEMPTS_MAX {
                break 'smaller;
            }
            let number = 1_000_000_000_000 + attempts;
            let differences = simpler.differences(places, program, number)?;
            if !differences.is_empty() {
                (case, found) = (simpler, differences);
                continue 'smaller;
            }
        }
        break;
    }
    println!("DIFFERENT: seed {seed} on {}\n{}", places.0.name, case.describe());
    found.iter().for_each(|line| println!("  {line}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_file_systems_are_refused() {
        let parse = |words: &[&str]| Options::parse(What::Du, words);
        let named = parse(&["3", "1", "--fs", "tmpfs,fuse"]).unwrap();
        assert!(named.named && named.file_systems == ["tmpfs", "fuse"]);
        assert!(!parse(&["3", "1"]).unwrap().named);
        for unknown in ["ext5", "tmpfs,ext5", ""] {
            assert!(parse(&["3", "1", "--fs", unknown]).is_err(), "{unknown}");
        }
    }
}
