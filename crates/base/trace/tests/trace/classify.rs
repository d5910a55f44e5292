//! Each rule, tested with a thread constructed for it.

use crate::planted::{Script, assert_tiles, at_level, ns};
use ioloom_model::evidence::SourceReport;
use ioloom_model::{Level, Quality, State};
use ioloom_trace::Wake;
use ioloom_trace::raw::{Raw, RawThread, Switch};
use ioloom_trace::{CoreRun, NO_FILE, Request, Span, SpanKind, Thread, classify};
use proptest::prelude::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn one(level: Level, script: &Script) -> Thread {
    let mut trace = classify(at_level(level, vec![script.thread()]));
    assert_eq!(trace.evidence.checks.tiling_pct, 100.0);
    let thread = trace.threads.remove(0);
    assert_tiles(&thread);
    thread
}

/// A mix of cold reads, faults, a lock, a queue, sleep, a pipe, a ring and preemption.
fn mixed() -> Script {
    let mut script = Script::new(7, 5 * US);
    for round in 0..20 {
        script.run(3 * US);
        script.span(SpanKind::Open, |s| {
            s.run(4 * US).lock(30 * US);
        });
        script.account();
        script.span(SpanKind::Read, |s| {
            s.run(10 * US).block(State::Io, (90 + round) * US, 20 * US).run(8 * US);
        });
        script.account();
        script.span(SpanKind::Compute, |s| {
            s.run(MS).preempted(300 * US, 99).run(MS).fault(120 * US, 15 * US);
        });
        script.account();
        script.span(SpanKind::Fault, |s| {
            s.run(US).fault(70 * US, 5 * US);
        });
        script.account();
        for (kind, state, blocked) in [
            (SpanKind::HandOver, State::Sync, 200 * US),
            (SpanKind::Sleep, State::Sleep, 1500 * US),
            (SpanKind::Event, State::Event, 400 * US),
            (SpanKind::RingWait, State::AsyncIo, 250 * US),
        ] {
            script.span(kind, |s| {
                s.run(2 * US).block(state, blocked, 25 * US).run(2 * US);
            });
            script.account();
        }
    }
    script
}

#[test]
fn level_2_finds_the_truth_exactly() {
    let script = mixed();
    let thread = one(Level::Kernel, &script);
    for state in State::ALL {
        assert_eq!(ns(&thread, state), Some(script.truth(state)), "{state:?}");
        assert_eq!(thread.states[&state].quality, Some(Quality::Exact));
    }
    assert!(thread.segments.iter().all(|s| s.placed));
    let preempted = thread.segments.iter().find(|s| s.state == State::Preempted).unwrap();
    assert_eq!(preempted.by_tid, 99);
    assert!(
        thread.segments.iter().any(|s| s.cpu == 1) && thread.segments.iter().any(|s| s.cpu == 0)
    );
}

#[test]
fn level_1_matches_the_run_delay_and_includes_locks_in_io() {
    let script = mixed();
    let thread = one(Level::Switch, &script);
    // Every span with a wait ends with a clock reading, so the ready time of each wait is exact.
    for state in [
        State::OnCpu,
        State::Preempted,
        State::Ready,
        State::Paging,
        State::Sync,
        State::Sleep,
        State::Event,
        State::AsyncIo,
        State::Unknown,
    ] {
        assert_eq!(ns(&thread, state), Some(script.truth(state)), "{state:?}");
    }
    assert_eq!(ns(&thread, State::Lock), None);
    assert_eq!(ns(&thread, State::Io), Some(script.truth(State::Io) + script.truth(State::Lock)));
    assert!(thread.states[&State::Io].includes.contains(&State::Lock));
    assert_eq!(thread.states[&State::Io].quality, Some(Quality::Bounded));
    assert_eq!(thread.states[&State::OnCpu].quality, Some(Quality::Exact));
}

