//! Every plan gives the same bytes, shown by a digest that other programs compute too.

use crate::place::{
    Each, PROGRAM, Workspace, digest_of, digest_of_tree, fresh, regular_files, there,
};
use std::os::unix::ffi::OsStrExt;

const METHODS: [&str; 11] = [
    "read",
    "nowait",
    "uring",
    "uring:open",
    "uring:registered",
    "direct:read",
    "direct:uring",
    "mmap:plain",
    "mmap:sequential",
    "mmap:willneed",
    "mmap:populate",
];
const SCHEDULES: [&str; 3] = ["threads:n=2", "window:l=5,p=2", "roles:r=1,h=1,c=1,w=4"];

/// Runs every pair; returns those that were refused.
fn every_plan(place: &Workspace) -> Vec<String> {
    place.odd_tree("t");
    let right = digest_of_tree(&place.at("t"));
    let files = regular_files(&place.at("t")).len() as u64;
    let mut refused = Vec::new();
    for method in METHODS {
        for schedule in SCHEDULES {
            let args = ["t", "--method", method, "--schedule", schedule, "--json"];
            let ran = place.each(&args);
            if ran.code == Some(3) {
                assert!(ran.out.is_empty() && ran.err.lines().last().unwrap().len() > 30);
                refused.push(format!("{method}/{schedule}"));
                continue;
            }
            let json = ran.ended(0).json();
            assert_eq!(json["digest"], right, "{method}/{schedule}");
            assert_eq!(json["files"], files, "{method}/{schedule}");
            assert_eq!(json["method"], method);
        }
    }
    refused
}

#[test]
fn every_plan_gives_the_digest_of_an_independent_program() {
    let refused = every_plan(&fresh());
    for word in ["mmap:plain/window", "mmap:sequential/window", "mmap:populate/window"] {
        assert!(refused.iter().any(|r| r.starts_with(word)), "{word} cannot run ahead");
    }
    for plan in &refused {
        let may = plan.starts_with("mmap") && plan.contains("/window")
            || plan.contains("uring")
            || plan.starts_with("direct");
        assert!(may, "{plan} runs everywhere");
    }
}

#[test]
fn in_memory_direct_reads_are_refused_and_the_rest_is_the_same() {
    let Some(place) = Workspace::in_memory(PROGRAM) else {
        return println!("skipped: no /dev/shm here");
    };
    let refused = every_plan(&place);
    for plan in ["direct:read/threads:n=2", "mmap:plain/window:l=5,p=2"] {
        assert!(refused.iter().any(|r| r == plan), "{plan}: {refused:?}");
    }
    assert!(!refused.iter().any(|r| r.starts_with("read/")), "{refused:?}");
}

#[test]
fn null_reads_nothing_and_claims_no_digest() {
    let place = fresh();
    place.odd_tree("t");
    let json = place.each(&["t", "--method", "null", "--json"]).ended(0).json();
    assert!(json["digest"].is_null());
    assert_eq!(json["bytes"], 0);
    for work in ["none", "touch"] {
        let json = place.each(&["t", "--compute", work, "--json"]).ended(0).json();
        assert!(json["digest"].is_null(), "{work} does not process all bytes");
        assert!(json["bytes"].as_u64().unwrap() > 0, "{work}: {json}");
        let text = place.each(&["t", "--compute", work]).ended(0).text();
        assert!(!text.contains("digest"), "{text}");
    }
}

#[test]
fn xxhsum_and_sort_give_the_same_digest() {
    if !there("xxhsum") || !there("sort") {
        return;
    }
    let place = fresh();
    for i in 0..30 {
        place.write(format!("t/d{}/f {i}", i % 3), vec![i as u8; 1000 * i]);
    }
    let script = "find . -type f -printf '%P\\0' | xargs -0 xxhsum -H3 | sed 's/^XXH3_//; \
                  s/^XXH3 (\\(.*\\)) = \\([0-9a-f]*\\)$/\\2  \\1/' | LC_ALL=C sort | xxhsum -H3 | \
                  grep -o '[0-9a-f]\\{16\\}'";
    let theirs =
        place.command("sh").args(["-c", script]).current_dir(place.at("t")).output().unwrap();
    let ours = place.each(&["t", "--json"]).ended(0).json();
    assert_eq!(ours["digest"], String::from_utf8(theirs.stdout).unwrap().trim());
}

