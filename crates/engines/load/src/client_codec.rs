//! The client side of the protocols: encodes requests and decodes answers.
//!
//! Written independently of the server's codec, so bugs in one cannot hide bugs in the other. The
//! original protocol has neither request numbers nor lengths: an answer takes 8192 bytes, or as
//! many lines as the request implies. Servers use different spellings; all known spellings are
//! accepted.

use crate::draw::Op;
use crate::plan::Protocol;
use ioloom_exchange::{Line, Side};
use std::io::Write;

/// Size of an answer in the padded protocol, in bytes.
const PADDED: usize = 8192;
/// Maximum size of an answer in bytes.
pub(crate) const ANSWER_MAX: usize = 256 << 20;

/// A server answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Response {
    /// The order was executed.
    Done {
        /// The side of the order, if the protocol repeats it.
        side: Option<Side>,
        /// Number of shares left, if the protocol reports it.
        left: Option<u32>,
        /// Log number, if the protocol reports it.
        seq: Option<u64>,
    },
    /// Fewer shares are left than ordered.
    NotEnough,
    /// Too many shares would be left.
    TooMany,
    /// The stock does not exist.
    Unknown,
    /// The server is busy.
    Busy,
    /// The server does not know whether the order was executed.
    Unsure,
    /// A list of all stocks.
    Shown {
        /// The stocks, in the order of the answer.
        lines: Vec<Line>,
        /// Log number of the latest order, if the protocol reports it.
        seq: Option<u64>,
    },
    /// Greeting.
    Hello,
    /// An answer to a command of a commands file, or the text of a simple one.
    Plain(String),
    /// Any other answer.
    Other(String),
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) response: Response,
    /// The request number, if the protocol repeats it.
    pub(crate) id: Option<u64>,
}

/// What the next answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The greeting.
    Hello,
    /// A request.
    Op(Op),
}

/// Encodes a request.
pub(crate) fn encode_request(protocol: Protocol, op: Op, id: u64, out: &mut Vec<u8>) {
    let (word, order) = match op {
        Op::Show => ("show", None),
        Op::Trade(order) if order.side() == Side::Buy => ("buy", Some(order)),
        Op::Trade(order) => ("sell", Some(order)),
    };
    // Writing to memory cannot fail.
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

/// Returns the greeting of a connection if the protocol has one or needs one for the token.
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

/// The parsed part of an incomplete answer, which can have very many short lines.
#[derive(Default)]
struct Begun {
    /// Number of its bytes.
    bytes: usize,
    /// Number of its elements.
    elements: u64,
    /// Number of elements that it must have in addition to one, as far as known.
    further: u64,
    /// The stocks among them.
    lines: Vec<Line>,
    /// The first element, for answers of any kind.
    first: Option<Response>,
}

/// Decodes answers from received bytes.
pub(crate) struct Reader {
    protocol: Protocol,
    /// Number of lines in a list, if the protocol does not report it.
    stocks: usize,
    pending: Vec<u8>,
    at: usize,
    /// Number of bytes after `at` that are no complete answer.
    searched: usize,
    /// What was parsed of the answer that has begun.
    begun: Begun,
    /// Whether any RESP answer is accepted.
    is_plain: bool,
}

impl Reader {
    /// Creates a reader for answers to commands of a commands file.
    pub(crate) fn plain() -> Self {
        Self { is_plain: true, ..Self::new(Protocol::Resp, 0) }
    }

    pub(crate) fn new(protocol: Protocol, stocks: usize) -> Self {
        Self {
            protocol,
            stocks,
            pending: Vec::new(),
            at: 0,
            searched: 0,
            begun: Begun::default(),
            is_plain: false,
        }
    }

    /// Appends received bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.pending.drain(..self.at);
            self.at = 0;
        }
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the next answer if it is complete.
    pub(crate) fn next(&mut self, asked: Expected) -> Option<Reply> {
        let bytes = &self.pending[self.at..];
        // Only a line end can complete an answer that has begun. Parsing it again for every part that
        // arrives would take quadratic time.
        let is_of_lines = self.protocol != Protocol::Padded;
        if is_of_lines && self.searched > 0 && !bytes[self.searched..].contains(&b'\n') {
            self.searched = bytes.len();
            return self.endless();
        }
        let mut cursor = Cursor { bytes, at: 0, begun: &mut self.begun };
        let reply = match self.protocol {
            Protocol::Padded => cursor.padded(),
            Protocol::Line => cursor.lines(asked, self.stocks),
            Protocol::V2 => cursor.numbered(),
            Protocol::Resp if self.is_plain => {
                cursor.any().map(|response| Reply { response, id: None })
            }
            Protocol::Resp => cursor.resp(),
        };
        if reply.is_some() {
            self.at += cursor.at;
            (self.searched, self.begun) = (0, Begun::default());
            return reply;
        }
        self.searched = bytes.len();
        self.endless()
    }

    /// Discards an incomplete answer and returns another if it is too long.
    fn endless(&mut self) -> Option<Reply> {
        if self.searched <= ANSWER_MAX {
            return None;
        }
        (self.at, self.searched) = (self.pending.len(), 0);
        self.begun = Begun::default();
        Some(other("endless answer".to_owned()))
    }
}

