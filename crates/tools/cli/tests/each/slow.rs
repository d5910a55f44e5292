//! A file system with latency: enough opens and reads are in flight, whatever the input.

use crate::place::{Each, fresh};
use ioloom_delayfs::{DelayFs, Mounted, Options, available, content};
use std::io::{BufRead, BufReader};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Opens and reads that must be in flight at the same time.
const WANTED: u64 = 64;
/// More than are read until the engine has started its threads.
const FILES: usize = 2000;

/// Mounts files whose opens and reads are slow until enough of them overlap, or prints why not. This
/// process serves, and only the program reads.
fn slow(dir: &Path) -> Option<Mounted> {
    if let Err(reason) = available() {
        println!("skipped: {reason}");
        return None;
    }
    let mut options = Options::new(FILES, 4096);
    (options.open, options.read) = (Duration::from_millis(200), Duration::from_millis(200));
    options.until_overlap = NonZeroUsize::new(WANTED as usize);
    Some(DelayFs::mount(dir, options).unwrap())
}

/// Returns the combined digest by its definition. A name is a path below `root`.
fn digest(paths: &[PathBuf], root: &Path) -> String {
    let line = |(file, path): (usize, &PathBuf)| {
        let hash = format!("{:016x}  ", xxh3_64(&content(file, 0, 4096)));
        let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
        [hash.as_bytes(), name, b"\n"].concat()
    };
    let mut lines: Vec<Vec<u8>> = paths.iter().enumerate().map(line).collect();
    lines.sort();
    format!("{:016x}", xxh3_64(&lines.concat()))
}

#[test]
fn directories_and_lists_overlap_on_a_slow_file_system() {
    for zero in [None, Some(false), Some(true)] {
        let place = fresh();
        std::fs::create_dir(place.at("slow")).unwrap();
        let Some(mounted) = slow(&place.at("slow")) else { return };
        let paths = mounted.paths();
        let (json, root) = match zero {
            None => (place.each(&["slow", "--json"]), place.at("slow")),
            Some(zero) => {
                let end = if zero { b"\0" } else { b"\n" };
                let mut list = Vec::new();
                for path in &paths {
                    list.extend(path.strip_prefix(place.path()).unwrap().as_os_str().as_bytes());
                    list.extend(end);
                }
                let args = if zero { &["-0", "-", "--json"][..] } else { &["-", "--json"] };
                (place.each_of(args, &list), place.path().to_owned())
            }
        };
        let json = json.ended(0).json();
        assert_eq!(json["digest"], digest(&paths, &root), "{json}");
        let seen = mounted.counters();
        assert!(seen.opens_peak >= WANTED && seen.reads_peak >= WANTED, "{zero:?}: {seen}");
    }
}

/// Returns a run whose lines are not all printed within this time. The walk of one directory takes longer.
fn late_lines(within: Duration) -> Option<String> {
    let place = fresh();
    for name in ["t/one", "t/sub/two"] {
        place.write(name, name);
    }
    std::fs::create_dir(place.at("t/slow")).unwrap();
    let mut options = Options::new(4, 100);
    options.lookup = within + Duration::from_secs(1);
    let mounted = DelayFs::mount(&place.at("t/slow"), options).unwrap();
    let until = Instant::now() + within;
    let left = || until.saturating_duration_since(Instant::now());
    // A killed run ends when its lookup does, so all runs wait for theirs at the same time.
    let running =
        [&[][..], &["--json"], &["--read-order", "inode"], &["--exclude", "x"]].map(|more| {
            let mut command = place.ours(&["each", "t", "--per-file"]);
            let mut child = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
            let out = BufReader::new(child.stdout.take().unwrap());
            let (sender, lines) = channel();
            std::thread::spawn(move || out.lines().try_for_each(|line| sender.send(line.unwrap())));
            (more, child, lines)
        });
    let seen = running.map(|(more, mut child, lines)| {
        let seen = [lines.recv_timeout(left()), lines.recv_timeout(left())];
        child.kill().unwrap();
        (more, child, seen)
    });
    let mut late = None;
    for (more, mut child, seen) in seen {
        child.wait().unwrap();
        for name in ["t/one", "t/sub/two"] {
            let of = |line: &Result<String, _>| line.as_ref().is_ok_and(|l| l.contains(name));
            if !seen.iter().any(of) {
                late = Some(format!("{more:?}: {seen:?}"));
            }
        }
    }
    drop(mounted);
    late
}

#[test]
fn lines_of_files_do_not_wait_for_the_walk() {
    if let Err(reason) = available() {
        return println!("skipped: {reason}");
    }
    // A busy machine can delay the lines.
    if late_lines(Duration::from_secs(3)).is_some()
        && let Some(late) = late_lines(Duration::from_secs(60))
    {
        panic!("{late}");
    }
}
