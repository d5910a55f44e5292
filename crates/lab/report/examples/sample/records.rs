//! Synthetic records for the sample page and the tests, seeded and labelled as synthetic.
//!
//! Every chart, table and kind of outcome appears, with names that would break a page without escaping.
//! None of the numbers was measured.

// Included by path, because a test uses this module as well.
#[path = "about.rs"]
mod about;

pub(crate) use about::machine;

use about::{claims, doubts};
use ioloom_model::record::{Bottleneck, RunKey};
use ioloom_model::{
    CallKind, CallStats, Condition, Distribution, Doubt, FileSetRealised, Measured, Outcome, Plan,
    Proof, RunRecord, Schedule, StudySpec, ThreadTime, condition, fileset,
};
use ioloom_report::{Input, Mode};
use std::collections::BTreeMap;

/// A name that must not become markup.
pub(crate) const HOSTILE: &str = "<script>alert(\"x\")</script> & 'quoted'";

const STUDY: &str = r#"{
 "name": "sample",
 "title": "SYNTHETIC SAMPLE: generated numbers, not a measurement",
 "question": "What does a report look like when every chart and every kind of outcome appears? All values on this page come from a seeded random generator.",
 "sets": {
  "E": {"about": "4 000 small files, synthetic", "full": {"count": 4000, "size": "exp(mean=4KiB,min=1KiB,max=1MiB)"}},
  "größe-β": {"about": "a name that is not ASCII", "full": {"count": 192, "size": "1MiB"}},
  "G-4096": {"about": "cost of calls", "full": {"count": 2000, "size": "4KiB"}}
 },
 "experiment": [
  {"name": "elapsed-small-files", "question": "Which plan finishes a set of small files soonest from a cold cache?",
   "sets": ["E"], "arm": [
    {"name": "default", "plan": "read/window:l=32,p=2", "headline": true},
    {"name": "threads-{n}", "plan": "read/threads:n={n}", "with": {"n": [1, 2, 8]}, "headline": true},
    {"name": "roles-1-3", "plan": "read/roles:r=1,h=0,c=3,w=64", "headline": true},
    {"name": "uring-window", "plan": "uring/window:l=64,p=2", "headline": true},
    {"name": "mmap-8", "plan": "mmap:plain/threads:n=8", "headline": true},
    {"name": "<script>alert(\"x\")</script> & 'quoted'", "plan": "nowait/window:l=32,p=2", "headline": true},
    {"name": "direct-window", "plan": "direct:uring/window:l=64,p=2", "headline": true},
    {"name": "populate-{n}", "plan": "mmap:populate/threads:n={n}", "with": {"n": [8, 24]}}]},
  {"name": "sync-or-reader", "question": "Which is faster: n blocking threads, or one reader with n−1 compute threads?",
   "sets": ["größe-β"], "computes": ["sleep:1ms"], "chart": "ladder", "axis": "n", "arm": [
    {"name": "sync-{n}", "plan": "direct:read/threads:n={n}", "with": {"n": [2, 3, 4, 8, 16, 32]}, "headline": true},
    {"name": "reader-{n}", "plan": "direct:uring/roles:r=1,h=0,c={n-1},w=64", "with": {"n": [2, 3, 4, 8, 16, 32]}, "headline": true},
    {"name": "buffered-{n}", "plan": "read/threads:n={n}", "with": {"n": [2, 3, 4, 8, 16, 32]}, "headline": true},
    {"name": "window", "plan": "read/window:l=32,p=2", "headline": true}]},
  {"name": "roles-grid", "question": "What is the best division into readers and compute threads?",
   "sets": ["E"], "computes": ["sleep:400us"], "chart": "heat", "axis": "r", "arm": [
    {"name": "r{r}-c{c}", "plan": "direct:uring/roles:r={r},h=0,c={c},w=256", "with": {"r": [1, 2, 4, 8], "c": [1, 2, 4, 8, 16, 24]}, "headline_with": {"r": [1, 2, 4]}}]},
  {"name": "call-cost-size", "question": "How long does the read call take, by size and by kind of buffer?",
   "sets": ["G-4096"], "chart": "curve", "axis": "size", "metric": "calls.read.p50_ns", "arm": [
    {"name": "pool-{size}", "plan": "direct:uring/threads:n=1", "with": {"size": [4096, 65536, 1048576, 33554432]}, "set": "G-{size}", "headline": true},
    {"name": "fresh-{size}", "plan": "direct:uring/threads:n=1/buffers=fresh", "with": {"size": [4096, 65536, 1048576, 33554432]}, "set": "G-{size}", "headline": true}]},
  {"name": "threads-media", "question": "How much do threads gain on each medium?",
   "sets": ["E"], "conditions": ["warm"], "chart": "ladder", "axis": "n", "arm": [
    {"name": "threads-{n}", "plan": "read/threads:n={n}", "with": {"n": [1, 2, 4, 8]}, "headline": true}]},
  {"name": "million-files", "question": "What happens to a million files of one page when nothing limits the reads in flight?",
   "sets": ["E"], "arm": [{"name": "hybrid-{n}", "plan": "read/roles:h={n}", "with": {"n": [16, 32]}}]}
 ]}"#;

