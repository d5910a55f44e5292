//! Operations on an object store, and what goes wrong.

use std::fmt;

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
