//! `ioloom advise`: budgets, advice, the sweep and the profile.

use crate::home::{Home, Ran};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Writes `count` cached files of `bytes` bytes.
fn files(home: &Home, count: usize, bytes: usize) -> PathBuf {
    let dir = home.path("files");
    for i in 0..count {
        let sub = dir.join(format!("d{}", i / 100));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join(i.to_string()), vec![i as u8; bytes]).unwrap();
    }
    dir
}

/// Runs the program until it finishes a file in its budget. A busy machine can use up the time of a budget.
fn in_budget(home: &Home, args: &[&str]) -> Ran {
    let is_enough = |ran: &Ran| !ran.err.contains("raise --budget-time");
    (0..10).map(|_| home.run(args)).find(is_enough).expect("a trial finishes a file")
}

/// Returns a first advice, the profile after it, and a second advice. Returns `None` if the time was too short to
/// list all files or to compare plans, as on a busy machine.
fn advised_twice(home: &Home, dir: &str) -> Option<(Value, String, Value)> {
    home.run(&["advise", "--profile", "forget", dir]);
    let tried = |advice: &Value| advice["tried"].as_array().map_or(0, Vec::len);
    let args = ["advise", dir, "--budget-time", "2s", "--json"];
    let advice = || in_budget(home, &args).well().json();
    let first = advice();
    if first["files"] != 1500 || tried(&first) < 2 || first["expected_lo_ns"].is_null() {
        return None;
    }
    let shown = home.run(&["advise", "--profile", "show"]).well().out;
    let again = advice();
    let is_enough = tried(&again) > 3
        || again["condition"] != first["condition"]
        || first["condition"] == "unknown";
    is_enough.then_some((first, shown, again))
}

#[test]
fn the_advice_is_a_plan_that_runs_and_the_profile_is_verified_and_forgotten() {
    let home = Home::new();
    let dir = files(&home, 1500, 2000);
    let dir = dir.to_str().unwrap();
    let advice = (0..10).find_map(|_| advised_twice(&home, dir));
    let (first, shown, again) = advice.expect("both trials compare several plans");
    assert_eq!((first["files"].as_u64(), first["bytes"].as_u64()), (Some(1500), Some(3_000_000)));
    let tried = first["tried"].as_array().unwrap();
    assert!(tried.len() >= 2, "{first:#}");
    assert!(tried[0]["plan"].as_str().unwrap().starts_with("nowait/"), "the default is first");
    let (lo, at, hi) = ("expected_lo_ns", "expected_ns", "expected_hi_ns");
    let ns = |field: &str| first[field].as_u64().unwrap();
    assert!(0 < ns(lo) && ns(lo) < ns(at) && ns(at) < ns(hi), "{first:#}");
    assert_eq!((first["errors"].as_u64(), first["learnt_plan"].is_null()), (Some(0), true));
    let plan = first["plan"].as_str().unwrap();
    let run = home.run(&["each", dir, "--plan", plan, "--json"]).well().json();
    assert_eq!(run["files"], 1500);

    if first["condition"] == "unknown" {
        assert!(shown.starts_with("no profile"), "{shown}");
        return;
    }
    assert!(shown.contains("xxh3") && shown.contains(plan), "{shown}");
    if again["condition"] == first["condition"] {
        assert_eq!(again["learnt_plan"], first["plan"], "the profile is looked up");
        let others = again["tried"].as_array().unwrap().len();
        assert!(others > 3, "a known plan does not exclude others: {again:#}");
    }
    assert_ne!(again["seed"], first["seed"], "each trial reads other files");
    let labels = ["advice", "use", "expected", "faster disk", "more cores", "regret", "spent"];
    let has = |text: &str, label: &str| text.lines().any(|line| line.starts_with(label));
    let is_whole = |text: &str| labels.into_iter().all(|label| has(text, label));
    let text = || in_budget(&home, &["advise", dir, "--budget-time", "1s"]).well().out;
    assert!((0..10).map(|_| text()).any(|text| is_whole(&text)), "{}", text());
    let elsewhere = home.run(&["advise", "--profile", "show", "/proc"]).well().out;
    assert!(elsewhere.starts_with("no profile"), "{elsewhere}");
    let here = home.run(&["advise", "--profile", "show", dir]).well().out;
    assert!(here.contains("xxh3"), "{here}");
    home.run(&["advise", "--profile", "forget", "/proc"]).well();
    assert!(home.run(&["advise", "--profile", "show"]).well().out.contains("xxh3"));
    for action in ["show", "forget"] {
        home.run(&["advise", "--profile", action, "/no/such"]).one_error(1, &["/no/such"]);
    }
    home.run(&["advise", "--profile", "forget", dir]).well();
    let shown = home.run(&["advise", "--profile", "show", "--json"]).well().json();
    assert_eq!(shown["profiles"].as_array().unwrap().len(), 0);
}

