//! Stocks and the text file that stores them.
//!
//! The file format is that of the original assignment: one line `NUMBER LEFT PRICE` per stock, in
//! any order. Files are written in numeric order and can be loaded by the original servers.

use crate::stock::{COUNT_MAX, Line, Order, Refused, Stock};
use std::collections::BTreeMap;
use std::fmt::Write;
use thiserror::Error;

/// Why a stock file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadStockFile {
    /// A line is malformed.
    #[error(
        "line {line}: expected `NUMBER LEFT PRICE` with numbers from 0 to {COUNT_MAX}, found {text:?}"
    )]
    Line {
        /// Line number, starting at 1.
        line: usize,
        /// The line, truncated.
        text: String,
    },
    /// A stock number occurs twice.
    #[error("line {line}: duplicate stock {id}; remove one of the two lines")]
    Twice {
        /// Line number, starting at 1.
        line: usize,
        /// The stock number.
        id: u32,
    },
    /// The file lists no stocks.
    #[error("no stocks listed; add one line `NUMBER LEFT PRICE` per stock, such as `1 100 5000`")]
    Empty,
}

/// All stocks, sorted by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    stocks: BTreeMap<u32, Stock>,
}

impl Exchange {
    /// Parses the text of a stock file. Empty lines and CR LF line ends are accepted.
    pub fn from_text(text: &str) -> Result<Self, BadStockFile> {
        let mut stocks = BTreeMap::new();
        for (at, text) in text.lines().enumerate() {
            if text.trim().is_empty() {
                continue;
            }
            let line = at + 1;
            let Some(read) = read_line(text) else {
                let text = text.chars().take(60).collect();
                return Err(BadStockFile::Line { line, text });
            };
            let stock = Stock { left: read.left, price: read.price };
            if stocks.insert(read.id, stock).is_some() {
                return Err(BadStockFile::Twice { line, id: read.id });
            }
        }
        if stocks.is_empty() { Err(BadStockFile::Empty) } else { Ok(Self { stocks }) }
    }

    /// Returns the text of a stock file.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for line in self.lines() {
            let _ = writeln!(text, "{} {} {}", line.id, line.left, line.price);
        }
        text
    }

    /// Returns the stocks sorted by number.
    pub fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        self.stocks.iter().map(|(id, stock)| Line { id: *id, left: stock.left, price: stock.price })
    }

    /// Returns the number of stocks.
    pub fn len(&self) -> usize {
        self.stocks.len()
    }

    /// Reports whether there are no stocks.
    pub fn is_empty(&self) -> bool {
        self.stocks.is_empty()
    }

    /// Returns the stock with this number.
    pub fn get(&self, id: u32) -> Option<Stock> {
        self.stocks.get(&id).copied()
    }

    /// Executes an order and returns the number of shares left. Changes nothing on error.
    pub fn trade(&mut self, order: &Order) -> Result<u32, Refused> {
        let stock = self.stocks.get_mut(&order.stock()).ok_or(Refused::UnknownStock)?;
        stock.trade(order.side(), order.count())
    }
}

impl FromIterator<Line> for Exchange {
    /// Collects stocks from a list; if numbers repeat, the last stock wins.
    fn from_iter<I: IntoIterator<Item = Line>>(lines: I) -> Self {
        let stock = |line: Line| (line.id, Stock { left: line.left, price: line.price });
        Self { stocks: lines.into_iter().map(stock).collect() }
    }
}

fn read_line(text: &str) -> Option<Line> {
    let mut words = text.split_ascii_whitespace();
    let mut number = || {
        let word = words.next()?;
        let digits = word.bytes().all(|b| b.is_ascii_digit());
        let value: u32 = if digits { word.parse().ok()? } else { return None };
        (value <= COUNT_MAX).then_some(value)
    };
    let line = Line { id: number()?, left: number()?, price: number()? };
    words.next().is_none().then_some(line)
}
