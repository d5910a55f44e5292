//! Generates the summary from the raw data alone.
//!
//! Arms are compared block by block. A pair consists of two runs in the same block; the figure is
//! the median ratio over blocks with a seeded 95 % bootstrap interval (crate `ioloom-stats`), or
//! with the range for fewer than six blocks. A ratio above 1 means that ours was faster. The
//! primary figure is the wall time of the whole process. Runs that failed or whose condition is not
//! proved are listed and do not count.

use crate::cli::{Condition, Input};
use crate::record::{ArmFacts, Kind, Run, Setup};
use anyhow::{Context, Result};
use ioloom_stats::{Bootstrap, Ratio, median};
use ioloom_versus::pairs;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Minimum number of blocks for a sentence.
const BLOCKS_MIN: usize = 8;

/// The time of a run to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    Wall,
    InProcess,
}

impl Time {
    fn of(self, run: &Run) -> Option<f64> {
        match self {
            Self::Wall => Some(run.wall_ns as f64),
            Self::InProcess => run.elapsed_ns.map(|ns| ns as f64),
        }
    }
}

/// Counted runs by arm.
struct Data<'a> {
    setup: &'a Setup,
    runs: BTreeMap<&'a str, Vec<&'a Run>>,
}

/// Returns whether every run of every arm exists and counts.
pub(crate) fn is_complete(setup: &Setup, runs: &[Run]) -> bool {
    let wanted = setup.arms.len() * setup.blocks as usize;
    runs.iter().filter(|r| r.counts()).count() == wanted
}

/// Returns the whole summary as Markdown.
pub(crate) fn markdown(setup: &Setup, runs: &[Run]) -> Result<String> {
    let mut by_arm: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|r| r.counts()) {
        by_arm.entry(&run.arm).or_default().push(run);
    }
    let data = Data { setup, runs: by_arm };
    let mut text = head(setup, runs);
    data.answers(&mut text)?;
    data.arms(&mut text)?;
    data.ratios(&mut text)?;
    data.floor(&mut text)?;
    troubles(setup, runs, &mut text)?;
    Ok(text)
}

fn head(setup: &Setup, runs: &[Run]) -> String {
    let condition = match setup.condition {
        Condition::Cold => "cold",
        Condition::Warm => "warm",
    };
    let input = match setup.input {
        Input::Walk => "walk the directory, inside the wall time",
        Input::List => "read a prepared list",
    };
    format!(
        "# Summary: {condition} (by {}), {} files, {:.1} MiB\n\n\
         {} runs of {} arms in {} blocks, random order within each block, seed {}. Wall time of \
         the \
         whole process is the primary figure for every ratio; the in-process figure (from first \
         open to last hash, as each program reports it) is secondary. {}. The peers \
         {input}.\n\n{}",
        setup.condition_made_by,
        setup.files,
        mib(setup.bytes),
        runs.len(),
        setup.arms.len(),
        setup.blocks,
        setup.seed,
        pairs::BRACKETS,
        unequal_input(setup),
    )
}

/// Adds a warning about our arms that get their files differently than the peers.
fn unequal_input(setup: &Setup) -> String {
    let mut text = String::new();
    for arm in setup.arms.iter().filter(|arm| arm.kind == Kind::Ours) {
        let reads_list = arm.command.iter().any(|word| word.contains("{list"));
        let sentence = match (setup.input, reads_list) {
            (Input::List, false) => {
                "walks the directory inside its wall time and the peers do not: read its ratios as \
                 too low"
            }
            (Input::Walk, true) => {
                "reads a list and the peers walk within their wall time: its ratios are too high"
            }
            _ => continue,
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "**Not equal: {} {sentence}.**\n", arm.name);
    }
    text
}

impl<'a> Data<'a> {
    fn arms_of(&self, kinds: &'static [Kind]) -> impl Iterator<Item = &'a ArmFacts> + '_ {
        self.setup.arms.iter().filter(move |arm| kinds.contains(&arm.kind))
    }

    fn runs_of(&self, arm: &str) -> &[&'a Run] {
        self.runs.get(arm).map_or(&[], Vec::as_slice)
    }

