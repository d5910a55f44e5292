//! The client's side of the protocols: requests into bytes, bytes into what the server said.
//!
//! Written apart from the server's codec, so that neither can hide a mistake of the other. The
//! original protocol has no numbers and no lengths: an answer is 8192 bytes, or as many lines as the
//! request asks for, and the same thing is said in several spellings; all that are known are
//! understood.

use crate::draw::Op;
use crate::plan::Protocol;
use ioloom_exchange::{Line, Side};
use std::io::Write;

/// Bytes of an answer in the padded protocol.
const PADDED: usize = 8192;
/// The longest answer that is waited for, bytes.
pub(crate) const ANSWER_MAX: usize = 256 << 20;

/// What a server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// The order was carried out.
    Done {
        /// Buy or sell, where the protocol repeats it.
        side: Option<Side>,
        /// What is left, where the protocol tells it.
        left: Option<u32>,
        /// The number in the log, where the protocol tells it.
        seq: Option<u64>,
    },
    /// Fewer are left than were asked for.
    NotEnough,
    /// More would be left than fits.
    TooMany,
    /// There is no such stock.
    Unknown,
    /// Too much is waiting, or too many are connected.
    Busy,
    /// Whether the order was carried out is not known to the server itself.
    Unsure,
    /// All stocks.
    Shown {
        /// In the order in which they were told.
        lines: Vec<Line>,
        /// The number of the latest order, where the protocol tells it.
        seq: Option<u64>,
    },
    /// A greeting.
    Hello,
    /// Anything else.
    Other(String),
}

/// An answer that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) said: Said,
    /// The number of the request, where the protocol repeats it.
    pub(crate) id: Option<u64>,
}

/// What the next answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The greeting.
    Hello,
    /// A request.
    Op(Op),
}

/// Spells a request.
pub(crate) fn spell(protocol: Protocol, op: Op, id: u64, out: &mut Vec<u8>) {
    let (word, order) = match op {
        Op::Show => ("show", None),
        Op::Trade(order) if order.side() == Side::Buy => ("buy", Some(order)),
        Op::Trade(order) => ("sell", Some(order)),
    };
    // Writing into memory does not fail.
    let _ = match (protocol, order) {
        (Protocol::Padded | Protocol::Line, None) => writeln!(out, "{word}"),
        (Protocol::Padded | Protocol::Line, Some(order)) => {
            writeln!(out, "{word} {} {}", order.stock(), order.count())
        }
        (Protocol::V2, None) => writeln!(out, "{id} SHOW"),
        (Protocol::V2, Some(order)) => {
            let word = if word == "buy" { "BUY" } else { "SELL" };
            writeln!(out, "{id} {word} {} {}", order.stock(), order.count())
        }
        (Protocol::Resp, None) => write!(out, "*1\r\n$4\r\nSHOW\r\n"),
        (Protocol::Resp, Some(order)) => {
            let (stock, count) = (order.stock().to_string(), order.count().to_string());
            let word = if word == "buy" { "BUY" } else { "SELL" };
            write!(
                out,
                "*3\r\n${}\r\n{word}\r\n${}\r\n{stock}\r\n${}\r\n{count}\r\n",
                word.len(),
                stock.len(),
                count.len()
            )
        }
    };
}

/// The greeting of a connection, where the protocol has one, or has a place for the token.
pub(crate) fn greeting(
    protocol: Protocol,
    name: Option<&str>,
    token: Option<&str>,
) -> Option<Vec<u8>> {
    match (protocol, token) {
        (Protocol::V2, _) => {
            let word = |key: &str, value: Option<&str>| {
                value.map_or_else(String::new, |value| format!(" {key}={value}"))
            };
            let (name, token) = (word("client", name), word("token", token));
            Some(format!("HELLO stock/2{name}{token}\n").into_bytes())
        }
        (Protocol::Resp, Some(token)) => {
            let len = token.len();
            Some(format!("*2\r\n$4\r\nAUTH\r\n${len}\r\n{token}\r\n").into_bytes())
        }
        _ => None,
    }
}

/// Takes answers out of what arrives.
pub(crate) struct Reader {
    protocol: Protocol,
    /// Lines of a list where the protocol does not tell.
    stocks: usize,
    pending: Vec<u8>,
    at: usize,
}

impl Reader {
    pub(crate) fn new(protocol: Protocol, stocks: usize) -> Self {
        Self { protocol, stocks, pending: Vec::new(), at: 0 }
    }

    /// Takes bytes that arrived.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.pending.drain(..self.at);
            self.at = 0;
        }
        self.pending.extend_from_slice(bytes);
    }

    /// The next answer, if its last byte is there.
    pub(crate) fn next(&mut self, asked: Asked) -> Option<Reply> {
        let bytes = &self.pending[self.at..];
        let mut cursor = Cursor { bytes, at: 0 };
        let reply = match self.protocol {
            Protocol::Padded => cursor.padded(),
            Protocol::Line => cursor.lines(asked, self.stocks),
            Protocol::V2 => cursor.numbered(),
            Protocol::Resp => cursor.resp(),
        };
        if reply.is_some() {
            self.at += cursor.at;
        } else if bytes.len() > ANSWER_MAX {
            self.at = self.pending.len();
            return Some(other("an answer without an end".to_owned()));
        }
        reply
    }
}

