//! Shares of arbitrary ranges compared with a plain sum over all segments.

use crate::wild;
use ioloom_model::{Level, State, StateTime};
use ioloom_trace::raw::PROCESSORS;
use ioloom_trace::shares::{self, Lanes, Shares};
use ioloom_trace::utilisation::{Coverage, DeviceOverlap, Utilisation};
use ioloom_trace::{Core, CoreRun, Device, NO_CPU, Request, Segment, Series, Thread, Trace};
use proptest::prelude::*;

/// Sums the overlap of every segment with a range.
fn by_hand(thread: &Thread, from_ns: u64, to_ns: u64) -> Shares {
    let mut sum = Shares::default();
    for (i, segment) in thread.segments.iter().enumerate() {
        let end = thread.segments.get(i + 1).map_or(thread.end_ns, |s| s.start_ns);
        let overlap = end.min(to_ns).saturating_sub(segment.start_ns.max(from_ns));
        sum.ns[segment.state as usize] += overlap;
    }
    sum
}

fn thread(role: &str, start_ns: u64, parts: &[(State, u64)]) -> Thread {
    let mut at_ns = start_ns;
    let segments = parts
        .iter()
        .map(|(state, ns)| {
            at_ns += ns;
            let start_ns = at_ns - ns;
            Segment { start_ns, state: *state, placed: true, cpu: NO_CPU, by_tid: 0 }
        })
        .collect();
    Thread { role: role.to_owned(), start_ns, end_ns: at_ns, segments, ..Thread::default() }
}

/// A lane long enough for several blocks of prefix sums.
fn long_lane() -> impl Strategy<Value = Thread> {
    prop::collection::vec((0..State::ALL.len(), 1..500_u64), 0..400).prop_map(|parts| {
        let parts: Vec<(State, u64)> =
            parts.into_iter().map(|(s, ns)| (State::ALL[s], ns)).collect();
        thread("worker", 100, &parts)
    })
}

proptest! {
    #[test]
    fn a_range_is_the_sum_of_its_overlaps(
        lane in long_lane(),
        a in 0..100_000_u64,
        b in 0..100_000_u64,
    ) {
        let trace = Trace { threads: vec![lane], ..Trace::default() };
        let lanes = Lanes::new(&trace);
        prop_assert_eq!(lanes.lanes()[0].within(a, b), by_hand(&trace.threads[0], a, b));
        prop_assert_eq!(lanes.all(a, b), lanes.role("worker", a, b));
    }

    #[test]
    fn columns_add_up_to_the_range(lane in long_lane(), a in 0..50_000_u64, ns in 0..100_000_u64, width in 1..300_usize) {
        let trace = Trace { threads: vec![lane], ..Trace::default() };
        let lanes = Lanes::new(&trace);
        let lane = &lanes.lanes()[0];
        let columns = lane.columns(a, a + ns, width);
        prop_assert_eq!(columns.len(), width);
        let mut sum = Shares::default();
        for (x, column) in columns.iter().enumerate() {
            let edge = |x: usize| a + ns * x as u64 / width as u64;
            prop_assert_eq!(*column, by_hand(&trace.threads[0], edge(x), edge(x + 1)));
            sum.add(column);
        }
        prop_assert_eq!(sum, lane.within(a, a + ns));
    }

    #[test]
    fn shares_of_random_traces_add_up(trace in wild::trace()) {
        let lanes = Lanes::new(&trace);
        for lane in lanes.lanes() {
            let thread = lane.thread();
            let all = lane.within(0, u64::MAX);
            prop_assert_eq!(all.total(), thread.end_ns - thread.start_ns);
        }
        let _ = Utilisation::new(&trace).columns(0, trace.elapsed_ns, 50);
        let elapsed = trace.elapsed_ns;
        if let Some(ways) = Utilisation::new(&trace).device_overlap(0, elapsed) {
            let DeviceOverlap { both_ns, cpu_only_ns, device_only_ns, neither_ns } = ways;
            prop_assert_eq!(both_ns + cpu_only_ns + device_only_ns + neither_ns, elapsed);
        }
    }

    #[test]
    fn covered_time_equals_a_count_of_points(
        intervals in prop::collection::vec((0..60_u64, 0..60_u64), 0..12),
        others in prop::collection::vec((0..60_u64, 0..60_u64), 0..12),
        from in 0..70_u64,
        to in 0..70_u64,
    ) {
        let inside = |all: &[(u64, u64)], t: u64| all.iter().any(|(a, b)| *a <= t && t < *b);
        let (one, two) = (Coverage::union(intervals.clone()), Coverage::union(others.clone()));
        let count = (from..to.max(from)).filter(|t| inside(&intervals, *t)).count() as u64;
        prop_assert_eq!(one.within(from, to), count);
        let count = (from..to.max(from))
            .filter(|t| inside(&intervals, *t) && inside(&others, *t))
            .count() as u64;
        prop_assert_eq!(one.intersection(&two).within(from, to), count);
    }
}

