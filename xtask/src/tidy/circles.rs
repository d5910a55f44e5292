//! Rejects circles of files inside a crate.
//!
//! Files that need each other cannot be read, tested or moved separately. File A uses file B if the
//! code of A, excluding tests, names an item defined in B by a path through `crate`, `self`,
//! `super` or a child module. Re-exports are resolved to the definition, and neither `pub use` nor
//! `mod x;` counts as a use: a facade only lists the items below it.
//!
//! The rule reads text, not types: calling a method of another file's type is not itself a use.
//! Every reported circle is a real circle of names.

use super::finding::{Finding, Source};
use super::rust_source::{code_only, is_word, without_tests};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The path of a module below the crate root, which is empty.
type Module = Vec<String>;

/// Declarations and names in one file.
#[derive(Debug, Default)]
struct File {
    /// Paths that its code names, first segment `crate`, `self`, `super` or a child.
    paths: Vec<Vec<String>>,
    /// Re-exports: name to path.
    exports: BTreeMap<String, Vec<String>>,
    /// Child modules in separate files.
    children: BTreeSet<String>,
}

type Crate = BTreeMap<Module, File>;

/// Maximum length of a re-export chain; a longer chain would be a circle.
const EXPORTS_MAX: usize = 12;

/// Finds circles in every crate of `folders`.
pub(super) fn check(folders: &[PathBuf], sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in folders {
        let circles = circles(&uses(&read(&folder.join("src"), sources)));
        findings.extend(circles.iter().map(|circle| {
            let names: Vec<String> = circle.iter().map(|module| name(module)).collect();
            let text = format!(
                "a circle of {} files: {}; move shared items into a separate file",
                circle.len(),
                names.join(", ")
            );
            Finding::refuse(folder.display().to_string(), text)
        }));
    }
    findings
}

fn name(module: &[String]) -> String {
    if module.is_empty() { "the crate root".to_owned() } else { module.join("::") }
}

/// Reads the files of one crate.
fn read(src: &Path, sources: &[Source]) -> Crate {
    let mut files = Crate::new();
    for source in sources.iter().filter(|source| source.is("rs") && source.path.starts_with(src)) {
        let Ok(below) = source.path.strip_prefix(src) else { continue };
        let Some(module) = module_of(below) else { continue };
        files.insert(module, parse(&without_tests(&code_only(&source.text))));
    }
    files
}

/// Returns the module of a file below `src`; `None` for tests and other binaries.
fn module_of(below: &Path) -> Option<Module> {
    let path = below.with_extension("");
    let mut parts: Module = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.first().is_some_and(|first| first == "bin") {
        return None;
    }
    let last = parts.last()?.clone();
    if last == "tests" || last.ends_with("_tests") {
        return None;
    }
    if last == "mod" || parts.len() == 1 && (last == "lib" || last == "main") {
        parts.pop();
    }
    Some(parts)
}

/// Splits code into declarations, exports and names.
fn parse(code: &str) -> File {
    let mut file = File::default();
    let mut body = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = next_item(rest) {
        let (before, item) = rest.split_at(at);
        let end = item.find(';').map_or(item.len(), |end| end + 1);
        let statement = &item[..end];
        let is_use = statement.starts_with("use");
        let text = statement.trim_end_matches(';').split_once(char::is_whitespace);
        let text = text.map_or("", |(_, text)| text);
        let visible = is_visible(before);
        body.push_str(before);
        match (is_use, text.contains('{')) {
            (false, true) => {
                // An inline module is part of this file's code.
                body.push_str(&item[..3]);
                rest = &item[3..];
                continue;
            }
            (false, false) => {
                file.children.insert(text.trim().to_owned());
            }
            (true, _) => {
                let mut found = Vec::new();
                expand(&[], text, &mut found);
                for (path, name) in found {
                    if visible {
                        file.exports.insert(name, path);
                    } else {
                        file.paths.push(path);
                    }
                }
            }
        }
        rest = &item[end..];
    }
    body.push_str(rest);
    file.paths.extend(inline_paths(&body, &file.children));
    file
}