#[test]
fn several_arguments_are_named_with_their_prefix() {
    let place = fresh();
    place.odd_tree("t");
    place.write("u/x", "x");
    place.write("single", "bytes");
    let mut files = Vec::new();
    for root in ["t", "u"] {
        for name in regular_files(&place.at(root)) {
            let shown = [root.as_bytes(), b"/", name.as_bytes()].concat();
            files.push((shown, place.at(root).join(&name)));
        }
    }
    files.push((b"single".to_vec(), place.at("single")));
    let ran = place.each(&["t", "u", "single", "--json"]).ended(0);
    assert_eq!(ran.json()["digest"], digest_of(&files));
    for word in ["link", "socket", "pipe"] {
        assert!(ran.err.contains(word), "a skipped entry is not reported: {word}: {}", ran.err);
    }
    assert_eq!(place.each(&["t", "u", "--quiet"]).ended(0).err, "", "quiet is quiet");
    let one = place.each(&["single", "--json"]).ended(0).json();
    assert_eq!(one["digest"], digest_of(&[(b"single".to_vec(), place.at("single"))]));
}

#[test]
fn a_repeated_argument_counts_once_with_a_warning() {
    let place = fresh();
    place.write("t/d/x", "x");
    let once = place.each(&["t", "--json"]).ended(0).json();
    let twice = place.each(&["t", "./t/../t", "--json"]).ended(0);
    assert_eq!(once["digest"], twice.json()["digest"]);
    assert!(twice.err.contains("is the same as 't': read once"), "{}", twice.err);
    let nested = place.each(&["t", "t/d", "--json"]).ended(0);
    assert_eq!(nested.json()["files"], 2);
    assert!(nested.err.contains("'t/d' is inside 't': its files count twice"), "{}", nested.err);
}

#[test]
fn lists_on_standard_input_give_the_same_files() {
    let place = fresh();
    place.odd_tree("t");
    let names = regular_files(&place.at("t"));
    let files: Vec<_> =
        names.iter().map(|n| ([b"t/", n.as_bytes()].concat(), place.at("t").join(n))).collect();
    let list: Vec<u8> = files.iter().flat_map(|(name, _)| [name, &b"\0"[..]].concat()).collect();
    let ran = place.each_of(&["-0", "-", "--json"], &list).ended(0);
    assert_eq!(ran.json()["digest"], digest_of(&files));
    let plain: Vec<_> = files.iter().filter(|(name, _)| !name.contains(&b'\n')).cloned().collect();
    let list: Vec<u8> = plain.iter().flat_map(|(name, _)| [name, &b"\n"[..]].concat()).collect();
    let ran = place.each_of(&["-", "--json"], &list).ended(0);
    assert_eq!(ran.json()["digest"], digest_of(&plain));
    let none = place.each_of(&["-", "--json"], b"").ended(0);
    assert_eq!(none.json()["digest"], digest_of(&[]));
}

#[test]
fn big_files_stay_within_a_small_memory() {
    let place = fresh();
    for i in 0..3u8 {
        place.write(format!("t/{i}"), vec![i; 64 << 20]);
    }
    let json = place.each(&["t", "--memory", "32MiB", "--json"]).ended(0).json();
    assert_eq!(json["digest"], digest_of_tree(&place.at("t")));
    assert!(json["budget_peak_bytes"].as_u64().unwrap() <= 32 << 20, "{json}");
    // The budget, the program itself and the stacks of its threads.
    assert!(json["memory_peak_bytes"].as_u64().unwrap() < 96 << 20, "{json}");
}