#[test]
fn what_follows_the_first_dropped_event_is_unknown() {
    let cut_ns = 60 * US;
    let mut script = Script::new(7, 0);
    script.span(SpanKind::Read, |s| {
        s.run(10 * US).block(State::Io, 10 * US, 5 * US).run(10 * US);
        s.block(State::Io, 40 * US, 5 * US).run(10 * US);
    });
    script.run(10 * US);
    for level in [Level::Switch, Level::Kernel] {
        let mut raw = at_level(level, vec![script.thread()]);
        raw.complete_until_ns = Some(cut_ns);
        raw.threads[0].switches.retain(|s| s.at_ns < cut_ns);
        raw.threads[0].wakes.retain(|w| w.at_ns < cut_ns);
        let mut trace = classify(raw);
        // The clocks cover the whole thread, and the last wait has no end: neither is an error.
        assert!(trace.evidence.notes.is_empty(), "{:?}", trace.evidence.notes);
        assert_eq!(trace.evidence.checks.on_cpu_vs_clock_pp, None);
        assert_eq!(trace.evidence.checks.chain_breaks, Some(0));
        let thread = trace.threads.remove(0);
        assert_tiles(&thread);
        assert_eq!(ns(&thread, State::OnCpu), Some(20 * US));
        assert_eq!(ns(&thread, State::Ready), Some(5 * US));
        assert_eq!(ns(&thread, State::Io), Some(35 * US));
        assert_eq!(ns(&thread, State::Unknown), Some(40 * US));
        assert_eq!(thread.states[&State::OnCpu].quality, Some(Quality::Bounded));
        assert!(thread.states[&State::Unknown].why.as_deref().unwrap().contains("limit"));
    }
}

#[test]
fn a_thread_whose_switches_were_all_dropped_is_classified_from_its_clock() {
    let mut script = Script::new(7, 50 * US);
    script.run(100 * US);
    let of = |cpu_ns| {
        let mut raw = at_level(Level::Switch, vec![RawThread { cpu_ns, ..script.thread() }]);
        raw.complete_until_ns = Some(30 * US);
        let thread = classify(raw).threads.remove(0);
        assert_tiles(&thread);
        (ns(&thread, State::OnCpu), ns(&thread, State::Unknown))
    };
    assert_eq!(of(Some(100 * US)), (Some(100 * US), Some(0)));
    assert_eq!(of(None), (Some(0), Some(100 * US)));
}

#[test]
fn level_0_matches_both_clocks() {
    let script = mixed();
    let thread = one(Level::Account, &script);
    let truth = |state| script.truth(state);
    assert_eq!(ns(&thread, State::OnCpu), Some(truth(State::OnCpu)));
    assert_eq!(ns(&thread, State::Ready), Some(truth(State::Ready) + truth(State::Preempted)));
    assert_eq!(ns(&thread, State::Preempted), None);
    assert!(thread.states[&State::Ready].includes.contains(&State::Preempted));
    for state in [State::Sync, State::Sleep, State::Event, State::AsyncIo] {
        assert_eq!(ns(&thread, state), Some(truth(state)), "{state:?}");
    }
    assert_eq!(ns(&thread, State::Io), Some(truth(State::Io) + truth(State::Lock)));
    // Faults in a fault span are distinguished; those in the user's function are not.
    let in_function = 20 * 120 * US;
    assert_eq!(ns(&thread, State::Paging), Some(truth(State::Paging) - in_function));
    assert_eq!(ns(&thread, State::Unknown), Some(in_function));
    assert!(thread.states[&State::Unknown].why.as_deref().unwrap().contains("level 1"));
    assert!(thread.segments.iter().any(|s| !s.placed));
}

#[test]
fn level_0_without_accounts_matches_the_totals() {
    let mut script = mixed();
    script.raw.accounts.clear();
    let thread = one(Level::Account, &script);
    let truth = |state| script.truth(state);
    assert_eq!(ns(&thread, State::OnCpu), Some(truth(State::OnCpu)));
    assert_eq!(ns(&thread, State::Ready), Some(truth(State::Ready) + truth(State::Preempted)));
}

