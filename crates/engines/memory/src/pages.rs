//! Address translation: TLB reach, the cost of a page table walk, and the cost of touching a page
//! for the first time.
//!
//! Two chains of the same length are compared: one with one line per page, and one with the same
//! number of adjacent lines. Both miss the same caches, so the difference is the cost of
//! translation. The comparison is repeated with huge pages: if the knee does not move, the
//! processor does not see huge pages, regardless of what the kernel reports (a hypervisor may split
//! them).

use crate::blocks::{Bench, minimum, region};
use crate::cycle::sattolo;
use crate::error::MemoryError;
use crate::options::MemoryOptions;
use ioloom_model::memory::MemoryResult;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_lab::memory::{Chain, HUGE_BYTES, Layout, Pages, Region, Step};

const PAGE: usize = 4096;
/// Maximum number of warm-up steps.
const WARM_STEPS: usize = 200_000;
/// Size of newly mapped memory for timing page faults, in bytes.
const FAULT_BYTES: usize = 16 << 20;
/// Translation cost in nanoseconds that counts as zero; less than a cycle.
const NONE_NS: f64 = 0.6;

pub(crate) fn run(
    bench: &mut Bench,
    options: &MemoryOptions,
    result: &mut MemoryResult,
    check_stop: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<(), MemoryError> {
    let line = options.advertised.line();
    let pages_max = if options.quick { 8192 } else { 32_768 };
    let counts: Vec<usize> = (0..)
        .map(|i| (8.0 * (f64::from(i) / 3.0).exp2()) as usize)
        .take_while(|n| *n <= pages_max)
        .collect();
    let (passes, blocks) = if options.quick { (2, 3) } else { (3, 5) };
    for (name, pages) in [("small", Pages::Small), ("huge", Pages::Huge)] {
        let mut region_slot = Some(region(pages_max * PAGE + PAGE, pages)?);
        let mut spread = vec![f64::INFINITY; counts.len()];
        let mut packed = spread.clone();
        for _ in 0..passes {
            for index in bench.shuffled(counts.len()) {
                check_stop()?;
                let n = counts[index];
                let far = Layout::one_per_page(PAGE, line);
                spread[index] =
                    spread[index].min(chain_ns(bench, &mut region_slot, far, n, blocks));
                let near = Layout::packed(line);
                packed[index] =
                    packed[index].min(chain_ns(bench, &mut region_slot, near, n, blocks));
            }
        }
        let curve = |ns: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
            (0..counts.len()).map(|i| (counts[i] as f64, ns(i))).collect()
        };
        let cost = curve(&|i| (spread[i] - packed[i]).max(0.0));
        for (key, value) in knees(&cost) {
            result.extra.insert(format!("tlb_{name}_{key}"), value);
        }
        result.curves.insert(format!("tlb.{name}.spread"), curve(&|i| spread[i]));
        result.curves.insert(format!("tlb.{name}.packed"), curve(&|i| packed[i]));
        result.curves.insert(format!("tlb.{name}.cost"), cost);
    }
    let (first, second) = options.advertised.tlb_entries;
    for (key, entries) in [("tlb_told_l1_entries", first), ("tlb_told_l2_entries", second)] {
        result.extra.extend(entries.map(|n| (key.to_owned(), f64::from(n))));
    }
    faults(result)
}

pub(crate) fn chain_ns(
    bench: &mut Bench,
    region_slot: &mut Option<Region>,
    layout: Layout,
    nodes: usize,
    blocks: usize,
) -> f64 {
    let next = sattolo(nodes as u32, bench.next_seed());
    let region = region_slot.take().expect("the region must be returned after each use");
    let mut chain = Chain::link(region, layout, &next);
    chain.walk((2 * nodes).min(WARM_STEPS), Step::Load);
    let ns = minimum(&bench.time(blocks, |steps| chain.walk(steps, Step::Load)));
    *region_slot = Some(chain.into_region());
    ns
}

