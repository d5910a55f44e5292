//! Processors: number, model, and whether they are virtual.

use crate::source::Source;

/// Directory in which the kernel lists processors.
pub(crate) const CPUS: &str = "sys/devices/system/cpu";

/// Keys that contain the processor model in /proc/cpuinfo, by architecture.
const MODEL_KEYS: [&str; 4] = ["model name", "cpu model", "Processor", "cpu"];

/// Returns the number of online processors; 0 if unknown.
pub(crate) fn online(source: &Source<'_>) -> u32 {
    let listed = source.word(&format!("{CPUS}/online")).and_then(|list| count_of_list(&list));
    listed.unwrap_or_else(|| {
        let info = source.text("proc/cpuinfo").unwrap_or_default();
        info.lines().filter(|line| key_of(line) == Some("processor")).count() as u32
    })
}

/// Maximum processor number accepted in a list; a larger one means that the list is malformed.
const CPUS_MAX: u32 = 1 << 16;

/// Returns the number of processors in a kernel list such as `0-3,8`; `None` if it is malformed.
pub fn count_of_list(list: &str) -> Option<u32> {
    ranges(list)?.iter().try_fold(0u32, |sum, (first, last)| sum.checked_add(last - first + 1))
}

/// Returns the processors in such a list, in ascending order without duplicates.
pub(crate) fn numbers_of_list(list: &str) -> Option<Vec<u32>> {
    let ranges = ranges(list)?;
    let mut all: Vec<u32> = ranges.iter().flat_map(|(first, last)| *first..=*last).collect();
    all.sort_unstable();
    all.dedup();
    Some(all)
}

fn ranges(list: &str) -> Option<Vec<(u32, u32)>> {
    let list = list.trim();
    if list.is_empty() {
        return None;
    }
    list.split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && last < CPUS_MAX).then_some((first, last))
        })
        .collect()
}

/// Returns the number of threads per core; on hybrid processors, the maximum over all cores.
pub(crate) fn threads_per_core(source: &Source<'_>) -> Option<u32> {
    let is_cpu = |name: &&String| {
        name.strip_prefix("cpu")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let names = source.names(CPUS);
    names
        .iter()
        .filter(is_cpu)
        .filter_map(|cpu| {
            let topology = format!("{CPUS}/{cpu}/topology");
            let siblings = source
                .word(&format!("{topology}/core_cpus_list"))
                .or_else(|| source.word(&format!("{topology}/thread_siblings_list")))?;
            count_of_list(&siblings)
        })
        .max()
}

/// Returns the processor model. A hypervisor may have shortened it.
pub(crate) fn model(source: &Source<'_>) -> Option<String> {
    let info = source.text("proc/cpuinfo")?;
    MODEL_KEYS.iter().find_map(|key| value_of(&info, key)).or_else(|| {
        // 64-bit ARM reports only numbers.
        let (maker, part) = (value_of(&info, "CPU implementer")?, value_of(&info, "CPU part")?);
        Some(format!("implementer {maker} part {part}"))
    })
}

/// Reports whether a hypervisor announces itself; `None` if the architecture has no way to report
/// it.
pub(crate) fn virtual_machine(source: &Source<'_>) -> Option<bool> {
    if source.word("sys/hypervisor/type").is_some() {
        return Some(true);
    }
    let info = source.text("proc/cpuinfo")?;
    let flags = value_of(&info, "flags")?;
    Some(flags.split(' ').any(|flag| flag == "hypervisor"))
}

fn key_of(line: &str) -> Option<&str> {
    line.split_once(':').map(|(key, _)| key.trim())
}

fn value_of(info: &str, key: &str) -> Option<String> {
    let line = info.lines().find(|line| key_of(line) == Some(key))?;
    let value = line.split_once(':')?.1.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        for (list, count) in [("0", 1), ("0-3", 4), ("0-3,8", 5), ("0,2,4-5\n", 4)] {
            assert_eq!(count_of_list(list), Some(count), "{list}");
        }
        assert_eq!(numbers_of_list("4,0-2,1"), Some(vec![0, 1, 2, 4]));
        for list in ["", "x", "3-1", "0-", "-", "0-4294967295", "0-4294967294,0-9"] {
            assert_eq!(count_of_list(list), None, "{list}");
        }
    }

    #[test]
    fn a_key_is_the_whole_word() {
        let info = "cpu family\t: 6\nmodel\t\t: 126\nmodel name\t: Core: fast\nflags\t\t: a b\n";
        assert_eq!(value_of(info, "model name").as_deref(), Some("Core: fast"));
        assert_eq!(value_of(info, "cpu"), None);
    }
}
