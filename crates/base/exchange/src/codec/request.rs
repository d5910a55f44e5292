//! Requests and the settings that control how answers are encoded.

use crate::answer::{Fault, Local};
use crate::stock::{Order, RequestId, Side};
use crate::token::Rights;

/// Maximum request length in bytes, including the terminator.
pub const LINE_MAX: usize = 8192;
/// Length in bytes of padded answers in the original protocol.
pub const PADDED: usize = 8192;

/// Answer length in the original protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClassicForm {
    /// Pad every answer with NUL to [`PADDED`] bytes, as the original clients expect.
    #[default]
    Padded,
    /// Send only the answer text.
    Line,
    /// Send the answer text and a line [`END_MARK`], for clients that read lines until this one.
    Marked,
}

/// The line after an answer with [`ClassicForm::Marked`].
pub const END_MARK: &str = "EOF\n";

/// The two accepted spellings of "not enough".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spelling {
    /// `Not enough left stocks`, as in the assignment.
    #[default]
    Official,
    /// `Not enough left stock`, as in about half of the existing servers.
    Short,
}

/// Answer of the original protocol to an order for an unknown stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownStock {
    /// Report that the stock does not exist.
    #[default]
    Say,
    /// Answer like the first servers: success for a sale, "not enough" for a purchase.
    AsFirst,
}

/// Variants of the original protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// Answer length.
    pub classic: ClassicForm,
    /// Spelling of "not enough".
    pub spelling: Spelling,
    /// Answer for unknown stocks.
    pub unknown: UnknownStock,
}

/// Protocol used to encode an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The original protocol, with the side of the order, which its answers repeat.
    Classic(Option<Side>),
    /// The numbered protocol, with the number of the request if present.
    Numbered(Option<u64>),
    /// RESP.
    Resp,
    /// HTTP.
    Http {
        /// Whether the connection stays open.
        keep: bool,
        /// Whether to send the body; false for `HEAD`.
        page: bool,
    },
}

/// What a request does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Execute an order.
    Trade(Order),
    /// List all stocks.
    Show,
    /// Report the server counters.
    Metrics,
    /// Report the server state.
    Health,
    /// Report whether the server can execute orders.
    Ready,
    /// Send an answer that needs no access to the exchange.
    Local(Local),
}

/// A complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub command: Command,
    /// Identity of the request, used to detect repetitions.
    pub request_id: Option<RequestId>,
    /// Time in milliseconds after which the order must not be executed.
    pub deadline_ms: Option<u32>,
    /// How to encode the answer.
    pub form: Form,
}

impl Request {
    pub(super) fn plain(command: Command, form: Form) -> Self {
        Self { command, request_id: None, deadline_ms: None, form }
    }

    pub(super) fn local(local: Local, form: Form) -> Self {
        Self::plain(Command::Local(local), form)
    }

    pub(super) fn fault(fault: Fault, form: Form) -> Self {
        Self::local(Local::Fault(fault), form)
    }
}

/// Result of parsing the beginning of a buffer.
pub(super) enum Step {
    /// The request is incomplete.
    Need,
    /// The first bytes, this many, are to be skipped.
    Skip(usize),
    /// The first bytes, this many, are a request.
    Got(usize, Request),
    /// Like [`Got`](Self::Got), but the request presented a token, which is not required again. The
    /// rights change to those of the token, if any.
    Opened(usize, Request, Option<Rights>),
    /// A request that closes the connection; nothing after it is parsed.
    Last(Request),
}
