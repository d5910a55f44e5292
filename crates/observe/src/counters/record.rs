//! What a sampler brought home, and its curves.

use super::field::Field;
use super::rates::{devices, paging};
use super::read::Sample;
use ioloom_trace::{Mark, Series};

/// Points of a curve at most; counters lose nothing when samples are left out.
const POINTS_MAX: usize = 2000;
/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// All samples of one observation, by time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// Samples.
    pub samples: Vec<Sample>,
    /// Names of the marks, indexed by [`Sample::mark`].
    pub marks: Vec<String>,
    /// Names of the devices, indexed as in [`Sample::disk`].
    pub devices: Vec<String>,
    /// Period asked for, nanoseconds.
    pub period_ns: u64,
    /// Periods that were missed because a sample came more than a period late.
    pub late: u64,
    /// Samples that were dropped to make room.
    pub thinned: u64,
    /// Processor time of the sampling thread, nanoseconds.
    pub cpu_ns: u64,
    /// From the start of that thread to its end, nanoseconds.
    pub elapsed_ns: u64,
    /// Sources that are not there.
    pub missing: Vec<String>,
}

impl Record {
    /// Share of one processor that the sampling took.
    pub fn cost(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.cpu_ns as f64 / self.elapsed_ns as f64 }
    }

    /// The first and the last sample.
    pub fn ends(&self) -> Option<(&Sample, &Sample)> {
        self.samples.first().zip(self.samples.last()).filter(|(a, b)| a.at_ns < b.at_ns)
    }

    /// The first and the last sample that have /proc/meminfo.
    pub fn memory_ends(&self) -> Option<(&Sample, &Sample)> {
        let has = |sample: &&Sample| sample.get(Field::MemTotal).is_some();
        self.samples.iter().find(has).zip(self.samples.iter().rev().find(has))
    }

    /// The sample of the mark with this name, the first one.
    pub fn at_mark(&self, name: &str) -> Option<&Sample> {
        let index = self.marks.iter().position(|mark| mark == name)?;
        self.samples.iter().find(|sample| sample.mark == Some(index as u16))
    }

    /// The marks, counted from `start_ns`.
    pub fn marks(&self, start_ns: u64) -> Vec<Mark> {
        let mark = |sample: &Sample| {
            let name = self.marks.get(usize::from(sample.mark?))?.clone();
            Some(Mark { at_ns: sample.at_ns.saturating_sub(start_ns), name })
        };
        self.samples.iter().filter_map(mark).collect()
    }

    /// The curves, counted from `start_ns`: rates hold until the next point. A curve that is zero
    /// all the time is left out, but for dirty pages.
    pub fn series(&self, start_ns: u64) -> Vec<Series> {
        let all_samples: Vec<&Sample> = self.samples.iter().collect();
        // Pressure is not read each time.
        let pressed = all_samples.iter().copied().filter(|s| s.get(Field::CpuSome).is_some());
        let pressed = thinned(&pressed.collect::<Vec<_>>());
        let thin = thinned(&all_samples);
        let page = ioloom_sys::proc::page_bytes() as f64;
        let mut all = Vec::new();
        let level = |field: Field| {
            move |a: &Sample, _: &Sample| a.get(field).map(|pages| pages as f64 * page)
        };
        let mut add_from = |from: &[&Sample], name: &str, unit: &str, of: Rate<'_>| {
            let since = |at_ns: u64| at_ns.saturating_sub(start_ns);
            let value = |pair: &[&Sample]| Some((since(pair[0].at_ns), of(pair[0], pair[1])?));
            let points: Vec<(u64, f64)> = from.windows(2).filter_map(value).collect();
            let always = name == "dirty";
            if !points.is_empty() && (always || points.iter().any(|(_, value)| *value != 0.0)) {
                all.push(Series { name: name.to_owned(), unit: unit.to_owned(), points });
            }
        };
        let mut add = |name: &str, unit: &str, of: Rate<'_>| add_from(&thin, name, unit, of);
        add("page-in", "MiB/s", &|a, b| paging(a, b).map(|r| r.pgpgin_kib_per_s / 1024.0));
        add("page-out", "MiB/s", &|a, b| paging(a, b).map(|r| r.pgpgout_kib_per_s / 1024.0));
        add("dirty", "bytes", &level(Field::Dirty));
        if self.comes_near_a_limit() {
            add("dirty limit", "bytes", &level(Field::DirtyLimit));
            add("background limit", "bytes", &level(Field::BackgroundLimit));
        }
        add("writeback", "bytes", &level(Field::Writeback));
        add("page cache", "bytes", &level(Field::FilePages));
        add("pages freed", "pages/s", &|a, b| paging(a, b).map(|r| r.pgfree_per_s));
        add("refaults", "pages/s", &|a, b| paging(a, b).map(|r| r.refault_per_s));
        for (some, name) in [
            (Field::IoSome, "waiting for io"),
            (Field::MemorySome, "waiting for memory"),
            (Field::CpuSome, "waiting for cpu"),
        ] {
            add_from(&pressed, name, "%", &|a, b| pressure_percent(a, b, some));
        }
        let mut add = |name: &str, unit: &str, of: Rate<'_>| add_from(&thin, name, unit, of);
        for (i, device) in self.devices.iter().enumerate() {
            add(&format!("{device} in flight"), "requests", &|a, b| {
                devices(a, b, i).map(|r| r.aqu_sz)
            });
            add(&format!("{device} busy"), "%", &|a, b| devices(a, b, i).map(|r| r.util_percent));
        }
        let mib = |field| move |a: &Sample, b: &Sample| Some(per_second(a, b, field)? / MIB);
        add("program read", "MiB/s", &mib(Field::TaskRead));
        add("program wrote", "MiB/s", &mib(Field::TaskWritten));
        all
    }

    /// Whether dirty pages reached half of what starts writing in the background: only then do the
    /// limits say something.
    fn comes_near_a_limit(&self) -> bool {
        let near = |sample: &Sample| {
            let (dirty, limit) = (sample.get(Field::Dirty)?, sample.get(Field::BackgroundLimit)?);
            Some(dirty >= limit / 2)
        };
        self.samples.iter().any(|sample| near(sample) == Some(true))
    }
}

