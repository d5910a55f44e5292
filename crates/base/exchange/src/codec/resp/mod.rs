//! RESP, the Redis protocol: Redis clients can use the exchange without special settings.
//!
//! `BUY ID N` and `SELL ID N` return the number of shares left, `SHOW` returns three numbers per
//! stock. The commands that clients send when they connect are answered by [`startup`]; all others
//! are errors. A request is a frame (`*3 …`) or an inline line (`PING`), whose words are separated
//! by whitespace without quoting; empty lines are skipped.
//!
//! If the server requires a token, `AUTH TOKEN`, `AUTH NAME TOKEN` or `HELLO 3 AUTH NAME TOKEN` must
//! come first; the name is ignored. An invalid frame closes the connection because the start of the
//! next frame cannot be determined.

mod peer;
mod reply;
mod startup;

use super::request::{Command, Form, LINE_MAX, Request, Step};
use super::syntax::{line, number, order, put, put_number, words};
use crate::answer::{Answer, Fault, Local};
use crate::stock::Side;
use crate::token::Access;
pub(super) use peer::Peer;
use startup::Startup;

/// Maximum number of words in a request that is executed; longer ones are unknown commands.
const WORDS_MAX: usize = 16;
/// Length of the shortest word of a frame, with its header.
const WORD_MIN: usize = b"$0\r\n\r\n".len();
/// Commands that identify RESP if a connection starts with one of them as a line. In lower case,
/// only if the line ends with CR LF: clients of the original protocol end lines with LF.
const WORDS: [&str; 9] =
    ["PING", "HELLO", "AUTH", "ECHO", "INFO", "QUIT", "CLIENT", "COMMAND", "CONFIG"];
/// The same, but only in upper case and with CR LF: the original protocol has similar commands.
const UPPER_WORDS: [&str; 4] = ["BUY", "SELL", "SHOW", "SELECT"];

/// Reports whether the first line of a connection is an inline RESP command.
pub(super) fn is_inline(line: &[u8]) -> bool {
    let word = words(line).next().unwrap_or_default();
    let by_return = line.ends_with(b"\r");
    let is_upper = word.iter().all(u8::is_ascii_uppercase);
    let known = WORDS.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
    let upper = || UPPER_WORDS.iter().any(|known| word == known.as_bytes());
    (known && (by_return || is_upper)) || (by_return && upper())
}

/// Reports whether an incomplete first line in lower case can become an inline command.
pub(super) fn may_become_inline(bytes: &[u8]) -> bool {
    WORDS.iter().any(|word| {
        let len = word.len().min(bytes.len());
        let ends = bytes.get(len).is_none_or(u8::is_ascii_whitespace);
        ends && bytes[..len].eq_ignore_ascii_case(&word.as_bytes()[..len])
    })
}

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

/// Parses a request. `is_open` reports whether the client has presented a token, and `number`
/// identifies the connection.
pub(super) fn step(
    bytes: &[u8],
    peer: &mut Peer,
    (access, is_open): (Option<&Access>, bool),
    number: u64,
) -> Step {
    let mut found: [&[u8]; WORDS_MAX] = [&[]; WORDS_MAX];
    let framed = match bytes {
        [b'*', ..] => frame(bytes, &mut found),
        [b'\r'] => return Step::Need,
        [b'\n', ..] => return Step::Skip(1),
        [b'\r', b'\n', ..] => return Step::Skip(2),
        _ => inline(bytes, &mut found),
    };
    let (count, used) = match framed {
        Framed::Need if bytes.len() < LINE_MAX => return Step::Need,
        Framed::Need => return Step::Last(Request::fault(Fault::TooLong, Form::Resp)),
        Framed::Bad(fault) => return Step::Last(Request::fault(fault, Form::Resp)),
        Framed::Empty(used) => return Step::Skip(used),
        Framed::Long(used) if access.is_none() || is_open => {
            let fault = Local::Fault(Fault::Command);
            return Step::Got(used, Request::local(fault, Form::Resp));
        }
        Framed::Long(used) => (0, used),
        Framed::Got(count, used) => (count, used),
    };
    let words = &found[..count];
    let startup = Startup { words, used, peer, access, is_open, number };
    if access.is_some() && !is_open {
        return startup.before_token();
    }
    startup.answer().unwrap_or_else(|| read(words, used))
}