fn other(text: String) -> Reply {
    Reply { said: Said::Other(text), id: None }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn line(&mut self) -> Option<&'a str> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| *b == b'\n')?;
        self.at += end + 1;
        let line = &rest[..end];
        // What is no text is no answer that anybody knows.
        Some(std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).unwrap_or("?"))
    }

    fn padded(&mut self) -> Option<Reply> {
        let answer = self.bytes.get(..PADDED)?;
        self.at = PADDED;
        let end = answer.iter().position(|b| *b == 0).unwrap_or(PADDED);
        Some(Reply { said: classic(&String::from_utf8_lossy(&answer[..end])), id: None })
    }

    fn lines(&mut self, asked: Asked, stocks: usize) -> Option<Reply> {
        let from = self.at;
        let first = self.line()?;
        if asked == Asked::Op(Op::Show) && triple(first).is_some() {
            for _ in 1..stocks {
                self.line()?;
            }
        }
        let text = String::from_utf8_lossy(&self.bytes[from..self.at]);
        Some(Reply { said: classic(&text), id: None })
    }

    fn numbered(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        match first {
            "HELLO" => return Some(Reply { said: Said::Hello, id: None }),
            // Who is turned away has not been asked for a protocol yet.
            "BUSY" => return Some(Reply { said: Said::Busy, id: None }),
            _ => {}
        }
        let id = first.parse().ok();
        let rest: Vec<&str> = words.collect();
        let said = match (id, rest.as_slice()) {
            (Some(_), ["OK", left, seq]) => match (left.parse(), seq.parse()) {
                (Ok(left), Ok(seq)) => Said::Done { side: None, left: Some(left), seq: Some(seq) },
                _ => Said::Other(line.to_owned()),
            },
            (Some(_), ["ERR", code]) => refusal(code, line),
            (Some(_), ["STOCKS", count, seq]) => {
                let count = count.parse::<usize>().unwrap_or(0);
                let mut lines = Vec::new();
                for _ in 0..count {
                    lines.extend(triple(self.line()?));
                }
                if lines.len() == count {
                    Said::Shown { lines, seq: seq.parse().ok() }
                } else {
                    Said::Other(line.to_owned())
                }
            }
            _ => Said::Other(line.to_owned()),
        };
        Some(Reply { said, id })
    }

    fn resp(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let (mark, rest) = line.split_at_checked(1).unwrap_or(("", line));
        let said = match mark {
            ":" => match rest.parse() {
                Ok(left) => Said::Done { side: None, left: Some(left), seq: None },
                Err(_) => Said::Other(line.to_owned()),
            },
            "+" if rest == "OK" => Said::Hello,
            "-" => refusal(rest.rsplit(' ').next().unwrap_or_default(), line),
            "*" => {
                let count = rest.parse::<usize>().unwrap_or(0);
                let mut lines = Vec::new();
                for _ in 0..count {
                    let head = self.line()?;
                    let mut numbers = [0; 3];
                    for number in &mut numbers {
                        let value = self.line()?.strip_prefix(':').and_then(|n| n.parse().ok());
                        let Some(value) = value.filter(|_| head == "*3") else {
                            return Some(other(line.to_owned()));
                        };
                        *number = value;
                    }
                    let [id, left, price] = numbers;
                    lines.push(Line { id, left, price });
                }
                Said::Shown { lines, seq: None }
            }
            _ if line.starts_with("BUSY") => Said::Busy,
            _ => Said::Other(line.to_owned()),
        };
        Some(Reply { said, id: None })
    }
}

fn refusal(code: &str, line: &str) -> Said {
    match code {
        "not-enough" => Said::NotEnough,
        "too-many" => Said::TooMany,
        "unknown-stock" => Said::Unknown,
        "busy" => Said::Busy,
        "unknown-outcome" => Said::Unsure,
        _ => Said::Other(line.to_owned()),
    }
}

/// `NUMBER LEFT PRICE`.
pub(crate) fn triple(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace().map(str::parse::<u32>);
    let mut number = || words.next()?.ok();
    let line = Line { id: number()?, left: number()?, price: number()? };
    words.next().is_none().then_some(line)
}

/// An answer of the original protocol, in any of its known spellings.
pub(crate) fn classic(text: &str) -> Said {
    let plain = without_colours(text);
    let plain = plain.trim_end();
    let begins = |word: &str| plain.get(..word.len()).is_some_and(|p| p.eq_ignore_ascii_case(word));
    let done = |side| Said::Done { side: Some(side), left: None, seq: None };
    if begins("[buy] succ") {
        done(Side::Buy)
    } else if begins("[sell] suc") {
        done(Side::Sell)
    } else if begins("not enough left stock") {
        Said::NotEnough
    } else if begins("too many") {
        Said::TooMany
    } else if begins("no such stock") {
        Said::Unknown
    } else if plain == "BUSY" {
        Said::Busy
    } else if begins("unknown outcome") {
        Said::Unsure
    } else {
        let lines: Option<Vec<Line>> = plain.lines().map(triple).collect();
        match lines {
            Some(lines) if !lines.is_empty() => Said::Shown { lines, seq: None },
            _ => Said::Other(plain.chars().take(80).collect()),
        }
    }
}

