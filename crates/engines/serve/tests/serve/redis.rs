//! Redis programs with their default settings, with every model. Skipped where they are missing.

use crate::bench::{Bench, LONG_REQUEST, every_model};
use ioloom_exchange::Token;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const TOKEN: &str = "correct-horse-battery";

/// Returns true if a program can be started.
fn is_there(program: &str, arguments: &[&str]) -> bool {
    let ran = Command::new(program).args(arguments).output();
    let is_there = ran.is_ok_and(|ran| ran.status.success());
    if !is_there {
        println!("skipped: {program} {} is not available", arguments.join(" "));
    }
    is_there
}

/// Runs a program with input; it is killed if it does not end in time.
fn run(program: &str, arguments: &[&str], input: &[u8]) -> (bool, String) {
    let mut command = Command::new("timeout");
    command.args(["60", program]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that does not read its input may already have ended.
    let _ = child.stdin.take().unwrap().write_all(input);
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    (status.success(), text.into_owned())
}

fn port(bench: &Bench) -> String {
    bench.address.port().to_string()
}

#[test]
fn redis_cli_works() {
    if !is_there("redis-cli", &["--version"]) {
        return;
    }
    every_model(|model| {
        let bench = Bench::new(model);
        let port = port(&bench);
        let cli = |arguments: &[&str], input: &str| {
            let (is_fine, text) =
                run("redis-cli", &[&["-p", &port], arguments].concat(), input.as_bytes());
            assert!(is_fine, "{model} {arguments:?}: {text}");
            text
        };
        for version in ["-2", "-3"] {
            assert_eq!(cli(&[version, "PING"], ""), "PONG\n", "{model}");
            assert!(cli(&[version, "BUY", "1", "1"], "").trim().parse::<u32>().is_ok());
            assert!(cli(&[version, "SHOW"], "").contains("1000"), "{model}");
            assert_eq!(cli(&[version, "ECHO", "a b"], ""), "a b\n", "{model}");
            assert_eq!(cli(&[version, "CLIENT", "GETNAME"], ""), "\n", "{model}");
            assert_eq!(cli(&[version, "-n", "0", "PING"], ""), "PONG\n", "{model}");
        }
        // Several commands on one connection.
        assert_eq!(cli(&[], "BUY 1 8\nSELL 2 1\n"), "990\n1001\n", "{model}");
        let frames = "*3\r\n$3\r\nBUY\r\n$1\r\n2\r\n$1\r\n1\r\n".repeat(500);
        let inline = "BUY 2 1\r\n".repeat(300);
        for (input, count) in [(frames.as_str(), 500), (&inline, 300), ("", 0)] {
            let text = cli(&["--pipe"], input);
            assert!(text.contains(&format!("errors: 0, replies: {count}")), "{model}: {text}");
        }
        assert_eq!(cli(&["BUY", "2", "1"], ""), "200\n", "{model}");
    });
}

#[test]
fn redis_benchmark_works() {
    if !is_there("redis-benchmark", &["--version"]) {
        return;
    }
    every_model(|model| {
        let bench = Bench::new(model);
        let port = port(&bench);
        for arguments in [
            &["-t", "ping"][..],
            &["-3", "-t", "ping"],
            &["-P", "16", "-t", "ping"],
            &["-P", "16", "sell", "2", "1"],
            &["-3", "-P", "16", "sell", "2", "1"],
        ] {
            // The iterative model serves one connection at a time, and the pool four.
            let usual = ["-p", &port, "-c", "1", "-n", "320", "-q"];
            let (is_fine, text) = run("redis-benchmark", &[&usual, arguments].concat(), b"");
            assert!(
                is_fine && text.contains("requests per second"),
                "{model} {arguments:?}: {text}"
            );
            let lower = text.to_lowercase();
            assert!(!lower.contains("error") && !lower.contains("warning"), "{model}: {text}");
        }
        let mut client = bench.client();
        assert_eq!(client.request("buy 2 1"), "[buy] success\n", "{model}");
        client.send("show\n");
        assert_eq!((client.line(), client.line()), ("1 1000 10\n".into(), "2 1639 20\n".into()));
    });
}

/// The default client selects RESP3 and sends its name and version.
const PYTHON: &str = r#"
import sys, redis
port, token = int(sys.argv[1]), sys.argv[2] or None
def check(client, version):
    assert client.ping() is True
    assert client.echo("a") == b"a"
    assert client.execute_command("BUY", 1, 1) == client.execute_command("SHOW")[0][1]
    try:
        client.execute_command("BUY", 9, 1)
        assert False
    except redis.ResponseError as error:
        assert "unknown-stock" in str(error)
    assert client.client_getname() is None
    assert client.client_id() > 0
    assert "buy" in client.command()
    pipeline = client.pipeline(transaction=False)
    for _ in range(100):
        pipeline.execute_command("SELL", 2, 1)
    assert len(pipeline.execute()) == 100
    client.close()
check(redis.Redis(port=port, password=token), 3)
check(redis.Redis(port=port, password=token, protocol=2), 2)
check(redis.Redis(port=port, password=token, protocol=3, client_name=None), 3)
named = redis.Redis(port=port, password=token, client_name="desk")
assert named.client_getname() in ("desk", b"desk")
named.close()
"#;

#[test]
fn redis_py_works_with_its_defaults() {
    if !is_there("python3", &["-c", "import redis"]) {
        return;
    }
    every_model(|model| {
        for token in ["", TOKEN] {
            let bench = Bench::with(model, |config| {
                config.access = Token::new(token).ok().map(Into::into);
                config.limits.request = LONG_REQUEST;
            });
            let (is_fine, text) = run("python3", &["-c", PYTHON, &port(&bench), token], b"");
            assert!(is_fine, "{model}: {text}");
        }
    });
}
