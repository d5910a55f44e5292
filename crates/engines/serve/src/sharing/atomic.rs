//! One atomic number per stock, without locks.
//!
//! An order updates the number with compare-and-swap. The change and its log number are two
//! separate steps, so this strategy cannot be durable, and the numbers in its answers count orders
//! without reflecting their sequence. An atomic list is read between two reads of the counters of
//! started and finished orders: if both are equal, no order was in progress. After [`TRIES`]
//! attempts, new orders are held back until the list has been read.

use super::job::Job;
use super::request_memory::RequestMemory;
use super::strategy::Strategy;
use crate::choice::ShowMode;
use crate::error::ServeError;
use crate::journal::{Journal, StoreFailed};
use ioloom_exchange::{
    Answer, Command, Exchange, Line, Order, OrderOutcome, Refused, RequestId, Shown, State,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::thread::yield_now;

/// Number of attempts to read a list before new orders are held back.
const TRIES: u32 = 64;

struct Cell {
    id: u32,
    price: u32,
    left: AtomicU32,
}

pub(super) struct Atomic {
    cells: Vec<Cell>,
    named: RequestMemory,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Number of lists that are holding orders back.
    holding: AtomicUsize,
    show: ShowMode,
    journal: Arc<Journal>,
}

impl Atomic {
    pub(super) fn new(state: State, show: ShowMode, journal: &Arc<Journal>) -> Self {
        let cell =
            |line: Line| Cell { id: line.id, price: line.price, left: AtomicU32::new(line.left) };
        Self {
            cells: state.exchange().lines().map(cell).collect(),
            named: RequestMemory::new(state.clients()),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            holding: AtomicUsize::new(0),
            show,
            journal: Arc::clone(journal),
        }
    }

    fn begin(&self) {
        loop {
            self.begun.fetch_add(1, SeqCst);
            if self.holding.load(SeqCst) == 0 {
                return;
            }
            self.ended.fetch_add(1, SeqCst);
            yield_now();
        }
    }

    fn trade(
        &self,
        order: &Order,
        request_id: Option<&RequestId>,
    ) -> Result<OrderOutcome, Refused> {
        self.begin();
        let ended = match self.cells.binary_search_by_key(&order.stock(), |cell| cell.id) {
            Err(_) => Err(Refused::UnknownStock),
            Ok(at) => {
                let mut why = Refused::NotEnough;
                let next = |left| match order.left_after(left) {
                    Ok(left) => Some(left),
                    Err(refused) => {
                        why = refused;
                        None
                    }
                };
                // This single step executes the order.
                let before = self.cells[at].left.fetch_update(SeqCst, SeqCst, next);
                before.map_err(|_| why).and_then(|left| order.left_after(left))
            }
        };
        let outcome = self.journal.log(order, request_id, ended);
        self.ended.fetch_add(1, SeqCst);
        outcome
    }

    fn read(&self) -> Shown {
        let line =
            |cell: &Cell| Line { id: cell.id, left: cell.left.load(SeqCst), price: cell.price };
        Shown { seq: self.journal.latest(), lines: self.cells.iter().map(line).collect() }
    }

    /// Reads a list unless an order is in progress.
    fn try_read(&self) -> Option<Shown> {
        let ended = self.ended.load(SeqCst);
        if self.begun.load(SeqCst) != ended {
            return None;
        }
        let shown = self.read();
        (self.begun.load(SeqCst) == ended).then_some(shown)
    }

    fn shown(&self) -> Shown {
        if self.show == ShowMode::PerStock {
            return self.read();
        }
        if let Some(shown) = (0..TRIES).find_map(|_| self.try_read()) {
            return shown;
        }
        self.holding.fetch_add(1, SeqCst);
        let shown = loop {
            // Orders that are held back still count as started for a moment, so the counters may
            // differ while they withdraw.
            if let Some(shown) = self.try_read() {
                break shown;
            }
            yield_now();
        };
        self.holding.fetch_sub(1, SeqCst);
        shown
    }

    fn answer_one(&self, job: &Job) -> Answer {
        match (&job.request.command, &job.request.request_id) {
            (Command::Trade(order), None) => {
                self.trade(order, None).map_or_else(Answer::Refused, Answer::from)
            }
            (Command::Trade(order), Some(request_id)) => self.named.once(request_id, order, || {
                self.trade(order, Some(request_id))
                    .unwrap_or_else(|why| OrderOutcome::Refused { why, seq: self.journal.latest() })
            }),
            _ => Answer::Shown(Arc::new(self.shown())),
        }
    }
}

impl Strategy for Atomic {
    fn answer(&self, jobs: &mut Vec<Job>, _: &Journal) -> Result<u64, StoreFailed> {
        for job in jobs {
            if job.is_open(|request_id, order| self.named.seen(request_id, order)) {
                job.answer = Some(self.answer_one(job));
            }
        }
        Ok(0)
    }

    fn snapshot(&self) -> Result<(Exchange, u64), ServeError> {
        let shown = self.shown();
        Ok((shown.lines.into_iter().collect(), shown.seq))
    }
}
