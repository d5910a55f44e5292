//! Machine properties, read below a configurable root.
//!
//! Everything is read from /proc and /sys below a root, so a tree captured on another machine
//! describes that machine, and tests do not depend on particular hardware. A property that cannot
//! be read is absent, never guessed. Properties known only to the running kernel (usable
//! processors, page size, probed features) are queried only if the root is `/`.
//!
//! Cost: a few hundred small reads, most of them for block devices. Call it once per program.

mod cpu;
#[cfg(target_arch = "x86_64")]
mod cpuid;
mod device;
mod limits;
mod settings;
mod source;
mod topology;

pub use cpu::count_of_list;

use ioloom_model::machine::FeatureFacts;
use ioloom_model::{MachineFacts, Topology};
use ioloom_sys::proc::parse::{field, parse_status};
use source::Source;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Name of a kernel feature and a function that tries it; `Err` contains the reason why it does not
/// work.
pub type Probe<'a> = (&'a str, &'a dyn Fn() -> Result<(), String>);

/// Reads the properties of the machine whose /proc and /sys are below `root`. The `probes` run only
/// if `root` is `/`: features of a captured tree cannot be probed.
pub fn facts(root: &Path, probes: &[Probe<'_>]) -> MachineFacts {
    let here = root == Path::new("/");
    let source = Source::new(root);
    let status = source.text("proc/self/status").map(|text| parse_status(&text));
    let meminfo = source.text("proc/meminfo").unwrap_or_default();
    let kib = |name| field(&meminfo, name).and_then(|kib: u64| kib.checked_mul(1024));
    let cpus_online = cpu::online(&source);
    let mut facts = MachineFacts {
        fingerprint: String::new(),
        kernel: kernel(&source),
        cpu_model: cpu::model(&source),
        cpus_online,
        cpus_usable: if here { usable() } else { cpus_online.max(1) },
        threads_per_core: cpu::threads_per_core(&source),
        memory_bytes: kib("MemTotal"),
        memory_available_bytes: settings::memory_available_bytes(&source, kib("MemAvailable")),
        page_bytes: if here { ioloom_sys::proc::page_bytes() } else { source.page_bytes() },
        virtual_machine: cpu::virtual_machine(&source),
        clock_source: source
            .word("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        devices: device::all(&source),
        features: if here { try_all(probes) } else { Vec::new() },
        limits: limits::all(&source),
        privileged: status.is_some_and(|status| status.has_sys_admin()),
    };
    facts.fingerprint = fingerprint(&facts);
    facts
}

/// Reads the processors, caches, NUMA nodes and settings that the kernel reports below `root`, and,
/// if that is `/`, the values that the processor reports by CPUID. Cost: hundreds of small reads.
pub fn topology(root: &Path) -> Topology {
    let here = root == Path::new("/");
    let source = Source::new(root);
    let allowed = here.then(|| ioloom_sys::affinity::allowed().ok()).flatten();
    let mut found = topology::read(&source, allowed.as_deref());
    #[cfg(target_arch = "x86_64")]
    if here {
        found.cpuid = Some(cpuid::facts(&raw_cpuid::CpuId::new()));
    }
    found.memory = settings::memory(&source);
    found.dirty = settings::dirty(&source);
    if let Some(limits) = settings::control_groups(&source) {
        found.control_groups = limits;
    } else {
        found.unknown.push("limits of control groups: no group could be read".to_owned());
    }
    found.neighbours = settings::neighbours(&source);
    found
}

/// Returns the number of processors available to this process, at least 1, limited by its affinity
/// mask and cgroup quotas.
pub fn usable() -> u32 {
    // The standard library reads the mask and the quotas of both cgroup versions.
    std::thread::available_parallelism().map_or(1, |n| n.get().try_into().unwrap_or(u32::MAX))
}

fn kernel(source: &Source<'_>) -> Option<String> {
    let release = source.word("proc/sys/kernel/osrelease")?;
    let name = source.word("proc/sys/kernel/ostype").unwrap_or_else(|| "Linux".to_owned());
    Some(format!("{name} {release}"))
}

fn try_all(probes: &[Probe<'_>]) -> Vec<FeatureFacts> {
    probes
        .iter()
        .map(|(name, probe)| FeatureFacts { name: (*name).to_owned(), missing: probe().err() })
        .collect()
}

/// Returns twelve hexadecimal digits that are equal as long as results are comparable. They cover
/// the processor model, online processors, threads per core, memory size to within a factor of 1.4,
/// and the kernel release.
fn fingerprint(facts: &MachineFacts) -> String {
    let memory = facts.memory_bytes.map(|bytes| ((bytes as f64).log2() * 2.0).round() as u64);
    let mut hash = Xxh3::new();
    hash.update(
        format!(
            "{:?}|{}|{:?}|{memory:?}|{:?}",
            facts.cpu_model, facts.cpus_online, facts.threads_per_core, facts.kernel
        )
        .as_bytes(),
    );
    format!("{:012x}", hash.digest() & 0xFFFF_FFFF_FFFF)
}
