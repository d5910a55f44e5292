//! What the processor says of its own caches and translation buffers, by the CPUID instruction.
//!
//! Only x86-64 has it; elsewhere every answer is empty. A hypervisor may answer in place of the
//! processor, so these are claims to be compared with a measurement, never the truth. Leaf 4 is
//! Intel's list of caches and 0x8000001D that of AMD, in the same layout; 0x80000006 is AMD's older
//! leaf, whose third-level figure is that of the whole socket.

/// A cache as the processor describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuidCache {
    /// Level, from 1.
    pub level: u32,
    /// `d` data, `i` instructions, `u` both.
    pub kind: char,
    /// Size, bytes.
    pub bytes: u64,
    /// Ways.
    pub ways: u32,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Sets.
    pub sets: u32,
}

/// Entries of translation buffers for data, as told; `None` where nothing is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuidTlb {
    /// First level, pages of 4 KiB.
    pub l1_4k: Option<u32>,
    /// First level, pages of 2 MiB.
    pub l1_2m: Option<u32>,
    /// Second level, pages of 4 KiB.
    pub l2_4k: Option<u32>,
    /// Second level, pages of 2 MiB.
    pub l2_2m: Option<u32>,
}

/// Everything asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpuid {
    /// Maker, such as `AuthenticAMD`.
    pub vendor: String,
    /// The list of caches.
    pub caches: Vec<CpuidCache>,
    /// Second-level cache by the older leaf of AMD, bytes.
    pub old_l2_bytes: Option<u64>,
    /// Third-level cache of the whole socket by the older leaf of AMD, bytes.
    pub old_l3_bytes: Option<u64>,
    /// Translation buffers.
    pub tlb: CpuidTlb,
    /// Whether a hypervisor says that it is there.
    pub hypervisor: bool,
}

/// Four registers.
type Leaf = [u32; 4];

