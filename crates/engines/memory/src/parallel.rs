//! Parallel accesses: loads of one thread, streams of several, and a cache line shared by two.

use crate::blocks::{Bench, mapped, minimum, region};
use crate::cpu_wait::{BUSY_MAX, CpuWait};
use crate::cycle::sattolo;
use crate::error::MemoryError;
use crate::options::MemoryOptions;
use crate::threads::{named, together};
use ioloom_model::memory::{CpuPair, MemoryResult};
use ioloom_sys::affinity::PinnedThread;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_lab::memory::{CHAIN_COUNTS, Chain, Layout, Pages, spin_pair};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;

/// Working set sizes of the bandwidth streams in bytes.
const STREAM_BYTES: [usize; 4] = [16 << 10, 256 << 10, 4 << 20, 64 << 20];
/// Duration of a stream.
const STREAM_NS: f64 = 8e6;
/// Number of round trips between two processors per round.
const TURNS: u64 = 2000;
/// Number of spins without an answer after which the other thread is considered gone; a few
/// seconds.
const SPINS_MAX: u64 = 200_000_000;
/// Maximum number of pairs; with more processors, only some pairs are measured.
const PAIRS_MAX: usize = 120;
/// Measures chains walked in parallel in the largest set: time per load by number of chains.
pub(crate) fn parallel_loads(
    bench: &mut Bench,
    options: &MemoryOptions,
    result: &mut MemoryResult,
    check_stop: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    let line = options.advertised.line();
    let bytes = options.bytes_max.min(64 << 20);
    let next = sattolo((bytes / line).max(32) as u32, bench.next_seed());
    let memory = region(bytes + 4096, Pages::Huge)?;
    let mut chain = Chain::link(memory, Layout::packed(line), &next);
    let mut curve = Vec::new();
    for ways in CHAIN_COUNTS {
        check_stop()?;
        let visit = |steps: usize| {
            chain.walk_interleaved(steps, ways).expect("the count must be in CHAIN_COUNTS")
        };
        curve.push((ways as f64, bench.minimum(9, visit)));
    }
    if let (Some(one), Some(many)) = (curve.first(), curve.last()) {
        result.extra.insert("loads_in_flight".to_owned(), one.1 / many.1);
    }
    result.curves.insert("mlp".to_owned(), curve);
    Ok(())
}

/// The operation of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Read,
    Write,
    Copy,
}

impl Stream {
    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Copy];

    const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
        }
    }

    /// Makes one pass through the memory; returns the bytes read or written, counting each byte of
    /// a copy once.
    fn once(self, from: &[u64], to: &mut [u64]) -> usize {
        match self {
            Self::Read => {
                let sum = black_box(from).iter().fold(0u64, |sum, word| sum ^ word);
                black_box(sum);
            }
            Self::Write => black_box(&mut *to).fill(1),
            Self::Copy => black_box(&mut *to).copy_from_slice(black_box(from)),
        }
        from.len() * 8
    }
}

/// Measures the bandwidth in bytes per second of streams on 1 to all permitted processors, each
/// with separate memory. The size covers all memory that a thread touches; a copy uses half of it
/// for each side.
pub(crate) fn bandwidth(
    options: &MemoryOptions,
    allowed: &[u32],
    result: &mut MemoryResult,
    check_stop: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    let rounds = if options.quick { 3 } else { 6 };
    let mut threads: Vec<usize> = [1, allowed.len() / 2, allowed.len()].to_vec();
    threads.retain(|n| *n > 0);
    threads.dedup();
    for n in threads {
        for stream in Stream::ALL {
            let name = format!("bandwidth.{}.{n}", stream.word());
            for bytes in STREAM_BYTES {
                check_stop()?;
                if bytes * n > options.bytes_max.max(64 << 20) * 4 {
                    continue;
                }
                let rate = stream_rate(stream, bytes, &allowed[..n], rounds)?;
                result.add_point(&name, bytes as f64, rate);
            }
        }
    }
    let largest = |name: &str| result.curves.get(name).and_then(|c| c.last()).map(|p| p.1);
    if let Some(rate) = largest("bandwidth.copy.1") {
        result.extra.insert("copy_bytes_per_s".to_owned(), rate);
    }
    Ok(())
}