#[test]
fn the_budget_of_bytes_is_kept() {
    let home = Home::new();
    let dir = files(&home, 400, 64 << 10);
    let dir = dir.to_str().unwrap();
    let args = ["advise", dir, "--budget-bytes", "4MiB", "--budget-time", "20s", "--json"];
    let advice = in_budget(&home, &args).well().json();
    assert!(advice["bytes_read"].as_u64().unwrap() <= 4 << 20, "{advice:#}");
    assert_eq!(advice["files"], 400);
}

#[test]
fn work_that_takes_longer_than_the_budget_is_stopped() {
    let home = Home::new();
    let dir = files(&home, 4, 10);
    for compute in ["sleep:90s", "spin:90s"] {
        let start = std::time::Instant::now();
        let args = ["advise", dir.to_str().unwrap(), "--compute", compute, "--budget-time", "1s"];
        home.run(&args).one_error(1, &["--budget-time"]);
        assert!(start.elapsed().as_secs() < 45, "{compute}: {:?}", start.elapsed());
    }
}

#[test]
fn an_interrupted_trial_prints_a_message() {
    let home = Home::new();
    let dir = files(&home, 8, 10);
    let args = ["advise", dir.to_str().unwrap(), "--compute", "sleep:90s", "--budget-time", "60s"];
    let mut command = home.command(&args);
    let pipe = std::process::Stdio::piped;
    let child = command.stdout(pipe()).stderr(pipe()).spawn().unwrap();
    // It catches the signal before it opens the files.
    let status = format!("/proc/{}/status", child.id());
    let catches = |line: &str| {
        let mask = line.strip_prefix("SigCgt:").map(|hex| u64::from_str_radix(hex.trim(), 16));
        mask.is_some_and(|mask| mask.unwrap() & 2 != 0)
    };
    for _ in 0..1_000 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        if fs::read_to_string(&status).unwrap().lines().any(catches) {
            break;
        }
    }
    // The signal has two handlers.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    Ran::from(child.wait_with_output().unwrap())
        .one_error(130, &["interrupted; no plan is advised"]);
}

#[test]
fn no_disk_makes_work_faster_that_waits() {
    let home = Home::new();
    let dir = files(&home, 2000, 10);
    let dir = dir.to_str().unwrap();
    let args = ["advise", dir, "--compute", "sleep:20ms", "--budget-time", "3s", "--json"];
    let advice = in_budget(&home, &args).well().json();
    assert!(advice["faster_storage_ns"].is_null(), "{advice:#}");
}

#[test]
fn the_sweep_checks_the_advice() {
    let home = Home::new();
    let dir = files(&home, 600, 1000);
    let dir = dir.to_str().unwrap();
    let args = ["advise", dir, "--evict", "--exhaustive", "--budget-time", "1s", "--json"];
    let advice = in_budget(&home, &args).well().json();
    let swept = &advice["exhaustive"];
    assert!(swept["times"].as_array().unwrap().len() >= 10, "{advice:#}");
    assert!(swept["off"].as_f64().unwrap() >= 0.0);
    let refused = swept["refused"].as_array().unwrap();
    assert!(refused.iter().all(|one| one["plan"].is_string() && one["reason"].is_string()));
    // A trial of a single run has no interval.
    assert_eq!(swept["in_interval"].is_null(), advice["expected_lo_ns"].is_null());
}

