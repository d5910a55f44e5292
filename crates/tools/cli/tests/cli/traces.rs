//! End-to-end tests of recording, showing and exporting traces, and of watching commands.

use crate::home::{Home, Ran};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Creates a home directory with files.
fn home() -> Home {
    let home = Home::new();
    std::fs::create_dir_all(home.path("in")).unwrap();
    for i in 0..20 {
        std::fs::write(home.path(&format!("in/{i}")), vec![i; 5000]).unwrap();
    }
    home
}

/// Waits for a program, and kills one that hangs.
fn ended(child: &mut Child) -> ExitStatus {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if since.elapsed() > Duration::from_secs(150) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the program hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_trace_is_recorded_shown_and_exported() {
    let home = home();
    home.run(&["each", "in", "--trace", "a.ioloom", "--evidence", "0"]).well();
    let mut other = home.command(&["each", "in", "--plan", "read/threads:n=2"]);
    let other = other.env("IOLOOM_TRACE", "b.ioloom").env("IOLOOM_EVIDENCE", "0");
    Ran::from(other.output().unwrap()).well();
    let shown = home.run(&["trace", "show", "b.ioloom", "--width", "120"]).well().out;
    for part in ["20 files", "evidence level 0", "worker (2)", "on-cpu", "Threads, with"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let mut piped = home.command(&["trace", "show", "-", "--width", "120"]);
    let trace = std::fs::File::open(home.path("b.ioloom")).unwrap();
    assert_eq!(Ran::from(piped.stdin(trace).output().unwrap()).well().out, shown);
    let both = ["trace", "compare", "-", "-", "-o", "page.html"];
    home.run(&both).one_error(2, &["only one of the traces can be standard input"]);
    for (format, begins) in [("html", "<!"), ("svg", "<svg"), ("csv", "tid,thread,role")] {
        let export = ["trace", "export", "a.ioloom", "--format", format, "-o", "-"];
        let text = home.run(&export).well().out;
        assert!(text.to_lowercase().starts_with(begins), "{format}: {}", &text[..40]);
    }
    let export = ["trace", "export", "a.ioloom", "--format", "csv", "--scale", "3", "-o", "-"];
    home.run(&export).one_error(2, &["--scale needs --format png"]);
    home.run(&["trace", "export", "a.ioloom", "--format", "perfetto", "-o", "a.pf"]).well();
    assert!(std::fs::metadata(home.path("a.pf")).unwrap().len() > 500);
    // An input is not replaced.
    let export = ["trace", "export", "a.ioloom", "--format", "html", "-o", "./a.ioloom"];
    home.run(&export).one_error(2, &["./a.ioloom", "is an input"]);
    let mut piped = home.command(&["trace", "export", "-", "--format", "csv", "-o", "a.ioloom"]);
    let trace = std::fs::File::open(home.path("a.ioloom")).unwrap();
    let piped = Ran::from(piped.stdin(trace).output().unwrap());
    piped.one_error(2, &["a.ioloom", "is an input"]);
    let compare = ["trace", "compare", "a.ioloom", "b.ioloom", "-o", "b.ioloom"];
    home.run(&compare).one_error(2, &["b.ioloom", "is an input"]);
    home.run(&["trace", "compare", "a.ioloom", "b.ioloom", "-o", "both.html"]).well();
    assert!(std::fs::read_to_string(home.path("both.html")).unwrap().contains("threads:n=2"));
}

#[test]
fn a_trace_is_written_when_the_reader_of_the_lines_leaves() {
    let home = home();
    // The reader of the lines may be that of the trace, too.
    for trace in ["a.ioloom", "/dev/stdout"] {
        let args = ["each", "-", "--per-file", "--trace", trace, "--evidence", "0"];
        let mut command = home.command(&args);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // The list has no end before the run has.
        let mut list = child.stdin.take().unwrap();
        list.write_all(b"in/0\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let status = ended(&mut child);
        drop(list);
        let errors = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        assert_eq!(status.code(), Some(0), "{trace}: {line} {errors}");
    }
    home.run(&["trace", "show", "a.ioloom"]).well();
}

#[test]
fn an_impossible_trace_is_one_error() {
    let home = home();
    let with = |path: &str, level: &str| -> Ran {
        let mut command = home.command(&["each", "in"]);
        command.env("IOLOOM_TRACE", path).env("IOLOOM_EVIDENCE", level);
        command.output().unwrap().into()
    };
    with("missing/a.ioloom", "0").one_error(1, &["missing/a.ioloom", "No such file", "directory"]);
    with("a.ioloom", "7").one_error(2, &["'7' for IOLOOM_EVIDENCE", "0, 1 or 2"]);
    std::fs::write(home.path("no"), "not a trace").unwrap();
    home.run(&["trace", "show", "no"]).one_error(2, &["no", "not a trace file"]);
    home.run(&["trace", "show", "gone"]).one_error(1, &["gone", "No such file"]);
    // It has no end.
    home.run(&["trace", "show", "/dev/zero"]).one_error(2, &["not a trace file"]);
}

#[test]
fn an_unavailable_level_is_refused_with_advice() {
    let Some(home) = Home::of_nobody() else {
        println!("skipped: not root, so the test cannot switch users");
        return;
    };
    let ran = home.run(&["each", "/proc/self/status", "--trace", "t", "--evidence", "2"]);
    if ran.code == Some(0) {
        println!("skipped: all users can record kernel events here");
        return;
    }
    ran.one_error(3, &["evidence level 2 (kernel) does not work here", "trace grant"]);
}

#[test]
fn a_watched_command_keeps_its_streams_and_its_exit_code() {
    let home = Home::new();
    let script = "echo data; sleep 0.05; exit 7";
    let ran = home.run(&["watch", "-o", "w.ioloom", "--html", "w.html", "--", "sh", "-c", script]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(7), "data\n"), "{}", ran.err);
    assert!(ran.err.contains("exited with code 7") && ran.err.contains("sleep"), "{}", ran.err);
    assert!(home.path("w.html").exists());
    let shown = home.run(&["trace", "show", "w.ioloom"]).well().out;
    assert!(shown.contains("exit 7"), "{shown}");
    assert_eq!(home.run(&["watch", "--", "false"]).code, Some(1));
    home.run(&["watch", "--", "./no such"]).one_error(127, &["cannot start './no such'"]);
}

#[test]
fn an_output_that_fails_loses_no_other_and_not_the_exit_code() {
    let home = Home::new();
    let watch = |code: i32| {
        let _ = std::fs::remove_file(home.path("d"));
        std::fs::create_dir(home.path("d")).unwrap();
        let script = format!("rm -r d; touch d; exit {code}");
        let outputs = ["-o", "d/w.ioloom", "--json", "w.json", "--html", "w.html"];
        let args = ["watch", "--evidence", "0"].iter().chain(&outputs);
        let args: Vec<&str> = args.chain(&["--", "sh", "-c", &script]).copied().collect();
        home.run(&args)
    };
    for (of_command, code) in [(7, 7), (0, 1)] {
        let ran = watch(of_command);
        assert_eq!(ran.code, Some(code), "{}", ran.err);
        assert!(ran.err.contains(&format!("exited with code {of_command}")), "{}", ran.err);
        assert!(ran.err.contains("cannot write the trace 'd/w.ioloom'"), "{}", ran.err);
        for name in ["w.json", "w.html"] {
            std::fs::remove_file(home.path(name)).unwrap();
        }
    }
    std::fs::write(home.path("file"), "").unwrap();
    for output in ["--json", "--html"] {
        let ran = home.run(&["watch", output, "file/out", "--", "touch", "was-run"]);
        ran.one_error(1, &["file"]);
        assert!(!home.path("was-run").exists(), "{output}");
    }
}

#[test]
fn one_file_for_two_outputs_is_refused() {
    let home = Home::new();
    for outputs in [["-o", "w", "--html", "./w"], ["--json", "d/w", "--html", "d/w"]] {
        let args = ["watch", "--evidence", "0"].iter().chain(&outputs);
        let args: Vec<&str> = args.chain(&["--", "touch", "was-run"]).copied().collect();
        home.run(&args).one_error(2, &["w' is named for two outputs"]);
        assert!(!home.path("was-run").exists(), "{outputs:?}");
    }
    let outputs = ["-o", "/dev/null", "--html", "/dev/null"];
    let args = ["watch", "--evidence", "0"].iter().chain(&outputs).chain(&["--", "true"]);
    let ran = home.run(&args.copied().collect::<Vec<&str>>());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

#[test]
fn commands_are_waited_for_if_the_caller_ignores_the_exit_of_children() {
    let home = home();
    for (args, code) in
        [("watch --evidence 0 -- sh -c 'exit 7'", 7), ("each in --exec 'test -f {}'", 0)]
    {
        let script = format!("trap '' CHLD; exec \"{}\" {args}", home.program().display());
        let mut shell = home.with_home(Command::new("sh"), &["-c", &script]);
        let ran = Ran::from(shell.output().unwrap());
        assert_eq!(ran.code, Some(code), "{args}: {}", ran.err);
    }
}

#[test]
fn a_command_that_removes_the_directories_of_the_outputs_does_not_lose_them() {
    let home = Home::new();
    let outputs = ["-o", "d/w.ioloom", "--json", "d/w.json", "--html", "d/w.html"];
    std::fs::create_dir(home.path("d")).unwrap();
    let args = ["watch", "--evidence", "0"].iter().chain(&outputs);
    let args: Vec<&str> = args.chain(&["--", "sh", "-c", "ls d; rm -rf d"]).copied().collect();
    let ran = home.run(&args);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{}", ran.err);
    for name in ["d/w.ioloom", "d/w.json", "d/w.html"] {
        assert!(std::fs::metadata(home.path(name)).unwrap().len() > 0, "{name}");
    }
}

#[test]
fn a_signal_ends_a_watch_whose_output_is_not_read() {
    let home = Home::new();
    // The command fills the pipe, so the document does not fit.
    let script = "head -c 65536 /dev/zero";
    let args = ["watch", "--evidence", "0", "--json", "-", "--", "sh", "-c", script];
    let mut command = home.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("exited with code 0")));
    let signalled = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(signalled.success());
    let ended = (0..6000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        child.try_wait().unwrap().is_some()
    });
    let _ = child.kill();
    assert_eq!((ended, child.wait().unwrap().code()), (true, Some(1)));
}