/// Returns the best of several rounds: total bytes of all threads divided by the time of the
/// slowest.
fn stream_rate(
    stream: Stream,
    bytes: usize,
    cpus: &[u32],
    rounds: usize,
) -> Result<f64, MemoryError> {
    let words = if stream == Stream::Copy { bytes / 16 } else { bytes / 8 };
    let mut memories = Vec::new();
    for _ in cpus {
        let from = mapped(words * 8, Pages::Huge)?;
        let to = mapped(if stream == Stream::Read { 8 } else { words * 8 }, Pages::Huge)?;
        memories.push((from, to));
    }
    assert!(
        !cpus.is_empty() && (1..cpus.len()).all(|i| !cpus[..i].contains(&cpus[i])),
        "each stream must have its own processor; otherwise they share its bandwidth: {cpus:?}"
    );
    let barrier = Barrier::new(cpus.len());
    let works = memories.iter_mut().zip(cpus).map(|((from, to), cpu)| {
        let barrier = &barrier;
        let work = move || {
            let _pinned = PinnedThread::pin(*cpu);
            // Now that it is pinned, the memory is that of its node.
            from.touch(4096);
            to.touch(4096);
            let from = &from.words()[..words];
            let to_words = to.words().len().min(words);
            let to = &mut to.words_mut()[..to_words];
            let start = monotonic_ns();
            let once = stream.once(from, to);
            let ns = (monotonic_ns() - start).max(1) as f64;
            // The first pass is slow at every size, so this count is only an estimate.
            let turns = ((STREAM_NS / ns) as usize).clamp(1, 1 << 20) * 2;
            let mut all = Vec::new();
            for _ in 0..rounds {
                barrier.wait();
                let start = monotonic_ns();
                for _ in 0..turns {
                    stream.once(from, to);
                }
                all.push((start, monotonic_ns(), once * turns));
            }
            all
        };
        (named(format!("stream-cpu{cpu}")), work)
    });
    let each: Vec<Option<Vec<(u64, u64, usize)>>> = together(works).map_err(MemoryError::Thread)?;
    let rate = |round: usize| {
        let of: Vec<_> = each.iter().flatten().filter_map(|all| all.get(round)).collect();
        let bytes: usize = of.iter().map(|(_, _, bytes)| bytes).sum();
        let first = of.iter().map(|(start, _, _)| *start).min().unwrap_or(0);
        let last = of.iter().map(|(_, end, _)| *end).max().unwrap_or(0);
        bytes as f64 / ((last - first).max(1) as f64 / 1e9)
    };
    Ok((0..rounds).map(rate).fold(0.0, f64::max))
}

/// Measures the transfer of a cache line between each pair of processors, or records why this would
/// be meaningless.
pub(crate) fn pairs(
    options: &MemoryOptions,
    allowed: &[u32],
    result: &mut MemoryResult,
) -> Result<(), MemoryError> {
    if allowed.len() < 2 {
        result.pairs_skipped = Some("only one processor is allowed".to_owned());
        return Ok(());
    }
    let rounds = if options.quick { 10 } else { 30 };
    let watch = CpuWait::start();
    let mut all = Vec::new();
    for (i, a) in allowed.iter().enumerate() {
        for b in &allowed[i + 1..] {
            if all.len() < PAIRS_MAX {
                all.extend(one_way_ns(*a, *b, rounds)?.map(|ns| CpuPair {
                    a: *a,
                    b: *b,
                    one_way_ns: ns,
                }));
            }
        }
    }
    // If other programs use the processors, the threads would measure those programs.
    match watch.share() {
        Some(share) if share > BUSY_MAX => {
            result.pairs_skipped = Some(format!(
                "threads waited for a processor {:.0} % of the time; both must be free",
                share * 100.0
            ));
        }
        _ => result.pairs = all,
    }
    Ok(())
}

fn one_way_ns(a: u32, b: u32, rounds: usize) -> Result<Option<f64>, MemoryError> {
    assert_ne!(a, b, "two threads on one processor would wait for its scheduler");
    let line = AtomicU64::new(u64::MAX);
    let barrier = Barrier::new(2);
    let side = |cpu: u32, mine: u64| {
        let pinned = PinnedThread::pin(cpu);
        let mut times = Vec::new();
        for _ in 0..rounds {
            barrier.wait();
            if mine == 0 {
                line.store(0, std::sync::atomic::Ordering::Release);
            }
            barrier.wait();
            let start = monotonic_ns();
            if pinned.is_err() || !spin_pair(&line, mine, TURNS, SPINS_MAX) {
                times.push(f64::INFINITY);
                continue;
            }
            times.push((monotonic_ns() - start) as f64 / (2 * TURNS) as f64);
        }
        minimum(&times)
    };
    let side = &side;
    let works = [("ping", a, 0), ("pong", b, 1)]
        .map(|(role, cpu, mine)| (named(format!("{role}-cpu{cpu}")), move || side(cpu, mine)));
    let times = together(works).map_err(MemoryError::Thread)?;
    let slower = times.into_iter().map(|ns| ns.unwrap_or(f64::INFINITY)).fold(0.0, f64::max);
    Ok(Some(slower).filter(|ns| ns.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_counts_bytes_once() {
        let from = vec![3u64; 100];
        let mut to = vec![0u64; 100];
        assert_eq!(Stream::Copy.once(&from, &mut to), 800);
        assert_eq!(to, from);
        assert_eq!(Stream::Write.once(&from, &mut to), 800);
        assert_eq!(to, [1; 100]);
        assert_eq!(Stream::Read.once(&from, &mut []), 800);
    }

    #[test]
    fn every_stream_has_a_rate() {
        let allowed = ioloom_sys::affinity::allowed().unwrap();
        for stream in Stream::ALL {
            assert!(stream_rate(stream, 16 << 10, &allowed[..1], 1).unwrap() > 0.0);
        }
    }
}
