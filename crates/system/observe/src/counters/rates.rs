//! Computes the columns of sar from two samples.

use super::field::Field;
use super::read::Sample;
use ioloom_sys::proc::DiskCounters;
use ioloom_sys::proc::parse::grown_ms;
use serde::Serialize;

/// Paging per second: the columns of `sar -B` and related rates. A rate is `None` if its counter
/// was not read in both samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PagingRates {
    /// KiB read from devices.
    pub pgpgin_kib_per_s: f64,
    /// KiB written to devices.
    pub pgpgout_kib_per_s: Option<f64>,
    /// Page faults.
    pub fault_per_s: Option<f64>,
    /// Page faults that waited for a device.
    pub majflt_per_s: Option<f64>,
    /// Pages freed.
    pub pgfree_per_s: Option<f64>,
    /// Pages scanned by kswapd.
    pub pgscank_per_s: Option<f64>,
    /// Pages scanned by tasks that were allocating memory.
    pub pgscand_per_s: Option<f64>,
    /// Pages reclaimed.
    pub pgsteal_per_s: Option<f64>,
    /// Share of scanned pages that were reclaimed, in percent; 0 if none were scanned.
    pub vmeff_percent: Option<f64>,
    /// Pages dirtied.
    pub dirtied_per_s: Option<f64>,
    /// Pages written.
    pub written_per_s: Option<f64>,
    /// Pages read again soon after eviction.
    pub refault_per_s: Option<f64>,
}

/// Current memory in KiB: the columns of `sar -r`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct MemoryLevels {
    /// Free memory.
    pub kbmemfree: u64,
    /// Memory available without swapping, as estimated by the kernel.
    pub kbavail: u64,
    /// Total minus available: the definition of sysstat 12.7.8 and later.
    pub kbmemused: u64,
    /// The same in percent.
    pub memused_percent: f64,
    /// Total minus free, buffers, cached and slab: the definition of sysstat before 12.7.8; `None`
    /// if the kernel does not report slab.
    pub kbmemused_before_12_7_8: Option<u64>,
    /// Cache of block devices.
    pub kbbuffers: u64,
    /// Page cache, including shared memory.
    pub kbcached: u64,
    /// Committed memory.
    pub kbcommit: u64,
    /// The same in percent of memory and swap.
    pub commit_percent: f64,
    /// Recently used memory.
    pub kbactive: u64,
    /// Memory not recently used.
    pub kbinact: u64,
    /// Dirty memory.
    pub kbdirty: u64,
}

/// Rates of a device per second: the columns of `sar -d -p`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct DeviceRates {
    /// Completed requests, after merging.
    pub tps: f64,
    /// KiB read.
    pub rkb_per_s: f64,
    /// KiB written.
    pub wkb_per_s: f64,
    /// KiB discarded.
    pub dkb_per_s: f64,
    /// Mean request size in KiB.
    pub areq_sz_kib: f64,
    /// Mean number of requests in flight or queued.
    pub aqu_sz: f64,
    /// Mean request time including its wait, in ms.
    pub await_ms: f64,
    /// Share of time with at least one request in flight, in percent.
    pub util_percent: f64,
    /// Flushes of the device cache.
    pub flushes_per_s: f64,
}

/// Returns the seconds between two samples; `None` if they are out of order.
fn seconds(a: &Sample, b: &Sample) -> Option<f64> {
    (b.at_ns > a.at_ns).then(|| (b.at_ns - a.at_ns) as f64 / 1e9)
}

/// Returns the paging rates between two samples; `None` without /proc/vmstat.
pub fn paging(a: &Sample, b: &Sample) -> Option<PagingRates> {
    let seconds = seconds(a, b)?;
    let rate = |field: Field| {
        let grown = b.get(field)?.saturating_sub(a.get(field)?);
        Some(grown as f64 / seconds)
    };
    let both = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
    let scanned = both(rate(Field::ScannedBackground), rate(Field::ScannedDirect));
    let stolen = both(rate(Field::StolenAnon), rate(Field::StolenFile));
    let part = |(stolen, of): (f64, f64)| if of > 0.0 { stolen / of * 100.0 } else { 0.0 };
    Some(PagingRates {
        pgpgin_kib_per_s: rate(Field::PageIn)?,
        pgpgout_kib_per_s: rate(Field::PageOut),
        fault_per_s: rate(Field::Faults),
        majflt_per_s: rate(Field::MajorFaults),
        pgfree_per_s: rate(Field::Freed),
        pgscank_per_s: rate(Field::ScannedBackground),
        pgscand_per_s: rate(Field::ScannedDirect),
        pgsteal_per_s: stolen,
        vmeff_percent: stolen.zip(scanned).map(part),
        dirtied_per_s: rate(Field::Dirtied),
        written_per_s: rate(Field::Written),
        refault_per_s: rate(Field::RefaultedFile),
    })
}

