//! Commands as people type them.

use crate::{cp, ioloom, names, place, said};
use std::fs;
use std::io::Write;
use std::process::Stdio;

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
    let ways: [(&[&str], i32, &str); 9] = [
        (&[], 2, "give what to copy"),
        (&["file"], 2, "give a source"),
        (&["file", "dir", "gone"], 3, "no directory"),
        (&["file", "gone/x"], 1, "No such file"),
        (&["dir", "x"], 1, "give -r"),
        (&["--mode", "fast", "file", "x"], 2, "no way to copy"),
        (&["--mode", "mmap", "file", "x"], 3, "measurements only"),
        (&["--durable", "very", "file", "x"], 2, "none, file or full"),
        (&["file", "file"], 1, "same file"),
    ];
    for (args, code, word) in ways {
        let output = cp(dir.path(), args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{args:?}: {}", said(&output));
        assert_eq!(said(&output).lines().count(), 1, "{args:?}: {}", said(&output));
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
fn the_document_and_the_explanation_tell_what_was_done() {
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
fn a_plain_user_meets_one_error_and_keeps_what_was_there() {
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
    let program = at("ioloom");
    fs::copy(env!("CARGO_BIN_EXE_ioloom"), &program).unwrap();
    let mut command = std::process::Command::new(&program);
    let is_root = chown(at("from/closed"), Some(0), Some(0)).is_ok();
    if is_root {
        use std::os::unix::process::CommandExt;
        command.uid(65534).gid(65534);
    }
    let output =
        command.current_dir(dir.path()).args(["cp", "-rT", "from", "to"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("from/closed: Permission denied"), "{}", said(&output));
    assert_eq!(fs::read(at("to/closed")).unwrap(), b"to");
    assert_eq!(fs::read(at("to/open")).unwrap(), b"from");
}
