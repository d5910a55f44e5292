//! Kernel settings and counters that affect memory and writes, each with its meaning.

use crate::source::Source;
use ioloom_model::topology::Setting;
use ioloom_sys::cgroup;
use ioloom_sys::mount::selected;
use ioloom_sys::proc::parse::field;
use std::collections::BTreeMap;
use std::path::Path;

fn setting(name: &str, value: impl Into<String>, meaning: impl Into<String>) -> Setting {
    Setting { name: name.to_owned(), value: value.into(), meaning: meaning.into() }
}

/// Name below proc/sys/vm, and meaning.
const DIRTY: [(&str, &str); 8] = [
    (
        "dirty_background_ratio",
        "percent of available memory (free and reclaimable, not total) that may be dirty before \
         the kernel starts writing; 0: dirty_background_bytes applies instead",
    ),
    ("dirty_background_bytes", "the same threshold in bytes; 0: the ratio applies"),
    (
        "dirty_ratio",
        "percent of available memory at which writers block; they are throttled from halfway \
         between the two thresholds",
    ),
    ("dirty_bytes", "the same threshold in bytes; 0: the ratio applies"),
    (
        "dirty_writeback_centisecs",
        "interval at which the kernel checks for old dirty pages, in hundredths of a second; it \
         writes only those older than dirty_expire_centisecs",
    ),
    ("dirty_expire_centisecs", "age at which a dirty page is written, in hundredths of a second"),
    ("swappiness", "preference for swapping anonymous memory over dropping file pages"),
    ("vfs_cache_pressure", "preference for dropping dentries and inodes; 100: like file pages"),
];

/// Returns when dirty pages are written, with the current effective thresholds in bytes.
pub(crate) fn dirty(source: &Source<'_>) -> Vec<Setting> {
    let mut out: Vec<Setting> = DIRTY
        .iter()
        .filter_map(|(name, meaning)| {
            Some(setting(name, source.word(&format!("proc/sys/vm/{name}"))?, *meaning))
        })
        .collect();
    let vmstat = source.text("proc/vmstat").unwrap_or_default();
    let page_bytes = source.page_bytes();
    for (counter, meaning) in [
        ("nr_dirty_background_threshold", "current background threshold"),
        ("nr_dirty_threshold", "current threshold for writers"),
    ] {
        let line = vmstat.lines().find_map(|line| line.strip_prefix(&format!("{counter} ")));
        let bytes = line
            .and_then(|n| n.trim().parse::<u64>().ok()?.checked_mul(page_bytes))
            .filter(|bytes| *bytes > 0);
        if let Some(bytes) = bytes {
            out.push(setting(counter, format!("{} MiB", bytes >> 20), meaning));
        }
    }
    out
}

/// Returns the state of huge pages, swap and the page cache.
pub(crate) fn memory(source: &Source<'_>) -> Vec<Setting> {
    let mut out = Vec::new();
    let thp = "sys/kernel/mm/transparent_hugepage";
    if let Some(text) = source.word(&format!("{thp}/enabled")) {
        let meaning = match selected(&text).as_str() {
            "always" => "large regions get huge pages automatically",
            "madvise" => "only regions that request it with madvise get huge pages",
            _ => "no region gets huge pages automatically",
        };
        out.push(setting("transparent huge pages", selected(&text), meaning));
    }
    if let Some(text) = source.word(&format!("{thp}/defrag")) {
        out.push(setting("huge page defragmentation", selected(&text), ""));
    }
    let meminfo = source.text("proc/meminfo").unwrap_or_default();
    let kib = |name: &str| field(&meminfo, name);
    if let Some(total) = field(&meminfo, "HugePages_Total") {
        let size = kib("Hugepagesize").map_or(String::new(), |kib| format!(" of {kib} KiB"));
        out.push(setting("reserved huge pages", format!("{total}{size}"), ""));
    }
    if let (Some(total), Some(free)) = (kib("SwapTotal"), kib("SwapFree")) {
        out.push(match total {
            0 => setting("swap", "none", ""),
            _ => {
                let used = format!("{} MiB used", (total - free.min(total)) >> 10);
                setting("swap", format!("{} MiB", total >> 10), used)
            }
        });
    }
    if let (Some(cached), Some(shared)) = (kib("Cached"), kib("Shmem")) {
        let meaning =
            format!("including {} MiB of shared memory, which cannot be dropped", shared >> 10);
        out.push(setting("page cache", format!("{} MiB", cached >> 10), meaning));
    }
    out
}

