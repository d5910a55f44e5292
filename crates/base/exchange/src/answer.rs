//! Answers, before they are encoded in a protocol.

use crate::clients::OrderOutcome;
use crate::stock::{Line, Refused};
use std::sync::Arc;

/// All stocks at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Log number of the latest order included.
    pub seq: u64,
    /// The stocks, sorted by number.
    pub lines: Vec<Line>,
}

/// Why a request was not executed, or why its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The queue is full; the client may retry.
    Busy,
    /// The deadline passed before execution.
    Late,
    /// The order is older than the memory of its client.
    TooOld,
    /// The order was sent to the database, and the connection was lost before the outcome was
    /// known. Repeated with the same name and number, it executes once.
    Unsure,
}

/// Why bytes are not a valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Unknown command.
    Command,
    /// Wrong number of words, or a number that is malformed or out of range.
    Number,
    /// Request longer than [`LINE_MAX`](crate::LINE_MAX).
    TooLong,
    /// Invalid framing; the start of the next request cannot be found.
    Frame,
    /// Unsupported protocol version.
    Version,
    /// The token is missing or wrong.
    Token,
}

/// Answers that the codec knows without the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// The request is malformed.
    Fault(Fault),
    /// Greeting of the numbered protocol.
    Hello,
    /// Reply to a ping.
    Pong,
    /// End of the connection, if the protocol announces it.
    Bye,
    /// Reply to RESP commands that clients send at startup and that configure nothing here.
    Fine,
    /// Reply to RESP commands that is an empty list.
    Nothing,
    /// Unknown HTTP path.
    NoPage,
    /// Unsupported HTTP method.
    NoMethod,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The order was executed.
    Done {
        /// Shares left.
        left: u32,
        /// Number in the log.
        seq: u64,
    },
    /// The order was refused.
    Refused(Refused),
    /// List of all stocks.
    Shown(Arc<Shown>),
    /// The request was not executed, or its outcome is unknown.
    Stopped(Stop),
    /// Text for monitoring.
    Text(Arc<str>),
    /// An answer of the codec itself.
    Local(Local),
}

impl From<OrderOutcome> for Answer {
    fn from(outcome: OrderOutcome) -> Self {
        match outcome {
            OrderOutcome::Done { left, seq } => Self::Done { left, seq },
            OrderOutcome::Refused { why, .. } => Self::Refused(why),
        }
    }
}
