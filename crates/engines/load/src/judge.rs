//! Checks answers and the balance of stocks.

use crate::client_codec::{Reply, Response};
use crate::draw::Op;
use crate::plan::Protocol;
use ioloom_exchange::{Line, PADDED, Side};
use std::collections::HashMap;
use std::sync::Arc;

/// The stocks on a server at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StockList {
    /// The stocks, in server order.
    pub(crate) lines: Vec<Line>,
    /// Whether the list was truncated; it then contains only stocks that every such list contains.
    pub(crate) is_cut: bool,
}

/// Maximum size in bytes of a line of a list: three numbers of ten digits.
const LINE_BYTES_MAX: usize = 33;

impl StockList {
    /// Creates a list from an answer. A padded list ends before the first line that does not fit,
    /// and lines become longer when orders add shares. So only the lines that fit with any number
    /// of shares are kept.
    pub(crate) fn of(mut lines: Vec<Line>, protocol: Protocol) -> Self {
        if protocol != Protocol::Padded {
            return Self { lines, is_cut: false };
        }
        let size = |line: &Line, left: u32| format!("{} {left} {}\n", line.id, line.price).len();
        let bytes: usize = lines.iter().map(|line| size(line, line.left)).sum();
        let mut longest = 0;
        let fits = |line: &&Line| {
            longest += size(line, u32::MAX);
            longest < PADDED
        };
        let kept = lines.iter().take_while(fits).count();
        // The server may have left out a line, or may do so when lines are longer.
        let is_cut = kept < lines.len() || bytes + LINE_BYTES_MAX >= PADDED;
        lines.truncate(kept);
        Self { lines, is_cut }
    }
}

/// Stock properties that a load does not change: numbers and prices.
pub(crate) struct KnownStocks {
    pub(crate) ids: Arc<[u32]>,
    places: HashMap<u32, (usize, u32)>,
    is_cut: bool,
}

/// The meaning of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The order was executed.
    Traded,
    /// The order was refused for a valid reason.
    Refused,
    /// The server was busy.
    TurnedAway,
    /// The server does not know whether the order was executed.
    Unsure,
    /// A list.
    Listed,
    /// The answer is wrong.
    Wrong(String),
}

impl KnownStocks {
    pub(crate) fn new(book: &StockList) -> Self {
        let place = |(at, line): (usize, &Line)| (line.id, (at, line.price));
        Self {
            ids: book.lines.iter().map(|line| line.id).collect(),
            places: book.lines.iter().enumerate().map(place).collect(),
            is_cut: book.is_cut,
        }
    }

    /// Returns the index of a stock in the list.
    pub(crate) fn place(&self, id: u32) -> Option<usize> {
        self.places.get(&id).map(|(at, _)| *at)
    }

    /// Judges the answer to request `id`. `latest` is the largest log number in earlier answers of the
    /// connection, and is updated.
    pub(crate) fn judge_reply(&self, op: Op, id: u64, reply: &Reply, latest: &mut u64) -> Verdict {
        let verdict = self.judge(op, &reply.response);
        if matches!(verdict, Verdict::Wrong(_)) {
            return verdict;
        }
        if let Some(other) = reply.id.filter(|other| *other != id) {
            return Verdict::Wrong(format!("the answer to request {id} has the number {other}"));
        }
        let (seq, least) = match reply.response {
            Response::Done { seq: Some(seq), .. } => (seq, latest.saturating_add(1)),
            // A list has the number of the latest order that it includes.
            Response::Shown { seq: Some(seq), .. } => (seq, *latest),
            _ => return verdict,
        };
        if seq < least {
            return Verdict::Wrong(format!("log number {seq} arrived after {latest}"));
        }
        *latest = seq;
        verdict
    }

