//! Lists the stocks before and after a run on a separate connection.
//!
//! In the line protocol, a list has no end marker. To find its length, the client sends another
//! request after it whose answer is one line: a purchase of more shares of the first stock than any
//! server has. Servers do not agree on how to answer what is not an order, but all refuse this one.
//! Later lists have as many lines as the first.

use crate::channel::{Channel, Wait};
use crate::client_codec::{
    ANSWER_MAX, Expected, Reader, Response, classic, encode_request, greeting, triple,
};
use crate::draw::Op;
use crate::error::LoadError;
use crate::judge::StockList;
use crate::plan::{LoadPlan, Protocol};
use crate::wording::excerpt;
use ioloom_exchange::{COUNT_MAX, Line, Order, Side};
use ioloom_failure::reason as reason_of;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of attempts to list the stocks on a busy server, and the pause between them.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

struct ListConnection<'a> {
    channel: Channel,
    /// Time limit for each answer.
    timeout: Duration,
    stop: Option<&'a AtomicBool>,
}

/// Lists all stocks. `stocks` is the number of stocks if known from an earlier list. `stop` interrupts
/// the wait for an answer.
pub(crate) fn list(
    plan: &LoadPlan,
    stocks: Option<usize>,
    stop: Option<&AtomicBool>,
) -> Result<StockList, LoadError> {
    let connect = |source| LoadError::Connect { target: plan.target, source };
    let channel = Channel::connect(plan).map_err(connect)?;
    let mut connection = ListConnection { channel, timeout: plan.timeout, stop };
    let asked = connection
        .channel
        .set_timeouts(plan.timeout, plan.timeout)
        .and_then(|()| connection.list(plan, stocks));
    let target = plan.target;
    let lines = asked.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => LoadError::Full { target, is_handshaking: false },
        io::ErrorKind::ConnectionAborted => LoadError::Full { target, is_handshaking: true },
        io::ErrorKind::Interrupted => LoadError::Interrupted { target },
        // A request was not accepted in time.
        io::ErrorKind::WouldBlock => {
            let reason = format!("no answer within {} s", plan.timeout.as_secs_f64());
            LoadError::List { target, reason }
        }
        _ => LoadError::of_tls(target, &error)
            .unwrap_or_else(|| LoadError::List { target, reason: reason_of(&error) }),
    })?;
    Ok(match stocks {
        None => StockList::of(lines, plan.protocol),
        // Stocks are compared by number; those missing from the first list are ignored.
        Some(_) => StockList { lines, is_cut: false },
    })
}

