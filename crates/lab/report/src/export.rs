//! The results of studies without the names of hosts, users and files, to be passed to others.
//!
//! Everything that identifies a place is removed rather than masked: the command line, the mounts and
//! limits of the machine, the fingerprint, and every absolute path in a text. File sets that are
//! directories of the user and media other than those of ioloom are numbered, so two of them stay two.
//! The reason of a run without a result is reduced to its operation and error.

use crate::data;
use crate::group::{fits, groups};
use crate::headline::headlines;
use crate::input::Input;
use ioloom_model::Outcome;
use serde_json::{Map, Value};

/// Keys that are removed wherever they occur.
const PRIVATE: [&str; 6] = ["command", "fingerprint", "mounts", "limits", "devices", "store"];
/// Keys of texts that name places.
const WITH_PLACES: [&str; 3] = ["sentence", "detail", "since"];
/// Name of a directory of the user.
const USER_FILES: &str = "user files";
/// Name of a medium of the user.
const ELSEWHERE: &str = "elsewhere";
/// Media with a name from ioloom.
const MEDIA: [&str; 4] = ["work", "image", "slow", "tmpfs"];

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
    let (mut sets, mut media) = (Aliases::new(USER_FILES), Aliases::new(ELSEWHERE));
    for input in inputs {
        for key in input.records.iter().map(|record| &record.key) {
            if !is_known_set(input, &key.set) {
                sets.add(&key.set);
            }
            if !MEDIA.contains(&key.medium.as_str()) {
                media.add(&key.medium);
            }
        }
    }
    let renamed = |input: &Input| {
        let mut input = input.clone();
        let known: Vec<bool> =
            input.records.iter().map(|record| is_known_set(&input, &record.key.set)).collect();
        for (record, known) in input.records.iter_mut().zip(known) {
            if !known {
                // It is a hash of names and sizes, against which guessed names can be checked.
                record.set.hash.clear();
            }
            sets.rename(&mut record.key.set);
            sets.rename(&mut record.set.name);
            media.rename(&mut record.key.medium);
            if let Outcome::Refused { reason } | Outcome::Failed { reason } = &mut record.outcome {
                *reason = kind(reason);
            }
        }
        input
    };
    let inputs: Vec<Input> = inputs.iter().map(renamed).collect();
    cleaned(json(&inputs), "", &|text| with_aliases(text, &[&sets, &media]))
}

/// Returns whether the name of a file set comes from the study. A directory of the user can have the name of
/// one.
fn is_known_set(input: &Input, name: &str) -> bool {
    let mut templates =
        input.study.experiments.iter().flat_map(|e| &e.arms).filter_map(|a| a.set.as_ref());
    let is_of_study = input.study.sets.contains_key(name) || templates.any(|t| fits(t, name));
    name.is_empty() || is_of_study && !input.user_files
}

/// Names of the user with the names that replace them: one for each, so that nothing is pooled.
struct Aliases {
    word: &'static str,
    names: Vec<String>,
}

impl Aliases {
    const fn new(word: &'static str) -> Self {
        Self { word, names: Vec::new() }
    }

    fn add(&mut self, name: &str) {
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
    }

    /// Returns what replaces the name at this index.
    fn alias(&self, at: usize) -> String {
        match self.names.len() {
            1 => self.word.to_owned(),
            _ => format!("{} {}", self.word, at + 1),
        }
    }

    fn rename(&self, name: &mut String) {
        if let Some(at) = self.names.iter().position(|known| known == name) {
            *name = self.alias(at);
        }
    }

    /// Returns the names with what replaces them. A name without a letter or digit, such as `.`, occurs
    /// in texts that do not mean it, and identifies no place.
    fn pairs(&self) -> impl Iterator<Item = (&str, String)> {
        let all = self.names.iter().enumerate().map(|(at, name)| (name.as_str(), self.alias(at)));
        all.filter(|(name, _)| name.contains(char::is_alphanumeric))
    }
}

