//! Loads against this project's server, the null server, and faulty servers.

#![allow(clippy::print_stdout, reason = "skipped tests print the reason")]

mod liar;
mod moments;
mod trickle;

use ioloom_load::check::{Lists, STATES_MAX, Verdict, check};
use ioloom_load::{
    Arrival, History, LoadError, LoadPlan, Mix, Multiclient, NullServer, Pace, Protocol, Run, Skew,
    Think, multiclient, null_client,
};
use ioloom_serve::{
    Durability, Limits, Model, ServeOptions, Server, ServerHandle, ShowMode, StoreChoice, StoreKind,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

const PROTOCOLS: [Protocol; 4] = [Protocol::Padded, Protocol::Line, Protocol::V2, Protocol::Resp];

/// A server in this process.
struct Served {
    _dir: TempDir,
    padded: SocketAddr,
    line: SocketAddr,
    stop: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(stocks: &str, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let dir = TempDir::new().unwrap();
        let stock = dir.path().join("stock.txt");
        std::fs::write(&stock, stocks).unwrap();
        let mut config = ServeOptions {
            model: Model::Epoll,
            sharing: Model::Epoll.default_sharing(),
            show: ShowMode::Atomic,
            durability: Durability::None,
            store: StoreChoice {
                kind: StoreKind::Sqlite,
                path: dir.path().join("store"),
                accept_loss: false,
            },
            database: None,
            stock,
            listen: ([127, 0, 0, 1], 0).into(),
            listen_line: Some(([127, 0, 0, 1], 0).into()),
            settings: ioloom_exchange::Settings::default(),
            limits: Limits { hog: Duration::from_secs(60), ..Limits::default() },
            cores: 2,
            access: None,
            tls: None,
            service_time: Duration::ZERO,
            service_in_lock: false,
        };
        change(&mut config);
        let server = Server::start(&config).unwrap();
        let [padded, line] = server.addresses() else { panic!("expected two addresses") };
        let (padded, line, stop) = (*padded, *line, server.handle());
        let thread = Some(std::thread::spawn(move || {
            server.run().unwrap();
        }));
        Self { _dir: dir, padded, line, stop, thread }
    }

    fn plan(&self, protocol: Protocol) -> LoadPlan {
        let target = if protocol == Protocol::Line { self.line } else { self.padded };
        LoadPlan {
            protocol,
            connections: 3,
            requests_max: 300,
            duration: Duration::from_secs(600),
            timeout: Duration::from_secs(120),
            ..LoadPlan::new(target)
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok());
    }
}

const STOCKS: &str = "1 50 10\n2 1000 20\n7 5 30\n";

fn load(plan: &LoadPlan) -> (Run, Option<History>) {
    ioloom_load::run(plan, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

fn is_whole(run: &Run) {
    assert!(run.is_right(), "{run:?}");
    assert!(run.conservation.checked, "{:?}", run.conservation);
    let out = &run.outcomes;
    assert_eq!(out.sent, out.traded + out.refused + out.listed + out.turned_away + out.unanswered);
}

#[test]
fn every_protocol_is_loaded_and_verified() {
    let server = Served::new(STOCKS, |_| {});
    for protocol in PROTOCOLS {
        for pipeline in [1, 8] {
            let (run, _) = load(&LoadPlan { pipeline, ..server.plan(protocol) });
            is_whole(&run);
            assert_eq!(run.outcomes.answered, 300, "{protocol:?}");
            assert_eq!(run.latency.corrected.count, 300);
            assert!(run.outcomes.traded > 0 && run.outcomes.listed > 0, "{:?}", run.outcomes);
        }
    }
}

#[test]
fn a_server_with_a_token_can_be_loaded() {
    let token = "correct-horse-battery";
    let asked = ioloom_exchange::Token::new(token).unwrap();
    let server = Served::new(STOCKS, |config| config.access = Some(asked.into()));
    for protocol in [Protocol::V2, Protocol::Resp] {
        let plan = LoadPlan { token: Some(token.to_owned()), ..server.plan(protocol) };
        let (run, _) = load(&plan);
        is_whole(&run);
        assert_eq!(run.outcomes.answered, 300, "{protocol:?}");
        for other in [None, Some("another-horse-battery".to_owned())] {
            let plan = LoadPlan { token: other, ..plan.clone() };
            let error = ioloom_load::run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
            assert!(error.to_string().contains("no-token"), "{protocol:?}: {error}");
        }
    }
}

#[test]
fn a_second_run_under_the_same_name_repeats_no_orders() {
    let server = Served::new(STOCKS, |_| {});
    for _ in 0..2 {
        let mix = Mix { show: 0.0, buy: 1.0, sell: 1.0 };
        let plan = LoadPlan { name: Some("a".to_owned()), mix, ..server.plan(Protocol::V2) };
        let (run, _) = load(&plan);
        is_whole(&run);
        assert_eq!(run.outcomes.answered, 300, "{:?}", run.outcomes);
    }
}

#[test]
fn threads_mixes_and_skews_change_only_the_requests() {
    let server = Served::new(STOCKS, |_| {});
    let mix = Mix { show: 0.0, buy: 1.0, sell: 0.0 };
    let skew = Skew::Hot(1.0);
    let (run, _) =
        load(&LoadPlan { mix, skew, threads: 3, count_max: 1, ..server.plan(Protocol::V2) });
    is_whole(&run);
    // The only stock that was ordered had fifty shares.
    assert_eq!((run.outcomes.traded, run.outcomes.listed), (50, 0));
    assert_eq!(run.generator.threads, 3);
}

#[test]
fn a_truncated_list_is_compared_as_far_as_possible() {
    let stocks: String = (1..=2000).map(|id| format!("{id} 100 5\n")).collect();
    let server = Served::new(&stocks, |_| {});
    let (run, _) = load(&server.plan(Protocol::Padded));
    is_whole(&run);
    assert!((300..2000).contains(&run.conservation.stocks), "{:?}", run.conservation);
    let (run, _) = load(&LoadPlan { requests_max: 60, ..server.plan(Protocol::Line) });
    is_whole(&run);
    assert_eq!(run.conservation.stocks, 2000);
}

/// Each sale makes a line longer, so fewer lines fit into the final list.
#[test]
fn truncated_lists_that_become_shorter_are_compared_and_explained() {
    let stocks: String = (1..=2000).map(|id| format!("{id} 9 1\n")).collect();
    let server = Served::new(&stocks, |_| {});
    let (run, history) = load(&LoadPlan {
        mix: Mix { show: 0.01, buy: 0.0, sell: 1.0 },
        requests_max: 5000,
        connections: 1,
        keep_history: true,
        ..server.plan(Protocol::Padded)
    });
    is_whole(&run);
    assert!(run.outcomes.listed > 0, "{:?}", run.outcomes);
    let history = history.unwrap();
    assert_eq!(check(&history, Lists::Atomic, STATES_MAX), Verdict::Explained);
}

#[test]
fn an_open_loop_accounts_for_every_arrival() {
    let server = Served::new(STOCKS, |_| {});
    let plan = LoadPlan {
        pace: Pace::Open { rate_per_s: 400.0, arrival: Arrival::Constant },
        // The last arrival before the end is the 199th, at 497.5 ms.
        duration: Duration::from_micros(498_000),
        requests_max: u64::MAX,
        threads: 2,
        ..server.plan(Protocol::Resp)
    };
    let (run, _) = load(&plan);
    is_whole(&run);
    assert_eq!(run.outcomes.sent + run.outcomes.unsent, 199);
    assert_eq!(run.latency.corrected.count, 199);
    assert_eq!(run.latency.raw.count, run.outcomes.answered);
    let offered_per_s = run.offered_per_s.unwrap();
    assert_eq!((run.asked_per_s, run.due), (Some(400.0), Some(199)));
    assert!((offered_per_s - 199.0 / 0.498).abs() < 1e-6, "{offered_per_s}");
}

#[test]
fn a_ramp_offers_less_than_its_rate_and_the_run_reports_it() {
    let server = Served::new(STOCKS, |_| {});
    let ramp = Duration::from_micros(500_100);
    let plan = LoadPlan {
        pace: Pace::Open { rate_per_s: 400.0, arrival: Arrival::Poisson },
        duration: ramp,
        ramp,
        requests_max: u64::MAX,
        threads: 2,
        ..server.plan(Protocol::Resp)
    };
    let (run, _) = load(&plan);
    is_whole(&run);
    // About half of the two hundred arrivals at the full rate.
    let due = run.offered_per_s.unwrap() * 0.500_1;
    assert_eq!(run.outcomes.sent + run.outcomes.unsent, due.round() as u64);
    assert!((50.0..150.0).contains(&due), "{due}");
    assert_eq!(run.asked_per_s, Some(400.0));
}

#[test]
fn sessions_come_and_go() {
    let server = Served::new(STOCKS, |_| {});
    let plan = LoadPlan {
        pace: Pace::PartlyOpen {
            sessions_per_s: 300.0,
            arrival: Arrival::Poisson,
            requests_mean: 4.0,
            think: Think::Exponential(Duration::from_micros(500)),
        },
        requests_max: 200,
        ..server.plan(Protocol::V2)
    };
    let (run, _) = load(&plan);
    is_whole(&run);
    let out = &run.outcomes;
    assert!(out.sessions > 10 && out.sessions < 200, "{out:?}");
    assert!(out.lost == 0, "{out:?}");
}

#[test]
fn a_full_server_rejects_connections_and_serves_the_rest() {
    let server = Served::new(STOCKS, |config| config.limits.connections = 2);
    let plan = LoadPlan { connections: 5, requests_max: 2000, ..server.plan(Protocol::Line) };
    let (run, _) = load(&plan);
    assert!(run.is_right(), "{run:?}");
    let away = run.outcomes.turned_away + run.outcomes.lost;
    assert!(away > 0 && run.outcomes.answered > 0, "{:?}", run.outcomes);
}

#[test]
fn a_history_has_every_request() {
    let server = Served::new(STOCKS, |_| {});
    let (run, history) = load(&LoadPlan { keep_history: true, ..server.plan(Protocol::V2) });
    let history = history.unwrap();
    assert_eq!(history.events.len() as u64, run.outcomes.sent);
    assert!(
        history.events.iter().all(|event| event.ret_ns.is_some_and(|ret| ret >= event.call_ns))
    );
    assert_eq!(history.initial.len(), 3);
}

#[test]
fn the_original_client_takes_as_long_as_its_sleeps_in_rounds() {
    for (model, pool) in [(Model::Epoll, None), (Model::Pool, Some(2))] {
        let server = Served::new(STOCKS, |config| {
            config.model = model;
            config.limits.threads = 2;
        });
        let sleep = Duration::from_millis(20);
        let multi = Multiclient { clients: 5, orders: 3, sleep, pool };
        let stop = AtomicBool::new(false);
        let plan = server.plan(Protocol::Padded);
        let run = multiclient(&plan, &multi, &stop, &mut |_| {}).unwrap();
        assert!(run.is_right() && run.conservation.checked, "{run:?}");
        assert_eq!(run.outcomes.answered, 15);
        let rounds = if pool.is_some() { 3 } else { 1 };
        assert_eq!(run.law_ns, rounds * 3 * 20_000_000);
        // The run cannot be shorter than its sleeps.
        assert!(run.elapsed_ns >= run.law_ns, "{model}: {run:?}");
    }
}

#[test]
fn baselines_work_in_every_protocol() {
    for protocol in PROTOCOLS {
        let server = NullServer::bind(([127, 0, 0, 1], 0).into(), protocol).unwrap();
        let target = server.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stop_too = Arc::clone(&stop);
        let thread = std::thread::spawn(move || server.run(&stop_too));
        let plan = LoadPlan {
            protocol,
            conserve: false,
            pipeline: 100,
            requests_max: 2000,
            timeout: Duration::from_secs(120),
            ..LoadPlan::new(target)
        };
        let (run, _) = load(&plan);
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap().unwrap();
        assert_eq!(run.outcomes.answered, 2000, "{run:?}");
        assert!(run.is_right() && !run.conservation.checked);
        let null = null_client(&plan, 1000).unwrap();
        assert_eq!((null.requests, null.latency.count), (1000, 1000));
    }
}

#[test]
fn impossible_loads_are_refused() {
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let run =
        |plan: &LoadPlan| ioloom_load::run(plan, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(matches!(run(&LoadPlan::new(nobody)), LoadError::Connect { .. }));
    assert!(matches!(
        run(&LoadPlan { connections: 0, ..LoadPlan::new(nobody) }),
        LoadError::Plan(_)
    ));
    let far = run(&LoadPlan { cpus: vec![100_000], ..LoadPlan::new(nobody) });
    assert!(matches!(far, LoadError::Refused(_)) && far.to_string().contains("100000"), "{far}");
}
