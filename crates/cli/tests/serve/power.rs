//! A server whose machine loses its power under load: what the disk has is what the durability
//! promised.
//!
//! The server is killed on a file system in a file, and the file is copied before anything is synced
//! (see `ioloom_testbed::Disk`). `group` and `each` have every acknowledged order; with `os` and
//! `none` it is told how many are lost, and what is there is a state that once was.

use crate::bench::{Client, Random, STOCKS, Served, count, killed_under_load, log_number, place};
use crate::bench::{Heard, recovered};
use ioloom_testbed::Disk;
use std::fs;
use std::path::Path;

/// Power cuts of each store and durability.
const CUTS: usize = 2;
/// Room for the log of fjall, which is taken before it is used.
const DISK_BYTES: u64 = 256 << 20;

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

/// Serves on a disk until its power goes; what was heard, and what the disk has.
fn cut(
    (disk, copy): (&Disk, &Path),
    name: &str,
    args: &[&str],
    random: &mut Random,
) -> Option<(Heard, Disk)> {
    let dir = disk.path().join(name);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("stock.txt"), STOCKS).unwrap();
    disk.sync();
    let mut server = Served::in_dir(&dir, args);
    let heard = killed_under_load(&mut server, random.moment());
    let after = disk.cut(copy)?;
    fs::remove_dir_all(&dir).unwrap();
    Some((heard, after))
}

#[test]
fn a_power_cut_takes_no_acknowledged_order_where_that_was_asked() {
    let place = place();
    let Some(disk) = Disk::make(&place.at("image"), DISK_BYTES) else { return };
    let copy = place.at("cut");
    let (disks, mut random) = ((&disk, copy.as_path()), Random(3));
    for [store, durability] in STORES {
        let (mut acknowledged, mut lost) = (0, 0);
        for round in 0..CUTS {
            let name = format!("{store}-{durability}-{round}");
            let args = ["--store", store, "--durability", durability];
            let Some((heard, after)) = cut(disks, &name, &args, &mut random) else { return };
            let server = Served::in_dir(&after.path().join(&name), &args);
            let found = recovered(&server, &heard, &name);
            acknowledged += count(&heard);
            lost += found.lost;
            drop(server);
        }
        println!("{store} {durability}: {lost} of {acknowledged} acknowledged orders are lost");
        assert!(lost == 0 || durability == "os", "{store} {durability}: {lost} orders are lost");
    }
}

#[test]
fn without_durability_a_power_cut_leaves_a_whole_stock_file() {
    let place = place();
    let Some(disk) = Disk::make(&place.at("image"), DISK_BYTES) else { return };
    let copy = place.at("cut");
    let (disks, mut random) = ((&disk, copy.as_path()), Random(5));
    for round in 0..CUTS {
        let (name, args) = (format!("none-{round}"), ["--durability", "none"]);
        let Some((heard, after)) = cut(disks, &name, &args, &mut random) else { return };
        let dir = after.path().join(&name);
        let server = Served::in_dir(&dir, &args);
        let (orders, stocks) = shown(&server);
        assert_eq!(orders, 0, "numbers begin anew");
        assert_eq!(stocks, stock_file(&dir));
        println!("none: {} acknowledged orders are lost with the log", count(&heard));
        drop(server);
    }
}

fn shown(server: &Served) -> (u64, String) {
    let mut client = Client::new(&server.address, "watcher").expect("it serves");
    let orders = log_number(&client.ask("1 SHOW").expect("a list"));
    let mut line = || client.line().expect("a stock") + "\n";
    (orders, line() + &line())
}

fn stock_file(dir: &Path) -> String {
    fs::read_to_string(dir.join("stock.txt")).unwrap()
}