/// Replaces names in a text where they are not part of a word, in one pass: what replaces a name is not
/// searched. The longest comes first, because one may be part of another. A path that begins with a name
/// is replaced as a whole.
fn with_aliases(text: &str, aliases: &[&Aliases]) -> String {
    let mut pairs: Vec<(&str, String)> = aliases.iter().flat_map(|one| one.pairs()).collect();
    pairs.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let mut out = String::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let (before, rest) = text.split_at(at);
        let found =
            pairs.iter().find(|(name, _)| rest.starts_with(name) && is_apart(before, rest, name));
        let Some((name, alias)) = found else {
            out.push(c);
            at += c.len_utf8();
            continue;
        };
        out.push_str(alias);
        at += name.len();
        let after = &text[at..];
        let longer = name.ends_with('/') && after.starts_with(char::is_alphanumeric);
        if longer || after.starts_with('/') {
            let quote = before.chars().next_back().filter(|c| QUOTES.contains(c));
            let closing = quote.and_then(|quote| closing(after, quote)).map(|end| end - 1);
            at += closing.unwrap_or_else(|| path_end(after));
        }
    }
    out
}

/// Reports whether a name at the start of `rest` is not part of a longer word.
fn is_apart(before: &str, rest: &str, name: &str) -> bool {
    let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (first, last) = (name.chars().next(), name.chars().next_back());
    let starts = !(in_word(first) && in_word(before.chars().next_back()));
    starts && !(in_word(last) && in_word(rest[name.len()..].chars().next()))
}

/// Characters that quote paths.
const QUOTES: [char; 3] = ['\'', '"', '`'];

/// Symbols of system errors.
const SYMBOLS: [&str; 18] = [
    "EACCES",
    "EAGAIN",
    "EBUSY",
    "EINVAL",
    "EIO",
    "EMFILE",
    "ENFILE",
    "ENODEV",
    "ENOENT",
    "ENOMEM",
    "ENOSPC",
    "ENOSYS",
    "ENOTSUP",
    "EOPNOTSUPP",
    "EPERM",
    "EROFS",
    "ETIMEDOUT",
    "EXDEV",
];

/// Returns the operation and the error of a reason; nothing else of it can be known to be public.
fn kind(reason: &str) -> String {
    let verb = reason.split("cannot ").nth(1).and_then(|rest| rest.split(' ').next());
    let verb = verb.filter(|verb| verb.len() < 12 && verb.chars().all(|c| c.is_ascii_lowercase()));
    let symbol =
        reason.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| SYMBOLS.contains(word));
    let error = error_text(reason).or_else(|| symbol.map(str::to_owned));
    match (verb, error) {
        (Some(verb), Some(error)) => format!("cannot {verb}: {error}"),
        (Some(verb), None) => format!("cannot {verb}"),
        (None, Some(error)) => error,
        (None, None) => "other reason".to_owned(),
    }
}

/// Returns the longest text of a system error in a reason.
fn error_text(reason: &str) -> Option<String> {
    const ERRNO_MAX: i32 = 133;
    let text = |errno| {
        let text = std::io::Error::from_raw_os_error(errno).to_string();
        text.split(" (os error").next().unwrap_or_default().to_owned()
    };
    let known = (1..=ERRNO_MAX).map(text).filter(|text| reason.contains(text.as_str()));
    known.max_by_key(String::len)
}

fn cleaned(value: Value, key: &str, without_names: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) if WITH_PLACES.contains(&key) => {
            Value::String(without_paths(&without_names(&text)))
        }
        Value::String(text) => Value::String(without_paths(&text)),
        Value::Array(all) => {
            Value::Array(all.into_iter().map(|one| cleaned(one, key, without_names)).collect())
        }
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, _)| !PRIVATE.contains(&key.as_str()));
            let kept = kept.map(|(key, value)| {
                let value = cleaned(value, &key, without_names);
                (key, value)
            });
            Value::Object(kept.collect::<Map<_, _>>())
        }
        other => other,
    }
}

/// Replaces absolute paths: a quoted one up to its closing quote, another one up to a colon or semicolon
/// before a space, because its name may contain spaces. A host before the path is removed with it.
fn without_paths(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(slash) = path_start(rest) {
        let (before, path) = rest.split_at(slash);
        let stops = |c: char| c.is_whitespace() || "'\"`()[]{}=,;<>|".contains(c);
        let word = before
            .rfind(stops)
            .map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
        let (mut kept, mut end) = (&before[..word], path_end(path));
        let quote = kept.chars().next_back().filter(|c| QUOTES.contains(c));
        if let Some(quote) = quote
            && let Some(closing) = closing(path, quote)
        {
            kept = &kept[..kept.len() - 1];
            end = closing;
        }
        out.push_str(kept);
        out.push_str("PATH");
        rest = &path[end..];
    }
    out + rest
}