#[test]
fn a_signal_for_the_command_does_not_lose_the_report() {
    let home = Home::new();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    for (name, number) in [("INT", 2), ("QUIT", 3), ("HUP", 1), ("TERM", 15)] {
        // A shell cannot catch a signal that was ignored when it started.
        if ignored >> (number - 1) & 1 == 1 {
            continue;
        }
        // The signal comes from a process rather than the terminal, so the command does not get it too.
        let script = format!(
            "trap 'exit {number}' {name}; kill -{name} $PPID; i=0
            while [ $i -lt 1200 ]; do sleep 0.05; i=$((i+1)); done"
        );
        let mut command = home.command(&["watch", "--evidence", "0", "--", "sh", "-c", &script]);
        let ran = Ran::from(command.process_group(0).output().unwrap());
        assert_eq!(ran.code, Some(number), "{name}: {}", ran.err);
        assert!(ran.err.contains(&format!("exited with code {number}")), "{name}: {}", ran.err);
    }
}

/// Returns what a command of a shell writes to a terminal; `None` without the program that makes one.
fn in_terminal(home: &Home, command: &str) -> Option<String> {
    let command = format!("stty rows 24 cols 80; {command}");
    let mut terminal = home.with_home(Command::new("script"), &["-qefc", &command, "out"]);
    terminal.env("TERM", "xterm").stdin(Stdio::null()).stdout(Stdio::null());
    let status = ended(&mut terminal.spawn().ok()?);
    let out = std::fs::read(home.path("out")).unwrap();
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(status.code(), Some(0), "{out}");
    Some(out)
}

