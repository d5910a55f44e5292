//! A trace as one JSON document: totals and their evidence. Segments, spans and requests are in the
//! exports.

use ioloom_model::evidence::RoleStates;
use ioloom_model::{Evidence, StateTable};
use ioloom_trace::{Finding, Mark, Trace, findings, shares};
use serde::Serialize;

/// Document version.
const SCHEMA: u32 = 1;

/// The document printed by `trace show --json` and written by `watch --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    schema: u32,
    command: &'static str,
    title: String,
    started_unix_ms: u64,
    elapsed_ns: u64,
    roles: Vec<RoleStates>,
    threads: Vec<ThreadStates>,
    devices: Vec<DeviceSums>,
    marks: Vec<Mark>,
    findings: Vec<Finding>,
    evidence: Evidence,
}

/// One thread.
#[derive(Debug, Serialize)]
struct ThreadStates {
    tid: u32,
    name: String,
    role: String,
    start_ns: u64,
    end_ns: u64,
    spans: usize,
    states: StateTable,
}

/// The requests of one device.
#[derive(Debug, Serialize)]
struct DeviceSums {
    name: String,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
    /// Requests whose completion was not observed.
    unfinished: u64,
}

/// Creates the document of a trace, printed by `command`.
pub(crate) fn document(trace: &Trace, command: &'static str) -> Document {
    Document {
        schema: SCHEMA,
        command,
        title: trace.title.clone(),
        started_unix_ms: trace.started_unix_ms,
        elapsed_ns: trace.elapsed_ns,
        roles: shares::roles(trace),
        threads: trace.threads.iter().map(thread).collect(),
        devices: trace.devices.iter().map(device).collect(),
        marks: trace.marks.clone(),
        findings: findings(trace),
        evidence: trace.evidence.clone(),
    }
}

fn thread(thread: &ioloom_trace::Thread) -> ThreadStates {
    ThreadStates {
        tid: thread.tid,
        name: thread.name.clone(),
        role: thread.role.clone(),
        start_ns: thread.start_ns,
        end_ns: thread.end_ns,
        spans: thread.spans.len(),
        states: thread.states.clone(),
    }
}

fn device(device: &ioloom_trace::Device) -> DeviceSums {
    let of = |write: bool| device.requests.iter().filter(move |r| r.write == write);
    let bytes = |write: bool| of(write).map(|r| u64::from(r.bytes)).sum();
    DeviceSums {
        name: device.name.clone(),
        reads: of(false).count() as u64,
        writes: of(true).count() as u64,
        read_bytes: bytes(false),
        write_bytes: bytes(true),
        unfinished: device.requests.iter().filter(|r| r.complete_ns.is_none()).count() as u64,
    }
}