#[test]
fn level_0_without_run_delay_includes_ready_in_blocked_states() {
    let mut script = mixed();
    for account in &mut script.raw.accounts {
        account.run_delay_ns = None;
    }
    let raw = RawThread { run_delay_ns: None, ..script.thread() };
    let thread = classify(at_level(Level::Account, vec![raw])).threads.remove(0);
    assert_tiles(&thread);
    assert_eq!(ns(&thread, State::OnCpu), Some(script.truth(State::OnCpu)));
    assert_eq!(ns(&thread, State::Ready), None);
    let io = &thread.states[&State::Io].includes;
    assert!(io.contains(&State::Ready) && io.contains(&State::Preempted), "{io:?}");
}

#[test]
fn without_a_clock_states_are_inferred_from_span_kinds() {
    let script = mixed();
    let raw =
        RawThread { cpu_ns: None, run_delay_ns: None, accounts: Vec::new(), ..script.thread() };
    let trace = classify(at_level(Level::Account, vec![raw]));
    let thread = &trace.threads[0];
    assert_tiles(thread);
    assert_eq!(thread.states[&State::Sync].quality, Some(Quality::Inferred));
    assert!(ns(thread, State::Sleep).unwrap() >= script.truth(State::Sleep));
    assert!(trace.evidence.notes.iter().any(|n| n.contains("no clock")), "{:?}", trace.evidence);
}

#[test]
fn a_short_call_gets_no_blocked_time_of_the_long_function() {
    // Short calls that cannot have waited, followed by a function that faults.
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Open, |s| {
        s.run(4 * US);
    });
    script.span(SpanKind::Map, |s| {
        s.run(3 * US);
    });
    script.span(SpanKind::Compute, |s| {
        s.run(50 * US).fault(500 * US, 0);
    });
    script.account();
    let thread = one(Level::Account, &script);
    assert_eq!(ns(&thread, State::Io), Some(0));
    assert_eq!(ns(&thread, State::Unknown), Some(500 * US));
    assert_eq!(ns(&thread, State::Paging), None);
    assert!(thread.states[&State::Unknown].includes.contains(&State::Paging));
}

#[test]
fn short_reads_keep_their_blocked_time() {
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Read, |s| {
        s.run(2 * US).block(State::Io, 40 * US, 0).run(US);
    });
    script.span(SpanKind::Compute, |s| {
        s.run(400 * US);
    });
    script.account();
    let thread = one(Level::Account, &script);
    assert_eq!(ns(&thread, State::Io), Some(40 * US));
    assert_eq!(ns(&thread, State::Unknown), Some(0));
}

#[test]
fn a_function_that_waits_by_itself_is_unknown_with_the_reason() {
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Compute, |s| {
        s.run(MS).wait(State::Unknown, 2 * MS, 100, false).run(MS);
    });
    for level in [Level::Switch, Level::Kernel] {
        let thread = one(level, &script);
        assert_eq!(ns(&thread, State::Unknown), Some(2 * MS), "{level:?}");
        assert!(thread.states[&State::Unknown].why.as_deref().unwrap().contains("user's function"));
    }
}

