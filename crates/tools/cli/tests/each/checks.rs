//! Lines of hashes: other programs accept ours, and the other way round.

use crate::place::{Each, ProcessOutput, Workspace, fed, fresh, regular_files, there};
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Each hash, and the program that checks and prints its lines.
const PROGRAMS: [(&str, &str); 7] = [
    ("md5", "md5sum"),
    ("sha1", "sha1sum"),
    ("sha256", "sha256sum"),
    ("sha512", "sha512sum"),
    ("blake2b", "b2sum"),
    ("blake3", "b3sum"),
    ("xxh64", "xxhsum"),
];

/// Names that every program can list: those without escapes, and Unicode.
fn plain_files(place: &Workspace) {
    for name in ["t/plain", "t/with space", "t/a (1) = b", "t/d/*star", "t/empty", "t/ü"] {
        place.write(name, if name == "t/empty" { "" } else { name });
    }
    place.write("t/large", vec![7; 3_000_001]);
}

#[test]
fn other_programs_accept_the_lines() {
    let place = fresh();
    plain_files(&place);
    for (work, program) in PROGRAMS {
        for more in [&[][..], &["--tag"]] {
            let make = [&["t", "--per-file", "--compute", work], more].concat();
            let lines = place.each(&make).ended(0).out;
            // The older b3sum and xxhsum know no tags or other tags.
            if there(program) && (more.is_empty() || program.starts_with("sha")) {
                let theirs = fed(place.command(program).args(["--check", "-"]), &lines);
                assert_eq!(theirs.code, Some(0), "{program}: {} {}", theirs.text(), theirs.err);
            }
        }
    }
    if there("xxhsum") {
        // xxhsum 0.8.1 reads xxh3 only with tags.
        let lines = place.each(&["t", "--per-file", "--tag"]).ended(0).out;
        let theirs = fed(place.command("xxhsum").args(["--check", "-"]), &lines);
        assert_eq!(theirs.code, Some(0), "{} {}", theirs.text(), theirs.err);
    }
}

#[test]
fn lists_of_other_programs_are_checked() {
    let place = fresh();
    plain_files(&place);
    let names = ["t/plain", "t/with space", "t/a (1) = b", "t/d/*star", "t/empty", "t/large"];
    for (work, program) in PROGRAMS.into_iter().filter(|(_, program)| there(program)) {
        for more in [&[][..], &["--tag"], &["--binary"]] {
            let theirs = place.command(program).args(more).args(names).output().unwrap();
            if !theirs.status.success() {
                println!("skipped: this {program} knows no {more:?}");
                continue;
            }
            let crlf = String::from_utf8(theirs.stdout.clone()).unwrap().replace('\n', "\r\n");
            for list in [&theirs.stdout, crlf.as_bytes()] {
                let tagged = more == ["--tag"];
                let with: &[&str] = if tagged { &[] } else { &["--compute", work] };
                let ran = place.each_of(&[&["--check", "-"], with].concat(), list).ended(0);
                let right = names.map(|name| format!("{name}: OK\n")).concat();
                assert_eq!(ran.text(), right, "{program} {more:?}");
            }
        }
    }
}

#[test]
fn a_line_without_a_name_for_its_hash_needs_one() {
    let place = fresh();
    place.write("a", "a");
    for (work, others) in [
        ("xxh64", "--compute xxh3 or --compute xxh64"),
        ("sha256", "--compute blake3 or --compute sha256"),
        ("sha512", "--compute sha512 or --compute blake2b"),
    ] {
        let lines = place.each(&["a", "--per-file", "--compute", work]).ended(0).out;
        let ran = place.each_of(&["--check", "-"], &lines).ended(2);
        let line = "standard input: line 1 does not name its hash";
        ran.one_error(&[line, "or another hash; add", others]);
    }
    for (work, more) in [("crc32c", "8 digits may be CRC32C"), ("md5", "32 digits may be MD5")] {
        let lines = place.each(&["a", "--per-file", "--compute", work]).ended(0).out;
        let ran = place.each_of(&["--check", "-"], &lines).ended(2);
        ran.one_error(&["does not name its hash", more, &format!("add --compute {work} if")]);
        place.each_of(&["--check", "-", "--compute", work], &lines).ended(0);
    }
    for work in ["xxh3", "sha1"] {
        let lines = place.each(&["a", "--per-file", "--compute", work]).ended(0).out;
        place.each_of(&["--check", "-"], &lines).ended(0);
    }
    place.write("sums", "d41d8cd98f00b204e9800998ecf8427e  a\n");
    let ran = place.each(&["--check", "sums", "--compute", "sleep:1ms"]).ended(2);
    ran.one_error(&["sleep has none"]);
    for flag in ["--ignore-missing", "--status", "--strict", "--warn"] {
        let message = format!("{flag} needs --check FILE");
        place.each(&["a", flag]).ended(2).one_error(&[message.as_str()]);
    }
    for flags in [&["a", "--tag"][..], &["a", "--ordered"], &["a", "--per-file", "--tag", "--json"]]
    {
        place.each(flags).ended(2);
    }
}