/// Where control groups are mounted.
const ROOT: &str = "sys/fs/cgroup";

/// Returns what is available of `machine_bytes` within the limits of control groups.
pub(crate) fn memory_available_bytes(
    source: &Source<'_>,
    machine_bytes: Option<u64>,
) -> Option<u64> {
    let groups = source.text("proc/self/cgroup").unwrap_or_default();
    cgroup::memory_available_in(&source.path(ROOT), &groups, machine_bytes)
}

/// Returns the limits that this process's cgroup and those above it set: one hierarchy in version 2, one
/// per resource in version 1. Returns `None` if no control group could be read.
pub(crate) fn control_groups(source: &Source<'_>) -> Option<Vec<Setting>> {
    let (mut out, mut is_read) = (Vec::new(), false);
    let groups = source.text("proc/self/cgroup").unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let mut dirs = |kind: &str| {
            let dirs = groups_above(source, &format!("{ROOT}{kind}"), path);
            is_read |= dirs.iter().any(|dir| !source.names(dir).is_empty());
            dirs
        };
        if kinds.is_empty() {
            // With both versions mounted, version 2 is in a directory of its own.
            let both = [dirs(""), dirs("/unified")].concat();
            two(source, &both, &mut out);
            continue;
        }
        for kind in kinds.split(',') {
            one(source, kind, &dirs(&format!("/{kind}")), &mut out);
        }
    }
    if out.is_empty() && is_read {
        out.push(setting("limits", "none", "no control group limits this process"));
    }
    is_read.then_some(out)
}

/// Returns the directories of a group and of those above it, whose limits hold for it, too.
fn groups_above(source: &Source<'_>, root: &str, path: &str) -> Vec<String> {
    let own = format!("{root}{}", path.trim_end_matches('/'));
    // In a container the path may be that of the host; the container's root is mounted instead.
    if source.names(&own).is_empty() {
        return vec![root.to_owned()];
    }
    let above = Path::new(&own).ancestors().filter_map(Path::to_str).map(str::to_owned);
    above.take_while(|dir| dir.starts_with(root)).collect()
}

/// Adds cgroup v2 limits, each the smallest of `dirs`.
fn two(source: &Source<'_>, dirs: &[String], out: &mut Vec<Setting>) {
    let words = |name: &str| -> Vec<String> {
        dirs.iter().filter_map(|dir| source.word(&format!("{dir}/{name}"))).collect()
    };
    let quotas = words("cpu.max").into_iter().filter_map(|value| {
        let (quota, period) = value.split_once(' ')?;
        // `max` is not a number.
        Some((quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?))
    });
    out.extend(smallest_quota(quotas));
    for (name, meaning) in [
        ("memory.max", "bytes of memory, including page cache"),
        ("memory.high", "bytes above which the process is throttled"),
        ("io.max", "device limits"),
        ("pids.max", "processes and threads"),
    ] {
        let words = words(name);
        let least = if name == "io.max" { smallest_io(&words) } else { smallest(&words) };
        out.extend(least.map(|value| setting(name, value, meaning)));
    }
}

/// Adds cgroup v1 limits, each the smallest of `dirs`.
fn one(source: &Source<'_>, kind: &str, dirs: &[String], out: &mut Vec<Setting>) {
    let number = |dir: &str, name: &str| source.number(&format!("{dir}/{name}"));
    match kind {
        "cpu" => {
            let quotas = dirs.iter().filter_map(|dir| {
                let quota = number(dir, "cpu.cfs_quota_us")?;
                Some((quota as f64, number(dir, "cpu.cfs_period_us")? as f64))
            });
            out.extend(smallest_quota(quotas));
        }
        "memory" => {
            let bytes = dirs.iter().filter_map(|dir| number(dir, "memory.limit_in_bytes"));
            // "No limit" is reported as a number larger than any memory.
            if let Some(bytes) = bytes.min().filter(|bytes| *bytes < 1 << 60) {
                let meaning = "bytes of memory, including page cache";
                out.push(setting("memory.limit_in_bytes", bytes.to_string(), meaning));
            }
        }
        "pids" => {
            let limits = dirs.iter().filter_map(|dir| number(dir, "pids.max"));
            let least = limits.min().map(|limit| limit.to_string());
            out.extend(least.map(|limit| setting("pids.max", limit, "processes and threads")));
        }
        "blkio" => {
            let mut texts = Vec::new();
            for (file, name) in BLKIO {
                let found = dirs.iter().filter_map(|dir| source.text(&format!("{dir}/{file}")));
                texts.extend(found.map(|text| text.replace(' ', &format!(" {name}="))));
            }
            let least = smallest_io(&texts);
            out.extend(least.map(|value| setting("blkio.throttle", value, "device limits")));
        }
        _ => {}
    }
}

