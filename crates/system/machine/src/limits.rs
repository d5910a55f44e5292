//! Limits that bound what can be tried: descriptors, locked memory, mappings, permissions.

use crate::source::Source;

/// Lines of /proc/self/limits that matter here, with the name to give them.
const OF_PROCESS: [(&str, &str); 4] = [
    ("Max open files", "open files"),
    ("Max locked memory", "locked memory, bytes"),
    ("Max processes", "processes and threads"),
    ("Max file size", "file size, bytes"),
];

/// Switches of the kernel that matter here.
const OF_KERNEL: [(&str, &str); 6] = [
    ("fs/file-max", "open files of all"),
    ("vm/max_map_count", "mappings of a process"),
    ("fs/aio-max-nr", "asynchronous requests of all"),
    ("kernel/io_uring_disabled", "io_uring disabled (0 is no)"),
    ("kernel/perf_event_paranoid", "perf events paranoid"),
    ("vm/dirty_ratio", "dirty memory before writers wait, percent"),
];

/// Name and value in words; what cannot be read is left out.
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
