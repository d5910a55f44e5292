//! Generates the tables from the raw data alone.

use crate::arms::{Arm, Level, Part, Server};
use crate::record::{Run, Setup};
use anyhow::Result;
use ioloom_stats::Ratio;
use ioloom_versus::pairs::{self, Spread};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Limits on the memory per idle connection and on its effect on the latency of others.
const IDLE_BYTES_MAX: f64 = 32.0 * 1024.0;
const IDLE_P99_MAX: f64 = 1.2;
/// Ratios that the levels must reach.
const GROUP_OF_OS_MIN: f64 = 0.7;
const GROUP_OF_EACH_MIN: f64 = 20.0;
/// Minimum sync time in ns for judging the ratio of `each`.
const SLOW_SYNC_NS: u64 = 2_000_000;
/// Printed instead of a verdict if the interval is missing.
const TOO_FEW: &str = "undecided: too few blocks";

/// The runs with their arms.
struct Table<'a> {
    setup: &'a Setup,
    runs: Vec<&'a Run>,
}

/// Returns the summary.
pub(crate) fn markdown(setup: &Setup, runs: &[Run]) -> Result<String> {
    let (lost, counted): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.failure.is_some());
    let table = Table { setup, runs: counted };
    let mut text = format!(
        "# The exchange and redis\n\n{} blocks, seed {}, commit {}\n\n{} on {} cores, {}; server \
         on processor {}, client on processor {}\n\nA sync of 4 KiB took {:.3} ms on {}.\n",
        setup.blocks,
        setup.seed,
        setup.commit,
        setup.facts.cpu_model,
        setup.facts.cores,
        setup.facts.kernel,
        setup.cores.0,
        setup.cores.1,
        setup.sync_ns as f64 / 1e6,
        setup.facts.medium.words(),
    );
    let has = |part| setup.arms.iter().any(|arm| arm.part == part);
    if has(Part::Redis) {
        table.redis(&mut text)?;
        table.ours(&mut text)?;
    }
    if has(Part::Levels) {
        table.levels(&mut text)?;
    }
    if has(Part::Idle) {
        table.idle(&mut text)?;
    }
    if has(Part::Tail) {
        table.tail(&mut text)?;
    }
    if !lost.is_empty() {
        writeln!(text, "\n{} runs failed and do not count.\n", lost.len())?;
    }
    for run in lost {
        let why = run.failure.as_deref().unwrap_or_default();
        writeln!(text, "- block {}, {}: {why}", run.block, setup.arms[run.arm].title())?;
    }
    Ok(text)
}

