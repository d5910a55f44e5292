//! When to start more threads for blocking reads.
//!
//! A window of L blocking reads needs L threads, but only if reads wait for a device. If everything
//! is in the page cache, one thread per permit does all the work, and each additional thread only
//! costs start-up time, memory and context switches. Threads are therefore started on demand. The
//! run begins with one per permit. Whenever the running threads have waited often enough for reads,
//! their number doubles, up to the window. A check costs one system call; while checks change
//! nothing, their interval doubles. With an idle device, 256 threads are running after about ten
//! checks or three milliseconds.
//!
//! Threads that only open files, while reads do not block, seldom wait: one read of a block of inodes
//! serves the files of many opens. Beyond a few threads, more of them pay only if most opens wait
//! for long ([`Ramp::reluctant_from`]): waits for locks of the threads among each other also count as waits.

/// Minimum number of waits that counts. New threads wait for each other a few times, for the
/// address-space lock and for shared state that one of them sets up.
const WAITS_MIN: u64 = 8;
/// Number of files after which an old count is discarded, to react quickly to a cold part after a
/// warm one.
const FILES_REMEMBERED: u64 = 1024;
const PAUSE_MIN_NS: u64 = 200_000;
const PAUSE_MAX_NS: u64 = 20_000_000;

/// Decides the number of threads from file and wait counts.
#[derive(Debug, Clone)]
pub struct Ramp {
    running: u32,
    max: u32,
    files_per_wait: u64,
    /// From so many threads on, files per wait to start more.
    reluctant: Option<(u32, u64)>,
    files: u64,
    waits: u64,
    pause_ns: u64,
}

impl Ramp {
    /// Starts with `first` threads and never exceeds `max`. More start once the running threads
    /// have waited at least once per `files_per_wait` files.
    pub fn new(first: u32, max: u32, files_per_wait: u64) -> Self {
        let (max, files_per_wait) = (max.max(1), files_per_wait.max(1));
        let running = first.clamp(1, max);
        let reluctant = None;
        Self { running, max, files_per_wait, reluctant, files: 0, waits: 0, pause_ns: PAUSE_MIN_NS }
    }

    /// From `running` threads on, starts more only if the running threads have waited at least once per
    /// `files_per_wait` files, for a thousand files.
    #[must_use]
    pub fn reluctant_from(self, running: u32, files_per_wait: u64) -> Self {
        Self { reluctant: Some((running, files_per_wait.max(1))), ..self }
    }

    /// Returns the number of running threads.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Reports whether all threads are running.
    pub fn is_full(&self) -> bool {
        self.running == self.max
    }

    /// Allows up to `max` threads.
    pub fn set_max(&mut self, max: u32) {
        self.max = max.max(self.running);
    }

    /// Returns the time until the next check, in nanoseconds.
    pub fn pause_ns(&self) -> u64 {
        self.pause_ns
    }

    /// Resets the counts.
    fn begin(&mut self, files: u64, waits: u64) {
        (self.files, self.waits) = (files, waits);
    }

    /// Takes the totals, as [`Ramp::decide`] does, of a time that does not show whether threads are missing.
    /// Counting begins again after it.
    pub fn skip(&mut self, files: u64, waits: u64) {
        self.begin(files, waits);
        self.pause_ns = (self.pause_ns * 2).min(PAUSE_MAX_NS);
    }

    fn wait_often(&self, done: u64, waited: u64) -> bool {
        waited >= WAITS_MIN.max(done / self.files_per_wait)
    }

