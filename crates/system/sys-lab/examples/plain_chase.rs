//! An independent measurement of cache latency: `plain_chase KIB…` prints ns per load.
//!
//! Shares no code with the chains in this crate. It uses allocator memory in huge pages, pointers
//! in bit-reversed order (constant, so runs are comparable), a plain volatile read in one long
//! loop, and the best of several runs. The stored results compare the two; both could only be wrong
//! in the same way by chance. Run `cargo run --release -p ioloom-sys-lab --example plain_chase --
//! 16 32 256 512`.

#![allow(clippy::print_stdout)]

use std::alloc::{Layout, alloc};
use std::time::Instant;

const LINE: usize = 64;
const HUGE: usize = 2 << 20;
const STEPS: usize = 2_000_000;
const TRIES: usize = 40;

fn reversed(i: usize, bits: u32) -> usize {
    i.reverse_bits() >> (usize::BITS - bits)
}

fn chase_ns(kib: usize) -> f64 {
    // A power of two of lines, so bit reversal visits each line once.
    let lines = (kib * 1024 / LINE).next_power_of_two() / if kib.is_power_of_two() { 1 } else { 2 };
    let bits = lines.trailing_zeros();
    // Use whole huge pages, like the ladder: beyond the reach of the first-level TLB, small pages
    // would add the cost of address translation to the latency.
    let bytes = (lines * LINE).next_multiple_of(HUGE);
    let layout = Layout::from_size_align(bytes, HUGE).expect("a small power of two");
    // SAFETY: the layout has a non-zero size.
    let base = unsafe { alloc(layout) };
    assert!(!base.is_null(), "out of memory");
    // SAFETY: the range is the allocation, and the advice does not change its contents.
    let advised =
        unsafe { rustix::mm::madvise(base.cast(), bytes, rustix::mm::Advice::LinuxHugepage) };
    if let Err(e) = advised {
        println!("no huge pages: {e}");
    }
    for i in 0..lines {
        let from = reversed(i, bits) * LINE;
        let to = reversed((i + 1) % lines, bits) * LINE;
        // SAFETY: both offsets are within the allocation, which is page-aligned.
        unsafe { base.add(from).cast::<*mut u8>().write(base.add(to)) };
    }
    let mut at = base;
    let mut best = f64::INFINITY;
    for _ in 0..TRIES {
        let start = Instant::now();
        for _ in 0..STEPS / TRIES / 8 {
            // SAFETY: every visited line contains a pointer to a line of the allocation.
            unsafe {
                at = at.cast::<*mut u8>().read_volatile();
                at = at.cast::<*mut u8>().read_volatile();
                at = at.cast::<*mut u8>().read_volatile();
                at = at.cast::<*mut u8>().read_volatile();
                at = at.cast::<*mut u8>().read_volatile();
                at = at.cast::<*mut u8>().read_volatile();
                at = at.cast::<*mut u8>().read_volatile();
                at = at.cast::<*mut u8>().read_volatile();
            }
        }
        let ns = start.elapsed().as_nanos() as f64 / (STEPS / TRIES / 8 * 8) as f64;
        best = best.min(ns);
    }
    std::hint::black_box(at);
    best
}

fn main() {
    for word in std::env::args().skip(1) {
        match word.parse::<usize>() {
            Ok(kib) if (1..=1 << 20).contains(&kib) => {
                println!("{kib} KiB: {:.3} ns per load", chase_ns(kib));
            }
            _ => println!("invalid size '{word}': must be 1 to 1048576 (KiB)"),
        }
    }
}
