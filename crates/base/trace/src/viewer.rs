//! Trace data for the viewer in the HTML report.
//!
//! Browsers decompress gzip ([`DecompressionStream`]) and index typed arrays quickly, but parse a
//! million JSON objects slowly. The payload therefore consists of one JSON header for everything
//! small, followed by plain columns. The page contains `base64(gzip(payload))`. A test checks that
//! a million segments of random length take less than 3 MB.
//!
//! # Layout
//!
//! All numbers are little-endian.
//!
//! ```text
//! 0    8 bytes   magic "IOLMVIEW"
//! 8    u32       version, 1
//! 12   u32       H: length of the header in bytes, including trailing spaces
//! 16   H bytes   header, UTF-8 JSON; H is chosen so that 16 + H is a multiple of 8
//! 16+H ...       body: columns; every column starts at a multiple of 8, gaps are zero
//! ```
//!
//! # Columns
//!
//! The header describes a column as `{"at": A, "n": N, "p": P}`, or `null` if it is absent:
//!
//! - `A`: offset of its first byte in the body; `N`: number of values; `P`: bytes per value, 0 to
//!   7.
//! - The bytes are in **planes**: first the lowest byte of all `N` values, then the next byte of
//!   all values, and so on. `value[i] = Σ over k < P of body[A + k·N + i] · 256^k`. `P = 0` means
//!   that every value is 0 and no bytes are stored. Values are at most 2^53, so they are exact in a double.
//! - A column of floats is described as `{"at": A, "n": N, "f64": true}`: `N` IEEE doubles,
//!   little-endian.
//!
//! Planes compress better than varints because they separate noise (low bytes) from structure (high
//! bytes), and the reader is one loop without branches.
//!
//! # Times
//!
//! Times in columns are in **ticks**: `ns = ticks · tick_ns`. `tick_ns` is 1 for small traces and
//! [`COARSE_TICK_NS`] from [`COARSE_FROM`] items on. This moves a boundary by at most half a tick,
//! and errors do not accumulate because points are rounded instead of lengths. Header fields that
//! end in `_ns` are plain nanoseconds. A start column `dt` contains differences: the first value is
//! relative to 0 (the start of the run), each later value is relative to the previous one.
//!
//! # Header
//!
//! ```text
//! {
//!   "tick_ns": 1,
//!   "title": "...", "started_unix_ms": 0, "elapsed_ns": 0,
//!   "processors": 2 | null,                 number of processors, if known
//!   "states": ["on-cpu", "ready", ...],     names by state code; see below
//!   "kinds":  ["open", "stat", ...],        names by span kind
//!   "blocked": ["io", ...],                 by span kind: state of a thread blocked in it
//!   "threads": [{
//!     "tid": 1, "name": "...", "role": "...", "start_ns": 0, "end_ns": 0,
//!     "states": { "on-cpu": { "ns": 1 | null, "source": "...", "quality": "exact" | "bounded" |
//!                 "inferred" | null, "includes": ["ready"]?, "why": "..."? }, ... },
//!     "segments": { "n": N, "dt": COL, "code": COL, "cpu": COL | null, "by": COL | null },
//!     "spans":    { "n": N, "dt": COL, "len": COL, "kind": COL, "file": COL | null },
//!     "wakes":    { "n": N, "dt": COL, "by": COL }
//!   }],
//!   "devices": [{ "name": "vda",
//!     "requests": { "n": N, "dt": COL, "latency": COL, "write": COL, "sector": COL,
//!                   "bytes": COL, "tid": COL } }],
//!   "cores": [{ "cpu": 0,
//!     "runs": { "n": N, "dt": COL, "len": COL, "tid": COL, "ours": COL } }],
//!   "series": [{ "name": "in flight", "unit": "requests",
//!     "points": { "n": N, "dt": COL, "value": FLOATS } }],
//!   "marks": [{ "at_ns": 0, "name": "..." }],
//!   "files": ["..."], "file_bytes": [0],     can be shorter than the indices in use, or empty
//!   "roles": [{ "role": "...", "threads": 1, "states": as above }],
//!   "evidence": the `evidence` of the JSON of a run: level ("account" | "switch" | "kernel"),
//!               sources, checks, overhead_pct, notes, complete_until_ns (absent if all events
//!               were stored; use of processors is not known after it),
//!   "findings": [{ "id": "...", "title": "...", "sentence": "...",
//!                  "evidence": [["what", "value"], ...], "try": "..." }]
//! }
//! ```
//!
//! Columns in detail:
//!
//! - `segments`: the first starts at the thread's `start_ns`; each ends where the next starts, the
//!   last at `end_ns` (also rounded to ticks). `code`: low 4 bits = index into `states`; bit 7
//!   (128) set = position within its span unknown, draw hatched. `cpu`: processor + 1 while
//!   running, 0 = unknown. `by`: for preempted segments the thread that took over, 0 = unknown.
//! - `spans`: sorted by start, not overlapping. `len` in ticks. `kind`: index into `kinds`. `file`:
//!   index into `files` + 1, 0 = no file.
//! - `wakes`: `by` = thread that woke this one, 0 = an interrupt or not known.
//! - `requests`: sorted by issue. `latency` = ticks until completion + 1; 0 = completion not
//!   observed. `write`: 1 = write. `sector`: in units of 512 bytes. `tid`: issuing thread, 0 =
//!   unknown.
//! - `runs`: threads that ran on the processor; gaps are idle. `ours`: 1 = thread of the observed
//!   program.
//! - `points`: each value is valid until the next point.
//!
//! # Computations of the viewer
//!
//! **Shares.** For one lane, `P_s(t)` is the time in state `s` before `t`. A range `[a, b)` has
//! `P_s(b) − P_s(a)` of state `s`, and a pixel column is such a range:
//! `a = from + x·(to − from)/w`, `b = from + (x + 1)·(to − from)/w`, clipped to the lane.
//! [`crate::shares`] is the reference implementation: prefix sums at every 64th segment, then at
//! most 64 steps.
//!
//! **Utilisation.** With core lanes: `ours(t)` and `others(t)` are the numbers of runs that cover
//! `t`; at level `kernel` the rest of the cores is idle; at lower levels the rest is "others or
//! idle". Without core lanes: `ours(t)` is the number of threads whose segment at `t` is on-cpu,
//! except those of roles `tool` and `kernel-worker`; others and idle are unknown. A device is busy
//! while a request is in flight, from issue to completion; requests without an observed completion
//! do not count. The four-way share combines "a thread of the program runs" with "a device is
//! busy".
//!
//! [`DecompressionStream`]: https://developer.mozilla.org/docs/Web/API/DecompressionStream

