//! Runs the engine `walk` as a subject: walking a directory tree.
//!
//! A plan is `walk:METHOD/threads=N` with the engine's methods. `head=1` also measures disk head
//! travel (see `travel`). A walk reads only names and inodes, so cold and warm refer to
//! these. A run proves its coverage by the number of files, the sum of their sizes, and an
//! order-independent digest of names and sizes.
//!
//! Thread time is split using the thread's CPU clock, read once per directory. The walker cannot
//! distinguish waiting for the device from waiting for work, so off-CPU time is `unknown`.

use crate::sets::FileSets;
use crate::travel::Travel;
use ioloom_lab::ChildAnswer;
use ioloom_lab::subject::{Sets, Subject, Touches};
use ioloom_model::record::{Bottleneck, RunOrder, ThreadTime};
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, Measured, SubjectPlan};
use ioloom_observe::Usage;
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use ioloom_sys::proc;
use ioloom_walk::{
    Control, DirRef, Fields, Found, Kind, Method, NewDir, Refused, Report, Threads, Visitor,
};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Maximum number of error messages in a record.
const ERROR_SAMPLES_MAX: usize = 10;

/// The subject `walk`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Walk;

/// The settings of a plan.
struct Settings {
    walk: ioloom_walk::Walk,
    head: bool,
}

fn settings(plan: &AnyPlan) -> Result<Settings, String> {
    let own: &SubjectPlan =
        plan.for_subject("walk").ok_or_else(|| format!("{plan}: not a walk"))?;
    own.allow_only(&["threads", "head"])?;
    let method: Method = own.method.parse().map_err(|e| format!("{plan}: {e}"))?;
    let threads = own.settings.get("threads").map_or("auto", String::as_str);
    let threads: Threads = threads.parse().map_err(|e| format!("{plan}: {e}"))?;
    let head = match own.number("head")? {
        None | Some(0) => false,
        Some(1) => true,
        Some(_) => return Err(format!("{plan}: head is 0 or 1")),
    };
    let fields = Fields::BYTES | Fields::DISK | Fields::LINKS;
    let walk = ioloom_walk::Walk { method, threads, fields, ..ioloom_walk::Walk::default() };
    Ok(Settings { walk, head })
}

/// Returns the reason for a refusal with advice.
fn refusal(refused: Refused) -> String {
    match refused {
        Refused::InodeTables(_) => {
            format!("{refused}; run as root, with --dir on ext4 or with --image")
        }
        refused => refused.to_string(),
    }
}

impl Subject for Walk {
    fn name(&self) -> &str {
        "walk"
    }

    fn sets(&self) -> &dyn Sets {
        &FileSets
    }

    fn maps_tree(&self) -> bool {
        true
    }

    fn touches(&self) -> Touches {
        Touches::Names
    }

    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        let Settings { walk, head } = settings(plan)?;
        let threads = match walk.threads {
            Threads::Auto => "an automatic number of threads".to_owned(),
            Threads::Count(1) => "1 thread".to_owned(),
            Threads::Count(n) => format!("{n} threads"),
        };
        let kept = if head { "; disk head travel is measured" } else { "" };
        Ok(format!("{threads}: {}{kept}", walk.method.sentence()))
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, dir: &Path) -> Result<(), String> {
        let Settings { walk, head } = settings(plan)?;
        walk.probe(&[dir.to_owned()]).map_err(refusal)?;
        if head {
            Travel::start(dir).map(drop)?;
        }
        Ok(())
    }

    fn run(&self, order: &RunOrder) -> ChildAnswer {
        walked(order).into()
    }

    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt> {
        let named =
            order.plan.for_subject("walk").is_some_and(|p| p.method == Method::NamesOnly.word());
        let bytes = if named { 0 } else { set.bytes_total };
        let right = measured.files == set.files && measured.bytes == bytes;
        if right || measured.errors > 0 { Vec::new() } else { vec![Doubt::WrongBytes] }
    }
}

