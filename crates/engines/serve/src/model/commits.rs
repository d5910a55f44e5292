//! Commits beside a loop: what a turn changed is made safe by another thread, while the loop goes on.
//!
//! A loop that waits for the disk itself stands still as long as a sync takes, though other clients
//! ask meanwhile. So where many do, the answers of a turn are put by, a thread of its own sees to the
//! commit, and the loop reads and carries out what comes, for the next commit. A connection whose
//! answers are put by is not read, so its answers keep their order and it has one batch here at most.
//!
//! Protocol: only the loop sends, and the numbers of the log that it sends only grow. The thread waits
//! until the store holds the newest number that it was sent, sends that number back and wakes the loop.
//! Batches stand in the order of their numbers, so a number that came back settles all up to it.
//!
//! Cost: a commit that is handed over wakes two threads, and what is asked meanwhile comes in smaller
//! turns. That is lost where nobody else asks while it is under way, and where it is over soon: so the
//! loop commits by itself until [`RIVALS_MIN`] connections asked meanwhile and commits take
//! [`LONG_NS`].

use crate::journal::StoreFailed;
use crate::service::Service;
use crate::sharing::Job;
use ioloom_sys::clock;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Connections that must have asked while a commit was under way, for the next one to be handed over.
const WAITING_MIN: usize = 8;
/// How long commits must take for one to be handed over, nanoseconds: where a sync took a fifth of
/// this the loop by itself answered more (`results/serve-commit-thread/2026-11-22-intel-xeon-2c`), where it took
/// longer less.
const LONG_NS: u64 = 1_000_000;
/// Part that the latest commit has of what commits take.
const LATEST: u64 = 8;

/// The answers of a turn.
#[derive(Default)]
pub(super) struct Batch {
    /// The number of the log that they rest on.
    seq: u64,
    pub(super) jobs: Vec<Job>,
    /// The connections of the jobs, in the same order.
    pub(super) slots: Vec<usize>,
}

/// What the thread did.
struct Committed {
    /// The store holds everything up to this number.
    seq: u64,
    took_ns: u64,
}

/// The thread that commits, what was put by for it, and whether it is worth it.
pub(super) struct Commits {
    to_thread: Option<Sender<u64>>,
    from_thread: Receiver<Result<Committed, StoreFailed>>,
    thread: Option<JoinHandle<()>>,
    batches: VecDeque<Batch>,
    /// The newest number that came back from the thread.
    committed: u64,
    /// The newest number that is known to be safe.
    safe: u64,
    /// The memory of a batch that has left.
    spare: Batch,
    /// Connections that asked while the latest commit was under way.
    waiting: usize,
    /// How long commits take of late, nanoseconds.
    takes_ns: u64,
}

impl Commits {
    /// Starts the thread for the loop of this number.
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

    /// Notes that so many connections asked in a turn that had not asked in the one before, and tells
    /// whether the commit of this turn, whose answers rest on `seq`, is better handed over. What is put
    /// by already must come back first, so then it always is.
    pub(super) fn takes(&mut self, seq: u64, others: usize) -> bool {
        if !self.batches.is_empty() {
            self.waiting += others;
            return true;
        }
        // Those who asked while the loop was committing by itself come in one turn.
        self.waiting = self.waiting.max(others);
        let is_long = self.waiting >= WAITING_MIN && self.takes_ns >= LONG_NS;
        // What only lists has nothing to wait for.
        let takes = is_long && seq > self.safe;
        self.waiting = 0;
        takes
    }

    /// Notes how long it took until everything up to `seq` was safe. What was safe before says nothing of
    /// commits: else a few lists between would make them look short.
    pub(super) fn took(&mut self, seq: u64, took_ns: u64) {
        if seq > self.safe {
            self.safe = seq;
            self.takes_ns = (self.takes_ns * (LATEST - 1) + took_ns) / LATEST;
        }
    }

    /// Memory for a batch.
    pub(super) fn batch(&mut self) -> Batch {
        std::mem::take(&mut self.spare)
    }