#[test]
fn a_function_that_reads_a_file_itself_is_io_at_level_2() {
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Compute, |s| {
        s.run(MS).block(State::Io, 2 * MS, 100).run(5 * MS);
    });
    let thread = one(Level::Kernel, &script);
    assert_eq!(ns(&thread, State::Io), Some(2 * MS));
    assert_eq!(thread.states[&State::Io].quality, Some(Quality::Inferred));
    // If files are mapped, the same wait is for a page already requested by readahead.
    script.span(SpanKind::Map, |s| {
        s.run(US);
    });
    let thread = one(Level::Kernel, &script);
    assert_eq!(ns(&thread, State::Paging), Some(2 * MS));
    assert_eq!(thread.states[&State::Paging].quality, Some(Quality::Inferred));
    // Level 1 cannot distinguish it from a function that waits for other reasons.
    let thread = one(Level::Switch, &script);
    let unknown = &thread.states[&State::Unknown];
    assert_eq!(unknown.ns, Some(2 * MS));
    assert!(unknown.includes.contains(&State::Paging), "{unknown:?}");
    assert!(unknown.why.as_deref().unwrap().contains("readahead"), "{unknown:?}");
    // If there is a list of sources, it determines the available ones.
    let mut raw = at_level(Level::Kernel, vec![script.thread()]);
    raw.evidence.sources = ["spans", "tracefs.sched_switch", "tracefs.sched_waking"]
        .map(|name| SourceReport { name: name.to_owned(), ..SourceReport::default() })
        .to_vec();
    let thread = classify(raw).threads.remove(0);
    assert_eq!(ns(&thread, State::Paging), Some(2 * MS));
    assert_eq!(thread.states[&State::Paging].quality, Some(Quality::Inferred));
    assert_eq!(thread.states[&State::OnCpu].source, "tracefs.sched_switch");
    assert_eq!(ns(&thread, State::Lock), None);
}

#[test]
fn a_late_fault_does_not_explain_an_earlier_wait() {
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Compute, |s| {
        s.wait(State::Unknown, 2 * MS, 0, false).run(3 * MS).fault(MS, 0);
    });
    let thread = one(Level::Switch, &script);
    assert_eq!(ns(&thread, State::Paging), Some(MS));
    assert_eq!(ns(&thread, State::Unknown), Some(2 * MS));
}

#[test]
fn a_fault_is_found_after_a_preemption() {
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Compute, |s| {
        s.run(US).block(State::Paging, MS, 0).run(500).preempted(4 * MS, 3).run(500);
    });
    let at_ns = script.now_ns() - 100;
    script.raw.faults.push(ioloom_trace::raw::Fault { at_ns, address: 1 });
    let thread = one(Level::Switch, &script);
    assert_eq!(ns(&thread, State::Paging), Some(MS));
}

#[test]
fn excess_ready_time_is_carried_over() {
    // The clock reading already includes the delay of the next wait.
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Read, |s| {
        s.run(US).block(State::Io, 10, 0);
    });
    script.raw.accounts.push(ioloom_trace::raw::Account {
        at_ns: script.now_ns(),
        cpu_ns: US,
        run_delay_ns: Some(50 * US),
    });
    script.span(SpanKind::Read, |s| {
        s.run(US).block(State::Io, 100 * US, 50 * US);
    });
    let thread = one(Level::Switch, &script);
    assert_eq!(ns(&thread, State::Ready), Some(50 * US));
    assert_eq!(ns(&thread, State::Io), Some(100 * US + 10));
}

#[test]
fn a_lost_switch_in_is_placed_at_the_wake_up() {
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Read, |s| {
        s.run(US).block(State::Io, 100 * US, 0).run(US);
    });
    script.span(SpanKind::Compute, |s| {
        s.run(MS);
    });
    script.span(SpanKind::Read, |s| {
        s.run(US).block(State::Io, 100 * US, 0).run(US);
    });
    let mut raw = at_level(Level::Kernel, vec![script.thread()]);
    let lost = raw.threads[0].switches.iter().position(|s| !s.out).unwrap();
    raw.threads[0].switches.remove(lost);
    let trace = classify(raw);
    let thread = &trace.threads[0];
    assert_tiles(thread);
    assert_eq!(trace.evidence.checks.chain_breaks, Some(1));
    assert_eq!(ns(thread, State::Io), Some(200 * US));
    assert_eq!(ns(thread, State::OnCpu), Some(script.truth(State::OnCpu)));
    assert_eq!(thread.states[&State::OnCpu].quality, Some(Quality::Bounded));
    assert!(trace.evidence.notes.iter().any(|n| n.contains("no matching successor")));
}

