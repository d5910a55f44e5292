//! One connection as bytes: parses incoming requests and encodes the answers.
//!
//! The first bytes select the protocol: `*` is RESP, `GET ` or another HTTP method is HTTP,
//! `HELLO stock/` is the numbered protocol, anything else is the line protocol of the original
//! assignment. A connection keeps its protocol.
//!
//! A request is emitted only when its last byte has arrived, so a client that disconnects halfway
//! has not ordered anything. A session buffers either the beginning of one request or the requests
//! beyond the limit of one call; both are bounded. An idle session allocates no buffer.
//!
//! A server can require a token. RESP sends it with `AUTH`, the numbered protocol in its greeting,
//! and HTTP in every request. The original protocol cannot carry a token, so such servers reject
//! it.

mod classic;
mod http;
mod numbered;
mod reason;
mod request;
mod resp;
mod syntax;

use crate::answer::{Answer, Fault};
use crate::token::Token;
use request::Step;
pub use request::{ClassicForm, Command, Form, LINE_MAX, PADDED, Request, Settings};
pub use request::{Spelling, UnknownStock};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Dialect {
    Classic,
    Numbered(Option<Arc<str>>),
    Resp,
    Http,
}

/// Parser state for one connection.
#[derive(Debug, Clone, Default)]
pub struct Session {
    dialect: Option<Dialect>,
    /// Token that the client must present first.
    token: Option<Token>,
    /// The token was presented, in a protocol that requires it in each request.
    has_presented: bool,
    pending: Vec<u8>,
    has_more: bool,
    is_over: bool,
}

impl Session {
    /// Creates a session that requires `token`, if any, before other requests.
    pub fn with_token(token: Option<Token>) -> Self {
        Self { token, ..Self::default() }
    }

    /// Parses `bytes` and emits at most `requests_max` requests.
    pub fn feed(&mut self, bytes: &[u8], requests_max: usize, into: &mut impl FnMut(Request)) {
        if self.is_over {
            return;
        }
        if self.pending.is_empty() {
            let used = self.take(bytes, requests_max, into);
            if !self.is_over {
                self.pending.extend_from_slice(&bytes[used..]);
            }
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let used = self.take(&pending, requests_max, into);
        if !self.is_over && used < pending.len() {
            pending.drain(..used);
            self.pending = pending;
        }
    }

    /// Reports whether the latest [`feed`](Self::feed) reached its limit and left requests in the
    /// buffer. The next call emits them, even without new bytes.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Reports whether the connection closes after the answers to the emitted requests.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the number of buffered bytes: an incomplete request, or requests beyond the limit.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Reports whether the client must still present the token for the first time.
    pub fn awaits_token(&self) -> bool {
        self.token.is_some() && !self.has_presented
    }

    /// Reports whether the protocol has been detected.
    pub fn has_spoken(&self) -> bool {
        self.dialect.is_some()
    }

    fn take(&mut self, bytes: &[u8], requests_max: usize, into: &mut impl FnMut(Request)) -> usize {
        let (mut at, mut taken) = (0, 0);
        self.has_more = false;
        while at < bytes.len() {
            if taken == requests_max {
                self.has_more = true;
                return at;
            }
            match self.step(&bytes[at..]) {
                Step::Need => return at,
                Step::Skip(used) => at += used,
                Step::Got(used, request) => {
                    (at, taken) = (at + used, taken + 1);
                    // An HTTP request without the token would have ended the connection.
                    self.has_presented |= self.dialect == Some(Dialect::Http);
                    into(request);
                }
                Step::Opened(used, request) => {
                    (at, taken) = (at + used, taken + 1);
                    self.token = None;
                    into(request);
                }
                Step::Last(request) => {
                    into(request);
                    self.is_over = true;
                    return bytes.len();
                }
            }
        }
        at
    }

    fn step(&mut self, bytes: &[u8]) -> Step {
        if self.dialect.is_none() {
            self.dialect = detect(bytes);
        }
        let token = self.token.as_ref();
        match &mut self.dialect {
            None => Step::Need,
            Some(Dialect::Classic) => match token {
                None => classic::step(bytes),
                Some(_) => Step::Last(Request::fault(Fault::Token, Form::Classic(None))),
            },
            Some(Dialect::Numbered(client)) => numbered::step(bytes, client, token),
            Some(Dialect::Resp) => resp::step(bytes, token),
            Some(Dialect::Http) => http::step(bytes, token),
        }
    }
}

fn detect(bytes: &[u8]) -> Option<Dialect> {
    if bytes.first() == Some(&b'*') {
        return Some(Dialect::Resp);
    }
    let begins = |word: &[u8]| bytes.starts_with(word);
    if http::METHODS.iter().any(|word| begins(word)) {
        return Some(Dialect::Http);
    }
    if begins(numbered::GREETING) {
        return Some(Dialect::Numbered(None));
    }
    let may_become = |word: &[u8]| word.starts_with(bytes);
    let open = may_become(numbered::GREETING) || http::METHODS.iter().any(|word| may_become(word));
    (!open).then_some(Dialect::Classic)
}

/// Appends an encoded answer to `out`.
pub fn encode(form: Form, settings: &Settings, answer: &Answer, out: &mut Vec<u8>) {
    match form {
        Form::Classic(side) => classic::encode(side, settings, answer, out),
        Form::Numbered(id) => numbered::encode(id, answer, out),
        Form::Resp => resp::encode(answer, out),
        Form::Http { keep, page } => http::encode(keep, page, answer, out),
    }
}
