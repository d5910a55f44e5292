//! Sixteen questions about the validity of a memory measurement, with the evidence.
//!
//! System counters are read before and after the measurement; the difference covers everything in
//! between. A question without evidence is skipped with a reason, never passed.

use crate::blocks::Released;
use crate::buffers::Reads;
use crate::cpu_wait::{BUSY_MAX, CpuWait};
use crate::ladder::LadderFacts;
use crate::options::MemoryOptions;
use ioloom_model::memory::{Check, CheckState, MemoryResult};
use ioloom_stats::{TwoRegimes, median};
use ioloom_sys::proc::{self, parse};
use std::path::Path;

use CheckState::{Fail, Pass, Skipped, Warn};

/// Counters before the measurement.
#[derive(Debug)]
pub(crate) struct CountersBefore {
    wait: CpuWait,
    steal: Option<u64>,
    total: Option<u64>,
    vmstat: Option<String>,
}

impl CountersBefore {
    pub(crate) fn take() -> Self {
        let stat = proc::system_stat().ok();
        Self {
            wait: CpuWait::start(),
            steal: stat.as_ref().map(|s| s.total.steal),
            total: stat.as_ref().map(|s| s.total.total()),
            vmstat: text("/proc/vmstat"),
        }
    }
}

fn text(path: &str) -> Option<String> {
    proc::read_text(Path::new(path)).ok()
}

/// Returns the value of a line `name value` of /proc/vmstat.
fn count(vmstat: &str, name: &str) -> Option<u64> {
    let line = vmstat.lines().find(|line| line.split(' ').next() == Some(name))?;
    line.split(' ').nth(1)?.parse().ok()
}

/// Returns all sixteen answers.
pub(crate) fn answer(
    result: &MemoryResult,
    bench: &Released,
    facts: &LadderFacts,
    before: &CountersBefore,
    reads: Option<&Reads>,
    options: &MemoryOptions,
) -> Vec<Check> {
    let answers: [(&str, (CheckState, String)); 16] = [
        ("pinned to one processor", pinned(result, bench)),
        ("no load from other programs", free(before)),
        ("median near the minimum", disturbance(result)),
        ("steady clock rate", clock(bench)),
        ("huge pages granted", huge(result)),
        ("reported cache sizes agree", caches_agree(result, options)),
        ("reported free memory agrees", free_memory_agrees()),
        ("no reclaim while measuring", reclaim(before)),
        ("file fully cached", warm(reads)),
        ("no memory migration", background_movers()),
        ("bytes add up", bytes(reads)),
        ("requests in flight add up", in_flight(reads)),
        ("larger sets never faster", envelope(facts)),
        ("a single regime per level", regimes(facts)),
        ("prefetcher does not learn", prefetch(facts)),
        ("other processors available", others(result, before)),
    ];
    let check = |(i, (asks, (state, evidence))): (usize, (&str, (CheckState, String)))| Check {
        id: format!("H{}", i + 1),
        asks: asks.to_owned(),
        state,
        evidence,
    };
    answers.into_iter().enumerate().map(check).collect()
}

/// Returns a pass below the first limit, a warning below the second, and a failure above both.
fn below(value: f64, pass: f64, warn: f64) -> CheckState {
    match value {
        v if v < pass => Pass,
        v if v < warn => Warn,
        _ => Fail,
    }
}

fn pinned(result: &MemoryResult, bench: &Released) -> (CheckState, String) {
    let Some(cpu) = result.cpu else {
        return (Fail, "the thread could not be pinned and may have moved".to_owned());
    };
    let share = bench.moved as f64 / bench.blocks.max(1) as f64;
    let text = format!("{} of {} blocks not on processor {cpu}", bench.moved, bench.blocks);
    (if bench.moved == 0 { Pass } else { below(share, 0.0, 0.01) }, text)
}

fn free(before: &CountersBefore) -> (CheckState, String) {
    let steal = match (proc::system_stat(), before.steal, before.total) {
        (Ok(now), Some(steal), Some(total)) => {
            Some((now.total.steal - steal) as f64 / (now.total.total() - total).max(1) as f64)
        }
        _ => None,
    };
    let wait = before.wait.share();
    let say = |what: &str, share: Option<f64>| match share {
        Some(share) => format!("{what} {:.1} %", share * 100.0),
        None => format!("{what} unknown"),
    };
    let text = format!("{}, {}", say("threads waited", wait), say("stolen", steal));
    match (wait, steal) {
        (None, None) => (Skipped, text),
        (w, s) if w.unwrap_or(0.0) > 0.25 || s.unwrap_or(0.0) > 0.05 => (Fail, text),
        (w, s) if w.unwrap_or(0.0) > 0.05 || s.unwrap_or(0.0) > 0.01 => (Warn, text),
        _ => (Pass, text),
    }
}

