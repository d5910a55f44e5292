//! TLS with every model, every protocol, and misbehaving clients.

use crate::bench::{Bench, LONG_REQUEST, LONG_STOP, config, every_model, without_crowds};
use crate::conversation::{every_protocol, pipelined};
use crate::log::{capture, warnings};
use ioloom_load::{LoadPlan, Protocol};
use ioloom_serve::{Model, ServeOptions, Server, TlsFiles};
use ioloom_testbed::Certificate;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

fn sealed(config: &mut ServeOptions) {
    config.limits.request = LONG_REQUEST;
    let files = Certificate::in_dir(config.stock.parent().unwrap());
    config.tls = Some(TlsFiles { certificate: files.certificate, key: files.key });
}

#[test]
fn every_protocol_works_under_tls() {
    every_model(|model| {
        every_protocol(Bench::with(model, sealed), model, &["ok\n", "tls on\n"]);
        pipelined(&Bench::with(model, sealed), model, 300);
    });
}

#[test]
fn loads_under_tls_lose_nothing() {
    every_model(|model| {
        let bench = Bench::with(model, |config| {
            sealed(config);
            config.limits.hog = Duration::from_secs(60);
        });
        for protocol in [Protocol::Padded, Protocol::Line, Protocol::V2, Protocol::Resp] {
            let target = if protocol == Protocol::Line { bench.lines } else { bench.address };
            let plan = LoadPlan {
                protocol,
                connections: if model == Model::Iterative { 1 } else { 3 },
                pipeline: 2,
                requests_max: 100,
                duration: Duration::from_secs(600),
                timeout: Duration::from_secs(120),
                tls: Some(bench.trust()),
                ..LoadPlan::new(target)
            };
            let ran = ioloom_load::run(&plan, &AtomicBool::new(false), &mut |_| {});
            let (run, _) = ran.unwrap();
            assert!(run.is_right() && run.conservation.checked, "{model} {protocol:?}: {run:?}");
            assert_eq!(run.outcomes.answered, 100, "{model} {protocol:?}");
        }
    });
}

/// Returns a client's first handshake message.
fn hello(bench: &Bench) -> Vec<u8> {
    let mut hello = Vec::new();
    bench.trust().session().unwrap().seal(&[], &mut hello);
    hello
}

/// Waits for bytes or the end of the stream; returns true for the end.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 4096]) {
        Ok(read) => read == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn incomplete_handshakes_time_out_and_block_no_clients() {
    every_model(|model| {
        let bench = Bench::with(model, |config| {
            sealed(config);
            // Short, but the handshake of the honest client may be interrupted by a pause.
            config.limits.request = Duration::from_secs(4);
        });
        let hello = hello(&bench);
        let mut slow = TcpStream::connect(bench.lines).unwrap();
        slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        slow.write_all(&hello[..hello.len() / 2]).unwrap();
        // This client connects but sends nothing.
        let mut silent = TcpStream::connect(bench.lines).unwrap();
        silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut honest = bench.client();
        assert_eq!(honest.request("buy 1 1"), "[buy] success\n", "{model}");
        drop(honest);
        // Sending byte by byte does not extend the timeout. Those of the other two connections expire
        // at the same time.
        let mut dripping = TcpStream::connect(bench.lines).unwrap();
        let is_cut = hello.iter().any(|byte| {
            std::thread::sleep(Duration::from_millis(50));
            dripping.write_all(&[*byte]).is_err()
        });
        assert!(is_cut, "{model}: a slow handshake");
        assert!(is_closed(&mut slow), "{model}: an incomplete handshake");
        assert!(is_closed(&mut silent), "{model}: silence");
    });
}

