//! The order log on its way to the store, with group commit.
//!
//! An order gets its log number while the stock that it changes is locked, so numbers and changes
//! have the same order. Before its answer is sent, its thread waits until the store contains
//! everything up to that number. The first waiting thread takes all gathered records and commits
//! them; records that arrive during the commit are gathered for the next one. So the slower the
//! disk, the larger the commits, and no thread waits for a timer.
//!
//! If the store fails, the server stops: no waiting order is ever acknowledged.

use crate::choice::Durability;
use crate::metrics::Histogram;
use crate::store::{Store, StoreError};
use ioloom_exchange::{Order, OrderOutcome, Record, Refused, RequestId};
use ioloom_sys::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// The store failed. The first thread that notices stores the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreFailed;

#[derive(Default)]
struct Gathering {
    records: Vec<Record>,
    /// Buffer of the previous commit, for reuse.
    spare: Vec<Record>,
    committed: u64,
    committing: bool,
    broken: bool,
    error: Option<StoreError>,
}

/// Stops the journal if a commit panics; otherwise all other threads would wait for it.
struct Committing<'a>(&'a Journal);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.gathering().committing = false;
            self.0.give_up();
        }
    }
}

/// Numbers orders and commits them to the store.
pub(crate) struct Journal {
    latest: AtomicU64,
    gathering: Mutex<Gathering>,
    changed: Condvar,
    store: Option<Mutex<Box<dyn Store>>>,
    durability: Durability,
    commits: AtomicU64,
    synced: Histogram,
}

impl Journal {
    /// Creates a journal in which `latest` is the number of the latest order. Without a store, the
    /// journal only assigns numbers.
    pub(crate) fn new(latest: u64, store: Option<Box<dyn Store>>, durability: Durability) -> Self {
        Self {
            latest: AtomicU64::new(latest),
            gathering: Mutex::new(Gathering { committed: latest, ..Gathering::default() }),
            changed: Condvar::new(),
            store: store.map(Mutex::new),
            durability,
            commits: AtomicU64::new(0),
            synced: Histogram::default(),
        }
    }

    /// Returns true if records are stored at all.
    pub(crate) fn keeps(&self) -> bool {
        self.store.is_some()
    }

