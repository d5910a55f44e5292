use super::super::check::{ClockTest, Costs};
use super::*;
use ioloom_sys_trace::perf::paused::PausedChild;
use ioloom_sys_trace::tracefs::event::{Event, EventData};
use ioloom_trace::SpanKind;
use std::process::Command;

fn quick() -> TraceOptions {
    TraceOptions { calibrate: false, ..TraceOptions::default() }
}

/// Observes a shell that runs two sleeps in sequence.
fn watched(level: Level) -> Option<Raw> {
    watched_script(level, "sleep 0.15; sleep 0.15")
}

fn watched_script(level: Level, script: &str) -> Option<Raw> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let held = PausedChild::start(command).unwrap();
    let watch = Watch::start(Some(level), held.pid(), quick());
    held.release()
        .map(|mut child| {
            if watch.is_ok() {
                child.wait().unwrap();
            } else {
                let _ = child.kill();
                let _ = child.wait();
            }
        })
        .unwrap();
    watch.map(Watch::stop).map_err(|e| println!("skipped: {e}")).ok()
}

fn sleeper(raw: &Raw) -> Result<&RawThread, String> {
    let found = raw.threads.iter().find(|t| t.name == "sleep");
    found.ok_or_else(|| format!("{:?}", raw.threads.iter().map(|t| &t.name).collect::<Vec<_>>()))
}

fn seen_by_samples(raw: &Raw) -> Result<(), String> {
    let thread = sleeper(raw)?;
    let check = |ok: bool| if ok { Ok(()) } else { Err(format!("{thread:?}")) };
    check(thread.spans.iter().any(|s| s.kind == SpanKind::Sleep))?;
    check(thread.accounts.len() >= 2 && thread.cpu_ns.is_some())?;
    check(thread.start_ns <= thread.end_ns && thread.end_ns <= raw.elapsed_ns)
}

/// On a busy machine, a short sleep can end before its first sample.
#[test]
fn children_are_sampled_without_privilege() {
    let mut found = Ok(());
    for seconds in ["0.15", "2", "20"] {
        let script = format!("sleep {seconds}; sleep {seconds}");
        found = seen_by_samples(&watched_script(Level::Account, &script).unwrap());
        if found.is_ok() {
            break;
        }
    }
    found.unwrap();
}

/// Checks an event-based observation. Some kernels occasionally omit a switch without counting it
/// as lost, so one short process may appear without its sleep.
fn seen_by_switches(raw: &Raw, level: Level) -> Result<(), String> {
    let thread = sleeper(raw)?;
    let check = |ok: bool| if ok { Ok(()) } else { Err(format!("{level:?}: {thread:?}")) };
    check(raw.level == Some(level))?;
    check(raw.threads.iter().filter(|t| t.name == "sleep").count() == 2)?;
    check(thread.switches.iter().any(|s| s.out && !s.preempted))?;
    check(thread.spans.iter().any(|s| s.kind == SpanKind::Sleep))?;
    check((level == Level::Kernel) != thread.wakes.is_empty())?;
    check(raw.evidence.notes.iter().any(|n| n.contains("/proc samples identify")))
}

#[test]
fn children_are_followed_by_their_switches() {
    for level in [Level::Switch, Level::Kernel] {
        let mut found = Ok(());
        for _ in 0..10 {
            let Some(raw) = watched(level) else {
                found = Ok(());
                break;
            };
            found = seen_by_switches(&raw, level);
            if found.is_ok() {
                break;
            }
        }
        found.unwrap();
    }
}

fn run(level: Level) -> Run {
    Run {
        level,
        own_events: true,
        delegated: None,
        start_ns: 1_000,
        end_ns: 9_000,
        clock: ClockTest::default(),
        costs: Costs::default(),
        notes: Vec::new(),
        registered: 0,
    }
}

/// Observes thread 7, which sleeps in every sample from 2000 to 8000.
fn asleep(stream: Stream) -> Raw {
    asleep_of(stream, Collected::default())
}

fn asleep_of(stream: Stream, collected: Collected) -> Raw {
    let sample = |i: u64| Sample {
        at_ns: 1_000 * i,
        waits: Some(SpanKind::Sleep),
        cpu_ns: 500,
        run_delay_ns: Some(0),
    };
    let mut sampler = Sampler::new(7);
    sampler.samples.insert(7, (2..=8).map(sample).collect());
    sampler.over = 3;
    let mut collected = Collected { sampler: Some(sampler), ..collected };
    collected.gather.threads.insert(7, Stream { pid: 7, ..stream });
    assemble(run(Level::Switch), collected)
}

fn switch(at_ns: u64, out: bool) -> Switch {
    Switch { at_ns, out, preempted: false, uninterruptible: false, cpu: 0, next_tid: 0 }
}

fn state_ns(raw: Raw, state: ioloom_model::State) -> Option<u64> {
    ioloom_trace::classify(raw).threads[0].states[&state].ns
}

