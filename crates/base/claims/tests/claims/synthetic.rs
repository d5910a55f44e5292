//! Synthetic stored runs with a known outcome.

use ioloom_model::record::{RECORD_SCHEMA, RunKey};
use ioloom_model::{
    CallKind, CallStats, Condition, Doubt, FileSetRealised, Measured, Outcome, RunRecord,
    ThreadTime,
};
use std::collections::BTreeMap;

/// Returns reproducible scatter of up to 1 % that depends on arm and block.
pub(crate) fn scatter(arm: &str, block: u32) -> f64 {
    let mut mixed = u64::from(block).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for byte in arm.bytes() {
        mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    mixed ^= mixed >> 31;
    1.0 + ((mixed % 2001) as f64 / 1000.0 - 1.0) * 0.01
}

/// Runs of an experiment under construction.
pub(crate) struct Store {
    pub(crate) records: Vec<RunRecord>,
    pub(crate) session: String,
    pub(crate) set: String,
    pub(crate) compute: String,
    pub(crate) medium: String,
    pub(crate) machine: String,
    pub(crate) hash: String,
    pub(crate) started: u64,
    pub(crate) blocks: u32,
}

impl Store {
    pub(crate) fn new(blocks: u32) -> Self {
        Self {
            records: Vec::new(),
            session: "s1".to_owned(),
            set: "E".to_owned(),
            compute: "xxh3".to_owned(),
            medium: "work".to_owned(),
            machine: "m1".to_owned(),
            hash: "h1".to_owned(),
            started: 1_000,
            blocks,
        }
    }

    fn record(
        &self,
        arm: &str,
        factors: &[(&str, f64)],
        block: u32,
        outcome: Outcome,
    ) -> RunRecord {
        let factors: BTreeMap<String, f64> =
            factors.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        RunRecord {
            schema: RECORD_SCHEMA,
            key: RunKey {
                study: "pipeline".to_owned(),
                session: self.session.clone(),
                experiment: "e".to_owned(),
                arm: arm.to_owned(),
                set: self.set.clone(),
                medium: self.medium.clone(),
                condition: Condition::Cold,
                compute: self.compute.parse().expect("a compute"),
                block,
                position: block,
                factors,
            },
            plan: "read/threads:n=1".parse().expect("a plan"),
            set: FileSetRealised {
                name: self.set.clone(),
                files: 100,
                bytes_total: 409_600,
                bytes_mean: 4096.0,
                compute_ns_mean: None,
                hash: self.hash.clone(),
                medium: None,
            },
            proof: None,
            outcome,
            doubts: Vec::new(),
            machine: self.machine.clone(),
            version: "test".to_owned(),
            started_unix_ms: self.started + u64::from(block),
            seed: 1,
        }
    }

    /// Adds an arm whose runs depend on the block.
    pub(crate) fn arm_with(
        &mut self,
        arm: &str,
        factors: &[(&str, f64)],
        measured: impl Fn(u32) -> Measured,
    ) -> &mut Self {
        for block in 0..self.blocks {
            let outcome = Outcome::Done { measured: Box::new(measured(block)) };
            self.records.push(self.record(arm, factors, block, outcome));
        }
        self
    }

    /// Adds an arm that takes this many milliseconds, with a scatter of 1 %.
    pub(crate) fn arm(&mut self, arm: &str, factors: &[(&str, f64)], ms: f64) -> &mut Self {
        let name = arm.to_owned();
        self.arm_with(arm, factors, move |block| run(ms * scatter(&name, block)))
    }

    pub(crate) fn refused(&mut self, arm: &str, reason: &str) -> &mut Self {
        for block in 0..self.blocks {
            let outcome = Outcome::Refused { reason: reason.to_owned() };
            self.records.push(self.record(arm, &[], block, outcome));
        }
        self
    }

    /// Marks an arm's runs in these blocks as stopped at their deadline.
    pub(crate) fn stopped(&mut self, arm: &str, blocks: &[u32]) -> &mut Self {
        let hit = |r: &&mut RunRecord| r.key.arm == arm && blocks.contains(&r.key.block);
        for record in self.records.iter_mut().filter(hit) {
            record.outcome = Outcome::TimedOut { seconds: 27.4 };
        }
        self
    }

    pub(crate) fn doubt(&mut self, arm: &str, doubt: Doubt) -> &mut Self {
        for record in self.records.iter_mut().filter(|r| r.key.arm == arm) {
            record.doubts.push(doubt);
        }
        self
    }
}

impl Store {
    /// Marks these blocks as disturbed by other programs, which slows `arm` down by a factor of
    /// `times`.
    pub(crate) fn disturb(&mut self, arm: &str, blocks: &[u32], times: f64) -> &mut Self {
        let hit = |r: &&mut RunRecord| r.key.arm == arm && blocks.contains(&r.key.block);
        for record in self.records.iter_mut().filter(hit) {
            record.doubts.push(Doubt::NoisyNeighbour);
            if let Outcome::Done { measured } = &mut record.outcome {
                measured.elapsed_ns = (measured.elapsed_ns as f64 * times) as u64;
            }
        }
        self
    }
}

/// Returns a run over 100 files with this duration in milliseconds.
pub(crate) fn run(ms: f64) -> Measured {
    Measured {
        elapsed_ns: (ms * 1e6).round() as u64,
        files: 100,
        bytes: 409_600,
        ..Measured::default()
    }
}

/// Returns the same run with one thread whose time is split into input and compute.
pub(crate) fn shared(ms: f64, io: f64) -> Measured {
    let elapsed_ns = (ms * 1e6) as u64;
    let thread = ThreadTime {
        elapsed_ns,
        io_ns: (elapsed_ns as f64 * io) as u64,
        on_cpu_ns: (elapsed_ns as f64 * (1.0 - io)) as u64,
        ..ThreadTime::default()
    };
    Measured { threads: vec![thread], ..run(ms) }
}

/// Returns statistics of calls that all took equally long.
pub(crate) fn calls(count: u64, ns: u64) -> CallStats {
    CallStats {
        count,
        timed: count,
        total_ns: count * ns,
        min_ns: ns,
        p50_ns: ns,
        p90_ns: ns,
        p99_ns: ns,
        max_ns: ns,
    }
}

pub(crate) fn with_calls(mut measured: Measured, kind: CallKind, stats: CallStats) -> Measured {
    measured.calls.insert(kind, stats);
    measured
}