fn other(text: String) -> Reply {
    Reply { response: Response::Other(text), id: None }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    begun: &'a mut Begun,
}

impl<'a> Cursor<'a> {
    fn line(&mut self) -> Option<&'a str> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| *b == b'\n')?;
        self.at += end + 1;
        let line = &rest[..end];
        // Invalid UTF-8 cannot match any known answer.
        Some(std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).unwrap_or("?"))
    }

    /// Continues after the elements that were parsed before.
    fn resume(&mut self) {
        self.at = self.at.max(self.begun.bytes);
    }

    /// Counts an element that ends here, and is a stock or not.
    fn element(&mut self, stock: Option<Line>) {
        self.begun.lines.extend(stock);
        self.begun.elements += 1;
        self.begun.bytes = self.at;
    }

    fn padded(&mut self) -> Option<Reply> {
        let answer = self.bytes.get(..PADDED)?;
        self.at = PADDED;
        let end = answer.iter().position(|b| *b == 0).unwrap_or(PADDED);
        Some(Reply { response: classic(&String::from_utf8_lossy(&answer[..end])), id: None })
    }

    fn lines(&mut self, asked: Expected, stocks: usize) -> Option<Reply> {
        let from = self.at;
        let first = self.line()?;
        if asked == Expected::Op(Op::Show) && triple(first).is_some() {
            self.resume();
            while self.begun.elements + 1 < stocks as u64 {
                self.line()?;
                self.element(None);
            }
        }
        let text = String::from_utf8_lossy(&self.bytes[from..self.at]);
        Some(Reply { response: classic(&text), id: None })
    }

    fn numbered(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        match first {
            "HELLO" => return Some(Reply { response: Response::Hello, id: None }),
            // A rejected client has not selected a protocol yet.
            "BUSY" => return Some(Reply { response: Response::Busy, id: None }),
            _ => {}
        }
        let id = first.parse().ok();
        let rest: Vec<&str> = words.collect();
        let response = match (id, rest.as_slice()) {
            (Some(_), ["OK", left, seq]) => match (left.parse(), seq.parse()) {
                (Ok(left), Ok(seq)) => {
                    Response::Done { side: None, left: Some(left), seq: Some(seq) }
                }
                _ => Response::Other(line.to_owned()),
            },
            (Some(_), ["ERR", code]) => refusal(code, line),
            (Some(_), ["STOCKS", count, seq]) => {
                let count = count.parse::<u64>().unwrap_or(0);
                self.resume();
                while self.begun.elements < count {
                    let stock = triple(self.line()?);
                    self.element(stock);
                }
                let lines = std::mem::take(&mut self.begun.lines);
                if lines.len() as u64 == count {
                    Response::Shown { lines, seq: seq.parse().ok() }
                } else {
                    Response::Other(line.to_owned())
                }
            }
            _ => Response::Other(line.to_owned()),
        };
        Some(Reply { response, id })
    }

    /// Reads any RESP answer, nested or not.
    fn any(&mut self) -> Option<Response> {
        self.resume();
        while self.begun.elements <= self.begun.further {
            let line = self.line()?;
            let (mark, rest) = line.split_at_checked(1).unwrap_or(("", line));
            let response = match mark {
                "+" | ":" | "_" | "," | "#" => Response::Plain(rest.to_owned()),
                "$" | "=" => match rest.parse::<usize>() {
                    Ok(len) => {
                        let Some(end) = self.at.checked_add(len).and_then(|end| end.checked_add(2))
                        else {
                            return Some(Response::Other(line.to_owned()));
                        };
                        let text = self.bytes.get(self.at..end)?;
                        self.at = end;
                        Response::Plain(String::from_utf8_lossy(&text[..len]).into_owned())
                    }
                    // A null value.
                    Err(_) => Response::Plain(String::new()),
                },
                "*" | "%" | "~" | ">" => {
                    let each = if mark == "%" { 2 } else { 1 };
                    let count = rest.parse::<u64>().unwrap_or(0);
                    let further = &mut self.begun.further;
                    *further = further.saturating_add(count.saturating_mul(each));
                    Response::Plain(String::new())
                }
                _ => Response::Other(line.to_owned()),
            };
            self.begun.first.get_or_insert(response);
            self.element(None);
        }
        self.begun.first.take()
    }

    fn resp(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let (mark, rest) = line.split_at_checked(1).unwrap_or(("", line));
        let response = match mark {
            ":" => match rest.parse() {
                Ok(left) => Response::Done { side: None, left: Some(left), seq: None },
                Err(_) => Response::Other(line.to_owned()),
            },
            "+" if rest == "OK" => Response::Hello,
            "-" => refusal(rest.rsplit(' ').next().unwrap_or_default(), line),
            "*" => {
                let count = rest.parse::<u64>().unwrap_or(0);
                self.resume();
                while self.begun.elements < count {
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
                    self.element(Some(Line { id, left, price }));
                }
                Response::Shown { lines: std::mem::take(&mut self.begun.lines), seq: None }
            }
            _ if line.starts_with("BUSY") => Response::Busy,
            _ => Response::Other(line.to_owned()),
        };
        Some(Reply { response, id: None })
    }
}

