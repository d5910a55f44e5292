//! Failed operations on an object store: operation, URL, reason and advice.

use crate::advice;
use crate::cloud::Cloud;
use std::fmt;
use std::path::Path;

pub use crate::kind::{Action, Kind};

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
