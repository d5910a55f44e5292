//! Stores written by an earlier version (tests/fixtures/a8ad189) open with their contents intact.

use ioloom_lab::index::outcome_word;
use ioloom_lab::{Index, RunFilter, Session, Store};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The stores, and whether the last line is torn.
const STORES: [(&str, bool); 5] =
    [("store", false), ("kept", false), ("unfinished", false), ("torn", true), ("indexed", false)];

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures/a8ad189/results")
}

/// Copies a store, because opening its index writes to its directory.
fn copied(name: &str) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    copy(&results().join(name), dir.path());
    let store = Store::open_to_read(dir.path()).unwrap();
    (dir, store)
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

fn sessions(store: &Store) -> BTreeMap<String, Session> {
    let names = store.files().unwrap().into_iter().map(|file| file.header.session);
    names.map(|name| (name.clone(), store.read(&name).unwrap())).collect()
}

/// Returns the serialized name of a doubt.
fn word(doubt: &ioloom_model::Doubt) -> String {
    serde_json::to_value(doubt).unwrap().as_str().unwrap().to_owned()
}

/// Returns the line of a run in `expected/runs-STORE.tsv`.
fn line(run: &ioloom_model::RunRecord) -> String {
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let measured = run.measured();
    let doubts: Vec<_> = run.doubts.iter().map(word).collect();
    [
        run.key.session.clone(),
        run.key.position.to_string(),
        run.key.experiment.clone(),
        run.key.arm.clone(),
        run.key.block.to_string(),
        run.plan.to_string(),
        outcome_word(&run.outcome).to_owned(),
        or_dash(measured.map_or(String::new(), |m| m.elapsed_ns.to_string())),
        or_dash(measured.map_or(String::new(), |m| m.digest.clone())),
        or_dash(doubts.join(",")),
    ]
    .join("\t")
}

#[test]
fn stores_of_an_earlier_version_have_the_same_runs() {
    for (name, torn) in STORES {
        let (_dir, store) = copied(name);
        let sessions = sessions(&store);
        let torn_bytes: u64 = sessions.values().map(|session| session.torn_bytes).sum();
        assert_eq!(torn_bytes > 0, torn, "{name}");
        let expected = results().join(format!("expected/runs-{name}.tsv"));
        let expected = std::fs::read_to_string(expected).unwrap();
        let mut expected: Vec<&str> = expected.lines().skip(1).collect();
        let runs = sessions.values().flat_map(|session| &session.runs);
        let mut found: Vec<String> = runs.map(line).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{name}");
        assert!(!found.is_empty(), "{name}");
    }
}

#[test]
fn the_index_of_an_earlier_version_lists_the_same_sessions() {
    for (name, _) in STORES {
        let (_dir, store) = copied(name);
        let index = Index::open(&store).unwrap();
        let expected = std::fs::read(results().join(format!("expected/list-{name}.json"))).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let found = serde_json::to_value(index.sessions().unwrap()).unwrap();
        assert_eq!(found, expected["sessions"], "{name}");
        let runs: usize = sessions(&store).values().map(|session| session.runs.len()).sum();
        assert_eq!(index.runs(&RunFilter::default()).unwrap().len(), runs, "{name}");
    }
}

/// Rewriting a line produces the same keys and values, which other programs rely on.
#[test]
fn lines_of_an_earlier_version_are_written_as_they_were() {
    for (name, _) in STORES {
        let (_dir, store) = copied(name);
        let mut lines = 0;
        for file in store.files().unwrap() {
            let text = std::fs::read_to_string(&file.path).unwrap();
            let session = store.read(&file.header.session).unwrap();
            for line in text.lines() {
                let Ok(Value::Object(line)) = serde_json::from_str(line) else { continue };
                let (kind, value) = line.into_iter().next().unwrap();
                let position = value["key"]["position"].as_u64();
                let again = match kind.as_str() {
                    "session" => serde_json::to_value(&file.header).unwrap(),
                    "run" => {
                        let mut runs = session.runs.iter();
                        let run = runs.find(|run| Some(u64::from(run.key.position)) == position);
                        serde_json::to_value(run.unwrap()).unwrap()
                    }
                    _ => continue,
                };
                assert_eq!(again, value, "{name}: {kind} {position:?}");
                lines += 1;
            }
        }
        assert!(lines > 1, "{name}");
    }
}
