//! File sizes and names: a file should be short enough to read in one go.

use super::finding::{Finding, Source};
use super::rust_source::{code_only, without_tests};

/// Maximum number of lines per file, excluding tests.
const LINES_MAX: usize = 700;

/// Recommended maximum number of lines per file.
const LINES_WANTED: usize = 600;

/// Files that may be longer, with reasons. Unused entries are refused.
const LONGER: [(&str, &str); 0] = [];

/// Names that do not describe the contents.
const EMPTY_NAMES: [&str; 9] =
    ["util", "utils", "common", "manager", "managers", "helper", "helpers", "misc", "others"];

/// Checks Rust and TypeScript files.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    check_with(sources, &LONGER)
}

fn check_with(sources: &[Source], longer: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for source in sources.iter().filter(|s| s.is("rs") || s.is("ts") || s.is("mjs")) {
        findings.extend(empty_name(source));
        let is_test = source.path.components().any(|c| c.as_os_str() == "tests")
            || source.path.to_string_lossy().ends_with(".test.ts");
        if is_test {
            continue;
        }
        let lines = count_lines(source);
        let place = source.path.display().to_string();
        if lines > LINES_MAX {
            if longer.iter().any(|(path, _)| *path == place) {
                used.push(place);
                continue;
            }
            let text = format!("{lines} lines outside tests, more than {LINES_MAX}; split it");
            findings.push(Finding::refuse(place, text));
        } else if lines > LINES_WANTED {
            let text = format!(
                "{lines} lines outside tests, more than the recommended \
                {LINES_WANTED}"
            );
            findings.push(Finding::warn(place, text));
        }
    }
    for (path, reason) in longer {
        if !used.iter().any(|u| u == path) {
            let text = format!(
                "is listed as a long file ({reason}) but is short enough; remove the \
                    entry"
            );
            findings.push(Finding::refuse(*path, text));
        }
    }
    findings
}

/// Counts the lines outside test modules.
fn count_lines(source: &Source) -> usize {
    let all = source.text.lines().count();
    if !source.is("rs") {
        return all;
    }
    let code = code_only(&source.text);
    let ours = |text: &str| text.bytes().filter(|b| !b.is_ascii_whitespace()).count();
    let kept = without_tests(&code);
    if ours(&kept) == ours(&code) {
        return all;
    }
    // Lines that contain code only in tests.
    let in_tests = code
        .lines()
        .zip(kept.lines().chain(std::iter::repeat("")))
        .filter(|(before, after)| !before.trim().is_empty() && after.trim().is_empty())
        .count();
    all - in_tests
}

fn empty_name(source: &Source) -> Option<Finding> {
    let parts = source.path.components().map(|c| c.as_os_str().to_string_lossy().into_owned());
    let names: Vec<String> =
        parts.map(|p| p.split('.').next().unwrap_or_default().to_owned()).collect();
    let bad = names.iter().find(|name| EMPTY_NAMES.contains(&name.as_str()))?;
    let text = format!("the name '{bad}' is not descriptive; name the file after its contents");
    Some(Finding::refuse(source.path.display().to_string(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: String) -> Source {
        Source { path: path.into(), text }
    }

    #[test]
    fn long_files_are_refused_unless_listed() {
        let long = source("crates/a/src/b.rs", "fn f() {}\n".repeat(701));
        assert!(!check_with(std::slice::from_ref(&long), &[])[0].warning);
        let listed = [("crates/a/src/b.rs", "a table")];
        assert!(check_with(std::slice::from_ref(&long), &listed).is_empty());
        let short = source("crates/a/src/b.rs", "fn f() {}\n".repeat(601));
        let findings = check_with(&[short], &[]);
        assert!(findings.len() == 1 && findings[0].warning);
        assert_eq!(check_with(&[], &listed).len(), 1, "an unused entry");
        let test = source("crates/a/tests/b.rs", "fn f() {}\n".repeat(2000));
        assert!(check_with(&[test], &[]).is_empty());
    }

    #[test]
    fn tests_at_the_end_do_not_count() {
        let text = format!(
            "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "fn f() {}\n".repeat(500),
            "    fn g() {}\n".repeat(500)
        );
        let counted = count_lines(&source("crates/a/src/b.rs", text));
        assert_eq!(counted, 500);
    }

    #[test]
    fn names_say_what_is_inside() {
        for path in ["crates/a/src/util.rs", "crates/a/src/common/mod.rs", "ui/src/helpers.ts"] {
            assert_eq!(check(&[source(path, String::new())]).len(), 1, "{path}");
        }
        assert!(check(&[source("crates/a/src/utility_curve.rs", String::new())]).is_empty());
    }
}
