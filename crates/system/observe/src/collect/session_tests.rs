use super::*;
use ioloom_sys::clock::thread_cpu_ns;
use ioloom_trace::raw::RawThread;
use ioloom_trace::{NO_FILE, SpanKind};
use std::sync::Barrier;
use std::time::Duration;

const SLEEPS: usize = 8;

fn quick() -> TraceOptions {
    TraceOptions { spans_max: 1000, calibrate: false, ..TraceOptions::default() }
}

fn work(recorder: &mut Recorder) {
    for _ in 0..SLEEPS {
        let until = thread_cpu_ns() + 500_000;
        while thread_cpu_ns() < until {}
        recorder.lap(SpanKind::Compute, 3);
        std::thread::sleep(Duration::from_millis(1));
        recorder.lap(SpanKind::Sleep, NO_FILE);
    }
}

/// Observes two threads that alternate between computing and sleeping.
fn observe(level: Level, options: TraceOptions) -> Result<Raw, Refused> {
    let session = Session::start(Some(level), options)?;
    assert_eq!(session.level(), level);
    let barrier = Barrier::new(3);
    std::thread::scope(|scope| {
        for i in 0..2 {
            let (session, barrier) = (&session, &barrier);
            scope.spawn(move || {
                let mut recorder = session.register(&format!("worker {i}"), "worker");
                barrier.wait();
                barrier.wait();
                recorder.begin();
                work(&mut recorder);
                recorder.finish();
            });
        }
        barrier.wait();
        session.begin();
        barrier.wait();
    });
    Ok(session.stop())
}

/// Repeats an observation in which the collecting thread ran too rarely to keep all records.
fn observe_or_skip(level: Level, options: TraceOptions) -> Option<Raw> {
    for _ in 0..9 {
        let raw = observe(level, options).map_err(|e| println!("skipped: {e}")).ok()?;
        if raw.evidence.sources.iter().all(|source| source.lost == 0) {
            return Some(raw);
        }
    }
    let raw = observe(level, options);
    raw.map_err(|e| println!("skipped: {e}")).ok()
}

fn workers(raw: &Raw) -> Vec<&RawThread> {
    let workers: Vec<_> = raw.threads.iter().filter(|t| t.role == "worker").collect();
    assert_eq!(workers.len(), 2);
    assert_eq!(raw.threads.iter().filter(|t| t.role == "tool").count(), 1);
    for thread in &workers {
        assert!(thread.start_ns < thread.end_ns && thread.end_ns <= raw.elapsed_ns);
        assert!(thread.cpu_ns.unwrap() >= SLEEPS as u64 * 500_000);
        assert_eq!(thread.spans.len(), 2 * SLEEPS);
        for pair in thread.spans.windows(2) {
            assert!(pair[0].start_ns + pair[0].ns <= pair[1].start_ns);
        }
    }
    workers
}

#[test]
fn level_0_reads_the_clocks_after_long_spans() {
    let raw = observe(Level::Account, quick()).unwrap();
    for thread in workers(&raw) {
        assert!(thread.switches.is_empty());
        assert!(thread.accounts.len() >= SLEEPS, "{}", thread.accounts.len());
        assert!(thread.accounts.windows(2).all(|w| w[0].cpu_ns <= w[1].cpu_ns));
    }
    assert_eq!(raw.level, Some(Level::Account));
    assert!(raw.evidence.sources.iter().all(|s| s.privilege == "none"));
}

/// Checks that each sleep is between a switch out and a switch in.
fn sleeps_are_seen(thread: &RawThread) {
    let offs: Vec<_> = thread
        .switches
        .windows(2)
        .filter(|w| w[0].out && !w[1].out && !w[0].preempted)
        .map(|w| (w[0].at_ns, w[1].at_ns))
        .collect();
    for span in thread.spans.iter().filter(|s| s.kind == SpanKind::Sleep) {
        let (start, end) = (span.start_ns, span.start_ns + span.ns);
        let inside = offs.iter().any(|(out, back)| *out >= start && *back <= end);
        assert!(inside, "a sleep from {start} to {end} without a switch: {offs:?}");
    }
}

#[test]
fn level_1_sees_every_sleep() {
    let Some(raw) = observe_or_skip(Level::Switch, quick()) else { return };
    for thread in workers(&raw) {
        sleeps_are_seen(thread);
        assert!(thread.wakes.is_empty());
    }
    let checks = &raw.evidence.checks;
    assert_eq!(checks.clock_inside, checks.clock_total);
    let own = raw.evidence.sources.iter().find(|s| s.name == "perf.switch").unwrap();
    assert!(own.records >= 4 * SLEEPS as u64 && own.lost == 0);
}

