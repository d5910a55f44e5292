//! What `auto` looks at: where the workers' time goes.
//!
//! Each worker asks now and then for its own processor time (exact to the call) and for the time in
//! which it was ready but had no processor; what is neither that nor spent hungry was spent blocked
//! in the kernel. The sums of all workers go to the controller, run by whichever worker comes when
//! the time is up. Cost: two system calls per worker every [`DECISION_INTERVAL`].
//!
//! Blocked by what, no clock tells. A visitor that changes a file system waits for its locks too, and
//! more threads make such waits longer. [`Waits::Reads`] asks for what each thread read from devices
//! as well (a third call): a time in which next to nothing was read was spent waiting for each other.

use ioloom_control::{Batch, WalkController};
use ioloom_sys::clock;
use ioloom_sys::proc::{self, ProcFile, UsageOf, parse};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks of one worker, and between two decisions.
const DECISION_INTERVAL: Duration = Duration::from_millis(8);

/// Entries for each page read from a device, at most, for a device to count as what was waited for. A
/// page of inodes serves 8 to 32 entries; the program's own pages, read now and then, are to count for
/// nothing.
const ENTRIES_PER_PAGE_MAX: u64 = 64;

/// What a thread of the walk may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waits {
    /// Anything that more threads may overlap: a device, a network, another program.
    #[default]
    Anything,
    /// Reads from a device; for trees on local devices whose visitor waits for nothing else but locks.
    /// Waits without reads are no reason for more threads, and for fewer if these are faster.
    Reads,
    /// As `Reads`, where one thread at a time may change the tree that all names are in: begins with one
    /// thread, and tries two when it lasts.
    OneTree,
}

/// The controller and what was seen since its last decision.
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

/// What one worker or all did since the last look.
#[derive(Debug, Default)]
struct TimeShare {
    entries: u64,
    /// Time with work at hand.
    fed_ns: u64,
    blocked_ns: u64,
    /// Read from devices; unknown with [`Waits::Anything`].
    read_bytes: u64,
}

impl TimeShare {
    /// Blocked by a device, and by each other.
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
            if waits == Waits::OneTree { controller.beginning_alone() } else { controller };
        let seen = Seen { controller, decided: Instant::now(), sums: TimeShare::default() };
        Self { waits, seen: Mutex::new(seen) }
    }

    /// How many threads begin.
    pub(crate) fn first(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).controller.workers() as usize
    }

    /// The reason for the number of threads.
    pub(crate) fn why(&self) -> String {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).controller.why()
    }

    /// Takes one worker's share; the new number of workers if a decision was due.
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
        let batch =
            Batch { elapsed_ns: elapsed.as_nanos() as u64, files: sums.entries, idle, locked };
        seen.decided = now;
        Some(seen.controller.decide(&batch) as usize)
    }
}

/// One worker's clocks. Belongs to the thread that made it.
#[derive(Debug)]
pub(crate) struct WorkerClock {
    waits: Waits,
    polled: Instant,
    clocks: Clocks,
    idle: Duration,
    entries: u64,
    schedstat: Option<ProcFile>,
}

/// A thread's own sums.
#[derive(Debug, Clone, Copy, Default)]
struct Clocks {
    cpu_ns: u64,
    /// Ready, but without a processor.
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

    /// The worker waited for work.
    pub(crate) fn was_idle(&mut self, since: Instant) {
        self.idle += since.elapsed();
    }

    /// Tells the watch if it is time; the new number of workers if one was decided. `entries` counts
    /// from the start of the walk.
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
    fn a_thread_that_computes_is_not_blocked_and_one_that_sleeps_is() {
        let watch = Watch::new(2, 64, Waits::Anything);
        let mut clock = WorkerClock::new(&watch);
        let before = clock.read();
        std::thread::sleep(Duration::from_millis(30));
        let after = clock.read();
        let ran = after.cpu_ns - before.cpu_ns + after.delay_ns - before.delay_ns;
        // Asleep for at least 30 ms, whatever the machine does meanwhile.
        assert!(Duration::from_nanos(ran) < clock.polled.elapsed() - Duration::from_millis(29));
        std::thread::sleep(DECISION_INTERVAL);
        assert_eq!(clock.poll(&watch, 5000), Some(16), "{}", watch.why());
        assert!(watch.why().contains("16 threads"), "{}", watch.why());
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
        assert_eq!(Watch::new(2, 64, Waits::OneTree).first(), 1);
        // One large file that takes long is no entry yet.
        let large = TimeShare { entries: 0, fed_ns: 100, blocked_ns: 90, read_bytes: 0 };
        assert_eq!(large.idle_and_locked(Waits::Reads), (0.9, 0.0));
    }
}
