//! Many concurrent clients with every model and sharing strategy: no order is lost or executed
//! twice, and lists are atomic.

use crate::bench::{Bench, Client, every_model, sharings};
use ioloom_serve::{Durability, Model, Sharing, ShowMode};
use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLIENTS: usize = 4;
const ORDERS: u64 = 150;

fn number(word: &str) -> i64 {
    word.parse().unwrap()
}

#[test]
fn clients_and_stocks_agree_in_the_end() {
    every_model(|model| {
        for sharing in sharings(model, Durability::None) {
            let bench = Bench::with(model, |config| {
                config.sharing = sharing;
                // A client that pauses while others wait for its thread is not disconnected.
                config.limits.hog = Duration::from_secs(3600);
            });
            // Stock 3 has 5 shares, so most purchases are refused.
            let bought: i64 = std::thread::scope(|scope| {
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|_| {
                        let bench = &bench;
                        scope.spawn(move || {
                            let mut client = bench.client();
                            let mut bought = 0;
                            for at in 0..ORDERS {
                                let sells = at % 10 == 9;
                                let ask = if sells { "sell 3 1" } else { "buy 3 1" };
                                match client.request(ask).as_str() {
                                    "[buy] success\n" => bought += 1,
                                    "[sell] success\n" => bought -= 1,
                                    "Not enough left stocks\n" => {}
                                    other => panic!("{model} {sharing}: {other}"),
                                }
                            }
                            bought
                        })
                    })
                    .collect();
                clients.into_iter().map(|client| client.join().unwrap()).sum()
            });
            let mut client = bench.client();
            client.send("show\n");
            let lines = [client.line(), client.line(), client.line()];
            let left = number(lines[2].split(' ').nth(1).unwrap());
            assert_eq!(left, 5 - bought, "{model} {sharing}");
            assert!(left >= 0);
        }
    });
}

#[test]
fn the_same_order_on_two_connections_executes_once() {
    every_model(|model| {
        if model == Model::Iterative {
            return; // one connection at a time
        }
        for sharing in sharings(model, Durability::None) {
            let bench = Bench::with(model, |config| config.sharing = sharing);
            let answers: Vec<String> = std::thread::scope(|scope| {
                let both: Vec<_> = (0..2)
                    .map(|_| {
                        let bench = &bench;
                        scope.spawn(move || {
                            let mut client = Client::new(bench.address);
                            let orders: String =
                                (1..=60).map(|id| format!("{id} BUY 1 1\n")).collect();
                            client.send(format!("HELLO stock/2 client=same\n{orders}"));
                            client.end_writing();
                            client.rest()
                        })
                    })
                    .collect();
                both.into_iter().map(|client| client.join().unwrap()).collect()
            });
            assert_eq!(answers[0], answers[1], "{model} {sharing}");
            let mut client = bench.client();
            client.send("show\n");
            assert_eq!(client.line(), "1 940 10\n", "{model} {sharing}");
        }
    });
}

/// Writers move one share at a time from the first stock to the last and back, with two orders
/// each; in every actual state, 0 to 2 shares are in transit. Returns true if a list showed
/// anything else.
fn shows_impossible_states(sharing: Sharing, show: ShowMode, stocks: usize, lists: usize) -> bool {
    let text: String = (1..=stocks).map(|id| format!("{id} 1000 1\n")).collect();
    let bench = Bench::with(Model::Thread, |config| {
        std::fs::write(&config.stock, &text).unwrap();
        (config.sharing, config.show) = (sharing, show);
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = bench.client();
                while !done.load(Ordering::Relaxed) {
                    client.request("buy 1 1");
                    client.request(&format!("sell {stocks} 1"));
                    client.request(&format!("buy {stocks} 1"));
                    client.request("sell 1 1");
                }
            });
        }
        let mut client = BufReader::new(bench.client().stream);
        let mut line = String::new();
        let mut list = || {
            client.get_mut().write_all(b"show\n").unwrap();
            let mut left = || {
                line.clear();
                client.read_line(&mut line).unwrap();
                number(line.split(' ').nth(1).unwrap())
            };
            (0..stocks).map(|_| left()).sum::<i64>()
        };
        let all = 1000 * i64::try_from(stocks).unwrap();
        let seen = (0..lists).any(|_| !(0..=2).contains(&(all - list())));
        done.store(true, Ordering::Relaxed);
        seen
    })
}

#[test]
fn lists_are_atomic_in_every_sharing() {
    for sharing in sharings(Model::Thread, Durability::None) {
        assert!(!shows_impossible_states(sharing, ShowMode::Atomic, 1000, 100), "{sharing}");
    }
}

#[test]
fn per_stock_lists_are_found_to_show_impossible_states() {
    // The test above must be able to detect this: check that it detects per-stock lists.
    assert!(shows_impossible_states(Sharing::Stock, ShowMode::PerStock, 10_000, 2000));
}