#[test]
fn a_thread_without_switches_is_classified_by_its_samples() {
    use ioloom_model::State;
    let raw = asleep(Stream { begin_ns: Some(1_500), ..Stream::default() });
    assert!(raw.evidence.notes.iter().any(|n| n.contains("no switches of 1 thread, as for")));
    let source = raw.evidence.sources.iter().find(|s| s.name == "proc.samples").unwrap();
    assert_eq!((source.records, source.lost), (7, 3));
    assert_eq!(state_ns(raw, State::Sleep), Some(6_000));
    // Its events ended when it executed a program of another user.
    let own = vec![switch(1_500, false), switch(2_500, true), switch(2_600, false)];
    let stream = || Stream { end_ns: Some(3_000), own: own.clone(), ..Stream::default() };
    let raw = asleep(stream());
    assert_eq!((raw.threads[0].start_ns, raw.threads[0].end_ns), (1_000, 7_000));
    assert_eq!(state_ns(raw, State::Sleep), Some(6_000));
    // Scheduler events continue.
    let sched = vec![switch(1_500, false), switch(2_500, true), switch(8_500, false)];
    let raw = asleep(Stream { sched, ..stream() });
    assert_eq!((raw.threads[0].end_ns, raw.threads[0].switches.len()), (7_500, 3));
    // A thread that exits can be sampled shortly after its recorded end.
    let raw = asleep(Stream { end_ns: Some(6_500), ..stream() });
    assert_eq!((raw.threads[0].end_ns, raw.threads[0].switches.len()), (5_500, 3));
    assert!(!raw.evidence.notes.iter().any(|n| n.contains("no switches")));
    let (mut dropped, lost) =
        (Collected::default(), Collected { own_lost: 1, ..Collected::default() });
    dropped.gather.over = 1;
    for collected in [dropped, lost] {
        let notes = asleep_of(Stream::default(), collected).evidence.notes;
        assert!(notes.iter().any(|n| n.contains("dropped or lost")), "{notes:?}");
        assert!(!notes.iter().any(|n| n.contains("another user")), "{notes:?}");
    }
}

#[test]
fn threads_do_not_end_when_no_more_samples_are_kept() {
    use ioloom_model::State;
    let sample = |i: u64| Sample {
        at_ns: 1_000 * i,
        waits: Some(SpanKind::Sleep),
        cpu_ns: 500,
        run_delay_ns: Some(0),
    };
    let mut sampler = Sampler::new(7);
    (sampler.over, sampler.full_ns) = (9, Some(5_000));
    let mut collected = Collected::default();
    // Two that live on, the second until it exits, and one that ended before.
    for (tid, end_ns) in [(7, None), (8, Some(7_000)), (9, Some(4_500))] {
        let stream = Stream { pid: 7, begin_ns: Some(2_000), end_ns, ..Stream::default() };
        collected.gather.threads.insert(tid, stream);
        sampler.samples.insert(tid, (2..=4).map(sample).collect());
    }
    collected.sampler = Some(sampler);
    let trace = ioloom_trace::classify(assemble(run(Level::Account), collected));
    let seen: Vec<_> = trace
        .threads
        .iter()
        .map(|t| (t.end_ns, t.states[&State::Sleep].ns, t.states[&State::Unknown].ns))
        .collect();
    let slept = Some(2_000);
    let wanted = [(8_000, slept, 5_000), (6_000, slept, 3_000), (3_000, slept, 0)];
    assert_eq!(seen, wanted.map(|(end_ns, slept, unknown)| (end_ns, slept, Some(unknown))));
}

#[test]
fn the_states_of_a_thread_without_samples_and_switches_are_unknown() {
    use ioloom_model::State;
    for level in [Level::Account, Level::Switch] {
        let mut collected = Collected { sampler: Some(Sampler::new(7)), ..Collected::default() };
        let stream = Stream { pid: 7, begin_ns: Some(2_000), ..Stream::default() };
        collected.gather.threads.insert(7, stream);
        let raw = assemble(run(level), collected);
        let notes = &raw.evidence.notes;
        assert!(notes.iter().any(|n| n.contains("samples of 1 thread: the")), "{notes:?}");
        let trace = ioloom_trace::classify(raw);
        let thread = &trace.threads[0];
        let ns = |state: State| thread.states[&state].ns;
        assert_eq!((ns(State::Unknown), ns(State::OnCpu)), (Some(7_000), Some(0)), "{level:?}");
        assert_eq!(ns(State::Sleep), None, "{level:?}");
        let unknown = &thread.states[&State::Unknown];
        assert!(unknown.includes.contains(&State::OnCpu), "{unknown:?}");
        assert!(unknown.why.as_ref().unwrap().contains("may have been on a processor"));
    }
}