fn refusal(code: &str, line: &str) -> Response {
    match code {
        "not-enough" => Response::NotEnough,
        "too-many" => Response::TooMany,
        "unknown-stock" => Response::Unknown,
        "busy" => Response::Busy,
        "unknown-outcome" => Response::Unsure,
        _ => Response::Other(line.to_owned()),
    }
}

/// Parses `NUMBER LEFT PRICE`.
pub(crate) fn triple(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace().map(str::parse::<u32>);
    let mut number = || words.next()?.ok();
    let line = Line { id: number()?, left: number()?, price: number()? };
    words.next().is_none().then_some(line)
}

/// Parses an answer in the original protocol, in any known spelling.
pub(crate) fn classic(text: &str) -> Response {
    let plain = without_colours(text);
    let plain = plain.trim_end();
    let begins = |word: &str| plain.get(..word.len()).is_some_and(|p| p.eq_ignore_ascii_case(word));
    let done = |side| Response::Done { side: Some(side), left: None, seq: None };
    if begins("[buy] succ") {
        done(Side::Buy)
    } else if begins("[sell] suc") {
        done(Side::Sell)
    } else if begins("not enough left stock") {
        Response::NotEnough
    } else if begins("too many") {
        Response::TooMany
    } else if begins("no such stock") {
        Response::Unknown
    } else if plain == "BUSY" {
        Response::Busy
    } else if begins("unknown outcome") {
        Response::Unsure
    } else {
        let lines: Option<Vec<Line>> = plain.lines().map(triple).collect();
        match lines {
            Some(lines) if !lines.is_empty() => Response::Shown { lines, seq: None },
            _ => Response::Other(plain.chars().take(80).collect()),
        }
    }
}

