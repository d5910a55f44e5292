//! `load` as a process, against `serve` as a process.

use crate::home::Home;
use ioloom_testbed::Certificate;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

/// A listening process that is killed at the end of the test.
struct Listening {
    child: Child,
    address: String,
}

impl Listening {
    fn new(home: &Home, args: &[&str]) -> Self {
        std::fs::write(home.path("stock.txt"), "1 1000 10\n2 1000 20\n").unwrap();
        let mut child = home.command(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ioloom: listening on ");
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address }
    }

    fn serve(home: &Home) -> Self {
        Self::new(home, &["serve", "--listen", "127.0.0.1:0", "--durability", "none"])
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_is_loaded_and_verified() {
    let home = Home::new();
    let server = Listening::serve(&home);
    let few = ["--requests", "400", "--duration", "10min", "--timeout", "2min", "--anyway"];
    for protocol in ["padded", "v2", "resp"] {
        let args = ["load", &server.address, "--protocol", protocol, "--json", "--history", "h"];
        let document = home.run(&[&args[..], &few].concat()).well().json();
        assert_eq!(document["command"], "load");
        let run = &document["runs"][0];
        assert_eq!(run["outcomes"]["answered"], 400, "{document}");
        assert_eq!(run["outcomes"]["wrong"], 0);
        assert_eq!(run["conservation"]["checked"], true);
        assert_eq!(run["latency"]["corrected"]["count"], 400);
        let history = std::fs::read_to_string(home.path("h")).unwrap();
        assert_eq!(history.lines().count(), 401);
        let checked = home.run(&["load", "--check", "h", "--json"]).well().json();
        assert_eq!((&checked["verdict"], &checked["requests"]), (&"explained".into(), &400.into()));
    }
    let text = home.run(&[&["load", &server.address, "-c", "1,2,3,4"], &few[..]].concat()).well();
    assert!(text.out.contains("scalability law"), "{}", text.out);
    let twice = home.run(&[&["load", &server.address, "-c", "2,2", "--json"], &few[..]].concat());
    assert_eq!(twice.well().json()["runs"].as_array().unwrap().len(), 2);
    let repeated = ["load", &server.address, "-c", "2,2,2,2"];
    let text = home.run(&[&repeated, &few[..]].concat()).well();
    assert!(!text.out.contains("scalability law"), "{}", text.out);
    let ladder = ["load", &server.address, "--ladder", "100,200", "--p99", "10min"];
    let text = home.run(&[&ladder, &few[..]].concat()).well();
    assert!(text.out.contains("knee: "), "{}", text.out);
}

#[test]
fn the_original_client_and_the_baselines_run() {
    let home = Home::new();
    let server = Listening::serve(&home);
    let args = ["load", &server.address, "--multiclient", "5", "--orders", "2", "--divide", "50"];
    let document = home.run(&[&args[..], &["--json", "--floors"]].concat()).well().json();
    let multi = &document["multiclient"];
    assert_eq!(
        (&multi["outcomes"]["answered"], &multi["law_ns"]),
        (&10.into(), &40_000_000.into())
    );
    let floor = &document["floors"]["null_server_multiclient"];
    assert_eq!(floor["outcomes"]["answered"], 10);
    assert!(document["floors"]["null_client"]["requests_per_s"].as_f64().unwrap() > 0.0);
}

/// Sends 8192-byte answers to the first two connections and none to later ones.
fn server_that_vanishes() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut lines = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while matches!(lines.read_line(&mut line), Ok(1..)) {
                let known = if line == "show\n" { "1 5 10\n" } else { "Not enough left stocks\n" };
                let mut answer = known.as_bytes().to_vec();
                answer.resize(8192, 0);
                lines.get_mut().write_all(&answer).unwrap();
                line.clear();
            }
        }
    });
    address
}

