//! Misbehaving clients. After each of them, a well-behaved client must be served normally.

use crate::bench::{
    Bench, Client, LONG_STOP, crowd_alone, every_model, short_limits, without_crowds,
};
use ioloom_serve::{Limits, Model};
use ioloom_sys_net::Socket;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Time for reading pending answers in tests that need no more.
const SHORT_DRAIN: Duration = Duration::from_millis(400);

/// Asserts that a well-behaved client is served. Models with few threads may answer BUSY during
/// cleanup, and close the connection of a client that pauses.
fn assert_serves(bench: &Bench, model: Model, after: &str) {
    for _ in 0..1000 {
        let mut client = bench.client();
        let sent = client.stream.write_all(b"sell 2 1\n").ok();
        let said = sent.and_then(|()| client.try_line());
        match said.as_deref() {
            Some("BUSY\n") | None => std::thread::sleep(Duration::from_millis(10)),
            Some(said) => return assert_eq!(said, "[sell] success\n", "{model} after {after}"),
        }
    }
    panic!("{model} does not serve clients after {after}");
}

/// Returns the metrics, or nothing if the server is busy.
fn metrics(bench: &Bench) -> String {
    let mut client = Client::new(bench.address);
    client.send("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client.rest()
}

#[test]
fn nonsense_is_answered_and_changes_nothing() {
    every_model(|model| {
        let bench = Bench::new(model);
        let mut client = bench.client();
        for (ask, says) in [
            ("buy 9 1", "No such stock\n"),
            ("sell 9 1", "No such stock\n"),
            ("buy", "Invalid number\n"),
            ("buy 1", "Invalid number\n"),
            ("buy 1 -5", "Invalid number\n"),
            ("buy 1 0", "Invalid number\n"),
            ("sell 1 2147483647", "Too many stocks\n"),
            ("sell 1 99999999999999999999", "Invalid number\n"),
            ("", "Invalid command\n"),
            ("steal 1 1", "Invalid command\n"),
        ] {
            assert_eq!(client.request(ask), says, "{model}: {ask}");
        }
        client.send([0xff, 0xfe, 0x80, b'\n']);
        assert_eq!(client.line(), "Invalid command\n", "{model}");
        client.send("show\n");
        assert_eq!(client.line() + &client.line() + &client.line(), crate::bench::STOCKS);
        drop(client);
        assert_serves(&bench, model, "nonsense");
    });
}

#[test]
fn an_incomplete_line_orders_nothing_and_blocks_no_clients() {
    every_model(|model| {
        let bench = Bench::new(model);
        let mut half = bench.client();
        half.send("buy 1 1");
        assert_serves(&bench, model, "an incomplete line");
        let mut gone = bench.client();
        gone.send("buy 1 1");
        gone.end_writing();
        assert_eq!(gone.rest(), "", "{model}");
        drop(gone);
        // The incomplete line is dropped after its timeout.
        let _ = half.rest();
        drop(half);
        let mut client = bench.client();
        client.send("show\n");
        assert_eq!(client.line(), "1 1000 10\n", "{model}");
    });
}

#[test]
fn a_slow_sender_is_disconnected() {
    every_model(|model| {
        let bench = Bench::new(model);
        let mut slow = bench.client();
        for _ in 0..100 {
            if slow.stream.write_all(b"x").is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        assert_eq!(slow.rest(), "", "{model}");
        assert_serves(&bench, model, "a trickle");
    });
}

#[test]
fn an_endless_line_is_rejected_with_an_answer() {
    every_model(|model| {
        let bench = Bench::new(model);
        let mut flood = bench.client();
        flood.send(vec![b'x'; 9000]);
        assert_eq!(flood.rest(), "Line too long\n", "{model}");
        assert_serves(&bench, model, "a long line");
        // A flood without a pause may be reset, but always terminates.
        let mut flood = bench.client();
        for _ in 0..2000 {
            if flood.stream.write_all(&[b'x'; 9000]).is_err() {
                break;
            }
        }
        drop(flood);
        assert_serves(&bench, model, "a flood");
    });
}

#[test]
fn resets_and_unread_answers_affect_only_their_connection() {
    every_model(|model| {
        let bench = Bench::new(model);
        for asked in ["", "show\n", "show\nshow\nbuy 1 1"] {
            let client = Socket::connect(bench.address).unwrap();
            client.set_reset_on_close().unwrap();
            client.send(asked.as_bytes()).unwrap();
            drop(client);
        }
        let mut leaves = Client::new(bench.address);
        leaves.send("show\n".repeat(1000));
        drop(leaves);
        assert_serves(&bench, model, "resets");
    });
}

#[test]
fn a_client_that_never_reads_is_bounded_and_disconnected() {
    every_model(|model| {
        let bench = Bench::with(model, |config| config.limits.drain = SHORT_DRAIN);
        let mut deaf = Client::new(bench.address);
        deaf.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Answers are 1000 times as long as requests, so the server soon stops reading from this
        // client.
        let questions = "show\n".repeat(2000);
        let stuck = (0..2000).any(|_| deaf.stream.write_all(questions.as_bytes()).is_err());
        assert!(stuck, "{model} reads without limit");
        assert_serves(&bench, model, "a deaf client");
        // The client is disconnected: data in flight can be read, followed by the end or a reset.
        let is_cut = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            metrics(&bench).contains("{reason=\"drain-time\"} 1\n")
        });
        assert!(is_cut, "{model} keeps a client that never reads");
        let (mut buffer, mut read) = (vec![0; 1 << 16], 0);
        while let Ok(n @ 1..) = std::io::Read::read(&mut deaf.stream, &mut buffer) {
            read += n;
        }
        assert!(read < 64 << 20, "{model} sent {read} bytes");
    });
}

