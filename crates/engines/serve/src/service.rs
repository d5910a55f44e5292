//! The interface used by every model: jobs in, answers out, and the server's counters.

use crate::choice::{Durability, Model, Sharing, ShowMode};
use crate::journal::{Journal, StoreFailed};
use crate::limits::Limits;
use crate::live::{Live, Secrets};
use crate::sharing::{Job, Strategy, spend};
use crate::transport::Transport;
use ioloom_exchange::{Answer, ClassicForm, Command, Exchange, Request, Session, Settings};
use ioloom_sys::clock;
use ioloom_sys_net::Waker;
use ioloom_tls::{Identity, SessionError};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Minimum interval between warnings about connections without TLS, in nanoseconds.
const WARN_INTERVAL_NS: u64 = 1_000_000_000;
/// Maximum length of a line in a stock list, in bytes.
const LINE_BYTES: usize = 33;

/// Counters since the server started.
#[derive(Debug, Default)]
pub struct Counts {
    /// Number of open connections.
    pub open: AtomicUsize,
    /// Number of accepted connections.
    pub accepted: AtomicU64,
    /// Number of connections rejected with `BUSY`.
    pub turned_away: AtomicU64,
    /// Number of connections closed because of a timeout.
    pub cut: AtomicU64,
    /// Number of connections closed because they did not use TLS or could not be decrypted.
    pub not_opened: AtomicU64,
    /// Number of orders answered as executed, including repetitions.
    pub done: AtomicU64,
    /// Number of refused orders.
    pub refused: AtomicU64,
    /// Number of lists of all stocks.
    pub shown: AtomicU64,
    /// Number of malformed requests.
    pub faults: AtomicU64,
}

/// State shared between the threads of a model.
pub(crate) struct Service {
    pub(crate) limits: Limits,
    pub(crate) live: Live,
    pub(crate) counts: Counts,
    pub(crate) model: Model,
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) journal: Arc<Journal>,
    sharing: Sharing,
    show: ShowMode,
    durability: Durability,
    store: String,
    stopping: AtomicBool,
    wakers: Vec<Arc<Waker>>,
    loops: usize,
    requests_at_once: usize,
    /// Number of sessions created.
    sessions: AtomicU64,
    warn: Option<fn(&str)>,
    /// Time of the latest warning about a connection without TLS; 0 if there was none.
    warned_ns: AtomicU64,
    /// CPU time to spend before executing each order and each list.
    service_time: Duration,
    /// Called after the last connection has closed.
    on_idle: Box<dyn Fn() + Send + Sync>,
}

pub(crate) struct ServiceParts {
    pub(crate) limits: Limits,
    pub(crate) model: Model,
    pub(crate) sharing: Sharing,
    pub(crate) show: ShowMode,
    pub(crate) durability: Durability,
    /// Description of the store.
    pub(crate) store: String,
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) wakers: Vec<Arc<Waker>>,
    pub(crate) loops: usize,
    pub(crate) secrets: Secrets,
    pub(crate) warn: Option<fn(&str)>,
    pub(crate) service_time: Duration,
    pub(crate) on_idle: Box<dyn Fn() + Send + Sync>,
}

/// A store for tests that does not store anything.
#[cfg(test)]
pub(crate) struct NullStore;

#[cfg(test)]
impl crate::store::Store for NullStore {
    fn commit(&mut self, _: &[ioloom_exchange::Record]) -> Result<(), crate::store::StoreError> {
        Ok(())
    }
    fn stock_hashes(&mut self) -> Result<Vec<u64>, crate::store::StoreError> {
        Ok(Vec::new())
    }
    fn set_stock_hashes(&mut self, _: &[u64]) -> Result<(), crate::store::StoreError> {
        Ok(())
    }
}

impl Service {
    pub(crate) fn new(parts: ServiceParts, settings: Settings, stocks: &Exchange) -> Self {
        let limits = parts.limits;
        // The answers to one turn of a connection should fit within the output limit.
        let list_bytes = match settings.classic {
            ClassicForm::Padded => ioloom_exchange::PADDED,
            ClassicForm::Line => stocks.len() * LINE_BYTES,
        };
        let list_bytes = list_bytes.max(stocks.len() * LINE_BYTES);
        let fitting = (2 * limits.output_bytes / list_bytes.max(1)).max(1);
        Self {
            requests_at_once: limits.requests_at_once.clamp(1, fitting),
            counts: Counts::default(),
            limits,
            model: parts.model,
            strategy: parts.strategy,
            journal: parts.journal,
            sharing: parts.sharing,
            show: parts.show,
            durability: parts.durability,
            store: parts.store,
            stopping: AtomicBool::new(false),
            wakers: parts.wakers,
            loops: parts.loops,
            live: Live::new(&limits, parts.secrets),
            sessions: AtomicU64::new(0),
            warn: parts.warn,
            warned_ns: AtomicU64::new(0),
            service_time: parts.service_time,
            on_idle: parts.on_idle,
        }
    }

