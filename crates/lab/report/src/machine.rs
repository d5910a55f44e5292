//! The content of the machine drawing, for the terminal and for SVG.
//!
//! The boxes contain the numbers reported by the kernel. With a memory measurement, they also show
//! the load latency at that level and a remark if the two contradict each other. Without one, boxes
//! that could show a latency say `not measured`, and a note names the command.

use ioloom_model::memory::{MemoryLevel, MemoryResult};
use ioloom_model::topology::{CacheFacts, CpuFacts, Topology};
use ioloom_model::units::{format_counted, format_ns, format_size};

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
    /// The groups of cores drawn.
    pub groups: Vec<Group>,
    /// Number of all groups.
    pub groups_total: usize,
    /// Number of all cores in all groups.
    pub cores_total: usize,
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
            let rest = (all.len() - GROUPS_DRAWN) as u64;
            notes.push(format!("and {}", format_counted(rest, "more group", "more groups")));
        }
        let cores_total = all.iter().map(|cpus| cores_of(topology, cpus).len()).sum();
        Self { memory, groups, groups_total: all.len(), cores_total, notes }
    }

    /// Returns the machine in one line.
    pub fn sentence(&self) -> String {
        let cores = format_counted(self.cores_total as u64, "core", "cores");
        let groups = format_counted(self.groups_total as u64, "group", "groups");
        format!("{cores} in {groups}; {}", self.memory)
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

fn facts_of(topology: &Topology, cpu: u32) -> Option<&CpuFacts> {
    topology.cpus.iter().find(|facts| facts.cpu == cpu)
}

/// Returns the processors of each core of a group. A processor without known siblings is a core.
fn cores_of(topology: &Topology, cpus: &[u32]) -> Vec<Vec<u32>> {
    let siblings = |cpu: &u32| {
        let known = facts_of(topology, *cpu).map(|facts| facts.siblings.clone());
        known.filter(|siblings| !siblings.is_empty()).unwrap_or_else(|| vec![*cpu])
    };
    let mut cores: Vec<Vec<u32>> = cpus.iter().map(siblings).collect();
    cores.sort();
    cores.dedup();
    cores
}

fn group(
    topology: &Topology,
    cpus: &[u32],
    measured: Option<&MemoryResult>,
    notes: &mut Vec<String>,
) -> Group {
    let facts = |cpu: u32| facts_of(topology, cpu);
    let first = cpus.first().and_then(|cpu| facts(*cpu));
    let package = first.and_then(|c| c.package).map_or(String::new(), |p| format!("socket {p}"));
    let node = first.and_then(|c| c.node).map_or(String::new(), |n| format!("NUMA node {n}"));
    let name = [package, node].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", ");
    let name = if name.is_empty() { "processors".to_owned() } else { name };
    let cores = cores_of(topology, cpus);
    let of_all = |c: &&&CacheFacts| cores.len() > 1 && c.shared.len() >= cpus.len();
    let caches: Vec<&CacheFacts> = topology
        .caches
        .iter()
        .filter(|c| cpus.first().is_some_and(|cpu| c.shared.contains(cpu)))
        .collect();
    let shared: Vec<String> = caches.iter().filter(of_all).map(|c| cache(c, measured)).collect();
    if cores.len() > CORES_DRAWN {
        let rest = (cores.len() - CORES_DRAWN) as u64;
        let more = format_counted(rest, "more core", "more cores");
        notes.push(format!("{name}: {more} not drawn"));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the drawing of single-threaded cores, `per_package` of them in each socket.
    fn drawing(cores: u32, per_package: u32) -> Drawing {
        let cpu = |cpu: u32| CpuFacts {
            cpu,
            online: true,
            package: (per_package < cores).then_some(cpu / per_package),
            ..CpuFacts::default()
        };
        let topology = Topology { cpus: (0..cores).map(cpu).collect(), ..Topology::default() };
        Drawing::of(&topology, None, None)
    }

    #[test]
    fn cores_and_groups_that_are_not_drawn_are_counted() {
        for (cores, per_package, words, note) in [
            (64, 64, "64 cores in 1 group; memory", Some("processors: 48 more cores not drawn")),
            (17, 17, "17 cores in 1 group; memory", Some("processors: 1 more core not drawn")),
            (9, 1, "9 cores in 9 groups; memory", Some("and 1 more group")),
            (34, 17, "34 cores in 2 groups; memory", Some("socket 1: 1 more core not drawn")),
            (1, 1, "1 core in 1 group; memory", None),
        ] {
            let drawing = drawing(cores, per_package);
            assert!(drawing.sentence().starts_with(words), "{}", drawing.sentence());
            let last = drawing.notes.iter().rfind(|note| note.contains("more"));
            assert_eq!(last.map(String::as_str), note);
        }
    }
}
