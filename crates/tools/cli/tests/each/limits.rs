//! The limits on open files and on address space.

use crate::place::{Each, PROGRAM, ProcessOutput, Workspace, fresh};

/// Runs in a shell after a command that sets a limit.
pub(crate) fn after(place: &Workspace, ulimit: &str, args: &[&str]) -> ProcessOutput {
    let script = format!("ulimit {ulimit}; exec \"$@\"");
    let mut command = place.command("sh");
    command.args(["-c", &script, "sh", PROGRAM, "each"]).args(args);
    command.output().unwrap().into()
}

#[test]
fn a_soft_limit_does_not_change_the_plan() {
    let place = fresh();
    place.write("t/a", "a");
    let hard = place.command("sh").args(["-c", "ulimit -Hn"]).output().unwrap().stdout;
    let hard = String::from_utf8(hard).unwrap().trim().to_owned();
    if hard.parse::<u64>().is_ok_and(|hard| hard < 4096) {
        return println!("skipped: the hard limit on open files is {hard}");
    }
    let high = format!("-Sn {hard}");
    for more in [&["--json"][..], &["--method", "read", "--json"], &["--exec", "cat", "--json"]] {
        let plan = |limit: &str| {
            let args = [&["t"], more].concat();
            after(&place, limit, &args).ended(0).json()["plan"].as_str().unwrap().to_owned()
        };
        assert_eq!(plan("-Sn 1024"), plan(&high), "{more:?}");
    }
    let explained = |limit: &str| after(&place, limit, &["t", "--explain"]).ended(0).text();
    assert_eq!(explained("-Sn 1024"), explained(&high));
    // Commands have the limit of the shell.
    let command = ["t", "--quiet", "--exec", "sh -c 'ulimit -Sn'", "--schedule", "threads:n=2"];
    assert_eq!(after(&place, "-Sn 1024", &command).ended(0).text(), "1024\n");
}

#[test]
fn any_number_of_threads_fits_without_a_plan() {
    let place = fresh();
    place.write("t/a", "a");
    for args in [
        &["--threads", "16"][..],
        &["--threads", "64"],
        &["--threads", "64", "--memory", "256KiB", "--compute", "touch"],
    ] {
        let args = [&["t", "--json"], args].concat();
        let json = limited(&place, 1024, &args).ended(0).json();
        let permits = format!("p={}", args[3]);
        assert!(json["plan"].as_str().unwrap().contains(&permits), "{args:?}: {json}");
    }
    // The plan auto is made smaller, and one with another number of files is refused.
    for limit in [1024, 64] {
        let auto = limited(&place, limit, &["t", "--plan", "auto", "--json"]).ended(0).json();
        assert!(!auto["plan"].as_str().unwrap().contains("l=512"), "{limit}: {auto}");
    }
    limited(&place, 64, &["t", "--plan", "nowait/window:l=300,p=2/auto"]).ended(3);
    let list = place.each(&["t", "--per-file"]).ended(0).text();
    place.write("list", list);
    limited(&place, 1024, &["--check", "list", "--threads", "64"]).ended(0);
    // A method is pinned.
    limited(&place, 64, &["t", "--method", "read", "--threads", "64"]).ended(3);
}

#[test]
fn a_given_schedule_runs_as_it_is_or_not_at_all() {
    let place = fresh();
    place.write("t/a", "a");
    for (flag, schedule) in [
        ("--schedule", "threads:n=8"),
        ("--schedule", "window:l=8,p=8"),
        ("--schedule", "roles:r=1,h=3,c=5,w=8"),
        ("--plan", "null/threads:n=8"),
        ("--plan", "nowait/window:l=8,p=8"),
    ] {
        let command = if schedule.starts_with("null") { "cat {}" } else { "cat" };
        let args = ["t", "--exec", command, flag, schedule, "--json"];
        let refused = limited(&place, 14, &args).ended(3);
        refused.one_error(&["limit of 14 open files is too low for 8 commands at once; raise it"]);
        let json = limited(&place, 100, &args).ended(0).json();
        assert!(json["plan"].as_str().unwrap().contains(schedule), "{schedule}: {json}");
    }
}

