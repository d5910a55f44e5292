//! What clients of every protocol ask of one server, and what each must hear: the same whatever keeps
//! the orders behind it, and whether or not TLS is between.

use crate::bench::{Bench, Client, STOCKS};
use ioloom_serve::Model;

/// A client of each protocol after the other, then pages in which `health` must stand, then a stop.
pub(crate) fn every_protocol(bench: Bench, model: Model, health: &[&str]) {
    padded(&mut bench.dial(bench.address), model);
    lines(&mut bench.client(), model);
    numbered(&mut bench.dial(bench.address), model);
    let mut resp = bench.dial(bench.address);
    resp.say("*3\r\n$3\r\nBUY\r\n$1\r\n1\r\n$1\r\n9\r\n*1\r\n$4\r\nQUIT\r\n");
    assert_eq!(resp.rest(), ":966\r\n+OK\r\n", "{model}");
    drop(resp);
    for (page, words) in [
        ("show", &["1 966 10\n"][..]),
        ("healthz", health),
        ("metrics", &["orders_done_total 7\n"][..]),
    ] {
        let mut http = bench.dial(bench.address);
        http.say(format!("GET /{page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        let text = http.rest();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{model}: {text}");
        for word in words {
            assert!(text.contains(word), "{model}: {text}");
        }
    }
    let (dir, ended) = bench.end();
    assert_eq!(ended.done, 7, "{model}");
    let stocks = std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
    assert_eq!(stocks, "1 966 10\n2 1000 20\n3 13 30\n", "{model}");
}

/// The original clients, whose answers are all of one length.
fn padded(client: &mut Client, model: Model) {
    for (ask, told) in [
        ("show\n", STOCKS),
        ("buy 1 10\n", "[buy] success\n"),
        ("buy 3 6\n", "Not enough left stocks\n"),
        ("sell 3 6\n", "[sell] success\n"),
        ("show\n", "1 990 10\n2 1000 20\n3 11 30\n"),
    ] {
        client.say(ask);
        let answer = client.take(8192);
        let (said, padding) = answer.split_at(told.len());
        assert_eq!(said, told, "{model}: {ask}");
        assert!(padding.bytes().all(|byte| byte == 0), "{model}: {ask}");
    }
    client.say("exit\n");
    assert_eq!(client.rest(), "", "{model}");
}

fn lines(client: &mut Client, model: Model) {
    for (ask, told) in [
        ("buy 1 5", "[buy] success\n"),
        ("buy 3 12", "Not enough left stocks\n"),
        ("sell 9 1", "No such stock\n"),
    ] {
        assert_eq!(client.ask(ask), told, "{model}: {ask}");
    }
}

/// Orders with numbers, of which a second one with the same number gets the answer of the first.
fn numbered(client: &mut Client, model: Model) {
    client.say("HELLO stock/2 client=a\n1 BUY 1 10\n2 SHOW\n3 SELL 3 2\n1 BUY 1 10\n4 SHOW\n");
    client.say("5 BUY 3 14\n6 BUY 9 1\n7 SELL 1 2147483647\n5 BUY 3 14\n8 EXIT\n");
    let told = "HELLO stock/2 window=128\n1 OK 975 4\n2 STOCKS 3 4\n1 975 10\n2 1000 20\n3 11 30\n\
                3 OK 13 5\n1 OK 975 4\n4 STOCKS 3 5\n1 975 10\n2 1000 20\n3 13 30\n\
                5 ERR not-enough\n6 ERR unknown-stock\n7 ERR too-many\n5 ERR not-enough\n8 BYE\n";
    assert_eq!(client.rest(), told, "{model}");
}

/// So many orders sent at once are answered in their order.
pub(crate) fn pipelined(bench: &Bench, model: Model, count: u32) {
    let mut client = bench.client();
    let orders: String = (1..=count).map(|id| format!("{id} BUY 1 1\n")).collect();
    client.say(format!("HELLO stock/2\n{orders}{} EXIT\n", count + 1));
    let told: String = (1..=count).map(|id| format!("{id} OK {} {id}\n", 1000 - id)).collect();
    let told = format!("HELLO stock/2 window=128\n{told}{} BYE\n", count + 1);
    assert_eq!(client.rest(), told, "{model}");
}