#[test]
fn advice_that_cannot_be_kept_is_printed() {
    let home = Home::new();
    let dir = files(&home, 1500, 2000);
    let dir = dir.to_str().unwrap();
    let args = ["advise", dir, "--budget-time", "2s", "--json"];
    let mut homeless = home.command(&args);
    homeless.env_remove("HOME").env_remove("XDG_DATA_HOME");
    let is_enough = |ran: &Ran| !ran.err.contains("raise --budget-time");
    let ran = (0..10).map(|_| Ran::from(homeless.output().unwrap())).find(is_enough);
    let ran = ran.expect("a trial finishes a file").well();
    assert!(ran.json()["plan"].is_string(), "{}", ran.out);
    assert!(ran.err.contains("not kept"), "{}", ran.err);
    // A lock that is a directory cannot be opened for writing, not even by root.
    let store = home.path("store");
    fs::create_dir_all(store.join("profiles.json.lock")).unwrap();
    let kept_in = [&args[..], &["--store", store.to_str().unwrap()]].concat();
    let ran = in_budget(&home, &kept_in).well();
    assert!(ran.json()["plan"].is_string(), "{}", ran.out);
    // What is learnt in an unknown condition is not kept in any case.
    let tries = ran.json()["condition"] != "unknown";
    assert_eq!(ran.err.contains("not kept"), tries, "{}", ran.err);
    // Profiles that a newer version has written, or that are damaged, are left alone.
    let store = home.path("damaged");
    fs::create_dir_all(&store).unwrap();
    fs::write(store.join("profiles.json"), "{").unwrap();
    let at = ["--store", store.to_str().unwrap()];
    let ran = in_budget(&home, &[&args[..], &at].concat()).well();
    assert!(ran.json()["plan"].is_string(), "{}", ran.out);
    assert!(ran.err.contains("not kept"), "{}", ran.err);
    assert_eq!(fs::read_to_string(store.join("profiles.json")).unwrap(), "{");
    let show = [&["advise", "--profile", "show"][..], &at].concat();
    home.run(&show).one_error(1, &["profiles.json"]);
}

