//! What a copy left, and questions about it that several rules ask.

use super::copy_case::Case;
use super::program::Ended;
use super::snapshot::{Difference, Record, Snapshot};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// How a program ended, and the working directory after it.
pub(super) type Run = (Ended, Snapshot);

/// Returns a path without the links that lead to it.
pub(super) fn resolved(path: &Path, snapshot: &Snapshot) -> PathBuf {
    const LINKS_MAX: u32 = 40;
    let mut todo: Vec<OsString> = path.iter().rev().map(OsString::from).collect();
    let (mut found, mut links) = (PathBuf::new(), 0);
    while let Some(name) = todo.pop() {
        if name == ".." {
            found.pop();
            continue;
        }
        let here = found.join(&name);
        let target = snapshot.get(&here).and_then(|record| record.fields.get("target"));
        match target.map(|text| PathBuf::from(text.trim_matches('"'))) {
            Some(target) if links < LINKS_MAX => {
                links += 1;
                todo.extend(target.iter().rev().map(OsString::from));
            }
            _ => found = here,
        }
    }
    found
}

/// Returns the names of the file that a path is a name of.
pub(super) fn group<'a>(path: &Path, snapshot: &'a Snapshot) -> Vec<&'a PathBuf> {
    let links = |record: &Record| record.fields.get("links").cloned();
    let Some(text) = snapshot.get(path).and_then(links) else { return Vec::new() };
    let same = snapshot.iter().filter(|(_, record)| links(record).as_ref() == Some(&text));
    same.map(|(path, _)| path).collect()
}

/// Returns true if a source of this name and type, or an operand, has the value of our copy. Links are
/// followed, as some options do.
pub(super) fn is_of_source(case: &Case, difference: &Difference, snapshot: &Snapshot) -> bool {
    let copy = Path::new(&difference.path);
    let word = snapshot.get(copy).map(Record::word);
    let can_be = |path: &&PathBuf| {
        path.starts_with("source")
            && (path.file_name() == copy.file_name() || case.operands.contains(*path))
    };
    snapshot.keys().filter(can_be).any(|path| {
        snapshot.get(&resolved(path, snapshot)).is_some_and(|record| {
            Some(record.word()) == word
                && record.fields.get(difference.field) == Some(&difference.ours)
        })
    })
}

/// Returns the path in a message, in which names that are not text have the form `'a'$'\377''b'`, and
/// names with an apostrophe are in quotation marks.
pub(super) fn unquoted(text: &str) -> Option<PathBuf> {
    if let Some(name) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return Some(name.into());
    }
    let (mut rest, mut name) = (text, Vec::new());
    while !rest.is_empty() {
        let (escaped, inner) = match rest.strip_prefix("$'") {
            Some(inner) => (true, inner),
            None => (false, rest.strip_prefix('\'')?),
        };
        let end = inner.find('\'')?;
        let (mut part, after) = (&inner.as_bytes()[..end], &inner[end + 1..]);
        while let Some((byte, others)) = part.split_first() {
            let octal = escaped.then_some(others).and_then(|digits| digits.get(..3));
            let digits = octal.filter(|_| *byte == b'\\').and_then(|d| std::str::from_utf8(d).ok());
            let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
            let letter = match others.first().filter(|_| escaped && *byte == b'\\') {
                Some(b'n') => Some(b'\n'),
                Some(b't') => Some(b'\t'),
                Some(b'\\') => Some(b'\\'),
                _ => None,
            };
            let length = if code.is_some() { 3 } else { usize::from(letter.is_some()) };
            name.push(code.or(letter).unwrap_or(*byte));
            part = &others[length..];
        }
        rest = after;
    }
    Some(OsString::from_vec(name).into())
}

/// Returns a path without its components `.`.
pub(super) fn without_dots(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}
