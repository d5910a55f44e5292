//! What an operator sees: metrics, readiness, and the log of rejected and closed connections.

use crate::bench::{Bench, Client, every_model, without_crowds};
use crate::log::{capture, warnings};
use ioloom_exchange::Token;
use ioloom_serve::{Durability, Model};
use std::io::{Read, Write};
use std::net::TcpStream;

fn page(bench: &Bench, page: &str) -> String {
    let mut http = bench.dial(bench.address);
    http.send(format!("GET /{page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    http.rest()
}

/// Returns the value of a metric.
fn value(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("ioloom_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).trim().parse().unwrap()
}

#[test]
fn durations_are_counted_once_per_request() {
    every_model(|model| {
        // Without sharing state between two durations: io-threads commits on its writer thread.
        for durability in [Durability::None, Durability::Os, Durability::Group] {
            let bench = Bench::with(model, |config| {
                config.durability = durability;
                config.store.kind = ioloom_serve::StoreKind::Log;
            });
            let mut client = bench.client();
            for _ in 0..5 {
                assert_eq!(client.request("buy 1 1"), "[buy] success\n", "{model}");
            }
            client.send("buy 3 6\nbuy 9 1\nbuy x\nfly\n");
            (0..4).for_each(|_| drop(client.line()));
            drop(client);
            let text = page(&bench, "metrics");
            let count = value(&text, "request_duration_seconds_count");
            // The page itself is counted after it is made.
            assert!((9.0..=10.0).contains(&count), "{model}: {count}");
            assert!(value(&text, "request_duration_seconds_sum") > 0.0, "{model}");
            let last = value(&text, "request_duration_seconds_bucket{le=\"+Inf\"}");
            assert_eq!(last, count, "{model}");
            if durability != Durability::None && model != Model::IoThreads {
                assert!(value(&text, "commit_wait_seconds_count") >= 5.0, "{model}: {text}");
            }
            let synced = if durability == Durability::Group { 5.0 } else { 0.0 };
            assert_eq!(value(&text, "store_sync_seconds_count"), synced, "{model}: {text}");
            for (name, expected) in [
                ("orders_refused_total{reason=\"not-enough\"}", 1.0),
                ("orders_refused_total{reason=\"unknown-stock\"}", 1.0),
                ("faults_total{reason=\"bad-number\"}", 1.0),
                ("faults_total{reason=\"unknown-command\"}", 1.0),
                ("orders_done_total", 5.0),
            ] {
                assert_eq!(value(&text, name), expected, "{model}: {name}");
            }
        }
    });
}

/// Names end in a unit or `_total`, each has its type, and buckets never decrease.
#[test]
fn the_page_of_metrics_follows_the_rules_of_prometheus() {
    let bench = Bench::new(Model::Epoll);
    let text = page(&bench, "metrics");
    let body = text.split("\r\n\r\n").nth(1).unwrap();
    let (mut kind, mut below, mut histograms) = (String::new(), 0.0, 0);
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ioloom_") {
            let (name, is) = rest.split_once(' ').unwrap();
            assert_eq!(name.ends_with("_total"), is == "counter", "{line}");
            assert_eq!(name.ends_with("_seconds"), is == "histogram", "{line}");
            (kind, below) = (is.to_owned(), 0.0);
            histograms += usize::from(is == "histogram");
        } else if line.contains("_bucket{") {
            let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(kind == "histogram" && count >= below, "{line}");
            below = count;
        }
    }
    assert_eq!(histograms, 5);
}

#[test]
fn a_running_server_is_ready() {
    every_model(|model| {
        let text = page(&Bench::new(model), "readyz");
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\nready\n"),
            "{model}: {text}"
        );
    });
}

#[test]
fn hostile_connections_give_a_few_summaries() {
    capture();
    let _beside = without_crowds();
    let token = Token::new("correct-horse-battery").unwrap();
    let bench = Bench::with(Model::Epoll, |config| {
        config.access = Some(token.into());
        config.limits.connections = 8;
    });
    let ours = |line: &&String| line.contains("without a token") || line.contains("limit");
    let before = warnings().iter().filter(ours).count();
    for _ in 0..1000 {
        let mut rude = TcpStream::connect(bench.address).unwrap();
        // The server may close it first.
        let _ = rude.write_all(b"buy 1 1\n");
        let _ = rude.read(&mut [0; 99]);
    }
    let crowd: Vec<Client> = (0..50).map(|_| Client::new(bench.address)).collect();
    drop(crowd);
    drop(bench);
    let lines = warnings();
    let lines: Vec<_> = lines.iter().filter(ours).skip(before).collect();
    assert!((2..60).contains(&lines.len()), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("missing or wrong token (")), "{lines:?}");
}
