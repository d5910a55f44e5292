//! Two servers before a PostgreSQL database with a synchronous replica: the primary is killed under
//! load and the replica promoted.
//!
//! If PostgreSQL is not installed, the test prints that it is skipped.

use crate::bench::{Bench, Client};
use crate::database::{until_known, with_database};
use ioloom_serve::{Durability, Model, ServeOptions};
use ioloom_testbed::Postgres;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Initial shares of each stock.
const LEFT: usize = 1_000_000;

/// Acknowledged orders by client and number, with their answers.
type Received = BTreeMap<(usize, usize), (String, String)>;

#[test]
fn a_promoted_replica_has_every_acknowledged_order() {
    let Some(mut primary) = Postgres::start(&[]) else { return };
    primary.database("stocks");
    let replica = primary.replica();
    let words = primary.with_replica(&replica, "stocks");
    let levels = [(Durability::Group, Model::Epoll), (Durability::Each, Model::RequestPool)];
    let servers = levels.map(|(durability, model)| {
        Bench::with(model, |config: &mut ServeOptions| {
            std::fs::write(&config.stock, format!("1 {LEFT} 10\n2 {LEFT} 20\n")).unwrap();
            with_database(&words, durability)(config);
        })
    });
    let (received, longest) = (Mutex::new(Received::new()), Mutex::new(Duration::ZERO));
    let (doubts, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (server, received, longest) = (&servers[number % 2], &received, &longest);
            let (doubts, is_over) = (&doubts, &is_over);
            scope.spawn(move || {
                let mut client = Client::new(server.address);
                client.request(&format!("HELLO stock/2 client=c{number}"));
                for id in 1.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let order = format!("{id} BUY {} {}", id % 2 + 1, number + 1);
                    let since = Instant::now();
                    let said = until_known(&mut client, &order, doubts);
                    assert!(said.contains(" OK "), "{said}");
                    let mut longest = longest.lock().unwrap();
                    *longest = since.elapsed().max(*longest);
                    received.lock().unwrap().insert((number, id), (order, said));
                }
            });
        }
        let wait_for = |orders| {
            let count = || received.lock().unwrap().len();
            let before = count();
            for _ in 0..30_000 {
                if count() >= before + orders {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            panic!("no orders are executed");
        };
        wait_for(60);
        primary.kill();
        replica.promote();
        wait_for(60);
        is_over.store(true, Ordering::Relaxed);
    });
    let (received, longest) = (received.into_inner().unwrap(), longest.into_inner().unwrap());
    let (count, doubts) = (received.len(), doubts.into_inner());
    println!("{count} orders, {doubts} repetitions, longest wait {longest:?}");
    let mut taken = [0, 0];
    // The other server knows the orders too.
    let mut others = [0, 1].map(|at| Client::new(servers[at].address));
    for ((number, id), (order, said)) in &received {
        let other = &mut others[(number + 1) % 2];
        if *id == 1 {
            *other = Client::new(servers[(number + 1) % 2].address);
            other.request(&format!("HELLO stock/2 client=c{number}"));
        }
        assert_eq!(other.request(order), *said, "client {number}");
        taken[id % 2] += number + 1;
    }
    let mut client = servers[0].client();
    client.send("show\n");
    for (at, taken) in taken.into_iter().enumerate() {
        assert_eq!(client.line(), format!("{} {} {}\n", at + 1, LEFT - taken, (at + 1) * 10));
    }
}
