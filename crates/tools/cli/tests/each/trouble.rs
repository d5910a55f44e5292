//! Problems: missing and forbidden files, pipes, interrupts, truncated files.

use crate::place::{Each, PROGRAM, ProcessOutput, Workspace, fresh};
use crate::signals::{LATER, lives, send, until};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn invalid_values_exit_with_2_before_anything_is_opened() {
    let place = fresh();
    place.write("a", "a");
    for (flag, value) in [
        ("--compute", "sha9"),
        ("--method", "telepathy"),
        ("--schedule", "chaos"),
        ("--plan", "telepathy/threads:n=1"),
        ("--chunk", "big"),
        ("--memory", "some"),
        ("--memory", "1KiB"),
        ("--chunk", "0"),
        ("--threads", "x"),
        ("--threads", "0"),
        ("--buffers", "none"),
        ("--read-order", "random"),
    ] {
        let ran = place.each(&["absent", flag, value]).ended(2);
        ran.one_error(&[&format!("invalid value '{value}' for {flag}: ")]);
    }
    let ran = place.each(&["a", "--compute", "sleep:1ms", "--per-file"]).ended(2);
    ran.one_error(&["sleep has none"]);
    place.each(&["a", "--plan", "read/threads:1", "--memory", "1MiB"]).ended(2);
    place.each::<&str>(&[]).ended(2).one_error(&["missing operand"]);
    place.each(&["a", "-"]).ended(2).one_error(&["cannot be combined"]);
    place.each(&["a", ""]).ended(2).one_error(&["a path must not be empty"]);
    let large = place.each(&["a", "--chunk", "2MiB", "--memory", "1MiB"]).ended(2);
    large.one_error(&["--chunk 2.00 MiB exceeds --memory 1.00 MiB"]);
    let large = place.each(&["a", "--chunk", "1GiB"]).ended(2);
    large.one_error(&["--chunk 1.00 GiB exceeds the default memory budget, "]);
    for flags in [
        &["--exec", "cat", "--ordered"][..],
        &["--exec", "cat", "--tag"],
        &["--exec", "cat", "--status"],
        &["--per-file", "--status"],
        &["--per-file", "--ignore-missing"],
        &["--json", "--warn"],
        &["--json", "--strict"],
    ] {
        let ran = place.each(&[&["a"], flags].concat()).ended(2);
        assert!(ran.out.is_empty() && ran.err.contains(flags[flags.len() - 1]), "{}", ran.err);
    }
}

#[test]
fn plans_that_cannot_run_are_refused() {
    let place = fresh();
    place.write("a", "a");
    for args in [
        &["--plan", "mmap:plain/window:l=4"][..],
        &["--method", "direct:read", "--chunk", "1000"],
        &["--schedule", "roles:r=1,h=0,c=1", "--chunk", "64KiB"],
    ] {
        place.each(&[&["a"], args].concat()).ended(3).one_error(&[": "]);
    }
}

#[test]
fn a_url_is_not_explained_as_a_path() {
    let (code, words) = match cfg!(feature = "objects") {
        true => (2, "--explain cannot be used with objects"),
        false => (3, "cannot open 's3://bucket/x': this build has no object storage"),
    };
    fresh().each(&["--explain", "s3://bucket/x"]).ended(code).one_error(&[words]);
}

