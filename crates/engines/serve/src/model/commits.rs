//! Commits on a separate thread, so the loop can continue.
//!
//! If the loop itself waits for the disk, it stalls for the duration of a sync even though other
//! clients have requests. If there are many of them, the answers of a turn are deferred: a separate
//! thread waits for the commit, while the loop reads and executes new requests for the next commit.
//! A connection with deferred answers is not read, so its answers remain in order and it has at
//! most one deferred batch.
//!
//! Protocol: only the loop sends log numbers, and they never decrease. The thread waits until the
//! store contains the latest number it received, sends that number back and wakes the loop. Batches
//! are queued in numerical order, so a returned number releases all batches up to it.
//!
//! Cost: a deferred commit wakes two threads, and during it, requests arrive in smaller turns. This
//! is a loss if few clients are waiting or if commits are short. The loop therefore commits by
//! itself unless [`WAITING_MIN`] connections sent requests during the previous commit and commits
//! take at least [`LONG_NS`].

use crate::journal::StoreFailed;
use crate::service::Service;
use crate::sharing::Job;
use ioloom_sys::clock;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Number of connections that must have sent requests during a commit for the next one to be
/// deferred.
const WAITING_MIN: usize = 8;
/// Minimum commit duration for deferral, in nanoseconds. With syncs of a fifth of this duration,
/// the loop answered more requests by itself; with longer ones, fewer
/// (`results/serve-commit-thread`).
const LONG_NS: u64 = 1_000_000;
/// Divisor for the weight of the latest commit in the moving average.
const LATEST: u64 = 8;

/// The answers of a turn.
#[derive(Default)]
pub(super) struct Batch {
    /// The log number they depend on.
    seq: u64,
    pub(super) jobs: Vec<Job>,
    /// Time when the requests were received.
    pub(super) arrived_ns: u64,
    /// Connection slots of the jobs, in the same order.
    pub(super) slots: Vec<usize>,
}

/// A message from the thread.
struct Committed {
    /// The store contains everything up to this number.
    seq: u64,
    took_ns: u64,
}

/// The commit thread, the deferred batches, and the deferral decision.
pub(super) struct Commits {
    to_thread: Option<Sender<u64>>,
    from_thread: Receiver<Result<Committed, StoreFailed>>,
    thread: Option<JoinHandle<()>>,
    batches: VecDeque<Batch>,
    /// Latest number returned by the thread.
    committed: u64,
    /// Latest number known to be in the store.
    safe: u64,
    /// Buffers from a released batch, for reuse.
    spare: Batch,
    /// Number of connections that sent requests during the latest commit.
    waiting: usize,
    /// Moving average of the commit duration in nanoseconds.
    takes_ns: u64,
}

impl Commits {
    /// Starts the thread for the loop with this index.
    pub(super) fn start(service: &Arc<Service>, number: usize) -> io::Result<Self> {
        let (to_thread, numbers) = channel();
        let (to_loop, from_thread) = channel();
        let service = Arc::clone(service);
        let thread = std::thread::Builder::new()
            .name(format!("commits-{number}"))
            .spawn(move || work(&service, number, &numbers, &to_loop))?;
        Ok(Self {
            to_thread: Some(to_thread),
            from_thread,
            thread: Some(thread),
            batches: VecDeque::new(),
            committed: 0,
            safe: 0,
            spare: Batch::default(),
            waiting: 0,
            takes_ns: 0,
        })
    }

    /// Decides whether to defer the commit of this turn, whose answers depend on `seq`. `others` is
    /// the number of connections with requests in this turn but not in the previous one. Returns
    /// true while there are deferred batches, because they must be released first.
    pub(super) fn takes(&mut self, seq: u64, others: usize) -> bool {
        if !self.batches.is_empty() {
            self.waiting += others;
            return true;
        }
        // Requests that arrive while the loop itself commits appear in a single turn.
        self.waiting = self.waiting.max(others);
        let is_long = self.waiting >= WAITING_MIN && self.takes_ns >= LONG_NS;
        // A turn that contains only lists has nothing to wait for.
        let takes = is_long && seq > self.safe;
        self.waiting = 0;
        takes
    }

    /// Records how long it took to store everything up to `seq`. Ignores numbers stored earlier:
    /// lists between commits would make commits appear short.
    pub(super) fn took(&mut self, seq: u64, took_ns: u64) {
        if seq > self.safe {
            self.safe = seq;
            self.takes_ns = (self.takes_ns * (LATEST - 1) + took_ns) / LATEST;
        }
    }

