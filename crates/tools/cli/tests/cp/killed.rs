//! Kills and power failures during a copy: the target must be absent, old, or complete and correct.

use crate::{ioloom, place};
use ioloom_testbed::Disk;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Default number of kills per test run; override with `IOLOOM_KILLS`.
const KILLS: u32 = 24;

/// Power failures per test run.
const CUTS: u32 = 6;

fn kills(usual: u32) -> u32 {
    std::env::var("IOLOOM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = Vec::with_capacity(bytes);
    while out.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

const FILES: usize = 150;

fn make(source: &Path) {
    fs::create_dir_all(source.join("many")).unwrap();
    for number in 0..FILES {
        fs::write(source.join(format!("many/{number}")), content(number as u64, 300 * number))
            .unwrap();
    }
    fs::write(source.join("big"), content(999, 20 << 20)).unwrap();
}

fn all_names() -> Vec<String> {
    let many = (0..FILES).map(|number| format!("many/{number}"));
    many.chain([String::from("big")]).collect()
}

/// Returns whether the tree at `target` is complete. Panics if it is partial.
fn whole(source: &Path, target: &Path) -> bool {
    let same = |name: &String| {
        let (a, b) = (fs::read(source.join(name)).ok(), fs::read(target.join(name)).ok());
        a.is_some() && a == b
    };
    all_names().iter().all(same)
}

#[test]
fn a_killed_copy_leaves_no_partial_file_under_a_final_name() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    make(&at("source"));
    let undisturbed = |args: &[&str]| {
        let start = std::time::Instant::now();
        assert!(ioloom().current_dir(dir.path()).arg("cp").args(args).status().unwrap().success());
        start.elapsed()
    };
    let takes = undisturbed(&["-a", "source", "first"]);
    let old = b"old".to_vec();
    let (mut absent, mut complete) = (0, 0);
    let rounds = kills(KILLS);
    for round in 0..rounds {
        fs::write(at("file"), &old).unwrap();
        let moment = takes.mul_f64(1.1 * f64::from(round) / f64::from(rounds));
        for args in [&["-a", "source", "tree"][..], &["source/big", "file"][..]] {
            let mut command = ioloom();
            command.current_dir(dir.path()).arg("cp").args(args).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            std::thread::sleep(moment);
            let _ = child.kill();
            let _ = child.wait();
        }
        match at("tree").exists() {
            true => {
                assert!(whole(&at("source"), &at("tree")), "round {round}: a torn tree");
                complete += 1;
            }
            false => absent += 1,
        }
        let file = fs::read(at("file")).unwrap();
        assert!(file == old || file == content(999, 20 << 20), "round {round}: a torn file");
        for left in fs::read_dir(dir.path()).unwrap() {
            let left = left.unwrap();
            let name = left.file_name().to_string_lossy().into_owned();
            if !["source", "first", "file"].contains(&name.as_str()) {
                assert!(name == "tree" || name.contains(".ioloom-"), "{name}");
                fs::remove_dir_all(left.path()).or_else(|_| fs::remove_file(left.path())).unwrap();
            }
        }
    }
    println!("{rounds} rounds: {absent} absent, {complete} complete");
}

/// Goal: of two copies into one directory one is killed; a third completes the directory and nothing
/// of the killed one stays. Rounds differ in who resumes, who is killed, and when.
#[test]
fn the_next_copy_cleans_up_after_a_killed_one_of_two() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    make(&at("source"));
    let start = |resumes: bool| {
        let mut command = ioloom();
        let flags: &[&str] = if resumes { &["--resume"] } else { &[] };
        command.current_dir(dir.path()).args(["cp", "-aT"]).args(flags).args(["source", "t/copy"]);
        command.stderr(Stdio::piped());
        command
    };
    let (rounds, mut killed) = (kills(12), 0);
    for round in 0..rounds {
        fs::create_dir(at("t")).unwrap();
        let resumes = [(true, true), (true, false), (false, false)][round as usize % 3];
        let mut both = [start(resumes.0).spawn().unwrap(), start(resumes.1).spawn().unwrap()];
        std::thread::sleep(Duration::from_millis(u64::from(round * 37 % 60)));
        let victim = round as usize / 3 % 2;
        let _ = both[victim].kill();
        killed += u32::from(both[victim].wait().unwrap().code().is_none());
        let [one, other] = both;
        let survivor = if victim == 0 { other } else { one }.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&survivor.stderr).into_owned();
        // Two resumable copies to one target exclude each other.
        let excluded = said.contains("another copy of it to the same target is running");
        assert!(survivor.status.success() || excluded, "round {round}: {said}");
        let last = start(resumes.0 || resumes.1).output().unwrap();
        assert!(last.status.success(), "round {round}: {}", String::from_utf8_lossy(&last.stderr));
        assert!(whole(&at("source"), &at("t/copy")), "round {round}: not complete");
        assert_eq!(crate::names(&at("t")), ["copy"], "round {round}");
        let inside = crate::names(&at("t/copy"));
        assert_eq!(inside, ["big", "many"], "round {round}");
        fs::remove_dir_all(at("t")).unwrap();
    }
    println!("{rounds} rounds, {killed} killed while running");
}

