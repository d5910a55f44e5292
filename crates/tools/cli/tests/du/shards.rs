//! Shards of `du`: the parts of any plan add up to one `du`, with each inode counted once.

use crate::place::{PROGRAM, ProcessOutput, Workspace};
use serde_json::Value;
use std::fs;

fn run(place: &Workspace, args: &[&str]) -> ProcessOutput {
    place.ours(args).output().unwrap().into()
}

/// A tree with directories at several depths, odd names, and links between distant directories.
fn place() -> Workspace {
    let place = Workspace::in_memory_or_on_disk(PROGRAM);
    for a in 0..5 {
        for b in 0..4 {
            let dir = place.at(format!("t/a{a}/b {b}\n/c"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("file"), vec![b'x'; 3000 * (a + b + 1)]).unwrap();
        }
        fs::write(place.at(format!("t/a{a}/direct")), "direct").unwrap();
    }
    let first = place.at("t/a0/b 0\n/c/file");
    for link in ["t/a4/b 3\n/link", "t/a2/link", "t/link"] {
        fs::hard_link(&first, place.at(link)).unwrap();
    }
    fs::hard_link(place.at("t/a1/direct"), place.at("t/a1/again")).unwrap();
    std::os::unix::fs::symlink("a1", place.at("t/symlink")).unwrap();
    place
}

fn plan(place: &Workspace, shards: u64, more: &[&str]) -> Value {
    let shards = shards.to_string();
    let args = ["shard", "plan", "--subtrees", "--json", "--shards", &shards];
    run(place, &[&args, more].concat()).ended(0).json()
}

fn run_all(place: &Workspace, plan: &str, shards: u64) {
    fs::create_dir_all(place.at("parts")).unwrap();
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        run(place, &["du", "--shard", &number, "--manifest", plan, "--part", "parts"]).ended(0);
    }
}

fn merged(place: &Workspace, plan: &str) -> Value {
    run(place, &["shard", "merge", "--json", plan, "parts"]).ended(0).json()
}

/// Returns disk bytes, apparent bytes and inodes of one `du`.
fn whole(place: &Workspace, roots: &[&str]) -> [u64; 3] {
    [&["--block-size=1"][..], &["--apparent-size", "--block-size=1"], &["--inodes"]].map(|flags| {
        let args = [&["du", "-s", "-c"], flags, roots].concat();
        let text = run(place, &args).ended(0).text();
        text.lines().last().unwrap().split('\t').next().unwrap().parse().unwrap()
    })
}

fn numbers(document: &Value) -> [u64; 3] {
    ["disk_bytes", "apparent_bytes", "inodes"].map(|field| document[field].as_u64().unwrap())
}

#[test]
fn the_parts_of_every_plan_add_up_to_one_du() {
    for wanted in [1, 2, 3, 7, 64] {
        let place = place();
        let planned = plan(&place, wanted, &["t"]);
        let shards = planned["shards"].as_u64().unwrap();
        assert!(shards <= wanted && planned["subtrees"] == true, "{planned}");
        run_all(&place, "t.shards", shards);
        let sum = merged(&place, "t.shards");
        assert_eq!(numbers(&sum), whole(&place, &["t"]), "{wanted} shards");
        let shared = if shards == 1 { 0 } else { 1 };
        assert_eq!(sum["shared_inodes"], shared, "{wanted} shards: {sum:#}");
    }
}

#[test]
fn arguments_inside_others_and_files_count_once() {
    let place = place();
    let roots = ["t/a1", "t", "t/a2/direct", "t/a0", "t/a1/../a1"];
    let planned = plan(&place, 5, &[&["--out", "p"], &roots[..]].concat());
    run_all(&place, "p", planned["shards"].as_u64().unwrap());
    let sum = merged(&place, "p");
    assert_eq!(numbers(&sum), whole(&place, &["t"]));
}

