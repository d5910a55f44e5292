//! Stocks and orders.
//!
//! All counts fit in the signed 32-bit integers of the original clients, and no sum exceeds that
//! range.

use std::sync::Arc;

/// Maximum order count, and maximum number of shares left per stock.
pub const COUNT_MAX: u32 = i32::MAX as u32;

/// Direction of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client buys, which reduces the shares left.
    Buy,
    /// The client sells, which increases the shares left.
    Sell,
}

/// An order whose count is between 1 and [`COUNT_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Order {
    side: Side,
    stock: u32,
    count: u32,
}

impl Order {
    /// Creates an order, or returns `None` if the count is out of range.
    pub fn new(side: Side, stock: u32, count: u32) -> Option<Self> {
        (1..=COUNT_MAX).contains(&count).then_some(Self { side, stock, count })
    }

    /// Returns the side.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the stock number.
    pub fn stock(&self) -> u32 {
        self.stock
    }

    /// Returns the number of shares.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// Why an order was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Fewer shares are left than ordered.
    NotEnough,
    /// No stock has this number.
    UnknownStock,
    /// More than [`COUNT_MAX`] shares would be left.
    TooMany,
}

impl Refused {
    /// All reasons, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::NotEnough, Self::UnknownStock, Self::TooMany];

    /// Returns the code used in protocols and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotEnough => "not-enough",
            Self::UnknownStock => "unknown-stock",
            Self::TooMany => "too-many",
        }
    }
}

/// Remaining shares and price of a stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stock {
    /// Number of shares available.
    pub left: u32,
    /// Price per share; constant.
    pub price: u32,
}

impl Stock {
    /// Executes an order and returns the number of shares left. Changes nothing on error.
    pub fn trade(&mut self, side: Side, count: u32) -> Result<u32, Refused> {
        self.left = left_after(self.left, side, count)?;
        Ok(self.left)
    }
}

/// Returns the number of shares left after an order of `count` shares.
pub(crate) fn left_after(left: u32, side: Side, count: u32) -> Result<u32, Refused> {
    match side {
        Side::Buy => left.checked_sub(count).ok_or(Refused::NotEnough),
        Side::Sell => {
            left.checked_add(count).filter(|left| *left <= COUNT_MAX).ok_or(Refused::TooMany)
        }
    }
}

impl Order {
    /// Returns the number of shares left after this order, for callers that store the number
    /// elsewhere, such as in an atomic.
    pub fn left_after(&self, left: u32) -> Result<u32, Refused> {
        left_after(left, self.side, self.count)
    }
}

/// One line of a stock list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Stock number.
    pub id: u32,
    /// Shares left.
    pub left: u32,
    /// Price per share.
    pub price: u32,
}

/// Identifies an order of a named client. Two requests with the same identity must be for the same order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Name chosen by the client.
    pub client: Arc<str>,
    /// Number assigned by the client.
    pub request: u64,
}
