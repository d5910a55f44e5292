//! Detects doubts about a single run.
//!
//! Doubts about series (drift, two regimes, few samples, noise floor) need many runs and are left
//! to statistics. This module checks whether the run read all bytes of the set and the same bytes
//! as other runs, and whether it was disturbed, too short, or used too many threads for the
//! machine.

use crate::child::CLOCK_STEP;
use crate::files::FileList;
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, CallKind, CallStats, Compute, Doubt, Measured, RunRecord, Schedule};
use std::collections::BTreeMap;

/// Maximum share of CPU capacity that other programs may use during a run.
pub const OTHERS_CPU_MAX: f64 = 0.15;
/// Maximum share of CPU capacity that the hypervisor may give to other machines during a run.
pub const STEAL_MAX: f64 = 0.05;
/// Maximum share of the time in which a thread may wait for a processor, in a run that has no more threads
/// than there are cores and whose neighbours could not be counted.
pub const PRESSURE_MAX: f64 = 0.15;
/// Maximum share of the bytes moved by block devices that may belong to other programs, in a run that
/// moves at least [`DEVICE_BYTES_MIN`].
pub const OTHERS_DEVICE_MAX: f64 = 0.15;
/// Minimum bytes read from a device, or written to one, for the share of others to matter.
pub const DEVICE_BYTES_MIN: u64 = 1 << 20;
/// How many times the bytes that a run writes others may write. The journal of a file system writes
/// several times what a program syncs, in a thread of the kernel.
pub const OTHERS_WRITES_MAX: f64 = 8.0;
/// Minimum duration of a run in nanoseconds; a shorter run is mostly startup.
pub const SHORT_RUN_NS: u64 = 10_000_000;

/// Maximum share of thread time for the program's own overhead.
pub const OWN_MAX: f64 = 0.25;
/// Minimum number of clock steps in a call for its time to be meaningful.
pub const STEPS_MIN: f64 = 4.0;

/// Digests are compared between runs with the same set, file count, byte count and compute.
type Same = (String, u64, u64, String);

/// Judges runs and stores their digests for comparison.
#[derive(Debug)]
pub struct Judge {
    cores: u32,
    /// Number of runs per digest.
    votes: BTreeMap<Same, BTreeMap<String, u32>>,
}

impl Judge {
    /// Returns a judge for a machine with this number of usable cores.
    pub fn new(cores: u32) -> Self {
        Self { cores: cores.max(1), votes: BTreeMap::new() }
    }

    /// Records the digest of a run.
    pub fn remember(&mut self, record: &RunRecord) {
        if let Some(measured) = record.measured()
            && comparable(&record.plan, measured)
        {
            let of = self.votes.entry(same(record, measured)).or_default();
            *of.entry(measured.digest.clone()).or_default() += 1;
        }
    }

    /// Returns whether another digest has at least as many runs as this run's digest, including
    /// this run. If two runs disagree, the second is doubted; among many runs, the minority is. A
    /// run without a digest cannot disagree.
    fn outvoted(&self, record: &RunRecord, measured: &Measured) -> bool {
        if !comparable(&record.plan, measured) {
            return false;
        }
        let Some(of) = self.votes.get(&same(record, measured)) else { return false };
        let own = of.get(&measured.digest).copied().unwrap_or(0) + 1;
        of.iter().any(|(digest, votes)| *digest != measured.digest && *votes >= own)
    }

    /// Doubts the runs of a finished session whose digest fewer runs have than another one. When a run
    /// ends, only the runs before it are known, so a wrong one among the first is not doubted then.
    pub(crate) fn doubt_minorities(runs: &mut [RunRecord]) {
        let mut judge = Self::new(1);
        runs.iter().for_each(|run| judge.remember(run));
        for run in runs {
            let outvoted = run.measured().is_some_and(|measured| {
                let of = judge.votes.get(&same(run, measured));
                let own = of.and_then(|of| of.get(&measured.digest)).copied().unwrap_or(0);
                let most = of.and_then(|of| of.values().max()).copied().unwrap_or(0);
                comparable(&run.plan, measured) && own < most
            });
            if outvoted && !run.doubts.contains(&Doubt::WrongBytes) {
                run.doubts.push(Doubt::WrongBytes);
                tidy(&mut run.doubts);
            }
        }
    }

