//! What the kernel and the processor tell of cores, caches, memory and the settings that decide how
//! input and output behave. Claims, to be compared with a measurement ([`crate::memory`]).

use serde::{Deserialize, Serialize};

/// One processor (a hardware thread) as the kernel numbers it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuFacts {
    /// Number.
    pub cpu: u32,
    /// Whether it is on line.
    pub online: bool,
    /// Whether this process may use it; `None` for a captured tree.
    pub allowed: Option<bool>,
    /// Number of the socket.
    pub package: Option<u32>,
    /// Number of the core within its socket.
    pub core: Option<u32>,
    /// Number of the memory node.
    pub node: Option<u32>,
    /// Processors of the same core, itself among them; empty when not known.
    pub siblings: Vec<u32>,
}

/// One cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheFacts {
    /// Level, from 1.
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    pub kind: String,
    /// Size, bytes.
    pub bytes: u64,
    /// Ways; `None` when not told.
    pub ways: Option<u32>,
    /// Sets.
    pub sets: Option<u32>,
    /// Bytes of a line.
    pub line_bytes: Option<u32>,
    /// Number among the caches of its level and kind.
    pub id: Option<u32>,
    /// Processors that share it.
    pub shared: Vec<u32>,
    /// Whether sets × ways × line is its size; `None` when one of them is not told.
    pub adds_up: Option<bool>,
}

/// A memory node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Number.
    pub node: u32,
    /// Its processors.
    pub cpus: Vec<u32>,
    /// Its memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Distances to all nodes, as the firmware tells them; 10 is itself.
    pub distances: Vec<u32>,
}

/// Threads that share a core.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SmtFacts {
    /// `active`, `off`, `not-supported`, `not-implemented`, `none` (one thread per core) or
    /// `unknown`.
    pub state: String,
    /// The kernel's word for it, such as `on`, `off`, `forceoff`, `notsupported`.
    pub control: Option<String>,
    /// The processors of each core that has several.
    pub siblings: Vec<Vec<u32>>,
    /// All of it in one sentence.
    pub sentence: String,
}

/// Capacity of a data cache as CPUID tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuidFacts {
    /// Maker.
    pub vendor: String,
    /// Level and bytes of each cache for data.
    pub caches: Vec<(u32, u64)>,
    /// Third level of the whole socket by an older leaf, bytes.
    pub socket_l3_bytes: Option<u64>,
    /// Entries of the first translation buffer for data, small pages.
    pub tlb_l1_4k: Option<u32>,
    /// The same for pages of 2 MiB.
    pub tlb_l1_2m: Option<u32>,
    /// Entries of the second translation buffer, small pages.
    pub tlb_l2_4k: Option<u32>,
    /// The same for pages of 2 MiB.
    pub tlb_l2_2m: Option<u32>,
}

/// A setting or counter: its name, its value, and what it really means.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setting {
    /// Name, as the kernel spells it.
    pub name: String,
    /// Value, as the kernel spells it, with its unit where that is not plain.
    pub value: String,
    /// What it means, in a sentence; empty where the name says it.
    pub meaning: String,
}

/// Everything told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Processors that exist, by number.
    pub cpus: Vec<CpuFacts>,
    /// Caches: those of the first level first, data before instructions.
    pub caches: Vec<CacheFacts>,
    /// Memory nodes.
    pub nodes: Vec<NodeFacts>,
    /// Threads that share a core.
    pub smt: SmtFacts,
    /// What CPUID tells; `None` for a captured tree or without the instruction.
    pub cpuid: Option<CpuidFacts>,
    /// Memory, huge pages and swap.
    pub memory: Vec<Setting>,
    /// When changed pages are written, and what that means in bytes here.
    pub dirty: Vec<Setting>,
    /// Limits of the control groups of this process.
    pub control_groups: Vec<Setting>,
    /// Signs that others use the same hardware.
    pub neighbours: Vec<Setting>,
    /// What could not be read, in words.
    pub unknown: Vec<String>,
}

impl Topology {
    /// The processors of each core, ascending; of processors on line whose core is known.
    pub fn cores(&self) -> Vec<Vec<u32>> {
        let mut cores: Vec<Vec<u32>> =
            self.cpus.iter().map(|cpu| cpu.siblings.clone()).filter(|s| !s.is_empty()).collect();
        cores.sort();
        cores.dedup();
        cores
    }

    /// Capacities of the caches for data that `cpu` reaches, by level; bytes.
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
    fn cores_are_named_once() {
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
