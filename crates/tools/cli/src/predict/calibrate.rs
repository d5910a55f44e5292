//! `ioloom predict --calibrate`: short probes of this machine.
//!
//! Small files are read cold with 1, 4 and 64 requests in flight and once warm, large files cold, and
//! the tree of the small files is walked with 1, 4 and 64 threads. Each probe runs [`ROUNDS`] times, all
//! probes once per round, and its median counts. Cold means that every file was evicted from the page
//! cache and that the kernel confirmed it; names and attributes stay cached, because only root can drop
//! them.

use super::saved::{self, Calibration};
use crate::directories::{StoreArg, work_dir};
use crate::exit::{Ended, Exit, Failure};
use crate::{facts, out, version};
use ioloom_failure::{Operation, PathError};
use ioloom_fileset::{self as fileset, CreateOptions, SetText};
use ioloom_model::units::format_ns;
use ioloom_predict::answer::profile::Measured;
use ioloom_predict::walk_media::{self, Medium, PROBES};
use ioloom_walk::{Control, DirRef, Fields, Found, NewDir, Threads, Visitor, Walk};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The sets of the probes.
const SMALL: &str = "count=8000,size=4KiB,layout=nested,seed=1";
const LARGE: &str = "count=4,size=16MiB,seed=2";
/// Rounds of all probes.
const ROUNDS: usize = 3;

pub(super) fn run(dir: Option<&Path>, store: &StoreArg, json: bool) -> Ended {
    let dir = work_dir(dir)?;
    let sets = Sets::create(&dir)?;
    let probes = sets.probes()?;
    let calibration = calibration(&sets, &dir, probes)?;
    drop(sets);
    let path = saved::write(store, &calibration)?;
    if json {
        out::print_json(&calibration)?;
        return Ok(Exit::Ok);
    }
    let mut all = String::new();
    for (name, threads, seconds) in &calibration.probes {
        all += &format!("{name:<22} {threads:>4} {:>10}\n", format_ns(seconds * 1e9));
    }
    let m = &calibration.files;
    all += &format!(
        "\n{} per cold file with one in flight, {} between files with many\n{:.0} MB/s, {} of \
         processor per file\nsaved as {}\n",
        format_ns(m.latency_s * 1e9),
        format_ns(m.gap_s * 1e9),
        m.bytes_per_s / 1e6,
        format_ns(m.file_cpu_s * 1e9),
        path.display()
    );
    out::print(&all)?;
    Ok(Exit::Ok)
}

/// One kind of probe: name, requests in flight or threads.
type Probe = (&'static str, u32);

/// File sets that are removed on drop.
struct Sets {
    root: PathBuf,
    small: Vec<PathBuf>,
    large: Vec<PathBuf>,
    large_bytes: u64,
}

impl Drop for Sets {
    fn drop(&mut self) {
        for name in ["small", "large"] {
            let _ = fileset::remove(&self.root.join(name));
        }
        let _ = std::fs::remove_dir(&self.root);
    }
}

impl Sets {
    fn create(dir: &Path) -> Result<Self, Failure> {
        let root = dir.join(format!("predict-probe-{}", std::process::id()));
        let mut sets = Self { root, small: Vec::new(), large: Vec::new(), large_bytes: 0 };
        sets.small = sets.set("small", SMALL)?.0;
        (sets.large, sets.large_bytes) = sets.set("large", LARGE)?;
        Ok(sets)
    }

    fn set(&self, name: &str, text: &str) -> Result<(Vec<PathBuf>, u64), Failure> {
        let text: SetText = text.parse().map_err(Failure::failed)?;
        let spec = text.resolve().map_err(Failure::failed)?;
        let dir = self.root.join(name);
        let made = fileset::create(&spec, &dir, &CreateOptions::default(), &|_| true);
        let set = made.map_err(Failure::failed)?;
        let files = fileset::files_dir(&dir);
        let path = |index| files.join(fileset::relative_path(&spec, index));
        Ok(((0..spec.count).map(path).collect(), set.bytes_total))
    }

    /// Runs all probes; returns the median of each.
    fn probes(&self) -> Result<Vec<(Probe, f64)>, Failure> {
        let mut times: Vec<(Probe, Vec<f64>)> = Vec::new();
        for round in 0..ROUNDS {
            let mut all = Vec::new();
            for n in PROBES {
                all.push((("read, cold", n), self.cold(&self.small, n)?));
            }
            all.push((("read, warm", 1), read(&self.small, 1)?));
            all.push((("read large, cold", 4), self.cold(&self.large, 4)?));
            for n in PROBES {
                all.push((("walk, attributes cached", n), self.walk(n)?));
            }
            for (i, (probe, time)) in all.into_iter().enumerate() {
                if round == 0 {
                    times.push((probe, Vec::new()));
                }
                times[i].1.push(time);
            }
        }
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        Ok(times.into_iter().map(|(probe, times)| (probe, median(times))).collect())
    }

    fn cold(&self, paths: &[PathBuf], in_flight: u32) -> Result<f64, Failure> {
        for path in paths {
            evict(path)?;
        }
        read(paths, in_flight)
    }

    fn walk(&self, threads: u32) -> Result<f64, Failure> {
        let walk = Walk {
            threads: Threads::Count(threads as usize),
            fields: Fields::BYTES,
            ..Walk::default()
        };
        let start = Instant::now();
        let (counts, report) = walk
            .run(&[fileset::files_dir(&self.root.join("small"))], |_| Counter(0))
            .map_err(|refused| Failure::refused(format!("cannot walk: {refused}")))?;
        let elapsed = start.elapsed().as_secs_f64();
        if let Some(error) = report.errors.first() {
            return Err(Failure::failed(error));
        }
        let found: u64 = counts.iter().map(|counter| counter.0).sum();
        if found != self.small.len() as u64 {
            return Err(Failure::failed(format!(
                "the walk found {found} of {} files; another program changes them",
                self.small.len()
            )));
        }
        Ok(elapsed)
    }
}

/// Counts files.
struct Counter(u64);

impl Visitor for Counter {
    type Dir = ();

    fn enter(&mut self, _dir: &NewDir<'_, ()>) -> Option<()> {
        Some(())
    }

    fn entry(&mut self, _dir: DirRef<'_, ()>, _found: &Found<'_>) -> Control {
        self.0 += 1;
        Control::Continue
    }
}

/// Evicts a file, or fails if the kernel keeps pages.
fn evict(path: &Path) -> Result<(), Failure> {
    let fail = |e| Failure::failed(PathError::new(Operation::Open, path, e));
    let file = File::open(path).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let (_, after, _) = ioloom_cache::evict_file(&file, bytes, true).map_err(fail)?;
    if after.is_cold() {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "cannot evict {} from the page cache; use a directory on a file system that can, for example \
         ext4 or XFS",
        ioloom_failure::quoted(path)
    )))
}

