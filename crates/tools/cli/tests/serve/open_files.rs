//! Exhausted descriptors, with every model: connected clients are still served, new ones are rejected
//! immediately, and once descriptors are available again all clients are served.

use crate::bench::{Client, Served, place};
use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

const MODELS: [&str; 14] = [
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
/// Clients connected before descriptors run out.
const INSIDE: usize = 4;
/// Clients that connect afterwards.
const CROWD: usize = 40;
/// Descriptors available to them.
const LEFT: usize = 3;
/// Time after which a client whose turn may never come gives up.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);
/// Time after which a client that must be answered gives up.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default, Debug)]
struct Crowd {
    served: usize,
    refused: usize,
    silent: usize,
}

fn sell(client: &mut Client) -> Option<String> {
    client.ask("sell 2 1")
}

/// Lowers the descriptor limit of a process to slightly more than it uses. On failure, prints a
/// message and returns false.
fn starve(server: &Served) -> bool {
    let process = format!("/proc/{}/fd", server.child.id());
    let numbers = fs::read_dir(process).expect("it is a child process").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<usize>().ok());
    let used: HashSet<usize> = numbers.collect();
    let last =
        (0..).filter(|number| !used.contains(number)).nth(LEFT).expect("the range is unbounded");
    let mut command = Command::new("prlimit");
    command.arg("--pid").arg(server.child.id().to_string()).arg(format!("--nofile={last}"));
    let lowered = command.status().is_ok_and(|status| status.success());
    if !lowered {
        println!("skipped: prlimit cannot lower the limit");
    }
    lowered
}

fn crowd(server: &Served, count: usize, patience: Duration, sold: &mut usize) -> Crowd {
    let mut all: Vec<Client> = (0..count).filter_map(|_| Client::plain(&server.address)).collect();
    let mut crowd = Crowd { refused: count - all.len(), ..Crowd::default() };
    for client in &mut all {
        // If one that must be answered is silent, the test fails anyway.
        let patience = if crowd.silent == 0 { patience } else { SHORT_PATIENCE };
        client.set_patience(patience);
        let began = std::time::Instant::now();
        match sell(client).as_deref() {
            Some("[sell] success") => crowd.served += 1,
            Some(said) => {
                assert_eq!(said, "BUSY");
                crowd.refused += 1;
            }
            None if began.elapsed() < patience => crowd.refused += 1,
            None => crowd.silent += 1,
        }
    }
    *sold += crowd.served;
    crowd
}

fn survives(model: &str) {
    let place = place();
    let args = ["--model", model, "--connections", "200", "--loops", "2"];
    let command = &mut crate::bench::serve_in(place.path(), &args);
    let mut server = match Served::try_start(command) {
        Ok(server) => server,
        Err(said) if said.contains("io_uring") => return println!("skipped: {}", said.trim()),
        Err(said) => panic!("{model}: {said}"),
    };
    // Waiting clients are served once the idle one is disconnected.
    let one_by_one = matches!(model, "iterative" | "pool");
    let mut sold = 0;
    let inside = if one_by_one { 1 } else { INSIDE };
    let mut inside: Vec<_> = (0..inside).map(|_| Client::plain(&server.address).unwrap()).collect();
    for client in &mut inside {
        assert_eq!(sell(client).unwrap(), "[sell] success", "{model}");
        sold += 1;
    }
    if !starve(&server) {
        return;
    }
    // Sequentially: each client waits until the previous one is disconnected.
    let count = if model == "iterative" { INSIDE } else { CROWD };
    let patience = if one_by_one { SHORT_PATIENCE } else { PATIENCE };
    let came = crowd(&server, count, patience, &mut sold);
    println!("{model}: {came:?}");
    if !one_by_one {
        // A multishot accept uses the limit in effect when it was submitted. The server's own tests
        // check these two models without descriptors through the fault seam.
        let by_old_limit = matches!(model, "uring-multishot" | "uring-per-core");
        assert!(by_old_limit || came.refused > 0, "{model}: descriptors did not run out");
        assert_eq!(came.silent, 0, "{model}: a client received no answer");
        for client in &mut inside {
            assert_eq!(
                sell(client).unwrap(),
                "[sell] success",
                "{model}: a connected client was not served"
            );
            sold += 1;
        }
    }
    drop(inside);
    let again = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let client = Client::plain(&server.address);
        client.and_then(|mut client| sell(&mut client)).is_some_and(|said| said != "BUSY")
    });
    assert!(again, "{model} serves no client afterwards");
    sold += 1;
    server.signal("-TERM");
    let (status, said) = server.ended();
    assert_eq!(status.code(), Some(0), "{model}: {said}");
    let stocks = fs::read_to_string(place.at("stock.txt")).unwrap();
    let left = 100_000 + sold;
    let expected = format!("1 100000 10\n2 {left} 20\n");
    // A silent client can be disconnected before it reads its answer.
    assert!(one_by_one || stocks == expected, "{model}: {stocks}");
}

#[test]
fn without_descriptors_a_server_goes_on_with_those_who_are_in() {
    std::thread::scope(|scope| {
        for model in MODELS {
            scope.spawn(move || survives(model));
        }
    });
}
