//! What well-behaved clients of each protocol see, the same under every model.

use crate::bench::{Bench, Client, every_model, sharings, short_limits};
use crate::conversation::{every_protocol, pipelined};
use ioloom_exchange::Token;
use ioloom_serve::{Durability, Model, Sharing, ShowMode, held_refusal};
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn every_protocol_is_spoken() {
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
        assert_eq!(client.ask("buy 1 10"), "[buy] success\n");
        client.say("exit\n");
        client.rest();
        drop(client);
        // The file follows the last connection shortly after.
        for _ in 0..2000 {
            if bench.stocks().starts_with("1 990 10\n") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(bench.stocks(), "1 990 10\n2 1000 20\n3 5 30\n", "{model}");
        let mut client = bench.client();
        assert_eq!(client.ask("sell 3 1"), "[sell] success\n");
        let (dir, ended) = bench.end();
        let stocks = std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
        assert_eq!(stocks, "1 990 10\n2 1000 20\n3 6 30\n", "{model}");
        assert_eq!(ended.done, 2, "{model}");
    });
}

#[test]
fn who_does_not_show_the_token_is_not_served() {
    every_model(|model| {
        let token = "correct-horse-battery";
        let bench = Bench::with(model, |config| config.token = Token::new(token).ok());
        let mut guest = bench.client();
        guest.say("buy 1 1\n");
        assert_eq!(guest.rest(), "Token needed\n", "{model}");
        let mut guest = Client::new(bench.address);
        guest.say("HELLO stock/2 token=wrong\n1 BUY 1 1\n");
        assert_eq!(guest.rest(), "ERR no-token\n", "{model}");
        let mut guest = Client::new(bench.address);
        guest.say("*3\r\n$3\r\nBUY\r\n$1\r\n1\r\n$1\r\n9\r\n*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n");
        assert_eq!(guest.rest(), "-NOAUTH no-token\r\n-NOAUTH no-token\r\n", "{model}");
        let mut known = Client::new(bench.address);
        known.say(format!("HELLO stock/2 token={token}\n1 BUY 1 1\n2 EXIT\n"));
        assert_eq!(known.rest(), "HELLO stock/2 window=128\n1 OK 999 1\n2 BYE\n", "{model}");
    });
}

#[test]
fn who_does_not_show_the_token_in_time_keeps_no_place() {
    every_model(|model| {
        let token = "correct-horse-battery";
        let bench = Bench::with(model, |config| config.token = Token::new(token).ok());
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
        let mut known = Client::new(bench.address);
        assert_eq!(
            known.ask(&format!("HELLO stock/2 token={token}")),
            "HELLO stock/2 window=128\n"
        );
        // Who has shown it may be silent for longer.
        std::thread::sleep(short_limits().request * 2);
        assert_eq!(known.ask("1 BUY 1 1"), "1 OK 999 1\n", "{model}");
    });
}

/// `late` would say that it was not carried out, and it was.
#[test]
fn an_order_that_is_repeated_too_late_has_the_answer_that_it_had() {
    for model in [Model::Epoll, Model::Thread, Model::RequestPool, Model::IoThreads] {
        for sharing in sharings(model, Durability::None) {
            let bench = Bench::with(model, |config| {
                // Whatever is not waited for is late.
                config.service_time = Duration::from_millis(1);
                config.sharing = sharing;
            });
            let mut client = Client::new(bench.address);
            client.say("HELLO stock/2 client=a\n1 BUY 1 10\n1 BUY 1 10 deadline=0\n");
            client.say("2 BUY 1 1 deadline=0\n3 BUY 9 1\n3 BUY 9 1 deadline=0\n4 EXIT\n");
            let told = "HELLO stock/2 window=128\n1 OK 990 1\n1 OK 990 1\n2 ERR late\n\
                        3 ERR unknown-stock\n3 ERR unknown-stock\n4 BYE\n";
            assert_eq!(client.rest(), told, "{model} {sharing}");
        }
    }
}

#[test]
fn requests_take_the_service_time_that_was_asked_for() {
    let each = Duration::from_millis(5);
    every_model(|model| {
        let bench = Bench::with(model, |config| config.service_time = each);
        let mut client = bench.client();
        let began = Instant::now();
        for _ in 0..4 {
            assert_eq!(client.ask("buy 1 1"), "[buy] success\n", "{model}");
        }
        // Never less; how much more is not judged.
        assert!(began.elapsed() >= each * 4, "{model}");
    });
}

#[test]
fn service_times_with_stocks_held_are_spent_in_every_sharing_that_holds() {
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
            assert_eq!(client.ask("buy 1 1"), "[buy] success\n", "{model} {sharing}");
            assert_eq!(client.ask("buy 9 1"), "No such stock\n", "{model} {sharing}");
            client.say("show\n");
            let lines = [client.line(), client.line(), client.line()];
            assert_eq!(lines.concat(), "1 999 10\n2 1000 20\n3 5 30\n", "{model} {sharing}");
            // Never less than for two orders and a list; how much more is not judged.
            assert!(began.elapsed() >= each * 3, "{model} {sharing}");
        }
    }
}
