//! Copies by shards: the shards of any plan and the last step make the tree that one copy makes.

use crate::{ioloom, names, place, said};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

fn run(dir: &Path, args: &[&str]) -> Output {
    ioloom().current_dir(dir).args(args).output().unwrap()
}

fn run_to(code: i32, dir: &Path, args: &[&str]) -> Output {
    let output = run(dir, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
    output
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A tree with directories at several depths, odd names, modes, times and links.
fn source(at: &Path) {
    for a in 0..5 {
        for b in 0..4 {
            let dir = at.join(format!("a{a}/b {b}\n/c"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("file"), vec![b'x'; 3000 * (a + b + 1)]).unwrap();
            symlink("file", dir.join("link")).unwrap();
        }
        fs::write(at.join(format!("a{a}/direct")), "direct").unwrap();
    }
    fs::create_dir(at.join("empty")).unwrap();
    symlink("a1", at.join("symlink")).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (name, mode) in [("a4", 0o555), ("a3/b 1\n", 0o750), ("empty", 0o1777), ("", 0o711)] {
        let dir = fs::File::open(at.join(name)).unwrap();
        dir.set_permissions(Permissions::from_mode(mode)).unwrap();
        dir.set_modified(long_ago).unwrap();
    }
}

/// Describes each entry: kind and mode, time, links, content.
fn listing(at: &Path) -> Vec<String> {
    fn below(at: &Path, name: PathBuf, into: &mut Vec<String>) {
        let path = at.join(&name);
        let found = fs::symlink_metadata(&path).unwrap();
        let content = match found.file_type() {
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
            kind if kind.is_dir() => String::new(),
            _ => format!("{} {:?}", found.nlink(), fs::read(&path).unwrap()),
        };
        let (mode, time) = (found.mode(), (found.mtime(), found.mtime_nsec()));
        into.push(format!("{name:?} {mode:o} {time:?} {content}"));
        if found.is_dir() {
            let names = fs::read_dir(&path).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names.into_iter().for_each(|child| below(at, name.join(child), into));
        }
    }
    let mut all = Vec::new();
    below(at, PathBuf::new(), &mut all);
    all
}

fn plan(dir: &Path, shards: u64, more: &[&str]) -> u64 {
    let shards = shards.to_string();
    let args = ["shard", "plan", "--subtrees", "--json", "--shards", &shards];
    json(&run_to(0, dir, &[&args, more].concat()))["shards"].as_u64().unwrap()
}

fn copy_all(dir: &Path, plan: &str, shards: u64, flags: &[&str]) {
    fs::create_dir_all(dir.join("parts")).unwrap();
    // The order of shards must not matter.
    for number in (1..=shards).rev() {
        let number = format!("{number}/{shards}");
        let args = ["cp", "--shard", &number, "--manifest", plan, "--part", "parts"];
        run_to(0, dir, &[&args, flags].concat());
    }
}

#[test]
fn the_shards_of_every_plan_make_the_tree_of_one_copy() {
    for flags in [&["-a"][..], &["-r"], &["-r", "--preserve=timestamps"], &["-rp"]] {
        let all = flags == ["-a"];
        for &wanted in if all { &[1, 2, 7, 64][..] } else { &[7] } {
            let place = place();
            let dir = place.path();
            source(&dir.join("t"));
            fs::create_dir(dir.join("one")).unwrap();
            fs::create_dir(dir.join("many")).unwrap();
            run_to(0, dir, &[&["cp"], flags, &["t", "one"]].concat());
            let shards = plan(dir, wanted, &["t"]);
            copy_all(dir, "t.shards", shards, &[flags, &["many"]].concat());
            let merged = json(&run_to(0, dir, &["shard", "merge", "--json", "t.shards", "parts"]));
            let (mut one, mut many) = (listing(&dir.join("one/t")), listing(&dir.join("many/t")));
            if !flags.contains(&"-a") && !flags.contains(&"-rp") {
                // Times that are not preserved are those of the copy.
                let without_time = |line: &mut String| {
                    let (begin, end) = (line.find('(').unwrap(), line.find(')').unwrap());
                    let preserved = line[begin..].starts_with("(1000000000,");
                    if !preserved {
                        line.replace_range(begin..=end, "");
                    }
                };
                one.iter_mut().for_each(without_time);
                many.iter_mut().for_each(without_time);
            }
            assert_eq!(one, many, "{flags:?}, {wanted} shards");
            let counts = ["files", "directories", "symlinks", "errors"];
            let counts = counts.map(|field| merged[field].as_u64().unwrap());
            assert_eq!(counts, [25, 47, 21, 0], "{wanted} shards: {merged:#}");
        }
    }
}

#[test]
fn a_target_that_exists_is_merged_into_and_t_names_the_copy() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::create_dir_all(dir.join("copy/a1")).unwrap();
    fs::write(dir.join("copy/a1/own"), "stays").unwrap();
    fs::write(dir.join("copy/a1/direct"), "is replaced").unwrap();
    let shards = plan(dir, 9, &["t"]);
    copy_all(dir, "t.shards", shards, &["-aT", "copy"]);
    run_to(0, dir, &["shard", "merge", "t.shards", "parts"]);
    assert_eq!(fs::read_to_string(dir.join("copy/a1/own")).unwrap(), "stays");
    assert_eq!(fs::read_to_string(dir.join("copy/a1/direct")).unwrap(), "direct");
    assert_eq!(fs::metadata(dir.join("copy")).unwrap().mode() & 0o7777, 0o711);
    // Shards that have a part are skipped, and the last step can be repeated.
    copy_all(dir, "t.shards", shards, &["-aT", "copy"]);
    run_to(0, dir, &["shard", "merge", "t.shards", "parts"]);
}

#[test]
fn links_across_shards_are_reported_and_links_within_one_are_made() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::set_permissions(dir.join("t/a4"), Permissions::from_mode(0o755)).unwrap();
    for (from, to) in [("a0/direct", "a0/again"), ("a1/direct", "a4/other")] {
        fs::hard_link(dir.join("t").join(from), dir.join("t").join(to)).unwrap();
    }
    fs::create_dir(dir.join("many")).unwrap();
    let shards = plan(dir, 64, &["t"]);
    copy_all(dir, "t.shards", shards, &["-a", "many"]);
    let merged = json(&run_to(0, dir, &["shard", "merge", "--json", "t.shards", "parts"]));
    assert_eq!((&merged["shared_files"], &merged["hard_links"]), (&1.into(), &1.into()));
    assert_eq!(merged["shared_bytes"], 6);
    let links = |name: &str| fs::metadata(dir.join("many/t").join(name)).unwrap().nlink();
    assert_eq!((links("a0/direct"), links("a1/direct")), (2, 1));
}

#[test]
fn what_is_new_or_changed_since_the_plan_is_named_and_nothing_outside_is_written() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::create_dir_all(dir.join("many/t")).unwrap();
    fs::create_dir(dir.join("outside")).unwrap();
    let shards = plan(dir, 64, &["t"]);
    fs::create_dir(dir.join("t/new")).unwrap();
    fs::remove_dir(dir.join("t/empty")).unwrap();
    symlink("../outside", dir.join("t/empty")).unwrap();
    // A directory of the tree is a link in the target.
    symlink("../../outside", dir.join("many/t/a2")).unwrap();
    fs::create_dir(dir.join("parts")).unwrap();
    let mut said_all = String::new();
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        let part = ["--manifest", "t.shards", "--part", "parts"];
        let args = [&["cp", "-a", "--shard", &number], &part[..], &["many"]].concat();
        said_all += &said(&run(dir, &args));
    }
    assert!(said_all.contains("cannot overwrite non-directory"), "{said_all}");
    assert!(
        said_all.contains("'t/empty': it was a directory when the plan was made"),
        "{said_all}"
    );
    let merged = run_to(1, dir, &["shard", "merge", "--json", "t.shards", "parts"]);
    assert!(said(&merged).contains("1 directory is newer than the plan"), "{}", said(&merged));
    assert!(said(&merged).contains("'t/new'"), "{}", said(&merged));
    assert_eq!(json(&merged)["new_directories"], 1);
    assert_eq!(fs::read_dir(dir.join("outside")).unwrap().count(), 0);
}

