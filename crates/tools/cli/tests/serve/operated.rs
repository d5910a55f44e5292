//! Signals, reloading, and systemd: inherited sockets, messages to the service manager, unit files.
//!
//! systemd itself is not booted: its `systemd-socket-activate` passes sockets, the test receives the
//! messages, and `systemd-analyze verify` checks the unit files.

use crate::bench::{Client, Served, add_args, place, serve_in};
use ioloom_testbed::{Certificate, Workspace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn secret(place: &Workspace, name: &str, text: &str) {
    place.write(name, text);
    let rights = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(place.at(name), rights).unwrap();
}

/// Returns the next line of a server's messages that contains a word.
fn said(server: &mut Served, word: &str) -> String {
    let mut line = String::new();
    while server.said.read_line(&mut line).unwrap() > 0 {
        if line.contains(word) {
            return line;
        }
        line.clear();
    }
    panic!("the server ended without saying {word:?}");
}

#[test]
fn every_terminating_signal_saves_the_stocks() {
    let numbers = [2, 3, 5, 6, 14, 15, 16, 24, 25, 26, 27, 29, 30, 31, 34, 50, 64];
    std::thread::scope(|scope| {
        for number in numbers {
            scope.spawn(move || {
                let place = place();
                let mut server = Served::in_dir(place.path(), &["--durability", "none"]);
                let mut client = Client::new(&server.address, "a").unwrap();
                assert_eq!(client.ask("1 BUY 1 10").unwrap(), "1 OK 99990 1");
                server.signal(&format!("-{number}"));
                let (status, rest) = server.ended();
                assert_eq!(status.code(), Some(0), "signal {number}: {rest}");
                let stocks = std::fs::read_to_string(place.at("stock.txt")).unwrap();
                assert_eq!(stocks, "1 99990 10\n2 100000 20\n", "signal {number}");
            });
        }
    });
}

/// Starts a server on a port that is in use, stops it while it waits, and frees the port. Returns its exit code
/// and messages.
fn stopped_while_starting(place: &Workspace) -> (Option<i32>, String) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = place.ours(&["serve", "--listen", &address]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let catches_term = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 14) != 0
    };
    let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
    let mut looks = 0..60_000;
    while !catches_term() {
        assert!(looks.next().is_some(), "it handles signals");
        pause(1);
    }
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    pause(50);
    drop(taken);
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn a_signal_during_a_start_still_writes_the_stocks() {
    let place = place();
    let mut server = Served::in_dir(place.path(), &[]);
    let mut client = Client::new(&server.address, "a").unwrap();
    assert_eq!(client.ask("1 BUY 1 10").unwrap(), "1 OK 99990 1");
    server.kill();
    let stocks = || std::fs::read_to_string(place.at("stock.txt")).unwrap();
    assert!(stocks().starts_with("1 100000 "), "{}", stocks());
    // On a busy machine, the server can give up before the port is free.
    let mut starts = (0..10).map(|_| stopped_while_starting(&place));
    let (code, text) = starts.find(|(_, text)| !text.contains("already in use")).unwrap();
    assert_eq!(code, Some(0), "{text}");
    assert!(stocks().starts_with("1 99990 "), "{}", stocks());
}

/// `timeout`, for example, sends its signal to a process and then to its group.
#[test]
fn repeated_signals_still_save_the_stocks() {
    let place = place();
    let args = ["--durability", "none", "--service-time", "100ms"];
    let mut server = Served::in_dir(place.path(), &args);
    let mut client = Client::new(&server.address, "a").unwrap();
    client.say("1 BUY 1 10\n").unwrap();
    let pid = server.child.id().to_string();
    // One program sends all of them, while the order is being executed.
    let sent =
        Command::new("sh").args(["-c", "kill $1; kill $1; kill -INT $1", "sh", &pid]).status();
    assert!(sent.unwrap().success());
    let (status, rest) = server.ended();
    assert_eq!(status.code(), Some(0), "{rest}");
    assert!(rest.contains("stopped: "), "{rest}");
    let stocks = std::fs::read_to_string(place.at("stock.txt")).unwrap();
    let bought = client.line().is_some();
    assert_eq!(stocks.starts_with("1 99990 "), bought, "{stocks}");
}

#[test]
fn hangup_and_user_signals_do_not_end_the_server() {
    let place = place();
    let mut server = Served::in_dir(place.path(), &["--durability", "none"]);
    let mut client = Client::new(&server.address, "a").unwrap();
    server.signal("-HUP");
    said(&mut server, "nothing to reload: no --token-file, --tls-cert or --limits-file");
    assert_eq!(client.ask("1 BUY 1 10").unwrap(), "1 OK 99990 1");
    server.signal("-USR1");
    said(&mut server, "ioloom: state:");
    let state: Vec<String> = (0..40).map(|_| said(&mut server, "")).collect();
    for line in ["  ok\n", "  model epoll\n", "  ioloom_orders_done_total 1\n"] {
        assert!(state.iter().any(|said| said == line), "{line:?} in {state:?}");
    }
    assert_eq!(client.ask("2 BUY 1 10").unwrap(), "2 OK 99980 2");
    server.signal("-TERM");
    assert_eq!(server.ended().0.code(), Some(0));
}