/// Returns the start of the next `use` or `mod` statement.
fn next_item(code: &str) -> Option<usize> {
    let bytes = code.as_bytes();
    let whole = |at: usize, word: &str| {
        let before = at.checked_sub(1).is_none_or(|b| !is_word(bytes[b]));
        before && bytes.get(at + word.len()).is_some_and(u8::is_ascii_whitespace)
    };
    let find = |word: &str| code.match_indices(word).map(|(at, _)| at).find(|at| whole(*at, word));
    [find("use"), find("mod")].into_iter().flatten().min()
}

/// Returns whether `pub` or `pub(...)` precedes the statement.
fn is_visible(before: &str) -> bool {
    let before = before.trim_end();
    let before = match before.strip_suffix(')') {
        Some(inside) => inside.rsplit_once('(').map_or(before, |(head, _)| head.trim_end()),
        None => before,
    };
    before.ends_with("pub")
}

/// Expands a tree of paths into paths with their local names.
fn expand(prefix: &[String], tree: &str, found: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let (path, alias) = match tree.split_once(" as ") {
            Some((path, alias)) => (path, Some(alias.trim().to_owned())),
            None => (tree, None),
        };
        let mut full = prefix.to_vec();
        full.extend(segments(path));
        if full.len() > 1 && full.last().is_some_and(|last| last == "self") {
            full.pop();
        }
        if let Some(last) = full.last().cloned() {
            found.push((full, alias.unwrap_or(last)));
        }
        return;
    };
    let mut full = prefix.to_vec();
    full.extend(segments(&tree[..open]));
    let inside = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand(&full, &inside[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inside[start..].trim().is_empty() {
        expand(&full, &inside[start..], found);
    }
}

fn segments(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty())
}

/// Returns the paths in code that begin with `crate`, `self`, `super` or a child module.
fn inline_paths(code: &str, children: &BTreeSet<String>) -> Vec<Vec<String>> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let free = at == 0 || !is_word(bytes[at - 1]) && bytes[at - 1] != b':';
        if !is_word(bytes[at]) || !free {
            at += 1;
            continue;
        }
        let end = path_end(bytes, at);
        let path: Vec<String> = segments(&code[at..end]).collect();
        if path.len() > 1
            && (["crate", "self", "super"].contains(&path[0].as_str())
                || children.contains(&path[0]))
        {
            found.push(path);
        }
        at = end.max(at + 1);
    }
    found
}

/// Returns the end of the path `a::b::c` that begins at `at`.
fn path_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        while at < bytes.len() && is_word(bytes[at]) {
            at += 1;
        }
        let further =
            bytes[at..].starts_with(b"::") && bytes.get(at + 2).is_some_and(|b| is_word(*b));
        if !further {
            return at;
        }
        at += 2;
    }
}

/// Returns the file that defines `path`, resolved in `from`.
fn resolve(files: &Crate, from: &[String], path: &[String], depth: usize) -> Option<Module> {
    let file = files.get(from)?;
    let (first, mut rest) = path.split_first()?;
    let mut at: Module = from.to_vec();
    match first.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop()?;
            while let Some((next, after)) = rest.split_first() {
                if next != "super" {
                    break;
                }
                at.pop()?;
                rest = after;
            }
        }
        child if file.children.contains(child) => rest = path,
        _ => return None,
    }
    while let Some((next, after)) = rest.split_first() {
        at.push(next.clone());
        if !files.contains_key(&at) {
            at.pop();
            break;
        }
        rest = after;
    }
    let target = files.get(&at)?;
    let export = rest.first().and_then(|item| target.exports.get(item));
    if let Some(export) = export.filter(|_| depth < EXPORTS_MAX) {
        let full = [export.as_slice(), &rest[1..]].concat();
        if let Some(found) = resolve(files, &at, &full, depth + 1) {
            return Some(found);
        }
    }
    Some(at)
}

