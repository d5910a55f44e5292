//! Synthetic traces of known shape, the same on every machine: four threads that read and compute, one
//! reader with three compute threads, the first one traced without privileges, and a million segments.

use ioloom_model::evidence::{Checks, SourceReport};
use ioloom_model::{Evidence, Level, Quality, State, StateTable, StateTime};
use ioloom_trace::{
    Core, CoreRun, Device, Mark, NO_CPU, NO_FILE, Request, Segment, Series, Span, SpanKind, Thread,
    Trace, Wake,
};

const FILES: u32 = 50;
/// A thread of another process that occasionally takes a processor.
const STRANGER: u32 = 9001;

/// A reproducible pseudorandom generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, from: u64, to: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (self.0 >> 33) % (to - from)
    }
}

/// A thread that is being built: adding a state advances its time.
struct Pen {
    thread: Thread,
    now: u64,
    cpu: u16,
}

impl Pen {
    fn new(tid: u32, name: &str, role: &str, cpu: u16, start_ns: u64) -> Self {
        let thread = Thread {
            tid,
            name: name.to_owned(),
            role: role.to_owned(),
            start_ns,
            ..Thread::default()
        };
        Self { thread, now: start_ns, cpu }
    }

    fn state(&mut self, state: State, ns: u64) {
        let same = self.thread.segments.last().is_some_and(|s| s.state == state);
        if ns > 0 && !(same && state == State::OnCpu) {
            let cpu = if state == State::OnCpu { self.cpu } else { NO_CPU };
            let by_tid = if state == State::Preempted { STRANGER } else { 0 };
            let start_ns = self.now;
            self.thread.segments.push(Segment { start_ns, state, placed: true, cpu, by_tid });
        }
        self.now += ns;
    }

    /// Blocks, is woken, and waits for the processor.
    fn block(&mut self, state: State, ns: u64, by_tid: u32, ready_ns: u64) {
        self.state(state, ns);
        self.thread.wakes.push(Wake { at_ns: self.now, by_tid });
        self.state(State::Ready, ready_ns);
    }

    fn span(&mut self, kind: SpanKind, file: u32, fill: impl FnOnce(&mut Self)) {
        let start_ns = self.now;
        fill(self);
        self.thread.spans.push(Span { start_ns, ns: self.now - start_ns, kind, file });
    }

    /// Computes; in some files the thread is preempted.
    fn compute(&mut self, file: u32, ns: u64, dice: &mut Dice) {
        self.span(SpanKind::Compute, file, |p| {
            if dice.roll(0, 6) == 0 {
                p.state(State::OnCpu, ns / 3);
                p.state(State::Preempted, dice.roll(40_000, 160_000));
                p.state(State::OnCpu, ns - ns / 3);
            } else {
                p.state(State::OnCpu, ns);
            }
        });
    }

    fn finish(mut self, end_ns: u64) -> Thread {
        if end_ns > self.now {
            let rest = end_ns - self.now;
            self.span(SpanKind::HandOver, NO_FILE, |p| p.state(State::Sync, rest));
        }
        self.thread.end_ns = self.now;
        self.thread.states = table(&self.thread, "perf.switch+spans");
        self.thread
    }
}

/// Returns the sums of the segments of a thread as its table.
fn table(thread: &Thread, source: &str) -> StateTable {
    State::ALL
        .into_iter()
        .map(|state| {
            let ends = thread.segments.iter().skip(1).map(|s| s.start_ns).chain([thread.end_ns]);
            let ns = thread.segments.iter().zip(ends);
            let ns = ns.filter(|(s, _)| s.state == state).map(|(s, e)| e - s.start_ns).sum();
            let source = match state {
                State::Ready => "tracefs.sched_waking",
                State::Lock => "tracefs.contention",
                _ => source,
            };
            let quality = Some(Quality::Exact);
            (
                state,
                StateTime {
                    ns: Some(ns),
                    source: source.to_owned(),
                    quality,
                    ..StateTime::default()
                },
            )
        })
        .collect()
}

fn file_bytes(file: u32) -> u64 {
    Dice(u64::from(file) + 11).roll(40_000, 2_000_000)
}

fn read_ns(file: u32, dice: &mut Dice) -> u64 {
    180_000 + file_bytes(file) * 3 / 5 + dice.roll(0, 90_000)
}

fn request(file: u32, tid: u32, issue_ns: u64, complete_ns: u64) -> Request {
    Request {
        device: 0,
        write: false,
        issue_ns,
        complete_ns: Some(complete_ns),
        sector: 204_800 + u64::from(file) * 4096,
        bytes: file_bytes(file) as u32,
        tid,
    }
}

