//! Which files of a directory are processed, and that skipped ones are reported.

use crate::place::{Each, PROGRAM, ProcessOutput, Workspace, fresh};
use std::fs;
use std::os::unix::fs::symlink;

/// A tree with hidden, ignored and linked files.
fn tree() -> Workspace {
    let place = fresh();
    for name in [
        "t/a.c",
        "t/a.o",
        "t/.hidden",
        "t/.config/inside",
        "t/build/out",
        "t/src/b.c",
        "t/src/b.log",
        "t/src/keep.log",
        "t/src/cache/x",
        "elsewhere/linked",
    ] {
        place.write(name, name);
    }
    place.write("t/.gitignore", "*.log\n/build/\n");
    place.write("t/src/.gitignore", "!keep.log\n");
    place.write("t/.ignore", "*.o\n");
    symlink("../elsewhere", place.at("t/link")).unwrap();
    symlink("a.c", place.at("t/link.c")).unwrap();
    symlink("nowhere", place.at("t/broken")).unwrap();
    symlink("..", place.at("t/src/loop")).unwrap();
    place
}

/// Returns the names that are processed, and the skipped counts that are not zero.
fn chosen(place: &Workspace, flags: &[&str]) -> (Vec<String>, String) {
    let ran = place.each(&[&["t", "--per-file", "--json", "--ordered"], flags].concat()).ended(0);
    let text = ran.text();
    let mut lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.pop().unwrap();
    let names = lines.iter().map(|line| line["path"].as_str().unwrap()[2..].to_owned());
    let counts = last["skipped"].as_object().unwrap().iter().filter(|(_, count)| **count != 0);
    let counts: Vec<_> = counts.map(|(reason, count)| format!("{reason}={count}")).collect();
    let reported = ran.err.contains("skipped");
    assert_eq!(reported, !counts.is_empty(), "{}", ran.err);
    (names.collect(), counts.join(" "))
}

#[test]
fn every_file_is_processed_by_default() {
    let (names, skipped) = chosen(&tree(), &[]);
    assert_eq!(names.len(), 12, "{names:?}");
    assert!(names.contains(&".config/inside".to_owned()));
    assert_eq!(skipped, "links=4");
}

#[test]
fn hidden_and_ignored_files_are_skipped_on_request() {
    let place = tree();
    let (names, skipped) = chosen(&place, &["--skip-hidden"]);
    assert!(!names.iter().any(|name| name.contains("/.") || name.starts_with('.')), "{names:?}");
    assert_eq!((names.len(), &*skipped), (7, "hidden=5 links=4"));
    let (names, skipped) = chosen(&place, &["--ignore"]);
    for absent in ["a.o", "build/out", "src/b.log"] {
        assert!(!names.contains(&absent.to_owned()), "{absent}: {names:?}");
    }
    for present in ["src/keep.log", ".hidden", ".gitignore"] {
        assert!(names.contains(&present.to_owned()), "{present}: {names:?}");
    }
    assert_eq!(skipped, "ignored=3 links=4");
    let (names, _) = chosen(&place, &["--ignore", "--skip-hidden"]);
    assert_eq!(names, ["a.c", "src/b.c", "src/cache/x", "src/keep.log"]);
}

#[test]
fn excluded_names_are_skipped() {
    let place = tree();
    let (names, skipped) =
        chosen(&place, &["--exclude", "*.log", "--exclude", "cache", "--exclude", "src/b.c"]);
    for absent in ["src/b.log", "src/keep.log", "src/cache/x", "src/b.c"] {
        assert!(!names.contains(&absent.to_owned()), "{absent}: {names:?}");
    }
    assert_eq!((names.len(), &*skipped), (8, "excluded=4 links=4"));
    // A file given by name is processed.
    let json = place.each(&["t/a.c", "--exclude", "*.c", "--json"]).ended(0).json();
    assert_eq!(json["files"], 1);
}

#[test]
fn links_are_followed_on_request_and_loops_are_detected() {
    let place = tree();
    let (names, skipped) = chosen(&place, &["-L"]);
    for present in ["link/linked", "link.c", "a.c"] {
        assert!(names.contains(&present.to_owned()), "{present}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.starts_with("src/loop")), "{names:?}");
    assert_eq!((names.len(), &*skipped), (14, "links=1 loops=1"));
    let lines = place.each(&["t", "-L", "--per-file", "--compute", "sha256"]).ended(0).out;
    place.each_of(&["--check", "-", "--compute", "sha256"], &lines).ended(0);
}

#[test]
fn the_file_system_is_kept_on_request() {
    let place = tree();
    let Some(other) = Workspace::in_memory(crate::place::PROGRAM) else {
        return println!("skipped: no /dev/shm here");
    };
    other.write("far", "far");
    symlink(other.path(), place.at("t/far")).unwrap();
    let (names, _) = chosen(&place, &["-L"]);
    assert!(names.contains(&"far/far".to_owned()), "{names:?}");
    let (names, skipped) = chosen(&place, &["-L", "-x"]);
    assert!(!names.iter().any(|name| name.starts_with("far")), "{names:?}");
    assert!(skipped.contains("other_file_systems=1"), "{skipped}");
}

#[test]
fn a_digest_of_selected_files_names_them_as_before() {
    let place = tree();
    let all = place.each(&["t", "--json"]).ended(0).json();
    let same = place.each(&["t", "--json", "--exclude", "no such name"]).ended(0).json();
    assert_eq!(all["digest"], same["digest"]);
    assert_eq!(place.each(&["t", "--skip-hidden", "--quiet"]).ended(0).err, "");
}

#[test]
fn lists_and_checks_refuse_a_selection() {
    let place = tree();
    for flag in ["-L", "-x", "--ignore", "--skip-hidden", "--exclude=x"] {
        place.each_of(&["-", flag], b"t/a.c\n").ended(2).one_error(&["names its files"]);
        let ran = place.each_of(&["--check", "-", flag], b"");
        assert_eq!(ran.code, Some(2), "{flag}: {}", ran.err);
    }
}

/// Goal: a polite run walks with the lower I/O priority. Method: strace shows which call comes first.
#[test]
fn a_polite_run_lowers_its_priority_before_it_walks() {
    let place = tree();
    for flags in [&["t"][..], &["t", "--quiet"], &["t", "--ordered", "--per-file"]] {
        let mut command = place.command("strace");
        command.args(["-f", "-o", "calls", "-e", "trace=ioprio_set,getdents64", PROGRAM]);
        let Ok(output) = command.args(["each", "--polite"]).args(flags).output() else {
            return println!("skipped: strace is missing");
        };
        let ran = ProcessOutput::from(output);
        if ran.err.starts_with("strace:") {
            return println!("skipped: strace may not trace");
        }
        ran.ended(0);
        let calls = fs::read_to_string(place.at("calls")).unwrap();
        let first =
            calls.lines().find(|line| line.contains("ioprio_set") || line.contains("getdents"));
        assert!(first.is_some_and(|line| line.contains("ioprio_set")), "{flags:?}: {calls}");
    }
}
