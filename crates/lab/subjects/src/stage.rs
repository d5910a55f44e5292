//! What plays of one file share: counters at marks, the file, its state in the page cache.
//!
//! A play makes its own condition in a process of its own and proves it by cachestat. Counters are
//! taken at marks between its acts, so what belongs to an act is an exact difference and no
//! interpolation; they are those of the whole machine, so other work on it is in them.

use ioloom_cache::residency;
use ioloom_model::Measured;
use ioloom_observe::Usage;
use ioloom_observe::counters::{self, Field, Record, Sample, Sampler};
use ioloom_sys::file::{OpenHow, open, size};
use ioloom_sys::proc;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Points of a curve that a record keeps.
const CURVE_MAX: usize = 300;

thread_local! {
    /// What the play of this thread counted, for whoever watches it: a run, its play and what watches
    /// them begin and end on one thread.
    static COUNTED: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// From now on the counters of a play of this thread are kept for [`counted`].
pub(crate) fn listen() {
    COUNTED.set(Some(Record::default()));
}

/// What the play since [`listen`] counted; empty if it did not count.
pub(crate) fn counted() -> Record {
    COUNTED.take().unwrap_or_default()
}

/// What a play brings together: the sampler, the usage of the process, the numbers.
pub(crate) struct Stage {
    pub(crate) sampler: Sampler,
    device: Option<String>,
    usage: Usage,
    extra: BTreeMap<String, f64>,
}

impl Stage {
    /// Begins to count. `dir` names the device.
    pub(crate) fn open(dir: &Path) -> Result<Self, String> {
        let device = ioloom_fileset::medium(dir).ok().and_then(|medium| medium.block_device);
        let options = counters::SamplerOptions {
            process: Some(std::process::id()),
            device: device.clone(),
            ..counters::SamplerOptions::default()
        };
        let sampler = Sampler::start(&options).map_err(|e| format!("start the sampler: {e}"))?;
        let usage = Usage::now(device.as_deref());
        Ok(Self { sampler, device, usage, extra: BTreeMap::new() })
    }

    pub(crate) fn put(&mut self, name: &str, value: f64) {
        self.extra.insert(name.to_owned(), value);
    }

    /// Ends, with the acts for what is asked of them.
    pub(crate) fn close(self, elapsed_ns: u64, bytes: u64) -> (Measured, Acts) {
        let record = self.sampler.stop();
        COUNTED.with_borrow_mut(|kept| {
            if let Some(kept) = kept {
                kept.clone_from(&record);
            }
        });
        let used = Usage::now(self.device.as_deref()).since(&self.usage);
        let cpus = proc::system_stat().map_or(1, |stat| stat.cpus.len().max(1) as u32);
        let mut measured = Measured { elapsed_ns, bytes, files: 1, ..Measured::default() };
        used.fill(&mut measured, cpus);
        measured.extra = self.extra;
        measured.extra.insert("sampling_share".to_owned(), record.cost());
        measured.curves = curves(&record);
        let device = self.device.and_then(|name| record.devices.iter().position(|d| *d == name));
        (measured, Acts { record, device })
    }
}

/// The curves of a record, seconds and values, thinned.
fn curves(record: &Record) -> BTreeMap<String, Vec<(f64, f64)>> {
    let Some((first, _)) = record.ends() else { return BTreeMap::new() };
    let series = record.series(first.at_ns).into_iter();
    let wanted = ["page-in", "page-out", "dirty", "writeback", "page cache"];
    let kept = series.filter(|series| wanted.contains(&series.name.as_str()));
    kept.map(|series| {
        let step = series.points.len().div_ceil(CURVE_MAX).max(1);
        let points = series.points.iter().step_by(step);
        (series.name, points.map(|(ns, value)| (*ns as f64 / 1e9, *value)).collect())
    })
    .collect()
}

/// What happened between the marks.
pub(crate) struct Acts {
    record: Record,
    device: Option<usize>,
}

impl Acts {
    fn ends(&self, from: &str, to: &str) -> Option<(&Sample, &Sample)> {
        self.record.at_mark(from).zip(self.record.at_mark(to))
    }

    /// How much a counter grew from one mark to another, times `unit`.
    pub(crate) fn grown(&self, field: Field, from: &str, to: &str, unit: f64) -> Option<f64> {
        let (a, b) = self.ends(from, to)?;
        Some(b.get(field)?.saturating_sub(a.get(field)?) as f64 * unit)
    }

    /// The change of a level, in bytes for pages.
    pub(crate) fn changed_bytes(&self, field: Field, from: &str, to: &str) -> Option<f64> {
        let (a, b) = self.ends(from, to)?;
        Some((b.get(field)? as f64 - a.get(field)? as f64) * proc::page_bytes() as f64)
    }

    /// A level at a mark, times `unit`.
    pub(crate) fn level(&self, field: Field, mark: &str, unit: f64) -> Option<f64> {
        Some(self.record.at_mark(mark)?.get(field)? as f64 * unit)
    }

    /// What the device did between two marks.
    pub(crate) fn device(&self, from: &str, to: &str) -> Option<counters::DeviceRates> {
        let (a, b) = self.ends(from, to)?;
        counters::devices(a, b, self.device?)
    }

    /// Seconds between two marks.
    pub(crate) fn seconds(&self, from: &str, to: &str) -> Option<f64> {
        let (a, b) = self.ends(from, to)?;
        Some((b.at_ns - a.at_ns) as f64 / 1e9)
    }

    /// The most of a level of pages, or of several together, from one mark on, bytes.
    pub(crate) fn most_bytes(&self, fields: &[Field], from: &str) -> Option<f64> {
        let start = self.record.at_mark(from)?.at_ns;
        let later = self.record.samples.iter().filter(|sample| sample.at_ns >= start);
        let sum =
            |sample: &Sample| fields.iter().map(|field| sample.get(*field)).sum::<Option<u64>>();
        let most = later.filter_map(sum).max()?;
        Some(most as f64 * proc::page_bytes() as f64)
    }
}

/// Adds a number that is known.
pub(crate) fn put(measured: &mut Measured, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        measured.extra.insert(name.to_owned(), value);
    }
}

