//! The raw data of a report as compact JSON, embedded in the page for extraction by readers.
//!
//! Every number on the page refers to an identifier (`g0.a3`, `g0.r0`, `c7`, prefixed with the
//! study on a page with several studies) and a field of this document. It contains the scalars,
//! call costs and times by role of each run; spans and per-thread data remain in the store because
//! they would make the page too large to open.
//!
//! The runs of a full study make up most of the data, and the page does not need them. They form a
//! second document ([`runs`]), stored by column (adjacent values in a column are similar),
//! compressed, and encoded in base64. Elapsed times are exact; other measured numbers have four
//! significant digits and call percentiles three, which is more precise than they are repeatable.

use crate::advice::Advice;
use crate::estimate::Ratio;
use crate::figures::role_times;
use crate::group::Group;
use crate::headline::Headline;
use crate::input::Input;
use crate::quantity::rounded_up;
use ioloom_model::{Measured, Outcome, RunRecord};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::Write;

/// Version of the embedded document.
pub const DATA_SCHEMA: u32 = 3;

/// Returns the embedded document: one part for each study of the page.
pub fn document(studies: Vec<Value>) -> Value {
    json!({ "schema": DATA_SCHEMA, "studies": studies })
}

/// Records that the runs are not embedded.
pub(crate) fn without_runs(document: &mut Value) {
    for study in document["studies"].as_array_mut().into_iter().flatten() {
        study["runs"]["element"] = Value::Null;
    }
}

/// Removes the numbers of comparisons and claims.
pub(crate) fn without_numbers(document: &mut Value) {
    for study in document["studies"].as_array_mut().into_iter().flatten() {
        for list in ["groups", "ratios", "claims"] {
            study[list] = json!([]);
        }
    }
}

