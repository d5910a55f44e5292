//! Problems: usage errors, changing trees, interrupts and closed pipes.

use crate::place::{Du, PROGRAM, ProcessOutput, Workspace, fresh};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn every_error_ends_with_code_1_and_one_message() {
    let place = fresh();
    place.write("t/f", "x");
    for args in [
        &["--threads", "0", "t"][..],
        &["--method", "telepathy", "t"],
        &["--method", "names-only", "t"],
        &["--threshold", "much", "t"],
        &["--threshold", "-0", "t"],
        &["-B", "0", "t"],
        &["-i", "t"],
        &["absent"],
        &["--import", "absent"],
        &["--diff", "absent", "t"],
        &["--save", "no/such/dir", "-s", "t"],
        &["--files0-from", "absent"],
    ] {
        let ran = place.du(args).ended(1);
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
    }
    for args in [&["-s", "-a", "t"][..], &["-s", "-d", "1", "t"], &["-X", "absent", "t"], &["-q"]] {
        let ran = place.du(args).ended(1);
        let hint = "Try 'ioloom du --help' for more information.";
        assert_eq!(ran.err.lines().nth(1), Some(hint), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_closed_standard_input_is_an_error() {
    let place = fresh();
    place.write("t/f", "x");
    for (args, message) in [
        ("--files0-from=-", "-: read error: Bad file descriptor"),
        ("-X - t", "-: Bad file descriptor"),
        ("--import -", "cannot import '-': Bad file descriptor"),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("\"$0\" du {args} <&-"), PROGRAM]);
        let output = shell.current_dir(place.at(".")).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args}: {err}");
        assert!(err.contains(message), "{args}: {err}");
    }
}

#[test]
fn an_invalid_argument_costs_only_itself() {
    let place = fresh();
    place.write("t/f", "x");
    let ran = place.du(&["-s", "", "t"]).ended(1);
    assert_eq!(ran.err, "ioloom: invalid zero-length file name\n");
    assert!(ran.text().ends_with("\tt\n"), "{}", ran.text());
    place.write("list", "\0t\0");
    let ran = place.du(&["--json", "-s", "--files0-from=list"]).ended(1);
    assert!(ran.err.starts_with("ioloom: list:1: invalid zero-length file name\n"), "{}", ran.err);
    let json = ran.json();
    assert_eq!((&json["complete"], &json["errors"]), (&false.into(), &1.into()));
    assert_eq!(json["roots"][0]["path"], "t");
}

#[test]
fn an_empty_name_of_a_list_is_that_of_a_missing_file() {
    let place = fresh();
    place.write("t/f", "x");
    let ran = place.du(&["--files0-from="]).ended(1);
    assert_eq!(ran.err, "ioloom: cannot open '' for reading: No such file or directory\n");
    let ran = place.du(&["-X", "", "t"]).ended(1);
    let expected = "ioloom: '': No such file or directory\n\
                    Try 'ioloom du --help' for more information.\n";
    assert_eq!(ran.err, expected);
}

#[test]
fn errors_of_an_argument_are_printed_before_the_lines_of_the_next() {
    let place = fresh();
    place.write("t/f", "x");
    let ran = in_shell(&place, "\"$1\" du -s nope t nope2 2>&1").ended(1);
    let text = ran.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("'nope'") && lines[1].ends_with("\tt"), "{text}");
    assert!(lines[2].contains("'nope2'") && lines.len() == 3, "{text}");
}

#[test]
fn no_error_of_a_long_list_is_lost() {
    let place = fresh();
    place.write("list", vec![0; 70_000]);
    let ran = place.du(&["-s", "--json", "--files0-from=list"]).ended(1);
    assert_eq!(ran.err.lines().count(), 70_000);
    let json = ran.json();
    let samples = json["error_samples"].as_array().unwrap().len();
    assert_eq!((&json["errors"], samples), (&70_000.into(), 1000));
}

