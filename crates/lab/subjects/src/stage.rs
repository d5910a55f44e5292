//! Measures a scenario on one file: counters at marks, the file, and its page cache state.
//!
//! A scenario runs in a separate process, establishes its condition and proves it with cachestat.
//! Counters are read at marks between steps, so the numbers of a step are exact differences rather
//! than interpolated. The counters cover the whole machine, including other work.

use ioloom_cache::{Incomplete, residency};
use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_model::Measured;
use ioloom_observe::Usage;
use ioloom_observe::counters::{self, Field, Record, Sample, Sampler};
use ioloom_sys::cache::{self, CacheState};
use ioloom_sys::file::{OpenHow, open, size};
use ioloom_sys::proc;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of points in a recorded curve.
const CURVE_MAX: usize = 300;

thread_local! {
    /// The counters of the scenario on this thread, for its observer. The run and its observer
    /// start and finish on the same thread.
    static COUNTED: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// Starts saving the counters of the next scenario on this thread for [`counted`].
pub(crate) fn listen() {
    COUNTED.set(Some(Record::default()));
}

/// Returns the counters since [`listen`]; empty if the scenario counted nothing.
pub(crate) fn counted() -> Record {
    COUNTED.take().unwrap_or_default()
}

/// The instruments of a scenario: the sampler, the process usage, and the metrics.
pub(crate) struct Stage {
    pub(crate) sampler: Sampler,
    device: Option<String>,
    usage: Usage,
    extra: BTreeMap<String, f64>,
}

impl Stage {
    /// Starts counting. `dir` determines the device.
    pub(crate) fn open(dir: &Path) -> Result<Self, String> {
        let device = ioloom_fileset::medium(dir).ok().and_then(|medium| medium.block_device);
        let options = counters::SamplerOptions {
            process: Some(std::process::id()),
            device: device.clone(),
            ..counters::SamplerOptions::default()
        };
        let sampler = Sampler::start(&options).map_err(|e| cannot("start the sampler", &e))?;
        let usage = Usage::now(device.as_deref());
        Ok(Self { sampler, device, usage, extra: BTreeMap::new() })
    }

    pub(crate) fn put(&mut self, name: &str, value: f64) {
        self.extra.insert(name.to_owned(), value);
    }

    /// Stops counting. Returns the measurement and the counters at the marks.
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

/// Returns the thinned curves of a record as seconds and values.
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

/// The counters between marks.
pub(crate) struct Acts {
    record: Record,
    device: Option<usize>,
}

impl Acts {
    fn ends(&self, from: &str, to: &str) -> Option<(&Sample, &Sample)> {
        self.record.at_mark(from).zip(self.record.at_mark(to))
    }

    /// Returns the increase of a counter between two marks, times `unit`.
    pub(crate) fn grown(&self, field: Field, from: &str, to: &str, unit: f64) -> Option<f64> {
        let (a, b) = self.ends(from, to)?;
        Some(b.get(field)?.saturating_sub(a.get(field)?) as f64 * unit)
    }

    /// Returns the change in a number of pages between two marks, in bytes.
    pub(crate) fn changed_bytes(&self, field: Field, from: &str, to: &str) -> Option<f64> {
        let (a, b) = self.ends(from, to)?;
        Some((b.get(field)? as f64 - a.get(field)? as f64) * proc::page_bytes() as f64)
    }

    /// Returns a value at a mark, times `unit`.
    pub(crate) fn level(&self, field: Field, mark: &str, unit: f64) -> Option<f64> {
        Some(self.record.at_mark(mark)?.get(field)? as f64 * unit)
    }

    /// Returns the device rates between two marks.
    pub(crate) fn device(&self, from: &str, to: &str) -> Option<counters::DeviceRates> {
        let (a, b) = self.ends(from, to)?;
        counters::devices(a, b, self.device?)
    }

    /// Returns the seconds between two marks.
    pub(crate) fn seconds(&self, from: &str, to: &str) -> Option<f64> {
        let (a, b) = self.ends(from, to)?;
        Some((b.at_ns - a.at_ns) as f64 / 1e9)
    }

    /// Returns the maximum of a page count, or of the sum of several, after a mark, in bytes.
    pub(crate) fn most_bytes(&self, fields: &[Field], from: &str) -> Option<f64> {
        let start = self.record.at_mark(from)?.at_ns;
        let later = self.record.samples.iter().filter(|sample| sample.at_ns >= start);
        let sum =
            |sample: &Sample| fields.iter().map(|field| sample.get(*field)).sum::<Option<u64>>();
        let most = later.filter_map(sum).max()?;
        Some(most as f64 * proc::page_bytes() as f64)
    }
}

/// Records a metric if it is known.
pub(crate) fn put(measured: &mut Measured, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        measured.extra.insert(name.to_owned(), value);
    }
}

/// Opens the only file of a set and returns its path and size.
pub(crate) fn only_file(dir: &Path) -> Result<(PathBuf, OwnedFd, u64), String> {
    let (list, _) =
        ioloom_walk::files(dir, &ioloom_walk::WalkOptions::default()).map_err(|e| e.to_string())?;
    let mut paths = list.iter();
    let (Some(first), None) = (paths.next(), paths.next()) else {
        return Err(format!("{}: the scenario needs a set of exactly one file", quoted(dir)));
    };
    let path = PathBuf::from(OsStr::from_bytes(first));
    let fail = |e: std::io::Error| PathError::new(Operation::Open, &path, e).to_string();
    let opened = open(&path, OpenHow::default()).map_err(fail)?;
    let bytes = size(&opened).map_err(fail)?;
    Ok((path, opened, bytes))
}

/// Returns the error message for a failed call without a path.
pub(crate) fn cannot(operation: &str, error: &std::io::Error) -> String {
    format!("cannot {operation}: {}", reason(error))
}

/// Returns the page states of a range of an open file; a length of 0 extends to its end.
pub(crate) fn page_state(file: &OwnedFd, at: u64, bytes: u64) -> Result<CacheState, String> {
    let state = cache::state(file, at, bytes).map_err(|e| cannot("query the page cache", &e))?;
    state.ok_or_else(|| "cannot query the page cache: cachestat is not available".to_owned())
}

/// Syncs the file system of an open file to prevent dirty pages from disturbing the run.
pub(crate) fn sync_file_system(file: impl AsFd) -> Result<(), String> {
    cache::flush_file_system(file).map_err(|e| cannot("sync the file system", &e))
}

/// Evicts an open file from the page cache and proves it.
pub(crate) fn make_cold(file: &OwnedFd, bytes: u64) -> Result<(), String> {
    let (_, after, stays) =
        ioloom_cache::evict_file(file, bytes, true).map_err(|e| cannot("evict the file", &e))?;
    match (after.is_cold(), stays) {
        (true, _) => Ok(()),
        (false, None | Some(Incomplete::Unknown)) => {
            Err("the file cannot be proved cold: cachestat is not available".to_owned())
        }
        (false, Some(why)) => Err(format!("the file cannot be made cold: {}", why.sentence())),
    }
}

/// Returns the resident bytes of an open file, if they can be determined.
pub(crate) fn resident_bytes(file: &OwnedFd, bytes: u64) -> Option<f64> {
    let state = residency(file, bytes).ok()?;
    Some(state.pages.resident? as f64 * proc::page_bytes() as f64)
}
