//! Result of a sampler, and its curves.

use super::field::Field;
use super::rates::devices;
use super::read::Sample;
use ioloom_model::Evidence;
use ioloom_model::evidence::SourceReport;
use ioloom_trace::{Mark, Series};

/// Maximum number of points per curve. Cumulative counters lose nothing when samples are omitted.
const POINTS_MAX: usize = 2000;
/// Bytes per MiB.
const MIB: f64 = 1_048_576.0;

/// All samples of one observation, in time order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// Samples.
    pub samples: Vec<Sample>,
    /// Mark names, indexed by [`Sample::mark`].
    pub marks: Vec<String>,
    /// Device names, indexed as in [`Sample::disk`].
    pub devices: Vec<String>,
    /// Requested period in nanoseconds.
    pub period_ns: u64,
    /// Periods without a sample because one was more than a period late.
    pub late: u64,
    /// Samples dropped to make room.
    pub thinned: u64,
    /// Processor time of the sampling thread in nanoseconds.
    pub cpu_ns: u64,
    /// Lifetime of the sampling thread in nanoseconds.
    pub elapsed_ns: u64,
    /// Missing sources.
    pub missing: Vec<String>,
}

impl Record {
    /// Returns the share of one processor used for sampling.
    pub fn cost(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.cpu_ns as f64 / self.elapsed_ns as f64 }
    }

    /// Adds the counters to the sources of a trace. Late and dropped samples are not lost: the curves are coarser, as
    /// a note says, but totals are exact.
    pub fn add_to(&self, evidence: &mut Evidence) {
        let samples = self.samples.len() as u64;
        evidence.sources.push(SourceReport {
            name: "proc.counters".to_owned(),
            records: samples,
            lost: 0,
            ns_per_event: (samples > 0).then(|| self.cpu_ns as f64 / samples as f64),
            privilege: "user".to_owned(),
        });
        let fewer = self.late + self.thinned;
        if fewer > 0 {
            evidence.notes.push(format!(
                "counters: {fewer} samples were late or dropped, so curves are coarser"
            ));
        }
    }

    /// Returns the first and the last sample.
    pub fn ends(&self) -> Option<(&Sample, &Sample)> {
        self.samples.first().zip(self.samples.last()).filter(|(a, b)| a.at_ns < b.at_ns)
    }

    /// Returns the first and the last sample that include /proc/meminfo.
    pub fn memory_ends(&self) -> Option<(&Sample, &Sample)> {
        let has = |sample: &&Sample| sample.get(Field::MemTotal).is_some();
        self.samples.iter().find(has).zip(self.samples.iter().rev().find(has))
    }

    /// Returns the sample of the first mark with this name.
    pub fn at_mark(&self, name: &str) -> Option<&Sample> {
        let index = self.marks.iter().position(|mark| mark == name)?;
        self.samples.iter().find(|sample| sample.mark == Some(index as u16))
    }

    /// Returns the marks, relative to `start_ns`.
    pub fn marks(&self, start_ns: u64) -> Vec<Mark> {
        let mark = |sample: &Sample| {
            let name = self.marks.get(usize::from(sample.mark?))?.clone();
            Some(Mark { at_ns: sample.at_ns.saturating_sub(start_ns), name })
        };
        self.samples.iter().filter_map(mark).collect()
    }

    /// Returns the curves, relative to `start_ns`. A rate is valid until the next point, and each
    /// curve has points only where its counter was read. Curves that are always zero are omitted,
    /// except dirty pages.
    pub fn series(&self, start_ns: u64) -> Vec<Series> {
        let mut curves = Curves { samples: &self.samples, start_ns, all: Vec::new() };
        let page = ioloom_sys::proc::page_bytes() as f64;
        curves.rate("page-in", "MiB/s", Field::PageIn, 1.0 / 1024.0);
        curves.rate("page-out", "MiB/s", Field::PageOut, 1.0 / 1024.0);
        curves.level("dirty", "bytes", Field::Dirty, page);
        if self.comes_near_a_limit() {
            curves.level("dirty limit", "bytes", Field::DirtyLimit, page);
            curves.level("background limit", "bytes", Field::BackgroundLimit, page);
        }
        curves.level("writeback", "bytes", Field::Writeback, page);
        curves.level("page cache", "bytes", Field::FilePages, page);
        curves.rate("pages freed", "pages/s", Field::Freed, 1.0);
        curves.rate("refaults", "pages/s", Field::RefaultedFile, 1.0);
        for (some, name) in [
            (Field::IoSome, "waiting for io"),
            (Field::MemorySome, "waiting for memory"),
            (Field::CpuSome, "waiting for cpu"),
        ] {
            curves.add(name, "%", &|s| s.get(some).is_some(), &|a, b| pressure_percent(a, b, some));
        }
        for (i, device) in self.devices.iter().enumerate() {
            let read = |sample: &Sample| sample.disk(i).is_some();
            curves.add(&format!("{device} in flight"), "requests", &read, &|a, b| {
                devices(a, b, i).map(|r| r.aqu_sz)
            });
            curves.add(&format!("{device} busy"), "%", &read, &|a, b| {
                devices(a, b, i).map(|r| r.util_percent)
            });
        }
        curves.rate("program read", "MiB/s", Field::TaskRead, 1.0 / MIB);
        curves.rate("program wrote", "MiB/s", Field::TaskWritten, 1.0 / MIB);
        curves.all
    }

    /// Reports whether dirty pages reached half of the background threshold; below that, the limits
    /// are not worth drawing.
    fn comes_near_a_limit(&self) -> bool {
        let near = |sample: &Sample| {
            let (dirty, limit) = (sample.get(Field::Dirty)?, sample.get(Field::BackgroundLimit)?);
            Some(dirty >= limit / 2)
        };
        self.samples.iter().any(|sample| near(sample) == Some(true))
    }
}

