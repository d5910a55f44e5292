//! Kills and power failures of servers under load. Every store must recover a prefix of the order log
//! with all acknowledged orders that the durability level promises.
//!
//! Both tests send orders until the server is killed and then start another one on the same files or
//! on the disk contents. A power failure is simulated by copying the device of the file system before
//! anything is synced (see `ioloom_testbed::Disk`). A kill loses no acknowledged order at any level.
//! After a power failure `group` and `each` must have all of them; for `os` and `none` the number of
//! lost orders is printed. The database also stores its data on such a disk, and its processes are
//! stopped before the copy.

use crate::bench::{Client, Heard, Numbers, Random, Recovered, STOCKS, Served, count};
use crate::bench::{is_possible, killed_under_load, log_number, place_for, place_for_image};
use crate::bench::{recovered, serve_in};
use ioloom_testbed::{Disk, Postgres, stores};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Default number of kills per test run; override with `IOLOOM_KILLS`.
const KILLS: usize = 25;
/// Default number of power failures per store and durability; override with `IOLOOM_CUTS`.
const CUTS: usize = 2;
/// Kills of each store during its creation.
const KILLS_MAKING: usize = 6;
/// Space for the log of fjall, which is preallocated, and for the data of a database.
const DISK_BYTES: u64 = 256 << 20;

/// Models and sharings. Their number is coprime to the number of stores, so all combinations occur.
const MODELS: [[&str; 2]; 7] = [
    ["epoll", "global"],
    ["epoll-et", "global"],
    ["thread", "stock"],
    ["pool", "rw"],
    ["request-pool", "writer"],
    ["io-threads", "writer"],
    ["reuseport", "shards"],
];

fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Sends orders to a server until it is killed. Returns the answers and what another server recovers
/// from the directory returned by `find`, or `None` if there is no such directory.
fn crash<Kept>(
    case: &str,
    (dir, args): (&Path, &[&str]),
    moment: Duration,
    numbers: Numbers,
    find: impl FnOnce() -> Option<(PathBuf, Kept)>,
) -> Option<(Heard, Recovered)> {
    let mut server = Served::in_dir(dir, args);
    let heard = killed_under_load(&mut server, moment);
    let (now, _kept) = find()?;
    let server = Served::in_dir(&now, args);
    let found = recovered(&server, &heard, numbers, case);
    Some((heard, found))
}

#[test]
fn a_killed_server_has_kept_every_acknowledged_order() {
    let (kills, mut random) = (number("IOLOOM_KILLS", KILLS), Random(7));
    let (mut acknowledged, mut there) = (0, 0);
    for round in 0..kills {
        let (store, durability) = stores().cycle().nth(round).expect("there are stores");
        let [model, sharing] = MODELS[round % MODELS.len()];
        let case = format!("round {round}: {store} {durability} {model} {sharing}");
        let args = ["--store", store, "--durability", durability, "--model", model];
        let args = [&args[..], &["--sharing", sharing]].concat();
        let place = place_for(store);
        if !is_possible(store, place.path()) {
            continue;
        }
        let same = || Some((place.path().to_owned(), ()));
        let at = random.moment();
        let crashed = crash(&case, (place.path(), &args), at, Numbers::Dense, same);
        let (heard, found) = crashed.expect("the same files");
        assert_eq!(found.lost, 0, "{case}: acknowledged orders are lost");
        acknowledged += count(&heard);
        there += found.orders;
    }
    println!("{kills} kills: {acknowledged} acknowledged, {there} recovered");
    assert!(acknowledged > 0, "no round received an answer");
}

/// A store whose creation is interrupted by a kill is created again.
#[test]
fn a_store_that_is_killed_while_it_is_made_is_there_whole_or_not_at_all() {
    let mut random = Random(11);
    for store in ["sqlite", "redb", "fjall", "log", "log-direct"] {
        let place = place_for(store);
        if !is_possible(store, place.path()) {
            continue;
        }
        let args = ["--store", store];
        for _ in 0..KILLS_MAKING {
            let mut command = serve_in(place.path(), &args);
            command.stderr(Stdio::null()).stdout(Stdio::null());
            let mut child = command.spawn().unwrap();
            std::thread::sleep(Duration::from_micros(500 + random.below(12_000)));
            let _ = child.kill();
            let _ = child.wait();
        }
        let same = || Some((place.path().to_owned(), ()));
        let at = random.moment();
        let crashed = crash(store, (place.path(), &args), at, Numbers::Dense, same);
        assert_eq!(crashed.expect("the same files").1.lost, 0, "{store}");
    }
}