/// A value of the time between two samples.
type Rate<'a> = &'a dyn Fn(&Sample, &Sample) -> Option<f64>;

/// So few of them that a curve can be drawn, those of marks among them.
fn thinned<'a>(samples: &[&'a Sample]) -> Vec<&'a Sample> {
    let step = samples.len().div_ceil(POINTS_MAX).max(1);
    let kept = samples.iter().enumerate().filter(|(i, s)| i % step == 0 || s.mark.is_some());
    kept.map(|(_, sample)| *sample).collect()
}

/// The share of the time between two samples in which some task waited, percent.
pub(super) fn pressure_percent(a: &Sample, b: &Sample, some: Field) -> Option<f64> {
    // Microseconds per second are 10 000 to the percent; the totals are updated apart from our clock.
    per_second(a, b, some).map(|us_per_s| (us_per_s / 1e4).min(100.0))
}

fn per_second(a: &Sample, b: &Sample, field: Field) -> Option<f64> {
    let seconds = (b.at_ns.checked_sub(a.at_ns)? as f64 / 1e9).max(1e-9);
    Some(b.get(field)?.saturating_sub(a.get(field)?) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let at = |i: u64| {
            let fields = [(Field::PageIn, i * 10), (Field::Dirty, i), (Field::PageOut, 7)];
            Sample::for_test(1_000_000_000 + i * 10_000_000, &fields, None)
        };
        let mut samples: Vec<Sample> = (0..5000).map(at).collect();
        samples[4321].mark = Some(0);
        Record { samples, marks: vec!["read".to_owned()], ..Record::default() }
    }

    #[test]
    fn curves_are_thinned_and_keep_their_sum() {
        let series = record().series(1_000_000_000);
        let names: Vec<_> = series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["page-in", "dirty"], "what stays zero is left out");
        let page_in = &series[0].points;
        assert!(page_in.len() <= POINTS_MAX);
        // 10 KiB in each hundredth of a second.
        assert!(page_in.iter().all(|(_, rate)| (rate * MIB - 1_024_000.0).abs() < 1.0));
        assert_eq!(page_in[0].0, 0);
    }

    #[test]
    fn marks_have_their_sample() {
        let record = record();
        assert_eq!(record.at_mark("read").unwrap().get(Field::Dirty), Some(4321));
        let marks = record.marks(1_000_000_000);
        assert_eq!((marks[0].at_ns, marks[0].name.as_str()), (43_210_000_000, "read"));
        assert!(record.at_mark("write").is_none());
    }
}
