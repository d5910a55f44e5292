//! `ioloom store`, and what `serve` says about damaged stores.

use crate::bench::{Client, Served, is_possible, place, serve_in};
use ioloom_testbed::{ProcessOutput, Workspace};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

fn store(place: &Workspace, args: &[&str]) -> ProcessOutput {
    ProcessOutput::from(place.ours(&["store"]).args(args).output().unwrap())
}

fn order(server: &Served, from: u32, to: u32) {
    let mut client = Client::new(&server.address, "a").unwrap();
    for number in from..=to {
        let answer = client.ask(&format!("{number} BUY 1 1")).unwrap();
        assert_eq!(answer, format!("{number} OK {} {number}", 100_000 - number));
    }
}

#[test]
fn a_running_store_is_backed_up_and_the_copy_is_restored() {
    for kind in ["sqlite", "redb", "fjall", "log", "log-direct"] {
        let place = place();
        if !is_possible(kind, place.path()) {
            continue;
        }
        let mut server = Served::in_dir(place.path(), &["--store", kind]);
        order(&server, 1, 5);
        let pid = server.child.id().to_string();
        store(&place, &["verify", "stock.txt.store"]).ended(1).one_error(&[
            &pid,
            "locked by",
            "ioloom store backup",
        ]);
        let mut made =
            store(&place, &["backup", "stock.txt.store", "copy", "--json"]).ended(0).json();
        assert_eq!((&made["log_number"], &made["intact"]), (&5.into(), &true.into()), "{kind}");
        assert_eq!(made["mark"]["acknowledged"], 5, "{kind}: {made}");
        let found = store(&place, &["inspect", "copy", "--json"]).ended(0).json();
        made["command"] = found["command"].clone();
        assert_eq!(made, found, "{kind}");
        store(&place, &["backup", "stock.txt.store", "copy"]).ended(1).one_error(&["File exists"]);
        order(&server, 6, 7);
        server.kill();
        let found = store(&place, &["inspect", "stock.txt.store", "--json"]).ended(0).json();
        assert_eq!((&found["log_number"], &found["orders"]), (&7.into(), &7.into()), "{kind}");
        let mark = &found["mark"];
        assert_eq!((&mark["durability"], &mark["synced"]), (&"group".into(), &7.into()), "{kind}");
        store(&place, &["verify", "stock.txt.store"]).ended(0);
        store(&place, &["inspect", "copy"]).ended(0);
        let text = store(&place, &["export", "copy"]).ended(0).text();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 6, "{kind}: {text}");
        assert_eq!(lines[4]["order"]["request"], 5, "{kind}: {text}");
        assert_eq!(lines[5]["stocks"][0]["left"], 99_995, "{kind}: {text}");
        // Restore, as documented.
        std::fs::create_dir(place.at("damaged")).unwrap();
        for entry in std::fs::read_dir(place.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.starts_with("stock.txt") {
                let to = place.at("damaged").join(&name);
                std::fs::rename(place.at(&name), to).unwrap();
            }
        }
        store(&place, &["backup", "copy", "stock.txt.store"]).ended(0);
        let stocks = store(&place, &["export", "--stocks", "stock.txt.store"]).ended(0).text();
        assert_eq!(stocks, "1 99995 10\n2 100000 20\n", "{kind}");
        place.write("stock.txt", stocks);
        let server = Served::in_dir(place.path(), &[]);
        order(&server, 1, 8);
    }
}

#[test]
fn a_backup_is_not_written_to_standard_output() {
    let place = place();
    let mut server = Served::in_dir(place.path(), &["--store", "log"]);
    server.kill();
    let refused = store(&place, &["backup", "stock.txt.store", "-"]).ended(2);
    refused.one_error(&["store backup does not write to standard output", "'./-'"]);
    assert!(!place.at("-").exists() && !place.at("-.mark").exists());
    store(&place, &["backup", "stock.txt.store", "./-"]).ended(0);
    assert!(place.at("-").exists());
}