    /// Returns buffers for a batch.
    pub(super) fn batch(&mut self) -> Batch {
        std::mem::take(&mut self.spare)
    }

    /// Defers a batch until the store holds `seq`; returns false if the thread has exited.
    pub(super) fn defer(&mut self, batch: Batch, seq: u64) -> bool {
        debug_assert!(
            self.batches.back().is_none_or(|last| last.seq <= seq),
            "a returned number must release all earlier batches"
        );
        debug_assert!(batch.jobs.len() >= batch.slots.len(), "each deferred slot must have a job");
        self.batches.push_back(Batch { seq, ..batch });
        self.to_thread.as_ref().is_some_and(|to_thread| to_thread.send(seq).is_ok())
    }

    /// Returns the next batch whose answers may be sent.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, StoreFailed> {
        while let Ok(back) = self.from_thread.try_recv() {
            let Committed { seq, took_ns } = back?;
            debug_assert!(seq >= self.committed, "stored numbers must never decrease");
            self.committed = seq;
            self.took(seq, took_ns);
        }
        let is_safe = self.batches.front().is_some_and(|batch| batch.seq <= self.committed);
        Ok(if is_safe { self.batches.pop_front() } else { None })
    }

    /// Reuses the buffers of a batch.
    pub(super) fn recycle(&mut self, mut batch: Batch) {
        batch.jobs.clear();
        batch.slots.clear();
        self.spare = batch;
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        self.to_thread = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reports a panic of the thread to the loop, which would wait for its answer.
struct Report<'a> {
    service: &'a Service,
    number: usize,
    to_loop: &'a Sender<Result<Committed, StoreFailed>>,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.to_loop.send(Err(StoreFailed));
            self.service.waker(self.number).wake();
        }
    }
}

fn work(
    service: &Service,
    number: usize,
    numbers: &Receiver<u64>,
    to_loop: &Sender<Result<Committed, StoreFailed>>,
) {
    let _report = Report { service, number, to_loop };
    while let Ok(first) = numbers.recv() {
        let newest = numbers.try_iter().last().unwrap_or(first);
        let began_ns = clock::monotonic_ns();
        let committed = |()| Committed { seq: newest, took_ns: clock::monotonic_ns() - began_ns };
        let result = service.wait(newest).map(committed);
        if to_loop.send(result).is_err() {
            return;
        }
        service.waker(number).wake();
    }
}

#[cfg(test)]
mod tests {
    use super::super::event_loop::{EventLoop, Incoming};
    use super::super::executor::Executor;
    use super::super::{Port, run};
    use super::*;
    use crate::choice::Model;
    use crate::store::{Store, StoreError};
    use ioloom_exchange::{Order, Record, Settings, Side};
    use ioloom_sys_net::wait::{EpollLevel, Interest, Ready, Waiter};
    use ioloom_sys_net::{Listener, Socket};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    fn without_thread() -> Commits {
        Commits {
            to_thread: None,
            from_thread: channel().1,
            thread: None,
            batches: VecDeque::new(),
            committed: 0,
            safe: 0,
            spare: Batch::default(),
            waiting: 0,
            takes_ns: 0,
        }
    }

    #[test]
    fn a_panic_of_the_thread_is_reported_to_the_loop() {
        struct Panics;
        impl Store for Panics {
            fn commit(&mut self, _: &[Record]) -> Result<(), StoreError> {
                panic!("a commit that panics")
            }
            fn set_stock_hashes(&mut self, _: &[u64]) -> Result<(), StoreError> {
                Ok(())
            }
        }
        let service = Service::with_store(Box::new(Panics));
        let (to_thread, numbers) = channel();
        let (to_loop, from_thread) = channel();
        let order = Order::new(Side::Buy, 1, 1).unwrap();
        let logged = service.journal.log(&order, None, Ok(9)).unwrap();
        to_thread.send(logged.seq()).unwrap();
        let mut commits = without_thread();
        commits.from_thread = from_thread;
        let ended = std::thread::spawn(move || work(&service, 0, &numbers, &to_loop)).join();
        assert!(ended.is_err());
        assert!(commits.next().is_err());
    }

    #[test]
    fn few_waiting_clients_leave_the_commit_to_the_loop() {
        let mut commits = without_thread();
        commits.takes_ns = LONG_NS;
        for others in [0, 1, WAITING_MIN - 1, 0] {
            assert!(!commits.takes(1, others), "{others}");
        }
    }

