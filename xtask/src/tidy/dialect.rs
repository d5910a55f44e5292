//! Words that mark text as a literal translation, refused wherever people read.
//!
//! `CONTRIBUTING.md` requires plain technical English. These words and phrases are correct but
//! almost absent from technical English, and each has an idiomatic replacement: report, print or
//! show instead of "tell"; next to or compared with instead of "beside". The rule reads comments,
//! strings and documents; it ignores code and, in Markdown, quotations: lines that begin with `>`
//! and text between double quotes.
//!
//! It also counts words: the rates per 100,000 words show whether the language regresses.

use super::finding::{Finding, Source};
use super::rust_source::{code_only, is_word};
use std::collections::BTreeMap;
use std::path::Path;

/// A lower-case phrase and its replacement.
struct Refused {
    words: &'static [&'static str],
    instead: &'static str,
    /// Words that make the phrase legitimate if one of them follows.
    unless_next: &'static [&'static str],
    /// The same for the preceding word.
    unless_before: &'static [&'static str],
    /// If not empty, the phrase counts only if one of these words, or a break, follows.
    only_before: &'static [&'static str],
}

const fn refused(words: &'static [&'static str], instead: &'static str) -> Refused {
    Refused { words, instead, unless_next: &[], unless_before: &[], only_before: &[] }
}

/// The list of the style guide.
const REFUSED: [Refused; 23] = [
    // The first line of the README says that ioloom "tells you why"; this is intentional.
    Refused { unless_next: &["you"], ..refused(&["tells"], "report, print or show") },
    refused(&["tell"], "report, print, show or distinguish"),
    refused(&["told"], "reported, printed or given"),
    refused(&["beside"], "next to, compared with or alongside"),
    refused(&["lies"], "is"),
    Refused { unless_next: &["for"], ..refused(&["stands"], "is") },
    refused(&["anew"], "again"),
    refused(&["thereby"], "so"),
    refused(&["whoever"], "the user, the caller or the process that"),
    // The user of that name is allowed.
    Refused { unless_before: &["user", "as"], ..refused(&["nobody"], "no one, or a passive") },
    refused(&["somebody"], "another user or process"),
    refused(&["it", "is", "looked"], "checks"),
    Refused {
        unless_next: &[
            "longer", "more", "less", "such", "better", "worse", "larger", "slower", "faster",
        ],
        unless_before: &["there", "which"],
        ..refused(&["is", "no"], "is not a")
    },
    refused(&["cannot", "be", "had"], "is not available"),
    refused(&["puts", "out"], "evicts"),
    refused(&["brings", "in"], "loads"),
    refused(&["asks", "for"], "requests, stats or queries"),
    refused(&["one's", "own"], "private, or its own"),
    refused(&["in", "turn"], "alternately, or one after another"),
    refused(&["as", "what", "it", "is"], "leave it out"),
    // As a pronoun only: "of these files" is fine.
    Refused {
        only_before: &["is", "are", "was", "were", "has", "have", "and", "or", "that", "to"],
        ..refused(&["of", "these"], "of them, or name them")
    },
    refused(&["so", "that", "it"], "split the sentence, or: to"),
    // In the READMEs of crates, most of which have a single user.
    refused(&["because", "they", "depend", "on", "it"], "because published crates depend on it"),
];

/// Exceptions: file, phrase, reason. Unused entries are refused.
const ALLOWED: [(&str, &str, &str); 3] = [
    (
        "crates/lab/report/src/chapter/copy.rs",
        "beside",
        "a name of an experiment, in stored records",
    ),
    ("crates/lab/subjects/src/copy/plan.rs", "beside", "a scenario of plans, in stored records"),
    ("studies/copy/study.toml", "beside", "a name of an experiment, in stored records"),
];

/// Reported rates: a name, and the words that count.
const RATES: [(&str, &[&str]); 2] =
    [("tell/told/tells", &["tell", "told", "tells"]), ("beside", &["beside"])];