/// Returns four threads that open, read, compute and close separate files.
pub(crate) fn sync_threads() -> Trace {
    let mut dice = Dice(7);
    let mut pens: Vec<Pen> = (0..4_u16)
        .map(|i| {
            let start = 60_000 + 35_000 * u64::from(i);
            Pen::new(4101 + u32::from(i), &format!("worker-{i}"), "worker", i, start)
        })
        .collect();
    let mut requests = Vec::new();
    for file in 0..FILES {
        let Some(next) = (0..4).min_by_key(|i| pens[*i].now) else { continue };
        let waker = pens[(next + 1) % 4].thread.tid;
        let p = &mut pens[next];
        p.span(SpanKind::HandOver, NO_FILE, |p| {
            p.state(State::OnCpu, 4_000);
            if file % 3 == 1 {
                p.block(State::Sync, dice.roll(20_000, 210_000), waker, 6_000);
                p.state(State::OnCpu, 2_000);
            }
        });
        p.span(SpanKind::Open, file, |p| {
            p.state(State::OnCpu, 14_000);
            if file % 11 == 5 {
                p.block(State::Lock, dice.roll(30_000, 120_000), waker, 4_000);
                p.state(State::OnCpu, 6_000);
            }
        });
        p.span(SpanKind::Stat, file, |p| p.state(State::OnCpu, 5_000));
        p.span(SpanKind::Read, file, |p| {
            p.state(State::OnCpu, 18_000);
            let took = read_ns(file, &mut dice);
            requests.push(request(file, p.thread.tid, p.now - 2_000, p.now + took));
            p.block(State::Io, took, 0, dice.roll(3_000, 30_000));
            p.state(State::OnCpu, 30_000);
        });
        let compute = dice.roll(300_000, 1_700_000);
        p.compute(file, compute, &mut dice);
        p.span(SpanKind::Close, file, |p| p.state(State::OnCpu, 6_000));
    }
    let threads: Vec<Thread> = pens
        .into_iter()
        .map(|p| {
            let now = p.now;
            p.finish(now)
        })
        .collect();
    let mut trace = assemble("Sync, 4 threads: read/threads:n=4", threads, requests, &mut dice);
    let last = trace.devices[0].requests.iter().map(|r| r.issue_ns).max().unwrap_or(0);
    trace.marks.push(Mark { at_ns: last, name: "last read issued".to_owned() });
    trace
}

/// Returns one thread that opens and reads, and three that compute what has arrived.
pub(crate) fn reader_and_computers() -> Trace {
    let mut dice = Dice(23);
    let mut reader = Pen::new(4201, "reader", "reader", 0, 50_000);
    let mut computers: Vec<Pen> = (0..3_u16)
        .map(|i| Pen::new(4202 + u32::from(i), &format!("computer-{i}"), "computer", i + 1, 70_000))
        .collect();
    let (mut requests, mut ready, mut budget) = (Vec::new(), Vec::new(), Vec::new());
    for file in 0..FILES {
        reader.span(SpanKind::Open, file, |p| p.state(State::OnCpu, 16_000));
        reader.span(SpanKind::Read, file, |p| {
            p.state(State::OnCpu, 40_000 + file_bytes(file) / 40);
            if file % 16 == 9 {
                p.block(State::Io, dice.roll(60_000, 120_000), 0, 5_000);
                p.state(State::OnCpu, 8_000);
            }
        });
        let done = reader.now + read_ns(file, &mut dice) / 2;
        requests.push(request(file, 4201, reader.now - 9_000, done));
        let Some(c) = computers.iter_mut().min_by_key(|c| c.now) else { continue };
        if c.now < done {
            let wait = done - c.now;
            c.span(SpanKind::Completion, file, |p| {
                p.block(State::Sync, wait, 4201, dice.roll(2_000, 9_000));
                p.state(State::OnCpu, 7_000);
            });
        }
        let compute = dice.roll(300_000, 1_700_000);
        ready.extend([(done, 1_i64), (c.now, -1)]);
        budget.extend([
            (done, file_bytes(file) as i64),
            (c.now + compute, -(file_bytes(file) as i64)),
        ]);
        c.compute(file, compute, &mut dice);
        c.span(SpanKind::Close, file, |p| p.state(State::OnCpu, 7_000));
    }
    let end = computers.iter().map(|c| c.now).max().unwrap_or(0);
    let mut threads = vec![reader.finish(end)];
    threads.extend(computers.into_iter().map(|c| c.finish(end)));
    let title = "Overlapped, 1 reader and 3 compute threads: uring/roles:r=1,c=3";
    let mut trace = assemble(title, threads, requests, &mut dice);
    trace.series.push(counter("ready queue", "files", ready));
    trace.series.push(counter("memory budget", "bytes", budget));
    trace
}