    #[test]
    fn many_waiting_clients_defer_commits_as_long_as_they_wait() {
        let mut commits = without_thread();
        commits.takes_ns = LONG_NS;
        assert!(commits.takes(1, WAITING_MIN));
        let batch = commits.batch();
        commits.defer(batch, 7);
        // Few per turn, but enough during the commit.
        for _ in 0..WAITING_MIN {
            assert!(commits.takes(1, 1), "deferred batches must come first");
        }
        commits.batches.clear();
        assert!(commits.takes(1, 0), "enough clients sent requests during the latest commit");
        assert!(!commits.takes(1, 0), "and none since");
    }

    #[test]
    fn short_commits_and_a_single_long_one_stay_with_the_loop() {
        let mut commits = without_thread();
        commits.took(1, LONG_NS);
        assert!(!commits.takes(200, 2 * WAITING_MIN), "one");
        for seq in 2..50 {
            commits.took(seq, 2 * LONG_NS);
        }
        assert!(commits.takes(200, 2 * WAITING_MIN), "all others have recent requests");
        for seq in 50..100 {
            commits.took(seq, LONG_NS / 2);
        }
        assert!(!commits.takes(200, 2 * WAITING_MIN), "no others have recent requests");
    }

    #[test]
    fn lists_do_not_affect_the_average_and_are_not_deferred() {
        let mut commits = without_thread();
        for seq in 1..50 {
            commits.took(seq, 2 * LONG_NS);
            (0..20).for_each(|_| commits.took(seq, 0));
        }
        assert!(!commits.takes(49, 2 * WAITING_MIN), "everything is stored");
        assert!(commits.takes(50, 2 * WAITING_MIN));
    }

    #[test]
    fn a_returned_number_releases_all_batches_up_to_it() {
        let mut commits = without_thread();
        let (to_loop, from_thread) = channel();
        commits.from_thread = from_thread;
        for seq in [3, 5, 9] {
            let batch = commits.batch();
            commits.defer(batch, seq);
        }
        assert!(commits.next().unwrap().is_none());
        to_loop.send(Ok(Committed { seq: 5, took_ns: 0 })).unwrap();
        let mut left = Vec::new();
        while let Some(batch) = commits.next().unwrap() {
            left.push(batch.seq);
        }
        assert_eq!(left, [3, 5]);
        to_loop.send(Err(StoreFailed)).unwrap();
        assert!(commits.next().is_err(), "no answers are sent after the store failed");
    }

    /// A store whose commits wait at a gate.
    #[derive(Default)]
    struct Gate {
        counts: Mutex<(u32, u32)>,
        changed: Condvar,
    }

    impl Gate {
        /// Returns once the specified number of commits have reached the gate.
        fn wait_for(&self, commits: u32) {
            let counts = self.counts.lock().unwrap();
            drop(self.changed.wait_while(counts, |counts| counts.0 < commits).unwrap());
        }

        /// Lets the first `commits` commits through.
        fn let_through(&self, commits: u32) {
            self.counts.lock().unwrap().1 = commits;
            self.changed.notify_all();
        }
    }

    struct Gated(Arc<Gate>);

    impl Store for Gated {
        fn commit(&mut self, _: &[Record]) -> Result<(), StoreError> {
            let mut counts = self.0.counts.lock().unwrap();
            counts.0 += 1;
            let mine = counts.0;
            self.0.changed.notify_all();
            drop(self.0.changed.wait_while(counts, |counts| counts.1 < mine).unwrap());
            Ok(())
        }
        fn set_stock_hashes(&mut self, _: &[u64]) -> Result<(), StoreError> {
            Ok(())
        }
    }

    fn client(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn buy(stream: &mut TcpStream) {
        stream.write_all(b"*3\r\n$3\r\nBUY\r\n$1\r\n1\r\n$1\r\n1\r\n").unwrap();
    }

    fn answer(stream: &mut TcpStream) -> String {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).expect("the answer must arrive in time");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    /// Returns a server whose store blocks, together with a listener and its address.
    fn gated() -> (Arc<Gate>, Arc<Service>, Port, SocketAddr) {
        let gate = Arc::new(Gate::default());
        let service = Service::with_store(Box::new(Gated(Arc::clone(&gate))));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 64).unwrap();
        let address = listener.address().unwrap();
        (gate, service, Port { listener, settings: Settings::default(), is_line: false }, address)
    }

