//! One lock per stock: a mutex or a reader-writer lock.
//!
//! The set of stocks never changes, so lookups need no lock. An order locks only its stock and gets
//! its log number before unlocking it. An atomic list takes all locks in stock number order. A
//! per-stock list is what the assignment requires; it may show a state that never existed. Orders
//! of named clients also lock their client's request memory until they are logged.

use super::access::Access;
use super::cpu_time::spend;
use super::job::Job;
use super::request_memory::RequestMemory;
use super::strategy::Strategy;
use crate::choice::ShowMode;
use crate::error::ServeError;
use crate::journal::{Journal, StoreFailed};
use ioloom_exchange::{
    Answer, Command, Exchange, Line, Order, OrderOutcome, Refused, RequestId, Shown, State, Stock,
};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
/// A lock around one stock.
pub(super) trait Lock: Send + Sync {
    type Reading<'a>: Deref<Target = Stock>
    where
        Self: 'a;
    fn new(stock: Stock) -> Self;
    fn change<T>(&self, f: impl FnOnce(&mut Stock) -> T) -> T;
    fn read(&self) -> Self::Reading<'_>;
}

impl Lock for Mutex<Stock> {
    type Reading<'a> = MutexGuard<'a, Stock>;
    fn new(stock: Stock) -> Self {
        Self::new(stock)
    }
    fn change<T>(&self, f: impl FnOnce(&mut Stock) -> T) -> T {
        f(&mut self.lock().expect("the lock must not be poisoned"))
    }
    fn read(&self) -> Self::Reading<'_> {
        self.lock().expect("the lock must not be poisoned")
    }
}

impl Lock for RwLock<Stock> {
    type Reading<'a> = RwLockReadGuard<'a, Stock>;
    fn new(stock: Stock) -> Self {
        Self::new(stock)
    }
    fn change<T>(&self, f: impl FnOnce(&mut Stock) -> T) -> T {
        f(&mut self.write().expect("the lock must not be poisoned"))
    }
    fn read(&self) -> Self::Reading<'_> {
        self.read().expect("the lock must not be poisoned")
    }
}

pub(super) struct Locks<L> {
    ids: Vec<u32>,
    stocks: Vec<L>,
    named: RequestMemory,
    access: Access,
    journal: Arc<Journal>,
}

impl<L: Lock> Locks<L> {
    pub(super) fn new(state: State, access: Access, journal: &Arc<Journal>) -> Self {
        let lines: Vec<Line> = state.exchange().lines().collect();
        let stock = |line: &Line| L::new(Stock { left: line.left, price: line.price });
        Self {
            ids: lines.iter().map(|line| line.id).collect(),
            stocks: lines.iter().map(stock).collect(),
            named: RequestMemory::new(state.clients()),
            access,
            journal: Arc::clone(journal),
        }
    }

    /// Executes an order. A refusal gets a number only if the log must store it.
    fn trade(
        &self,
        order: &Order,
        request_id: Option<&RequestId>,
    ) -> Result<OrderOutcome, Refused> {
        let log = |result| self.journal.log(order, request_id, result);
        match self.ids.binary_search(&order.stock()) {
            Ok(at) => self.stocks[at].change(|stock| {
                spend(self.access.hold_time);
                log(stock.trade(order.side(), order.count()))
            }),
            Err(_) => {
                // The stock does not exist, so there is nothing to lock.
                spend(self.access.hold_time);
                log(Err(Refused::UnknownStock))
            }
        }
    }

    fn answer_one(&self, job: &Job) -> Answer {
        match (&job.request.command, &job.request.request_id) {
            (Command::Trade(order), None) => match self.trade(order, None) {
                Ok(outcome) => outcome.into(),
                Err(why) => Answer::Refused(why),
            },
            (Command::Trade(order), Some(request_id)) => self.named.once(request_id, order, || {
                // Every outcome of a named order gets a number.
                self.trade(order, Some(request_id))
                    .unwrap_or_else(|why| OrderOutcome::Refused { why, seq: self.journal.latest() })
            }),
            _ => Answer::Shown(Arc::new(self.shown())),
        }
    }

    fn shown(&self) -> Shown {
        let line =
            |(id, stock): (&u32, &Stock)| Line { id: *id, left: stock.left, price: stock.price };
        if self.access.show == ShowMode::PerStock {
            let lines = self.ids.iter().zip(&self.stocks);
            let lines = lines.map(|(id, stock)| line((id, &stock.read()))).collect();
            return Shown { seq: self.journal.latest(), lines };
        }
        let all: Vec<_> = self.stocks.iter().map(|stock| stock.read()).collect();
        spend(self.access.hold_time);
        let seq = self.journal.latest();
        Shown {
            seq,
            lines: self.ids.iter().zip(&all).map(|(id, stock)| line((id, &**stock))).collect(),
        }
    }
}

