//! Each finding, tested with a trace that has the problem and with similar traces that do not.

use crate::planted::{Script, at_level};
use ioloom_model::evidence::SourceReport;
use ioloom_model::record::Bottleneck;
use ioloom_model::{Level, State};
use ioloom_trace::raw::{PROCESSORS, READY_QUEUE, Raw};
use ioloom_trace::{CoreRun, Finding, Request, Series, SpanKind, Trace, classify, findings};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn trace(scripts: &[Script], change: impl FnOnce(&mut Raw)) -> Trace {
    let mut raw = at_level(Level::Kernel, scripts.iter().map(Script::thread).collect());
    change(&mut raw);
    classify(raw)
}

fn processors(raw: &mut Raw, count: f64) {
    raw.series.push(Series {
        name: PROCESSORS.to_owned(),
        unit: PROCESSORS.to_owned(),
        points: vec![(0, count)],
    });
}

/// The source of the samples of another program.
fn samples() -> SourceReport {
    SourceReport { name: "proc.samples".to_owned(), ..SourceReport::default() }
}

fn ids(trace: &Trace) -> Vec<String> {
    findings(trace).into_iter().map(|f| f.id).collect()
}

fn found(trace: &Trace, id: &str) -> Finding {
    let finding = findings(trace).into_iter().find(|f| f.id == id);
    let finding = finding.unwrap_or_else(|| panic!("no {id} in {:?}", ids(trace)));
    assert!(!finding.evidence.is_empty() && !finding.try_this.is_empty());
    assert!(finding.evidence.iter().all(|(_, value)| value.contains(|c: char| c.is_ascii_digit())));
    finding
}

fn many(count: u32, steps: impl Fn(u32, &mut Script)) -> Vec<Script> {
    (1..=count)
        .map(|tid| {
            let mut script = Script::new(tid, 0);
            steps(tid, &mut script);
            script
        })
        .collect()
}

#[test]
fn oversubscription() {
    let threads = many(4, |_, s| {
        for _ in 0..10 {
            s.run(MS).preempted(MS, 9);
        }
    });
    let two = trace(&threads, |raw| processors(raw, 2.0));
    let finding = found(&two, "oversubscription");
    assert!(finding.sentence.contains("4.0 threads") && finding.sentence.contains("50.0 %"));
    // No more threads than processors: other programs preempt them.
    assert!(ids(&trace(&threads, |raw| processors(raw, 4.0))).is_empty());
    // The number of processors is unknown.
    let raw = at_level(Level::Switch, threads.iter().map(Script::thread).collect());
    assert!(ids(&classify(raw)).is_empty());
    // Many threads that rarely wait for a processor.
    let calm = many(4, |_, s| {
        s.run(2 * MS).preempted(100 * US, 9).wait(State::Unknown, 2 * MS, 0, false);
    });
    assert!(ids(&trace(&calm, |raw| processors(raw, 2.0))).is_empty());
    // Level 0 cannot distinguish preempted from ready time; their sum is sufficient.
    let mut raw = at_level(Level::Account, threads.iter().map(Script::thread).collect());
    processors(&mut raw, 2.0);
    assert_eq!(ids(&classify(raw)), ["oversubscription"]);
}