#[test]
fn level_2_knows_who_woke_whom_and_who_ran_where() {
    let Some(raw) = observe_or_skip(Level::Kernel, quick()) else { return };
    for thread in workers(&raw) {
        assert!(thread.wakes.len() >= SLEEPS, "{}", thread.wakes.len());
    }
    let notes = &raw.evidence.notes;
    assert!(
        !notes.iter().any(|n| n.contains("wake-ups of all")),
        "the filter must be active: {notes:?}"
    );
    let ours = raw.cores.iter().flatten().filter(|run| run.ours).count();
    assert!(ours > 0 && raw.cores.iter().flatten().any(|run| !run.ours));
    for core in &raw.cores {
        assert!(core.windows(2).all(|w| w[0].end_ns <= w[1].start_ns));
    }
}

#[test]
fn spans_beyond_the_budget_are_counted_and_their_sums_kept() {
    let options = TraceOptions { spans_max: 3, ..quick() };
    let session = Session::start(Some(Level::Account), options).unwrap();
    let mut recorder = session.register("one", "worker");
    session.begin();
    recorder.begin();
    for _ in 0..10 {
        recorder.lap(SpanKind::Read, 0);
    }
    assert_eq!(recorder.totals(SpanKind::Read).count, 10);
    recorder.finish();
    let raw = session.stop();
    let thread = raw.threads.iter().find(|t| t.role == "worker").unwrap();
    assert_eq!(thread.spans.len(), 3);
    let spans = raw.evidence.sources.iter().find(|s| s.name == "spans").unwrap();
    assert_eq!((spans.records, spans.lost), (3, 7));
    assert!(raw.evidence.notes.iter().any(|note| note.contains("7 spans")), "{:?}", raw.evidence);
}

#[test]
fn a_tiny_ring_reports_its_losses() {
    let ring_bytes = ioloom_sys::proc::page_bytes() as usize;
    let options = TraceOptions { ring_bytes, ..quick() };
    let Ok(session) = Session::start(Some(Level::Switch), options) else { return };
    let mut recorder = session.register("one", "worker");
    session.begin();
    recorder.begin();
    let leaves = || {
        let usage = ioloom_sys::proc::usage(ioloom_sys::proc::UsageOf::Thread).unwrap();
        usage.voluntary_switches + usage.involuntary_switches
    };
    let before = leaves();
    for _ in 0..5_000 {
        std::thread::sleep(Duration::from_nanos(1));
    }
    let switches = 2 * (leaves() - before);
    recorder.finish();
    let raw = session.stop();
    let thread = raw.threads.iter().find(|t| t.role == "worker").unwrap();
    let own = raw.evidence.sources.iter().find(|s| s.name == "perf.switch").unwrap();
    let got = thread.switches.len() as u64;
    assert!(got + own.lost >= switches, "{got} and {} lost of {switches}", own.lost);
    if own.lost > 0 {
        assert!(raw.evidence.notes.iter().any(|n| n.contains("lost")), "{:?}", raw.evidence);
    }
}

/// The kernel passes a size query on a ring to one of its workers.
#[test]
fn kernel_workers_of_a_ring_have_lanes() {
    let session = match Session::start(Some(Level::Kernel), quick()) {
        Ok(session) => session,
        Err(e) => {
            println!("skipped: {e}");
            return;
        }
    };
    let mut ring = match ioloom_sys::ring::Ring::new(8) {
        Ok(ring) => ring,
        Err(e) => {
            println!("skipped: io_uring is not available: {e}");
            return;
        }
    };
    let mut recorder = session.register("asks", "worker");
    session.begin();
    recorder.begin();
    let mut done = Vec::new();
    for token in 0..64 {
        let file = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        ring.size(token, file.into());
        ring.reap(true, &mut done).unwrap();
        recorder.lap(SpanKind::RingWait, NO_FILE);
    }
    recorder.finish();
    assert_eq!(done.len(), 64);
    let trace = ioloom_trace::classify(session.stop());
    let of = |role: &str| trace.threads.iter().filter(|t| t.role == role).collect::<Vec<_>>();
    let workers = of("kernel-worker");
    if workers.is_empty() {
        println!("skipped: this kernel answers size queries without a worker");
        return;
    }
    let asks = of("worker")[0];
    for worker in workers {
        assert!(worker.name.starts_with("iou-wrk-"), "{}", worker.name);
        let ran = worker.states[&ioloom_model::State::OnCpu].ns;
        assert!(ran.is_some_and(|ns| ns > 0), "{:?}", worker.states);
        let sum: u64 = worker.states.values().filter_map(|s| s.ns).sum();
        assert_eq!(sum, worker.end_ns - worker.start_ns);
    }
    let woken = asks.states[&ioloom_model::State::AsyncIo].ns;
    assert!(woken.is_some_and(|ns| ns > 0), "its waits must be for the ring: {:?}", asks.states);
}