impl Table<'_> {
    fn arms(&self, part: Part) -> impl Iterator<Item = (usize, &Arm)> {
        self.setup.arms.iter().enumerate().filter(move |(_, arm)| arm.part == part)
    }

    fn of(&self, arm: usize, value: impl Fn(&Run) -> f64) -> Option<Spread> {
        let own = self.runs.iter().filter(|run| run.arm == arm);
        Spread::of(&own.map(|run| value(run)).collect::<Vec<_>>())
    }

    fn median(&self, arm: usize, value: impl Fn(&Run) -> f64) -> f64 {
        self.of(arm, value).map_or(f64::NAN, |summary| summary.median)
    }

    /// Returns the ratio of two arms' values, paired by block.
    fn ratio(&self, arm: usize, over: usize, value: impl Fn(&Run) -> f64) -> Option<Ratio> {
        let of = |arm| {
            let own = self.runs.iter().filter(move |run| run.arm == arm);
            own.map(|run| (run.block, value(run)))
        };
        let (own, others) = pairs::by_block(of(arm), of(over));
        Ratio::of(&own, &others).ok()
    }

    fn rate(&self, arm: usize) -> String {
        let shown = |s: Spread| format!("{:.0} ({:.0}-{:.0})", s.median, s.min, s.max);
        self.of(arm, |run| run.rate_per_s).map_or_else(|| "-".to_owned(), shown)
    }

    fn redis(&self, text: &mut String) -> Result<()> {
        writeln!(
            text,
            "\n## Compared with redis\n\nRatios: requests per second of ours over those of the \
            peer, paired \
             by block ({}); above 1 ours was better. `busy` is the share of its processor \
             that the server used: well below 100 % the client was the bottleneck, and the \
             processor \
             time for each request shows what the rate cannot. The last column is that of the peer \
             over that of ours. Where there are several of ours, the ratios are in their order.\n\n\
             | level | c | P | server | requests/s (median, min-max) | p99 ms | µs each | busy | \
             ours over it | its µs over ours |\n|---|---|---|---|---|---|---|---|---|---|",
            pairs::BRACKETS
        )?;
        let (mut cells, mut won, mut cheaper) = (0, 0, 0);
        for (at, arm) in self.arms(Part::Redis) {
            let is_ours = matches!(arm.server, Server::Ours(_));
            let [by_rate, by_cpu] =
                if is_ours { [Vec::new(), Vec::new()] } else { self.of_each_of_ours(at, arm) };
            if !is_ours {
                let reached = |ratios: &[Option<Ratio>]| {
                    let sure = |r: Ratio| r.reaches_confidence() && r.lo >= 1.0;
                    usize::from(ratios.first().is_some_and(|r| r.is_some_and(sure)))
                };
                cells += 1;
                won += reached(&by_rate);
                cheaper += reached(&by_cpu);
            }
            let joined = |ratios: Vec<Option<Ratio>>| {
                ratios.into_iter().map(ratio_text).collect::<Vec<_>>().join("; ")
            };
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {:.3} | {:.2} | {:.0} % | {} | {} |",
                arm.level.word(),
                arm.connections,
                arm.pipeline,
                arm.name,
                self.rate(at),
                self.median(at, |run| run.p99_ms),
                self.median(at, Run::cpu_us),
                self.median(at, Run::busy) * 100.0,
                joined(by_rate),
                joined(by_cpu),
            )?;
        }
        writeln!(
            text,
            "\nOf {cells} comparisons the first of ours answers as many or more in {won}, and \
            uses as \
             little processor time or less for each request in {cheaper} (the whole interval at 1 \
             or \
             above)."
        )?;
        Ok(())
    }

    /// Returns the rates of our arms relative to the peer in its cell, and its CPU time relative to
    /// theirs.
    fn of_each_of_ours(&self, at: usize, arm: &Arm) -> [Vec<Option<Ratio>>; 2] {
        let is_ours = |other: &Arm| matches!(other.server, Server::Ours(_));
        let ours = self.arms(Part::Redis).filter(|(_, o)| is_ours(o) && o.shares_cell_with(arm));
        ours.map(|(own, _)| {
            let by_rate = self.ratio(own, at, |run| run.rate_per_s);
            (by_rate, self.ratio(at, own, Run::cpu_us))
        })
        .unzip::<_, _, Vec<_>, Vec<_>>()
        .into()
    }

    /// Compares the first of ours with each other one, for example a new program with an old one.
    fn ours(&self, text: &mut String) -> Result<()> {
        let of_ours = || {
            self.arms(Part::Redis).filter(|(_, arm)| matches!(arm.server, Server::Ours(_)))
        };
        let Some((_, first)) = of_ours().next() else { return Ok(()) };
        let others: Vec<_> = of_ours().filter(|(_, arm)| arm.name != first.name).collect();
        if others.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\n## Our servers compared\n\nRequests per second of '{}' over those of the others, and \
             their processor time per request over its own, paired by block ({}); above 1 '{}' was \
             better. `all` is the geometric mean over the cells of each block.\n\n\
             | level | c | P | compared with | requests/s | µs each |\n|---|---|---|---|---|---|",
            first.name,
            pairs::BRACKETS,
            first.name
        )?;
        let mut all: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, arm) in others {
            let own = of_ours().find(|(_, o)| o.name == first.name && o.shares_cell_with(arm));
            let Some((own, _)) = own else { continue };
            all.entry(&arm.name).or_default().push((own, at));
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                arm.level.word(),
                arm.connections,
                arm.pipeline,
                arm.name,
                ratio_text(self.ratio(own, at, |run| run.rate_per_s)),
                ratio_text(self.ratio(at, own, Run::cpu_us)),
            )?;
        }
        for (name, cells) in all {
            let swapped: Vec<_> = cells.iter().map(|(own, other)| (*other, *own)).collect();
            writeln!(
                text,
                "| all | | | {name} | {} | {} |",
                ratio_text(self.ratio_of_all(&cells, |run| run.rate_per_s)),
                ratio_text(self.ratio_of_all(&swapped, Run::cpu_us)),
            )?;
        }
        Ok(())
    }

    /// Returns the ratio of the geometric means over the cells of each block in which no run is
    /// missing.
    fn ratio_of_all(
        &self,
        cells: &[(usize, usize)],
        value: impl Fn(&Run) -> f64,
    ) -> Option<Ratio> {
        let of = |arm: usize, block: u32| {
            let run = self.runs.iter().find(|run| run.arm == arm && run.block == block);
            run.map(|run| value(run).ln())
        };
        let mean = |block: u32, pick: fn(&(usize, usize)) -> usize| {
            let logs: Option<Vec<_>> = cells.iter().map(|cell| of(pick(cell), block)).collect();
            logs.map(|logs| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
        };
        let means = |block| mean(block, |cell| cell.0).zip(mean(block, |cell| cell.1));
        let (own, others): (Vec<_>, Vec<_>) = (0..self.setup.blocks).filter_map(means).unzip();
        Ratio::of(&own, &others).ok()
    }

    fn levels(&self, text: &mut String) -> Result<()> {
        let sync_s = self.setup.sync_ns as f64 / 1e9;
        writeln!(
            text,
            "\n## Levels\n\nThe law of group commit for a closed loop: N / (1.5 F), with F = \
            {:.3} ms \
             for a sync as measured before the runs. It knows no other cost than the sync.\n\n\
             | level | c | requests/s (median, min-max) | p99 ms | µs each | law 1/s | over the \
             law |\n\
             |---|---|---|---|---|---|---|",
            sync_s * 1e3
        )?;
        for (at, arm) in self.arms(Part::Levels) {
            let law = (arm.level == Level::Group)
                .then(|| f64::from(arm.connections) / (1.5 * sync_s))
                .map(|law| (format!("{law:.0}"), self.median(at, |run| run.rate_per_s) / law));
            let (law, over) =
                law.map_or_else(Default::default, |(law, over)| (law, format!("{over:.2}")));
            writeln!(
                text,
                "| {} | {} | {} | {:.3} | {:.2} | {law} | {over} |",
                arm.level.word(),
                arm.connections,
                self.rate(at),
                self.median(at, |run| run.p99_ms),
                self.median(at, Run::cpu_us),
            )?;
        }
        let find = |level| {
            let most = self.arms(Part::Levels).map(|(_, arm)| arm.connections).max();
            let mut arms = self.arms(Part::Levels);
            arms.find(|(_, arm)| arm.level == level && Some(arm.connections) == most)
        };
        let Some((group, arm)) = find(Level::Group) else { return Ok(()) };
        for (level, least) in [(Level::Os, GROUP_OF_OS_MIN), (Level::Each, GROUP_OF_EACH_MIN)] {
            let ratio =
                find(level).and_then(|(other, _)| self.ratio(group, other, |run| run.rate_per_s));
            let slow = self.setup.sync_ns >= SLOW_SYNC_NS;
            let verdict = match ratio {
                _ if level == Level::Each && !slow => "not judged: syncs take less than 2 ms here",
                Some(ratio) if !ratio.reaches_confidence() => TOO_FEW,
                Some(ratio) if ratio.lo >= least => "reached",
                Some(ratio) if ratio.hi < least => "missed",
                _ => "undecided",
            };
            writeln!(
                text,
                "\nAt {} connections group over {}: {} (wanted: {least} or more; {verdict}).",
                arm.connections,
                level.word(),
                ratio_text(ratio)
            )?;
        }
        Ok(())
    }

    fn idle(&self, text: &mut String) -> Result<()> {
        text.push_str(
            "\n## Silent connections\n\nMemory of the server with shared pages divided (PSS), \
            without \
             what the kernel holds for its sockets; latency of those that work, in a closed \
             loop.\n\n\
             | server | silent | PSS before KiB | PSS with them KiB | bytes for each | requests/s | p50 ms \
             | \
             p99 ms |\n|---|---|---|---|---|---|---|---|\n",
        );
        let mut judged = String::new();
        let each = |arm: &Arm, run: &Run| {
            let grown = run.pss_bytes.zip(run.pss_before_bytes);
            let grown = grown.map_or(f64::NAN, |(with, before)| with as f64 - before as f64);
            grown / f64::from(arm.idle.max(1))
        };
        let mut without = None;
        for (at, arm) in self.arms(Part::Idle) {
            let kib = |value: fn(&Run) -> Option<u64>| {
                self.median(at, |run| value(run).map_or(f64::NAN, |bytes| bytes as f64 / 1024.0))
            };
            writeln!(
                text,
                "| {} | {} | {:.0} | {:.0} | {} | {} | {:.3} | {:.3} |",
                arm.name,
                arm.idle,
                kib(|run| run.pss_before_bytes),
                kib(|run| run.pss_bytes),
                if arm.idle == 0 {
                    String::new()
                } else {
                    format!("{:.0}", self.median(at, |run| each(arm, run)))
                },
                self.rate(at),
                self.median(at, |run| run.p50_ms),
                self.median(at, |run| run.p99_ms),
            )?;
            if arm.idle == 0 {
                without = Some(at);
                continue;
            }
            let ratio = without.and_then(|other| self.ratio(at, other, |run| run.p99_ms));
            let bytes = self.of(at, |run| each(arm, run)).map_or(f64::NAN, |bytes| bytes.max);
            let [grown, waits] = idle_judged(bytes, ratio);
            writeln!(
                judged,
                "\n{}: a silent connection costs at most {bytes:.0} bytes (wanted: \
                {IDLE_BYTES_MAX:.0} or \
                 less; {grown}). p99 with them over p99 without: {} (wanted: {IDLE_P99_MAX} or \
                 less; {waits}).",
                arm.name,
                ratio_text(ratio),
            )?;
        }
        text.push_str(&judged);
        Ok(())
    }

    fn tail(&self, text: &mut String) -> Result<()> {
        text.push_str(
            "\n## The longest waits by model\n\nEach model at 70 % of the rate that it answered \
            right \
             before in a closed loop of as many connections; arrivals without memory, latencies \
             from \
             when requests were due. `late` counts runs in which the load itself was the \
             bottleneck: \
             then the latency is an upper bound.\n\n\
             | model | c | closed loop/s (median, min-max) | µs each | offered/s | p99.9 ms \
             (median, \
             min-max) | late |\n|---|---|---|---|---|---|---|\n",
        );
        for (at, arm) in self.arms(Part::Tail) {
            let waits = self.of(at, |run| run.p999_ms.unwrap_or(f64::NAN));
            let waits = waits.map_or_else(
                || "-".to_owned(),
                |s| format!("{:.2} ({:.2}-{:.2})", s.median, s.min, s.max),
            );
            let late = self.runs.iter().filter(|run| run.arm == at && run.load_was_late.is_some());
            writeln!(
                text,
                "| {} | {} | {} | {:.2} | {:.0} | {waits} | {} |",
                arm.name,
                arm.connections,
                self.rate(at),
                self.median(at, Run::cpu_us),
                self.median(at, |run| run.offered_per_s.unwrap_or(f64::NAN)),
                late.count(),
            )?;
        }
        Ok(())
    }
}

