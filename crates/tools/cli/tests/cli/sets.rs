//! File sets: created, verified, refused and removed.

use crate::home::Home;
use ioloom_fileset::MANIFEST;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_set_is_created_verified_and_removed() {
    let home = Home::new();
    let spec = "count=50,size=exp(mean=2KiB,min=1,max=8KiB)";
    let create = ["fileset", "create", spec, "set", "--random", "4", "--json"];
    let made = home.run(&create).well().json();
    assert_eq!((&made["schema"], &made["set"]["files"]), (&1.into(), &50.into()));
    assert_eq!(made["files_made"], 50);
    let again = home.run(&create).well().json();
    assert_eq!(again["files_made"], 0, "the set already exists");
    std::fs::remove_file(walk(&home.path("set/files"))[0].as_path()).unwrap();
    std::fs::write(home.path("set/files/mine"), "x").unwrap();
    assert_eq!(home.run(&create).well().json()["files_made"], 1);
    std::fs::remove_file(home.path("set/files/mine")).unwrap();
    assert_eq!(again["set"]["hash"], made["set"]["hash"]);
    let other = home.run(&["fileset", "create", spec, "other", "--random", "5"]).well();
    assert!(other.out.contains("50 files") && other.out.contains("hash"), "{}", other.out);
    assert!(!other.out.contains(made["set"]["hash"].as_str().unwrap()));
    let single = home.run(&["fileset", "create", "count=1,size=1KiB", "single"]).well().out;
    assert!(single.starts_with("single: 1 file, "), "{single}");
    assert!(single.contains("\ncreated 1 file in "), "{single}");
    home.run(&["fileset", "create", spec, "set", "--random", "5"]).one_error(3, &["another"]);

    home.run(&["fileset", "verify", "set"]).well();
    let other = std::fs::File::open(home.path("set")).unwrap();
    other.try_lock().unwrap();
    home.run(&["fileset", "verify", "set"]).one_error(3, &["locked by another process"]);
    other.unlock().unwrap();
    let files = home.path("set/files");
    let one = walk(&files).into_iter().find(|p| p.metadata().unwrap().len() > 0).unwrap();
    std::fs::write(&one, "something else").unwrap();
    let faulty = home.run(&["fileset", "verify", "set"]);
    assert_eq!(faulty.code, Some(1), "{}", faulty.err);
    assert!(faulty.out.contains("49 of 50"), "{}", faulty.out);
    assert!(faulty.err.contains(one.file_name().unwrap().to_str().unwrap()), "{}", faulty.err);
    // A reader that closes the pipe hides neither.
    for args in [&["fileset", "verify", "set"][..], &["fileset", "verify", "set", "--json"]] {
        let unread = home.run_unread(args);
        assert_eq!((unread.code, &unread.err), (Some(1), &faulty.err));
    }

    let manifest = home.path("set").join(MANIFEST);
    let text = std::fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("\"complete\""), "{text}");
    std::fs::write(&manifest, text.replace("\"complete\"", "\"making\"")).unwrap();
    home.run(&["fileset", "verify", "set"]).one_error(1, &["is incomplete"]);

    home.run(&["fileset", "remove", "set"]).well();
    assert!(!home.path("set").exists());
    home.run(&["fileset", "remove", "other"]).well();
}

#[test]
fn a_tree_that_cannot_be_read_completely_is_imitated_and_reported() {
    let Some(home) = Home::of_nobody() else {
        println!("skipped: needs root, to run as another user");
        return;
    };
    let closed = home.path("tree/closed");
    std::fs::create_dir_all(&closed).unwrap();
    std::fs::write(home.path("tree/file"), "text").unwrap();
    let close = |mode| std::fs::set_permissions(&closed, PermissionsExt::from_mode(mode)).unwrap();
    let create = |set: &str| home.run(&["fileset", "create", "like:tree", set, "--json"]);
    close(0o755);
    assert_eq!(create("whole").well().json()["files_made"], 1);
    close(0o700);
    let ran = create("part");
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(ran.json()["files_made"], 1);
    assert!(ran.err.contains("Permission denied") && ran.err.contains("1 entry"), "{}", ran.err);
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(walk(&path)) } else { all.push(path) }
    }
    all
}

#[test]
fn foreign_directories_are_neither_written_nor_removed() {
    let home = Home::new();
    std::fs::create_dir(home.path("mine")).unwrap();
    std::fs::write(home.path("mine/precious"), "x").unwrap();
    home.run(&["fileset", "create", "count=2,size=1", "mine"]).one_error(3, &["not empty"]);
    home.run(&["fileset", "remove", "mine"]).one_error(1, &["no file set"]);
    home.run(&["fileset", "verify", "missing"]).one_error(1, &["missing"]);
    home.run(&["fileset", "create", "count=2,size=9ZiB", "x"]).one_error(2, &["9ZiB"]);
    home.run(&["fileset", "create", "count=4,size=512TiB", "x"]).one_error(3, &["free"]);
    assert_eq!(std::fs::read_to_string(home.path("mine/precious")).unwrap(), "x");
    assert!(!home.path("x").exists());
}