/// Files that contain the list itself, or data.
fn is_skipped(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text == file!().trim_start_matches("./")
        || text.ends_with("tidy/dialect.rs")
        || path.iter().any(|part| part == "fixtures" || part == "snapshots")
        || text.ends_with("package-lock.json")
}

fn is_read(source: &Source) -> bool {
    ["rs", "md", "toml", "ts"].iter().any(|kind| source.is(kind)) && !is_skipped(&source.path)
}

/// Reports the phrases; the second value is a line with the rates.
pub(super) fn check(sources: &[Source]) -> (Vec<Finding>, String) {
    let mut findings = Vec::new();
    let mut used = vec![false; ALLOWED.len()];
    for source in sources.iter().filter(|source| is_read(source)) {
        for (line, phrase, instead) in phrases(source) {
            let place = source.path.to_string_lossy();
            match ALLOWED.iter().position(|(file, words, _)| *file == place && *words == phrase) {
                Some(at) => used[at] = true,
                None => {
                    let text = format!("'{phrase}' is not idiomatic here; write {instead}");
                    findings.push(Finding::at(&source.path, line, text));
                }
            }
        }
    }
    for ((file, phrase, reason), _) in ALLOWED.iter().zip(used).filter(|(_, used)| !used) {
        let text =
            format!("'{phrase}' is allowed here ({reason}) but does not occur; remove the entry");
        findings.push(Finding::refuse(*file, text));
    }
    (findings, rates(sources))
}

/// Returns every phrase in the human-readable parts of a file: line, phrase, advice.
fn phrases(source: &Source) -> Vec<(usize, String, &'static str)> {
    let tokens = tokens(&prose(source));
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        for refused in &REFUSED {
            let Some(window) = tokens.get(at..at + refused.words.len()) else { continue };
            if !window.iter().zip(refused.words).all(|(token, word)| token.word == **word) {
                continue;
            }
            let word =
                |at: Option<usize>| at.and_then(|at| tokens.get(at)).map(|t| t.word.as_str());
            let next = word(Some(at + refused.words.len()));
            let before = word(at.checked_sub(1));
            if next.is_some_and(|word| refused.unless_next.contains(&word))
                || before.is_some_and(|word| refused.unless_before.contains(&word))
            {
                continue;
            }
            let counts = refused.only_before.is_empty()
                || next.is_none_or(|word| word.is_empty() || refused.only_before.contains(&word));
            if !counts {
                continue;
            }
            found.push((window[0].line, refused.words.join(" "), refused.instead));
        }
    }
    found
}

/// A word of prose; a break between two passages is a token without letters.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    line: usize,
    word: String,
}

/// Separator between unrelated passages. It does not occur in hand-written files.
const BREAK: char = '\u{1}';

/// Returns the human-readable parts of a file with the same number of lines; code becomes breaks.
fn prose(source: &Source) -> String {
    match source.path.extension().and_then(|e| e.to_str()) {
        Some("md") => markdown(&source.text),
        Some("toml") => source.text.clone(),
        _ => comments_and_strings(&source.text),
    }
}

/// The inverse of [`code_only`]: retains comments and strings and replaces code with breaks.
fn comments_and_strings(text: &str) -> String {
    let code = code_only(text);
    let mut out = String::with_capacity(text.len());
    for (c, kept) in text.bytes().zip(code.bytes()) {
        let is_prose = kept == b' ' && c != b' ';
        out.push(match c {
            b'\n' => '\n',
            b' ' => ' ',
            _ if is_prose && c.is_ascii() => char::from(c),
            _ if is_prose => ' ',
            _ => BREAK,
        });
    }
    out
}

/// Returns Markdown without code, quotations and link targets.
fn markdown(text: &str) -> String {
    let mut fenced = false;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            out.push(BREAK);
        } else if fenced || line.starts_with('>') || line.trim().is_empty() {
            out.push(BREAK);
        } else {
            let mut open = None;
            for c in line.chars() {
                match (open, c) {
                    (None, '`' | '"') => open = Some(c),
                    (Some(mark), c) if mark == c => {
                        open = None;
                        out.push(BREAK);
                    }
                    (None, '|') => out.push(BREAK),
                    (None, c) => out.push(c),
                    _ => {}
                }
            }
        }
        out.push('\n');
    }
    out
}