    /// Returns the number of the latest order.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Ordering::SeqCst)
    }

    /// Returns the durations of synced commits.
    pub(crate) fn synced(&self) -> &Histogram {
        &self.synced
    }

    /// Returns the number of commits.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Counts a commit by a database, which assigns the numbers itself. All orders up to `latest`
    /// are known to be in the database.
    #[cfg(feature = "postgres")]
    pub(crate) fn committed_elsewhere(&self, latest: u64) {
        self.latest.fetch_max(latest, Ordering::SeqCst);
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes all records, already numbered up to `latest`. The caller must prevent concurrent
    /// calls. Takes one lock, and copies nothing if no other records are pending.
    pub(crate) fn push_all(&self, latest: u64, records: &mut Vec<Record>) {
        self.latest.store(latest, Ordering::SeqCst);
        if records.is_empty() {
            return;
        }
        debug_assert_eq!(
            records.last().map(|record| record.outcome.seq()),
            Some(latest),
            "the journal must receive every record; otherwise a waiter would return too early"
        );
        let mut gathering = self.gathering();
        if gathering.records.is_empty() {
            std::mem::swap(&mut gathering.records, records);
        } else {
            gathering.records.append(records);
        }
    }

    /// Assigns the next number to a record. Must be called while the stock that the record changes
    /// is locked.
    fn number(&self, make: impl FnOnce(u64) -> Record) -> u64 {
        if !self.keeps() {
            return self.latest.fetch_add(1, Ordering::SeqCst) + 1;
        }
        let mut gathering = self.gathering();
        let seq = self.latest.fetch_add(1, Ordering::SeqCst) + 1;
        gathering.records.push(make(seq));
        seq
    }

    /// Gives an order its log number and returns its outcome. Must be called while its stock is
    /// locked. A refusal gets a number only if the log must store it, which is the case if the
    /// order has an identity.
    pub(crate) fn log(
        &self,
        order: &Order,
        request_id: Option<&RequestId>,
        result: Result<u32, Refused>,
    ) -> Result<OrderOutcome, Refused> {
        let outcome = |seq| match result {
            Ok(left) => OrderOutcome::Done { left, seq },
            Err(why) => OrderOutcome::Refused { why, seq },
        };
        match result {
            Err(why) if request_id.is_none() => Err(why),
            _ => Ok(outcome(self.number(|seq| Record {
                order: *order,
                outcome: outcome(seq),
                request_id: request_id.cloned(),
            }))),
        }
    }

    /// Returns once the store contains every order up to `seq`.
    pub(crate) fn wait(&self, seq: u64) -> Result<(), StoreFailed> {
        let Some(store) = &self.store else { return Ok(()) };
        debug_assert!(seq <= self.latest(), "no commit would ever reach an unassigned number");
        let mut gathering = self.gathering();
        loop {
            if gathering.broken {
                return Err(StoreFailed);
            }
            if gathering.committed >= seq {
                return Ok(());
            }
            if gathering.committing {
                gathering = self.changed.wait(gathering).expect("the lock must not be poisoned");
                continue;
            }
            gathering.committing = true;
            let spare = std::mem::take(&mut gathering.spare);
            let mut records = std::mem::replace(&mut gathering.records, spare);
            debug_assert!(
                records.is_sorted_by(|a, b| a.outcome.seq() < b.outcome.seq()),
                "log records must be stored in numerical order"
            );
            drop(gathering);
            let committing = Committing(self);
            let result = self.commit(store, &records);
            drop(committing);
            gathering = self.gathering();
            gathering.committing = false;
            match result {
                Ok(()) => {
                    let last = records.last().map(|record| record.outcome.seq());
                    debug_assert!(
                        last.is_none_or(|last| last > gathering.committed),
                        "an acknowledged order must remain acknowledged"
                    );
                    gathering.committed = last.unwrap_or(gathering.committed);
                    records.clear();
                    gathering.spare = records;
                }
                Err(error) => {
                    gathering.broken = true;
                    gathering.error = Some(error);
                }
            }
            self.changed.notify_all();
        }
    }

    fn commit(&self, store: &Mutex<Box<dyn Store>>, records: &[Record]) -> Result<(), StoreError> {
        let mut store = store.lock().expect("the lock must not be poisoned");
        let chunk_len = if self.durability == Durability::Each { 1 } else { records.len().max(1) };
        // At `os` a commit takes about as long as reading the clock.
        let is_synced = matches!(self.durability, Durability::Group | Durability::Each);
        for records in records.chunks(chunk_len) {
            let began_ns = is_synced.then(clock::monotonic_ns);
            store.commit(records)?;
            if let Some(began_ns) = began_ns {
                self.synced.observe(clock::monotonic_ns() - began_ns, 1);
            }
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Calls `f` with the store.
    pub(crate) fn with_store<T>(&self, f: impl FnOnce(&mut dyn Store) -> T) -> Option<T> {
        let store = self.store.as_ref()?;
        Some(f(&mut **store.lock().expect("the lock must not be poisoned")))
    }

    /// Stops all acknowledgements because a store operation other than a commit failed. A failed
    /// sync may also have lost earlier writes.
    pub(crate) fn give_up(&self) {
        self.gathering().broken = true;
        self.changed.notify_all();
    }

    /// Takes the reason for the store failure.
    pub(crate) fn take_error(&self) -> Option<StoreError> {
        self.gathering().error.take()
    }

    fn gathering(&self) -> MutexGuard<'_, Gathering> {
        self.gathering.lock().expect("the lock must not be poisoned")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::Side;

    /// A store whose second commit panics.
    struct Panics(u32);

    impl Store for Panics {
        fn commit(&mut self, _: &[Record]) -> Result<(), StoreError> {
            self.0 += 1;
            assert!(self.0 < 2, "the second commit");
            Ok(())
        }
        fn set_stock_hashes(&mut self, _: &[u64]) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_in_a_commit_stops_the_journal() {
        let journal = Journal::new(0, Some(Box::new(Panics(0))), Durability::Group);
        let order = Order::new(Side::Buy, 1, 1).unwrap();
        let trade = || journal.log(&order, None, Ok(9)).unwrap().seq();
        assert_eq!(journal.wait(trade()), Ok(()));
        let second = trade();
        let panicked = std::thread::scope(|scope| scope.spawn(|| journal.wait(second)).join());
        assert!(panicked.is_err());
        assert!(journal.gathering().broken, "other threads would wait for ever");
        assert_eq!(journal.wait(second), Err(StoreFailed));
    }
}
