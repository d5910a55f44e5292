//! Starting and stopping `serve`.

use crate::bench::{Client, STOCKS, Served, place, serve_in};
use ioloom_testbed::{Certificate, ProcessOutput, Workspace};
use std::io::{BufRead, BufReader, Write, pipe};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

#[test]
fn a_stopped_server_writes_the_stock_file_and_says_what_it_did() {
    for name in ["-TERM", "-INT"] {
        let place = place();
        let mut server = Served::in_dir(place.path(), &["--json"]);
        let mut client = Client::new(&server.address, "a").unwrap();
        assert_eq!(client.ask("1 BUY 1 10").unwrap(), "1 OK 99990 1");
        server.signal(name);
        assert_eq!(client.line(), None);
        let (status, rest) = server.ended();
        assert_eq!(status.code(), Some(0), "{rest}");
        let out = server.child.stdout.take().unwrap();
        let document: serde_json::Value = serde_json::from_reader(out).unwrap();
        assert_eq!((&document["orders_done"], &document["log_number"]), (&1.into(), &1.into()));
        let stocks = std::fs::read_to_string(place.at("stock.txt")).unwrap();
        assert_eq!(stocks, "1 99990 10\n2 100000 20\n");
    }
}

#[test]
fn a_document_that_is_not_read_does_not_keep_a_stopped_server() {
    let place = place();
    let (reader, mut full) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while full.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let mut command = serve_in(place.path(), &["--json"]);
    let mut child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let mut server = Served { child, address: String::new(), said };
    let mut line = String::new();
    server.said.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    server.signal("-TERM");
    let (status, rest) = server.ended();
    assert_eq!(status.code(), Some(1), "{rest}");
    assert!(rest.contains("cannot write to standard output"), "{rest}");
    drop(reader);
}

#[test]
fn a_store_stays_what_it_is_at_another_level() {
    let place = place();
    let mut answers = Vec::new();
    for level in ["os", "group"] {
        let mut server = Served::in_dir(place.path(), &["--json", "--durability", level]);
        let mut client = Client::new(&server.address, "a").unwrap();
        answers.push(client.ask("1 BUY 1 10").unwrap());
        server.signal("-TERM");
        let (status, rest) = server.ended();
        assert_eq!(status.code(), Some(0), "{rest}");
        let out = server.child.stdout.take().unwrap();
        let document: serde_json::Value = serde_json::from_reader(out).unwrap();
        assert_eq!((&document["store"], &document["log_number"]), (&"log".into(), &1.into()));
    }
    assert_eq!(answers, ["1 OK 99990 1", "1 OK 99990 1"]);
}

/// Nothing has been acknowledged yet, so the server can exit immediately.
#[test]
fn a_start_that_waits_for_a_database_is_ended_by_a_signal() {
    let place = place();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let words = format!("host=127.0.0.1 port={port} user=a dbname=a");
    let mut command = serve_in(place.path(), &["--store", "postgres", "--database", &words]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // It connects but receives nothing.
    let asked = silent.accept().unwrap();
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(15), "{status}");
    drop(asked);
}

/// Returns the memory of a process in KiB.
fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Several lists take hundreds of KiB, which a silent connection must not occupy forever.
#[test]
fn a_silent_connection_holds_no_memory_for_what_it_once_asked() {
    let place = place();
    let stocks: String = (1..=2000).map(|id| format!("{id} 100000 10\n")).collect();
    place.write("stock.txt", &stocks);
    let server = Served::in_dir(place.path(), &["--model", "thread", "--durability", "none"]);
    let mut clients: Vec<_> =
        (0..300).map(|_| Client::plain(&server.address).expect("it serves")).collect();
    let mut ask = |lists: usize| {
        for client in &mut clients {
            client.say(&"show\n".repeat(lists)).expect("it serves");
            client.skip(2000 * lists);
        }
        resident_kib(server.child.id())
    };
    let (before, after) = (ask(1), ask(7));
    // Seven lists take at least 130 KiB; all lists together would take 40 MiB.
    assert!(after < before + 20 * 1024, "{before} KiB, then {after} KiB");
}

/// Orders of all clients wait for commits at the same time, and then all clients are idle.
#[test]
fn the_threads_of_tokio_do_not_depend_on_the_number_of_clients() {
    let place = place();
    let args = ["--model", "tokio", "--loops", "2", "--durability", "group"];
    let server = Served::in_dir(place.path(), &args);
    let mut clients: Vec<_> =
        (0..400).map(|_| Client::plain(&server.address).expect("it serves")).collect();
    clients.iter_mut().for_each(|client| client.say("buy 1 1\n").expect("it serves"));
    for client in &mut clients {
        assert_eq!(client.line().as_deref(), Some("[buy] success"));
    }
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap().count();
    // Two workers, four spare threads for each, and those that stop, commit and write files.
    assert!(threads <= 20, "{threads} threads");
}