/// Finds the knees in a curve of translation cost by page count: the last count without a cost and
/// the first with one, the cost of a second-level TLB hit, where that cost rises, and the cost of a
/// walk.
pub(crate) fn knees(cost: &[(f64, f64)]) -> Vec<(&'static str, f64)> {
    let mut out = Vec::new();
    // Noise only adds to the cost, so a cost above that of a larger count is noise.
    let mut minimum = cost.to_vec();
    for i in (0..minimum.len().saturating_sub(1)).rev() {
        minimum[i].1 = minimum[i].1.min(minimum[i + 1].1);
    }
    let Some(first) = minimum.iter().position(|(_, ns)| *ns > NONE_NS) else {
        out.extend(minimum.last().map(|(pages, _)| ("reach_above_pages", *pages)));
        return out;
    };
    if first > 0 {
        out.push(("l1_low_pages", minimum[first - 1].0));
    }
    out.push(("l1_high_pages", minimum[first].0));
    // The second-level TLB: from the first knee until the cost doubles.
    let step = minimum.get(first + 1).map_or(minimum[first].1, |(_, ns)| *ns);
    out.push(("l2_hit_ns", step));
    if let Some(second) = minimum.iter().position(|(_, ns)| *ns > 2.0 * step.max(NONE_NS)) {
        out.push(("l2_low_pages", minimum[second - 1].0));
        out.push(("l2_high_pages", minimum[second].0));
        let beyond = &minimum[second..];
        out.push(("walk_ns", beyond[beyond.len() / 2].1));
    }
    out
}

/// Measures first touches of memory that the process just released, and of memory it never had.
fn faults(result: &mut MemoryResult) -> Result<(), MemoryError> {
    let pages = (FAULT_BYTES / PAGE) as f64;
    let mut per_page = Vec::new();
    for _ in 0..5 {
        let mut region = mapped(Pages::Small)?;
        let start = monotonic_ns();
        region.touch(PAGE);
        per_page.push((monotonic_ns() - start) as f64 / pages);
    }
    // The first round may get memory that no program has used since boot.
    result.extra.insert("first_touch_ns".to_owned(), per_page[0]);
    result.extra.insert("fault_ns".to_owned(), minimum(&per_page[1..]));
    let mut huge = f64::INFINITY;
    let mut granted = true;
    for _ in 0..3 {
        let mut region = mapped(Pages::Huge)?;
        let start = monotonic_ns();
        region.touch(HUGE_BYTES);
        let ns = (monotonic_ns() - start) as f64 / (FAULT_BYTES / HUGE_BYTES) as f64;
        huge = huge.min(ns);
        granted &= region.huge_bytes().is_some_and(|bytes| bytes >= FAULT_BYTES as u64);
    }
    // Without huge pages, this would measure small faults.
    if granted {
        result.extra.insert("huge_fault_ns".to_owned(), huge);
    }
    Ok(())
}

fn mapped(pages: Pages) -> Result<Region, MemoryError> {
    Region::new(FAULT_BYTES, pages)
        .map_err(|source| MemoryError::Region { bytes: FAULT_BYTES, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn two_tlb_levels_and_a_walk_are_found() {
        let cost: Vec<(f64, f64)> = [
            (64.0, 0.0),
            (91.0, 0.1),
            (108.0, 1.8),
            (256.0, 1.9),
            (2048.0, 1.9),
            (4096.0, 4.5),
            (8192.0, 12.0),
            (16384.0, 20.0),
        ]
        .to_vec();
        let found: BTreeMap<_, _> = knees(&cost).into_iter().collect();
        assert_eq!((found["l1_low_pages"], found["l1_high_pages"]), (91.0, 108.0));
        assert_eq!((found["l2_low_pages"], found["l2_high_pages"]), (2048.0, 4096.0));
        assert_eq!((found["l2_hit_ns"], found["walk_ns"]), (1.9, 12.0));
    }

    #[test]
    fn a_flat_curve_has_no_knee() {
        let flat: Vec<(f64, f64)> = [(8.0, 0.0), (16.0, 0.3), (32.0, 0.2)].to_vec();
        assert_eq!(knees(&flat), [("reach_above_pages", 32.0)]);
        assert_eq!(knees(&[]), []);
    }
}
