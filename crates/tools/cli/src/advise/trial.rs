//! One run of the work on some of the files, with one plan.

use super::candidates::window;
use super::sample::Slice;
use super::watch::within;
use ioloom::{Error, Files, FnError, Plan, Run};
use ioloom_model::{Compute, Schedule};
use ioloom_subjects::kernel::{FileState, Kernel};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one piece of a file, as in `each`.
const CHUNK_BYTES: u64 = 256 << 10;
/// Bytes that a file counts for in addition to its size: opening it costs about as much as reading
/// so much.
const FILE_BYTES: f64 = 32.0 * 1024.0;

/// Time between two looks at the limits, while the work waits or spins.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes of a checksum between two looks.
const LOOK_BYTES: usize = 4096;

/// How far a run may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits<'a> {
    pub(super) time: Duration,
    pub(super) bytes: u64,
    /// The largest piece that an earlier run received; zero if there was none.
    pub(super) largest: u64,
    /// Raised by an interrupt.
    pub(super) stop: &'a AtomicBool,
}

/// A finished run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Trial {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    /// The first of them.
    pub(super) error: Option<String>,
    pub(super) elapsed_ns: u64,
    /// Processor time.
    pub(super) cpu_ns: u64,
    /// Time that the work waited, divided by the threads that may compute at once.
    pub(super) waited_ns: u64,
    /// Time for which other programs took the usable processors, divided by their number.
    pub(super) others_ns: u64,
    /// Bytes read from a block device, if known.
    pub(super) device_bytes: Option<u64>,
    /// What limited it, and the evidence.
    pub(super) limit: Option<(String, String)>,
    /// Whether a limit ended it.
    pub(super) cut: bool,
    /// The largest piece.
    pub(super) largest: u64,
}

/// Bytes of a page, which a file of any size has at least.
const PAGE_BYTES: u64 = 4096;
/// Share of bytes from a device up to which files count as cached.
pub(super) const WARM: f64 = 0.05;

/// Returns the amount of work in files and bytes, in bytes.
pub(super) fn work(files: f64, bytes: f64) -> f64 {
    bytes + FILE_BYTES * files
}

impl Trial {
    /// Returns the amount of work done.
    pub(super) fn work(&self) -> f64 {
        work(self.files as f64, self.bytes as f64)
    }

    /// Returns nanoseconds per unit of work.
    pub(super) fn cost(&self) -> f64 {
        self.elapsed_ns as f64 / self.work().max(1.0)
    }

    /// Returns the share of the bytes that came from a device, if that is known. A file has at least one
    /// page, so a few pages of directories and inodes do not count as the contents of many small files.
    pub(super) fn cold(&self) -> Option<f64> {
        let device = self.device_bytes?;
        let read = self.bytes.max(PAGE_BYTES * self.files);
        (self.bytes > 0).then(|| (device as f64 / read as f64).min(1.0))
    }

    /// Returns the bytes that the run took from memory or a device. Read-ahead and pieces that no
    /// function received count if the system counts them.
    pub(super) fn read_bytes(&self) -> u64 {
        self.bytes.max(self.device_bytes.unwrap_or(0))
    }

    /// Adds another run of the same plan.
    pub(super) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.errors += other.errors;
        if self.error.is_none() {
            self.error.clone_from(&other.error);
        }
        self.elapsed_ns += other.elapsed_ns;
        self.cpu_ns += other.cpu_ns;
        self.waited_ns += other.waited_ns;
        self.others_ns += other.others_ns;
        self.device_bytes = self.device_bytes.zip(other.device_bytes).map(|(a, b)| a + b);
        self.cut |= other.cut;
        self.largest = self.largest.max(other.largest);
    }
}

/// Returns the plan that runs: in pieces, so that the size of files does not matter.
pub(super) fn in_pieces(mut plan: Plan) -> Plan {
    if !matches!(plan.schedule, Schedule::Roles { .. }) && plan.chunk_bytes.is_none() {
        plan.chunk_bytes = Some(CHUNK_BYTES.min(plan.memory_bytes / 64).max(4096));
    }
    plan
}