/// Returns changes as a counter.
fn counter(name: &str, unit: &str, mut changes: Vec<(u64, i64)>) -> Series {
    changes.sort_unstable();
    let mut value = 0;
    let points = changes.into_iter().map(|(at, by)| {
        value += by;
        (at, value.max(0) as f64)
    });
    Series { name: name.to_owned(), unit: unit.to_owned(), points: points.collect() }
}

/// Adds the kernel events that accompany threads and requests.
fn assemble(
    title: &str,
    threads: Vec<Thread>,
    mut requests: Vec<Request>,
    dice: &mut Dice,
) -> Trace {
    let elapsed_ns = threads.iter().map(|t| t.end_ns).max().unwrap_or(0) + 40_000;
    requests.sort_by_key(|r| r.issue_ns);
    let in_flight =
        requests.iter().flat_map(|r| [(r.issue_ns, 1), (r.complete_ns.unwrap_or(0), -1)]);
    let series = vec![counter("in flight", "requests", in_flight.collect())];
    let cores = (0..4).map(|cpu| core(cpu, &threads, elapsed_ns, dice)).collect();
    let start = threads.iter().map(|t| t.start_ns).min().unwrap_or(0);
    let marks = vec![
        Mark { at_ns: start, name: "start".to_owned() },
        Mark { at_ns: elapsed_ns - 40_000, name: "all files done".to_owned() },
    ];
    Trace {
        title: title.to_owned(),
        started_unix_ms: 1_750_000_000_000,
        elapsed_ns,
        evidence: kernel_evidence(&threads, requests.len()),
        threads,
        devices: vec![Device { name: "vda".to_owned(), requests }],
        cores,
        series,
        marks,
        files: (0..FILES).map(|f| format!("set/d{}/f{f:04}.bin", f % 4)).collect(),
        file_bytes: (0..FILES).map(file_bytes).collect(),
        limit: None,
    }
}

fn core(cpu: u16, threads: &[Thread], elapsed_ns: u64, dice: &mut Dice) -> Core {
    let mut runs: Vec<CoreRun> = Vec::new();
    for t in threads {
        let ends = t.segments.iter().skip(1).map(|s| s.start_ns).chain([t.end_ns]);
        let here = t.segments.iter().any(|s| s.cpu == cpu);
        for (s, end_ns) in t.segments.iter().zip(ends) {
            let (tid, ours) = match s.state {
                State::OnCpu if s.cpu == cpu => (t.tid, true),
                State::Preempted if here => (s.by_tid, false),
                _ => continue,
            };
            runs.push(CoreRun { start_ns: s.start_ns, end_ns, tid, ours });
        }
    }
    runs.sort_by_key(|r| r.start_ns);
    let mut at = 0;
    let mut noise = Vec::new();
    for (start, end) in
        runs.iter().map(|r| (r.start_ns, r.end_ns)).chain([(elapsed_ns, elapsed_ns)])
    {
        if start > at + 60_000 && dice.roll(0, 3) == 0 {
            noise.push(CoreRun {
                start_ns: at + 10_000,
                end_ns: at + 45_000,
                tid: STRANGER,
                ours: false,
            });
        }
        at = end;
    }
    runs.extend(noise);
    runs.sort_by_key(|r| r.start_ns);
    Core { cpu, runs }
}

fn source(name: &str, records: usize, lost: u64, ns: f64, privilege: &str) -> SourceReport {
    SourceReport {
        name: name.to_owned(),
        records: records as u64,
        lost,
        ns_per_event: Some(ns),
        privilege: privilege.to_owned(),
    }
}

fn kernel_evidence(threads: &[Thread], requests: usize) -> Evidence {
    let sum = |f: &dyn Fn(&Thread) -> usize| threads.iter().map(f).sum::<usize>();
    let switches = sum(&|t| t.segments.len());
    Evidence {
        level: Level::Kernel,
        sources: vec![
            source("spans", sum(&|t| t.spans.len()), 0, 45.0, "none"),
            source("perf.switch", switches, 0, 1900.0, "user"),
            source("tracefs.sched_waking", sum(&|t| t.wakes.len()), 0, 380.0, "delegated"),
            source("tracefs.block_rq", 2 * requests, 0, 400.0, "delegated"),
        ],
        checks: Checks {
            tiling_pct: 100.0,
            on_cpu_vs_clock_pp: Some(0.3),
            ready_vs_run_delay_pp: Some(1.2),
            chain_breaks: Some(0),
            clock_inside: Some(1000),
            clock_total: Some(1000),
        },
        overhead_pct: 0.6,
        ..Evidence::default()
    }
}

