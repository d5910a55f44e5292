//! `--exec`: a program for each file.

use crate::limits::after;
use crate::place::{Each, ProcessOutput, fresh, regular_files};
use crate::signals::until;
use std::fs;

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
    assert!(ran.err.ends_with("ioloom: 2 commands failed\n"), "{}", ran.err);
    let json = place.each(&["t", "--exec", "false", "--json"]).ended(1).json();
    assert_eq!((&json["errors"], &json["why"]), (&2.into(), &serde_json::Value::Null));
    let one = place.each(&["t", "--exec", "grep a", "--quiet"]).ended(1);
    assert!(one.err.ends_with("ioloom: 1 command failed\n"), "{}", one.err);
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
fn contents_larger_than_the_memory_arrive_whole() {
    let place = fresh();
    let contents: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    for name in ["a", "b", "c", "d", "e"] {
        place.write(format!("t/{name}"), &contents);
    }
    place.write("same", &contents);
    let ran = place.each(&["t", "--exec", "cmp - same", "--memory", "1MiB"]).ended(0);
    assert!(ran.err.starts_with("5 files, "), "{}", ran.err);
}

#[test]
fn invalid_commands_are_refused() {
    let place = fresh();
    place.write("t/a", "a");
    for empty in ["", "'' {}"] {
        place.each(&["t", "--exec", empty]).ended(2).one_error(&["--exec needs a command"]);
    }
    place.each(&["t", "--exec", "wc 'x"]).ended(2).one_error(&["unclosed quote"]);
    place.each(&["t", "--exec", "wc {}", "--method", "read"]).ended(2);
    place.each(&["t", "--exec", "wc", "--compute", "md5"]).ended(2);
    place.each(&["t", "--exec", "wc", "--per-file"]).ended(2);
    for flags in [["--method", "mmap:willneed"], ["--plan", "mmap:plain/threads:n=2"]] {
        let mapped = place.each(&[&["t", "--exec", "wc"], &flags[..]].concat()).ended(2);
        mapped.one_error(&["mmap:", "runs in a child process", "choose a --method"]);
    }
    for flags in [["--method", "null"], ["--plan", "null/threads:n=2"]] {
        let null = place.each(&[&["t", "--exec", "sha256sum"], &flags[..]].concat()).ended(2);
        null.one_error(&["--exec without {} needs a method that reads"]);
        place.each(&[&["t", "--exec", "wc -c {}"], &flags[..]].concat()).ended(0);
    }
    let blocking = ["t", "--exec", "wc", "--plan", "nowait/window:l=2,p=2/blocking=2"];
    place.each(&blocking).ended(2).one_error(&["leave blocking= out"]);
    let blocking = ["t", "--exec", "wc {}", "--plan", "null/window:l=2,p=2/blocking=2"];
    place.each(&blocking).ended(3).one_error(&["blocking= requires the method nowait"]);
}

/// Each command enters a room and leaves when as many have been there at once as should be.
fn met(place: &crate::place::Workspace, room: &str, people: usize) -> String {
    fs::create_dir(place.at(room)).unwrap();
    let room = place.at(room);
    let room = room.display();
    // A minute guards against a hang.
    format!(
        "sh -c 'touch {room}/$$; i=0; while [ $(ls {room} | wc -l) -lt {people} ]; do \
         i=$((i+1)); [ $i -lt 6000 ] || exit 9; sleep 0.01; done' sh"
    )
}

#[test]
fn as_many_commands_run_at_once_as_asked() {
    let place = fresh();
    for i in 0..12 {
        place.write(format!("t/{i}"), "x");
    }
    for (at_once, room) in [(1, "one"), (5, "five"), (12, "twelve")] {
        for (more, kind) in [(" {}", "path"), ("", "input")] {
            let command = met(&place, &format!("{room}-{kind}"), at_once) + more;
            let ran = place.each(&["t", "--exec", &command, "-j", &at_once.to_string(), "--json"]);
            assert_eq!(ran.ended(0).json()["files"], 12, "{at_once} {kind}");
        }
    }
}

