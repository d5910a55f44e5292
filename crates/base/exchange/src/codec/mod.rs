//! One connection as bytes: parses incoming requests and encodes the answers.
//!
//! The first bytes select the protocol, and a connection keeps it: `*` or a line with a Redis
//! command is RESP, a request line that ends in `HTTP/1.1` is HTTP, `HELLO stock/` is the numbered
//! protocol, anything else is the line protocol of the original assignment. Its commands are in
//! lower case and its lines end with LF, which no other protocol accepts.
//!
//! A request is emitted only when its last byte has arrived, so a client that disconnects halfway
//! has not ordered anything. A session buffers either the beginning of one request or the requests
//! beyond the limit of one call; both are bounded. An idle session allocates no buffer.
//!
//! A server can require one of several tokens. RESP sends it with `AUTH` or `HELLO`, the numbered
//! protocol in its greeting, and HTTP in every request. The original protocol cannot carry a token,
//! so such servers reject it. Orders with a token that only permits reading are rejected here.

mod classic;
mod http;
mod numbered;
mod request;
mod resp;
mod syntax;

use crate::answer::{Answer, Fault};
use crate::token::{Access, Rights};
pub use numbered::is_client_name;
use request::Step;
pub use request::{ClassicForm, Command, END_MARK, Form, LINE_MAX, PADDED, Request, Settings};
pub use request::{Spelling, UnknownStock};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Dialect {
    Classic,
    Numbered(Option<Arc<str>>),
    Resp(resp::Peer),
    Http,
}

/// Parser state for one connection.
#[derive(Debug, Clone, Default)]
pub struct Session {
    dialect: Option<Dialect>,
    /// Tokens, one of which the client must present first.
    access: Option<Access>,
    /// Number of the connection.
    number: u64,
    /// A token was presented.
    has_presented: bool,
    /// What the presented token permits; everything if none is required.
    rights: Rights,
    pending: Vec<u8>,
    has_more: bool,
    is_over: bool,
}

impl Session {
    /// Creates the session of the connection with this number. If `access` is given, one of its
    /// tokens is required before other requests.
    pub fn new(access: Option<Access>, number: u64) -> Self {
        Self { access, number, ..Self::default() }
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
        self.access.is_some() && !self.has_presented
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
                    into(self.permitted(request));
                }
                Step::Opened(used, request, rights) => {
                    (at, taken) = (at + used, taken + 1);
                    self.has_presented = true;
                    self.rights = rights.unwrap_or(self.rights);
                    into(request);
                }
                Step::Last(request) => {
                    into(self.permitted(request));
                    self.is_over = true;
                    return bytes.len();
                }
            }
        }
        at
    }

    /// Replaces an order that the token does not permit by a fault.
    fn permitted(&self, request: Request) -> Request {
        match request.command {
            Command::Trade(_) if self.rights == Rights::Read => {
                Request::fault(Fault::Rights, request.form)
            }
            _ => request,
        }
    }

    fn step(&mut self, bytes: &[u8]) -> Step {
        if self.dialect.is_none() {
            self.dialect = detect(bytes);
        }
        let access = self.access.as_ref();
        match &mut self.dialect {
            None => Step::Need,
            Some(Dialect::Classic) => match access {
                None => classic::step(bytes),
                Some(_) => Step::Last(Request::fault(Fault::Token, Form::Classic(None))),
            },
            Some(Dialect::Numbered(client)) => {
                numbered::step(bytes, client, (access, self.has_presented))
            }
            Some(Dialect::Resp(peer)) => {
                resp::step(bytes, peer, (access, self.has_presented), self.number)
            }
            Some(Dialect::Http) => http::step(bytes, access),
        }
    }
}

/// Returns the protocol of a connection that starts with these bytes, or `None` if more are needed.
fn detect(bytes: &[u8]) -> Option<Dialect> {
    let bytes = &bytes[..bytes.len().min(LINE_MAX)];
    let mut rest = bytes;
    while let Some(more) = rest.strip_prefix(b"\r\n") {
        rest = more;
    }
    let resp = || Dialect::Resp(resp::Peer::default());
    if rest.first() == Some(&b'*') {
        return Some(resp());
    }
    if rest.len() < bytes.len() || rest == b"\r" {
        // RESP clients can send empty lines before a frame.
        let is_open = matches!(rest, [] | [b'\r']) && bytes.len() < LINE_MAX;
        return (!is_open).then_some(Dialect::Classic);
    }
    if http::METHODS.iter().any(|word| bytes.starts_with(word)) {
        return Some(Dialect::Http);
    }
    if bytes.starts_with(numbered::GREETING) {
        return Some(Dialect::Numbered(None));
    }
    let is_upper = bytes.first().is_some_and(u8::is_ascii_uppercase);
    if !is_upper && !resp::may_become_inline(bytes) {
        return Some(Dialect::Classic);
    }
    match bytes.iter().position(|b| matches!(b, b'\n' | 0)) {
        None if bytes.len() < LINE_MAX => None,
        Some(end) if bytes[end] == 0 => Some(Dialect::Classic),
        Some(end) if http::is_request_line(&bytes[..end]) => Some(Dialect::Http),
        Some(end) if resp::is_inline(&bytes[..end]) => Some(resp()),
        _ => Some(Dialect::Classic),
    }
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
