//! A trace that contains every part.

use crate::planted::{Script, at_level};
use ioloom_model::evidence::SourceReport;
use ioloom_model::{Level, State};
use ioloom_trace::raw::{PROCESSORS, READY_QUEUE, RawThread};
use ioloom_trace::{CoreRun, Mark, Request, Series, SpanKind, Trace, classify};

/// Two workers and the tool.
fn threads() -> Vec<RawThread> {
    let mut threads = Vec::new();
    for tid in [11, 12] {
        let mut script = Script::new(tid, u64::from(tid) * 100);
        for i in 0..40_u64 {
            script.span(SpanKind::Open, |s| {
                s.run(4_000 + i);
            });
            script.span(SpanKind::Read, |s| {
                s.run(3_000).block(State::Io, 80_000 + i * 977, 2_500).run(900);
            });
            script.span(SpanKind::Compute, |s| {
                s.run(150_000 + i * 31).preempted(70_000, 4_000_000).run(20_000).fault(60_000, 10);
            });
            script.run(120);
        }
        let mut thread = script.thread();
        thread.name = format!("w\"{tid}, ä");
        for (i, span) in thread.spans.iter_mut().enumerate() {
            span.file = (i / 3) as u32;
        }
        threads.push(thread);
    }
    let mut tool = Script::new(13, 0);
    tool.run(5_000).wait(State::Event, 9_000_000, 10, false);
    threads.push(RawThread { role: "tool".to_owned(), ..tool.thread() });
    threads
}

fn sources() -> Vec<SourceReport> {
    vec![
        SourceReport { name: "spans".to_owned(), records: 240, ..SourceReport::default() },
        SourceReport {
            name: "perf.switch".to_owned(),
            records: 400,
            lost: 3,
            ns_per_event: Some(950.0),
            privilege: "user".to_owned(),
        },
        SourceReport {
            name: "perf.major-fault".to_owned(),
            records: 80,
            ..SourceReport::default()
        },
        SourceReport {
            name: "tracefs.sched_waking".to_owned(),
            records: 300,
            ..SourceReport::default()
        },
        SourceReport { name: "tracefs.contention".to_owned(), ..SourceReport::default() },
    ]
}

/// Returns a trace with threads, a device, cores, counters, marks and file names.
pub(crate) fn sample() -> Trace {
    let mut raw = at_level(Level::Kernel, threads());
    raw.devices = vec!["vda".to_owned()];
    raw.requests = (0..60)
        .map(|i| Request {
            device: 0,
            write: i % 7 == 0,
            issue_ns: i * 150_000,
            complete_ns: (i % 9 != 8).then_some(i * 150_000 + 70_000 + i),
            sector: (1 << 33) + i * 8,
            bytes: 65_536,
            tid: if i % 2 == 0 { 11 } else { 0 },
        })
        .collect();
    let run =
        |i: u64, tid, ours| CoreRun { start_ns: i * 1_000, end_ns: i * 1_000 + 700, tid, ours };
    raw.cores = vec![(0..50).map(|i| run(i, 11, true)).collect(), vec![run(3, 99, false)]];
    let points = |f: fn(u64) -> f64| (0..30).map(|i| (i * 300_000, f(i))).collect();
    raw.series = vec![
        Series {
            name: PROCESSORS.to_owned(),
            unit: "processors".to_owned(),
            points: vec![(0, 2.0)],
        },
        Series {
            name: READY_QUEUE.to_owned(),
            unit: "files".to_owned(),
            points: points(|i| (i % 5) as f64),
        },
        Series {
            name: "memory budget".to_owned(),
            unit: "bytes".to_owned(),
            points: points(|i| i as f64 * 1.5),
        },
    ];
    raw.marks = vec![Mark { at_ns: 1_000_000, name: "drained <b>".to_owned() }];
    raw.evidence.overhead_pct = 0.5;
    raw.evidence.sources = sources();
    let mut trace = classify(raw);
    trace.title = "each --threads 2 «set»".to_owned();
    trace.started_unix_ms = 1_700_000_000_000;
    trace.files = (0..40).map(|i| format!("d/f{i}.txt")).collect();
    trace.file_bytes = (0..40).map(|i| i * 4096).collect();
    trace
}