/// Text without the sequences by which some servers colour it.
fn without_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // `ESC [ … letter`
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::{
        Answer, ClassicForm, Order, Refused, Session, Settings, Shown, Stop, encode,
    };
    use std::sync::Arc;

    const LINES: [Line; 2] =
        [Line { id: 1, left: 7, price: 100 }, Line { id: 5, left: 0, price: 37 }];

    fn ops() -> Vec<Op> {
        let order = |side, stock, count| Op::Trade(Order::new(side, stock, count).unwrap());
        vec![Op::Show, order(Side::Buy, 5, 10), order(Side::Sell, 4_000_000_000, 2_147_483_647)]
    }

    /// What the server's codec answers to a request of ours with this answer.
    fn answered(protocol: Protocol, op: Op, answer: &Answer) -> (Reply, Option<Op>) {
        let mut bytes = greeting(protocol, Some("me"), None).unwrap_or_default();
        let greeted = !bytes.is_empty();
        spell(protocol, op, 77, &mut bytes);
        let (mut session, mut out, mut heard) = (Session::default(), Vec::new(), None);
        let classic =
            if protocol == Protocol::Line { ClassicForm::Line } else { ClassicForm::Padded };
        let settings = Settings { classic, ..Settings::default() };
        session.feed(&bytes, 9, &mut |request| {
            let local = match request.command {
                ioloom_exchange::Command::Local(local) => Some(Answer::Local(local)),
                ioloom_exchange::Command::Trade(order) => {
                    heard = Some(Op::Trade(order));
                    None
                }
                _ => {
                    heard = Some(Op::Show);
                    None
                }
            };
            encode(request.form, &settings, local.as_ref().unwrap_or(answer), &mut out);
        });
        let mut reader = Reader::new(protocol, LINES.len());
        // Byte by byte: no answer is taken before its end.
        let mut replies = Vec::new();
        for byte in &out {
            reader.feed(std::slice::from_ref(byte));
            let asked = if greeted && replies.is_empty() { Asked::Hello } else { Asked::Op(op) };
            replies.extend(reader.next(asked));
        }
        assert_eq!(reader.at, reader.pending.len());
        assert_eq!(replies.len(), 1 + usize::from(greeted), "{replies:?}");
        (replies.pop().unwrap(), heard)
    }

    #[test]
    fn what_the_server_means_is_understood_in_every_protocol() {
        let shown = Answer::Shown(Arc::new(Shown { seq: 9, lines: LINES.to_vec() }));
        for protocol in [Protocol::Padded, Protocol::Line, Protocol::V2, Protocol::Resp] {
            let numbered = protocol == Protocol::V2;
            for op in ops() {
                let answers = match op {
                    Op::Show => vec![(
                        shown.clone(),
                        Said::Shown { lines: LINES.to_vec(), seq: numbered.then_some(9) },
                    )],
                    Op::Trade(order) => {
                        let told = !matches!(protocol, Protocol::Padded | Protocol::Line);
                        let done = Said::Done {
                            side: (!told).then_some(order.side()),
                            left: told.then_some(3),
                            seq: numbered.then_some(4),
                        };
                        vec![
                            (Answer::Done { left: 3, seq: 4 }, done),
                            (Answer::Refused(Refused::NotEnough), Said::NotEnough),
                            (Answer::Refused(Refused::TooMany), Said::TooMany),
                            (Answer::Refused(Refused::UnknownStock), Said::Unknown),
                            (Answer::Stopped(Stop::Busy), Said::Busy),
                            (Answer::Stopped(Stop::Unsure), Said::Unsure),
                        ]
                    }
                };
                for (answer, said) in answers {
                    let (reply, heard) = answered(protocol, op, &answer);
                    assert_eq!(reply.said, said, "{protocol:?}");
                    assert_eq!(heard, Some(op), "{protocol:?}");
                    assert_eq!(reply.id, numbered.then_some(77));
                }
            }
        }
    }

    #[test]
    fn spellings_of_other_servers_are_known() {
        let done = |side| Said::Done { side: Some(side), left: None, seq: None };
        assert_eq!(classic("\u{1b}[32m[buy] success\u{1b}[0m\n"), done(Side::Buy));
        assert_eq!(classic("[sell] sucess\n"), done(Side::Sell));
        assert_eq!(classic("Not enough left stock\n"), Said::NotEnough);
        assert_eq!(classic("Not enough left stocks\n"), Said::NotEnough);
        assert_eq!(classic("1 2 3\n4 5 6\n"), classic("1 2 3 \n4 5 6"));
        for odd in ["", "show\n", "1 2\n", "1 2 3\nx\n"] {
            assert!(matches!(classic(odd), Said::Other(_)), "{odd:?}");
        }
    }
}
