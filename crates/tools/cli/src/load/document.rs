//! The `ioloom load --json` document.

use super::args::LoadArgs;
use ioloom_load::check::Verdict;
use ioloom_load::ladder::{Scaling, Step};
use ioloom_load::{Arrival, History, Mix, MultiRun, NullClient, Protocol, Run, Skew, Think};
use ioloom_model::units::spell_ns;
use serde::Serialize;
use std::time::Duration;

/// Document version.
const SCHEMA: u32 = 1;

/// The document printed by `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    schema: u32,
    command: &'static str,
    target: String,
    protocol: Protocol,
    tls: bool,
    pipeline: usize,
    arrival: Arrival,
    think: String,
    mix: Mix,
    skew: String,
    count_max: u32,
    duration_ns: u64,
    warm_up_ns: u64,
    ramp_ns: u64,
    cpus: Vec<u32>,
    random: u64,
    /// A single run, or one per ladder step.
    pub(super) runs: Vec<Run>,
    /// Steps of a ladder of rates.
    pub(super) steps: Vec<Step>,
    p99_target_ns: u64,
    pub(super) knee_per_s: Option<f64>,
    /// Whether the knee may be higher.
    pub(super) knee_is_least: bool,
    /// Whether a step of the ladder failed, so that higher rates were not tried.
    #[serde(skip)]
    pub(super) failed: bool,
    pub(super) scaling: Option<Scaling>,
    pub(super) multiclient: Option<MultiRun>,
    pub(super) floors: Option<Floors>,
}

/// The baselines.
#[derive(Debug, Serialize)]
pub(super) struct Floors {
    pub(super) null_server: Option<Run>,
    pub(super) null_server_multiclient: Option<MultiRun>,
    pub(super) null_client: NullClient,
}

impl Document {
    pub(super) fn new(args: &LoadArgs) -> Self {
        let ns = |time: Duration| time.as_nanos() as u64;
        let spelled = |time: Duration| spell_ns(ns(time));
        Self {
            schema: SCHEMA,
            command: "load",
            target: args.target.to_string(),
            protocol: args.protocol,
            tls: args.tls,
            pipeline: args.pipeline,
            arrival: args.arrival,
            think: match args.think {
                Think::None => "0s".to_owned(),
                Think::Constant(time) => spelled(time),
                Think::Exponential(mean) => format!("exp:{}", spelled(mean)),
            },
            mix: args.mix,
            skew: match args.skew {
                Skew::Uniform => "uniform".to_owned(),
                Skew::Zipf(s) => format!("zipf:{s}"),
                Skew::Hot(share) => format!("hot:{share}"),
            },
            count_max: args.count,
            duration_ns: ns(args.duration),
            warm_up_ns: ns(args.warm_up),
            ramp_ns: ns(args.ramp),
            cpus: args.cpus.clone(),
            random: args.random,
            runs: Vec::new(),
            steps: Vec::new(),
            p99_target_ns: ns(args.p99),
            knee_per_s: None,
            knee_is_least: false,
            failed: false,
            scaling: None,
            multiclient: None,
            floors: None,
        }
    }
}

/// Returns the command-line name of a protocol.
pub(super) fn protocol_word(protocol: Protocol) -> String {
    match protocol {
        Protocol::Padded => "padded",
        Protocol::Line => "line",
        Protocol::V2 => "v2",
        Protocol::Resp => "resp",
    }
    .to_owned()
}

/// The document printed by `--check --json`.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    schema: u32,
    command: &'static str,
    pub(super) requests: usize,
    pub(super) stocks: usize,
    /// `explained`, `violated` or `undecided`.
    pub(super) verdict: &'static str,
    /// The first unexplained answer, or the limit that was reached.
    pub(super) reason: Option<String>,
    /// Remaining units of each stock in some of the possible states.
    pub(super) states: Vec<Vec<u32>>,
    /// The verdict without the requirement that lists are atomic; only for a violated history.
    pub(super) lists_per_stock: Option<&'static str>,
}

impl Checked {
    pub(super) fn new(history: &History, atomic: &Verdict, per_stock: Option<&Verdict>) -> Self {
        let word = |verdict: &Verdict| match verdict {
            Verdict::Explained => "explained",
            Verdict::Violated { .. } => "violated",
            Verdict::Undecided { .. } => "undecided",
        };
        let (reason, states) = match atomic {
            Verdict::Explained => (None, Vec::new()),
            Verdict::Violated { request, states } => (Some(request.clone()), states.clone()),
            Verdict::Undecided { reason } => (Some(reason.clone()), Vec::new()),
        };
        Self {
            schema: SCHEMA,
            command: "load-check",
            requests: history.events.len(),
            stocks: history.initial.len(),
            verdict: word(atomic),
            reason,
            states,
            lists_per_stock: per_stock.map(word),
        }
    }
}