/// Returns the first trace as an unprivileged user in a container would record it: sums per call without
/// positions, no kernel events, and a span buffer that was full before the end.
pub(crate) fn account_only() -> Trace {
    let mut trace = sync_threads();
    "The same threads without privileges".clone_into(&mut trace.title);
    for thread in &mut trace.threads {
        thread.segments = summed(thread);
        thread.wakes.clear();
        thread.states = table(thread, "thread clock+spans");
        for (state, why) in [
            (State::Preempted, "needs switch events: sysctl kernel.perf_event_paranoid=2"),
            (State::Lock, "needs lock events of the trace file system: ioloom trace grant"),
            (State::AsyncIo, "needs switch events: sysctl kernel.perf_event_paranoid=2"),
        ] {
            let entry = thread.states.entry(state).or_default();
            *entry = StateTime { why: Some(why.to_owned()), ..StateTime::default() };
        }
        for (state, includes) in [(State::Ready, State::Preempted), (State::Io, State::Lock)] {
            let entry = thread.states.entry(state).or_default();
            entry.includes = vec![includes];
            entry.quality = Some(Quality::Bounded);
        }
    }
    trace.devices.clear();
    trace.cores.clear();
    trace.evidence = Evidence {
        level: Level::Account,
        sources: vec![
            source("spans", 251, 34, 45.0, "none"),
            source("schedstat", 251, 0, 634.0, "none"),
        ],
        checks: Checks { tiling_pct: 100.0, ..Checks::default() },
        overhead_pct: 0.2,
        notes: vec!["level 1 was refused: kernel.perf_event_paranoid is 4".to_owned()],
        ..Evidence::default()
    };
    trace
}

/// Returns one range per call and state, in the order of the states, with unknown positions.
fn summed(thread: &Thread) -> Vec<Segment> {
    let ends: Vec<u64> =
        thread.segments.iter().skip(1).map(|s| s.start_ns).chain([thread.end_ns]).collect();
    let mut out = Vec::new();
    for span in &thread.spans {
        let (from, to) = (span.start_ns, span.start_ns + span.ns);
        let mut at = from;
        for state in State::ALL {
            let recorded = |s: State| match s {
                State::Preempted => State::Ready,
                State::Lock => State::Io,
                s => s,
            };
            let inside =
                thread.segments.iter().zip(&ends).filter(|(s, _)| recorded(s.state) == state);
            let ns: u64 =
                inside.map(|(s, end)| (*end).min(to).saturating_sub(s.start_ns.max(from))).sum();
            if ns > 0 {
                let placed = ns == span.ns;
                out.push(Segment { start_ns: at, state, placed, cpu: NO_CPU, by_tid: 0 });
                at += ns;
            }
        }
    }
    out
}

/// Returns the same threads with mapped files: they wait in page faults instead of reads.
pub(crate) fn mapped() -> Trace {
    let mut trace = sync_threads();
    "The same files mapped: mmap/threads:n=4".clone_into(&mut trace.title);
    for thread in &mut trace.threads {
        for segment in thread.segments.iter_mut().filter(|s| s.state == State::Io) {
            segment.state = State::Paging;
        }
        for span in thread.spans.iter_mut().filter(|s| s.kind == SpanKind::Read) {
            span.kind = SpanKind::Fault;
        }
        thread.states = table(thread, "perf.major-fault+spans");
    }
    trace
}

/// Returns a million segments in sixteen threads, with calls and a busy device.
pub(crate) fn million() -> Trace {
    const THREADS: u32 = 16;
    const EACH: u32 = 62_500;
    let mut dice = Dice(5);
    let mut requests = Vec::new();
    let mut threads = Vec::new();
    for i in 0..THREADS {
        let role = if i < 4 { "reader" } else { "computer" };
        let name = format!("{role}-{i}");
        let mut p = Pen::new(5000 + i, &name, role, (i % 8) as u16, 0);
        while (p.thread.segments.len() as u32) < EACH {
            let file = dice.roll(0, 100_000) as u32;
            p.span(SpanKind::Read, file, |p| {
                p.state(State::OnCpu, dice.roll(2_000, 9_000));
                let took = dice.roll(20_000, 140_000);
                if i < 4 {
                    requests.push(request(file, p.thread.tid, p.now, p.now + took));
                }
                let state = if i < 4 { State::Io } else { State::Sync };
                p.block(state, took, 5000 + (i + 1) % THREADS, dice.roll(500, 30_000));
                p.state(State::OnCpu, dice.roll(2_000, 4_000));
            });
            let compute = dice.roll(10_000, 200_000);
            p.compute(file, compute, &mut dice);
        }
        let now = p.now;
        threads.push(p.finish(now));
    }
    let mut trace = assemble("A million segments", threads, requests, &mut dice);
    trace.cores.clear();
    trace.files.clear();
    trace.file_bytes.clear();
    trace
}