/// Lists the stocks at the end of a run. The slots of the load's connections become free once the
/// server notices that they are closed.
pub(crate) fn list_again(
    plan: &LoadPlan,
    stocks: usize,
    stop: Option<&AtomicBool>,
) -> Result<StockList, LoadError> {
    for _ in 0..TRIES {
        match list(plan, Some(stocks), stop) {
            Err(LoadError::Full { target, .. })
                if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) =>
            {
                return Err(LoadError::Interrupted { target });
            }
            Err(LoadError::Full { .. }) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    list(plan, Some(stocks), stop)
}

fn unexpected(response: &Response) -> io::Error {
    io::Error::other(format!("unexpected answer {response}"))
}

impl ListConnection<'_> {
    fn list(&mut self, plan: &LoadPlan, stocks: Option<usize>) -> io::Result<Vec<Line>> {
        if plan.protocol == Protocol::Line && stocks.is_none() {
            return self.list_without_end(ANSWER_MAX);
        }
        let mut reader = Reader::new(plan.protocol, stocks.unwrap_or(0));
        if let Some(greeting) = greeting(plan.protocol, None, plan.token.as_deref()) {
            self.channel.send(&greeting)?;
            match self.answer(&mut reader, Expected::Hello)? {
                Response::Hello => {}
                Response::Busy => return Err(io::ErrorKind::ResourceBusy.into()),
                other => return Err(unexpected(&other)),
            }
        }
        let mut bytes = Vec::new();
        encode_request(plan.protocol, Op::Show, 1, &mut bytes);
        self.channel.send(&bytes)?;
        match self.answer(&mut reader, Expected::Op(Op::Show))? {
            Response::Shown { lines, .. } if !lines.is_empty() => Ok(lines),
            Response::Busy => Err(io::ErrorKind::ResourceBusy.into()),
            other => Err(unexpected(&other)),
        }
    }

    fn answer(&mut self, reader: &mut Reader, asked: Expected) -> io::Result<Response> {
        let wait = Wait::new(self.timeout, self.stop);
        loop {
            if let Some(reply) = reader.next(asked) {
                return Ok(reply.response);
            }
            let bytes = self.channel.recv_within(&wait)?;
            reader.feed(bytes);
        }
    }

    /// Reads a list without an end marker, up to `bytes_max` bytes.
    fn list_without_end(&mut self, bytes_max: usize) -> io::Result<Vec<Line>> {
        self.channel.send(b"show\n")?;
        let mut text = Text { bytes_max, ..Text::default() };
        let mut lines: Vec<Line> = Vec::new();
        let mut wait = Wait::new(self.timeout, self.stop);
        let end = loop {
            let line = self.line(&mut text, &wait)?;
            match triple(&line) {
                Some(line) => lines.push(line),
                None if line == "BUSY" => return Err(io::ErrorKind::ResourceBusy.into()),
                None if lines.is_empty() => return Err(unexpected(&Response::Other(line))),
                None => break line,
            }
            if lines.len() == 1 {
                self.channel.send(&all_shares(Side::Buy, lines[0].id))?;
                wait = Wait::new(self.timeout, self.stop);
            }
        };
        match classic(&end) {
            Response::NotEnough => Ok(lines),
            // The stock had exactly so many shares, or the server does not count them.
            Response::Done { .. } => {
                self.channel.send(&all_shares(Side::Sell, lines[0].id))?;
                let undone = self.line(&mut text, &Wait::new(self.timeout, self.stop))?;
                match classic(&undone) {
                    Response::Done { side: Some(Side::Sell), .. } => Ok(lines),
                    _ => Err(io::Error::other(format!(
                        "the server executed the purchase of {COUNT_MAX} shares of stock {} that \
                         marks the end of the list, and answered {} to their sale",
                        lines[0].id,
                        excerpt(&undone)
                    ))),
                }
            }
            _ => Err(unexpected(&Response::Other(end))),
        }
    }

    /// Waits for the next line and returns it without its end.
    fn line(&mut self, text: &mut Text, wait: &Wait<'_>) -> io::Result<String> {
        loop {
            if let Some(line) = text.line() {
                return Ok(line);
            }
            if text.bytes.len() > text.bytes_max {
                return Err(io::Error::other("endless list"));
            }
            text.bytes.extend_from_slice(self.channel.recv_within(wait)?);
        }
    }
}

/// Lines received so far.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// Maximum number of bytes.
    bytes_max: usize,
    /// Start of the next line.
    at: usize,
    /// Number of bytes after `at` without a line end.
    searched: usize,
}

impl Text {
    /// Takes the next line if it is complete.
    fn line(&mut self) -> Option<String> {
        let from = self.at + self.searched;
        let Some(length) = self.bytes[from..].iter().position(|b| *b == b'\n') else {
            self.searched = self.bytes.len() - self.at;
            return None;
        };
        let line = String::from_utf8_lossy(&self.bytes[self.at..from + length]).into_owned();
        (self.at, self.searched) = (from + length + 1, 0);
        Some(line)
    }
}

