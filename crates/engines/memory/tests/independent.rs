//! Another chase, as one would write it in C, agrees with the one that the ladder is made of.
//!
//! It shares nothing with it: nodes that point at each other, in an order that is the same in every
//! run, on ordinary memory of the allocator, with the least of many short blocks as its figure. Both
//! are measured in turn until they agree, because a clock that changes or a neighbour can only make
//! one of them look slower than it is: the least of enough blocks is the machine's own. So this judges
//! no speed, only that two rulers read the same.

use ioloom_memory::SmtPlan;
use ioloom_memory::single::Single;
use std::cell::Cell;
use std::time::Instant;

const LINE: usize = 64;
/// Loads of one block.
const LOADS: u32 = 40_000;
/// Blocks between two looks at the other ruler.
const BLOCKS: usize = 12;
/// Rounds after which the two do not agree.
const ROUNDS: u64 = 60;

#[repr(align(64))]
#[derive(Default)]
struct Node<'a> {
    next: Cell<Option<&'a Node<'a>>>,
}

/// Links all nodes to one ring, in an order without a distance that a prefetcher could learn: that of
/// their numbers after mixing the bits.
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

/// The least time of a load in `blocks` blocks, nanoseconds.
fn least_ns<'a>(start: &'a Node<'a>, blocks: usize) -> f64 {
    let mut node = start;
    let mut least = f64::INFINITY;
    for _ in 0..blocks {
        let began = Instant::now();
        for _ in 0..LOADS {
            node = node.next.get().expect("a ring");
        }
        least = least.min(began.elapsed().as_nanos() as f64 / f64::from(LOADS));
        std::hint::black_box(node);
    }
    least
}

fn agrees(bytes: usize) {
    let nodes: Vec<Node<'_>> = (0..bytes / LINE).map(|_| Node::default()).collect();
    link(&nodes);
    let plan = SmtPlan::choose(&[], &[], None);
    let (mut plain, mut ours) = (f64::INFINITY, f64::INFINITY);
    for round in 0..ROUNDS {
        plain = plain.min(least_ns(&nodes[0], BLOCKS));
        ours = ours.min(Single::Chase(bytes).run(round, &plan).unwrap().0);
        if (0.9..=1.1).contains(&(ours / plain)) {
            return;
        }
    }
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