    /// Returns a client with an acknowledged order, together with clients whose orders are in the
    /// commit thread, which waits at the gate along with whatever `also` sends.
    fn deferred(
        gate: &Gate,
        address: SocketAddr,
        also: impl FnOnce(),
    ) -> (TcpStream, Vec<TcpStream>) {
        let mut first = client(address);
        buy(&mut first);
        gate.wait_for(1);
        // The loop commits by itself, so these wait for it and arrive in a single turn.
        let mut waiting: Vec<TcpStream> = (0..WAITING_MIN).map(|_| client(address)).collect();
        waiting.iter_mut().for_each(buy);
        also();
        // Wait long enough for this one commit to dominate the moving average.
        let began_ns = clock::monotonic_ns();
        while clock::monotonic_ns() - began_ns < 2 * LATEST * LONG_NS {
            std::thread::yield_now();
        }
        gate.let_through(1);
        assert_eq!(answer(&mut first), ":999\r\n");
        gate.wait_for(2);
        (first, waiting)
    }

    fn health(other: &mut TcpStream) {
        other.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(answer(other).contains("durability group"), "the loop must not stall");
    }

    #[test]
    fn the_loop_serves_others_during_a_deferred_commit() {
        let (gate, service, port, address) = gated();
        let served = Arc::clone(&service);
        let server = std::thread::spawn(move || run(Model::Epoll, &served, vec![vec![port]]));
        let (mut first, mut waiting) = deferred(&gate, address, || {});
        // The second commit stays at the gate until another client has received its answers.
        health(&mut client(address));
        buy(&mut first);
        gate.let_through(3);
        let mut left: Vec<String> = waiting.iter_mut().map(answer).collect();
        left.push(answer(&mut first));
        left.sort();
        let lowest = 999 - WAITING_MIN - 1;
        assert_eq!(left.first().map(String::as_str), Some(&*format!(":{lowest}\r\n")));
        left.dedup();
        assert_eq!(left.len(), WAITING_MIN + 1, "each answer is sent once");
        service.stop();
        server.join().unwrap().unwrap();
        assert_eq!(service.journal.latest(), 2 + WAITING_MIN as u64);
    }

    /// Counts waits and never polls.
    struct Counted(EpollLevel, Arc<AtomicUsize>);

    impl Waiter for Counted {
        fn add(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()> {
            self.0.add(fd, token, interest)
        }
        fn change(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()> {
            self.0.change(fd, token, interest)
        }
        fn remove(&mut self, fd: &dyn AsFd) -> io::Result<()> {
            self.0.remove(fd)
        }
        fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
            self.1.fetch_add(1, SeqCst);
            self.0.wait(ready, timeout)
        }
    }

    #[test]
    fn a_client_that_disconnects_with_deferred_answers_does_not_busy_the_loop() {
        let (gate, service, port, address) = gated();
        let (served, waits) = (Arc::clone(&service), Arc::new(AtomicUsize::new(0)));
        let counts = Arc::clone(&waits);
        let server = std::thread::spawn(move || {
            let counted = Counted(EpollLevel::new().unwrap(), counts);
            let incoming = Incoming::Own(vec![port]);
            EventLoop::new(&served, 0, Box::new(counted), incoming, Executor::Inline)?.run()
        });
        let rude = Socket::connect(address).unwrap();
        rude.set_reset_on_close().unwrap();
        let say = || assert!(rude.send(b"*1\r\n$4\r\nSHOW\r\n").is_ok());
        let (first, mut waiting) = deferred(&gate, address, say);
        // It sends another request, which the loop notices but does not read, and then disconnects.
        say();
        let mut other = client(address);
        health(&mut other);
        drop(rude);
        health(&mut other);
        let (before, began) = (waits.load(SeqCst), std::time::Instant::now());
        // In any interval, a sleeping loop waits a few times, a busy one thousands of times. The
        // interval can become longer on a busy machine.
        std::thread::sleep(Duration::from_millis(300));
        let during = (waits.load(SeqCst) - before) as u128;
        let limit = 50 * began.elapsed().as_millis().div_ceil(300);
        assert!(during < limit, "{during} waits");
        gate.let_through(9);
        waiting.iter_mut().for_each(|rival| assert!(answer(rival).starts_with(':')));
        health(&mut other);
        assert_eq!(
            service.counts.open.load(SeqCst),
            WAITING_MIN + 2,
            "the connection must be closed"
        );
        drop((first, other));
        service.stop();
        server.join().unwrap().unwrap();
    }
}