#[test]
fn live_rows_are_not_shown_from_the_background() {
    let home = Home::new();
    let program = home.program().display();
    let watch = format!("set -m; {program} watch --evidence 0 -- sleep 2 & wait $!");
    let Some(out) = in_terminal(&home, &watch) else {
        return println!("skipped: script is missing");
    };
    assert!(out.contains("exited with code 0") && !out.contains("\x1b[1;19r"), "{out}");
}

#[test]
fn a_stop_by_the_terminal_clears_the_live_rows_until_the_watch_goes_on() {
    let home = Home::new();
    // Of 24 rows, 19 scroll. A stop without a shell that could continue the program has no other effect.
    let script = r"split() { [ $(grep -ao '\[1;19r' out | wc -l) -ge $1 ]; }
        wait_for() { i=0; until split $1; do i=$((i+1)); [ $i -lt 600 ] || exit 9; sleep 0.1; done; }
        wait_for 1; kill -TSTP $PPID; wait_for 2";
    std::fs::write(home.path("command"), script).unwrap();
    let watch = format!("exec {} watch --evidence 0 -- sh ./command", home.program().display());
    let Some(out) = in_terminal(&home, &watch) else {
        return println!("skipped: script is missing");
    };
    let marks: Vec<&str> = out
        .split('\x1b')
        .filter(|part| part.starts_with("[r") || part.starts_with("[1;19r"))
        .collect();
    assert!(marks[..3].iter().map(|mark| mark.contains("1;19r")).eq([true, false, true]), "{out}");
}