/// A directory can be opened but not read, so as a list it fails at its first byte.
#[test]
fn unreadable_standard_input_is_named() {
    let place = fresh();
    let ran = |args: &[&str]| -> ProcessOutput {
        let broken = File::open(place.at(".")).unwrap();
        place.ours(&["each"]).args(args).stdin(broken).output().unwrap().into()
    };
    ran(&["--check", "-"]).ended(1).one_error(&["cannot read standard input: Is a directory"]);
    for method in ["read", "mmap:plain"] {
        let listed = ran(&["-", "--quiet", "--method", method]).ended(1);
        listed.one_error(&["standard input: cannot read the list of paths after 0 paths"]);
        assert!(!listed.err.contains('<'), "{}", listed.err);
    }
    let json = ran(&["-", "--json"]).ended(1).json();
    assert_eq!((json["files"].as_u64(), json["errors"].as_u64()), (Some(0), Some(1)), "{json}");
    assert!(json["error_samples"][0].as_str().unwrap().starts_with("standard input: "), "{json}");
    let zero = place.each_of(&["-", "--quiet"], b"a\0b\0").ended(1);
    zero.one_error(&["path 1 contains a zero byte; add -0 if"]);
    // Paths before the error are processed.
    place.write("good", "good");
    let zero = place.each_of(&["-", "--json"], b"good\nbad\0name\ngood\n").ended(1).json();
    assert_eq!((zero["files"].as_u64(), zero["errors"].as_u64()), (Some(1), Some(1)), "{zero}");
    let none = place.each_of(&["--check", "-"], b"hello\n").ended(1);
    none.one_error(&["standard input: no properly formatted checksum lines found"]);
}

#[test]
fn special_files_are_errors_and_never_hang() {
    let place = fresh();
    place.write("good", "good");
    place.fifo("pipe");
    place.each(&["absent"]).ended(1).one_error(&["absent", "No such file"]);
    place.each(&["pipe"]).ended(1).one_error(&["pipe", "named pipe"]);
    for method in ["read", "nowait", "uring", "uring:open", "mmap:plain"] {
        let args = ["-", "--json", "--method", method];
        let ran = place.each_of(&args, b"pipe\ngood\nabsent\n.\n");
        if ran.code == Some(3) {
            continue;
        }
        let ran = ran.ended(1);
        let json = ran.json();
        assert_eq!((json["files"].as_u64(), json["errors"].as_u64()), (Some(1), Some(3)), "{json}");
        assert_eq!(ran.err.lines().count(), 3, "{}", ran.err);
    }
}

/// A file of /proc has data, but no size, so a mapping would be empty.
#[test]
fn files_without_a_size_are_not_mapped_as_empty_ones() {
    let place = fresh();
    place.write("empty", "");
    for method in ["mmap:plain", "mmap:sequential", "mmap:willneed", "mmap:populate"] {
        let args = ["/proc/version", "empty", "--method", method, "--json"];
        let ran = place.each(&args).ended(1);
        let expected = ["cannot map '/proc/version'", "size is 0"];
        assert!(expected.iter().all(|words| ran.err.contains(words)), "{}", ran.err);
        assert_eq!(ran.json()["files"], 1);
    }
}

/// As in sha256sum, each operand that cannot be read is one error.
#[test]
fn operands_that_cannot_be_read_do_not_stop_the_others() {
    let place = fresh();
    place.write("first", "first");
    place.write("last", "last");
    place.fifo("pipe");
    std::os::unix::fs::symlink("nowhere", place.at("dangling")).unwrap();
    let operands = ["first", "absent", "pipe", "dangling", "/dev/null", "last"];
    for (more, lines) in [
        (&["--per-file", "--ordered", "--quiet"][..], 2),
        (&["--exec", "cat {}", "--quiet"], 0),
        (&["--exec", "cat", "--quiet"], 0),
    ] {
        let ran = place.each(&[&operands, more].concat()).ended(1);
        assert_eq!(ran.text().lines().count().min(lines), lines, "{more:?}: {}", ran.text());
        assert!(ran.text().contains("first") && ran.text().contains("last"), "{}", ran.text());
        assert_eq!(ran.err.lines().count(), 4, "{more:?}: {}", ran.err);
        for name in ["absent", "pipe", "dangling", "/dev/null"] {
            assert!(ran.err.contains(&format!("'{name}': ")), "{name}: {}", ran.err);
        }
    }
    let json = place.each(&[&operands, &["--json"][..]].concat()).ended(1).json();
    assert_eq!((&json["files"], &json["errors"]), (&2.into(), &4.into()), "{json}");
    let none = place.each(&["absent", "pipe"]).ended(1);
    assert_eq!((none.text().as_str(), none.err.lines().count()), ("", 2), "{}", none.err);
}

