//! Records histories of every model and sharing strategy, and checks their linearizability.

use crate::{Served, load};
use ioloom_load::check::{Lists, STATES_MAX, Verdict, check};
use ioloom_load::{LoadPlan, Mix, Protocol};
use ioloom_serve::{Durability, Model, Sharing, ShowMode, refusal};
use std::time::Duration;

/// Few shares, so some orders are refused and the answers depend on the execution order.
const STOCKS: &str = "1 6 10\n2 8 20\n3 5 30\n";

/// Returns true if this system supports a model.
fn is_possible(model: Model) -> bool {
    let make = || std::thread::spawn(|| ioloom_sys_net::ring::NetRing::new(true).is_err());
    let refused = model.needs_ring() && make().join().unwrap();
    if refused {
        println!("skipped: model {model} requires io_uring, which is not available");
    }
    !refused
}

fn plan(server: &Served, protocol: Protocol, connections: usize) -> LoadPlan {
    LoadPlan {
        connections,
        threads: connections.min(2),
        requests_max: 250,
        count_max: 4,
        keep_history: true,
        ..server.plan(protocol)
    }
}

fn explained(plan: &LoadPlan, what: &str) {
    let (run, history) = load(plan);
    assert!(run.is_right(), "{what}: {run:?}");
    let history = history.unwrap();
    assert!(history.events.len() >= 200, "{what}");
    let verdict = check(&history, Lists::Atomic, STATES_MAX);
    assert_eq!(verdict, Verdict::Explained, "{what}");
}

#[test]
fn every_model_and_sharing_is_linearizable() {
    for model in Model::ALL.iter().copied().filter(|model| is_possible(*model)) {
        for sharing in Sharing::ALL.iter().copied() {
            if refusal(model, sharing, Durability::None).is_some() {
                continue;
            }
            let server = Served::new(STOCKS, |config| {
                (config.model, config.sharing) = (model, sharing);
            });
            // The iterative server handles one connection at a time.
            let connections = if model == Model::Iterative { 1 } else { 6 };
            for protocol in [Protocol::V2, Protocol::Line] {
                let what = format!("{model} {sharing} {protocol:?}");
                explained(&plan(&server, protocol, connections), &what);
            }
        }
    }
}

#[test]
fn durable_servers_are_linearizable_too() {
    // Every sharing strategy with one model, and every model with its default strategy.
    let sharings = Sharing::ALL.iter().map(|sharing| (Model::Thread, *sharing));
    let models = Model::ALL.iter().map(|model| (*model, model.default_sharing()));
    for (model, sharing) in sharings.chain(models) {
        if !is_possible(model) || refusal(model, sharing, Durability::Group).is_some() {
            continue;
        }
        let server = Served::new(STOCKS, |config| {
            (config.model, config.sharing) = (model, sharing);
            config.durability = Durability::Group;
        });
        let connections = if model == Model::Iterative { 1 } else { 6 };
        let what = format!("{model} {sharing} group");
        explained(&plan(&server, Protocol::V2, connections), &what);
    }
}

#[test]
fn per_stock_lists_are_detected_in_a_recorded_history() {
    // Many stocks, so a list takes a long time; repeated up to a limit until an overlap is
    // observed.
    let stocks: String = (1..=8000).map(|id| format!("{id} 1000 1\n")).collect();
    let server = Served::new(&stocks, |config| {
        (config.model, config.sharing) = (Model::Thread, Sharing::Stock);
        config.show = ShowMode::PerStock;
    });
    let found = (1..=40).any(|random| {
        let plan = LoadPlan {
            random,
            mix: Mix { show: 1.0, buy: 30.0, sell: 30.0 },
            requests_max: 1500,
            duration: Duration::from_secs(600),
            ..plan(&server, Protocol::V2, 4)
        };
        let (run, history) = load(&plan);
        assert!(run.is_right(), "{run:?}");
        let history = history.unwrap();
        matches!(check(&history, Lists::Atomic, STATES_MAX), Verdict::Violated { .. })
    });
    // Whether a list overlaps an order is random. A constructed history in `serve` and the tests of
    // the checker show that such a list is detected.
    if !found {
        println!("skipped: no list overlapped an order in 40 runs");
    }
}