/// An interrupt during the sweep leaves the advice of the finished trial.
#[test]
fn an_interrupted_sweep_prints_the_advice() {
    let home = Home::new();
    let rchar = |process: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
        text.strip_prefix("rchar: ")?.lines().next()?.parse().ok()
    };
    if rchar("self").is_none() {
        println!("skipped: /proc/self/io cannot be read");
        return;
    }
    let dir = files(&home, 400, 64 << 10);
    let job = ["advise", dir.to_str().unwrap(), "--compute", "sleep:10ms"];
    let budget = ["--budget-time", "20s", "--budget-bytes", "4MiB"];
    let sweep = ["--evict", "--exhaustive", "--json"];
    let pipe = std::process::Stdio::piped;
    let mut child = home
        .command(&[&job[..], &budget, &sweep].concat())
        .stdout(pipe())
        .stderr(pipe())
        .spawn()
        .unwrap();
    let process = child.id().to_string();
    // The trial reads at most 4 MiB.
    let start = std::time::Instant::now();
    while rchar(&process).unwrap_or(0) < 16 << 20 {
        assert!(child.try_wait().unwrap().is_none(), "the sweep has ended");
        if start.elapsed().as_secs() >= 120 {
            child.kill().unwrap();
            panic!("the sweep has read less than 16 MiB in two minutes");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(child.try_wait().unwrap().is_none(), "the sweep has ended");
    let kill = std::process::Command::new("kill").args(["-INT", &process]).status();
    assert!(kill.unwrap().success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    let advice = ran.json();
    assert!(advice["plan"].is_string() && advice["exhaustive"].is_null(), "{advice:#}");
}

/// A sweep that is refused leaves the advice of the finished trial.
#[test]
fn a_refused_sweep_prints_the_advice() {
    use std::os::unix::fs::MetadataExt;
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    let home = Home::new();
    let dir = files(&home, 40, 100);
    fs::write(memory.path().join("one"), "text").unwrap();
    let device = |path: &std::path::Path| fs::metadata(path).unwrap().dev();
    if device(&dir) == device(memory.path()) {
        println!("skipped: /dev/shm is not another file system");
        return;
    }
    // Whether files of two file systems come from memory is unknown.
    let paths = [dir.to_str().unwrap(), memory.path().to_str().unwrap()];
    let options = ["--budget-time", "1s", "--exhaustive", "--json"];
    let ran = in_budget(&home, &[&["advise"][..], &paths, &options].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    assert!(ran.err.contains("--evict"), "{}", ran.err);
    let advice = ran.json();
    assert!(advice["plan"].is_string() && advice["exhaustive"].is_null(), "{advice:#}");
}

#[test]
fn a_single_file_is_a_job_too() {
    let home = Home::new();
    let file = home.path("one");
    fs::write(&file, "text").unwrap();
    let advice = home.run(&["advise", file.to_str().unwrap(), "--json"]).well().json();
    assert_eq!((advice["files"].as_u64(), advice["bytes"].as_u64()), (Some(1), Some(4)));
    assert!(advice["plan"].is_string());
}

#[test]
fn what_cannot_be_advised_is_one_error() {
    let home = Home::new();
    home.run(&["advise", "/no/such/dir"]).one_error(1, &["cannot stat '/no/such/dir'"]);
    let empty = home.path("empty");
    fs::create_dir(&empty).unwrap();
    home.run(&["advise", empty.to_str().unwrap()]).one_error(1, &["found no file"]);
    home.run(&["advise", "-"]).one_error(2, &["xargs"]);
    let small = home.run(&["advise", "/", "--budget-bytes", "10"]);
    assert_eq!(small.code, Some(2), "{}", small.err);
    let short = home.run(&["advise", "/", "--budget-time", "1ms"]);
    assert_eq!(short.code, Some(2), "{}", short.err);
}

#[test]
fn arguments_are_those_of_each() {
    let home = Home::new();
    let dir = files(&home, 40, 100);
    let dir = dir.to_str().unwrap();
    let twice = in_budget(&home, &["advise", dir, dir, "--json"]).well();
    assert_eq!(twice.json()["files"], 40);
    assert!(twice.err.contains("read once"), "{}", twice.err);
    let rest = in_budget(&home, &["advise", "/no/such", dir, "/dev/null", "--json"]);
    assert_eq!(rest.code, Some(1), "{}", rest.err);
    let advice = rest.json();
    assert_eq!((advice["files"].as_u64(), advice["errors"].as_u64()), (Some(40), Some(2)));
    assert!(rest.err.contains("cannot stat '/no/such'"), "{}", rest.err);
}

#[test]
fn what_could_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let Some(home) = Home::of_nobody() else {
        println!("skipped: needs root to switch users");
        return;
    };
    let dir = files(&home, 40, 100);
    let close = |path: &std::path::Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    };
    let all: Vec<PathBuf> =
        fs::read_dir(dir.join("d0")).unwrap().map(|e| e.unwrap().path()).collect();
    // A trial reads only a random part of the files.
    all[20..].iter().for_each(|path| close(path));
    let some = home.run(&["advise", dir.to_str().unwrap()]);
    assert_eq!(some.code, Some(1), "{}", some.err);
    assert!(some.out.contains("advice"), "{}", some.out);
    assert!(some.err.contains("Permission denied"), "{}", some.err);
    all.iter().for_each(|path| close(path));
    let none = home.run(&["advise", dir.to_str().unwrap()]);
    none.one_error(1, &["Permission denied"]);
}
