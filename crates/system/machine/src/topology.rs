//! Processors, cores, caches and NUMA nodes, from /sys below a root.
//!
//! An offline processor keeps its directory but not its topology and caches, and a kernel may hide
//! /sys altogether. Anything missing is listed under `unknown`, to distinguish an empty list from
//! missing information.

use crate::cpu::{CPUS, numbers_of_list};
use crate::source::Source;
use ioloom_model::topology::{CacheFacts, CpuFacts, NodeFacts, SmtFacts, Topology};
use ioloom_sys::proc::parse::field;

/// Returns the numbers of the processors below sys/devices/system/cpu.
fn cpu_numbers(source: &Source<'_>) -> Vec<u32> {
    let mut numbers: Vec<u32> = source
        .names(CPUS)
        .iter()
        .filter_map(|name| name.strip_prefix("cpu"))
        .filter_map(|digits| digits.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Reads processors, caches and NUMA nodes. `allowed` lists the processors available to this
/// process, if `source` is the running machine.
pub(crate) fn read(source: &Source<'_>, allowed: Option<&[u32]>) -> Topology {
    let mut unknown = Vec::new();
    let online = source.word(&format!("{CPUS}/online")).and_then(|list| numbers_of_list(&list));
    let nodes = nodes(source);
    let cpus: Vec<CpuFacts> = cpu_numbers(source)
        .into_iter()
        .map(|cpu| {
            // If the list of online processors is missing: the kernel removes the topology of
            // offline processors.
            let has = source.word(&format!("{CPUS}/cpu{cpu}/topology/core_id")).is_some();
            let online = online.as_ref().map_or(has, |list| list.contains(&cpu));
            one_cpu(source, cpu, online, allowed, &nodes)
        })
        .collect();
    if cpus.is_empty() {
        unknown.push("processors: nothing below sys/devices/system/cpu".to_owned());
    }
    let offline: Vec<u32> = cpus.iter().filter(|c| !c.online).map(|c| c.cpu).collect();
    if !offline.is_empty() {
        unknown.push(format!("cores and caches of offline processors: {}", list(&offline)));
    }
    let silent = |cpu: &&CpuFacts| cpu.online && cpu.siblings.is_empty();
    let silent: Vec<u32> = cpus.iter().filter(silent).map(|c| c.cpu).collect();
    if !silent.is_empty() {
        unknown.push(format!("which processors share a core with {}", list(&silent)));
    }
    let caches = caches(source, &cpus);
    if caches.is_empty() && !cpus.is_empty() {
        unknown.push("caches: the kernel lists none (usual in small virtual machines)".to_owned());
    }
    for cache in caches.iter().filter(|c| c.adds_up == Some(false)) {
        let what = format!("L{} {}", cache.level, cache.kind);
        unknown.push(format!(
            "size of {what}: sets × ways × line size differs from the reported size"
        ));
    }
    if nodes.is_empty() {
        unknown.push("memory nodes: nothing below sys/devices/system/node".to_owned());
    }
    let smt = smt(source, &cpus);
    Topology { cpus, caches, nodes, smt, unknown, ..Topology::default() }
}

fn one_cpu(
    source: &Source<'_>,
    cpu: u32,
    online: bool,
    allowed: Option<&[u32]>,
    nodes: &[NodeFacts],
) -> CpuFacts {
    let topology = format!("{CPUS}/cpu{cpu}/topology");
    let number = |name: &str| {
        let n = source.number(&format!("{topology}/{name}"))?;
        u32::try_from(n).ok()
    };
    let siblings = ["core_cpus_list", "thread_siblings_list"]
        .iter()
        .find_map(|name| numbers_of_list(&source.word(&format!("{topology}/{name}"))?));
    CpuFacts {
        cpu,
        online,
        allowed: allowed.map(|list| list.contains(&cpu)),
        package: number("physical_package_id"),
        core: number("core_id"),
        node: nodes.iter().find(|n| n.cpus.contains(&cpu)).map(|n| n.node),
        siblings: siblings.unwrap_or_default(),
    }
}

/// Returns every cache once, even though each processor that shares it lists it.
fn caches(source: &Source<'_>, cpus: &[CpuFacts]) -> Vec<CacheFacts> {
    let mut found: Vec<CacheFacts> = Vec::new();
    for cpu in cpus {
        let dir = format!("{CPUS}/cpu{}/cache", cpu.cpu);
        for name in source.names(&dir).iter().filter(|name| name.starts_with("index")) {
            if let Some(cache) = one_cache(source, &format!("{dir}/{name}"), cpu.cpu)
                && !found.contains(&cache)
            {
                found.push(cache);
            }
        }
    }
    found.sort_by(|a, b| {
        (a.level, &a.kind, a.shared.first()).cmp(&(b.level, &b.kind, b.shared.first()))
    });
    found
}

fn one_cache(source: &Source<'_>, dir: &str, cpu: u32) -> Option<CacheFacts> {
    let word = |name: &str| source.word(&format!("{dir}/{name}"));
    let number = |name: &str| word(name)?.parse::<u32>().ok();
    let bytes = kernel_size(&word("size")?)?;
    let (ways, sets) = (number("ways_of_associativity"), number("number_of_sets"));
    let line_bytes = number("coherency_line_size");
    let partition = u64::from(number("physical_line_partition").unwrap_or(1).max(1));
    let product = |ways: u32, sets: u32, line: u32| {
        u64::from(ways) * u64::from(sets) * u64::from(line) * partition
    };
    // 0 means unknown.
    let known = |n: Option<u32>| n.filter(|n| *n > 0);
    let adds_up = match (known(ways), known(sets), known(line_bytes)) {
        (Some(ways), Some(sets), Some(line)) => Some(product(ways, sets, line) == bytes),
        _ => None,
    };
    let shared = word("shared_cpu_list").and_then(|list| numbers_of_list(&list));
    Some(CacheFacts {
        level: number("level")?,
        kind: word("type")?.to_ascii_lowercase(),
        bytes,
        ways: known(ways),
        sets: known(sets),
        line_bytes: known(line_bytes),
        id: number("id"),
        shared: shared.unwrap_or_else(|| vec![cpu]),
        adds_up,
    })
}

/// Parses a size in the kernel's format, such as `48K`.
fn kernel_size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1u64 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes > 0)
}

