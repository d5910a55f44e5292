//! Failed calls on paths, in a format shared by every crate.
//!
//! A [`PathError`] contains the [`Operation`], the path and the [`std::io::Error`], so callers can
//! match on types instead of wording. Its text follows one grammar, `cannot VERB 'PATH': REASON;
//! ADVICE`. The verb comes from the operation, the path is quoted like in GNU `ls` ([`Quoted`]),
//! the reason is the system's text, and the advice comes from [`advice`], the only place that maps
//! an operation and an error to advice. If no advice is certain to be correct, it is omitted.
//!
//! The crate does no I/O and has no cost until a message is formatted.

mod advice;
mod operation;
mod quote;
mod url;

pub use advice::advice;
pub use operation::Operation;
pub use quote::{Quoted, quote_by_locale, quoted};
pub use url::{without_secrets, without_signature};

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A failed system call on a path.
///
/// ```
/// use ioloom_failure::{Operation, PathError};
/// use std::io;
///
/// let error = PathError::new(Operation::Stat, "/nope", io::Error::from_raw_os_error(2));
/// assert_eq!(error.to_string(), "cannot stat '/nope': No such file or directory");
/// assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
/// ```
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {}", quoted(.path), Explained::new(*.operation, .source))]
pub struct PathError {
    /// The operation that failed.
    pub operation: Operation,
    /// The path as specified by the user, or a path below it.
    pub path: PathBuf,
    /// The system error, including its kind and number.
    #[source]
    pub source: io::Error,
}

impl PathError {
    /// Creates an error from its parts.
    pub fn new(operation: Operation, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { operation, path: path.into(), source }
    }

    /// Returns a closure for `map_err`, which copies the path only if the call failed.
    pub fn on(operation: Operation, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::new(operation, path, source)
    }
}

/// The reason for a failed call, followed by advice if there is any.
///
/// For errors with more than one path, such as a failed rename, that use the same wording.
#[derive(Debug)]
pub struct Explained<'a> {
    operation: Operation,
    error: &'a io::Error,
}

impl<'a> Explained<'a> {
    /// Formats an error of `operation`.
    pub const fn new(operation: Operation, error: &'a io::Error) -> Self {
        Self { operation, error }
    }
}

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&reason(self.error))?;
        match advice(self.operation, self.error) {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// Returns the system's text for an error, without the number appended by the standard library.
///
/// ```
/// let error = std::io::Error::from_raw_os_error(13);
/// assert_eq!(ioloom_failure::reason(&error), "Permission denied");
/// ```
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) if error.raw_os_error().is_some() => text[..end].to_owned(),
        _ => text,
    }
}

/// Reports whether a call failed because the process or the system is out of file descriptors.
///
/// ```
/// use std::io::Error;
///
/// assert!(ioloom_failure::is_out_of_descriptors(&Error::from_raw_os_error(24)));
/// assert!(!ioloom_failure::is_out_of_descriptors(&Error::other("Too many open files")));
/// ```
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    fn text(operation: Operation, path: &str, errno: i32) -> String {
        PathError::new(operation, path, io::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn messages_follow_the_grammar() {
        assert_eq!(
            text(Operation::Stat, "/nope", 2),
            "cannot stat '/nope': No such file or directory"
        );
        assert_eq!(
            text(Operation::OpenDir, "a b", 24),
            "cannot open directory 'a b': Too many open files; raise the limit with 'ulimit -n'"
        );
    }

    #[test]
    fn the_source_is_kept() {
        let error = PathError::new(Operation::Read, "x", io::Error::from_raw_os_error(5));
        let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
        assert_eq!(source.raw_os_error(), Some(5));
    }

    #[test]
    fn errors_of_our_own_keep_their_text() {
        let own = io::Error::other("short (os error 7) read");
        assert_eq!(reason(&own), "short (os error 7) read");
        assert_eq!(reason(&io::Error::from_raw_os_error(28)), "No space left on device");
    }
}
