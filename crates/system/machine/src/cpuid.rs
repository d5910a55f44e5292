//! Caches and TLBs as reported by the processor (CPUID).
//!
//! A hypervisor may answer in place of the processor, so these values must be compared with
//! measurements. Leaf 4 is Intel's list of caches and 0x8000001D is AMD's; 0x80000006 is AMD's
//! older leaf, which reports the L3 size of the whole socket. Processors other than x86-64 report
//! nothing.

use ioloom_model::topology::CpuidFacts;
use raw_cpuid::{CacheType, CpuId, CpuIdReader, DatType};

/// Maximum number of caches listed by a processor; a reader that returns more never ends its list.
const CACHES_MAX: usize = 8;

/// Returns the properties reported by a CPUID leaf reader; on the running machine this is the
/// instruction itself.
pub(crate) fn facts<R: CpuIdReader>(cpuid: &CpuId<R>) -> CpuidFacts {
    let vendor = cpuid.get_vendor_info().map(|vendor| vendor.as_str().to_owned());
    let mut facts = CpuidFacts {
        vendor: vendor.unwrap_or_default(),
        caches: caches(cpuid),
        ..CpuidFacts::default()
    };
    if facts.vendor == "AuthenticAMD" {
        amd(&mut facts, cpuid);
    } else {
        deterministic(&mut facts, cpuid);
    }
    facts
}

/// Returns level and size in bytes of each cache that holds data.
fn caches<R: CpuIdReader>(cpuid: &CpuId<R>) -> Vec<(u32, u64)> {
    let list = cpuid.get_cache_parameters().into_iter().flatten().take(CACHES_MAX);
    list.filter(|cache| cache.cache_type() != CacheType::Instruction)
        .map(|cache| {
            let bytes = cache.coherency_line_size() as u64
                * cache.physical_line_partitions() as u64
                * cache.associativity() as u64
                * cache.sets() as u64;
            (u32::from(cache.level()), bytes)
        })
        .collect()
}

/// Reads AMD's fixed leaves. A field of 0 means that the processor does not report the value.
fn amd<R: CpuIdReader>(facts: &mut CpuidFacts, cpuid: &CpuId<R>) {
    let some = |n: u32| Some(n).filter(|n| *n > 0);
    if let Some(first) = cpuid.get_l1_cache_and_tlb_info() {
        facts.tlb_l1_4k = some(first.dtlb_4k_size().into());
        facts.tlb_l1_2m = some(first.dtlb_2m_4m_size().into());
    }
    if let Some(second) = cpuid.get_l2_l3_cache_and_tlb_info() {
        facts.tlb_l2_4k = some(second.dtlb_4k_size().into());
        facts.tlb_l2_2m = some(second.dtlb_2m_4m_size().into());
        // The leaf is in units of 512 KiB.
        facts.socket_l3_bytes = some(second.l3cache_size().into()).map(|n| u64::from(n) << 19);
    }
}