/// Encodes an order of as many shares as there can be.
fn all_shares(side: Side, stock: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(order) = Order::new(side, stock, COUNT_MAX) {
        encode_request(Protocol::Line, Op::Trade(order), 1, &mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_sys_net::Listener;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    fn connected(plan: &LoadPlan) -> ListConnection<'static> {
        let channel = Channel::connect(plan).unwrap();
        ListConnection { channel, timeout: plan.timeout, stop: None }
    }

    /// Lists the stocks of a server that gives these answers after its list. Returns what it received.
    fn listed(answers: &'static [&'static str]) -> (io::Result<Vec<Line>>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plan =
            LoadPlan { protocol: Protocol::Line, ..LoadPlan::new(listener.local_addr().unwrap()) };
        let mut connection = connected(&plan);
        let (stream, _) = listener.accept().unwrap();
        let server = std::thread::spawn(move || {
            let (mut lines, mut asked) = (BufReader::new(stream), Vec::new());
            for answer in std::iter::once(&"3 2147483647 9\n8 5 1\n").chain(answers) {
                let mut line = String::new();
                if lines.read_line(&mut line).unwrap() == 0 {
                    break;
                }
                asked.push(line.trim_end().to_owned());
                lines.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            asked
        });
        let listed = connection.list_without_end(10_000);
        drop(connection);
        (listed, server.join().unwrap())
    }

    #[test]
    fn the_end_of_a_list_is_found_without_an_order_that_is_executed() {
        let (lines, asked) = listed(&["Not enough left stocks\n"]);
        assert_eq!(lines.unwrap().len(), 2);
        assert_eq!(asked, ["show", "buy 3 2147483647"]);
    }

    #[test]
    fn lines_are_searched_once() {
        let mut text = Text::default();
        for part in ["1 2", " 3\n4 5", " 6\n7"] {
            text.bytes.extend_from_slice(part.as_bytes());
            let taken: Vec<String> = std::iter::from_fn(|| text.line()).collect();
            assert!(taken.len() < 2, "{taken:?}");
            assert_eq!(text.at + text.searched, text.bytes.len());
        }
        assert_eq!((text.at, text.searched), (12, 1));
    }

    #[test]
    fn an_unexpected_answer_is_cut_and_without_padding() {
        let (refused, _) = listed(&["\0\0\0hello\0\0\n"]);
        assert_eq!(refused.unwrap_err().to_string(), "unexpected answer \"hello\"");
    }

    #[test]
    fn an_order_that_is_executed_is_undone_or_reported() {
        let (lines, asked) = listed(&["[buy] success\n", "[sell] success\n"]);
        assert_eq!(lines.unwrap().len(), 2);
        assert_eq!(asked, ["show", "buy 3 2147483647", "sell 3 2147483647"]);
        let (refused, _) = listed(&["[buy] success\n", "BUSY\n"]);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("stock 3") && refused.contains("BUSY"), "{refused}");
    }

    #[test]
    fn connecting_ends_with_the_timeout() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let timeout = Duration::from_millis(300);
        let plan = LoadPlan { timeout, ..LoadPlan::new(listener.address().unwrap()) };
        // Connections that are never accepted fill the backlog.
        let mut waiting = Vec::new();
        let refused = loop {
            match Channel::connect(&plan) {
                Ok(channel) => waiting.push(channel),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100, "the backlog must be bounded");
        };
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut, "{refused}");
        assert!(matches!(list(&plan, None, None), Err(LoadError::Connect { .. })));
    }

    #[test]
    fn endless_lists_are_rejected() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plan =
            LoadPlan { protocol: Protocol::Line, ..LoadPlan::new(listener.local_addr().unwrap()) };
        let mut connection = connected(&plan);
        let (mut stream, _) = listener.accept().unwrap();
        let server =
            std::thread::spawn(move || while stream.write_all(&b"1 2 3\n".repeat(100)).is_ok() {});
        let refused = connection.list_without_end(10_000).unwrap_err();
        assert!(refused.to_string().contains("endless list"), "{refused}");
        drop(connection);
        server.join().unwrap();
    }
}