#[test]
fn plain_text_is_disconnected_with_a_warning() {
    capture();
    every_model(|model| {
        let bench = Bench::with(model, sealed);
        for text in ["buy 1 1\n", "GET /show HTTP/1.1\r\n\r\n", "HELLO stock/2\n1 BUY 1 1\n"] {
            let mut plain = TcpStream::connect(bench.address).unwrap();
            plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            plain.write_all(text.as_bytes()).unwrap();
            let mut said = Vec::new();
            let _ = plain.read_to_end(&mut said);
            // At most a TLS alert, but no answer.
            assert!(said.is_empty() || said[0] == 21, "{model}: {said:?}");
        }
        let mut known = bench.dial(bench.address);
        known.send("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let text = known.rest();
        assert!(text.contains("\nioloom_connections_not_tls_total 3\n"), "{model}: {text}");
        assert!(text.contains("\nioloom_orders_done_total 0\n"), "{model}: {text}");
    });
    assert!(warnings().iter().any(|text| text.contains("the peer did not send TLS")));
}

#[test]
fn a_corrupted_record_affects_only_its_connection() {
    every_model(|model| {
        let bench = Bench::with(model, sealed);
        let mut rude = bench.client();
        assert_eq!(rude.request("buy 1 1"), "[buy] success\n", "{model}");
        // A forged record.
        let _ = rude.stream.write_all(&[23, 3, 3, 0, 32]);
        let _ = rude.stream.write_all(&[7; 32]);
        let mut said = Vec::new();
        let _ = rude.stream.read_to_end(&mut said);
        let mut half = bench.client();
        half.send("buy 1 1\nbuy 1 1\n");
        half.end_writing();
        drop(half);
        let mut honest = bench.client();
        assert_eq!(honest.request("sell 1 1"), "[sell] success\n", "{model}");
    });
}

#[test]
fn a_stop_answers_what_has_arrived_under_tls() {
    every_model(|model| {
        let bench = Bench::with(model, |config| {
            sealed(config);
            config.limits.stop = LONG_STOP;
        });
        let mut busy = bench.client();
        // The incomplete last line is never executed as an order.
        busy.send("buy 1 1\n".repeat(100) + "buy 1 1");
        let answer = "[buy] success\n";
        assert_eq!(busy.take(answer.len()), answer, "{model}");
        bench.request_stop();
        assert_eq!(busy.rest(), answer.repeat(99), "{model}");
        let (dir, ended) = bench.end();
        let stocks = std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
        assert!(stocks.starts_with("1 900 10\n"), "{model}: {stocks}");
        assert_eq!(ended.done, 100, "{model}");
    });
}

#[test]
fn a_connection_beyond_the_limit_is_closed_silently() {
    let _beside = without_crowds();
    for model in [Model::Epoll, Model::Thread, Model::Tokio] {
        let bench = Bench::with(model, |config| {
            sealed(config);
            config.limits.connections = 1;
        });
        let mut inside = bench.client();
        assert_eq!(inside.request("buy 1 1"), "[buy] success\n", "{model}");
        let mut outside = TcpStream::connect(bench.lines).unwrap();
        outside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut said = Vec::new();
        let _ = outside.read_to_end(&mut said);
        assert_eq!(said, b"", "{model}");
    }
}

#[test]
fn unusable_certificates_and_keys_are_refused() {
    let dir = TempDir::new().unwrap();
    let files = Certificate::in_dir(dir.path());
    let nowhere = dir.path().join("nowhere.pem");
    let text = dir.path().join("text.pem");
    std::fs::write(&text, "no certificate").unwrap();
    let open = dir.path().join("open.pem");
    std::fs::copy(&files.key, &open).unwrap();
    set_mode(&open, 0o644);
    set_mode(&text, 0o600);
    for (certificate, key, words) in [
        (&nowhere, &files.key, ["nowhere.pem", "No such file"]),
        (&text, &files.key, ["text.pem", "no certificate"]),
        (&files.certificate, &nowhere, ["nowhere.pem", "No such file"]),
        (&files.certificate, &text, ["text.pem", "key"]),
        (&files.certificate, &open, ["open.pem", "chmod 600"]),
        (&files.certificate, &files.other_key, ["other-key.pem", "does not match"]),
    ] {
        let tls = TlsFiles { certificate: certificate.clone(), key: key.clone() };
        let config = ServeOptions { tls: Some(tls), ..config(&dir, Model::Epoll) };
        let Err(error) = Server::start(&config) else { panic!("{words:?} must be refused") };
        let error = error.to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
