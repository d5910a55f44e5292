//! `ioloom machine`: shows the hardware and settings that affect results.

use crate::atomic_file;
use crate::directories::StoreArg;
use crate::exit::{Ended, Exit, Failure};
use crate::{facts, out};
use clap::Args;
use ioloom_failure::{Operation, PathError, reason};
use ioloom_model::topology::{CacheFacts, Setting};
use ioloom_model::units::{format_size, readable};
use ioloom_model::{MachineFacts, Topology};
use ioloom_report::machine::Drawing;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// Version of the `--json` document.
const SCHEMA: u32 = 1;

/// Show the hardware and settings that affect results
///
/// Prints processors, caches, memory, devices, kernel settings and I/O features. Features are probed
/// by using them on a temporary file in the current directory. Cache sizes are those reported by the
/// kernel; `ioloom memory` measures the caches and adds its times to the drawing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom machine
  ioloom machine --json
  ioloom machine --svg machine.svg    write the drawing as SVG
  ioloom machine --doctor             check the evidence sources
  ioloom machine --root /captured     use copies of /proc and /sys")]
pub(crate) struct MachineArgs {
    /// Read /proc and /sys below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Check the evidence sources
    ///
    /// Prints which sources of traces and thread times work here, the highest evidence level they
    /// support, and a command to enable each missing source.
    #[arg(long, conflicts_with = "root")]
    doctor: bool,

    #[command(flatten)]
    store: StoreArg,