    /// Adds the doubts that follow from the run's numbers. `scaled` means that the set is smaller
    /// than the published one.
    pub fn judge(&self, record: &mut RunRecord, order: &RunOrder, files: &FileList, scaled: bool) {
        let mut doubts = Vec::new();
        // Spans are stored only for the first block, so other blocks cannot lack any.
        let kept = order.spans_max > 0 && record.key.block == 0;
        if let Some(measured) = record.measured() {
            if self.wrong_bytes(record, measured, order, files) {
                doubts.push(Doubt::WrongBytes);
            }
            for (doubt, holds) in [
                (Doubt::Errors, measured.errors > 0),
                (Doubt::NoisyNeighbour, self.disturbed(&record.plan, measured)),
                (Doubt::ShortRun, measured.elapsed_ns < SHORT_RUN_NS),
                (Doubt::SpansLost, kept && measured.spans_lost > 0),
                (Doubt::ClockCoarse, clock_coarse(measured)),
                (Doubt::OwnOverhead, !record.plan.is_null() && own_share(measured) > OWN_MAX),
                (Doubt::Oversubscribed, self.oversubscribed(&order.plan, &order.compute)),
                (Doubt::Scaled, scaled),
            ] {
                if holds {
                    doubts.push(doubt);
                }
            }
        }
        record.doubts.extend(doubts);
    }

    fn wrong_bytes(
        &self,
        record: &RunRecord,
        measured: &Measured,
        order: &RunOrder,
        files: &FileList,
    ) -> bool {
        // For other subjects, only the adapter knows what a run should have read.
        if measured.errors > 0 {
            return false;
        }
        if record.plan.files().is_none() {
            return self.outvoted(record, measured);
        }
        // A set that must stay cold was not listed; the subject compares the run with its manifest.
        let listed = !files.is_empty();
        if listed && measured.files != files.count(order.files_max) as u64 {
            return true;
        }
        if record.plan.is_null() {
            return false;
        }
        let differs = listed && measured.bytes != files.bytes(order.files_max);
        differs || self.outvoted(record, measured)
    }

    /// Returns whether other programs or other machines took processor time or device bandwidth.
    fn disturbed(&self, plan: &AnyPlan, measured: &Measured) -> bool {
        let over = |share: Option<f64>, most: f64| share.is_some_and(|share| share > most);
        // Threads of a larger run wait for each other, and servers have threads of their own.
        let alone = plan.files().is_some() && plan.threads() <= self.cores;
        let waited = measured.others_cpu.is_none() && over(measured.cpu_pressure, PRESSURE_MAX);
        over(measured.others_cpu, OTHERS_CPU_MAX)
            || over(measured.steal_cpu, STEAL_MAX)
            || (alone && waited)
            || device_disturbed(measured)
    }

    /// Returns whether long computations ran on more threads than cores.
    fn oversubscribed(&self, plan: &AnyPlan, compute: &Compute) -> bool {
        let heavy = match compute {
            Compute::Spin(_) | Compute::Checksum { .. } => true,
            Compute::Hash(hash) => !hash.is_light(),
            Compute::None | Compute::Touch | Compute::Sleep(_) => false,
        };
        let threads = match plan.files().map(|plan| plan.schedule) {
            Some(Schedule::Roles { hybrids, computers, .. }) => hybrids + computers,
            Some(Schedule::Window { permits, .. }) => permits.unwrap_or(1),
            Some(Schedule::Threads { .. }) | None => plan.threads(),
        };
        heavy && threads > self.cores
    }
}