#[test]
fn a_server_refuses_a_damaged_store_and_continues_without_the_orders_on_request() {
    let place = place();
    let mut server = Served::in_dir(place.path(), &[]);
    order(&server, 1, 50);
    server.kill();
    let log = std::fs::File::options().read(true).write(true).open(place.at("stock.txt.store-wal"));
    let log = log.unwrap();
    let mut byte = [0];
    log.read_exact_at(&mut byte, 100_000).unwrap();
    log.write_all_at(&[byte[0] ^ 1], 100_000).unwrap();
    store(&place, &["verify", "stock.txt.store"]).ended(1).one_error(&["orders,", "after offset"]);
    let refused = serve_in(place.path(), &[]).output().unwrap();
    let refused = ProcessOutput::from(refused).ended(1);
    refused.one_error(&["orders,", "bytes after offset", "are unreadable", "--accept-loss"]);
    let mut server = Served::in_dir(place.path(), &["--accept-loss"]);
    server.signal("-TERM");
    let (status, said) = server.ended();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("are unreadable; continuing without them"), "{said}");
    assert!(place.at("stock.txt.store.damaged-1").exists(), "{said}");
    store(&place, &["verify", "stock.txt.store"]).ended(0);
    store(&place, &["verify", "stock.txt"]).ended(1).one_error(&["not a store"]);
    store(&place, &["verify", "nowhere"]).ended(1).one_error(&["nowhere", "No such file"]);
}