#[test]
fn names_of_a_long_list_count_once() {
    let place = fresh();
    place.write("t/f", "x");
    place.write("u/f", "x");
    // The last names are read when the others have been scanned.
    place.write("list", [&[0_u8; 65_534][..], &b"u/f\0t\0t/f\0u\0t\0\0"[..]].concat());
    let ran = place.du(&["-c", "--inodes", "--files0-from=list"]).ended(1);
    assert_eq!(ran.text(), "1\tu/f\n2\tt\n1\tu\n4\ttotal\n");
    assert_eq!(ran.err.lines().count(), 65_535);
    assert!(ran.err.ends_with("list:65540: invalid zero-length file name\n"), "{}", ran.err);
}

#[test]
fn output_that_cannot_be_written_is_an_error_after_those_of_the_arguments() {
    let place = fresh();
    place.write("t/f", "x");
    let ran = in_shell(&place, "\"$1\" du nope t > /dev/full").ended(1);
    let expected = "ioloom: cannot access 'nope': No such file or directory\n\
                    ioloom: write error: No space left on device\n";
    assert_eq!(ran.err, expected);
    let ran = in_shell(&place, "\"$1\" du -sc nope t > /dev/full").ended(1);
    assert_eq!(ran.err, expected);
}

#[test]
fn patterns_need_no_memory_for_each_directory() {
    let place = fresh();
    fs::create_dir(place.at("t")).unwrap();
    let mut at = ioloom_sys::dir::Dir::open(&place.at("t")).unwrap();
    let name = [b'd'; 255];
    for _ in 0..1500 {
        at.make_dir_at(&name).unwrap();
        at = at.open_at(&name).unwrap();
    }
    drop(at);
    // The paths of all directories together have 288 MB.
    let script = "ulimit -v 250000; \"$1\" du -s --inodes --threads 1 --exclude=absent t";
    assert_eq!(in_shell(&place, script).ended(0).text(), "1501\tt\n");
}

#[test]
fn broken_links_that_are_followed_are_errors() {
    let place = fresh();
    place.write("t/f", "x");
    std::os::unix::fs::symlink("nowhere", place.at("t/dangling")).unwrap();
    for args in [&["-L", "t/dangling"][..], &["-L", "t"], &["-D", "t/dangling"]] {
        let ran = place.du(args).ended(1);
        let message = "ioloom: cannot access 't/dangling': No such file or directory";
        assert!(ran.err.starts_with(message), "{args:?}: {}", ran.err);
    }
    place.du(&["t/dangling"]).ended(0);
    let json = place.du(&["-L", "--json", "t/dangling"]).ended(1).json();
    assert_eq!((&json["complete"], &json["errors"]), (&false.into(), &1.into()));
}

