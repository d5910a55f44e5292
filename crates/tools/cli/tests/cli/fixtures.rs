//! Stores written by an earlier version (tests/fixtures/a8ad189) must give the same documents.

use crate::home::Home;
use serde_json::Value;
use std::path::{Path, PathBuf};

const STORES: [&str; 5] = ["store", "kept", "unfinished", "torn", "indexed"];

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures/a8ad189/results")
}

fn expected(name: &str) -> Value {
    let text = std::fs::read_to_string(results().join("expected").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Copies all stores to a home directory, because reading them can write an index.
fn home() -> Home {
    let home = Home::new();
    for store in STORES {
        copy(&results().join(store), &home.path(store));
    }
    home
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Asserts that `found` contains everything in `expected`; additional keys are allowed.
fn assert_has(found: &Value, expected: &Value, at: &str) {
    match expected {
        Value::Object(keys) => {
            for (key, value) in keys {
                // The experiment name, followed by prose.
                if key == "place" {
                    let name = |value: &Value| {
                        value.as_str().unwrap().split(", ").next().map(str::to_owned)
                    };
                    assert_eq!(name(&found[key]), name(value), "{at}.place");
                    continue;
                }
                assert_has(&found[key], value, &format!("{at}.{key}"));
            }
        }
        Value::Array(values) => {
            assert_eq!(found.as_array().map(Vec::len), Some(values.len()), "{at}: {found}");
            for (i, value) in values.iter().enumerate() {
                assert_has(&found[i], value, &format!("{at}[{i}]"));
            }
        }
        Value::Number(number) if number.is_f64() => {
            let (a, b) = (found.as_f64().unwrap_or(f64::NAN), number.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-9 * b.abs(), "{at}: {a} is not {b}");
        }
        other => assert_eq!(found, other, "{at}"),
    }
}

#[test]
fn stores_of_an_earlier_version_give_the_same_verdicts() {
    let home = home();
    let table = std::fs::read_to_string(results().join("expected/verdicts.tsv")).unwrap();
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap().split('\t').skip(1).collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    for (column, store) in columns.iter().enumerate() {
        let found = home.run(&["claims", "--store", *store, "--json"]).well().json();
        let claims = found["claims"].as_array().unwrap();
        for row in &rows {
            let claim = claims.iter().find(|claim| claim["id"] == row[0]);
            let verdict = claim.unwrap_or_else(|| panic!("no claim {}", row[0]))["verdict"].clone();
            assert_eq!(verdict, row[column + 1], "{} in {store}", row[0]);
        }
        if *store == "store" {
            for measured in expected("claims-measured.json").as_array().unwrap() {
                let found = claims.iter().find(|claim| claim["id"] == measured["id"]).unwrap();
                assert_has(found, measured, measured["id"].as_str().unwrap());
            }
        }
    }
}

#[test]
fn stores_of_an_earlier_version_are_listed_and_compared_as_before() {
    let home = home();
    for store in STORES {
        let found = home.run(&["results", "list", "--store", store, "--json"]).well().json();
        assert_has(&found, &expected(&format!("list-{store}.json")), store);
    }
    let show = ["results", "show", "memory-20261123T085502Z", "--store", "store", "--json"];
    let found = home.run(&show).well().json();
    assert_has(&found, &expected("show-memory-20261123T085502Z.json"), "show");
    let (first, second) = ("memory-20261123T085457Z", "memory-20261123T085502Z");
    let found = home.run(&["compare", first, second, "--store", "store", "--json"]).well().json();
    let before = expected("compare.json");
    for key in ["schema", "arms"] {
        assert_has(&found[key], &before[key], key);
    }
    // The comparison before the arm name is prose.
    let names = |document: &Value| -> Vec<String> {
        let rows = document["only_in_one"].as_array().unwrap().iter();
        let text = |row: &Value| row["arm"].as_str().unwrap().to_owned();
        rows.map(|row| text(row).rsplit(": ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&found), names(&before));
}
