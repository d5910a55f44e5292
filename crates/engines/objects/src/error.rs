//! Failed operations on an object store: operation, URL, reason and advice.

use crate::advice;
use crate::location::Cloud;
use std::fmt;
use std::path::Path;

/// The operation that failed. Displays as the verb of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Opening the store that a URL names.
    Open,
    /// Listing a prefix.
    List,
    /// Reading an object.
    Read,
    /// Writing an object.
    Write,
    /// Comparing an object with the file it was copied from or to.
    Verify,
    /// Removing the parts of an upload.
    Abort,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Verify => "verify",
            Self::Abort => "abort the upload of",
        })
    }
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The URL is invalid.
    Url,
    /// The configuration (environment or profile) is invalid.
    Configuration,
    /// No credentials were found.
    Credentials,
    /// The service for credentials failed.
    Renewal,
    /// The server cannot be reached.
    Unreachable,
    /// The server is not one of an object store.
    NoStore,
    /// The bucket does not exist.
    NoBucket,
    /// The object does not exist.
    Missing,
    /// The server denied the request.
    Denied,
    /// The object is in an archive.
    Archived,
    /// The clock of this machine differs too much from that of the server.
    Clock,
    /// The server refused to write because of the present state of the object.
    Conflict,
    /// The bucket is in another region.
    Region,
    /// The server refused the request because there were too many.
    Busy,
    /// The server refused the request for another reason, such as an invalid argument.
    Refused,
    /// The server failed.
    Server,
    /// The connection ended or stalled during the response.
    Interrupted,
    /// The object was replaced while it was read.
    Changed,
    /// The response does not match the request.
    Response,
    /// The limit on open files is too low.
    Descriptors,
    /// The object does not fit in the memory budget.
    Memory,
    /// The client cannot use the object, for example because of its key.
    Unsupported,
}

/// A failed operation on an object or a prefix.
#[derive(Debug, Clone)]
pub struct ObjectError {
    /// The operation.
    pub action: Action,
    /// The URL as given, or one below it.
    pub url: String,
    /// What went wrong.
    pub kind: Kind,
    /// The reason, as the server or the system reports it.
    pub reason: String,
    /// Attempts of which the last one failed for this reason.
    pub attempts: u32,
}

impl ObjectError {
    pub(crate) fn new(
        action: Action,
        url: impl Into<String>,
        kind: Kind,
        reason: impl Into<String>,
    ) -> Self {
        Self { action, url: url.into(), kind, reason: reason.into(), attempts: 1 }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = ioloom_failure::quoted(Path::new(&self.url));
        write!(f, "cannot {} {url}: {}", self.action, self.reason)?;
        if self.attempts > 1 {
            write!(f, " (after {} attempts)", self.attempts)?;
        }
        let advice = advice::of(Cloud::of_url(&self.url), self.action, self.kind);
        advice.map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl std::error::Error for ObjectError {}