/// A value for the time between two samples.
type Rate<'a> = &'a dyn Fn(&Sample, &Sample) -> Option<f64>;

/// Builds curves from samples.
struct Curves<'a> {
    samples: &'a [Sample],
    start_ns: u64,
    all: Vec<Series>,
}

impl Curves<'_> {
    /// Adds a curve through the samples accepted by `read`.
    fn add(&mut self, name: &str, unit: &str, read: &dyn Fn(&Sample) -> bool, of: Rate<'_>) {
        let known: Vec<&Sample> = self.samples.iter().filter(|sample| read(sample)).collect();
        let value = |pair: &[&Sample]| {
            Some((pair[0].at_ns.saturating_sub(self.start_ns), of(pair[0], pair[1])?))
        };
        let points: Vec<(u64, f64)> = thinned(&known).windows(2).filter_map(value).collect();
        let always = name == "dirty";
        if !points.is_empty() && (always || points.iter().any(|(_, value)| *value != 0.0)) {
            self.all.push(Series { name: name.to_owned(), unit: unit.to_owned(), points });
        }
    }

    /// Adds a counter's growth per second, multiplied by `scale`.
    fn rate(&mut self, name: &str, unit: &str, field: Field, scale: f64) {
        self.add(name, unit, &|sample| sample.get(field).is_some(), &|a, b| {
            Some(per_second(a, b, field)? * scale)
        });
    }

    /// Adds a counter's value, multiplied by `scale`.
    fn level(&mut self, name: &str, unit: &str, field: Field, scale: f64) {
        self.add(name, unit, &|sample| sample.get(field).is_some(), &|a, _| {
            Some(a.get(field)? as f64 * scale)
        });
    }
}

/// Returns a bounded number of samples for a curve, including those of marks.
fn thinned<'a>(samples: &[&'a Sample]) -> Vec<&'a Sample> {
    let step = samples.len().div_ceil(POINTS_MAX).max(1);
    let kept = samples.iter().enumerate().filter(|(i, s)| i % step == 0 || s.mark.is_some());
    kept.map(|(_, sample)| *sample).collect()
}

/// Returns the percentage of time between two samples in which at least one task waited.
pub(super) fn pressure_percent(a: &Sample, b: &Sample, some: Field) -> Option<f64> {
    // 10,000 µs per second are one percent. The totals are updated independently of our clock and
    // can exceed it.
    per_second(a, b, some).map(|us_per_s| (us_per_s / 1e4).min(100.0))
}

fn per_second(a: &Sample, b: &Sample, field: Field) -> Option<f64> {
    let seconds = (b.at_ns.checked_sub(a.at_ns)? as f64 / 1e9).max(1e-9);
    Some(b.get(field)?.saturating_sub(a.get(field)?) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_sys::proc::DiskCounters;

    fn record() -> Record {
        let at = |i: u64| {
            let fields = [(Field::PageIn, i * 10), (Field::Dirty, i), (Field::PageOut, 7)];
            let disk = DiskCounters { weighted_ms: i * 20, ..DiskCounters::default() };
            let disk = i.is_multiple_of(5).then_some(disk);
            let mut sample = Sample::for_test(1_000_000_000 + i * 10_000_000, &fields, disk);
            if i.is_multiple_of(10) {
                sample.set(Field::Freed, Some(i * 3));
            }
            sample
        };
        let mut samples: Vec<Sample> = (0..5000).map(at).collect();
        samples[4321].mark = Some(0);
        let devices = vec!["sda".to_owned()];
        Record { samples, devices, marks: vec!["read".to_owned()], ..Record::default() }
    }

    #[test]
    fn curves_are_thinned_and_keep_their_sum() {
        let series = record().series(1_000_000_000);
        let names: Vec<_> = series.iter().map(|s| s.name.as_str()).collect();
        let wanted = ["page-in", "dirty", "pages freed", "sda in flight"];
        assert_eq!(names, wanted, "curves that are always zero must be omitted");
        let page_in = &series[0].points;
        assert!(page_in.len() <= POINTS_MAX);
        // 10 KiB in each hundredth of a second.
        assert!(page_in.iter().all(|(_, rate)| (rate * MIB - 1_024_000.0).abs() < 1.0));
        assert_eq!(page_in[0].0, 0);
        // A counter that is read less often has fewer points but the same values.
        let steps = |points: &[(u64, f64)]| points.windows(2).map(|w| w[1].0 - w[0].0).min();
        for (curve, step_ns, height) in [(2, 100_000_000, 300.0), (3, 50_000_000, 2.0)] {
            let points = &series[curve].points;
            assert_eq!(steps(points), Some(step_ns));
            assert!(points.iter().all(|(_, rate)| (rate - height).abs() < 0.01), "{points:?}");
        }
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
