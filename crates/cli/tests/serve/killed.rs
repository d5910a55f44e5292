//! A server that is killed at any moment under load: what it has afterwards is a prefix of the order
//! log with every acknowledged order, whichever store holds it.

use crate::bench::{Random, Served, count, killed_under_load, place, recovered};

/// Kills in a run of the tests; `IOLOOM_KILLS` sets another number.
const KILLS: usize = 25;

/// Every store at every durability that it has.
const STORES: [[&str; 2]; 8] = [
    ["sqlite", "os"],
    ["sqlite", "group"],
    ["sqlite", "each"],
    ["redb", "group"],
    ["redb", "each"],
    ["fjall", "os"],
    ["fjall", "group"],
    ["fjall", "each"],
];

/// Ways to order, commit and wait; as many as are not a multiple of the stores, so that all meet.
const MODELS: [[&str; 2]; 7] = [
    ["epoll", "global"],
    ["epoll-et", "global"],
    ["thread", "stock"],
    ["pool", "rw"],
    ["request-pool", "writer"],
    ["io-threads", "writer"],
    ["reuseport", "shards"],
];

fn kills() -> usize {
    std::env::var("IOLOOM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS)
}

#[test]
fn a_killed_server_has_kept_every_acknowledged_order() {
    let mut random = Random(7);
    let (mut acknowledged, mut there) = (0, 0);
    for round in 0..kills() {
        let ([store, durability], [model, sharing]) =
            (STORES[round % STORES.len()], MODELS[round % MODELS.len()]);
        let case = format!("round {round}: {store} {durability} {model} {sharing}");
        let args = ["--store", store, "--durability", durability, "--model", model];
        let args = [&args[..], &["--sharing", sharing]].concat();
        let place = place();
        let mut server = Served::in_dir(place.path(), &args);
        let heard = killed_under_load(&mut server, random.moment());
        let server = Served::in_dir(place.path(), &args);
        let found = recovered(&server, &heard, &case);
        assert_eq!(found.lost, 0, "{case}: acknowledged orders are lost");
        acknowledged += count(&heard);
        there += found.orders;
    }
    println!("{} kills: {acknowledged} acknowledged, {there} recovered", kills());
    assert!(acknowledged > 0, "no round got as far as an answer");
}

/// A store that is killed while it is made is made again.
#[test]
fn a_store_that_is_killed_while_it_is_made_is_there_whole_or_not_at_all() {
    let mut random = Random(11);
    for store in ["sqlite", "redb", "fjall"] {
        let place = place();
        for _ in 0..6 {
            let mut command = crate::bench::serve_in(place.path(), &["--store", store]);
            command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null());
            let mut child = command.spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_micros(500 + random.below(12_000)));
            let _ = child.kill();
            let _ = child.wait();
        }
        let mut server = Served::in_dir(place.path(), &["--store", store]);
        let heard = killed_under_load(&mut server, random.moment());
        let server = Served::in_dir(place.path(), &["--store", store]);
        assert_eq!(recovered(&server, &heard, store).lost, 0, "{store}");
    }
}
