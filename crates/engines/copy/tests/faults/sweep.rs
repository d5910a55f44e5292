//! Every call of a copy fails once: the list of calls comes from the kernel's side (`strace`), so a
//! call that does not pass the fault seam fails the test instead of being left out.

use crate::{OPERATIONS, alone};
use ioloom_copy::{CopyCounters, CopyOptions, Follow, Preserve, Report, Silent, Target, copy};
use ioloom_sys::fault;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Marks the begin and the end of the copy in the trace.
const BEGIN: &str = "/ioloom-sweep-begin";
const END: &str = "/ioloom-sweep-end";

/// The environment variable with the directory in which the child works.
const PLACE: &str = "IOLOOM_SWEEP_PLACE";

/// System calls on files, and the operations of the seam that make them.
const CALLS: &[(&str, &[&str])] = &[
    ("open", &["open", "openat", "create", "tmpfile"]),
    ("openat", &["open", "openat", "create", "tmpfile"]),
    ("openat2", &["openat2"]),
    ("close", &["close"]),
    ("statx", &["statx"]),
    ("getdents64", &["getdents"]),
    ("pread64", &["pread"]),
    ("read", &["read"]),
    ("pwrite64", &["pwrite"]),
    ("linkat", &["linkat"]),
    ("renameat", &["renameat"]),
    ("renameat2", &["renameat"]),
    ("mkdirat", &["mkdirat"]),
    ("symlinkat", &["symlinkat"]),
    ("readlinkat", &["readlinkat"]),
    ("mknodat", &["mknodat"]),
    ("unlinkat", &["unlinkat"]),
    ("fallocate", &["fallocate"]),
    ("ftruncate", &["ftruncate"]),
    ("lseek", &["lseek"]),
    ("fchmod", &["fchmod"]),
    ("fchmodat", &["fchmodat"]),
    ("fchown", &["fchown"]),
    ("fchownat", &["fchownat"]),
    ("utimensat", &["futimens", "utimensat"]),
    ("flistxattr", &["listxattr"]),
    ("llistxattr", &["listxattr"]),
    ("fgetxattr", &["getxattr"]),
    ("lgetxattr", &["getxattr"]),
    ("fsetxattr", &["setxattr"]),
    ("lsetxattr", &["setxattr"]),
    ("fremovexattr", &["removexattr"]),
    ("lremovexattr", &["removexattr"]),
    ("ioctl", &["ficlone", "getflags"]),
    ("fsync", &["fsync"]),
    ("fdatasync", &["fdatasync"]),
    ("syncfs", &["syncfs"]),
    ("fstatfs", &["fstatfs"]),
    ("flock", &["flock"]),
    ("copy_file_range", &["copy_file_range"]),
];

/// Calls on files that a copy must not make except through those above.
const OTHERS: &[&str] = &[
    "creat",
    "stat",
    "lstat",
    "fstat",
    "newfstatat",
    "rename",
    "link",
    "unlink",
    "symlink",
    "mkdir",
    "rmdir",
    "truncate",
    "chmod",
    "chown",
    "lchown",
    "mknod",
    "sendfile",
    "splice",
    "write",
    "readv",
    "writev",
    "dup",
    "dup2",
    "dup3",
];