    /// Puts a batch by until the store holds `seq`; false if the thread is gone.
    pub(super) fn defer(&mut self, batch: Batch, seq: u64) -> bool {
        self.batches.push_back(Batch { seq, ..batch });
        self.to_thread.as_ref().is_some_and(|to_thread| to_thread.send(seq).is_ok())
    }

    /// The next batch whose answers may leave.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, StoreFailed> {
        while let Ok(back) = self.from_thread.try_recv() {
            let Committed { seq, took_ns } = back?;
            self.committed = seq;
            self.took(seq, took_ns);
        }
        let is_safe = self.batches.front().is_some_and(|batch| batch.seq <= self.committed);
        Ok(if is_safe { self.batches.pop_front() } else { None })
    }

    /// Takes the memory of a batch back.
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

fn work(
    service: &Service,
    number: usize,
    numbers: &Receiver<u64>,
    to_loop: &Sender<Result<Committed, StoreFailed>>,
) {
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
    use ioloom_exchange::{Record, Settings};
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
    fn few_who_ask_meanwhile_leave_the_commit_with_the_loop() {
        let mut commits = without_thread();
        commits.takes_ns = LONG_NS;
        for others in [0, 1, WAITING_MIN - 1, 0] {
            assert!(!commits.takes(1, others), "{others}");
        }
    }

    #[test]
    fn many_who_ask_meanwhile_have_it_handed_over_and_it_stays_so_while_they_do() {
        let mut commits = without_thread();
        commits.takes_ns = LONG_NS;
        assert!(commits.takes(1, WAITING_MIN));
        let batch = commits.batch();
        commits.defer(batch, 7);
        // Few in each turn, but enough while the commit is under way.
        for _ in 0..WAITING_MIN {
            assert!(commits.takes(1, 1), "what is put by comes back first");
        }
        commits.batches.clear();
        assert!(commits.takes(1, 0), "so many asked while the latest was under way");
        assert!(!commits.takes(1, 0), "and nobody since");
    }

    #[test]
    fn commits_that_are_over_soon_stay_with_the_loop_and_one_long_one_changes_nothing() {
        let mut commits = without_thread();
        commits.took(1, LONG_NS);
        assert!(!commits.takes(200, 2 * WAITING_MIN), "one");
        for seq in 2..50 {
            commits.took(seq, 2 * LONG_NS);
        }
        assert!(commits.takes(200, 2 * WAITING_MIN), "all of late");
        for seq in 50..100 {
            commits.took(seq, LONG_NS / 2);
        }
        assert!(!commits.takes(200, 2 * WAITING_MIN), "none of late");
    }

    #[test]
    fn lists_between_commits_neither_make_them_look_short_nor_are_handed_over() {
        let mut commits = without_thread();
        for seq in 1..50 {
            commits.took(seq, 2 * LONG_NS);
            (0..20).for_each(|_| commits.took(seq, 0));
        }
        assert!(!commits.takes(49, 2 * WAITING_MIN), "all of it is safe");
        assert!(commits.takes(50, 2 * WAITING_MIN));
    }

    #[test]
    fn a_number_settles_all_batches_up_to_it_and_none_after() {
        let mut commits = without_thread();
        let (told, from_thread) = channel();
        commits.from_thread = from_thread;
        for seq in [3, 5, 9] {
            let batch = commits.batch();
            commits.defer(batch, seq);
        }
        assert!(commits.next().unwrap().is_none());
        told.send(Ok(Committed { seq: 5, took_ns: 0 })).unwrap();
        let mut left = Vec::new();
        while let Some(batch) = commits.next().unwrap() {
            left.push(batch.seq);
        }
        assert_eq!(left, [3, 5]);
        told.send(Err(StoreFailed)).unwrap();
        assert!(commits.next().is_err(), "nothing leaves once the store failed");
    }

    /// A store of which every commit waits until it is let through.
    #[derive(Default)]
    struct Gate {
        counts: Mutex<(u32, u32)>,
        changed: Condvar,
    }

    impl Gate {
        /// Returns when so many commits have come to it.
        fn came(&self, commits: u32) {
            let counts = self.counts.lock().unwrap();
            drop(self.changed.wait_while(counts, |counts| counts.0 < commits).unwrap());
        }

        /// Lets so many commits through, of all that ever come.
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
        fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError> {
            Ok(Vec::new())
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
        let count = stream.read(&mut bytes).expect("an answer in time");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    /// A server whose store waits, with a listener and where that is.
    fn gated() -> (Arc<Gate>, Arc<Service>, Port, SocketAddr) {
        let gate = Arc::new(Gate::default());
        let service = Service::before(Box::new(Gated(Arc::clone(&gate))));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 64, false).unwrap();
        let address = listener.address().unwrap();
        (gate, service, Port { listener, settings: Settings::default() }, address)
    }

    /// A client whose order is safe, and others whose orders are with the thread, which waits at the
    /// gate; so is what `also` asks for.
    fn handed_over(
        gate: &Gate,
        address: SocketAddr,
        also: impl FnOnce(),
    ) -> (TcpStream, Vec<TcpStream>) {
        let mut first = client(address);
        buy(&mut first);
        gate.came(1);
        // The loop commits by itself, so these wait for it and come in one turn.
        let mut waiting: Vec<TcpStream> = (0..WAITING_MIN).map(|_| client(address)).collect();
        waiting.iter_mut().for_each(buy);
        also();
        // A commit is long when the loop has waited for it so long that one counts for all of late.
        let began_ns = clock::monotonic_ns();
        while clock::monotonic_ns() - began_ns < 2 * LATEST * LONG_NS {
            std::thread::yield_now();
        }
        gate.let_through(1);
        assert_eq!(answer(&mut first), ":999\r\n");
        gate.came(2);
        (first, waiting)
    }

    fn health(other: &mut TcpStream) {
        other.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(answer(other).contains("durability group"), "the loop stands still");
    }

    #[test]
    fn the_loop_serves_others_while_a_commit_that_was_handed_over_is_under_way() {
        let (gate, service, port, address) = gated();
        let served = Arc::clone(&service);
        let server = std::thread::spawn(move || run(Model::Epoll, &served, vec![vec![port]]));
        let (mut first, mut waiting) = handed_over(&gate, address, || {});
        // Nobody lets the second one through before another client has its answers.
        health(&mut client(address));
        buy(&mut first);
        gate.let_through(3);
        let mut left: Vec<String> = waiting.iter_mut().map(answer).collect();
        left.push(answer(&mut first));
        left.sort();
        let lowest = 999 - WAITING_MIN - 1;
        assert_eq!(left.first().map(String::as_str), Some(&*format!(":{lowest}\r\n")));
        left.dedup();
        assert_eq!(left.len(), WAITING_MIN + 1, "each answer once");
        service.stop();
        server.join().unwrap().unwrap();
        assert_eq!(service.journal.latest(), 2 + WAITING_MIN as u64);
    }

    /// Counts waits, and never looks twice.
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
    fn a_client_that_goes_while_its_answers_are_put_by_keeps_the_loop_from_nothing() {
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
        let (first, mut waiting) = handed_over(&gate, address, say);
        // It goes on asking, which the loop notes and does not read, and then it has gone.
        say();
        let mut other = client(address);
        health(&mut other);
        drop(rude);
        health(&mut other);
        let before = waits.load(SeqCst);
        // However long this is, a loop that sleeps waits a few times and one that does not thousands.
        std::thread::sleep(Duration::from_millis(300));
        let during = waits.load(SeqCst) - before;
        assert!(during < 50, "{during} waits");
        gate.let_through(9);
        waiting.iter_mut().for_each(|rival| assert!(answer(rival).starts_with(':')));
        health(&mut other);
        assert_eq!(service.counts.open.load(SeqCst), WAITING_MIN + 2, "it is closed");
        drop((first, other));
        service.stop();
        server.join().unwrap().unwrap();
    }
}