/// Returns the bytes of a piece at most: twice the largest one seen, as far as the plan allows.
fn piece_of(plan: &Plan, largest: u64) -> u64 {
    let piece = plan.chunk_bytes.unwrap_or(CHUNK_BYTES);
    if largest == 0 { piece } else { piece.min(2 * largest) }
}

/// Returns the bytes in flight at most in a run of so many files. What the system reads ahead is not among them: a
/// file that is read to its end needs these bytes anyway.
pub(super) fn flying(plan: &Plan, files: usize, largest: u64) -> u64 {
    let at_once = u64::from(window(plan)).min(files as u64);
    (at_once * piece_of(plan, largest)).min(plan.memory_bytes)
}

/// Work that ends at the limits.
struct Work<'a> {
    kernel: Kernel,
    compute: &'a Compute,
    limits: Limits<'a>,
    start: Instant,
    waited_ns: AtomicU64,
    unfinished: AtomicU64,
    unfinished_bytes: AtomicU64,
}

impl<'a> Work<'a> {
    fn new(compute: &'a Compute, limits: Limits<'a>) -> Self {
        // Simulated work waits and spins here, where it can be ended.
        let streamed = match compute {
            Compute::Spin(_) | Compute::Sleep(_) => Compute::None,
            other => other.clone(),
        };
        Self {
            kernel: Kernel::new(streamed, None, 1).without_proof(),
            compute,
            limits,
            start: Instant::now(),
            waited_ns: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
            unfinished_bytes: AtomicU64::new(0),
        }
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() >= self.limits.time || self.limits.stop.load(Ordering::Relaxed)
    }

    /// Processes a piece. Returns whether it was processed completely.
    fn piece(&self, file: &mut File, offset: u64, last: bool, bytes: &[u8]) -> bool {
        file.bytes += bytes.len() as u64;
        if !matches!(self.compute, Compute::Checksum { .. }) || bytes.len() <= LOOK_BYTES {
            self.kernel.piece(&mut file.state, file.index, offset, last, bytes);
            return true;
        }
        let count = bytes.len().div_ceil(LOOK_BYTES);
        for (i, part) in bytes.chunks(LOOK_BYTES).enumerate() {
            if self.is_over() {
                file.is_cut = true;
                return false;
            }
            let at = offset + (i * LOOK_BYTES) as u64;
            self.kernel.piece(&mut file.state, file.index, at, last && i + 1 == count, part);
        }
        true
    }

    /// Finishes a file.
    fn finish(&self, file: File) {
        let rest = self.compute.demand_ns(None, 1, file.index as u64).map(Duration::from_nanos);
        let rest = rest.map(|time| time.saturating_sub(file.begun.elapsed()));
        let done = !file.is_cut && rest.is_none_or(|time| self.spend(time));
        if done {
            self.kernel.finish(file.state, file.index);
        } else {
            self.unfinished.fetch_add(1, Ordering::Relaxed);
            self.unfinished_bytes.fetch_add(file.bytes, Ordering::Relaxed);
        }
    }

    /// Waits or spins. Returns whether that was possible within the limits.
    fn spend(&self, time: Duration) -> bool {
        let begun = Instant::now();
        let sleeps = matches!(self.compute, Compute::Sleep(_));
        let done = loop {
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break true;
            }
            if self.is_over() {
                break false;
            }
            let part = left.min(LOOK);
            if sleeps {
                std::thread::sleep(part);
            } else {
                spin(part);
            }
        };
        if sleeps {
            self.waited_ns.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        done
    }
}

/// A file that is being processed.
struct File {
    state: FileState,
    index: usize,
    bytes: u64,
    begun: Instant,
    is_cut: bool,
}

/// Spins for this processor time, so that preemption does not shorten the work.
fn spin(time: Duration) {
    let until = ioloom_sys::clock::thread_cpu_ns() + time.as_nanos() as u64;
    while ioloom_sys::clock::thread_cpu_ns() < until {
        std::hint::spin_loop();
    }
}

