//! Traces of runs: every thread is accounted for, and files hold what was recorded.

use crate::support::{make, plan, roots};
use ioloom::Error;
use ioloom_sys::clock::thread_cpu_ns;
use ioloom_trace::{SpanKind, Trace};

/// Checks that the shares of every thread add up, and that its lane has neither gap nor overlap.
fn tiles(trace: &Trace, text: &str) {
    for thread in &trace.threads {
        let elapsed = thread.end_ns - thread.start_ns;
        let sum: u64 = thread.states.values().filter_map(|time| time.ns).sum();
        assert_eq!(sum, elapsed, "{text}: {}", thread.name);
        let first = thread.segments.first().map(|segment| segment.start_ns);
        assert!(elapsed == 0 || first == Some(thread.start_ns), "{text}: {}", thread.name);
        assert!(thread.segments.windows(2).all(|w| w[0].start_ns < w[1].start_ns), "{text}");
        // The tool thread ends after the threads that it samples.
        let tool = thread.role == ioloom_trace::lane::ROLE_TOOL;
        assert!(tool || thread.end_ns <= trace.elapsed_ns, "{text}: {}", thread.name);
    }
    assert!((trace.evidence.checks.tiling_pct - 100.0).abs() < 1e-6, "{text}");
}

#[test]
fn a_traced_run_explains_all_time_and_names_all_files() {
    let (_dir, paths) = make(&roots()[0], &[3000; 40]);
    let out = tempfile::tempdir().unwrap();
    for text in ["read/window:l=8,p=2", "nowait/window:l=8,p=2", "read/roles:r=1,h=0,c=2,w=8"] {
        let file = out.path().join("run.ioloom");
        let files = ioloom::list(&paths).pin(plan(text)).trace(&file);
        let run = files.map(|f| f.len()).run().unwrap();
        let trace = read(&file);
        tiles(&trace, text);
        assert!(trace.title.contains("40 files"), "{}", trace.title);
        assert_eq!(trace.files.len(), 40, "{text}");
        assert!(trace.file_bytes.iter().all(|bytes| *bytes == 3000), "{text}");
        assert!(trace.files.iter().zip(&paths).all(|(name, path)| path.ends_with(name)), "{text}");
        let spans = trace.threads.iter().flat_map(|t| &t.spans);
        let computed = spans.filter(|span| span.kind == SpanKind::Compute).count();
        assert_eq!((computed, run.measured.files), (40, 40), "{text}");
        let timed = run.measured.calls.values().find(|calls| calls.timed != calls.count);
        assert_eq!(timed, None, "{text}: with a trace every file is timed");
        assert_eq!(trace.limit, run.measured.bottleneck, "{text}: trace and run agree");
        let first = ioloom_trace::findings(&trace).into_iter().next().map(|finding| finding.id);
        assert_eq!(first.as_deref(), Some("limit"), "{text}");
        let named = |name: &str| trace.series.iter().any(|series| series.name == name);
        assert!(named("in flight") && named("memory budget") && named("ready queue"), "{text}");
        for name in ["first function starts", "list ends", "last function starts"] {
            assert!(trace.marks.iter().any(|mark| mark.name == name), "{text}: {name}");
        }
        let ends = trace.marks.iter().find(|m| m.name == "list ends").map(|m| m.at_ns);
        assert!(ends.is_some_and(|at| at <= trace.elapsed_ns), "{text}");
    }
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1, "nothing unfinished is left");
}

#[test]
fn the_trace_of_a_run_with_one_large_file_has_the_advice_of_the_run() {
    let (_dir, paths) = make(&roots()[0], &[4 << 20, 10]);
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("run.ioloom");
    let computes = |f: &ioloom::File<'_>| {
        let until = thread_cpu_ns() + if f.len() > 10 { 40_000_000 } else { 0 };
        while thread_cpu_ns() < until {}
    };
    let files = ioloom::list(&paths).pin(plan("read/threads:n=2")).trace(&file);
    let run = files.map(computes).run().unwrap();
    assert_eq!(run.measured.largest_file_bytes, 4 << 20);
    assert_eq!(read(&file).limit, run.measured.bottleneck);
}

#[test]
fn an_unwritable_trace_path_fails_before_the_run() {
    let (dir, paths) = make(&roots()[0], &[10; 3]);
    let path = dir.path().join("missing/run.ioloom");
    let job = ioloom::list(&paths)
        .trace(&path)
        .map(|_| -> () { panic!("the function was run although the trace cannot be written") });
    match job.run() {
        Err(Error::Trace { path: reported, .. }) => assert_eq!(reported, path),
        other => panic!("{other:?}"),
    }
}

/// Reads the only trace under a path.
fn read(path: &std::path::Path) -> Trace {
    ioloom_trace::file::read(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn failed_and_cancelled_runs_leave_incomplete_traces() {
    let (_dir, paths) = make(&roots()[0], &[3000; 40]);
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("run.ioloom");
    let stops = |f: &ioloom::File<'_>| if f.index() == 20 { Err("no") } else { Ok(f.len()) };
    let job = ioloom::list(&paths).pin(plan("read/threads:n=1")).trace(&file);
    assert!(matches!(job.try_map(stops).run(), Err(Error::File(_))));
    let trace = read(&file);
    tiles(&trace, "failed");
    assert!(trace.title.starts_with("incomplete: read/threads:n=1: 20 files"), "{}", trace.title);
    let note = trace.evidence.notes.iter().find(|n| n.contains("incomplete")).expect("a note");
    assert!(note.contains("the run failed: cannot process"), "{note}");

    let cancel = ioloom::Cancel::new();
    let job = ioloom::list(&paths).pin(plan("read/threads:n=1")).trace(&file);
    let token = cancel.clone();
    let ends = move |f: &ioloom::File<'_>| {
        if f.index() == 10 {
            token.cancel();
        }
        f.len()
    };
    assert!(matches!(job.cancel(&cancel).map(ends).run(), Err(Error::Cancelled { .. })));
    let trace = read(&file);
    tiles(&trace, "cancelled");
    assert!(trace.title.starts_with("incomplete: "), "{}", trace.title);
    assert!(trace.evidence.notes.iter().any(|n| n.contains("interrupted")));
}

#[test]
fn a_cancel_ends_the_wait_for_the_reader_of_a_pipe() {
    let (_dir, paths) = make(&roots()[0], &[3000; 4]);
    let out = tempfile::tempdir().unwrap();
    let pipe = out.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let cancel = ioloom::Cancel::new();
    cancel.cancel();
    let job = ioloom::list(&paths).pin(plan("read/threads:n=1")).trace(&pipe).cancel(&cancel);
    let ended = job.map(|f| f.len()).run();
    assert!(matches!(ended, Err(Error::Cancelled { files: 0 })), "{:?}", ended.err());
}
