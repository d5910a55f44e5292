//! Copies from and to pipes and devices.

use crate::test_dir::TestDir;
use ioloom_copy::{
    Backup, BackupNames, CopyCounters, CopyError, CopyOptions, Durable, Mode, Report, Silent,
    Target, Verify, When, copy,
};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn one(from: &Path, to: &Path, options: &CopyOptions) -> Report {
    let (sources, target) = ([from.to_owned()], Target::As(to.to_owned()));
    copy(&sources, &target, options, &Silent, &CopyCounters::default()).unwrap()
}

fn messages(report: &Report) -> String {
    report.errors.iter().map(CopyError::to_string).collect::<Vec<_>>().join("\n")
}

fn pipe(at: PathBuf) -> PathBuf {
    assert!(Command::new("mkfifo").arg(&at).status().unwrap().success());
    at
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 % 251) as u8 | 1).collect()
}

/// A file as a block device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    /// Returns `None`, with a message, if this user may not.
    fn attach(image: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(Self(String::from_utf8(output.stdout).unwrap().trim().into()))
            }
            Ok(output) => {
                println!("skipped: losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(e) => {
                println!("skipped: losetup: {e}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Goal: a durable copy to a block device is on the device. Method: a loop device, which stays open, because
/// the last close would sync it.
#[test]
fn a_block_device_is_synced() {
    let place = TestDir::disk();
    let (from, image) = (place.path().join("from"), place.path().join("image"));
    let bytes = noise(1 << 20);
    fs::write(&from, &bytes).unwrap();
    File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let Some(device) = Loop::attach(&image) else { return };
    let _held = File::open(&device.0).unwrap();
    let durable = CopyOptions { durable: Durable::Full, ..CopyOptions::default() };
    let report = one(&from, &device.0, &durable);
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert!(fs::read(&image).unwrap()[..bytes.len()] == bytes, "it is only in memory");
    let verified = CopyOptions { verify: Verify::Device, ..CopyOptions::default() };
    let report = one(&from, &device.0, &verified);
    assert!(messages(&report).contains("are not read back"), "{}", messages(&report));
}

#[test]
fn what_a_pipe_or_device_cannot_do_is_an_error() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::write(at("from"), "text").unwrap();
    fs::write(at("old"), "old").unwrap();
    let (null, fifo) = (Path::new("/dev/null"), pipe(at("pipe")));
    let usual = CopyOptions::default();
    let synced = CopyOptions { durable: Durable::File, ..usual.clone() };
    let cached = CopyOptions { verify: Verify::Cache, ..usual.clone() };
    let shared = CopyOptions { reflink: When::Always, ..usual.clone() };
    let by = |mode| CopyOptions { mode: Some(mode), ..usual.clone() };
    let (from, old) = (at("from"), at("old"));
    for (from, to, options, text) in [
        (from.as_path(), null, &synced, "cannot sync '/dev/null': it is a pipe"),
        (&from, &fifo, &synced, "it is a pipe or a character device"),
        (&from, null, &cached, "cannot verify '/dev/null': pipes and devices"),
        (&from, null, &shared, "failed to clone '/dev/null' from"),
        (null, &old, &shared, "Invalid cross-device link"),
        (&fifo, &old, &shared, "Invalid argument"),
        (null, &old, &by(Mode::Reflink), "reflink cannot be used here"),
        (&from, null, &by(Mode::Direct), "direct cannot be used here"),
    ] {
        let report = one(from, to, options);
        assert_eq!(report.errors_count, 1, "{text}");
        assert!(messages(&report).contains(text), "{text}: {}", messages(&report));
        assert_eq!(fs::read(&old).unwrap(), b"old", "{text}");
    }
    let hashed = CopyOptions { verify: Verify::InFlight, ..usual.clone() };
    for options in [&hashed, &by(Mode::Buffered)] {
        let report = one(&from, null, options);
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
    }
}

/// Goal: bytes from a pipe are not lost silently. Method: a target without offsets, which cannot be written with
/// holes when the pipe has been read.
#[test]
fn a_pipe_is_not_read_again_for_a_target_without_offsets() {
    let place = TestDir::disk();
    let from = pipe(place.path().join("pipe"));
    let writer = {
        let from = from.clone();
        std::thread::spawn(move || fs::write(from, "lost").unwrap())
    };
    let options = CopyOptions { sparse: When::Always, ..CopyOptions::default() };
    let report = one(&from, Path::new("/proc/self/comm"), &options);
    writer.join().unwrap();
    assert!(messages(&report).contains("Illegal seek"), "{}", messages(&report));
}

/// Goal: zeros from a pipe become holes. Method: writes that end inside of blocks.
#[test]
fn zeros_from_a_pipe_become_holes() {
    let place = TestDir::disk();
    let (from, to) = (pipe(place.path().join("pipe")), place.path().join("to"));
    let zeros = vec![0; 300_000];
    let parts = [&noise(5000)[..], &zeros, &noise(100), &zeros, &noise(9), &zeros[..200_001]];
    let all = parts.concat();
    for sparse in [When::Always, When::Auto] {
        let written = all.clone();
        let writer = {
            let from = from.clone();
            std::thread::spawn(move || {
                let mut pipe = File::options().write(true).open(from).unwrap();
                written.chunks(3001).for_each(|part| pipe.write_all(part).unwrap());
            })
        };
        let options = CopyOptions { sparse, verify: Verify::Cache, ..CopyOptions::default() };
        let report = one(&from, &to, &options);
        writer.join().unwrap();
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        assert_eq!(report.bytes, all.len() as u64);
        assert!(fs::read(&to).unwrap() == all, "{sparse:?}");
        let has_holes = fs::metadata(&to).unwrap().blocks() * 512 < 100_000;
        assert_eq!(has_holes, sparse == When::Always, "{sparse:?}");
    }
}

/// Goal: a source that changes while it is written into a pipe is reported, and written once; what it grows by
/// goes into the pipe. Method: the reader changes it when it has read the first byte.
#[test]
fn a_source_that_changes_while_it_goes_into_a_pipe_is_reported() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), pipe(place.path().join("pipe")));
    for (strict_source, at, text) in
        [(false, 1 << 20, ""), (false, 5, "was modified"), (true, 1 << 20, "grew")]
    {
        let bytes = noise(1 << 20);
        fs::write(&from, &bytes).unwrap();
        let reader = {
            let (from, to) = (from.clone(), to.clone());
            std::thread::spawn(move || {
                let mut pipe = File::open(to).unwrap();
                pipe.read_exact(&mut [0]).unwrap();
                File::options().write(true).open(from).unwrap().write_all_at(b"more", at).unwrap();
                1 + pipe.read_to_end(&mut Vec::new()).unwrap()
            })
        };
        let report = one(&from, &to, &CopyOptions { strict_source, ..CopyOptions::default() });
        let grown = if at == 5 { 0 } else { 4 };
        assert_eq!(reader.join().unwrap(), bytes.len() + grown);
        let seen = messages(&report);
        assert_eq!(report.errors_count, u64::from(!text.is_empty()), "{seen}");
        assert!(seen.contains(text), "{seen}");
        assert_eq!(seen.starts_with("warning"), at == 5, "{seen}");
    }
}

