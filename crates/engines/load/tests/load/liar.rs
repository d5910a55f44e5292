//! Servers that give wrong answers, lose orders, stall or disappear; checks that each is detected.

use crate::load;
use ioloom_load::{
    Arrival, LoadError, LoadPlan, Mix, MultiRun, Multiclient, Pace, Protocol, Run, Think,
    multiclient,
};
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// A line server with one thread per connection. `answer` receives the index of the connection, the
/// index of the request on it, and the request. `None` closes the connection.
fn server(
    answer: impl Fn(usize, usize, &str) -> Option<String> + Send + Sync + Clone + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let number = AtomicUsize::new(0);
        for stream in listener.incoming() {
            let (number, answer) = (number.fetch_add(1, Ordering::SeqCst), answer.clone());
            std::thread::spawn(move || serve(stream.unwrap(), number, answer));
        }
    });
    address
}

fn serve(stream: TcpStream, number: usize, answer: impl Fn(usize, usize, &str) -> Option<String>) {
    stream.set_nodelay(true).unwrap();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    for at in 0.. {
        line.clear();
        if !matches!(lines.read_line(&mut line), Ok(1..)) {
            return;
        }
        let Some(answer) = answer(number, at, line.trim()) else { return };
        // The original protocol pads answers to 8192 bytes.
        let mut bytes = answer.into_bytes();
        bytes.resize(8192, 0);
        if lines.get_mut().write_all(&bytes).is_err() {
            return;
        }
    }
}

fn plan(target: SocketAddr) -> LoadPlan {
    LoadPlan {
        mix: Mix { show: 0.0, buy: 1.0, sell: 0.0 },
        connections: 1,
        requests_max: 20,
        duration: Duration::from_secs(600),
        timeout: Duration::from_secs(120),
        ..LoadPlan::new(target)
    }
}

/// Repeats a run whose short limits a pause of the machine can use up, until one is as wanted.
pub(super) fn one_of<T: Debug>(
    what: &str,
    run: impl Fn() -> T,
    is_wanted: impl Fn(&T) -> bool,
) -> T {
    let mut last = None;
    for _ in 0..10 {
        let ran = run();
        if is_wanted(&ran) {
            return ran;
        }
        last = Some(ran);
    }
    panic!("{what} in none of ten runs: {last:?}");
}

fn list(ask: &str) -> Option<String> {
    (ask == "show").then(|| "4 100 9\n".to_owned())
}

#[test]
fn wrong_answers_are_counted_with_samples() {
    let target = server(|_, _, ask| list(ask).or(Some("[sell] success\n".to_owned())));
    let (run, _) = load(&plan(target));
    assert_eq!(run.outcomes.wrong, 20);
    assert_eq!(run.wrong_samples.len(), 10);
    assert!(!run.is_right());
}

#[test]
fn wrong_answers_are_not_throughput() {
    let target = server(|_, _, ask| list(ask).or(Some("[sell] success\n".to_owned())));
    let (run, _) = load(&plan(target));
    let out = &run.outcomes;
    assert_eq!((out.answered, out.answered_in_time, out.failed), (0, 0, 20), "{out:?}");
    assert_eq!((run.answered_per_s, run.latency.corrected.count), (0.0, 0));
    let multi = Multiclient { clients: 2, orders: 3, sleep: Duration::ZERO, pool: None };
    let run = multiclient(&plan(target), &multi, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let out = &run.outcomes;
    assert_eq!((out.wrong, out.answered, out.failed), (6, 0, 6), "{out:?}");
    assert_eq!(run.orders_per_s, 0.0);
}

/// A server of `stock/2` whose log numbers do not increase.
#[test]
fn decreasing_log_numbers_are_wrong_in_every_loop() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.unwrap());
                let mut line = String::new();
                while matches!(lines.read_line(&mut line), Ok(1..)) {
                    let answer = match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
                        ["HELLO", ..] => "HELLO stock/2 window=128\n".to_owned(),
                        // The first of a connection has the number 1.
                        [id, "SHOW"] => {
                            let seq = if id == "1" { 9 } else { 5 };
                            format!("{id} STOCKS 1 {seq}\n4 100 9\n")
                        }
                        [id, ..] => format!("{id} OK 100 7\n"),
                        [] => return,
                    };
                    if lines.get_mut().write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    for (mix, sample) in [
        (Mix { show: 1.0, buy: 0.0, sell: 0.0 }, "log number 5 arrived after 9"),
        (Mix { show: 0.0, buy: 1.0, sell: 0.0 }, "log number 7 arrived after 7"),
    ] {
        let plan = LoadPlan { protocol: Protocol::V2, conserve: false, mix, ..plan(target) };
        let (run, _) = load(&LoadPlan { requests_max: 3, ..plan.clone() });
        assert_eq!((run.outcomes.wrong, run.outcomes.answered), (2, 1), "{:?}", run.outcomes);
        assert_eq!(run.wrong_samples, [sample, sample]);
        let multi = Multiclient { clients: 1, orders: 3, sleep: Duration::ZERO, pool: None };
        let run = multiclient(&plan, &multi, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!((run.outcomes.wrong, run.outcomes.answered), (2, 1), "{:?}", run.outcomes);
        assert_eq!(run.wrong_samples, [sample, sample]);
    }
}

