//! Tables for a spreadsheet: segments, spans and device requests as CSV.
//!
//! RFC 4180: a header line, commas, `"` doubled inside quotes, lines end with `\n`. Times are
//! nanoseconds after the start of the run. What is not known is an empty field, never 0.
//!
//! | table | columns |
//! |---|---|
//! | segments | `tid, thread, role, start_ns, end_ns, state, placed, cpu, by_tid` |
//! | spans | `tid, thread, role, start_ns, end_ns, span, file_index, file, file_bytes` |
//! | requests | `device, kind, issue_ns, complete_ns, latency_ns, sector, bytes, tid` |
//!
//! `placed`: `true` if the position inside its span is known. `cpu`: processor while running.
//! `by_tid`: the thread that took over from a preempted one. `kind`: `read` or `write`. `sector`: of
//! 512 bytes.

use crate::lane::{NO_CPU, NO_FILE, Thread, Trace};
use std::fmt::Write;

/// Every state of every thread.
pub fn segments(trace: &Trace) -> String {
    let mut csv = "tid,thread,role,start_ns,end_ns,state,placed,cpu,by_tid\n".to_owned();
    for thread in &trace.threads {
        let who = who(thread);
        for (i, segment) in thread.segments.iter().enumerate() {
            let end_ns = thread.segments.get(i + 1).map_or(thread.end_ns, |next| next.start_ns);
            let cpu = known(u32::from(segment.cpu), u32::from(NO_CPU));
            let by = known(segment.by_tid, 0);
            let (start_ns, state, placed) =
                (segment.start_ns, segment.state.name(), segment.placed);
            line(&mut csv, format_args!("{who},{start_ns},{end_ns},{state},{placed},{cpu},{by}"));
        }
    }
    csv
}

/// Every span of every thread.
pub fn spans(trace: &Trace) -> String {
    let mut csv = "tid,thread,role,start_ns,end_ns,span,file_index,file,file_bytes\n".to_owned();
    for thread in &trace.threads {
        let who = who(thread);
        for span in &thread.spans {
            let index = known(span.file, NO_FILE);
            let at = span.file as usize;
            let file = trace.files.get(at).map_or_else(String::new, |name| quoted(name));
            let bytes = trace.file_bytes.get(at).map_or_else(String::new, u64::to_string);
            let (start_ns, kind) = (span.start_ns, span.kind.name());
            let end_ns = start_ns.saturating_add(span.ns);
            line(&mut csv, format_args!("{who},{start_ns},{end_ns},{kind},{index},{file},{bytes}"));
        }
    }
    csv
}

/// Every request of every device.
pub fn requests(trace: &Trace) -> String {
    let mut csv = "device,kind,issue_ns,complete_ns,latency_ns,sector,bytes,tid\n".to_owned();
    for device in &trace.devices {
        let name = quoted(&device.name);
        for request in &device.requests {
            let kind = if request.write { "write" } else { "read" };
            let issue_ns = request.issue_ns;
            let end = request.complete_ns.map_or_else(String::new, |ns| ns.to_string());
            let latency = request.complete_ns.map(|ns| ns.saturating_sub(issue_ns));
            let latency = latency.map_or_else(String::new, |ns| ns.to_string());
            let (sector, bytes, tid) = (request.sector, request.bytes, known(request.tid, 0));
            line(
                &mut csv,
                format_args!("{name},{kind},{issue_ns},{end},{latency},{sector},{bytes},{tid}"),
            );
        }
    }
    csv
}

fn who(thread: &Thread) -> String {
    format!("{},{},{}", thread.tid, quoted(&thread.name), quoted(&thread.role))
}

fn known(value: u32, not_known: u32) -> String {
    if value == not_known { String::new() } else { value.to_string() }
}

fn line(csv: &mut String, fields: std::fmt::Arguments<'_>) {
    // Writing into a String cannot fail.
    let _ = writeln!(csv, "{fields}");
}

/// A text as a field: in quotes if it holds what CSV treats specially.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