#[test]
fn arguments_that_are_links_or_end_with_dots_count_as_in_du() {
    let place = place();
    std::os::unix::fs::symlink("t", place.at("l")).unwrap();
    for dir in 0..17 {
        fs::create_dir_all(place.at(format!("d/{dir}/s"))).unwrap();
        fs::write(place.at(format!("d/{dir}/s/file")), vec![1; 9000]).unwrap();
    }
    let dots: Vec<String> = (0..17).map(|dir| format!("d/{dir}/.")).collect();
    let dots: Vec<&str> = dots.iter().map(String::as_str).collect();
    let cases: [&[&str]; 8] = [
        &["l/"],
        &["l/."],
        &["l"],
        &["l", "t"],
        &["t", "l"],
        &["t", "t/symlink", "t/a0/direct"],
        &["./t/./a1/../a1/", "t/a2/"],
        &dots,
    ];
    for (at, roots) in cases.iter().enumerate() {
        let out = format!("p{at}");
        let planned = plan(&place, 1, &[&["--out", &out], *roots].concat());
        assert_eq!(planned["shards"], 1);
        let _ = fs::remove_dir_all(place.at("parts"));
        run_all(&place, &out, 1);
        assert_eq!(numbers(&merged(&place, &out)), whole(&place, roots), "{roots:?}");
    }
}

#[test]
fn a_directory_that_became_a_file_counts_once_and_is_an_error() {
    let place = place();
    fs::create_dir(place.at("t/leaf")).unwrap();
    plan(&place, 2, &["t"]);
    fs::remove_dir(place.at("t/leaf")).unwrap();
    fs::write(place.at("t/leaf"), vec![1; 50_000]).unwrap();
    fs::create_dir(place.at("parts")).unwrap();
    let mut errors = String::new();
    for number in ["1/2", "2/2"] {
        let args = ["du", "--shard", number, "--manifest", "t.shards", "--part", "parts"];
        errors += &run(&place, &args).err;
    }
    assert!(errors.contains("'t/leaf': it was a directory when the plan was made"), "{errors}");
    let sum = run(&place, &["shard", "merge", "--json", "t.shards", "parts"]);
    assert_eq!(sum.code, Some(1));
    assert_eq!(numbers(&sum.json()), whole(&place, &["t"]));
}

/// Goal: a link that replaced a directory above subtrees is an error of each of their shards: what it leads to is not part
/// of the tree.
#[test]
fn what_a_link_in_the_place_of_a_directory_leads_to_does_not_count() {
    let place = place();
    let shards = plan(&place, 64, &["t"])["shards"].as_u64().unwrap();
    fs::create_dir(place.at("parts")).unwrap();
    // The directories that were in it exist where the link leads.
    fs::rename(place.at("t/a1"), place.at("outside")).unwrap();
    std::os::unix::fs::symlink("../outside", place.at("t/a1")).unwrap();
    let (mut all, mut failed) = (String::new(), 0);
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        let args = ["du", "--shard", &number, "--manifest", "t.shards", "--part", "parts"];
        let ran = run(&place, &args);
        failed += u64::from(ran.code == Some(1));
        all += &ran.err;
    }
    assert_eq!(shards, 1 + 5 + 20 + 20, "one directory per shard");
    assert_eq!(failed, 1 + 4 + 4, "{all}");
    assert_eq!(
        all.matches("'t/a1': it was a directory when the plan was made").count(),
        9,
        "{all}"
    );
    let sum = run(&place, &["shard", "merge", "--json", "t.shards", "parts"]).ended(1).json();
    assert_eq!(numbers(&sum), whole(&place, &["t"]));
}

#[test]
fn a_shard_runs_once_and_again_with_redo() {
    let place = place();
    plan(&place, 1, &["t"]);
    fs::create_dir(place.at("parts")).unwrap();
    let args = ["du", "--shard", "1/1", "--manifest", "t.shards", "--part", "parts"];
    assert!(run(&place, &args).ended(0).text().starts_with("shard 1/1 scanned: "));
    let first = numbers(&merged(&place, "t.shards"));
    fs::write(place.at("t/new"), vec![1; 9000]).unwrap();
    assert!(run(&place, &args).ended(0).text().starts_with("shard 1/1 had a part: "));
    assert_eq!(numbers(&merged(&place, "t.shards")), first);
    let redone = run(&place, &[&args[..], &["--redo", "--json"]].concat()).ended(0).json();
    assert_eq!(redone["shard"]["written"], true);
    let again = numbers(&merged(&place, "t.shards"));
    // On some file systems, the directory grows, too.
    assert!(again[2] == first[2] + 1 && again[1] >= first[1] + 9000, "{first:?} {again:?}");
}

