//! The raw data of a report as compact JSON, embedded in the page so that a reader can take it out.
//!
//! Every number of the page names an identifier (`g0.a3`, `g0.r0`, `c7`) and a field here. Per run
//! it holds the scalars, the costs of calls and the times by role; spans and single threads stay in
//! the store, they would make the page too large to open.

use crate::figures::role_times;
use crate::group::Group;
use crate::headline::Headline;
use crate::input::Input;
use ioloom_model::{Measured, Outcome, RunRecord};
use serde_json::{Map, Value, json};

/// Version of the embedded document.
pub const DATA_SCHEMA: u32 = 1;

/// The embedded document.
pub fn document(input: &Input, groups: &[Group<'_>], headlines: &[Headline<'_, '_>]) -> Value {
    json!({
        "schema": DATA_SCHEMA,
        "study": input.study.name,
        "title": input.study.title,
        "mode": input.mode.name(),
        "session": input.session,
        "command": input.command,
        "seed": input.seed,
        "version": input.version,
        "started_unix_ms": input.started_unix_ms,
        "duration_s": input.duration_s,
        "machine": input.machine,
        "groups": groups.iter().map(group).collect::<Vec<_>>(),
        "ratios": headlines.iter().flat_map(ratios).collect::<Vec<_>>(),
        "claims": claims(input),
        "doubts": input.doubts.iter().map(|d| json!({
            "doubt": d.doubt,
            "experiment": d.experiment,
            "arm": d.arm,
            "detail": d.detail,
        })).collect::<Vec<_>>(),
        "runs": {
            "columns": RUN_COLUMNS,
            "rows": input.records.iter().map(run).collect::<Vec<_>>(),
        },
    })
}

fn group(g: &Group<'_>) -> Value {
    json!({
        "id": g.id,
        "experiment": g.experiment.name,
        "set": g.set,
        "medium": g.medium,
        "condition": g.condition,
        "compute": g.compute,
        "metric": g.experiment.metric,
        "arms": g.arms.iter().map(|a| {
            let busy: Vec<f64> = a.measured().filter_map(|m| m.device_busy).collect();
            json!({
                "id": a.id,
                "arm": a.name,
                "plan": a.plan,
                "set": a.set,
                "factors": a.factors,
                "blocks": a.runs.iter().map(|r| r.key.block).collect::<Vec<_>>(),
                "n": a.estimate.as_ref().map_or(0, |e| e.values.len()),
                "median": a.estimate.as_ref().map(|e| e.median),
                "low": a.estimate.as_ref().and_then(|e| e.interval).map(|i| i.0),
                "high": a.estimate.as_ref().and_then(|e| e.interval).map(|i| i.1),
                "values": a.estimate.as_ref().map(|e| &e.values),
                "device_busy": (!busy.is_empty()).then(|| ioloom_stats::median(&busy)),
                "not_done": a.not_done,
                "doubts": a.doubts,
            })
        }).collect::<Vec<_>>(),
    })
}

fn ratios<'h>(h: &'h Headline<'_, '_>) -> impl Iterator<Item = Value> + 'h {
    h.gains.iter().map(|(id, other, ratio)| {
        json!({
            "id": id,
            "best": h.best.id,
            "against": other.id,
            "ratio": ratio.map(|r| r.value),
            "low": ratio.map(|r| r.low),
            "high": ratio.map(|r| r.high),
            "n": ratio.map(|r| r.n),
        })
    })
}

fn claims(input: &Input) -> Vec<Value> {
    input
        .verdicts
        .iter()
        .enumerate()
        .map(|(i, c)| {
            json!({
                "ref": format!("c{i}"),
                "id": c.id,
                "statement": c.statement,
                "published": c.published,
                "verdict": c.verdict.name(),
                "sentence": c.sentence,
                "ratio": c.effect.map(|e| e.0),
                "low": c.effect.map(|e| e.1),
                "high": c.effect.map(|e| e.2),
            })
        })
        .collect()
}

/// Names of the columns of a run, in order.
pub const RUN_COLUMNS: [&str; 13] = [
    "position",
    "block",
    "experiment",
    "arm",
    "set",
    "medium",
    "condition",
    "compute",
    "outcome",
    "reason",
    "proved",
    "doubts",
    "measured",
];

/// A number without the `.0` that every count would carry.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

fn run(r: &RunRecord) -> Value {
    let (word, reason, numbers) = match &r.outcome {
        Outcome::Done { measured } => ("done", None, scalars(measured)),
        Outcome::Refused { reason } => ("refused", Some(reason.clone()), Value::Null),
        Outcome::Failed { reason } => ("failed", Some(reason.clone()), Value::Null),
        Outcome::TimedOut { seconds } => {
            ("timed-out", Some(format!("killed after {seconds} s")), Value::Null)
        }
    };
    json!([
        r.key.position,
        r.key.block,
        r.key.experiment,
        r.key.arm,
        r.key.set,
        r.key.medium,
        r.key.condition,
        r.key.compute,
        word,
        reason,
        r.proof.as_ref().map(|p| p.proved),
        r.doubts,
        numbers,
    ])
}

fn scalars(m: &Measured) -> Value {
    let mut out = Map::new();
    for name in [
        "elapsed_ns",
        "calls_end_ns",
        "first_compute_ns",
        "last_compute_ns",
        "cpu_user_ns",
        "cpu_kernel_ns",
        "faults_minor",
        "faults_major",
        "switches_voluntary",
        "switches_involuntary",
        "memory_peak_bytes",
        "budget_peak_bytes",
        "in_flight_mean",
        "in_flight_max",
        "device_busy",
        "others_cpu",
    ] {
        if let Some(value) = m.metric(name) {
            out.insert(name.to_owned(), number(value));
        }
    }
    out.insert("files".to_owned(), json!(m.files));
    out.insert("bytes".to_owned(), json!(m.bytes));
    out.insert("digest".to_owned(), json!(m.digest));
    out.insert("errors".to_owned(), json!(m.errors));
    let calls: Map<String, Value> = m
        .calls
        .iter()
        .map(|(k, s)| {
            let numbers = [s.count, s.total_ns, s.min_ns, s.p50_ns, s.p90_ns, s.p99_ns, s.max_ns];
            (k.name().to_owned(), json!(numbers))
        })
        .collect();
    out.insert("calls_count_total_min_p50_p90_p99_max_ns".to_owned(), Value::Object(calls));
    let roles: Map<String, Value> = role_times(std::iter::once(m))
        .into_iter()
        .map(|(role, (times, threads, ready))| {
            let ns = times.map(number);
            (role, json!({ "threads": threads, "ready_measured": ready, "ns": ns }))
        })
        .collect();
    out.insert("roles".to_owned(), Value::Object(roles));
    if !m.extra.is_empty() {
        out.insert("extra".to_owned(), json!(m.extra));
    }
    Value::Object(out)
}
