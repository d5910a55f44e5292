//! Copies that share a target, run out of space, are terminated, or fail at the last call.

use crate::{cp, ioloom, names, place, said};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Goal: two copies into one new directory merge, whichever finishes first.
#[test]
fn two_copies_into_one_directory_merge() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    for source in ["a", "b"] {
        for sub in ["x", "y", &format!("only-{source}")] {
            fs::create_dir_all(at(source).join("sub").join(sub)).unwrap();
            for file in 0..20 {
                let name = format!("{source}/sub/{sub}/{source}{file}");
                fs::write(at(&name), source).unwrap();
            }
            fs::write(at(source).join("sub").join(sub).join("both"), source).unwrap();
        }
    }
    for round in 0..20 {
        fs::create_dir(at("to")).unwrap();
        let start = |source: &str| {
            let mut command = ioloom();
            command.current_dir(dir.path()).args(["cp", "-a", &format!("{source}/sub"), "to"]);
            command.spawn().unwrap()
        };
        let (mut one, mut other) = (start("a"), start("b"));
        assert!(one.wait().unwrap().success() && other.wait().unwrap().success(), "round {round}");
        assert_eq!(names(&at("to")), ["sub"], "round {round}");
        assert_eq!(names(&at("to/sub")), ["only-a", "only-b", "x", "y"]);
        for sub in ["x", "y"] {
            assert_eq!(names(&at("to/sub").join(sub)).len(), 41, "round {round}");
        }
        fs::remove_dir_all(at("to")).unwrap();
    }
}

