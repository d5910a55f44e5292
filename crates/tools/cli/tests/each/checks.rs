//! Lines of hashes: other programs accept ours, and the other way round.

use crate::place::{Each, fed, fresh, regular_files, there};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

#[test]
fn other_programs_accept_the_lines() {
    let place = fresh();
    place.odd_tree("t");
    for (work, program) in [("md5", "md5sum"), ("blake3", "b3sum")] {
        if program == "b3sum" {
            // It accepts only Unicode names.
            fs::remove_file(place.at("t").join(OsStr::from_bytes(b"\xff\xfe not utf8"))).unwrap();
        }
        let lines = place.each(&["t", "--per-file", "--compute", work]).ended(0).out;
        if there(program) {
            let theirs = fed(place.command(program).args(["--check", "-"]), &lines);
            assert_eq!(theirs.code, Some(0), "{program}: {} {}", theirs.text(), theirs.err);
        }
        place.each_of(&["--check", "-"], &lines).ended(0);
    }
}

#[test]
fn lines_come_in_the_order_of_the_list_and_read_back() {
    let place = fresh();
    place.odd_tree("t");
    let files = regular_files(&place.at("t")).len();
    for zero in [&[][..], &["-0"]] {
        for work in ["xxh3", "md5", "blake3"] {
            let make = [&["t", "--per-file", "--compute", work], zero].concat();
            let lines = place.each(&make).ended(0).out;
            let end = if zero.is_empty() { b'\n' } else { 0 };
            assert_eq!(lines.iter().filter(|b| **b == end).count(), files);
            let checked = place.each_of(&[&["--check", "-"], zero].concat(), &lines).ended(0);
            assert_eq!(checked.text().matches(": OK").count(), files, "{}", checked.text());
        }
    }
}

#[test]
fn a_check_finds_what_changed_is_missing_or_cannot_be_read() {
    let place = fresh();
    for name in ["same", "changed", "missing"] {
        place.write(name, name);
    }
    let mut lines = place.each(&[".", "--per-file"]).ended(0).out;
    lines.extend_from_slice(b"not a line of a check\n");
    place.write("sums", &lines);
    place.write("changed", "other bytes");
    fs::remove_file(place.at("missing")).unwrap();
    let ran = place.each(&["--check", "sums"]).ended(1);
    for line in ["same: OK", "changed: FAILED\n", "missing: FAILED open or read"] {
        assert!(ran.text().contains(line), "{line}: {}", ran.text());
    }
    assert!(ran.err.contains("1 line of 'sums' not understood"), "{}", ran.err);
    assert!(ran.err.contains("2 of 3 files"), "{}", ran.err);
    let quiet = place.each(&["--check", "sums", "--quiet"]).ended(1);
    assert!(!quiet.text().contains("OK") && quiet.text().contains("changed"), "{}", quiet.text());
    place.write("nothing", "hello\n");
    place.each(&["--check", "nothing"]).ended(1).one_error(&["no line of the form"]);
    place.each(&["--check", "absent"]).ended(1).one_error(&["cannot read 'absent'"]);
}

#[test]
fn no_name_can_fake_a_line() {
    let place = fresh();
    let name = "other: OK\nback\\slash";
    place.write(name, "first");
    let lines = place.each(&[".", "--per-file"]).ended(0).out;
    place.write(name, "second");
    let ran = place.each_of(&["--check", "-"], &lines).ended(1);
    assert_eq!(ran.text(), "\\./other: OK\\nback\\\\slash: FAILED\n");
    fs::remove_file(place.at(name)).unwrap();
    let ran = place.each_of(&["--check", "-"], &lines).ended(1);
    assert_eq!(ran.text(), "\\./other: OK\\nback\\\\slash: FAILED open or read\n");
}

#[test]
fn the_exit_code_of_a_check_survives_a_closed_pipe() {
    let place = fresh();
    place.write("a", "first");
    place.write("sums", place.each(&["a", "--per-file"]).ended(0).out);
    for (bytes, code) in [("first", 0), ("second", 1)] {
        place.write("a", bytes);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.ours(&["each", "--check", "sums"]);
        let output = command.stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{bytes}");
    }
}

#[test]
fn tagged_lines_of_other_programs_are_checked() {
    let place = fresh();
    for name in ["plain", "a (1) = b", "line\nend", "back\\slash"] {
        place.write(name, name);
    }
    for (program, args) in
        [("md5sum", &["--tag"][..]), ("b3sum", &["--tag"]), ("xxhsum", &["-H3", "--tag"])]
    {
        if !there(program) {
            continue;
        }
        let names: &[&str] = match program {
            "md5sum" => &["plain", "a (1) = b", "line\nend", "back\\slash"],
            _ => &["plain", "a (1) = b"],
        };
        let theirs = place.command(program).args(args).args(names).output().unwrap();
        if !theirs.status.success() {
            println!("skipped: this {program} prints no tags");
            continue;
        }
        let ran = place.each_of(&["--check", "-"], &theirs.stdout).ended(0);
        assert_eq!(ran.text().matches(": OK").count(), names.len(), "{program}: {}", ran.text());
    }
}

#[test]
fn the_document_has_every_documented_field_and_stands_alone() {
    let text = include_str!("../../../../../docs/json.md");
    let section = text.split("## Processed files: `each`").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut documented: Vec<&str> =
        section.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
    documented.sort_unstable();
    let place = fresh();
    place.odd_tree("t");
    let ran = place.each(&["t", "--json"]).ended(0);
    let json = ran.json();
    let mut printed: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    printed.sort_unstable();
    assert_eq!(printed, documented);
    assert_eq!((&json["schema"], &json["command"]), (&1.into(), &"each".into()));
    let exec = place.each(&["t", "--exec", "wc -c", "--json"]).ended(0);
    assert_eq!(exec.json()["compute"], "exec");
    assert!(exec.json()["digest"].is_null());
    place.each(&["t", "--per-file", "--json"]).ended(2);
}

#[test]
fn help_and_the_table_of_plans_match_their_snapshots() {
    let place = fresh();
    insta::assert_snapshot!("help", place.each(&["--help"]).ended(0).text());
    insta::assert_snapshot!("explain", place.each(&["--explain"]).ended(0).text());
    let one = place.each(&[".", "--explain"]).ended(0).text();
    assert!(one.lines().nth(1).unwrap().contains("worker"), "{one}");
    for line in place.each(&["--explain"]).text().lines().chain(one.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
