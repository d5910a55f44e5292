//! The numbered protocol, `stock/2`: a line protocol in which clients number their requests.
//!
//! ```text
//! HELLO stock/2 client=alice     →  HELLO stock/2 window=128
//! 1 BUY 3 10                     →  1 OK 90 17          shares left, number in the log
//! 2 BUY 3 1000 deadline=50       →  2 ERR not-enough
//! 3 SHOW                         →  3 STOCKS 2 17       count, latest number in the log
//!                                   1 100 5000
//!                                   3 90 700
//! 4 PING                         →  4 PONG
//! 5 EXIT                         →  5 BYE
//! ```
//!
//! Requests can be pipelined; answers arrive in the same order. A client that has identified itself
//! can repeat an order with the same number on any connection: the order executes once and every
//! repetition gets the same answer. Without a client name, numbers are only echoed in answers. If
//! the server requires a token, the greeting includes it: `HELLO stock/2 client=alice token=TOKEN`.
//! Later greetings may omit it; the token of a later greeting replaces the earlier one.

use super::request::{Command, Form, LINE_MAX, Request, Step};
use super::syntax::{line, number, order, put, put_line, put_number, words};
use crate::answer::{Answer, Fault, Local};
use crate::clients::WINDOW;
use crate::stock::{RequestId, Side};
use crate::token::Access;
use std::sync::Arc;

pub(super) const GREETING: &[u8] = b"HELLO stock/";
/// Maximum client name length in bytes.
const NAME_MAX: usize = 64;

/// Parses a request. `access` contains the tokens, and whether the client has presented one.
pub(super) fn step(
    bytes: &[u8],
    client: &mut Option<Arc<str>>,
    access: (Option<&Access>, bool),
) -> Step {
    let Some((line, used)) = line(bytes) else {
        if bytes.len() < LINE_MAX {
            return Step::Need;
        }
        return Step::Last(Request::fault(Fault::TooLong, Form::Numbered(None)));
    };
    if line.starts_with(GREETING) {
        return greet(line, used, client, access);
    }
    let mut words = words(line);
    let Some(id) = words.next().and_then(number) else {
        return Step::Got(used, Request::fault(Fault::Number, Form::Numbered(None)));
    };
    let form = Form::Numbered(Some(id));
    let (command, rest) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>());
    let side = match command {
        b"BUY" => Side::Buy,
        b"SELL" => Side::Sell,
        b"SHOW" if rest.is_empty() => return Step::Got(used, Request::plain(Command::Show, form)),
        b"PING" if rest.is_empty() => return Step::Got(used, Request::local(Local::Pong, form)),
        b"EXIT" if rest.is_empty() => return Step::Last(Request::local(Local::Bye, form)),
        _ => return Step::Got(used, Request::fault(Fault::Command, form)),
    };
    let request_id =
        client.as_ref().map(|name| RequestId { client: Arc::clone(name), request: id });
    let read = |deadline: &[u8]| {
        u32::try_from(number(deadline.strip_prefix(b"deadline=")?)?).ok().map(Some)
    };
    let order_and_deadline = match rest.as_slice() {
        [stock, count] => order(side, stock, count).zip(Some(None)),
        [stock, count, deadline] => order(side, stock, count).zip(read(deadline)),
        _ => None,
    };
    let Some((order, deadline_ms)) = order_and_deadline else {
        return Step::Got(used, Request::fault(Fault::Number, form));
    };
    Step::Got(used, Request { command: Command::Trade(order), request_id, deadline_ms, form })
}

/// Parses a greeting. Later greetings may omit the token, which preserves the rights.
fn greet(
    line: &[u8],
    used: usize,
    client: &mut Option<Arc<str>>,
    (access, has_presented): (Option<&Access>, bool),
) -> Step {
    let form = Form::Numbered(None);
    let mut words = words(&line[GREETING.len()..]);
    if words.next() != Some(b"2") {
        return Step::Last(Request::fault(Fault::Version, form));
    }
    let (mut named, mut rights, mut tokens) = (None, None, 0);
    for word in words {
        if let Some(word) = word.strip_prefix(b"token=") {
            rights = access.and_then(|access| access.rights(word));
            tokens += 1;
            continue;
        }
        named = word.strip_prefix(b"client=").filter(|_| named.is_none()).and_then(name);
        if named.is_none() {
            return Step::Last(Request::fault(Fault::Command, form));
        }
    }
    // With several tokens, a proxy could have checked another one than this server.
    let is_authorized = match tokens {
        0 => has_presented,
        1 => rights.is_some(),
        _ => false,
    };
    if access.is_some() && !is_authorized {
        return Step::Last(Request::fault(Fault::Token, form));
    }
    *client = named;
    Step::Opened(used, Request::local(Local::Hello, form), rights)
}

/// Returns true for a client name: at most 64 letters, digits and `-_.:@/`.
pub fn is_client_name(word: &[u8]) -> bool {
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:@/".contains(b);
    (1..=NAME_MAX).contains(&word.len()) && word.iter().all(fits)
}

fn name(word: &[u8]) -> Option<Arc<str>> {
    if is_client_name(word) { std::str::from_utf8(word).ok().map(Arc::from) } else { None }
}

pub(super) fn encode(id: Option<u64>, answer: &Answer, out: &mut Vec<u8>) {
    if let Some(id) = id {
        put_number(out, id);
        out.push(b' ');
    }
    match answer {
        Answer::Done { left, seq } => {
            out.extend_from_slice(b"OK ");
            put_number(out, (*left).into());
            out.push(b' ');
            put_number(out, *seq);
            out.push(b'\n');
        }
        Answer::Shown(shown) => {
            put(out, format_args!("STOCKS {} {}\n", shown.lines.len(), shown.seq));
            shown.lines.iter().for_each(|line| put_line(out, line));
        }
        Answer::Text(text) | Answer::NotReady(text) => {
            put(out, format_args!("TEXT {}\n", text.lines().count()));
            text.lines().for_each(|line| put(out, format_args!("{line}\n")));
        }
        Answer::Local(Local::Hello) => {
            put(out, format_args!("HELLO stock/2 window={WINDOW}\n"));
        }
        Answer::Local(Local::Bye) => out.extend_from_slice(b"BYE\n"),
        Answer::Local(Local::Fault(fault)) => put(out, format_args!("ERR {}\n", fault.code())),
        Answer::Local(_) => out.extend_from_slice(b"PONG\n"),
        Answer::Refused(why) => put(out, format_args!("ERR {}\n", why.code())),
        Answer::Stopped(why) => put(out, format_args!("ERR {}\n", why.code())),
    }
}