#[test]
fn an_original_client_that_is_turned_away_is_not_right() {
    let run = |busy: usize| {
        let target = server(move |_, at, ask| {
            let answer = if at == busy { "BUSY\n" } else { "Not enough left stocks\n" };
            list(ask).or(Some(answer.to_owned()))
        });
        let multi = Multiclient { clients: 2, orders: 3, sleep: Duration::ZERO, pool: None };
        let run = multiclient(&plan(target), &multi, &AtomicBool::new(false), &mut |_| {}).unwrap();
        (run.outcomes.answered, run.outcomes.turned_away, run.is_right())
    };
    assert_eq!(run(usize::MAX), (6, 0, true));
    assert_eq!(run(1), (4, 2, false));
}

#[test]
fn requests_of_the_warm_up_do_not_fail_a_step() {
    let target = server(|_, _, ask| list(ask).or(Some("BUSY\n".to_owned())));
    let run = |warm_up| {
        let (run, _) = load(&LoadPlan { warm_up, ..plan(target) });
        (run.outcomes.turned_away, run.outcomes.failed)
    };
    assert_eq!(run(Duration::ZERO), (20, 20));
    // Everything happens within it.
    assert_eq!(run(Duration::from_secs(500)), (20, 0));
}

#[test]
fn a_server_that_loses_orders_is_detected() {
    let target = server(|_, _, ask| list(ask).or(Some("[buy] success\n".to_owned())));
    let (run, _) = load(&plan(target));
    assert_eq!((run.outcomes.wrong, run.outcomes.traded), (0, 20));
    assert!(run.conservation.checked && !run.is_right());
    assert!(run.conservation.differences[0].contains("stock 4"), "{:?}", run.conservation);
}

#[test]
fn orders_without_an_answer_may_or_may_not_be_executed() {
    // The third order on each connection is the last, and its outcome is unknown.
    let target = server(|number, at, ask| match (number, at) {
        (1.., 2) => None,
        _ => list(ask).or(Some("Not enough left stock\n".to_owned())),
    });
    let (run, _) = load(&plan(target));
    assert!(run.is_right(), "{run:?}");
    assert!(run.outcomes.unanswered > 0 && run.outcomes.lost > 0);
    let share = run.too_many_unanswered().expect("a third is too many");
    assert!((0.2..0.5).contains(&share), "{share}");
    let out = &run.outcomes;
    assert_eq!(out.sent, out.refused + out.unanswered);
    assert_eq!(out.unanswered_counted, out.unanswered);
    // Everything happens within the warm-up.
    let warm_up = Duration::from_secs(500);
    let (run, _) = load(&LoadPlan { warm_up, ..plan(target) });
    assert!(run.outcomes.unanswered > 0, "{:?}", run.outcomes);
    assert_eq!((run.outcomes.unanswered_counted, run.too_many_unanswered()), (0, None));
    assert!(run.ended_in_warm_up(), "{:?}", run.outcomes);
}

