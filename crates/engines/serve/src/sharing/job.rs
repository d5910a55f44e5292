//! A request on its way through the server.

use ioloom_exchange::{Answer, Command, Order, Request, RequestId, Seen, Stop};
use ioloom_sys::clock;

/// A request on its way through the server.
#[derive(Debug)]
pub(crate) struct Job {
    /// The connection it came from, in the model's numbering.
    pub(crate) token: usize,
    /// The request.
    pub(crate) request: Request,
    /// Deadline in monotonic nanoseconds; 0 if there is none.
    pub(crate) due_ns: u64,
    /// The answer, once known.
    pub(crate) answer: Option<Answer>,
}

impl Job {
    /// Returns true if the exchange has to answer it.
    pub(super) fn needs_exchange(&self) -> bool {
        self.answer.is_none() && matches!(self.request.command, Command::Trade(_) | Command::Show)
    }

    /// Returns true if the exchange has to answer it and its deadline has not passed. After the
    /// deadline, sets the answer. `seen` looks up an order: an order that has been answered before
    /// gets the same answer again even after the deadline, because `late` means that it was not
    /// executed.
    pub(super) fn is_open(&mut self, seen: impl FnOnce(&RequestId, &Order) -> Seen) -> bool {
        if !self.needs_exchange() {
            return false;
        }
        if self.due_ns == 0 || clock::monotonic_ns() <= self.due_ns {
            return true;
        }
        let before = match (&self.request.request_id, &self.request.command) {
            (Some(request_id), Command::Trade(order)) => seen(request_id, order),
            _ => Seen::New,
        };
        self.answer = Some(match before {
            Seen::New => Answer::Stopped(Stop::Late),
            Seen::Before(outcome) => outcome.into(),
            Seen::Reused => Answer::Stopped(Stop::Reused),
            Seen::TooOld => Answer::Stopped(Stop::TooOld),
        });
        false
    }
}