#[test]
fn lock_convoy() {
    let kernel = many(4, |_, s| {
        for _ in 0..10 {
            s.span(SpanKind::Open, |s| {
                s.run(100 * US).lock(MS);
            });
        }
    });
    let finding = found(&trace(&kernel, |_| {}), "lock-convoy");
    assert!(finding.try_this.contains("directories"), "{finding:?}");
    let own = many(4, |_, s| {
        for _ in 0..10 {
            s.run(100 * US).span(SpanKind::Sync, |s| {
                s.run(10).block(State::Sync, MS, 10);
            });
        }
    });
    let finding = found(&trace(&own, |_| {}), "lock-convoy");
    assert!(finding.try_this.contains("Hold the lock for less time"), "{finding:?}");
    // Waiting for a queue is not waiting for a lock.
    let queue = many(4, |_, s| {
        for _ in 0..10 {
            s.run(100 * US).span(SpanKind::HandOver, |s| {
                s.run(10).block(State::Sync, MS, 10);
            });
        }
    });
    assert!(ids(&trace(&queue, |_| {})).is_empty());
    // A sampled futex call can be any wait for another thread.
    let sampled = |raw: &mut Raw| raw.evidence.sources.push(samples());
    assert!(ids(&trace(&own, sampled)).is_empty());
    assert_eq!(ids(&trace(&kernel, sampled)), ["lock-convoy"]);
    // A few long waits are not a convoy.
    let few = many(4, |_, s| {
        s.run(100 * US).lock(10 * MS);
    });
    assert!(ids(&trace(&few, |_| {})).is_empty());
}

#[test]
fn uneven_work() {
    let uneven = many(3, |tid, s| {
        for _ in 0..4 {
            s.span(SpanKind::Compute, |s| {
                s.run(if tid == 2 { 10 * MS } else { 2 * MS });
            });
        }
    });
    let finding = found(&trace(&uneven, |_| {}), "uneven-work");
    assert!(finding.sentence.starts_with("Thread 2 works for 40"), "{finding:?}");
    let even = many(3, |tid, s| {
        s.run((10 + u64::from(tid)) * MS);
    });
    assert!(ids(&trace(&even, |_| {})).is_empty());
    // Too few pieces for all threads.
    let few = many(3, |tid, s| {
        s.span(SpanKind::Compute, |s| {
            s.run(if tid == 2 { 40 * MS } else { 8 * MS });
        });
    });
    assert!(ids(&trace(&few, |_| {})).is_empty());
    // No file at all: threads that only start and end.
    let none = many(3, |tid, s| {
        s.run(if tid == 2 { 40 * MS } else { 8 * MS });
    });
    assert!(ids(&trace(&none, |_| {})).is_empty());
    // The same in half a millisecond.
    let short = many(3, |tid, s| {
        for _ in 0..4 {
            s.span(SpanKind::Compute, |s| {
                s.run(if tid == 2 { 100 * US } else { 20 * US });
            });
        }
    });
    assert!(ids(&trace(&short, |_| {})).is_empty());
    // Samples of another program are not pieces of files.
    assert!(ids(&trace(&uneven, |raw| raw.evidence.sources.push(samples()))).is_empty());
    // Different roles can work differently.
    let mut raw = at_level(Level::Kernel, uneven.iter().map(Script::thread).collect());
    for (thread, role) in raw.threads.iter_mut().zip(["a", "b", "c"]) {
        thread.role = role.to_owned();
    }
    assert!(ids(&classify(raw)).is_empty());
}

/// A thread that alternates between reading and computing, with the device requests.
fn reader(read_ns: u64, compute_ns: u64, overlap: bool) -> Trace {
    let mut script = Script::new(1, 0);
    let mut requests = Vec::new();
    for _ in 0..50 {
        let issue_ns = script.now_ns();
        script.span(SpanKind::Read, |s| {
            s.run(US).block(State::Io, read_ns, 0);
        });
        let complete_ns = script.now_ns() + if overlap { compute_ns } else { 0 };
        script.span(SpanKind::Compute, |s| {
            s.run(compute_ns);
        });
        requests.push(Request {
            device: 0,
            write: false,
            issue_ns,
            complete_ns: Some(complete_ns),
            sector: 0,
            bytes: 4096,
            tid: 1,
        });
    }
    trace(&[script], |raw| {
        raw.devices = vec!["vda".to_owned()];
        raw.requests = requests;
    })
}