/// Lists of hashes that are not supported and look like those that are.
#[test]
fn lists_of_other_hashes_raise_no_false_alarm() {
    let place = fresh();
    place.write("a", "a");
    for (program, args) in [
        ("xxhsum", &["-H2"][..]),
        ("xxhsum", &["-H0"]),
        ("b2sum", &["-l", "128"]),
        ("b3sum", &["-l", "16"]),
        ("b2sum", &["-l", "256"]),
    ] {
        if there(program) {
            let theirs = place.command(program).args(args).arg("a").output().unwrap();
            let ran = place.each_of(&["--check", "-"], &theirs.stdout).ended(2);
            ran.one_error(&["line 1 does not name its hash", "or another hash; add --compute"]);
        }
    }
    if there("b2sum") {
        let theirs = place.command("b2sum").args(["-l", "160", "a"]).output().unwrap();
        let ran = place.each_of(&["--check", "-"], &theirs.stdout).ended(1);
        assert_eq!(ran.text(), "a: FAILED\n");
        let note = "lines of 40 digits without a tag were read as SHA1; add tags";
        assert_eq!(ran.err.matches(note).count(), 1, "{}", ran.err);
        let named = place.each_of(&["--check", "-", "--compute", "sha1"], &theirs.stdout).ended(1);
        assert!(!named.err.contains(note), "{}", named.err);
    }
    let right = place.each(&["a", "--per-file", "--tag"]).ended(0).text();
    let other =
        "XXH128 (a) = a96faf705af16834e6c632b61e964e1f\nBLAKE2b-256 (a) = 8928aae63c84d878\n";
    let ran = place.each_of(&["--check", "-"], other.as_bytes()).ended(1);
    let message = "standard input: 2 listed files were not checked: BLAKE2b-256, XXH128 are not \
                   supported";
    ran.one_error(&[message]);
    let silent = place.each_of(&["--check", "-", "--status"], other.as_bytes()).ended(1);
    silent.one_error(&[message]);
    let both = right + other;
    for (more, text) in [(&[][..], "a: OK\n"), (&["--strict"], "a: OK\n"), (&["--status"], "")] {
        let args = [&["--check", "-"], more].concat();
        let ran = place.each_of(&args, both.as_bytes()).ended(1);
        assert_eq!((ran.text().as_str(), ran.err), (text, format!("ioloom: {message}\n")));
    }
    let ran = place.each_of(&["--check", "-", "--warn"], both.as_bytes()).ended(1);
    assert!(ran.err.contains("line 3: BLAKE2b-256 is not supported"), "{}", ran.err);
    let ran = place.each_of(&["--check", "-", "--compute", "xxh3"], both.as_bytes()).ended(0);
    assert!(ran.err.contains("2 lines of standard input are improperly"), "{}", ran.err);
}

/// A CR at the end of only some lines is part of their names; b3sum and xxhsum do not escape it.
#[test]
fn a_name_that_ends_in_cr_is_checked() {
    let place = fresh();
    for name in ["a", "b\r"] {
        place.write(name, name);
    }
    for (work, program) in [("blake3", "b3sum"), ("xxh64", "xxhsum"), ("sha256", "sha256sum")] {
        if !there(program) {
            continue;
        }
        let theirs = place.command(program).args(["a", "b\r"]).output().unwrap();
        let ran = place.each_of(&["--check", "-", "--compute", work], &theirs.stdout).ended(0);
        assert_eq!(ran.text().matches(": OK").count(), 2, "{program}: {}", ran.text());
    }
}

#[test]
fn tags_of_xxhsum_in_little_endian_order_are_checked() {
    let place = fresh();
    place.write("a", "hi\n");
    let list = "XXH64_LE (a) = 343d5092dd6304d5\nXXH3_LE (a) = 70cebeb23a1a4db3\n";
    let ran = place.each_of(&["--check", "-"], list.as_bytes()).ended(0);
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("a: OK\na: OK\n", ""));
}

