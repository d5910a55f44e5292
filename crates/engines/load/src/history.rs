//! A history: every request and answer, with the times of both.
//!
//! The file has one JSON document per line. The first line contains the initial stocks; each other
//! line is one request, in any order. A request without an answer has no `ret_ns`: it may have been
//! executed at any time after its call, or never.

use crate::draw::Op;
use crate::error::LoadError;
use crate::judge::StockList;
use ioloom_exchange::{Line, Order, Side};
use ioloom_failure::{Operation, PathError};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

/// Version of the file format.
const SCHEMA: u32 = 1;

/// Outcome of a request as seen by its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Executed; the number of shares left, if the protocol reports it.
    Done(Option<u32>),
    /// Refused: fewer shares were left than ordered.
    NotEnough,
    /// Refused: too many shares would have been left.
    TooMany,
    /// The remaining shares of each stock, in the order of the first line.
    Shown(Vec<u32>),
    /// No answer: the order may or may not have been executed.
    Unknown,
}

/// One request in a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The client; it waits for each answer unless it pipelines.
    pub client: u32,
    /// The request.
    pub op: Op,
    /// Send time in nanoseconds on the load's clock.
    pub call_ns: u64,
    /// Time of the answer; `None` if there was no answer.
    pub ret_ns: Option<u64>,
    /// The answer.
    pub outcome: Outcome,
}

/// A history with the initial stocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The stocks before the first request.
    pub initial: Vec<Line>,
    /// The requests, in any order.
    pub events: Vec<Event>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    schema: u32,
    kind: String,
    /// Number, remaining shares and price of each stock.
    stocks: Vec<[u32; 3]>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    client: u32,
    call_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ret_ns: Option<u64>,
    op: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stock: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    outcome: Outcome,
}

impl History {
    /// Creates the history recorded by a load.
    pub(crate) fn new(before: &StockList, mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| (event.client, event.call_ns));
        // Pipelined requests are sent together. An earlier time makes each line unique and excludes no
        // order of execution.
        for at in (1..events.len()).rev() {
            let (client, call_ns) = (events[at].client, events[at].call_ns);
            let earlier = &mut events[at - 1];
            if earlier.client == client && earlier.call_ns >= call_ns {
                earlier.call_ns = call_ns.saturating_sub(1);
            }
        }
        events.sort_by_key(|event| (event.call_ns, event.client));
        // A truncated list is reduced to the stocks that every list contains.
        for event in events.iter_mut().filter(|_| before.is_cut) {
            if let Outcome::Shown(left) = &mut event.outcome {
                left.truncate(before.lines.len());
            }
        }
        Self { initial: before.lines.clone(), events }
    }

    /// Writes the contents of the file.
    ///
    /// # Errors
    /// Returns the system error.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let stocks = self.initial.iter().map(|line| [line.id, line.left, line.price]).collect();
        let head = Head { schema: SCHEMA, kind: "exchange-history".to_owned(), stocks };
        serde_json::to_writer(&mut *out, &head)?;
        writeln!(out)?;
        for event in &self.events {
            serde_json::to_writer(&mut *out, &row(event))?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Returns the system error, or the first invalid line.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let failed = PathError::on(Operation::Read, path);
        let invalid =
            |line, reason: String| LoadError::History { path: path.to_owned(), line, reason };
        let unread = |line, error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData => invalid(line, "not valid UTF-8".to_owned()),
            _ => LoadError::from(failed(error)),
        };
        let file = File::open(path).map_err(&failed)?;
        let mut lines = BufReader::new(file).lines();
        let first = lines.next().transpose().map_err(|error| unread(1, error))?;
        let missing = || invalid(1, "it is missing; the first line contains the stocks".to_owned());
        let first = first.filter(|first| !first.trim().is_empty()).ok_or_else(missing)?;
        let other = || invalid(1, "not a history (written by --history)".to_owned());
        let head: Head = serde_json::from_str(&first).map_err(|_| other())?;
        if head.schema != SCHEMA || head.kind != "exchange-history" {
            return Err(invalid(1, "not a history of this version".to_owned()));
        }
        let line = |[id, left, price]: [u32; 3]| Line { id, left, price };
        let initial: Vec<Line> = head.stocks.into_iter().map(line).collect();
        let stocks: HashSet<u32> = initial.iter().map(|line| line.id).collect();
        if stocks.is_empty() || stocks.len() < initial.len() {
            return Err(invalid(1, "it must contain at least one stock, each once".to_owned()));
        }
        let mut events = Vec::new();
        let mut numbers = Vec::new();
        for (at, text) in lines.enumerate() {
            let text = text.map_err(|error| unread(at + 2, error))?;
            if text.is_empty() {
                continue;
            }
            let wrong = |reason: String| invalid(at + 2, reason);
            let row: Row = serde_json::from_str(&text).map_err(|e| wrong(without_place(&e)))?;
            if row.ret_ns.is_some_and(|ret_ns| ret_ns < row.call_ns) {
                return Err(wrong("its answer arrived before it was sent".to_owned()));
            }
            let event = event(row).ok_or_else(|| wrong("not a request".to_owned()))?;
            check(&event, &stocks).map_err(wrong)?;
            events.push(event);
            numbers.push(at + 2);
        }
        if let Some((first, second)) = repeated(&events) {
            let reason = format!("it repeats line {}", numbers[first]);
            return Err(invalid(numbers[second], reason));
        }
        Ok(Self { initial, events })
    }
}

