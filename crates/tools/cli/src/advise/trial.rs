//! One run of the work on some of the files, with one plan.

use super::sample::Slice;
use ioloom::{Cancel, Error, Files, FnError, Plan};
use ioloom_model::{Compute, Schedule};
use ioloom_subjects::Kernel;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Bytes of one piece of a file, as in `each`.
const CHUNK_BYTES: u64 = 256 << 10;
/// Bytes that a file counts for in addition to its size: opening it costs about as much as reading
/// so much.
const FILE_BYTES: f64 = 32.0 * 1024.0;

/// How far a run may go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) bytes: u64,
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
    /// Bytes read from a block device, if known.
    pub(super) device_bytes: Option<u64>,
    /// What limited it, and the evidence.
    pub(super) limit: Option<(String, String)>,
    /// Whether a limit ended it.
    pub(super) cut: bool,
}

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

    /// Returns the share of the bytes that came from a device, if that is known.
    pub(super) fn cold(&self) -> Option<f64> {
        let device = self.device_bytes?;
        (self.bytes > 0).then(|| (device as f64 / self.bytes as f64).min(1.0))
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
        self.device_bytes = self.device_bytes.zip(other.device_bytes).map(|(a, b)| a + b);
        self.cut |= other.cut;
    }
}

/// Returns the plan that runs: in pieces, so that the size of files does not matter.
pub(super) fn in_pieces(mut plan: Plan) -> Plan {
    if !matches!(plan.schedule, Schedule::Roles { .. }) && plan.chunk_bytes.is_none() {
        plan.chunk_bytes = Some(CHUNK_BYTES.min(plan.memory_bytes / 64).max(4096));
    }
    plan
}

/// Runs the work. Fails if the plan is refused here.
pub(super) fn run(
    slice: Slice,
    plan: Plan,
    compute: &Compute,
    limits: Limits,
) -> Result<Trial, Error<FnError>> {
    let kernel = Kernel::new(compute.clone(), None, 1).without_proof();
    let (cancel, read) = (Cancel::new(), AtomicU64::new(0));
    let (over, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let token = cancel.clone();
        scope.spawn(move || {
            if ended.recv_timeout(limits.time) == Err(RecvTimeoutError::Timeout) {
                token.cancel();
            }
        });
        let run = Files::from(slice.paths)
            .pin(in_pieces(plan))
            .start_on_demand(true)
            .cancel(&cancel)
            .partial(true)
            .untraced()
            .pieces()
            .try_fold_file(
                |_| (kernel.begin(), 0),
                |(state, index), chunk| {
                    *index = chunk.index();
                    let bytes = chunk.bytes();
                    kernel.piece(state, *index, chunk.offset(), chunk.is_last(), bytes);
                    let before = read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    if before + bytes.len() as u64 >= limits.bytes {
                        cancel.cancel();
                    }
                    Ok::<(), FnError>(())
                },
                |(state, index), _| {
                    kernel.finish(state, index);
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
        drop(over);
        let run = run?;
        let m = run.measured;
        Ok(Trial {
            files: m.files,
            bytes: read.load(Ordering::Relaxed),
            errors: run.failed,
            error: run.value,
            elapsed_ns: m.elapsed_ns,
            cpu_ns: m.cpu_user_ns + m.cpu_kernel_ns,
            device_bytes: m.device_read_bytes,
            limit: m.bottleneck.map(|b| (b.word, b.sentence)),
            cut: run.cancelled,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_bytes_are_work() {
        let trial = Trial { files: 2, bytes: 65_536, elapsed_ns: 262_144, ..Trial::default() };
        assert_eq!((trial.work(), trial.cost()), (131_072.0, 2.0));
        assert_eq!(trial.cold(), None);
        let read = Trial { device_bytes: Some(32_768), ..trial.clone() };
        assert_eq!(read.cold(), Some(0.5));
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
}