#[test]
fn a_lost_switch_in_without_wake_up_is_placed_at_the_next_span() {
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Read, |s| {
        s.run(US).block(State::Io, 100 * US, 0);
    });
    script.span(SpanKind::Compute, |s| {
        s.run(MS);
    });
    script.span(SpanKind::Read, |s| {
        s.block(State::Io, 100 * US, 0);
    });
    let mut raw = at_level(Level::Switch, vec![script.thread()]);
    raw.threads[0].switches.remove(1);
    let trace = classify(raw);
    assert_eq!(ns(&trace.threads[0], State::Io), Some(200 * US));
    assert_eq!(trace.evidence.checks.chain_breaks, Some(1));
}

#[test]
fn a_lost_switch_out_is_between_the_last_clock_reading_and_the_wake_up() {
    let switch = |at_ns, out| Switch {
        at_ns,
        out,
        preempted: false,
        uninterruptible: false,
        cpu: 0,
        next_tid: 0,
    };
    let span = |start_ns, ns, kind| Span { start_ns, ns, kind, file: NO_FILE };
    let thread = RawThread {
        tid: 1,
        end_ns: 1000 * US,
        spans: vec![span(0, 300 * US, SpanKind::Compute), span(300 * US, 500 * US, SpanKind::Read)],
        switches: vec![switch(10 * US, true), switch(20 * US, false), switch(700 * US, false)],
        wakes: vec![Wake { at_ns: 15 * US, by_tid: 0 }, Wake { at_ns: 650 * US, by_tid: 4 }],
        ..RawThread::default()
    };
    let trace = classify(at_level(Level::Kernel, vec![thread]));
    assert_eq!(trace.evidence.checks.chain_breaks, Some(1));
    let thread = &trace.threads[0];
    assert_tiles(thread);
    assert_eq!(ns(thread, State::Io), Some(350 * US));
    assert_eq!(ns(thread, State::Ready), Some((50 + 5) * US));
}

#[test]
fn a_span_while_off_the_processor_is_a_chain_break() {
    let mut script = Script::new(1, 0);
    script.span(SpanKind::Read, |s| {
        s.run(US).block(State::Io, 100 * US, 0).run(US);
    });
    script.raw.spans.push(Span { start_ns: 40 * US, ns: 5, kind: SpanKind::Other, file: NO_FILE });
    script.raw.spans[0].ns = 30 * US;
    let trace = classify(at_level(Level::Switch, vec![script.thread()]));
    assert_eq!(trace.evidence.checks.chain_breaks, Some(1));
}

#[test]
fn threads_without_switches_but_with_waits_fall_back_to_accounts() {
    let script = mixed();
    let mut raw = at_level(Level::Switch, vec![script.thread()]);
    raw.threads[0].switches.clear();
    let trace = classify(raw);
    assert_eq!(ns(&trace.threads[0], State::OnCpu), Some(script.truth(State::OnCpu)));
    assert!(trace.evidence.notes.iter().any(|n| n.contains("thread 7")), "{:?}", trace.evidence);
    // A thread that only computes correctly has no switches.
    let mut busy = Script::new(8, 0);
    busy.run(MS);
    let trace = classify(at_level(Level::Switch, vec![busy.thread()]));
    assert!(trace.evidence.notes.is_empty(), "{:?}", trace.evidence);
    assert_eq!(ns(&trace.threads[0], State::OnCpu), Some(MS));
}

