//! A cycle of pointers through a region, and walks along the cycle.
//!
//! A chain contains machine addresses, so one step of a walk is a single load; with offsets, every
//! step would also have to compute an address. This is safe because a chain owns its region, writes
//! every address itself, and writes only addresses of nodes.

use super::Region;
use std::ptr::NonNull;

/// Supported numbers of interleaved walks.
pub const CHAIN_COUNTS: [usize; 5] = [1, 2, 4, 8, 16];

/// Loads per iteration of the walking loop.
const UNROLL: usize = 32;

/// The work of a step in addition to following its pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Loads only.
    Load,
    /// Also increments the word after the pointer, which dirties every line.
    Store,
}

/// A chain of pointers.
#[derive(Debug)]
pub struct Chain {
    region: Region,
    at: NonNull<u64>,
    /// Positions of the interleaved walks, each at a node.
    side: [*mut u64; 16],
    len: usize,
}

// SAFETY: `at` and `side` point into the region, which is owned exclusively by the chain.
unsafe impl Send for Chain {}

/// Positions of the nodes in a chain, in 8-byte words: node `i` is at `i * stride + ((i * skew) &
/// skew_mask)`. All three fields are even, so the word after a node is never a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Words between nodes.
    pub stride: usize,
    /// Words by which each node is shifted relative to the previous one.
    pub skew: usize,
    /// Mask for the shift: one less than a power of two, made even.
    pub skew_mask: usize,
}

impl Layout {
    /// Places one node in each block of `line_bytes`, without gaps.
    pub const fn packed(line_bytes: usize) -> Self {
        Self { stride: line_bytes / 8, skew: 0, skew_mask: 0 }
    }

    /// Places one node in each page, one line further than in the previous page, so that the nodes
    /// do not all fall into one cache set.
    pub const fn one_per_page(page_bytes: usize, line_bytes: usize) -> Self {
        Self { stride: page_bytes / 8, skew: line_bytes / 8, skew_mask: (page_bytes / 8 - 1) & !1 }
    }

    /// Returns the word at which node `i` begins.
    pub const fn place(&self, i: usize) -> usize {
        i * self.stride + ((i * self.skew) & self.skew_mask)
    }

    /// Returns the number of bytes occupied by `nodes`, including the word after the last node.
    pub const fn bytes(&self, nodes: usize) -> usize {
        (nodes.saturating_sub(1) * self.stride + self.skew_mask + 2) * 8
    }
}

