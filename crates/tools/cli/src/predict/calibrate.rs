//! `ioloom predict --calibrate`: short probes of this machine.
//!
//! Files of three sizes are read cold, small ones also cached, and copied, and a tree is walked, each
//! with several numbers in flight. Each probe runs [`ROUNDS`] times, all probes once per round, and its
//! median counts. The probes are dense where threads begin to share processors (one and two) and where
//! many requests are in flight, because no law predicts these steps. Cold means that every file was evicted
//! from the page cache and that the kernel confirmed it; names and attributes stay cached, because only
//! root can drop them. A slow device is read with fewer files, so that a read takes about a second.

use super::eviction;
use super::probes::{self, How, Sets};
use super::saved::{self, Calibration};
use super::scratch::proceed;
use super::server_probes;
use crate::directories::{StoreArg, work_dir};
use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::StopSignals;
use crate::{out, stderr, version};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::units::{format_counted, format_ns};
use ioloom_observe::Usage;
use ioloom_predict::answer::profile::{Busy, Measured};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Largest share of the processors that other tasks use during the probes of an idle machine.
const OTHERS_MAX: f64 = 0.2;
/// Rounds of all probes.
const ROUNDS: usize = 3;
/// Numbers in flight of the probes.
const COLD_PROBES: [u32; 6] = [1, 2, 4, 16, 64, 256];
const WARM_PROBES: [u32; 3] = [1, 2, 4];
const MEDIUM_PROBES: [u32; 3] = [1, 4, 16];
const LARGE_PROBES: [u32; 2] = [1, 4];
const WALK_PROBES: [u32; 5] = [1, 2, 4, 16, 64];
const COPY_PROBES: [u32; 4] = [1, 2, 4, 32];

/// Times by kind of probe and number.
type Times = BTreeMap<(Kind, u32), Vec<f64>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Cold,
    ColdCpu,
    Warm,
    WarmCpu,
    Medium,
    Large,
    Walk,
    WalkCpu,
    Copy,
    CopyCpu,
    CopyMedium,
    CopyLarge,
}

pub(super) fn run(given: Option<&Path>, how: How, store: &StoreArg, json: bool) -> Ended {
    let dir = match given {
        // A directory that is created would be on the device of its parent.
        Some(dir) => match std::fs::metadata(dir) {
            Ok(found) if found.is_dir() => dir.to_owned(),
            Ok(_) => return Err(Failure::failed(format!("{} is not a directory", quoted(dir)))),
            Err(e) => return Err(Failure::failed(PathError::new(Operation::Stat, dir, e))),
        },
        None => work_dir(None)?,
    };
    if how.drop_caches {
        ioloom_sys::cache::can_drop_caches().map_err(|e| {
            Failure::refused(format!(
                "cannot drop the caches: {}; run as root, or without --drop-caches",
                ioloom_failure::reason(&e)
            ))
        })?;
    }
    if given.is_none() {
        // The first command that needs the default directory creates it.
        std::fs::create_dir_all(&dir)
            .map_err(PathError::on(Operation::CreateDir, &dir))
            .map_err(Failure::failed)?;
    }
    let signals = StopSignals::catch();
    let sets = match how.existing {
        true => Sets::existing(&dir, &signals)?,
        false => Sets::create(&dir, how.brief, &signals)?,
    };
    let (times, cold_files, disturbed) = observed(&sets, how, &signals)?;
    let mut calibration = calibration(&sets, &dir, how, times, cold_files);
    calibration.conditions.extend(disturbed);
    // One that cannot be used has no probes to keep.
    let earlier = saved::read(store);
    let dropped = match &earlier {
        Ok(earlier) => earlier.as_ref().and_then(|e| calibration.server_dropped_from(e)),
        Err(_) => saved::unusable_server_dropped(store),
    };
    let earlier = earlier.ok().flatten();
    let kept = calibration.clone().with_server_of(earlier);
    // The removal of the files can take minutes and be interrupted, and the probes of the server can fail.
    let path = saved::write(store, &kept)?;
    drop(sets);
    if how.exchange {
        let is_kept = kept.measured.exchange.is_some();
        let exchange = server_probes::measure(&dir, rounds(how), how.brief, &signals);
        if exchange.is_err()
            && let Some(dropped) = &dropped
        {
            stderr::message(dropped);
        }
        let exchange = exchange.map_err(|failure| without_server(failure, &path, is_kept))?;
        calibration.measured.exchange = Some(exchange);
        let server =
            "a server with one event loop on one processor, its order log in the directory";
        calibration.conditions.push(server.to_owned());
    } else {
        calibration = kept;
    }
    let path = saved::write(store, &calibration)?;
    if let Some(dropped) = dropped.filter(|_| !how.exchange) {
        stderr::message(&dropped);
    }
    if json {
        out::print_json(&calibration)?;
        return Ok(Exit::Ok);
    }
    out::print(&(text(&calibration.measured) + &format!("\nsaved as {}\n", path.display())))?;
    Ok(Exit::Ok)
}