fn disturbance(result: &MemoryResult) -> (CheckState, String) {
    let ratios: Vec<f64> = result.ladder.iter().map(|p| p.ns_median / p.ns_min).collect();
    let ratio = median(&ratios);
    let text = format!("median of a size over its minimum: {ratio:.2}");
    (below(ratio, 1.10, 1.5), text)
}

fn clock(bench: &Released) -> (CheckState, String) {
    let (Some(low), Some(high)) = (
        bench.cycles_ns.iter().copied().reduce(f64::min),
        bench.cycles_ns.iter().copied().reduce(f64::max),
    ) else {
        return (Skipped, "no loop of known length for this processor".to_owned());
    };
    let drift = high / low - 1.0;
    let text = format!("{:.2} GHz, drift {:.1} %", 1.0 / low, drift * 100.0);
    (below(drift, 0.03, 0.10), text)
}

fn huge(result: &MemoryResult) -> (CheckState, String) {
    let Some(share) = result.huge_share else {
        return (Skipped, "not reported by the kernel".to_owned());
    };
    let granted = format!("{:.0} % of the region in huge pages", share * 100.0);
    let knee = |pages: &str| result.extra.get(&format!("tlb_{pages}_l1_high_pages")).copied();
    match (knee("small"), knee("huge")) {
        _ if share < 0.9 => (Warn, format!("{granted}: latencies include address translation")),
        (Some(small), Some(huge)) if huge < 4.0 * small => (
            Warn,
            format!(
                "{granted}, but the TLB reaches only {huge:.0} small pages: probably \
                 split by the hypervisor"
            ),
        ),
        _ => (Pass, granted),
    }
}

fn caches_agree(result: &MemoryResult, options: &MemoryOptions) -> (CheckState, String) {
    let advertised = &options.advertised;
    if advertised.kernel_bytes.is_empty() && advertised.cpuid_bytes.is_empty() {
        return (Skipped, "neither the kernel nor the processor reports cache sizes".to_owned());
    }
    let mut odd = Vec::new();
    if !advertised.cpuid_bytes.is_empty() && advertised.cpuid_bytes != advertised.kernel_bytes {
        odd.push("kernel and CPUID disagree".to_owned());
    }
    if let (Some(socket), Some(last)) =
        (advertised.cpuid_socket_bytes, advertised.kernel_bytes.last())
        && socket != *last
    {
        odd.push(format!("last level {} MiB, but {} MiB per socket", last >> 20, socket >> 20));
    }
    let against = |l: &&ioloom_model::memory::MemoryLevel| {
        l.bracket_bytes.is_some() && l.verdict != "confirmed"
    };
    odd.extend(result.levels.iter().filter(against).map(|l| format!("{} {}", l.name, l.verdict)));
    if odd.is_empty() {
        (Pass, "kernel, CPUID and curve agree".to_owned())
    } else {
        (Warn, odd.join("; "))
    }
}

fn free_memory_agrees() -> (CheckState, String) {
    let (Some(meminfo), Some(vmstat)) = (text("/proc/meminfo"), text("/proc/vmstat")) else {
        return (Skipped, "/proc/meminfo or /proc/vmstat cannot be read".to_owned());
    };
    let (Some(kib), Some(pages)) =
        (parse::field(&meminfo, "MemFree"), count(&vmstat, "nr_free_pages"))
    else {
        return (Skipped, "the kernel does not report both".to_owned());
    };
    let (a, b) = ((kib << 10) as f64, (pages * proc::page_bytes()) as f64);
    let text = format!("MemFree {:.2} GiB, free pages {:.2} GiB", a / GIB, b / GIB);
    // Both values change while they are read, so a difference of 10 % or 64 MiB is not a
    // contradiction.
    let apart = (a - b).abs();
    (if apart < 0.1 * a.max(b) || apart < 64.0 * 1024.0 * 1024.0 { Pass } else { Warn }, text)
}

const GIB: f64 = (1u64 << 30) as f64;