#[test]
fn usage_of_processors_and_devices() {
    let run = |start_ns, end_ns, ours| CoreRun { start_ns, end_ns, tid: 1, ours };
    let request = |issue_ns, complete_ns| Request {
        device: 0,
        write: false,
        issue_ns,
        complete_ns,
        sector: 0,
        bytes: 512,
        tid: 1,
    };
    let mut trace = Trace {
        elapsed_ns: 100,
        cores: vec![
            Core { cpu: 0, runs: vec![run(0, 50, true), run(60, 70, false)] },
            Core { cpu: 1, runs: vec![run(40, 60, true)] },
        ],
        devices: vec![Device {
            name: "vda".to_owned(),
            requests: vec![request(50, Some(80)), request(70, Some(90)), request(10, None)],
        }],
        ..Trace::default()
    };
    trace.evidence.level = Level::Kernel;
    let used = Utilisation::new(&trace).within(0, 100);
    assert_eq!((used.ours_ns, used.others_ns, used.idle_ns), (70, Some(10), Some(120)));
    assert_eq!((used.device_busy_ns, used.in_flight), (Some(40), Some(0.5)));
    // The program may use only one of the processors.
    let (name, points) = (PROCESSORS.to_owned(), vec![(0, 1.0)]);
    let usable = Series { name, points, ..Series::default() };
    let bound = Trace { series: vec![usable], ..trace.clone() };
    assert_eq!(Utilisation::new(&bound).within(0, 100), used);
    let ways = Utilisation::new(&trace).device_overlap(0, 100).unwrap();
    let wanted = DeviceOverlap { both_ns: 10, cpu_only_ns: 50, device_only_ns: 30, neither_ns: 10 };
    assert_eq!(ways, wanted);
    let half = Utilisation::new(&trace).columns(0, 100, 2);
    assert_eq!((half[0].ours_ns, half[1].ours_ns), (60, 10));
    assert_eq!(half[1].in_flight, Some(1.0));
    // Events of the second half were dropped.
    let mut cut = trace.clone();
    cut.evidence.complete_until_ns = Some(50);
    let cut = Utilisation::new(&cut);
    let half = cut.columns(0, 100, 2);
    assert_eq!((half[0].others_ns, half[0].idle_ns), (Some(0), Some(40)));
    assert_eq!((half[1].others_ns, half[1].idle_ns), (None, None));
    assert!(cut.device_overlap(0, 50).is_some() && cut.device_overlap(0, 100).is_none());

    trace.evidence.level = Level::Switch;
    let used = Utilisation::new(&trace).within(0, 100);
    assert_eq!((used.ours_ns, used.others_ns, used.idle_ns), (70, None, None));

    trace.cores.clear();
    trace.devices.clear();
    trace.threads = vec![
        thread("worker", 0, &[(State::OnCpu, 30), (State::Io, 20)]),
        thread("tool", 0, &[(State::OnCpu, 50)]),
    ];
    let used = Utilisation::new(&trace).within(10, 60);
    assert_eq!((used.ours_ns, used.device_busy_ns), (20, None));
    assert_eq!(Utilisation::new(&trace).device_overlap(0, 60), None);
}

#[test]
fn roles_are_summed_and_null_stays_null() {
    let time = |ns: Option<u64>, includes: &[State]| StateTime {
        ns,
        source: "spans".to_owned(),
        includes: includes.to_vec(),
        why: ns.is_none().then(|| "not measured".to_owned()),
        ..StateTime::default()
    };
    let mut first = thread("reader", 0, &[]);
    first.states =
        [(State::Io, time(Some(5), &[State::Lock])), (State::Lock, time(None, &[]))].into();
    let mut second = first.clone();
    second.states = [(State::Io, time(Some(7), &[])), (State::Lock, time(Some(2), &[]))].into();
    let mut tool = second.clone();
    tool.role = "tool".to_owned();
    let trace = Trace { threads: vec![first, second, tool], ..Trace::default() };
    let roles = shares::roles(&trace);
    assert_eq!(roles.len(), 2);
    assert_eq!((roles[0].role.as_str(), roles[0].threads), ("reader", 2));
    assert_eq!(roles[0].states[&State::Lock].ns, None);
    assert_eq!(roles[0].states[&State::Lock].why.as_deref(), Some("not measured"));
    assert_eq!(roles[0].states[&State::Io].ns, Some(14));
    assert_eq!(shares::all(&trace)[&State::Io].ns, Some(14));
}
