//! The same types for builds without TLS. None of them can be constructed.

use crate::error::{SessionError, TlsError};
use std::path::Path;

/// A type without values.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Never {}

/// See the version with the feature `rustls`.
#[derive(Debug, Clone)]
pub struct Identity(Never);

/// See the version with the feature `rustls`.
#[derive(Debug, Clone, PartialEq)]
pub struct Trust(Never);

/// See the version with the feature `rustls`.
#[derive(Debug)]
pub struct TlsSession(Never);

#[allow(missing_docs, clippy::missing_errors_doc, reason = "documented at the functional types")]
impl Identity {
    pub fn read(_: &Path, _: &Path) -> Result<Self, TlsError> {
        Err(TlsError::Without)
    }

    pub fn outdated(&self) -> Option<&'static str> {
        match self.0 {}
    }

    pub fn session(&self) -> TlsSession {
        match self.0 {}
    }
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "documented at the functional types")]
impl Trust {
    pub fn new(_: Option<&Path>, _: &str) -> Result<Self, TlsError> {
        Err(TlsError::Without)
    }

    pub fn of_any_name(_: Option<&Path>, _: &str) -> Result<Self, TlsError> {
        Err(TlsError::Without)
    }

    pub fn unverified(_: &str) -> Result<Self, TlsError> {
        Err(TlsError::Without)
    }

    pub fn session(&self) -> Result<TlsSession, SessionError> {
        match self.0 {}
    }
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "documented at the functional types")]
impl TlsSession {
    pub fn open(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), SessionError> {
        match self.0 {}
    }

    pub fn seal(&mut self, _: &[u8], _: &mut Vec<u8>) {
        match self.0 {}
    }

    pub fn end(&mut self, _: &mut Vec<u8>) -> bool {
        match self.0 {}
    }

    pub fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub fn has_ended(&self) -> bool {
        match self.0 {}
    }
}
