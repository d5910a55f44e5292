//! A simulated run as a trace, for `ioloom trace`.

use ioloom_model::{Evidence, Quality, State, StateTable, StateTime};
use ioloom_predict::machine::{Outcome, Sent, Step, Work};
use ioloom_trace::{Device, NO_CPU, Request, Segment, Series, Span, SpanKind, Thread, Trace};

/// Source of all states.
const SOURCE: &str = "simulated";

/// Converts the recorded steps and requests of a simulated run.
pub(super) fn trace(title: &str, outcome: &Outcome, cores: u32) -> Trace {
    // If the records were cut, everything after the first missing one is left out.
    let end_ns = outcome.steps.iter().map(|step| step.end_ns).max().unwrap_or(0);
    let flights = flights(&outcome.sent);
    let threads =
        (0..cores).map(|worker| thread(worker, &outcome.steps, &flights, end_ns)).collect();
    let count = outcome.sent.iter().map(|sent| sent.device + 1).max().unwrap_or(0);
    let devices = (0..count)
        .map(|device| {
            let mut requests: Vec<Request> = outcome
                .sent
                .iter()
                .filter(|sent| sent.device == device)
                .map(|sent| Request {
                    device: device as u16,
                    write: false,
                    issue_ns: sent.issue_ns,
                    complete_ns: Some(sent.end_ns),
                    sector: sent.at / 512,
                    bytes: u32::try_from(sent.bytes).unwrap_or(u32::MAX),
                    tid: sent.worker + 1,
                })
                .collect();
            requests.sort_by_key(|request| request.issue_ns);
            Device { name: format!("disk{device}"), requests }
        })
        .collect();
    let points = |value: &dyn Fn(&ioloom_predict::machine::Moment) -> f64| {
        let inside = outcome.timeline.iter().take_while(|moment| moment.at_ns <= end_ns);
        inside.map(|moment| (moment.at_ns, value(moment))).collect()
    };
    Trace {
        title: format!("simulated: {title}"),
        elapsed_ns: end_ns,
        threads,
        devices,
        series: vec![Series {
            name: "in flight".to_owned(),
            unit: "requests".to_owned(),
            points: points(&|moment| f64::from(moment.in_flight)),
        }],
        evidence: Evidence {
            notes: vec!["all times are simulated; nothing was measured".to_owned()],
            ..Evidence::default()
        },
        ..Trace::default()
    }
}

/// Returns the times in which requests are in flight, by start and without overlaps.
fn flights(sent: &[Sent]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = sent.iter().map(|sent| (sent.issue_ns, sent.end_ns)).collect();
    all.sort_unstable();
    let mut apart: Vec<(u64, u64)> = Vec::new();
    for (issue, end) in all {
        match apart.last_mut() {
            Some(last) if issue <= last.1 => last.1 = last.1.max(end),
            _ => apart.push((issue, end)),
        }
    }
    apart
}

/// Returns what a worker waits for between two steps: for requests while some are in flight, and for other workers
/// otherwise.
fn waits(flights: &[(u64, u64)], from: u64, to: u64) -> Vec<(State, u64, u64)> {
    let (mut parts, mut at) = (Vec::new(), from);
    let first = flights.partition_point(|(_, end)| *end <= from);
    for (issue, end) in flights[first..].iter().take_while(|(issue, _)| *issue < to) {
        let (issue, end) = (from.max(*issue), to.min(*end));
        parts.push((State::Sync, at, issue));
        parts.push((State::AsyncIo, issue, end));
        at = end;
    }
    parts.push((State::Sync, at, to));
    parts
}

/// Returns one worker: its steps, and waiting between them.
fn thread(worker: u32, steps: &[Step], flights: &[(u64, u64)], end_ns: u64) -> Thread {
    let (mut spans, mut segments) = (Vec::new(), Vec::new());
    // A state in which a worker never is takes no time; it is not unknown.
    let none = || StateTime {
        ns: Some(0),
        source: SOURCE.to_owned(),
        quality: Some(Quality::Inferred),
        ..StateTime::default()
    };
    let possible = [State::OnCpu, State::AsyncIo, State::Sync];
    let mut states: StateTable = possible.map(|state| (state, none())).into();
    let mut add = |segments: &mut Vec<Segment>, state: State, from: u64, to: u64| {
        if from < to {
            segments.push(Segment { start_ns: from, state, placed: true, cpu: NO_CPU, by_tid: 0 });
            let time = states.entry(state).or_insert_with(none);
            time.ns = time.ns.map(|ns| ns + to - from);
        }
    };
    let mut at = 0;
    for step in steps.iter().filter(|step| step.worker == worker) {
        for (state, from, to) in waits(flights, at, step.start_ns) {
            add(&mut segments, state, from, to);
        }
        add(&mut segments, State::OnCpu, step.start_ns, step.end_ns);
        let kind = match step.work {
            Work::Issue => SpanKind::Read,
            Work::Hit | Work::Compute => SpanKind::Compute,
        };
        let ns = step.end_ns - step.start_ns;
        spans.push(Span { start_ns: step.start_ns, ns, kind, file: ioloom_trace::NO_FILE });
        at = step.end_ns;
    }
    for (state, from, to) in waits(flights, at, end_ns) {
        add(&mut segments, state, from, to);
    }
    Thread {
        tid: worker + 1,
        name: format!("worker {worker}"),
        role: "worker".to_owned(),
        start_ns: 0,
        end_ns,
        spans,
        segments,
        states,
        ..Thread::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_predict::answer::files::{Question, timeline};
    use ioloom_predict::answer::profile::Class;
    use ioloom_predict::machine::{Order, Sizes};

    #[test]
    fn a_simulated_trace_can_be_stored_and_read() {
        let question = Question {
            class: Class::Sata,
            measured: None,
            files: 300,
            sizes: Sizes::Fixed(4096),
            compute_s: 1e-4,
            order: Order::Device,
            cached: 0.2,
            cores: 2,
            disks: 2,
            threads_max: 8,
            seed: 1,
        };
        let trace = trace("a test", &timeline(&question).unwrap(), 2);
        assert_eq!((trace.threads.len(), trace.devices.len()), (2, 2));
        let read = ioloom_trace::file::read(&ioloom_trace::file::write(&trace)).unwrap();
        assert_eq!(read, trace);
        for thread in &trace.threads {
            let all: u64 = thread.states.values().filter_map(|time| time.ns).sum();
            assert_eq!(all, trace.elapsed_ns);
        }
    }

    #[test]
    fn a_worker_waits_for_requests_only_while_some_are_in_flight() {
        let sent = |issue_ns, end_ns| Sent {
            unit: 0,
            device: 0,
            at: 0,
            bytes: 4096,
            worker: 0,
            issue_ns,
            end_ns,
        };
        let flights = flights(&[sent(10, 30), sent(20, 40), sent(60, 70)]);
        assert_eq!(flights, [(10, 40), (60, 70)]);
        let step =
            |worker, work, start_ns, end_ns| Step { worker, work, unit: 0, start_ns, end_ns };
        let steps = [step(0, Work::Issue, 0, 10), step(0, Work::Compute, 70, 100)];
        let ns = |worker, state: State| thread(worker, &steps, &flights, 100).states[&state].ns;
        let all = |worker| {
            [State::OnCpu, State::AsyncIo, State::Sync].map(|state| ns(worker, state).unwrap())
        };
        assert_eq!(all(0), [40, 40, 20]);
        // It never runs, which is known.
        assert_eq!(all(1), [0, 40, 60]);
    }
}
