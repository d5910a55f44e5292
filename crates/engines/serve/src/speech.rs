//! What arrives on one connection and what leaves it, in the clear or under the shield of TLS.
//!
//! Every model hands over the bytes that it read and takes back those that it shall write; whether
//! they are sealed in between is nothing that it sees. A handshake is a request that takes several
//! turns: it counts as begun when the connection is there, may take as long as a request may, and
//! what it has to say leaves with the answers, of which there are none yet. So half a handshake keeps
//! nobody waiting whom half a line would not keep waiting. A token that is asked for counts as part of
//! it: who does not show it in that time goes, and cannot keep a place that others could have.
//!
//! Bytes that cannot be opened end the connection like a last request: what was answered before them
//! leaves, then the word of TLS that tells why.

use crate::service::Service;
use ioloom_exchange::{Request, Session};
use ioloom_tls::TlsSession;

/// What a client has begun and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing.
    Still,
    /// To agree on keys, or to show the token that it is asked for.
    Handshake,
    /// A request.
    Request,
}

impl Stage {
    /// Whether this began now, where `had` was before and requests may have ended between. A handshake
    /// is one however much is said in it.
    pub(crate) fn begins_after(self, had: Self, has_ended: bool) -> bool {
        self != had || (self == Self::Request && has_ended)
    }
}

pub(crate) struct Speech {
    session: Session,
    shield: Option<TlsSession>,
    /// What arrived could not be opened.
    is_broken: bool,
}

impl Speech {
    pub(crate) fn new(session: Session, shield: Option<TlsSession>) -> Self {
        Self { session, shield, is_broken: false }
    }

    /// Takes bytes that arrived and hands out at most so many requests.
    pub(crate) fn feed(
        &mut self,
        service: &Service,
        bytes: &[u8],
        most: usize,
        into: &mut impl FnMut(Request),
    ) {
        let Some(shield) = &mut self.shield else { return self.session.feed(bytes, most, into) };
        if self.is_broken {
            return;
        }
        let mut plain = Vec::new();
        let opened = shield.open(bytes, &mut plain);
        self.session.feed(&plain, most, into);
        if let Err(reason) = opened {
            self.is_broken = true;
            service.not_opened(&reason);
        }
    }

    /// Seals what stands in `out` from a place on, with what a handshake has to say before it.
    pub(crate) fn seal(&mut self, out: &mut Vec<u8>, from: usize) {
        let Some(shield) = &mut self.shield else { return };
        let plain = out.split_off(from);
        shield.seal(&plain, out);
    }

    /// Appends the word that nothing more comes, once; true if there is one.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) -> bool {
        self.shield.as_mut().is_some_and(|shield| shield.end(out))
    }

    /// Whether the client has said that it sends no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.shield.as_ref().is_some_and(TlsSession::has_ended)
    }

    /// Whether requests were left behind by the limit of the latest call of [`feed`](Self::feed).
    pub(crate) fn has_more(&self) -> bool {
        self.session.has_more() && !self.is_broken
    }

    /// Whether the connection ends after the answers to what was handed out.
    pub(crate) fn is_over(&self) -> bool {
        self.session.is_over() || self.is_broken
    }

    pub(crate) fn stage(&self) -> Stage {
        let is_handshaking = self.shield.as_ref().is_some_and(TlsSession::is_handshaking);
        if is_handshaking || self.session.awaits_token() {
            Stage::Handshake
        } else if self.session.pending_bytes() > 0 {
            Stage::Request
        } else {
            Stage::Still
        }
    }
}