/// Returns whether other programs took device bandwidth from a run that used it.
fn device_disturbed(measured: &Measured) -> bool {
    let used = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes >= DEVICE_BYTES_MIN);
    let own = |bytes: Option<u64>| bytes.unwrap_or(0) as f64;
    let (read, written) = (measured.device_read_bytes, measured.device_written_bytes);
    let others_read = own(measured.others_read_bytes);
    let share = others_read / (others_read + own(read) + own(written)).max(1.0);
    let others_written = own(measured.others_written_bytes);
    (used(read) && measured.others_device.is_some_and(|share| share > OTHERS_DEVICE_MAX))
        || (used(written)
            && (share > OTHERS_DEVICE_MAX || others_written > OTHERS_WRITES_MAX * own(written)))
}

/// Returns whether the median open or read took only a few clock steps, in which case its time is
/// meaningless.
fn clock_coarse(measured: &Measured) -> bool {
    let Some(step) = measured.extra.get(CLOCK_STEP) else { return false };
    let fetches = [CallKind::Open, CallKind::Read].map(|kind| measured.calls.get(&kind));
    let timed = |calls: &&CallStats| calls.count > 0 && calls.timed > 0;
    fetches.into_iter().flatten().filter(timed).any(|c| (c.p50_ns as f64) < STEPS_MIN * step)
}

/// Returns the share of all threads' CPU time spent in queues, permits and the budget, a lower
/// bound for the program's own overhead. Waiting is excluded.
fn own_share(measured: &Measured) -> f64 {
    let (mut own, mut all) = (0, 0);
    for thread in &measured.threads {
        let of = |kind| thread.calls_ns.get(&kind).copied().unwrap_or(0);
        let waited = thread.sync_ns + thread.ready_ns.unwrap_or(0);
        own += (of(CallKind::HandOver) + of(CallKind::Memory)).saturating_sub(waited);
        all += thread.elapsed_ns;
    }
    own as f64 / (all as f64).max(1.0)
}

fn comparable(plan: &AnyPlan, measured: &Measured) -> bool {
    !plan.is_null() && measured.errors == 0 && !measured.digest.is_empty()
}

fn same(record: &RunRecord, measured: &Measured) -> Same {
    let set = format!("{} on {}", record.set.hash, record.key.medium);
    (set, measured.files, measured.bytes, record.key.compute.to_string())
}

