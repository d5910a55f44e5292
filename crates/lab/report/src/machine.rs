//! The content of the machine drawing, for the terminal and for SVG.
//!
//! The boxes contain the numbers reported by the kernel. With a memory measurement, they also show
//! the load latency at that level and a remark if the two contradict each other. Without one, boxes
//! that could show a latency say `not measured`, and a note names the command.

use ioloom_model::memory::{MemoryLevel, MemoryResult};
use ioloom_model::topology::{CacheFacts, Topology};
use ioloom_model::units::{format_ns, format_size};

/// Maximum number of cores drawn per group; the rest are only counted.
const CORES_DRAWN: usize = 16;
/// Maximum number of groups drawn.
const GROUPS_DRAWN: usize = 8;

/// A core with its private caches and hardware threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// Name, such as `core 0`.
    pub name: String,
    /// Private caches, the largest first.
    pub caches: Vec<String>,
    /// Threads by processor number.
    pub threads: Vec<String>,
}

/// Cores that share a cache or a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Socket and NUMA node.
    pub name: String,
    /// Caches shared by all of them.
    pub shared: Vec<String>,
    /// The cores drawn.
    pub cores: Vec<Core>,
}

/// The machine as boxes and notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    /// Text of the memory box.
    pub memory: String,
    /// Groups of cores.
    pub groups: Vec<Group>,
    /// Lines below the boxes.
    pub notes: Vec<String>,
}

impl Drawing {
    /// Returns the drawing of a machine; `measured` must be from the same machine.
    pub fn of(
        topology: &Topology,
        memory_bytes: Option<u64>,
        measured: Option<&MemoryResult>,
    ) -> Self {
        let level = |name: &str| measured.and_then(|r| r.levels.iter().find(|l| l.name == name));
        let size = memory_bytes.map_or_else(|| "of unknown size".to_owned(), format_size);
        let memory = format!("memory {size} · {}", time(level("memory")));
        let mut notes = vec![topology.smt.sentence.clone()];
        if measured.is_none() {
            notes.push("times: not measured; run `ioloom memory`".to_owned());
        }
        notes.extend(topology.unknown.iter().map(|what| format!("unknown: {what}")));
        let mut groups = Vec::new();
        let all = groups_of(topology);
        for cpus in all.iter().take(GROUPS_DRAWN) {
            groups.push(group(topology, cpus, measured, &mut notes));
        }
        if all.len() > GROUPS_DRAWN {
            notes.push(format!("and {} more groups", all.len() - GROUPS_DRAWN));
        }
        Self { memory, groups, notes }
    }

    /// Returns the machine in one line.
    pub fn sentence(&self) -> String {
        let cores: usize = self.groups.iter().map(|g| g.cores.len()).sum();
        format!("{cores} cores in {} groups; {}", self.groups.len(), self.memory)
    }

    /// Returns the boxes as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let width = width.clamp(40, 120);
        let mut out = String::new();
        boxed(&mut out, 0, width, &self.memory);
        for group in &self.groups {
            out.push_str(&cut(&format!("┌─ {} ", group.name), width - 1, '─'));
            out.push_str("┐\n");
            for cache in &group.shared {
                out.push_str(&cut(&format!("│  {cache}"), width - 1, ' '));
                out.push_str("│\n");
            }
            cores_text(&mut out, &group.cores, width);
            out.push_str(&cut("└", width - 1, '─'));
            out.push_str("┘\n");
        }
        out
    }
}

/// Writes cores next to each other, as many as fit.
fn cores_text(out: &mut String, cores: &[Core], width: usize) {
    const WIDE: usize = 24;
    let per_row = ((width - 4) / (WIDE + 1)).clamp(1, cores.len().max(1));
    for row in cores.chunks(per_row) {
        let lines: Vec<Vec<String>> = row
            .iter()
            .map(|core| {
                let mut lines = vec![core.name.clone()];
                lines.extend(core.caches.iter().cloned());
                lines.push(core.threads.join(" "));
                lines
            })
            .collect();
        let most = lines.iter().map(Vec::len).max().unwrap_or(0);
        let mut put = |each: &dyn Fn(&Vec<String>) -> String| {
            let text: Vec<String> = lines.iter().map(each).collect();
            out.push_str(&cut(&format!("│ {}", text.join(" ")), width - 1, ' '));
            out.push_str("│\n");
        };
        put(&|lines| cut(&format!("┌ {} ", lines[0]), WIDE - 1, '─') + "┐");
        for k in 1..most {
            put(&|lines| {
                let text = lines.get(k).map_or("", String::as_str);
                cut(&format!("│ {text}"), WIDE - 1, ' ') + "│"
            });
        }
        put(&|_| cut("└", WIDE - 1, '─') + "┘");
    }
}

fn boxed(out: &mut String, indent: usize, width: usize, text: &str) {
    let lead = " ".repeat(indent);
    let inner = width - indent - 2;
    out.push_str(&format!("{lead}┌{}┐\n", "─".repeat(inner)));
    out.push_str(&format!("{lead}│{}│\n", cut(&format!(" {text}"), inner, ' ')));
    out.push_str(&format!("{lead}└{}┘\n", "─".repeat(inner)));
}

