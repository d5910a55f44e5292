//! Compares the counters with sar and captured trees, and injects failing calls.

#![allow(clippy::print_stdout, reason = "skipped tests print a notice")]

use ioloom_observe::counters::{
    Field, PagingRates, Reader, Record, Sample, Sampler, SamplerOptions, Scope, devices, memory,
    paging,
};
use ioloom_sys::fault;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Fault injection affects the whole process, so tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    fault::set("");
    alone
}

/// Writes, reads and evicts until stopped.
fn load(dir: &Path, stop: &AtomicBool) {
    let path = dir.join("load");
    while !stop.load(Ordering::Relaxed) {
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![1; 4 << 20]).unwrap();
        file.sync_data().unwrap();
        ioloom_sys::cache::evict_file(&file).unwrap();
        fs::read(&path).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the rows of one second of sar output below a header that begins with `first`, split into
/// words after the time.
fn rows<'a>(text: &'a str, first: &str) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines().take_while(|line| !line.starts_with("Average")) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        if line.trim().is_empty() {
            inside = false;
        } else if words.contains(&first) {
            inside = true;
        } else if inside {
            found.push(words);
        }
    }
    found
}

fn numbers(words: &[&str]) -> Vec<f64> {
    words.iter().filter_map(|word| word.parse().ok()).collect()
}

fn close(ours: f64, sar: f64, slack: f64) -> bool {
    (ours - sar).abs() <= slack + 0.05 * ours.abs().max(sar.abs())
}

/// Reports whether any interval at least about as long as sar's gives the same numbers. A busy
/// machine can make that of sar much longer than a second.
fn some_stretch(record: &Record, fits: impl Fn(&Sample, &Sample) -> bool) -> bool {
    let whole = |sample: &&Sample| sample.scope == Scope::All;
    let samples: Vec<&Sample> = record.samples.iter().filter(whole).collect();
    samples
        .iter()
        .enumerate()
        .any(|(i, a)| samples[i..].iter().any(|b| b.at_ns - a.at_ns >= 900_000_000 && fits(a, b)))
}

/// Samples a load while sar observes it for a second. Returns the samples and the output of sar, or
/// why sar did not run.
fn observed(dir: &Path) -> Result<(Record, String), String> {
    let sampler = Sampler::start(&SamplerOptions::default()).unwrap();
    let stop = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| load(dir, &stop));
        // The sampler alone reads everything too rarely to meet the moments at which sar reads.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sampler.sample();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut sar = Command::new("sar");
        let sar = sar.args(["-r", "-B", "-d", "-p", "1", "1"]).env("LC_ALL", "C");
        let ran = sar.env("S_COLORS", "never").output();
        stop.store(true, Ordering::Relaxed);
        ran
    });
    let record = sampler.stop();
    let ran = ran.map_err(|_| "sar (package sysstat) is not installed".to_owned())?;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let has_all = |words: &Vec<&str>| numbers(words).len() >= 8;
    if rows(&text, "pgpgin/s").first().is_some_and(has_all) {
        Ok((record, text))
    } else {
        Err(format!("unexpected output of sar: {text}"))
    }
}

