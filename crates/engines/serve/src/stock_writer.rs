//! Writes the stock file while the server runs and when it stops.
//!
//! The file is derived from the store. If it cannot be written, for example because its disk is
//! full, nothing is lost, and the server continues: it warns once, counts the failures and retries
//! with increasing delays on a thread that exists only until a retry succeeds.

use crate::error::ServeError;
use crate::service::Service;
use crate::stock_file::{self, StockLock};
use ioloom_failure::{Operation, PathError};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Target of log records.
const TARGET: &str = "ioloom::serve";
/// Delay before the first retry; each further delay is twice as long.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Maximum delay between retries.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The stock file, and what was last written to it.
pub(crate) struct StockWriter {
    lock: StockLock,
    service: OnceLock<Weak<Service>>,
    written: Mutex<Written>,
    error: Mutex<Option<ServeError>>,
    retrying: Mutex<Retrying>,
    stopping: Condvar,
}

/// What the stock file contains.
struct Written {
    /// Log number of the latest order in the file.
    seq: u64,
    /// Hash of the file.
    hash: u64,
    /// The same of a file that has the name already, but not certainly after a power failure.
    renamed: Option<(u64, u64)>,
}

#[derive(Default)]
struct Retrying {
    thread: Option<JoinHandle<()>>,
    /// Whether the thread makes further attempts.
    is_trying: bool,
    /// Whether the latest write failed.
    is_failing: bool,
    is_stopping: bool,
}

impl StockWriter {
    /// `written` is the log number of the latest order in the file, and its hash.
    pub(crate) fn new(lock: StockLock, (seq, hash): (u64, u64)) -> Arc<Self> {
        Arc::new(Self {
            lock,
            service: OnceLock::new(),
            written: Mutex::new(Written { seq, hash, renamed: None }),
            error: Mutex::new(None),
            retrying: Mutex::new(Retrying::default()),
            stopping: Condvar::new(),
        })
    }

