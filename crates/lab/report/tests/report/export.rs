//! Exported results contain no name of a place, and pool nothing.

use crate::records::sample;
use ioloom_model::{Outcome, RunRecord};
use ioloom_report::{Input, anonymous, json, merge};
use serde_json::Value;

/// Returns the medians of an experiment by medium, with those of its first arm.
fn medians(document: &Value, experiment: &str) -> Vec<(String, f64)> {
    let groups = document["studies"][0]["groups"].as_array().expect("groups");
    let of = groups.iter().filter(|g| g["experiment"] == experiment);
    of.map(|g| {
        let median = g["arms"][0]["median"].as_f64().expect("a median");
        (g["medium"].as_str().expect("a medium").to_owned(), median)
    })
    .collect()
}

/// Returns the sample with its experiment of media on these media.
fn on(media: [&str; 3]) -> Input {
    let mut input = sample(1);
    for record in input.records.iter_mut().filter(|r| r.key.experiment == "threads-media") {
        let at = match record.key.medium.as_str() {
            "work" => 0,
            "tmpfs" => 1,
            _ => 2,
        };
        media[at].clone_into(&mut record.key.medium);
    }
    input
}

#[test]
fn media_of_the_user_stay_apart() {
    let input = on(["/mnt/hdd", "/mnt/nvme", "/mnt/ssd"]);
    let inputs = [input];
    let (open, closed) = (json(&inputs), anonymous(&inputs));
    let values = |document: &Value| -> Vec<f64> {
        let mut values: Vec<f64> =
            medians(document, "threads-media").into_iter().map(|(_, median)| median).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    assert_eq!(values(&closed), values(&open));
    let mut names: Vec<String> =
        medians(&closed, "threads-media").into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, ["elsewhere 1", "elsewhere 2", "elsewhere 3"]);
}

#[test]
fn file_sets_of_the_user_stay_apart() {
    let mut input = on(["work", "tmpfs", "slow"]);
    for record in input.records.iter_mut().filter(|r| r.key.experiment == "threads-media") {
        record.key.set = format!("/home/jo/{}", record.key.medium);
        record.key.medium = "work".to_owned();
    }
    let document = anonymous(&[input]);
    let groups = document["studies"][0]["groups"].as_array().expect("groups");
    // A hash of names and sizes would confirm guesses.
    let arms = groups.iter().flat_map(|g| g["arms"].as_array().expect("arms"));
    for arm in arms.filter(|arm| arm["median"].is_number()) {
        let of_user = arm["set"].as_str().is_some_and(|set| set.starts_with("user files"));
        assert_eq!(arm["set_hash"].is_null(), of_user, "{arm}");
    }
    let of = groups.iter().filter(|g| g["experiment"] == "threads-media");
    let mut sets: Vec<&str> = of.filter_map(|g| g["set"].as_str()).collect();
    sets.sort_unstable();
    assert_eq!(sets, ["user files 1", "user files 2", "user files 3"]);
}

#[test]
fn a_directory_with_the_name_of_a_file_set_is_one_of_the_user() {
    let mut input = sample(1);
    let name = input.records[0].key.set.clone();
    input.records.retain(|r| r.key.set == name);
    // Returns whether a group has the name, and whether an arm has a hash of its files.
    let found = |input: &Input, name: &str| {
        let document = anonymous(std::slice::from_ref(input));
        let groups = document["studies"][0]["groups"].as_array().expect("groups");
        let mut arms = groups.iter().flat_map(|g| g["arms"].as_array().expect("arms"));
        let has_hash = arms.any(|arm| arm["set_hash"].is_string());
        (groups.iter().any(|g| g["set"] == name), has_hash)
    };
    assert_eq!(found(&input, &name), (true, true));
    input.user_files = true;
    assert_eq!(found(&input, &name), (false, false));
    assert_eq!(found(&input, "user files"), (true, false));
}

#[test]
fn no_name_of_a_place_is_exported() {
    let mut input = on(["work", "tmpfs", "mydisk"]);
    let reasons = [
        "cannot open '/home/SECRET/My SECRET Photos/SECRET 1.jpg': Permission denied",
        "refused by --files=/home/SECRET",
        "file:/home/SECRET is absent",
        "nas.SECRET.corp:/export: timed out",
        "two lines\n/home/SECRET and\t/srv/SECRET",
        "cannot read data/SECRET.txt: Input/output error",
    ];
    for (record, reason) in input.records.iter_mut().zip(reasons.iter().cycle()).take(60) {
        record.outcome = if record.key.block % 2 == 0 {
            Outcome::Refused { reason: (*reason).to_owned() }
        } else {
            Outcome::Failed { reason: (*reason).to_owned() }
        };
    }
    input.doubts[0].detail = "seen in /home/SECRET on mydisk".to_owned();
    input.verdicts[0].sentence = "E, cold, on mydisk: 2.0×, '/srv/SECRET dir/x'".to_owned();
    let text = anonymous(&[input]).to_string();
    for name in ["SECRET", "mydisk", "home"] {
        assert!(!text.contains(name), "{name}");
    }
    for kept in
        ["cannot open: Permission denied", "cannot read: Input/output error", "on elsewhere: 2.0×"]
    {
        assert!(text.contains(kept), "{kept}");
    }
}

/// Only arms that did the same work are ranked, and each value has its block.
#[test]
fn the_data_says_which_arms_are_comparable_and_in_which_block_a_value_is() {
    let mut input = sample(1);
    let again = |r: &&mut RunRecord| r.key.arm == "default (again)" || r.key.arm == "mmap-8";
    for record in input.records.iter_mut().filter(again) {
        let Outcome::Done { measured } = &mut record.outcome else { continue };
        measured.elapsed_ns = 1;
        if record.key.arm == "mmap-8" {
            measured.files += 1;
        }
    }
    let unfinished = |r: &RunRecord| r.key.arm == "threads-2" && r.key.block == 3;
    input.records.retain(|r| !unfinished(r));
    let document = json(&[input.clone()]);
    let text = merge(&[("a.json".to_owned(), document.clone())]).expect("a report");
    let lines = |name: &str| {
        text.lines().filter(|l| l.starts_with(&format!("| {name} "))).collect::<Vec<_>>()
    };
    for line in [lines("default (again)"), lines("mmap-8"), lines("pool-4096")].concat() {
        assert!(!line.contains("lowest"), "{line}");
    }
    assert!(lines("uring-window")[0].contains("(lowest median)"), "{text}");
    let groups = document["studies"][0]["groups"].as_array().expect("groups");
    let mut holes = 0;
    for group in groups {
        assert!(group["unit"].is_string() && group["merges_sets"].is_boolean(), "{group}");
        for arm in group["arms"].as_array().expect("arms") {
            let Some(values) = arm["values"].as_array() else { continue };
            let blocks = arm["blocks"].as_array().expect("blocks");
            assert_eq!(values.len(), blocks.len());
            holes += usize::from(
                blocks.windows(2).any(|b| b[1].as_u64() != b[0].as_u64().map(|n| n + 1)),
            );
            for (value, block) in values.iter().zip(blocks) {
                let found = input.records.iter().any(|r| {
                    let metric = group["metric"].as_str().expect("a metric");
                    let number = r.measured().and_then(|m| m.metric(metric));
                    u64::from(r.key.block) == block.as_u64().expect("a block")
                        && r.key.arm == arm["arm"].as_str().expect("a name")
                        && number == value.as_f64()
                });
                assert!(found, "{arm}");
            }
        }
    }
    assert!(holes > 0, "the sample should have an arm without a block in the middle");
}