/// Asks the processor that runs this thread; `None` where there is no such instruction.
pub fn ask() -> Option<Cpuid> {
    #[cfg(target_arch = "x86_64")]
    {
        Some(understand(&|leaf, sub| {
            #[allow(unused_unsafe, reason = "safe in newer compilers only")]
            // SAFETY: every x86-64 processor has the instruction, and it only writes registers.
            let r = unsafe { core::arch::x86_64::__cpuid_count(leaf, sub) };
            [r.eax, r.ebx, r.ecx, r.edx]
        }))
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// What the registers say, from any source of them.
pub fn understand(leaf: &dyn Fn(u32, u32) -> Leaf) -> Cpuid {
    let [basic_max, b, c, d] = leaf(0, 0);
    let vendor = [b, d, c].iter().flat_map(|r| r.to_le_bytes()).collect::<Vec<u8>>();
    let vendor = String::from_utf8_lossy(&vendor).trim_matches('\0').to_owned();
    let extended_max = leaf(0x8000_0000, 0)[0];
    let mut found = Cpuid { vendor, ..Cpuid::default() };
    found.hypervisor = basic_max >= 1 && leaf(1, 0)[2] >> 31 == 1;
    if extended_max >= 0x8000_001D {
        found.caches = caches(&|sub| leaf(0x8000_001D, sub));
    }
    if found.caches.is_empty() && basic_max >= 4 {
        found.caches = caches(&|sub| leaf(4, sub));
    }
    if found.vendor == "AuthenticAMD" && extended_max >= 0x8000_0006 {
        amd(&mut found, leaf);
    } else if basic_max >= 0x18 {
        found.tlb = intel_tlb(leaf);
    }
    found
}

fn caches(leaf: &dyn Fn(u32) -> Leaf) -> Vec<CpuidCache> {
    let mut found = Vec::new();
    // The list ends with type 0; eight is more than any processor has.
    for sub in 0..8 {
        let [a, b, c, _] = leaf(sub);
        let kind = match a & 0x1F {
            1 => 'd',
            2 => 'i',
            3 => 'u',
            _ => break,
        };
        let line_bytes = (b & 0xFFF) + 1;
        let partitions = ((b >> 12) & 0x3FF) + 1;
        let ways = (b >> 22) + 1;
        let sets = c.wrapping_add(1);
        let bytes =
            u64::from(line_bytes) * u64::from(partitions) * u64::from(ways) * u64::from(sets);
        found.push(CpuidCache { level: (a >> 5) & 7, kind, bytes, ways, line_bytes, sets });
    }
    found
}

fn amd(found: &mut Cpuid, leaf: &dyn Fn(u32, u32) -> Leaf) {
    let some = |n: u32| Some(n).filter(|n| *n > 0);
    let [a5, b5, _, _] = leaf(0x8000_0005, 0);
    let [a6, b6, c6, d6] = leaf(0x8000_0006, 0);
    found.tlb = CpuidTlb {
        l1_4k: some((b5 >> 16) & 0xFF),
        l1_2m: some((a5 >> 16) & 0xFF),
        l2_4k: some((b6 >> 16) & 0xFFF),
        l2_2m: some((a6 >> 16) & 0xFFF),
    };
    found.old_l2_bytes = some(c6 >> 16).map(|kib| u64::from(kib) << 10);
    found.old_l3_bytes = some(d6 >> 18).map(|halves| u64::from(halves) << 19);
}

/// Intel's list of translation buffers; those for data or for both.
fn intel_tlb(leaf: &dyn Fn(u32, u32) -> Leaf) -> CpuidTlb {
    let mut tlb = CpuidTlb::default();
    for sub in 0..=leaf(0x18, 0)[0].min(15) {
        let [_, b, c, d] = leaf(0x18, sub);
        let (kind, level) = (d & 0x1F, (d >> 5) & 7);
        let entries = (b >> 16).wrapping_mul(c);
        // 1 data, 3 both, 4 loads only.
        if !matches!(kind, 1 | 3 | 4) || entries == 0 {
            continue;
        }
        let (small, large) = match level {
            1 => (&mut tlb.l1_4k, &mut tlb.l1_2m),
            _ => (&mut tlb.l2_4k, &mut tlb.l2_2m),
        };
        if b & 1 != 0 {
            *small = Some(entries);
        }
        if b & 2 != 0 {
            *large = Some(entries);
        }
    }
    tlb
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers of a virtual machine on a Zen 5: 48 KiB and 1 MiB, a third level of 32 MiB by the
    /// list and of 384 MiB by the older leaf.
    fn zen5(leaf: u32, sub: u32) -> Leaf {
        match (leaf, sub) {
            (0, _) => [0x10, 0x6874_7541, 0x444D_4163, 0x6974_6E65],
            (1, _) => [0, 0, 1 << 31, 0],
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
    fn three_answers_for_one_cache() {
        let found = understand(&zen5);
        assert_eq!(found.vendor, "AuthenticAMD");
        let sizes: Vec<_> = found.caches.iter().map(|c| (c.level, c.kind, c.bytes >> 10)).collect();
        assert_eq!(sizes, [(1, 'd', 48), (1, 'i', 32), (2, 'u', 1024), (3, 'u', 32768)]);
        assert_eq!(found.old_l3_bytes, Some(384 << 20));
        assert_eq!(found.old_l2_bytes, Some(1 << 20));
        assert_eq!((found.tlb.l1_4k, found.tlb.l2_4k), (Some(0x60), Some(0x80)));
        assert!(found.hypervisor);
    }

    /// The seed's processor by leaf 4, and a list of translation buffers.
    fn intel(leaf: u32, sub: u32) -> Leaf {
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
    fn leaf_four_is_read_where_the_other_is_not() {
        let found = understand(&intel);
        assert_eq!(found.vendor, "GenuineIntel");
        let kib: Vec<_> = found.caches.iter().map(|c| c.bytes >> 10).collect();
        assert_eq!(kib, [48, 32, 512, 6144]);
        assert_eq!(
            (found.tlb.l1_4k, found.tlb.l2_4k, found.tlb.l2_2m),
            (Some(64), Some(1536), Some(1536))
        );
        assert_eq!(understand(&|_, _| [0; 4]), Cpuid::default());
    }

    #[test]
    fn this_processor_answers_or_there_is_none() {
        if let Some(found) = ask() {
            assert_eq!(found.vendor.len(), 12);
            assert!(found.caches.iter().all(|c| c.bytes > 0 && c.level > 0));
        }
    }
}
