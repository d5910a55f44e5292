//! The interface used by every model: jobs in, answers out, and the server's counters.

use crate::choice::{Durability, Model, Sharing, ShowMode};
use crate::journal::{Journal, StoreFailed};
use crate::limits::Limits;
use crate::live::{Live, Secrets};
use crate::metrics::{Counts, Cut, Page, Rejected, Times};
use crate::reports::{Kind, Reports};
use crate::sharing::{Job, Strategy, spend};
use crate::transport::Transport;
use ioloom_exchange::{Answer, ClassicForm, Command, Exchange, Request, Session, Settings};
use ioloom_sys::clock;
use ioloom_sys_net::Waker;
use ioloom_sys_net::inherited::Inherited;
use ioloom_tls::{Identity, SessionError};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval between checks whether a stopping server still serves connections.
pub(crate) const GRACE_CHECK: Duration = Duration::from_millis(10);
/// Maximum length of a line in a stock list, in bytes.
const LINE_BYTES: usize = 33;

/// State shared between the threads of a model.
pub(crate) struct Service {
    pub(crate) limits: Limits,
    pub(crate) live: Live,
    pub(crate) counts: Counts,
    pub(crate) times: Times,
    pub(crate) reports: Reports,
    pub(crate) model: Model,
    pub(crate) strategy: Box<dyn Strategy>,
    pub(crate) journal: Arc<Journal>,
    sharing: Sharing,
    show: ShowMode,
    durability: Durability,
    store: String,
    stopping: AtomicBool,
    /// Time until which connections are served while the server is stopping.
    served_until_ns: AtomicU64,
    /// Whether the server stops because another program takes over.
    handing_over: AtomicBool,
    /// Descriptors of the listeners, which keep connections waiting during a handover.
    spare_listeners: Mutex<Vec<Inherited>>,
    wakers: Vec<Arc<Waker>>,
    loops: usize,
    requests_at_once: usize,
    /// Number of sessions created.
    sessions: AtomicU64,
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
    pub(crate) spare_listeners: Vec<Inherited>,
    pub(crate) loops: usize,
    pub(crate) secrets: Secrets,
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
            ClassicForm::Line | ClassicForm::Marked => stocks.len() * LINE_BYTES,
        };
        let list_bytes = list_bytes.max(stocks.len() * LINE_BYTES);
        let fitting = (2 * limits.output_bytes / list_bytes.max(1)).max(1);
        Self {
            requests_at_once: limits.requests_at_once.clamp(1, fitting),
            counts: Counts::default(),
            times: Times::default(),
            reports: Reports::default(),
            limits,
            model: parts.model,
            strategy: parts.strategy,
            journal: parts.journal,
            sharing: parts.sharing,
            show: parts.show,
            durability: parts.durability,
            store: parts.store,
            stopping: AtomicBool::new(false),
            served_until_ns: AtomicU64::new(0),
            handing_over: AtomicBool::new(false),
            spare_listeners: Mutex::new(parts.spare_listeners),
            wakers: parts.wakers,
            loops: parts.loops,
            live: Live::new(&limits, parts.secrets),
            sessions: AtomicU64::new(0),
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
            spare_listeners: Vec::new(),
            loops: 1,
            secrets: Secrets { access: None, identity: None },
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

    /// Counts and reports a connection that could not be decrypted.
    pub(crate) fn tls_failed(&self, reason: &SessionError) {
        self.counts.not_opened.fetch_add(1, Ordering::Relaxed);
        self.reports.note(Kind::TlsFailed, &reason.to_string());
    }

    /// Counts and reports a connection that is not served.
    pub(crate) fn rejected(&self, why: Rejected) {
        self.counts.reject(why);
        self.reports.note(Kind::Rejected, why.name());
    }

    /// Counts and reports a connection that is closed by a timeout.
    pub(crate) fn cut(&self, why: Cut) {
        self.counts.cut(why);
        self.reports.note(Kind::Cut, why.name());
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

    /// Answers all jobs in order, and returns when the answers may be sent. They were received at
    /// `arrived_ns`. If the store failed, the server is stopping and no answers may be sent.
    pub(crate) fn answer(&self, jobs: &mut Vec<Job>, arrived_ns: u64) -> Result<(), StoreFailed> {
        if jobs.is_empty() {
            return Ok(());
        }
        let seq = self.execute(jobs)?;
        let executed_ns = clock::monotonic_ns();
        self.wait(seq)?;
        let ended_ns = if self.waits_for(seq) { clock::monotonic_ns() } else { executed_ns };
        self.took(jobs.len(), arrived_ns, executed_ns, ended_ns);
        self.count(jobs);
        Ok(())
    }

    /// Returns true if answers that depend on this log number had to wait for the store.
    pub(crate) fn waits_for(&self, seq: u64) -> bool {
        seq > 0 && self.journal.keeps()
    }

    /// Records the times at which a batch was received, executed and stored.
    pub(crate) fn took(&self, count: usize, arrived_ns: u64, executed_ns: u64, ended_ns: u64) {
        self.times.request.observe(ended_ns.saturating_sub(arrived_ns), count);
        if ended_ns > executed_ns {
            self.times.commit.observe(ended_ns - executed_ns, count);
        }
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
        let answers = jobs.iter().filter_map(|job| job.answer.as_ref());
        if self.counts.answers(answers) > 0 {
            self.reports.note(Kind::Unauthorized, "missing or wrong token");
        }
    }

    /// Asks every thread of the model to stop. Further connections are refused.
    pub(crate) fn stop(&self) {
        self.handing_over.store(false, Ordering::SeqCst);
        self.spare_listeners().clear();
        self.served_until_ns.store(0, Ordering::SeqCst);
        self.begin_stop();
    }

    /// Asks every thread of the model to stop, unless it was asked before.
    pub(crate) fn end(&self) {
        if !self.is_stopping() {
            self.stop();
        }
    }

    /// Stops like [`stop`](Self::stop), but further connections wait, and those just accepted are
    /// served for another moment, because their first request may still be on its way.
    pub(crate) fn hand_over(&self) {
        if self.is_stopping() {
            return;
        }
        let until_ns = clock::monotonic_ns() + self.limits.grace.as_nanos() as u64;
        self.served_until_ns.store(until_ns, Ordering::SeqCst);
        self.handing_over.store(true, Ordering::SeqCst);
        self.begin_stop();
    }

    fn begin_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for waker in &self.wakers {
            waker.wake();
        }
    }

    /// Reports whether no further requests are read, except those that have arrived.
    pub(crate) fn ends_reading(&self, now_ns: u64) -> bool {
        self.is_stopping() && now_ns >= self.served_until_ns.load(Ordering::SeqCst)
    }

    /// While connections are served although the server is stopping, waits for the end of that.
    pub(crate) fn wait_for_end_of_reading(&self) {
        while self.is_stopping() && !self.ends_reading(clock::monotonic_ns()) {
            std::thread::sleep(GRACE_CHECK);
        }
    }

    /// Returns the listeners for the next program, if another one takes over.
    pub(crate) fn handed_over(&self) -> Option<Vec<Inherited>> {
        let is_handing = self.handing_over.load(Ordering::SeqCst);
        is_handing.then(|| std::mem::take(&mut *self.spare_listeners()))
    }

    fn spare_listeners(&self) -> MutexGuard<'_, Vec<Inherited>> {
        self.spare_listeners.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Registers a connection, unless there are too many, and returns the seat of its client.
    pub(crate) fn admit(
        &self,
        most: usize,
        address: impl FnOnce() -> Option<IpAddr>,
    ) -> Option<u32> {
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let most = most.min(self.live.connections());
        let open = self.counts.open.fetch_add(1, Ordering::SeqCst);
        if open >= most {
            self.rejected(Rejected::Limit);
            self.leave(0);
            return None;
        }
        let seat = self.live.peers.enter(address, clock::monotonic_ns());
        if seat.is_none() {
            self.rejected(Rejected::Client);
            self.leave(0);
        }
        seat
    }

    /// Unregisters a connection. After the last one, the stock file is written.
    pub(crate) fn leave(&self, seat: u32) {
        self.live.peers.leave(seat);
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
        let mut page = Page::default();
        page.counts(&self.counts);
        let commits = self.journal.commits();
        page.value("commits_total", "counter", "Commits of the store.", commits);
        page.value("log_number", "gauge", "Number of the latest order.", self.journal.latest());
        page.times(&self.times, self.journal.synced());
        page.0
    }
}