/// Returns the position of the first slash or tilde that begins an absolute path.
fn path_start(text: &str) -> Option<usize> {
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let tail = &text[at..];
        let after = tail.strip_prefix("~/").or_else(|| tail.strip_prefix('/')).unwrap_or_default();
        let named = after.chars().next().is_some_and(|c| !c.is_whitespace());
        let inside = previous.is_alphanumeric() || "_-.~/)]}%×".contains(previous);
        if named && !inside {
            return Some(at);
        }
        previous = c;
    }
    None
}

/// Returns the end of a path without quotes.
fn path_end(path: &str) -> usize {
    let ends = [": ", "; ", "\n", "\t"].iter().filter_map(|end| path.find(end));
    ends.min().unwrap_or(path.len())
}

/// Returns the position after the closing quote: one before a space, punctuation or the end.
fn closing(path: &str, quote: char) -> Option<usize> {
    path.match_indices(quote).map(|(at, _)| at + 1).find(|end| {
        path[*end..].chars().next().is_none_or(|c| c.is_whitespace() || ":;,.)]".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_private_keys_are_removed() {
        let text = "cannot open '/home/jo/x': Permission denied; plan read/threads:n=2";
        let value = serde_json::json!({
            "missing": text, "command": "ioloom study --files /home/jo", "list": ["~/src", "5 / 2"],
        });
        let clean = cleaned(value, "", &str::to_owned);
        assert_eq!(
            clean,
            serde_json::json!({
                "missing": "cannot open PATH: Permission denied; plan read/threads:n=2",
                "list": ["PATH", "5 / 2"],
            })
        );
    }

    #[test]
    fn names_are_replaced_where_they_are_words() {
        let of = |word, names: &[&str]| {
            let mut aliases = Aliases::new(word);
            names.iter().for_each(|name| aliases.add(name));
            aliases
        };
        let sets = of(USER_FILES, &[".", "src", "/home/jo/a", "user"]);
        let media = of(ELSEWHERE, &["", "on", "files"]);
        for (text, clean) in [
            ("2.5× on 1.2 MB.", "2.5× elsewhere 2 1.2 MB."),
            ("src, cold: srcs and _src", "user files 2, cold: srcs and _src"),
            ("one connection on-line", "one connection elsewhere 2-line"),
            ("user, files", "user files 4, elsewhere 3"),
            (
                "in /home/jo/a: 2×, '/home/jo/a/My x/y', 3×",
                "in user files 3: 2×, 'user files 3', 3×",
            ),
            ("src/My x/y: 3×", "user files 2: 3×"),
            ("/home/jo/ab", "/home/jo/ab"),
        ] {
            assert_eq!(with_aliases(text, &[&sets, &media]), clean, "{text}");
        }
    }

    #[test]
    fn a_path_is_found_in_any_spelling() {
        for (text, clean) in [
            ("cannot open '/home/jo/My Photos/IMG 1.jpg': no", "cannot open PATH: no"),
            ("cannot open '/home/jo/it's/x'", "cannot open PATH"),
            ("cannot open /home/jo/My Photos/IMG 1.jpg: no", "cannot open PATH: no"),
            ("given --files=/home/jo", "given --files=PATH"),
            ("file:/home/jo is absent", "PATH"),
            ("on nas.corp:/export", "on PATH"),
            ("a\t/home/jo\n/home/jo", "a\tPATH\nPATH"),
            ("(~/src)", "(PATH"),
            (
                "direct:uring/window:l=64,p=2 at 3.5 MiB/s",
                "direct:uring/window:l=64,p=2 at 3.5 MiB/s",
            ),
            ("10 % / 3; I/O", "10 % / 3; I/O"),
        ] {
            assert_eq!(without_paths(text), clean, "{text}");
        }
    }

    #[test]
    fn a_reason_is_reduced_to_operation_and_error() {
        for (reason, public) in [
            (
                "cannot open '/home/jo/a b': Permission denied; use sudo",
                "cannot open: Permission denied",
            ),
            (
                "cannot read data/secret.txt: No such file or directory (os error 2)",
                "cannot read: No such file or directory",
            ),
            ("open with O_DIRECT gave EINVAL", "EINVAL"),
            ("cannot SECRET.txt", "other reason"),
            ("mydisk is full", "other reason"),
            ("cannot use EVIDENCE", "cannot use"),
        ] {
            assert_eq!(kind(reason), public, "{reason}");
        }
    }
}
