//! Rewrites a command line of `cp` before it is parsed: abbreviated long options as GNU cp accepts
//! them, and the end of the options at the first operand if `POSIXLY_CORRECT` is set.
//!
//! An abbreviation is resolved among the options of GNU cp alone, so that the additional options of
//! this program do not make it ambiguous.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Long options of GNU cp.
const LONG: [&str; 36] = [
    "archive",
    "attributes-only",
    "backup",
    "context",
    "copy-contents",
    "debug",
    "dereference",
    "force",
    "help",
    "interactive",
    "link",
    "no-clobber",
    "no-dereference",
    "no-preserve",
    "no-target-directory",
    "one-file-system",
    "parents",
    "path",
    "preserve",
    "recursive",
    "reflink",
    "remove-destination",
    "sparse",
    "strip-trailing-slashes",
    "suffix",
    "symbolic-link",
    "target-directory",
    "update",
    "verbose",
    "version",
    // Options of this program that take a separate value.
    "durable",
    "files0-from",
    "hash",
    "mode",
    "threads",
    "verify",
];

/// Number of options of GNU cp in [`LONG`].
const GNU: usize = 30;

/// Options of this program whose name begins like several options of GNU cp.
const OURS: [&str; 5] = ["replace", "resume", "strict-source", "in-place", "explain"];

/// Options whose value may be the next word.
const WITH_VALUE: [&str; 10] = [
    "durable",
    "files0-from",
    "hash",
    "mode",
    "no-preserve",
    "sparse",
    "suffix",
    "target-directory",
    "threads",
    "verify",
];

/// Rewrites the words after `cp`.
///
/// # Errors
/// Returns the message for an ambiguous abbreviation or a missing value.
pub(crate) fn expand(
    words: impl Iterator<Item = OsString>,
    posix: bool,
) -> Result<Vec<OsString>, String> {
    let mut expanded = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            expanded.push(word);
            break;
        }
        let takes_next = if bytes.starts_with(b"--") {
            let word = long(bytes)?;
            let takes_next = WITH_VALUE.iter().any(|name| word.as_bytes()[2..] == *name.as_bytes());
            let missing = format!("option '{}' requires an argument", word.to_string_lossy());
            expanded.push(word);
            takes_next.then_some(missing)
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            let letter = short_takes_next(&bytes[1..]);
            expanded.push(word);
            letter.map(|letter| format!("option requires an argument -- '{}'", char::from(letter)))
        } else if posix {
            expanded.push("--".into());
            expanded.push(word);
            break;
        } else {
            expanded.push(word);
            None
        };
        if let Some(missing) = takes_next {
            expanded.push(words.next().ok_or(missing)?);
        }
    }
    expanded.extend(words);
    Ok(expanded)
}

/// Completes an abbreviated long option. One that GNU cp does not know is left for the parser.
fn long(word: &[u8]) -> Result<OsString, String> {
    let end = word.iter().position(|byte| *byte == b'=').unwrap_or(word.len());
    let (name, value) = (&word[2..end], &word[end..]);
    let unchanged = || Ok(OsStr::from_bytes(word).to_owned());
    if name.is_empty() || LONG.iter().any(|known| known.as_bytes() == name) {
        return if name == b"path" { Ok(completed("parents", value)) } else { unchanged() };
    }
    let found: Vec<&str> =
        LONG[..GNU].iter().filter(|known| known.as_bytes().starts_with(name)).copied().collect();
    match found[..] {
        [] => unchanged(),
        // `--path` is an old name of `--parents`.
        ["path"] | ["parents", "path"] => Ok(completed("parents", value)),
        [only] => Ok(completed(only, value)),
        // An option of this program, not of GNU cp.
        _ if OURS.iter().any(|known| known.as_bytes() == name) => unchanged(),
        _ => {
            let given = String::from_utf8_lossy(&word[..end]);
            let all: Vec<String> = found.iter().map(|known| format!("'--{known}'")).collect();
            Err(format!("option '{given}' is ambiguous; possibilities: {}", all.join(" ")))
        }
    }
}

fn completed(name: &str, value: &[u8]) -> OsString {
    let mut word = format!("--{name}").into_bytes();
    word.extend_from_slice(value);
    OsString::from_vec(word)
}

/// Returns the last of a group of short options if it takes the next word as its value.
fn short_takes_next(letters: &[u8]) -> Option<u8> {
    let at = letters.iter().position(|letter| matches!(letter, b't' | b'S'))?;
    (at + 1 == letters.len()).then_some(letters[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str, posix: bool) -> String {
        let words = line.split(' ').map(OsString::from);
        let expanded = expand(words, posix).unwrap();
        let text: Vec<_> = expanded.iter().map(|word| word.to_string_lossy()).collect();
        text.join(" ")
    }

    #[test]
    fn abbreviations_are_those_of_gnu_cp() {
        for (short, long) in [
            ("--rem a b", "--remove-destination a b"),
            ("--b=simple a b", "--backup=simple a b"),
            ("--parent a b", "--parents a b"),
            ("--pa a b", "--parents a b"),
            ("--str a", "--strip-trailing-slashes a"),
            ("--resume a", "--resume a"),
            ("--arch -- --arch", "--archive -- --arch"),
            ("--suf --arch --arch", "--suffix --arch --archive"),
            ("-S --arch --arch", "-S --arch --archive"),
            ("-aS --arch --arch", "-aS --arch --archive"),
            ("-Sx --arch", "-Sx --archive"),
            ("--unknown a", "--unknown a"),
        ] {
            assert_eq!(words(short, false), long);
        }
    }

    #[test]
    fn ambiguous_options_and_missing_values_are_errors() {
        let error = |line: &str| expand(line.split(' ').map(OsString::from), false).unwrap_err();
        assert_eq!(
            error("--re a"),
            "option '--re' is ambiguous; possibilities: '--recursive' '--reflink' \
             '--remove-destination'"
        );
        assert_eq!(error("a -t"), "option requires an argument -- 't'");
        assert_eq!(error("a --spa"), "option '--sparse' requires an argument");
    }

    #[test]
    fn options_end_at_the_first_operand_if_posix_is_requested() {
        assert_eq!(words("-a -t d x -b", true), "-a -t d -- x -b");
        assert_eq!(words("-a x -b", false), "-a x -b");
        assert_eq!(words("-a -- x -b", true), "-a -- x -b");
    }
}
