//! Answers before protocol encoding.

use crate::clients::OrderOutcome;
use crate::stock::{Line, Refused};
use std::sync::Arc;

/// All stocks at one point in time.
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
    /// The queue is full; the client can retry.
    Busy,
    /// The deadline passed before execution.
    Late,
    /// The order is older than the remembered history of its client.
    TooOld,
    /// The client used the number for another order.
    Reused,
    /// The order was sent to the database, but the connection was lost before the outcome was
    /// known. Repeating it with the same name and number is safe: it executes once.
    Unsure,
}

impl Stop {
    /// All reasons, in the order of declaration.
    pub const ALL: [Self; 5] = [Self::Busy, Self::Late, Self::TooOld, Self::Reused, Self::Unsure];

    /// Returns the code used in protocols and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Late => "late",
            Self::TooOld => "too-old",
            Self::Reused => "number-reused",
            Self::Unsure => "unknown-outcome",
        }
    }
}

/// Why bytes do not form a valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Unknown command.
    Command,
    /// Wrong number of words, or a malformed or out-of-range number.
    Number,
    /// Request longer than [`LINE_MAX`](crate::LINE_MAX).
    TooLong,
    /// Invalid framing; the start of the next request cannot be determined.
    Frame,
    /// Unsupported protocol version.
    Version,
    /// The token is missing or wrong.
    Token,
    /// The presented token does not permit orders.
    Rights,
    /// HTTP/1.1 without exactly one valid `Host` field.
    Host,
}

impl Fault {
    /// All faults, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Command,
        Self::Number,
        Self::TooLong,
        Self::Frame,
        Self::Version,
        Self::Token,
        Self::Rights,
        Self::Host,
    ];

    /// Returns the code used in protocols and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::Command => "unknown-command",
            Self::Number => "bad-number",
            Self::TooLong => "too-long",
            Self::Frame => "bad-frame",
            Self::Version => "unknown-version",
            Self::Token => "no-token",
            Self::Rights => "read-only",
            Self::Host => "bad-host",
        }
    }
}

/// Answers that the codec produces without the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// The request is malformed.
    Fault(Fault),
    /// Greeting of the numbered protocol.
    Hello,
    /// Reply to a ping.
    Pong,
    /// Farewell, if the protocol has one.
    Bye,
    /// Reply to startup commands of RESP clients that configure nothing here.
    Fine,
    /// A RESP reply, already encoded.
    Reply(Arc<[u8]>),
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
    /// Monitoring text.
    Text(Arc<str>),
    /// Why the server is not ready to serve.
    NotReady(Arc<str>),
    /// An answer produced by the codec itself.
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
