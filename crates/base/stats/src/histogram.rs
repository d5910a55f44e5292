//! A small log-linear table of durations.
//!
//! Each octave of nanoseconds (a power of two and the next) is cut into 32 equal parts, so a
//! bucket is at most 1/32 of its value wide and its middle at most 1.6 % from anything in it; below
//! 64 ns every whole nanosecond has its own bucket. 43 octaves reach 2⁴⁸ ns, about three days;
//! longer ones fall into the last bucket, while `max` stays exact. The idea is that of the HDR
//! histogram (Tene); the fixed size makes recording a shift, a mask and an increment.
//!
//! Cost: 5632 bytes of counts, one allocation at creation, none afterwards; `record` has no
//! branch that depends on earlier values. Counts of a bucket stop at 2³² - 1; the total goes on,
//! and [`Histogram::saturated`] says so.

/// Parts of an octave.
const PARTS: u64 = 32;
/// `log₂` of [`PARTS`].
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Values from here on fall into the last bucket, nanoseconds.
const BEYOND_NS: u64 = 1 << 48;
/// Number of buckets: the linear start, then 32 for each octave from 2⁵ to 2⁴⁸.
const BUCKETS: usize = (PARTS as usize) * (48 - PART_BITS as usize + 1);

/// Counts of durations in nanoseconds, with exact smallest, largest, sum and count.
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
    /// Bound of the relative error of [`Histogram::quantile_ns`] below 2⁴⁸ ns.
    pub const ERROR_MAX: f64 = 1.0 / 64.0;

    /// Memory of the counts.
    pub const BYTES: usize = size_of::<[u32; BUCKETS]>();

    /// An empty table. The only allocation.
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

    /// Adds everything that another table counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        (self.count, self.sum_ns, self.min_ns, self.max_ns) = (0, 0, u64::MAX, 0);
    }

    /// How many durations were recorded, exact.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their sum in nanoseconds, exact up to 2⁶⁴.
    pub const fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The shortest in nanoseconds, exact; zero without any.
    pub const fn min_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min_ns }
    }

    /// The longest in nanoseconds, exact; zero without any.
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Mean in nanoseconds, exact; zero without any.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 }
    }

    /// Whether a bucket has reached its limit, so that quantiles are no longer exact in rank.
    pub fn saturated(&self) -> bool {
        self.buckets.contains(&u32::MAX)
    }

    /// Quantile `q` in nanoseconds: the value of rank `ceil(q count)`, at least the first, to
    /// within [`Self::ERROR_MAX`]. Exact for `q` of 0 and 1, and below 64 ns. Zero without any
    /// duration; a `q` outside 0 to 1 counts as the nearer end, NaN as 0.
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

    /// The buckets that are not empty, ascending: first and last nanosecond, and count. What a
    /// chart draws.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, count)| {
            let (low, high) = bounds_of(index);
            (low, high, *count)
        })
    }
}

/// The bucket of a duration. A value of 64 or more is shifted until 32 to 63 is left, and each
/// shift moves the index by 32; a smaller value is its own bucket.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min(BEYOND_NS - 1);
    let shift = (ns | (2 * PARTS - 1)).ilog2() - PART_BITS;
    (u64::from(shift) * PARTS + (ns >> shift)) as usize
}

/// First and last nanosecond of a bucket.
fn bounds_of(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < 2 * PARTS {
        return (index, index);
    }
    let shift = index / PARTS - 1;
    let low = (index - shift * PARTS) << shift;
    (low, low + (1 << shift) - 1)
}