/// A mount that is removed when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_device_names_every_file_and_leaves_no_incomplete_directory() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("source/deep/er")).unwrap();
    for file in 0..40 {
        let name = if file % 2 == 0 { "source" } else { "source/deep/er" };
        fs::write(at(name).join(format!("f{file}")), vec![1; 200_000]).unwrap();
    }
    for limit in ["size=4m", "nr_inodes=12"] {
        fs::create_dir_all(at("small")).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", limit, "none"]).arg(at("small"));
        if !mount.output().is_ok_and(|output| output.status.success()) {
            return println!("skipped: mounting a tmpfs requires root");
        }
        let small = at("small");
        let _mounted = Mounted(&small);
        // Into a new directory: nothing stays, everything is named.
        let output = cp(dir.path(), &["-r", "--json", "source", "small/new"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert_eq!(names(&small), [""; 0], "{}", said(&output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((document["files"].as_u64(), document["bytes"].as_u64()), (Some(0), Some(0)));
        let said_new = said(&output);
        assert_eq!(document["errors"].as_u64(), Some(said_new.lines().count() as u64));
        for file in 0..40 {
            assert!(said_new.contains(&format!("/f{file}'")), "f{file} in {said_new}");
        }
        // A copy that can be resumed keeps what fits.
        let output = cp(dir.path(), &["-r", "--resume", "source", "small/later"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let left = names(&small);
        let hidden = left.iter().find(|name| name.ends_with(".part")).unwrap();
        assert!(said(&output).contains(&format!("kept 'small/{hidden}', ")), "{}", said(&output));
        let copied = (0..40).filter(|file| {
            let sub = if file % 2 == 0 { "" } else { "deep/er/" };
            let found = small.join(format!("{hidden}/{sub}f{file}")).exists();
            assert!(found || said(&output).contains(&format!("/f{file}'")), "{}", said(&output));
            found
        });
        assert!(copied.count() > 0, "{}", said(&output));
        fs::remove_dir_all(small.join(hidden)).unwrap();
        fs::remove_file(small.join(hidden.replace(".part", ".journal"))).unwrap();
        // Into an existing directory: what fits stays, the rest is named.
        fs::create_dir_all(small.join("there/deep/er")).unwrap();
        let output = cp(dir.path(), &["-rT", "--json", "source", "small/there"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut stayed = 0;
        for file in 0..40 {
            let sub = if file % 2 == 0 { "" } else { "deep/er/" };
            let found = fs::read(small.join(format!("there/{sub}f{file}")));
            let named = said(&output).contains(&format!("/f{file}'"));
            assert_eq!(found.is_err(), named, "f{file} in {}", said(&output));
            assert!(found.is_err() || found.unwrap().len() == 200_000);
            stayed += u64::from(!named);
        }
        assert_eq!(document["files"].as_u64(), Some(stayed));
        assert_eq!(document["bytes"].as_u64(), Some(stayed * 200_000));
    }
}

/// Goal: a file that cannot be replaced for lack of space can be overwritten, and the message names how.
#[test]
fn a_file_that_fits_only_in_place_gets_this_advice() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("small")).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(at("small"));
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: mounting a tmpfs requires root");
    }
    let small = at("small");
    let _mounted = Mounted(&small);
    fs::write(at("small/file"), vec![1; 600 << 10]).unwrap();
    for (kib, fits) in [(700, true), (2000, false)] {
        fs::write(at("from"), vec![2; kib << 10]).unwrap();
        let output = cp(dir.path(), &["from", "small/file"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert_eq!(said(&output).contains("--in-place"), fits, "{}", said(&output));
        assert_eq!(fs::read(at("small/file")).unwrap(), vec![1; 600 << 10]);
    }
    fs::write(at("from"), vec![2; 700 << 10]).unwrap();
    let output = cp(dir.path(), &["--in-place", "from", "small/file"]);
    assert!(output.status.success(), "{}", said(&output));
}

/// Goal: a file is not overwritten in place because a new one finds no inode. Method: a tmpfs whose inodes are used up.
#[test]
fn an_old_file_stays_if_the_new_one_finds_no_inode() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("small")).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "nr_inodes=8", "none"]).arg(at("small"));
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: mounting a tmpfs requires root");
    }
    let small = at("small");
    let _mounted = Mounted(&small);
    fs::write(at("from"), "new").unwrap();
    fs::write(at("small/file"), "old").unwrap();
    assert!(!(0..64).all(|n| fs::write(small.join(format!("n{n}")), "").is_ok()));
    let output = cp(dir.path(), &["from", "small/file"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    let advice = "free space or inodes, or use --in-place to overwrite the old file";
    assert!(said(&output).contains(advice), "{}", said(&output));
    assert_eq!(fs::read(at("small/file")).unwrap(), b"old");
    let output = cp(dir.path(), &["--in-place", "from", "small/file"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(at("small/file")).unwrap(), b"new");
}

/// Goal: without quota, what was not tried is reported with that reason. Method: strace fails the
/// creation of all directories but the first.
#[test]
fn an_exceeded_quota_is_the_reason_for_all_that_is_missing() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("source/deep/er")).unwrap();
    for file in ["source/a", "source/deep/b", "source/deep/er/c"] {
        fs::write(at(file), "text").unwrap();
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-o", "/dev/null", "-e", "trace=mkdirat"]);
    command.args(["-e", "inject=mkdirat:error=EDQUOT:when=2+", env!("CARGO_BIN_EXE_ioloom")]);
    command.args(["cp", "-r", "--threads", "1", "source", "new"]).current_dir(dir.path());
    let Ok(output) = command.output() else { return println!("skipped: strace is missing") };
    let text = said(&output);
    if text.starts_with("strace:") {
        return println!("skipped: strace may not trace");
    }
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(!text.contains("No space left"), "{text}");
    for path in ["new/deep", "new/deep/b", "new/deep/er", "new/deep/er/c"] {
        let has = |line: &str| line.contains(&format!("'{path}'")) && line.contains("quota");
        assert!(text.lines().any(has), "{path} in {text}");
    }
    assert_eq!(names(dir.path()), ["source"], "{text}");
}

#[test]
fn signals_clean_up_and_have_their_own_exit_codes() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    for (signal, code) in [("HUP", 129), ("INT", 130), ("TERM", 143)] {
        // Reading the pipe, the copy cannot finish.
        let mut command = ioloom();
        command.current_dir(dir.path()).args(["cp", "pipe", "copy"]).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        while names(dir.path()).len() < 2 {
            assert!(start.elapsed() < Duration::from_secs(60), "{signal}: it makes no file");
            std::thread::sleep(Duration::from_millis(10));
        }
        let kill =
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert_eq!(names(dir.path()), ["pipe"], "{signal}");
    }
}

/// Goal: the remains of a killed copy are removed by the next one, but not those of a running one.
#[test]
fn remains_of_a_killed_copy_are_reported_and_removed() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("source/sub")).unwrap();
    fs::write(at("source/sub/file"), "text").unwrap();
    fs::create_dir_all(at("to")).unwrap();
    let hidden = at("to/.source.ioloom-00000000000000aa.part");
    let locked = at("to/.other.ioloom-00000000000000ab.part");
    for dir in [&hidden, &locked] {
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/left"), vec![1; 1000]).unwrap();
    }
    // A directory that looks like one, but is not.
    fs::create_dir(at("to/.mine.ioloom-xyz.part")).unwrap();
    let held = fs::File::open(&locked).unwrap();
    held.try_lock().unwrap();
    let output = cp(dir.path(), &["-a", "source", "to"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("1000 bytes left by an interrupted copy"), "{}", said(&output));
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    assert!(!hidden.exists() && locked.join("sub/left").exists());
    assert_eq!(names(&at("to")).len(), 3);
    assert_eq!(fs::read(at("to/source/sub/file")).unwrap(), b"text");
}

/// Goal: the hidden directory of a copy that has not locked it yet is not taken for the rest of a killed one. Method: an
/// empty one, before and after the age at which it was abandoned.
#[test]
fn a_new_hidden_directory_is_left_to_its_copy() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("source")).unwrap();
    let hidden = "to/.q.ioloom-0123456789abcdef.part";
    fs::create_dir_all(at(hidden)).unwrap();
    let start = Instant::now();
    let output = cp(dir.path(), &["-r", "source", "to/one"]);
    assert!(output.status.success(), "{}", said(&output));
    if start.elapsed() > Duration::from_secs(1) {
        return println!("skipped: the copy took too long");
    }
    assert_eq!(said(&output), "");
    assert!(at(hidden).exists());
    std::thread::sleep(Duration::from_millis(2500));
    let output = cp(dir.path(), &["-r", "source", "to/other"]);
    assert!(said(&output).contains("bytes left by an interrupted copy"), "{}", said(&output));
    assert!(!at(hidden).exists());
}