/// Stacks of 256 MiB in an address space of 4 GiB: the system refuses some of 64 threads.
#[test]
fn a_run_without_a_schedule_goes_on_with_the_threads_it_has() {
    let place = fresh();
    let names: Vec<String> = (0..20).map(|i| format!("t/{i}")).collect();
    for name in &names {
        place.write(name, "x");
    }
    let run = |flags: &[&str]| {
        let script = "ulimit -v 4194304; exec \"$@\"";
        let mut command = place.command("sh");
        command.args(["-c", script, "sh", PROGRAM, "each"]).args(&names).args(flags);
        command.env("RUST_MIN_STACK", "268435456").env("MALLOC_ARENA_MAX", "1");
        ProcessOutput::from(command.output().unwrap())
    };
    let json = run(&["--method", "read", "--threads", "64", "--json"]).ended(0).json();
    assert_eq!(json["files"], 20, "{json}");
    run(&["--method", "read", "--schedule", "threads:n=64"])
        .ended(1)
        .one_error(&["cannot start a thread"]);
}

#[test]
fn a_plan_that_the_run_refuses_is_not_explained() {
    let place = fresh();
    place.write("t/a", "a");
    for more in [&[] as &[&str], &["--explain"]] {
        let args = [&["t"], more].concat();
        limited(&place, 8, &args).ended(3).one_error(&["the limit is 8; raise the limit"]);
    }
}

#[test]
fn fewer_commands_are_reported_unless_quiet() {
    let place = fresh();
    place.write("t/a", "a");
    let args = ["t", "--exec", "true {}", "-j", "8", "--quiet"];
    let ran = limited(&place, 14, &args[..5]).ended(0);
    assert!(ran.err.contains("running 1 command at once instead of 8: "), "{}", ran.err);
    assert_eq!(limited(&place, 14, &args).ended(0).err, "");
}

/// Runs with a limit on open files, for a user who cannot raise it.
fn limited(place: &Workspace, files: u32, args: &[&str]) -> ProcessOutput {
    after(place, &format!("-n {files}"), args)
}

#[test]
fn fewer_commands_run_at_once_under_a_low_limit_on_open_files() {
    let place = fresh();
    for i in 0..60 {
        place.write(format!("t/{}/{i}", i % 7), format!("{i}\n"));
    }
    for limit in [16, 20, 40] {
        for command in ["cat {}", "cat"] {
            let ran = limited(&place, limit, &["t", "--exec", command, "-j", "50"]).ended(0);
            let mut lines: Vec<u32> =
                ran.text().lines().map(|line| line.parse().unwrap()).collect();
            lines.sort_unstable();
            assert_eq!(lines, (0..60).collect::<Vec<_>>(), "{limit} {command}: {}", ran.err);
            let expected =
                format!("instead of 50: the limit on open files is {limit}; raise it with");
            assert_eq!(ran.err.matches(&expected).count(), 1, "{command}: {}", ran.err);
        }
    }
    // Without a low limit nothing is reported.
    let ran = place.each(&["t", "--exec", "true {}", "-j", "50", "--quiet"]).ended(0);
    assert_eq!(ran.err, "");
    limited(&place, 9, &["t", "--exec", "true {}"]).ended(3).one_error(&["ulimit -n"]);
}

#[test]
fn a_small_address_space_neither_ends_the_program_nor_loses_files() {
    let place = fresh();
    for i in 0..120_u8 {
        place.write(format!("mid/{i}"), vec![i; 1 << 20]);
    }
    for i in 0..300 {
        place.write(format!("tiny/{i}"), format!("{i}\n"));
    }
    // The program itself must fit; a build for tests is several times as large as a release.
    let starts = |kib: &u64| after(&place, &format!("-v {kib}"), &["--help"]).code == Some(0);
    let least = (20_000..1_000_000).step_by(4000).find(starts).unwrap();
    for dir in ["mid", "tiny"] {
        let expected = place.each(&[dir, "--json"]).ended(0).json()["digest"].clone();
        for method in
            [&[][..], &["--method", "uring"], &["--method", "direct"], &["--threads", "32"]]
        {
            for more in [20_000, 40_000, 80_000, 160_000] {
                let kib = least + more;
                let args = [&[dir, "--json"], method].concat();
                let ran = after(&place, &format!("-v {kib}"), &args);
                assert_eq!(ran.signal, None, "{kib} {args:?}: {}", ran.err);
                let must = method.is_empty() && more == 160_000;
                match ran.code {
                    Some(0) => assert_eq!(ran.json()["digest"], expected, "{kib} {args:?}"),
                    Some(1 | 3) if !must => assert!(ran.err.contains("ioloom: "), "{args:?}"),
                    code => panic!("{kib} {args:?}: {code:?}, {}", ran.err),
                }
            }
        }
    }
    // One buffer exceeds it.
    let plan = "uring:registered/threads:n=1/chunk=1GiB,memory=2GiB";
    let limit = format!("-v {}", least + 160_000);
    after(&place, &limit, &["tiny", "--plan", plan]).ended(3).one_error(&[": cannot "]);
}
