//! The memory hierarchy as it behaves, not as it is advertised.
//!
//! [`measure`] takes the ladder of dependent loads and finds its levels, then (unless quick) puts
//! other rulers beside it, asks what pages, parallel loads, threads and read buffers change, and
//! answers sixteen questions that such a measurement should be asked. Sizes that the kernel and
//! the processor tell are never an input; they are compared at the end.
//!
//! Everything is a minimum over many short blocks, each well below a scheduler tick, in shuffled
//! passes: on a busy machine a mean measures the neighbours. Median and tenth percentile are kept
//! beside it as what a program gets now. Costs: quick a few seconds, full below half a minute, and
//! at most 400 MiB of memory.

mod blocks;
mod buffers;
mod cycle;
mod flight;
mod honesty;
mod ladder;
mod pages;
mod parallel;
mod rulers;
pub mod single;
pub mod smt;
mod threads;

pub use cycle::{is_one_cycle, sattolo};
pub use ladder::Advertised;
pub use smt::SmtPlan;

use blocks::Bench;
use ioloom_model::memory::{MEMORY_SCHEMA, MemoryResult};
use ioloom_sys::affinity;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Memory for the working set is not to be had.
    #[error("map {bytes} bytes of memory: {reason}; close other programs or use --max SIZE")]
    Region {
        /// Bytes asked for.
        bytes: usize,
        /// What the kernel said.
        reason: io::Error,
    },
    /// A file or a call of the system failed.
    #[error("{operation} {path}: {reason}; {remedy}")]
    Call {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: String,
        /// What the kernel said.
        reason: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The curve is too short for levels.
    #[error("find levels: {0}")]
    Curve(#[from] ioloom_stats::StatsError),
    /// The user stopped it.
    #[error("interrupted before the end; nothing is kept")]
    Interrupted,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The ladder of dependent loads; always measured, because the others need its levels.
    Ladder,
    /// Other ways to measure the same memory.
    Rulers,
    /// Translation buffers and page faults.
    Pages,
    /// Loads side by side, and bandwidth by threads.
    Parallel,
    /// From processor to processor.
    Pairs,
    /// read(2) of a warm file by buffer.
    Buffers,
    /// Threads that share a core.
    Smt,
}

impl Part {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 7] = [
        Self::Ladder,
        Self::Rulers,
        Self::Pages,
        Self::Parallel,
        Self::Pairs,
        Self::Buffers,
        Self::Smt,
    ];

    /// The word, as on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ladder => "ladder",
            Self::Rulers => "rulers",
            Self::Pages => "tlb",
            Self::Parallel => "bandwidth",
            Self::Pairs => "pairs",
            Self::Buffers => "bufsize",
            Self::Smt => "smt",
        }
    }
}

/// What to measure, and how much.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Parts besides the ladder.
    pub parts: Vec<Part>,
    /// Fewer and shorter blocks, smaller sets.
    pub quick: bool,
    /// Largest working set, bytes.
    pub bytes_max: usize,
    /// Seed of every random order.
    pub seed: u64,
    /// The processor to hold the measuring thread to; `None` chooses the last that is allowed.
    pub cpu: Option<u32>,
    /// Where a file for the read buffers may be made.
    pub dir: PathBuf,
    /// What the machine says of its caches.
    pub advertised: Advertised,
    /// Who shares a core with whom.
    pub smt: SmtPlan,
    /// Fingerprint of the machine, for the result.
    pub machine: String,
    /// Version of the program, for the result.
    pub version: String,
}

/// Measures. `tell` hears in some words what comes next; `stop` ends it at the next step.
///
/// # Errors
/// No memory, a file that cannot be made, an interrupt.
pub fn measure(
    options: &MemoryOptions,
    stop: &AtomicBool,
    tell: &dyn Fn(&str),
) -> Result<MemoryResult, MemoryError> {
    let started = ioloom_sys::clock::monotonic_ns();
    let mut result = MemoryResult {
        schema: MEMORY_SCHEMA,
        machine: options.machine.clone(),
        version: options.version.clone(),
        quick: options.quick,
        seed: options.seed,
        started_unix_ms: ioloom_sys::clock::unix_ms(),
        ..MemoryResult::default()
    };
    let before = honesty::Before::take();
    let allowed = affinity::allowed().unwrap_or_default();
    let cpu = options.cpu.or_else(|| allowed.last().copied());
    let held = cpu.and_then(|cpu| affinity::PinnedThread::pin(cpu).ok());
    result.cpu = held.as_ref().map(affinity::PinnedThread::cpu);
    let mut bench = Bench::new(held, options.quick, options.seed);
    let go_on = || match stop.load(Ordering::Relaxed) {
        true => Err(MemoryError::Interrupted),
        false => Ok(()),
    };
    let has = |part| options.parts.contains(&part);
    bench.calibrate();
    tell("the ladder of dependent loads");
    let facts = ladder::run(&mut bench, options, &mut result, &go_on)?;
    if has(Part::Rulers) {
        tell("other rulers on the same memory");
        rulers::run(&mut bench, options, &mut result, &go_on)?;
    }
    if has(Part::Pages) {
        tell("translation of addresses, and page faults");
        pages::run(&mut bench, options, &mut result, &go_on)?;
    }
    if has(Part::Parallel) {
        tell("loads side by side");
        parallel::side_by_side(&mut bench, options, &mut result, &go_on)?;
    }
    bench.calibrate();
    // Parts with threads of their own hold each of them; the mask of this one must be whole again.
    let bench = bench.release();
    if has(Part::Parallel) {
        tell("bandwidth by threads");
        parallel::bandwidth(options, &allowed, &mut result, &go_on)?;
    }
    if has(Part::Pairs) {
        tell("from processor to processor");
        parallel::pairs(options, &allowed, &mut result);
    }
    let mut reads = None;
    if has(Part::Buffers) {
        tell("read buffers");
        reads = Some(buffers::run(options, &mut result, &go_on)?);
    }
    if has(Part::Smt) {
        tell("threads that share a core");
        result.smt = Some(smt::run(&options.smt, &result, options.quick));
    }
    result.cycle_ns = bench.cycle_ns();
    for level in &mut result.levels {
        level.latency_cycles = result.cycle_ns.map(|cycle| level.latency_ns / cycle);
    }
    result.elapsed_ns = ioloom_sys::clock::monotonic_ns() - started;
    result.checks = honesty::answer(&result, &bench, &facts, &before, reads.as_ref(), options);
    result.doubts = result.doubts_of_checks();
    Ok(result)
}