    fn judge(&self, op: Op, response: &Response) -> Verdict {
        let wrong = || Verdict::Wrong(format!("{op} was answered with {response}"));
        match (op, response) {
            (_, Response::Busy) => Verdict::TurnedAway,
            (Op::Trade(_), Response::Unsure) => Verdict::Unsure,
            (Op::Show, Response::Plain(_)) => Verdict::Listed,
            (Op::Trade(_), Response::Plain(_)) => Verdict::Traded,
            (Op::Show, Response::Shown { lines, .. }) => {
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
                    Verdict::Wrong("the list has different stocks or prices than before".to_owned())
                }
            }
            (Op::Trade(order), Response::Done { side, .. }) => match side {
                Some(side) if *side != order.side() => wrong(),
                _ => Verdict::Traded,
            },
            (Op::Trade(order), Response::NotEnough) if order.side() == Side::Buy => {
                Verdict::Refused
            }
            (Op::Trade(order), Response::TooMany) if order.side() == Side::Sell => Verdict::Refused,
            _ => wrong(),
        }
    }
}

/// Number of shares of each stock that orders removed (negative) or added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// By stock index, according to the answers.
    sure: Vec<i64>,
    /// Shares that orders without an answer may have removed.
    taken_max: Vec<i64>,
    /// Shares that orders without an answer may have added.
    added_max: Vec<i64>,
}

impl Holdings {
    pub(crate) fn new(stocks: usize) -> Self {
        Self { sure: vec![0; stocks], taken_max: vec![0; stocks], added_max: vec![0; stocks] }
    }

    pub(crate) fn traded(&mut self, place: usize, side: Side, count: u32) {
        let count = i64::from(count);
        self.sure[place] += if side == Side::Buy { -count } else { count };
    }

    /// Records an order without an answer.
    pub(crate) fn unknown(&mut self, place: usize, side: Side, count: u32) {
        let into = if side == Side::Buy { &mut self.taken_max } else { &mut self.added_max };
        into[place] += i64::from(count);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let add = |mine: &mut Vec<i64>, theirs: &[i64]| {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        };
        add(&mut self.sure, &other.sure);
        add(&mut self.taken_max, &other.taken_max);
        add(&mut self.added_max, &other.added_max);
    }