impl<L: Lock> Strategy for Locks<L> {
    fn answer(&self, jobs: &mut Vec<Job>, journal: &Journal) -> Result<u64, StoreFailed> {
        for job in jobs {
            if job.is_open(|request_id, order| self.named.seen(request_id, order)) {
                job.answer = Some(self.answer_one(job));
            }
        }
        Ok(journal.latest())
    }

    fn snapshot(&self) -> Result<(Exchange, u64), ServeError> {
        let all: Vec<_> = self.stocks.iter().map(|stock| stock.read()).collect();
        let line = |(id, stock): (&u32, &L::Reading<'_>)| Line {
            id: *id,
            left: stock.left,
            price: stock.price,
        };
        Ok((self.ids.iter().zip(&all).map(line).collect(), self.journal.latest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Durability;
    use ioloom_exchange::{Form, Request, Side};
    use ioloom_load::check::{Lists, STATES_MAX, Verdict, check};
    use ioloom_load::{Event, History, Op, Outcome};
    use std::cell::RefCell;
    use std::time::Duration;

    type Hook = (u32, Box<dyn FnOnce()>);

    thread_local! {
        /// Called right before the stock with this price is locked for reading.
        static BEFORE: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    struct Hooked(Mutex<Stock>, u32);

    impl Lock for Hooked {
        type Reading<'a> = MutexGuard<'a, Stock>;
        fn new(stock: Stock) -> Self {
            Self(Mutex::new(stock), stock.price)
        }
        fn change<T>(&self, f: impl FnOnce(&mut Stock) -> T) -> T {
            f(&mut self.0.lock().unwrap())
        }
        fn read(&self) -> Self::Reading<'_> {
            let is_this = |hook: &mut Hook| hook.0 == self.1;
            let hook = BEFORE.with_borrow_mut(|before| before.take_if(is_this));
            if let Some((_, hook)) = hook {
                hook();
            }
            self.0.lock().unwrap()
        }
    }

    fn locks(show: ShowMode) -> Arc<Locks<Hooked>> {
        let exchange = Exchange::from_text("1 10 100\n2 10 200\n").unwrap();
        let journal = Arc::new(Journal::new(0, None, Durability::None));
        let access = Access { show, hold_time: Duration::ZERO };
        Arc::new(Locks::new(State::new(exchange, 0), access, &journal))
    }

    fn answer(locks: &Locks<Hooked>, command: Command) -> Answer {
        let request = Request { command, request_id: None, deadline_ms: None, form: Form::Resp };
        let mut jobs = vec![Job { token: 0, request, due_ns: 0, answer: None }];
        locks.answer(&mut jobs, &locks.journal).unwrap();
        jobs.pop().unwrap().answer.unwrap()
    }

    fn trade(side: Side, stock: u32) -> Order {
        Order::new(side, stock, 1).unwrap()
    }

    /// Another client moves a share from the first stock to the second while a list is being read.
    #[test]
    fn per_stock_lists_show_impossible_states_and_the_checker_finds_them() {
        let locks = locks(ShowMode::PerStock);
        let (buy, sell) = (trade(Side::Buy, 1), trade(Side::Sell, 2));
        let other_client = Arc::clone(&locks);
        let hook = move || {
            assert!(matches!(
                answer(&other_client, Command::Trade(buy)),
                Answer::Done { left: 9, .. }
            ));
            assert!(matches!(
                answer(&other_client, Command::Trade(sell)),
                Answer::Done { left: 11, .. }
            ));
        };
        BEFORE.set(Some((200, Box::new(hook))));
        let Answer::Shown(shown) = answer(&locks, Command::Show) else { panic!("expected a list") };
        let left: Vec<u32> = shown.lines.iter().map(|line| line.left).collect();
        let event = |client, call_ns, ret_ns, op, outcome| Event {
            client,
            op,
            call_ns,
            ret_ns: Some(ret_ns),
            outcome,
        };
        let history = History {
            initial: Exchange::from_text("1 10 100\n2 10 200\n").unwrap().lines().collect(),
            events: vec![
                event(0, 1, 6, Op::Show, Outcome::Shown(left)),
                event(1, 2, 3, Op::Trade(buy), Outcome::Done(Some(9))),
                event(1, 4, 5, Op::Trade(sell), Outcome::Done(Some(11))),
            ],
        };
        let atomic = check(&history, Lists::Atomic, STATES_MAX);
        assert!(matches!(atomic, Verdict::Violated { .. }), "{atomic:?}");
        // It satisfies the assignment, but nothing stronger.
        assert_eq!(check(&history, Lists::PerStock, STATES_MAX), Verdict::Explained);
    }

    #[test]
    fn atomic_lists_hold_the_first_stock_while_reading_the_second() {
        let locks = locks(ShowMode::Atomic);
        let other_client = Arc::clone(&locks);
        let hook = move || assert!(other_client.stocks[0].0.try_lock().is_err());
        BEFORE.set(Some((200, Box::new(hook))));
        assert!(matches!(answer(&locks, Command::Show), Answer::Shown(_)));
        assert!(BEFORE.with_borrow(Option::is_none), "the second stock must be read");
    }
}