#[test]
fn every_loss_has_a_note_with_advice() {
    let names = ["spans", "perf.switch", "tracefs.sched_waking", "odd"];
    let mut raw = Raw { level: Some(Level::Kernel), ..Raw::default() };
    raw.evidence.sources = names
        .map(|name| SourceReport {
            name: name.to_owned(),
            records: 97,
            lost: 3,
            ..SourceReport::default()
        })
        .to_vec();
    let notes = classify(raw.clone()).evidence.notes;
    for name in names {
        let note = notes.iter().find(|n| n.starts_with(&format!("{name} lost 3 of 100 records")));
        assert!(note.is_some_and(|n| n.contains("(3.00 %): ")), "{name}: {notes:?}");
    }
    // Larger buffers do not help if the limit of stored events was reached.
    let cut = classify(Raw { complete_until_ns: Some(0), ..raw.clone() }).evidence.notes;
    let advises =
        |notes: &[String]| notes.iter().any(|n| n.contains("ulimit") || n.contains("_kb"));
    assert!(advises(&notes) && !advises(&cut), "{cut:?}");
    for source in &mut raw.evidence.sources {
        source.lost = 0;
    }
    assert!(classify(raw).evidence.notes.is_empty());
}

#[test]
fn checks_compare_with_the_clocks() {
    let script = mixed();
    let raw = at_level(Level::Kernel, vec![script.thread()]);
    let checks = classify(raw.clone()).evidence.checks;
    assert_eq!(checks.on_cpu_vs_clock_pp, Some(0.0));
    assert_eq!(checks.ready_vs_run_delay_pp, Some(0.0));
    assert_eq!(checks.chain_breaks, Some(0));
    let mut wrong = raw.clone();
    let length = wrong.threads[0].end_ns - wrong.threads[0].start_ns;
    *wrong.threads[0].cpu_ns.as_mut().unwrap() += length / 10;
    let evidence = classify(wrong).evidence;
    let pp = evidence.checks.on_cpu_vs_clock_pp.unwrap();
    assert!((pp - 10.0).abs() < 0.01, "{pp}");
    assert!(
        evidence.notes.iter().any(|n| n.contains("10.0 percentage points")),
        "{:?}",
        evidence.notes
    );
    let checks = classify(at_level(Level::Account, raw.threads)).evidence.checks;
    assert_eq!((checks.on_cpu_vs_clock_pp, checks.chain_breaks), (None, None));
}

#[test]
fn kernel_workers_and_programs_without_spans() {
    let mut worker = Script::new(5, 0);
    worker.run(US).wait(State::Io, 80 * US, 10, true).run(US).wait(State::Event, MS, 10, false);
    worker.raw.role = "kernel-worker".to_owned();
    let thread = one(Level::Kernel, &worker);
    assert_eq!(ns(&thread, State::Io), Some(80 * US));
    assert_eq!(ns(&thread, State::Event), Some(MS));
    worker.raw.role = "main".to_owned();
    let thread = one(Level::Kernel, &worker);
    assert_eq!(ns(&thread, State::Io), Some(80 * US));
    assert_eq!(ns(&thread, State::Event), None);
    assert_eq!(ns(&thread, State::Unknown), Some(MS));
    let thread = one(Level::Switch, &worker);
    assert_eq!(ns(&thread, State::Io), None);
    assert!(thread.states[&State::Unknown].includes.contains(&State::Io));
}