/// Counters of one thread.
#[derive(Default)]
struct Tally {
    start_ns: u64,
    cpu_start_ns: u64,
    cpu_ns: u64,
    until_ns: u64,
    files: u64,
    bytes: u64,
    digest: u64,
    links: u64,
}

impl Visitor for Tally {
    type Dir = ();

    fn enter(&mut self, _: &NewDir<'_, ()>) -> Option<()> {
        if self.cpu_start_ns == 0 {
            // This runs on the walking thread, so it reads that thread's clock.
            self.cpu_start_ns = thread_cpu_ns().max(1);
        }
        Some(())
    }

    #[inline]
    fn entry(&mut self, _: DirRef<'_, ()>, found: &Found<'_>) -> Control {
        let bytes = found.meta.map_or(0, |meta| meta.bytes);
        // A set consists of regular files. Other entries in a user's tree count only in the digest.
        if found.kind == Kind::Regular {
            self.files += 1;
            self.bytes += bytes;
            self.links += found.meta.map_or(0, |meta| u64::from(meta.links > 1));
        }
        self.digest = self.digest.wrapping_add(xxh3_64_with_seed(found.name, bytes));
        Control::Continue
    }

    fn part(&mut self, _: DirRef<'_, ()>) {
        let cpu = thread_cpu_ns();
        self.cpu_ns = cpu - self.cpu_start_ns.min(cpu);
        self.until_ns = monotonic_ns();
    }
}

fn walked(order: &RunOrder) -> Result<Measured, String> {
    let Settings { walk, head } = settings(&order.plan)?;
    let _ = proc::raise_open_files_limit();
    let disk = ioloom_fileset::medium(&order.dir).ok().and_then(|m| m.block_device);
    let travel = head.then(|| Travel::start(&order.dir)).transpose()?;
    let roots: [PathBuf; 1] = [order.dir.clone()];
    let reads = || disk.as_ref().and_then(|name| Some(proc::disk_stat(name).ok()?.reads));
    let (usage, reads_before) = (Usage::now(disk.as_deref()), reads());
    let start_ns = monotonic_ns();
    let (tallies, report) = walk
        .run(&roots, |_| Tally { start_ns, until_ns: start_ns, ..Tally::default() })
        .map_err(refusal)?;
    let elapsed_ns = monotonic_ns() - start_ns;
    refuse_without_rings(&report)?;
    let used = Usage::now(disk.as_deref()).since(&usage);
    let reads = reads_before.zip(reads()).map(|(before, after)| after - before);
    let cpus = proc::system_stat().map_or(1, |stat| stat.cpus.len().max(1) as u32);
    let mut measured = Measured { elapsed_ns, ..Measured::default() };
    used.fill(&mut measured, cpus);
    fill(&mut measured, &tallies, &report);
    if let Some(reads) = reads {
        measured.extra.insert("device_reads".to_owned(), reads as f64);
    }
    if let Some(travel) = travel {
        measured.extra.extend(travel.stop()?);
    }
    let cores = proc::affinity_cpus().unwrap_or(cpus);
    measured.bottleneck = Some(limit(&measured, used.device_bytes, cores));
    Ok(measured)
}

/// Refuses a run of `uring` that queried names by `statx`: its times are not those of the method.
fn refuse_without_rings(report: &Report) -> Result<(), String> {
    match report.names_without_ring {
        0 => Ok(()),
        names => Err(format!(
            "{names} names were queried without io_uring, because a thread could not create a ring"
        )),
    }
}

/// Minimum busy share at which the CPUs are the bottleneck.
const BUSY: f64 = 0.8;