#[test]
fn what_is_missing_is_an_error_of_its_shard() {
    let place = place();
    let planned = plan(&place, 2, &["t"]);
    assert_eq!(planned["shards"], 2);
    fs::create_dir(place.at("parts")).unwrap();
    let first = ["du", "--shard", "1/2", "--manifest", "t.shards", "--part", "parts"];
    run(&place, &first).ended(0);
    let missing = run(&place, &["shard", "merge", "t.shards", "parts"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("1 shard has no part: 2"), "{}", missing.err);
    // A directory that is gone is an error; a tree that is gone completes nothing.
    fs::remove_dir_all(place.at("t/a3")).unwrap();
    let args = ["du", "--shard", "2/2", "--manifest", "t.shards", "--part", "parts"];
    let ran = run(&place, &args);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("t/a3"), "{}", ran.err);
    let sum = run(&place, &["shard", "merge", "t.shards", "parts"]);
    assert_eq!(sum.code, Some(1));
    assert!(sum.text().contains("(partial: "), "{}", sum.text());
    fs::remove_file(place.at("parts/part-000002")).unwrap();
    fs::rename(place.at("t"), place.at("away")).unwrap();
    let ran = run(&place, &args);
    assert_eq!(ran.code, Some(1));
    assert!(!place.at("parts/part-000002").exists(), "{}", ran.err);
}

/// Goal: no shard is complete on a host without the tree, not even one that has only the directory at its top.
#[test]
fn an_empty_mount_point_completes_no_shard() {
    let place = place();
    let shards = plan(&place, 64, &["t"])["shards"].as_u64().unwrap();
    fs::rename(place.at("t"), place.at("away")).unwrap();
    fs::create_dir(place.at("t")).unwrap();
    fs::create_dir(place.at("parts")).unwrap();
    let mut all = String::new();
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        let args = ["du", "--shard", &number, "--manifest", "t.shards", "--part", "parts"];
        all += &run(&place, &args).ended(1).err;
    }
    assert!(all.contains("no planned directory in 't' exists; mount the tree of"), "{all}");
    assert_eq!(fs::read_dir(place.at("parts")).unwrap().count(), 0);
    fs::remove_dir(place.at("t")).unwrap();
    fs::rename(place.at("away"), place.at("t")).unwrap();
    run_all(&place, "t.shards", shards);
    assert_eq!(numbers(&merged(&place, "t.shards")), whole(&place, &["t"]));
}

/// Goal: the same of an argument that contains only files.
#[test]
fn an_empty_mount_point_that_had_files_only_completes_no_shard() {
    let place = place();
    place.write("u/file", "x");
    let shards = plan(&place, 64, &["t", "u"])["shards"].as_u64().unwrap();
    fs::rename(place.at("u"), place.at("away")).unwrap();
    fs::create_dir(place.at("u")).unwrap();
    fs::create_dir(place.at("parts")).unwrap();
    let mut all = String::new();
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        let args = ["du", "--shard", &number, "--manifest", "t.shards", "--part", "parts"];
        all += &run(&place, &args).err;
    }
    assert_eq!(all.matches("the directory 'u' is empty, and was not").count(), 1, "{all}");
    fs::remove_dir(place.at("u")).unwrap();
    fs::rename(place.at("away"), place.at("u")).unwrap();
    run_all(&place, "t.shards", shards);
    assert_eq!(numbers(&merged(&place, "t.shards")), whole(&place, &["t", "u"]));
}

/// Goal: the same of a shard that also has directories of another argument.
#[test]
fn directories_of_an_empty_mount_point_and_of_others_complete_no_shard() {
    let place = place();
    place.write("u/file", "x");
    place.write("v/file", "x");
    assert_eq!(plan(&place, 2, &["t", "u", "v"])["shards"], 2);
    fs::rename(place.at("t"), place.at("away")).unwrap();
    fs::create_dir(place.at("t")).unwrap();
    fs::create_dir(place.at("parts")).unwrap();
    let mut all = String::new();
    for number in ["1/2", "2/2"] {
        let args = ["du", "--shard", number, "--manifest", "t.shards", "--part", "parts"];
        all += &run(&place, &args).ended(1).err;
    }
    // The first shard has the upper part of 't'.
    for message in ["no planned directory in 't' exists", "'t' is empty, and was not"] {
        assert_eq!(all.matches(message).count(), 1, "{message}: {all}");
    }
    assert_eq!(fs::read_dir(place.at("parts")).unwrap().count(), 0, "{all}");
}