/// Sorts doubts and removes duplicates.
pub(crate) fn tidy(doubts: &mut Vec<Doubt>) {
    doubts.sort_unstable();
    doubts.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::record::RunKey;
    use ioloom_model::{Condition, FileSetRealised, Outcome, ThreadTime};
    use std::path::Path;

    #[test]
    fn a_wrong_run_is_found_even_if_it_was_the_first() {
        let run = |digest: &str| {
            let measured =
                Measured { files: 2, bytes: 30, digest: digest.into(), ..Measured::default() };
            record("read/threads:n=1", measured)
        };
        let doubted = |digests: &[&str]| -> Vec<bool> {
            let mut runs: Vec<RunRecord> = digests.iter().map(|digest| run(digest)).collect();
            Judge::doubt_minorities(&mut runs);
            Judge::doubt_minorities(&mut runs);
            assert!(runs.iter().all(|run| run.doubts.len() < 2));
            runs.iter().map(|run| run.doubts.contains(&Doubt::WrongBytes)).collect()
        };
        assert_eq!(doubted(&["x", "y", "y", "y"]), [true, false, false, false]);
        assert_eq!(doubted(&["y", "y", "x"]), [false, false, true]);
        assert_eq!(doubted(&["y", "y", ""]), [false; 3]);
        assert_eq!(doubted(&["x", "y"]), [false; 2], "what was doubted when they ended stays");
    }

    fn record(plan: &str, measured: Measured) -> RunRecord {
        RunRecord {
            schema: 1,
            key: RunKey {
                study: "s".into(),
                session: "s-1".into(),
                experiment: "x".into(),
                arm: "a".into(),
                set: "S".into(),
                medium: "work".into(),
                condition: Condition::AsIs,
                compute: Compute::None,
                block: 0,
                position: 0,
                factors: BTreeMap::new(),
            },
            plan: plan.parse().unwrap(),
            set: FileSetRealised {
                name: "S".into(),
                files: 2,
                bytes_total: 30,
                bytes_mean: 15.0,
                compute_ns_mean: None,
                hash: "h".into(),
                medium: None,
            },
            proof: None,
            outcome: Outcome::Done { measured: Box::new(measured) },
            doubts: Vec::new(),
            machine: String::new(),
            version: String::new(),
            started_unix_ms: 0,
            seed: 0,
        }
    }

    fn right(digest: &str) -> Measured {
        Measured {
            elapsed_ns: SHORT_RUN_NS,
            files: 2,
            bytes: 30,
            digest: digest.into(),
            others_cpu: Some(OTHERS_CPU_MAX),
            ..Measured::default()
        }
    }

    fn doubts(judge: &Judge, plan: &str, compute: Compute, measured: Measured) -> Vec<Doubt> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), [0; 10]).unwrap();
        std::fs::write(dir.path().join("b"), [0; 20]).unwrap();
        doubts_of(judge, plan, compute, measured, &FileList::below(dir.path()).unwrap())
    }

    fn doubts_of(
        judge: &Judge,
        plan: &str,
        compute: Compute,
        measured: Measured,
        files: &FileList,
    ) -> Vec<Doubt> {
        let mut record = record(plan, measured);
        let order = RunOrder {
            plan: record.plan.clone(),
            compute,
            dir: "/set".into(),
            set: None,
            files_max: None,
            seed: 0,
            spans_max: 1,
            observe: ioloom_model::record::Observe::default(),
        };
        judge.judge(&mut record, &order, files, false);
        record.doubts
    }

    #[test]
    fn each_doubt_has_its_cause() {
        let judge = Judge::new(2);
        let of = |measured| doubts(&judge, "read/threads:n=2", Compute::None, measured);
        assert_eq!(of(right("a")), []);
        assert_eq!(of(Measured { elapsed_ns: 9_999_999, ..right("a") }), [Doubt::ShortRun]);
        assert_eq!(of(Measured { others_cpu: Some(0.2), ..right("a") }), [Doubt::NoisyNeighbour]);
        assert_eq!(of(Measured { steal_cpu: Some(0.06), ..right("a") }), [Doubt::NoisyNeighbour]);
        let device = |bytes| Measured {
            others_device: Some(0.4),
            device_read_bytes: Some(bytes),
            ..right("a")
        };
        assert_eq!(of(device(DEVICE_BYTES_MIN)), [Doubt::NoisyNeighbour]);
        assert_eq!(of(device(4096)), [], "a run from memory is not slowed by other reads");
        assert_eq!(of(Measured { spans_lost: 1, ..right("a") }), [Doubt::SpansLost]);
        assert_eq!(of(Measured { errors: 1, files: 1, ..right("a") }), [Doubt::Errors]);
        assert_eq!(of(Measured { files: 3, ..right("a") }), [Doubt::WrongBytes]);
        assert_eq!(of(Measured { bytes: 29, ..right("a") }), [Doubt::WrongBytes]);
        let null = Measured { bytes: 0, ..right("a") };
        assert_eq!(doubts(&judge, "null/threads:n=1", Compute::None, null), []);
        let spin: Compute = "spin:1ms".parse().unwrap();
        let wide = doubts(&judge, "read/threads:n=3", spin.clone(), right("a"));
        assert_eq!(wide, [Doubt::Oversubscribed]);
        assert_eq!(doubts(&judge, "read/threads:n=2", spin, right("a")), []);
        let sleep: Compute = "sleep:1ms".parse().unwrap();
        assert_eq!(doubts(&judge, "read/threads:n=30", sleep, right("a")), []);
    }

    #[test]
    fn a_set_that_was_not_listed_to_keep_it_cold_is_not_called_wrong() {
        let files = FileList::none(Path::new("/set"));
        let found =
            doubts_of(&Judge::new(2), "read/threads:n=2", Compute::None, right("a"), &files);
        assert_eq!(found, []);
    }

    #[test]
    fn a_neighbour_is_seen_where_ticks_are_too_coarse() {
        let judge = Judge::new(2);
        let of = |plan, measured| doubts(&judge, plan, Compute::None, measured);
        let waited = |others_cpu| Measured { others_cpu, cpu_pressure: Some(0.4), ..right("a") };
        let noisy = [Doubt::NoisyNeighbour];
        assert_eq!(of("read/threads:n=2", waited(None)), noisy);
        assert_eq!(of("read/threads:n=2", waited(Some(0.01))), [], "it waited for itself");
        assert_eq!(of("read/threads:n=3", waited(None)), [], "its threads wait for each other");
        let short = Measured { others_cpu: None, cpu_pressure: Some(0.1), ..right("a") };
        assert_eq!(of("read/threads:n=2", short), []);
    }

    #[test]
    fn runs_that_write_are_judged_by_what_others_read_and_write() {
        let judge = Judge::new(2);
        let of = |written: u64, others_read: u64, others_written: u64| {
            let measured = Measured {
                device_written_bytes: Some(written),
                others_read_bytes: Some(others_read),
                others_written_bytes: Some(others_written),
                ..right("a")
            };
            doubts(&judge, "read/threads:n=1", Compute::None, measured)
        };
        let own = DEVICE_BYTES_MIN;
        assert_eq!(of(own, 0, 4 * own), [], "a journal");
        assert_eq!(of(own, 0, 9 * own), [Doubt::NoisyNeighbour]);
        assert_eq!(of(own, own / 4, 0), [Doubt::NoisyNeighbour]);
        assert_eq!(of(own, own / 8, 0), []);
        assert_eq!(of(own / 2, own, 99 * own), [], "it hardly used the device");
    }

    #[test]
    fn a_coarse_clock_and_a_large_own_share_are_doubts() {
        let judge = Judge::new(2);
        let of = |plan: &str, measured: Measured| doubts(&judge, plan, Compute::None, measured);
        let timed = |kind, p50_ns, step: f64| {
            let mut measured = right("a");
            let calls = CallStats { count: 2, timed: 2, p50_ns, ..CallStats::default() };
            measured.calls.insert(kind, calls);
            measured.extra.insert(CLOCK_STEP.to_owned(), step);
            of("read/threads:n=2", measured)
        };
        assert_eq!(timed(CallKind::Read, 600, 20.0), []);
        assert_eq!(timed(CallKind::Read, 600, 1000.0), [Doubt::ClockCoarse]);
        assert_eq!(timed(CallKind::Open, 0, 20.0), [Doubt::ClockCoarse], "below one step");
        assert_eq!(timed(CallKind::HandOver, 30, 20.0), [], "only fetching calls are checked");
        let spent = |plan: &str, hand_over: u64, sync_ns: u64| {
            let calls_ns = BTreeMap::from([(CallKind::HandOver, hand_over)]);
            let elapsed_ns = SHORT_RUN_NS;
            let ready_ns = Some(SHORT_RUN_NS / 10);
            let thread =
                ThreadTime { elapsed_ns, sync_ns, ready_ns, calls_ns, ..Default::default() };
            of(plan, Measured { threads: vec![thread.clone(), thread], ..right("a") })
        };
        let half = SHORT_RUN_NS / 2;
        assert_eq!(spent("read/threads:n=2", half, 0), [Doubt::OwnOverhead]);
        assert_eq!(spent("read/threads:n=2", half, half), [], "waiting is not overhead");
        assert_eq!(spent("read/threads:n=2", SHORT_RUN_NS / 4, 0), [], "little");
    }

    #[test]
    fn later_and_rarer_digests_are_doubted() {
        let mut judge = Judge::new(2);
        let mut see = |digest: &str| {
            let measured = right(digest);
            let found = doubts(&judge, "read/threads:n=1", Compute::None, measured.clone());
            judge.remember(&record("read/threads:n=1", measured));
            found.contains(&Doubt::WrongBytes)
        };
        assert!(!see("bad"), "the first digest cannot disagree");
        assert!(see("good"));
        assert!(!see("good"));
        assert!(see("bad"));
        assert!(!see("good"));
        assert!(see("bad"));
        assert!(!see(""), "a run without a digest cannot disagree");
    }
}