/// Goal: a shard copies nothing through a link that replaced a directory above its subtrees, although another shard has
/// created the directory in the target. Each shard reports it once.
#[test]
fn what_a_link_in_the_place_of_a_directory_leads_to_is_not_copied() {
    let place = place();
    let dir = place.path();
    for (a, b) in (0..12).map(|at| (at / 6, at % 6)) {
        fs::create_dir_all(dir.join(format!("t/d{a}/e{b}"))).unwrap();
        fs::write(dir.join(format!("t/d{a}/e{b}/file")), "file").unwrap();
        fs::create_dir_all(dir.join(format!("outside/e{b}"))).unwrap();
        fs::write(dir.join(format!("outside/e{b}/secret")), "secret").unwrap();
    }
    let shards = plan(dir, 4, &["t"]);
    for name in ["many/t/d1", "parts"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::rename(dir.join("t/d1"), dir.join("old")).unwrap();
    symlink("../outside", dir.join("t/d1")).unwrap();
    let mut failed = 0;
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        let args = ["cp", "-a", "--shard", &number, "--manifest", "t.shards", "--part", "parts"];
        let output = run(dir, &[&args[..], &["many"]].concat());
        let (text, changed) = (said(&output), u64::from(output.status.code() == Some(1)));
        let message = "cannot copy 't/d1': it was a directory when the plan was made";
        assert_eq!(text.matches(message).count() as u64, changed, "{number}: {text}");
        failed += changed;
    }
    assert!(failed > 1, "{failed} of {shards}");
    fs::remove_file(dir.join("t/d1")).unwrap();
    fs::rename(dir.join("old"), dir.join("t/d1")).unwrap();
    run_to(1, dir, &["shard", "merge", "t.shards", "parts"]);
    assert_eq!(names(&dir.join("many/t/d1")), Vec::<String>::new());
    assert_eq!(names(&dir.join("many/t/d0")).len(), 6);
}