    /// Write the drawing as SVG
    #[arg(long, value_name = "FILE", conflicts_with = "doctor")]
    svg: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The document of `machine --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    #[serde(flatten)]
    facts: &'a MachineFacts,
    topology: &'a Topology,
}

pub(crate) fn run(args: &MachineArgs) -> Ended {
    if args.doctor {
        return crate::doctor::run(args.json);
    }
    atomic_file::refuse_dash("--svg", args.svg.as_deref())?;
    let proc = args.root.join("proc");
    std::fs::read_dir(&proc).map_err(|error| {
        let error = PathError::new(Operation::OpenDir, proc, error);
        Failure::failed(format!("{error}; --root needs a directory that contains proc and sys"))
    })?;
    let facts = facts::facts(&args.root, Path::new("."));
    let topology = ioloom_machine::topology(&args.root);
    // Without a store or a saved measurement of this machine, the drawing has no times.
    let measured = crate::memory::saved(&args.store, &facts.fingerprint).ok().flatten();
    let drawing = Drawing::of(&topology, facts.memory_bytes, measured.as_ref());
    if let Some(path) = &args.svg {
        let picture = ioloom_report::svg::machine::draw(&drawing, ioloom_report::svg::WIDE);
        atomic_file::write(path, picture.standalone())?;
    }
    if args.json {
        out::print_json(&Document { schema: SCHEMA, facts: &facts, topology: &topology })?;
    } else {
        let width = out::columns();
        // The process may be confined, so the capability alone does not decide.
        let drops = (args.root == Path::new("/")).then(ioloom_sys::cache::can_drop_caches);
        let mut all = text(&facts, drops, width);
        all.push_str(&hardware(&topology, width));
        all.push('\n');
        all.push_str(&drawing.text(width));
        for note in &drawing.notes {
            all.push_str(&out::wrap(&readable(note), width, 2));
        }
        all.push_str(&settings(&topology, width));
        out::print(&all)?;
    }
    Ok(Exit::Ok)
}

/// Formats caches, memory nodes and TLBs.
fn hardware(topology: &Topology, width: usize) -> String {
    let mut all = String::new();
    let mut seen: Vec<(u32, &str, u64)> = Vec::new();
    for cache in &topology.caches {
        let kind = (cache.level, cache.kind.as_str(), cache.bytes);
        if !seen.contains(&kind) {
            seen.push(kind);
            let alike = |c: &&CacheFacts| (c.level, c.kind.as_str(), c.bytes) == kind;
            let of: Vec<&CacheFacts> = topology.caches.iter().filter(alike).collect();
            all.push_str(&out::labelled("cache", 12, &readable(&cache_line(&of)), width));
        }
    }
    for node in &topology.nodes {
        let memory = node.memory_bytes.map_or_else(|| "size unknown".to_owned(), format_size);
        let far: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        let text = format!(
            "node {}: {memory}, processors {}, distances {}",
            node.node,
            listed(&node.cpus),
            if far.is_empty() { "unknown".to_owned() } else { far.join(" ") }
        );
        all.push_str(&out::labelled("memory node", 12, &text, width));
    }
    if let Some(cpuid) = &topology.cpuid {
        let entries = |n: Option<u32>| n.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
        let text = format!(
            "{} and {} entries for 4 KiB pages, {} and {} for 2 MiB pages (first and second level, \
             from CPUID; a hypervisor can change these)",
            entries(cpuid.tlb_l1_4k),
            entries(cpuid.tlb_l2_4k),
            entries(cpuid.tlb_l1_2m),
            entries(cpuid.tlb_l2_2m)
        );
        all.push_str(&out::labelled("TLB", 12, &text, width));
        let cpuid_bytes: Vec<String> = cpuid.caches.iter().map(|(_, b)| format_size(*b)).collect();
        let socket = cpuid.socket_l3_bytes.map_or(String::new(), |bytes| {
            format!("; an older CPUID leaf reports {} of L3 per socket", format_size(bytes))
        });
        let text = format!("data caches {}{socket}", cpuid_bytes.join(", "));
        all.push_str(&out::labelled("CPUID", 12, &text, width));
    }
    all
}

fn listed(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Formats the caches of one kind: size, geometry, number, and the processors sharing each.
fn cache_line(of: &[&CacheFacts]) -> String {
    let first = of[0];
    let number = |n: Option<u32>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let sum = first.bytes * of.len() as u64;
    let all = if of.len() > 1 {
        format!(", {} caches, {} in total", of.len(), format_size(sum))
    } else {
        String::new()
    };
    let shared: Vec<String> = of.iter().map(|c| listed(&c.shared)).collect();
    let odd =
        if first.adds_up == Some(false) { "; size differs from sets × ways × line" } else { "" };
    format!(
        "L{} {} {}, {} ways, {} sets, line {}{all}; processors {}{odd}",
        first.level,
        first.kind,
        format_size(first.bytes),
        number(first.ways),
        number(first.sets),
        number(first.line_bytes),
        shared.join("  ")
    )
}

/// Formats settings with their meanings.
fn settings(topology: &Topology, width: usize) -> String {
    let mut all = String::new();
    let groups: [(&str, &[Setting]); 4] = [
        ("Memory", &topology.memory),
        ("Writeback of dirty pages (vm.*)", &topology.dirty),
        ("Control groups", &topology.control_groups),
        ("Neighbours", &topology.neighbours),
    ];
    for (head, settings) in groups {
        if settings.is_empty() {
            continue;
        }
        all.push_str(&format!("\n{head}\n"));
        for one in settings {
            let colon = if one.meaning.is_empty() { "" } else { ": " };
            let text = readable(&format!("{}{colon}{}", one.value, one.meaning));
            all.push_str(&out::labelled(&one.name, 30, &text, width));
        }
    }
    all
}

/// Returns whether this process can drop caches, if that was tried, and its capability.
fn privileges(facts: &MachineFacts, drops: Option<io::Result<()>>) -> String {
    let has = if facts.privileged { "has" } else { "lacks" };
    let capability = format!("{has} CAP_SYS_ADMIN, which mounting requires");
    match drops {
        None => capability,
        Some(Ok(())) => format!("can drop caches; {capability}"),
        Some(Err(error)) => format!("cannot drop caches: {}; {capability}", reason(&error)),
    }
}

/// Formats the facts. Texts of a captured tree and mount points can contain any character.
fn text(facts: &MachineFacts, drops: Option<io::Result<()>>, width: usize) -> String {
    let mut all = String::new();
    let mut say = |head: &str, text: &str| {
        all.push_str(&out::labelled(head, 12, &readable(text), width));
    };
    let unknown = || "unknown".to_owned();
    let word = |text: &Option<String>| text.clone().unwrap_or_else(unknown);
    let size = |bytes: Option<u64>| bytes.map_or_else(unknown, format_size);
    say("fingerprint", &facts.fingerprint);
    say("kernel", &word(&facts.kernel));
    let threads = facts.threads_per_core.map_or(String::new(), |n| format!(", {n} per core"));
    say("processor", &word(&facts.cpu_model));
    let (usable, online) = (facts.cpus_usable, facts.cpus_online);
    say("processors", &format!("{usable} usable of {online}{threads}"));
    let free = size(facts.memory_available_bytes);
    say("memory", &format!("{}, {free} available", size(facts.memory_bytes)));
    say("page", &size(Some(facts.page_bytes).filter(|bytes| *bytes > 0)));
    say("clock", &word(&facts.clock_source));
    let virtual_word = match facts.virtual_machine {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    say("virtual", virtual_word);
    say("privileges", &privileges(facts, drops));
    for device in &facts.devices {
        let kind = match device.rotational {
            Some(true) if facts.virtual_machine == Some(true) => {
                ", reports rotating (often wrong for virtual disks)"
            }
            Some(false) if facts.virtual_machine == Some(true) => {
                ", reports non-rotating (unknown for virtual disks)"
            }
            Some(true) => ", rotating",
            Some(false) => ", non-rotating",
            None => "",
        };
        let scheduler = word(&device.scheduler);
        let ahead = device.read_ahead_kib.map_or(String::new(), |k| format!(", readahead {k} KiB"));
        let queue =
            device.queue_requests.map_or(String::new(), |n| format!(", queue of {n} requests"));
        let mounts: Vec<String> =
            device.mounts.iter().map(|(dir, kind)| format!("{dir} ({kind})")).collect();
        let mounts = if mounts.is_empty() { "not mounted".to_owned() } else { mounts.join(", ") };
        let text = format!(
            "{}, {}{kind}, scheduler {scheduler}{queue}{ahead}; {mounts}",
            device.name,
            size(device.bytes)
        );
        say("device", &text);
    }
    for feature in &facts.features {
        let state = feature.missing.as_ref().map_or("works".to_owned(), |why| format!("no: {why}"));
        say("feature", &format!("{}: {state}", feature.name));
    }
    for (name, value) in &facts.limits {
        say("limit", &format!("{name}: {value}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::machine::DeviceFacts;

    #[test]
    fn texts_of_a_captured_tree_do_not_control_the_terminal() {
        let odd = "a\u{1B}[31m\u{202E}\nb".to_owned();
        let device = DeviceFacts {
            name: odd.clone(),
            mounts: vec![(odd.clone(), odd.clone())],
            ..DeviceFacts::default()
        };
        let facts = MachineFacts {
            kernel: Some(odd.clone()),
            cpu_model: Some(odd.clone()),
            devices: vec![device],
            limits: vec![(odd.clone(), odd.clone())],
            ..MachineFacts::default()
        };
        let setting = Setting { name: "x".to_owned(), value: odd.clone(), meaning: String::new() };
        let topology = Topology { memory: vec![setting], ..Topology::default() };
        let printed = text(&facts, None, 80) + &settings(&topology, 80);
        assert!(printed.contains("\\u{1b}[31m"), "{printed}");
        let plain = |c: char| c == '\n' || !c.is_control() && c != '\u{202E}';
        assert!(printed.chars().all(plain), "{printed:?}");
    }

    #[test]
    fn a_confined_process_with_the_capability_cannot_drop_caches() {
        let facts = MachineFacts { privileged: true, ..MachineFacts::default() };
        let refused = || io::Error::from_raw_os_error(30);
        let words = privileges(&facts, Some(Err(refused())));
        assert!(words.starts_with("cannot drop caches: Read-only file system; has CAP"), "{words}");
        assert!(privileges(&facts, Some(Ok(()))).starts_with("can drop caches; has CAP"));
        assert!(privileges(&facts, None).starts_with("has CAP"), "another machine");
        let none = privileges(&MachineFacts::default(), Some(Err(refused())));
        assert!(none.contains("lacks CAP_SYS_ADMIN"), "{none}");
    }
}