#[test]
fn a_directory_without_search_permission_is_incomplete() {
    let place = fresh();
    place.write("t/closed/below/file", vec![7; 3_000_000]);
    place.write("t/closed/file", "x");
    fs::set_permissions(place.at("t/closed"), fs::Permissions::from_mode(0o644)).unwrap();
    let place = place.for_nobody();
    for how in [&["-s"][..], &["-a"], &["-s", "-L"], &["-s", "--method", "lstat"]] {
        let ran = place.du(&[how, &["t"]].concat()).ended(1);
        for name in ["t/closed/below", "t/closed/file"] {
            let message = format!("cannot access '{name}': Permission denied");
            assert!(ran.err.contains(&message), "{how:?}: {}", ran.err);
        }
    }
    let json = place.du(&["--json", "-s", "t"]).ended(1).json();
    assert_eq!((&json["complete"], &json["errors"]), (&false.into(), &2.into()));
    let export = place.du(&["--export-ncdu", "-", "t"]).ended(1);
    place.write("x.json", export.out);
    let back = place.du(&["--json", "--import", "x.json"]).ended(1);
    assert_eq!((&back.json()["complete"], &back.json()["errors"]), (&false.into(), &1.into()));
    let message = "ioloom: cannot read 't/closed': 'x.json' records a read error\n";
    assert_eq!(back.err, message);
    fs::set_permissions(place.at("t/closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_path_through_more_than_40_links_is_an_error() {
    let place = fresh();
    for i in 0..60 {
        fs::create_dir_all(place.at(format!("{i}"))).unwrap();
        std::os::unix::fs::symlink(format!("../{}", i + 1), place.at(format!("{i}/s"))).unwrap();
    }
    place.write("60", "x");
    let ran = place.du(&["-L", "0"]).ended(1);
    let path = format!("0{}", "/s".repeat(41));
    let message = format!("ioloom: cannot access '{path}': Too many levels of symbolic links");
    assert!(ran.err.starts_with(&message), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[test]
fn a_root_that_is_missing_leaves_the_others() {
    let place = fresh();
    place.write("t/f", "x");
    let ran = place.du(&["-s", "absent", "t"]).ended(1);
    assert!(ran.text().ends_with("\tt\n") && ran.err.contains("absent"), "{}", ran.err);
}

#[test]
fn names_that_come_and_go_are_not_errors() {
    let place = fresh();
    for i in 0..300 {
        place.write(format!("t/{i}/stays"), "x");
    }
    let (stop, root) = (AtomicBool::new(false), place.at("t"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                i += 1;
                let dir = root.join(format!("{}/comes", i % 300));
                let _ = fs::create_dir(&dir);
                let _ = fs::write(dir.join("and-goes"), "x");
                let _ = fs::remove_dir_all(&dir);
            }
        });
        let mut codes = Vec::new();
        for threads in ["1", "2", "8", "8", "8", "2"] {
            let ran = place.du(&["-s", "--inodes", "--threads", threads, "t"]);
            let count: u64 = ran.text().split('\t').next().unwrap().parse().unwrap_or(0);
            codes.push((ran.code, count, ran.err));
        }
        stop.store(true, Ordering::Relaxed);
        for (code, count, err) in codes {
            assert_eq!(code, Some(0), "{err}");
            // Created and removed entries may or may not be counted in a directory.
            assert!((601..=601 + 2 * 300).contains(&count), "{count}");
        }
    });
}

/// The bits of both signals in a mask of /proc/PID/status.
const INT_AND_TERM: u64 = 1 << 1 | 1 << 14;

/// Waits until the program handles signals; returns false if it exits first.
fn listening(child: &mut Child) -> bool {
    let status = format!("/proc/{}/status", child.id());
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        let text = fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap_or("0");
        if u64::from_str_radix(caught.trim(), 16)
            .is_ok_and(|mask| mask & INT_AND_TERM == INT_AND_TERM)
        {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_signal_leaves_saved_scans_and_prints_no_incomplete_lines() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        interrupted_by(signal, code, "--json");
        interrupted_by(signal, code, "--lines");
    }
}

#[test]
fn a_signal_while_a_list_is_read_is_reported() {
    let place = fresh();
    place.write("t/f", "x");
    place.fifo("names");
    // With both ends open here, the list does not end.
    let mut names = fs::OpenOptions::new().read(true).write(true).open(place.at("names")).unwrap();
    names.write_all(b"t\0").unwrap();
    let mut command = place.our_command(&["-s", "--files0-from=names"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(listening(&mut child));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ran: ProcessOutput = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    assert_eq!(ran.err, "ioloom: interrupted: the totals are incomplete\n");
}

#[test]
fn a_writer_of_names_can_wait_for_their_lines() {
    let place = fresh();
    place.write("t/f", vec![1; 5000]);
    place.write("u/g", vec![1; 5000]);
    fs::hard_link(place.at("t/f"), place.at("u/f")).unwrap();
    let mut command = place.our_command(&["-sc", "--inodes", "--files0-from=-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let (mut names, lines) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(lines).lines() {
            let _ = sender.send(line.unwrap());
        }
    });
    let mut answers = Vec::new();
    for name in ["t", "u", "nope", "t/f", "u/f"] {
        names.write_all(name.as_bytes()).unwrap();
        names.write_all(b"\0").unwrap();
        if name.len() == 1 {
            answers.extend(receiver.recv_timeout(Duration::from_secs(20)));
        }
    }
    drop(names);
    // Without an answer, it would wait for the end of the list.
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(answers, ["2\tt", "2\tu"]);
    assert_eq!(receiver.recv().unwrap(), "4\ttotal");
}

fn interrupted_by(signal: &str, code: i32, how: &str) {
    let place = fresh();
    place.write("kept", "old");
    let args = [how, "-cd0", "--threads", "1", "--save", "kept", "/usr", "/"];
    let mut command = place.our_command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if listening(&mut child) {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let ran: ProcessOutput = child.wait_with_output().unwrap().into();
    if ran.code == Some(0) {
        println!("skipped: this machine has too few files to be interrupted");
        return;
    }
    assert_eq!(ran.code, Some(code), "{}", ran.err);
    if how == "--json" {
        let json = ran.json();
        assert_eq!((&json["interrupted"], &json["complete"]), (&true.into(), &false.into()));
    } else {
        let text = ran.text();
        let incomplete = |line: &str| line.ends_with("\t/") || line.ends_with("\ttotal");
        assert!(!text.lines().any(incomplete), "{text}");
    }
    assert!(ran.err.contains("incomplete"), "{}", ran.err);
    assert_eq!(fs::read(place.at("kept")).unwrap(), b"old", "{}", ran.err);
}

#[test]
fn a_signal_ends_it_while_its_output_is_not_read() {
    let place = fresh();
    for i in 0..3000 {
        place.write(format!("t/a-name-of-some-length-{i}"), "");
    }
    for how in [&["-a"][..], &["-a", "--json"], &["--export-ncdu", "-"]] {
        let mut command = place.our_command(&[how, &["t"]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let waiting = |child: &Child| rustix::io::ioctl_fionread(child.stdout.as_ref().unwrap());
        let mut before = 0;
        // The pipe is full when nothing is added for a while.
        while before < 2000 || waiting(&child).unwrap() != before {
            before = waiting(&child).unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
        let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let begun = std::time::Instant::now();
        let ended = loop {
            if let Some(ended) = child.try_wait().unwrap() {
                break ended;
            }
            if begun.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("{how:?}: the signal did not end it");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(ended.code(), Some(143), "{how:?}");
    }
}

#[test]
fn a_closed_pipe_ends_it_by_its_signal_as_gnu_du() {
    let place = fresh();
    for i in 0..3000 {
        place.write(format!("t/a-name-of-some-length-{i}"), "");
    }
    let script = "\"$1\" du -a t | head -1; exit ${PIPESTATUS[0]}";
    let ran = in_shell(&place, script).ended(141);
    assert_eq!((ran.text().lines().count(), ran.err.as_str()), (1, ""));
    let script = "trap '' PIPE; \"$1\" du -a t | true; exit ${PIPESTATUS[0]}";
    let ran = in_shell(&place, script).ended(1);
    assert_eq!(ran.err, "ioloom: write error: Broken pipe\n");
}

/// Runs a script in this directory, whose first argument is the program.
fn in_shell(place: &Workspace, script: &str) -> ProcessOutput {
    let mut command = Command::new("bash");
    command.args(["-c", script, "sh", PROGRAM]).current_dir(place.path()).stdin(Stdio::null());
    command.env("LC_ALL", "C").output().unwrap().into()
}

#[test]
fn saved_scans_come_from_pipes() {
    let place = fresh();
    place.write("t/f", [1; 1000]);
    place.du(&["--save", "old.json", "t"]).ended(0);
    place.write("t/d/g", [1; 90_000]);
    place.du(&["--save", "new.json", "t"]).ended(0);
    let expected = place.du(&["--diff", "old.json", "new.json"]).ended(0).text();
    let script = "\"$1\" du --diff <(cat old.json) <(cat new.json)";
    assert_eq!(in_shell(&place, script).ended(0).text(), expected);
    let script = "\"$1\" du --diff - new.json < old.json";
    assert_eq!(in_shell(&place, script).ended(0).text(), expected);
    for (script, message) in [
        ("\"$1\" du --diff - t < t/f", "cannot read standard input: not a saved scan"),
        ("\"$1\" du --diff - t <&-", "cannot read standard input: it is closed"),
        ("\"$1\" du --diff - --files0-from - < old.json", "--diff - cannot be combined with"),
    ] {
        let ran = in_shell(&place, script).ended(1);
        assert!(ran.err.contains(message), "{script}: {}", ran.err);
    }
}

#[test]
fn a_limit_of_file_sizes_leaves_no_temporary_file() {
    let place = fresh();
    for at in 0..100 {
        place.write(format!("t/{at}"), "x");
    }
    let ran = in_shell(&place, "ulimit -f 1; \"$1\" du -a --save s.json t").ended(1);
    assert!(ran.err.contains("File too large"), "{}", ran.err);
    let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["t"]);
}

#[test]
fn a_file_that_is_standard_output_is_written_and_not_replaced() {
    let place = fresh();
    place.write("t/f", "x");
    let script =
        "echo kept > all; \"$1\" du --save /dev/stdout -s t >> all; echo after >> all; cat all";
    let text = in_shell(&place, script).ended(0).text();
    assert!(text.starts_with("kept\n") && text.ends_with("\nafter\n"), "{text}");
    assert!(text.contains("\tt\n") && text.contains("\n{\"schema\":"), "{text}");
}

/// Runs a script that runs the browser on a terminal of `script`. Prints a message and returns `None` if that
/// program is missing.
fn on_terminal(place: &Workspace, script: &str) -> Option<ProcessOutput> {
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: script (util-linux) is missing");
        return None;
    }
    // `script` runs commands with it.
    Some(in_shell(place, &format!("export SHELL=/bin/sh TERM=xterm\n{script}")))
}

#[test]
fn the_browser_is_refused_on_a_terminal_that_cannot_be_drawn_on() {
    let place = fresh();
    place.write("t/f", "x");
    for term in ["export TERM=dumb", "unset TERM"] {
        let script = format!(
            "
{term}; export program=\"$1\"
run='timeout --foreground -s KILL 180 \"$program\" du -i t'
script -qfc \"$run; echo \\$? > code\" screen < /dev/null > /dev/null 2>&1
cat code; grep -c \"TERM is 'dumb' or not set\" screen; grep -c quit screen
"
        );
        let Some(ran) = on_terminal(&place, &script) else { return };
        assert_eq!(ran.text(), "1\n1\n0\n", "{term}: {}", ran.err);
    }
}

#[test]
fn the_browser_ends_when_its_terminal_is_closed() {
    // The other bytes of the second key never arrive.
    for keys in ["", "\\033["] {
        let place = fresh();
        place.write("t/f", "x");
        // No signal reports it to a program that ignores SIGHUP.
        let script = format!(
            "
mkfifo keys; export program=\"$1\"
run='timeout --foreground -s KILL 180 \"$program\" du -i t'
script -qfc \"stty rows 24 cols 80; trap '' HUP; $run; echo \\$? > code\" screen < keys > /dev/null 2>&1 &
exec 3> keys
for i in $(seq 1200); do grep -q quit screen 2> /dev/null && break; sleep .05; done
printf '{keys}' >&3; sleep .5
kill -KILL $!
for i in $(seq 1200); do test -s code && break; sleep .05; done
cat code
"
        );
        let Some(ran) = on_terminal(&place, &script) else { return };
        assert_eq!(ran.text(), "129\n", "{keys}: {}", ran.err);
    }
}

#[test]
fn a_signal_during_the_scan_ends_it_before_the_browser() {
    let place = fresh();
    // The brackets in the patterns: `screen` begins with the command.
    let script = "
export program=\"$1\"
run='timeout --foreground -s KILL 180 \"$program\" du -i --threads 1 /'
wait='for i in $(seq 1200); do grep -aqE \"entrie[s],|qui[t]\" screen && break; sleep .05; done'
script -qfc \"stty rows 24 cols 80; $run & $wait; kill -TERM \\$!; wait \\$!; echo \\$? > code\" screen < /dev/null > /dev/null 2>&1
cat code; grep -ac 'interrupted: the totals' screen; grep -ac quit screen
";
    let Some(ran) = on_terminal(&place, script) else { return };
    let text = ran.text();
    if text.starts_with("143\n0\n") {
        println!("skipped: this machine has too few files to be interrupted");
        return;
    }
    assert_eq!(text, "143\n1\n0\n", "{}", ran.err);
}