#[test]
fn an_interrupted_copy_removes_new_directories() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    make(&at("source"));
    for moment in [1, 5, 20, 40] {
        let mut command = ioloom();
        command.current_dir(dir.path()).args(["cp", "-a", "source", "tree"]).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(moment));
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        let code = child.wait().unwrap().code();
        match at("tree").exists() {
            true => assert!(whole(&at("source"), &at("tree"))),
            // Until the program installs handlers, a signal kills it.
            false => assert!(matches!(code, Some(130) | None), "{code:?}"),
        }
        let left = crate::names(dir.path());
        assert!(left.iter().all(|n| n == "source" || n == "tree"), "{left:?}");
        let _ = fs::remove_dir_all(at("tree"));
    }
}

/// Creates a disk in the file `image` of a directory if this user has permission.
fn disk_in(dir: &Path) -> Option<Disk> {
    Disk::make(&dir.join("image"), 128 << 20)
}

#[test]
fn a_power_failure_loses_no_more_than_reported() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    make(&at("source"));
    let Some(disk) = disk_in(dir.path()) else { return };
    for level in ["none", "file", "full"] {
        let to = disk.path().join("tree");
        let mut command = ioloom();
        command.current_dir(dir.path()).args(["cp", "-rT", "--json", "--durable", level, "source"]);
        let output = command.arg(&to).output().unwrap();
        assert!(output.status.success(), "{level}: {}", crate::said(&output));
        let after = disk.cut(&at("cut"));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let may_be_lost = document["may_be_lost_bytes"].as_u64().unwrap();
        let Some(after) = after else { return };
        let mut lost = 0;
        for name in all_names() {
            let content = fs::read(at("source").join(&name)).unwrap();
            let kept = fs::read(after.path().join("tree").join(&name)).ok();
            lost += if kept.as_ref() == Some(&content) { 0 } else { content.len() as u64 };
        }
        println!("{level}: reported {may_be_lost} bytes, lost {lost}");
        assert!(
            lost <= may_be_lost,
            "{level}: {lost} bytes were lost, {may_be_lost} were reported"
        );
        let is_kept = level != "none";
        assert_eq!(may_be_lost == 0, is_kept, "{level}");
        fs::remove_dir_all(&to).unwrap();
    }
}

#[test]
fn a_durable_copy_survives_a_power_failure() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    make(&at("source"));
    let Some(disk) = disk_in(dir.path()) else { return };
    let source = at("source");
    for round in 0..kills(CUTS) {
        let level = if round % 2 == 0 { "file" } else { "full" };
        let tree = disk.path().join("tree");
        fs::remove_dir_all(&tree).ok();
        fs::write(disk.path().join("big"), "old").unwrap();
        disk.sync();
        let mut done = Vec::new();
        for (from, to, part) in [("source", "tree", 0.0), ("source/big", "big", 0.37)] {
            let to = disk.path().join(to);
            let mut command = ioloom();
            command.current_dir(dir.path()).args(["cp", "-a", "--durable", level, from]).arg(&to);
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            let share = (f64::from(round) * 0.618 + part).fract();
            std::thread::sleep(Duration::from_secs_f64(0.4 * share));
            let _ = child.kill();
            done.push(child.wait().unwrap().success());
        }
        // Simulates a power failure: only the device contents remain.
        let Some(after) = disk.cut(&at("cut")) else { return };
        let seen = after.path();
        if seen.join("tree").exists() || done[0] {
            assert!(whole(&source, &seen.join("tree")), "round {round}, {level}, done {}", done[0]);
        }
        let big = fs::read(seen.join("big")).unwrap();
        assert!(big == content(999, 20 << 20) || big == b"old" && !done[1], "round {round}: big");
        for left in fs::read_dir(disk.path()).unwrap() {
            let left = left.unwrap();
            if left.file_name().to_string_lossy().contains(".ioloom-") {
                let _ = fs::remove_dir_all(left.path()).or_else(|_| fs::remove_file(left.path()));
            }
        }
    }
}