fn set_mode(place: &Workspace, mode: u32) {
    let rights = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(place.at("token"), rights).unwrap();
}

#[test]
fn a_token_file_closes_the_server_to_those_who_do_not_know_it() {
    let place = place();
    place.write("token", "correct-horse-battery trade\nsecond-horse-battery read\n");
    set_mode(&place, 0o600);
    let server = Served::in_dir(place.path(), &["--token-file", "token"]);
    let mut guest = Client::plain(&server.address).unwrap();
    assert_eq!(guest.ask("buy 1 1").as_deref(), Some("Token needed"));
    let mut known = Client::plain(&server.address).unwrap();
    let greeting = "HELLO stock/2 token=correct-horse-battery";
    assert_eq!(known.ask(greeting).as_deref(), Some("HELLO stock/2 window=128"));
    assert_eq!(known.ask("1 BUY 1 1").as_deref(), Some("1 OK 99999 1"));
    // The load generator uses the same file.
    let load = || {
        let command = &mut place.ours(&["load", &server.address, "--protocol", "v2"]);
        let few = ["--token-file", "token", "--requests", "20", "--anyway"];
        ProcessOutput::from(command.args(few).output().unwrap())
    };
    load().ended(0);
    place.write("token", "correct-horse-battery\nshort\n");
    load().ended(2).one_error(&["token", "line 2", "16 to 256"]);
    place.write("token", "");
    load().ended(2).one_error(&["token", "empty"]);
}

/// A TLS server, a load generator that verifies it, and incompatible clients.
#[test]
fn a_certificate_seals_every_protocol_for_those_who_trust_it() {
    let place = place();
    Certificate::in_dir(place.path());
    let tls = ["--tls-cert", "certificate.pem", "--tls-key", "key.pem", "--durability", "none"];
    let mut server = Served::in_dir(place.path(), &tls);
    let load = |args: &[&str]| {
        let command = &mut place.ours(&["load", &server.address]);
        ProcessOutput::from(command.args(args).output().unwrap())
    };
    // The first closed connection is reported immediately, later ones once per second.
    load(&["--protocol", "v2"]).ended(1).one_error(&["cannot list", "stocks"]);
    let known = ["--tls", "--tls-ca", "certificate.pem", "--anyway"];
    for protocol in ["line", "v2", "resp"] {
        load(&[&known[..], &["--protocol", protocol, "--requests", "60"]].concat()).ended(0);
    }
    let named = ["--tls-name", "localhost", "--protocol", "v2", "--requests", "60"];
    load(&[&known[..], &named].concat()).ended(0);
    let original = ["--protocol", "line", "--multiclient", "2", "--divide", "1000"];
    load(&[&known[..], &original].concat()).ended(0);
    let other = ["--tls-name", "example.org", "--protocol", "v2"];
    load(&[&known[..], &other].concat()).ended(1).one_error(&["certificate"]);
    let missing = ["--tls", "--tls-ca", "nowhere.pem"];
    load(&missing).ended(1).one_error(&["nowhere.pem", "No such file"]);
    let invalid = ["--tls", "--tls-ca", "stock.txt"];
    load(&invalid).ended(2).one_error(&["stock.txt", "no certificate"]);
    let unnamed = [&known[..], &["--tls-name", "not a name"]].concat();
    load(&unnamed).ended(2).one_error(&["invalid server name"]);
    server.signal("-TERM");
    let (status, said) = server.ended();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("durability none, TLS"), "{said}");
    assert!(said.contains("the peer did not send TLS"), "{said}");
}

#[test]
fn unusable_certificates_and_keys_are_refused_with_one_clear_error() {
    let place = place();
    let refused = |args: &[&str], code: i32, words: &[&str]| {
        let command = &mut place.ours(&["serve"]);
        ProcessOutput::from(command.args(args).output().unwrap()).ended(code).one_error(words);
    };
    place.write("token", "short\n");
    set_mode(&place, 0o600);
    refused(&["--tls-cert", "token", "--tls-key", "token"], 2, &["token", "no certificate"]);
    refused(&["--tls-cert", "nowhere", "--tls-key", "token"], 1, &["nowhere", "No such file"]);
    Certificate::in_dir(place.path());
    let sealed = ["--tls-cert", "certificate.pem", "--tls-key", "token"];
    refused(&sealed, 2, &["token", "no key"]);
    set_mode(&place, 0o644);
    refused(&sealed, 3, &["token", "chmod 600"]);
    for special in ["/dev/null", "/usr"] {
        let sealed = ["--tls-cert", "certificate.pem", "--tls-key", special];
        refused(&sealed, 1, &[special, "not a regular file"]);
    }
}