/// Lists with everything that a check can meet, one after another.
fn troubled_lists(place: &Workspace) -> Vec<(&'static str, String)> {
    for name in ["right", "wrong", "also right", "line\nend", "back\\slash", "cr\r"] {
        place.write(name, name);
    }
    fs::create_dir(place.at("dir")).unwrap();
    let line = |name: &str| {
        let made = place.command("sha256sum").arg("right").output().unwrap().stdout;
        String::from_utf8(made).unwrap().replace("right", name)
    };
    let made = place
        .command("sha256sum")
        .args(["right", "also right", "line\nend", "back\\slash", "cr\r"])
        .output();
    let good = String::from_utf8(made.unwrap().stdout).unwrap();
    let (first, _) = good.split_once('\n').unwrap();
    vec![
        ("good", good.clone()),
        ("wrong", good.clone() + &line("wrong")),
        ("missing", line("absent") + &good),
        ("only missing", line("absent") + &line("dir/absent")),
        ("directory", line("dir") + &good),
        ("mixed", line("wrong") + &line("absent") + "junk\n" + &good + "more junk\n"),
        ("comments", format!("# comment\n\n{good}\n")),
        ("crlf", good.replace('\n', "\r\n")),
        ("no last line end", good.trim_end().to_owned()),
        ("cut in a name", format!("{first}\n{}", &line("right")[..68])),
        ("cut in a hash", format!("{first}\n{}", &first[..40])),
        ("upper case", line("right").replace(&first[..64], &first[..64].to_uppercase())),
        ("binary marks", good.replace("  ", " *")),
        ("one space", line("right").replace("  ", " ") + &line("wrong").replace("  ", " ")),
        ("leading spaces", format!("  {first}\n")),
        (
            "no name before one space",
            format!("{} \n{}", &first[..64], line("right").replace("  ", " ")),
        ),
        ("no name before two spaces", format!("{} \n{first}\n", &first[..64])),
        ("another hash", format!("SHA3 (right) = {}\n", &first[..64])),
        ("standard input", line("-") + &good + &line("-")),
        ("only standard input", line("-")),
        ("junk", "junk\n".to_owned()),
        ("nothing", String::new()),
    ]
}

#[test]
fn results_and_exit_codes_are_those_of_sha256sum() {
    if !there("sha256sum") {
        return;
    }
    let place = fresh();
    for (name, list) in troubled_lists(&place) {
        place.write("sums", &list);
        for flags in [
            &[][..],
            &["--quiet"],
            &["--status"],
            &["--strict"],
            &["--warn"],
            &["--ignore-missing"],
            &["--ignore-missing", "--strict", "--quiet"],
            &["--ignore-missing", "--status"],
            &["--status", "--warn"],
            &["--warn", "--quiet"],
            &["--quiet", "--status", "--quiet"],
        ] {
            let mut theirs = place.command("sha256sum");
            let theirs = fed(theirs.args(["--check", "sums"]).args(flags), b"right");
            let args = [&["--check", "sums", "--compute", "sha256"], flags].concat();
            let ours = place.each_of(&args, b"right");
            assert_eq!(ours.text(), theirs.text(), "{name} {flags:?}");
            assert_eq!(ours.code, theirs.code, "{name} {flags:?}: {} {}", ours.err, theirs.err);
            assert_eq!(
                ours.err.is_empty(),
                theirs.err.is_empty(),
                "{name} {flags:?}: {}",
                ours.err
            );
        }
    }
}

#[test]
fn a_list_on_standard_input_does_not_name_standard_input() {
    let place = fresh();
    place.write("a", "a");
    let good = place.each(&["a", "--per-file", "--tag"]).ended(0).text();
    let named = good.replace("(a)", "(-)");
    let ran = place.each_of(&["--check", "-", "--strict"], (named.clone() + &good).as_bytes());
    let ran = ran.ended(1);
    assert_eq!(ran.text(), "a: OK\n");
    assert_eq!(ran.err, "ioloom: 1 line of standard input is improperly formatted\n");
    place
        .each_of(&["--check", "-"], named.as_bytes())
        .ended(1)
        .one_error(&["no properly formatted"]);
}

