//! Compares documents with code: README commands, module heads, JSON schema fields, doubts, and the
//! length of ARCHITECTURE.md.

use super::finding::{Finding, Source};
use super::rust_source::{code_only, without_tests};
use crate::repo::Repo;

/// README commands; each must occur there once.
const COMMANDS: [&str; 2] = ["cargo run --release -- study", "cargo xtask ci"];

/// Minimum number of documentation lines at the head of a library.
const HEAD_LINES_MIN: usize = 3;

/// Maximum number of lines in ARCHITECTURE.md, which should take ten minutes to read.
const ARCHITECTURE_LINES_MAX: usize = 220;

/// Files whose serialized structs are part of the JSON documents.
const SCHEMA_FILES: [&str; 14] = [
    "crates/base/model/src/evidence.rs",
    "crates/base/model/src/record.rs",
    "crates/base/model/src/condition.rs",
    "crates/base/model/src/fileset.rs",
    "crates/base/model/src/machine.rs",
    "crates/base/model/src/memory.rs",
    "crates/base/model/src/topology.rs",
    "crates/base/model/src/tuned.rs",
    "crates/lab/lab/src/store/session.rs",
    "crates/lab/lab/src/expand.rs",
    "crates/lab/lab/src/child.rs",
    "crates/engines/fileset/src/manifest.rs",
    "crates/base/claims/src/power.rs",
    "crates/base/claims/src/verdict.rs",
];

/// Applies all checks.
pub(super) fn check(repo: &Repo, sources: &[Source]) -> anyhow::Result<Vec<Finding>> {
    let text_of =
        |path: &str| sources.iter().find(|s| s.path.as_os_str() == path).map(|s| s.text.as_str());
    let need = |path: &str| text_of(path).ok_or_else(|| Finding::refuse(path, "is missing"));
    let mut findings = Vec::new();
    match need("README.md") {
        Ok(text) => findings.extend(commands(text)),
        Err(finding) => findings.push(finding),
    }
    match need("ARCHITECTURE.md") {
        Ok(text) => findings.extend(architecture_length(text)),
        Err(finding) => findings.push(finding),
    }
    for dir in repo.crates()? {
        let dir = dir.display().to_string();
        let library = text_of(&format!("{dir}/src/lib.rs"));
        findings.extend(library.and_then(|text| short_head(&dir, text)));
    }
    match need("docs/reference/json.md") {
        Ok(json) => findings.extend(schema(&SCHEMA_FILES, &text_of, json)),
        Err(finding) => findings.push(finding),
    }
    if let Some(json) = text_of("docs/reference/json.md") {
        for source in sources.iter().filter(|s| s.is("rs") && s.is_under("crates/tools/cli/src")) {
            findings.extend(keys_missing(source, json));
        }
    }
    match (need("docs/internals/method.md"), text_of("crates/base/model/src/doubt.rs")) {
        (Ok(method), Some(source)) => findings.extend(doubts_missing(source, method)),
        (Err(finding), _) => findings.push(finding),
        _ => {}
    }
    Ok(findings)
}

fn commands(readme: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for command in COMMANDS {
        let count = readme.lines().filter(|line| line.trim() == command).count();
        if count != 1 {
            let text = format!("the command '{command}' occurs {count} times instead of once");
            findings.push(Finding::refuse("README.md", text));
        }
    }
    findings
}

fn architecture_length(text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    let text = format!("{lines} lines; at most {ARCHITECTURE_LINES_MAX} are allowed");
    (lines > ARCHITECTURE_LINES_MAX).then(|| Finding::refuse("ARCHITECTURE.md", text))
}

fn short_head(dir: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
    let text = format!(
        "its head has {lines} lines; describe its purpose, design and cost in at least \
        {HEAD_LINES_MIN}"
    );
    (lines < HEAD_LINES_MIN).then(|| Finding::refuse(dir, text))
}

