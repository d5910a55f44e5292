//! Relative links in Markdown files: the file must exist, and the heading, or the function in a Rust
//! file (`file.rs#name`), so a table of tests names only tests that exist.

use super::finding::{Finding, Source};
use crate::repo::Repo;
use std::path::{Component, Path, PathBuf};

/// Checks every Markdown file.
pub(super) fn check(repo: &Repo, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|s| s.is("md")) {
        for (line, target) in targets(&source.text) {
            if let Some(wrong) = judge(repo, source, &target, sources) {
                findings.push(Finding::at(&source.path, line, wrong));
            }
        }
    }
    findings
}

fn judge(repo: &Repo, source: &Source, target: &str, sources: &[Source]) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(p, a)| (p, Some(a)));
    let file = match path {
        "" => source.path.clone(),
        path => clean(&source.path.parent().unwrap_or(Path::new("")).join(path)),
    };
    if file != source.path && !repo.root.join(&file).exists() {
        return Some(format!("link to '{target}', which does not exist"));
    }
    let anchor = anchor?;
    if file.extension().is_some_and(|ending| ending == "rs") {
        let text = sources.iter().find(|s| s.path == file).map(|s| s.text.as_str())?;
        let is_known = text.contains(&format!("fn {anchor}("));
        let wrong = || format!("link to '{target}': {} has no such function", file.display());
        return (!is_known).then(wrong);
    }
    let text = sources.iter().find(|s| s.path == file && s.is("md")).map(|s| s.text.as_str())?;
    let known = headings(text).any(|heading| slug(heading) == anchor);
    (!known).then(|| format!("link to '{target}': {} has no such heading", file.display()))
}

/// `a/../b` is `b`.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// Returns link targets with their line, from 1: `[text](target)`, `![alt](target)`, `src="target"`
/// and `href="target"`. Ignores inline and fenced code.
pub(crate) fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let line = without_code(line);
        for (open, close) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for (at, _) in line.match_indices(open) {
                let rest = &line[at + open.len()..];
                let Some(end) = rest.find(close) else { continue };
                // A title may follow the target: [a](b "c").
                let target = rest[..end].split_whitespace().next().unwrap_or_default();
                found.push((number + 1, target.trim_matches(['<', '>']).to_owned()));
            }
        }
    }
    found
}

fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    parts.iter().enumerate().map(|(i, part)| if i % 2 == 0 { *part } else { " " }).collect()
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|l| l.starts_with('#')).map(|l| l.trim_start_matches('#').trim())
}

/// Returns the anchor that Git hosts derive from a heading.
fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_')
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_and_code_is_not() {
        let text = "see [a](docs/x.md) and ![p](<y.png> \
            \"title\")\n`[no](no.md)`\n```\n[no](no.md)\n```\n<img src=\"z.svg\">";
        let found: Vec<_> = targets(text);
        assert_eq!(
            found,
            [(1, "docs/x.md".to_owned()), (1, "y.png".to_owned()), (6, "z.svg".to_owned())]
        );
    }

    #[test]
    fn dead_links_and_headings_are_refused() {
        let repo = Repo::find().unwrap();
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let one = source("docs/a.md", "[x](../Cargo.toml) [y](#some-heading-2)\n# Some heading, 2");
        assert!(check(&repo, &[one]).is_empty());
        let two = source("docs/a.md", "[x](Cargo.toml)\n[y](#other)\n[z](https://x.invalid/a.md)");
        let found = check(&repo, &[two]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].place, "docs/a.md:1");
        let tests = source("xtask/src/main.rs", "fn some_test() {}");
        let table = source(
            "docs/a.md",
            "[x](../xtask/src/main.rs#some_test)\n[y](../xtask/src/main.rs#some)",
        );
        let found = check(&repo, &[tests, table]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.contains("no such function"), "{found:?}");
    }
}