/// Files of version 1 with limits per device, and the names of the limits in `io.max`.
const BLKIO: [(&str, &str); 4] = [
    ("blkio.throttle.read_bps_device", "rbps"),
    ("blkio.throttle.write_bps_device", "wbps"),
    ("blkio.throttle.read_iops_device", "riops"),
    ("blkio.throttle.write_iops_device", "wiops"),
];

/// Returns the smallest of some limits; `None` if all are `max`.
fn smallest(words: &[String]) -> Option<String> {
    let least = words.iter().filter_map(|word| word.parse::<u64>().ok()).min();
    least.map(|limit| limit.to_string())
}

/// Returns the smallest limits of every device in texts of `io.max`; `None` if all are `max`.
fn smallest_io(texts: &[String]) -> Option<String> {
    let mut devices: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let Some((device, limits)) = line.split_once(' ') else { continue };
        for (name, limit) in limits.split_whitespace().filter_map(|word| word.split_once('=')) {
            if let Ok(limit) = limit.parse::<u64>() {
                let least = devices.entry(device).or_default().entry(name).or_insert(limit);
                *least = (*least).min(limit);
            }
        }
    }
    let spelled = devices.iter().map(|(device, limits)| {
        let limits = limits.iter().map(|(name, limit)| format!(" {name}={limit}"));
        format!("{device}{}", limits.collect::<String>())
    });
    let spelled = spelled.collect::<Vec<_>>().join("; ");
    (!spelled.is_empty()).then_some(spelled)
}

/// Returns the quota with the fewest processors, from pairs of quota and period.
fn smallest_quota(quotas: impl Iterator<Item = (f64, f64)>) -> Option<Setting> {
    let processors = quotas.map(|(quota, period)| quota / period.max(1.0));
    processors.min_by(f64::total_cmp).map(quota_setting)
}

fn quota_setting(processors: f64) -> Setting {
    let value = format!("{processors:.2} processors");
    setting("processor time", value, "threads beyond this wait, even if processors are idle")
}

/// Returns indications that other programs or machines use the same hardware.
pub(crate) fn neighbours(source: &Source<'_>) -> Vec<Setting> {
    let mut out = Vec::new();
    let stat =
        source.text("proc/stat").and_then(|t| ioloom_sys::proc::parse::parse_system_stat(&t));
    if let Some(stat) = stat {
        let share = stat.total.steal as f64 / stat.total.total().max(1) as f64;
        let meaning = "share of processor time since boot that the hypervisor gave to other guests";
        out.push(setting("steal", format!("{:.2} %", share * 100.0), meaning));
    }
    for (kind, meaning) in [
        ("cpu", "share of the last 10 s in which at least one thread waited for a processor"),
        ("io", "share of the last 10 s in which at least one thread waited for a device"),
        ("memory", "share of the last 10 s in which at least one thread waited for memory"),
    ] {
        let text = source.text(&format!("proc/pressure/{kind}")).unwrap_or_default();
        let some = text.lines().find_map(|line| line.strip_prefix("some avg10="));
        if let Some(share) = some.and_then(|rest| rest.split(' ').next()) {
            out.push(setting(&format!("pressure {kind}"), format!("{share} %"), meaning));
        }
    }
    if let Some(load) = source.word("proc/loadavg") {
        let value = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
        out.push(setting("load", value, "threads running or waiting, over 1, 5 and 15 minutes"));
    }
    out
}
