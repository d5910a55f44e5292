//! Other ways to measure the same memory, to show how much the result depends on the method.
//!
//! A published test stores one byte in each line in order and reports the time per store as the
//! access time. Stores do not wait for each other and a prefetcher anticipates them, so the test
//! measures a rate rather than a latency. This module compares the dependent chain with that loop,
//! with the same loop using loads, and with independent loads in random order. It also compares
//! rows with columns of a matrix, and a chain of loads with a chain of stores, where every evicted
//! line is dirty.

use crate::blocks::{Bench, minimum, region};
use crate::error::MemoryError;
use crate::ladder::{ChaseRegion, sizes};
use crate::options::MemoryOptions;
use ioloom_model::memory::MemoryResult;
use ioloom_sys_lab::memory::{Pages, Region, Step};
use std::hint::black_box;

#[allow(unreachable_pub, reason = "the same file is public in another crate")]
#[path = "store_lines.rs"]
mod optimised;

/// Side length of the square matrix of 8-byte numbers: 32 MiB, larger than most caches.
const SIDE: usize = 2048;
/// The sizes in the published table, in KiB.
const PUBLISHED_KIB: [usize; 14] =
    [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];

pub(crate) fn run(
    bench: &mut Bench,
    options: &MemoryOptions,
    result: &mut MemoryResult,
    check_stop: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    let line = options.advertised.line();
    let blocks = if options.quick { 5 } else { 9 };
    let bytes_max = options.bytes_max.min(64 << 20);
    let mut memory = region(bytes_max.max(SIDE * SIDE * 8), Pages::Huge)?;
    for size in sizes(bytes_max, 2, line) {
        check_stop()?;
        let at = size as f64;
        let words = &mut memory.words_mut()[..size / 8];
        let mut point = |name: &str, ns: f64| result.add_point(name, at, ns);
        let rounds = |steps: usize| (steps * line).div_ceil(size).max(1);
        point("ruler.store", bench.minimum(blocks, |s| stores(words, line / 8, rounds(s))));
        point("ruler.load", bench.minimum(blocks, |s| loads(words, line / 8, rounds(s))));
        point("ruler.random", bench.minimum(blocks, |s| random_loads(words, line / 8, s)));
    }
    published_loop(bench, &mut memory, line, blocks, result, check_stop)?;
    let matrix = &memory.words()[..SIDE * SIDE];
    let rows = bench.minimum(5, |_| rows(matrix));
    let columns = bench.minimum(5, |_| columns(matrix));
    result.extra.insert("row_order_ns".to_owned(), rows);
    result.extra.insert("column_order_ns".to_owned(), columns);
    drop(memory);
    store_chain(bench, options, result, check_stop)
}

/// Stores to each line in order, in optimised code; returns the number of stores.
fn stores(words: &mut [u64], stride: usize, rounds: usize) -> usize {
    let mut count = 0;
    for _ in 0..rounds {
        let words = black_box(&mut *words);
        for word in words.iter_mut().step_by(stride) {
            *word = 0;
        }
        count += words.len().div_ceil(stride);
    }
    count
}

/// Loads each line in order, independently; returns the number of loads.
fn loads(words: &[u64], stride: usize, rounds: usize) -> usize {
    let mut count = 0;
    for _ in 0..rounds {
        let words = black_box(words);
        let sum = words.iter().step_by(stride).fold(0u64, |sum, word| sum.wrapping_add(*word));
        black_box(sum);
        count += words.len().div_ceil(stride);
    }
    count
}

/// Loads random lines. The next address does not depend on the loaded value.
fn random_loads(words: &[u64], stride: usize, steps: usize) -> usize {
    let lines = (words.len() / stride).max(1) as u64;
    let (mut state, mut sum) = (0x9E37_79B9_7F4A_7C15u64, 0u64);
    for _ in 0..steps {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Multiply and shift, instead of dividing, to get an index below `lines`.
        let at = ((state >> 32) * lines) >> 32;
        sum = sum.wrapping_add(words[at as usize * stride]);
    }
    black_box(sum);
    steps
}

/// Measures the published loop, compiled with and without optimisation.
fn published_loop(
    bench: &mut Bench,
    memory: &mut Region,
    line: usize,
    blocks: usize,
    result: &mut MemoryResult,
    check_stop: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    let level = |text: &str| text.parse::<f64>().ok();
    result
        .extra
        .extend(level(ioloom_plainloop::OPT_LEVEL).map(|l| ("plain_opt_level".to_owned(), l)));
    result.extra.extend(level(optimised::OPT_LEVEL).map(|l| ("optimised_opt_level".to_owned(), l)));
    let mut bytes = vec![0u8; (PUBLISHED_KIB[13] << 10).min(memory.bytes())];
    for kib in PUBLISHED_KIB {
        check_stop()?;
        let size = kib << 10;
        let Some(buffer) = bytes.get_mut(..size) else { break };
        let rounds = |steps: usize| ((steps * line) / size).max(1) as u64;
        let plain = bench
            .minimum(blocks, |s| ioloom_plainloop::store_lines(buffer, line, rounds(s)) as usize);
        let fast =
            bench.minimum(blocks, |s| optimised::store_lines(buffer, line, rounds(s)) as usize);
        result.add_point("seed.plain", size as f64, plain);
        result.add_point("seed.optimised", size as f64, fast);
    }
    Ok(())
}