#[test]
fn disk_idle_and_cpu_idle() {
    let alternating = reader(MS, MS, false);
    assert_eq!(ids(&alternating), ["disk-idle", "cpu-idle"]);
    let finding = found(&alternating, "disk-idle");
    assert!(finding.evidence.iter().any(|(name, _)| name == "both busy"), "{finding:?}");
    // The device is always busy and overlaps with computing.
    assert!(ids(&reader(100 * US, MS, true)).is_empty());
    // Almost all time is spent computing, so there is nothing to gain.
    assert!(ids(&reader(20 * US, MS, false)).is_empty());
    // Waiting for one request at a time.
    let shallow = reader(MS, 50 * US, false);
    assert_eq!(ids(&shallow), ["cpu-idle"]);
    assert!(found(&shallow, "cpu-idle").try_this.contains("more requests in flight"));
    // The same wait with a deep queue: the device is the bottleneck.
    let mut deep = shallow.clone();
    let requests = deep.devices[0].requests.clone();
    for _ in 0..7 {
        deep.devices[0].requests.extend(requests.iter().copied());
    }
    assert!(ids(&deep).is_empty());
    // The requests of other programs are not in its queue.
    for request in deep.devices[0].requests.iter_mut().skip(requests.len()) {
        request.tid = 99;
    }
    let finding = found(&deep, "cpu-idle");
    assert!(
        finding.sentence.contains("waits for the device; on average 1.0 of its"),
        "{finding:?}"
    );
    // Threads of the kernel issue all requests: their number is unknown.
    let mut delegated = alternating.clone();
    delegated.devices[0].requests.iter_mut().for_each(|request| request.tid = 99);
    let finding = found(&delegated, "cpu-idle");
    assert!(finding.sentence.contains("outside the program issue"), "{finding:?}");
    // Other programs use the device while this one sleeps.
    let mut others = alternating.clone();
    for segment in others.threads.iter_mut().flat_map(|thread| &mut thread.segments) {
        if segment.state == State::Io {
            segment.state = State::Sleep;
        }
    }
    assert!(ids(&others).is_empty());
    // Without device lanes there is no finding.
    let mut blind = alternating.clone();
    blind.devices.clear();
    assert!(ids(&blind).is_empty());
}

#[test]
fn submission_bottleneck() {
    let ring = |grow: bool, blocks: Option<State>, asynchronous: bool| {
        let mut script = Script::new(1, 0);
        for i in 0..200_u64 {
            script.span(SpanKind::Read, |s| {
                let run_ns = if grow { i * US } else { 50 * US };
                match blocks {
                    None => s.run(US + run_ns),
                    Some(State::Lock) => s.run(US + run_ns).lock(i * 10 * US + 1),
                    Some(state) => s.run(US + run_ns).block(state, i * 10 * US + 1, 10),
                };
            });
            let kind = if asynchronous { SpanKind::RingWait } else { SpanKind::Event };
            script.span(kind, |s| {
                s.run(US).block(kind.blocked_state(), 20 * US, 10);
            });
        }
        trace(&[script], |_| {})
    };
    // The advice follows from what the calls do.
    for (blocks, words) in [
        (None, "runs on a processor"),
        (Some(State::Io), "waits for the device"),
        (Some(State::Lock), "kernel serialises"),
    ] {
        let finding = found(&ring(true, blocks, true), "submission-bottleneck");
        assert!(finding.try_this.contains(words), "{finding:?}");
    }
    assert!(ids(&ring(false, None, true)).is_empty());
    // Reads that block are not submissions.
    assert!(ids(&ring(true, None, false)).is_empty());
}

#[test]
fn page_fault_stalls() {
    let faults = |blocked_ns: u64| {
        let mut script = Script::new(1, 0);
        for _ in 0..20 {
            script.span(SpanKind::Compute, |s| {
                s.run(MS).fault(blocked_ns, 0);
            });
        }
        script
    };
    let finding = found(&trace(&[faults(MS)], |_| {}), "page-fault-stalls");
    assert!(finding.sentence.contains("49.9 %"), "{finding:?}");
    assert!(finding.evidence.contains(&("stalls".to_owned(), "20".to_owned())));
    assert!(ids(&trace(&[faults(50 * US)], |_| {})).is_empty());
    // Level 0 does not show page faults.
    let raw = at_level(Level::Account, vec![faults(MS).thread()]);
    assert!(ids(&classify(raw)).is_empty());
}