/// Returns the synthetic session; another seed gives another session of the same study.
pub(crate) fn sample(seed: u64) -> Input {
    let mut maker = Maker { seed, drawn: 0, records: Vec::new() };
    small_files(&mut maker);
    sync_or_reader(&mut maker);
    roles_grid(&mut maker);
    call_costs(&mut maker);
    media(&mut maker);
    Input {
        study: serde_json::from_str::<StudySpec>(STUDY).expect("the study above is JSON"),
        mode: Mode::Quick,
        is_scaled: false,
        command: format!("ioloom study sample --quick --random {seed} --on '/srv/da ta'"),
        machine: machine(),
        runs_planned: maker.records.len(),
        continued_by: None,
        records: maker.records,
        pictures: Vec::new(),
        verdicts: claims(),
        session: format!("sample-{seed}"),
        started_unix_ms: 1_700_000_000_000 + seed * 86_400_000,
        duration_s: 83.2,
        version: "0.1.0 (0000000)".to_owned(),
        seed,
        spec_hash: "0123456789abcdef".to_owned(),
        doubts: doubts(),
        since: None,
        user_files: false,
        report_path: Some("/tmp/sample/report.html".to_owned()),
        store_path: Some("/tmp/sample/runs.jsonl".to_owned()),
        explained: BTreeMap::new(),
        metric_names: BTreeMap::new(),
        published: BTreeMap::new(),
        tree: None,
        prefix: String::new(),
    }
}

struct Maker {
    seed: u64,
    drawn: u64,
    records: Vec<RunRecord>,
}

/// The key of a record.
struct Of<'a> {
    experiment: &'a str,
    arm: &'a str,
    set: &'a str,
    medium: &'a str,
    condition: Condition,
    compute: &'a str,
    plan: &'a str,
    factors: &'a [(&'a str, f64)],
}

impl Maker {
    /// Returns a random factor within a few percent of 1.
    fn noise(&mut self, percent: u64) -> f64 {
        self.drawn += 1;
        let d: Distribution = "normal(mean=1000000,sd=300000,min=100000,max=2000000)"
            .parse()
            .expect("a distribution");
        let value = d.value(self.seed, self.drawn) as f64 / 1e6 - 1.0;
        1.0 + value * percent as f64 / 30.0
    }

    fn record(&mut self, of: &Of<'_>, block: u32, set: FileSetRealised, outcome: Outcome) {
        let position = u32::try_from(self.records.len()).expect("a small sample");
        let plan: Plan = of.plan.parse().expect("a plan");
        let done = matches!(outcome, Outcome::Done { .. });
        self.records.push(RunRecord {
            schema: 1,
            key: RunKey {
                study: "sample".to_owned(),
                session: "sample".to_owned(),
                experiment: of.experiment.to_owned(),
                arm: of.arm.to_owned(),
                set: of.set.to_owned(),
                medium: of.medium.to_owned(),
                condition: of.condition,
                compute: of.compute.parse().expect("a compute"),
                block,
                position,
                factors: of.factors.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            },
            plan: plan.into(),
            set,
            proof: done.then(|| proof(of.condition, block)),
            outcome,
            doubts: if block == 0 && done && of.arm.contains("16") {
                vec![Doubt::FirstRun]
            } else {
                Vec::new()
            },
            machine: "0123456789abcdef".to_owned(),
            version: "0.1.0 (0000000)".to_owned(),
            started_unix_ms: 1_700_000_000_000 + u64::from(position) * 700,
            seed: self.seed,
        });
    }

