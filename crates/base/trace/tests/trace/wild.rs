//! Random events that no kernel would produce: segments must tile, and nothing may panic.

use crate::planted::assert_tiles;
use ioloom_model::Level;
use ioloom_trace::Wake;
use ioloom_trace::raw::{Account, Fault, LockWait, Raw, RawThread, Switch};
use ioloom_trace::{CoreRun, Request, Span, SpanKind, Trace, classify};
use proptest::prelude::*;

/// Times that are mostly close together but sometimes extreme.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..5_000_u64, 1 => 0..5_000_000_u64, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 9)]
}

fn switch() -> impl Strategy<Value = Switch> {
    (time(), any::<bool>(), any::<bool>(), any::<bool>(), 0..3_u16, 0..4_u32).prop_map(
        |(at_ns, out, preempted, uninterruptible, cpu, next_tid)| Switch {
            at_ns,
            out,
            preempted,
            uninterruptible,
            cpu,
            next_tid,
        },
    )
}

fn span() -> impl Strategy<Value = Span> {
    (time(), time(), 0..SpanKind::ALL.len(), any::<u32>()).prop_map(|(start_ns, ns, kind, file)| {
        Span { start_ns, ns, kind: SpanKind::ALL[kind], file }
    })
}

fn account() -> impl Strategy<Value = Account> {
    (time(), time(), prop::option::of(time())).prop_map(|(at_ns, cpu_ns, run_delay_ns)| Account {
        at_ns,
        cpu_ns,
        run_delay_ns,
    })
}

fn many<S: Strategy>(of: S) -> impl Strategy<Value = Vec<S::Value>> {
    prop::collection::vec(of, 0..24)
}

fn thread() -> impl Strategy<Value = RawThread> {
    let role = prop_oneof![Just("worker"), Just("kernel-worker"), Just("tool")];
    let events = (
        many(span()),
        many(account()),
        many(switch()),
        many(time()),
        many(time()),
        many((time(), time())),
    );
    let clocks = (prop::option::of(time()), prop::option::of(time()));
    (any::<u32>(), role, time(), time(), events, clocks).prop_map(
        |(tid, role, start_ns, end_ns, events, (cpu_ns, run_delay_ns))| {
            let (spans, accounts, mut switches, wakes, faults, locks) = events;
            let again: Vec<Switch> = switches.iter().take(3).copied().collect();
            switches.extend(again);
            RawThread {
                tid,
                name: String::new(),
                role: role.to_owned(),
                start_ns,
                end_ns,
                spans,
                accounts,
                switches,
                wakes: wakes.into_iter().map(|at_ns| Wake { at_ns, by_tid: 1 }).collect(),
                faults: faults.into_iter().map(|at_ns| Fault { at_ns, address: at_ns }).collect(),
                locks: locks
                    .into_iter()
                    .map(|(start_ns, end_ns)| LockWait { start_ns, end_ns })
                    .collect(),
                cpu_ns,
                run_delay_ns,
            }
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    (0..4_u16, any::<bool>(), time(), prop::option::of(time()), any::<u64>(), any::<u32>())
        .prop_map(|(device, write, issue_ns, complete_ns, sector, bytes)| Request {
            device,
            write,
            issue_ns,
            complete_ns,
            sector,
            bytes,
            tid: 3,
        })
}

fn run() -> impl Strategy<Value = CoreRun> {
    (time(), time(), any::<u32>(), any::<bool>())
        .prop_map(|(start_ns, end_ns, tid, ours)| CoreRun { start_ns, end_ns, tid, ours })
}

/// Random events at any level.
pub(crate) fn raw() -> impl Strategy<Value = Raw> {
    let level = prop_oneof![
        Just(None),
        Just(Some(Level::Account)),
        Just(Some(Level::Switch)),
        Just(Some(Level::Kernel))
    ];
    let threads = prop::collection::vec(thread(), 0..4);
    let cores = prop::collection::vec(many(run()), 0..3);
    (level, threads, many(request()), cores, time()).prop_map(
        |(level, threads, requests, cores, elapsed_ns)| Raw {
            level,
            elapsed_ns,
            threads,
            requests,
            devices: vec!["vda".to_owned()],
            cores,
            ..Raw::default()
        },
    )
}

/// Traces of random events.
pub(crate) fn trace() -> impl Strategy<Value = Trace> {
    raw().prop_map(classify)
}

proptest! {
    #[test]
    fn random_events_tile(raw in raw()) {
        let trace = classify(raw);
        for thread in &trace.threads {
            assert_tiles(thread);
            prop_assert!(thread.spans.is_sorted_by_key(|s| s.start_ns));
            for pair in thread.spans.windows(2) {
                prop_assert!(pair[0].start_ns + pair[0].ns <= pair[1].start_ns);
            }
        }
        prop_assert!((trace.evidence.checks.tiling_pct - 100.0).abs() < 1e-9);
        for core in &trace.cores {
            prop_assert!(core.runs.windows(2).all(|p| p[0].end_ns <= p[1].start_ns));
        }
    }
}
