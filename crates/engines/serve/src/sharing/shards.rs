//! Stocks in shards, each owned by a thread that receives orders as messages. Stocks are not
//! locked.
//!
//! In each turn, orders from different connections are sent to their owners concurrently. Several
//! orders from one connection are sent one after another to preserve their order. An atomic list
//! stops all owners at a barrier: it shows the moment when the last owner arrives, and no owner
//! continues until all have added their stocks. Lists are sent one at a time, so all owners see
//! them in the same order and barriers cannot deadlock. Each requesting thread has at most one turn
//! in flight, which bounds the queues.

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
use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// An order on its way to the owner of its stock and back.
struct ShardOrder {
    /// Index of its job in the turn.
    at: usize,
    order: Order,
    request_id: Option<RequestId>,
    ended: Result<OrderOutcome, Refused>,
}

/// Where executed orders are returned.
#[derive(Default)]
struct ReplyQueue {
    back: Mutex<Vec<ShardOrder>>,
    arrived: Condvar,
}

impl ReplyQueue {
    fn put(&self, orders: Vec<ShardOrder>) {
        self.back.lock().expect("the lock must not be poisoned").extend(orders);
        self.arrived.notify_one();
    }

    fn wait_for(&self, count: usize) -> Vec<ShardOrder> {
        let mut back = self.back.lock().expect("the lock must not be poisoned");
        while back.len() < count {
            back = self.arrived.wait(back).expect("the lock must not be poisoned");
        }
        debug_assert_eq!(back.len(), count, "orders from another turn came back");
        std::mem::take(&mut back)
    }
}

/// A list to which every owner adds its stocks.
struct List {
    /// The barrier of the owners; `None` for a per-stock list.
    meet: Option<Barrier>,
    /// CPU time to spend while all owners wait.
    hold_time: Duration,
    collected: Mutex<Collected>,
    changed: Condvar,
}

impl List {
    /// Returns once all owners have arrived, if the list is atomic.
    fn meet(&self) {
        if let Some(meet) = &self.meet {
            meet.wait();
        }
    }
}

struct Collected {
    lines: Vec<Line>,
    seq: u64,
    missing: usize,
}

enum Message {
    Trade(Vec<ShardOrder>, Arc<ReplyQueue>),
    List(Arc<List>),
}

pub(super) struct Shards {
    /// Empty when the threads must exit.
    owners: Vec<Sender<Message>>,
    threads: Vec<JoinHandle<()>>,
    /// The numbers of all stocks in ascending order; the index selects the owner.
    ids: Vec<u32>,
    named: RequestMemory,
    /// Locked while a list is being sent.
    listing: Mutex<()>,
    access: Access,
    journal: Arc<Journal>,
}

thread_local! {
    /// Reply queue of this thread, which never has more than one turn in flight.
    static REPLIES: Arc<ReplyQueue> = Arc::default();
}

impl Shards {
    pub(super) fn new(
        state: State,
        access: Access,
        journal: &Arc<Journal>,
        shards: usize,
    ) -> io::Result<Self> {
        let lines: Vec<Line> = state.exchange().lines().collect();
        let count = shards.clamp(1, lines.len().max(1));
        let mut all = Self {
            owners: Vec::new(),
            threads: Vec::new(),
            ids: lines.iter().map(|line| line.id).collect(),
            named: RequestMemory::new(state.clients()),
            listing: Mutex::new(()),
            access,
            journal: Arc::clone(journal),
        };
        for number in 0..count {
            let mine: Vec<Line> = lines.iter().skip(number).step_by(count).copied().collect();
            let (sender, receiver) = channel();
            let journal = Arc::clone(journal);
            let builder = std::thread::Builder::new().name(format!("shard-{number}"));
            let owner = Owner { mine, is_first: number == 0, hold_time: access.hold_time };
            all.threads.push(builder.spawn(move || owner.work(&journal, &receiver))?);
            all.owners.push(sender);
        }
        Ok(all)
    }

    /// Returns the owner of a stock, or any owner if the stock does not exist.
    fn owner(&self, stock: u32) -> usize {
        self.ids.binary_search(&stock).unwrap_or_default() % self.owners.len()
    }

    fn send(&self, owner: usize, messages: Message) {
        let sent = self.owners[owner].send(messages);
        assert!(sent.is_ok(), "owners must outlive their handle");
    }

    /// Executes orders, concurrently if they have different owners.
    fn trade(&self, orders: Vec<ShardOrder>) -> Vec<ShardOrder> {
        let count = orders.len();
        let replies = REPLIES.with(Arc::clone);
        let mut by_owner: Vec<Vec<ShardOrder>> = self.owners.iter().map(|_| Vec::new()).collect();
        for order in orders {
            by_owner[self.owner(order.order.stock())].push(order);
        }
        for (owner, orders) in by_owner.into_iter().enumerate() {
            if !orders.is_empty() {
                self.send(owner, Message::Trade(orders, Arc::clone(&replies)));
            }
        }
        replies.wait_for(count)
    }