#[test]
fn a_run_whose_stocks_cannot_be_compared_at_the_end_does_not_pass() {
    let home = Home::new();
    let target = server_that_vanishes().to_string();
    let args = ["load", &target, "--mix", "buy", "--requests", "20", "-c", "1", "--anyway"];
    let ran = home.run(&args);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("final stocks"), "{}", ran.err);
    let target = server_that_vanishes().to_string();
    home.run(&[
        "load",
        &target,
        "--mix",
        "buy",
        "--requests",
        "20",
        "-c",
        "1",
        "--anyway",
        "--shared",
    ])
    .well();
}

#[test]
fn the_exit_code_of_a_load_survives_a_closed_pipe() {
    let home = Home::new();
    let target = server_that_vanishes().to_string();
    let args = ["load", &target, "--mix", "buy", "--requests", "20", "-c", "1", "--anyway"];
    let ran = home.run_unread(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
}

#[test]
fn a_run_that_fails_does_not_lose_the_earlier_ones() {
    let home = Home::new();
    let target = server_that_vanishes().to_string();
    let args = ["load", &target, "--mix", "buy", "--requests", "20", "-c", "1,2", "--shared"];
    let ran = home.run(&[&args[..], &["--anyway"]].concat());
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("from due"), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("ioloom: cannot "), "{}", ran.err);
    // The knee is at least the rate of the first step.
    let target = server_that_vanishes().to_string();
    let args = ["load", &target, "--mix", "buy", "--requests", "20", "-c", "1", "--shared"];
    let ladder = ["--ladder", "100,200", "--p99", "10min", "--timeout", "2min", "--anyway"];
    let ran = home.run(&[&args[..], &ladder].concat());
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("(the ladder failed)"), "{}{}", ran.out, ran.err);
}

/// Answers the list before the load, and then three requests. No shares are left, so these
/// answers are right.
fn server_that_dies() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for answers in [1, 3] {
            let mut lines = BufReader::new(listener.accept().unwrap().0);
            for _ in 0..answers {
                let mut line = String::new();
                lines.read_line(&mut line).unwrap();
                let known = if line == "show\n" { "1 0 10\n" } else { "Not enough left stocks\n" };
                let mut answer = known.as_bytes().to_vec();
                answer.resize(8192, 0);
                lines.get_mut().write_all(&answer).unwrap();
            }
        }
    });
    address
}

#[test]
fn a_server_that_dies_costs_neither_the_report_nor_the_history() {
    let home = Home::new();
    let target = server_that_dies().to_string();
    let args = ["load", &target, "--mix", "buy", "-c", "1", "-d", "10min", "--timeout", "2s"];
    let ran = home.run(&[&args[..], &["--json", "--history", "h"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("consecutive connections failed"), "{}", ran.err);
    let run = &ran.json()["runs"][0];
    assert_eq!(run["outcomes"]["answered"], 3, "{run}");
    assert_eq!(run["conservation"]["checked"], false);
    assert_eq!(run["conservation"]["reason"], run["lost"]);
    let history = std::fs::read_to_string(home.path("h")).unwrap();
    assert_eq!(history.matches("not-enough").count(), 3, "{history}");
    home.run(&["load", "--check", "h"]).well();
}

#[test]
fn a_server_that_does_not_answer_does_not_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut lines = BufReader::new(stream.unwrap());
            // Closes every connection after two answers.
            for _ in 0..2 {
                let mut line = String::new();
                if !matches!(lines.read_line(&mut line), Ok(1..)) {
                    break;
                }
                let known = if line == "show\n" { "1 5 10\n" } else { "Not enough left stocks\n" };
                let mut answer = known.as_bytes().to_vec();
                answer.resize(8192, 0);
                lines.get_mut().write_all(&answer).unwrap();
            }
            let _ = lines.read_line(&mut String::new());
        }
    });
    let home = Home::new();
    let args = ["load", &target, "--mix", "buy", "--requests", "30", "-c", "1", "--anyway"];
    let ran = home.run(&args);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("% of the requests were not answered; at most 1 %"), "{}", ran.err);
}