/// Result of splitting a request into words.
enum Framed {
    Need,
    Bad(Fault),
    /// A line without words, and the number of bytes consumed.
    Empty(usize),
    /// A frame with more words than any command has, and the number of bytes consumed.
    Long(usize),
    /// The number of words and of bytes consumed.
    Got(usize, usize),
}

/// Splits a frame into words.
fn frame<'a>(bytes: &'a [u8], words: &mut [&'a [u8]; WORDS_MAX]) -> Framed {
    let mut at = 0;
    let count = match header(bytes, &mut at, b'*') {
        Word::Need => return Framed::Need,
        Word::Bad => return Framed::Bad(Fault::Frame),
        // Redis ignores frames without words.
        Word::Got(b"0" | b"-1") => return Framed::Empty(at),
        // Redis rejects 0 in any other spelling. A frame that is executed has at least one word.
        Word::Got(digits) => number(digits).filter(|count| *count > 0),
    };
    let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else {
        return Framed::Bad(Fault::Frame);
    };
    if count > LINE_MAX / WORD_MIN {
        return Framed::Bad(Fault::TooLong);
    }
    for place in 0..count {
        let len = match header(bytes, &mut at, b'$') {
            Word::Need => return Framed::Need,
            Word::Bad => return Framed::Bad(Fault::Frame),
            Word::Got(digits) => number(digits),
        };
        let Some(len) = len.map(|len| len as usize) else { return Framed::Bad(Fault::Frame) };
        if at + 2 > LINE_MAX || len > LINE_MAX - at - 2 {
            return Framed::Bad(Fault::TooLong);
        }
        let Some(text) = bytes.get(at..at + len + 2) else { return Framed::Need };
        if &text[len..] != b"\r\n" {
            return Framed::Bad(Fault::Frame);
        }
        if let Some(word) = words.get_mut(place) {
            *word = &text[..len];
        }
        at += len + 2;
    }
    if count > WORDS_MAX { Framed::Long(at) } else { Framed::Got(count, at) }
}

/// Splits an inline request into words.
fn inline<'a>(bytes: &'a [u8], found: &mut [&'a [u8]; WORDS_MAX]) -> Framed {
    let Some((line, used)) = line(bytes) else { return Framed::Need };
    let mut count = 0;
    for word in words(line) {
        let Some(place) = found.get_mut(count) else { return Framed::Long(used) };
        *place = word;
        count += 1;
    }
    if count == 0 { Framed::Empty(used) } else { Framed::Got(count, used) }
}

fn read(words: &[&[u8]], used: usize) -> Step {
    let [first, ..] = words else { return Step::Skip(used) };
    let is = |word: &str| first.eq_ignore_ascii_case(word.as_bytes());
    let got = |ask| Step::Got(used, Request::plain(ask, Form::Resp));
    let fault = |fault| got(Command::Local(Local::Fault(fault)));
    let trade = |side| match words {
        [_, stock, count] => match order(side, stock, count) {
            Some(order) => got(Command::Trade(order)),
            None => fault(Fault::Number),
        },
        _ => fault(Fault::Number),
    };
    if is("BUY") {
        trade(Side::Buy)
    } else if is("SELL") {
        trade(Side::Sell)
    } else if is("SHOW") {
        if words.len() == 1 { got(Command::Show) } else { fault(Fault::Number) }
    } else {
        fault(Fault::Command)
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
        Answer::Text(text) | Answer::NotReady(text) => {
            number(out, b'$', text.len() as u64);
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Answer::Refused(why) => put(out, format_args!("-REFUSED {}\r\n", why.code())),
        Answer::Stopped(why) => put(out, format_args!("-STOPPED {}\r\n", why.code())),
        Answer::Local(Local::Fault(Fault::Token)) => {
            put(out, format_args!("-NOAUTH {}\r\n", Fault::Token.code()));
        }
        Answer::Local(Local::Fault(Fault::Rights)) => {
            put(out, format_args!("-NOPERM {}\r\n", Fault::Rights.code()));
        }
        Answer::Local(Local::Fault(fault)) => put(out, format_args!("-ERR {}\r\n", fault.code())),
        Answer::Local(Local::Pong) => out.extend_from_slice(b"+PONG\r\n"),
        Answer::Local(Local::Reply(reply)) => out.extend_from_slice(reply),
        Answer::Local(_) => out.extend_from_slice(b"+OK\r\n"),
    }
}