    fn shown(&self, Access { show, hold_time }: Access) -> Shown {
        let count = self.owners.len();
        let list = Arc::new(List {
            meet: (show == ShowMode::Atomic).then(|| Barrier::new(count)),
            hold_time,
            collected: Mutex::new(Collected { lines: Vec::new(), seq: 0, missing: count }),
            changed: Condvar::new(),
        });
        {
            let _one_at_a_time = self.listing.lock().expect("the lock must not be poisoned");
            for owner in 0..count {
                self.send(owner, Message::List(Arc::clone(&list)));
            }
        }
        let collected = list.collected.lock().expect("the lock must not be poisoned");
        let waited = list.changed.wait_while(collected, |collected| collected.missing > 0);
        let mut collected = waited.expect("the lock must not be poisoned");
        let mut lines = std::mem::take(&mut collected.lines);
        lines.sort_unstable_by_key(|line| line.id);
        Shown { seq: collected.seq, lines }
    }

    fn answer_named(&self, order: Order, request_id: &RequestId) -> Answer {
        self.named.once(request_id, &order, || {
            let ended = Err(Refused::UnknownStock);
            let order = ShardOrder { at: 0, order, request_id: Some(request_id.clone()), ended };
            let ended = self.trade(vec![order]).pop().map_or(ended, |order| order.ended);
            // Every outcome of a named order gets a number.
            ended.unwrap_or_else(|why| OrderOutcome::Refused { why, seq: self.journal.latest() })
        })
    }

    /// Answers consecutive jobs of different connections.
    fn answer_run(&self, jobs: &mut [Job]) {
        let mut orders = Vec::new();
        for (at, job) in jobs.iter_mut().enumerate() {
            if !job.is_open(|request_id, order| self.named.seen(request_id, order)) {
                continue;
            }
            match (&job.request.command, &job.request.request_id) {
                (Command::Trade(order), None) => {
                    let ended = Err(Refused::UnknownStock);
                    orders.push(ShardOrder { at, order: *order, request_id: None, ended });
                }
                (Command::Trade(order), Some(request_id)) => {
                    job.answer = Some(self.answer_named(*order, request_id))
                }
                _ => job.answer = Some(Answer::Shown(Arc::new(self.shown(self.access)))),
            }
        }
        if orders.is_empty() {
            return;
        }
        for order in self.trade(orders) {
            jobs[order.at].answer = Some(order.ended.map_or_else(Answer::Refused, Answer::from));
        }
    }
}

impl Strategy for Shards {
    fn answer(&self, jobs: &mut Vec<Job>, journal: &Journal) -> Result<u64, StoreFailed> {
        let mut from = 0;
        let mut seen = HashSet::new();
        for at in 0..jobs.len() {
            if !seen.insert(jobs[at].token) {
                self.answer_run(&mut jobs[from..at]);
                from = at;
                seen.clear();
                seen.insert(jobs[at].token);
            }
        }
        self.answer_run(&mut jobs[from..]);
        Ok(journal.latest())
    }

    fn snapshot(&self) -> Result<(Exchange, u64), ServeError> {
        let shown = self.shown(Access { show: ShowMode::Atomic, hold_time: Duration::ZERO });
        Ok((shown.lines.into_iter().collect(), shown.seq))
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.owners.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The stocks of one thread.
struct Owner {
    mine: Vec<Line>,
    is_first: bool,
    /// CPU time that each order spends here.
    hold_time: Duration,
}

impl Owner {
    fn work(mut self, journal: &Journal, messages: &Receiver<Message>) {
        while let Ok(messages) = messages.recv() {
            match messages {
                Message::Trade(mut orders, replies) => {
                    for order in &mut orders {
                        spend(self.hold_time);
                        let ended = trade(&mut self.mine, &order.order);
                        order.ended = journal.log(&order.order, order.request_id.as_ref(), ended);
                    }
                    replies.put(orders);
                }
                Message::List(list) => {
                    // All owners have arrived, so the latest log number matches the stocks they
                    // hold.
                    list.meet();
                    // The others wait while one owner spends the time for the list.
                    if self.is_first {
                        spend(list.hold_time);
                    }
                    collect(&self.mine, &list, journal);
                    // No owner continues until all have read that number.
                    list.meet();
                }
            }
        }
    }
}

fn collect(mine: &[Line], list: &List, journal: &Journal) {
    let mut collected = list.collected.lock().expect("the lock must not be poisoned");
    collected.lines.extend_from_slice(mine);
    collected.seq = journal.latest();
    debug_assert!(collected.missing > 0, "an owner added its stocks twice");
    collected.missing -= 1;
    if collected.missing == 0 {
        list.changed.notify_one();
    }
}

fn trade(mine: &mut [Line], order: &Order) -> Result<u32, Refused> {
    let at = mine.binary_search_by_key(&order.stock(), |line| line.id);
    let line = &mut mine[at.map_err(|_| Refused::UnknownStock)?];
    let mut stock = Stock { left: line.left, price: line.price };
    line.left = stock.trade(order.side(), order.count())?;
    Ok(line.left)
}