#[test]
fn a_store_that_may_lack_orders_does_not_pass() {
    let flip = |path: &Path, at: u64| {
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    let fails = |place: &Workspace, words: &[&str]| {
        store(place, &["verify", "stock.txt.store"]).ended(1).one_error(words);
        let found = store(place, &["inspect", "--json", "stock.txt.store"]).ended(0).json();
        assert_eq!((&found["intact"], &found["damage"]), (&false.into(), &None::<&str>.into()));
        let exported = store(place, &["export", "stock.txt.store"]).ended(1).text();
        let last: serde_json::Value =
            serde_json::from_str(exported.lines().last().unwrap()).unwrap();
        assert_eq!(last["complete"], false, "{exported}");
        store(place, &["export", "--stocks", "stock.txt.store"]).ended(1);
    };
    let args = ["--store", "log", "--durability", "os"];
    let place = place();
    let mut server = Served::in_dir(place.path(), &args);
    order(&server, 1, 50);
    server.kill();
    store(&place, &["verify", "stock.txt.store"]).ended(0);
    // Both slots.
    [50, 4146].into_iter().for_each(|at| flip(&place.at("stock.txt.store.mark"), at));
    fails(&place, &["mark is damaged", "start the server"]);
    // Without a mark, the orders behind a damaged one are missing.
    std::fs::remove_file(place.at("stock.txt.store.mark")).unwrap();
    store(&place, &["verify", "stock.txt.store"]).ended(0);
    let size = std::fs::metadata(place.at("stock.txt.store")).unwrap().len();
    flip(&place.at("stock.txt.store"), size / 2);
    fails(&place, &["acknowledged orders are missing", "orders,", "after offset"]);
}

#[test]
fn a_stock_file_that_cannot_be_written_does_not_stop_a_server() {
    let place = place();
    let mut server = Served::in_dir(place.path(), &[]);
    // Not even root can replace a directory by a file.
    std::fs::rename(place.at("stock.txt"), place.at("aside")).unwrap();
    std::fs::create_dir(place.at("stock.txt")).unwrap();
    order(&server, 1, 3);
    order(&server, 1, 4);
    server.signal("-TERM");
    let (status, said) = server.ended();
    assert_eq!(status.code(), Some(1), "the last attempt failed too: {said}");
    assert_eq!(said.matches("the server continues and retries").count(), 1, "{said}");
    std::fs::remove_dir(place.at("stock.txt")).unwrap();
    std::fs::rename(place.at("aside"), place.at("stock.txt")).unwrap();
    let server = Served::in_dir(place.path(), &[]);
    order(&server, 1, 5);
}

#[test]
fn a_mark_that_is_truncated_under_a_server_stops_it_with_an_error() {
    for (kind, level) in [("log", "os"), ("sqlite", "group"), ("redb", "each"), ("fjall", "os")] {
        let place = place();
        let args = ["--store", kind, "--durability", level];
        let mut server = Served::in_dir(place.path(), &args);
        order(&server, 1, 3);
        let mut client = Client::new(&server.address, "a").unwrap();
        place.write("stock.txt.store.mark", "");
        // The stock file may have been written after the last client, which is also an error.
        let answer = client.ask("4 BUY 1 1");
        assert_eq!(answer, None, "{kind}: acknowledged without a mark");
        let (status, said) = server.ended();
        assert_eq!(status.code(), Some(1), "{kind}: {status} {said}");
        assert!(said.contains("stock.txt.store.mark") && said.contains("truncated"), "{said}");
        // Everything acknowledged is in the store, and perhaps the order without an answer.
        let server = Served::in_dir(place.path(), &args);
        order(&server, 1, 5);
    }
}

#[test]
fn a_raw_log_that_is_lost_under_a_server_ends_it_with_an_error() {
    let ways = ["removed", "truncated", "renamed or replaced"];
    for (level, way) in ["os", "group"].into_iter().flat_map(|level| ways.map(|way| (level, way))) {
        let place = place();
        let args = ["--store", "log", "--durability", level];
        let mut server = Served::in_dir(place.path(), &args);
        let mut client = Client::new(&server.address, "a").unwrap();
        assert_eq!(client.ask("1 BUY 1 1").unwrap(), "1 OK 99999 1");
        let store = place.at("stock.txt.store");
        match way {
            "removed" => std::fs::remove_file(&store).unwrap(),
            "truncated" => std::fs::write(&store, "").unwrap(),
            _ => std::fs::rename(&store, place.at("aside")).unwrap(),
        }
        if level == "group" {
            assert_eq!(client.ask("2 BUY 1 1"), None, "acknowledged without a store");
        } else {
            server.signal("-TERM");
        }
        let (status, said) = server.ended();
        assert_eq!(status.code(), Some(1), "{level}: {said}");
        assert!(said.contains(&format!("the file was {way}; the server stopped")), "{said}");
        if way == "renamed or replaced" {
            std::fs::rename(place.at("aside"), &store).unwrap();
            let mut server = Served::in_dir(place.path(), &args);
            let mut client = Client::new(&server.address, "a").unwrap();
            assert_eq!(client.ask("1 BUY 1 1").unwrap(), "1 OK 99999 1", "{level}: lost");
            server.signal("-TERM");
            assert_eq!(server.ended().0.code(), Some(0), "{level}");
        }
    }
}

#[test]
fn a_database_that_is_renamed_under_a_server_ends_it_with_an_error() {
    for kind in ["sqlite", "redb", "fjall"] {
        let place = place();
        let args = ["--store", kind, "--durability", "group"];
        let mut server = Served::in_dir(place.path(), &args);
        let mut client = Client::new(&server.address, "a").unwrap();
        assert_eq!(client.ask("1 BUY 1 1").unwrap(), "1 OK 99999 1");
        std::fs::rename(place.at("stock.txt.store"), place.at("aside")).unwrap();
        assert_eq!(client.ask("2 BUY 1 1"), None, "{kind}: acknowledged without a store");
        let (status, said) = server.ended();
        assert_eq!(status.code(), Some(1), "{kind}: {said}");
        assert!(said.contains("renamed or replaced; the server stopped"), "{kind}: {said}");
    }
}

/// Returns the names of files below a directory that other users can access.
fn accessible(dir: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.permissions().mode() & 0o077 != 0 {
            names.push(path.display().to_string());
        }
        if meta.is_dir() {
            accessible(&path, names);
        }
    }
}

#[test]
fn new_files_are_private_whatever_the_umask() {
    for kind in ["sqlite", "redb", "fjall", "log", "log-direct"] {
        let place = place();
        if !is_possible(kind, place.path()) {
            continue;
        }
        std::fs::create_dir(place.at("stores")).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ioloom")]);
        let args = ["--store", kind, "--store-path", "stores/store"];
        crate::bench::add_args(&mut shell, place.path(), &args);
        let server = Served::start(&mut shell);
        order(&server, 1, 5);
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ioloom")]);
        shell.args(["store", "backup", "stores/store", "stores/copy"]).current_dir(place.path());
        ProcessOutput::from(shell.output().unwrap()).ended(0);
        let mut names = Vec::new();
        accessible(&place.at("stores"), &mut names);
        assert_eq!(names, [""; 0], "{kind}");
    }
}
