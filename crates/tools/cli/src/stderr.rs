//! Standard error: messages prefixed with the program name, and plain status lines.
//!
//! Write errors are ignored, because they could not be reported anywhere. After an interrupt, what a stalled
//! reader does not take is lost.

use crate::slow_reader;
use ioloom_failure::reason;
use ioloom_sys::stream::{self, Ready};
use std::io;
use std::time::Duration;

/// Prints `ioloom: MESSAGE`.
pub(crate) fn message(text: &str) {
    line(&prefixed(text));
}

/// Returns `ioloom: MESSAGE`.
pub(crate) fn prefixed(text: &str) -> String {
    format!("ioloom: {}", without_errno(text))
}

/// Prints a line without a prefix.
pub(crate) fn line(text: &str) {
    bytes(format!("{text}\n").as_bytes());
}

/// Prints bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) {
    let _ = slow_reader::stderr(|err| err.write_all(bytes));
}

/// Returns whether it takes text now. A terminal that is stopped (Ctrl-S) must not hold up what only shows progress.
pub(crate) fn has_room() -> bool {
    stream::wait(std::io::stderr(), Ready::Write, Duration::ZERO).unwrap_or(true)
}

/// Removes the ` (os error N)` that the standard library appends to system errors. It remains where the text of
/// that error does not precede it, as in the name of a file.
pub(crate) fn without_errno(message: &str) -> String {
    const MARK: &str = " (os error ";
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(MARK) {
        let number = &rest[at + MARK.len()..];
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        let code =
            number[..digits].parse::<i32>().ok().filter(|_| number[digits..].starts_with(')'));
        let is_errno = code
            .is_some_and(|code| rest[..at].ends_with(&reason(&io::Error::from_raw_os_error(code))));
        let kept = if is_errno { at } else { at + MARK.len() };
        out.push_str(&rest[..kept]);
        rest = if is_errno { &number[digits + 1..] } else { number };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::without_errno;

    #[test]
    fn only_error_numbers_are_removed() {
        for (message, expected) in [
            (
                "cannot read x: No such file or directory (os error 2); check (a)",
                "cannot read x: No such file or directory; check (a)",
            ),
            (
                "Operation not permitted (os error 1) Invalid argument (os error 22)",
                "Operation not permitted Invalid argument",
            ),
            ("a (os error x) b (os error ", "a (os error x) b (os error "),
            (
                "cannot open 'd (os error 5)': Permission denied (os error 13)",
                "cannot open 'd (os error 5)': Permission denied",
            ),
            ("plain", "plain"),
        ] {
            assert_eq!(without_errno(message), expected);
        }
    }
}