/// The one file of the set, opened, with its size.
pub(crate) fn only_file(dir: &Path) -> Result<(PathBuf, OwnedFd, u64), String> {
    let (list, _) =
        ioloom_walk::files(dir, &ioloom_walk::WalkOptions::default()).map_err(|e| e.to_string())?;
    let mut paths = list.iter();
    let (Some(first), None) = (paths.next(), paths.next()) else {
        return Err(format!("{}: the play needs a set of exactly one file", dir.display()));
    };
    let path = PathBuf::from(OsStr::from_bytes(first));
    let fail = |e: std::io::Error| format!("open {}: {e}", path.display());
    let opened = open(&path, OpenHow::default()).map_err(fail)?;
    let bytes = size(&opened).map_err(fail)?;
    Ok((path, opened, bytes))
}

/// Puts an open file out of the page cache; an error if it is not known to be out.
pub(crate) fn make_cold(file: &OwnedFd, bytes: u64) -> Result<(), String> {
    let (_, after, stays) =
        ioloom_cache::evict_file(file, bytes, true).map_err(|e| format!("drop the file: {e}"))?;
    match (after.is_cold(), stays) {
        (true, _) => Ok(()),
        (false, Some(why)) => Err(format!("the file cannot be made cold: {}", why.sentence())),
        (false, None) => {
            Err("the file cannot be proved cold: cachestat does not answer".to_owned())
        }
    }
}

/// Resident bytes of an open file, where that is known.
pub(crate) fn resident_bytes(file: &OwnedFd, bytes: u64) -> Option<f64> {
    let state = residency(file, bytes).ok()?;
    Some(state.pages.resident? as f64 * proc::page_bytes() as f64)
}