/// Requests lists until the server stops accepting requests.
fn flood_with_requests(stream: &mut TcpStream) {
    let questions = "show\n".repeat(2000);
    while stream.write_all(questions.as_bytes()).is_ok() {}
}

/// Returns whether a client that reads constant output stays connected for longer than this drain
/// timeout and the interval at which it is checked, with answers pending the whole time.
fn keeps_a_reader(model: Model, drain: Duration) -> bool {
    let bench = Bench::with(model, |config| config.limits.drain = drain);
    let mut client = Client::new(bench.address);
    let mut asking = client.stream.try_clone().unwrap();
    let is_kept = std::thread::scope(|scope| {
        scope.spawn(move || flood_with_requests(&mut asking));
        let (began, mut buffer) = (Instant::now(), vec![0; 1 << 16]);
        let mut is_kept = true;
        while is_kept && began.elapsed() < drain * 4 {
            is_kept = matches!(client.stream.read(&mut buffer), Ok(1..));
            std::thread::sleep(Duration::from_millis(2));
        }
        // This fails if the server has closed it.
        let _ = client.stream.shutdown(Shutdown::Both);
        is_kept
    });
    assert_serves(&bench, model, "a client with constant output");
    is_kept
}

/// On a busy machine the client itself can pause for longer than a short timeout, so longer ones are
/// tried too.
#[test]
fn a_client_with_constant_output_that_reads_is_not_disconnected() {
    every_model(|model| {
        let mut drains = [1, 2, 4, 8, 16].into_iter().map(|times| SHORT_DRAIN * times);
        assert!(drains.any(|drain| keeps_a_reader(model, drain)), "{model}");
    });
}

#[test]
fn a_stop_waits_a_limited_time_for_a_client_that_never_reads() {
    every_model(|model| {
        let bench = Bench::with(model, |config| {
            config.limits.drain = Duration::from_secs(3600);
            config.limits.stop = Duration::from_millis(200);
        });
        let mut deaf = Client::new(bench.address);
        deaf.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        flood_with_requests(&mut deaf.stream);
        bench.request_stop();
        let ended = (0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            bench.has_ended()
        });
        assert!(ended, "{model} does not stop");
        drop(deaf);
    });
}

#[test]
fn a_half_closed_client_gets_all_its_answers() {
    every_model(|model| {
        let bench = Bench::new(model);
        let mut client = bench.client();
        client.send("buy 1 1\n".repeat(900) + "show\n");
        client.end_writing();
        let expected = "[buy] success\n".repeat(900) + "1 100 10\n2 1000 20\n3 5 30\n";
        assert_eq!(client.rest(), expected, "{model}");
    });
}

#[test]
fn many_short_connections_leave_nothing_behind() {
    every_model(|model| {
        let bench = Bench::new(model);
        for _ in 0..60 {
            assert_serves(&bench, model, "a short connection");
        }
        for _ in 0..60 {
            drop(Client::new(bench.address));
        }
        assert_serves(&bench, model, "short connections");
    });
}

