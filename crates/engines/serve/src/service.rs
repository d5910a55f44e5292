//! What every model calls: jobs in, answers out, and the figures of the server.

use crate::choice::{Durability, Model, Sharing, ShowMode};
use crate::journal::{Journal, StoreFailed};
use crate::limits::Limits;
use crate::sharing::{Job, Strategy, spend};
use crate::transport::Transport;
use ioloom_exchange::{Answer, ClassicForm, Command, Exchange, Request, Session, Settings, Token};
use ioloom_sys::clock;
use ioloom_sys_net::Waker;
use ioloom_tls::{Identity, SessionError};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Between two words about connections that could not be opened, nanoseconds.
const WARN_INTERVAL_NS: u64 = 1_000_000_000;
/// Bytes of a line in the list of all stocks, at most.
const LINE_BYTES: usize = 33;

/// Counts of a server since it started.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections that are open now.
    pub open: AtomicUsize,
    /// Connections that were accepted.
    pub accepted: AtomicU64,
    /// Connections that were turned away with `BUSY`.
    pub turned_away: AtomicU64,
    /// Connections that were cut because they took too long.
    pub cut: AtomicU64,
    /// Connections that were closed because what they sent was not TLS, or could not be opened.
    pub not_opened: AtomicU64,
    /// Orders that were answered as carried out, repetitions among them.
    pub done: AtomicU64,
    /// Orders that were refused.
    pub refused: AtomicU64,
    /// Lists of all stocks.
    pub shown: AtomicU64,
    /// Requests that were none.
    pub faults: AtomicU64,
}

/// What the threads of a model share.
pub(crate) struct Service {
    pub(crate) limits: Limits,
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
    token: Option<Token>,
    identity: Option<Identity>,
    warn: Option<fn(&str)>,
    /// When it was last told of a connection that could not be opened; 0 for never.
    warned_ns: AtomicU64,
    /// Processor time that each order and each list takes before it is carried out.
    service_time: Duration,
    /// Called when the last connection has gone.
    on_idle: Box<dyn Fn() + Send + Sync>,
}

pub(crate) struct ServiceParts {
    pub(crate) limits: Limits,
    pub(crate) model: Model,
    pub(crate) sharing: Sharing,
    pub(crate) show: ShowMode,
    pub(crate) durability: Durability,
    /// Where orders are kept, in words.
    pub(crate) store: String,
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) wakers: Vec<Arc<Waker>>,
    pub(crate) loops: usize,
    pub(crate) token: Option<Token>,
    pub(crate) identity: Option<Identity>,
    pub(crate) warn: Option<fn(&str)>,
    pub(crate) service_time: Duration,
    pub(crate) on_idle: Box<dyn Fn() + Send + Sync>,
}

/// A store of a test, which forgets everything.
#[cfg(test)]
pub(crate) struct Forgetful;