/// The pipe of its standard error is full, and its log waits.
#[test]
fn a_server_whose_log_is_not_read_serves_and_stops() {
    let place = place();
    let mut server = Served::in_dir(place.path(), &["--durability", "none"]);
    let mut client = Client::new(&server.address, "a").unwrap();
    for number in 1..=40 {
        server.signal("-USR1");
        // The next signal must not arrive before this one is handled.
        let answer = client.ask(&format!("{number} BUY 1 1")).unwrap();
        assert_eq!(answer, format!("{number} OK {} {number}", 100_000 - number));
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal("-TERM");
    let ended = (0..6000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        server.child.try_wait().unwrap()
    });
    assert_eq!(ended.expect("it stops").code(), Some(0));
    let stocks = std::fs::read_to_string(place.at("stock.txt")).unwrap();
    assert_eq!(stocks, "1 99960 10\n2 100000 20\n");
}

#[test]
fn tokens_and_limits_are_reloaded() {
    let place = place();
    secret(&place, "token", "correct-horse-battery\n");
    place.write("limits", "connections 100\n");
    let files = ["--token-file", "token", "--limits-file", "limits"];
    let mut server = Served::in_dir(place.path(), &files);
    let address = server.address.clone();
    let greet = |token: &str| {
        let mut client = Client::plain(&address).unwrap();
        let answer = client.ask(&format!("HELLO stock/2 token={token}"));
        (client, answer.unwrap_or_default())
    };
    let hello = "HELLO stock/2 window=128";
    let (mut known, answer) = greet("correct-horse-battery");
    assert_eq!(answer, hello);
    secret(&place, "token", "second-horse-battery\nthird-horse-battery read\n");
    place.write("limits", "connections 2\n");
    server.signal("-HUP");
    said(&mut server, "reloaded the tokens and the limits");
    assert_eq!(greet("correct-horse-battery").1, "ERR no-token");
    // The connection keeps its rights.
    assert_eq!(known.ask("1 BUY 1 1").unwrap(), "1 OK 99999 1");
    let (mut reader, answer) = greet("third-horse-battery");
    assert_eq!(
        (answer.as_str(), reader.ask("1 BUY 1 1").unwrap().as_str()),
        (hello, "1 ERR read-only")
    );
    assert_eq!(Client::plain(&address).unwrap().line().as_deref(), Some("BUSY"));
    // After an error everything stays as it is.
    secret(&place, "token", "short\n");
    place.write("limits", "connections 100\n");
    server.signal("-HUP");
    assert!(said(&mut server, "cannot read token file").contains("previous settings remain"));
    assert_eq!(Client::plain(&address).unwrap().line().as_deref(), Some("BUSY"));
    drop(reader);
    secret(&place, "token", "fourth-horse-battery\n");
    place.write("limits", "speed 1\n");
    server.signal("-HUP");
    said(&mut server, "unknown limit 'speed'");
    // It must not be advised to change the mode of a directory.
    std::fs::remove_file(place.at("token")).unwrap();
    std::fs::create_dir(place.at("token")).unwrap();
    server.signal("-HUP");
    assert!(!said(&mut server, "it is a directory, not a regular file").contains("chmod"));
    std::fs::remove_dir(place.at("token")).unwrap();
    secret(&place, "token", "fourth-horse-battery\n");
    // A pipe without a writer must not stop the signals.
    std::fs::remove_file(place.at("limits")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(place.at("limits")).status().unwrap();
    assert!(made.success());
    server.signal("-HUP");
    said(&mut server, "not a regular file");
    server.signal("-USR1");
    said(&mut server, "state:");
}

#[test]
fn a_certificate_is_reloaded() {
    let place = place();
    Certificate::in_dir(place.path());
    let tls = ["--tls-cert", "certificate.pem", "--tls-key", "key.pem"];
    let mut server = Served::in_dir(place.path(), &tls);
    let address = server.address.clone();
    let load = || {
        let mut command = place.ours(&["load", &address, "--protocol", "v2", "--requests", "20"]);
        command.args(["--anyway", "--tls", "--tls-ca", "certificate.pem"]).output().unwrap()
    };
    assert!(load().status.success());
    // Clients now trust only another certificate.
    std::fs::rename(place.at("other-certificate.pem"), place.at("certificate.pem")).unwrap();
    std::fs::rename(place.at("other-key.pem"), place.at("key.pem")).unwrap();
    assert!(!load().status.success());
    server.signal("-HUP");
    said(&mut server, "reloaded");
    let ran = load();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    place.write("certificate.pem", "nothing\n");
    server.signal("-HUP");
    assert!(said(&mut server, "certificate.pem").contains("previous settings remain"));
}

#[test]
fn an_expired_certificate_replaces_no_valid_one() {
    let place = place();
    Certificate::in_dir(place.path());
    std::fs::copy(place.at("certificate.pem"), place.at("valid.pem")).unwrap();
    let tls = ["--tls-cert", "certificate.pem", "--tls-key", "key.pem"];
    let mut server = Served::in_dir(place.path(), &tls);
    std::fs::copy(place.at("expired-certificate.pem"), place.at("certificate.pem")).unwrap();
    server.signal("-HUP");
    assert!(said(&mut server, "has expired").contains("previous settings remain"));
    server.signal("-TERM");
    assert_eq!(server.ended().0.code(), Some(0));
    // A start is not refused, and a reload leads back to a valid certificate.
    let mut server = Served::in_dir(place.path(), &tls);
    assert!(said(&mut server, "has expired").contains("clients reject it"));
    server.signal("-HUP");
    assert!(said(&mut server, "has expired").contains("clients reject it"));
    said(&mut server, "reloaded");
    std::fs::copy(place.at("valid.pem"), place.at("certificate.pem")).unwrap();
    server.signal("-HUP");
    assert!(said(&mut server, "ioloom: ").contains("reloaded"));
}

#[test]
fn a_service_manager_is_notified() {
    let place = place();
    let socket = UnixDatagram::bind(place.at("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let receive = || {
        let mut buffer = [0; 512];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    let mut command = serve_in(place.path(), &[]);
    let mut server = Served::start(command.env("NOTIFY_SOCKET", place.at("notify")));
    let ready = receive();
    assert_eq!(ready, format!("READY=1\nSTATUS=serving on {}\n", server.address));
    server.signal("-HUP");
    assert!(receive().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(receive(), "READY=1\n");
    server.signal("-TERM");
    assert_eq!(receive(), "STOPPING=1\n");
    assert_eq!(server.ended().0.code(), Some(0));
    let mut wrong = serve_in(place.path(), &[]);
    let error = Served::try_start(wrong.env("NOTIFY_SOCKET", "relative")).err().unwrap();
    assert!(error.contains("NOTIFY_SOCKET"), "{error}");
}

/// A server started by `systemd-socket-activate`, killed on drop.
struct Activated(Child);

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        println!("skipped: {program} is not available");
    }
    has
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn a_failure_is_a_line_of_a_json_log() {
    let place = place();
    place.write("stock.txt", "1 2\n");
    let ran = serve_in(place.path(), &["--log", "json", "--durability", "none"]).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{text}");
    let line: serde_json::Value = serde_json::from_str(&text).expect("one object");
    assert_eq!(line["level"], "error");
    assert!(line["message"].as_str().unwrap().contains("line 1: "), "{text}");
}

#[test]
fn no_two_servers_use_one_port() {
    for model in ["epoll", "reuseport", "uring-per-core"] {
        let (one, other) = (place(), place());
        let args = ["--durability", "none", "--model", model];
        let first = match Served::try_start(&mut serve_in(one.path(), &args)) {
            Ok(first) => first,
            Err(said) if said.contains("io_uring") => {
                println!("skipped: {}", said.trim());
                continue;
            }
            Err(said) => panic!("{model}: {said}"),
        };
        let mut second = other.ours(&["serve", "--listen", &first.address]);
        let error = Served::try_start(second.args(args)).err().expect(model);
        assert!(error.contains("Address already in use"), "{model}: {error}");
        let free = free_address();
        let mut both = other.ours(&["serve", "--listen", &free, "--listen-line", &free]);
        let error = Served::try_start(both.args(args)).err().expect(model);
        assert!(error.contains("Address already in use"), "{model}: {error}");
    }
}

#[test]
fn of_two_servers_that_start_together_one_uses_the_port() {
    let args = ["--durability", "none", "--model", "reuseport", "--loops", "2"];
    let rounds = (0..8).filter(|_| {
        let (one, other) = (place(), place());
        let address = free_address();
        let start = |place: &Workspace| {
            let mut command = place.ours(&["serve", "--listen", &address]);
            Served::try_start(command.args(args))
        };
        let both = std::thread::scope(|scope| {
            let first = scope.spawn(|| start(&one));
            let second = start(&other);
            [first.join().unwrap(), second]
        });
        let errors: Vec<&String> = both.iter().filter_map(|one| one.as_ref().err()).collect();
        assert!(!errors.is_empty(), "both servers use {address}");
        assert!(errors.iter().all(|error| error.contains("Address already in use")), "{errors:?}");
        errors.len() == 1
    });
    // Another test can take the free port first.
    assert!(rounds.count() >= 6);
}

#[test]
fn sockets_are_inherited_in_every_model() {
    if !has("systemd-socket-activate") {
        return;
    }
    let models = [
        "iterative",
        "thread",
        "pool",
        "request-pool",
        "select",
        "poll",
        "epoll",
        "epoll-et",
        "reuseport",
        "io-threads",
        "uring",
        "uring-multishot",
        "uring-per-core",
        "tokio",
    ];
    std::thread::scope(|scope| {
        for model in models {
            scope.spawn(move || inherits(model));
        }
    });
}

/// Starts a server by socket activation at two addresses; `None` if one of them is taken.
fn activated(
    model: &str,
    dir: &std::path::Path,
) -> Option<(Activated, BufReader<std::process::ChildStderr>, String, String)> {
    let (address, unpadded) = (free_address(), free_address());
    let mut command = Command::new("systemd-socket-activate");
    command.args(["-l", &address, "-l", &unpadded, "--fdname", "main:line"]);
    command.arg(env!("CARGO_BIN_EXE_ioloom"));
    command.current_dir(dir).stdin(Stdio::null()).stderr(Stdio::piped());
    command.args(["serve", "--model", model, "--durability", "none"]);
    let mut server = Activated(command.spawn().unwrap());
    let mut said = BufReader::new(server.0.stderr.take().unwrap());
    for _ in [&address, &unpadded] {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        if line.contains("Address already in use") {
            return None;
        }
        assert!(line.contains("Listening on"), "{line}");
    }
    Some((server, said, address, unpadded))
}

fn inherits(model: &str) {
    let place = place();
    // Another test may take a free port first.
    let listening = (0..10).find_map(|_| activated(model, place.path()));
    let (mut server, mut said, address, unpadded) = listening.expect("ports that stay free");
    // The first connection starts the server.
    let mut padded = (0..6000)
        .find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            TcpStream::connect(&address).ok()
        })
        .unwrap();
    padded.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    padded.write_all(b"buy 1 10\nexit\n").unwrap();
    let mut answer = Vec::new();
    padded.read_to_end(&mut answer).unwrap();
    assert!(answer.len() == 8192 && answer.starts_with(b"[buy] success\n\0"), "{model}");
    drop(padded);
    let mut client = Client::plain(&unpadded).unwrap();
    assert_eq!(client.ask("buy 1 10").as_deref(), Some("[buy] success"), "{model}");
    // The next program takes over both sockets.
    let process = server.0.id().to_string();
    let signal = |name: &str| {
        Command::new("kill").args([name, process.as_str()]).status().unwrap().success()
    };
    assert!(signal("-USR2"));
    drop(client);
    let mut before = String::new();
    while before.matches("(unpadded)").count() < 2 {
        assert!(said.read_line(&mut before).unwrap() > 0, "{model}: the server ended");
    }
    assert_eq!(before.matches(&format!("listening on {address}")).count(), 2, "{model}: {before}");
    let mut client = Client::plain(&unpadded).unwrap();
    assert_eq!(client.ask("buy 1 10").as_deref(), Some("[buy] success"), "{model}");
    assert!(signal("-TERM"));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(server.0.wait().unwrap().code(), Some(0), "{model}: {rest}");
    let stocks = std::fs::read_to_string(place.at("stock.txt")).unwrap();
    assert_eq!(stocks, "1 99970 10\n2 100000 20\n", "{model}");
}

#[test]
fn other_descriptors_are_not_taken_for_sockets() {
    let place = place();
    // The shell passes its own number, which exec keeps.
    let mut command = Command::new("sh");
    let script = "exec 3<stock.txt; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_ioloom")]);
    add_args(&mut command, place.path(), &[]);
    let error = Served::try_start(&mut command).err().unwrap();
    assert!(error.contains("descriptor 3 in LISTEN_FDS is not a listening TCP socket"), "{error}");
    // Variables for another process are ignored.
    let mut command = serve_in(place.path(), &[]);
    let _server = Served::start(command.env("LISTEN_PID", "1").env("LISTEN_FDS", "1"));
}

#[test]
fn the_unit_files_are_valid() {
    if !has("systemd-analyze") {
        return;
    }
    let place = place();
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/systemd");
    let mut paths = Vec::new();
    for name in ["ioloom-serve.service", "ioloom-serve.socket"] {
        let text = std::fs::read_to_string(format!("{units}/{name}")).unwrap();
        // The program is not installed here.
        place.write(name, text.replace("/usr/bin/ioloom", env!("CARGO_BIN_EXE_ioloom")));
        paths.push(place.at(name));
    }
    let ran = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output();
    let ran = ran.unwrap();
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !text.contains("ioloom"), "{text}");
}