fn reclaim(before: &CountersBefore) -> (CheckState, String) {
    let (Some(was), Some(now)) = (&before.vmstat, text("/proc/vmstat")) else {
        return (Skipped, "/proc/vmstat cannot be read".to_owned());
    };
    let grown = |name: &str| Some(count(&now, name)?.saturating_sub(count(was, name)?));
    let names = ["pgscan_kswapd", "pgscan_direct", "oom_kill", "pswpin", "pswpout"];
    let found: Vec<String> = names
        .iter()
        .filter_map(|name| grown(name).filter(|n| *n > 0).map(|n| format!("{name} +{n}")))
        .collect();
    if found.is_empty() {
        (Pass, "no page was scanned for reclaim".to_owned())
    } else if grown("pgscan_direct").unwrap_or(0) + grown("oom_kill").unwrap_or(0) > 0 {
        (Fail, found.join(", "))
    } else {
        (Warn, found.join(", "))
    }
}

fn warm(reads: Option<&Reads>) -> (CheckState, String) {
    match reads.map(|r| r.warm_share) {
        None => (Skipped, "no file was read".to_owned()),
        Some(None) => (Skipped, "the cached pages cannot be queried".to_owned()),
        Some(Some(share)) => {
            let text = format!("{:.1} % of the file cached before", share * 100.0);
            (if share >= 0.999 { Pass } else { Fail }, text)
        }
    }
}

fn background_movers() -> (CheckState, String) {
    let mut found = Vec::new();
    let damon = Path::new("/sys/kernel/mm/damon/admin/kdamonds");
    if let Some(n) = text(&damon.join("nr_kdamonds").display().to_string())
        && (0..n.trim().parse::<u32>().unwrap_or(0)).any(|i| {
            let state = text(&damon.join(i.to_string()).join("state").display().to_string());
            state.is_some_and(|s| s.trim() == "on")
        })
    {
        found.push("DAMON migrates unused memory".to_owned());
    }
    let swaps = text("/proc/swaps").unwrap_or_default();
    if swaps.lines().count() > 1 {
        found.push("swap is on".to_owned());
    }
    found.extend(
        ioloom_sys::cgroup::memory_limit_bytes()
            .map(|bytes| format!("a control group limits memory to {} MiB", bytes >> 20)),
    );
    if found.is_empty() {
        (Pass, "no DAMON, no swap, no limit".to_owned())
    } else {
        (Warn, found.join("; "))
    }
}

fn bytes(reads: Option<&Reads>) -> (CheckState, String) {
    let Some(reads) = reads else { return (Skipped, "no file was read".to_owned()) };
    let (Some(counted), Some(device)) = (reads.counted, reads.from_device) else {
        return (Skipped, "/proc/self/io cannot be read".to_owned());
    };
    // The kernel also counts what this program reads from /proc.
    let extra = counted.saturating_sub(reads.brought);
    let text = format!(
        "calls returned {} MiB, the kernel counted {} KiB more, {} KiB from a device",
        reads.brought >> 20,
        extra >> 10,
        device >> 10
    );
    let right = counted >= reads.brought && extra < 1 << 20;
    let state = match device {
        _ if !right => Fail,
        0 => Pass,
        _ => Warn,
    };
    (state, text)
}

/// Accepted ratios of the device's count to ours. The device does not see the path from the call to
/// the request and back.
const DEVICE_SHARE: std::ops::RangeInclusive<f64> = 0.6..=1.15;
/// Outside this range, the device counts something else.
const DEVICE_SHARE_FAIL: std::ops::RangeInclusive<f64> = 0.25..=2.0;

fn in_flight(reads: Option<&Reads>) -> (CheckState, String) {
    let flights = match reads.map(|r| r.flights) {
        None => return (Skipped, "no file was read".to_owned()),
        Some(Err(why)) => return (Skipped, why.to_owned()),
        Some(Ok(flights)) => flights,
    };
    let advertised = flights.map(|f| {
        format!(
            "{} at a time: {:.2} by our clock, {:.2} by the device",
            f.asked, f.by_calls, f.by_device
        )
    });
    let all = |range: std::ops::RangeInclusive<f64>| {
        flights.iter().all(|f| range.contains(&(f.by_device / f.by_calls)))
    };
    let state = match (all(DEVICE_SHARE), all(DEVICE_SHARE_FAIL)) {
        (true, _) => Pass,
        (false, true) => Warn,
        (false, false) => Fail,
    };
    (state, advertised.join("; "))
}

