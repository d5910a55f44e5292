//! The bytes of one connection, in plain text or over TLS.
//!
//! Every model passes in the bytes that it has read and takes out the bytes to write; it does not
//! know whether they are encrypted. A handshake behaves like a request that takes several turns: it
//! starts when the connection is accepted, is subject to the request timeout, and its messages are
//! sent together with answers, of which there are none yet. So an incomplete handshake delays other
//! clients no more than an incomplete line does. If a token is required, presenting it is part of
//! the handshake: a client that does not present it in time is disconnected, so it cannot occupy a
//! connection slot.
//!
//! Bytes that cannot be decrypted close the connection like a final request: earlier answers are
//! sent first, then the TLS alert.

use ioloom_exchange::{Request, Session};
use ioloom_tls::{SessionError, TlsSession};

/// What a client has started but not completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing.
    Idle,
    /// A TLS handshake, or presenting the required token.
    Handshake,
    /// A request.
    Request,
}

impl Stage {
    /// Returns true if this stage started now, given the previous stage `had` and whether requests
    /// were completed in between. A handshake starts only once.
    pub(crate) fn begins_after(self, had: Self, has_ended: bool) -> bool {
        self != had || (self == Self::Request && has_ended)
    }
}

pub(crate) struct Transport {
    session: Session,
    tls: Option<TlsSession>,
    /// Received bytes could not be decrypted.
    is_broken: bool,
}

impl Transport {
    pub(crate) fn new(session: Session, tls: Option<TlsSession>) -> Self {
        Self { session, tls, is_broken: false }
    }

    /// Takes bytes from the network and emits at most `most` requests. On error, the connection
    /// must be closed after the answers to all requests emitted so far, including those of this
    /// call.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        most: usize,
        into: &mut impl FnMut(Request),
    ) -> Result<(), SessionError> {
        let Some(tls) = &mut self.tls else {
            self.session.feed(bytes, most, into);
            return Ok(());
        };
        if self.is_broken {
            return Ok(());
        }
        let mut plain = Vec::new();
        let opened = tls.open(bytes, &mut plain);
        self.session.feed(&plain, most, into);
        self.is_broken = opened.is_err();
        opened
    }

    /// Encrypts `out` starting at index `from`, preceded by pending handshake messages.
    pub(crate) fn seal(&mut self, out: &mut Vec<u8>, from: usize) {
        let Some(tls) = &mut self.tls else { return };
        let plain = out.split_off(from);
        tls.seal(&plain, out);
    }

    /// Appends the TLS end-of-stream alert, once; returns true if there is one.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) -> bool {
        self.tls.as_mut().is_some_and(|tls| tls.end(out))
    }

    /// Returns true if the client has announced the end of its stream.
    pub(crate) fn has_ended(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsSession::has_ended)
    }

    /// Returns true if the latest [`feed`](Self::feed) reached its limit and left requests in the
    /// buffer.
    pub(crate) fn has_more(&self) -> bool {
        self.session.has_more() && !self.is_broken
    }

    /// Returns true if the connection must be closed after the answers to the emitted requests.
    pub(crate) fn is_over(&self) -> bool {
        self.session.is_over() || self.is_broken
    }

    pub(crate) fn stage(&self) -> Stage {
        let is_handshaking = self.tls.as_ref().is_some_and(TlsSession::is_handshaking);
        if is_handshaking || self.session.awaits_token() {
            Stage::Handshake
        } else if self.session.pending_bytes() > 0 {
            Stage::Request
        } else {
            Stage::Idle
        }
    }
}