#[test]
fn idle_crowds_do_not_block_others() {
    every_model(|model| {
        let bench = Bench::with(model, |config| config.limits.hog = Duration::from_millis(100));
        // More than the threads and the queue of the pool can hold.
        let crowd: Vec<Client> = (0..18).map(|_| bench.client()).collect();
        let served = (0..200).any(|_| {
            let mut client = bench.client();
            client.stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            let _ = client.stream.write_all(b"sell 2 1\n");
            let mut answer = [0; 6];
            let read = std::io::Read::read_exact(&mut client.stream, &mut answer);
            if read.is_ok() && &answer == b"[sell]" {
                return true;
            }
            // They are rejected with BUSY or closed rather than left waiting.
            std::thread::sleep(Duration::from_millis(20));
            false
        });
        assert!(served, "{model}");
        drop(crowd);
        assert_serves(&bench, model, "a crowd");
    });
}

/// More descriptors than `select` supports.
const CROWD: usize = 1045;

#[test]
fn a_crowd_beyond_the_limit_of_select_harms_no_model() {
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let limit = ioloom_sys::proc::open_files_limit();
    // Both ends are in this process, and other tests use connections too.
    if limit.is_some_and(|limit| limit < 4 * CROWD as u64) {
        println!("skipped: {limit:?} open files are too few for {CROWD} connections");
        return;
    }
    let _alone = crowd_alone();
    for model in Model::ALL.iter().copied().filter(|model| crate::bench::is_possible(*model)) {
        // One connection at a time: each waiting connection times out only when it is next.
        let crowd = if model == Model::Iterative { 5 } else { CROWD };
        let bench = Bench::new(model);
        let idle: Vec<Client> = (0..crowd).map(|_| bench.client()).collect();
        if !matches!(model, Model::Iterative | Model::Pool | Model::Select) {
            assert_eq!(bench.client().request("sell 1 1"), "[sell] success\n", "{model}");
        }
        drop(idle);
        // A client that connects before the server has noticed all disconnections gets BUSY or is
        // closed.
        let again = (0..3000).any(|_| {
            let mut client = bench.client();
            let _ = client.stream.write_all(b"sell 2 1\n");
            let mut answer = [0; 6];
            let read = std::io::Read::read_exact(&mut client.stream, &mut answer);
            let served = read.is_ok() && &answer == b"[sell]";
            if !served {
                std::thread::sleep(Duration::from_millis(10));
            }
            served
        });
        assert!(again, "{model} does not serve clients after a crowd");
    }
}

#[test]
fn a_connection_beyond_the_limit_gets_busy() {
    let _beside = without_crowds();
    for model in Model::ALL {
        if !crate::bench::is_possible(*model) {
            continue;
        }
        if *model == Model::Iterative {
            println!("skipped: the iterative model serves one connection at a time");
            continue;
        }
        let bench = Bench::with(*model, |config| config.limits.connections = 3);
        let mut inside: Vec<Client> = (0..3).map(|_| bench.client()).collect();
        for client in &mut inside {
            assert_eq!(client.request("buy 1 1"), "[buy] success\n", "{model}");
        }
        assert_eq!(bench.client().rest(), "BUSY\n", "{model}");
        drop(inside);
        let again = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            let mut client = bench.client();
            let _ = client.stream.write_all(b"buy 1 1\n");
            client.try_line().is_some_and(|line| line != "BUSY\n")
        });
        assert!(again, "{model}");
    }
}