    /// Returns the stocks whose change between the lists does not match the answers.
    pub(crate) fn differences(&self, before: &StockList, after: &StockList) -> Vec<String> {
        let left_after: HashMap<u32, u32> =
            after.lines.iter().map(|line| (line.id, line.left)).collect();
        let mut found = Vec::new();
        for (at, line) in before.lines.iter().enumerate() {
            let Some(now) = left_after.get(&line.id) else {
                found.push(format!("stock {} is missing", line.id));
                continue;
            };
            let change = i64::from(*now) - i64::from(line.left);
            let least = self.sure[at] - self.taken_max[at];
            let most = self.sure[at] + self.added_max[at];
            if !(least..=most).contains(&change) {
                let answers = if least == most {
                    format!("{most:+}")
                } else {
                    format!("{least:+} to {most:+}")
                };
                found.push(format!(
                    "stock {}: {} before and {now} after is {change:+}, but the answers add up to {answers}",
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

    fn book(left: [u32; 2]) -> StockList {
        StockList {
            lines: vec![
                Line { id: 3, left: left[0], price: 9 },
                Line { id: 8, left: left[1], price: 5 },
            ],
            is_cut: false,
        }
    }

    /// Returns the lines of stocks that fit in a padded list.
    fn listed(stocks: impl Iterator<Item = Line>) -> Vec<Line> {
        let mut bytes = 0;
        let fits = |line: &Line| {
            bytes += format!("{} {} {}\n", line.id, line.left, line.price).len();
            bytes < PADDED
        };
        stocks.take_while(fits).collect()
    }

    #[test]
    fn padded_lists_with_longer_lines_are_not_wrong() {
        // The first list is complete, 65 bytes below the limit.
        let all = |left| listed((1..=915).map(move |id| Line { id, left, price: 5 }));
        assert_eq!(all(95).len(), 915);
        // The first list is cut.
        let cut = |left| listed((1..=5000).map(move |id| Line { id, left, price: 5 }));
        // The server left out a line, although all lines have their maximum length.
        let full = |left| listed((1..=500).map(move |id| Line { id, left, price: 5 }));
        let judged = |first: Vec<Line>, later: Vec<Line>| {
            let known = KnownStocks::new(&StockList::of(first, Protocol::Padded));
            known.judge(Op::Show, &Response::Shown { lines: later, seq: None })
        };
        for later in [0, 95, 1000, i32::MAX as u32] {
            assert_eq!(judged(all(95), all(later)), Verdict::Listed, "{later}");
            assert_eq!(judged(cut(1), cut(later)), Verdict::Listed, "{later}");
            assert_eq!(judged(full(i32::MAX as u32), full(later)), Verdict::Listed, "{later}");
        }
        let mut missing = all(95);
        missing.truncate(300);
        assert!(matches!(judged(all(95), missing), Verdict::Wrong(_)));
        let lines = all(95);
        assert!(!StockList::of(lines.clone(), Protocol::Line).is_cut);
        assert!(!StockList::of(lines[..400].to_vec(), Protocol::Padded).is_cut);
        assert!(StockList::of(lines, Protocol::Padded).is_cut);
    }

    #[test]
    fn impossible_answers_are_wrong() {
        let known = KnownStocks::new(&book([1, 1]));
        let trade = |side| Op::Trade(Order::new(side, 3, 1).unwrap());
        let done = |side| Response::Done { side, left: None, seq: None };
        let is_wrong =
            |op, response: &Response| matches!(known.judge(op, response), Verdict::Wrong(_));
        assert_eq!(known.judge(trade(Side::Buy), &done(Some(Side::Buy))), Verdict::Traded);
        assert!(is_wrong(trade(Side::Buy), &done(Some(Side::Sell))));
        assert!(is_wrong(trade(Side::Sell), &Response::NotEnough));
        assert!(is_wrong(trade(Side::Buy), &Response::TooMany));
        assert!(is_wrong(trade(Side::Buy), &Response::Unknown));
        assert!(is_wrong(Op::Show, &done(None)));
        let shown = |lines| Response::Shown { lines, seq: None };
        assert_eq!(known.judge(Op::Show, &shown(book([0, 9]).lines)), Verdict::Listed);
        assert!(is_wrong(Op::Show, &shown(book([0, 9]).lines[..1].to_vec())));
        let mut dearer = book([0, 9]);
        dearer.lines[1].price = 6;
        assert!(is_wrong(Op::Show, &shown(dearer.lines)));
    }

    #[test]
    fn request_and_log_numbers_that_do_not_fit_are_wrong() {
        let known = KnownStocks::new(&book([1, 1]));
        let buy = Op::Trade(Order::new(Side::Buy, 3, 1).unwrap());
        let mut latest = 0;
        let mut judge = |op, id, seq| {
            let response = match op {
                Op::Show => Response::Shown { lines: book([1, 1]).lines, seq },
                Op::Trade(_) => Response::Done { side: None, left: None, seq },
            };
            let reply = Reply { response, id: Some(id) };
            match known.judge_reply(op, 5, &reply, &mut latest) {
                Verdict::Wrong(reason) => reason,
                _ => String::new(),
            }
        };
        assert_eq!(judge(buy, 5, Some(7)), "");
        assert_eq!(judge(Op::Show, 5, Some(7)), "");
        assert_eq!(judge(Op::Show, 5, Some(6)), "log number 6 arrived after 7");
        assert_eq!(judge(buy, 5, Some(7)), "log number 7 arrived after 7");
        assert_eq!(judge(buy, 6, Some(8)), "the answer to request 5 has the number 6");
        assert_eq!(judge(Op::Show, 5, Some(9)), "");
        assert_eq!(judge(buy, 5, Some(9)), "log number 9 arrived after 9");
        assert_eq!(judge(buy, 5, None), "");
    }

    #[test]
    fn lost_and_invented_shares_are_found() {
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