fn tokens(prose: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (number, line) in prose.lines().enumerate() {
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            if c.is_ascii_alphanumeric() || "_'".contains(c) {
                word.push(c.to_ascii_lowercase());
                continue;
            }
            let trimmed = word.trim_matches('\'');
            if !trimmed.is_empty() {
                found.push(Token { line: number + 1, word: trimmed.to_owned() });
            }
            word.clear();
            if (c == BREAK || ".,;:!?()".contains(c))
                && found.last().is_some_and(|last| !last.word.is_empty())
            {
                found.push(Token { line: number + 1, word: String::new() });
            }
        }
    }
    found
}

/// Returns rates per 100,000 words over the whole text including code, counting like `git grep -w`.
fn rates(sources: &[Source]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut words = 0;
    for source in sources.iter().filter(|source| is_read(source)) {
        words += source.text.split_whitespace().count();
        for word in source.text.split(|c: char| !c.is_ascii() || !is_word(c as u8)) {
            for (name, _) in RATES.iter().filter(|(_, counted)| {
                counted.iter().any(|counted| word.eq_ignore_ascii_case(counted))
            }) {
                *counts.entry(name).or_default() += 1;
            }
        }
    }
    let rate =
        |name: &str| counts.get(name).copied().unwrap_or(0) as f64 * 1e5 / words.max(1) as f64;
    let rates: Vec<String> =
        RATES.iter().map(|(name, _)| format!("{name} {:.1}", rate(name))).collect();
    format!("{} per 100,000 of {words} words", rates.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        phrases(&Source { path: path.into(), text: text.into() })
            .into_iter()
            .map(|(line, phrase, _)| format!("{line} {phrase}"))
            .collect()
    }

    #[test]
    fn comments_and_strings_are_read_and_code_is_not() {
        assert_eq!(found("a.rs", "/// What the kernel told us.\nfn told() {}"), ["1 told"]);
        assert_eq!(found("a.rs", "let tell = \"the server tells\";"), ["1 tells"]);
        assert!(found("a.rs", "fn tell(beside: u8) { anew(beside) }").is_empty());
    }

    #[test]
    fn phrases_run_over_lines_but_not_over_passages() {
        assert_eq!(found("a.rs", "// this plan is\n// no plan"), ["1 is no"]);
        assert!(found("a.rs", "f(\"what this is\", \"no plan\")").is_empty());
        assert!(found("a.md", "| it is | no plan |").is_empty());
    }

    #[test]
    fn exceptions_are_kept() {
        for text in ["there is no limit", "it is no longer open", "U stands for used", "as nobody"]
        {
            assert!(found("a.md", text).is_empty(), "{text}");
        }
        assert_eq!(found("a.md", "it stands open"), ["1 stands"]);
        assert_eq!(found("a.md", "nobody waits"), ["1 nobody"]);
        let reason = "because they depend on it";
        assert_eq!(found("a.md", &format!("published\n{reason}.")), [format!("2 {reason}")]);
        assert!(found("a.md", "pages of these files").is_empty());
        assert_eq!(found("a.md", "two of these are open"), ["1 of these"]);
    }

    #[test]
    fn quotations_and_code_in_documents_are_skipped() {
        let text = "> he told\n\nthe word \"told\" and `tell`\n\n```\ntell\n```\n";
        assert!(found("a.md", text).is_empty());
        assert_eq!(found("a.md", "a\nb told"), ["2 told"]);
        assert_eq!(found("a.toml", "title = \"what it tells\""), ["1 tells"]);
    }

    #[test]
    fn rates_count_whole_words_in_all_text() {
        let text = format!("told {}", "word ".repeat(999));
        let line = rates(&[Source { path: "a.md".into(), text }]);
        assert_eq!(line, "tell/told/tells 100.0, beside 0.0 per 100,000 of 1000 words");
    }
}