/// Determines the bottleneck: kernel work on names if the usable CPUs were busy, otherwise the
/// device if anything was read from it.
fn limit(m: &Measured, device_bytes: Option<u64>, cores: u32) -> Bottleneck {
    let word = |word: &str, sentence: String| Bottleneck {
        word: word.to_owned(),
        sentence,
        ..Bottleneck::default()
    };
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let threads = m.threads.iter().filter(|t| t.elapsed_ns > 0).count().max(1);
    let width = threads.min(cores.max(1) as usize);
    let cpu = (m.cpu_user_ns + m.cpu_kernel_ns) as f64;
    let share = (cpu / (m.elapsed_ns.max(1) as f64 * width as f64)).min(1.0);
    let kernel = percent(m.cpu_kernel_ns as f64 / cpu.max(1.0));
    let used = format!("{width} of the CPUs were {} busy with the walk", percent(share));
    if share >= BUSY {
        return word(
            "metadata",
            format!("{used}, {kernel} of that in the kernel for names and inodes"),
        );
    }
    let each = device_bytes.map(|bytes| bytes as f64 / m.files.max(1) as f64);
    match each {
        Some(each) if each >= 1.0 => {
            let words = format!("{used}; {each:.0} bytes per name were read from the device");
            word("device", words)
        }
        _ if m.others_cpu.is_some_and(|others| others > 0.1) => {
            let words = format!(
                "{used}, other programs used the CPUs, and nothing was read from the device"
            );
            word("unknown", words)
        }
        _ => word("unknown", format!("{used}, and almost nothing was read from the device")),
    }
}

fn fill(measured: &mut Measured, tallies: &[Tally], report: &Report) {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let digest = tallies.iter().fold(0u64, |all, t| all.wrapping_add(t.digest));
    measured.files = sum(|t| t.files);
    measured.bytes = sum(|t| t.bytes);
    measured.digest = format!("{digest:016x}");
    measured.errors = report.errors_count;
    let samples = report.errors.iter().take(ERROR_SAMPLES_MAX);
    measured.error_samples = samples.map(ToString::to_string).collect();
    measured.threads = tallies.iter().enumerate().map(|(n, tally)| thread_time(n, tally)).collect();
    let files = measured.files.max(1) as f64;
    let cpu_ns = (measured.cpu_user_ns + measured.cpu_kernel_ns) as f64;
    for (name, value) in [
        ("directories", report.directories as f64),
        ("threads", report.threads as f64),
        ("elapsed_per_file_ns", measured.elapsed_ns as f64 / files),
        ("cpu_per_file_ns", cpu_ns / files),
        ("names_of_shared_files", sum(|t| t.links) as f64),
    ] {
        measured.extra.insert(name.to_owned(), value);
    }
    if let Some(tables) = &report.tables {
        for (name, value) in [
            ("inodes_read", tables.read),
            ("files_asked_by_name", tables.asked),
            ("files_sampled", tables.sampled),
            ("files_changed_in_sample", tables.changed),
        ] {
            measured.extra.insert(name.to_owned(), value as f64);
        }
    }
    if let Some(workers) = report.ring_workers {
        measured.extra.insert("ring_workers".to_owned(), workers as f64);
    }
}