/// Goal: another user cannot have a directory removed by giving it a hidden name. Method: directories that
/// others can change, one of which is sticky, and one of another user.
#[test]
fn directories_that_others_could_have_renamed_are_reported_and_kept() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("source")).unwrap();
    for (to, mode, owner, keeps) in [
        ("shared", 0o777, None, true),
        ("sticky", 0o1777, None, false),
        ("mine", 0o755, None, false),
        ("other", 0o755, Some(1234), true),
    ] {
        let hidden = at(to).join(".x.ioloom-0123456789abcdef.part");
        fs::create_dir_all(&hidden).unwrap();
        fs::write(hidden.join("file"), vec![1; 1000]).unwrap();
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(at(to), fs::Permissions::from_mode(mode)).unwrap();
        if owner.is_some() && std::os::unix::fs::chown(at(to), owner, owner).is_err() {
            println!("skipped: {to}: this user cannot change owners");
            continue;
        }
        let output = cp(dir.path(), &["-r", "source", to]);
        assert!(output.status.success(), "{to}: {}", said(&output));
        assert!(said(&output).contains("1000 bytes"), "{to}: {}", said(&output));
        assert_eq!(hidden.join("file").exists(), keeps, "{to}: {}", said(&output));
    }
}

/// Goal: the permissions of a replaced file are never wider than before. Method: ACLs that the
/// directory would hand down.
#[test]
fn replacing_a_file_grants_no_more_access() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    let acl = |args: &[&str]| {
        let set = Command::new("setfacl").args(args).current_dir(dir.path()).output();
        set.is_ok_and(|output| output.status.success())
    };
    let get = |name: &str| {
        let output = Command::new("getfacl").args(["-c", name]).current_dir(dir.path()).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    };
    for made in ["d", "da/d", "sa/d"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    fs::write(at("d/f"), "old").unwrap();
    fs::set_permissions(at("d/f"), fs::Permissions::from_mode(0o660)).unwrap();
    fs::write(at("s"), "new").unwrap();
    if !acl(&["-d", "-m", "u:1000:rwx", "d"]) {
        return println!("skipped: setfacl is missing or not supported here");
    }
    let before = get("d/f");
    assert!(cp(dir.path(), &["s", "d/f"]).status.success());
    assert_eq!((get("d/f"), fs::read(at("d/f")).unwrap()), (before, b"new".to_vec()));
    assert!(acl(&["-m", "u:1000:rw", "d/f"]));
    let before = get("d/f");
    assert!(cp(dir.path(), &["s", "d/f"]).status.success());
    assert_eq!(get("d/f"), before, "an ACL of the old file stays");
    assert!(acl(&["-m", "u:1000:rwx", "da/d"]) && acl(&["-d", "-m", "u:1000:rwx", "da/d"]));
    fs::set_permissions(at("sa/d"), fs::Permissions::from_mode(0o750)).unwrap();
    assert!(cp(dir.path(), &["-aT", "sa", "da"]).status.success());
    assert_eq!(get("da/d"), get("sa/d"));
}