/// Goal: the last step gives no directory the attributes of a mount point without its file system.
#[test]
fn an_empty_mount_point_completes_no_copy() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::create_dir(dir.join("many")).unwrap();
    let shards = plan(dir, 7, &["t"]);
    copy_all(dir, "t.shards", shards, &["-a", "many"]);
    run_to(0, dir, &["shard", "merge", "t.shards", "parts"]);
    let before = listing(&dir.join("many/t"));
    fs::rename(dir.join("t"), dir.join("away")).unwrap();
    fs::create_dir(dir.join("t")).unwrap();
    fs::set_permissions(dir.join("t"), Permissions::from_mode(0o700)).unwrap();
    for marker in [false, true] {
        if marker {
            fs::write(dir.join("t/.not-mounted"), "").unwrap();
        }
        let refused = said(&run_to(1, dir, &["shard", "merge", "t.shards", "parts"]));
        assert!(refused.contains("cannot complete the copy: "), "{refused}");
        assert_eq!(listing(&dir.join("many/t")), before);
    }
}

/// Goal: the last step gives no directory the attributes of another one at its path. Method: the directory has no
/// directories that could be missed, and a file in the other one marks it as a mount point.
#[test]
fn a_directory_that_was_replaced_is_one_error_of_the_last_step() {
    let place = place();
    let dir = place.path();
    if fs::metadata(dir).unwrap().created().is_err() {
        return println!("skipped: no times of creation");
    }
    source(&dir.join("t"));
    fs::create_dir_all(dir.join("m")).unwrap();
    fs::write(dir.join("m/file"), "file").unwrap();
    fs::create_dir(dir.join("many")).unwrap();
    let shards = plan(dir, 7, &["--out", "p", "t", "m"]);
    copy_all(dir, "p", shards, &["-a", "many"]);
    fs::rename(dir.join("m"), dir.join("away")).unwrap();
    fs::create_dir(dir.join("m")).unwrap();
    fs::write(dir.join("m/.not-mounted"), "").unwrap();
    fs::set_permissions(dir.join("m"), Permissions::from_mode(0o777)).unwrap();
    let merged = run_to(1, dir, &["shard", "merge", "--json", "p", "parts"]);
    assert!(said(&merged).contains("'m' is not the directory that shard"), "{}", said(&merged));
    assert_eq!((&json(&merged)["errors"], &json(&merged)["files"]), (&1.into(), &26.into()));
    assert_eq!(fs::metadata(dir.join("many/m")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(dir.join("many/t")).unwrap().mode() & 0o777, 0o711);
    fs::remove_dir_all(dir.join("m")).unwrap();
    fs::rename(dir.join("away"), dir.join("m")).unwrap();
    run_to(0, dir, &["shard", "merge", "p", "parts"]);
}

/// Goal: directories of the source that were removed after they were copied do not prevent the last step for others.
#[test]
fn removed_directories_are_errors_of_the_last_step() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::create_dir(dir.join("many")).unwrap();
    fs::set_permissions(dir.join("t/a1"), Permissions::from_mode(0o751)).unwrap();
    let shards = plan(dir, 7, &["t"]);
    copy_all(dir, "t.shards", shards, &["-a", "many"]);
    for b in 0..4 {
        fs::remove_dir_all(dir.join(format!("t/a1/b {b}\n"))).unwrap();
    }
    let merged = run_to(1, dir, &["shard", "merge", "--json", "t.shards", "parts"]);
    assert!(said(&merged).contains("No such file or directory"), "{}", said(&merged));
    assert_eq!((&json(&merged)["errors"], &json(&merged)["files"]), (&8.into(), &25.into()));
    assert_eq!(fs::metadata(dir.join("many/t/a1")).unwrap().mode() & 0o777, 0o751);
    assert_eq!(fs::metadata(dir.join("many/t")).unwrap().mode() & 0o777, 0o711);
    assert_eq!(names(&dir.join("many/t/a1")).len(), 5);
}

