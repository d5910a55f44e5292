//! A cycle of pointers through a region, and walks along it.
//!
//! A chain holds machine addresses, because a walk then is one load for each step and nothing
//! else; offsets would add the work of turning them into addresses to every step. That is safe
//! because a chain owns its region, writes every address itself, and every address that it writes
//! is that of a place where it has written one.

use super::Region;
use std::ptr::NonNull;

/// How many walks may go side by side.
pub const CHAIN_COUNTS: [usize; 5] = [1, 2, 4, 8, 16];

/// Loads that one turn of the walking loop does.
const UNROLL: usize = 32;

/// What a step does besides following its pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing: loads only.
    Load,
    /// Adds one to the word after the pointer, so that every line becomes dirty.
    Store,
}

/// A chain of pointers.
#[derive(Debug)]
pub struct Chain {
    region: Region,
    at: NonNull<u64>,
    /// Where the walks side by side are, each at a node.
    side: [*mut u64; 16],
    len: usize,
}

// SAFETY: `at` and `side` point into the region that the chain owns alone.
unsafe impl Send for Chain {}

/// Where the nodes of a chain lie, in 8-byte words: node `i` at
/// `i * stride + ((i * skew) & skew_mask)`. All three are even, so that the word behind a node is
/// never a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Words from node to node.
    pub stride: usize,
    /// Words by which each node is moved further than the one before.
    pub skew: usize,
    /// Mask of the movement: one less than a power of two, made even.
    pub skew_mask: usize,
}

impl Layout {
    /// One node in each `line_bytes`, without a gap.
    pub const fn packed(line_bytes: usize) -> Self {
        Self { stride: line_bytes / 8, skew: 0, skew_mask: 0 }
    }

    /// One node in each page, in the next line of it than in the page before, so that the nodes
    /// do not all fall in one set of a cache.
    pub const fn one_per_page(page_bytes: usize, line_bytes: usize) -> Self {
        Self { stride: page_bytes / 8, skew: line_bytes / 8, skew_mask: (page_bytes / 8 - 1) & !1 }
    }

    /// Returns the word at which node `i` lies.
    pub const fn place(&self, i: usize) -> usize {
        i * self.stride + ((i * self.skew) & self.skew_mask)
    }

    /// Returns bytes that `nodes` take, the word behind the last one included.
    pub const fn bytes(&self, nodes: usize) -> usize {
        (nodes.saturating_sub(1) * self.stride + self.skew_mask + 2) * 8
    }
}

impl Chain {
    /// Writes the chain in which node `i` is followed by node `next[i]`. That `next` is a single
    /// cycle is the caller's business; that every step stays in the region is checked here.
    ///
    /// # Panics
    /// Without nodes, with a `next` that is no node, with an odd layout or one that does not fit:
    /// mistakes of the caller, not of the world.
    pub fn link(mut region: Region, layout: Layout, next: &[u32]) -> Self {
        let even = [layout.stride, layout.skew, layout.skew_mask].iter().all(|n| n % 2 == 0);
        assert!(even && layout.stride > 0, "the word behind a node is no node");
        assert!(!next.is_empty(), "a chain has nodes");
        assert!(layout.bytes(next.len()) <= region.bytes(), "the nodes lie in the region");
        let base = region.words_mut().as_mut_ptr();
        for (i, to) in next.iter().enumerate() {
            assert!((*to as usize) < next.len(), "every node is followed by a node");
            // SAFETY: both places lie in the region, because the last one does.
            unsafe { *base.add(layout.place(i)) = base.add(layout.place(*to as usize)) as u64 };
        }
        // SAFETY: node 0 lies in the region, which is not at address 0.
        let at = unsafe { NonNull::new_unchecked(base.add(layout.place(0))) };
        let node = |i: usize| layout.place(i * next.len() / 16);
        // SAFETY: places of nodes lie in the region.
        let side = std::array::from_fn(|i| unsafe { base.add(node(i)) });
        Self { region, at, side, len: next.len() }
    }

    /// Nodes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a chain has nodes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns bytes of the region in huge pages, see [`Region::huge_bytes`].
    pub fn huge_bytes(&self) -> Option<u64> {
        self.region.huge_bytes()
    }

    /// Returns the words, counted from the start of the region, that the next `steps` steps meet.
    pub fn order(&self, steps: usize) -> Vec<usize> {
        let base = self.region.words().as_ptr() as usize;
        let mut at = self.at.as_ptr();
        let mut order = Vec::with_capacity(steps);
        for _ in 0..steps {
            order.push((at as usize - base) / 8);
            // SAFETY: every address at a node is that of a node.
            at = unsafe { follow(at) };
        }
        order
    }