    /// Adds eight blocks of an arm around an elapsed time.
    fn arm(&mut self, of: &Of<'_>, set: &FileSetRealised, elapsed_ms: f64, busy: f64, word: &str) {
        for block in 0..8 {
            let elapsed = elapsed_ms * 1e6 * self.noise(6);
            let plan: Plan = of.plan.parse().expect("a plan");
            let mut m = measured(&plan, set, elapsed as u64, busy * self.noise(1).min(1.0));
            m.bottleneck = Some(Bottleneck {
                word: word.to_owned(),
                sentence: match word {
                    "device" => format!("the device had work {:.0} % of the time", busy * 100.0),
                    other => format!("{other} took most of the threads' time"),
                },
                ..Bottleneck::default()
            });
            let outcome = Outcome::Done { measured: Box::new(m) };
            self.record(of, block, set.clone(), outcome);
        }
    }
}

pub(crate) fn proof(asked: Condition, block: u32) -> Proof {
    let cold = asked == Condition::Cold;
    Proof {
        asked,
        proved: if cold && block == 7 { None } else { Some(true) },
        made_by: if cold { "fadvise" } else { "read" }.to_owned(),
        metadata: condition::Metadata::Warm,
        sampled_files: 64,
        resident_before: Some(if cold { 0.0 } else { 1.0 }),
        device_bytes: Some(if cold { 20_000_000 } else { 0 }),
        device_share: Some(if cold { 1.03 } else { 0.0 }),
        diskstats_bytes: None,
        second_read: (asked == Condition::Cold).then_some(0.97),
        reason: match (cold, block) {
            (true, 7) => "cachestat is missing here, device bytes alone do not show it",
            (true, _) => "no page was cached before, all bytes were read from the device",
            _ => "every sampled page was cached",
        }
        .to_owned(),
    }
}

pub(crate) fn set(name: &str, files: u64, mean: f64, medium: &str) -> FileSetRealised {
    FileSetRealised {
        name: name.to_owned(),
        files,
        bytes_total: (files as f64 * mean) as u64,
        bytes_mean: mean,
        compute_ns_mean: Some(404_000.0),
        hash: "00112233aabbccdd".to_owned(),
        medium: Some(fileset::Medium {
            name: medium.to_owned(),
            device: "254:0".to_owned(),
            block_device: (medium != "tmpfs").then(|| "vda".to_owned()),
            file_system: if medium == "tmpfs" { "tmpfs" } else { "ext4" }.to_owned(),
            scheduler: Some("none".to_owned()),
            rotational: Some(false),
            read_ahead_kib: Some(128),
        }),
    }
}

pub(crate) fn measured(plan: &Plan, set: &FileSetRealised, elapsed_ns: u64, busy: f64) -> Measured {
    let threads = threads(plan, elapsed_ns, set.files);
    let window = match plan.schedule {
        Schedule::Window { window, .. } => window,
        _ => plan.threads(),
    };
    let mut calls = BTreeMap::new();
    let size = set.bytes_mean.max(1.0);
    for (kind, p50) in [
        (CallKind::Open, 6_000.0),
        (CallKind::Read, 2_500.0 + size * 0.11),
        (CallKind::Completion, 70_000.0 + size * 0.9),
        (CallKind::Compute, 400_000.0),
        (CallKind::Close, 900.0),
    ] {
        calls.insert(kind, costs(set.files, p50));
    }
    let steps = 120;
    let in_flight = (0..=steps)
        .map(|i| {
            let part = i as f64 / f64::from(steps);
            let level = (part * 9.0).min(1.0) * (1.0 - ((part - 0.85) * 6.0).clamp(0.0, 1.0));
            let wave = 0.75 + 0.25 * ((f64::from(i) * 1.7).sin());
            let n = (f64::from(window) * level * wave).round() as u32;
            ((elapsed_ns as f64 * part) as u64, n)
        })
        .collect();
    Measured {
        elapsed_ns,
        files: set.files,
        bytes: set.bytes_total,
        digest: "a5a5a5a500000000".to_owned(),
        calls,
        threads,
        calls_end_ns: Some((elapsed_ns as f64 * 0.82) as u64),
        first_compute_ns: Some(210_000),
        last_compute_ns: Some((elapsed_ns as f64 * 0.99) as u64),
        cpu_user_ns: elapsed_ns / 3,
        cpu_kernel_ns: elapsed_ns / 2,
        faults_minor: 1400,
        switches_voluntary: set.files,
        memory_peak_bytes: 24 << 20,
        budget_peak_bytes: 3 << 20,
        in_flight,
        in_flight_mean: f64::from(window) * 0.62,
        in_flight_max: window,
        device_busy: Some(busy),
        others_cpu: Some(0.02),
        ..Measured::default()
    }
}