/// Goal: the errors of the last step are counted, and the first of them printed.
#[test]
fn directories_that_the_target_lacks_are_counted() {
    let place = place();
    let dir = place.path();
    for a in 0..50 {
        fs::create_dir_all(dir.join(format!("t/a{a}/b/c"))).unwrap();
    }
    fs::create_dir(dir.join("many")).unwrap();
    let shards = plan(dir, 8, &["t"]);
    copy_all(dir, "t.shards", shards, &["-a", "many"]);
    let whole = json(&run_to(0, dir, &["shard", "merge", "--json", "t.shards", "parts"]));
    let completed = whole["completed_directories"].as_u64().unwrap();
    assert!(completed > 40, "{completed}");
    fs::rename(dir.join("many/t"), dir.join("away")).unwrap();
    let one = run_to(1, dir, &["shard", "merge", "--json", "t.shards", "parts"]);
    assert!(said(&one).contains("many/t': No such file or directory; mount"), "{}", said(&one));
    assert_eq!(json(&one)["errors"], 1);
    // A mount point without its file system gets no attributes.
    fs::create_dir(dir.join("many/t")).unwrap();
    let other = run_to(1, dir, &["shard", "merge", "--json", "t.shards", "parts"]);
    if fs::metadata(dir).unwrap().created().is_ok() {
        assert!(said(&other).contains("is not the directory to which shard"), "{}", said(&other));
        assert_eq!(json(&other)["errors"], 1);
        assert_eq!(json(&other)["completed_directories"], 0);
    }
    fs::remove_dir(dir.join("many/t")).unwrap();
    fs::rename(dir.join("away"), dir.join("many/t")).unwrap();
    (0..50).for_each(|a| fs::remove_dir_all(dir.join(format!("many/t/a{a}"))).unwrap());
    let all = run_to(1, dir, &["shard", "merge", "--json", "t.shards", "parts"]);
    let lines = String::from_utf8_lossy(&all.stderr).lines().count();
    assert!(lines <= 22, "{lines}: {}", said(&all));
    assert_eq!(json(&all)["errors"], completed - 1);
    assert_eq!(json(&all)["completed_directories"], 1);
}