#[test]
fn a_pause_of_the_server_counts_for_all_requests_due_in_it() {
    const PAUSE: Duration = Duration::from_millis(200);
    let target = server(|number, at, ask| {
        if (number, at) == (1, 0) {
            std::thread::sleep(PAUSE);
        }
        list(ask).or(Some("Not enough left stocks\n".to_owned()))
    });
    let (run, _) = load(&LoadPlan {
        pace: Pace::Open { rate_per_s: 1000.0, arrival: Arrival::Constant },
        requests_max: 300,
        ..plan(target)
    });
    // A hundred of the three hundred were due in the first half of the pause, so each waited at
    // least for the other half.
    let half_ns = PAUSE.as_nanos() as u64 / 2;
    assert_eq!(run.latency.corrected.count, 300, "{:?}", run.latency);
    assert!(run.latency.corrected.p90_ns >= half_ns * 99 / 100, "{:?}", run.latency);
    assert!(run.latency.raw.p50_ns <= run.latency.corrected.p50_ns, "{:?}", run.latency);
}

/// Time of a run in which the server stops answering.
const SILENT_RUN: Duration = Duration::from_millis(700);

/// Runs against a server that sends ten answers in total, then none.
fn run_that_is_answered_ten_times() -> Run {
    let target = server(|number, at, ask| {
        if number > 1 || at >= 10 {
            std::thread::sleep(Duration::from_secs(600));
        }
        list(ask).or(Some("Not enough left stocks\n".to_owned()))
    });
    let (run, _) = load(&LoadPlan {
        requests_max: 1_000_000,
        duration: SILENT_RUN,
        timeout: Duration::from_millis(200),
        conserve: false,
        ..plan(target)
    });
    assert!(run.outcomes.answered <= 10, "{:?}", run.outcomes);
    run
}

#[test]
fn a_server_that_stops_answering_does_not_look_faster() {
    // A request before the tenth answer can time out on a busy machine.
    let is_wanted = |run: &Run| run.outcomes.answered == 10;
    let run = one_of("ten answers", run_that_is_answered_ten_times, is_wanted);
    // Unanswered requests count with their waiting time.
    let (latency, unanswered) = (&run.latency, run.outcomes.unanswered);
    assert!(unanswered > 0, "{:?}", run.outcomes);
    assert_eq!((latency.raw.count, latency.corrected.count), (10, 10 + unanswered));
    assert!(latency.corrected.max_ns >= 199_000_000, "{latency:?}");
    assert_eq!(u128::from(run.elapsed_ns), SILENT_RUN.as_nanos());
}

#[test]
fn a_server_that_closes_many_served_connections_at_once_is_not_gone() {
    const MANY: usize = 120;
    // Connection 0 requests the list before the run.
    let all_asked = Arc::new(Barrier::new(MANY));
    let target = server(move |number, at, ask| {
        if (1..=MANY).contains(&number) && at == 1 {
            all_asked.wait();
            return None;
        }
        list(ask).or(Some("Not enough left stocks\n".to_owned()))
    });
    let (run, _) = load(&LoadPlan { connections: MANY, requests_max: 1000, ..plan(target) });
    assert_eq!((run.outcomes.lost, run.outcomes.unanswered), (120, 120), "{:?}", run.outcomes);
    assert_eq!(run.outcomes.answered, 1000 - 120, "{:?}", run.outcomes);
}

#[test]
fn a_session_ends_with_its_connection_when_it_is_rejected() {
    for answer in ["BUSY\n", "Unknown outcome\n"] {
        let most = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&most);
        let target = server(move |_, at, ask| {
            seen.fetch_max(at, Ordering::SeqCst);
            list(ask).or(Some(answer.to_owned()))
        });
        let (arrival, think) = (Arrival::Constant, Think::None);
        let (run, _) = load(&LoadPlan {
            pace: Pace::PartlyOpen { sessions_per_s: 100.0, arrival, requests_mean: 5.0, think },
            ..plan(target)
        });
        assert_eq!(run.outcomes.sent, 20, "{answer}: {:?}", run.outcomes);
        assert_eq!(most.load(Ordering::SeqCst), 0, "{answer}");
    }
}

