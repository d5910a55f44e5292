//! How threads share the stocks.
//!
//! Every strategy answers the same jobs with the same words; they differ in who waits for whom. A
//! list of all stocks is of one moment in each of them, unless the list of the assignment, stock by
//! stock, was asked for. A strategy tells up to which number of the log the store must be before
//! its answers may leave: also a refusal and a list tell something of the orders before them.

mod atomic;
#[cfg(feature = "postgres")]
pub(crate) mod database;
mod desk;
mod global;
mod locks;
mod shards;
mod writer;

use crate::choice::{Sharing, ShowMode};
use crate::error::ServeError;
use crate::journal::{Broken, Journal};
use ioloom_exchange::{
    Answer, Command, Exchange, Order, OrderOutcome, Record, Refused, Request, RequestId, Seen,
    State, Stop,
};
use ioloom_sys::clock;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Job {
    /// The connection that it came from, in the words of its model.
    pub(crate) token: usize,
    /// What is asked for.
    pub(crate) request: Request,
    /// When its deadline is over, monotonic nanoseconds; 0 without one.
    pub(crate) due_ns: u64,
    /// The answer, once there is one.
    pub(crate) answer: Option<Answer>,
}

impl Job {
    /// Whether the exchange has to answer it.
    fn asks(&self) -> bool {
        self.answer.is_none() && matches!(self.request.command, Command::Trade(_) | Command::Show)
    }

    /// Whether the exchange has to answer it, and in time; else the answer is set. `seen` tells what is
    /// known of an order: one that was answered before has that answer, however late it is repeated,
    /// since `late` would say that it was not carried out.
    fn is_open(&mut self, seen: impl FnOnce(&RequestId) -> Seen) -> bool {
        if !self.asks() {
            return false;
        }
        if self.due_ns == 0 || clock::monotonic_ns() <= self.due_ns {
            return true;
        }
        self.answer = Some(match self.request.request_id.as_ref().map_or(Seen::New, seen) {
            Seen::New => Answer::Stopped(Stop::Late),
            Seen::Before(outcome) => outcome.into(),
            Seen::TooOld => Answer::Stopped(Stop::TooOld),
        });
        false
    }
}

/// A strategy.
pub(crate) trait Strategy: Send + Sync {
    /// Answers what asks for stocks, in order. The answers may leave once the store holds the number
    /// of the log that is returned; it is 0 where the strategy has waited for the store itself.
    fn answer(&self, jobs: &mut Vec<Job>, journal: &Journal) -> Result<u64, Broken>;

    /// The stocks now, with the number of the latest order that they hold.
    fn snapshot(&self) -> Result<(Exchange, u64), ServeError>;

    /// Why orders cannot be carried out now, if something outside of the server is the reason.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Makes a strategy for a state; `cores` is how many shards there are, and `held` the processor time
/// that each order and each list takes while it holds what it needs.
pub(crate) fn make(
    sharing: Sharing,
    show: ShowMode,
    state: State,
    journal: &Arc<Journal>,
    cores: usize,
    held: Duration,
) -> Result<Box<dyn Strategy>, std::io::Error> {
    let locked = locks::Way { show, held };
    Ok(match sharing {
        Sharing::Global => Box::new(global::Global::new(Alone::new(state, held))),
        Sharing::Stock => Box::new(locks::Locks::<Mutex<_>>::new(state, locked, journal)),
        Sharing::ReadWrite => Box::new(locks::Locks::<RwLock<_>>::new(state, locked, journal)),
        Sharing::Atomic => Box::new(atomic::Atomic::new(state, show, journal)),
        Sharing::Shards => Box::new(shards::Shards::new(state, locked, journal, cores)?),
        Sharing::Writer => {
            Box::new(writer::Writer::new(Alone::new(state, held), Arc::clone(journal))?)
        }
        // Asked for without a database it was refused before.
        Sharing::Database => return Err(std::io::Error::other("there is no database")),
    })
}

/// Gives an order that ended its number in the log, while its stock is held. A refusal gets one only
/// if the log must hold it.
fn numbered(
    journal: &Journal,
    order: &Order,
    request_id: Option<&RequestId>,
    ended: Result<u32, Refused>,
) -> Result<OrderOutcome, Refused> {
    let outcome = |seq| match ended {
        Ok(left) => OrderOutcome::Done { left, seq },
        Err(why) => OrderOutcome::Refused { why, seq },
    };
    let record =
        |seq| Record { order: *order, outcome: outcome(seq), request_id: request_id.cloned() };
    match ended {
        Err(why) if request_id.is_none() => Err(why),
        _ => Ok(outcome(journal.number(record))),
    }
}

/// Keeps the calling thread busy for so much time of its processor. Time in which others have the
/// processor does not count, or many threads could spend more of it than there is.
pub(crate) fn spend(time: Duration) {
    if time.is_zero() {
        return;
    }
    let end = u128::from(clock::thread_cpu_ns()) + time.as_nanos();
    while u128::from(clock::thread_cpu_ns()) < end {
        std::hint::spin_loop();
    }
}

/// A state that one thread at a time uses, and the records of a turn on their way to the log.
struct Alone {
    state: State,
    records: Vec<Record>,
    /// Processor time that each order and each list takes here.
    held: Duration,
}

impl Alone {
    fn new(state: State, held: Duration) -> Self {
        Self { state, records: Vec::new(), held }
    }

    /// Answers jobs and hands their records over in one go; returns the number that the answers rest
    /// on.
    fn answer(&mut self, jobs: &mut [Job], journal: &Journal) -> u64 {
        let (state, keeps) = (&mut self.state, journal.keeps());
        for job in jobs {
            if !job.is_open(|request_id| state.clients().seen(request_id)) {
                continue;
            }
            spend(self.held);
            job.answer = Some(match job.request.command {
                Command::Trade(order) => {
                    let (answer, record) = state.trade(&order, job.request.request_id.as_ref());
                    self.records.extend(record.filter(|_| keeps));
                    answer
                }
                _ => Answer::Shown(state.show()),
            });
        }
        journal.push_all(state.seq(), &mut self.records);
        state.seq()
    }

    fn snapshot(&self) -> (Exchange, u64) {
        (self.state.exchange().clone(), self.state.seq())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_spent_on_the_processor() {
        let began = clock::thread_cpu_ns();
        spend(Duration::from_millis(2));
        assert!(clock::thread_cpu_ns() - began >= 2_000_000);
    }
}