/// Returns memory usage from a sample that includes /proc/meminfo.
pub fn memory(sample: &Sample) -> Option<MemoryLevels> {
    let kib = |field: Field| sample.get(field);
    let total = kib(Field::MemTotal)?;
    let part = |kib: u64, of: u64| if of == 0 { 0.0 } else { kib as f64 / of as f64 * 100.0 };
    let kbavail = kib(Field::MemAvailable)?;
    let kbmemused = total.saturating_sub(kbavail);
    let others = [Field::MemFree, Field::Buffers, Field::Cached, Field::Slab];
    let others = others.into_iter().map(kib).sum::<Option<u64>>();
    let kbcommit = kib(Field::Committed)?;
    Some(MemoryLevels {
        kbmemfree: kib(Field::MemFree)?,
        kbavail,
        kbmemused,
        memused_percent: part(kbmemused, total),
        kbmemused_before_12_7_8: others.map(|others| total.saturating_sub(others)),
        kbbuffers: kib(Field::Buffers)?,
        kbcached: kib(Field::Cached)?,
        kbcommit,
        commit_percent: part(kbcommit, total + kib(Field::SwapTotal).unwrap_or(0)),
        kbactive: kib(Field::Active)?,
        kbinact: kib(Field::Inactive)?,
        kbdirty: kib(Field::DirtyKib)?,
    })
}

/// Returns the rates of device `index` between two samples.
pub fn devices(a: &Sample, b: &Sample, index: usize) -> Option<DeviceRates> {
    let seconds = seconds(a, b)?;
    let (a, b): (&DiskCounters, &DiskCounters) = (a.disk(index)?, b.disk(index)?);
    let grown = |a: u64, b: u64| b.saturating_sub(a) as f64;
    let each = |a: &[u64; 3], b: &[u64; 3]| [0, 1, 2].map(|i| grown(a[i], b[i]));
    let requests: f64 = each(&a.requests, &b.requests).iter().sum();
    let kib = each(&a.sectors, &b.sectors).map(|sectors| sectors / 2.0);
    let ms = |a: u64, b: u64| grown_ms(a, b) as f64;
    let waited_ms: f64 = [0, 1, 2].map(|i| ms(a.request_ms[i], b.request_ms[i])).iter().sum();
    let per_request = |sum: f64| if requests > 0.0 { sum / requests } else { 0.0 };
    Some(DeviceRates {
        tps: requests / seconds,
        rkb_per_s: kib[0] / seconds,
        wkb_per_s: kib[1] / seconds,
        dkb_per_s: kib[2] / seconds,
        areq_sz_kib: per_request(kib.iter().sum()),
        aqu_sz: ms(a.weighted_ms, b.weighted_ms) / 1000.0 / seconds,
        await_ms: per_request(waited_ms),
        // The kernel counts in ticks, so between two close readings the sum can exceed the elapsed
        // time.
        util_percent: (ms(a.busy_ms, b.busy_ms) / 10.0 / seconds).min(100.0),
        flushes_per_s: grown(a.flushes, b.flushes) / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_second_is_reproduced() {
        // 20:38:49 in the published `sar -d -p`: 744 requests, 180920 KiB, 205.91 queued on
        // average, 276.76 ms each, always busy.
        let zero = DiskCounters::default();
        let later = DiskCounters {
            requests: [0, 744, 0],
            sectors: [0, 180_920 * 2, 0],
            request_ms: [0, 205_909, 0],
            busy_ms: 1000,
            weighted_ms: 205_910,
            ..zero
        };
        let a = Sample::for_test(5_000_000_000, &[], Some(zero));
        let b = Sample::for_test(6_000_000_000, &[], Some(later));
        let seen = devices(&a, &b, 0).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 0.01;
        assert!(close(seen.tps, 744.0) && close(seen.wkb_per_s, 180_920.0), "{seen:?}");
        assert!(close(seen.areq_sz_kib, 243.17) && close(seen.aqu_sz, 205.91), "{seen:?}");
        assert!(close(seen.await_ms, 276.76) && close(seen.util_percent, 100.0), "{seen:?}");
        // Little's law: the queue length is the rate times the wait.
        assert!((seen.tps * seen.await_ms / 1000.0 - seen.aqu_sz).abs() < 0.1);
        assert_eq!(devices(&b, &a, 0), None, "out of order");
        // The times of the kernel have 32 bits.
        let before = u64::from(u32::MAX) - 499;
        let wraps = |ms: u64| u64::from((before + ms) as u32);
        let first = DiskCounters {
            request_ms: [0, before, 0],
            busy_ms: before,
            weighted_ms: before,
            ..zero
        };
        let second = DiskCounters {
            request_ms: [0, wraps(205_909), 0],
            busy_ms: wraps(1000),
            weighted_ms: wraps(205_910),
            ..later
        };
        let first = Sample::for_test(5_000_000_000, &[], Some(first));
        let second = Sample::for_test(6_000_000_000, &[], Some(second));
        assert_eq!(devices(&first, &second, 0), Some(seen));
        assert_eq!(devices(&a, &b, 1), None, "no such device");
    }

    #[test]
    fn paging_is_the_difference_per_second() {
        let at = |at_ns, pgpgin, scanned, stolen| {
            let fields = [
                (Field::PageIn, pgpgin),
                (Field::ScannedBackground, scanned),
                (Field::ScannedDirect, 0),
                (Field::StolenAnon, 0),
                (Field::StolenFile, stolen),
            ];
            Sample::for_test(at_ns, &fields, None)
        };
        let seen = paging(&at(0, 100, 0, 0), &at(500_000_000, 600, 200, 150)).unwrap();
        assert_eq!((seen.pgpgin_kib_per_s, seen.pgscank_per_s), (1000.0, Some(400.0)));
        assert_eq!(seen.vmeff_percent, Some(75.0));
        assert_eq!(seen.fault_per_s, None, "a counter that was not read is not zero");
        assert_eq!(paging(&Sample::for_test(0, &[], None), &at(1, 2, 3, 4)), None);
    }
}