/// Reads Intel's list of TLBs; returns those for data, including shared ones.
fn deterministic<R: CpuIdReader>(facts: &mut CpuidFacts, cpuid: &CpuId<R>) {
    for buffer in cpuid.get_deterministic_address_translation_info().into_iter().flatten() {
        let entries = u32::from(buffer.ways()).wrapping_mul(buffer.sets());
        let holds_data = matches!(
            buffer.cache_type(),
            DatType::DataTLB | DatType::UnifiedTLB | DatType::LoadOnly
        );
        if !holds_data || entries == 0 {
            continue;
        }
        let (small, large) = match buffer.cache_level() {
            1 => (&mut facts.tlb_l1_4k, &mut facts.tlb_l1_2m),
            _ => (&mut facts.tlb_l2_4k, &mut facts.tlb_l2_2m),
        };
        if buffer.has_4k_entries() {
            *small = Some(entries);
        }
        if buffer.has_2mb_entries() {
            *large = Some(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raw_cpuid::CpuIdResult;

    fn of(leaf: impl Fn(u32, u32) -> [u32; 4] + Clone) -> CpuidFacts {
        facts(&CpuId::with_cpuid_reader(move |eax, ecx| {
            let [eax, ebx, ecx, edx] = leaf(eax, ecx);
            CpuIdResult { eax, ebx, ecx, edx }
        }))
    }

    /// Registers of a virtual machine on a Zen 5: 48 KiB and 1 MiB, with a third level of 32 MiB
    /// according to the list and 384 MiB according to the older leaf.
    fn zen5(leaf: u32, sub: u32) -> [u32; 4] {
        match (leaf, sub) {
            (0, _) => [0x10, 0x6874_7541, 0x444D_4163, 0x6974_6E65],
            (0x8000_0000, _) => [0x8000_0021, 0, 0, 0],
            (0x8000_001D, 0) => [0x121, (11 << 22) | 63, 63, 0],
            (0x8000_001D, 1) => [0x122, (7 << 22) | 63, 63, 0],
            (0x8000_001D, 2) => [0x143, (15 << 22) | 63, 1023, 0],
            (0x8000_001D, 3) => [0x163, (15 << 22) | 63, 32767, 0],
            (0x8000_0005, _) => [0x4060_4060, 0x4060_4060, 0, 0],
            (0x8000_0006, _) => [0x4040_4040, 0x4080_4080, 1024 << 16, 768 << 18],
            _ => [0; 4],
        }
    }

    #[test]
    fn both_amd_answers_for_the_third_level_are_kept() {
        let found = of(zen5);
        assert_eq!(found.vendor, "AuthenticAMD");
        assert_eq!(found.caches, [(1, 48 << 10), (2, 1 << 20), (3, 32 << 20)]);
        assert_eq!(found.socket_l3_bytes, Some(384 << 20));
        assert_eq!((found.tlb_l1_4k, found.tlb_l2_4k), (Some(0x60), Some(0x80)));
        assert_eq!((found.tlb_l1_2m, found.tlb_l2_2m), (Some(0x60), Some(0x40)));
    }

    /// Returns the processor of study 000 by leaf 4, and a list of translation buffers.
    fn intel(leaf: u32, sub: u32) -> [u32; 4] {
        match (leaf, sub) {
            (0, _) => [0x1B, 0x756E_6547, 0x6C65_746E, 0x4965_6E69],
            (4, 0) => [0x121, (11 << 22) | 63, 63, 0],
            (4, 1) => [0x122, (7 << 22) | 63, 63, 0],
            (4, 2) => [0x143, (7 << 22) | 63, 1023, 0],
            (4, 3) => [0x163, (11 << 22) | 63, 8191, 0],
            (0x18, 0) => [3, 0, 0, 0],
            (0x18, 1) => [0, (4 << 16) | 1, 16, 0x21],
            (0x18, 2) => [0, (8 << 16) | 3, 192, 0x43],
            _ => [0; 4],
        }
    }

    #[test]
    fn intel_lists_are_read() {
        let found = of(intel);
        assert_eq!(found.vendor, "GenuineIntel");
        assert_eq!(found.caches, [(1, 48 << 10), (2, 512 << 10), (3, 6 << 20)]);
        assert_eq!(
            (found.tlb_l1_4k, found.tlb_l2_4k, found.tlb_l2_2m),
            (Some(64), Some(1536), Some(1536))
        );
        assert_eq!(found.socket_l3_bytes, None);
    }

    #[test]
    fn a_processor_without_leaves_gives_no_facts() {
        let found = of(|_, _| [0; 4]);
        assert!(found.caches.is_empty() && found.tlb_l1_4k.is_none());
    }

    #[test]
    fn this_processor_is_described() {
        let found = facts(&CpuId::new());
        assert_eq!(found.vendor.len(), 12);
        assert!(found.caches.iter().all(|(level, bytes)| *level > 0 && *bytes > 0));
    }
}
