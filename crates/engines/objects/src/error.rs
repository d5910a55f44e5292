//! Failed operations on an object store: operation, URL, reason and advice.

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

    fn advice(&self) -> Option<&'static str> {
        Some(match self.kind {
            Kind::Credentials => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or \
                 AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            Kind::Unreachable => "check AWS_ENDPOINT_URL and the network",
            Kind::NoBucket => "check the name of the bucket, AWS_ENDPOINT_URL and AWS_REGION",
            Kind::Denied if self.action == Action::List => {
                "check the credentials, and that they permit s3:ListBucket"
            }
            Kind::Denied if self.action == Action::Write => {
                "check the credentials, and that they permit s3:PutObject"
            }
            Kind::Denied if self.action == Action::Abort => {
                "check the credentials, and that they permit s3:AbortMultipartUpload"
            }
            Kind::Denied => "check the credentials, and that they permit s3:GetObject",
            Kind::Archived => "restore the object from the archive first",
            Kind::Clock => "set the clock of this machine",
            Kind::Region => "set AWS_REGION to the region of the bucket",
            Kind::Changed => "run again when the object is no longer replaced",
            Kind::Memory => "raise the memory budget",
            Kind::Descriptors => "raise the limit on open files with 'ulimit -n'",
            Kind::NoStore => "check that AWS_ENDPOINT_URL is that of an S3 server",
            Kind::Busy | Kind::Server if self.action == Action::List => {
                "try again later, or check AWS_ENDPOINT_URL"
            }
            Kind::Response | Kind::Refused if self.action == Action::List => {
                "check that AWS_ENDPOINT_URL is that of an S3 server"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = ioloom_failure::quoted(Path::new(&self.url));
        write!(f, "cannot {} {url}: {}", self.action, self.reason)?;
        if self.attempts > 1 {
            write!(f, " (after {} attempts)", self.attempts)?;
        }
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl std::error::Error for ObjectError {}