/// Evaluates idle connections: bytes per connection, and the latency of other connections.
fn idle_judged(bytes: f64, ratio: Option<Ratio>) -> [&'static str; 2] {
    let grown = match bytes {
        bytes if bytes.is_nan() => "not measured",
        bytes if bytes <= IDLE_BYTES_MAX => "reached",
        _ => "missed",
    };
    let waits = match ratio {
        None => "not measured",
        Some(ratio) if !ratio.reaches_confidence() => TOO_FEW,
        Some(ratio) if ratio.hi <= IDLE_P99_MAX => "reached",
        Some(ratio) if ratio.lo > IDLE_P99_MAX => "missed",
        Some(_) => "undecided",
    };
    [grown, waits]
}

fn ratio_text(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(String::new, |r| pairs::ratio_text(r, 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_versus::facts::Facts;

    fn arm(part: Part, level: Level, server: Server) -> Arm {
        let name = if server == Server::Decrby { "redis DECRBY" } else { "ours" }.to_owned();
        Arm { part, name, server, level, connections: 64, pipeline: 1, idle: 0, requests: 10 }
    }

    fn setup(arms: Vec<Arm>) -> Setup {
        Setup {
            schema: String::new(),
            commit: "c".to_owned(),
            facts: Facts::default(),
            blocks: 6,
            seed: 1,
            seconds: 0.1,
            cores: (0, 1),
            versions: Vec::new(),
            sync_ns: 3_000_000,
            arms,
        }
    }

    fn runs(values: &[(f64, u64)]) -> Vec<Run> {
        let run = |block, arm, (rate_per_s, server_cpu_ns): (f64, u64)| Run {
            block,
            arm,
            rate_per_s,
            server_cpu_ns,
            requests: 10,
            p99_ms: 1.0,
            ..Run::default()
        };
        let all =
            |block| values.iter().enumerate().map(move |(arm, value)| run(block, arm, *value));
        (0..6).flat_map(all).collect()
    }

    #[test]
    fn ours_is_compared_with_each_peer_of_its_cell() {
        let server = Server::Ours(vec!["x".to_owned()]);
        let part = Part::Redis;
        let arms = vec![arm(part, Level::None, server), arm(part, Level::None, Server::Decrby)];
        let text = markdown(&setup(arms), &runs(&[(200.0, 1000), (100.0, 500)])).unwrap();
        let row = text.lines().find(|line| line.contains("redis DECRBY |")).unwrap();
        assert!(row.ends_with("| 2.00 [2.00, 2.00] | 0.50 [0.50, 0.50] |"), "{row}");
        assert!(
            text.contains("Of 1 comparisons the first of ours answers as many or more in 1, and")
        );
    }

    #[test]
    fn ours_are_compared_with_each_other_in_each_cell_and_over_all() {
        let ours = |name: &str, level| Arm {
            name: name.to_owned(),
            ..arm(Part::Redis, level, Server::Ours(vec!["x".to_owned()]))
        };
        let arms = vec![
            ours("new", Level::None),
            ours("old", Level::None),
            arm(Part::Redis, Level::None, Server::Decrby),
            ours("new", Level::Os),
            ours("old", Level::Os),
        ];
        let values = [(200.0, 1000), (100.0, 1000), (50.0, 1), (400.0, 1000), (50.0, 4000)];
        let text = markdown(&setup(arms), &runs(&values)).unwrap();
        let rows: Vec<_> = text.lines().filter(|line| line.contains("| old | ")).collect();
        assert!(rows.contains(&"| none | 64 | 1 | old | 2.00 [2.00, 2.00] | 1.00 [1.00, 1.00] |"));
        assert!(rows.contains(&"| os | 64 | 1 | old | 8.00 [8.00, 8.00] | 4.00 [4.00, 4.00] |"));
        assert!(rows.contains(&"| all | | | old | 4.00 [4.00, 4.00] | 2.00 [2.00, 2.00] |"));
    }

    #[test]
    fn levels_are_held_to_what_was_wanted() {
        let server = Server::Ours(vec!["x".to_owned()]);
        let levels = [Level::Os, Level::Group, Level::Each];
        let arms = levels.map(|level| arm(Part::Levels, level, server.clone())).to_vec();
        let values = runs(&[(1000.0, 1), (800.0, 1), (10.0, 1)]);
        let text = markdown(&setup(arms), &values).unwrap();
        assert!(text.contains("group over os: 0.80 [0.80, 0.80] (wanted: 0.7 or more; reached)"));
        assert!(text.contains("group over each: 80.00 [80.00, 80.00]"), "{text}");
        // 64 / (1.5 · 3 ms)
        assert!(text.contains("| 14222 | 0.06 |"), "{text}");
    }
    #[test]
    fn few_blocks_reach_and_miss_nothing() {
        let server = Server::Ours(vec!["x".to_owned()]);
        let few = |values: &[(f64, u64)]| -> Vec<Run> {
            runs(values).into_iter().filter(|run| run.block < 3).collect()
        };
        let arms = vec![
            arm(Part::Redis, Level::None, server.clone()),
            arm(Part::Redis, Level::None, Server::Decrby),
        ];
        let text = markdown(&setup(arms), &few(&[(200.0, 1000), (100.0, 500)])).unwrap();
        let row = text.lines().find(|line| line.contains("redis DECRBY |")).unwrap();
        assert!(row.ends_with("| 2.00 (2.00 to 2.00) | 0.50 (0.50 to 0.50) |"), "{row}");
        assert!(text.contains("Of 1 comparisons the first of ours answers as many or more in 0,"));
        let levels = [Level::Os, Level::Group, Level::Each];
        let arms = levels.map(|level| arm(Part::Levels, level, server.clone())).to_vec();
        let text = markdown(&setup(arms), &few(&[(1000.0, 1), (800.0, 1), (10.0, 1)])).unwrap();
        let expected =
            "group over os: 0.80 (0.80 to 0.80) (wanted: 0.7 or more; undecided: too few";
        assert!(text.contains(expected), "{text}");
    }
}
