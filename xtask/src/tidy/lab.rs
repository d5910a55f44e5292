//! The symbols of the library's feature `lab`: only the files that ARCHITECTURE.md lists use them.
//!
//! The workspace builds the library with that feature, so the compiler does not find a use that a
//! user of the published library could not write. The build of the program without the feature
//! (step "without defaults" of `cargo xtask ci`) finds what this rule cannot see in the text.

use super::finding::{Finding, Source};
use super::rust_source::{code_only, lines_with_word, paths_from};

const FILE: &str = "ARCHITECTURE.md";
/// The library itself, with its tests.
const LIBRARY: &str = "crates/engines/ioloom";
/// The words around the list of symbols and the list of files.
const SYMBOLS: &str = "Its symbols are ";
const FILES: &str = "; only ";
const END: &str = " use them";

/// What the document lists.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    symbols: Vec<String>,
    files: Vec<String>,
}

/// Checks every Rust file outside of the library.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let document = sources.iter().find(|s| s.path.as_os_str() == FILE);
    let Some(listed) = document.and_then(|s| parse(&s.text)) else {
        let text = format!("lists no symbols of the feature `lab` (\"{SYMBOLS}…{FILES}…{END}\")");
        return vec![Finding::refuse(FILE, text)];
    };
    let mut findings = Vec::new();
    let mut unused = listed.files.clone();
    for source in sources.iter().filter(|s| s.is("rs") && !s.is_under(LIBRARY)) {
        let uses = uses(&code_only(&source.text), &listed.symbols);
        let path = source.path.to_string_lossy();
        if listed.files.iter().any(|file| *file == path) {
            unused.retain(|file| uses.is_empty() || *file != path);
            continue;
        }
        for (line, symbol) in uses {
            let text = format!(
                "uses {symbol} of the library's feature `lab`; use its public interface, or list this \
                 file in {FILE}"
            );
            findings.push(Finding::at(&source.path, line, text));
        }
    }
    let idle = |file| Finding::refuse(FILE, format!("{file} uses no symbol of the feature `lab`"));
    findings.extend(unused.into_iter().map(idle));
    findings
}

/// Reads both lists; `None` if one is missing or empty.
fn parse(text: &str) -> Option<Listed> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = text.split_once(SYMBOLS)?;
    let (symbols, rest) = rest.split_once(FILES)?;
    let (files, _) = rest.split_once(END)?;
    let quoted = |text: &str| -> Vec<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let listed = Listed { symbols: quoted(symbols), files: quoted(files) };
    (!listed.symbols.is_empty() && !listed.files.is_empty()).then_some(listed)
}

/// Returns the lines that use a symbol: a module or item by its path or its name, a method by a call.
fn uses<'s>(code: &str, symbols: &'s [String]) -> Vec<(usize, &'s str)> {
    let paths = paths_from(code, "ioloom");
    let mut found = Vec::new();
    for symbol in symbols {
        let mut lines: Vec<usize> = match symbol.rsplit_once("::") {
            Some(("ioloom", _)) => {
                let below = |path: &str| {
                    path.strip_prefix(symbol.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
                };
                let hits = paths.iter().filter(|(_, path)| below(path) || path == "ioloom::*");
                hits.map(|(line, _)| *line).collect()
            }
            Some((_, method)) => {
                let call = format!(".{method}(");
                let calls = code.lines().enumerate().filter(|(_, line)| line.contains(&call));
                let mut lines: Vec<usize> = calls.map(|(at, _)| at + 1).collect();
                lines.extend(lines_with_word(code, symbol));
                lines
            }
            None => lines_with_word(code, symbol),
        };
        lines.dedup();
        found.extend(lines.into_iter().map(|line| (line, symbol.as_str())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# A\nThe feature `lab` is for some. Its symbols are `LabOptions`,\n\
        `Files::lab` and `ioloom::engine`; only `crates/a/src/x.rs` use them. `more`\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let mut sources = vec![source(FILE, DOCUMENT), source(path, text)];
        if path != "crates/a/src/x.rs" {
            sources.push(source("crates/a/src/x.rs", "use ioloom::LabOptions;"));
        }
        check(&sources).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn the_lists_are_read() {
        let listed = parse(DOCUMENT).unwrap();
        assert_eq!(listed.symbols, ["LabOptions", "Files::lab", "ioloom::engine"]);
        assert_eq!(listed.files, ["crates/a/src/x.rs"]);
        assert_eq!(parse("Its symbols are none; only nothing use them"), None);
        assert_eq!(check(&[]).len(), 1, "a missing list is a finding");
    }

    #[test]
    fn other_files_must_not_use_the_symbols() {
        for text in [
            "use ioloom::engine::Tracing;",
            "use ioloom::{Files, engine::{self, Work}};",
            "use ioloom::{\n    Files,\n    engine,\n};",
            "use ioloom::*;",
            "fn f() { ::ioloom::engine::run() }",
            "fn f(o: ioloom::LabOptions) {}",
            "fn f() { files.lab(options) }",
            "fn f() { Files::lab(files, options) }",
        ] {
            assert_eq!(found("crates/b/src/y.rs", text).len(), 1, "{text}");
            assert_eq!(found("crates/b/tests/y.rs", text).len(), 1, "{text}");
            assert!(found("crates/engines/ioloom/tests/z.rs", text).is_empty(), "{text}");
        }
        for text in [
            "use ioloom::{Files, Run};",
            "// ioloom::engine\nlet a = \"LabOptions\";",
            "use ioloom_x::engine; use my_ioloom::engine; mod engine;",
            "use ioloom::engines; fn f() { a.lab.b(); a.label() }",
        ] {
            assert!(found("crates/b/src/y.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_listed_file_must_use_a_symbol() {
        assert!(found("crates/a/src/x.rs", "use ioloom::engine;").is_empty());
        assert_eq!(found("crates/a/src/x.rs", "use ioloom::Files;"), [FILE]);
    }
}
