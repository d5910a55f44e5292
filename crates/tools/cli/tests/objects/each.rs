//! `each` on objects gives what it gives on files.

use super::{Ran, program, run};
use ioloom_bucket::{Fault, Law, Server};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A server and a directory with the same contents.
fn pair(law: Law, count: usize) -> (Server, tempfile::TempDir) {
    let (server, dir) = (Server::start(law), tempfile::tempdir().unwrap());
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    for number in 0..count {
        let key = if number % 3 == 0 { format!("sub/f {number}") } else { format!("f{number}") };
        let bytes = key.repeat(number * 40).into_bytes();
        std::fs::write(dir.path().join(&key), &bytes).unwrap();
        server.put(&format!("data/{key}"), bytes);
    }
    (server, dir)
}

fn of_files(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ioloom"));
    let output = command.current_dir(dir).arg("each").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_digest_and_the_document_are_those_of_files() {
    let (server, dir) = pair(Law { page: 5, ..Law::default() }, 20);
    let files: serde_json::Value =
        serde_json::from_str(&of_files(dir.path(), &[".", "--json"])).unwrap();
    let objects = run(&server, &["each", "s3://bucket/data", "--json"]).well().json();
    for field in ["digest", "files", "bytes", "errors", "command", "compute", "schema"] {
        assert_eq!(objects[field], files[field], "{field}");
    }
    assert_eq!(objects["method"], "objects");
    assert_eq!(objects["requests"]["sent"], 20);
    let missing: Vec<_> =
        files.as_object().unwrap().keys().filter(|name| objects.get(name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn lines_in_order_are_those_of_checksum_programs() {
    let (server, dir) = pair(Law { page: 7, ..Law::default() }, 25);
    let args = ["--compute", "sha256", "--per-file", "--ordered"];
    let files = of_files(dir.path(), &[&["."][..], &args].concat()).replace("./", "");
    let objects = run(&server, &[&["each", "s3://bucket/data/"][..], &args].concat()).well();
    assert_eq!(objects.out.replace("s3://bucket/data/", ""), files);
}

#[test]
fn commands_get_the_contents() {
    let (server, _dir) = pair(Law::default(), 5);
    let ran = run(&server, &["each", "s3://bucket/data", "--exec", "wc -c", "-q"]).well();
    let mut sizes: Vec<usize> = ran.out.lines().map(|line| line.trim().parse().unwrap()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 80, 160, 320, 840]);
    let ran = run(&server, &["each", "s3://bucket/data", "--exec", "wc -c {}"]);
    ran.one_error(2, "an object has no path");
    let ran = run(&server, &["each", "s3://bucket/data", "--exec", "false", "-q"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("cannot process 's3://bucket/data/f"), "{}", ran.err);
}

#[test]
fn every_failed_command_is_named() {
    let (server, _dir) = pair(Law::default(), 30);
    let ran = run(&server, &["each", "s3://bucket/data", "--exec", "false", "-q"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(ran.err.matches("exited with code 1").count(), 30, "{}", ran.err);
}

/// Ranges of several objects arrive interleaved, and each object has one command.
#[test]
fn no_more_commands_run_than_jobs() {
    let latency = (std::time::Duration::from_millis(5), 0.5);
    let server = Server::start(Law { latency, ..Law::default() });
    (0..12).for_each(|number| server.put(&format!("data/{number}"), vec![b'x'; 60_000]));
    let dir = tempfile::tempdir().unwrap();
    let command = format!(
        "sh -c 'd={}; mkdir $d/$$; ls $d | wc -l; cat > /dev/null; rmdir $d/$$'",
        dir.path().display()
    );
    let args = ["each", "s3://bucket/data/", "--exec", &command, "--jobs", "2", "-q"];
    let ran = run(&server, &[&args[..], &["--memory", "128KiB"]].concat()).well();
    let most: Vec<u32> = ran.out.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(most.len(), 12);
    assert!(most.iter().all(|count| *count <= 2), "{most:?}");
}

#[test]
fn faults_do_not_change_the_result() {
    let faults = vec![(Fault::Reset, 0.05), (Fault::Busy, 0.05), (Fault::Cut, 0.05)];
    let (server, dir) = pair(Law { faults, seed: 5, ..Law::default() }, 60);
    let files = of_files(dir.path(), &[".", "--compute", "blake3", "--json"]);
    let files: serde_json::Value = serde_json::from_str(&files).unwrap();
    let args = ["each", "s3://bucket/data", "--compute", "blake3", "--json", "--memory", "64KiB"];
    let objects = run(&server, &args).well().json();
    assert_eq!((&objects["digest"], &objects["errors"]), (&files["digest"], &0.into()));
    assert!(objects["requests"]["repeated"].as_u64() > Some(0), "{objects}");
    assert!(objects["budget_peak_bytes"].as_u64() <= Some(64 << 10), "{objects}");
}

#[test]
fn errors_have_a_reason_advice_and_a_code() {
    let (server, _dir) = pair(Law::default(), 3);
    let error = |args: &[&str], code, words| run(&server, args).one_error(code, words);
    error(
        &["each", "s3://nosuch/x"],
        1,
        "cannot list 's3://nosuch/x': The specified bucket does not exist (NoSuchBucket); check",
    );
    error(
        &["each", "s3://denied/x"],
        1,
        "cannot list 's3://denied/x': Access Denied (AccessDenied); check the credentials",
    );
    error(
        &["each", "s3://bucket/none"],
        1,
        "cannot read 's3://bucket/none': No such object or prefix",
    );
    error(&["each", "s3:///x"], 2, "cannot open 's3:///x': the name of the bucket is missing");
    error(
        &["each", "hdfs://bucket/x"],
        2,
        "cannot open 'hdfs://bucket/x': hdfs: is not supported, only s3:, az:, gs:, http: and https: are",
    );
    error(&["each", "s3://bucket/a", "s3://bucket/b"], 2, "a URL cannot be combined");
    error(
        &["each", "s3://bucket/a", "--method", "read"],
        2,
        "--method cannot be used with objects",
    );
    error(&["each", "s3://bucket/a", "--schedule", "threads:2"], 2, "window:l=L,p=P");
    for (flag, value) in [("--buffers", "fresh"), ("--read-order", "inode"), ("--chunk", "1MiB")] {
        let words = format!("{flag} cannot be used with objects");
        run(&server, &["each", "s3://bucket/a", flag, value]).one_error(2, &words);
    }
    let mut command = program(&server);
    command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:9").args(["each", "s3://bucket/x"]);
    super::Ran::of(command.output().unwrap())
        .one_error(1, "Connection refused (after 8 attempts); check AWS_ENDPOINT_URL");
    let mut command = program(&server);
    command.env_remove("AWS_ACCESS_KEY_ID").env("AWS_PROFILE", "p").args(["each", "s3://bucket/x"]);
    super::Ran::of(command.output().unwrap()).one_error(2, "no profile 'p'");
}

#[test]
fn some_failures_leave_a_partial_result() {
    let law = Law { faults: vec![(Fault::Shortened, 1.0)], ..Law::default() };
    let (server, _dir) = pair(law, 2);
    let ran = run(&server, &["each", "s3://bucket/data"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.out.contains("(partial: 1 error)"), "{}", ran.out);
    assert!(ran.err.contains("(after 8 attempts)"), "{}", ran.err);
}

#[test]
fn an_interrupt_ends_the_run_with_a_partial_result() {
    // So slow that the interrupt arrives in time even if the machine pauses for seconds.
    let law = Law { latency: (Duration::from_millis(60), 0.0), ..Law::default() };
    let (server, _dir) = pair(law, 200);
    let mut command = program(&server);
    command.args(["each", "s3://bucket/data", "--schedule", "window:l=1,p=1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap();
    let start = Instant::now();
    while server.counts().served < 10 {
        assert!(start.elapsed() < Duration::from_secs(60), "the program sends no requests");
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("interrupted after "), "{err}");
    assert!(server.counts().served < 150, "{:?}", server.counts());
}

#[test]
fn keys_that_are_not_supported_fail_alone() {
    let server = Server::start(Law::default());
    for key in ["d/a", "d/b", "d//c", "d/../e", "/d/f"] {
        server.put(key, "12345");
    }
    for (command, printed) in [
        (["each", "s3://bucket/d/"], "(partial: 2 errors)"),
        (["du", "s3://bucket/"], "1\ts3://bucket/d\n"),
    ] {
        let ran = run(&server, &command);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.out.contains(printed), "{}", ran.out);
        for key in ["d//c", "d/../e"] {
            assert!(
                ran.err.contains(&format!("cannot read 's3://bucket/{key}': keys with")),
                "{}",
                ran.err
            );
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("new").display().to_string();
    let ran = run(&server, &["cp", "-r", "s3://bucket/", &target]);
    assert_eq!((ran.code, ran.err.lines().count()), (Some(1), 3), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(dir.path().join("new/d/a")).unwrap(), "12345");
}

#[test]
fn a_low_limit_on_open_files_is_kept_or_refused() {
    let server = Server::start(Law::default());
    for number in 0..300 {
        server.put(&format!("d/{number:03}"), format!("object {number}"));
    }
    let under = |limit: u32| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" each s3://bucket/d/ --threads 2");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_ioloom")]);
        command.env_clear().envs(server.environment()).env("HOME", "/nonexistent");
        Ran::of(command.output().unwrap())
    };
    under(60).well();
    under(12).one_error(3, "but the limit is 12; raise the limit on open files with 'ulimit -n'");
}