fn costs(count: u64, p50: f64) -> CallStats {
    CallStats {
        count,
        timed: count,
        total_ns: (p50 * 1.3 * count as f64) as u64,
        min_ns: (p50 * 0.6) as u64,
        p50_ns: p50 as u64,
        p90_ns: (p50 * 1.9) as u64,
        p99_ns: (p50 * 4.4) as u64,
        max_ns: (p50 * 20.0) as u64,
    }
}

fn threads(plan: &Plan, elapsed_ns: u64, files: u64) -> Vec<ThreadTime> {
    let (readers, hybrids, computers) = match plan.schedule {
        Schedule::Roles { readers, hybrids, computers, .. } => (readers, hybrids, computers),
        _ => (0, 0, 0),
    };
    let workers = if readers + hybrids + computers > 0 { 0 } else { plan.threads() };
    let mut out = Vec::new();
    // Parts of the elapsed time: on-cpu, ready, io, sync, compute-blocked.
    for (role, count, parts) in [
        ("worker", workers, [0.21, 0.06, 0.55, 0.08, 0.07]),
        ("reader", readers, [0.34, 0.03, 0.48, 0.13, 0.0]),
        ("hybrid", hybrids, [0.25, 0.09, 0.36, 0.11, 0.16]),
        ("computer", computers, [0.18, 0.07, 0.0, 0.41, 0.31]),
    ] {
        for i in 0..count {
            let of = |k: usize| {
                let tilt = 1.0 - f64::from(i % 4) * 0.06;
                (elapsed_ns as f64 * parts[k] * tilt) as u64
            };
            let known: u64 = (0..5).map(of).sum();
            out.push(ThreadTime {
                name: format!("ioloom-{role}-{i}"),
                role: role.to_owned(),
                elapsed_ns,
                on_cpu_ns: of(0),
                ready_ns: Some(of(1)),
                io_ns: of(2),
                sync_ns: of(3),
                input_ns: 0,
                compute_blocked_ns: of(4),
                output_ns: 0,
                reserve_ns: 0,
                child_ns: 0,
                child_ready_ns: 0,
                helper_ns: 0,
                unknown_ns: elapsed_ns - known,
                calls_ns: BTreeMap::new(),
                files: files / u64::from(count.max(1)),
                states_ns: BTreeMap::new(),
            });
        }
    }
    out
}

fn small_files(maker: &mut Maker) {
    let e = set("E", 4000, 5100.0, "work");
    for (arm, plan, factors, ms, busy, word) in [
        ("default", "read/window:l=32,p=2", &[][..], 86.0, 0.93, "device"),
        ("default (again)", "read/window:l=32,p=2", &[], 86.0, 0.93, "device"),
        ("threads-1", "read/threads:n=1", &[("n", 1.0)], 412.0, 0.61, "device"),
        ("threads-2", "read/threads:n=2", &[("n", 2.0)], 236.0, 0.74, "device"),
        ("threads-8", "read/threads:n=8", &[("n", 8.0)], 104.0, 0.9, "device"),
        ("roles-1-3", "read/roles:r=1,h=0,c=3,w=64", &[], 418.0, 0.6, "hand-over"),
        ("uring-window", "uring/window:l=64,p=2", &[], 79.0, 0.97, "device"),
        ("mmap-8", "mmap:plain/threads:n=8", &[], 131.0, 0.88, "device"),
        (HOSTILE, "nowait/window:l=32,p=2", &[], 95.0, 0.91, "device"),
    ] {
        let of = Of {
            experiment: "elapsed-small-files",
            arm,
            set: "E",
            medium: "work",
            condition: Condition::Cold,
            compute: "none",
            plan,
            factors,
        };
        maker.arm(&of, &e, ms, busy, word);
    }
    let of = Of {
        experiment: "elapsed-small-files",
        arm: "direct-window",
        set: "E",
        medium: "work",
        condition: Condition::Cold,
        compute: "none",
        plan: "direct:uring/window:l=64,p=2",
        factors: &[],
    };
    let reason = "this file system has no direct I/O: open with O_DIRECT gave EINVAL".to_owned();
    for block in 0..8 {
        maker.record(&of, block, e.clone(), Outcome::Refused { reason: reason.clone() });
    }
}

