//! A history: every request with when it was sent, when its answer came, and what both said.
//!
//! One JSON document a line. The first line has the stocks at the beginning; then one line for each
//! request, in any order. A request whose answer never came has no `ret_ns`: it may have been carried
//! out at any time after it was sent, or never.

use crate::draw::Op;
use crate::error::LoadError;
use crate::judge::Book;
use ioloom_exchange::{Line, Order, Side};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// The version of the file.
const SCHEMA: u32 = 1;

/// How a request ended, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Carried out; what is left, where the protocol tells it.
    Done(Option<u32>),
    /// Fewer were left than asked for.
    NotEnough,
    /// More would have been left than fits.
    TooMany,
    /// What was left of each stock, in the order of the first line.
    Shown(Vec<u32>),
    /// No answer: it may have been carried out or not.
    Unknown,
}

/// One request of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Who asked; a client waits for each answer unless requests follow each other.
    pub client: u32,
    /// What was asked.
    pub op: Op,
    /// When it was sent, nanoseconds on the clock of the load.
    pub call_ns: u64,
    /// When the answer was there; `None` if it never was.
    pub ret_ns: Option<u64>,
    /// The answer.
    pub outcome: Outcome,
}

/// A history with the stocks at its beginning.
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
    /// Number, left, price of each stock.
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
    /// A history of what a load recorded.
    pub(crate) fn new(before: &Book, mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.call_ns);
        // A list that did not fit is one of the stocks that are in every such list.
        for event in events.iter_mut().filter(|_| before.is_cut) {
            if let Outcome::Shown(left) = &mut event.outcome {
                left.truncate(before.lines.len());
            }
        }
        Self { initial: before.lines.clone(), events }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What the system reports.
    pub fn write(&self, path: &Path) -> Result<(), LoadError> {
        let write = || {
            let mut out = BufWriter::new(File::create(path)?);
            let stocks = self.initial.iter().map(|line| [line.id, line.left, line.price]).collect();
            serde_json::to_writer(
                &mut out,
                &Head { schema: SCHEMA, kind: "exchange-history".to_owned(), stocks },
            )?;
            writeln!(out)?;
            for event in &self.events {
                serde_json::to_writer(&mut out, &row(event))?;
                writeln!(out)?;
            }
            out.flush()
        };
        write().map_err(|reason| bad("write", path, &reason))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What the system reports, or the first line that is none of a history.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let file = File::open(path).map_err(|reason| bad("read", path, &reason))?;
        let mut lines = BufReader::new(file).lines();
        let first = lines.next().transpose().map_err(|reason| bad("read", path, &reason))?;
        let head: Head = serde_json::from_str(&first.unwrap_or_default())
            .map_err(|reason| bad("read", path, &format!("line 1: {reason}")))?;
        if head.schema != SCHEMA || head.kind != "exchange-history" {
            return Err(bad("read", path, &"it is no history of this version"));
        }
        let line = |[id, left, price]: [u32; 3]| Line { id, left, price };
        let initial = head.stocks.into_iter().map(line).collect();
        let mut events = Vec::new();
        for (at, text) in lines.enumerate() {
            let text = text.map_err(|reason| bad("read", path, &reason))?;
            if text.is_empty() {
                continue;
            }
            let wrong = |reason: &dyn std::fmt::Display| {
                bad("read", path, &format!("line {}: {reason}", at + 2))
            };
            let row: Row = serde_json::from_str(&text).map_err(|reason| wrong(&reason))?;
            if row.ret_ns.is_some_and(|ret_ns| ret_ns < row.call_ns) {
                return Err(wrong(&"its answer came before it was sent"));
            }
            events.push(event(row).ok_or_else(|| wrong(&"it is no request"))?);
        }
        Ok(Self { initial, events })
    }
}

fn bad(operation: &'static str, path: &Path, reason: &dyn std::fmt::Display) -> LoadError {
    LoadError::File { operation, path: path.display().to_string(), reason: reason.to_string() }
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
    fn a_history_reads_back_as_it_was_written() {
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
        history.write(&path).unwrap();
        assert_eq!(History::read(&path).unwrap(), history);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, whole.replace("\"ret_ns\":7", "\"ret_ns\":4")).unwrap();
        let refused = History::read(&path).unwrap_err().to_string();
        assert!(refused.contains("line 3") && refused.contains("before it was sent"), "{refused}");
        std::fs::write(&path, "{}\n").unwrap();
        assert!(History::read(&path).unwrap_err().to_string().contains("line 1"));
    }
}
