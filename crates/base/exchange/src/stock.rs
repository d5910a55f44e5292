//! One stock and one order. All counts fit the signed 32-bit integers of the original clients, and no
//! sum leaves that range.

use std::sync::Arc;

/// The largest count of an order and of what is left of a stock.
pub const COUNT_MAX: u32 = i32::MAX as u32;

/// What an order does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client buys: less is left.
    Buy,
    /// The client sells: more is left.
    Sell,
}

/// An order that makes sense by itself: the count is from 1 to [`COUNT_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Order {
    side: Side,
    stock: u32,
    count: u32,
}

impl Order {
    /// An order, if the count is one.
    pub fn new(side: Side, stock: u32, count: u32) -> Option<Self> {
        (1..=COUNT_MAX).contains(&count).then_some(Self { side, stock, count })
    }

    /// What it does.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The number of the stock.
    pub fn stock(&self) -> u32 {
        self.stock
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// Why an order changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Fewer are left than were asked for.
    NotEnough,
    /// No stock has this number.
    UnknownStock,
    /// More would be left than [`COUNT_MAX`].
    TooMany,
}

/// What is left of a stock, and its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stock {
    /// How many can be bought.
    pub left: u32,
    /// The price of one; it never changes.
    pub price: u32,
}

impl Stock {
    /// Carries an order out and tells what is left, or changes nothing.
    pub fn trade(&mut self, side: Side, count: u32) -> Result<u32, Refused> {
        self.left = left_after(self.left, side, count)?;
        Ok(self.left)
    }
}

/// What is left after an order of `count`, if that is possible.
pub(crate) fn left_after(left: u32, side: Side, count: u32) -> Result<u32, Refused> {
    match side {
        Side::Buy => left.checked_sub(count).ok_or(Refused::NotEnough),
        Side::Sell => {
            left.checked_add(count).filter(|left| *left <= COUNT_MAX).ok_or(Refused::TooMany)
        }
    }
}

impl Order {
    /// What would be left of `left` after this order: for those who keep the number elsewhere, as in
    /// an atomic.
    pub fn left_after(&self, left: u32) -> Result<u32, Refused> {
        left_after(left, self.side, self.count)
    }
}

/// A stock in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Its number.
    pub id: u32,
    /// What is left of it.
    pub left: u32,
    /// Its price.
    pub price: u32,
}

/// Who sent an order, and as which of its orders: the same twice is one order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// The name that the client gave itself.
    pub client: Arc<str>,
    /// The number that the client gave the order.
    pub request: u64,
}