    fn median_of(&self, arm: &str, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs_of(arm).iter().filter_map(|r| value(r)).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// Returns the speed of `a` divided by the speed of `b` over common blocks; `None` for fewer
    /// than 2 pairs.
    fn speed_ratio(&self, a: &str, b: &str, time: Time) -> Result<Option<Ratio>> {
        let timed = |arm| self.runs_of(arm).iter().filter_map(|r| Some((r.block, time.of(r)?)));
        let (ours, theirs) = pairs::by_block(timed(a), timed(b));
        if ours.len() < 2 {
            return Ok(None);
        }
        let ratio =
            Ratio::of(&theirs, &ours).with_context(|| format!("cannot compare {a} with {b}"))?;
        Ok(Some(ratio))
    }

    /// Returns the arm with the shortest median time.
    fn best(&self, kinds: &'static [Kind], time: Time) -> Option<&'a str> {
        let timed = self.arms_of(kinds).filter_map(|arm| {
            Some((arm.name.as_str(), self.median_of(&arm.name, |r| time.of(r))?))
        });
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
    }

    fn answers(&self, text: &mut String) -> Result<()> {
        text.push_str("## Answer\n\n");
        let mut any = false;
        for arm in self.arms_of(&[Kind::Ours]) {
            if let Some(best) = self.best(&[Kind::Peer], Time::Wall) {
                let ratio = self.speed_ratio(&arm.name, best, Time::Wall)?;
                any |= answer(text, &arm.name, best, "whole process", ratio);
            }
            if let Some(best) = self.best(&[Kind::Lean], Time::Wall) {
                let ratio = self.speed_ratio(&arm.name, best, Time::Wall)?;
                any |= answer(text, &arm.name, best, "whole process", ratio);
            }
            // fio starts more slowly than the others even without reading, so its own run time is
            // shown in addition to the common measure.
            for (time, word) in [(Time::Wall, "whole process"), (Time::InProcess, "in-process")] {
                if let Some(best) = self.best(&[Kind::Fio], time) {
                    let ratio = self.speed_ratio(&arm.name, best, time)?;
                    any |= answer(text, &arm.name, best, word, ratio);
                }
            }
        }
        if any {
            text.push_str(
                "\nNamed is the best arm of its kind (peers, hand-written calls, fio), chosen \
                after \
                 the fact by its median, which favours that arm.\n\n",
            );
        } else {
            text.push_str("No pair of ours and a peer has two counting blocks.\n\n");
        }
        Ok(())
    }

    fn arms(&self, text: &mut String) -> Result<()> {
        text.push_str(
            "## Arms\n\nMedians, each of its own column: user and kernel need not add up to the \
             sum. Other CPU is the processor time of everything else over wall time and cores; it \
             comes in clock ticks and says nothing for runs of a few milliseconds.\n\n| arm | n | \
             files/s, whole process | MiB/s | wall s | in-process s \
             | CPU s per 100 000 files (user + kernel) | peak MiB | other CPU % |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        let files = self.setup.files as f64;
        for arm in &self.setup.arms {
            let runs = self.runs_of(&arm.name);
            let rates: Vec<f64> = runs.iter().map(|r| files / seconds(r.wall_ns)).collect();
            let get = |f: &dyn Fn(&Run) -> Option<f64>| self.median_of(&arm.name, f);
            let per_100k = |ns: u64| Some(seconds(ns) * 100_000.0 / files);
            let cpu = match (
                get(&|r| per_100k(r.cpu_ns())),
                get(&|r| per_100k(r.cpu_user_ns)),
                get(&|r| per_100k(r.cpu_kernel_ns)),
            ) {
                (Some(sum), Some(user), Some(kernel)) => {
                    format!("{sum:.3} ({user:.3} + {kernel:.3})")
                }
                _ => "-".to_owned(),
            };
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {cpu} | {} | {} |",
                arm.name,
                runs.len(),
                self.interval(&rates)?,
                cell(get(&|r| Some(mib(self.setup.bytes) / seconds(r.wall_ns))), 1),
                cell(get(&|r| Some(seconds(r.wall_ns))), 3),
                cell(get(&|r| r.elapsed_ns.map(seconds)), 3),
                cell(get(&|r| r.peak_rss_bytes.map(mib)), 1),
                cell(get(&|r| r.others_cpu.map(|share| share * 100.0)), 1),
            )?;
        }
        text.push('\n');
        Ok(())
    }

    fn interval(&self, values: &[f64]) -> Result<String> {
        Ok(match values {
            [] => "-".to_owned(),
            [one] => format!("{one:.0}"),
            _ => pairs::median_text(Bootstrap::new(self.setup.seed).median(values)?, 0),
        })
    }

    fn ratios(&self, text: &mut String) -> Result<()> {
        for ours in self.arms_of(&[Kind::Ours]) {
            writeln!(
                text,
                "## Speed of {} over each other arm (above 1: {} is faster)\n\n\
                 | arm | n | whole process | in-process | scatter of a block % |\n\
                 |---|---:|---:|---:|---:|",
                ours.name, ours.name
            )?;
            for other in self.setup.arms.iter().filter(|arm| arm.name != ours.name) {
                let wall = self.speed_ratio(&ours.name, &other.name, Time::Wall)?;
                let inside = self.speed_ratio(&ours.name, &other.name, Time::InProcess)?;
                writeln!(
                    text,
                    "| {} | {} | {} | {} | {} |",
                    other.name,
                    wall.map_or(0, |r| r.n),
                    ratio_cell(wall),
                    ratio_cell(inside),
                    cell(wall.map(|r| r.noise * 100.0), 1),
                )?;
            }
            text.push('\n');
        }
        Ok(())
    }

    /// Returns the floor's CPU time divided by the cores: a lower bound for blocking reads.
    fn floor(&self, text: &mut String) -> Result<()> {
        let floors = self.arms_of(&[Kind::Floor]).filter_map(|arm| {
            Some((arm.name.as_str(), self.median_of(&arm.name, |r| Some(seconds(r.cpu_ns())))?))
        });
        let Some((name, cpu_s)) = floors.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return Ok(());
        };
        let cores = f64::from(self.setup.facts.cores.max(1));
        let floor_s = cpu_s / cores;
        writeln!(
            text,
            "## Kernel-CPU floor\n\n{name} (openat, read, close; no hash) used {cpu_s:.3} s of \
             processor time, {floor_s:.3} s on each of {cores} cores. Share of that floor that an \
             arm reaches = floor / its median wall time:\n\n| arm | share % |\n|---|---:|"
        )?;
        for arm in self.arms_of(&[Kind::Ours, Kind::Peer, Kind::Lean]) {
            let wall = self.median_of(&arm.name, |r| Some(seconds(r.wall_ns)));
            writeln!(text, "| {} | {} |", arm.name, cell(wall.map(|s| floor_s / s * 100.0), 1))?;
        }
        text.push('\n');
        Ok(())
    }
}

/// Adds one sentence. Returns whether there was a comparison.
fn answer(text: &mut String, ours: &str, peer: &str, time: &str, ratio: Option<Ratio>) -> bool {
    let Some(ratio) = ratio else { return false };
    let verdict = if ratio.n < BLOCKS_MIN {
        format!("undecided, fewer than {BLOCKS_MIN} blocks")
    } else if ratio.lo >= 1.0 {
        "the interval is not below 1.0".to_owned()
    } else if ratio.hi < 1.0 {
        "the interval is entirely below 1.0".to_owned()
    } else {
        "the interval reaches below 1.0".to_owned()
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "- {ours} against {peer}, {time}: {} over {} blocks: {verdict}.",
        ratio_cell(Some(ratio)),
        ratio.n
    );
    true
}

fn troubles(setup: &Setup, runs: &[Run], text: &mut String) -> Result<()> {
    let mut reasons: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for run in runs {
        if let Some(reason) = run.failure.as_deref().or(run.proof.doubt.as_deref()) {
            *reasons.entry((&run.arm, reason)).or_default() += 1;
        }
    }
    let missing = (setup.arms.len() * setup.blocks as usize).saturating_sub(runs.len());
    if reasons.is_empty() && setup.refused.is_empty() && missing == 0 {
        return Ok(());
    }
    text.push_str("## Runs that do not count\n\n");
    for ((arm, reason), count) in &reasons {
        writeln!(text, "- {arm}: {count} × {reason}")?;
    }
    for (arm, reason) in &setup.refused {
        writeln!(text, "- {arm}: refused: {reason}")?;
    }
    if missing > 0 {
        writeln!(text, "- {missing} runs are missing: the experiment was stopped early")?;
    }
    text.push('\n');
    Ok(())
}

fn ratio_cell(ratio: Option<Ratio>) -> String {
    ratio.map_or("-".to_owned(), |r| pairs::ratio_text(r, 3))
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |v| format!("{v:.digits$}"))
}

