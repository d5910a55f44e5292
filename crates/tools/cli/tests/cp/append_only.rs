//! Directories in which names can only be added, and files that cannot be removed: nothing is left under
//! a hidden name, which even root could not remove.

use crate::gnu::{compare, is_gnu};
use crate::{cp, names, place, said};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A script that copies with a directory `d` in which every directory is append-only.
fn closed(prepare: &str, copy: &str) -> String {
    format!(
        "{prepare}; find d -type d -exec chattr +a {{}} +; {copy}; code=$?; chattr -R -f -ai d; exit $code"
    )
}

fn chattr(flag: &str, path: &Path) -> bool {
    let changed = Command::new("chattr").arg(flag).arg(path).output();
    changed.is_ok_and(|output| output.status.success())
}

/// Returns false, with a message, if attributes of files cannot be changed here.
fn has_attributes(dir: &Path) -> bool {
    let has_them = chattr("+a", dir) && chattr("-a", dir);
    if !has_them {
        println!("skipped: chattr cannot make a directory append-only here");
    }
    has_them
}

const OLD: &str = "mkdir d; echo old > d/f; echo new > f";
const LINK: &str = "mkdir d; ln -s t f; ln -s u d/f";
const PIPE: &str = "mkdir d; mkfifo f; echo old > d/f";
const TREE: &str = "mkdir -p s/sub d/s/sub; echo a > s/a; echo b > s/sub/b; ln -s q s/l; mkfifo s/p; \
                    echo old > d/s/a; echo old > d/s/sub/b";

#[test]
fn append_only_directories_are_written_as_gnu_cp_does() {
    let temp = tempfile::tempdir().unwrap();
    if !is_gnu() || !has_attributes(temp.path()) {
        return;
    }
    let cases = [
        (OLD, "$CP f d"),
        (OLD, "$CP -f f d"),
        (OLD, "$CP --remove-destination f d"),
        (OLD, "$CP -b f d"),
        (OLD, "$CP --backup=numbered f d"),
        (OLD, "(cd d; $CP -s ../f f)"),
        (OLD, "(cd d; $CP -s --remove-destination ../f f)"),
        (OLD, "(cd d; $CP -sb ../f f)"),
        (OLD, "$CP -s f d"),
        (OLD, "$CP -sf f d"),
        (OLD, "$CP -l f d"),
        (OLD, "$CP -l --remove-destination f d"),
        (OLD, "$CP -lb f d"),
        (OLD, "$CP -p f d"),
        (OLD, "$CP -n f d"),
        (OLD, "$CP --attributes-only -p f d"),
        ("mkdir d e; echo 1 > f; echo 2 > e/f", "$CP f e/f d"),
        ("mkdir d; echo old > d/f; echo new > f; ln d/f e", "$CP -a f d"),
        ("mkdir d; echo new > f", "$CP f d; (cd d; $CP -s ../f s); $CP -l f d/l"),
        ("mkdir d; echo t > t; ln -s ../t d/f; echo new > f", "$CP f d"),
        ("mkdir d; ln -s f d/f; echo new > f", "$CP -f f d"),
        (PIPE, "$CP -r f d"),
        (PIPE, "$CP -rf f d"),
        (PIPE, "$CP -a f d"),
        (PIPE, "$CP -rb f d"),
        ("mkdir d; mkfifo -m 640 f", "$CP -r f d"),
        ("mkdir d; mkfifo -m 640 f", "$CP -a f d"),
        (LINK, "$CP -P f d"),
        (LINK, "$CP -Pf f d"),
        (LINK, "$CP -a f d"),
        (LINK, "$CP -db f d"),
        ("mkdir d; ln -s t f", "$CP -P f d"),
        (TREE, "$CP -r s d"),
        (TREE, "$CP -rb s d"),
        (TREE, "$CP -rl s d"),
        (TREE, "rm -f s/p; $CP -rf s d"),
        ("mkdir -p s/sub d; echo a > s/a; ln s/a s/sub/b; mkfifo s/p; ln -s q s/l", "$CP -a s d"),
        ("mkdir -p a/b d; echo new > a/b/f", "$CP --parents a/b/f d; $CP --parents a/b/f d"),
    ];
    let scripts: Vec<String> = cases.iter().map(|(with, copy)| closed(with, copy)).collect();
    compare(&scripts.iter().map(String::as_str).collect::<Vec<_>>(), false);
}

#[test]
fn files_that_cannot_be_removed_give_the_errors_of_gnu_cp() {
    let temp = tempfile::tempdir().unwrap();
    if !is_gnu() || !has_attributes(temp.path()) {
        return;
    }
    let mut scripts = Vec::new();
    for flag in ["i", "a"] {
        let with = format!(
            "mkdir d; echo old > d/f; touch -d '1 hour ago' d/f; echo new > f; chattr +{flag} d/f"
        );
        for options in ["", "-f", "--remove-destination", "-b", "-p", "-l", "-s", "-u", "-n"] {
            let copy = format!("(cd d; $CP {options} ../f .); code=$?; chattr -ai d/f; exit $code");
            scripts.push(format!("{with}; {copy}"));
        }
    }
    compare(&scripts.iter().map(String::as_str).collect::<Vec<_>>(), false);
}

/// GNU cp makes a link under a temporary name here, which stays.
#[test]
fn links_that_cannot_replace_a_name_leave_nothing_in_an_append_only_directory() {
    let temp = place();
    let (dir, d) = (temp.path(), temp.path().join("d"));
    fs::create_dir(&d).unwrap();
    if !has_attributes(&d) {
        return;
    }
    fs::create_dir(dir.join("s")).unwrap();
    fs::write(dir.join("s/a"), "a").unwrap();
    fs::hard_link(dir.join("s/a"), dir.join("s/b")).unwrap();
    fs::write(d.join("a"), "old").unwrap();
    fs::write(d.join("b"), "old").unwrap();
    assert!(chattr("+a", &d));
    let full = dir.join("s/a").display().to_string();
    let linked = cp(dir, &["-lf", "s/a", "d"]);
    let symlinked = cp(dir, &["-sf", &full, "d"]);
    let merged = cp(dir, &["-a", "s/.", "d"]);
    let resumed = cp(dir, &["--resume", "s/a", "d"]);
    let replaced = cp(dir, &["--replace", "s/a", "d"]);
    let found = names(&d);
    assert!(chattr("-a", &d));
    assert_eq!(found, ["a", "b"]);
    let denied = "Operation not permitted\n";
    let link = format!("ioloom: cannot create hard link 'd/a' to 's/a': {denied}");
    assert_eq!(said(&linked), link);
    let link = format!("ioloom: cannot create symbolic link 'd/a' to '{full}': {denied}");
    assert_eq!(said(&symlinked), link);
    assert!(said(&merged).contains("cannot create hard link"), "{}", said(&merged));
    assert!(said(&resumed).contains("append-only"), "{}", said(&resumed));
    assert_eq!(said(&replaced), format!("ioloom: cannot replace 'd/a': {denied}"));
    let failed = [linked, symlinked, merged, resumed, replaced];
    assert!(failed.iter().all(|output| output.status.code() == Some(1)));
}