    /// Takes at least `steps` steps, a multiple of 32, each waiting for the one before, and goes
    /// on from there next time. Returns the number taken.
    #[inline(never)]
    pub fn walk(&mut self, steps: usize, step: Step) -> usize {
        let turns = steps.div_ceil(UNROLL).max(1);
        let mut at = self.at.as_ptr();
        for _ in 0..turns {
            match step {
                Step::Load => {
                    for _ in 0..UNROLL {
                        // SAFETY: every address at a node is that of a node, and `Store` writes
                        // only to words that are none.
                        at = unsafe { follow(at) };
                    }
                }
                Step::Store => {
                    for _ in 0..UNROLL {
                        // SAFETY: as above; the word behind a node lies in the region and is no
                        // node.
                        unsafe {
                            let beside = at.add(1);
                            beside.write(beside.read().wrapping_add(1));
                            at = follow(at);
                        }
                    }
                }
            }
        }
        self.at = NonNull::new(std::hint::black_box(at)).expect("no null in a chain");
        turns * UNROLL
    }

    /// As [`Chain::walk`] with `ways` walks side by side, a number of [`CHAIN_COUNTS`], that begin
    /// at nodes spread evenly over the region and go on from where they were next time. Loads of
    /// one walk wait for each other, those of different walks do not. Returns the steps of all
    /// walks together; `None` for another number of ways.
    pub fn walk_interleaved(&mut self, steps: usize, ways: usize) -> Option<usize> {
        match ways {
            1 => Some(self.side_by_side::<1>(steps)),
            2 => Some(self.side_by_side::<2>(steps)),
            4 => Some(self.side_by_side::<4>(steps)),
            8 => Some(self.side_by_side::<8>(steps)),
            16 => Some(self.side_by_side::<16>(steps)),
            _ => None,
        }
    }

    #[inline(never)]
    fn side_by_side<const N: usize>(&mut self, steps: usize) -> usize {
        let mut at: [*mut u64; N] = std::array::from_fn(|i| self.side[i]);
        let turns = steps.div_ceil(N * 8).max(1);
        for _ in 0..turns {
            for _ in 0..8 {
                for one in &mut at {
                    // SAFETY: every address at a node is that of a node.
                    *one = unsafe { follow(*one) };
                }
            }
        }
        self.side[..N].copy_from_slice(&std::hint::black_box(at));
        turns * N * 8
    }

    /// Returns the region, for another chain.
    pub fn into_region(self) -> Region {
        self.region
    }
}

/// One load whose result is the next address.
///
/// # Safety
/// `at` must be a node of a live chain.
#[inline(always)]
unsafe fn follow(at: *mut u64) -> *mut u64 {
    let next: *mut u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller says that `at` can be read; the instruction does nothing else.
    unsafe {
        core::arch::asm!("mov {0}, [{1}]", out(reg) next, in(reg) at,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("ldr {0}, [{1}]", out(reg) next, in(reg) at,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    // SAFETY: as above; a volatile read is neither removed nor joined with another.
    unsafe {
        next = std::ptr::read_volatile(at) as *mut u64;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::super::{HUGE_BYTES, Pages};
    use super::*;

    #[test]
    fn a_walk_meets_the_nodes_in_order() {
        let region = Region::new(1 << 16, Pages::Small).unwrap();
        let layout = Layout::packed(64);
        let mut chain = Chain::link(region, layout, &[3, 0, 1, 4, 2]);
        assert_eq!((chain.len(), chain.order(6)), (5, vec![0, 24, 32, 16, 8, 0]));
        // 32 steps along 5 nodes end two nodes on.
        assert_eq!(chain.walk(1, Step::Load), 32);
        assert_eq!(chain.order(1), [32]);
        assert_eq!(chain.walk(33, Step::Store), 64);
        assert_eq!(chain.order(1), [24]);
        let region = chain.into_region();
        let written: u64 = (0..5).map(|i| region.words()[layout.place(i) + 1]).sum();
        assert_eq!(written, 64);
    }

    #[test]
    fn walks_side_by_side_take_their_steps() {
        let region = Region::new(1 << 16, Pages::Small).unwrap();
        let next: Vec<u32> = (0..64).map(|i| (i + 1) % 64).collect();
        let mut chain = Chain::link(region, Layout::packed(64), &next);
        for ways in CHAIN_COUNTS {
            let steps = chain.walk_interleaved(1000, ways).unwrap();
            assert!(steps >= 1000 && steps < 1000 + ways * 8);
        }
        assert_eq!(chain.walk_interleaved(10, 3), None);
    }

    #[test]
    fn one_line_per_page_wanders_through_the_page() {
        let layout = Layout::one_per_page(4096, 64);
        let places: Vec<usize> = (0..65).map(|i| layout.place(i)).collect();
        assert_eq!((places[1], places[63], places[64]), (520, 63 * 520, 64 * 512));
        assert!(places.iter().enumerate().all(|(i, p)| p / 512 == i && p % 8 == 0));
    }

    #[test]
    #[should_panic(expected = "followed by a node")]
    fn a_step_out_of_the_chain_is_refused() {
        let region = Region::new(1 << 16, Pages::Small).unwrap();
        Chain::link(region, Layout::packed(64), &[1, 2]);
    }

    #[test]
    #[should_panic(expected = "lie in the region")]
    fn a_chain_that_does_not_fit_is_refused() {
        let region = Region::new(HUGE_BYTES, Pages::Small).unwrap();
        Chain::link(region, Layout { stride: HUGE_BYTES / 8, skew: 0, skew_mask: 0 }, &[1, 0]);
    }
}
