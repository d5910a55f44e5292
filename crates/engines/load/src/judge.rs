//! Whether an answer can be right, and what it changes.

use crate::draw::Op;
use crate::plan::Protocol;
use crate::speech::Said;
use ioloom_exchange::{Line, Side};
use std::collections::HashMap;
use std::sync::Arc;

/// The stocks of a server at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Book {
    /// As the server lists them.
    pub(crate) lines: Vec<Line>,
    /// The list did not fit into an answer: only stocks that are in every such list stand here.
    pub(crate) is_cut: bool,
}

/// Bytes of a list in the padded protocol beyond which it may have been cut at the end of a line.
const PADDED_FULL: usize = 8192 - 40;

impl Book {
    /// A list as it was told. Of one that was cut the last quarter is left out: with other numbers
    /// other lines fit.
    pub(crate) fn of(mut lines: Vec<Line>, protocol: Protocol) -> Self {
        let bytes: usize =
            lines.iter().map(|l| format!("{} {} {}\n", l.id, l.left, l.price).len()).sum();
        let is_cut = protocol == Protocol::Padded && bytes >= PADDED_FULL;
        if is_cut {
            lines.truncate(lines.len() * 3 / 4);
        }
        Self { lines, is_cut }
    }
}

/// What is known of the stocks while a load runs: their numbers and prices never change.
pub(crate) struct Known {
    pub(crate) ids: Arc<[u32]>,
    places: HashMap<u32, (usize, u32)>,
    is_cut: bool,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The order was carried out.
    Traded,
    /// It was refused for a good reason.
    Refused,
    /// The server had no room for it.
    TurnedAway,
    /// The server cannot tell whether the order was carried out.
    Unsure,
    /// A list.
    Listed,
    /// It cannot be right.
    Wrong(String),
}

impl Known {
    pub(crate) fn new(book: &Book) -> Self {
        let place = |(at, line): (usize, &Line)| (line.id, (at, line.price));
        Self {
            ids: book.lines.iter().map(|line| line.id).collect(),
            places: book.lines.iter().enumerate().map(place).collect(),
            is_cut: book.is_cut,
        }
    }

    /// The place of a stock in the list.
    pub(crate) fn place(&self, id: u32) -> Option<usize> {
        self.places.get(&id).map(|(at, _)| *at)
    }

    pub(crate) fn judge(&self, op: Op, said: &Said) -> Verdict {
        let wrong = || Verdict::Wrong(format!("{op:?} was answered with {said:?}"));
        match (op, said) {
            (_, Said::Busy) => Verdict::TurnedAway,
            (Op::Trade(_), Said::Unsure) => Verdict::Unsure,
            (Op::Show, Said::Shown { lines, .. }) => {
                let same = |line: &Line| {
                    self.places.get(&line.id).is_some_and(|(_, price)| *price == line.price)
                };
                let enough = if self.is_cut {
                    lines.len() >= self.ids.len()
                } else {
                    lines.len() == self.ids.len()
                };
                if enough && lines.iter().take(self.ids.len()).all(same) {
                    Verdict::Listed
                } else {
                    Verdict::Wrong("a list of other stocks or prices than before".to_owned())
                }
            }
            (Op::Trade(order), Said::Done { side, .. }) => match side {
                Some(side) if *side != order.side() => wrong(),
                _ => Verdict::Traded,
            },
            (Op::Trade(order), Said::NotEnough) if order.side() == Side::Buy => Verdict::Refused,
            (Op::Trade(order), Said::TooMany) if order.side() == Side::Sell => Verdict::Refused,
            _ => wrong(),
        }
    }
}

/// How many pieces of each stock orders took away (below zero) and brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// By the place of the stock: what answers say.
    sure: Vec<i64>,
    /// What orders without an answer may have taken.
    taken_max: Vec<i64>,
    /// What they may have brought.
    brought_max: Vec<i64>,
}

impl Holdings {
    pub(crate) fn new(stocks: usize) -> Self {
        Self { sure: vec![0; stocks], taken_max: vec![0; stocks], brought_max: vec![0; stocks] }
    }

