//! Trace files written by commit a8ad189 must stay readable.

use ioloom_trace::file::{read, write};
use ioloom_trace::shares;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures/a8ad189/trace")
}

/// Returns a value without its text, which later versions may reword.
fn without_prose(mut value: Value) -> Value {
    if let Some(states) = value.get_mut("states").and_then(Value::as_object_mut) {
        states.values_mut().filter_map(Value::as_object_mut).for_each(|state| {
            state.remove("why");
        });
    }
    value
}

#[test]
fn old_trace_files_have_the_same_contents() {
    let mut files = 0;
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ioloom") {
            continue;
        }
        files += 1;
        let trace = read(&std::fs::read(&path).unwrap()).unwrap();
        let expected = std::fs::read(path.with_extension("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let name = path.display();
        assert_eq!(expected["title"], trace.title, "{name}");
        assert_eq!(expected["started_unix_ms"], trace.started_unix_ms, "{name}");
        assert_eq!(expected["elapsed_ns"], trace.elapsed_ns, "{name}");
        let roles = serde_json::to_value(shares::roles(&trace)).unwrap();
        let roles: Vec<Value> =
            roles.as_array().unwrap().iter().cloned().map(without_prose).collect();
        let expected_roles = expected["roles"].as_array().unwrap().iter().cloned();
        assert_eq!(roles, expected_roles.map(without_prose).collect::<Vec<_>>(), "{name}");
        for (thread, expected) in trace.threads.iter().zip(expected["threads"].as_array().unwrap())
        {
            assert_eq!(expected["tid"], thread.tid, "{name}");
            assert_eq!(expected["role"], thread.role, "{name}");
            let states = json!({ "states": thread.states });
            let expected = json!({ "states": expected["states"] });
            assert_eq!(without_prose(states), without_prose(expected), "{name}");
        }
        assert_eq!(trace.threads.len(), expected["threads"].as_array().unwrap().len(), "{name}");
        assert_eq!(json!(trace.marks), expected["marks"], "{name}");
        assert_eq!(read(&write(&trace)).unwrap(), trace, "{name}");
    }
    assert_eq!(files, 6, "fixtures are missing");
}