fn envelope(facts: &LadderFacts) -> (CheckState, String) {
    let (moved, all) = (facts.found.disturbed.len(), facts.found.envelope.len());
    let text = format!("{moved} of {all} sizes were slower than a larger one");
    let share = moved as f64 / all.max(1) as f64;
    (if moved == 0 { Pass } else { below(share, 0.0, 0.10) }, text)
}

fn regimes(facts: &LadderFacts) -> (CheckState, String) {
    let mut found = Vec::new();
    for (i, blocks) in facts.blocks_of_levels.iter().enumerate() {
        if let Ok(two) = TwoRegimes::test(blocks)
            && two.found
            && two.change > 0.15
        {
            found.push(format!("level {}: {:.1} and {:.1} ns", i + 1, two.low, two.high));
        }
    }
    if found.is_empty() {
        (Pass, "the blocks of each level form one group".to_owned())
    } else {
        (Warn, found.join("; "))
    }
}

fn prefetch(facts: &LadderFacts) -> (CheckState, String) {
    let Some(ratio) = facts.fresh_over_same else {
        return (Skipped, "there is no second cache level".to_owned());
    };
    let text = format!("a new order takes {ratio:.2} times as long as a repeated one");
    // The first walk also hits lines that were just written, so a slightly higher ratio is normal.
    (below(ratio, 1.05, 1.5), text)
}

fn others(result: &MemoryResult, before: &CountersBefore) -> (CheckState, String) {
    if let Some(why) = &result.pairs_skipped {
        return (Warn, format!("pairs were not measured: {why}"));
    }
    if result.pairs.is_empty() && result.smt.is_none() {
        return (Skipped, "no second processor was used".to_owned());
    }
    match before.wait.share() {
        Some(share) => {
            let text = format!("threads waited for a processor {:.1} % of the time", share * 100.0);
            (if share <= BUSY_MAX { Pass } else { Fail }, text)
        }
        None => (Skipped, "not reported by the kernel (no pressure information)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::Flight;

    #[test]
    fn counters_are_read() {
        let vmstat = "nr_free_pages 12\nnr_free_pages_blocks 3\n";
        assert_eq!(count(vmstat, "nr_free_pages"), Some(12));
        assert_eq!(count(vmstat, "nr_free"), None);
    }

    #[test]
    fn missing_and_extra_bytes_are_detected() {
        let good = Reads {
            warm_share: Some(1.0),
            brought: 1 << 30,
            counted: Some((1 << 30) + 5000),
            from_device: Some(0),
            flights: Err("unsupported"),
        };
        assert_eq!(bytes(Some(&good)).0, Pass);
        assert_eq!(warm(Some(&good)).0, Pass);
        assert_eq!(bytes(Some(&Reads { counted: Some(1 << 29), ..good })).0, Fail);
        assert_eq!(bytes(Some(&Reads { from_device: Some(4096), ..good })).0, Warn);
        assert_eq!(warm(Some(&Reads { warm_share: Some(0.5), ..good })).0, Fail);
        assert_eq!(bytes(None).0, Skipped);
        assert_eq!(in_flight(Some(&good)), (Skipped, "unsupported".to_owned()));
        let counted = |device: [f64; 2]| {
            let flight =
                |i: usize, asked| Flight { asked, by_calls: asked as f64, by_device: device[i] };
            Reads { flights: Ok([flight(0, 1), flight(1, 4)]), ..good }
        };
        assert_eq!(in_flight(Some(&counted([0.9, 3.6]))).0, Pass);
        // The device served four requests one at a time while the others waited elsewhere.
        assert_eq!(in_flight(Some(&counted([0.9, 1.2]))).0, Warn);
        assert_eq!(in_flight(Some(&counted([0.0, 0.0]))).0, Fail);
    }

    #[test]
    fn clock_drift_is_detected() {
        let bench =
            |cycles_ns: &[f64]| Released { moved: 0, blocks: 10, cycles_ns: cycles_ns.to_vec() };
        assert_eq!(clock(&bench(&[0.25, 0.252])).0, Pass);
        assert_eq!(clock(&bench(&[0.25, 0.27])).0, Warn);
        assert_eq!(clock(&bench(&[0.25, 0.5])).0, Fail);
        assert_eq!(clock(&bench(&[])).0, Skipped);
    }
}
