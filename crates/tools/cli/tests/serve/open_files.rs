//! Descriptors run out: those who are in stay in and are served, others are refused at once, and when
//! there is room again everybody is served. Under every model.

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
/// Clients that are in before descriptors run out.
const INSIDE: usize = 4;
/// Clients that come afterwards.
const CROWD: usize = 40;
/// Descriptors that are left for them.
const LEFT: usize = 3;

#[derive(Default, Debug)]
struct Crowd {
    served: usize,
    refused: usize,
    silent: usize,
}

fn sell(client: &mut Client) -> Option<String> {
    client.ask("sell 2 1")
}

/// Lowers the limit of a process to a few descriptors more than it has; false, with a word, where
/// this cannot be done.
fn starve(server: &Served) -> bool {
    let process = format!("/proc/{}/fd", server.child.id());
    let numbers = fs::read_dir(process).expect("it is ours").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<usize>().ok());
    let used: HashSet<usize> = numbers.collect();
    let last = (0..).filter(|number| !used.contains(number)).nth(LEFT).expect("numbers go on");
    let mut command = Command::new("prlimit");
    command.arg("--pid").arg(server.child.id().to_string()).arg(format!("--nofile={last}"));
    let lowered = command.status().is_ok_and(|status| status.success());
    if !lowered {
        println!("skipped: prlimit cannot lower the limit of a process");
    }
    lowered
}

fn crowd(server: &Served, count: usize, sold: &mut usize) -> Crowd {
    let mut all: Vec<Client> = (0..count).filter_map(|_| Client::plain(&server.address)).collect();
    let mut crowd = Crowd { refused: count - all.len(), ..Crowd::default() };
    for client in &mut all {
        client.set_patience(Duration::from_secs(2));
        let began = std::time::Instant::now();
        match sell(client).as_deref() {
            Some("[sell] success") => crowd.served += 1,
            Some(said) => {
                assert_eq!(said, "BUSY");
                crowd.refused += 1;
            }
            None if began.elapsed() < Duration::from_secs(2) => crowd.refused += 1,
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
    // One after the other, each waits until the one before is cut.
    let count = if model == "iterative" { INSIDE } else { CROWD };
    let came = crowd(&server, count, &mut sold);
    println!("{model}: {came:?}");
    if !one_by_one {
        // A request that goes on accepting has the limit of when it was made; what these two do
        // without descriptors is shown through the fault seam, in the tests of the server.
        let by_old_limit = matches!(model, "uring-multishot" | "uring-per-core");
        assert!(by_old_limit || came.refused > 0, "{model}: descriptors did not run out");
        assert_eq!(came.silent, 0, "{model}: a client is left waiting");
        for client in &mut inside {
            assert_eq!(sell(client).unwrap(), "[sell] success", "{model}: who is in stays in");
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
    // A silent client may have been cut before it read its answer.
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