fn thread_time(number: usize, tally: &Tally) -> ThreadTime {
    let elapsed_ns = tally.until_ns - tally.start_ns;
    let on_cpu_ns = tally.cpu_ns.min(elapsed_ns);
    ThreadTime {
        name: format!("ioloom-walk-{number}"),
        role: "worker".to_owned(),
        elapsed_ns,
        on_cpu_ns,
        unknown_ns: elapsed_ns - on_cpu_ns,
        files: tally.files,
        ..ThreadTime::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_fileset::SetText;
    use ioloom_model::Outcome;

    fn ordered(text: &str, dir: &Path) -> (RunOrder, FileSetRealised) {
        let Ok(SetText::Spec(spec)) = text.parse() else { panic!("{text}") };
        let set = dir.join("set");
        let realised = FileSets.prepare("t", &spec, &set, 0, &|_, _| true).unwrap();
        let order = RunOrder {
            plan: "walk:statx/threads=1".parse().unwrap(),
            compute: Compute::None,
            dir: FileSets.items(&set),
            set: Some(spec),
            files_max: None,
            seed: 1,
            spans_max: 0,
            observe: ioloom_model::record::Observe::default(),
        };
        (order, realised)
    }

    fn measured(order: &RunOrder) -> Measured {
        match Walk.run(order).outcome {
            Outcome::Done { measured } => *measured,
            other => panic!("{}: {other:?}", order.plan),
        }
    }

    #[test]
    fn every_method_and_thread_count_sees_the_same_tree() {
        for shape in ["tree,links=4,order=shuffled", "deep", "flat"] {
            let dir = tempfile::tempdir().unwrap();
            let text = format!("count=1203,size=exp(mean=900),data=sparse,layout={shape}");
            let (order, realised) = ordered(&text, dir.path());
            let mut digests = std::collections::BTreeSet::new();
            for method in Method::ALL {
                // Each walk that uses inode tables first syncs the file system.
                let tables = method == Method::InodeTables;
                let counts = if tables { &["3"][..] } else { &["1", "3", "16", "auto"] };
                for threads in counts {
                    let text = format!("walk:{method}/threads={threads}");
                    let order = RunOrder { plan: text.parse().unwrap(), ..order.clone() };
                    if let Err(reason) = Walk.probe(&order.plan, &Compute::None, &order.dir) {
                        assert!(method == Method::InodeTables || method == Method::Uring);
                        assert!(reason.len() > 20, "{reason}");
                        continue;
                    }
                    let m = measured(&order);
                    assert_eq!(Walk.verify(&order, &realised, &m), [], "{text} on {shape}");
                    for t in &m.threads {
                        assert_eq!(t.on_cpu_ns + t.unknown_ns, t.elapsed_ns);
                    }
                    if method != Method::NamesOnly {
                        digests.insert(m.digest.clone());
                    }
                }
            }
            assert_eq!(digests.len(), 1, "{shape}");
            let gone = measured(&order);
            assert_eq!(Walk.verify(&order, &realised, &Measured { files: 9, ..gone }).len(), 1);
        }
    }

    #[test]
    fn a_run_that_lacked_rings_fails() {
        assert_eq!(refuse_without_rings(&Report::default()), Ok(()));
        let report = Report { names_without_ring: 7, ..Report::default() };
        assert!(refuse_without_rings(&report).unwrap_err().contains("7 names"));
    }

    #[test]
    fn the_bottleneck_is_what_was_busy() {
        let with = |cpu_ns: u64, device: Option<u64>, others: f64| {
            let one = ThreadTime { elapsed_ns: 1_000_000, ..ThreadTime::default() };
            let m = Measured {
                elapsed_ns: 1_000_000,
                cpu_kernel_ns: cpu_ns,
                files: 1000,
                threads: vec![one.clone(), one.clone(), one],
                others_cpu: Some(others),
                ..Measured::default()
            };
            limit(&m, device, 2)
        };
        for (cpu_ns, device, others, word) in [
            (1_900_000, Some(500_000), 0.0, "metadata"),
            (1_000_000, Some(500_000), 0.0, "device"),
            (1_000_000, Some(0), 0.0, "unknown"),
            (1_000_000, None, 0.5, "unknown"),
        ] {
            let found = with(cpu_ns, device, others);
            assert_eq!(found.word, word, "{}", found.sentence);
            assert!(found.sentence.contains("2 of the CPUs"), "{}", found.sentence);
        }
        assert!(with(1_000_000, None, 0.5).sentence.contains("other programs"));
    }

    #[test]
    fn wrong_plans_are_refused_before_anything_runs() {
        for (text, word) in [
            ("walk:stat/threads=1", "unknown method 'stat'"),
            ("walk:statx/threads=0", "1 to 256"),
            ("walk:statx/speed=9", "unknown setting 'speed'"),
            ("walk:statx/head=2", "head is 0 or 1"),
            ("read/threads:n=1", "not a walk"),
        ] {
            let error = Walk.explain(&text.parse().unwrap()).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(Walk.explain(&"walk:sweep/threads=8,head=1".parse().unwrap()).is_ok());
    }
}