use crate::findings::Finding;
use crate::lane::{Core, Device, NO_CPU, NO_FILE, Segment, Series, Thread, Trace, Wake};
use crate::span::{Span, SpanKind};
use ioloom_model::State;
use serde_json::{Value, json};
use std::io::Write;

/// First bytes of a payload.
pub const MAGIC: [u8; 8] = *b"IOLMVIEW";
/// Version of the layout.
pub const VERSION: u32 = 1;
/// Bit in a segment's code: its position within its span is unknown.
pub const NOT_PLACED: u8 = 0x80;
/// Length of a tick in large traces, in nanoseconds.
pub const COARSE_TICK_NS: u64 = 32;
/// Number of items (segments, spans, wake-ups, requests, runs) from which on ticks are coarse.
/// Smaller pages do not need coarse ticks; in larger ones they save five bits per time.
pub const COARSE_FROM: usize = 250_000;

/// Size in bytes of the fixed part before the header.
const PREFIX: usize = 16;
/// Maximum value in a column: doubles are exact up to it. Times are not larger.
const VALUE_MAX: u64 = 1 << 53;

/// Returns the uncompressed payload of a trace.
pub fn payload(trace: &Trace, findings: &[Finding]) -> Vec<u8> {
    let tick_ns = if items(trace) >= COARSE_FROM { COARSE_TICK_NS } else { 1 };
    let mut body = Body { bytes: Vec::new(), tick_ns };
    let mut header = header(trace, findings, &mut body).to_string().into_bytes();
    while !(PREFIX + header.len()).is_multiple_of(8) {
        header.push(b' ');
    }
    let mut payload = Vec::with_capacity(PREFIX + header.len() + body.bytes.len());
    payload.extend_from_slice(&MAGIC);
    payload.extend_from_slice(&VERSION.to_le_bytes());
    payload.extend_from_slice(&(header.len() as u32).to_le_bytes());
    payload.extend_from_slice(&header);
    payload.extend_from_slice(&body.bytes);
    payload
}