fn nodes(source: &Source<'_>) -> Vec<NodeFacts> {
    const NODES: &str = "sys/devices/system/node";
    let mut found: Vec<NodeFacts> = source
        .names(NODES)
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok())
        .map(|node: u32| {
            let dir = format!("{NODES}/node{node}");
            let cpus = source.word(&format!("{dir}/cpulist")).and_then(|l| numbers_of_list(&l));
            let meminfo = source.text(&format!("{dir}/meminfo")).unwrap_or_default();
            // Each line begins with "Node N".
            let total = meminfo.lines().find_map(|line| {
                let (_, rest) = line.split_once("MemTotal:")?;
                field(&format!("MemTotal:{rest}"), "MemTotal")
            });
            let distances = source.word(&format!("{dir}/distance")).unwrap_or_default();
            NodeFacts {
                node,
                cpus: cpus.unwrap_or_default(),
                memory_bytes: total.and_then(|kib| kib.checked_mul(1024)),
                distances: distances.split(' ').filter_map(|d| d.parse().ok()).collect(),
            }
        })
        .collect();
    found.sort_by_key(|n| n.node);
    found
}

fn smt(source: &Source<'_>, cpus: &[CpuFacts]) -> SmtFacts {
    let control = source.word(&format!("{CPUS}/smt/control"));
    let mut siblings: Vec<Vec<u32>> =
        cpus.iter().map(|c| c.siblings.clone()).filter(|s| s.len() > 1).collect();
    siblings.sort();
    siblings.dedup();
    let known = cpus.iter().any(|c| !c.siblings.is_empty());
    let state = match (siblings.is_empty(), control.as_deref()) {
        (false, _) => "active",
        (true, Some("off" | "forceoff")) => "off",
        (true, Some("notsupported")) => "not-supported",
        (true, Some("notimplemented")) => "not-implemented",
        (true, _) if known => "none",
        _ => "unknown",
    };
    let kernel_word = control.as_ref().map_or(String::new(), |c| format!(" (kernel: {c})"));
    let sentence = match state {
        "active" => {
            let pairs: Vec<String> = siblings.iter().map(|s| list(s)).collect();
            format!("SMT is active{kernel_word}: these threads share a core: {}", pairs.join("  "))
        }
        "off" => format!("SMT is switched off{kernel_word}: one thread per core"),
        "unknown" => format!("unknown whether SMT is active{kernel_word}"),
        _ => format!("no SMT visible: one thread per core{kernel_word}"),
    };
    SmtFacts { state: state.to_owned(), control, siblings, sentence }
}

/// Joins numbers with commas.
fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_kernel_are_read() {
        for (text, bytes) in [("48K", 48 << 10), ("6144K", 6 << 20), ("2M", 2 << 20), ("64", 64)] {
            assert_eq!(kernel_size(text), Some(bytes), "{text}");
        }
        for text in ["", "K", "x", "0K", "-1K", "99999999999999999999K"] {
            assert_eq!(kernel_size(text), None, "{text}");
        }
    }
}