#[test]
fn an_unreadable_file_is_reported_and_the_others_are_processed() {
    let place = fresh();
    place.write("t/open", "open");
    place.write("t/shut", "shut");
    place.write("t/closed/inside", "inside");
    fs::set_permissions(place.at("t/shut"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(place.at("t/closed"), Permissions::from_mode(0o000)).unwrap();
    let place = place.for_nobody();
    let ran = place.each(&["t", "--json"]);
    let by_line: Vec<_> = [&["t", "absent"][..], &["t", "absent", "--ordered"]]
        .map(|args| place.each(&[args, &["--per-file", "--json"]].concat()))
        .into();
    fs::set_permissions(place.at("t/closed"), Permissions::from_mode(0o755)).unwrap();
    for ran in by_line {
        let text = ran.ended(1).text();
        let mut lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.pop().unwrap()["errors"], 3, "{text}");
        let error_of = |path: &str| {
            let line = lines.iter().find(|line| line["path"] == path);
            line.and_then(|line| line["error"].as_str()).unwrap_or_default().to_owned()
        };
        assert!(error_of("t/closed").starts_with("cannot open directory 't/closed': "), "{text}");
        assert!(error_of("t/shut").contains("Permission denied"), "{text}");
        assert!(error_of("absent").contains("No such file"), "{text}");
        assert_eq!(lines.len(), 4, "{text}");
    }
    let ran = ran.ended(1);
    let json = ran.json();
    assert_eq!((json["files"].as_u64(), json["errors"].as_u64()), (Some(1), Some(2)), "{json}");
    assert_eq!(json["digest_partial"], true, "{json}");
    for name in ["t/shut", "t/closed"] {
        assert!(ran.err.contains(name), "{name}: {}", ran.err);
    }
    assert!(ran.err.to_lowercase().contains("permission denied"), "{}", ran.err);
}

#[test]
fn a_file_that_does_not_fit_names_the_flag() {
    let place = fresh();
    place.write("large", vec![0; 2 << 20]);
    let roles = ["--schedule", "roles:r=1,h=0,c=1", "--memory", "1MiB", "--quiet"];
    for work in [["--compute", "sha256"], ["--exec", "wc -c"]] {
        let ran = place.each(&[&["large"], &work[..], &roles].concat()).ended(1);
        ran.one_error(&["'large'", "do not fit the memory budget", "raise --memory"]);
        assert!(!ran.err.contains(".chunks()"), "{}", ran.err);
        place.each(&[&["large"], &work[..], &roles[2..]].concat()).ended(0);
    }
}

/// --exclude applies only to files that a walk finds.
#[test]
fn advice_to_exclude_is_given_only_for_walks() {
    let place = fresh();
    place.write("t/shut", "shut");
    fs::set_permissions(place.at("t/shut"), Permissions::from_mode(0o000)).unwrap();
    let place = place.for_nobody();
    for (args, walk) in [(&["t"][..], true), (&["t/shut"], false), (&["-"], false)] {
        let ran = place.each_of(&[args, &["--quiet"]].concat(), b"t/shut\n").ended(1);
        ran.one_error(&["'t/shut': Permission denied", "run as a user with permission"]);
        assert_eq!(ran.err.contains("exclude"), walk, "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_message_is_one_line_for_any_name() {
    let place = fresh();
    let ran = place.each_of(&["-0", "-"], b"bad\n\x1b[31mname\0").ended(1);
    assert_eq!(ran.err.lines().count(), 1, "{:?}", ran.err);
    assert!(!ran.err.contains('\x1b'), "{:?}", ran.err);
}

/// Waits until the program handles signals.
fn listening(child: &mut Child) {
    let status = format!("/proc/{}/status", child.id());
    loop {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        let text = fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap_or("0");
        if u64::from_str_radix(caught.trim(), 16).is_ok_and(|mask| mask & 0x4002 == 0x4002) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interrupt_exits_with_130_and_reports_progress() {
    let place = fresh();
    for i in 0..300 {
        place.write(format!("t/{i}"), "x");
    }
    let interrupted = |more: &[&str]| {
        let args = ["each", "t", "--compute", "sleep:200ms", "--schedule", "threads:n=1"];
        let mut command = place.command(PROGRAM);
        let command = command.args(args).args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        listening(&mut child);
        std::thread::sleep(Duration::from_millis(300));
        send("-INT", child.id());
        ProcessOutput::from(child.wait_with_output().unwrap()).ended(130)
    };
    let ran = interrupted(&["--json"]);
    let json = ran.json();
    assert_eq!(json["cancelled"], true);
    assert_eq!(json["digest_partial"], true);
    assert!(json["files"].as_u64().unwrap() < 300, "{json}");
    assert!(ran.err.contains("interrupted after"), "{}", ran.err);
    let text = interrupted(&[]).text();
    let digest = text.lines().find(|line| line.starts_with("digest")).unwrap();
    assert!(digest.ends_with("(partial: interrupted)"), "{text}");
}

/// Files of a mapped plan: work for longer than [`until`] waits.
const SLOW_FILES: u64 = 500;

/// A mapped plan over many slow files.
fn slow_mapped(place: &Workspace, more: &[&str]) -> Command {
    for i in 0..SLOW_FILES {
        place.write(format!("t/{i}"), "x");
    }
    let mut command = place.command(PROGRAM);
    command.args(["each", "t", "--plan", "mmap:plain/threads:n=1", "--compute", "sleep:200ms"]);
    command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the child process of a mapped plan, once it processes a file.
fn working_child(program: &mut Child) -> u32 {
    loop {
        let children = format!("/proc/{0}/task/{0}/children", program.id());
        let text = fs::read_to_string(children).unwrap_or_default();
        let child = text.split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok());
        if child.is_some_and(|pid| {
            fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("/t/"))
        }) {
            return child.unwrap();
        }
        assert!(program.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1
}

#[test]
fn the_child_of_a_mapped_plan_ends_with_its_parent() {
    let place = fresh();
    let mut program = slow_mapped(&place, &[]).stdout(Stdio::null()).spawn().unwrap();
    let child = working_child(&mut program);
    program.kill().unwrap();
    program.wait().unwrap();
    until("the child has ended", || !lives(child));
}

#[test]
fn an_interrupt_of_a_mapped_plan_reaches_its_child() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        if signal == "-HUP" && is_hangup_ignored() {
            println!("skipped: SIGHUP is ignored, as by nohup");
            continue;
        }
        let place = fresh();
        let mut program = slow_mapped(&place, &["--json"]).spawn().unwrap();
        working_child(&mut program);
        send(signal, program.id());
        let ran = ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
        let json = ran.json();
        assert_eq!(json["cancelled"], true, "{signal}: {json}");
        assert!(json["files"].as_u64().unwrap() < SLOW_FILES, "{signal}: {json}");
    }
}

/// A mapped plan over one file without data, whose size takes longer than [`until`] waits.
fn large_mapped(place: &Workspace, method: &str, work: &str) -> Command {
    fs::create_dir_all(place.at("t")).unwrap();
    File::create(place.at("t/large")).unwrap().set_len(64 << 30).unwrap();
    let mut command = place.command(PROGRAM);
    command.args(["each", "t", "--method", method, "--threads", "1", "--compute", work, "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A mapping is one piece, and one call fills it if it is populated.
#[test]
fn an_interrupt_ends_a_mapped_plan_within_a_file() {
    for (method, work) in [("mmap", "xxh3"), ("mmap", "touch"), ("mmap:populate", "xxh3")] {
        let place = fresh();
        let mut program = large_mapped(&place, method, work).spawn().unwrap();
        working_child(&mut program);
        let begun = Instant::now();
        send("-TERM", program.id());
        let ran = ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
        assert!(begun.elapsed() < Duration::from_secs(10), "{method}: {:?}", begun.elapsed());
        let json = ran.json();
        assert_eq!(json["cancelled"], true, "{method} {work}: {json}");
        assert_eq!(json["files"], 0, "{method} {work}: {json}");
        assert_eq!(json["errors"], 0, "{method} {work}: {json}");
        assert_eq!(json["digest_partial"], work == "xxh3", "{method} {work}: {json}");
    }
}

#[test]
fn the_child_of_a_mapped_plan_ends_with_its_parent_within_a_file() {
    let place = fresh();
    let mut program = large_mapped(&place, "mmap", "xxh3").stdout(Stdio::null()).spawn().unwrap();
    let child = working_child(&mut program);
    program.kill().unwrap();
    program.wait().unwrap();
    until("the child has ended", || !lives(child));
}

/// Files of several parts have the same hashes.
#[test]
fn large_mapped_files_have_the_same_digest() {
    let place = fresh();
    for (name, bytes) in [("a", (1 << 20) + 1), ("b", 2 << 20), ("c", (17 << 20) + 5)] {
        let contents: Vec<u8> = (0..bytes).map(|i: u32| (i % 251) as u8).collect();
        place.write(format!("t/{name}"), contents);
    }
    for work in ["xxh3", "sha256", "crc32c"] {
        let hashes = |method| {
            let args = ["t", "--method", method, "--compute", work, "--per-file", "--ordered"];
            place.each(&args).ended(0).text()
        };
        let read = hashes("read");
        assert_eq!((hashes("mmap"), hashes("mmap:populate")), (read.clone(), read), "{work}");
    }
}

#[test]
fn an_interrupt_that_reaches_both_counts_once() {
    let place = fresh();
    let mut program = slow_mapped(&place, &["--json"]).spawn().unwrap();
    let child = working_child(&mut program);
    send("-INT", child);
    send("-INT", program.id());
    let ran = ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
    assert_eq!(ran.json()["cancelled"], true);
}

#[test]
fn a_second_interrupt_ends_a_mapped_plan_at_once() {
    let place = fresh();
    let mut program = slow_mapped(&place, &[]);
    let mut program = program.spawn().unwrap();
    let child = working_child(&mut program);
    send("-TERM", program.id());
    std::thread::sleep(LATER);
    send("-INT", program.id());
    ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
    // It was killed and may need a moment to exit; its files alone would take longer.
    until("the child has ended", || !lives(child));
}

#[test]
fn a_mapped_plan_draws_a_bar_on_a_terminal() {
    let place = fresh();
    drop(slow_mapped(&place, &[]));
    let each = format!("{PROGRAM} each t --plan mmap:plain/threads:n=1 --compute sleep:2ms");
    let ran =
        place.command("script").args(["-qec", &each, "/dev/null"]).env("TERM", "xterm").output();
    match ran {
        Err(error) => println!("skipped: cannot run script: {error}"),
        Ok(ran) => {
            let text = ProcessOutput::from(ran).ended(0).text();
            assert!(text.contains(&format!("/{SLOW_FILES} files")), "{text:?}");
            assert!(!text.contains("ioloom-progress"), "{text:?}");
            // The result has lines of its own, and no bar follows.
            let (bars, result) = text.split_once(&format!("{SLOW_FILES} files, ")).unwrap();
            let before = bars.rsplit("\x1b[2K").next().unwrap();
            assert_eq!(before.trim(), "", "{text:?}");
            assert!(!result.contains(&format!("/{SLOW_FILES} files")), "{text:?}");
        }
    }
    // Without a terminal no progress is printed.
    let ran = place.each(&["t", "--plan", "mmap:plain/threads:n=1"]).ended(0);
    assert_eq!(ran.err, "");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let place = fresh();
    for i in 0..4000 {
        place.write(format!("t/a-name-of-some-length-{i}"), "");
    }
    let script = "\"$1\" each t --per-file --quiet | head -1";
    let ran: ProcessOutput =
        place.command("sh").args(["-c", script, "sh", PROGRAM]).output().unwrap().into();
    let ran = ran.ended(0);
    assert_eq!(ran.text().lines().count(), 1);
    assert_eq!(ran.err, "");
}

/// Returns whether a child of `parent` has the file mapped.
fn mapped(parent: u32, name: &str) -> bool {
    let children = format!("/proc/{parent}/task/{parent}/children");
    fs::read_to_string(children).unwrap_or_default().split_whitespace().any(|child| {
        fs::read_to_string(format!("/proc/{child}/maps")).is_ok_and(|maps| maps.contains(name))
    })
}

#[test]
fn a_file_cut_while_it_is_mapped_is_one_error() {
    let place = fresh();
    fs::create_dir(place.at("t")).unwrap();
    let file = File::create(place.at("t/to-be-cut")).unwrap();
    file.set_len(64 << 20).unwrap();
    let mut command = place.command(PROGRAM);
    command.args(["each", "t", "--plan", "mmap:plain/threads:n=1", "--compute", "checksum:20000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !mapped(child.id(), "to-be-cut") {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it mapped the file");
        std::thread::sleep(Duration::from_millis(1));
    }
    file.set_len(0).unwrap();
    let ran = ProcessOutput::from(child.wait_with_output().unwrap()).ended(1);
    ran.one_error(&["'t/to-be-cut'", "truncated"]);
}

/// Makes the files of a plain user. Returns false if the test cannot switch to that user.
fn of_plain_user(place: &Workspace, files: u32) -> bool {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: not root, so the test cannot switch users");
        return false;
    }
    let program = place.at("ioloom");
    // Another process copies the program, so that no child of another test has it open for writing.
    assert!(Command::new("cp").arg(PROGRAM).arg(&program).status().unwrap().success());
    fs::create_dir(place.at("t")).unwrap();
    (0..files).for_each(|n| fs::write(place.at(format!("t/{n}")), "a\n").unwrap());
    fs::set_permissions(place.at("."), PermissionsExt::from_mode(0o755)).unwrap();
    true
}

/// Runs `each t` with a limit on processes, which binds only plain users. No other one has the number `user`,
/// so nothing else counts.
fn with_processes(place: &Workspace, user: u32, most: u32, words: &str) -> ProcessOutput {
    let program = place.at("ioloom");
    let limited = format!("ulimit -u {most}; exec {} each t {words}", program.display());
    let user = user.to_string();
    let mut command = place.command("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "bash", "-c"]);
    ProcessOutput::from(command.arg(limited).output().unwrap())
}

#[test]
fn a_process_without_threads_is_one_error_or_a_result() {
    let place = fresh();
    if !of_plain_user(&place, 1) {
        return;
    }
    let user = 61_000 + std::process::id() % 1_000;
    for most in 1..7 {
        for words in ["", "--per-file", "--method mmap", "--exec true -j2"] {
            let ran = with_processes(&place, user, most, words);
            assert!(matches!(ran.code, Some(0..=3)), "{most} {words}: {ran:?}");
            assert!(!ran.err.contains("panicked"), "{most} {words}: {}", ran.err);
            let is_limited = ran.err.contains("cannot start a");
            assert!(is_limited || most > 1, "the limit has no effect on '{words}': {}", ran.err);
        }
    }
}

/// The workers leave too few processes for eight commands at once.
#[test]
fn a_command_waits_for_the_processes_of_others() {
    let place = fresh();
    if !of_plain_user(&place, 200) {
        return;
    }
    let user = 62_000 + std::process::id() % 1_000;
    for words in ["--quiet -j8 --exec 'cat {}'", "--quiet -j8 --exec cat"] {
        let ran = with_processes(&place, user, 20, words).ended(0);
        assert_eq!(ran.text().lines().count(), 200, "{words}: {}", ran.err);
    }
}
