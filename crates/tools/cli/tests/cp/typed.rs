//! Command lines as users type them.

use crate::{cp, ioloom, names, place, said};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

#[test]
fn a_tree_goes_where_cp_would_put_it() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("src/sub")).unwrap();
    fs::write(at("src/sub/file"), "text").unwrap();
    fs::create_dir(at("there")).unwrap();
    let ways: [(&[&str], &str); 6] = [
        (&["-r", "src", "there"], "there/src/sub/file"),
        (&["-r", "src", "new"], "new/sub/file"),
        (&["-rT", "src", "there"], "there/sub/file"),
        (&["-a", "src/.", "new"], "new/sub/file"),
        (&["-rt", "new", "src"], "new/src/sub/file"),
        (&["src/sub/file", "there/named"], "there/named"),
    ];
    for (args, file) in ways {
        let output = cp(dir.path(), args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        assert_eq!(fs::read(at(file)).unwrap(), b"text", "{args:?}");
        assert!(
            output.stdout.is_empty() && output.stderr.is_empty(),
            "{args:?}: {}",
            said(&output)
        );
    }
    let output = cp(dir.path(), &["-v", "src/sub/file", "x"]);
    assert_eq!(output.stdout, b"'src/sub/file' -> 'x'\n");
}

#[test]
fn wrong_use_is_one_clear_error() {
    let dir = place();
    fs::write(dir.path().join("file"), "x").unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    let ways: [(&[&str], i32, &str); 10] = [
        (&[], 1, "missing file operand"),
        (&["--json", "-v", "file", "x"], 1, "'--json' cannot be used with '--verbose'"),
        (&["file"], 1, "missing destination file operand after 'file'"),
        (&["file", "dir", "gone"], 1, "target 'gone': No such file or directory"),
        (&["file", "gone/x"], 1, "No such file"),
        (&["dir", "x"], 1, "-r not specified; omitting directory 'dir'"),
        (
            &["--mode", "fast", "file", "x"],
            1,
            "must be reflink, range, buffered, uncached or direct",
        ),
        (&["--mode", "mmap", "file", "x"], 1, "measurements only"),
        (&["--durable", "very", "file", "x"], 1, "none, file or full"),
        (&["file", "file"], 1, "same file"),
    ];
    for (args, code, word) in ways {
        let output = cp(dir.path(), args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{args:?}: {}", said(&output));
        let text = said(&output);
        let lines = text.lines().filter(|line| !line.starts_with("Try 'ioloom cp --help'"));
        assert_eq!(lines.count(), 1, "{args:?}: {text}");
    }
    assert_eq!(names(dir.path()), ["dir", "file"]);
}

#[test]
fn a_list_from_standard_input_is_copied() {
    let dir = place();
    fs::create_dir(dir.path().join("to")).unwrap();
    let mut list = Vec::new();
    for name in ["a b", "c\nd", "e"] {
        fs::write(dir.path().join(name), name).unwrap();
        list.extend_from_slice(name.as_bytes());
        list.push(0);
    }
    let mut command = ioloom();
    command.current_dir(dir.path()).args(["cp", "--files0-from", "-", "-t", "to"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&list).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(names(&dir.path().join("to")), ["a b", "c\nd", "e"]);
}

#[test]
fn an_empty_name_in_a_list_is_an_error_and_the_rest_is_copied() {
    let dir = place();
    fs::create_dir(dir.path().join("to")).unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    fs::write(dir.path().join("b"), "b").unwrap();
    fs::write(dir.path().join("list"), b"a\0\0b\0").unwrap();
    let output = cp(dir.path(), &["--json", "--files0-from", "list", "-t", "to"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("list:2: invalid zero-length file name"), "{}", said(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["files"].as_u64(), json["errors"].as_u64()), (Some(2), Some(1)));
    assert_eq!(names(&dir.path().join("to")), ["a", "b"]);
}

/// Goal: no question is answered by the end of the list.
#[test]
fn a_list_from_standard_input_excludes_questions() {
    let dir = place();
    fs::create_dir(dir.path().join("to")).unwrap();
    let output = cp(dir.path(), &["-i", "--files0-from", "-", "-t", "to"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("cannot be combined with -i"), "{}", said(&output));
}

#[test]
fn a_list_from_a_closed_standard_input_is_an_error() {
    let dir = place();
    fs::create_dir(dir.path().join("to")).unwrap();
    let script = "\"$0\" cp --files0-from - -t to <&-";
    let mut shell = Command::new("sh");
    shell.current_dir(dir.path()).args(["-c", script]).arg(ioloom().get_program());
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("cannot read standard input: it is closed"));
}

#[test]
fn an_answer_that_cannot_be_read_is_an_error() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("directory")).unwrap();
    for (input, reason) in [("<&-", "it is closed"), ("< directory", "Is a directory")] {
        fs::write(at("from"), "new").unwrap();
        fs::write(at("to"), "old").unwrap();
        let script = format!("\"$0\" cp -i from to {input}");
        let mut shell = Command::new("sh");
        shell.current_dir(dir.path()).args(["-c", &script]).arg(ioloom().get_program());
        let output = shell.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{input}");
        let message = format!("\nioloom: cannot read standard input: {reason}");
        assert!(said(&output).contains(&message), "{}", said(&output));
        assert_eq!(fs::read(at("to")).unwrap(), b"old");
    }
}

/// Goal: a link keeps its access time. Method: one older than the link's last change, which any access updates.
#[test]
fn a_link_given_as_argument_keeps_its_access_time() {
    use std::os::unix::fs::MetadataExt;
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "x").unwrap();
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    for (option, copy) in [("--preserve", "copy"), ("--resume", "other")] {
        let touched = Command::new("touch")
            .args(["-h", "-d", "2001-01-01 00:00:00 UTC", "link"])
            .current_dir(dir.path())
            .status();
        assert!(touched.unwrap().success());
        let output = cp(dir.path(), &["-a", option, "link", copy]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(fs::symlink_metadata(at(copy)).unwrap().atime(), 978_307_200, "{option}");
    }
    std::os::unix::fs::symlink("gone", at("dangling")).unwrap();
    let output = cp(dir.path(), &["-a", "--resume", "dangling", "third"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_link(at("third")).unwrap(), Path::new("gone"));
}

#[test]
fn the_document_and_the_explanation_match_the_copy() {
    let dir = place();
    fs::write(dir.path().join("file"), "abc").unwrap();
    let output = cp(dir.path(), &["--json", "--verify", "cache", "file", "x"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["files"].as_u64(), json["bytes"].as_u64()), (Some(1), Some(3)));
    assert_eq!(json["verified"], "verified-cache");
    let hash = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
    assert_eq!(json["hashes"][0]["hash"], hash);
    let output = cp(dir.path(), &["--explain", "file", "y"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("small") && text.contains("one read and one write"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(names(dir.path()), ["file", "x"]);
}

#[test]
fn names_that_are_not_utf8_are_exact_in_json() {
    use std::os::unix::ffi::OsStrExt;
    let dir = place();
    fs::create_dir(dir.path().join("to")).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"\xff");
    fs::write(dir.path().join(name), "x").unwrap();
    fs::write(dir.path().join("plain"), "x").unwrap();
    let mut command = ioloom();
    command.current_dir(dir.path()).args(["cp", "--json", "--verify", "cache", "plain"]);
    let output = command.arg(name).arg("to").output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let hashes = document["hashes"].as_array().unwrap();
    assert_eq!(hashes[0]["path"], "to/plain");
    assert_eq!(hashes[0].get("path_base64"), None);
    assert_eq!(hashes[1]["path_base64"], "dG8v/w==", "{document}");
}

#[test]
fn a_closed_pipe_does_not_change_the_exit_code() {
    let dir = place();
    fs::write(dir.path().join("file"), "abc").unwrap();
    for (flag, from, code) in
        [("--json", "file", 0), ("--explain", "file", 0), ("--json", "missing", 1)]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = ioloom();
        command.current_dir(dir.path()).args(["cp", flag, from, "to"]).stdout(writer);
        assert_eq!(command.output().unwrap().status.code(), Some(code), "{flag} {from}");
    }
}

/// Copies as an unprivileged user. The program is copied next to the files, where all users have
/// access.
fn plain(dir: &Path, is_root: bool, args: &[&str]) -> Output {
    use std::os::unix::process::CommandExt;
    let program = dir.join("ioloom");
    if !program.exists() {
        // Another process copies the program. If this process had it open for writing while another
        // test forks, exec would fail.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_ioloom")).arg(&program).status();
        assert!(copied.unwrap().success());
    }
    let mut command = Command::new(&program);
    if is_root {
        command.uid(65534).gid(65534);
    }
    command.current_dir(dir).arg("cp").args(args).output().unwrap()
}

/// Drop boxes and homes of other users can be entered but not listed.
#[test]
fn a_plain_user_copies_in_directories_they_cannot_list() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let allow = |name: &str, mode: u32| {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("", 0o777);
    fs::create_dir_all(at("home/tree")).unwrap();
    fs::create_dir(at("drop")).unwrap();
    fs::write(at("home/file"), "text").unwrap();
    fs::write(at("home/tree/inner"), "text").unwrap();
    let is_root = chown(at("home/file"), Some(0), Some(0)).is_ok();
    allow("home", 0o311);
    allow("drop", 0o333);
    for (args, file) in [
        (&["home/file", "mine"][..], "mine"),
        (&["-r", "home/tree", "tree"], "tree/inner"),
        (&["home/file", "drop"], "drop/file"),
        (&["home/file", "drop/named"], "drop/named"),
        (&["home/file", "drop/named"], "drop/named"),
        (&["-r", "home/tree", "drop"], "drop/tree/inner"),
    ] {
        let output = plain(dir.path(), is_root, args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        assert_eq!(fs::read(at(file)).unwrap(), b"text", "{args:?}");
    }
    let output = plain(dir.path(), is_root, &["--durable", "file", "home/file", "drop/safe"]);
    assert!(said(&output).contains("drop/safe': Permission denied"), "{}", said(&output));
    allow("home", 0o755);
    allow("drop", 0o755);
}

/// A file that is written in place keeps its name, which needs no sync.
#[test]
fn a_plain_user_makes_a_durable_copy_into_a_file_in_a_directory_they_cannot_list() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let allow = |name: &str, mode: u32| {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("", 0o777);
    fs::create_dir(at("spool")).unwrap();
    fs::write(at("spool/mine"), "").unwrap();
    let is_root = chown(at("spool/mine"), Some(65534), Some(65534)).is_ok();
    allow("spool", 0o111);
    for level in ["file", "full"] {
        fs::write(at("source"), level).unwrap();
        let output = plain(dir.path(), is_root, &["--durable", level, "source", "spool/mine"]);
        assert!(output.status.success(), "{level}: {}", said(&output));
        assert_eq!(fs::read(at("spool/mine")).unwrap(), level.as_bytes());
    }
    let output = plain(dir.path(), is_root, &["--durable", "file", "source", "spool/new"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    allow("spool", 0o755);
}

/// The names in a home directory change, and its own name does not.
#[test]
fn a_plain_user_makes_a_durable_copy_into_a_home_next_to_those_of_others() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let allow = |name: &str, mode: u32| {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("", 0o777);
    fs::create_dir_all(at("src")).unwrap();
    fs::create_dir_all(at("home/me")).unwrap();
    fs::write(at("src/file"), "text").unwrap();
    let is_root = chown(at("home/me"), Some(65534), Some(65534)).is_ok();
    allow("home", 0o311);
    for (level, target) in [("full", "home/me"), ("file", "home/me/.")] {
        let output = plain(dir.path(), is_root, &["-r", "--durable", level, "src/.", target]);
        assert!(output.status.success(), "{level}: {}", said(&output));
        assert_eq!(fs::read(at("home/me/file")).unwrap(), b"text");
        fs::remove_file(at("home/me/file")).unwrap();
    }
    let output = plain(dir.path(), is_root, &["-r", "--durable", "file", "src", "home/new"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    allow("home", 0o755);
}

#[test]
fn a_plain_user_gets_one_error_and_keeps_existing_files() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["from", "to"] {
        fs::create_dir(at(name)).unwrap();
        for file in ["closed", "open"] {
            fs::write(at(name).join(file), name).unwrap();
        }
    }
    fs::set_permissions(at("from/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(at("to"), fs::Permissions::from_mode(0o777)).unwrap();
    let is_root = chown(at("from/closed"), Some(0), Some(0)).is_ok();
    // The user may write to the old file, but does not own it.
    fs::set_permissions(at("to/open"), fs::Permissions::from_mode(0o666)).unwrap();
    let output = plain(dir.path(), is_root, &["-rT", "from", "to"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("from/closed' for reading: Permission denied"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read(at("to/closed")).unwrap(), b"to");
    assert_eq!(fs::read(at("to/open")).unwrap(), b"from");
    if is_root {
        // The user owns the old file but not its directory.
        fs::set_permissions(at("to"), fs::Permissions::from_mode(0o755)).unwrap();
        let output = plain(dir.path(), is_root, &["from/closed", "from/open", "to"]);
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
        assert_eq!(fs::read(at("to/open")).unwrap(), b"from", "it is written in place");
        let output = plain(dir.path(), is_root, &["--replace", "from/open", "to/open"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    }
}

/// Goal: the advice for a target that cannot be written is true. Method: a read-only file of this user, a file of
/// another user, a new file in a read-only directory, and a file whose owner cannot be kept.
#[test]
fn a_plain_user_gets_advice_that_helps() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let allow = |name: &str, mode: u32| {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(at("closed")).unwrap();
    for name in ["new", "mine", "theirs", "shared"] {
        fs::write(at(name), name).unwrap();
    }
    let is_root = chown(at("mine"), Some(65534), Some(65534)).is_ok();
    for (name, mode) in
        [("", 0o777), ("closed", 0o555), ("mine", 0o444), ("theirs", 0o644), ("shared", 0o666)]
    {
        allow(name, mode);
    }
    let check = |args: &[&str], message: &str| {
        let output = plain(dir.path(), is_root, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
        assert_eq!(said(&output), format!("ioloom: {message}\n"), "{args:?}");
    };
    let denied = "Permission denied";
    check(
        &["new", "mine"],
        &format!(
            "cannot create regular file 'mine': {denied}; use -f to replace the read-only file"
        ),
    );
    let who = "run as a user with write permission on the";
    let name = "closed/x";
    check(
        &["new", name],
        &format!("cannot create regular file '{name}': {denied}; {who} directory"),
    );
    if is_root {
        check(
            &["new", "theirs"],
            &format!("cannot create regular file 'theirs': {denied}; {who} file"),
        );
        check(
            &["--replace", "new", "shared"],
            "cannot replace 'shared': its owner or group cannot be kept; use --remove-destination, or \
             omit --replace",
        );
        for flag in ["--remove-destination", "-f"] {
            let output = plain(dir.path(), is_root, &[flag, "new", "shared"]);
            assert!(output.status.success(), "{flag}: {}", said(&output));
        }
    }
    let output = plain(dir.path(), is_root, &["-f", "new", "mine"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(at("mine")).unwrap(), b"new");
    allow("closed", 0o755);
}

#[test]
fn flags_repeat_and_override_each_other_as_in_gnu_cp() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("new"), "new").unwrap();
    let minute = std::time::Duration::from_secs(60);
    let earlier = std::time::SystemTime::now() - minute;
    // Arguments, whether the older file is replaced, and whether the user is prompted.
    let ways: [(&[&str], bool, bool); 13] = [
        (&["-v", "-v", "-f", "-f"], true, false),
        (&["-rR", "-p", "-p"], true, false),
        (&["--reflink=auto", "--reflink=never", "--sparse", "never", "--sparse=auto"], true, false),
        (&["-n"], false, false),
        (&["-i", "-n"], false, false),
        (&["-n", "-i"], false, true),
        (&["-iu"], false, true),
        (&["-uv"], true, false),
        (&["-nu"], false, false),
        (&["--update"], true, false),
        (&["--update=older"], true, false),
        (&["--update=none"], false, false),
        (&["--update=all"], true, false),
    ];
    for (args, goes, asks) in ways {
        fs::write(at("old"), "old").unwrap();
        let old = fs::File::options().write(true).open(at("old")).unwrap();
        old.set_modified(earlier).unwrap();
        let args = [args, &["new", "old"]].concat();
        let mut command = ioloom();
        command.current_dir(dir.path()).arg("cp").args(&args).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        assert_eq!(fs::read(at("old")).unwrap() == b"new", goes, "{args:?}");
        assert_eq!(said(&output).contains("overwrite 'old'?"), asks, "{args:?}: {}", said(&output));
    }
    for (args, word) in [
        (["--update=some", "new", "x"], "invalid argument 'some' for '--update'"),
        (["--no-preserve=some", "new", "x"], "invalid argument 'some' for '--no-preserve'"),
    ] {
        let output = cp(dir.path(), &args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{args:?}: {}", said(&output));
    }
    let output = cp(dir.path(), &["--mode", "range", "--reflink=always", "new", "x"]);
    assert!(said(&output).contains("cannot be combined"), "{}", said(&output));
    assert_eq!((output.status.code(), at("x").exists()), (Some(1), false));
}

#[test]
fn a_copy_without_the_permissions_of_its_source_can_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("from"), "text").unwrap();
    fs::set_permissions(at("from"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::write(at("any"), "").unwrap();
    let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
    for (number, flags) in [
        &["--no-preserve=mode"][..],
        &["-a", "--no-preserve=mode,ownership"],
        &["--no-preserve", "all"],
    ]
    .into_iter()
    .enumerate()
    {
        let to = format!("to-{number}");
        let output = cp(dir.path(), &[flags, &["from", &to]].concat());
        assert!(output.status.success(), "{flags:?}: {}", said(&output));
        assert_eq!(mode(&to), mode("any"), "{flags:?}");
    }
    let output = cp(dir.path(), &["--preserve=mode", "--preserve=timestamps", "from", "kept"]);
    assert!(output.status.success(), "{}", said(&output));
    let changed = |name: &str| fs::metadata(at(name)).unwrap().modified().unwrap();
    assert_eq!((mode("kept"), changed("kept")), (0o555, changed("from")), "both lists count");
    assert!(cp(dir.path(), &["from", "to"]).status.success());
    assert_eq!(mode("to") & 0o700, 0o500, "less the umask, as ever");
}

#[test]
fn verification_reports_files_and_bytes() {
    let dir = place();
    fs::write(dir.path().join("file"), "abc").unwrap();
    let output = cp(dir.path(), &["--verify", "cache", "file", "x"]);
    assert!(said(&output).contains("verified-cache: 1 file, 3 B read back"), "{}", said(&output));
    let output = cp(dir.path(), &["-n", "--verify", "cache", "file", "x"]);
    assert!(said(&output).contains("not verified: no file was read back"), "{}", said(&output));
    // Only hashing was requested, so nothing failed.
    let output = cp(dir.path(), &["--verify", "in-flight", "file", "y"]);
    let expected = "ioloom: data was hashed while copying; the copies were not read back";
    assert!(said(&output).contains(expected), "{}", said(&output));
}

#[test]
fn a_repeated_source_is_copied_once_with_a_note() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    for made in ["sub", "to"] {
        fs::create_dir(at(made)).unwrap();
    }
    fs::write(at("file"), "text").unwrap();
    fs::write(at("sub/file"), "other").unwrap();
    let output = cp(dir.path(), &["file", "./file", "to"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "ioloom: warning: source file './file' specified more than once\n");
    assert_eq!(fs::read(at("to/file")).unwrap(), b"text");
    let output = cp(dir.path(), &["file", "sub/file", "to"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("will not overwrite just-created 'to/file'"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_repeated_directory_that_is_linked_to_itself_is_not_noted() {
    let dir = place();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/f"), "text").unwrap();
    let output = cp(dir.path(), &["-rl", "d", "d", "."]);
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    fs::create_dir(dir.path().join("to")).unwrap();
    let output = cp(dir.path(), &["-rl", "d", "d", "to"]);
    assert!(said(&output).contains("specified more than once"), "{}", said(&output));
}

#[test]
fn directories_of_one_name_are_merged() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    for made in ["x/d/sub", "y/d/sub", "to"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    for (file, text) in [("x/d/a", "x"), ("x/d/b", "x"), ("y/d/b", "y"), ("y/d/sub/c", "y")] {
        fs::write(at(file), text).unwrap();
    }
    fs::write(at("x/f"), "x").unwrap();
    fs::write(at("y/f"), "y").unwrap();
    // Enough files for some of the first source to win if both were copied in parallel.
    let many: Vec<String> = (0..400).map(|i| format!("d/sub/n{i}")).collect();
    for of in ["x", "y"] {
        many.iter().for_each(|name| fs::write(at(of).join(name), of).unwrap());
    }
    let output = cp(dir.path(), &["-r", "x/f", "x/d", "y/d", "y/f", "to"]);
    // Only one of the files can get the name.
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    for (file, text) in [("to/d/a", "x"), ("to/d/b", "y"), ("to/d/sub/c", "y"), ("to/f", "x")] {
        assert_eq!(fs::read_to_string(at(file)).unwrap(), text, "{file}");
    }
    let kept = many.iter().filter(|name| fs::read_to_string(at("to").join(name)).unwrap() == "y");
    assert_eq!(kept.count(), many.len());
    // With a record both would be copied in parallel.
    fs::create_dir(at("again")).unwrap();
    let output = cp(dir.path(), &["-r", "--resume", "x/d", "y/d", "again"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("same target"), "{}", said(&output));
    let output = cp(dir.path(), &["-r", "x/d", "./x/d", "to"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("specified more than once"), "{}", said(&output));
}

#[test]
fn a_limit_on_the_size_of_files_is_one_error_and_leaves_nothing() {
    let dir = place();
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("big"), vec![1; 3 << 20]).unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 8; exec \"$0\" cp big in/copy", env!("CARGO_BIN_EXE_ioloom")])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("ulimit -f"), "{}", said(&output));
    assert_eq!(names(&dir.path().join("in")), [""; 0]);
}