#[test]
fn no_more_commands_run_at_once_than_asked() {
    let place = fresh();
    for i in 0..30 {
        place.write(format!("t/{i}"), "x");
    }
    fs::create_dir(place.at("room")).unwrap();
    for more in [" {}", ""] {
        // Counts the commands that run, and leaves.
        let command = format!(
            "sh -c 'touch room/$$; n=$(ls room | wc -l); sleep 0.02; rm room/$$; [ $n -le 3 ]' sh{more}"
        );
        place.each(&["t", "--exec", &command, "-j", "3"]).ended(0);
    }
}

/// Contents of several pieces: a command runs from the first to the last of them.
#[test]
fn no_more_commands_run_at_once_than_asked_while_contents_are_passed() {
    let place = fresh();
    for i in 0..20 {
        place.write(format!("t/{i}"), vec![b'x'; 1_000_000]);
    }
    fs::create_dir(place.at("room")).unwrap();
    let command = "sh -c 'touch room/$$; cat > /dev/null; n=$(ls room | wc -l); sleep 0.02; \
                   rm room/$$; [ $n -le 3 ]' sh";
    place.each(&["t", "--exec", command, "-j", "3"]).ended(0);
    let pinned = ["t", "--exec", "cat", "--plan", "nowait/window:l=8,p=2"];
    place.each(&pinned).ended(2).one_error(&["8 files in flight"]);
}

#[test]
fn a_shell_is_used_only_if_it_is_the_command() {
    let place = fresh();
    place.write("t/a b", "one\ntwo\n");
    let ran = place.each(&["t", "--exec", "echo $HOME * {}", "--quiet"]).ended(0);
    assert_eq!(ran.text(), "$HOME * t/a b\n");
    let shell = "sh -c 'cat \"$1\" | wc -l' sh {}";
    let ran = place.each(&["t", "--exec", shell, "--quiet"]).ended(0);
    assert_eq!((ran.text().trim(), &*ran.err), ("2", ""));
    let unsafe_form = "sh -c 'wc -l < \"{}\"'";
    let ran = place.each(&["t", "--exec", unsafe_form, "--quiet"]).ended(0);
    assert_eq!(ran.text().trim(), "2");
    assert!(ran.err.contains("use sh -c 'CODE' sh {}"), "{}", ran.err);
}

#[test]
fn numbers_of_threads_and_commands_are_checked() {
    let place = fresh();
    place.write("t/a", "a");
    for flags in [
        &["-j", "2"][..],
        &["--exec", "true", "-j", "0"],
        &["--exec", "true", "-j", "many"],
        &["--exec", "true", "--threads", "2"],
        &["--threads", "0"],
        &["--threads", "2", "--schedule", "threads:n=1"],
        &["--exec", "true", "-j", "2", "--plan", "null/threads:n=1"],
    ] {
        let ran = place.each(&[&["t"], flags].concat()).ended(2);
        assert!(ran.out.is_empty() && ran.err.matches("ioloom: ").count() == 1, "{flags:?}");
    }
    for (flags, right) in [
        (&["--threads", "3"][..], "p=3"),
        (&["--exec", "true", "-j", "600"], "window:l=600,p=600"),
        (&["--method", "mmap:plain", "--threads", "3"], "threads:n=3"),
    ] {
        let json = place.each(&[&["t", "--json"], flags].concat()).ended(0).json();
        let schedule = json["schedule"].as_str().unwrap();
        assert!(schedule.contains(right), "{flags:?}: {schedule}");
    }
}