fn seconds(ns: u64) -> f64 {
    ns.max(1) as f64 / 1e9
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::Proof;
    use ioloom_versus::facts::Facts;

    fn arm(name: &str, kind: Kind) -> ArmFacts {
        ArmFacts {
            name: name.to_owned(),
            kind,
            command: vec![name.to_owned()],
            version: String::new(),
            program_xxh3: String::new(),
        }
    }

    /// A setup with ours, two peers, a floor and fio.
    pub(crate) fn setup(blocks: u32) -> Setup {
        Setup {
            schema: 1,
            facts: Facts { cores: 2, ..Facts::default() },
            commit: "c".to_owned(),
            condition: Condition::Warm,
            condition_made_by: "read-all".to_owned(),
            input: Input::Walk,
            blocks,
            seed: 1,
            files: 1000,
            bytes: 1 << 20,
            digest_sum: String::new(),
            digest_combined: String::new(),
            arms: vec![
                arm("ours", Kind::Ours),
                arm("slow", Kind::Peer),
                arm("fast", Kind::Peer),
                arm("leanest:1", Kind::Floor),
                arm("fio-psync:1x1", Kind::Fio),
            ],
            refused: BTreeMap::new(),
            orders: Vec::new(),
        }
    }

    fn run(arm: &str, block: u32, wall_ns: u64) -> Run {
        Run {
            arm: arm.to_owned(),
            block,
            position: 0,
            started_unix_ms: 0,
            wall_ns,
            elapsed_ns: Some(wall_ns / 2),
            files: Some(1000),
            bytes: Some(1 << 20),
            digest: None,
            peak_rss_bytes: None,
            cpu_user_ns: 100_000_000,
            cpu_kernel_ns: 300_000_000,
            process_read_bytes: 0,
            others_cpu: Some(0.25),
            proof: Proof::default(),
            failure: None,
        }
    }

    /// Blocks differ by a factor of 100; arms within a block differ by a fixed factor.
    fn runs(blocks: u32) -> Vec<Run> {
        let mut runs = Vec::new();
        for block in 0..blocks {
            let base = 1_000_000_000 * (1 + u64::from(block % 3) * 49);
            for (name, percent) in [
                ("ours", 100),
                ("slow", 200),
                ("fast", 120),
                ("leanest:1", 80),
                ("fio-psync:1x1", 90),
            ] {
                runs.push(run(name, block, base * percent / 100));
            }
        }
        runs
    }

    #[test]
    fn pairs_take_the_noise_of_blocks_out() {
        let text = markdown(&setup(9), &runs(9)).expect("a summary");
        assert!(
            text.contains("| slow | 9 | 2.000 [2.000, 2.000] | 2.000 [2.000, 2.000] |"),
            "{text}"
        );
        assert!(
            text.contains("- ours against fast, whole process: 1.200 [1.200, 1.200] over 9 blocks")
        );
        assert!(text.contains("the interval is not below 1.0"));
        assert!(text.contains("- ours against fio-psync:1x1, in-process: 0.900"));
        assert!(text.contains("the interval is entirely below 1.0"));
    }

    #[test]
    fn the_floor_is_processor_time_over_cores() {
        let mut same = runs(9);
        for run in &mut same {
            run.wall_ns = 400_000_000;
        }
        let text = markdown(&setup(9), &same).expect("a summary");
        // 0.4 s of CPU time on 2 cores takes 0.2 s; the wall time of all is 0.4 s.
        assert!(text.contains("0.200 s on each of 2 cores"), "{text}");
        assert!(text.contains("| ours | 50.0 |"), "{text}");
        // 0.4 s for 1000 files are 40 s for 100 000.
        assert!(text.contains("| 40.000 (10.000 + 30.000) |"), "{text}");
    }

    #[test]
    fn runs_without_proof_or_result_leave_their_pair_and_are_listed() {
        let mut some = runs(9);
        some[0].proof.doubt = Some("not cold".to_owned());
        some[6].failure = Some("it crashed".to_owned());
        let setup = setup(9);
        assert!(!is_complete(&setup, &some));
        assert!(is_complete(&setup, &runs(9)));
        let text = markdown(&setup, &some).expect("a summary");
        assert!(text.contains("| slow | 7 | 2.000"), "{text}");
        assert!(text.contains("- ours: 1 × not cold"), "{text}");
        assert!(text.contains("- slow: 1 × it crashed"), "{text}");
    }

    #[test]
    fn few_blocks_decide_nothing() {
        let text = markdown(&setup(3), &runs(3)).expect("a summary");
        assert!(text.contains("undecided, fewer than 8 blocks"), "{text}");
        assert!(!text.contains("Not equal"), "{text}");
        let mut listed = setup(3);
        listed.input = Input::List;
        let text = markdown(&listed, &runs(3)).expect("a summary");
        assert!(text.contains("**Not equal: ours walks"), "{text}");
        let empty = markdown(&setup(3), &[]).expect("a summary");
        assert!(empty.contains("15 runs are missing"), "{empty}");
    }
}
