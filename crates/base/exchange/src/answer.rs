//! What can be answered, before it is spelled in a protocol.

use crate::clients::OrderOutcome;
use crate::stock::{Line, Refused};
use std::sync::Arc;

/// All stocks at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The number of the latest order that they hold.
    pub seq: u64,
    /// In the order of their numbers.
    pub lines: Vec<Line>,
}

/// Why a request has no answer of its own: it was not even tried, or nobody can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Too much is waiting; the client may try again.
    Busy,
    /// Its deadline passed before its turn came.
    Late,
    /// It is older than what is remembered of its client.
    TooOld,
    /// It was tried, and whether it was carried out is not known: what keeps the stocks was lost
    /// meanwhile. Sent again under the same name and number it counts once.
    Unsure,
}

/// What is wrong with bytes that are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No such command.
    Command,
    /// The wrong count of words, or a number that is none or out of range.
    Number,
    /// A request longer than [`LINE_MAX`](crate::LINE_MAX).
    TooLong,
    /// A frame that cannot be; what follows cannot be told apart any more.
    Frame,
    /// A protocol of another version.
    Version,
    /// The server asks for a token, and none or another one was shown.
    Token,
}

/// What the codec answers by itself, in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// Bytes that are no request.
    Fault(Fault),
    /// The greeting of the numbered protocol.
    Hello,
    /// A sign of life.
    Pong,
    /// The end of a connection, where the protocol has a word for it.
    Bye,
    /// A question that clients of RESP ask before they begin; nothing is configured by it.
    Fine,
    /// A question of RESP that is answered with an empty list.
    Nothing,
    /// A page that does not exist.
    NoPage,
    /// A way to ask for a page that is not offered.
    NoMethod,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The order was carried out.
    Done {
        /// What is left.
        left: u32,
        /// Its number in the log.
        seq: u64,
    },
    /// The order changed nothing.
    Refused(Refused),
    /// All stocks.
    Shown(Arc<Shown>),
    /// The request was not tried, or nobody can tell whether it was carried out.
    Stopped(Stop),
    /// A text for machines or people that watch the server.
    Text(Arc<str>),
    /// What the codec knows by itself.
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