    /// Creates a service with one stock and the specified store, for tests.
    #[cfg(test)]
    pub(crate) fn with_store(store: Box<dyn crate::store::Store>) -> Arc<Self> {
        let stocks = Exchange::from_text("1 1000 100\n").expect("the text must be valid");
        let journal = Arc::new(Journal::new(0, Some(store), Durability::Group));
        let state = ioloom_exchange::State::new(stocks.clone(), 0);
        let (sharing, show, held) = (Sharing::Global, ShowMode::Atomic, Duration::ZERO);
        let parts = crate::sharing::make(sharing, show, state, &journal, 1, held);
        let parts = ServiceParts {
            limits: Limits::default(),
            model: Model::Epoll,
            sharing,
            show,
            durability: Durability::Group,
            store: "test".to_owned(),
            strategy: parts.expect("this strategy starts no threads"),
            journal,
            wakers: (0..2)
                .map(|_| Arc::new(Waker::new().expect("a descriptor must be available")))
                .collect(),
            loops: 1,
            secrets: Secrets { access: None, identity: None },
            warn: None,
            service_time: Duration::ZERO,
            on_idle: Box::new(|| {}),
        };
        Arc::new(Self::new(parts, Settings::default(), &stocks))
    }

    /// Returns the maximum number of requests per connection and turn.
    pub(crate) fn requests_at_once(&self) -> usize {
        self.requests_at_once
    }

    /// Returns true if executing an order waits for another thread.
    #[cfg(feature = "tokio")]
    pub(crate) fn waits_for_threads(&self) -> bool {
        matches!(self.sharing, Sharing::Writer | Sharing::Shards | Sharing::Database)
    }

    /// Creates the transport of a new connection.
    pub(crate) fn transport(&self) -> Transport {
        let Secrets { access, identity } = self.live.secrets();
        let tls = identity.as_ref().map(Identity::session);
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        Transport::new(Session::new(access, number), tls)
    }

    /// Returns true if connections use TLS; nothing can then be sent before a handshake.
    pub(crate) fn is_sealed(&self) -> bool {
        self.live.is_sealed()
    }