/// Returns the text embedded in the page: `base64(gzip(payload))`, with the standard alphabet and
/// padding. It contains no characters that are special in HTML.
pub fn embedded(trace: &Trace, findings: &[Finding]) -> String {
    base64(&gzip(&payload(trace, findings)))
}

/// Compresses in memory, which cannot fail.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.unwrap_or_default()
}

/// Encodes as standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let six = (word >> (18 - 6 * i)) & 63;
            text.push(if i <= chunk.len() { char::from(ALPHABET[six as usize]) } else { '=' });
        }
    }
    text
}

fn items(trace: &Trace) -> usize {
    let threads = trace.threads.iter().map(|t| t.segments.len() + t.spans.len() + t.wakes.len());
    let requests = trace.devices.iter().map(|d| d.requests.len());
    let runs = trace.cores.iter().map(|c| c.runs.len());
    threads.chain(requests).chain(runs).sum()
}

/// The columns written so far.
struct Body {
    bytes: Vec<u8>,
    tick_ns: u64,
}

impl Body {
    fn pad(&mut self) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.bytes.len()
    }

    /// Converts nanoseconds to the nearest tick.
    fn ticks(&self, ns: u64) -> u64 {
        ns.saturating_add(self.tick_ns / 2) / self.tick_ns
    }

    fn column(&mut self, values: impl Iterator<Item = u64>) -> Value {
        let values: Vec<u64> = values.map(|v| v.min(VALUE_MAX)).collect();
        let largest = values.iter().copied().max().unwrap_or(0);
        let planes = (u64::BITS - largest.leading_zeros()).div_ceil(8);
        let at = self.pad();
        for plane in 0..planes {
            self.bytes.extend(values.iter().map(|v| (v >> (8 * plane)) as u8));
        }
        json!({ "at": at, "n": values.len(), "p": planes })
    }

    /// Writes a column, or null if all values are 0.
    fn sparse(&mut self, values: impl Iterator<Item = u64> + Clone) -> Value {
        if values.clone().all(|v| v == 0) { Value::Null } else { self.column(values) }
    }

    /// Writes sorted times as differences in ticks.
    fn starts(&mut self, times_ns: impl Iterator<Item = u64>) -> Value {
        let mut before = 0;
        let ticks: Vec<u64> = times_ns.map(|ns| self.ticks(ns)).collect();
        self.column(ticks.into_iter().map(|tick| {
            let step = tick.saturating_sub(before);
            before += step;
            step
        }))
    }

    fn lengths(&mut self, ranges_ns: impl Iterator<Item = (u64, u64)>) -> Value {
        let ticks: Vec<u64> =
            ranges_ns.map(|(a, b)| self.ticks(b).saturating_sub(self.ticks(a))).collect();
        self.column(ticks.into_iter())
    }

    fn floats(&mut self, values: impl ExactSizeIterator<Item = f64>) -> Value {
        let (at, n) = (self.pad(), values.len());
        for value in values {
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
        json!({ "at": at, "n": n, "f64": true })
    }
}

fn header(trace: &Trace, findings: &[Finding], body: &mut Body) -> Value {
    let names = |states: &mut dyn Iterator<Item = &'static str>| -> Vec<&str> { states.collect() };
    json!({
        "tick_ns": body.tick_ns,
        "title": trace.title,
        "started_unix_ms": trace.started_unix_ms,
        "elapsed_ns": trace.elapsed_ns,
        "processors": crate::shares::processors(trace),
        "states": names(&mut State::ALL.iter().map(|s| s.name())),
        "kinds": names(&mut SpanKind::ALL.iter().map(|k| k.name())),
        "blocked": names(&mut SpanKind::ALL.iter().map(|k| k.blocked_state().name())),
        "threads": trace.threads.iter().map(|t| thread(t, body)).collect::<Vec<_>>(),
        "devices": trace.devices.iter().map(|d| device(d, body)).collect::<Vec<_>>(),
        "cores": trace.cores.iter().map(|c| core(c, body)).collect::<Vec<_>>(),
        "series": trace.series.iter().map(|s| series(s, body)).collect::<Vec<_>>(),
        "marks": trace.marks,
        "files": trace.files,
        "file_bytes": trace.file_bytes,
        "roles": crate::shares::roles(trace).iter()
            .map(|r| json!({ "role": r.role, "threads": r.threads, "states": r.states }))
            .collect::<Vec<_>>(),
        "evidence": trace.evidence,
        "findings": findings,
    })
}

