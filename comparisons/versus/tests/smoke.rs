//! Runs a whole experiment on 50 small files: the runner, the real peers, and one of them as
//! `ours`.

#![expect(clippy::print_stdout, reason = "says why a check was left out")]

use ioloom_sys::cache;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Builds the peer program next to this test's binary and returns its path.
fn peer() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "ioloom-peers", "--bin", "peer"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("starts cargo");
    assert!(built.success(), "the peer program builds");
    Path::new(env!("CARGO_BIN_EXE_versus")).with_file_name("peer")
}

fn versus(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_versus")).args(args).output().expect("starts versus")
}

fn tree(dir: &Path) {
    for i in 0..50usize {
        let bytes: Vec<u8> = (0..i * 331).map(|k| (k * 7 + i) as u8).collect();
        let path = dir.join(format!("d{}/f{i}", i % 4));
        fs::create_dir_all(path.parent().expect("below the directory")).expect("makes directories");
        fs::write(path, bytes).expect("writes a file");
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn can_prove_warm(dir: &Path) -> bool {
    let file = fs::File::open(dir.join("d1/f1")).expect("a file of the tree");
    matches!(cache::resident_pages(file, 331), Ok(Some(_)))
}

#[test]
fn all_arms_agree_and_the_result_can_be_summarised_again() {
    let (dir, scratch) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    tree(dir.path());
    let (peer, out) = (peer(), scratch.path().join("result"));
    let ours = format!("{} std-threads {{dir}} --list {{list0}} --threads 3", peer.display());
    let peers = "rayon:1x,std-threads:2,std-threads:7,tokio:16,tokio-stream:4,read-loop,mmap:2,\
                 leanest:1,leanest-hash:2";
    let (dir_arg, out_arg) = (dir.path().to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    let args = [
        "--dir",
        dir_arg,
        "--out",
        out_arg,
        "--blocks",
        "2",
        "--peers",
        peers,
        "--ours",
        &ours,
        "--ours-digest",
        "sum",
        "--ours-peak-field",
        "peak_rss",
        "--input",
        "list",
        "--commit",
        "c",
        "--peer",
        peer.to_str().expect("UTF-8"),
    ];
    let first = versus(&args);
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    let (raw, summary) = (text(&out.join("raw.jsonl")), text(&out.join("summary.md")));
    assert_eq!(raw.lines().count(), 1 + 2 * 10, "the setup and two blocks of ten arms: {said}");
    for line in raw.lines().skip(1) {
        assert!(line.contains(r#""failure":null"#) && line.contains(r#""files":50"#), "{line}");
    }
    assert_eq!(String::from_utf8_lossy(&first.stdout), summary);
    assert!(text(&out.join("README.md")).contains("- commit: c\n"));
    if can_prove_warm(dir.path()) {
        assert!(first.status.success(), "every run counts: {said}");
        assert!(summary.contains("- ours against "), "{summary}");
    } else {
        println!("skipped: no cachestat, so no run can count");
    }

    let again = versus(&["--from", out_arg]);
    assert_eq!(again.stdout, first.stdout, "the same raw data give the same summary");
    let taken = versus(&args);
    assert_eq!(taken.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&taken.stderr).contains("is not empty"));
    assert_eq!(text(&out.join("raw.jsonl")), raw, "a kept result stays as it is");
}

#[test]
fn an_arm_that_gives_another_digest_stops_the_experiment_before_it_starts() {
    let (dir, scratch) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    tree(dir.path());
    let (peer, out) = (peer(), scratch.path().join("result"));
    // The peers' sum differs from our default digest over sorted lines.
    let ours = format!("bad={} read-loop {{dir}}", peer.display());
    let output = versus(&[
        "--dir",
        dir.path().to_str().expect("UTF-8"),
        "--out",
        out.to_str().expect("UTF-8"),
        "--peers",
        "none",
        "--ours",
        &ours,
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("bad: digest "), "{said}");
    assert!(!out.join("raw.jsonl").exists());
}

#[test]
fn cold_by_fadvise_leaves_its_evidence_in_every_run() {
    let (dir, scratch) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    tree(dir.path());
    let (peer, out) = (peer(), scratch.path().join("result"));
    versus(&[
        "--dir",
        dir.path().to_str().expect("UTF-8"),
        "--out",
        out.to_str().expect("UTF-8"),
        "--condition",
        "cold",
        "--blocks",
        "2",
        "--peers",
        "std-threads:2,read-loop",
        "--peer",
        peer.to_str().expect("UTF-8"),
    ]);
    let raw = text(&out.join("raw.jsonl"));
    assert_eq!(raw.lines().count(), 1 + 2 * 2);
    for line in raw.lines().skip(1) {
        for field in ["sampled_pages", "resident_pages", "device_bytes", "data_bytes", "doubt"] {
            assert!(line.contains(&format!("\"{field}\":")), "{field}: {line}");
        }
        assert!(
            line.contains(r#""sampled_files":50"#),
            "a small set is checked completely: {line}"
        );
    }
}