/// The program in the background prints when the run has ended.
#[test]
fn output_after_the_end_of_a_command_is_lost_with_a_warning() {
    let place = fresh();
    place.write("f", "x");
    let warning = "1 command ended while a background process kept the output open";
    // Without its directory, it ends too.
    let command = "sh -c '(trap \"\" PIPE; until [ -e go ] || [ ! -e f ]; do sleep 0.01; done; \
                   echo late; touch ended) 2> /dev/null & echo now'";
    let ran = place.each(&["f", "--exec", command]).ended(0);
    assert_eq!(ran.text(), "now\n");
    assert!(ran.err.contains(warning), "{}", ran.err);
    place.write("go", "");
    until("it has ended", || place.at("ended").exists());
    let ran = place.each(&["f", "--exec", "echo now"]).ended(0);
    assert!(!ran.err.contains("background"), "{}", ran.err);
}

/// The program in the background ends when the run has ended, or after a minute as a guard.
#[test]
fn a_background_process_that_keeps_the_input_open_does_not_hold_up_the_run() {
    let place = fresh();
    place.write("f", vec![b'x'; 4 << 20]);
    let command = "sh -c 'exec 3<&0; (i=0; until [ -e go ] || [ ! -e f ] || [ $i -eq 6000 ]; do \
                   i=$((i+1)); sleep 0.01; done; [ -e go ] || [ ! -e f ] || touch gave-up) > /dev/null 2>&1 & echo now'";
    let ran = place.each(&["f", "--exec", command]).ended(0);
    assert_eq!(ran.text(), "now\n");
    assert!(ran.err.contains("1 command ended while a background process kept the input open"));
    assert!(!place.at("gave-up").exists());
    place.write("go", "");
}

#[test]
fn output_that_cannot_be_kept_is_printed_in_part_with_the_status() {
    let place = fresh();
    place.write("f", "x");
    let command = "sh -c 'head -c 3000000 /dev/zero; exit 3'";
    let mut each = place.ours(&["each"]);
    let each = each.args(["f", "--exec", command]).env("TMPDIR", "/missing");
    let ran = ProcessOutput::from(each.output().unwrap()).ended(1);
    assert!((1 << 19..=1 << 20).contains(&ran.out.len()), "{}", ran.out.len());
    for part in ["sh exited with code 3; cannot keep its output in '/missing'", "TMPDIR"] {
        assert!(ran.err.contains(part), "{}", ran.err);
    }
}

#[test]
fn output_beyond_the_limit_on_file_sizes_is_printed_in_part() {
    let place = fresh();
    place.write("f", "x");
    let command = "sh -c 'head -c 3000000 /dev/zero; exit 3'";
    let ran = after(&place, "-f 100", &["f", "--exec", command]).ended(1);
    assert!((1 << 19..3_000_000).contains(&ran.out.len()), "{}", ran.out.len());
    for part in ["sh exited with code 3; cannot keep its output in", "File too large"] {
        assert!(ran.err.contains(part), "{}", ran.err);
    }
    // The signal ends the command, as without this program. Some shells replace themselves by it.
    let command = "sh -c 'head -c 300000 /dev/zero > big'";
    let ran = after(&place, "-f 100", &["f", "--exec", command]).ended(1);
    let endings = ["sh exited with code 153", "sh was killed by signal 25"];
    assert!(endings.iter().any(|ending| ran.err.contains(ending)), "{}", ran.err);
}

/// A thread times only some pieces of a file, but knows all of its waits for commands.
#[test]
fn waits_for_idle_commands_are_known_for_files_of_several_pieces() {
    let place = fresh();
    for i in 0..3 {
        place.write(format!("t/{i}"), vec![b'x'; 13 * (256 << 10)]);
    }
    let args = ["t", "--exec", "sh -c 'cat > /dev/null; sleep 0.3'", "-j", "1", "--json"];
    let json = place.each(&args).ended(0).json();
    // On a busy machine other programs may be the limit.
    let limits = ["child processes", "other programs"].map(serde_json::Value::from);
    assert!(limits.contains(&json["limited_by"]), "{json}");
}