/// Removes escape sequences; some servers colour their answers.
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

    /// Returns the decoded answer of the server's codec to a request, and the request it received.
    fn answered(protocol: Protocol, op: Op, answer: &Answer) -> (Reply, Option<Op>) {
        let mut bytes = greeting(protocol, Some("me"), None).unwrap_or_default();
        let greeted = !bytes.is_empty();
        encode_request(protocol, op, 77, &mut bytes);
        let (mut session, mut out, mut received) = (Session::default(), Vec::new(), None);
        let classic =
            if protocol == Protocol::Line { ClassicForm::Line } else { ClassicForm::Padded };
        let settings = Settings { classic, ..Settings::default() };
        session.feed(&bytes, 9, &mut |request| {
            let local = match request.command {
                ioloom_exchange::Command::Local(local) => Some(Answer::Local(local)),
                ioloom_exchange::Command::Trade(order) => {
                    received = Some(Op::Trade(order));
                    None
                }
                _ => {
                    received = Some(Op::Show);
                    None
                }
            };
            encode(request.form, &settings, local.as_ref().unwrap_or(answer), &mut out);
        });
        let mut reader = Reader::new(protocol, LINES.len());
        // Feed byte by byte: no answer may be decoded before its end.
        let mut replies = Vec::new();
        for byte in &out {
            reader.feed(std::slice::from_ref(byte));
            let asked =
                if greeted && replies.is_empty() { Expected::Hello } else { Expected::Op(op) };
            replies.extend(reader.next(asked));
        }
        assert_eq!(reader.at, reader.pending.len());
        assert_eq!(replies.len(), 1 + usize::from(greeted), "{replies:?}");
        (replies.pop().unwrap(), received)
    }

    #[test]
    fn answers_are_understood_in_every_protocol() {
        let shown = Answer::Shown(Arc::new(Shown { seq: 9, lines: LINES.to_vec() }));
        for protocol in [Protocol::Padded, Protocol::Line, Protocol::V2, Protocol::Resp] {
            let numbered = protocol == Protocol::V2;
            for op in ops() {
                let answers = match op {
                    Op::Show => vec![(
                        shown.clone(),
                        Response::Shown { lines: LINES.to_vec(), seq: numbered.then_some(9) },
                    )],
                    Op::Trade(order) => {
                        let is_detailed = !matches!(protocol, Protocol::Padded | Protocol::Line);
                        let done = Response::Done {
                            side: (!is_detailed).then_some(order.side()),
                            left: is_detailed.then_some(3),
                            seq: numbered.then_some(4),
                        };
                        vec![
                            (Answer::Done { left: 3, seq: 4 }, done),
                            (Answer::Refused(Refused::NotEnough), Response::NotEnough),
                            (Answer::Refused(Refused::TooMany), Response::TooMany),
                            (Answer::Refused(Refused::UnknownStock), Response::Unknown),
                            (Answer::Stopped(Stop::Busy), Response::Busy),
                            (Answer::Stopped(Stop::Unsure), Response::Unsure),
                        ]
                    }
                };
                for (answer, response) in answers {
                    let (reply, received) = answered(protocol, op, &answer);
                    assert_eq!(reply.response, response, "{protocol:?}");
                    assert_eq!(received, Some(op), "{protocol:?}");
                    assert_eq!(reply.id, numbered.then_some(77));
                }
            }
        }
    }

    #[test]
    fn incomplete_answers_are_searched_once() {
        for protocol in [Protocol::Line, Protocol::V2, Protocol::Resp] {
            let mut reader = Reader::new(protocol, 1);
            for _ in 0..3 {
                reader.feed(&[b'a'; 1000]);
                assert_eq!(reader.next(Expected::Op(Op::Show)), None, "{protocol:?}");
                assert_eq!(reader.searched, reader.pending.len(), "{protocol:?}");
            }
            reader.feed(b"\n");
            assert!(reader.next(Expected::Op(Op::Show)).is_some(), "{protocol:?}");
            assert_eq!((reader.searched, reader.at), (0, 3001), "{protocol:?}");
        }
    }

    #[test]
    fn lines_of_incomplete_lists_are_parsed_once() {
        let stocks = 1000;
        let lines: Vec<Line> = (1..=stocks).map(|id| Line { id, left: 2, price: 3 }).collect();
        let plain = |line: &Line| format!("{} {} {}\n", line.id, line.left, line.price);
        let array =
            |line: &Line| format!("*3\r\n:{}\r\n:{}\r\n:{}\r\n", line.id, line.left, line.price);
        let texts = |text: &dyn Fn(&Line) -> String| lines.iter().map(text).collect::<Vec<_>>();
        for (mut reader, head, parts, seq) in [
            (Reader::new(Protocol::Line, 1000), "", texts(&plain), None),
            (Reader::new(Protocol::V2, 0), "7 STOCKS 1000 9\n", texts(&plain), Some(9)),
            (Reader::new(Protocol::Resp, 0), "*1000\r\n", texts(&array), None),
            (Reader::plain(), "*1000\r\n", texts(&array), None),
        ] {
            reader.feed(head.as_bytes());
            let (last, others) = parts.split_last().unwrap();
            for (number, part) in others.iter().enumerate() {
                reader.feed(part.as_bytes());
                assert_eq!(reader.next(Expected::Op(Op::Show)), None);
                // The first line of a list without a head announces it.
                let is_announced = number > 0 || !head.is_empty();
                assert!(!is_announced || reader.begun.bytes == reader.pending.len(), "{head}");
            }
            reader.feed(last.as_bytes());
            let response = reader.next(Expected::Op(Op::Show)).unwrap().response;
            if reader.is_plain {
                assert_eq!(response, Response::Plain(String::new()));
            } else {
                assert_eq!(response, Response::Shown { lines: lines.clone(), seq });
            }
            assert_eq!((reader.at, reader.begun.bytes), (reader.pending.len(), 0), "{head}");
        }
    }

    #[test]
    fn lengths_and_counts_that_overflow_are_no_panic() {
        for text in ["$18446744073709551614\r\nxyz", "=18446744073709551615\r\nxyz"] {
            let mut reader = Reader::plain();
            reader.feed(text.as_bytes());
            let reply = reader.next(Expected::Op(Op::Show)).unwrap();
            assert!(matches!(reply.response, Response::Other(_)), "{text}: {reply:?}");
        }
        let mut reader = Reader::plain();
        reader.feed(b"%18446744073709551615\r\n:1\r\n");
        assert_eq!(reader.next(Expected::Op(Op::Show)), None, "incomplete");
    }

    #[test]
    fn spellings_of_other_servers_are_accepted() {
        let done = |side| Response::Done { side: Some(side), left: None, seq: None };
        assert_eq!(classic("\u{1b}[32m[buy] success\u{1b}[0m\n"), done(Side::Buy));
        assert_eq!(classic("[sell] sucess\n"), done(Side::Sell));
        assert_eq!(classic("Not enough left stock\n"), Response::NotEnough);
        assert_eq!(classic("Not enough left stocks\n"), Response::NotEnough);
        assert_eq!(classic("1 2 3\n4 5 6\n"), classic("1 2 3 \n4 5 6"));
        for odd in ["", "show\n", "1 2\n", "1 2 3\nx\n"] {
            assert!(matches!(classic(odd), Response::Other(_)), "{odd:?}");
        }
    }
}
