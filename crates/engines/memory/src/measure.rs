//! Runs the parts of the measurement in order.

use crate::blocks::Bench;
use crate::error::MemoryError;
use crate::options::{MemoryOptions, Part};
use crate::{buffers, checks, ladder, pages, parallel, rulers, smt};
use ioloom_model::memory::{MEMORY_SCHEMA, MemoryResult};
use ioloom_sys::affinity;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the measurement. Calls `announce` with the name of each part before it starts. Setting
/// `stop` aborts the measurement at the next step.
///
/// # Errors
/// Returns an error after an interrupt, if memory or a scratch file cannot be allocated, or if a thread
/// cannot be started.
pub fn measure(
    options: &MemoryOptions,
    stop: &AtomicBool,
    announce: &dyn Fn(&str),
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
    let before = checks::CountersBefore::take();
    let allowed = affinity::allowed().unwrap_or_default();
    let cpu = options.cpu.or_else(|| allowed.last().copied());
    let pinned = cpu.and_then(|cpu| affinity::PinnedThread::pin(cpu).ok());
    result.cpu = pinned.as_ref().map(affinity::PinnedThread::cpu);
    let mut bench = Bench::new(pinned, options.quick, options.seed);
    let check_stop = || match stop.load(Ordering::Relaxed) {
        true => Err(MemoryError::Interrupted),
        false => Ok(()),
    };
    let has = |part| options.parts.contains(&part);
    bench.calibrate();
    announce("latency of dependent loads");
    let facts = ladder::run(&mut bench, options, &mut result, &check_stop)?;
    if has(Part::Rulers) {
        announce("other methods on the same memory");
        rulers::run(&mut bench, options, &mut result, &check_stop)?;
    }
    if has(Part::Pages) {
        announce("address translation and page faults");
        pages::run(&mut bench, options, &mut result, &check_stop)?;
    }
    if has(Part::Parallel) {
        announce("parallel loads");
        parallel::parallel_loads(&mut bench, options, &mut result, &check_stop)?;
    }
    bench.calibrate();
    // Unpin this thread: the threads of later parts inherit its affinity mask.
    let bench = bench.release();
    if has(Part::Parallel) {
        announce("bandwidth by number of threads");
        parallel::bandwidth(options, &allowed, &mut result, &check_stop)?;
    }
    if has(Part::Pairs) {
        announce("latency between processors");
        parallel::pairs(options, &allowed, &mut result)?;
    }
    let mut reads = None;
    if has(Part::Buffers) {
        announce("read buffers");
        reads = Some(buffers::run(options, &mut result, &check_stop)?);
    }
    if has(Part::Smt) {
        announce("threads that share a core");
        result.smt = Some(smt::run(&options.smt, &result, options.quick)?);
    }
    result.cycle_ns = bench.cycle_ns();
    for level in &mut result.levels {
        level.latency_cycles = result.cycle_ns.map(|cycle| level.latency_ns / cycle);
    }
    result.elapsed_ns = ioloom_sys::clock::monotonic_ns() - started;
    result.checks = checks::answer(&result, &bench, &facts, &before, reads.as_ref(), options);
    result.doubts = result.doubts_of_checks();
    Ok(result)
}
