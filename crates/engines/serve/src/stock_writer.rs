//! Writes the stock file while the server runs and when it stops.
//!
//! The file is derived from the store. If it cannot be written, for example because its disk is
//! full, nothing is lost, and the server continues: it warns once, counts the failures and retries
//! with increasing delays on a thread that exists only until a retry succeeds.

use crate::error::ServeError;
use crate::service::Service;
use crate::stock_file::{self, StockLock};
use ioloom_failure::PathError;
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
    /// Log number of the latest order in the file, and its hash.
    written: Mutex<(u64, u64)>,
    error: Mutex<Option<ServeError>>,
    retrying: Mutex<Retrying>,
    stopping: Condvar,
}

#[derive(Default)]
struct Retrying {
    thread: Option<JoinHandle<()>>,
    /// Whether the latest write failed.
    is_failing: bool,
    is_stopping: bool,
}

impl StockWriter {
    pub(crate) fn new(lock: StockLock, written: (u64, u64)) -> Arc<Self> {
        Arc::new(Self {
            lock,
            service: OnceLock::new(),
            written: Mutex::new(written),
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
            Ok(()) => self.recovered(),
            // Until the server stops, the file is merely outdated.
            Err(ServeError::Database { .. }) => {}
            Err(ServeError::WriteStock(error)) => self.retry_later(&service, &error),
            Err(error) => {
                if matches!(error, ServeError::Store(_)) {
                    service.journal.give_up();
                }
                *self.error() = Some(error);
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
        self.try_write(&service)
    }

    fn try_write(&self, service: &Service) -> Result<(), ServeError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (exchange, seq) = service.strategy.snapshot()?;
        if seq == written.0 || service.journal.wait(seq).is_err() {
            return Ok(());
        }
        let text = exchange.to_text();
        let hash = stock_file::hash(&text);
        let journal = &service.journal;
        // Between these steps, either file may exist.
        journal.with_store(|store| store.set_stock_hashes(&[hash, written.1])).transpose()?;
        self.lock.write(&text)?;
        journal.with_store(|store| store.set_stock_hashes(&[hash])).transpose()?;
        *written = (seq, hash);
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
        if is_first {
            tracing::warn!(target: TARGET, "{error}; the server continues and retries");
        }
        let is_running = retrying.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if is_running || retrying.is_stopping {
            return;
        }
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("stock-file".to_owned());
        // Without a thread, the next client that leaves causes the next attempt.
        retrying.thread = thread.spawn(move || this.retry()).ok();
    }

    fn retry(self: Arc<Self>) {
        let mut delay = RETRY_FIRST;
        loop {
            let waited = self.stopping.wait_timeout_while(self.retrying(), delay, |retrying| {
                retrying.is_failing && !retrying.is_stopping
            });
            let (retrying, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !retrying.is_failing || retrying.is_stopping {
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
    use ioloom_exchange::Record;
    use ioloom_failure::Operation;
    use std::io;
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
            assert!(since.elapsed() < Duration::from_secs(20), "it is not retried");
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