/// Returns a text of exactly `width` columns, padded or truncated.
fn cut(text: &str, width: usize, fill: char) -> String {
    let count = text.chars().count();
    if count > width {
        return text.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
    text.chars().chain(std::iter::repeat_n(fill, width - count)).collect()
}

/// Returns the latency of a level in words.
fn time(level: Option<&MemoryLevel>) -> String {
    level.map_or_else(|| "not measured".to_owned(), |l| format_ns(l.latency_ns))
}

/// Groups online processors by the highest cache level that they share, or by socket.
fn groups_of(topology: &Topology) -> Vec<Vec<u32>> {
    let online: Vec<u32> = topology.cpus.iter().filter(|c| c.online).map(|c| c.cpu).collect();
    let last = topology.caches.iter().map(|c| c.level).max();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for cpu in &online {
        let shared =
            topology.data_caches_of(*cpu).into_iter().rfind(|c| Some(c.level) == last).map(|c| {
                c.shared.iter().copied().filter(|c| online.contains(c)).collect::<Vec<_>>()
            });
        let package = topology.cpus.iter().find(|c| c.cpu == *cpu).and_then(|c| c.package);
        let same_package = || {
            let of = topology.cpus.iter().filter(|c| c.online && c.package == package);
            of.map(|c| c.cpu).collect::<Vec<_>>()
        };
        // If each core has its own last-level cache, the socket is the group.
        let siblings = topology.cpus.iter().find(|c| c.cpu == *cpu).map(|c| c.siblings.len());
        let wide = shared.filter(|cpus| cpus.len() > siblings.unwrap_or(1).max(1));
        let cpus = wide.unwrap_or_else(same_package);
        if !groups.contains(&cpus) && !groups.iter().any(|g| g.contains(cpu)) {
            groups.push(cpus);
        }
    }
    groups
}

fn group(
    topology: &Topology,
    cpus: &[u32],
    measured: Option<&MemoryResult>,
    notes: &mut Vec<String>,
) -> Group {
    let facts = |cpu: u32| topology.cpus.iter().find(|c| c.cpu == cpu);
    let first = cpus.first().and_then(|cpu| facts(*cpu));
    let package = first.and_then(|c| c.package).map_or(String::new(), |p| format!("socket {p}"));
    let node = first.and_then(|c| c.node).map_or(String::new(), |n| format!("NUMA node {n}"));
    let name = [package, node].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", ");
    let mut cores: Vec<Vec<u32>> = cpus
        .iter()
        .map(|cpu| facts(*cpu).map(|c| c.siblings.clone()).unwrap_or_default())
        .zip(cpus)
        .map(|(siblings, cpu)| if siblings.is_empty() { vec![*cpu] } else { siblings })
        .collect();
    cores.sort();
    cores.dedup();
    let of_all = |c: &&&CacheFacts| cores.len() > 1 && c.shared.len() >= cpus.len();
    let caches: Vec<&CacheFacts> = topology
        .caches
        .iter()
        .filter(|c| cpus.first().is_some_and(|cpu| c.shared.contains(cpu)))
        .collect();
    let shared: Vec<String> = caches.iter().filter(of_all).map(|c| cache(c, measured)).collect();
    if cores.len() > CORES_DRAWN {
        notes.push(format!("{name}: {} more cores not drawn", cores.len() - CORES_DRAWN));
    }
    let core = |core: &Vec<u32>| {
        let number = facts(core[0]).and_then(|c| c.core);
        let mut own: Vec<&CacheFacts> = topology
            .caches
            .iter()
            .filter(|c| {
                c.shared.contains(&core[0]) && !(cores.len() > 1 && c.shared.len() >= cpus.len())
            })
            .collect();
        own.sort_by_key(|c| std::cmp::Reverse(c.level));
        let outside = |cpu: &u32| match facts(*cpu) {
            Some(c) if !c.online => format!("cpu {cpu} offline"),
            Some(c) if c.allowed == Some(false) => format!("cpu {cpu} not allowed"),
            _ => format!("cpu {cpu}"),
        };
        Core {
            name: number.map_or_else(|| "core".to_owned(), |n| format!("core {n}")),
            caches: own.iter().map(|c| cache(c, measured)).collect(),
            threads: core.iter().map(outside).collect(),
        }
    };
    let name = if name.is_empty() { "processors".to_owned() } else { name };
    Group { name, shared, cores: cores.iter().take(CORES_DRAWN).map(core).collect() }
}

/// Returns a cache in words: level, size, time, and the measured size if it contradicts.
fn cache(cache: &CacheFacts, measured: Option<&MemoryResult>) -> String {
    let letter = match cache.kind.as_str() {
        "data" => "d",
        "instruction" => "i",
        _ => "",
    };
    let name = format!("L{}{letter} {}", cache.level, format_size(cache.bytes));
    if cache.kind == "instruction" {
        return name;
    }
    let level =
        measured.and_then(|r| r.levels.iter().find(|l| l.advertised_bytes == Some(cache.bytes)));
    match (measured, level) {
        (None, _) => name,
        (Some(_), Some(l)) if l.verdict == "confirmed" => {
            format!("{name} · {}", format_ns(l.latency_ns))
        }
        (Some(_), Some(l)) => {
            let (low, high) = l.bracket_bytes.unwrap_or((0, 0));
            let found = format!("{}–{}", format_size(low), format_size(high));
            format!("{name} · {}, measured {found}", format_ns(l.latency_ns))
        }
        (Some(_), None) => format!("{name} · not visible in the curve"),
    }
}