/// Goal: what was read from a pipe is kept, also if the copy is interrupted or killed; nothing else can read it again.
/// Method: the writer looks at the target and cancels the copy when its data has arrived, and keeps the pipe open.
#[test]
fn an_interrupted_copy_of_a_pipe_keeps_its_data() {
    let place = TestDir::disk();
    let (from, to) = (pipe(place.path().join("pipe")), place.path().join("to"));
    let bytes = noise(5000);
    let backup = Some(Backup { names: BackupNames::Simple, suffix: "~".into() });
    let usual = CopyOptions::default;
    for (is_old, options) in [
        (false, usual()),
        (true, CopyOptions { remove_destination: true, ..usual() }),
        (true, CopyOptions { backup, ..usual() }),
    ] {
        if is_old {
            fs::write(&to, "old").unwrap();
        }
        let (cancel, progress) = (options.cancel.clone(), CopyCounters::default());
        let (sources, target) = ([from.clone()], Target::As(to.clone()));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // Open for both, it does not wait for a copy that has failed.
                let mut pipe = File::options().read(true).write(true).open(&from).unwrap();
                pipe.write_all(&bytes).unwrap();
                let begun = Instant::now();
                let arrived = || progress.bytes.load(Ordering::Relaxed) >= 5000;
                while !arrived() && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let seen = fs::read(&to);
                cancel.store(true, Ordering::Relaxed);
                (pipe, seen)
            });
            let report = copy(&sources, &target, &options, &Silent, &progress).unwrap();
            assert!(report.cancelled);
            assert_eq!((report.counts.files, report.bytes), (0, 0));
            let (_pipe, seen) = writer.join().unwrap();
            assert!(seen.unwrap() == bytes, "{options:?}: a kill would lose it");
        });
        assert!(fs::read(&to).unwrap() == bytes, "{options:?}");
        fs::remove_file(&to).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let kept: &[&str] = if options.backup.is_some() { &["pipe", "to~"] } else { &["pipe"] };
        assert_eq!(left, kept);
    }
    assert_eq!(fs::read(place.path().join("to~")).unwrap(), b"old");
}

/// Goal: an old file whose backup was made gets its name back if nothing was read. Method: an open pipe without data,
/// and an interrupt when the backup is there.
#[test]
fn an_interrupted_copy_of_a_pipe_without_data_undoes_the_backup() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    let (from, to) = (pipe(at("pipe")), at("to"));
    fs::write(&to, "old").unwrap();
    let _held = File::options().read(true).write(true).open(&from).unwrap();
    let backup = Some(Backup { names: BackupNames::Simple, suffix: "~".into() });
    let options = CopyOptions { backup, ..CopyOptions::default() };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let begun = Instant::now();
            while !at("to~").exists() && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let is_there = at("to~").exists();
            options.cancel.store(true, Ordering::Relaxed);
            is_there
        });
        assert!(one(&from, &to, &options).cancelled);
        assert!(writer.join().unwrap(), "no backup was made first");
    });
    assert_eq!((fs::read(&to).unwrap(), at("to~").exists()), (b"old".to_vec(), false));
}