fn thread(thread: &Thread, body: &mut Body) -> Value {
    json!({
        "tid": thread.tid,
        "name": thread.name,
        "role": thread.role,
        "start_ns": thread.start_ns,
        "end_ns": thread.end_ns,
        "states": thread.states,
        "segments": segments(&thread.segments, body),
        "spans": spans(&thread.spans, body),
        "wakes": wakes(&thread.wakes, body),
    })
}

/// Returns the code of a segment's state and placement.
fn code(segment: &Segment) -> u8 {
    segment.state as u8 | if segment.placed { 0 } else { NOT_PLACED }
}

fn segments(segments: &[Segment], body: &mut Body) -> Value {
    let cpu = |cpu: u16| if cpu == NO_CPU { 0 } else { u64::from(cpu) + 1 };
    json!({
        "n": segments.len(),
        "dt": body.starts(segments.iter().map(|s| s.start_ns)),
        "code": body.column(segments.iter().map(|s| u64::from(code(s)))),
        "cpu": body.sparse(segments.iter().map(|s| cpu(s.cpu))),
        "by": body.sparse(segments.iter().map(|s| u64::from(s.by_tid))),
    })
}

fn spans(spans: &[Span], body: &mut Body) -> Value {
    let file = |file: u32| if file == NO_FILE { 0 } else { u64::from(file) + 1 };
    json!({
        "n": spans.len(),
        "dt": body.starts(spans.iter().map(|s| s.start_ns)),
        "len": body.lengths(spans.iter().map(|s| (s.start_ns, s.start_ns.saturating_add(s.ns)))),
        "kind": body.column(spans.iter().map(|s| s.kind as u64)),
        "file": body.sparse(spans.iter().map(|s| file(s.file))),
    })
}

fn wakes(wakes: &[Wake], body: &mut Body) -> Value {
    json!({
        "n": wakes.len(),
        "dt": body.starts(wakes.iter().map(|w| w.at_ns)),
        "by": body.column(wakes.iter().map(|w| u64::from(w.by_tid))),
    })
}

fn device(device: &Device, body: &mut Body) -> Value {
    let requests = &device.requests;
    let latency: Vec<u64> = requests
        .iter()
        .map(|r| {
            let end = r.complete_ns.map(|end| body.ticks(end));
            end.map_or(0, |end| end.saturating_sub(body.ticks(r.issue_ns)) + 1)
        })
        .collect();
    json!({
        "name": device.name,
        "requests": {
            "n": requests.len(),
            "dt": body.starts(requests.iter().map(|r| r.issue_ns)),
            "latency": body.column(latency.into_iter()),
            "write": body.column(requests.iter().map(|r| u64::from(r.write))),
            "sector": body.column(requests.iter().map(|r| r.sector)),
            "bytes": body.column(requests.iter().map(|r| u64::from(r.bytes))),
            "tid": body.column(requests.iter().map(|r| u64::from(r.tid))),
        },
    })
}

fn core(core: &Core, body: &mut Body) -> Value {
    let runs = &core.runs;
    json!({
        "cpu": core.cpu,
        "runs": {
            "n": runs.len(),
            "dt": body.starts(runs.iter().map(|r| r.start_ns)),
            "len": body.lengths(runs.iter().map(|r| (r.start_ns, r.end_ns))),
            "tid": body.column(runs.iter().map(|r| u64::from(r.tid))),
            "ours": body.column(runs.iter().map(|r| u64::from(r.ours))),
        },
    })
}

fn series(series: &Series, body: &mut Body) -> Value {
    json!({
        "name": series.name,
        "unit": series.unit,
        "points": {
            "n": series.points.len(),
            "dt": body.starts(series.points.iter().map(|p| p.0)),
            "value": body.floats(series.points.iter().map(|p| p.1)),
        },
    })
}