#[test]
fn threads_with_the_same_id_have_their_own_samples() {
    let mut gather = Gather::new(100, true);
    for (begin_ns, end_ns, next_ns) in [(2_000, 4_500, 5_000), (5_000, 8_500, 9_000)] {
        *gather.know(7) =
            Stream { pid: 7, begin_ns: Some(begin_ns), end_ns: Some(end_ns), ..Stream::default() };
        gather.replace(7, next_ns);
    }
    let sample = |i: u64| Sample {
        at_ns: 1_000 * i,
        waits: Some(SpanKind::Sleep),
        cpu_ns: 500,
        run_delay_ns: Some(0),
    };
    let mut sampler = Sampler::new(7);
    sampler.samples.insert(7, (2..=8).map(sample).collect());
    let collected = Collected { gather, sampler: Some(sampler), ..Collected::default() };
    let raw = assemble(run(Level::Account), collected);
    let lives: Vec<_> = raw.threads.iter().map(|t| (t.tid, t.start_ns, t.end_ns)).collect();
    assert_eq!(lives, [(7, 1_000, 3_000), (7, 4_000, 7_000)]);
}

#[test]
fn the_collecting_thread_is_not_part_of_the_program() {
    let mut gather = Gather::new(100, true);
    gather.know(7).pid = 7;
    gather.know(9);
    for (at_ns, prev_tid, next_tid) in [(2_000, 0, 7), (3_000, 7, 9), (4_000, 9, 0)] {
        let what = EventData::Switch { prev_tid, prev_state: 1, next_tid, next_name: [0; 16] };
        gather.kernel(&Event { at_ns, cpu: 0, by_tid: prev_tid, what });
    }
    let tool = Finished { tid: 9, role: TOOL.to_owned(), ..Finished::default() };
    let collected = Collected { gather, finished: vec![tool], ..Collected::default() };
    let raw = assemble(run(Level::Kernel), collected);
    let runs: Vec<_> = raw.cores[0].iter().map(|r| (r.start_ns, r.tid, r.ours)).collect();
    assert_eq!(runs, [(1_000, 7, true), (2_000, 9, false)]);
    let roles: Vec<_> = raw.threads.iter().map(|t| (t.tid, t.role.as_str())).collect();
    assert_eq!(roles, [(7, "process 7"), (9, TOOL)]);
}

/// Their creation is recorded in the ring of one processor, their switches and their exit in that of another.
#[test]
fn short_children_end_when_they_exit() {
    let script = "i=0; while [ $i -lt 100 ]; do /bin/true & /bin/true; i=$((i+1)); done; wait";
    for level in [Level::Switch, Level::Kernel] {
        let Some(raw) = watched_script(level, script) else { break };
        let notes = &raw.evidence.notes;
        let noted = |words: &str| notes.iter().any(|note| note.contains(words));
        let recorded = raw.evidence.sources.iter().any(|source| source.name == "perf.switch");
        if !recorded || noted("rings were full") {
            println!("skipped: no records, or a full ring");
            break;
        }
        assert!(!noted("whose start was not recorded"), "{notes:?}");
        let threads = || raw.threads.iter().filter(|thread| thread.role.starts_with("process "));
        assert!(threads().count() > 200, "{}", threads().count());
        let endless = threads().filter(|thread| thread.end_ns == raw.elapsed_ns);
        let endless: Vec<_> = endless.map(|t| (t.tid, &t.name, t.switches.len())).collect();
        assert!(endless.is_empty(), "{level:?}: {endless:?}");
    }
}

#[test]
fn the_overhead_is_a_share_of_the_time_of_all_threads() {
    let overhead_pct = |threads: u32| {
        let mut collected = Collected::default();
        collected.gather.own_switches = 80;
        for tid in 0..threads {
            collected.gather.threads.insert(tid, Stream { pid: 1, ..Stream::default() });
        }
        let costs = Costs { switch_ns: Some(20.0), ..Costs::default() };
        assemble(Run { costs, ..run(Level::Switch) }, collected).evidence.overhead_pct
    };
    // 80 records of 10 ns in 8000 ns.
    assert!((overhead_pct(1) - 10.0).abs() < 1e-9, "{}", overhead_pct(1));
    assert!((overhead_pct(4) - 2.5).abs() < 1e-9, "{}", overhead_pct(4));
}

/// /proc was listed after the thread had ended.
#[test]
fn a_thread_begins_with_its_first_switch() {
    let own = vec![switch(2_000, false), switch(5_000, true)];
    let (begin_ns, end_ns) = (Some(8_000), Some(5_000));
    let mut collected = Collected { sampler: Some(Sampler::new(7)), ..Collected::default() };
    collected.gather.own_switches = 2;
    let stream = Stream { pid: 7, begin_ns, end_ns, own, ..Stream::default() };
    collected.gather.threads.insert(7, stream);
    let costs = Costs { switch_ns: Some(30.0), ..Costs::default() };
    let raw = assemble(Run { costs, ..run(Level::Switch) }, collected);
    assert_eq!((raw.threads[0].start_ns, raw.threads[0].end_ns), (1_000, 4_000));
    // 2 records of 15 ns in 3000 ns.
    assert!((raw.evidence.overhead_pct - 1.0).abs() < 1e-9, "{}", raw.evidence.overhead_pct);
}

#[test]
fn a_missing_process_is_refused() {
    let refused = Watch::start(Some(Level::Account), u32::MAX / 2, quick()).err().unwrap();
    assert!(refused.to_string().contains("no such process"), "{refused}");
}