/// Reads files with a fixed window and returns the elapsed seconds.
fn read(paths: &[PathBuf], in_flight: u32) -> Result<f64, Failure> {
    let plan = format!("read/window:l={in_flight},p={}", ioloom::usable_cores());
    let plan = plan.parse::<ioloom::Plan>().map_err(Failure::failed)?;
    let start = Instant::now();
    let bytes: u64 =
        ioloom::list(paths).pin(plan).map(|file| file.len()).sum().map_err(Failure::failed)?;
    let elapsed = start.elapsed().as_secs_f64();
    if bytes == 0 {
        return Err(Failure::failed("the probe read no bytes"));
    }
    Ok(elapsed)
}

fn calibration(sets: &Sets, dir: &Path, probes: Vec<(Probe, f64)>) -> Result<Calibration, Failure> {
    let files = sets.small.len() as u64;
    let time = |name: &str, n: u32| {
        let found = probes.iter().find(|((known, at), _)| *known == name && *at == n);
        found.map_or(f64::NAN, |(_, time)| *time)
    };
    let each = |seconds: f64| seconds / files as f64;
    let cpu_s = each(time("read, warm", 1));
    let best = PROBES.map(|n| time("read, cold", n)).into_iter().fold(f64::INFINITY, f64::min);
    let measured = Measured {
        cores: ioloom::usable_cores(),
        file_cpu_s: cpu_s,
        // Where the cache of a hypervisor answers, a cold read takes little longer than a warm one.
        latency_s: (each(time("read, cold", 1)) - cpu_s).max(1e-6),
        gap_s: each(best),
        bytes_per_s: sets.large_bytes as f64 / time("read large, cold", 4),
        in_flight_max: 64,
        files,
    };
    let media = walk_media::media().map_err(Failure::failed)?;
    let all: Vec<&Medium> = media.iter().collect();
    let (shared, _, _) = walk_media::together(&all).map_err(Failure::failed)?;
    let walked = PROBES.map(|n| (n, time("walk, attributes cached", n)));
    let walk = walk_media::from_probes(&walked, false, &shared).map_err(Failure::failed)?;
    let machine = facts::facts(Path::new("/"), dir).fingerprint;
    Ok(Calibration {
        schema: Calibration::SCHEMA,
        program: version::VERSION.to_owned(),
        machine,
        at: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S").to_string(),
        dir: dir.display().to_string(),
        conditions: vec![
            "file data cold, names and attributes cached".to_owned(),
            format!("medians of {ROUNDS} rounds"),
        ],
        files: measured,
        walk,
        walk_files: files,
        walk_threads: 64,
        probes: probes.into_iter().map(|((name, n), time)| (name.to_owned(), n, time)).collect(),
    })
}