#[test]
fn lines_come_in_the_order_of_the_list_and_read_back() {
    let place = fresh();
    place.odd_tree("t");
    let mut names: Vec<_> = regular_files(&place.at("t"));
    names.sort();
    for zero in [&[][..], &["-z"]] {
        for work in ["xxh3", "xxh64", "crc32c", "md5", "blake3", "sha256", "sha1"] {
            for tag in [&[][..], &["--tag"]] {
                let make = ["t", "--per-file", "--ordered", "--compute", work];
                let lines = place.each(&[&make, zero, tag].concat()).ended(0).out;
                let end = if zero.is_empty() { b'\n' } else { 0 };
                assert_eq!(lines.iter().filter(|b| **b == end).count(), names.len());
                let check = [&["--check", "-", "--compute", work], zero].concat();
                let checked = place.each_of(&check, &lines).ended(0);
                assert_eq!(checked.text().matches(": OK").count(), names.len(), "{work}");
                if !zero.is_empty() && tag.is_empty() {
                    let paths = lines.split(|b| *b == 0).filter(|line| !line.is_empty());
                    let paths = paths
                        .map(|line| &line[line.windows(2).position(|w| w == b"  ").unwrap() + 4..]);
                    let mut sorted: Vec<_> = paths.clone().collect();
                    sorted.sort_unstable();
                    assert_eq!(sorted, names.iter().map(|n| n.as_bytes()).collect::<Vec<_>>());
                }
            }
        }
    }
}

/// As with `find -print0 | xargs -0 sha256sum`.
#[test]
fn a_nul_separated_list_gives_the_same_lines() {
    let place = fresh();
    place.odd_tree("t");
    let names = regular_files(&place.at("t"));
    let list: Vec<u8> =
        names.iter().flat_map(|name| [b"t/", name.as_bytes(), b"\0"].concat()).collect();
    let args = ["-0", "-", "--per-file", "--ordered", "--compute", "sha256"];
    if there("sha256sum") {
        for more in [&[][..], &["-z"]] {
            let ours = place.each_of(&[&args, more].concat(), &list).ended(0);
            let mut theirs = place.command("xargs");
            let theirs = fed(theirs.args(["-0", "sha256sum"]).args(more), &list);
            assert!(ours.out == theirs.out, "{more:?}: {}", ours.text());
        }
    }
    let json = place.each_of(&[&args[..3], &["--json"]].concat(), &list).ended(0);
    assert_eq!(json.text().lines().count(), names.len() + 1);
    assert!(!json.out.contains(&0));
    place.write("sums", place.each(&["t", "--per-file"]).ended(0).out);
    for (args, words) in [
        (&["t", "--per-file", "-0"][..], "-0 needs a list on standard input"),
        (&["--check", "sums", "-0"], "use -z for lines that end with NUL"),
        (&["t", "-z"], "-z needs the lines of --per-file or --check"),
    ] {
        place.each(args).ended(2).one_error(&[words]);
    }
    place.each(&["t", "--per-file", "--json", "-z"]).ended(2);
}

