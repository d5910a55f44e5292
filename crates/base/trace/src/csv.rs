//! CSV tables for spreadsheets: segments, spans and device requests.
//!
//! RFC 4180 with a header line, except that lines end with `\n`. Times are nanoseconds after the
//! start of the run. Unknown values are empty fields, never 0.
//!
//! | table | columns |
//! |---|---|
//! | segments | `tid, thread, role, start_ns, end_ns, state, placed, cpu, by_tid` |
//! | spans | `tid, thread, role, start_ns, end_ns, span, file_index, file, file_bytes` |
//! | requests | `device, kind, issue_ns, complete_ns, latency_ns, sector, bytes, tid` |
//!
//! `placed`: whether the position within the span is known. `cpu`: processor while running.
//! `by_tid`: the thread that took over from a preempted one. `kind`: `read` or `write`. `sector`:
//! in units of 512 bytes.

use crate::lane::{NO_CPU, NO_FILE, Thread, Trace};
use serde::Serialize;

/// Returns the states of all threads.
pub fn segments(trace: &Trace) -> String {
    let rows = trace.threads.iter().flat_map(|thread| {
        thread.segments.iter().enumerate().map(move |(i, segment)| {
            let end_ns = thread.segments.get(i + 1).map_or(thread.end_ns, |next| next.start_ns);
            let cpu = (segment.cpu != NO_CPU).then_some(segment.cpu);
            let by_tid = (segment.by_tid != 0).then_some(segment.by_tid);
            let state = segment.state.name();
            (owner(thread), segment.start_ns, end_ns, state, segment.placed, cpu, by_tid)
        })
    });
    let columns = "tid,thread,role,start_ns,end_ns,state,placed,cpu,by_tid";
    table(columns, rows)
}

/// Returns the spans of all threads.
pub fn spans(trace: &Trace) -> String {
    let rows = trace.threads.iter().flat_map(|thread| {
        thread.spans.iter().map(move |span| {
            let index = (span.file != NO_FILE).then_some(span.file);
            let file = trace.files.get(span.file as usize);
            let bytes = trace.file_bytes.get(span.file as usize);
            let end_ns = span.start_ns.saturating_add(span.ns);
            (owner(thread), span.start_ns, end_ns, span.kind.name(), index, file, bytes)
        })
    });
    table("tid,thread,role,start_ns,end_ns,span,file_index,file,file_bytes", rows)
}

/// Returns the requests of all devices.
pub fn requests(trace: &Trace) -> String {
    let rows = trace.devices.iter().flat_map(|device| {
        device.requests.iter().map(|request| {
            let kind = if request.write { "write" } else { "read" };
            let latency_ns = request.complete_ns.map(|ns| ns.saturating_sub(request.issue_ns));
            let tid = (request.tid != 0).then_some(request.tid);
            let times = (request.issue_ns, request.complete_ns, latency_ns);
            (&device.name, kind, times, request.sector, request.bytes, tid)
        })
    });
    table("device,kind,issue_ns,complete_ns,latency_ns,sector,bytes,tid", rows)
}

fn owner(thread: &Thread) -> (u32, &str, &str) {
    (thread.tid, &thread.name, &thread.role)
}

/// Writes a header line and rows. Nested tuples of a row become adjacent fields.
fn table(columns: &str, rows: impl Iterator<Item = impl Serialize>) -> String {
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    csv.write_record(columns.split(',')).expect("writing to memory cannot fail");
    for row in rows {
        csv.serialize(row).expect("writing to memory cannot fail");
    }
    let bytes = csv.into_inner().expect("writing to memory cannot fail");
    String::from_utf8(bytes).expect("every field is UTF-8")
}