    pub(crate) fn traded(&mut self, place: usize, side: Side, count: u32) {
        let count = i64::from(count);
        self.sure[place] += if side == Side::Buy { -count } else { count };
    }

    /// Notes an order whose answer never came.
    pub(crate) fn unknown(&mut self, place: usize, side: Side, count: u32) {
        let into = if side == Side::Buy { &mut self.taken_max } else { &mut self.brought_max };
        into[place] += i64::from(count);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let add = |mine: &mut Vec<i64>, theirs: &[i64]| {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        };
        add(&mut self.sure, &other.sure);
        add(&mut self.taken_max, &other.taken_max);
        add(&mut self.brought_max, &other.brought_max);
    }

    /// Stocks whose change from one list to the other is not what the answers say.
    pub(crate) fn differences(&self, before: &Book, after: &Book) -> Vec<String> {
        let left_after: HashMap<u32, u32> =
            after.lines.iter().map(|line| (line.id, line.left)).collect();
        let mut found = Vec::new();
        for (at, line) in before.lines.iter().enumerate() {
            let Some(now) = left_after.get(&line.id) else {
                found.push(format!("stock {} has gone", line.id));
                continue;
            };
            let change = i64::from(*now) - i64::from(line.left);
            let least = self.sure[at] - self.taken_max[at];
            let most = self.sure[at] + self.brought_max[at];
            if !(least..=most).contains(&change) {
                let told = if least == most {
                    format!("{most:+}")
                } else {
                    format!("{least:+} to {most:+}")
                };
                found.push(format!(
                    "stock {}: {} before and {now} after are {change:+}, the answers say {told}",
                    line.id, line.left
                ));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::Order;

    fn book(left: [u32; 2]) -> Book {
        Book {
            lines: vec![
                Line { id: 3, left: left[0], price: 9 },
                Line { id: 8, left: left[1], price: 5 },
            ],
            is_cut: false,
        }
    }

    #[test]
    fn answers_that_cannot_be_are_wrong() {
        let known = Known::new(&book([1, 1]));
        let trade = |side| Op::Trade(Order::new(side, 3, 1).unwrap());
        let done = |side| Said::Done { side, left: None, seq: None };
        let is_wrong = |op, said: &Said| matches!(known.judge(op, said), Verdict::Wrong(_));
        assert_eq!(known.judge(trade(Side::Buy), &done(Some(Side::Buy))), Verdict::Traded);
        assert!(is_wrong(trade(Side::Buy), &done(Some(Side::Sell))));
        assert!(is_wrong(trade(Side::Sell), &Said::NotEnough));
        assert!(is_wrong(trade(Side::Buy), &Said::TooMany));
        assert!(is_wrong(trade(Side::Buy), &Said::Unknown));
        assert!(is_wrong(Op::Show, &done(None)));
        let shown = |lines| Said::Shown { lines, seq: None };
        assert_eq!(known.judge(Op::Show, &shown(book([0, 9]).lines)), Verdict::Listed);
        assert!(is_wrong(Op::Show, &shown(book([0, 9]).lines[..1].to_vec())));
        let mut dearer = book([0, 9]);
        dearer.lines[1].price = 6;
        assert!(is_wrong(Op::Show, &shown(dearer.lines)));
    }

    #[test]
    fn lost_and_invented_pieces_are_found() {
        let mut holdings = Holdings::new(2);
        holdings.traded(0, Side::Buy, 4);
        let mut other = Holdings::new(2);
        other.traded(1, Side::Sell, 2);
        other.unknown(1, Side::Sell, 3);
        other.unknown(1, Side::Buy, 1);
        holdings.merge(&other);
        let differences = |after| holdings.differences(&book([10, 10]), &book(after));
        for possible in [[6, 12], [6, 11], [6, 15]] {
            assert!(differences(possible).is_empty(), "{possible:?}");
        }
        for impossible in [[7, 12], [5, 12], [6, 10], [6, 16]] {
            assert_eq!(differences(impossible).len(), 1, "{impossible:?}");
        }
    }
}