#[test]
fn wrong_starts_are_refused_with_one_clear_error() {
    let place = place();
    let refused = |args: &[&str], code: i32, words: &[&str]| {
        let command = &mut place.ours(&["serve"]);
        ProcessOutput::from(command.args(args).output().unwrap()).ended(code).one_error(words);
    };
    std::fs::remove_file(place.at("stock.txt")).unwrap();
    refused(&[], 1, &["stock.txt", "--stock"]);
    place.write("stock.txt", "1 2 three\n");
    refused(&[], 2, &["line 1", "NUMBER LEFT PRICE"]);
    place.write("stock.txt", STOCKS);
    refused(&["--model", "io-threads", "--sharing", "global"], 3, &["writer"]);
    refused(&["--sharing", "atomic", "--durability", "group"], 3, &["durability none"]);
    for store in ["sqlite", "log"] {
        refused(&["--durability", "none", "--store", store], 3, &[store, "durability none"]);
    }
    refused(&["--connections", "1000000"], 3, &["ulimit"]);
    refused(&["--service-time", "2s"], 3, &["service time", "1s"]);
    place.write("token", "correct-horse-battery\n");
    set_mode(&place, 0o644);
    refused(&["--token-file", "token"], 3, &["token", "chmod 600"]);
    set_mode(&place, 0o600);
    place.write("token", "short\n");
    refused(&["--token-file", "token"], 2, &["token", "line 1", "16 to 256"]);
    place.write("token", "correct-horse-battery\ncorrect-horse-battery all\n");
    refused(&["--token-file", "token"], 2, &["token", "line 2", "trade or read"]);
    place.write("token", "correct-horse-battery\ncorrect-horse-battery read\n");
    refused(&["--token-file", "token"], 2, &["token", "line 2", "of line 1"]);
    place.write("token", "");
    refused(&["--token-file", "token"], 2, &["token", "empty"]);
    place.write("token", "short\n");
    for special in ["/dev/null", "/usr"] {
        refused(&["--token-file", special], 1, &[special, "not a regular file"]);
    }
    refused(&["--token-file", "nowhere"], 1, &["nowhere", "No such file"]);
    refused(&["--durability", "os", "--store-path", "stock.txt"], 2, &["same file 'stock.txt'"]);
    place.write("x-wal", "1 2 3\n");
    refused(&["--store-path", "x", "--stock", "x-wal"], 2, &["'x-wal', a file of the store"]);
    refused(&["--durability", "os", "--store-path", "/dev/null"], 1, &["regular file"]);
    refused(&["--limits-file", "/dev/zero"], 1, &["/dev/zero", "not a regular file"]);
    refused(&["--limits-file", "nowhere"], 1, &["nowhere", "No such file"]);
    refused(&["--limits-file", "token"], 2, &["token", "line 1", "NAME VALUE"]);
    let held = ["--service-time", "1us", "--service-in-lock", "--durability", "none"];
    refused(&[&held[..], &["--sharing", "atomic"]].concat(), 3, &["does not lock anything"]);
    refused(&[&held[..], &["--show", "per-stock"]].concat(), 3, &["stock by stock"]);
    for (model, sharing, word) in [
        ("pool", "global", "sharing global"),
        ("thread", "writer", "sharing writer"),
        ("epoll", "rw", "model epoll"),
        ("uring-multishot", "shards", "model uring-multishot"),
    ] {
        let asked = ["--model", model, "--sharing", sharing, "--show", "per-stock"];
        refused(&asked, 3, &[word, "no effect"]);
    }
    for (alone, needed) in
        [(&["--tls-cert", "token"][..], "--tls-key"), (&["--service-in-lock"], "--service-time")]
    {
        let ran =
            ProcessOutput::from(place.ours(&["serve"]).args(alone).output().unwrap()).ended(2);
        assert!(ran.err.contains(needed), "{}", ran.err);
    }
    let first = Served::start(&mut serve_in(place.path(), &[]));
    refused(&["--listen", &first.address], 1, &["--listen"]);
    refused(&["--listen", "127.0.0.1:0"], 1, &["stock.txt.store", "locked"]);
}
