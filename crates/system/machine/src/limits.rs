//! Limits on descriptors, locked memory, mappings and permissions.

use crate::source::Source;

/// Relevant lines in /proc/self/limits, with their names in the result.
const OF_PROCESS: [(&str, &str); 4] = [
    ("Max open files", "open files"),
    ("Max locked memory", "locked memory, bytes"),
    ("Max processes", "processes and threads"),
    ("Max file size", "file size, bytes"),
];

/// Relevant kernel settings below /proc/sys, with their names in the result.
const OF_KERNEL: [(&str, &str); 6] = [
    ("fs/file-max", "open files, system-wide"),
    ("vm/max_map_count", "memory mappings per process"),
    ("fs/aio-max-nr", "asynchronous requests, system-wide"),
    ("kernel/io_uring_disabled", "io_uring disabled (0: no)"),
    ("kernel/perf_event_paranoid", "perf_event_paranoid"),
    ("vm/dirty_ratio", "dirty memory before writers block, percent"),
];

/// Returns the name and value of each limit, except unreadable ones.
pub(crate) fn all(source: &Source<'_>) -> Vec<(String, String)> {
    let text = source.text("proc/self/limits").unwrap_or_default();
    let of_process = OF_PROCESS.iter().filter_map(|(key, name)| {
        let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
        let mut words = rest.split_ascii_whitespace();
        let (soft, hard) = (words.next()?, words.next()?);
        let value = if soft == hard { soft.to_owned() } else { format!("{soft} (up to {hard})") };
        Some(((*name).to_owned(), value))
    });
    let of_kernel = OF_KERNEL.iter().filter_map(|(path, name)| {
        Some(((*name).to_owned(), source.word(&format!("proc/sys/{path}"))?))
    });
    of_process.chain(of_kernel).collect()
}
