//! `cp` from a store.

use super::{Ran, program, run};
use ioloom_bucket::{Contents, Fault, Law, Server};

#[test]
fn a_prefix_is_copied_into_a_directory() {
    let faults = vec![(Fault::Cut, 0.1), (Fault::Busy, 0.1)];
    let server = Server::start(Law { faults, seed: 3, page: 3, ..Law::default() });
    for number in 0..10 {
        server.put(&format!("d/sub {}/f{number}", number % 2), vec![number; 5000]);
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("new").display().to_string();
    let document = run(&server, &["cp", "-r", "--json", "s3://bucket/d", &target]).well().json();
    assert_eq!((&document["files"], &document["bytes"]), (&10.into(), &50_000.into()));
    assert_eq!(
        (&document["verified_files"], &document["length_only_files"]),
        (&10.into(), &0.into())
    );
    for number in 0..10 {
        let path = dir.path().join(format!("new/sub {}/f{number}", number % 2));
        assert_eq!(std::fs::read(path).unwrap(), vec![number; 5000]);
    }
}

#[test]
fn an_object_is_copied_to_a_name_or_into_a_directory() {
    let server = Server::start(Law::default());
    server.put("d/a", "one");
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| dir.path().join(name).display().to_string();
    std::fs::create_dir(dir.path().join("new")).unwrap();
    for (target, found) in [(text("b"), "b"), (text(""), "a"), (text("new/"), "new/a")] {
        let ran = run(&server, &["cp", "s3://bucket/d/a", &target]).well();
        assert_eq!((&*ran.out, &*ran.err), ("", ""), "{target}");
        assert_eq!(std::fs::read_to_string(dir.path().join(found)).unwrap(), "one");
    }
    // A link of that name is followed, as if it had been given.
    server.put("d/link", "two");
    std::os::unix::fs::symlink("b", dir.path().join("link")).unwrap();
    run(&server, &["cp", "s3://bucket/d/link", &text("")]).well();
    assert_eq!(std::fs::read_to_string(dir.path().join("b")).unwrap(), "two");
}

#[test]
fn a_limit_on_the_size_of_files_is_one_error() {
    let server = Server::start(Law::default());
    server.put("d/a", vec![1_u8; 1 << 20]);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("a").display().to_string();
    let mut limited = std::process::Command::new("/bin/sh");
    limited.env_clear().envs(server.environment()).env("HOME", "/nonexistent");
    limited.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ioloom")]);
    let ran = Ran::of(limited.args(["cp", "s3://bucket/d/a", &target]).output().unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Servers that encrypt have other versions than the MD5, and objects in segments have. Damage looks the same, so it is
/// reported.
#[test]
fn an_etag_that_is_not_the_md5_is_reported_with_the_object() {
    let server = Server::start(Law::default());
    let version = "0123456789abcdef0123456789abcdef";
    server.put("d/x", Contents::from("one").with_version(version));
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("new").display().to_string();
    let ran = run(&server, &["cp", "-r", "s3://bucket/d", &target]).well();
    assert!(ran.err.contains("1 file verified by length only: the ETag looks like an MD5"));
    server.put("d/y", "two");
    let ran = run(&server, &["cp", "-r", "--json", "s3://bucket/d", &target]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for words in ["the ETag of 's3://bucket/d/x' is not the MD5", "; other objects have their MD5"]
    {
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    let document = ran.json();
    let fields = ["files", "errors", "verified_files", "length_only_files", "other_etag_files"];
    let numbers = fields.map(|field| document[field].as_u64());
    assert_eq!(numbers, [2, 0, 1, 0, 1].map(Some));
    assert_eq!(document["other_etag_samples"], serde_json::json!(["s3://bucket/d/x"]));
}

#[test]
fn a_directory_is_copied_to_a_prefix() {
    let server = Server::start(Law::default());
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("sub/a"), vec![1; 9 << 20]).unwrap();
    std::fs::write(tree.join("b"), "two").unwrap();
    let from = tree.display().to_string();
    let command = |args: &[&str]| {
        let mut command = program(&server);
        command.args(["cp"]).args(args).env("XDG_STATE_HOME", dir.path().join("state"));
        Ran::of(command.output().unwrap())
    };
    command(&[&from, "s3://bucket/to"]).one_error(1, "it is a directory; add -r");
    let document = command(&["-r", "--json", &from, "s3://bucket/to"]).well().json();
    assert_eq!((&document["files"], &document["verified_files"]), (&2.into(), &2.into()));
    assert_eq!(server.keys(), ["to/b", "to/sub/a"]);
    assert_eq!(server.get("to/sub/a").unwrap(), vec![1; 9 << 20]);
    let denied = command(&["-r", &from, "s3://denied/to"]);
    assert_eq!((denied.code, denied.err.lines().count()), (Some(1), 2), "{}", denied.err);
}

#[test]
fn errors_fail_with_code_1() {
    let server = Server::start(Law::default());
    server.put("d/a", "one");
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("x").display().to_string();
    for (args, words) in [
        (["s3://nosuch/x", &target], "cannot read 's3://nosuch/x': "),
        (["s3://bucket/none", &target], "cannot read 's3://bucket/none': No such object"),
        (["s3://bucket/d/", &target], "it is a prefix, not an object; add -r"),
        (["-p", "s3://bucket/d/a"], "cp takes one source and one target"),
        ([&target, "s3://bucket/x"], "cannot stat "),
        (["s3://bucket/x", "s3://bucket/y"], "cannot copy between stores"),
    ] {
        run(&server, &[&["cp"][..], &args].concat()).one_error(1, words);
    }
    let ran = run(&server, &["cp", "-p", "s3://bucket/d/a", &target]);
    ran.one_error(1, "only -r and --json can be used with objects");
    assert!(!dir.path().join("x").exists());
}

#[test]
fn a_target_that_does_not_fit_is_one_error_and_makes_no_directory() {
    let server = Server::start(Law::default());
    for key in ["d/a", "d/b"] {
        server.put(key, key);
    }
    let dir = tempfile::tempdir().unwrap();
    let text = |name: &str| dir.path().join(name).display().to_string();
    for target in [text("gone/sub/file"), text("gone/")] {
        let ran = run(&server, &["cp", "s3://bucket/d/a", &target]);
        ran.one_error(1, "No such file or directory");
    }
    assert!(!dir.path().join("gone").exists());
    std::fs::write(dir.path().join("big"), "old").unwrap();
    let ran = run(&server, &["cp", "-r", "s3://bucket/d", &text("big")]);
    ran.one_error(1, "cannot overwrite non-directory");
    assert_eq!(std::fs::read(dir.path().join("big")).unwrap(), b"old");
}