/// Returns the text of an error without its line and column, which are those in one line of the file.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).map_or_else(|| text.clone(), str::to_owned)
}

/// Rejects a request for a stock that does not exist, or an answer that does not fit its request.
fn check(event: &Event, stocks: &HashSet<u32>) -> Result<(), String> {
    if let Op::Trade(order) = event.op
        && !stocks.contains(&order.stock())
    {
        return Err(format!("stock {} is not in line 1", order.stock()));
    }
    if event.outcome == Outcome::Unknown {
        return Ok(());
    }
    if event.ret_ns.is_none() {
        return Err("its answer has no time (ret_ns)".to_owned());
    }
    match (event.op, &event.outcome) {
        (Op::Show, Outcome::Shown(left)) if left.len() != stocks.len() => Err(format!(
            "the number of stocks in its list is {} instead of {}",
            left.len(),
            stocks.len()
        )),
        (Op::Show, Outcome::Shown(_))
        | (Op::Trade(_), Outcome::Done(_) | Outcome::NotEnough | Outcome::TooMany) => Ok(()),
        (op, outcome) => Err(format!("'{op}' cannot be answered with '{outcome}'")),
    }
}

/// Returns the indices of two equal requests.
fn repeated(events: &[Event]) -> Option<(usize, usize)> {
    let key = |at: &usize| (events[*at].client, events[*at].call_ns);
    let mut all: Vec<usize> = (0..events.len()).collect();
    all.sort_by_key(key);
    all.chunk_by(|a, b| key(a) == key(b)).find_map(|same| {
        same.iter().enumerate().find_map(|(at, second)| {
            let first = same[..at].iter().find(|first| events[**first] == events[*second])?;
            Some((*first, *second))
        })
    })
}

fn row(event: &Event) -> Row {
    let (op, order) = match event.op {
        Op::Show => ("show", None),
        Op::Trade(order) if order.side() == Side::Buy => ("buy", Some(order)),
        Op::Trade(order) => ("sell", Some(order)),
    };
    Row {
        client: event.client,
        call_ns: event.call_ns,
        ret_ns: event.ret_ns,
        op: op.to_owned(),
        stock: order.map(|order| order.stock()),
        count: order.map(|order| order.count()),
        outcome: event.outcome.clone(),
    }
}