/// Runs against a server that never answers one request, with a timeout of three seconds.
fn run_with_a_stall() -> Run {
    let target = server(|number, at, ask| {
        if (number, at) == (1, 3000) {
            std::thread::sleep(Duration::from_secs(600));
        }
        list(ask).or(Some("Not enough left stocks\n".to_owned()))
    });
    let timeout = Duration::from_secs(3);
    let (run, _) = load(&LoadPlan { requests_max: 3500, timeout, ..plan(target) });
    assert!(run.outcomes.timed_out >= 1, "{:?}", run.outcomes);
    run
}

#[test]
fn a_stall_in_which_a_request_times_out_is_reported() {
    // Another request can time out on a busy machine.
    let is_wanted = |run: &Run| run.outcomes.timed_out == 1;
    let run = one_of("one timeout", run_with_a_stall, is_wanted);
    let stall = run.stall.expect("three seconds without answers");
    assert!(stall.max_ns >= 2_990_000_000, "{stall:?}");
}

#[test]
fn a_server_that_disappears_ends_the_load_without_losing_its_results() {
    // Connection 0 requests the list, and connection 1 is closed after three answers.
    let target = server(|number, at, ask| match (number, at) {
        (0, _) => list(ask),
        (1, 0..3) => Some("Not enough left stocks\n".to_owned()),
        _ => None,
    });
    let timeout = Duration::from_secs(2);
    let plan = LoadPlan { requests_max: u64::MAX, timeout, keep_history: true, ..plan(target) };
    let (run, history) = load(&plan);
    let lost = run.lost.as_deref().unwrap();
    assert!(lost.contains("consecutive connections failed"), "{lost}");
    assert_eq!(run.outcomes.answered, 3, "{:?}", run.outcomes);
    assert!(run.elapsed_ns < 600_000_000_000, "{}", run.elapsed_ns);
    assert!(!run.conservation.checked);
    assert_eq!(run.conservation.reason.as_deref(), Some(lost));
    let events = history.unwrap().events;
    let answered = events.iter().filter(|event| event.ret_ns.is_some()).count();
    assert_eq!(answered, 3);
    assert!(events.len() > answered, "requests in flight have an unknown outcome");
}

#[test]
fn a_server_that_is_away_for_less_than_the_timeout_is_not_gone() {
    // More than a hundred connections fail within a few seconds.
    let target = server(|number, _, ask| {
        let answer = || Some("Not enough left stocks\n".to_owned());
        if (1..=150).contains(&number) { None } else { list(ask).or_else(answer) }
    });
    let (run, _) = load(&LoadPlan { requests_max: 200, ..plan(target) });
    assert_eq!(run.lost, None);
    assert_eq!((run.outcomes.lost, run.outcomes.answered), (150, 50), "{:?}", run.outcomes);
}

#[test]
fn requests_that_were_never_sent_are_not_in_the_history() {
    // Answers the list before the load, and then stops listening.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        drop(listener);
        serve(stream, 0, |_, _, ask| list(ask));
    });
    let plan = LoadPlan { conserve: false, keep_history: true, ..plan(target) };
    let (run, history) = load(&plan);
    assert!(run.outcomes.lost > 0, "{:?}", run.outcomes);
    let events = history.unwrap().events;
    assert!(events.is_empty(), "{events:?}");
}

/// Runs for 498 ms against a server that is gone.
fn run_without_a_server() -> Run {
    // Answers the list before the load, and then stops listening.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        drop(listener);
        serve(stream, 0, |_, _, ask| list(ask));
    });
    let arrival = Arrival::Constant;
    let think = Think::Exponential(Duration::ZERO);
    let (run, _) = load(&LoadPlan {
        pace: Pace::PartlyOpen { sessions_per_s: 100.0, arrival, requests_mean: 1.0, think },
        requests_max: u64::MAX,
        duration: Duration::from_micros(498_000),
        conserve: false,
        ..plan(target)
    });
    // The last request before the end is the 49th, at 490 ms.
    assert_eq!(run.outcomes.sent + run.outcomes.unsent, 49, "{:?}", run.outcomes);
    assert_eq!(run.latency.corrected.count, 49, "{:?}", run.outcomes);
    run
}

#[test]
fn arrivals_without_a_server_are_reported() {
    // A load thread that is late, even by the 8 ms after the last arrival, does not try them all.
    let is_wanted = |run: &Run| run.outcomes.lost == 49;
    one_of("49 lost arrivals", run_without_a_server, is_wanted);
}