/// Returns the part of a study.
pub fn study(input: &Input, groups: &[Group<'_>], headlines: &[Headline<'_, '_>]) -> Value {
    json!({
        "study": input.study.name,
        "title": input.study.title,
        "mode": input.mode.name(),
        "session": input.session,
        "command": input.command,
        "seed": input.seed,
        "version": input.version,
        "started_unix_ms": input.started_unix_ms,
        "duration_s": input.duration_s,
        "ended": input.continued_by.is_none(),
        "runs_planned": input.runs_planned,
        "since": input.since,
        "machine": input.machine,
        "groups": groups.iter().map(group).collect::<Vec<_>>(),
        "ratios": headlines.iter().flat_map(ratios).chain(advice(input, groups)).collect::<Vec<_>>(),
        "claims": claims(input),
        "doubts": input.doubts.iter().map(|d| json!({
            "doubt": d.doubt,
            "experiment": d.experiment,
            "arm": d.arm,
            "detail": d.detail,
        })).collect::<Vec<_>>(),
        "runs": {
            "element": runs_element(input),
            "encoding": "JSON, gzip, base64",
            "count": input.records.len(),
        },
    })
}

/// Returns the identifier of the element that holds the runs of a study.
pub fn runs_element(input: &Input) -> String {
    format!("{}report-runs", input.prefix)
}

/// Returns the runs by column, as gzip in base64: an object of lists with one item per run.
/// `measured` is an object of such lists, with null for runs without that metric.
pub fn runs(input: &Input) -> String {
    let mut records: Vec<&RunRecord> = input.records.iter().collect();
    records.sort_by_key(|r| r.key.position);
    let rows: Vec<Value> = records.into_iter().map(run).collect();
    let mut columns = Map::new();
    for (i, name) in RUN_COLUMNS.iter().enumerate().take(RUN_COLUMNS.len() - 1) {
        let column = rows.iter().map(|row| row[i].clone()).collect();
        columns.insert((*name).to_owned(), Value::Array(column));
    }
    let flat: Vec<Map<String, Value>> =
        rows.iter().map(|row| flattened(&row[RUN_COLUMNS.len() - 1])).collect();
    let names: BTreeSet<&String> = flat.iter().flat_map(|row| row.keys()).collect();
    let measured: Map<String, Value> = names
        .into_iter()
        .map(|name| {
            let of = |row: &Map<String, Value>| row.get(name).cloned().unwrap_or(Value::Null);
            (name.clone(), Value::Array(flat.iter().map(of).collect()))
        })
        .collect();
    columns.insert("measured".to_owned(), Value::Object(measured));
    base64(&gzip(Value::Object(columns).to_string().as_bytes()))
}

/// Returns metrics with flat names, such as `calls.read.p50_ns` and `roles.worker.ns`.
fn flattened(value: &Value) -> Map<String, Value> {
    let mut out = Map::new();
    let Value::Object(map) = value else { return out };
    for (name, value) in map {
        match value {
            Value::Object(inner) => {
                let inner = flattened(&Value::Object(inner.clone()));
                out.extend(inner.into_iter().map(|(k, v)| (format!("{name}.{k}"), v)));
            }
            other => {
                out.insert(name.clone(), other.clone());
            }
        }
    }
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    // Writing to memory does not fail, and the page is complete even without the runs.
    if encoder.write_all(bytes).is_err() {
        return Vec::new();
    }
    encoder.finish().unwrap_or_default()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// Rounds to four significant digits.
fn rounded(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return number(value);
    }
    let scale = 10f64.powf(3.0 - value.abs().log10().floor());
    number((value * scale).round() / scale)
}

/// Rounds to three significant digits, for numbers from histograms with a resolution of 3 %.
fn coarse(value: u64) -> Value {
    let scale = 10u64.pow(value.max(1).ilog10().saturating_sub(2));
    json!(value.saturating_add(scale / 2) / scale * scale)
}

fn group(g: &Group<'_>) -> Value {
    // Arms on different file sets did different work, even if it is equal in size.
    let comparable = if g.merges_sets { Vec::new() } else { g.comparable() };
    let comparable: Vec<&str> = comparable.iter().map(|arm| arm.id.as_str()).collect();
    json!({
        "id": g.id,
        "experiment": g.experiment.name,
        "set": g.set,
        "medium": g.medium,
        "condition": g.condition,
        "compute": g.compute,
        "metric": g.experiment.metric,
        "unit": g.unit().name(),
        "merges_sets": g.merges_sets,
        "arms": g.arms.iter().map(|a| {
            let busy: Vec<f64> = a.measured().filter_map(|m| m.device_busy).collect();
            let first = a.runs.first();
            json!({
                "id": a.id,
                "arm": a.name,
                "plan": a.plan,
                "set": a.set,
                "set_hash": first.map(|run| &run.set.hash).filter(|hash| !hash.is_empty()),
                "work": a.work().map(|(files, bytes)| json!({"files": files, "bytes": bytes})),
                "comparable": comparable.contains(&a.id.as_str()),
                "factors": a.factors,
                "n": a.estimate.as_ref().map_or(0, |e| e.values.len()),
                "median": a.estimate.as_ref().map(|e| e.median),
                "low": a.estimate.as_ref().and_then(|e| e.ends).map(|e| e.low),
                "high": a.estimate.as_ref().and_then(|e| e.ends).map(|e| e.high),
                "confidence": a.estimate.as_ref().and_then(|e| e.ends).map(|e| e.confidence),
                "values": a.estimate.as_ref().map(|e| {
                    e.values.iter().map(|v| number(*v)).collect::<Vec<_>>()
                }),
                "blocks": a.estimate.as_ref().map(|_| {
                    a.blocks(&g.experiment.metric).into_iter().map(|(block, _)| block).collect::<Vec<_>>()
                }),
                "device_busy": (!busy.is_empty()).then(|| ioloom_stats::median(&busy)),
                "not_done": a.unusable.iter()
                    .map(|(why, reason, runs)| (why.name(), reason, runs))
                    .collect::<Vec<_>>(),
                "doubts": a.doubts,
            })
        }).collect::<Vec<_>>(),
    })
}

/// Returns the ratios of the first page.
fn advice(input: &Input, groups: &[Group<'_>]) -> Vec<Value> {
    let one = |line: &Advice<'_, '_>| {
        let ratio = line.ratio;
        let within = rounded_up((line.bound() - 1.0).max(0.0));
        let (rival, next) = (line.rival(), line.next());
        json!({
            "id": line.id,
            "topic": line.topic,
            "best": line.best.id,
            "against": line.usual.id,
            "ratio": ratio.map(|r| r.value),
            "slowdown": ratio.map(|r| 1.0 / r.value),
            "within": (line.is_default && within.is_finite()).then_some(within),
            "next": next.map(|(arm, _)| &arm.id),
            "next_slowdown": next.map(|(_, r)| 1.0 / r.value),
            "rival": rival.map(|(arm, _)| &arm.id),
            "rival_ratio": rival.map(|(_, r)| r.value),
            "rival_low": rival.map(|(_, r)| r.ends.low),
            "rival_high": rival.map(|(_, r)| r.ends.high),
            "low": ratio.map(|r| r.ends.low),
            "high": ratio.map(|r| r.ends.high),
            "confidence": ratio.and_then(confidence),
            "n": ratio.map(|r| r.n),
        })
    };
    crate::advice::advice(input, groups).iter().map(one).collect()
}

/// Returns the confidence of the ends of a ratio; `None` if it is unknown, because the same blocks chose and compare.
fn confidence(ratio: Ratio) -> Option<f64> {
    Some(ratio.ends.confidence).filter(|confidence| *confidence > 0.0)
}

fn ratios<'h>(h: &'h Headline<'_, '_>) -> impl Iterator<Item = Value> + 'h {
    h.gains.iter().map(|(id, other, ratio)| {
        json!({
            "id": id,
            "best": h.best.id,
            "against": other.id,
            "ratio": ratio.map(|r| r.value),
            "slowdown": ratio.map(|r| 1.0 / r.value),
            "low": ratio.map(|r| r.ends.low),
            "high": ratio.map(|r| r.ends.high),
            "confidence": ratio.and_then(confidence),
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
                "ref": format!("{}c{i}", input.prefix),
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

/// Column names of a run, in order.
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

/// Returns a JSON number, without `.0` if it is whole.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

fn run(r: &RunRecord) -> Value {
    let (word, reason, numbers) = match &r.outcome {
        Outcome::Done { measured } => ("done", None, scalars(measured)),
        Outcome::Refused { reason } => ("refused", Some(reason.clone()), Value::Null),
        Outcome::Failed { reason } => ("failed", Some(reason.clone()), Value::Null),
        Outcome::TimedOut { seconds } => {
            ("timed-out", Some(crate::group::at_deadline(*seconds)), Value::Null)
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
            let exact = name == "elapsed_ns";
            out.insert(name.to_owned(), if exact { number(value) } else { rounded(value) });
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
            let times = [s.min_ns, s.p50_ns, s.p90_ns, s.p99_ns, s.max_ns];
            let names = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns"];
            let mut of: Map<String, Value> = names
                .into_iter()
                .zip(times)
                .filter(|_| s.has_times())
                .map(|(name, ns)| (name.to_owned(), coarse(ns)))
                .collect();
            of.insert("count".to_owned(), json!(s.count));
            of.insert("total_ns".to_owned(), rounded(s.total_ns as f64));
            (k.name().to_owned(), Value::Object(of))
        })
        .collect();
    out.insert("calls".to_owned(), Value::Object(calls));
    let roles: Map<String, Value> = role_times(std::iter::once(m))
        .into_iter()
        .map(|(role, (times, threads, ready))| {
            let ns = times.map(rounded);
            (role, json!({ "threads": threads, "ready_measured": ready, "ns": ns }))
        })
        .collect();
    out.insert("roles".to_owned(), Value::Object(roles));
    if !m.extra.is_empty() {
        out.insert("extra".to_owned(), json!(m.extra));
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xFB, 0xFF, 0xFE]), "+//+");
    }

    #[test]
    fn four_digits_stay() {
        let of = |v: f64| rounded(v).to_string();
        assert_eq!(of(123_456.0), "123500");
        assert_eq!(of(0.123_456), "0.1235");
        assert_eq!([123_456, 99_950, 7, 0].map(coarse), [123_000, 100_000, 7, 0]);
        assert_eq!((of(7.0), of(0.0), of(-98_765.0)), ("7".into(), "0".into(), "-98770".into()));
    }
}
