//! One connection as bytes: requests out of what arrives, answers into what is sent.
//!
//! The protocol is told from the first bytes. `*` begins RESP, `GET ` (or another method of HTTP)
//! a question of HTTP, `HELLO stock/` the numbered protocol, and everything else is a line of the
//! original assignment. A connection keeps its protocol.
//!
//! A request leaves only when its last byte is there, so a client that goes away in the middle has
//! not ordered anything. What is kept of a connection is the beginning of one request, or what came
//! beyond the most requests that are taken at once; both are bounded. An idle connection holds no
//! memory for bytes at all.
//!
//! A server may ask for a token. RESP shows it by `AUTH`, the numbered protocol in its greeting, HTTP
//! in each request; the original protocol has no place for it and is refused then.

mod classic;
mod http;
mod numbered;
mod resp;

use crate::answer::{Answer, Fault, Local};
use crate::stock::{Order, RequestId, Side};
use crate::token::Token;
use std::io::Write;
use std::sync::Arc;

/// The longest request in bytes, with its end.
pub const LINE_MAX: usize = 8192;
/// The length in bytes of every answer of the original protocol.
pub const PADDED: usize = 8192;

/// How the original protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClassicForm {
    /// Every answer is filled with NUL to [`PADDED`] bytes, as the original clients want it.
    #[default]
    Padded,
    /// Every answer is its lines.
    Line,
}

/// The two spellings of "not enough" that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spelling {
    /// `Not enough left stocks`, as the assignment has it.
    #[default]
    Official,
    /// `Not enough left stock`, as about half of the servers have it.
    Short,
}

/// What the original protocol says of a stock that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownStock {
    /// That it does not exist.
    #[default]
    Say,
    /// What the first servers said: a sale is a success, and for a purchase not enough is left.
    AsFirst,
}

/// How a server speaks the original protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// The length of answers.
    pub classic: ClassicForm,
    /// The spelling of "not enough".
    pub spelling: Spelling,
    /// What is said of stocks that do not exist.
    pub unknown: UnknownStock,
}

/// The form in which an answer is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The original protocol; the order's side is needed for the words.
    Classic(Option<Side>),
    /// The numbered protocol, with the number of the request where it had one.
    Numbered(Option<u64>),
    /// RESP.
    Resp,
    /// HTTP.
    Http {
        /// Whether the connection stays open.
        keep: bool,
        /// Whether the page itself is asked for, and not only what is said of it.
        page: bool,
    },
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// To carry out an order.
    Trade(Order),
    /// All stocks.
    Show,
    /// The figures of the server.
    Metrics,
    /// Whether and how the server works.
    Health,
    /// What needs nobody but the codec.
    Local(Local),
}

/// A request whose last byte has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub command: Command,
    /// Who asks, where a repetition must count once.
    pub request_id: Option<RequestId>,
    /// Milliseconds after which the order must not be carried out any more.
    pub deadline_ms: Option<u32>,
    /// How the answer is spelled.
    pub form: Form,
}

impl Request {
    fn plain(command: Command, form: Form) -> Self {
        Self { command, request_id: None, deadline_ms: None, form }
    }

    fn local(local: Local, form: Form) -> Self {
        Self::plain(Command::Local(local), form)
    }

    fn fault(fault: Fault, form: Form) -> Self {
        Self::local(Local::Fault(fault), form)
    }
}

/// What stands at the beginning of the bytes.
enum Step {
    /// The beginning of a request.
    Need,
    /// So many bytes without a meaning.
    Skip(usize),
    /// So many bytes that are a request.
    Got(usize, Request),
    /// The same, and it showed the token: nothing is asked for any more.
    Opened(usize, Request),
    /// A request after which nothing is read any more.
    Last(Request),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Dialect {
    Classic,
    Numbered(Option<Arc<str>>),
    Resp,
    Http,
}

/// What arrives on one connection.
#[derive(Debug, Clone, Default)]
pub struct Session {
    dialect: Option<Dialect>,
    /// What the client has to show before anything else.
    token: Option<Token>,
    /// It has shown it, in a protocol in which each request has to.
    has_shown: bool,
    pending: Vec<u8>,
    has_more: bool,
    is_over: bool,
}

impl Session {
    /// A connection whose client has to show the token first, if there is one.
    pub fn with_token(token: Option<Token>) -> Self {
        Self { token, ..Self::default() }
    }

    /// Takes bytes that arrived and hands out at most `requests_max` requests.
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

    /// Whether requests may be left behind by the limit of the latest call of [`feed`](Self::feed):
    /// the next call, with or without bytes, hands them out.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether the connection ends after the answers to what was handed out.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Bytes that are kept: the beginning of a request, or requests beyond the limit.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Whether the client has still to show the token for the first time.
    pub fn awaits_token(&self) -> bool {
        self.token.is_some() && !self.has_shown
    }

    /// Whether a protocol is known: whether the client has said anything that has a meaning.
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
                    // A request of HTTP without the token would be the last one.
                    self.has_shown |= self.dialect == Some(Dialect::Http);
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

/// Spells an answer.
pub fn encode(form: Form, settings: &Settings, answer: &Answer, out: &mut Vec<u8>) {
    match form {
        Form::Classic(side) => classic::encode(side, settings, answer, out),
        Form::Numbered(id) => numbered::encode(id, answer, out),
        Form::Resp => resp::encode(answer, out),
        Form::Http { keep, page } => http::encode(keep, page, answer, out),
    }
}

/// The first line, without its end, and the bytes that it takes; `None` if its end is missing.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().take(LINE_MAX).position(|b| *b == b'\n')?;
    Some((without_return(&bytes[..end]), end + 1))
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Words between spaces.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A number of nothing but digits.
fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |value: u64, b: &u8| value.checked_mul(10)?.checked_add(u64::from(b - b'0'));
    word.iter().try_fold(0, digit)
}

/// An order of the words for stock and count.
fn order(side: Side, stock: &[u8], count: &[u8]) -> Option<Order> {
    let stock = u32::try_from(number(stock)?).ok()?;
    Order::new(side, stock, u32::try_from(number(count)?).ok()?)
}

/// Appends formatted text.
fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing into memory does not fail.
    let _ = out.write_fmt(text);
}

/// Appends a number in digits; this is on the path of every answer, where formatting would show.
fn put_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends `NUMBER LEFT PRICE` and a newline.
fn put_line(out: &mut Vec<u8>, line: &crate::stock::Line) {
    put_number(out, line.id.into());
    out.push(b' ');
    put_number(out, line.left.into());
    out.push(b' ');
    put_number(out, line.price.into());
    out.push(b'\n');
}