#[test]
fn waiting_original_clients_can_be_interrupted() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let target = server(move |_, _, ask| {
        list(ask).or_else(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_secs(600));
            None
        })
    });
    let multi = Multiclient { clients: 2, orders: 3, sleep: Duration::from_millis(1), pool: None };
    let stop = AtomicBool::new(false);
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            while asked.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::SeqCst);
        });
        multiclient(&plan(target), &multi, &stop, &mut |_| {}).unwrap()
    });
    let out = &run.outcomes;
    assert_eq!((out.sent, out.unanswered, out.lost, out.timed_out), (2, 2, 0, 0), "{run:?}");
    assert!(run.interrupted && run.law_error.is_none(), "{run:?}");
}

/// Runs two clients, one of which gets no answer from this request on.
fn run_with_a_silent_client(silent_from: usize) -> MultiRun {
    // Connection 0 requests the list before the run, 1 and 2 are the clients.
    let target = server(move |number, at, ask| {
        if number == 2 && at >= silent_from {
            std::thread::sleep(Duration::from_secs(600));
        }
        list(ask).or(Some("Not enough left stocks\n".to_owned()))
    });
    let sleep = Duration::from_millis(1);
    let multi = Multiclient { clients: 2, orders: 3, sleep, pool: None };
    let plan = LoadPlan { timeout: Duration::from_secs(3), ..plan(target) };
    let run = multiclient(&plan, &multi, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(run.outcomes.timed_out >= 1, "{run:?}");
    run
}

#[test]
fn one_client_without_answers_times_out() {
    for silent_from in [0, 1] {
        let run = || run_with_a_silent_client(silent_from);
        // Both can time out on a busy machine.
        let run = one_of("one timeout", run, |run| run.outcomes.timed_out == 1);
        let out = &run.outcomes;
        assert_eq!((out.unanswered, out.lost), (1, 0), "{run:?}");
        assert_eq!(out.answered, 3 + silent_from as u64, "{run:?}");
        assert!(!run.is_right() && run.wrong_samples[0].contains("no answer within"), "{run:?}");
    }
}

#[test]
fn clients_behind_one_that_is_never_answered_are_served() {
    // The client that connects first may be one that waits as long as all others, so try again.
    let served = (0..5).map(|_| pool_with_a_stuck_client()).find(|run| {
        assert!(run.outcomes.timed_out >= 1 && !run.is_right(), "{run:?}");
        run.outcomes.answered >= 2
    });
    assert!(served.is_some(), "all clients timed out together");
}

/// Runs three clients against a pool of one thread that never answers the first.
fn pool_with_a_stuck_client() -> MultiRun {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            if number == 1 {
                // Its thread is free when the client closes the connection.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            } else {
                serve(stream, number, |_, _, ask| {
                    list(ask).or(Some("Not enough left stocks\n".to_owned()))
                });
            }
        }
    });
    let multi = Multiclient { clients: 3, orders: 2, sleep: Duration::ZERO, pool: Some(1) };
    let plan = LoadPlan { timeout: Duration::from_secs(1), ..plan(target) };
    multiclient(&plan, &multi, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

#[test]
fn an_expected_time_of_zero_has_no_error() {
    let target = server(|_, _, ask| list(ask).or(Some("Not enough left stocks\n".to_owned())));
    let run = |sleep, plan: &LoadPlan| {
        let multi = Multiclient { clients: 2, orders: 2, sleep, pool: None };
        multiclient(plan, &multi, &AtomicBool::new(false), &mut |_| {})
    };
    let awake = run(Duration::ZERO, &plan(target)).unwrap();
    assert_eq!((awake.law_ns, awake.law_error), (0, None));
    let asleep = run(Duration::from_millis(2), &plan(target)).unwrap();
    assert_eq!((asleep.law_ns, asleep.overslept.count), (4_000_000, 4));
    assert!(asleep.law_error.is_some_and(|error| error >= 0.0), "{asleep:?}");
    let nothing = LoadPlan { count_max: 0, ..plan(target) };
    assert!(matches!(run(Duration::ZERO, &nothing), Err(LoadError::Plan(_))));
}