/// Runs the work. Fails if the plan is refused here.
pub(super) fn run(
    slice: Slice,
    plan: Plan,
    compute: &Compute,
    limits: Limits<'_>,
) -> Result<Trial, Error<FnError>> {
    let plan = in_pieces(plan);
    let files = slice.paths.len();
    let (read, largest) = (AtomicU64::new(0), AtomicU64::new(limits.largest));
    let work = &Work::new(compute, limits);
    within(Some(limits.time), limits.stop, |cancel| {
        let run = Files::from(slice.paths)
            .pin(plan)
            .start_on_demand(true)
            .cancel(cancel)
            .partial(true)
            .untraced()
            .pieces()
            .try_fold_file(
                |_| File {
                    state: work.kernel.begin(),
                    index: 0,
                    bytes: 0,
                    begun: Instant::now(),
                    is_cut: false,
                },
                |file, chunk| {
                    file.index = chunk.index();
                    let bytes = chunk.bytes();
                    let own = bytes.len() as u64;
                    let largest = largest.fetch_max(own, Ordering::Relaxed).max(own);
                    // What is in flight arrives, too.
                    let after = read.fetch_add(own, Ordering::Relaxed) + own;
                    let flying = flying(&plan, files, largest);
                    let is_enough = after + flying >= limits.bytes;
                    if !work.piece(file, chunk.offset(), chunk.is_last(), bytes) || is_enough {
                        cancel.cancel();
                    }
                    Ok::<(), FnError>(())
                },
                |file, _| {
                    work.finish(file);
                    Ok(())
                },
            )
            .fold_results(
                || None,
                |first: &mut Option<String>, result| {
                    if let (None, Err(error)) = (&first, result) {
                        *first = Some(error.to_string());
                    }
                },
                |first, other| *first = first.take().or(other),
            );
        let (read, largest) = (read.into_inner(), largest.into_inner());
        Ok(Trial { largest, ..trial(run?, &plan, work, read) })
    })
}

fn trial(run: Run<Option<String>, FnError>, plan: &Plan, work: &Work<'_>, read: u64) -> Trial {
    let m = run.measured;
    let unfinished = work.unfinished.load(Ordering::Relaxed);
    let share = m.bottleneck.as_ref().and_then(|b| b.shares.get("other programs")).copied();
    let of_machine = m.others_cpu.unwrap_or(0.0) + m.steal_cpu.unwrap_or(0.0);
    Trial {
        // What was not finished took time, but does not count as work.
        files: m.files.saturating_sub(unfinished),
        bytes: read.saturating_sub(work.unfinished_bytes.load(Ordering::Relaxed)),
        errors: run.failed,
        error: run.value,
        elapsed_ns: m.elapsed_ns,
        cpu_ns: m.cpu_user_ns + m.cpu_kernel_ns,
        waited_ns: work.waited_ns.load(Ordering::Relaxed) / u64::from(computing(plan)),
        others_ns: others_ns(m.elapsed_ns, share.unwrap_or(0), of_machine * online_per_usable()),
        device_bytes: m.device_read_bytes,
        limit: m.bottleneck.map(|b| (b.word, b.sentence)),
        cut: run.cancelled || unfinished > 0,
        largest: 0,
    }
}

/// Returns the time for which others took the processors, from their share of a run in percent and what they
/// used of the usable processors. The share also has waits for a device that they used.
fn others_ns(elapsed_ns: u64, share_pct: u32, of_usable: f64) -> u64 {
    let share = (f64::from(share_pct) / 100.0).min(of_usable.max(0.0));
    (elapsed_ns as f64 * share) as u64
}

/// Returns how many processors are online for each one that may be used.
fn online_per_usable() -> f64 {
    let online = ioloom_sys::proc::system_stat().map_or(1, |stat| stat.cpus.len());
    (online as f64 / f64::from(ioloom::usable_cores().max(1))).max(1.0)
}

