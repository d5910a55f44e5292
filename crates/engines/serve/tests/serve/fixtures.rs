//! Opens stores written by an earlier version with the current one and checks that they contain the
//! same orders.
//!
//! The stores and the expected results are in `tests/fixtures/a8ad189`; its README explains how
//! they were created.

use crate::bench::{Bench, dir_for, is_store_possible};
use ioloom_serve::{Durability, Model, StoreKind, detect_store};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

#[derive(Deserialize)]
struct Fixture {
    /// The requested store type when the fixture was created.
    store: String,
    expected: Expected,
}

#[derive(Deserialize)]
struct Expected {
    /// The detected store type.
    store: String,
    log_number: u64,
    orders_done_again: u64,
    show: Vec<String>,
    list_head: String,
    orders_sent_again: Vec<Exchanged>,
    stock_file_in_fixture: Vec<String>,
    stock_file_after: Vec<String>,
}

#[derive(Deserialize)]
struct Exchanged {
    client: String,
    request: String,
    answer: String,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures/a8ad189/exchange")
}

/// Copies the files of a fixture, which is a directory or an archive, to a new directory.
fn copy(name: &str, kind: StoreKind) -> TempDir {
    let (from, to) = (fixtures(), dir_for(kind));
    let archive = from.join(format!("{name}.tar.gz"));
    let mut command;
    if archive.exists() {
        command = Command::new("tar");
        command.args(["--strip-components=1", "-xzf"]).arg(archive).arg("-C").arg(to.path());
    } else {
        command = Command::new("cp");
        command.arg("-rT").arg(from.join(name)).arg(to.path());
    }
    assert!(command.status().unwrap().success(), "{name}");
    to
}

fn lines(dir: &TempDir) -> Vec<String> {
    let text = std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Opens a copy of a fixture as one type of store and compares all of its contents.
fn check(name: &str, kind: StoreKind, expected: &Expected) {
    let case = format!("{name} as {kind}");
    let dir = copy(name, kind);
    assert_eq!(lines(&dir), expected.stock_file_in_fixture, "{case}");
    let path = dir.path().join("stock.txt.store");
    let found = detect_store(&path).unwrap().map(StoreKind::name);
    assert_eq!(found, Some(expected.store.as_str()), "{case}");
    let bench = Bench::in_dir(dir, Model::Epoll, |options| {
        (options.store.kind, options.store.path) = (kind, path);
        options.durability = Durability::Group;
    });
    let mut client = bench.client();
    client.send(format!("HELLO stock/2 client={}\n", expected.orders_sent_again[0].client));
    assert_eq!(client.line(), "HELLO stock/2 window=128\n", "{case}");
    for order in &expected.orders_sent_again {
        assert_eq!(client.request(&order.request).trim_end(), order.answer, "{case}");
    }
    assert_eq!(client.request("5 SHOW").trim_end(), expected.list_head, "{case}");
    for line in &expected.show {
        assert_eq!(client.line().trim_end(), line, "{case}");
    }
    let (dir, summary) = bench.end();
    assert_eq!(summary.seq, expected.log_number, "{case}");
    assert_eq!(summary.done, expected.orders_done_again, "{case}");
    assert_eq!(lines(&dir), expected.stock_file_after, "{case}");
}

#[test]
fn stores_of_an_earlier_version_open_with_the_same_orders() {
    let mut checked = 0;
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let entry = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = entry.strip_suffix(".expected.json") else { continue };
        let text = std::fs::read_to_string(fixtures().join(&entry)).unwrap();
        // The expected results of histories have a different format.
        let Ok(fixture) = serde_json::from_str::<Fixture>(&text) else { continue };
        let kind = |name: &str| name.parse::<StoreKind>().unwrap();
        let mut kinds = vec![kind(&fixture.expected.store), kind(&fixture.store)];
        kinds.dedup();
        for kind in kinds {
            if is_store_possible(kind, &dir_for(kind)) {
                check(name, kind, &fixture.expected);
                checked += 1;
            }
        }
    }
    assert!(checked >= 16, "only {checked} fixtures were checked");
}