#[test]
fn a_shard_that_was_killed_runs_again_and_leaves_nothing_hidden() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::create_dir(dir.join("one")).unwrap();
    fs::create_dir(dir.join("many")).unwrap();
    fs::create_dir(dir.join("parts")).unwrap();
    run_to(0, dir, &["cp", "-a", "t", "one"]);
    let shards = plan(dir, 8, &["t"]);
    let args_of = |number: &str| {
        ["cp", "-a", "--manifest", "t.shards", "--part", "parts", "--shard", number, "many"]
            .map(str::to_owned)
    };
    for number in 1..=shards {
        let args = args_of(&format!("{number}/{shards}"));
        for ms in [0, 2, 4, 6, 8, 10] {
            let mut child = ioloom().current_dir(dir).args(&args).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(ms));
            let _ = child.kill();
            child.wait().unwrap();
        }
    }
    // Hidden links cannot be locked, so only those that are older than two seconds are removed.
    std::thread::sleep(Duration::from_millis(2500));
    for number in 1..=shards {
        run_to(0, dir, &args_of(&format!("{number}/{shards}")).each_ref().map(String::as_str));
    }
    // A worker of another host that lost its lease may still write.
    let marker = dir.join("parts/.part-000001.other");
    let by = r#"{"host":"other","pid":1,"worker":null,"version":"1","started_ns":1}"#;
    fs::write(&marker, format!(r#"{{"shard":1,"by":{by}}}"#)).unwrap();
    let status = run_to(0, dir, &["shard", "status", "t.shards", "parts", "--json"]);
    assert_eq!(json(&status)["faults"]["superseded"][0]["host"], "other");
    let refused = run_to(1, dir, &["shard", "merge", "t.shards", "parts"]);
    for words in ["process 1 on 'other' may still write", "remove 'parts/.part-000001.other'"] {
        assert!(said(&refused).contains(words), "{}", said(&refused));
    }
    fs::remove_file(marker).unwrap();
    run_to(0, dir, &["shard", "merge", "t.shards", "parts"]);
    assert_eq!(listing(&dir.join("one/t")), listing(&dir.join("many/t")));
}

#[test]
fn arguments_whose_copies_meet_are_refused() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    for name in ["other", "many", "parts"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    fs::write(dir.join("outside"), "stays").unwrap();
    fs::write(dir.join("other/lk"), "written").unwrap();
    symlink(dir.join("outside"), dir.join("t/lk")).unwrap();
    let inside = dir.join("t");
    let cases = [
        (dir, &["t", "t/a1"][..], "inside others"),
        (dir, &["t/a1/direct", "t"], "inside others"),
        (&inside, &[".", "../other/lk"], "meet in"),
    ];
    for (at, (from, roots, word)) in cases.into_iter().enumerate() {
        let plan_dir = dir.join(format!("p{at}"));
        let plan_dir = plan_dir.to_str().unwrap();
        plan(from, 4, &[&["--out", plan_dir], roots].concat());
        let args =
            ["cp", "-a", "--shard", "1/4", "--manifest", plan_dir, "--part", "parts", "many"];
        let output = run_to(1, dir, &args);
        assert!(said(&output).contains(word), "{roots:?}: {}", said(&output));
    }
    assert_eq!(fs::read_to_string(dir.join("outside")).unwrap(), "stays");
    assert_eq!(names(&dir.join("many")), Vec::<String>::new());
}

#[test]
fn old_acls_are_replaced_and_a_shard_replaces_its_own_read_only_files() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::set_permissions(dir.join("t/a1/direct"), Permissions::from_mode(0o444)).unwrap();
    fs::create_dir_all(dir.join("many/t/a0")).unwrap();
    let acl =
        |args: &[&str]| std::process::Command::new("setfacl").args(args).current_dir(dir).status();
    let has_acls =
        acl(&["-m", "u:65534:rwx,d:u:65534:rwx", "many/t/a0"]).is_ok_and(|s| s.success());
    let shards = plan(dir, 64, &["t"]);
    let flags = ["-a", "--redo", "many"];
    copy_all(dir, "t.shards", shards, &flags);
    copy_all(dir, "t.shards", shards, &flags);
    run_to(0, dir, &["shard", "merge", "t.shards", "parts"]);
    if has_acls {
        let shown =
            std::process::Command::new("getfacl").arg("many/t/a0").current_dir(dir).output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        assert!(!shown.contains("default:") && !shown.contains("mask"), "{shown}");
    }
}

