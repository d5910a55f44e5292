use super::*;

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

fn event(at_ns: u64, cpu: u16, by_tid: u32, what: EventData) -> Event {
    Event { at_ns, cpu, by_tid, what }
}

fn switch(at_ns: u64, cpu: u16, prev: (u32, u32), next: (u32, &str)) -> Event {
    let what = EventData::Switch {
        prev_tid: prev.0,
        prev_state: prev.1,
        next_tid: next.0,
        next_name: name(next.1),
    };
    event(at_ns, cpu, prev.0, what)
}

fn gather(follow: bool) -> Gather {
    let mut gather = Gather::new(100, follow);
    gather.know(7).name = Some("seven".to_owned());
    gather
}

#[test]
fn a_switch_ends_one_run_and_begins_another() {
    let mut g = gather(false);
    g.kernel(&switch(10, 1, (0, 0), (7, "seven")));
    g.kernel(&switch(30, 1, (7, 2), (8, "other")));
    g.kernel(&switch(50, 1, (8, 0x100), (7, "seven")));
    g.kernel(&switch(60, 1, (9, 1), (0, "idle"))); // the switch to thread 9 was missed
    let sched = &g.threads[&7].sched;
    let seen: Vec<_> =
        sched.iter().map(|s| (s.at_ns, s.out, s.uninterruptible, s.next_tid)).collect();
    assert_eq!(seen, [(10, false, false, 0), (30, true, true, 8), (50, false, false, 0)]);
    assert_eq!(g.chain_breaks, 1);
    let cores = g.cores(100);
    let runs: Vec<_> = cores[1].iter().map(|r| (r.start_ns, r.end_ns, r.tid, r.ours)).collect();
    assert_eq!(runs, [(10, 30, 7, true), (30, 50, 8, false)]);
}

#[test]
fn requests_meet_their_completions_and_some_never_do() {
    let mut g = gather(false);
    let issue = |sector| EventData::Issue { device: 0xFE0_0000, sector, bytes: 4096, write: false };
    let complete = |sector| EventData::Complete { device: 0xFE0_0000, sector };
    g.kernel(&event(1, 0, 7, issue(100)));
    g.kernel(&event(2, 0, 7, issue(200)));
    g.kernel(&event(5, 1, 0, complete(100)));
    g.kernel(&event(6, 0, 7, issue(200))); // the completion of the first 200 was lost
    g.kernel(&event(9, 1, 0, complete(200)));
    g.kernel(&event(9, 1, 0, complete(300)));
    let ends: Vec<_> = g.requests.iter().map(|r| r.complete_ns).collect();
    assert_eq!(ends, [Some(5), None, Some(9)]);
    assert_eq!(g.devices, [0xFE0_0000]);
}

#[test]
fn spinning_locks_are_not_waits() {
    let mut g = gather(false);
    for (at, flags) in [(10, 1), (20, 4)] {
        g.kernel(&event(at, 0, 7, EventData::LockBegin { flags }));
        g.kernel(&event(at + 5, 0, 7, EventData::LockEnd));
    }
    assert_eq!(g.threads[&7].locks, [LockWait { start_ns: 20, end_ns: 25 }]);
}

#[test]
fn workers_of_a_ring_are_ours_and_others_are_not() {
    let mut g = gather(false);
    g.kernel(&switch(10, 0, (0, 0), (70, "iou-wrk-7")));
    g.kernel(&switch(11, 0, (70, 1), (80, "iou-wrk-8")));
    assert!(g.threads[&70].kernel_worker && !g.threads.contains_key(&80));
    assert_eq!(g.threads[&70].sched.len(), 2);
}

#[test]
fn children_are_followed_on_request() {
    let fork = |at, by, tid, thread| {
        event(at, 0, by, EventData::NewTask { tid, thread, name: name("child") })
    };
    for follow in [false, true] {
        let mut g = gather(follow);
        g.know(7).pid = 7;
        g.kernel(&fork(1, 7, 20, true));
        g.kernel(&fork(2, 20, 21, false));
        g.kernel(&fork(3, 99, 22, false));
        assert_eq!(g.threads.len(), if follow { 3 } else { 1 });
        if follow {
            assert_eq!((g.threads[&20].pid, g.threads[&21].pid), (7, 21));
            g.own(Record::Name { at_ns: 8, pid: 21, tid: 21, name: name("named") });
            g.own(Record::End { at_ns: 9, pid: 21, tid: 21 });
            let stream = &g.threads[&21];
            assert_eq!((stream.name.as_deref(), stream.end_ns), (Some("named"), Some(9)));
            assert_eq!(g.unknown, 0);
            g.own(Record::End { at_ns: 9, pid: 99, tid: 99 });
            g.own(Record::Begin { at_ns: 9, pid: 98, tid: 98, parent_tid: 99 });
            assert_eq!((g.unknown, g.threads.len()), (2, 3));
        }
    }
}