fn sync_or_reader(maker: &mut Maker) {
    let b = set("größe-β", 192, 1_048_576.0, "work");
    for n in [2u32, 3, 4, 8, 16, 32] {
        let f = f64::from(n);
        for (arm, plan, ms) in [
            (format!("sync-{n}"), format!("direct:read/threads:n={n}"), 40.0 + 620.0 / f),
            (
                format!("reader-{n}"),
                format!("direct:uring/roles:r=1,h=0,c={},w=64", n - 1),
                34.0 + 430.0 / (f - 1.0).max(0.8),
            ),
            (format!("buffered-{n}"), format!("read/threads:n={n}"), 58.0 + 600.0 / f + f * 0.9),
        ] {
            let of = Of {
                experiment: "sync-or-reader",
                arm: &arm,
                set: "größe-β",
                medium: "work",
                condition: Condition::Cold,
                compute: "sleep:1ms",
                plan: &plan,
                factors: &[("n", f)],
            };
            maker.arm(&of, &b, ms, 0.8, if n > 8 { "device" } else { "compute" });
        }
    }
    let of = Of {
        experiment: "sync-or-reader",
        arm: "window",
        set: "größe-β",
        medium: "work",
        condition: Condition::Cold,
        compute: "sleep:1ms",
        plan: "read/window:l=32,p=2",
        factors: &[],
    };
    maker.arm(&of, &b, 190.0, 0.7, "compute");
}

fn roles_grid(maker: &mut Maker) {
    let e = set("E", 4000, 5100.0, "work");
    for r in [1u32, 2, 4] {
        for c in [1u32, 2, 4, 8, 16, 24] {
            let (rf, cf) = (f64::from(r), f64::from(c));
            let (arm, plan) =
                (format!("r{r}-c{c}"), format!("direct:uring/roles:r={r},h=0,c={c},w=256"));
            let of = Of {
                experiment: "roles-grid",
                arm: &arm,
                set: "E",
                medium: "work",
                condition: Condition::Cold,
                compute: "sleep:400us",
                plan: &plan,
                factors: &[("r", rf), ("c", cf)],
            };
            if r == 4 && c == 24 {
                let reason = "28 threads are more than the limit of this sample".to_owned();
                maker.record(&of, 0, e.clone(), Outcome::Refused { reason });
                continue;
            }
            let ms = (1600.0 / cf).max(180.0 / rf) + 60.0 + rf * 6.0 + cf * 1.5;
            maker.arm(&of, &e, ms, 0.55, if c < 8 { "compute" } else { "metadata" });
        }
    }
}

fn call_costs(maker: &mut Maker) {
    for (family, option, extra) in [("pool", "", 1.0), ("fresh", "/buffers=fresh", 2.6)] {
        for (size, files) in
            [(4096u32, 2000u64), (65_536, 1000), (1_048_576, 128), (33_554_432, 12)]
        {
            let name = format!("G-{size}");
            let g = set(&name, files, f64::from(size), "work");
            let (arm, plan) =
                (format!("{family}-{size}"), format!("direct:uring/threads:n=1{option}"));
            for block in 0..8 {
                let of = Of {
                    experiment: "call-cost-size",
                    arm: &arm,
                    set: &name,
                    medium: "work",
                    condition: Condition::Cold,
                    compute: "none",
                    plan: &plan,
                    factors: &[("size", f64::from(size))],
                };
                let parsed: Plan = plan.parse().expect("a plan");
                let mut m = measured(&parsed, &g, (files as f64 * 1.1e5) as u64, 0.9);
                for (kind, stats) in &mut m.calls {
                    let factor = self_factor(*kind, extra) * maker.noise(8);
                    *stats = costs(stats.count, stats.p50_ns as f64 * factor);
                }
                maker.record(&of, block, g.clone(), Outcome::Done { measured: Box::new(m) });
            }
        }
    }
}

fn self_factor(kind: CallKind, extra: f64) -> f64 {
    if kind == CallKind::Read { extra } else { 1.0 }
}

fn media(maker: &mut Maker) {
    for (medium, base, floor) in
        [("work", 60.0, 31.0), ("tmpfs", 44.0, 22.0), ("/mnt/데이터 <b>", 900.0, 880.0)]
    {
        let e = set("E", 4000, 5100.0, medium);
        for n in [1u32, 2, 4, 8] {
            let f = f64::from(n);
            let of = Of {
                experiment: "threads-media",
                arm: &format!("threads-{n}"),
                set: "E",
                medium,
                condition: Condition::Warm,
                compute: "none",
                plan: &format!("read/threads:n={n}"),
                factors: &[("n", f)],
            };
            maker.arm(&of, &e, floor + (base - floor) / f + f * 0.4, 0.2, "compute");
        }
    }
}