fn event(row: Row) -> Option<Event> {
    let trade = |side| Some(Op::Trade(Order::new(side, row.stock?, row.count?)?));
    let op = match row.op.as_str() {
        "show" => Op::Show,
        "buy" => trade(Side::Buy)?,
        "sell" => trade(Side::Sell)?,
        _ => return None,
    };
    Some(Event {
        client: row.client,
        op,
        call_ns: row.call_ns,
        ret_ns: row.ret_ns,
        outcome: row.outcome,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_read_back() {
        let order = |side| Op::Trade(Order::new(side, 4, 9).unwrap());
        let event = |op, ret_ns, outcome| Event { client: 2, op, call_ns: 5, ret_ns, outcome };
        let history = History {
            initial: vec![Line { id: 4, left: 10, price: 100 }],
            events: vec![
                event(Op::Show, Some(9), Outcome::Shown(vec![10])),
                event(order(Side::Buy), Some(7), Outcome::Done(Some(1))),
                event(order(Side::Buy), Some(7), Outcome::NotEnough),
                event(order(Side::Sell), Some(8), Outcome::Done(None)),
                event(order(Side::Sell), None, Outcome::Unknown),
            ],
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h");
        history.write(&mut File::create(&path).unwrap()).unwrap();
        assert_eq!(History::read(&path).unwrap(), history);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, whole.replace("\"ret_ns\":7", "\"ret_ns\":4")).unwrap();
        let refused = History::read(&path).unwrap_err().to_string();
        assert!(refused.contains("line 3") && refused.contains("before it was sent"), "{refused}");
        std::fs::write(&path, "{}\n").unwrap();
        assert!(History::read(&path).unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn invalid_histories_are_not_violations() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h");
        let refused = |stocks: &str, rows: &str| {
            let head = format!(r#"{{"schema":1,"kind":"exchange-history","stocks":{stocks}}}"#);
            std::fs::write(&path, format!("{head}\n{rows}\n")).unwrap();
            History::read(&path).unwrap_err().to_string()
        };
        let buy = r#"{"client":0,"call_ns":1,"ret_ns":2,"op":"buy","stock":1,"count":1,"outcome":"#;
        let show = r#"{"client":0,"call_ns":1,"ret_ns":2,"op":"show","outcome":"#;
        for (stocks, rows, reason) in [
            ("[]", String::new(), "line 1: it must contain at least one stock"),
            ("[[1,5,9],[1,5,9]]", String::new(), "line 1: it must contain at least one stock"),
            ("[[2,5,9]]", format!("{buy}{{\"done\":4}}}}"), "line 2: stock 1 is not in line 1"),
            ("[[1,5,9]]", format!("{buy}{{\"shown\":[4]}}}}"), "line 2: 'buy 1 1' cannot be"),
            ("[[1,5,9]]", format!("{show}\"not-enough\"}}"), "line 2: 'show' cannot be"),
            ("[[1,5,9]]", format!("{show}{{\"shown\":[4,5]}}}}"), "in its list is 2 instead of 1"),
            ("[[1,5,9]]", format!("{buy}\"done\"}}\n").repeat(2), "line 2"),
            (
                "[[1,5,9]]",
                format!("{buy}{{\"done\":4}}}}\n").repeat(2),
                "line 3: it repeats line 2",
            ),
        ] {
            let refused = refused(stocks, &rows);
            assert!(refused.contains(reason), "{reason}: {refused}");
        }
        let head = r#"{"schema":1,"kind":"exchange-history","stocks":[[1,5,9]]}"#;
        std::fs::write(&path, [head.as_bytes(), b"\n\xff\n"].concat()).unwrap();
        let refused = History::read(&path).unwrap_err();
        assert!(matches!(refused, LoadError::History { line: 2, .. }), "{refused}");
        std::fs::write(&path, "").unwrap();
        let refused = History::read(&path).unwrap_err().to_string();
        assert!(refused.contains("line 1: it is missing"), "{refused}");
    }

    #[test]
    fn pipelined_requests_have_different_lines() {
        let event = Event {
            client: 1,
            op: Op::Show,
            call_ns: 9,
            ret_ns: Some(20),
            outcome: Outcome::Shown(vec![5]),
        };
        let lines = vec![Line { id: 1, left: 5, price: 1 }];
        let before = StockList { lines, is_cut: false };
        let mut events = vec![event.clone(); 3];
        // Another client's request, and an earlier one of the same client.
        events.extend([Event { client: 0, ..event.clone() }, Event { call_ns: 8, ..event }]);
        let history = History::new(&before, events);
        let times: Vec<u64> = history.events.iter().map(|event| event.call_ns).collect();
        assert_eq!(times, [6, 7, 8, 9, 9]);
        assert_eq!(repeated(&history.events), None);
    }
}
