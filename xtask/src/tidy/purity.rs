//! Crate restrictions: the base floor is pure, and unsafe code is confined to `sys*`.

use super::finding::{Finding, Source};
use super::rust_source::{code_only, lines_with_word, std_paths, without_tests};

/// The floor whose crates have no I/O, clock, environment or unseeded randomness.
const PURE_FLOOR: &str = "crates/base";

/// Paths that a pure crate must not use. Atomics are included because a state machine that is
/// driven by both a simulator and threads must leave sharing to its caller.
const IMPURE_PATHS: [&str; 13] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::os",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::UNIX_EPOCH",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::sync::atomic",
];

/// Words that indicate clocks or unseeded randomness from other crates.
const IMPURE_WORDS: [&str; 7] = [
    "Instant::now",
    "SystemTime::now",
    "rand::rng",
    "rand::random",
    "ThreadRng",
    "from_os_rng",
    "SysRng",
];

/// The only crates that may contain unsafe code.
const UNSAFE_CRATES: [&str; 4] = [
    "crates/system/sys",
    "crates/system/sys-trace",
    "crates/system/sys-net",
    "crates/system/sys-lab",
];

/// Checks every Rust file.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|s| s.is("rs")) {
        let code = code_only(&source.text);
        // Peers in comparisons are written the way their users would write them.
        let may = UNSAFE_CRATES.iter().any(|dir| source.is_under(dir));
        let ours = !may && !source.is_under("comparisons");
        if ours {
            for line in lines_with_word(&code, "unsafe") {
                let text = "unsafe code outside crates/system/sys*; wrap the mechanism there";
                findings.push(Finding::at(&source.path, line, text));
            }
        }
        let is_pure = source.is_under(PURE_FLOOR) && source.path.iter().any(|part| part == "src");
        if is_pure && !is_test_file(source) {
            findings.extend(impure(source, &without_tests(&code)));
        }
    }
    findings
}

fn is_test_file(source: &Source) -> bool {
    source.path.file_stem().is_some_and(|stem| {
        let stem = stem.to_string_lossy();
        stem == "tests" || stem.ends_with("_tests")
    }) || source.path.components().any(|c| c.as_os_str() == "tests")
}

fn impure(source: &Source, code: &str) -> Vec<Finding> {
    let text = |what: &str| format!("{what} in a base crate; let the caller pass the value in");
    let mut findings = Vec::new();
    for (line, path) in std_paths(code) {
        let banned = IMPURE_PATHS
            .iter()
            .any(|b| path == *b || path.strip_prefix(b).is_some_and(|rest| rest.starts_with("::")));
        if banned {
            findings.push(Finding::at(&source.path, line, text(&path)));
        }
    }
    for word in IMPURE_WORDS {
        for line in lines_with_word(code, word) {
            findings.push(Finding::at(&source.path, line, text(word)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&[Source { path: path.into(), text: text.into() }]).len()
    }

    #[test]
    fn layer_0_is_pure() {
        for text in [
            "use std::fs;",
            "use std::{fmt, env};",
            "let t = std::time::Instant::now();",
            "fn f() { rand::rng() }",
            "use std::sync::atomic::AtomicU64;",
        ] {
            assert!(found("crates/base/stats/src/lib.rs", text) > 0, "{text}");
            assert_eq!(found("crates/lab/lab/src/lib.rs", text), 0, "{text}");
        }
        for text in [
            "use std::time::Duration; use std::fmt;",
            "// std::fs\nlet a = \"std::env\";",
            "fn f() {}\n#[cfg(test)]\nmod tests { use std::fs; }",
            "use std::fsx;",
        ] {
            assert_eq!(found("crates/base/stats/src/lib.rs", text), 0, "{text}");
        }
        assert_eq!(found("crates/base/stats/tests/files.rs", "use std::fs;"), 0);
    }

    #[test]
    fn one_crate_is_unsafe() {
        let text = "fn f() { unsafe { g() } }";
        assert_eq!(found("crates/system/sys/src/map.rs", text), 0);
        assert_eq!(found("crates/engines/ioloom/tests/alloc.rs", text), 1);
        assert_eq!(
            found("crates/engines/ioloom/src/lib.rs", "#![forbid(unsafe_code)] // unsafe"),
            0
        );
    }
}
