//! Measures where the workers' time goes, for `auto`.
//!
//! Each worker regularly reads its own processor time (exact per call) and the time in which it was
//! runnable without a processor. The remaining time, unless idle, was blocked in the kernel.
//! The sums of all workers go to the controller, which the first worker after each interval runs.
//! Cost: two system calls per worker every [`DECISION_INTERVAL`].
//!
//! No clock shows what a thread was blocked by. A visitor that changes a file system also waits for
//! its locks, and more threads make such waits longer. [`Waits::Reads`] therefore also reads how
//! much each thread read from devices (a third call): if it read next to nothing, the threads
//! waited for each other.

use ioloom_control::{Batch, WalkController};
use ioloom_sys::clock;
use ioloom_sys::proc::{self, ProcFile, UsageOf, parse};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval between two measurements of a worker, and between two decisions.
const DECISION_INTERVAL: Duration = Duration::from_millis(8);

/// Entries per page read from a device, above which the device is not what was waited for. A page
/// of inodes serves 8 to 32 entries; occasional reads of the program's own pages must not count.
const ENTRIES_PER_PAGE_MAX: u64 = 64;

/// What threads of a walk may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waits {
    /// Anything that more threads may overlap: a device, a network, another program.
    #[default]
    Anything,
    /// Reads from a device: for trees on local devices whose visitor waits for nothing else but
    /// locks. Waits without reads do not cause more threads; they cause fewer if fewer are faster.
    Reads,
    /// Like `Reads`, where only one thread at a time may change the tree that all names are in:
    /// starts with one thread, and tries two if the walk takes long.
    OneTree,
}

/// The controller and the measurements since its last decision.
#[derive(Debug)]
pub(crate) struct Watch {
    waits: Waits,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    controller: WalkController,
    decided: Instant,
    sums: TimeShare,
}

/// Measurements of one worker or of all since the last decision.
#[derive(Debug, Default)]
struct TimeShare {
    entries: u64,
    /// Time with tasks at hand.
    fed_ns: u64,
    blocked_ns: u64,
    /// Bytes read from devices; not measured with [`Waits::Anything`].
    read_bytes: u64,
}

impl TimeShare {
    /// Returns the shares of time blocked by a device, and by other workers.
    fn idle_and_locked(&self, waits: Waits) -> (f64, f64) {
        let blocked = self.blocked_ns as f64 / self.fed_ns.max(1) as f64;
        let pages = self.read_bytes / proc::page_bytes();
        match waits {
            Waits::Anything => (blocked, 0.0),
            _ if pages * ENTRIES_PER_PAGE_MAX < self.entries => (0.0, blocked),
            _ => (blocked, 0.0),
        }
    }
}

impl Watch {
    pub(crate) fn new(cores: usize, most: usize, waits: Waits) -> Self {
        let controller = WalkController::new(cores as u32, most as u32);
        let controller =
            if waits == Waits::OneTree { controller.starting_with_one() } else { controller };
        let seen = Seen { controller, decided: Instant::now(), sums: TimeShare::default() };
        Self { waits, seen: Mutex::new(seen) }
    }

    /// Returns the number of threads that the walk should have now.
    pub(crate) fn workers(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).controller.workers() as usize
    }

    /// Returns the reason for the number of threads.
    pub(crate) fn why(&self) -> String {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).controller.why()
    }

    /// Adds the measurements of a worker. Returns the new number of workers if a decision was due.
    fn take(&self, share: &TimeShare) -> Option<usize> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.sums.entries += share.entries;
        seen.sums.fed_ns += share.fed_ns;
        seen.sums.blocked_ns += share.blocked_ns;
        seen.sums.read_bytes += share.read_bytes;
        let now = Instant::now();
        let elapsed = now.duration_since(seen.decided);
        if elapsed < DECISION_INTERVAL {
            return None;
        }
        let sums = std::mem::take(&mut seen.sums);
        let (idle, locked) = sums.idle_and_locked(self.waits);
        let elapsed_ns = elapsed.as_nanos() as u64;
        let batch = Batch { elapsed_ns, files: sums.entries, idle, locked, ..Batch::default() };
        seen.decided = now;
        Some(seen.controller.decide(&batch) as usize)
    }
}

/// The clocks of one worker, used by its own thread only.
#[derive(Debug)]
pub(crate) struct WorkerClock {
    waits: Waits,
    polled: Instant,
    clocks: Clocks,
    idle: Duration,
    entries: u64,
    schedstat: Option<ProcFile>,
}

