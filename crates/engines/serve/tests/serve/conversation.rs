//! Requests in every protocol and their expected answers, which depend neither on the store nor on
//! TLS.

use crate::bench::{Bench, Client, STOCKS};
use ioloom_serve::Model;

/// Runs a client for each protocol, reads pages that must contain `health`, and stops the server.
pub(crate) fn every_protocol(bench: Bench, model: Model, health: &[&str]) {
    padded(&mut bench.dial(bench.address), model);
    lines(&mut bench.client(), model);
    numbered(&mut bench.dial(bench.address), model);
    let mut resp = bench.dial(bench.address);
    resp.send("*3\r\n$3\r\nBUY\r\n$1\r\n1\r\n$1\r\n9\r\n*1\r\n$4\r\nQUIT\r\n");
    assert_eq!(resp.rest(), ":966\r\n+OK\r\n", "{model}");
    drop(resp);
    for (page, words) in [
        ("show", &["1 966 10\n"][..]),
        ("healthz", health),
        ("metrics", &["orders_done_total 7\n"][..]),
    ] {
        let mut http = bench.dial(bench.address);
        http.send(format!("GET /{page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
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

/// The original protocol with padded answers.
fn padded(client: &mut Client, model: Model) {
    for (request, expected) in [
        ("show\n", STOCKS),
        ("buy 1 10\n", "[buy] success\n"),
        ("buy 3 6\n", "Not enough left stocks\n"),
        ("sell 3 6\n", "[sell] success\n"),
        ("show\n", "1 990 10\n2 1000 20\n3 11 30\n"),
    ] {
        client.send(request);
        let answer = client.take(8192);
        let (said, padding) = answer.split_at(expected.len());
        assert_eq!(said, expected, "{model}: {request}");
        assert!(padding.bytes().all(|byte| byte == 0), "{model}: {request}");
    }
    client.send("exit\n");
    assert_eq!(client.rest(), "", "{model}");
}

fn lines(client: &mut Client, model: Model) {
    for (request, expected) in [
        ("buy 1 5", "[buy] success\n"),
        ("buy 3 12", "Not enough left stocks\n"),
        ("sell 9 1", "No such stock\n"),
    ] {
        assert_eq!(client.request(request), expected, "{model}: {request}");
    }
}

/// Numbered orders; a repeated number gets the answer of the first order.
fn numbered(client: &mut Client, model: Model) {
    client.send("HELLO stock/2 client=a\n1 BUY 1 10\n2 SHOW\n3 SELL 3 2\n1 BUY 1 10\n4 SHOW\n");
    client.send("5 BUY 3 14\n6 BUY 9 1\n7 SELL 1 2147483647\n5 BUY 3 14\n8 EXIT\n");
    let expected = "HELLO stock/2 window=128\n1 OK 975 4\n2 STOCKS 3 4\n1 975 10\n2 1000 20\n3 11 30\n\
                3 OK 13 5\n1 OK 975 4\n4 STOCKS 3 5\n1 975 10\n2 1000 20\n3 13 30\n\
                5 ERR not-enough\n6 ERR unknown-stock\n7 ERR too-many\n5 ERR not-enough\n8 BYE\n";
    assert_eq!(client.rest(), expected, "{model}");
}

/// Answers to pipelined orders arrive in order.
pub(crate) fn pipelined(bench: &Bench, model: Model, count: u32) {
    let mut client = bench.client();
    let orders: String = (1..=count).map(|id| format!("{id} BUY 1 1\n")).collect();
    client.send(format!("HELLO stock/2\n{orders}{} EXIT\n", count + 1));
    let answers: String = (1..=count).map(|id| format!("{id} OK {} {id}\n", 1000 - id)).collect();
    let expected = format!("HELLO stock/2 window=128\n{answers}{} BYE\n", count + 1);
    assert_eq!(client.rest(), expected, "{model}");
}