#[test]
fn threads_devices_and_cores_are_in_order() {
    let thread = |tid, role: &str| {
        let mut script = Script::new(tid, 0);
        script.run(10);
        RawThread { role: role.to_owned(), ..script.thread() }
    };
    let mut raw = at_level(
        Level::Kernel,
        vec![
            thread(1, "tool"),
            thread(9, "reader"),
            thread(2, "kernel-worker"),
            thread(4, "computer"),
            thread(3, "reader"),
        ],
    );
    let request = |device, issue_ns, complete_ns| Request {
        device,
        write: false,
        issue_ns,
        complete_ns,
        sector: 0,
        bytes: 4096,
        tid: 0,
    };
    raw.devices = vec!["vda".to_owned()];
    raw.requests = vec![request(1, 50, Some(10)), request(0, 30, Some(40)), request(0, 20, None)];
    let run = |start_ns, end_ns| CoreRun { start_ns, end_ns, tid: 1, ours: true };
    raw.cores = vec![vec![run(10, 30), run(0, 20)], Vec::new()];
    let trace = classify(raw);
    let tids: Vec<u32> = trace.threads.iter().map(|t| t.tid).collect();
    assert_eq!(tids, [3, 9, 4, 2, 1]);
    assert_eq!(trace.devices.len(), 2);
    assert_eq!(trace.devices[0].requests[0].issue_ns, 20);
    assert_eq!(trace.devices[1].requests[0].complete_ns, None);
    assert_eq!(trace.cores[0].runs, [run(0, 10), run(10, 30)]);
    assert_eq!(trace.cores.len(), 2);
    assert!(
        trace.evidence.notes.iter().any(|n| n.contains("completion of 2 of 3 device requests"))
    );
}

/// A random step of a synthetic thread.
#[derive(Debug, Clone)]
struct Step {
    kind: usize,
    run_ns: u64,
    blocked_ns: u64,
    ready_ns: u64,
    preempted_ns: u64,
    account: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (0..18_usize, 0..50_000_u64, 0..200_000_u64, 0..30_000_u64, 0..40_000_u64, any::<bool>())
        .prop_map(|(kind, run_ns, blocked_ns, ready_ns, preempted_ns, account)| Step {
            kind,
            run_ns,
            blocked_ns,
            ready_ns,
            preempted_ns,
            account,
        })
}

fn planted(steps: &[Step]) -> Script {
    let mut script = Script::new(1, 0);
    for step in steps {
        let kind = SpanKind::ALL[step.kind];
        script.span(kind, |s| {
            s.run(step.run_ns + 1);
            if step.preempted_ns > 0 {
                s.preempted(step.preempted_ns, 2).run(1);
            }
            match kind {
                SpanKind::Compute if step.blocked_ns % 2 == 0 => {
                    s.fault(step.blocked_ns + 1, step.ready_ns)
                }
                _ => s.wait(kind.blocked_state(), step.blocked_ns + 1, step.ready_ns, false),
            };
            s.run(1);
        });
        if step.account {
            script.account();
        }
        script.run(7);
    }
    script
}

proptest! {
    #[test]
    fn synthetic_threads_are_classified_exactly(steps in prop::collection::vec(step(), 1..40)) {
        let script = planted(&steps);
        let truth = |state| Some(script.truth(state));
        let thread = one(Level::Kernel, &script);
        for state in State::ALL {
            prop_assert_eq!(ns(&thread, state), truth(state), "level 2, {:?}", state);
        }
        let thread = one(Level::Switch, &script);
        for state in [State::OnCpu, State::Preempted, State::Ready] {
            prop_assert_eq!(ns(&thread, state), truth(state), "level 1, {:?}", state);
        }
        let thread = one(Level::Account, &script);
        prop_assert_eq!(ns(&thread, State::OnCpu), truth(State::OnCpu));
        let delay = script.truth(State::Ready) + script.truth(State::Preempted);
        prop_assert_eq!(ns(&thread, State::Ready), Some(delay));
    }

    #[test]
    fn accounts_after_each_span_make_the_lower_levels_exact_per_state(
        mut steps in prop::collection::vec(step(), 1..40),
    ) {
        for step in &mut steps {
            step.account = true;
            step.blocked_ns += 20_000;
            // Level 0 cannot distinguish faults in the function, so there are none.
            step.blocked_ns |= 1;
        }
        let script = planted(&steps);
        for level in [Level::Switch, Level::Account] {
            let thread = one(level, &script);
            for state in [State::Io, State::AsyncIo, State::Sync, State::Event, State::Sleep] {
                prop_assert_eq!(ns(&thread, state), Some(script.truth(state)), "{:?} {:?}", level, state);
            }
        }
    }
}