/// The totals of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Clocks {
    cpu_ns: u64,
    /// Runnable without a processor.
    delay_ns: u64,
    read_bytes: u64,
}

impl WorkerClock {
    pub(crate) fn new(watch: &Watch) -> Self {
        let schedstat = ProcFile::open(Path::new("/proc/thread-self/schedstat"), 256).ok();
        let (polled, idle, clocks) = (Instant::now(), Duration::ZERO, Clocks::default());
        let mut clock = Self { waits: watch.waits, polled, clocks, idle, entries: 0, schedstat };
        clock.clocks = clock.read();
        clock
    }

    fn read(&mut self) -> Clocks {
        let delay =
            self.schedstat.as_mut().and_then(|file| parse::parse_schedstat(file.read().ok()?));
        let read_bytes = match self.waits {
            Waits::Anything => 0,
            Waits::Reads | Waits::OneTree => {
                proc::usage(UsageOf::Thread).map_or(0, |usage| usage.read_bytes)
            }
        };
        let delay_ns = delay.map_or(0, |stat| stat.run_delay_ns);
        Clocks { cpu_ns: clock::thread_cpu_ns(), delay_ns, read_bytes }
    }

    /// Adds a time without tasks.
    pub(crate) fn was_idle(&mut self, since: Instant) {
        self.idle += since.elapsed();
    }

    /// Passes measurements to the controller if the interval is over. Returns the new number of
    /// workers if one was decided. `entries` counts from the start of the walk.
    pub(crate) fn poll(&mut self, watch: &Watch, entries: u64) -> Option<usize> {
        let now = Instant::now();
        let elapsed = now.duration_since(self.polled);
        if elapsed < DECISION_INTERVAL {
            return None;
        }
        let (now_at, before) = (self.read(), self.clocks);
        let fed_ns = elapsed.saturating_sub(self.idle).as_nanos() as u64;
        let ran_ns = now_at.cpu_ns.saturating_sub(before.cpu_ns)
            + now_at.delay_ns.saturating_sub(before.delay_ns);
        let share = TimeShare {
            entries: entries - self.entries,
            fed_ns,
            blocked_ns: fed_ns.saturating_sub(ran_ns),
            read_bytes: now_at.read_bytes.saturating_sub(before.read_bytes),
        };
        (self.polled, self.clocks) = (now, now_at);
        (self.idle, self.entries) = (Duration::ZERO, entries);
        watch.take(&share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_counts_as_blocked_and_computing_does_not() {
        let mut others = Vec::new();
        // Waiting for a processor after a sleep is not blocked: on a busy machine only some rounds are
        // mostly asleep.
        for _ in 0..100 {
            let watch = Watch::new(2, 64, Waits::Anything);
            let mut clock = WorkerClock::new(&watch);
            let before = clock.read();
            std::thread::sleep(Duration::from_millis(30));
            let after = clock.read();
            let ran = after.cpu_ns - before.cpu_ns + after.delay_ns - before.delay_ns;
            // Asleep for at least 30 ms, whatever else the machine does.
            assert!(Duration::from_nanos(ran) < clock.polled.elapsed() - Duration::from_millis(29));
            std::thread::sleep(DECISION_INTERVAL);
            let (decided, why) = (clock.poll(&watch, 5000), watch.why());
            if decided == Some(16) {
                assert!(why.contains("16 threads"), "{why}");
                return;
            }
            others.push((decided, why));
        }
        panic!("{others:?}");
    }

    #[test]
    fn waits_without_reads_are_waits_for_each_other() {
        let watch = Watch::new(2, 64, Waits::Reads);
        let mut clock = WorkerClock::new(&watch);
        std::thread::sleep(2 * DECISION_INTERVAL);
        assert_eq!(clock.poll(&watch, 5000), Some(2), "{}", watch.why());
        let page = proc::page_bytes();
        let share =
            |read_bytes| TimeShare { entries: 640, fed_ns: 100, blocked_ns: 40, read_bytes };
        assert_eq!(share(9 * page).idle_and_locked(Waits::Reads), (0.0, 0.4));
        assert_eq!(share(10 * page).idle_and_locked(Waits::Reads), (0.4, 0.0));
        assert_eq!(share(0).idle_and_locked(Waits::Anything), (0.4, 0.0));
        assert_eq!(Watch::new(2, 64, Waits::OneTree).workers(), 1);
        // One large file that takes long does not count as an entry yet.
        let large = TimeShare { entries: 0, fed_ns: 100, blocked_ns: 90, read_bytes: 0 };
        assert_eq!(large.idle_and_locked(Waits::Reads), (0.9, 0.0));
    }
}
