//! Compares the ladder's pointer chase with an independent one, written in C style.
//!
//! They share no code: this one uses nodes that point to each other, in the same order in every
//! run, in ordinary heap memory, and takes the minimum over many short blocks. The two are measured
//! alternately until they agree. Clock changes and other programs can only slow down one of them,
//! so with enough blocks the minimum is a property of the machine. The test does not judge speed;
//! it only checks that the two methods agree.

use ioloom_memory::SmtPlan;
use ioloom_memory::single::Single;
use std::cell::Cell;
use std::time::{Duration, Instant};

const LINE: usize = 64;
/// Number of loads per block.
const LOADS: u32 = 40_000;
/// Number of blocks before switching to the other method.
const BLOCKS: usize = 12;
/// Number of rounds after which the two methods are considered to disagree.
const ROUNDS: u64 = 60;
/// Number of tries, each with new memory and after a longer pause.
const TRIES: u64 = 6;

#[repr(align(64))]
#[derive(Default)]
struct Node<'a> {
    next: Cell<Option<&'a Node<'a>>>,
}

/// Links all nodes into one ring, ordered by mixed bits of their numbers, without a stride that a
/// prefetcher could learn.
fn link<'a>(nodes: &'a [Node<'a>]) {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|at| {
        let mixed = (*at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    });
    for (at, next) in order.iter().zip(order.iter().cycle().skip(1)) {
        nodes[*at].next.set(Some(&nodes[*next]));
    }
}

/// Returns the minimum load time over `blocks` blocks in nanoseconds.
fn least_ns<'a>(start: &'a Node<'a>, blocks: usize) -> f64 {
    let mut node = start;
    let mut least = f64::INFINITY;
    for _ in 0..blocks {
        let began = Instant::now();
        for _ in 0..LOADS {
            node = node.next.get().expect("the nodes must form a ring");
        }
        least = least.min(began.elapsed().as_nanos() as f64 / f64::from(LOADS));
        std::hint::black_box(node);
    }
    least
}

/// Measures in new memory until the two methods agree. Returns the two times otherwise.
fn disagree(bytes: usize) -> Option<(f64, f64)> {
    let nodes: Vec<Node<'_>> = (0..bytes / LINE).map(|_| Node::default()).collect();
    link(&nodes);
    let plan = SmtPlan::choose(&[], &[], None);
    let (mut plain, mut ours) = (f64::INFINITY, f64::INFINITY);
    for round in 0..ROUNDS {
        plain = plain.min(least_ns(&nodes[0], BLOCKS));
        ours = ours.min(Single::Chase(bytes).run(round, &plan).unwrap().0);
        if (0.9..=1.1).contains(&(ours / plain)) {
            return None;
        }
    }
    Some((ours, plain))
}

/// Tries again after a pause, because another virtual machine may use the caches for seconds.
fn agrees(bytes: usize) {
    let mut last = None;
    for attempt in 0..TRIES {
        std::thread::sleep(Duration::from_secs(attempt));
        last = disagree(bytes);
        if last.is_none() {
            return;
        }
    }
    let (ours, plain) = last.expect("there is more than one try");
    panic!("{bytes} bytes: {ours:.3} ns by the ladder's chase, {plain:.3} ns by the plain one");
}

#[test]
fn a_plain_chase_agrees_in_the_first_level() {
    agrees(16 << 10);
}

#[test]
fn a_plain_chase_agrees_in_the_second_level() {
    agrees(192 << 10);
}