    /// Returns a descriptor that keeps the stock file locked.
    pub(crate) fn keep_lock(&self) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
        self.lock.keep()
    }

    /// Sets the service, whose stocks are written.
    pub(crate) fn serve(&self, service: &Arc<Service>) {
        let _ = self.service.set(Arc::downgrade(service));
    }

    /// Writes the stock file unless nothing has changed. A failure is retried later, unless the
    /// store failed, which stops the server.
    pub(crate) fn write(self: &Arc<Self>) {
        let Some(service) = self.service.get().and_then(Weak::upgrade) else { return };
        match self.try_write(&service) {
            Ok(true) => self.recovered(),
            // The threads whose orders were not stored stop the server.
            Ok(false) => {}
            // Until the server stops, the file is merely outdated.
            Err(ServeError::Database { .. }) => {}
            Err(ServeError::WriteStock(error)) => self.retry_later(&service, &error),
            Err(error) => {
                let is_store = matches!(error, ServeError::Store(_));
                // First, because others look for the reason after they have noticed the failure.
                *self.error() = Some(error);
                if is_store {
                    service.journal.give_up();
                }
                service.stop();
            }
        }
    }

    /// Stops retrying and writes the stock file for the last time.
    pub(crate) fn finish(self: &Arc<Self>) -> Result<(), ServeError> {
        let thread = {
            let mut retrying = self.retrying();
            retrying.is_stopping = true;
            retrying.thread.take()
        };
        self.stopping.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        if let Some(error) = self.error().take() {
            return Err(error);
        }
        let Some(service) = self.service.get().and_then(Weak::upgrade) else { return Ok(()) };
        if self.try_write(&service)? {
            let verified =
                service.journal.with_store(|store| store.verify().map_err(ServeError::from));
            return verified.unwrap_or(Ok(()));
        }
        // The store failed after the server looked for its errors.
        let error = service.journal.take_error().map(ServeError::from);
        Err(error.or_else(|| self.error().take()).unwrap_or_else(|| {
            let reason = io::Error::other("the store failed earlier");
            ServeError::WriteStock(PathError::new(Operation::Write, self.lock.path(), reason))
        }))
    }

    /// Writes the stock file unless nothing has changed; returns false if the store failed earlier.
    fn try_write(&self, service: &Service) -> Result<bool, ServeError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (exchange, seq) = service.strategy.snapshot()?;
        if seq == written.seq {
            return Ok(true);
        }
        if service.journal.wait(seq).is_err() {
            return Ok(false);
        }
        // The store knows two hashes, so a third file must wait until the second is there to stay.
        self.settle(service, &mut written)?;
        if seq == written.seq {
            return Ok(true);
        }
        let text = exchange.to_text();
        let hash = stock_file::hash(&text);
        // Between these steps, either file may exist.
        let hashes = [hash, written.hash];
        service.journal.with_store(|store| store.set_stock_hashes(&hashes)).transpose()?;
        self.lock.write(&text)?;
        written.renamed = Some((seq, hash));
        self.settle(service, &mut written)?;
        Ok(true)
    }

    /// Syncs the name of a renamed file, which ends the time in which either file may exist.
    fn settle(&self, service: &Service, written: &mut Written) -> Result<(), ServeError> {
        let Some((seq, hash)) = written.renamed else { return Ok(()) };
        self.lock.sync_name()?;
        service.journal.with_store(|store| store.set_stock_hashes(&[hash])).transpose()?;
        *written = Written { seq, hash, renamed: None };
        Ok(())
    }

    fn recovered(&self) {
        let was_failing = std::mem::take(&mut self.retrying().is_failing);
        if was_failing {
            tracing::info!(target: TARGET, "the stock file was written again");
        }
    }

    fn retry_later(self: &Arc<Self>, service: &Service, error: &PathError) {
        service.counts.stock_file_failures.fetch_add(1, Ordering::Relaxed);
        let mut retrying = self.retrying();
        let is_first = !std::mem::replace(&mut retrying.is_failing, true);
        let is_alive = retrying.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        // A thread that has decided to end can still be alive.
        let is_trying = retrying.is_trying && is_alive;
        if !is_trying && !retrying.is_stopping {
            let this = Arc::clone(self);
            let thread = std::thread::Builder::new().name("stock-file".to_owned());
            // Without a thread, the next client that leaves causes the next attempt.
            retrying.thread = thread.spawn(move || this.retry()).ok();
            retrying.is_trying = retrying.thread.is_some();
        }
        // A log may be slow, and a stop waits for this lock.
        drop(retrying);
        if is_first {
            tracing::warn!(target: TARGET, "{error}; the server continues and retries");
        }
    }

    fn retry(self: Arc<Self>) {
        let mut delay = RETRY_FIRST;
        loop {
            let waited = self.stopping.wait_timeout_while(self.retrying(), delay, |retrying| {
                retrying.is_failing && !retrying.is_stopping
            });
            let (mut retrying, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !retrying.is_failing || retrying.is_stopping {
                retrying.is_trying = false;
                return;
            }
            drop(retrying);
            self.write();
            delay = (2 * delay).min(RETRY_MAX);
        }
    }

    fn retrying(&self) -> MutexGuard<'_, Retrying> {
        self.retrying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self) -> MutexGuard<'_, Option<ServeError>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Sharing;
    use crate::service::NullStore;
    use crate::store::{Store, StoreError};
    use ioloom_exchange::{Command, Form, Order, Record, Request, Side};
    use ioloom_sys::fault;
    use ioloom_testbed::alone;
    use std::path::Path;

    /// A store that can store orders but fails at everything else.
    struct Failing;

    impl Store for Failing {
        fn commit(&mut self, _: &[Record]) -> Result<(), StoreError> {
            Ok(())
        }
        fn set_stock_hashes(&mut self, _: &[u64]) -> Result<(), StoreError> {
            let (path, error) = (Path::new("x"), io::Error::other("no sync"));
            Err(StoreError::new(Operation::Write, path, error, "none"))
        }
    }

    /// A store that cannot store orders.
    struct Full;

    impl Store for Full {
        fn commit(&mut self, _: &[Record]) -> Result<(), StoreError> {
            let (path, error) = (Path::new("x"), io::Error::other("no space"));
            Err(StoreError::new(Operation::Write, path, error, "none"))
        }
        fn set_stock_hashes(&mut self, _: &[u64]) -> Result<(), StoreError> {
            Ok(())
        }
    }

    /// A store that keeps the hashes in the order in which it received them.
    struct Noting(Arc<Mutex<Vec<Vec<u64>>>>);

    impl Store for Noting {
        fn commit(&mut self, _: &[Record]) -> Result<(), StoreError> {
            Ok(())
        }
        fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
            self.0.lock().unwrap().push(hashes.to_vec());
            Ok(())
        }
    }

    /// Executes an order without waiting for the store.
    fn trade(service: &Service) {
        let command = Command::Trade(Order::new(Side::Buy, 1, 1).unwrap());
        let request = Request { command, request_id: None, deadline_ms: None, form: Form::Resp };
        assert_ne!(service.execute(&mut vec![Service::job(0, request)]).unwrap(), 0);
    }

    fn bench(store: Box<dyn Store>, dir: &Path) -> (Arc<Service>, Arc<StockWriter>) {
        let service = Service::with_store(store);
        std::fs::write(dir.join("stock.txt"), "1 1 1\n").unwrap();
        let lock = StockLock::take(&dir.join("stock.txt"), Sharing::Alone).unwrap();
        let writer = StockWriter::new(lock, (u64::MAX, 0));
        writer.serve(&service);
        (service, writer)
    }

    #[test]
    fn a_store_that_fails_at_the_stock_file_stops_acknowledgements() {
        let dir = tempfile::tempdir().unwrap();
        let (service, writer) = bench(Box::new(Failing), dir.path());
        assert!(service.wait(0).is_ok());
        writer.write();
        assert!(service.wait(0).is_err() && service.is_stopping());
        assert!(matches!(writer.finish(), Err(ServeError::Store(_))));
    }

    #[test]
    fn a_store_that_fails_at_the_last_write_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (service, writer) = bench(Box::new(Full), dir.path());
        trade(&service);
        assert!(matches!(writer.finish(), Err(ServeError::Store(_))));
        // Its reason was reported, but the file is still outdated.
        assert!(matches!(writer.finish(), Err(ServeError::WriteStock(_))));
        let text = std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
        assert_eq!(text, "1 1 1\n");
    }

    #[test]
    fn the_store_knows_a_renamed_file_whose_name_was_not_synced() {
        if !alone("stock_writer::tests::the_store_knows_a_renamed_file_whose_name_was_not_synced") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let noted = Arc::new(Mutex::new(Vec::new()));
        let (service, writer) = bench(Box::new(Noting(Arc::clone(&noted))), dir.path());
        fault::set("sync-stock-name:1:24");
        writer.write();
        let text = || std::fs::read_to_string(dir.path().join("stock.txt")).unwrap();
        let first = stock_file::hash(&text());
        assert_eq!(text(), "1 1000 100\n");
        trade(&service);
        writer.finish().unwrap();
        let second = stock_file::hash(&text());
        let expected = [vec![first, 0], vec![first], vec![second, first], vec![second]];
        assert_eq!(*noted.lock().unwrap(), expected);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_retried_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let (service, writer) = bench(Box::new(NullStore), dir.path());
        // Not even root can replace a directory by a file.
        let stock = dir.path().join("stock.txt");
        let block = || {
            std::fs::remove_file(&stock).unwrap();
            std::fs::create_dir(&stock).unwrap();
        };
        block();
        writer.write();
        writer.write();
        let failures = || service.counts.stock_file_failures.load(Ordering::Relaxed);
        assert!(failures() >= 2 && !service.is_stopping() && service.wait(0).is_ok());
        std::fs::remove_dir(&stock).unwrap();
        let since = std::time::Instant::now();
        let text = || std::fs::read_to_string(&stock).unwrap_or_default();
        while text() != "1 1000 100\n" {
            assert!(since.elapsed() < Duration::from_secs(60), "it is not retried");
            std::thread::sleep(Duration::from_millis(20));
        }
        writer.finish().unwrap();
        drop((service, writer));
        // The last attempt reports the failure.
        let (_service, writer) = bench(Box::new(NullStore), dir.path());
        block();
        writer.write();
        assert!(matches!(writer.finish(), Err(ServeError::WriteStock(_))));
    }
}
