//! Two subjects in one report, cold names, and experiments that need a reboot.

use crate::home::{Home, TINY};
use serde_json::Value;

const WALK: &str = r#"
name = "strolls"
title = "Walking little trees"
question = "How many threads?"
subject = "walk"
[sets.trees]
about = "a little tree"
full = { count = 900, size = "exp(mean=900)", layout = "tree", making = { sparse = true, links = 4 } }
[[experiment]]
name = "warm"
question = "Warm?"
sets = ["trees"]
conditions = ["warm"]
blocks_quick = 3
arm = [
  { name = "statx-{threads}", plan = "walk:statx/threads={threads}", with = { threads = [1, 2] }, headline = true },
  { name = "tables", plan = "walk:inode-tables/threads=1", headline = true },
]
[[experiment]]
name = "cold"
question = "Cold?"
sets = ["trees"]
blocks_quick = 3
arm = [
  { name = "statx-4", plan = "walk:statx/threads=4", headline = true },
  { name = "reboot", plan = "walk:statx/threads=4", cold_by = "reboot", headline = true },
]
"#;

/// Writes both studies to one directory.
fn studies(home: &Home) -> String {
    let dir = home.studies(TINY);
    std::fs::write(home.path("studies").join("walk.toml"), WALK).unwrap();
    dir
}

fn of<'a>(records: &'a [Value], experiment: &str) -> Vec<&'a Value> {
    let here = |r: &&Value| r["key"]["experiment"] == experiment;
    let found: Vec<_> = records.iter().filter(here).collect();
    assert!(!found.is_empty(), "{experiment}");
    found
}

#[test]
fn two_studies_make_one_report_with_a_chapter_for_each() {
    let home = Home::new();
    let dir = studies(&home);
    let ran = home.run(&["study", "--studies", &dir]).well();
    assert!(ran.out.lines().last().unwrap().starts_with("Report "), "{}", ran.out);
    assert_eq!(ran.out.matches("Report ").count(), 1, "{}", ran.out);
    assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{}", ran.out);
    let pages: Vec<_> = std::fs::read_dir(home.store().join("reports")).unwrap().collect();
    assert_eq!(pages.len(), 1);
    let page = home.run(&["report", "latest", "--studies", &dir, "-o", "-"]).well().out;
    for text in ["Walking little trees", "id=\"strolls-answer\"", "id=\"tiny-answer\""] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page.matches("id=\"machine\"").count(), 1, "common parts appear once");
    // Repeat the command; the two batches are compared study by study.
    let json = home.run(&["study", "--studies", &dir, "--json"]).well().json();
    assert_eq!(json["studies"].as_array().unwrap().len(), 2);
    assert_eq!(json["studies"][0]["report"], json["studies"][1]["report"]);
    let args = ["compare", "latest-1", "latest", "--studies", &dir];
    let text = home.run(&args).well().out;
    assert!(text.contains("threads-1") && text.contains("statx-1"), "{text}");
    let choose = home.run(&[&args[..], &["--json"]].concat());
    choose.one_error(2, &["--study", "tiny, strolls"]);
    let json = home.run(&[&args[..], &["--json", "--study", "strolls"]].concat()).well().json();
    assert_eq!(json["arms"][0]["experiment"], "warm");
}

/// Asserts that a warm run was verified as warm. The kernel can evict a page between the warming walk
/// and the measured one; the record must then contain a doubt.
fn warm_or_doubted(record: &Value) -> bool {
    let proved = record["proof"]["proved"] == true;
    let mut doubts = record["doubts"].as_array().into_iter().flatten();
    assert_eq!(!proved, doubts.any(|doubt| doubt == "not-warm"), "{record}");
    proved
}

#[test]
fn names_become_cold_or_the_arm_is_refused_with_advice() {
    for home in [Some(Home::new()), Home::of_nobody()].into_iter().flatten() {
        let dir = studies(&home);
        let ran = home.run(&["study", "strolls", "--studies", &dir]).well();
        let records = home.records();
        let mut warm = 0;
        for record in of(&records, "warm") {
            if record["key"]["arm"] == "tables" && record["outcome"]["kind"] == "refused" {
                let reason = record["outcome"]["reason"].as_str().unwrap();
                assert!(reason.contains("; run as root"), "{reason}");
                assert!(
                    ran.err.contains("tables: not run: cannot walk by inode-tables"),
                    "{}",
                    ran.err
                );
                continue;
            }
            assert_eq!(record["proof"]["made_by"], "walk", "{record}");
            let proved = warm_or_doubted(record);
            warm += usize::from(proved);
            let measured = &record["outcome"]["measured"];
            assert_eq!((&measured["files"], &measured["errors"]), (&900.into(), &0.into()));
            // A quarter of the names are second links; each shared file has two links.
            assert_eq!(measured["extra"]["names_of_shared_files"], 450.0);
        }
        assert!(warm > 0, "no run on a freshly walked tree found its names in memory");
        for record in of(&records, "cold") {
            assert_eq!(
                record["key"]["arm"].as_str().unwrap().trim_end_matches(" (again)"),
                "statx-4"
            );
            if record["outcome"]["kind"] == "refused" {
                let reason = record["outcome"]["reason"].as_str().unwrap();
                assert!(reason.contains("; "), "{reason}");
                assert!(ran.err.contains("not measured: cold names"), "{}", ran.err);
            } else {
                assert_eq!(record["proof"]["made_by"], "remount", "{record}");
                assert_eq!(record["proof"]["proved"], true, "{record}");
            }
        }
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(&home.path("").display().to_string()), "{mounts}");
    }
}

#[test]
fn a_reboot_is_required_and_proved() {
    let home = Home::new();
    let dir = studies(&home);
    let args = ["study", "strolls", "--studies", &dir, "--after-reboot"];
    home.run(&args).one_error(3, &["was just created", "; reboot"]);
    home.run(&args).one_error(3, &["was used since the machine booted"]);
    // Simulates a reboot in between; only device reads can then show that names were cold.
    let mut notes = 0;
    for note in notes_of_use(&home.path("")) {
        std::fs::write(note, "another start").unwrap();
        notes += 1;
    }
    assert_eq!(notes, 1, "one set is used");
    home.run(&args).well();
    let records = home.records();
    assert_eq!(records.len(), 1, "only the first run after the boot");
    assert_eq!(records[0]["key"]["arm"], "reboot");
    let proof = &records[0]["proof"];
    assert_eq!(proof["made_by"], "reboot");
    // The names were just created and so are in memory, unless another test evicted them by
    // remounting its file system; then they are read from the device again.
    let device = proof["device_bytes"].as_u64().unwrap();
    assert!(proof["proved"] == false || device >= 8 * 900, "{proof}");
}

/// Returns the records of when the sets below a directory were last used.
fn notes_of_use(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(notes_of_use(&entry.path()));
        } else if entry.file_name().to_string_lossy().ends_with(".used-in-boot") {
            found.push(entry.path());
        }
    }
    found
}