/// Returns which files each file uses.
fn uses(files: &Crate) -> BTreeMap<Module, BTreeSet<Module>> {
    let targets = |module: &Module, file: &File| {
        let found = file.paths.iter().filter_map(|path| resolve(files, module, path, 0));
        found.filter(|target| target != module).collect()
    };
    files.iter().map(|(module, file)| (module.clone(), targets(module, file))).collect()
}

/// Returns groups of mutually reachable files. Crates are small, so plain reachability is fast
/// enough.
fn circles(uses: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|module| (module, reachable(uses, module))).collect();
    let mut found: Vec<Vec<Module>> = Vec::new();
    for (module, below) in &reach {
        if found.iter().flatten().any(|seen| seen == *module) {
            continue;
        }
        let circle = below.iter().filter(|other| reach[*other].contains(module));
        let circle: Vec<Module> = circle.map(|other| (*other).clone()).collect();
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found
}

fn reachable<'a>(
    uses: &'a BTreeMap<Module, BTreeSet<Module>>,
    from: &'a Module,
) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in uses.get(module).into_iter().flatten() {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source {
                path: Path::new("c/src").join(path),
                text: (*text).to_owned(),
            })
            .collect();
        check(&["c".into()], &sources).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_chain_is_fine_and_a_circle_is_refused() {
        let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;");
        let a = ("a.rs", "use crate::b::B;\npub struct A(B);");
        assert!(found(&[root, a, ("b.rs", "pub struct B;")]).is_empty());
        let circle = found(&[root, a, ("b.rs", "pub struct B;\nfn f(_: crate::a::A) {}")]);
        assert_eq!(circle.len(), 1);
        assert!(circle[0].contains("a circle of 2 files: a, b"), "{circle:?}");
    }

    #[test]
    fn exports_are_followed() {
        let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;");
        let through = ("b.rs", "use crate::{A as Other};\npub struct B(Other);");
        let a = ("a.rs", "pub struct A;\nfn f() { crate::b::g() }");
        assert_eq!(found(&[root, a, through]).len(), 1);
        let down = ("a.rs", "pub struct A;");
        assert!(found(&[root, down, through]).is_empty(), "listing in the root is not a use");
    }

    #[test]
    fn a_parent_and_its_child_are_a_circle_only_if_both_use() {
        let root = ("lib.rs", "mod a;");
        let child = ("a/b.rs", "use super::Shared;\npub fn f(_: Shared) {}");
        let lists = ("a/mod.rs", "mod b;\npub(crate) use b::f;\npub struct Shared;");
        assert!(found(&[root, lists, child]).is_empty());
        let uses = ("a/mod.rs", "mod b;\npub struct Shared;\nfn g() { b::f(Shared) }");
        assert_eq!(found(&[root, uses, child]).len(), 1);
    }

    #[test]
    fn tests_comments_and_strings_do_not_count() {
        let root = ("lib.rs", "mod a;\nmod b;");
        let a = ("a.rs", "use crate::b::B;");
        let b = "pub struct B; // crate::a::A\nconst S: &str = \"crate::a::A\";\n\
                 #[cfg(test)]\nmod tests { use crate::a::A; }";
        assert!(found(&[root, a, ("b.rs", b)]).is_empty());
        assert!(
            found(&[root, a, ("b.rs", "pub struct B;"), ("b/tests.rs", "use crate::a::A;")])
                .is_empty()
        );
    }

    #[test]
    fn trees_of_paths_are_spelled_out() {
        let mut paths = Vec::new();
        expand(&[], "crate::{a::{self, B as C}, d}", &mut paths);
        let text: Vec<String> =
            paths.iter().map(|(path, name)| format!("{}={name}", path.join("::"))).collect();
        assert_eq!(text, ["crate::a=a", "crate::a::B=C", "crate::d=d"]);
    }
}
