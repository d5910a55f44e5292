//! `--exec`: a program for each file.

use crate::place::{Each, fresh, regular_files};

#[test]
fn names_never_become_code() {
    let place = fresh();
    place.odd_tree("t");
    place.write("t/;touch pwned", "x");
    let files = regular_files(&place.at("t"));
    for command in ["wc -c {}", "wc -c"] {
        let ran = place.each(&["t", "--exec", command]).ended(0);
        let mut sizes: Vec<u64> =
            ran.text().lines().filter_map(|l| l.split_whitespace().next()?.parse().ok()).collect();
        let mut right: Vec<u64> =
            files.iter().map(|f| place.at("t").join(f).metadata().unwrap().len()).collect();
        sizes.sort_unstable();
        right.sort_unstable();
        assert_eq!(sizes, right, "{command}");
    }
    assert!(!place.at("pwned").exists() && !place.at("t/pwned").exists());
}

#[test]
fn failing_and_missing_programs_are_reported() {
    let place = fresh();
    place.write("t/a", "a");
    place.write("t/b", "b");
    let ran = place.each(&["t", "--exec", "false {}"]).ended(1);
    assert_eq!(ran.err.matches("false exited with code 1").count(), 2, "{}", ran.err);
    for command in ["no-such-program-here {}", "no-such-program-here"] {
        let ran = place.each(&["t", "--exec", command]).ended(1);
        assert!(
            ran.err.contains("cannot run no-such-program-here: No such file or directory"),
            "{}",
            ran.err
        );
    }
    let ran = place.each(&["t", "--exec", "sh -c 'kill -9 $$'"]).ended(1);
    assert!(ran.err.contains("signal 9"), "{}", ran.err);
}

#[test]
fn a_program_may_stop_reading_early() {
    let place = fresh();
    place.write("t/big", vec![b'x'; 4 << 20]);
    let ran = place.each(&["t", "--exec", "head -c 3"]).ended(0);
    assert_eq!(ran.text(), "xxx");
    place.each(&["t", "--exec", "true"]).ended(0);
}

#[test]
fn invalid_commands_are_refused() {
    let place = fresh();
    place.write("t/a", "a");
    place.each(&["t", "--exec", ""]).ended(2).one_error(&["--exec needs a command"]);
    place.each(&["t", "--exec", "wc 'x"]).ended(2).one_error(&["unclosed quote"]);
    place.each(&["t", "--exec", "wc {}", "--method", "read"]).ended(2);
    place.each(&["t", "--exec", "wc", "--compute", "md5"]).ended(2);
    place.each(&["t", "--exec", "wc", "--per-file"]).ended(2);
}