/// Goal: `close` is checked before a file gets its name. Method: strace injects errors into every
/// close of the copy, one by one.
#[test]
fn errors_of_close_are_reported_and_leave_nothing() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("tree/sub")).unwrap();
    fs::write(at("tree/sub/file"), "text").unwrap();
    fs::write(at("file"), "text").unwrap();
    fs::write(at("old"), "old").unwrap();
    let run = |inject: &str, args: &[&str]| {
        let mut command = Command::new("strace");
        command.args(["-f", "-e", "trace=close", "-o", "/dev/null", "-e", inject]);
        command.arg(env!("CARGO_BIN_EXE_ioloom")).arg("cp").args(args);
        command.current_dir(dir.path()).stdin(Stdio::null()).output()
    };
    if !run("inject=close:error=EIO:when=9999", &["file", "none"]).is_ok_and(|o| o.status.success())
    {
        return println!("skipped: strace is missing or may not trace");
    }
    fs::remove_file(at("none")).unwrap();
    // An error of the first few closes stops the loader of the program, so the copy of many files shows more.
    let many: Vec<_> = (0..10).map(|i| format!("file{i}")).collect();
    let into_old: Vec<_> =
        ["-t", "many"].into_iter().chain(many.iter().map(String::as_str)).collect();
    fs::create_dir(at("many")).unwrap();
    many.iter().for_each(|name| fs::write(at(name), "text").unwrap());
    let there = names(dir.path());
    let mut reported = 0;
    for (args, target) in [
        (&["file", "new"][..], "new"),
        (&["--verify", "cache", "file", "new"], "new"),
        (&["file", "old"], "old"),
        (&into_old, "many/file9"),
        (&["-a", "tree", "copy"], "copy/sub/file"),
    ] {
        for when in 1..60 {
            many.iter()
                .step_by(2)
                .for_each(|name| fs::write(at("many").join(name), "old").unwrap());
            let output = run(&format!("inject=close:error=EDQUOT:when={when}"), args).unwrap();
            let text = said(&output);
            if output.status.success() {
                assert_eq!(fs::read(at(target)).unwrap(), b"text", "{args:?} {when}: {text}");
            } else if output.status.code() == Some(1) {
                assert!(text.contains("failed to close"), "{args:?} {when}: {text}");
                reported += 1;
            }
            let _ = fs::remove_file(at("new"));
            let _ = fs::remove_dir_all(at("copy"));
            fs::write(at("old"), "old").unwrap();
            assert_eq!(names(dir.path()), there, "{args:?} {when}");
            assert!(names(&at("many")).iter().all(|name| many.contains(name)), "{args:?} {when}");
            fs::remove_dir_all(at("many")).unwrap();
            fs::create_dir(at("many")).unwrap();
        }
    }
    assert!(reported >= 16, "only {reported} errors were reported");
}

/// Goal: with `--backup`, a file that another program creates meanwhile is not lost. Method: the copy begins its
/// last step late, when the name is used.
#[test]
fn a_file_that_appears_meanwhile_is_not_replaced_without_its_backup() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("new"), "new").unwrap();
    std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
    for (source, call) in [("new", "linkat"), ("link", "symlinkat")] {
        let late = format!("--inject={call}:delay_enter=2s:when=1");
        let mut command = Command::new("strace");
        command.args(["-f", "-o", "/dev/null", &late, env!("CARGO_BIN_EXE_ioloom")]);
        command.args(["cp", "-bdT", source, "d/x"]).current_dir(dir.path()).stderr(Stdio::piped());
        let Ok(copy) = command.spawn() else { return println!("skipped: strace is missing") };
        std::thread::sleep(Duration::from_secs(1));
        fs::write(at("d/x"), "precious").unwrap();
        let output = copy.wait_with_output().unwrap();
        if said(&output).starts_with("strace:") {
            return println!("skipped: strace may not trace");
        }
        let kept =
            ["d/x", "d/x~"].iter().any(|name| fs::read(at(name)).is_ok_and(|t| t == b"precious"));
        assert!(kept, "{source}: {}", said(&output));
        assert!(
            output.status.success() || said(&output).contains("File exists"),
            "{}",
            said(&output)
        );
        fs::remove_file(at("d/x")).unwrap();
        let _ = fs::remove_file(at("d/x~"));
    }
}
