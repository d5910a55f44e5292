//! Behaviour that well-behaved clients of each protocol see with every model.

use crate::bench::{Bench, Client, LONG_REQUEST, every_model, sharings, short_limits};
use crate::conversation::{every_protocol, pipelined};
use ioloom_exchange::{Access, Token};
use ioloom_serve::{Durability, Model, Sharing, ShowMode, held_refusal};
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn every_protocol_works() {
    every_model(|model| every_protocol(Bench::new(model), model, &["ok\n"]));
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    every_model(|model| pipelined(&Bench::new(model), model, 900));
}

#[test]
fn the_stock_file_is_written_when_the_last_client_leaves_and_at_the_end() {
    every_model(|model| {
        let bench = Bench::new(model);
        let mut client = bench.client();
        assert_eq!(client.request("buy 1 10"), "[buy] success\n");
        client.send("exit\n");
        client.rest();
        drop(client);
        // The file is written shortly after the last connection is closed.
        for _ in 0..12_000 {
            if bench.stocks().starts_with("1 990 10\n") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(bench.stocks(), "1 990 10\n2 1000 20\n3 5 30\n", "{model}");
        let mut client = bench.client();
        assert_eq!(client.request("sell 3 1"), "[sell] success\n");
        let (dir, ended) = bench.end();
        let stocks = std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
        assert_eq!(stocks, "1 990 10\n2 1000 20\n3 6 30\n", "{model}");
        assert_eq!(ended.done, 2, "{model}");
    });
}

#[test]
fn clients_without_the_token_are_rejected() {
    every_model(|model| {
        let token = "correct-horse-battery";
        let bench = Bench::with(model, |config| {
            config.access = Token::new(token).ok().map(Access::from);
            config.limits.request = LONG_REQUEST;
        });
        let mut guest = bench.client();
        guest.send("buy 1 1\n");
        assert_eq!(guest.rest(), "Token needed\n", "{model}");
        let mut guest = Client::new(bench.address);
        guest.send("HELLO stock/2 token=wrong\n1 BUY 1 1\n");
        assert_eq!(guest.rest(), "ERR no-token\n", "{model}");
        let mut guest = Client::new(bench.address);
        guest.send("*3\r\n$3\r\nBUY\r\n$1\r\n1\r\n$1\r\n9\r\n*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n");
        assert_eq!(guest.rest(), "-NOAUTH no-token\r\n-NOAUTH no-token\r\n", "{model}");
        let mut known = Client::new(bench.address);
        known.send(format!("HELLO stock/2 token={token}\n1 BUY 1 1\n2 EXIT\n"));
        assert_eq!(known.rest(), "HELLO stock/2 window=128\n1 OK 999 1\n2 BYE\n", "{model}");
    });
}

/// Returns a client that has presented its token. A pause of the machine can use up the short time
/// for this, so it may need several connections.
fn greeted(bench: &Bench, token: &str) -> Client {
    let greeted = (0..100).find_map(|_| {
        let mut client = Client::new(bench.address);
        let hello = format!("HELLO stock/2 token={token}\n");
        client.stream.write_all(hello.as_bytes()).ok()?;
        let said = client.try_line()?;
        assert_eq!(said, "HELLO stock/2 window=128\n");
        Some(client)
    });
    greeted.expect("a client with the token is served")
}

#[test]
fn clients_without_the_token_are_disconnected_in_time() {
    every_model(|model| {
        let token = "correct-horse-battery";
        let bench =
            Bench::with(model, |config| config.access = Token::new(token).ok().map(Access::from));
        let mut silent = bench.client();
        assert_eq!(silent.rest(), "", "{model}");
        drop(silent);
        let mut talks = Client::new(bench.address);
        let is_cut = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(30));
            talks.stream.write_all(b"*1\r\n$4\r\nPING\r\n").is_err()
        });
        assert!(is_cut, "{model}");
        drop(talks);
        let mut known = greeted(&bench, token);
        // A client that has presented the token may be idle for longer.
        std::thread::sleep(short_limits().request * 2);
        assert_eq!(known.request("1 BUY 1 1"), "1 OK 999 1\n", "{model}");
    });
}

/// The answer `late` would claim that the order was not executed.
#[test]
fn orders_repeated_after_the_deadline_get_their_answer() {
    for model in [Model::Epoll, Model::Thread, Model::RequestPool, Model::IoThreads] {
        for sharing in sharings(model, Durability::None) {
            let bench = Bench::with(model, |config| {
                // A deadline of zero has always passed.
                config.service_time = Duration::from_millis(1);
                config.sharing = sharing;
            });
            let mut client = Client::new(bench.address);
            client.send("HELLO stock/2 client=a\n1 BUY 1 10\n1 BUY 1 10 deadline=0\n");
            client.send("2 BUY 1 1 deadline=0\n3 BUY 9 1\n3 BUY 9 1 deadline=0\n4 EXIT\n");
            let expected = "HELLO stock/2 window=128\n1 OK 990 1\n1 OK 990 1\n2 ERR late\n\
                        3 ERR unknown-stock\n3 ERR unknown-stock\n4 BYE\n";
            assert_eq!(client.rest(), expected, "{model} {sharing}");
        }
    }
}

#[test]
fn requests_take_the_configured_service_time() {
    let each = Duration::from_millis(5);
    every_model(|model| {
        let bench = Bench::with(model, |config| config.service_time = each);
        let mut client = bench.client();
        let began = Instant::now();
        for _ in 0..4 {
            assert_eq!(client.request("buy 1 1"), "[buy] success\n", "{model}");
        }
        // Never less than this; the upper bound is not tested.
        assert!(began.elapsed() >= each * 4, "{model}");
    });
}

#[test]
fn service_time_under_lock_works_in_every_sharing_with_locks() {
    let each = Duration::from_millis(2);
    for model in [Model::Epoll, Model::Thread, Model::RequestPool] {
        for sharing in sharings(model, Durability::None) {
            if held_refusal(sharing, ShowMode::Atomic).is_some() {
                assert_eq!(sharing, Sharing::Atomic);
                continue;
            }
            let bench = Bench::with(model, |config| {
                (config.sharing, config.service_time) = (sharing, each);
                config.service_in_lock = true;
            });
            let mut client = bench.client();
            let began = Instant::now();
            assert_eq!(client.request("buy 1 1"), "[buy] success\n", "{model} {sharing}");
            assert_eq!(client.request("buy 9 1"), "No such stock\n", "{model} {sharing}");
            client.send("show\n");
            let lines = [client.line(), client.line(), client.line()];
            assert_eq!(lines.concat(), "1 999 10\n2 1000 20\n3 5 30\n", "{model} {sharing}");
            // Never less than for two orders and a list; the upper bound is not tested.
            assert!(began.elapsed() >= each * 3, "{model} {sharing}");
        }
    }
}
