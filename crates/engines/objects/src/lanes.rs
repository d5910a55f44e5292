//! The threads that send requests: each is an event loop with connections of its own.
//!
//! A response that arrives on one thread and is taken on another costs a wakeup and, mostly, a sleep.
//! So a request, its connection and what is done with the response stay on one thread. One such thread
//! sends thousands of requests per second; another is opened when the open ones are busy and get a
//! processor whenever they want one. Lanes stay open until the end of the run: an idle one costs little.
//!
//! The function `parked` runs on a lane before it waits for events. By then everything that arrived
//! together has been handled, so it is the place to wake others once and not for each response.

use crate::fetch::Fetch;
use ioloom_sys::proc::{SchedStat, ThreadSched};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Share of the time for which a lane runs when it counts as busy.
const BUSY: f64 = 0.75;
/// Most time that busy lanes wait for a processor, as a share of the time that they run: another
/// lane would wait, too.
const CROWDED: f64 = 0.1;
/// Shortest time over which the lanes are observed.
const OBSERVED_NS: u64 = 100_000_000;
/// Time in which what is dropped at the end may end.
const END: Duration = Duration::from_millis(100);

/// What runs on a lane before it waits for events.
pub(crate) type Parked = Arc<dyn Fn() + Send + Sync>;

/// Where a request can run: the event loop, and its connections.
pub(crate) type Lane = (Handle, Arc<Fetch>);

/// The open lanes.
#[derive(Default)]
pub(crate) struct Open {
    lanes: RwLock<Vec<Lane>>,
    turn: AtomicUsize,
}

impl Open {
    /// Returns the lane of the next request.
    pub(crate) fn next(&self) -> Lane {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        lanes[turn % lanes.len()].clone()
    }
}

/// The lanes of a run. They end when this is dropped.
pub(crate) struct Lanes {
    open: Arc<Open>,
    threads: Vec<Thread>,
    most: usize,
    parked: Parked,
    looked_ns: u64,
}

struct Thread {
    thread: JoinHandle<()>,
    /// Ends the event loop when it is dropped.
    until: oneshot::Sender<()>,
    sched: Option<ThreadSched>,
    before: SchedStat,
}

impl Lanes {
    /// Opens the first of at most `most` lanes, with the connections of `fetch`.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses a thread or an event loop.
    pub(crate) fn start(fetch: Fetch, most: u32, parked: Parked) -> io::Result<Self> {
        let mut lanes = Self {
            open: Arc::default(),
            threads: Vec::new(),
            most: most.max(1) as usize,
            parked,
            looked_ns: 0,
        };
        lanes.add(fetch)?;
        Ok(lanes)
    }

    pub(crate) fn open(&self) -> Arc<Open> {
        self.open.clone()
    }

    /// Looks at the time since the last call, and opens a lane if those that are open are busy.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.looked_ns);
        if elapsed_ns < OBSERVED_NS || self.threads.len() >= self.most {
            return;
        }
        self.looked_ns = now_ns;
        let spent: Vec<_> = self.threads.iter_mut().map(Thread::spent).collect();
        if is_short(&spent, elapsed_ns) && !self.add_another() {
            // Without another lane the run goes on with those that it has.
            self.most = self.threads.len();
        }
    }

    fn add_another(&mut self) -> bool {
        let (_, fetch) = self.open.next();
        fetch.with_own_connections().is_ok_and(|fetch| self.add(fetch).is_ok())
    }

    fn add(&mut self, fetch: Fetch) -> io::Result<()> {
        let parked = self.parked.clone();
        let (until, ended) = oneshot::channel::<()>();
        let (sender, begun) = mpsc::channel();
        // The event loop is made and dropped on its thread: inside another one it may not be dropped.
        let run = move || {
            let mut builder = Builder::new_current_thread();
            builder.enable_all().on_thread_park(move || parked());
            match builder.build() {
                Ok(runtime) => {
                    let begun = (runtime.handle().clone(), ThreadSched::open().ok());
                    if sender.send(Ok(begun)).is_ok() {
                        let _ = runtime.block_on(ended);
                    }
                    runtime.shutdown_timeout(END);
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new().name("ioloom-client".to_owned()).spawn(run)?;
        let begun = begun.recv().map_err(|_| io::Error::other("the thread of a client ended"))?;
        let (handle, sched) = begun?;
        let mut lanes = self.open.lanes.write().unwrap_or_else(PoisonError::into_inner);
        lanes.push((handle, Arc::new(fetch)));
        self.threads.push(Thread { thread, until, sched, before: SchedStat::default() });
        Ok(())
    }
}

impl Thread {
    /// Returns the time for which the lane ran and waited for a processor since the last call.
    fn spent(&mut self) -> (u64, u64) {
        let now = self.sched.as_mut().and_then(|sched| sched.read().ok()).unwrap_or_default();
        let before = std::mem::replace(&mut self.before, now);
        let ran_ns = now.on_cpu_ns.saturating_sub(before.on_cpu_ns);
        (ran_ns, now.run_delay_ns.saturating_sub(before.run_delay_ns))
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for Thread { thread, until, .. } in self.threads.drain(..) {
            drop(until);
            // Tasks that panic do not reach their thread.
            let _ = thread.join();
        }
    }
}

/// Reports whether lanes that ran and waited for so long are too few.
fn is_short(spent: &[(u64, u64)], elapsed_ns: u64) -> bool {
    let sum = |of: fn(&(u64, u64)) -> u64| spent.iter().map(of).sum::<u64>() as f64;
    let (ran, waited) = (sum(|lane| lane.0), sum(|lane| lane.1));
    ran >= BUSY * (elapsed_ns * spent.len() as u64) as f64 && waited <= CROWDED * ran
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_added_when_all_are_busy_and_get_their_processor() {
        assert!(is_short(&[(80, 0)], 100));
        assert!(!is_short(&[(70, 0)], 100));
        assert!(!is_short(&[(80, 9)], 100), "the processors are taken");
        assert!(!is_short(&[(95, 0), (40, 0)], 100));
        assert!(is_short(&[(95, 1), (60, 1)], 100));
    }
}