/// Creates a directory with a synced stock file on a disk.
fn begin(disk: &Disk, name: &str) -> PathBuf {
    let dir = disk.path().join(name);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("stock.txt"), STOCKS).unwrap();
    disk.sync();
    dir
}

#[test]
fn a_power_cut_takes_no_acknowledged_order_where_that_was_asked() {
    let place = place_for_image();
    let Some(disk) = Disk::make(&place.at("image"), DISK_BYTES) else { return };
    let (copy, mut random) = (place.at("cut"), Random(3));
    for (store, durability) in stores() {
        if !is_possible(store, disk.path()) {
            continue;
        }
        let (mut acknowledged, mut lost) = (0, 0);
        for round in 0..number("IOLOOM_CUTS", CUTS) {
            let name = format!("{store}-{durability}-{round}");
            let args = ["--store", store, "--durability", durability];
            let dir = begin(&disk, &name);
            let after = || {
                let after = disk.cut(&copy)?;
                fs::remove_dir_all(&dir).unwrap();
                Some((after.path().join(&name), after))
            };
            let at = random.moment();
            let crashed = crash(&name, (&dir, &args), at, Numbers::Dense, after);
            let Some((heard, found)) = crashed else { return };
            acknowledged += count(&heard);
            lost += found.lost;
        }
        println!("{store} {durability}: {lost} of {acknowledged} acknowledged orders are lost");
        assert!(lost == 0 || durability == "os", "{store} {durability}: {lost} orders are lost");
    }
}

#[test]
fn a_power_cut_takes_no_acknowledged_order_of_a_database_where_that_was_asked() {
    let place = place_for_image();
    let Some(disk) = Disk::make(&place.at("image"), DISK_BYTES) else { return };
    let Some(mut postgres) = Postgres::start_in(&disk.path().join("data")) else { return };
    disk.sync();
    let (copy, mut random) = (place.at("cut"), Random(13));
    for durability in ["os", "group", "each"] {
        let (mut acknowledged, mut lost) = (0, 0);
        for round in 0..number("IOLOOM_CUTS", CUTS) {
            let name = format!("{durability}_{round}");
            place.write(format!("{name}/stock.txt"), STOCKS);
            let (dir, words) = (place.at(&name), postgres.database(&name));
            let args = ["--store", "postgres", "--database", &words, "--durability", durability];
            let after = || {
                postgres.pause();
                let after = disk.cut(&copy)?;
                postgres.kill();
                let again = postgres.on(&after.path().join("data"));
                Some((dir.clone(), (again, after)))
            };
            let at = random.moment();
            let crashed = crash(&name, (&dir, &args), at, Numbers::WithGaps, after);
            let Some((heard, found)) = crashed else { return };
            acknowledged += count(&heard);
            lost += found.lost;
            postgres.start_again();
        }
        println!("postgres {durability}: {lost} of {acknowledged} acknowledged orders are lost");
        assert!(lost == 0 || durability == "os", "{durability}: {lost} orders are lost");
    }
}

#[test]
fn without_durability_a_power_cut_leaves_a_whole_stock_file() {
    let place = place_for_image();
    let Some(disk) = Disk::make(&place.at("image"), DISK_BYTES) else { return };
    let (copy, mut random) = (place.at("cut"), Random(5));
    for round in 0..CUTS {
        let (name, args) = (format!("none-{round}"), ["--durability", "none"]);
        let dir = begin(&disk, &name);
        let mut server = Served::in_dir(&dir, &args);
        let heard = killed_under_load(&mut server, random.moment());
        let Some(after) = disk.cut(&copy) else { return };
        let dir = after.path().join(&name);
        let server = Served::in_dir(&dir, &args);
        let (orders, stocks) = shown(&server);
        assert_eq!(orders, 0, "numbering restarts");
        assert_eq!(stocks, fs::read_to_string(dir.join("stock.txt")).unwrap());
        println!("none: {} acknowledged orders are lost with the log", count(&heard));
    }
}

fn shown(server: &Served) -> (u64, String) {
    let mut client = Client::new(&server.address, "watcher").expect("it serves");
    let orders = log_number(&client.ask("1 SHOW").expect("a list"));
    let mut line = || client.line().expect("a stock") + "\n";
    (orders, line() + &line())
}