#[test]
fn a_killed_copy_resumes_from_its_record() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    make(&at("source"));
    fs::write(at("source/big"), content(998, 100 << 20)).unwrap();
    let copies = |target: &str| {
        let mut command = ioloom();
        command.current_dir(dir.path()).args(["cp", "-aT", "--resume", "--json", "source", target]);
        command.stderr(Stdio::null());
        command
    };
    let start = std::time::Instant::now();
    assert!(copies("first").stdout(Stdio::null()).status().unwrap().success());
    let takes = start.elapsed();
    let mut resumed = 0;
    for round in 0..kills(KILLS) / 4 {
        for part in 1..4u32 {
            let mut child = copies("tree").stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(takes.mul_f64(0.2 + 0.05 * f64::from(part + round % 5)));
            let _ = child.kill();
            let _ = child.wait();
        }
        if round % 2 == 1 && !at("tree").exists() {
            // Records of replaced files do not count.
            fs::write(at("source/many/100"), content(u64::from(round) + 7, 300 * 100)).unwrap();
        }
        let output = copies("tree").output().unwrap();
        assert!(output.status.success());
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        resumed += document["resumed"].as_u64().unwrap();
        assert!(whole(&at("source"), &at("tree")), "round {round}");
        assert_eq!(crate::names(dir.path()), ["first", "source", "tree"], "round {round}");
        fs::remove_dir_all(at("tree")).unwrap();
    }
    println!("{resumed} files were not copied again");
}

/// Goal: the next copy removes links, nodes and second names that a killed copy left. Method: names as it
/// gives them, which are older than the two seconds for which they count as in use.
#[test]
fn names_that_cannot_be_locked_are_removed_when_they_are_old() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("source")).unwrap();
    fs::create_dir_all(at("to")).unwrap();
    fs::write(at("source/file"), "new").unwrap();
    fs::write(at("to/kept"), "kept").unwrap();
    let stale = |what: &str| at(&format!("to/.{what}.ioloom-0123456789abcdef.temp.part"));
    std::os::unix::fs::symlink("nowhere", stale("link")).unwrap();
    fs::hard_link(at("to/kept"), stale("name")).unwrap();
    let made = Command::new("mkfifo").arg(stale("pipe")).status().unwrap();
    assert!(made.success());
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let mut command = ioloom();
    let output =
        command.current_dir(dir.path()).args(["cp", "-rT", "source", "to"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("left by an interrupted copy").count(), 3, "{said}");
    assert_eq!(crate::names(&at("to")), ["file", "kept"], "{said}");
    assert_eq!(fs::read(at("to/kept")).unwrap(), b"kept");
}

/// Goal: a copy whose name was taken for one that a killed copy left makes it again. Method: its first rename
/// begins four seconds late, and meanwhile another copy removes the name. On a slow machine the other copy
/// may come too late, and then there is nothing to do again.
#[test]
fn a_copy_that_was_stopped_makes_its_name_again() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    for name in ["source", "other", "to"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    std::os::unix::fs::symlink("new", at("source/link")).unwrap();
    std::os::unix::fs::symlink("old", at("to/link")).unwrap();
    let late = "--inject=rename,renameat,renameat2:delay_enter=4s:when=1";
    let mut command = Command::new("strace");
    let words =
        ["-f", "-o", "calls", late, env!("CARGO_BIN_EXE_ioloom"), "cp", "-dRT", "source", "to"];
    let copy = command.args(words).current_dir(dir.path()).stderr(Stdio::piped()).spawn();
    let Ok(copy) = copy else { return println!("skipped: strace is missing") };
    std::thread::sleep(Duration::from_millis(2500));
    let other = crate::cp(dir.path(), &["-rT", "other", "to"]);
    assert!(other.status.success(), "{}", crate::said(&other));
    let output = copy.wait_with_output().unwrap();
    if crate::said(&output).starts_with("strace:") {
        return println!("skipped: strace may not trace");
    }
    assert!(output.status.success(), "{}", crate::said(&output));
    assert_eq!(fs::read_link(at("to/link")).unwrap(), Path::new("new"));
    assert_eq!(crate::names(&at("to")), ["link"]);
    println!("removed meanwhile: {}", crate::said(&other));
}

/// Goal: the next copy removes hidden files of killed copies, and only those. Method: three files with
/// such names, one of which is locked as that of a running copy is.
#[test]
fn files_of_killed_copies_are_removed_from_existing_directories() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("source/sub")).unwrap();
    fs::create_dir_all(at("to/sub")).unwrap();
    fs::write(at("source/sub/file"), "new").unwrap();
    let stale = "to/sub/.file.ioloom-0123456789abcdef.temp.part";
    let used = "to/sub/.file.ioloom-0123456789abcdee.temp.part";
    let other = "to/sub/.file.ioloom-0123456789abcde.temp.part";
    for name in [stale, used, other] {
        fs::write(at(name), "12345").unwrap();
    }
    let running = fs::File::open(at(used)).unwrap();
    running.lock().unwrap();
    // A snapshot of hard links gives the file of the running copy a second name.
    fs::create_dir(at("snapshot")).unwrap();
    fs::hard_link(at(used), at("snapshot/file")).unwrap();
    std::thread::sleep(Duration::from_millis(2100));
    let mut command = ioloom();
    let output =
        command.current_dir(dir.path()).args(["cp", "-rT", "source", "to"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("removed '{stale}', 5 bytes left")), "{said}");
    let mut expected =
        [used, other, "to/sub/file"].map(|path| path.strip_prefix("to/sub/").unwrap());
    expected.sort_unstable();
    assert_eq!(crate::names(&at("to/sub")), expected, "{said}");
}