#[test]
fn a_thread_with_a_reused_id_is_another_thread() {
    let begin = |at_ns, parent_tid| Record::Begin { at_ns, pid: 20, tid: 20, parent_tid };
    let end = |at_ns| Record::End { at_ns, pid: 20, tid: 20 };
    let mut g = gather(true);
    g.own(begin(10, 7));
    let what = EventData::NewTask { tid: 20, thread: false, name: name("child") };
    g.kernel(&event(9, 0, 7, what));
    g.own(end(20));
    g.kernel(&switch(12, 0, (0, 0), (20, "child")));
    g.kernel(&switch(20, 0, (20, 1), (0, "idle")));
    assert!(g.replaced.is_empty(), "both kinds of rings record a creation");
    g.own(begin(30, 7));
    g.own(end(40));
    // The third thread belongs to another program.
    g.kernel(&event(50, 0, 99, what));
    g.kernel(&switch(52, 0, (0, 0), (20, "other")));
    let runs = g.cores(60).remove(0);
    let ours: Vec<_> = runs.iter().map(|run| (run.start_ns, run.ours)).collect();
    assert_eq!(ours, [(12, true), (52, false)]);
    let all = g.take_threads();
    let lives: Vec<_> = all.iter().map(|(tid, s)| (*tid, s.begin_ns, s.end_ns)).collect();
    assert_eq!(lives, [(7, None, None), (20, Some(9), Some(20)), (20, Some(30), Some(40))]);
    assert_eq!((all[1].1.sched.len(), all[2].1.sched.len()), (2, 0));
}

#[test]
fn replaced_threads_count_towards_the_limit() {
    let mut g = gather(true);
    g.threads_max = 2;
    for at_ns in [10, 30] {
        g.own(Record::Begin { at_ns, pid: 20, tid: 20, parent_tid: 7 });
        g.own(Record::End { at_ns: at_ns + 10, pid: 20, tid: 20 });
    }
    assert_eq!((g.take_threads().len(), g.left_out.len()), (2, 1));
}

#[test]
fn threads_beyond_the_limit_are_counted_once() {
    let mut g = gather(true);
    g.threads_max = 2;
    // Both kinds of rings record a creation.
    for tid in [20, 21, 22, 21, 22] {
        g.own(Record::Begin { at_ns: 1, pid: 7, tid, parent_tid: 7 });
    }
    assert_eq!(g.threads.keys().copied().collect::<Vec<_>>(), [7, 20]);
    assert_eq!(g.left_out.len(), 2);
    // Their children are of the program too.
    g.own(Record::Begin { at_ns: 2, pid: 30, tid: 30, parent_tid: 22 });
    g.own(Record::End { at_ns: 9, pid: 30, tid: 30 });
    assert_eq!((g.left_out.len(), g.unknown), (3, 0));
    g.kernel(&switch(10, 0, (0, 0), (30, "child")));
    let cores = g.cores(20);
    assert_eq!(cores[0].iter().map(|run| (run.tid, run.ours)).collect::<Vec<_>>(), [(30, true)]);
}

#[test]
fn events_beyond_the_limit_are_counted() {
    let mut g = Gather::new(3, false);
    g.know(7);
    for at_ns in 0..10 {
        g.own(Record::Switch {
            at_ns,
            pid: 7,
            tid: 7,
            cpu: 0,
            out: at_ns % 2 == 0,
            preempted: false,
        });
    }
    g.own(Record::Lost { count: 4 });
    assert_eq!((g.threads[&7].own.len(), g.over, g.reported_lost), (3, 7, 4));
    assert_eq!((g.own_over, g.full_ns), (7, Some(3)));
    assert_eq!((g.own_switches, g.own_kept), (10, 3));
    g.kernel(&switch(11, 0, (7, 1), (0, "swapper")));
    assert_eq!((g.over, g.own_over), (8, 7));
}

#[test]
fn own_switches_are_completed_by_scheduler_events() {
    let at = |at_ns, next_tid, cpu| Switch {
        at_ns,
        out: true,
        preempted: false,
        uninterruptible: next_tid != 0,
        cpu,
        next_tid,
    };
    let mut own = [at(1_000_000, 0, 1), at(2_000_000, 0, 1), at(3_000_000, 0, 1)];
    let sched = [at(999_000, 5, 1), at(1_500_000, 6, 1), at(2_999_500, 7, 1)];
    enrich(&mut own, &sched);
    assert_eq!(own.map(|s| (s.next_tid, s.uninterruptible)), [(5, true), (0, false), (7, true)]);
}