fn make(root: &Path) {
    fs::create_dir_all(root.join("dir/empty")).unwrap();
    fs::write(root.join("small"), "small").unwrap();
    fs::write(root.join("dir/middle"), vec![7; 300_000]).unwrap();
    fs::write(root.join("dir/none"), "").unwrap();
    fs::hard_link(root.join("small"), root.join("dir/again")).unwrap();
    symlink("small", root.join("link")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let _ = rustix::fs::setxattr(root.join("small"), c"user.test", b"value", flags);
}

/// Fills the target of a merge: a file that is replaced, one that is written in place through a
/// link, and a directory.
fn make_old(target: &Path, outside: &Path) {
    fs::create_dir_all(target.join("dir")).unwrap();
    fs::write(target.join("dir/middle"), "old").unwrap();
    symlink(outside.join("followed"), target.join("dir/none")).unwrap();
    fs::write(outside.join("followed"), "old").unwrap();
}

fn options() -> CopyOptions {
    CopyOptions {
        recursive: true,
        follow: Follow::Never,
        preserve: Preserve::ALL,
        threads: Some(1),
        ..CopyOptions::default()
    }
}

fn run(place: &Path) -> Option<Report> {
    let target = Target::As(place.join("target"));
    let sources = [place.join("source")];
    copy(&sources, &target, &options(), &Silent, &CopyCounters::default()).ok()
}

/// Prepares a place; returns it.
fn prepare(place: &Path, merges: bool) {
    for dir in ["target", "outside"] {
        fs::remove_dir_all(place.join(dir)).ok();
    }
    fs::create_dir(place.join("outside")).unwrap();
    fs::write(place.join("outside/mine"), "mine").unwrap();
    if merges {
        make_old(&place.join("target"), &place.join("outside"));
    }
}

/// Describes every entry: type, size, mode, links, content.
fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = match meta.file_type() {
                kind if kind.is_file() => format!("{:?}", blake3::hash(&fs::read(&path).unwrap())),
                kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                _ => String::new(),
            };
            let size = if meta.is_dir() { 0 } else { meta.len() };
            let text = format!("{:o} {size} {} {content}", meta.mode(), meta.mtime());
            all.insert(path.strip_prefix(root).unwrap().to_owned(), text);
            if meta.is_dir() {
                dirs.push(path);
            }
        }
    }
    all
}

/// Returns the entries of the source that are not in the target, following links there.
fn missing(place: &Path) -> Vec<PathBuf> {
    let (source, target) = (describe(&place.join("source")), describe(&place.join("target")));
    let differs = |(path, text): (&PathBuf, &String)| {
        let content = |root: &str| fs::read(place.join(root).join(path)).ok();
        let same = target.get(path) == Some(text)
            || (place.join("target").join(path).is_symlink()
                && !place.join("source").join(path).is_symlink()
                && content("target") == content("source"));
        (!same).then(|| path.clone())
    };
    source.iter().filter_map(differs).collect()
}

/// Checks one round: `why` names the call that failed.
fn check(place: &Path, report: Option<&Report>, why: &str) {
    let missing = missing(place);
    let Some(report) = report else { return };
    let messages: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
    let exit = i32::from(report.errors_count > 0);
    assert!(exit == 1 || missing.is_empty(), "{why}: exit 0, but these differ: {missing:?}");
    for path in missing {
        // Another name of the same file stands for it.
        let inode = |name: &Path| fs::metadata(place.join("source").join(name)).map(|m| m.ino());
        let all = describe(&place.join("source"));
        let same = all.keys().filter(|name| inode(name).ok() == inode(&path).ok());
        let mut names = same.flat_map(|name| name.ancestors()).chain(path.ancestors());
        let named = names.any(|at| {
            let name = at.to_string_lossy();
            let ends = |end: &str| messages.iter().any(|text| text.contains(end));
            if name.is_empty() {
                ends("/source'") || ends("/target'")
            } else {
                ends(&format!("/{name}'"))
            }
        });
        assert!(named, "{why}: {} is missing and not named in {messages:?}", path.display());
    }
    let mine = fs::read(place.join("outside/mine")).unwrap();
    assert_eq!(mine, b"mine", "{why}: something outside the target changed");
    let left = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> =
        left.filter(|n| !["source", "target", "outside"].map(Into::into).contains(n)).collect();
    assert!(
        left.is_empty()
            || why.starts_with("unlinkat")
            || why.starts_with("openat")
            || why.starts_with("getdents"),
        "{why}: {left:?} was left behind"
    );
    for name in left {
        fs::remove_dir_all(place.join(name)).unwrap();
    }
}

#[test]
fn every_call_fails_once_and_every_missing_path_is_named() {
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = place.path();
    make(&place.join("source"));
    let mut rounds = 0;
    for merges in [false, true] {
        prepare(place, merges);
        fault::set("");
        let report = run(place).unwrap();
        assert_eq!(report.errors_count, 0, "{:?}", report.errors);
        assert_eq!(missing(place), Vec::<PathBuf>::new());
        let called: HashMap<_, _> =
            OPERATIONS.iter().map(|op| (*op, fault::calls_of(op))).collect();
        for (op, calls) in called {
            for n in 1..=calls {
                prepare(place, merges);
                fault::set(&format!("{op}:{n}:5"));
                let report = run(place);
                fault::set("");
                check(place, report.as_ref(), &format!("{op}:{n} merges={merges}"));
                rounds += 1;
            }
        }
    }
    println!("{rounds} calls failed");
    assert!(rounds > 150, "only {rounds} calls were made");
}