/// Returns the threads that compute at once.
fn computing(plan: &Plan) -> u32 {
    match plan.schedule {
        Schedule::Window { permits, .. } => permits.unwrap_or(1).max(1),
        Schedule::Threads { .. } | Schedule::Roles { .. } => plan.threads().max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::sample::{Listing, Sample};

    #[test]
    fn others_that_use_only_the_device_take_no_processor() {
        assert_eq!(others_ns(1_000, 60, 0.0), 0);
        assert_eq!(others_ns(1_000, 60, 0.1), 100);
        assert_eq!(others_ns(1_000, 30, 0.9), 300);
        assert!(online_per_usable() >= 1.0);
    }

    #[test]
    fn files_and_bytes_are_work() {
        let trial = Trial { files: 2, bytes: 65_536, elapsed_ns: 262_144, ..Trial::default() };
        assert_eq!((trial.work(), trial.cost()), (131_072.0, 2.0));
        assert_eq!(trial.cold(), None);
        let read = Trial { device_bytes: Some(32_768), ..trial.clone() };
        assert_eq!(read.cold(), Some(0.5));
        let small = Trial { files: 80, bytes: 80, ..read.clone() };
        assert_eq!(small.cold(), Some(0.1), "8 of 80 pages");
        let mut both = trial.clone();
        both.add(&read);
        assert_eq!((both.files, both.cost(), both.device_bytes), (4, 2.0, None));
    }

    #[test]
    fn a_plan_without_a_size_of_pieces_gets_one() {
        let plan: Plan = "read/window:l=4,p=2".parse().unwrap();
        assert_eq!(in_pieces(plan).chunk_bytes, Some(CHUNK_BYTES));
        let plan = Plan { chunk_bytes: Some(4096), ..plan };
        assert_eq!(in_pieces(plan), plan);
    }

    #[test]
    fn long_work_ends_at_the_limit_and_is_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("one"), "text").unwrap();
        for compute in ["sleep:30s", "spin:30s"] {
            let sample = Sample::list(&Listing::of(dir.path()), 1);
            let stop = AtomicBool::new(false);
            let time = Duration::from_millis(50);
            let limits = Limits { time, bytes: u64::MAX, largest: 0, stop: &stop };
            let start = Instant::now();
            let plan = "read/threads:n=2".parse().unwrap();
            let trial = run(sample.all(), plan, &compute.parse().unwrap(), limits).unwrap();
            assert!(start.elapsed() < Duration::from_secs(10), "{compute}");
            assert_eq!((trial.files, trial.bytes, trial.cut), (0, 0, true), "{compute}");
        }
    }

    #[test]
    fn what_is_in_flight_follows_from_the_files_and_the_largest_piece() {
        let plan = in_pieces("read/window:l=128,p=2".parse().unwrap());
        let flying = |files, largest| flying(&plan, files, largest);
        assert_eq!(flying(1_000, 0), 128 * CHUNK_BYTES, "no piece was seen");
        assert_eq!(flying(1_000, 4096), 128 * 8192);
        assert_eq!((flying(4, 4096), flying(4, 1 << 30)), (4 * 8192, 4 * CHUNK_BYTES));
        let plan = Plan { memory_bytes: 1 << 20, ..plan };
        assert_eq!(super::flying(&plan, 1_000, 0), 1 << 20);
    }

    #[test]
    fn a_few_files_of_several_pieces_finish_within_a_small_budget() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..4 {
            std::fs::write(dir.path().join(i.to_string()), vec![1; 1 << 20]).unwrap();
        }
        let (stop, time) = (AtomicBool::new(false), Duration::from_secs(100));
        // The files and one piece for each thread fit, but nothing that is read ahead of each file.
        let bytes = (4 << 20) + 4 * CHUNK_BYTES + (64 << 10);
        let limits = Limits { time, bytes, largest: 0, stop: &stop };
        let sample = Sample::list(&Listing::of(dir.path()), 1);
        let plan = "read/threads:n=4".parse().unwrap();
        let trial = run(sample.all(), plan, &Compute::None, limits).unwrap();
        assert_eq!((trial.files, trial.cut, trial.largest), (4, false, CHUNK_BYTES));
    }

    #[test]
    fn small_files_are_read_to_the_end_although_large_ones_would_not_fit() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..200 {
            std::fs::write(dir.path().join(i.to_string()), [1; 4096]).unwrap();
        }
        let stop = AtomicBool::new(false);
        let time = Duration::from_secs(100);
        let limits = Limits { time, bytes: 3 << 20, largest: 4096, stop: &stop };
        let plan = "nowait/window:l=512,p=2/memory=128MiB".parse().unwrap();
        let sample = Sample::list(&Listing::of(dir.path()), 1);
        let trial = run(sample.all(), plan, &Compute::None, limits).unwrap();
        assert_eq!((trial.files, trial.cut, trial.largest), (200, false, 4096));
    }
}