/// Runs all probes as [`measure`] does. Returns also the condition that other programs disturbed them, if they did.
fn observed(
    sets: &Sets,
    how: How,
    signals: &StopSignals,
) -> Result<(Times, usize, Option<String>), Failure> {
    let (start, before) = (Instant::now(), Usage::now(None));
    let (times, cold_files) = measure(sets, how, signals)?;
    let others = Usage::now(None).since(&before).others;
    let others_s = others.map_or(0.0, |others| others.cpu_ns as f64 / 1e9);
    let condition = disturbed(others_s / start.elapsed().as_secs_f64(), ioloom::usable_cores());
    if let Some(condition) = &condition {
        stderr::message(&format!("{condition}; calibrate again when the machine is idle"));
    }
    Ok((times, cold_files, condition))
}

/// Returns the condition that other programs used so many processors on average, of `cores` that the probes can use;
/// `None` if that is no more than what the kernel uses to write and evict the files of the probes.
fn disturbed(others: f64, cores: u32) -> Option<String> {
    let is_disturbed = others > OTHERS_MAX * f64::from(cores);
    is_disturbed
        .then(|| format!("other programs used {others:.1} processors on average during the probes"))
}

/// Returns the failure of the probes of the server, when the others are saved at `path`. `is_kept`: with earlier
/// probes of the server.
fn without_server(failure: Failure, path: &Path, is_kept: bool) -> Failure {
    let path = quoted(path);
    let message = match failure.exit {
        Exit::Hangup | Exit::Interrupted | Exit::Terminated => format!(
            "the probes of the server were interrupted; what they created is removed, and the other \
             probes are saved as {path}"
        ),
        _ => format!("{}; the probes of the device are saved as {path}", failure.message),
    };
    let kept = if is_kept { ", with the earlier probes of the server" } else { "" };
    Failure::new(failure.exit, message + kept)
}

fn rounds(how: How) -> usize {
    if how.brief { 1 } else { ROUNDS }
}

