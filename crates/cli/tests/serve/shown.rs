//! `serve` as people start and stop it.

use crate::bench::{Client, STOCKS, Served, place, serve_in};
use ioloom_testbed::{Place, Ran};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_stopped_server_writes_the_stock_file_and_says_what_it_did() {
    for name in ["-TERM", "-INT"] {
        let place = place();
        let mut server = Served::in_dir(place.path(), &["--json"]);
        let mut client = Client::new(&server.address, "a").unwrap();
        assert_eq!(client.ask("1 BUY 1 10").unwrap(), "1 OK 99990 1");
        server.signal(name);
        assert_eq!(client.line(), None);
        let (status, rest) = server.ended();
        assert_eq!(status.code(), Some(0), "{rest}");
        let out = server.child.stdout.take().unwrap();
        let document: serde_json::Value = serde_json::from_reader(out).unwrap();
        assert_eq!((&document["orders_done"], &document["log_number"]), (&1.into(), &1.into()));
        let stocks = std::fs::read_to_string(place.at("stock.txt")).unwrap();
        assert_eq!(stocks, "1 99990 10\n2 100000 20\n");
    }
}

#[test]
fn a_store_stays_what_it_is_at_another_level() {
    let place = place();
    let mut answers = Vec::new();
    for level in ["os", "group"] {
        let mut server = Served::in_dir(place.path(), &["--json", "--durability", level]);
        let mut client = Client::new(&server.address, "a").unwrap();
        answers.push(client.ask("1 BUY 1 10").unwrap());
        server.signal("-TERM");
        let (status, rest) = server.ended();
        assert_eq!(status.code(), Some(0), "{rest}");
        let out = server.child.stdout.take().unwrap();
        let document: serde_json::Value = serde_json::from_reader(out).unwrap();
        assert_eq!((&document["store"], &document["log_number"]), (&"log".into(), &1.into()));
    }
    assert_eq!(answers, ["1 OK 99990 1", "1 OK 99990 1"]);
}

fn set_mode(place: &Place, mode: u32) {
    let rights = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(place.at("token"), rights).unwrap();
}

#[test]
fn a_token_file_closes_the_server_to_those_who_do_not_know_it() {
    let place = place();
    place.write("token", "correct-horse-battery\n");
    set_mode(&place, 0o600);
    let server = Served::in_dir(place.path(), &["--token-file", "token"]);
    let mut guest = Client::plain(&server.address).unwrap();
    assert_eq!(guest.ask("buy 1 1").as_deref(), Some("Token needed"));
    let mut known = Client::plain(&server.address).unwrap();
    let greeting = "HELLO stock/2 token=correct-horse-battery";
    assert_eq!(known.ask(greeting).as_deref(), Some("HELLO stock/2 window=128"));
    assert_eq!(known.ask("1 BUY 1 1").as_deref(), Some("1 OK 99999 1"));
}

#[test]
fn wrong_starts_are_refused_with_one_clear_error() {
    let place = place();
    let refused = |args: &[&str], code: i32, words: &[&str]| {
        let command = &mut place.ours(&["serve"]);
        Ran::from(command.args(args).output().unwrap()).ended(code).one_error(words);
    };
    std::fs::remove_file(place.at("stock.txt")).unwrap();
    refused(&[], 1, &["stock.txt", "--stock"]);
    place.write("stock.txt", "1 2 three\n");
    refused(&[], 2, &["line 1", "NUMBER LEFT PRICE"]);
    place.write("stock.txt", STOCKS);
    refused(&["--model", "io-threads", "--sharing", "global"], 3, &["writer"]);
    refused(&["--sharing", "atomic", "--durability", "group"], 3, &["durability none"]);
    refused(&["--connections", "1000000"], 3, &["ulimit"]);
    refused(&["--service-time", "2s"], 3, &["service time", "1s"]);
    place.write("token", "correct-horse-battery\n");
    set_mode(&place, 0o644);
    refused(&["--token-file", "token"], 3, &["token", "chmod 600"]);
    set_mode(&place, 0o600);
    place.write("token", "short\n");
    refused(&["--token-file", "token"], 3, &["token", "16 to 256"]);
    refused(&["--token-file", "nowhere"], 3, &["nowhere", "No such file"]);
    let first = Served::start(&mut serve_in(place.path(), &[]));
    refused(&["--listen", &first.address], 1, &["--listen"]);
    refused(&["--listen", "127.0.0.1:0"], 1, &["stock.txt.store", "locked"]);
}