impl Chain {
    /// Writes a chain in which node `i` is followed by node `next[i]`. The caller must ensure that
    /// `next` is a single cycle; this function checks that every step stays inside the region.
    ///
    /// # Panics
    /// If there are no nodes, an element of `next` is not a node, the layout is odd, or the nodes
    /// do not fit. Each case is a bug in the caller.
    pub fn link(mut region: Region, layout: Layout, next: &[u32]) -> Self {
        let even = [layout.stride, layout.skew, layout.skew_mask].iter().all(|n| n % 2 == 0);
        assert!(even && layout.stride > 0, "the word after a node must not be a node");
        assert!(!next.is_empty(), "a chain must have nodes");
        assert!(layout.bytes(next.len()) <= region.bytes(), "the nodes must be inside the region");
        let base = region.words_mut().as_mut_ptr();
        for (i, to) in next.iter().enumerate() {
            assert!((*to as usize) < next.len(), "every node must be followed by a node");
            // SAFETY: both positions are inside the region because the last one is.
            unsafe { *base.add(layout.place(i)) = base.add(layout.place(*to as usize)) as u64 };
        }
        // SAFETY: node 0 is inside the region, which is not at address 0.
        let at = unsafe { NonNull::new_unchecked(base.add(layout.place(0))) };
        let node = |i: usize| layout.place(i * next.len() / 16);
        // SAFETY: the positions of nodes are inside the region.
        let side = std::array::from_fn(|i| unsafe { base.add(node(i)) });
        Self { region, at, side, len: next.len() }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `false`: a chain always has nodes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the number of bytes of the region in huge pages, see [`Region::huge_bytes`].
    pub fn huge_bytes(&self) -> Option<u64> {
        self.region.huge_bytes()
    }

    /// Returns the words visited by the next `steps` steps, counted from the start of the region.
    pub fn order(&self, steps: usize) -> Vec<usize> {
        let base = self.region.words().as_ptr() as usize;
        let mut at = self.at.as_ptr();
        let mut order = Vec::with_capacity(steps);
        for _ in 0..steps {
            order.push((at as usize - base) / 8);
            // SAFETY: `at` is a node, and every node contains the address of a node.
            at = unsafe { follow(at) };
        }
        order
    }

    /// Takes at least `steps` steps, rounded up to a multiple of 32, each of which waits for the
    /// previous one. The next call continues from there. Returns the number of steps taken.
    #[inline(never)]
    pub fn walk(&mut self, steps: usize, step: Step) -> usize {
        let turns = steps.div_ceil(UNROLL).max(1);
        let mut at = self.at.as_ptr();
        for _ in 0..turns {
            match step {
                Step::Load => {
                    for _ in 0..UNROLL {
                        // SAFETY: `at` is a node, every node contains the address of a node, and
                        // `Store` writes only to words that are not nodes.
                        at = unsafe { follow(at) };
                    }
                }
                Step::Store => {
                    for _ in 0..UNROLL {
                        // SAFETY: as above; the word after a node is inside the region and is not a
                        // node.
                        unsafe {
                            let after = at.add(1);
                            after.write(after.read().wrapping_add(1));
                            at = follow(at);
                        }
                    }
                }
            }
        }
        self.at = NonNull::new(std::hint::black_box(at)).expect("a chain must not contain null");
        turns * UNROLL
    }

    /// Interleaves `ways` walks, a number in [`CHAIN_COUNTS`], which begin at nodes spread evenly
    /// over the region; the next call continues from there. Loads of the same walk wait for each
    /// other, loads of different walks do not. Returns the total number of steps over all walks, or
    /// `None` if the number of walks is unsupported.
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
                    // SAFETY: `*one` is a node, and every node contains the address of a node.
                    *one = unsafe { follow(*one) };
                }
            }
        }
        self.side[..N].copy_from_slice(&std::hint::black_box(at));
        turns * N * 8
    }

    /// Returns the region, for use by another chain.
    pub fn into_region(self) -> Region {
        self.region
    }
}

/// Loads the next address.
///
/// # Safety
/// `at` must be a node of a live chain.
#[inline(always)]
unsafe fn follow(at: *mut u64) -> *mut u64 {
    let next: *mut u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller guarantees that `at` can be read; the instruction does nothing else.
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
    // SAFETY: as above; a volatile read is neither removed nor merged with another.
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
    fn a_walk_visits_the_nodes_in_order() {
        let region = Region::new(1 << 16, Pages::Small).unwrap();
        let layout = Layout::packed(64);
        let mut chain = Chain::link(region, layout, &[3, 0, 1, 4, 2]);
        assert_eq!((chain.len(), chain.order(6)), (5, vec![0, 24, 32, 16, 8, 0]));
        // 32 steps through 5 nodes end two nodes further on.
        assert_eq!(chain.walk(1, Step::Load), 32);
        assert_eq!(chain.order(1), [32]);
        assert_eq!(chain.walk(33, Step::Store), 64);
        assert_eq!(chain.order(1), [24]);
        let region = chain.into_region();
        let written: u64 = (0..5).map(|i| region.words()[layout.place(i) + 1]).sum();
        assert_eq!(written, 64);
    }

    #[test]
    fn interleaved_walks_take_their_steps() {
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
    fn one_line_per_page_shifts_from_page_to_page() {
        let layout = Layout::one_per_page(4096, 64);
        let places: Vec<usize> = (0..65).map(|i| layout.place(i)).collect();
        assert_eq!((places[1], places[63], places[64]), (520, 63 * 520, 64 * 512));
        assert!(places.iter().enumerate().all(|(i, p)| p / 512 == i && p % 8 == 0));
    }

    #[test]
    #[should_panic(expected = "followed by a node")]
    fn a_step_out_of_the_chain_panics() {
        let region = Region::new(1 << 16, Pages::Small).unwrap();
        Chain::link(region, Layout::packed(64), &[1, 2]);
    }

    #[test]
    #[should_panic(expected = "inside the region")]
    fn a_chain_that_does_not_fit_panics() {
        let region = Region::new(HUGE_BYTES, Pages::Small).unwrap();
        Chain::link(region, Layout { stride: HUGE_BYTES / 8, skew: 0, skew_mask: 0 }, &[1, 0]);
    }
}