    /// Takes the cumulative totals of files done and waits over all threads, and returns how many
    /// threads to start now.
    pub fn decide(&mut self, files: u64, waits: u64) -> u32 {
        let done = files.saturating_sub(self.files);
        let waited = waits.saturating_sub(self.waits);
        let (wanted, max) = match self.reluctant {
            // A burst of waits, as where many directories are new, does not count.
            Some((from, files_per_wait)) if self.running >= from => {
                (done >= FILES_REMEMBERED && waited >= done / files_per_wait, self.max)
            }
            Some((from, _)) => (self.wait_often(done, waited), self.max.min(from)),
            None => (self.wait_often(done, waited), self.max),
        };
        if wanted && !self.is_full() {
            let more = self.running.min(max - self.running);
            self.running += more;
            self.begin(files, waits);
            self.pause_ns = PAUSE_MIN_NS;
            return more;
        }
        if done >= FILES_REMEMBERED {
            self.begin(files, waits);
        }
        self.pause_ns = (self.pause_ns * 2).min(PAUSE_MAX_NS);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a run of `files` files, some of which wait. Each file uses one of two processors
    /// for `cpu_us` and, if it waits, blocks its thread for `wait_us`. Returns the final number of
    /// threads.
    fn run(files: u64, waits_one_in: u64, cpu_us: f64, wait_us: f64) -> u32 {
        let mut ramp = Ramp::new(2, 256, 8);
        let (mut now_us, mut done) = (0.0, 0.0);
        while (done as u64) < files {
            let pause_us = ramp.pause_ns() as f64 / 1e3;
            let each_us =
                cpu_us + if waits_one_in == 0 { 0.0 } else { wait_us / waits_one_in as f64 };
            let rate = (f64::from(ramp.running()) / each_us).min(2.0 / cpu_us);
            (now_us, done) = (now_us + pause_us, done + rate * pause_us);
            let waits = (done as u64).checked_div(waits_one_in).unwrap_or(0);
            ramp.decide(done as u64, waits);
            assert!(now_us < 1e12, "the run must end");
        }
        ramp.running()
    }

    #[test]
    fn from_the_cache_no_thread_is_added() {
        assert_eq!(run(100_000, 0, 4.0, 0.0), 2);
        assert_eq!(run(100_000, 100, 4.0, 100.0), 2);
    }

    #[test]
    fn a_device_fills_the_window_within_a_few_checks() {
        assert_eq!(run(1_000, 1, 15.0, 150.0), 256);
        assert_eq!(run(2_000, 1, 15.0, 8_000.0), 256, "a seeking disk");
    }

    #[test]
    fn a_cold_part_after_a_warm_one_is_seen() {
        let mut ramp = Ramp::new(2, 64, 8);
        assert_eq!(ramp.decide(1_000_000, 0), 0);
        assert_eq!(ramp.pause_ns(), 2 * PAUSE_MIN_NS);
        assert_eq!(ramp.decide(1_000_010, 9), 2);
        assert_eq!(ramp.pause_ns(), PAUSE_MIN_NS);
    }

    #[test]
    fn beyond_a_few_threads_most_files_must_wait() {
        let after = |waits_in_ten: u64| {
            let mut ramp = Ramp::new(2, 64, 256).reluctant_from(16, 2);
            for check in 1..200 {
                ramp.decide(check * 500, check * 50 * waits_in_ten);
            }
            ramp.running()
        };
        assert_eq!((after(0), after(1), after(4), after(6)), (2, 16, 16, 64));
        let mut burst = Ramp::new(16, 64, 256).reluctant_from(16, 2);
        assert_eq!((burst.decide(800, 800), burst.decide(1700, 810)), (0, 0));
        let mut many = Ramp::new(24, 64, 256).reluctant_from(16, 2);
        assert_eq!((many.decide(1100, 100), many.decide(2200, 700)), (0, 24));
    }

    #[test]
    fn what_is_skipped_starts_no_threads() {
        let mut ramp = Ramp::new(2, 64, 256);
        ramp.skip(10_000, 5_000);
        assert_eq!((ramp.decide(10_100, 5_001), ramp.running()), (0, 2));
        assert_eq!(ramp.pause_ns(), 4 * PAUSE_MIN_NS);
    }

    #[test]
    fn threads_never_exceed_the_window() {
        let mut ramp = Ramp::new(3, 10, 8);
        let started: u32 = (1..9).map(|look| ramp.decide(look, 10 * look)).sum();
        assert_eq!((started, ramp.running(), ramp.is_full()), (7, 10, true));
    }
}