/// Goal: a worker that lost its lease does not truncate a file of a shard that is complete. Method: a second name keeps the
/// old file, which cp writes in place by default.
#[test]
fn a_shard_never_writes_old_files_in_place() {
    let place = place();
    let dir = place.path();
    for name in ["t", "many/t", "parts"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::write(dir.join("t/file"), "new").unwrap();
    fs::write(dir.join("many/t/file"), "old").unwrap();
    fs::hard_link(dir.join("many/t/file"), dir.join("other")).unwrap();
    assert_eq!(plan(dir, 1, &["t"]), 1);
    copy_all(dir, "t.shards", 1, &["-r", "many"]);
    assert_eq!(fs::read(dir.join("many/t/file")).unwrap(), b"new");
    assert_eq!(fs::read(dir.join("other")).unwrap(), b"old");
}

/// Stops or continues a process.
fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &process.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Stops a process that was not waited for, and waits until it is stopped or has ended.
fn stop(process: &Child) {
    signal(process, "-STOP");
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    while !matches!(state(), Some('T' | 'Z')) {
        std::thread::yield_now();
    }
}

/// Goal: a worker whose result does not count says so. Method: it is stopped while it copies, until another one has run
/// the shard.
#[test]
fn a_worker_that_is_late_says_so() {
    let place = place();
    let dir = place.path();
    for name in ["t", "many", "parts"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    (0..2000).for_each(|n| fs::write(dir.join(format!("t/{n}")), "x").unwrap());
    assert_eq!(plan(dir, 1, &["t"]), 1);
    let args = ["cp", "-r", "--shard", "1/1", "--manifest", "t.shards", "--part", "parts", "many"];
    for _ in 0..20 {
        let mut late = ioloom();
        late.current_dir(dir).args(args).stdout(Stdio::null()).stderr(Stdio::piped());
        let late = late.spawn().unwrap();
        let start = Instant::now();
        while names(&dir.join("parts")).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "the worker begins no part");
        }
        stop(&late);
        let is_in_time = names(&dir.join("parts")).iter().all(|name| name != "part-000001");
        let first = run(dir, &args);
        signal(&late, "-CONT");
        let late = late.wait_with_output().unwrap();
        if is_in_time {
            assert_eq!(first.status.code(), Some(0), "{}", said(&first));
            assert_eq!(late.status.code(), Some(0), "{}", said(&late));
            assert!(said(&late).contains("shard 1/1 does not count"), "{}", said(&late));
            return;
        }
        fs::remove_file(dir.join("parts/part-000001")).unwrap();
    }
    panic!("no worker was stopped in time");
}

#[test]
fn wrong_command_lines_name_the_flag() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::create_dir(dir.join("many")).unwrap();
    fs::create_dir(dir.join("parts")).unwrap();
    let shards = plan(dir, 4, &["t"]);
    let number = format!("1/{shards}");
    let args = ["cp", "--shard", &number, "--manifest", "t.shards", "--part", "parts"];
    for (more, word) in [
        (&["many"][..], "add -r or -a"),
        (&["-a"], "give only the target"),
        (&["-a", "t", "many"], "give only the target"),
        (&["-a", "many", "-x"], "--one-file-system"),
        (&["-aL", "many"], "--dereference"),
        (&["-a", "--parents", "many"], "--parents"),
        (&["-a", "--in-place", "many"], "--in-place"),
        (&["-a", "absent"], "create it, or give its new name with -T"),
        (&["-a", "t/a1"], "itself"),
    ] {
        let output = run_to(1, dir, &[&args, more].concat());
        assert!(said(&output).contains(word), "{more:?}: {}", said(&output));
    }
    fs::create_dir(dir.join("t/parts")).unwrap();
    let inside = ["cp", "-a", "--shard", &number, "--manifest", "t.shards", "--part", "t/parts"];
    let output = run_to(1, dir, &[&inside[..], &["many"]].concat());
    assert!(said(&output).contains("choose another --part directory"), "{}", said(&output));
    run_to(0, dir, &["shard", "plan", "t", "--out", "files"]);
    let other = ["cp", "-a", "--shard", "1/1", "--manifest", "files", "--part", "parts", "many"];
    assert!(said(&run_to(1, dir, &other)).contains("plan again with --subtrees"));
}

