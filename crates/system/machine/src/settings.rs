//! Settings and counters of the kernel that decide how memory and writes behave, each with what it
//! really means.

use crate::source::Source;
use ioloom_model::topology::Setting;
use ioloom_sys::proc::parse::field;

fn setting(name: &str, value: impl Into<String>, meaning: impl Into<String>) -> Setting {
    Setting { name: name.to_owned(), value: value.into(), meaning: meaning.into() }
}

/// Name, file below proc/sys/vm, and meaning.
const DIRTY: [(&str, &str); 8] = [
    (
        "dirty_background_ratio",
        "percent of available memory (free and reclaimable, not all of it) that may be dirty \
         before the kernel starts to write; 0 when the bytes below count instead",
    ),
    ("dirty_background_bytes", "the same in bytes; 0: the ratio counts"),
    (
        "dirty_ratio",
        "percent of available memory at which writers are held; they are already slowed halfway \
         between the two",
    ),
    ("dirty_bytes", "the same in bytes; 0: the ratio counts"),
    (
        "dirty_writeback_centisecs",
        "how often the kernel wakes up to look, in hundredths of a second; it then writes only \
         what is old enough",
    ),
    ("dirty_expire_centisecs", "how old that is, in hundredths of a second"),
    ("swappiness", "how readily anonymous memory goes to swap, against dropping file pages"),
    ("vfs_cache_pressure", "how readily names and inodes are dropped; 100 is like file pages"),
];

/// When changed pages are written, with the thresholds in bytes that count right now.
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
        ("nr_dirty_background_threshold", "the background threshold that is in force now"),
        ("nr_dirty_threshold", "the threshold for writers that is in force now"),
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

/// Huge pages and swap.
pub(crate) fn memory(source: &Source<'_>) -> Vec<Setting> {
    let mut out = Vec::new();
    let thp = "sys/kernel/mm/transparent_hugepage";
    if let Some(text) = source.word(&format!("{thp}/enabled")) {
        let meaning = match selected(&text) {
            "always" => "large regions get huge pages by themselves",
            "madvise" => "only regions that ask for it get huge pages",
            _ => "no region gets huge pages by itself",
        };
        out.push(setting("transparent huge pages", selected(&text), meaning));
    }
    if let Some(text) = source.word(&format!("{thp}/defrag")) {
        out.push(setting("their defragmentation", selected(&text), ""));
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
                let used = format!("{} MiB of it used", (total - free.min(total)) >> 10);
                setting("swap", format!("{} MiB", total >> 10), used)
            }
        });
    }
    if let (Some(cached), Some(shared)) = (kib("Cached"), kib("Shmem")) {
        let meaning =
            format!("{} MiB of it are shared memory, which cannot be dropped", shared >> 10);
        out.push(setting("page cache", format!("{} MiB", cached >> 10), meaning));
    }
    out
}

/// Returns the word in brackets of a list of choices.
fn selected(text: &str) -> &str {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or(text)
}

/// Limits of the control groups: the second version in one tree, the first in one per resource.
pub(crate) fn control_groups(source: &Source<'_>) -> Vec<Setting> {
    const ROOT: &str = "sys/fs/cgroup";
    let mut out = Vec::new();
    let groups = source.text("proc/self/cgroup").unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let dir = |kind: &str| {
            // In a container the path outside is not there; its own root is mounted in its place.
            let own = format!("{ROOT}{kind}{}", path.trim_end_matches('/'));
            if source.names(&own).is_empty() { format!("{ROOT}{kind}") } else { own }
        };
        if kinds.is_empty() {
            two(source, &dir(""), &mut out);
        }
        for kind in kinds.split(',') {
            one(source, kind, &dir(&format!("/{kind}")), &mut out);
        }
    }
    if out.is_empty() {
        out.push(setting("limits", "none", "no control group limits this process"));
    }
    out
}

/// Limits of the second version.
fn two(source: &Source<'_>, dir: &str, out: &mut Vec<Setting>) {
    let limited = |name: &str| source.word(&format!("{dir}/{name}")).filter(|v| v != "max");
    if let Some(value) = limited("cpu.max").filter(|v| !v.starts_with("max")) {
        let mut parts = value.split(' ').filter_map(|n| n.parse::<f64>().ok());
        if let (Some(quota), Some(period)) = (parts.next(), parts.next()) {
            out.push(quota_setting(quota, period));
        }
    }
    for (name, meaning) in [
        ("memory.max", "bytes of memory, page cache among them"),
        ("memory.high", "bytes above which it is slowed"),
        ("io.max", "limits of devices"),
        ("pids.max", "processes and threads"),
    ] {
        out.extend(limited(name).map(|value| setting(name, value.replace('\n', "; "), meaning)));
    }
}

/// Limits of the first version.
fn one(source: &Source<'_>, kind: &str, dir: &str, out: &mut Vec<Setting>) {
    let number = |name: &str| source.number(&format!("{dir}/{name}"));
    match kind {
        "cpu" => {
            if let (Some(quota), Some(period)) =
                (number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"))
            {
                out.push(quota_setting(quota as f64, period as f64));
            }
        }
        "memory" => {
            // No limit is told as a number that no memory reaches.
            if let Some(bytes) = number("memory.limit_in_bytes").filter(|bytes| *bytes < 1 << 60) {
                let meaning = "bytes of memory, page cache among them";
                out.push(setting("memory.limit_in_bytes", bytes.to_string(), meaning));
            }
        }
        "pids" => out.extend(
            source
                .word(&format!("{dir}/pids.max"))
                .filter(|v| v != "max")
                .map(|v| setting("pids.max", v, "processes and threads")),
        ),
        _ => {}
    }
}

fn quota_setting(quota: f64, period: f64) -> Setting {
    let value = format!("{:.2} processors", quota / period.max(1.0));
    setting("processor time", value, "threads beyond that wait, even with idle processors")
}

/// Signs that others use the same hardware.
pub(crate) fn neighbours(source: &Source<'_>) -> Vec<Setting> {
    let mut out = Vec::new();
    let stat =
        source.text("proc/stat").and_then(|t| ioloom_sys::proc::parse::parse_system_stat(&t));
    if let Some(stat) = stat {
        let share = stat.total.steal as f64 / stat.total.total().max(1) as f64;
        let meaning = "of all processor time since the start, taken by the hypervisor for others";
        out.push(setting("steal", format!("{:.2} %", share * 100.0), meaning));
    }
    for (kind, meaning) in [
        ("cpu", "of the last 10 s in which some thread waited for a processor"),
        ("io", "of the last 10 s in which some thread waited for a device"),
        ("memory", "of the last 10 s in which some thread waited for memory"),
    ] {
        let text = source.text(&format!("proc/pressure/{kind}")).unwrap_or_default();
        let some = text.lines().find_map(|line| line.strip_prefix("some avg10="));
        if let Some(share) = some.and_then(|rest| rest.split(' ').next()) {
            out.push(setting(&format!("pressure {kind}"), format!("{share} %"), meaning));
        }
    }
    if let Some(load) = source.word("proc/loadavg") {
        let value = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
        out.push(setting("load", value, "threads that ran or waited, over 1, 5 and 15 minutes"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        assert_eq!(selected("always [madvise] never"), "madvise");
        assert_eq!(selected("none"), "none");
    }
}