#[test]
fn unbounded_backlog() {
    let mut script = Script::new(1, 0);
    script.run(100 * MS);
    let queue = |value: fn(u64) -> f64| {
        trace(std::slice::from_ref(&script), |raw| {
            raw.series.push(Series {
                name: READY_QUEUE.to_owned(),
                unit: "files".to_owned(),
                points: (0..100).map(|i| (i * MS, value(i))).collect(),
            });
        })
    };
    let finding = found(&queue(|i| i as f64 * 10.0), "unbounded-backlog");
    assert!(
        finding.sentence.contains("from 120 files on average in the first quarter to 870"),
        "{finding:?}"
    );
    // The queue fills and stays at its limit.
    assert!(ids(&queue(|i| (i as f64 * 40.0).min(1024.0))).is_empty());
    // The queue stays small.
    assert!(ids(&queue(|i| i as f64 / 10.0)).is_empty());
    // The queue oscillates.
    assert!(ids(&queue(|i| if i % 40 < 20 { 1000.0 } else { 0.0 })).is_empty());
}

fn limited(trace: &Trace, word: &str, shares: &[(&str, u32)]) -> Trace {
    let shares = shares.iter().map(|(word, percent)| ((*word).to_owned(), *percent)).collect();
    let sentence = "x took 1 % (the rest: y 2 %): more z would help".to_owned();
    let limit = Bottleneck { word: word.to_owned(), sentence, close: None, shares };
    Trace { limit: Some(limit), ..trace.clone() }
}

#[test]
fn the_limit_of_the_run_is_the_first_finding_and_no_other_contradicts_it() {
    let threads = many(4, |_, s| {
        for _ in 0..10 {
            s.run(MS).preempted(MS, 9);
        }
    });
    let two = trace(&threads, |raw| processors(raw, 2.0));
    let compute = limited(&two, "compute", &[("compute", 60), ("other programs", 40)]);
    assert_eq!(ids(&compute), ["limit", "oversubscription"]);
    let finding = found(&compute, "limit");
    assert_eq!(finding.title, "Limited by compute");
    assert_eq!(finding.sentence, "X took 1 % (the rest: y 2 %).");
    assert_eq!(finding.try_this, "More z would help.");
    assert_eq!(finding.evidence[0], ("compute".to_owned(), "60 %".to_owned()));
    let others = limited(&two, "other programs", &[("other programs", 60), ("compute", 40)]);
    assert_eq!(ids(&others), ["limit"]);
    let quota = limited(&two, "processor quota", &[("processor quota", 60), ("compute", 40)]);
    assert_eq!(ids(&quota), ["limit"]);

    let alternating = reader(MS, MS, false);
    let device = limited(&alternating, "device", &[("device", 50), ("compute", 50)]);
    assert_eq!(ids(&device), ["limit", "disk-idle", "cpu-idle"]);
    let input = limited(&alternating, "input list", &[("input list", 95), ("device", 5)]);
    assert_eq!(ids(&input), ["limit"]);
    let unknown = limited(&alternating, "unknown", &[]);
    assert_eq!(findings(&unknown)[0].title, "The limit of the run is unknown");
    assert!(findings(&unknown)[0].sentence.contains("more z"), "no advice is split off");
}

#[test]
fn a_trace_without_problems_has_no_findings() {
    assert!(findings(&Trace::default()).is_empty());
    let mut only_tool = at_level(Level::Kernel, vec![Script::new(1, 0).run(MS).thread()]);
    only_tool.threads[0].role = "tool".to_owned();
    only_tool.cores = vec![vec![CoreRun { start_ns: 0, end_ns: MS, tid: 1, ours: false }]];
    assert!(findings(&classify(only_tool)).is_empty());
}