/// Returns the public structs of a source file that derive `Serialize`, with the serialized names
/// of their public fields. Structs without named fields are omitted.
fn structs(source: &str) -> Vec<(String, Vec<String>)> {
    let code = without_tests(&code_only(source));
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut derived = false;
    let mut inside = false;
    let mut renamed = None;
    for (line, full) in code.lines().zip(source.lines()) {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            inside = derived && line.ends_with('{');
            derived = false;
            if inside {
                found.push((word(rest).to_owned(), Vec::new()));
            }
        } else if line.starts_with(['}', 'u', 'p', 'f', 'i', 'e', 'c']) {
            // This is another item; a derive belongs to the item that follows it.
            inside = false;
            derived = false;
        } else if inside && let Some(rest) = line.strip_prefix("    pub ") {
            if let Some((_, fields)) = found.last_mut() {
                fields.push(renamed.take().unwrap_or(word(rest)).to_owned());
            }
        } else if inside && line.trim_start().starts_with("#[serde(") {
            // Strings are blank in `line`; the full line has the serialized name.
            let name = full.split_once("rename = \"").and_then(|(_, rest)| rest.split('"').next());
            renamed = name.or(renamed);
        } else if !inside && line.contains("Serialize") {
            derived = true;
        }
    }
    found
}

/// Returns the identifier at the start of a text.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Checks schema files, each of which must exist.
fn schema<'a>(
    paths: &[&str],
    text_of: &dyn Fn(&str) -> Option<&'a str>,
    json: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in paths {
        match text_of(path) {
            Some(source) => findings.extend(fields_missing(path, source, json)),
            None => findings.push(Finding::refuse(*path, "is missing")),
        }
    }
    findings
}

/// Requires every field to occur as `name` in the section of docs/reference/json.md for its struct.
fn fields_missing(path: &str, source: &str, json: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let structs = structs(source);
    if structs.is_empty() {
        let text = "has no serialized structs; update the list of schema files after the code";
        findings.push(Finding::refuse(path, text));
    }
    for (name, fields) in structs {
        // If two types share a name, one is documented with its module.
        let module = path.rsplit('/').next().and_then(|file| file.strip_suffix(".rs"));
        let qualified = format!("{}::{name}", module.unwrap_or_default());
        let section = section_of(json, &qualified).or_else(|| section_of(json, &name));
        let Some(section) = section else {
            let text = format!("no heading of docs/reference/json.md names {name}");
            findings.push(Finding::refuse(path, text));
            continue;
        };
        for field in fields.iter().filter(|field| !section.contains(&format!("`{field}`"))) {
            let text = format!("docs/reference/json.md does not document `{field}` of {name}");
            findings.push(Finding::refuse(path, text));
        }
    }
    findings
}

/// Requires every key of a document that the program assembles itself (a line `"key": …` in
/// `json!`) to occur as `key` somewhere in docs/reference/json.md.
fn keys_missing(source: &Source, json: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !source.text.contains("json!") {
        return findings;
    }
    for (number, line) in source.text.lines().enumerate() {
        let key = line.trim_start().strip_prefix('"').and_then(|rest| rest.split_once("\": "));
        let Some((key, _)) = key.filter(|(key, _)| !key.is_empty() && word(key) == *key) else {
            continue;
        };
        if !json.contains(&format!("`{key}`")) {
            let text = format!("docs/reference/json.md does not document `{key}`");
            findings.push(Finding::at(&source.path, number + 1, text));
        }
    }
    findings
}

/// Returns the text from the heading that contains `name` in backquotes up to the next heading.
fn section_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let quoted = format!("`{name}`");
    let mut start = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with('#') {
            if let Some(start) = start {
                return Some(&text[start..at]);
            }
            if line.contains(&quoted) {
                start = Some(at);
            }
        }
        at += line.len();
    }
    start.map(|start| &text[start..])
}

