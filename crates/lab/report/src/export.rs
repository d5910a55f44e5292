//! The results of studies without the names of hosts, users and files, to be passed to others.
//!
//! Everything that identifies a place is removed rather than masked: the command line, the mounts and
//! limits of the machine, the fingerprint, file sets that are directories of the user, and every
//! absolute path in a text.

use crate::data;
use crate::group::groups;
use crate::headline::headlines;
use crate::input::Input;
use serde_json::{Map, Value};

/// Keys that are removed wherever they occur.
const PRIVATE: [&str; 6] = ["command", "fingerprint", "mounts", "limits", "devices", "store"];
/// Name of a directory of the user.
const USER_FILES: &str = "user files";

/// Returns the data of a report as one JSON document.
pub fn json(inputs: &[Input]) -> Value {
    let part = |input: &Input| {
        let groups = groups(input);
        data::study(input, &groups, &headlines(&groups))
    };
    data::document(inputs.iter().map(part).collect())
}

/// Returns the data of a report without the names of hosts, users and files.
pub fn anonymous(inputs: &[Input]) -> Value {
    let inputs: Vec<Input> = inputs.iter().map(without_user_sets).collect();
    cleaned(json(&inputs))
}

fn without_user_sets(input: &Input) -> Input {
    let mut input = input.clone();
    let known: Vec<String> = input.study.sets.keys().cloned().collect();
    for record in &mut input.records {
        if !record.key.set.is_empty() && !known.contains(&record.key.set) {
            USER_FILES.clone_into(&mut record.key.set);
            USER_FILES.clone_into(&mut record.set.name);
        }
        if record.key.medium.contains('/') {
            "elsewhere".clone_into(&mut record.key.medium);
        }
    }
    input
}

fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_paths(&text)),
        Value::Array(all) => Value::Array(all.into_iter().map(cleaned).collect()),
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, _)| !PRIVATE.contains(&key.as_str()));
            Value::Object(kept.map(|(key, value)| (key, cleaned(value))).collect::<Map<_, _>>())
        }
        other => other,
    }
}

/// Replaces words that begin with a slash or a tilde, with or without quotes.
fn without_paths(text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_start_matches(['\'', '"', '(', '[', '=']);
        let path = bare.len() > 1 && (bare.starts_with('/') || bare.starts_with("~/"));
        if path { "PATH".to_owned() } else { word.to_owned() }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_private_keys_are_removed() {
        let text = "cannot open '/home/jo/x': Permission denied; plan read/threads:n=2";
        let value = serde_json::json!({
            "reason": text, "command": "ioloom study --files /home/jo", "list": ["~/src", "5 / 2"],
        });
        let clean = cleaned(value);
        assert_eq!(
            clean,
            serde_json::json!({
                "reason": "cannot open PATH Permission denied; plan read/threads:n=2",
                "list": ["PATH", "5 / 2"],
            })
        );
    }
}