#[cfg(test)]
impl crate::store::Store for Forgetful {
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
        // What one turn of a connection may ask for must fit what may wait for it, or nearly so.
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
            token: parts.token,
            identity: parts.identity,
            warn: parts.warn,
            warned_ns: AtomicU64::new(0),
            service_time: parts.service_time,
            on_idle: parts.on_idle,
        }
    }

    /// One of a test, that keeps the orders of a stock in a store.
    #[cfg(test)]
    pub(crate) fn before(store: Box<dyn crate::store::Store>) -> Arc<Self> {
        let stocks = Exchange::from_text("1 1000 100\n").expect("a stock");
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
            store: "of a test".to_owned(),
            strategy: parts.expect("no thread is needed"),
            journal,
            wakers: (0..2).map(|_| Arc::new(Waker::new().expect("a descriptor"))).collect(),
            loops: 1,
            token: None,
            identity: None,
            warn: None,
            service_time: Duration::ZERO,
            on_idle: Box::new(|| {}),
        };
        Arc::new(Self::new(parts, Settings::default(), &stocks))
    }

    /// Requests of one connection that are taken at once.
    pub(crate) fn requests_at_once(&self) -> usize {
        self.requests_at_once
    }

    /// Whether an answer may wait for a disk or for another thread.
    #[cfg(feature = "tokio")]
    pub(crate) fn may_wait(&self) -> bool {
        self.durability != Durability::None
            || matches!(self.sharing, Sharing::Writer | Sharing::Shards | Sharing::Database)
    }

    /// What arrives on a new connection, and leaves it.
    pub(crate) fn transport(&self) -> Transport {
        let tls = self.identity.as_ref().map(Identity::session);
        Transport::new(Session::with_token(self.token.clone()), tls)
    }

    /// Whether connections are sealed, so that nothing can be said before a handshake.
    pub(crate) fn is_sealed(&self) -> bool {
        self.identity.is_some()
    }

    /// Counts a connection whose bytes could not be opened, and tells of it at most once a second.
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
            warn(&format!("a connection was closed, TLS is on here: {reason} ({count} so far)"));
        }
    }

    /// A job for a request that has just arrived.
    pub(crate) fn job(token: usize, request: Request) -> Job {
        let due_ns =
            request.deadline_ms.map_or(0, |ms| clock::monotonic_ns() + u64::from(ms) * 1_000_000);
        Job { token, request, due_ns, answer: None }
    }

    /// Whether answers may have to wait for the disk, and for nothing else.
    pub(crate) fn commits_late(&self) -> bool {
        self.journal.keeps()
            && matches!(self.durability, Durability::Group | Durability::Each)
            && !matches!(self.sharing, Sharing::Writer | Sharing::Database)
    }

    /// Answers all jobs, in their order; returns when the answers may leave. If the store failed
    /// the server is stopping, and no answer may leave.
    pub(crate) fn answer(&self, jobs: &mut Vec<Job>) -> Result<(), StoreFailed> {
        if jobs.is_empty() {
            return Ok(());
        }
        let seq = self.carry_out(jobs)?;
        self.wait(seq)?;
        self.count(jobs);
        Ok(())
    }

    /// Answers all jobs, in their order. The answers may leave, and then count, when the store holds
    /// the number of the log that is returned; see [`Self::wait`].
    pub(crate) fn carry_out(&self, jobs: &mut Vec<Job>) -> Result<u64, StoreFailed> {
        let mut of_stocks = 0;
        for job in jobs.iter_mut().filter(|job| job.answer.is_none()) {
            job.answer = match job.request.command {
                Command::Local(local) => Some(Answer::Local(local)),
                Command::Health => Some(Answer::Text(self.health().into())),
                Command::Metrics => Some(Answer::Text(self.metrics().into())),
                Command::Trade(_) | Command::Show => {
                    of_stocks += 1;
                    None
                }
            };
        }
        if of_stocks == 0 {
            return Ok(0);
        }
        spend(self.service_time * of_stocks);
        let answered = self.strategy.answer(jobs, &self.journal);
        answered.inspect_err(|StoreFailed| self.stop())
    }

    /// Returns when the store holds every order up to this number; if it failed the server is stopping.
    pub(crate) fn wait(&self, seq: u64) -> Result<(), StoreFailed> {
        self.journal.wait(seq).inspect_err(|StoreFailed| self.stop())
    }

    /// Counts answers that leave.
    pub(crate) fn count(&self, jobs: &[Job]) {
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

    /// Asks every thread of the model to finish.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for waker in &self.wakers {
            waker.wake();
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The waker of the thread with this number.
    pub(crate) fn waker(&self, thread: usize) -> &Arc<Waker> {
        &self.wakers[thread % self.wakers.len()]
    }

    /// How many loops the model has.
    pub(crate) fn loops(&self) -> usize {
        self.loops
    }

    /// Counts a connection in, unless there are too many.
    pub(crate) fn admit(&self, most: usize) -> bool {
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let most = most.min(self.limits.connections);
        let open = self.counts.open.fetch_add(1, Ordering::SeqCst);
        if open >= most {
            self.counts.turned_away.fetch_add(1, Ordering::Relaxed);
            self.leave();
            return false;
        }
        true
    }

    /// Counts a connection out; the last one makes the stock file.
    pub(crate) fn leave(&self) {
        if self.counts.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            (self.on_idle)();
        }
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
        put("connections", "gauge", "Connections that are open.", open);
        let accepted = of(&counts.accepted);
        put("connections_total", "counter", "Connections that were accepted.", accepted);
        let away = of(&counts.turned_away);
        put("connections_busy_total", "counter", "Connections that were turned away.", away);
        put("connections_cut_total", "counter", "Connections that took too long.", of(&counts.cut));
        let not_opened = of(&counts.not_opened);
        put("connections_not_tls_total", "counter", "Connections that spoke no TLS.", not_opened);
        put("orders_done_total", "counter", "Orders answered as carried out.", of(&counts.done));
        put("orders_refused_total", "counter", "Orders that were refused.", of(&counts.refused));
        put("lists_total", "counter", "Lists of all stocks.", of(&counts.shown));
        put("faults_total", "counter", "Requests that were none.", of(&counts.faults));
        put("commits_total", "counter", "Commits of the store.", self.journal.commits());
        put("log_number", "gauge", "Number of the latest order.", self.journal.latest());
        text
    }
}
