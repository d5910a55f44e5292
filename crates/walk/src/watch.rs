//! What `auto` looks at: where the workers' time goes.
//!
//! Each worker asks now and then for its own processor time (exact to the call) and for the time in
//! which it was ready but had no processor; what is neither that nor spent hungry was spent blocked
//! in the kernel. The sums of all workers go to the controller, run by whichever worker comes when
//! the time is up. Cost: two system calls per worker every [`LOOK_NS`].

use ioloom_control::{Batch, Crew, Tuner};
use ioloom_sys::clock;
use ioloom_sys::proc::{Kept, parse};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks of one worker, and between two decisions.
const LOOK: Duration = Duration::from_millis(8);

/// The controller and what was seen since its last decision.
#[derive(Debug)]
pub(crate) struct Watch(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    crew: Crew,
    decided: Instant,
    entries: u64,
    fed_ns: u64,
    blocked_ns: u64,
}

impl Watch {
    pub(crate) fn new(cores: usize, most: usize) -> Self {
        let crew = Crew::new(cores as u32, most as u32);
        let (entries, fed_ns, blocked_ns) = (0, 0, 0);
        Self(Mutex::new(Seen { crew, decided: Instant::now(), entries, fed_ns, blocked_ns }))
    }

    /// The reason for the number of threads.
    pub(crate) fn why(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).crew.why()
    }

    /// Takes one worker's share of time; the new number of workers if a decision was due.
    fn take(&self, entries: u64, fed_ns: u64, blocked_ns: u64) -> Option<usize> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entries += entries;
        seen.fed_ns += fed_ns;
        seen.blocked_ns += blocked_ns;
        let now = Instant::now();
        let elapsed = now.duration_since(seen.decided);
        if elapsed < LOOK {
            return None;
        }
        let batch = Batch {
            elapsed_ns: elapsed.as_nanos() as u64,
            files: std::mem::take(&mut seen.entries),
            bytes: 0,
            idle: std::mem::take(&mut seen.blocked_ns) as f64 / seen.fed_ns.max(1) as f64,
            window: seen.crew.workers(),
        };
        seen.fed_ns = 0;
        seen.decided = now;
        Some(seen.crew.decide(&batch) as usize)
    }
}

/// One worker's clocks. Belongs to the thread that made it.
#[derive(Debug)]
pub(crate) struct Gauge {
    looked: Instant,
    cpu_ns: u64,
    delay_ns: u64,
    hungry: Duration,
    entries: u64,
    schedstat: Option<Kept>,
}

impl Gauge {
    pub(crate) fn new() -> Self {
        let schedstat = Kept::open(Path::new("/proc/thread-self/schedstat"), 256).ok();
        let (looked, hungry) = (Instant::now(), Duration::ZERO);
        let mut gauge = Self { looked, cpu_ns: 0, delay_ns: 0, hungry, entries: 0, schedstat };
        (gauge.cpu_ns, gauge.delay_ns) = gauge.read();
        gauge
    }

    fn read(&mut self) -> (u64, u64) {
        let delay =
            self.schedstat.as_mut().and_then(|file| parse::parse_schedstat(file.read().ok()?));
        (clock::thread_cpu_ns(), delay.map_or(0, |stat| stat.run_delay_ns))
    }

    /// The worker waited for work.
    pub(crate) fn was_hungry(&mut self, since: Instant) {
        self.hungry += since.elapsed();
    }

    /// Tells the watch if it is time; the new number of workers if one was decided. `entries` counts
    /// from the start of the walk.
    pub(crate) fn look(&mut self, watch: &Watch, entries: u64) -> Option<usize> {
        let now = Instant::now();
        let elapsed = now.duration_since(self.looked);
        if elapsed < LOOK {
            return None;
        }
        let (cpu_ns, delay_ns) = self.read();
        let fed_ns = elapsed.saturating_sub(self.hungry).as_nanos() as u64;
        let ran_ns = cpu_ns.saturating_sub(self.cpu_ns) + delay_ns.saturating_sub(self.delay_ns);
        let new = entries - self.entries;
        (self.looked, self.cpu_ns, self.delay_ns) = (now, cpu_ns, delay_ns);
        (self.hungry, self.entries) = (Duration::ZERO, entries);
        watch.take(new, fed_ns, fed_ns.saturating_sub(ran_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_is_not_blocked_and_one_that_sleeps_is() {
        let mut gauge = Gauge::new();
        let (cpu, delay) = gauge.read();
        std::thread::sleep(Duration::from_millis(30));
        let (after, delay_after) = gauge.read();
        let ran = after - cpu + delay_after - delay;
        // Asleep for at least 30 ms, whatever the machine does meanwhile.
        assert!(Duration::from_nanos(ran) < gauge.looked.elapsed() - Duration::from_millis(29));
        let watch = Watch::new(2, 64);
        std::thread::sleep(LOOK);
        assert_eq!(gauge.look(&watch, 5000), Some(16), "{}", watch.why());
        assert!(watch.why().contains("16 threads"), "{}", watch.why());
    }
}