/// The child of the next test: copies between the two marks and prints how many calls the seam saw.
#[test]
fn child_of_the_trace() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let _alone = alone();
    let place = PathBuf::from(place);
    fault::set("");
    let _ = fs::metadata(BEGIN);
    let report = run(&place).unwrap();
    let _ = fs::metadata(END);
    assert_eq!(report.errors_count, 0, "{:?}", report.errors);
    for op in OPERATIONS {
        println!("seam {op} {}", fault::calls_of(op));
    }
}

#[test]
fn every_call_that_the_kernel_sees_passes_the_seam() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = place.path();
    if Command::new("strace").arg("-V").output().is_err() {
        return println!("skipped: strace is not installed");
    }
    make(&place.join("source"));
    for merges in [false, true] {
        prepare(place, merges);
        let trace = place.join("outside/trace");
        let output = Command::new("strace")
            .args(["-f", "-y", "-s", "0", "-o"])
            .arg(&trace)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "sweep::child_of_the_trace", "--nocapture", "--test-threads=1"])
            .env(PLACE, place)
            .output()
            .unwrap();
        let text = fs::read_to_string(&trace).unwrap_or_default();
        if text.is_empty() {
            return println!("skipped: strace: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{printed}");
        compare(&text, &printed);
    }
}

/// Compares the calls in a trace with those that the seam counted.
fn compare(trace: &str, printed: &str) {
    let mut seam: HashMap<&str, u64> = HashMap::new();
    for line in printed.lines() {
        if let Some((op, count)) = line.split_once("seam ").and_then(|(_, l)| l.split_once(' ')) {
            seam.insert(op, count.trim().parse().unwrap());
        }
    }
    let copy = trace.lines().skip_while(|l| !l.contains(BEGIN)).take_while(|l| !l.contains(END));
    let mut kernel: HashMap<&str, u64> = HashMap::new();
    for line in copy.skip(1) {
        let call = line.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
        let name = call.split('(').next().unwrap_or_default();
        // Facts about this process and the machine are read as text, by one operation each.
        if call.contains("/proc/") && !name.contains("xattr") && name != "linkat"
            || call.contains("anon_inode:")
            || call.contains("</sys/")
            || call.contains("\"/sys/")
            || call.starts_with("<...")
        {
            continue;
        }
        assert!(!OTHERS.contains(&name), "a call that does not pass the seam: {call}");
        *kernel.entry(name).or_default() += 1;
    }
    for (call, _) in CALLS {
        let names = CALLS.iter().filter(|(name, _)| {
            let ops = |of: &str| CALLS.iter().find(|(name, _)| *name == of).unwrap().1;
            ops(name) == ops(call)
        });
        let made: u64 = names.map(|(name, _)| kernel.get(name).copied().unwrap_or(0)).sum();
        let ops = CALLS.iter().find(|(name, _)| name == call).unwrap().1;
        let passed: u64 = ops.iter().map(|op| seam.get(op).copied().unwrap_or(0)).sum();
        assert!(made <= passed, "the kernel saw {made} calls of {call}, the seam {passed}");
    }
}

/// Goal: the calls of a copy grow with the number of directories, not with its square.
#[test]
fn depth_costs_no_more_calls_per_directory() {
    let _alone = alone();
    let calls = |depth: usize| {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut at = place.path().join("source");
        for _ in 0..depth {
            at.push("d");
        }
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("file"), "text").unwrap();
        fault::set("");
        let options = CopyOptions { threads: Some(2), ..options() };
        let target = Target::As(place.path().join("target"));
        let sources = [place.path().join("source")];
        let report = copy(&sources, &target, &options, &Silent, &CopyCounters::default()).unwrap();
        assert_eq!(report.errors_count, 0, "{:?}", report.errors);
        assert_eq!(report.counts.directories, depth as u64 + 1);
        ["open", "openat", "openat2", "statx"].iter().map(|op| fault::calls_of(op)).sum::<u64>()
    };
    let (short, long) = (calls(300), calls(900));
    println!("300 levels: {short} calls, 900 levels: {long} calls");
    assert!(long < 4 * short, "300 levels: {short} calls, 900 levels: {long} calls");
}
