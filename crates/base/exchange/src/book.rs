//! The stocks in the order of their numbers, and the text file that they are kept in.
//!
//! The file is the one of the original assignment: a line `NUMBER LEFT PRICE` for each stock, in any
//! order. It is written in the order of the numbers, and the original servers can load it.

use crate::stock::{COUNT_MAX, Line, Order, Refused, Stock};
use std::collections::BTreeMap;
use std::fmt::Write;
use thiserror::Error;

/// A stock file that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadStockFile {
    /// A line has the wrong form.
    #[error(
        "line {line}: {text:?} is not `NUMBER LEFT PRICE` with numbers from 0 to {COUNT_MAX}; \
         correct the line"
    )]
    Line {
        /// Counted from 1.
        line: usize,
        /// The line, shortened.
        text: String,
    },
    /// A number occurs twice.
    #[error("line {line}: stock {id} was listed before; keep one of the two lines")]
    Twice {
        /// Counted from 1.
        line: usize,
        /// The number.
        id: u32,
    },
    /// There is no stock.
    #[error("it lists no stock; write a line `NUMBER LEFT PRICE` for each, such as `1 100 5000`")]
    Empty,
}

/// All stocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    stocks: BTreeMap<u32, Stock>,
}

impl Exchange {
    /// Reads the text of a stock file. Empty lines and the end of lines of other systems do no harm.
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

    /// The text of a stock file.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for line in self.lines() {
            let _ = writeln!(text, "{} {} {}", line.id, line.left, line.price);
        }
        text
    }

    /// The stocks in the order of their numbers.
    pub fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        self.stocks.iter().map(|(id, stock)| Line { id: *id, left: stock.left, price: stock.price })
    }

    /// How many stocks there are.
    pub fn len(&self) -> usize {
        self.stocks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.stocks.is_empty()
    }

    /// The stock of this number.
    pub fn get(&self, id: u32) -> Option<Stock> {
        self.stocks.get(&id).copied()
    }

    /// Carries out an order and tells what is left, or changes nothing.
    pub fn trade(&mut self, order: &Order) -> Result<u32, Refused> {
        let stock = self.stocks.get_mut(&order.stock()).ok_or(Refused::UnknownStock)?;
        stock.trade(order.side(), order.count())
    }
}

impl FromIterator<Line> for Exchange {
    /// Stocks from a list; of equal numbers the last one counts.
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
