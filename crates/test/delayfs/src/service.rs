//! Answers requests after their delay, from one timer thread.
//!
//! The thread that receives requests never sleeps: it hands each one over with its delay and takes
//! the next. Sending an answer is one write to the device, so one thread is enough for all of them.

use crate::counters::Tally;
use crate::kind::Kind;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// A request that waits for its answer.
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) delay: Duration,
    pub(crate) answer: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("kind", &self.kind).field("delay", &self.delay).finish()
    }
}

/// The timer. Its thread ends after the last answer when this is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    limit: usize,
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Being served, in the order in which they will be answered. The number keeps keys distinct.
    due: BTreeMap<(Instant, u64), Request>,
    /// Waiting for the limit, in order of arrival.
    waiting: VecDeque<Request>,
    /// Served now: those in `due` and the one that is being answered.
    serving: usize,
    admitted: u64,
    stopped: bool,
}

impl Service {
    /// Starts the thread.
    pub(crate) fn start(limit: Option<usize>, tally: Arc<Tally>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            limit: limit.unwrap_or(usize::MAX),
            tally,
        });
        let own = Arc::clone(&shared);
        thread::Builder::new().name("delayfs-timer".to_owned()).spawn(move || own.run())?;
        Ok(Self { shared })
    }

    /// Answers the request after its delay, or at once in this thread if it has none and the number
    /// of requests is not limited.
    pub(crate) fn submit(&self, request: Request) {
        if request.delay.is_zero() && self.shared.limit == usize::MAX {
            return (request.answer)();
        }
        let mut queue = self.shared.lock();
        queue.waiting.push_back(request);
        self.shared.admit(&mut queue);
    }

    /// Ends the delays of all requests of this kind.
    pub(crate) fn release(&self, kind: Kind) {
        let mut queue = self.shared.lock();
        for request in queue.waiting.iter_mut().filter(|request| request.kind == kind) {
            request.delay = Duration::ZERO;
        }
        let now = Instant::now();
        let due = std::mem::take(&mut queue.due);
        let early = |((at, number), request): ((Instant, u64), Request)| {
            let at = if request.kind == kind { now.min(at) } else { at };
            ((at, number), request)
        };
        queue.due = due.into_iter().map(early).collect();
        self.shared.changed.notify_one();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder panics")
    }

    /// Serves waiting requests as far as the limit allows.
    fn admit(&self, queue: &mut Queue) {
        while queue.serving < self.limit
            && let Some(request) = queue.waiting.pop_front()
        {
            let key = (Instant::now() + request.delay, queue.admitted);
            let earliest = queue.due.first_key_value().is_none_or(|(first, _)| key < *first);
            queue.due.insert(key, request);
            queue.admitted += 1;
            queue.serving += 1;
            if earliest {
                self.changed.notify_one();
            }
        }
        assert!(queue.serving <= self.limit, "the server serves more requests than its limit");
        self.tally.serving(queue.serving);
    }

    fn run(&self) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            let first = queue.due.first_key_value().map(|((at, _), _)| *at);
            match first {
                Some(at) if at <= now => {
                    let (_, request) = queue.due.pop_first().expect("it has a first key");
                    drop(queue);
                    (request.answer)();
                    queue = self.lock();
                    queue.serving -= 1;
                    self.admit(&mut queue);
                }
                Some(at) => {
                    let woken = self.changed.wait_timeout(queue, at - now);
                    queue = woken.expect("no holder panics").0;
                }
                None if queue.stopped => return,
                None => queue = self.changed.wait(queue).expect("no holder panics"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    const GUARD: Duration = Duration::from_secs(60);

    fn request(kind: Kind, delay: Duration, done: &Sender<u32>, number: u32) -> Request {
        let done = done.clone();
        let answer = Box::new(move || done.send(number).expect("the test receives"));
        Request { kind, delay, answer }
    }

    #[test]
    fn answers_come_in_the_order_of_their_time() {
        // The order is known only if all are submitted within the shortest delay.
        for _ in 0..200 {
            let service = Service::start(None, Arc::default()).unwrap();
            let (send, done) = channel();
            let begun = Instant::now();
            for (number, ms) in [(1, 60), (2, 40), (3, 20), (4, 0)] {
                service.submit(request(Kind::Open, Duration::from_millis(ms), &send, number));
            }
            let is_prompt = begun.elapsed() < Duration::from_millis(20);
            drop((service, send));
            let order: Vec<u32> = done.iter().collect();
            if is_prompt {
                assert_eq!(order, [4, 3, 2, 1]);
                return;
            }
        }
        panic!("this thread was held up in every try");
    }

    #[test]
    fn the_limit_holds_and_nothing_is_lost() {
        let tally = Arc::new(Tally::default());
        let service = Service::start(Some(3), Arc::clone(&tally)).unwrap();
        let (send, done) = channel();
        for number in 0..20 {
            let delay = Duration::from_millis(u64::from(number % 2));
            service.submit(request(Kind::Read, delay, &send, number));
        }
        drop((service, send));
        let mut numbers: Vec<u32> = done.iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..20).collect::<Vec<_>>());
        assert_eq!(tally.counters().served_peak, 3);
    }

    #[test]
    fn a_release_ends_the_delays_of_one_kind() {
        let service = Service::start(Some(2), Arc::default()).unwrap();
        let (send, done) = channel();
        let hour = Duration::from_secs(3600);
        service.submit(request(Kind::Read, hour, &send, 0));
        for number in 1..4 {
            service.submit(request(Kind::Open, hour, &send, number));
        }
        service.release(Kind::Open);
        let order: Vec<u32> = (1..4).map(|_| done.recv_timeout(GUARD).unwrap()).collect();
        assert_eq!(order, [1, 2, 3]);
        assert!(done.try_recv().is_err(), "the read is answered too early");
        service.release(Kind::Read);
        assert_eq!(done.recv_timeout(GUARD), Ok(0));
    }
}