/// Runs all probes. Returns also the most small files that a probe read.
fn measure(sets: &Sets, how: How, signals: &StopSignals) -> Result<(Times, usize), Failure> {
    let (mut times, mut cold_files) = (Times::new(), 0);
    let mut add = |kind, n, seconds| times.entry((kind, n)).or_default().push(seconds);
    // Latencies of the last round, which limit the number of files.
    let mut last = BTreeMap::new();
    for _ in 0..rounds(how) {
        let mut each_s = f64::INFINITY;
        for n in COLD_PROBES {
            proceed(signals)?;
            let count = sets.count(last.get(&n).copied().unwrap_or(each_s), n);
            cold_files = count.max(cold_files);
            let files = sets.first_small(count);
            eviction::evict(&files)?;
            let [elapsed, cpu] = probes::read(&files, 0..count, n)?;
            add(Kind::Cold, n, elapsed);
            add(Kind::ColdCpu, n, cpu);
            last.insert(n, elapsed);
            each_s = elapsed;
        }
        // Some file systems take as long for cached files.
        let count = sets.count(last.get(&1).copied().unwrap_or(each_s), 1);
        let files = sets.first_small(count);
        probes::read(&files, 0..count, 64)?;
        for n in WARM_PROBES {
            proceed(signals)?;
            let [elapsed, cpu] = probes::read(&files, 0..count, n)?;
            add(Kind::Warm, n, elapsed);
            add(Kind::WarmCpu, n, cpu);
        }
        let medium = MEDIUM_PROBES.map(|n| (Kind::Medium, n, &sets.medium.paths));
        let large = LARGE_PROBES.map(|n| (Kind::Large, n, &sets.large.paths));
        for (kind, n, paths) in medium.into_iter().chain(large).filter(|(.., p)| !p.is_empty()) {
            proceed(signals)?;
            eviction::evict(paths)?;
            let [elapsed, _] = probes::read(paths, 0..usize::MAX, n)?;
            add(kind, n, elapsed);
        }
        for n in WALK_PROBES {
            proceed(signals)?;
            let [elapsed, cpu] = sets.walk(n, how, signals)?;
            add(Kind::Walk, n, elapsed);
            add(Kind::WalkCpu, n, cpu);
        }
        for n in COPY_PROBES {
            proceed(signals)?;
            let count = sets.count(last.get(&n).copied().unwrap_or(each_s), n);
            if let Some([elapsed, cpu]) = sets.copy_small(count, n, how)? {
                add(Kind::Copy, n, elapsed);
                add(Kind::CopyCpu, n, cpu);
            }
        }
        let medium = MEDIUM_PROBES.map(|n| (Kind::CopyMedium, n, "medium"));
        let large = LARGE_PROBES.map(|n| (Kind::CopyLarge, n, "large"));
        for (kind, n, set) in medium.into_iter().chain(large) {
            proceed(signals)?;
            if let Some([elapsed, _]) = sets.copy_set(set, n, how)? {
                add(kind, n, elapsed);
            }
        }
    }
    Ok((times, cold_files))
}

fn calibration(sets: &Sets, dir: &Path, how: How, times: Times, cold_files: usize) -> Calibration {
    let mut medians: BTreeMap<Kind, Vec<(u32, f64)>> = BTreeMap::new();
    for ((kind, n), mut all) in times {
        all.sort_by(f64::total_cmp);
        medians.entry(kind).or_default().push((n, all[all.len() / 2]));
    }
    let cores = ioloom::usable_cores();
    let busy = |time, cpu| {
        let [time, cpu] = [time, cpu].map(|kind| medians.get(&kind)?.last().map(|(_, s)| *s));
        time.zip(cpu).map_or(0.0, |(time, cpu)| (cpu / time / f64::from(cores)).clamp(0.0, 1.0))
    };
    let busy = Busy {
        cold: busy(Kind::Cold, Kind::ColdCpu),
        warm: busy(Kind::Warm, Kind::WarmCpu),
        walk: busy(Kind::Walk, Kind::WalkCpu),
        copy: busy(Kind::Copy, Kind::CopyCpu),
    };
    let mut of = |kind| medians.remove(&kind).unwrap_or_default();
    let first = |probes: Vec<(u32, f64)>| probes.first().map_or(0.0, |(_, seconds)| *seconds);
    let measured = Measured {
        cores,
        files: sets.small.paths.len() as u64,
        cold_files: cold_files as u64,
        copy_files: sets.copied(),
        medium_files: sets.medium.paths.len() as u64,
        large_files: sets.large.paths.len() as u64,
        file_bytes: sets.small.mean(),
        file_cpu_s: first(of(Kind::ColdCpu)),
        cold_s: of(Kind::Cold),
        warm_s: of(Kind::Warm),
        medium_bytes: sets.medium.mean(),
        medium_s: of(Kind::Medium),
        large_bytes: sets.large.mean(),
        large_s: of(Kind::Large),
        walk_files: sets.walked(),
        walk_s: of(Kind::Walk),
        walk_cpu_s: first(of(Kind::WalkCpu)),
        copy_s: of(Kind::Copy),
        copy_medium_s: of(Kind::CopyMedium),
        copy_large_s: of(Kind::CopyLarge),
        busy,
        exchange: None,
    };
    let mut conditions = vec!["reads of evicted files".to_owned()];
    let walks = if how.drop_caches { "dropped" } else { "cached" };
    conditions.push(format!("walks with names and attributes {walks}"));
    if how.existing {
        conditions.push(existing(sets.left_out));
    } else {
        let copies = if how.copy_cached { "cached" } else { "evicted" };
        conditions.push(format!("copies of {copies} files"));
    }
    if measured.large_s.is_empty() {
        conditions.push("no file of 1 MiB or more, so the bandwidth is unknown".to_owned());
    }
    conditions.push(match rounds(how) {
        1 => "one round".to_owned(),
        rounds => format!("medians of {rounds} rounds"),
    });
    Calibration {
        schema: Calibration::SCHEMA,
        program: version::VERSION.to_owned(),
        machine: saved::machine(),
        at: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S").to_string(),
        // The same directory has one name wherever the program is started.
        dir: std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()).display().to_string(),
        conditions,
        measured,
    }
}