    /// Counts a connection that could not be decrypted, and prints a warning at most once per
    /// second.
    pub(crate) fn tls_failed(&self, reason: &SessionError) {
        let count = self.counts.not_opened.fetch_add(1, Ordering::Relaxed) + 1;
        let (now_ns, warned_ns) = (clock::monotonic_ns(), self.warned_ns.load(Ordering::Relaxed));
        let is_soon = warned_ns != 0 && now_ns.saturating_sub(warned_ns) < WARN_INTERVAL_NS;
        let Some(warn) = self.warn.filter(|_| !is_soon) else { return };
        let mine = self.warned_ns.compare_exchange(
            warned_ns,
            now_ns,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if mine.is_ok() {
            warn(&format!(
                "closed a connection: {reason}, and this server requires TLS ({count} so far)"
            ));
        }
    }

    /// Creates the job for a request that has just arrived.
    pub(crate) fn job(token: usize, request: Request) -> Job {
        let due_ns =
            request.deadline_ms.map_or(0, |ms| clock::monotonic_ns() + u64::from(ms) * 1_000_000);
        Job { token, request, due_ns, answer: None }
    }

    /// Returns true if answers may have to wait for the disk, but for nothing else.
    pub(crate) fn commits_late(&self) -> bool {
        self.journal.keeps()
            && matches!(self.durability, Durability::Group | Durability::Each)
            && !matches!(self.sharing, Sharing::Writer | Sharing::Database)
    }

    /// Answers all jobs in order, and returns when the answers may be sent. If the store failed,
    /// the server is stopping and no answers may be sent.
    pub(crate) fn answer(&self, jobs: &mut Vec<Job>) -> Result<(), StoreFailed> {
        if jobs.is_empty() {
            return Ok(());
        }
        let seq = self.execute(jobs)?;
        self.wait(seq)?;
        self.count(jobs);
        Ok(())
    }

    /// Executes all jobs in order. Their answers may be sent, and are counted, once the store
    /// contains the returned log number; see [`Self::wait`].
    pub(crate) fn execute(&self, jobs: &mut Vec<Job>) -> Result<u64, StoreFailed> {
        let mut orders_and_lists = 0;
        for job in jobs.iter_mut().filter(|job| job.answer.is_none()) {
            job.answer = match &job.request.command {
                Command::Local(local) => Some(Answer::Local(local.clone())),
                Command::Health => Some(Answer::Text(self.health().into())),
                Command::Ready => Some(self.readiness()),
                Command::Metrics => Some(Answer::Text(self.metrics().into())),
                Command::Trade(_) | Command::Show => {
                    orders_and_lists += 1;
                    None
                }
            };
        }
        if orders_and_lists == 0 {
            return Ok(0);
        }
        spend(self.service_time * orders_and_lists);
        let answered = self.strategy.answer(jobs, &self.journal);
        answered.inspect_err(|StoreFailed| self.stop())
    }

    /// Returns once the store contains every order up to this number. If the store failed, the
    /// server is stopping.
    pub(crate) fn wait(&self, seq: u64) -> Result<(), StoreFailed> {
        self.journal.wait(seq).inspect_err(|StoreFailed| self.stop())
    }

    /// Counts answers that are being sent.
    pub(crate) fn count(&self, jobs: &[Job]) {
        debug_assert!(
            jobs.iter().all(|job| job.answer.is_some()),
            "a job without an answer would desynchronise its client"
        );
        let (mut done, mut refused, mut shown, mut faults) = (0, 0, 0, 0);
        for job in jobs {
            match &job.answer {
                Some(Answer::Done { .. }) => done += 1,
                Some(Answer::Refused(_)) => refused += 1,
                Some(Answer::Shown(_)) => shown += 1,
                Some(Answer::Local(ioloom_exchange::Local::Fault(_))) => faults += 1,
                _ => {}
            }
        }
        let add = |count: &AtomicU64, n: u64| {
            if n > 0 {
                count.fetch_add(n, Ordering::Relaxed);
            }
        };
        add(&self.counts.done, done);
        add(&self.counts.refused, refused);
        add(&self.counts.shown, shown);
        add(&self.counts.faults, faults);
    }

    /// Asks every thread of the model to stop.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for waker in &self.wakers {
            waker.wake();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns the waker of the thread with this number.
    pub(crate) fn waker(&self, thread: usize) -> &Arc<Waker> {
        &self.wakers[thread % self.wakers.len()]
    }

    /// Returns the number of loops of the model.
    pub(crate) fn loops(&self) -> usize {
        self.loops
    }

    /// Registers a connection, unless there are too many.
    pub(crate) fn admit(&self, most: usize) -> bool {
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let most = most.min(self.live.connections());
        let open = self.counts.open.fetch_add(1, Ordering::SeqCst);
        if open >= most {
            self.counts.turned_away.fetch_add(1, Ordering::Relaxed);
            self.leave();
            return false;
        }
        true
    }

    /// Unregisters a connection. After the last one, the stock file is written.
    pub(crate) fn leave(&self) {
        let open = self.counts.open.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(
            open > 0,
            "a connection was unregistered twice, so the limit would no longer hold"
        );
        if open == 1 {
            (self.on_idle)();
        }
    }

    /// Reports whether orders can be executed now.
    fn readiness(&self) -> Answer {
        match self.strategy.trouble() {
            _ if self.is_stopping() => Answer::NotReady("stopping\n".into()),
            Some(reason) => Answer::NotReady(format!("not ready: {reason}\n").into()),
            None => Answer::Text("ready\n".into()),
        }
    }

    /// Returns the state and all counters, for an operator.
    pub(crate) fn state(&self) -> String {
        let limits = format!(
            "limit connections {}\nlimit idle {:?}\nlimit request-time {:?}\n",
            self.live.connections(),
            self.live.idle(),
            self.live.request()
        );
        let metrics = self.metrics();
        let metrics = metrics.lines().filter(|line| !line.starts_with('#'));
        metrics.fold(self.health() + &limits, |text, line| text + line + "\n")
    }

    fn health(&self) -> String {
        let trouble = self.strategy.trouble();
        let state = match &trouble {
            _ if self.is_stopping() => "stopping",
            Some(_) => "trouble",
            None => "ok",
        };
        let mut text = format!(
            "{state}\nmodel {}\nsharing {}\nshow {}\ndurability {}\nstore {}\ntls {}\n",
            self.model,
            self.sharing,
            self.show,
            self.durability,
            self.store,
            if self.is_sealed() { "on" } else { "off" }
        );
        if let Some(reason) = trouble {
            let _ = writeln!(text, "trouble {reason}");
        }
        text
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        let counts = &self.counts;
        let mut put = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(
                text,
                "# HELP ioloom_{name} {help}\n# TYPE ioloom_{name} {kind}\nioloom_{name} {value}"
            );
        };
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let open = counts.open.load(Ordering::Relaxed) as u64;
        put("connections", "gauge", "Open connections.", open);
        let accepted = of(&counts.accepted);
        put("connections_total", "counter", "Accepted connections.", accepted);
        let away = of(&counts.turned_away);
        put("connections_busy_total", "counter", "Connections rejected as busy.", away);
        put(
            "connections_cut_total",
            "counter",
            "Connections closed by a timeout.",
            of(&counts.cut),
        );
        let not_opened = of(&counts.not_opened);
        put(
            "connections_not_tls_total",
            "counter",
            "Connections closed for not using TLS.",
            not_opened,
        );
        put("orders_done_total", "counter", "Orders answered as executed.", of(&counts.done));
        put("orders_refused_total", "counter", "Refused orders.", of(&counts.refused));
        put("lists_total", "counter", "Lists of all stocks.", of(&counts.shown));
        put("faults_total", "counter", "Malformed requests.", of(&counts.faults));
        put("commits_total", "counter", "Commits of the store.", self.journal.commits());
        put("log_number", "gauge", "Number of the latest order.", self.journal.latest());
        text
    }
}
