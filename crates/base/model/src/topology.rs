//! Cores, caches, memory and I/O settings as reported by the kernel and the processor. They can be
//! wrong; [`crate::memory`] compares them with measurements.

use serde::{Deserialize, Serialize};

/// A processor (hardware thread), numbered by the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuFacts {
    /// Number.
    pub cpu: u32,
    /// Whether it is online.
    pub online: bool,
    /// Whether this process can run on it; `None` for a captured directory tree.
    pub allowed: Option<bool>,
    /// Socket number.
    pub package: Option<u32>,
    /// Core number within the socket.
    pub core: Option<u32>,
    /// NUMA node number.
    pub node: Option<u32>,
    /// Processors on the same core, including this one; empty if unknown.
    pub siblings: Vec<u32>,
}

/// One cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheFacts {
    /// Level, from 1.
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Ways; `None` if not reported.
    pub ways: Option<u32>,
    /// Sets.
    pub sets: Option<u32>,
    /// Line size in bytes.
    pub line_bytes: Option<u32>,
    /// Index among the caches of the same level and kind.
    pub id: Option<u32>,
    /// Processors that share it.
    pub shared: Vec<u32>,
    /// Whether sets × ways × line size equals the size; `None` if one of them is not reported.
    pub adds_up: Option<bool>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Number.
    pub node: u32,
    /// Processors of the node.
    pub cpus: Vec<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Distances to all nodes as reported by the firmware; the distance to itself is 10.
    pub distances: Vec<u32>,
}

/// Simultaneous multithreading: hardware threads that share a core.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SmtFacts {
    /// `active`, `off`, `not-supported`, `not-implemented`, `none` (one thread per core) or
    /// `unknown`.
    pub state: String,
    /// State in the kernel's spelling, such as `on`, `off`, `forceoff`, `notsupported`.
    pub control: Option<String>,
    /// Processors of each core that has more than one.
    pub siblings: Vec<Vec<u32>>,
    /// Summary in one sentence.
    pub sentence: String,
}

/// Caches and TLBs as reported by CPUID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuidFacts {
    /// Vendor.
    pub vendor: String,
    /// Level and size in bytes of each data cache.
    pub caches: Vec<(u32, u64)>,
    /// Size in bytes of the third-level cache of the whole socket, from an older leaf.
    pub socket_l3_bytes: Option<u64>,
    /// Entries of the first-level data TLB for 4 KiB pages.
    pub tlb_l1_4k: Option<u32>,
    /// Entries of the first-level data TLB for 2 MiB pages.
    pub tlb_l1_2m: Option<u32>,
    /// Entries of the second-level TLB for 4 KiB pages.
    pub tlb_l2_4k: Option<u32>,
    /// Entries of the second-level TLB for 2 MiB pages.
    pub tlb_l2_2m: Option<u32>,
}

/// A setting or counter with its meaning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setting {
    /// Name in the kernel's spelling.
    pub name: String,
    /// Value in the kernel's spelling, with the unit if it is not obvious.
    pub value: String,
    /// Meaning in one sentence; empty if the name is self-explanatory.
    pub meaning: String,
}

/// The reported topology.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Processors by number.
    pub cpus: Vec<CpuFacts>,
    /// Caches by level, data before instructions.
    pub caches: Vec<CacheFacts>,
    /// NUMA nodes.
    pub nodes: Vec<NodeFacts>,
    /// Hardware threads that share a core.
    pub smt: SmtFacts,
    /// CPUID data; `None` for a captured directory tree or if the instruction is unavailable.
    pub cpuid: Option<CpuidFacts>,
    /// Memory, huge pages and swap.
    pub memory: Vec<Setting>,
    /// Dirty page limits and their values in bytes on this machine.
    pub dirty: Vec<Setting>,
    /// cgroup limits of this process.
    pub control_groups: Vec<Setting>,
    /// Indications of other users on the same hardware.
    pub neighbours: Vec<Setting>,
    /// Descriptions of properties that could not be read.
    pub unknown: Vec<String>,
}

impl Topology {
    /// Returns the processors of each core in ascending order, for online processors whose core is
    /// known.
    pub fn cores(&self) -> Vec<Vec<u32>> {
        let mut cores: Vec<Vec<u32>> =
            self.cpus.iter().map(|cpu| cpu.siblings.clone()).filter(|s| !s.is_empty()).collect();
        cores.sort();
        cores.dedup();
        cores
    }

    /// Returns the data caches of `cpu`, by level.
    pub fn data_caches_of(&self, cpu: u32) -> Vec<&CacheFacts> {
        let mut of: Vec<&CacheFacts> = self
            .caches
            .iter()
            .filter(|c| c.kind != "instruction" && c.shared.contains(&cpu))
            .collect();
        of.sort_by_key(|c| c.level);
        of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_occurs_once() {
        let cpu = |cpu, siblings: &[u32]| CpuFacts {
            cpu,
            online: true,
            siblings: siblings.to_vec(),
            ..CpuFacts::default()
        };
        let cpus =
            vec![cpu(0, &[0, 2]), cpu(1, &[1, 3]), cpu(2, &[0, 2]), cpu(3, &[1, 3]), cpu(4, &[])];
        let topology = Topology { cpus, ..Topology::default() };
        assert_eq!(topology.cores(), [vec![0, 2], vec![1, 3]]);
    }
}
