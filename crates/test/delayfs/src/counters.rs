//! How many requests the file system saw, and how many at the same time.

use crate::kind::Kind;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard};

/// Totals and peaks since the mount, or since the last reset.
///
/// A request is in flight from its arrival in the server until its answer is about to be sent, so a
/// peak is never too high.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lookups of a name in a directory.
    pub lookups: u64,
    /// Queries of attributes.
    pub getattrs: u64,
    /// Opens of files.
    pub opens: u64,
    /// Reads of files. One read of the kernel may serve several of a program, or the reverse.
    pub reads: u64,
    /// Bytes returned by reads.
    pub bytes: u64,
    /// Most opens in flight at the same time.
    pub opens_peak: u64,
    /// Most reads in flight at the same time.
    pub reads_peak: u64,
    /// Most opens and reads together in flight at the same time.
    pub both_peak: u64,
    /// Most requests of all kinds with a delay that were served at the same time; requests that
    /// wait for the limit of the server are not included.
    pub served_peak: u64,
}

impl Counters {
    fn fields(&mut self) -> [(&'static str, &mut u64); 9] {
        [
            ("lookups", &mut self.lookups),
            ("getattrs", &mut self.getattrs),
            ("opens", &mut self.opens),
            ("reads", &mut self.reads),
            ("bytes", &mut self.bytes),
            ("opens_peak", &mut self.opens_peak),
            ("reads_peak", &mut self.reads_peak),
            ("both_peak", &mut self.both_peak),
            ("served_peak", &mut self.served_peak),
        ]
    }
}

impl fmt::Display for Counters {
    /// Formats as `NAME=VALUE`, separated by spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        let words = copy.fields().map(|(name, value)| format!("{name}={value}"));
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Counters {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut counters = Self::default();
        for word in text.split_whitespace() {
            let unknown = || format!("invalid counter '{word}'");
            let (name, value) = word.split_once('=').ok_or_else(unknown)?;
            let mut fields = counters.fields().into_iter();
            let field = fields.find(|(known, _)| *known == name).ok_or_else(unknown)?.1;
            *field = value.parse().map_err(|_| unknown())?;
        }
        Ok(counters)
    }
}

/// The counters of a running server.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    live: Mutex<Live>,
}

#[derive(Debug, Default)]
struct Live {
    totals: Counters,
    opens: u64,
    reads: u64,
}

impl Tally {
    /// Counts a request that arrives. Returns how many of its kind are now in flight.
    pub(crate) fn arrived(&self, kind: Kind) -> u64 {
        let mut live = self.lock();
        match kind {
            Kind::Lookup => live.totals.lookups += 1,
            Kind::Getattr => live.totals.getattrs += 1,
            Kind::Open => {
                live.opens += 1;
                live.totals.opens += 1;
            }
            Kind::Read => {
                live.reads += 1;
                live.totals.reads += 1;
            }
        }
        live.raise_peaks();
        match kind {
            Kind::Open => live.opens,
            Kind::Read => live.reads,
            Kind::Lookup | Kind::Getattr => 0,
        }
    }

    /// Counts a request that is about to be answered with so many bytes.
    pub(crate) fn answered(&self, kind: Kind, bytes: usize) {
        let mut live = self.lock();
        live.totals.bytes += bytes as u64;
        match kind {
            Kind::Open => live.opens -= 1,
            Kind::Read => live.reads -= 1,
            Kind::Lookup | Kind::Getattr => (),
        }
    }

    /// Counts requests that are being served.
    pub(crate) fn serving(&self, number: usize) {
        let mut live = self.lock();
        live.totals.served_peak = live.totals.served_peak.max(number as u64);
    }

    pub(crate) fn counters(&self) -> Counters {
        self.lock().totals
    }

    /// Sets the totals to zero and the peaks to what is in flight.
    pub(crate) fn reset(&self) {
        let mut live = self.lock();
        live.totals = Counters::default();
        live.raise_peaks();
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().expect("no holder panics")
    }
}

impl Live {
    fn raise_peaks(&mut self) {
        let Self { totals, opens, reads } = self;
        totals.opens_peak = totals.opens_peak.max(*opens);
        totals.reads_peak = totals.reads_peak.max(*reads);
        totals.both_peak = totals.both_peak.max(*opens + *reads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_count_what_overlaps() {
        let tally = Tally::default();
        tally.arrived(Kind::Open);
        tally.arrived(Kind::Open);
        tally.answered(Kind::Open, 0);
        tally.arrived(Kind::Read);
        tally.answered(Kind::Read, 10);
        tally.arrived(Kind::Read);
        tally.arrived(Kind::Lookup);
        let seen = tally.counters();
        assert_eq!((seen.opens_peak, seen.reads_peak, seen.both_peak), (2, 1, 2));
        assert_eq!((seen.opens, seen.reads, seen.lookups, seen.bytes), (2, 2, 1, 10));
        tally.reset();
        let seen = tally.counters();
        assert_eq!((seen.opens, seen.opens_peak, seen.both_peak), (0, 1, 2));
    }

    #[test]
    fn text_round_trips() {
        let mut counters = Counters::default();
        for (i, (_, value)) in counters.fields().into_iter().enumerate() {
            *value = i as u64 + 7;
        }
        assert_eq!(counters.to_string().parse(), Ok(counters));
        assert!("opens".parse::<Counters>().is_err());
        assert!("x=1".parse::<Counters>().is_err());
    }
}
