//! `ioloom cache` from end to end.

#![allow(clippy::print_stdout, reason = "skipped tests print why")]

use ioloom_delayfs::{DelayFs, Options, available};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ioloom");

/// A directory on the file system of the build, which is rarely an in-memory one.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: impl AsRef<Path>, bytes: usize) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![7; bytes]).unwrap();
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.path()).arg("cache").args(args).env("COLUMNS", "80");
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        let output = self.run(args);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }

    /// Returns whether pages can be evicted and counted here.
    fn works(&self) -> bool {
        self.write("probe", 1);
        let seen = self.json(&["status", "--json", "probe"]);
        fs::remove_file(self.path().join("probe")).unwrap();
        let memory = ioloom_sys::cache::is_memory_backed(self.path()).unwrap();
        let works = !memory && seen["files"][0]["source"] == "cachestat";
        if !works {
            println!("skipped: the build tree is in memory or cachestat is missing");
        }
        works
    }
}

/// Goal: the pages of an overlay, which belong to the files of its layers, are unknown instead of absent, and are
/// evicted nevertheless.
#[test]
fn pages_of_an_overlay_are_unknown() {
    let tree = Tree::new();
    if !tree.works() {
        return;
    }
    tree.write("lower/f", 1 << 20);
    let script = r#"
mkdir upper work over && mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work over || exit 99
sync lower/f; cat over/f > read
"$0" cache status --json over/f; "$0" cache drop over/f; echo "drop $?"
# Reclaim can hold clean pages for a while.
for i in 1 2 3 4 5 6 7 8 9 10; do
"$0" cache status --json lower/f > state; grep -q '"resident_pages": 0,' state && break
sleep 1; "$0" cache drop over/f > again
done
cat state
"#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, PROGRAM]).current_dir(tree.path());
    let ran = command.stdin(Stdio::null()).output();
    let is_mounted = |ran: &Output| ran.status.success() || text(&ran.stdout).contains("drop ");
    let Some(ran) = ran.ok().filter(is_mounted) else {
        println!("skipped: an overlay cannot be mounted here");
        return;
    };
    let out = text(&ran.stdout);
    assert!(out.contains("\"unknown_files\": 1,"), "{out}");
    assert!(out.contains("page cache state cannot be queried") && out.contains("drop 1"), "{out}");
    let lower = out.rsplit("\"command\": \"cache\"").next().unwrap();
    assert!(lower.contains("\"resident_pages\": 0,"), "{out}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn drop_evicts_and_warm_loads() {
    let tree = Tree::new();
    if !tree.works() {
        return;
    }
    tree.write("t/a", 8192);
    tree.write("t/sub/b", 1 << 20);
    let dropped = tree.run(&["drop", "t"]);
    assert_eq!(dropped.status.code(), Some(0), "{dropped:?}");
    let seen = tree.json(&["status", "--json", "-d", "1", "--map", "t"]);
    assert_eq!(seen["schema"], 1);
    assert_eq!(seen["total"]["resident_pages"], 0);
    assert_eq!(seen["total"]["files"], 2);
    assert_eq!(seen["directories"][0]["path"], "t/sub");
    assert_eq!(seen["files"].as_array().unwrap().len(), 2);
    let shown = (0..20).find_map(|_| warmed(&tree)).expect("what was loaded stays in memory");
    for shown in shown {
        assert!(shown.contains("1.00 MiB"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }
}

/// Loads a tree and returns what three commands print about it. Returns `None` if not all of it is in memory: other
/// processes can drop the caches of the machine at any time.
fn warmed(tree: &Tree) -> Option<[String; 3]> {
    let warm = tree.run(&["warm", "t"]);
    assert_eq!(warm.status.code(), Some(0), "{warm:?}");
    let seen = tree.json(&["status", "--json", "--map", "t"]);
    let map = seen["files"][0]["resident_map"].as_array().unwrap();
    assert_eq!(map.len(), 100, "{map:?}");
    let is_whole = seen["total"]["resident_pages"] == seen["total"]["pages"]
        && map.iter().all(|share| share == 1.0);
    let commands = [&["status", "t"][..], &["status", "--map", "t/sub/b"], &["warm", "-a", "t"]];
    let shown = commands.map(|args| {
        let shown = tree.run(args);
        assert_eq!(shown.status.code(), Some(0), "{shown:?}");
        text(&shown.stdout)
    });
    (is_whole && shown.iter().all(|text| text.contains("100 %"))).then_some(shown)
}

#[test]
fn a_closed_pipe_changes_neither_the_work_nor_the_exit_code() {
    let tree = Tree::new();
    if !tree.works() {
        return;
    }
    (0..50).for_each(|i| tree.write(format!("t/{i}"), 4096));
    fs::write(tree.path().join("list"), "missing\n").unwrap();
    let unread = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(PROGRAM);
        command.current_dir(tree.path()).arg("cache").args(args).stdout(writer);
        command.stdin(fs::File::open(tree.path().join("list")).unwrap());
        command.output().unwrap().status.code()
    };
    assert_eq!(unread(&["drop", "-a", "--threads", "1", "t"]), Some(0));
    let seen = tree.json(&["status", "--json", "t"]);
    assert_eq!(seen["total"]["resident_pages"], 0);
    assert_eq!(unread(&["drop", "-"]), Some(1));
    assert_eq!(unread(&["status", "-a", "--threads", "1", "t"]), Some(0));
    // One of the two comes before the first file.
    let missing = ["status", "-a", "--threads", "1", "missing", "t", "missing too"];
    assert_eq!(unread(&missing), Some(1));
}

#[test]
fn lists_come_on_standard_input() {
    let tree = Tree::new();
    tree.write("a\nb", 5000);
    tree.write("c", 5000);
    let mut child = Command::new(PROGRAM)
        .current_dir(tree.path())
        .args(["cache", "status", "-0", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a\nb\0c\0").unwrap();
    let output = child.wait_with_output().unwrap();
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&seen["total"]["files"], &seen["total"]["pages"]), (&2.into(), &4.into()));
    assert!(seen["roots"][0]["path"].is_null());
}

#[test]
fn one_signal_ends_the_wait_for_a_list() {
    let tree = Tree::new();
    tree.write("f", 10);
    let mut child = Command::new(PROGRAM)
        .current_dir(tree.path())
        .args(["cache", "warm", "-a", "--svg", "map.svg", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut list = child.stdin.take().unwrap();
    list.write_all(b"f\n").unwrap();
    // The program catches signals before it prints the first file.
    let mut printed = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut printed).unwrap();
    // Every signal that is handled gives the code of an interrupt.
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    // The list is still open. Without an end, the program is killed and has no exit code.
    for _ in 0..600 {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(text(&output.stderr).contains("interrupted"), "{output:?}");
    assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 1, "no part of a picture remains");
    drop(list);
}

/// The open of a file takes until there is a second one.
#[test]
fn one_interrupt_ends_the_wait_for_a_file_system() {
    if let Err(reason) = available() {
        return println!("skipped: {reason}");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(1, 4096);
    (options.open, options.until_overlap) = (Duration::from_secs(600), NonZeroUsize::new(2));
    let mounted = DelayFs::mount(dir.path(), options).unwrap();
    let file = mounted.paths().remove(0);
    let mut command = Command::new(PROGRAM);
    command.args(["cache", "status"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    while mounted.counters().opens_peak == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it opens the file");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let (sender, first) = channel();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        lines.map_while(Result::ok).for_each(|line| {
            let _ = sender.send(line);
        })
    });
    // A minute guards against a hang.
    let line = first.recv_timeout(Duration::from_secs(60));
    // The process ends when its open does.
    assert!(Command::new("cat").arg(&file).output().unwrap().status.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    reader.join().unwrap();
    let line = line.unwrap_or_default();
    assert!(line.contains("a file system does not answer"), "{line}");
}

#[test]
fn names_that_are_not_utf8_are_exact() {
    let tree = Tree::new();
    tree.write(std::ffi::OsStr::from_bytes(b"odd\xff\x1b[31m"), 10);
    let seen = tree.json(&["status", "--json", "."]);
    assert_eq!(seen["files"][0]["path_hex"], "2e2f6f6464ff1b5b33316d");
    let shown = tree.run(&["status", "-a", "."]);
    assert!(!shown.stdout.contains(&0x1b), "{shown:?}");
}

#[test]
fn a_picture_is_written() {
    let tree = Tree::new();
    tree.write("f", 100_000);
    let output = tree.run(&["status", "--svg", "map.svg", "f"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let picture = fs::read_to_string(tree.path().join("map.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("97.7 KiB"), "{picture}");
    // A full device fails after the report, which is not lost, and a wrong path before the work.
    for (file, shown) in [("/dev/full", true), ("f/map.svg", false)] {
        let output = tree.run(&["status", "-a", "--svg", file, "f"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(text(&output.stdout).contains("97.7 KiB"), shown, "{output:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{output:?}");
    }
}

#[test]
fn a_picture_in_the_tree_is_not_counted_before_it_is_written() {
    let tree = Tree::new();
    tree.write("f", 10);
    let seen = tree.json(&["status", "--svg", "map.svg", "--json", "."]);
    assert_eq!(seen["total"]["files"], 1, "{seen}");
    assert!(tree.path().join("map.svg").exists());
    // Wrong operands are an error before a directory is created.
    let output = tree.run(&["status", "--svg", "new/map.svg", "f", "-"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!tree.path().join("new").exists());
}

#[test]
fn trouble_is_one_clear_error() {
    let tree = Tree::new();
    tree.write("f", 10);
    for (args, code, word) in [
        (&["status", "absent"][..], 1, "absent"),
        (&["status", "f", "-"], 2, "cannot be combined"),
        (&["status", "-0", "f"], 2, "-0"),
        (&["status", "--threads", "0", "f"], 2, "threads"),
        (&["status", "/dev/null"], 1, "/dev/null"),
    ] {
        let output = tree.run(args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(word) && !err.contains("panicked"), "{args:?}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(output.stdout.is_empty(), "no row next to the error: {}", text(&output.stdout));
    }
}

#[test]
fn other_users_get_estimates_and_no_wrong_numbers() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: needs root, to run as another user");
        return;
    }
    // A directory that every user can enter.
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = place.path().join("ioloom");
    // Another process copies the program, so that no child of another test has it open for writing.
    assert!(Command::new("cp").arg(PROGRAM).arg(&program).status().unwrap().success());
    let theirs = place.path().join("theirs");
    fs::write(&theirs, vec![1; 100 * 4096]).unwrap();
    let dropped = Command::new(&program).args(["cache", "drop"]).arg(&theirs).output().unwrap();
    assert!(dropped.status.success(), "{}", text(&dropped.stderr));
    let mut command = Command::new(&program);
    command.args(["cache", "status", "--json"]).arg(&theirs).uid(65_534).gid(65_534);
    let output = command.current_dir("/").stdin(Stdio::null()).output().unwrap();
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    let seen = &seen["files"][0];
    assert_ne!(seen["source"], "cachestat", "{seen}");
    assert!(seen["dirty_pages"].is_null(), "{seen}");
    // mincore would report 100.
    let cold = seen["source"] == "pages" && seen["resident_pages"] == 0;
    let memory = ioloom_sys::cache::is_memory_backed(place.path()).unwrap();
    assert!(cold || seen["source"] == "unknown" || memory, "{seen}");
}