/// Returns the condition of existing files, of which some cannot be evicted.
fn existing(left_out: usize) -> String {
    match left_out as u64 {
        0 => "existing files, no copies".to_owned(),
        n => format!(
            "existing files except {} that cannot be evicted, no copies",
            format_counted(n, "file", "files")
        ),
    }
}

fn text(m: &Measured) -> String {
    let mut rows = vec![
        ("read a cold file", &m.cold_s),
        ("read a cached file", &m.warm_s),
        ("read a medium cold file", &m.medium_s),
        ("read a large cold file", &m.large_s),
        ("walk a file", &m.walk_s),
        ("copy a file", &m.copy_s),
        ("copy a medium file", &m.copy_medium_s),
        ("copy a large file", &m.copy_large_s),
    ];
    if let Some(exchange) = &m.exchange {
        rows.push(("request, nothing kept", &exchange.none_s));
        rows.push(("request, shared syncs", &exchange.group_s));
        rows.push(("request, own syncs", &exchange.each_s));
    }
    let mut all = format!("{:<24} {:>9} {:>12}\n", "probe", "in flight", "each");
    for (name, probes) in rows {
        for (n, seconds) in probes {
            all += &format!("{name:<24} {n:>9} {:>12}\n", format_ns(seconds * 1e9));
        }
    }
    all += &format!("processor time to read a file {:>17}\n", format_ns(m.file_cpu_s * 1e9));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_a_condition_of_the_probes() {
        assert_eq!(disturbed(0.2, 2), None);
        let condition = "other programs used 1.2 processors on average during the probes";
        assert_eq!(disturbed(1.17, 2).as_deref(), Some(condition));
        assert_eq!(disturbed(1.17, 16), None);
    }

    #[test]
    fn failures_of_server_probes_name_what_is_saved() {
        let message = |exit, text: &str, is_kept| {
            let failure = Failure::new(exit, text);
            let failure = without_server(failure, Path::new("/s/c.json"), is_kept);
            assert_eq!(failure.exit, exit);
            failure.message
        };
        let expected = "no server; the probes of the device are saved as '/s/c.json'";
        assert_eq!(message(Exit::Failed, "no server", false), expected);
        let kept = message(Exit::Failed, "no server", true);
        assert_eq!(kept, format!("{expected}, with the earlier probes of the server"));
        let interrupted = message(Exit::Interrupted, "nothing is saved", false);
        assert!(interrupted.ends_with("the other probes are saved as '/s/c.json'"));
        assert!(!interrupted.contains("nothing"), "{interrupted}");
    }
}