/// Compares the samples with the output of sar; describes the first difference.
fn compared(record: &Record, text: &str) -> Result<(), String> {
    let sar = numbers(&rows(text, "pgpgin/s")[0]);
    let of = |r: &PagingRates| {
        Some([r.pgpgin_kib_per_s, r.pgpgout_kib_per_s?, r.fault_per_s?, r.pgfree_per_s?])
    };
    let theirs = [sar[0], sar[1], sar[2], sar[4]];
    let same = |a: &Sample, b: &Sample| {
        let ours = paging(a, b).as_ref().and_then(of);
        ours.is_some_and(|ours| ours.iter().zip(theirs).all(|(a, b)| close(*a, b, 2000.0)))
    };
    if !some_stretch(record, same) {
        return Err(format!("no interval matches sar: {sar:?}\n{text}"));
    }
    for words in rows(text, "DEV") {
        // The name is the first or the last word.
        let at = |name: &String| words.contains(&name.as_str());
        let Some(index) = record.devices.iter().position(at) else { continue };
        let sar = numbers(&words);
        let same = |a: &Sample, b: &Sample| {
            devices(a, b, index).is_some_and(|ours| {
                close(ours.tps, sar[0], 30.0)
                    && close(ours.rkb_per_s, sar[1], 2000.0)
                    && close(ours.wkb_per_s, sar[2], 2000.0)
            })
        };
        if !some_stretch(record, same) {
            return Err(format!("{}: {sar:?}\n{text}", record.devices[index]));
        }
    }
    let head = rows(text, "kbmemfree");
    let sar = numbers(&head[0]);
    let seen: Vec<_> = record.samples.iter().filter_map(memory).collect();
    let free = seen.iter().map(|m| m.kbmemfree as f64);
    let (low, high) = free.fold((f64::MAX, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
    if (low * 0.9..=high * 1.1).contains(&sar[0]) {
        Ok(())
    } else {
        Err(format!("{low} to {high} KiB are free, sar {}\n{text}", sar[0]))
    }
}

/// A pause of sar or of the sampler between two files changes the rates, so one observation of
/// several must match. A wrong column or unit matches in none.
#[test]
fn sar_reports_the_same() {
    let _alone = alone();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut differences = Vec::new();
    for _ in 0..20 {
        let (record, text) = match observed(dir.path()) {
            Ok(seen) => seen,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        match compared(&record, &text) {
            Ok(()) => return,
            Err(difference) => differences.push(difference),
        }
    }
    panic!("none of {} observations matches sar: {}", differences.len(), differences.join("\n"));
}

/// Writes the files of a small kernel.
fn captured(root: &Path, vmstat: &str) {
    for dir in ["proc/pressure", "sys/block/sda", "proc/7"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::write(root.join("proc/vmstat"), vmstat).unwrap();
    fs::write(
        root.join("proc/meminfo"),
        "MemTotal: 1000 kB\nMemAvailable: 250 kB\nMemFree: 7 kB\n",
    )
    .unwrap();
    fs::write(root.join("proc/pressure/io"), "some avg10=0.00 total=77\n").unwrap();
    fs::write(root.join("sys/block/sda/stat"), "1 0 2 0 0 0 0 0 0 0 0\n").unwrap();
    let io = "rchar: 1\nwchar: 1\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 8192\n\
              cancelled_write_bytes: 0\n";
    fs::write(root.join("proc/7/io"), io).unwrap();
}

/// Both definitions, checked against output of a sysstat version with the older one; slab is the
/// remainder.
#[test]
fn used_memory_follows_both_definitions_of_sar() {
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    captured(temp.path(), "nr_dirty 5\n");
    let text = "MemTotal: 7729020 kB\nMemFree: 1909668 kB\nMemAvailable: 4768680 kB\n\
                Buffers: 80212 kB\nCached: 3668120 kB\nActive: 1929640 kB\n\
                Inactive: 2868344 kB\nDirty: 100 kB\nCommitted_AS: 9387676 kB\n";
    let of = |text: &str| {
        fs::write(temp.path().join("proc/meminfo"), text).unwrap();
        memory(&Reader::open(temp.path()).read(Scope::All)).unwrap()
    };
    let levels = of(&format!("{text}Slab: 220308 kB\n"));
    assert_eq!(levels.kbmemused, 2_960_340);
    assert_eq!(levels.kbmemused_before_12_7_8, Some(1_850_712));
    assert_eq!(of(text).kbmemused_before_12_7_8, None);
}

#[test]
fn a_captured_tree_is_read_and_missing_counters_are_unknown() {
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    captured(temp.path(), "nr_dirty 5\npgpgin 100\n");
    let mut reader = Reader::open(temp.path());
    reader.follow(&[7, 8]);
    let sample = reader.read(Scope::All);
    assert_eq!(sample.get(Field::Dirty), Some(5));
    assert_eq!(sample.get(Field::PageIn), Some(100));
    assert_eq!(sample.get(Field::PageOut), None, "this kernel does not report it");
    assert_eq!(sample.get(Field::MemAvailable), Some(250));
    assert_eq!((sample.get(Field::IoSome), sample.get(Field::IoFull)), (Some(77), None));
    assert_eq!(sample.get(Field::TaskWritten), Some(8192));
    assert_eq!(sample.disk(0).unwrap().requests[0], 1);
    assert_eq!(reader.devices(), ["sda"]);
    fs::create_dir_all(temp.path().join("sys/block/sdb")).unwrap();
    fs::write(temp.path().join("sys/block/sdb/stat"), "0 0 0 0 0 0 0 0 0 0 0\n").unwrap();
    reader.watch_device("sdb");
    assert_eq!(reader.devices(), ["sdb", "sda"]);
    assert_eq!(reader.read(Scope::All).disk(1).unwrap().requests[0], 1);
    assert_eq!(memory(&sample), None, "some columns are unknown");
    assert_eq!(reader.missing().len(), 2, "{:?}", reader.missing());
    // A counter that was not read is unknown rather than the previous value.
    let paging = reader.read(Scope::Paging);
    assert_eq!((paging.get(Field::PageIn), paging.scope), (Some(100), Scope::Paging));
    assert!(paging.disk(0).is_none() && paging.get(Field::TaskWritten).is_none());
    assert!(paging.get(Field::MemTotal).is_none() && paging.get(Field::IoSome).is_none());
    // The I/O of a process remains in the sum after the process exits.
    fs::write(temp.path().join("proc/7/io"), "").unwrap();
    assert_eq!(reader.read(Scope::All).get(Field::TaskWritten), Some(8192));
}

#[test]
fn a_text_longer_than_a_page_is_read_whole() {
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    let filler: String = (0..900).map(|i| format!("filler_{i} {i}\n")).collect();
    let vmstat =
        |paged: u64, freed: u64| format!("{filler}pgpgin {paged}\n{filler}pgfree {freed}\n");
    captured(temp.path(), &vmstat(41, 5));
    let mut reader = Reader::open(temp.path());
    let of = |sample: Sample| (sample.get(Field::PageIn), sample.get(Field::Freed));
    assert_eq!(of(reader.read(Scope::Paging)), (Some(41), None));
    assert_eq!(of(reader.read(Scope::All)), (Some(41), Some(5)));
    fs::write(temp.path().join("proc/vmstat"), vmstat(42, 1 << 40)).unwrap();
    assert_eq!(of(reader.read(Scope::Paging)), (Some(42), None));
    assert_eq!(of(reader.read(Scope::All)), (Some(42), Some(1 << 40)));
    assert_eq!(of(reader.read(Scope::All)), (Some(42), Some(1 << 40)));
    // A layout change is detected by either scope.
    fs::write(temp.path().join("proc/vmstat"), "pgfree 7\npgpgin 43\n").unwrap();
    assert_eq!(of(reader.read(Scope::Paging)), (Some(43), None));
    assert_eq!(of(reader.read(Scope::All)), (Some(43), Some(7)));
}

#[test]
fn an_empty_tree_has_no_counters() {
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    let mut reader = Reader::open(temp.path());
    let sample = reader.read(Scope::All);
    assert!(Field::ALL.iter().all(|field| sample.get(*field).is_none()));
    assert!(reader.missing().iter().all(|line| line.contains("proc") || line.contains("sys")));
    let dir = temp.path().join("sys/block");
    let absent = format!("cannot read directory '{}': No such file or directory", dir.display());
    assert!(reader.missing().contains(&absent), "{:?}", reader.missing());
    fs::create_dir_all(&dir).unwrap();
    let without = format!("no block devices in '{}'", dir.display());
    let reader_without = Reader::open(temp.path());
    assert!(reader_without.missing().contains(&without), "{:?}", reader_without.missing());
    assert_eq!(paging(&sample, &reader.read(Scope::All)), None);
}

#[test]
fn each_failing_call_leaves_a_gap() {
    let _alone = alone();
    let temp = tempfile::tempdir().unwrap();
    captured(temp.path(), "pgpgin 100\n");
    let known = |sample: &Sample| Field::ALL.iter().filter(|f| sample.get(**f).is_some()).count();
    let all = {
        let mut reader = Reader::open(temp.path());
        reader.follow(&[7]);
        known(&reader.read(Scope::All))
    };
    for op in ["open", "pread"] {
        for n in 1..12 {
            fault::set("");
            let mut reader = Reader::open(temp.path());
            if op == "open" {
                fault::set(&format!("open:{n}:5"));
                reader = Reader::open(temp.path());
                reader.follow(&[7]);
            } else {
                reader.follow(&[7]);
                fault::set(&format!("pread:{n}:5"));
            }
            let first = reader.read(Scope::All);
            fault::set("");
            let seen = known(&first);
            assert!(seen <= all, "{op} {n}");
            // A failed read is a gap in that sample, except for a process, which then counts as
            // exited.
            if op == "pread" {
                assert!(known(&reader.read(Scope::All)) + 3 >= all, "{op} {n}");
            }
        }
    }
}
