//! The client of a connection.

use std::sync::Arc;

/// What is known about the client of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Peer {
    /// Name set by the client.
    pub(super) name: Option<Arc<str>>,
    /// Whether the client selected RESP3.
    pub(super) is_three: bool,
}