/// Requires every doubt to have a row in the table of doubts.
fn doubts_missing(source: &str, method: &str) -> Vec<Finding> {
    let names = source
        .split_once("fn name(self)")
        .and_then(|(_, rest)| rest.split_once("\n    }"))
        .map_or("", |(body, _)| body)
        .lines()
        .filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\","));
    let Some(table) = method.split_once("## Doubts").map(|(_, rest)| rest) else {
        return vec![Finding::refuse("docs/internals/method.md", "has no heading '## Doubts'")];
    };
    let mut findings: Vec<Finding> = Vec::new();
    let mut count = 0;
    for name in names {
        count += 1;
        if !table.contains(&format!("| {name} |")) {
            let text = format!("the doubt '{name}' has no row under '## Doubts'");
            findings.push(Finding::refuse("docs/internals/method.md", text));
        }
    }
    if count == 0 {
        let text = "no names of doubts found; update this check after the code";
        findings.push(Finding::refuse("crates/base/model/src/doubt.rs", text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_stands_once() {
        let good = "# x\n```\ncargo run --release -- study\n```\n```\ncargo xtask ci\n```\n";
        assert!(commands(good).is_empty());
        assert_eq!(commands("cargo xtask ci\ncargo xtask ci\n").len(), 2);
    }

    #[test]
    fn heads_are_three_lines() {
        assert!(short_head("a", "//! a\n//! b\n//! c\nmod x;").is_none());
        assert!(short_head("a", "//! a\n//! b\nmod x;\n//! c").is_some());
    }

    const SOURCE: &str = "use serde::Serialize;\n/// A.\n#[derive(Debug, Serialize)]\npub struct \
        Run {\n    /// pub not: a field\n    pub key: String,\n    \
        inner: u8,\n    pub elapsed_ns: u64,\n}\npub enum E { A { pub_: u8 } }\n\
        #[derive(Debug)]\npub struct Inner {\n    pub x: u8,\n}\n\
        #[derive(Serialize)]\npub struct Slot(u8);\npub struct Bare {\n    pub y: u8,\n}\n";

    #[test]
    fn structs_and_fields_are_read() {
        assert_eq!(
            structs(SOURCE),
            [("Run".to_owned(), vec!["key".to_owned(), "elapsed_ns".to_owned()])]
        );
    }

    #[test]
    fn renamed_fields_count_by_their_serialized_name() {
        let text = "#[derive(Serialize)]\npub struct Claim {\n    #[serde(rename = \"seed\")]\n    \
                    pub source: u32,\n    pub id: u32,\n}\n";
        assert_eq!(structs(text), [("Claim".to_owned(), vec!["seed".to_owned(), "id".to_owned()])]);
    }

    #[test]
    fn a_field_must_be_in_its_own_section() {
        let good = "## `Run`\n| `key` | `elapsed_ns` |\n## `Other`\n";
        assert!(fields_missing("r.rs", SOURCE, good).is_empty());
        let elsewhere = "## `Run`\n| `key` |\n## `Other`\n| `elapsed_ns` |\n";
        assert_eq!(fields_missing("r.rs", SOURCE, elsewhere).len(), 1);
        assert_eq!(fields_missing("r.rs", SOURCE, "# nothing").len(), 1);
    }

    #[test]
    fn a_schema_file_exists_and_has_structs() {
        let good = "## `Run`\n| `key` | `elapsed_ns` |\n";
        let text_of = |path: &str| match path {
            "r.rs" => Some(SOURCE),
            "moved.rs" => Some("mod r;\npub struct Bare {\n    pub y: u8,\n}\n"),
            _ => None,
        };
        let found = schema(&["r.rs", "moved.rs", "gone.rs"], &text_of, good);
        let places: Vec<&str> = found.iter().map(|finding| finding.place.as_str()).collect();
        assert_eq!(places, ["moved.rs", "gone.rs"]);
    }

    #[test]
    fn keys_of_the_program_are_documented() {
        let text = "json!({\n  \"plan\": p,\n  \"why\": w,\n})\n\"a b\": c";
        let source = Source { path: "crates/tools/cli/src/x.rs".into(), text: text.to_owned() };
        let missing = keys_missing(&source, "| `plan` |");
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert_eq!(missing[0].place, "crates/tools/cli/src/x.rs:3");
    }

    #[test]
    fn every_doubt_has_a_row() {
        let source = "fn name(self) -> &str {\n match self {\n Self::A => \"not cold\",\n \
            Self::B => \"drift\",\n }\n    }\n";
        assert!(doubts_missing(source, "## Doubts\n| not cold | x |\n| drift | y |").is_empty());
        assert_eq!(doubts_missing(source, "## Doubts\n| not cold | x |").len(), 1);
        assert_eq!(doubts_missing("", "## Doubts\n").len(), 1);
    }
}
