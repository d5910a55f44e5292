//! RESP, the Redis protocol: `redis-cli` and `redis-benchmark` can drive the exchange.
//!
//! `BUY ID N` and `SELL ID N` return the number of shares left, `SHOW` returns three numbers per
//! stock. `PING` and the commands that both programs send at startup are answered; all others are
//! errors. If the server requires a token, `AUTH TOKEN` or `AUTH NAME TOKEN` must come first; the
//! name is ignored. An invalid frame closes the connection because the start of the next frame
//! cannot be determined.

use super::reason;
use super::request::{Command, Form, LINE_MAX, Request, Step};
use super::syntax::{number, order, put, put_number};
use crate::answer::{Answer, Fault, Local};
use crate::stock::Side;
use crate::token::Token;

/// Maximum number of words in a frame.
const WORDS_MAX: usize = 16;

enum Word<'a> {
    Need,
    Bad,
    Got(&'a [u8]),
}

/// Parses a header line that starts at `at` and ends with CR LF, and advances `at` past it.
fn header<'a>(bytes: &'a [u8], at: &mut usize, mark: u8) -> Word<'a> {
    let rest = &bytes[*at..];
    if rest.first().is_some_and(|first| *first != mark) {
        return Word::Bad;
    }
    // A marker, at most ten digits, CR and LF.
    match rest.iter().take(13).position(|b| *b == b'\n') {
        Some(end) if end >= 2 && rest[end - 1] == b'\r' => {
            *at += end + 1;
            Word::Got(&rest[1..end - 1])
        }
        Some(_) => Word::Bad,
        None if rest.len() < 13 => Word::Need,
        None => Word::Bad,
    }
}

pub(super) fn step(bytes: &[u8], token: Option<&Token>) -> Step {
    let bad = |fault| Step::Last(Request::fault(fault, Form::Resp));
    let need = || if bytes.len() < LINE_MAX { Step::Need } else { bad(Fault::TooLong) };
    let mut at = 0;
    let count = match header(bytes, &mut at, b'*') {
        Word::Need => return need(),
        Word::Bad => return bad(Fault::Frame),
        Word::Got(digits) => number(digits),
    };
    let Some(count) = count.map(|count| count as usize).filter(|n| (1..=WORDS_MAX).contains(n))
    else {
        return bad(Fault::Frame);
    };
    let mut words: [&[u8]; WORDS_MAX] = [&[]; WORDS_MAX];
    for word in &mut words[..count] {
        let len = match header(bytes, &mut at, b'$') {
            Word::Need => return need(),
            Word::Bad => return bad(Fault::Frame),
            Word::Got(digits) => number(digits),
        };
        let Some(len) = len.map(|len| len as usize) else { return bad(Fault::Frame) };
        if at + 2 > LINE_MAX || len > LINE_MAX - at - 2 {
            return bad(Fault::TooLong);
        }
        let Some(text) = bytes.get(at..at + len + 2) else { return need() };
        if &text[len..] != b"\r\n" {
            return bad(Fault::Frame);
        }
        *word = &text[..len];
        at += len + 2;
    }
    match token {
        None => read(&words[..count], at),
        Some(token) => before_token(&words[..count], at, token),
    }
}

/// Handles a frame received before authentication. A wrong token closes the connection, so each
/// guess costs a new connection.
fn before_token(words: &[&[u8]], used: usize, token: &Token) -> Step {
    let fault = Request::fault(Fault::Token, Form::Resp);
    if words[0].eq_ignore_ascii_case(b"QUIT") {
        return read(words, used);
    }
    match words {
        [word, shown] | [word, _, shown] if word.eq_ignore_ascii_case(b"AUTH") => {
            if token.is(shown) {
                Step::Opened(used, Request::local(Local::Fine, Form::Resp))
            } else {
                Step::Last(fault)
            }
        }
        _ => Step::Got(used, fault),
    }
}

fn read(words: &[&[u8]], used: usize) -> Step {
    let is = |word: &str| words[0].eq_ignore_ascii_case(word.as_bytes());
    let got = |ask| Step::Got(used, Request::plain(ask, Form::Resp));
    let local = |local| got(Command::Local(local));
    let trade = |side| match words {
        [_, stock, count] => match order(side, stock, count) {
            Some(order) => got(Command::Trade(order)),
            None => local(Local::Fault(Fault::Number)),
        },
        _ => local(Local::Fault(Fault::Number)),
    };
    if is("BUY") {
        trade(Side::Buy)
    } else if is("SELL") {
        trade(Side::Sell)
    } else if is("SHOW") {
        got(Command::Show)
    } else if is("PING") {
        local(Local::Pong)
    } else if is("INFO") {
        got(Command::Health)
    } else if is("QUIT") {
        Step::Last(Request::local(Local::Bye, Form::Resp))
    } else if is("SELECT") || is("CLIENT") {
        local(Local::Fine)
    } else if is("COMMAND") || is("CONFIG") {
        local(Local::Nothing)
    } else {
        local(Local::Fault(Fault::Command))
    }
}

pub(super) fn encode(answer: &Answer, out: &mut Vec<u8>) {
    let number = |out: &mut Vec<u8>, mark: u8, value: u64| {
        out.push(mark);
        put_number(out, value);
        out.extend_from_slice(b"\r\n");
    };
    match answer {
        Answer::Done { left, .. } => number(out, b':', (*left).into()),
        Answer::Shown(shown) => {
            number(out, b'*', shown.lines.len() as u64);
            for line in &shown.lines {
                out.extend_from_slice(b"*3\r\n");
                for value in [line.id, line.left, line.price] {
                    number(out, b':', value.into());
                }
            }
        }
        Answer::Text(text) => {
            number(out, b'$', text.len() as u64);
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Answer::Refused(why) => put(out, format_args!("-REFUSED {}\r\n", reason::refusal(*why))),
        Answer::Stopped(why) => put(out, format_args!("-STOPPED {}\r\n", reason::stop(*why))),
        Answer::Local(Local::Fault(Fault::Token)) => {
            put(out, format_args!("-NOAUTH {}\r\n", reason::fault(Fault::Token)));
        }
        Answer::Local(Local::Fault(fault)) => {
            put(out, format_args!("-ERR {}\r\n", reason::fault(*fault)))
        }
        Answer::Local(Local::Pong) => out.extend_from_slice(b"+PONG\r\n"),
        Answer::Local(Local::Nothing) => out.extend_from_slice(b"*0\r\n"),
        Answer::Local(_) => out.extend_from_slice(b"+OK\r\n"),
    }
}
