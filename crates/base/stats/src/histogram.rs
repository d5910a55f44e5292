//! A compact log-linear histogram of durations.
//!
//! Each octave of nanoseconds (from one power of two to the next) is divided into 32 equal parts. A
//! bucket is at most 1/32 as wide as its values, and its middle is within 1.6 % of each of them.
//! Below 64 ns every nanosecond has its own bucket. 43 octaves reach 2⁴⁸ ns, about three days;
//! longer durations are counted in the last bucket, while `max` stays exact. The idea comes from
//! the HDR histogram (Tene). Because of the fixed size, recording is a shift, a mask and an
//! increment.
//!
//! Cost: 5632 bytes of counts, allocated once at creation. `record` has no branch that depends on
//! earlier values. Bucket counts saturate at 2³² - 1; the total does not.

/// Buckets per octave.
const PARTS: u64 = 32;
/// `log₂` of [`PARTS`].
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Durations from this value on are counted in the last bucket, in nanoseconds.
const BEYOND_NS: u64 = 1 << 48;
/// Number of buckets: the linear start, then 32 per octave from 2⁵ to 2⁴⁸.
const BUCKETS: usize = (PARTS as usize) * (48 - PART_BITS as usize + 1);

/// Counts of durations in nanoseconds, with exact minimum, maximum, sum and count.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u32; BUCKETS]>,
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("sum_ns", &self.sum_ns)
            .field("min_ns", &self.min_ns)
            .field("max_ns", &self.max_ns)
            .finish_non_exhaustive()
    }
}

impl Histogram {
    /// Creates an empty histogram. This is the only allocation.
    pub fn new() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let bucket = &mut self.buckets[bucket_of(ns)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the number of recorded durations.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum in nanoseconds, exact up to 2⁶⁴.
    pub const fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the exact minimum in nanoseconds; zero if there are no durations.
    pub const fn min_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min_ns }
    }

    /// Returns the exact maximum in nanoseconds; zero if there are no durations.
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Returns the exact mean in nanoseconds; zero if there are no durations.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 }
    }

    /// Returns quantile `q` in nanoseconds: the value of rank `ceil(q count)`, at least the first,
    /// with a relative error of at most 1/64. Exact for `q` of 0 and 1, and below 64 ns. Zero if
    /// there are no durations. A `q` outside 0 to 1 is clamped; NaN counts as 0.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let counted: u64 = self.buckets.iter().map(|c| u64::from(*c)).sum();
        if counted == 0 || q.is_nan() || q <= 0.0 {
            return self.min_ns();
        }
        if q >= 1.0 {
            return self.max_ns;
        }
        let rank = ((q * counted as f64).ceil() as u64).clamp(1, counted);
        let mut below = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            below += u64::from(*count);
            if below >= rank {
                let (low, high) = bounds_of(index);
                return (low + (high - low) / 2).clamp(self.min_ns, self.max_ns);
            }
        }
        self.max_ns
    }
}

/// Returns the bucket of a duration. A value of 64 or more is shifted right until it is between 32
/// and 63, and each shift adds 32 to the index. A smaller value is its own bucket.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min(BEYOND_NS - 1);
    let shift = (ns | (2 * PARTS - 1)).ilog2() - PART_BITS;
    (u64::from(shift) * PARTS + (ns >> shift)) as usize
}

/// Returns the first and last nanosecond in a bucket.
fn bounds_of(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < 2 * PARTS {
        return (index, index);
    }
    let shift = index / PARTS - 1;
    let low = (index - shift * PARTS) << shift;
    (low, low + (1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_the_range_without_gaps() {
        let (mut index, mut next) = (0, 0);
        while next < BEYOND_NS {
            let (low, high) = bounds_of(index);
            assert_eq!(low, next, "bucket {index}");
            assert_eq!((bucket_of(low), bucket_of(high)), (index, index));
            (index, next) = (index + 1, high + 1);
        }
        assert_eq!(index, BUCKETS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(size_of::<[u32; BUCKETS]>(), 5632);
    }
}