#[test]
fn one_list_may_name_several_hashes() {
    let place = fresh();
    place.write("a", "a");
    place.write("b", "b");
    let mut list = Vec::new();
    for work in ["sha256", "xxh64", "blake3", "crc32c"] {
        let args = ["a", "b", "--per-file", "--ordered", "--tag", "--compute", work];
        list.extend(place.each(&args).ended(0).out);
    }
    let ran = place.each_of(&["--check", "-"], &list).ended(0);
    assert_eq!(ran.text(), "a: OK\nb: OK\n".repeat(4));
    let ran = place.each_of(&["--check", "-", "--compute", "sha256"], &list).ended(0);
    assert_eq!(ran.text(), "a: OK\nb: OK\n", "only the lines of that hash");
    assert!(ran.err.contains("6 lines of standard input are improperly formatted"), "{}", ran.err);
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
    for line in [
        "cannot stat './missing': No such file or directory",
        "1 line of 'sums' is improperly formatted",
        "1 listed file could not be read",
        "1 computed checksum did not match",
    ] {
        assert!(ran.err.contains(line), "{line}: {}", ran.err);
    }
    let named = place.each(&["--check", "sums", "--warn"]).ended(1);
    assert!(named.err.contains("'sums': line 4: improperly formatted line"), "{}", named.err);
    let quiet = place.each(&["--check", "sums", "--quiet"]).ended(1);
    assert!(!quiet.text().contains("OK") && quiet.text().contains("changed"), "{}", quiet.text());
    place.write("nothing", "hello\n");
    place
        .each(&["--check", "nothing"])
        .ended(1)
        .one_error(&["'nothing': no properly formatted checksum lines found"]);
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
fn escaped_names_of_md5sum_and_tags_of_xxhsum_are_checked() {
    let place = fresh();
    for name in ["plain", "a (1) = b", "line\nend", "back\\slash"] {
        place.write(name, name);
    }
    for (program, args) in [("md5sum", &["--tag"][..]), ("md5sum", &[]), ("xxhsum", &["-H3"])] {
        if !there(program) {
            continue;
        }
        let names: &[&str] = match program {
            "md5sum" => &["plain", "a (1) = b", "line\nend", "back\\slash"],
            _ => &["plain", "a (1) = b"],
        };
        let theirs = place.command(program).args(args).args(names).output().unwrap();
        let with: &[&str] = if program == "md5sum" { &["--compute", "md5"] } else { &[] };
        let ran = place.each_of(&[&["--check", "-"], with].concat(), &theirs.stdout).ended(0);
        assert_eq!(ran.text().matches(": OK").count(), names.len(), "{program}: {}", ran.text());
    }
}

#[test]
fn the_document_has_every_documented_field_and_stands_alone() {
    let text = include_str!("../../../../../docs/reference/json.md");
    let section = text.split("## Processed files: `each`").nth(1).unwrap();
    let section = section.split("\nThe digest is").next().unwrap();
    let mut documented: Vec<&str> =
        section.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
    // Only objects have it.
    documented.retain(|field| *field != "requests");
    documented.sort_unstable();
    let place = fresh();
    place.odd_tree("t");
    let ran = place.each(&["t", "--json"]).ended(0);
    let json = ran.json();
    let mut printed: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    printed.sort_unstable();
    assert_eq!(printed, documented);
    assert_eq!((&json["schema"], &json["command"]), (&1.into(), &"each".into()));
    assert!(json["memory_peak_bytes"].as_u64().unwrap() > 1 << 20, "{json}");
    let exec = place.each(&["t", "--exec", "wc -c", "--json"]).ended(0);
    assert_eq!(exec.json()["compute"], "exec");
    assert!(exec.json()["digest"].is_null());
}

#[test]
fn help_and_the_table_of_plans_match_their_snapshots() {
    let place = fresh();
    insta::assert_snapshot!("help", place.each(&["--help"]).ended(0).text());
    insta::assert_snapshot!("explain", place.each(&["--explain"]).ended(0).text());
    let one = place.each(&[".", "--explain"]).ended(0).text();
    assert!(one.lines().nth(1).unwrap().contains("worker"), "{one}");
    for (args, bound) in [
        (&["--memory", "1MiB"][..], Some("1.00 MiB")),
        (&["--plan", "read/threads:n=2/memory=2MiB"], Some("2.00 MiB")),
        (&["--method", "mmap:plain"], None),
        (&["--exec", "cat {}"], None),
    ] {
        let text = place.each(&[&[".", "--explain"], args].concat()).ended(0).text();
        let line = bound.map(|size| format!("  At most {size} of file data are buffered."));
        assert_eq!(text.lines().find(|line| line.contains("buffered")), line.as_deref(), "{text}");
    }
    for args in [
        &["--polite"][..],
        &["--threads", "3"],
        &["--chunk", "1MiB"],
        &["--memory", "1MiB"],
        &["--buffers", "fresh"],
        &["--read-order", "inode"],
        &["--exec", "cat {}", "-j", "2"],
    ] {
        let text = place.each(&[&["--explain"], args].concat()).ended(0).text();
        assert!(!text.contains("x: refused"), "{args:?}: {text}");
    }
    for other in [&["--check", "sums"][..], &["--shard", "1/2", "--manifest", "plan"], &["--json"]]
    {
        let ran = place.each(&[&["--explain"], other].concat()).ended(2);
        assert!(ran.out.is_empty() && ran.err.contains("cannot be used with"), "{}", ran.err);
    }
    for line in place.each(&["--explain"]).text().lines().chain(one.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn explanations_name_commands_and_how_they_get_contents() {
    let place = fresh();
    for (command, jobs, sentence) in [
        ("cat {}", "9", "  Up to 9 commands run at once; each opens its file itself.\n"),
        ("cat", "9", "  Up to 9 commands run at once; each gets the contents on standard input.\n"),
        ("cat {}", "1", "  One command runs at a time; each opens its file itself.\n"),
    ] {
        let args = [".", "--explain", "--exec", command, "-j", jobs];
        let text = place.each(&args).ended(0).text();
        assert!(text.contains(sentence) && !text.contains("empty input"), "{text}");
    }
}

#[test]
fn the_summary_and_explanations_have_the_width_of_the_variable() {
    let place = fresh();
    place.write("t/a", "a");
    for args in [&["t"][..], &["t", "--explain"], &["--explain"]] {
        let mut each = place.ours(&["each"]);
        let ran = ProcessOutput::from(each.args(args).env("COLUMNS", "40").output().unwrap());
        let text = ran.ended(0).text();
        for line in text.lines() {
            assert!(line.chars().count() <= 40, "{args:?}: {line}");
        }
    }
}