/// Goal: the same of a mount further below.
#[test]
fn an_empty_mount_point_in_the_tree_completes_no_shard() {
    let place = place();
    let shards = plan(&place, 64, &["t"])["shards"].as_u64().unwrap();
    let entries = |dir: &str| fs::read_dir(place.at(dir)).unwrap().count() as u64;
    assert_eq!(shards, 1 + 5 + 20 + 20, "one directory per shard");
    fs::rename(place.at("t/a3"), place.at("away")).unwrap();
    fs::create_dir(place.at("t/a3")).unwrap();
    fs::write(place.at("t/a3/.not-mounted"), "").unwrap();
    // A link to an empty directory is an error of its shard.
    fs::rename(place.at("t/a1"), place.at("a1")).unwrap();
    fs::create_dir(place.at("empty")).unwrap();
    std::os::unix::fs::symlink("../empty", place.at("t/a1")).unwrap();
    // It was empty before, or has files only.
    fs::remove_file(place.at("t/a0/b 1\n/c/file")).unwrap();
    fs::create_dir(place.at("parts")).unwrap();
    let mut all = String::new();
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        let args = ["du", "--shard", &number, "--manifest", "t.shards", "--part", "parts"];
        all += &run(&place, &args).err;
    }
    assert_eq!(all.matches("no planned directory in 't/a3' exists").count(), 1, "{all}");
    // Neither it nor the eight directories in it have a part, nor have those that were where the link is.
    assert_eq!(entries("parts"), shards - 9 - 8, "{all}");
}

/// Goal: an argument that was removed is reported, and its shard is complete, also if it has no other directory.
#[test]
fn a_removed_argument_that_had_files_only_is_an_error_of_its_shard() {
    let place = place();
    place.write("u/file", "x");
    let shards = plan(&place, 64, &["t", "u"])["shards"].as_u64().unwrap();
    fs::remove_dir_all(place.at("u")).unwrap();
    fs::create_dir(place.at("parts")).unwrap();
    let (mut all, mut failed) = (String::new(), 0);
    for number in 1..=shards {
        let number = format!("{number}/{shards}");
        let args = ["du", "--shard", &number, "--manifest", "t.shards", "--part", "parts"];
        let ran = run(&place, &args);
        failed += u64::from(ran.code == Some(1));
        all += &ran.err;
    }
    assert!(failed == 1 && all.contains("'u'"), "{failed}: {all}");
    assert_eq!(fs::read_dir(place.at("parts")).unwrap().count() as u64, shards);
    let sum = run(&place, &["shard", "merge", "--json", "t.shards", "parts"]).ended(1).json();
    assert_eq!(numbers(&sum), whole(&place, &["t"]));
}

#[test]
fn plans_and_flags_that_do_not_fit_are_refused() {
    let place = place();
    plan(&place, 2, &["t"]);
    run(&place, &["shard", "plan", "t", "--out", "files"]).ended(0);
    fs::create_dir(place.at("parts")).unwrap();
    let refused = |args: &[&str], code: i32, words: &[&str]| {
        let ran = run(&place, args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        for word in words {
            assert!(ran.err.contains(word), "{args:?}: {}", ran.err);
        }
    };
    let files = ["--shard", "1/2", "--manifest", "files", "--part", "parts"];
    refused(&[&["du"], &files[..]].concat(), 1, &["it lists files for 'ioloom each'"]);
    let dirs = ["--shard", "1/2", "--manifest", "t.shards", "--part", "parts"];
    refused(&[&["each"], &dirs[..]].concat(), 2, &["it lists directories for 'ioloom du'"]);
    refused(&[&["du"], &dirs[..], &["t"]].concat(), 1, &["cannot be used with"]);
    refused(&[&["du", "-l"], &dirs[..]].concat(), 1, &["cannot be used with"]);
    refused(&["du", "--shard", "3/2", "--manifest", "t.shards", "--part", "parts"], 1, &["1 to N"]);
    refused(&["du", "--shard", "1/3", "--manifest", "t.shards", "--part", "parts"], 1, &["2"]);
    refused(&["du", "--shard", "1/2", "--manifest", "t.shards"], 1, &["--part"]);
    let plan = ["shard", "plan", "--subtrees", "--out", "other"];
    refused(&[&plan[..], &["t", "--exclude", "x"]].concat(), 2, &["--exclude=x", "only -x"]);
    refused(&[&plan[..], &["-"]].concat(), 2, &["not a list"]);
    refused(&[&plan[..], &["gone"]].concat(), 1, &["gone"]);
    refused(&[&plan[..], &["."]].concat(), 3, &["choose another directory with --out"]);
    run_all(&place, "t.shards", 2);
    let merge = ["shard", "merge", "t.shards", "parts", "--per-file"];
    refused(&merge, 2, &["'ioloom each'"]);
}
