//! A file with limits that can be changed while the server runs.

use crate::exit::Failure;
use ioloom_failure::{quoted, reason};
use ioloom_serve::Limits;
use ioloom_sys::file;
use std::num::IntErrorKind;
use std::path::Path;
use std::time::Duration;

/// Names of the limits, which are those of the flags.
const NAMES: [&str; 6] =
    ["connections", "idle", "request-time", "client-connections", "client-rate", "client-bytes"];

/// Maximum size of the file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Changes limits as specified in a file of lines `NAME VALUE`.
pub(super) fn apply(path: &Path, limits: &mut Limits) -> Result<(), Failure> {
    let message = |why: &str| format!("cannot read limits file {}: {why}", quoted(path));
    let text = file::read_text(path, BYTES_MAX);
    let text = text.map_err(|e| Failure::failed(message(&reason(&e))))?;
    change(&text, limits).map_err(|why| Failure::usage(message(&why)))
}

fn change(text: &str, limits: &mut Limits) -> Result<(), String> {
    let mut lines = [None; NAMES.len()];
    for (at, line) in text.lines().enumerate() {
        let words: Vec<&str> =
            line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let (name, value) = match words.as_slice() {
            [] => continue,
            [name, value] => (*name, value.parse::<u32>()),
            _ => return Err(format!("line {}: expected NAME VALUE", at + 1)),
        };
        let Some(known) = NAMES.iter().position(|known| *known == name) else {
            return Err(format!(
                "line {}: unknown limit '{name}'; use {}",
                at + 1,
                NAMES.join(", ")
            ));
        };
        if let Some(first) = lines[known].replace(at + 1) {
            return Err(format!("line {}: '{name}' is already set in line {first}", at + 1));
        }
        if value.as_ref().is_err_and(|e| *e.kind() == IntErrorKind::PosOverflow) {
            return Err(format!(
                "line {}: '{name}' is too large; use at most {}",
                at + 1,
                u32::MAX
            ));
        }
        let can_be_off = name == "idle" || name.starts_with("client-");
        let value = value.ok().filter(|value| *value > 0 || can_be_off);
        let Some(value) = value else {
            let least = if can_be_off { "" } else { " above 0" };
            return Err(format!("line {}: '{name}' must be a whole number{least}", at + 1));
        };
        let seconds = Duration::from_secs(value.into());
        match name {
            "connections" => limits.connections = value as usize,
            "idle" => limits.idle = seconds,
            "client-connections" => limits.client_connections = value as usize,
            "client-rate" => limits.client_rate = value,
            "client-bytes" => limits.client_bytes = value.into(),
            _ => limits.request = seconds,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_changed_by_name() {
        let mut limits = Limits::default();
        let text = "# comment\nconnections 7\n\n idle\t0 # never\nrequest-time 3\nclient-rate 9\n";
        change(text, &mut limits).unwrap();
        let expected = Limits {
            connections: 7,
            idle: Duration::ZERO,
            request: Duration::from_secs(3),
            client_rate: 9,
            ..Limits::default()
        };
        assert_eq!(limits, expected);
        for (text, word) in [
            ("idle", "line 1: expected NAME VALUE"),
            ("idle 1 2", "line 1: expected NAME VALUE"),
            ("idle 1\nconnections 0", "line 2: 'connections' must be"),
            ("request-time -1", "'request-time' must be"),
            ("idle 1\nspin 1", "line 2: unknown limit 'spin'"),
            ("idle 1\n# 2\nidle 1", "line 3: 'idle' is already set in line 1"),
            ("idle 18446744073709551615", "line 1: 'idle' is too large; use at most 4294967295"),
            ("spin 1", "unknown limit 'spin'"),
        ] {
            let error = change(text, &mut limits).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