/// Measures blocks of the published loop in a set of `bytes`.
pub(crate) fn published(
    bench: &mut Bench,
    bytes: usize,
    optimise: bool,
    blocks: usize,
) -> Vec<f64> {
    let mut buffer = vec![0u8; bytes];
    let rounds = |steps: usize| (steps * 64 / bytes).max(1) as u64;
    let run = if optimise { optimised::store_lines } else { ioloom_plainloop::store_lines };
    bench.time(blocks, |steps| run(&mut buffer, 64, rounds(steps)) as usize)
}

/// Measures blocks of independent random loads.
pub(crate) fn random(
    bench: &mut Bench,
    bytes: usize,
    line: usize,
    blocks: usize,
) -> Result<Vec<f64>, MemoryError> {
    let memory = region(bytes, Pages::Huge)?;
    let words = &memory.words()[..bytes / 8];
    Ok(bench.time(blocks, |steps| random_loads(words, line / 8, steps)))
}

/// Measures blocks of a matrix sum by rows or columns.
pub(crate) fn matrix(
    bench: &mut Bench,
    by_rows: bool,
    blocks: usize,
) -> Result<Vec<f64>, MemoryError> {
    let memory = region(SIDE * SIDE * 8, Pages::Huge)?;
    let matrix = &memory.words()[..SIDE * SIDE];
    Ok(bench.time(blocks, |_| if by_rows { rows(matrix) } else { columns(matrix) }))
}

/// Sums a matrix row by row; returns the number of elements.
fn rows(matrix: &[u64]) -> usize {
    sum(matrix, |row, column| row * SIDE + column)
}

/// Sums a matrix column by column: consecutive accesses are one row apart.
fn columns(matrix: &[u64]) -> usize {
    sum(matrix, |column, row| row * SIDE + column)
}

/// Sums a matrix; `at` maps the outer and inner indices to an element.
#[inline(always)]
fn sum(matrix: &[u64], at: impl Fn(usize, usize) -> usize) -> usize {
    let matrix = black_box(matrix);
    let mut sum = 0u64;
    for turn in 0..SIDE {
        for step in 0..SIDE {
            sum = sum.wrapping_add(matrix[at(turn, step)]);
        }
    }
    black_box(sum);
    SIDE * SIDE
}

/// Compares a chain of stores with a chain of loads, inside and beyond each level.
fn store_chain(
    bench: &mut Bench,
    options: &MemoryOptions,
    result: &mut MemoryResult,
    check_stop: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    let line = options.advertised.line();
    let mut walk = ChaseRegion::new(options.bytes_max.min(64 << 20), line)?;
    let mut sizes: Vec<usize> = Vec::new();
    for (low, high) in result.levels.iter().filter_map(|l| l.bracket_bytes) {
        sizes.extend([low as usize / 2, high as usize * 2]);
    }
    sizes.retain(|size| *size >= 2 * line && *size <= options.bytes_max.min(64 << 20));
    sizes.sort_unstable();
    sizes.dedup();
    let blocks = if options.quick { 5 } else { 9 };
    for size in sizes {
        for (name, step) in [("chase.load", Step::Load), ("chase.store", Step::Store)] {
            check_stop()?;
            let mut times = walk.measure_with(bench, size, blocks, step);
            times.extend(walk.measure_with(bench, size, blocks, step));
            result.add_point(name, size as f64, minimum(&times));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rulers_count_their_accesses() {
        let mut words = vec![1u64; 1000];
        assert_eq!(stores(&mut words, 8, 3), 3 * 125);
        assert_eq!(words.iter().filter(|w| **w == 0).count(), 125);
        assert_eq!(loads(&words, 8, 2), 250);
        assert_eq!(random_loads(&words, 8, 10_000), 10_000);
    }

    #[test]
    fn both_compilations_of_the_published_loop_do_the_same() {
        for f in [ioloom_plainloop::store_lines, optimised::store_lines] {
            let mut bytes = vec![7u8; 1000];
            assert_eq!(f(&mut bytes, 64, 3), 3 * 16);
            assert_eq!(bytes.iter().filter(|b| **b == 0).count(), 16);
        }
        assert_eq!(ioloom_plainloop::OPT_LEVEL, "0");
        assert_ne!(optimised::OPT_LEVEL, "0");
    }

    #[test]
    fn rows_and_columns_sum_the_same_numbers() {
        let matrix: Vec<u64> = (0..(SIDE * SIDE) as u64).collect();
        assert_eq!((rows(&matrix), columns(&matrix)), (SIDE * SIDE, SIDE * SIDE));
    }
}