/// Goal: a part that is durable never describes a copy that is not. Method: strace fails the sync of the target.
#[test]
fn a_shard_whose_copy_cannot_be_synced_has_no_part() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    for name in ["copy", "parts"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    assert_eq!(plan(dir, 1, &["t"]), 1);
    let args = ["cp", "-a", "--shard", "1/1", "--manifest", "t.shards", "--part", "parts", "copy"];
    let mut traced = Command::new("strace");
    traced.args(["-f", "-o", "/dev/null", "-e", "trace=syncfs", "-e", "inject=syncfs:error=EIO"]);
    traced.arg(env!("CARGO_BIN_EXE_ioloom")).args(args).current_dir(dir);
    let Ok(output) = traced.output() else { return println!("skipped: strace is missing") };
    let text = said(&output);
    if text.starts_with("strace:") {
        return println!("skipped: strace may not trace");
    }
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot sync the file system of") && text.contains("copy'"), "{text}");
    assert_eq!(names(&dir.join("parts")), [""; 0], "{text}");
    run_to(0, dir, &args);
    assert_eq!(names(&dir.join("parts")), ["part-000001"]);
}

/// A path that cannot be copied to is one error of a shard that has its part.
#[test]
fn a_file_in_the_place_of_a_directory_is_an_error_of_the_part() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    for name in ["copy/t", "parts"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::write(dir.join("copy/t/a1"), "in the way").unwrap();
    let shards = plan(dir, 64, &["t"]);
    assert!(shards > 10, "{shards}: directories below a1 are subtrees");
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        let args = ["cp", "-a", "--shard", &number, "--manifest", "t.shards", "--part", "parts"];
        let output = run(dir, &[&args[..], &["copy"]].concat());
        let text = said(&output);
        assert!(!text.contains("cannot sync"), "{number}: {text}");
        if output.status.code() != Some(0) {
            assert!(text.contains("copy/t/a1"), "{number}: {text}");
        }
    }
    assert_eq!(names(&dir.join("parts")).len() as u64, shards);
    assert_eq!(fs::read(dir.join("copy/t/a1")).unwrap(), b"in the way");
    assert_eq!(fs::read(dir.join("copy/t/a2/direct")).unwrap(), b"direct");
}

/// Root without the capability that ignores modes, or else any user.
#[test]
fn a_target_that_cannot_be_read_is_copied_to_and_synced() {
    let place = place();
    let dir = place.path();
    fs::create_dir_all(dir.join("t")).unwrap();
    fs::write(dir.join("t/file"), "file").unwrap();
    for name in ["drop", "parts"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    assert_eq!(plan(dir, 1, &["t"]), 1);
    fs::set_permissions(dir.join("drop"), Permissions::from_mode(0o300)).unwrap();
    let args = ["cp", "-r", "--shard", "1/1", "--manifest", "t.shards", "--part", "parts", "drop"];
    let mut limited = Command::new("setpriv");
    limited.arg("--bounding-set=-dac_override,-dac_read_search");
    limited.arg(env!("CARGO_BIN_EXE_ioloom")).args(args).current_dir(dir);
    let Ok(output) = limited.output() else { return println!("skipped: setpriv is missing") };
    let text = said(&output);
    fs::set_permissions(dir.join("drop"), Permissions::from_mode(0o700)).unwrap();
    if text.starts_with("setpriv:") {
        return println!("skipped: setpriv may not drop capabilities");
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(names(&dir.join("parts")), ["part-000001"]);
    assert_eq!(fs::read(dir.join("drop/t/file")).unwrap(), b"file");
}

#[test]
fn slashes_at_the_end_of_the_target_do_not_matter() {
    let place = place();
    let dir = place.path();
    source(&dir.join("t"));
    fs::create_dir(dir.join("copy")).unwrap();
    let shards = plan(dir, 9, &["t"]);
    assert!(shards > 1);
    for (flag, parts, targets) in [
        ("-a", "parts", ["copy", "copy/", "copy/."]),
        ("-aT", "parts-of-named", ["named", "named/", "named//"]),
    ] {
        fs::create_dir(dir.join(parts)).unwrap();
        for (number, target) in (1..=shards).zip(targets.iter().cycle()) {
            let number = format!("{number}/{shards}");
            let args = ["cp", "--shard", &number, "--manifest", "t.shards", "--part", parts];
            run_to(0, dir, &[&args[..], &[flag, *target]].concat());
        }
        run_to(0, dir, &["shard", "merge", "t.shards", parts]);
    }
    assert_eq!(listing(&dir.join("copy/t")), listing(&dir.join("named")));
}