/// The clients of the original assignment do not expect to be turned away: its server blocks until
/// its buffer has room.
#[test]
fn clients_beyond_the_queue_of_the_pool_wait_in_the_backlog() {
    let _beside = without_crowds();
    // Clients that pause between their requests are not disconnected.
    let bench = Bench::with(Model::Pool, |config| config.limits.hog = Duration::from_secs(3600));
    // Twice as many as threads and places in the queue.
    let serve_one = || {
        let mut client = Client::new(bench.address);
        for _ in 0..3 {
            client.send("sell 2 1\n");
            let answer = client.take(8192);
            assert!(answer.starts_with("[sell] success\n\0"), "{answer}");
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..40).map(|_| scope.spawn(serve_one)).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    let (_, ended) = bench.end();
    assert_eq!((ended.done, ended.connections), (120, 40));
}

#[test]
fn clients_beyond_the_queue_of_the_pool_get_busy_on_request() {
    let _beside = without_crowds();
    let bench = Bench::with(Model::Pool, |config| {
        config.limits.busy_when_full = true;
        config.limits.hog = Duration::from_secs(3600);
    });
    let mut inside: Vec<Client> = (0..4).map(|_| bench.client()).collect();
    for client in &mut inside {
        assert_eq!(client.request("sell 2 1"), "[sell] success\n");
    }
    let waiting: Vec<Client> = (0..8).map(|_| bench.client()).collect();
    assert_eq!(bench.client().rest(), "BUSY\n");
    drop(inside);
    for mut client in waiting {
        assert_eq!(client.request("sell 2 1"), "[sell] success\n");
    }
}

/// More than any model reads at once.
#[test]
fn a_stop_answers_everything_that_has_arrived() {
    let count = 4000;
    every_model(|model| {
        let bench = Bench::with(model, |config| config.limits.stop = LONG_STOP);
        let mut client = bench.client();
        client.send("sell 2 1\n".repeat(count));
        assert_eq!(client.line(), "[sell] success\n", "{model}");
        bench.request_stop();
        let rest = client.rest();
        assert_eq!(rest.lines().count(), count - 1, "{model}");
        let (_, ended) = bench.end();
        assert_eq!(ended.done, count as u64, "{model}");
    });
}

#[test]
fn a_stop_answers_arrived_requests_and_accepts_no_more() {
    every_model(|model| {
        let bench = Bench::with(model, |config| config.limits.stop = LONG_STOP);
        let mut idle = bench.client();
        let mut busy = (0..100).map(|_| String::from("buy 1 1\n")).collect::<String>();
        assert_eq!(idle.request("buy 2 1"), "[buy] success\n");
        busy.push_str("buy 1 1"); // incomplete, so never an order
        let served_at_once = model != Model::Iterative;
        if served_at_once {
            let mut client = bench.client();
            client.send(&busy);
            client.line();
            bench.request_stop();
            let rest = client.rest();
            assert_eq!(rest, "[buy] success\n".repeat(99), "{model}");
        } else {
            bench.request_stop();
        }
        assert_eq!(idle.rest(), "", "{model}");
        let (dir, _) = bench.end();
        let stocks = std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
        let first = if served_at_once { "1 900 10\n2 999 20\n" } else { "1 1000 10\n2 999 20\n" };
        assert!(stocks.starts_with(first), "{model}: {stocks}");
    });
}

/// Both clients have the same address.
#[test]
fn limits_per_client_apply_to_all_its_connections() {
    every_model(|model| {
        let bench = Bench::with(model, |config| {
            (config.limits.client_connections, config.limits.client_rate) = (2, 20);
        });
        // So many that a pause of the machine permits only a part of them.
        let count = 400;
        let mut one = bench.client();
        one.send("sell 2 1\n".repeat(count));
        let answers: Vec<String> = (0..count).map(|_| one.line()).collect();
        let done = answers.iter().filter(|answer| *answer == "[sell] success\n").count();
        let busy = answers.iter().filter(|answer| *answer == "BUSY\n").count();
        // As many as a second permits, and those of the time that the answers take.
        assert!(done >= 20 && busy >= 1 && done + busy == count, "{model}: {answers:?}");
        // Not counted: they neither read nor change stocks.
        assert_eq!(one.request("fly"), "Invalid command\n", "{model}");
        if matches!(model, Model::Iterative) {
            return;
        }
        let mut two = bench.client();
        two.send("sell 2 1\n".repeat(count));
        assert!((0..count).any(|_| two.line() == "BUSY\n"), "{model}");
        assert_eq!(bench.client().rest(), "BUSY\n", "{model}");
    });
}

/// Threads and tasks that wait without a timeout read the limits every 5 s.
#[test]
fn reloaded_limits_apply_to_open_connections() {
    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(100);
    let limits = |request, idle| Limits { request, idle, ..short_limits() };
    every_model(|model| {
        let bench = Bench::with(model, |config| config.limits = limits(LONG, Duration::ZERO));
        let mut idle = bench.client();
        assert_eq!(idle.request("sell 2 1"), "[sell] success\n", "{model}");
        // This model serves one connection at a time.
        if model != Model::Iterative {
            bench.reload(Limits { connections: 1, ..limits(LONG, Duration::ZERO) });
            assert_eq!(bench.client().rest(), "BUSY\n", "{model}");
        }
        bench.reload(limits(LONG, SHORT));
        assert_eq!(idle.rest(), "", "{model}");
        bench.reload(limits(LONG, Duration::ZERO));
        let mut slow = bench.client();
        slow.send("sell 2");
        bench.reload(limits(SHORT, Duration::ZERO));
        assert_eq!(slow.rest(), "", "{model}");
    });
}
