//! The list of stocks before and after a run, asked for on a connection of its own.
//!
//! In the protocol of lines a list has no end of its own. Its length is found by asking for something
//! else behind it: a sale of one piece of the first stock, which is bought back. Later lists have
//! as many lines as the first.

use crate::channel::Channel;
use crate::draw::Op;
use crate::error::LoadError;
use crate::judge::Book;
use crate::plan::{LoadPlan, Protocol};
use crate::speech::{ANSWER_MAX, Asked, Reader, Said, classic, greeting, spell, triple};
use ioloom_exchange::{Line, Order, Side};
use std::io;
use std::time::Duration;

/// How often a server without room is asked again, and after which time.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

struct Asking(Channel);

/// Asks for all stocks; `stocks` is how many there are, if that is known from an earlier list.
pub(crate) fn list(plan: &LoadPlan, stocks: Option<usize>) -> Result<Book, LoadError> {
    let connect = |reason| LoadError::Connect { target: plan.target, reason };
    let mut asking = Asking(Channel::connect(plan).map_err(connect)?);
    let asked =
        asking.0.set_timeouts(plan.timeout, plan.timeout).and_then(|()| asking.list(plan, stocks));
    let target = plan.target;
    let lines = asked.map_err(|reason| match reason.kind() {
        io::ErrorKind::ResourceBusy => LoadError::Full { target },
        io::ErrorKind::WouldBlock => {
            let reason = format!("no answer within {} s", plan.timeout.as_secs_f64());
            LoadError::List { target, reason }
        }
        _ => LoadError::List { target, reason: reason.to_string() },
    })?;
    Ok(match stocks {
        None => Book::of(lines, plan.protocol),
        // Compared by number: what the first list left out is not looked at.
        Some(_) => Book { lines, is_cut: false },
    })
}

/// The list at the end. Room that connections of the load had comes free when the server sees
/// that they have gone.
pub(crate) fn list_again(plan: &LoadPlan, stocks: usize) -> Result<Book, LoadError> {
    for _ in 0..TRIES {
        match list(plan, Some(stocks)) {
            Err(LoadError::Full { .. }) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    list(plan, Some(stocks))
}

fn odd(said: &str) -> io::Error {
    io::Error::other(format!("it said {said:?}"))
}

impl Asking {
    fn list(&mut self, plan: &LoadPlan, stocks: Option<usize>) -> io::Result<Vec<Line>> {
        if plan.protocol == Protocol::Line && stocks.is_none() {
            return self.list_without_end(ANSWER_MAX);
        }
        let mut reader = Reader::new(plan.protocol, stocks.unwrap_or(0));
        if let Some(greeting) = greeting(plan.protocol, None, plan.token.as_deref()) {
            self.0.send(&greeting)?;
            match self.answer(&mut reader, Asked::Hello)? {
                Said::Hello => {}
                Said::Busy => return Err(io::ErrorKind::ResourceBusy.into()),
                other => return Err(odd(&format!("{other:?}"))),
            }
        }
        let mut bytes = Vec::new();
        spell(plan.protocol, Op::Show, 1, &mut bytes);
        self.0.send(&bytes)?;
        match self.answer(&mut reader, Asked::Op(Op::Show))? {
            Said::Shown { lines, .. } if !lines.is_empty() => Ok(lines),
            Said::Busy => Err(io::ErrorKind::ResourceBusy.into()),
            Said::Other(text) => Err(odd(&text)),
            other => Err(odd(&format!("{other:?}"))),
        }
    }

    fn answer(&mut self, reader: &mut Reader, asked: Asked) -> io::Result<Said> {
        loop {
            if let Some(reply) = reader.next(asked) {
                return Ok(reply.said);
            }
            let bytes = self.0.recv()?;
            reader.feed(bytes);
        }
    }

    /// A list of which the end is found by what was asked behind it, of so many bytes at most.
    fn list_without_end(&mut self, bytes_max: usize) -> io::Result<Vec<Line>> {
        self.0.send(b"show\n")?;
        let mut text = Vec::new();
        let mut lines: Vec<Line> = Vec::new();
        let mut at = 0;
        let end = loop {
            let Some(length) = text[at..].iter().position(|b| *b == b'\n') else {
                if text.len() > bytes_max {
                    return Err(io::Error::other("it gave a list without an end"));
                }
                text.extend_from_slice(self.0.recv()?);
                continue;
            };
            let line = String::from_utf8_lossy(&text[at..at + length]).into_owned();
            at += length + 1;
            match triple(&line) {
                Some(line) => lines.push(line),
                None if line == "BUSY" => return Err(io::ErrorKind::ResourceBusy.into()),
                None if lines.is_empty() => return Err(odd(&line)),
                None => break line,
            }
            if lines.len() == 1 {
                self.0.send(&order(Side::Sell, lines[0].id))?;
            }
        };
        match classic(&end) {
            Said::Done { .. } => {
                self.0.send(&order(Side::Buy, lines[0].id))?;
                while !text[at..].contains(&b'\n') {
                    text.extend_from_slice(self.0.recv()?);
                }
            }
            Said::TooMany => {}
            _ => return Err(odd(&end)),
        }
        Ok(lines)
    }
}

fn order(side: Side, stock: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(order) = Order::new(side, stock, 1) {
        spell(Protocol::Line, Op::Trade(order), 1, &mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn a_list_that_never_ends_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plan =
            LoadPlan { protocol: Protocol::Line, ..LoadPlan::new(listener.local_addr().unwrap()) };
        let mut asking = Asking(Channel::connect(&plan).unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let server =
            std::thread::spawn(move || while stream.write_all(&b"1 2 3\n".repeat(100)).is_ok() {});
        let refused = asking.list_without_end(10_000).unwrap_err();
        assert!(refused.to_string().contains("without an end"), "{refused}");
        drop(asking);
        server.join().unwrap();
    }
}