#[test]
fn wrong_answers_have_no_scalability() {
    let home = Home::new();
    let server = Listening::new(&home, &["load", "127.0.0.1:0", "--null-server"]);
    // The stocks of this server never change, regardless of its answers.
    let args = ["load", &server.address, "--mix", "buy", "--requests", "100", "--anyway"];
    let ran = home.run(&[&args[..], &["-c", "1,2,3,4"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let reason = "scalability law not fitted: answers were wrong or missing with --connections 1";
    assert!(ran.err.contains(reason), "{}", ran.err);
    assert!(!ran.out.contains("scalability law"), "{}", ran.out);
}

#[test]
fn a_stopped_null_server_succeeds() {
    let home = Home::new();
    for signal in ["-INT", "-TERM"] {
        let mut server = Listening::new(&home, &["load", "127.0.0.1:0", "--null-server"]);
        let sent = Command::new("kill").args([signal, &server.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_history_that_cannot_be_written_costs_no_run() {
    let home = Home::new();
    let server = Listening::serve(&home);
    let few = ["--requests", "40", "--duration", "10min", "--timeout", "2min", "--anyway"];
    let load = |history: &str| {
        let args = ["load", &server.address, "--protocol", "v2", "--history", history];
        home.run(&[&args[..], &few].concat())
    };
    // Before the first connection.
    let args = ["load", "127.0.0.1:1", "--history", "missing/h"];
    home.run(&args).one_error(1, &["missing/h", "No such file"]);
    // A full device fails after the run, whose report is not lost.
    let ran = load("/dev/full");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.out.contains("from due") && ran.err.contains("/dev/full"),
        "{}{}",
        ran.out,
        ran.err
    );
    // A run without a history keeps the earlier one.
    std::fs::write(home.path("h"), "earlier").unwrap();
    home.run(&["load", "127.0.0.1:1", "--history", "h"]).one_error(1, &["127.0.0.1:1"]);
    assert_eq!(std::fs::read_to_string(home.path("h")).unwrap(), "earlier");
    assert_eq!(load("h").code, Some(0));
    assert_eq!(std::fs::read_to_string(home.path("h")).unwrap().lines().count(), 41);
}

#[test]
fn an_impossible_history_is_detected() {
    let home = Home::new();
    let history = r#"{"schema":1,"kind":"exchange-history","stocks":[[1,10,100],[2,10,100]]}
{"client":0,"call_ns":1,"ret_ns":6,"op":"show","outcome":{"shown":[10,11]}}
{"client":1,"call_ns":2,"ret_ns":3,"op":"buy","stock":1,"count":1,"outcome":{"done":9}}
{"client":1,"call_ns":4,"ret_ns":5,"op":"sell","stock":2,"count":1,"outcome":{"done":null}}
"#;
    std::fs::write(home.path("h"), history).unwrap();
    let ran = home.run(&["load", "--check", "h"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.out.contains("VIOLATED") && ran.out.contains("need not be atomic"), "{}", ran.out);
    for args in [&["load", "--check", "h"][..], &["load", "--check", "h", "--json"]] {
        assert_eq!(home.run_unread(args).code, Some(1), "{args:?}");
    }
    let reason = "client 0: show → 10, 11 left";
    assert!(ran.out.contains(reason), "{}", ran.out);
    // A repeated line is not an answer of the server.
    let (_, last) = history.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(home.path("h"), format!("{history}{last}\n")).unwrap();
    home.run(&["load", "--check", "h"]).one_error(2, &["line 5: it repeats line 4", "h"]);
    // A truncated file.
    std::fs::write(home.path("h"), &history[..history.len() - 9]).unwrap();
    let ran = home.run(&["load", "--check", "h"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("line 4: ") && !ran.err.contains("column"), "{}", ran.err);
    std::fs::write(home.path("h"), "").unwrap();
    home.run(&["load", "--check", "h"]).one_error(2, &["line 1: it is missing", "h"]);
    std::fs::write(home.path("h"), "1 10 100\n").unwrap();
    home.run(&["load", "--check", "h"]).one_error(2, &["line 1: not a history", "--history"]);
}

#[test]
fn a_load_without_due_requests_has_no_result() {
    let home = Home::new();
    let server = Listening::serve(&home);
    let few = ["-d", "2ms", "--arrival", "constant"];
    for (flag, rates) in [("--rate", "0.5"), ("--sessions", "0.5"), ("--ladder", "0.5,1")] {
        let ran = home.run(&[&["load", &server.address, flag, rates], &few[..]].concat());
        assert_eq!(ran.code, Some(3), "{flag}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains("nothing was due") && ran.err.contains(flag), "{}", ran.err);
        assert!(!ran.out.contains("WRONG"), "{}", ran.out);
        assert_eq!(ran.out.contains("knee: unknown: nothing"), flag == "--ladder", "{}", ran.out);
    }
}

#[test]
fn tls_errors_are_reported_with_advice() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"not an order, and not TLS\n").unwrap();
        // Unread bytes would reset the connection.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    Certificate::in_dir(&home.path("."));
    let ran = home.run(&["load", &target, "--tls", "--tls-ca", "certificate.pem"]);
    ran.one_error(1, &["did not send TLS; omit --tls"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = silent.local_addr().unwrap().to_string();
    std::thread::spawn(move || drop(silent.accept()));
    let ran = home.run(&["load", &target, "--tls", "--tls-ca", "certificate.pem"]);
    ran.one_error(1, &["closed the connection during the TLS handshake; omit --tls if"]);
    let of_server = ["--tls-cert", "certificate.pem", "--tls-key", "key.pem"];
    let serve = ["serve", "--listen", "127.0.0.1:0", "--durability", "none"];
    let server = Listening::new(&home, &[&serve[..], &of_server].concat());
    let untrusted = ("other-certificate.pem", "localhost");
    for (ca, name) in [untrusted, ("certificate.pem", "example.org")] {
        let args = ["load", &server.address, "--tls", "--tls-ca", ca, "--tls-name", name];
        let ran = home.run(&args);
        ran.one_error(1, &["invalid peer certificate", "check the certificate", "--tls-name"]);
    }
}

#[test]
fn connections_that_a_full_server_closes_in_the_handshake_are_counted() {
    let home = Home::new();
    Certificate::in_dir(&home.path("."));
    let serve = ["serve", "--listen", "127.0.0.1:0", "--durability", "none", "--connections", "2"];
    let of_server = ["--tls-cert", "certificate.pem", "--tls-key", "key.pem"];
    let server = Listening::new(&home, &[&serve[..], &of_server].concat());
    let load = ["load", &server.address, "-c", "5", "-d", "300ms"];
    let tls = ["--tls", "--tls-ca", "certificate.pem", "--tls-name", "localhost"];
    let ran = home.run(&[&load[..], &tls, &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let outcomes = &document["runs"][0]["outcomes"];
    let closed = outcomes["lost_in_handshake"].as_u64().unwrap();
    assert!(closed >= 3, "{outcomes}");
    assert_eq!(outcomes["lost"].as_u64(), Some(closed), "{outcomes}");
    assert_eq!(outcomes["turned_away"].as_u64(), Some(0), "{outcomes}");
    let ran = home.run(&[&load[..], &tls].concat());
    let words: Vec<&str> = ran.out.split_whitespace().collect();
    assert!(words.join(" ").contains("in the TLS handshake"), "{}{}", ran.out, ran.err);
}

#[test]
fn impossible_loads_are_refused_with_one_error() {
    let home = Home::new();
    home.run(&["load", "192.0.2.1:7004"]).one_error(3, &["--remote"]);
    home.run(&["load", "0.0.0.0:7004", "--null-server"]).one_error(3, &["--remote"]);
    for local in ["0.0.0.0:1", "[::ffff:127.0.0.1]:1"] {
        home.run(&["load", local]).one_error(1, &[local, "cannot connect"]);
    }
    let address = "'localhost:7004' for ADDRESS:PORT: must be an IP address and a port, such as";
    home.run(&["load", "localhost:7004"]).one_error(2, &[address]);
    home.run(&["load", "127.0.0.1:1"]).one_error(1, &["127.0.0.1:1", "ioloom serve"]);
    // Also if the number of threads would be reduced.
    for args in [&["-c", "0"][..], &["-c", "5,0"], &["-c", "0", "--ladder", "1k"]] {
        home.run(&[&["load"][..], args].concat()).one_error(2, &["connections", "between 1 and"]);
    }
    // Before the first connection.
    let address = "127.0.0.1:1";
    home.run(&["load", address, "-c", "5,100000"]).one_error(2, &["between 1 and 65536"]);
    home.run(&["load", address, "--requests", "0"]).one_error(2, &["at least 1"]);
    home.run(&["load", address, "-d", "1ns"]).one_error(2, &["between 1 ms and"]);
    home.run(&["load", address, "--name", "a"]).one_error(2, &["protocol v2"]);
    for name in ["f o", &"a".repeat(200)] {
        let args = ["load", address, "--protocol", "v2", "--name", name];
        home.run(&args).one_error(2, &["at most 64 characters"]);
    }
    // Flags that have no effect in the selected loop are rejected.
    for (loop_of, without) in [
        (["--rate", "10"], ["--think", "1ms"]),
        (["--sessions", "10"], ["--pipeline", "2"]),
        (["--multiclient", "2"], ["--history", "h"]),
        (["--multiclient", "2"], ["--duration", "3s"]),
        (["--multiclient", "2"], ["--connections", "4"]),
        (["--ladder", "10,20"], ["--connections", "1,2"]),
        (["--history", "h"], ["--connections", "1,2"]),
        (["--rate", "10"], ["--orders", "3"]),
        (["--rate", "10"], ["--p99", "1ms"]),
        (["--ladder", "10,20"], ["--history", "h"]),
        (["--connections", "2"], ["--session-requests", "3"]),
        (["--connections", "2"], ["--tls-ca", "h"]),
        (["--requests", "100"], ["--orders", "5"]),
        (["--requests", "100"], ["--divide", "10"]),
        (["--connections", "2"], ["--pool", "3"]),
        (["--rate", "100"], ["--session-requests", "3"]),
        (["--check", "h"], ["--ladder", "1k"]),
        (["--check", "h"], ["--requests", "9"]),
    ] {
        let args = [&["load"][..], &loop_of, &without].concat();
        let ran = home.run(&args);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains(without[0]), "{}", ran.err);
    }
    let server = Listening::new(&home, &["load", "127.0.0.1:0", "--null-server"]);
    // The stocks of this server never change, regardless of its answers.
    let args = ["load", &server.address, "--requests", "100", "--mix", "buy", "--anyway", "--json"];
    let ran = home.run(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("final stocks do not match"), "{}", ran.err);
    let differences = &ran.json()["runs"][0]["conservation"]["differences"];
    assert_eq!(differences.as_array().unwrap().len(), 10, "{differences}");
}

/// A server of this program answers the same commands as RESP.
#[test]
fn other_commands_are_sent_and_errors_are_wrong() {
    let home = Home::new();
    let server = Listening::serve(&home);
    let run = |file: &str, code: i32| {
        std::fs::write(home.path("commands"), file).unwrap();
        let asked =
            ["--commands", "commands", "--protocol", "resp", "--requests", "60", "--anyway"];
        let ran = home.run(&[&["load", &server.address], &asked[..]].concat());
        assert_eq!(ran.code, Some(code), "{file}: {}", ran.err);
        ran
    };
    let fine = "stocks 1\nbuy BUY {stock} {count}\nsell SELL {stock} {count}\nshow SHOW\n";
    assert!(run(fine, 0).out.contains("a commands file does not say what its commands do"));
    run("buy FLY\nsell PING\nshow PING\n", 1);
    run("prepare FLY {stock}\nbuy PING\nsell PING\nshow PING\n", 1);
    run("buy PING\n", 2);
    std::fs::write(home.path("commands"), b"buy PING\n\xff\n").unwrap();
    let binary = ["load", &server.address, "--commands", "commands", "--protocol", "resp"];
    home.run(&binary).one_error(2, &["line 2: not valid UTF-8"]);
    let missing = ["load", &server.address, "--commands", "missing", "--protocol", "resp"];
    home.run(&missing).one_error(1, &["missing", "No such file"]);
}
