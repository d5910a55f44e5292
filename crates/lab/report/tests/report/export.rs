//! Exported results contain no name of a place, and pool nothing.

use crate::records::sample;
use ioloom_model::Outcome;
use ioloom_report::{Input, anonymous, json};
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
    let of = groups.iter().filter(|g| g["experiment"] == "threads-media");
    let mut sets: Vec<&str> = of.filter_map(|g| g["set"].as_str()).collect();
    sets.sort_unstable();
    assert_eq!(sets, ["user files 1", "user files 2", "user files 3"]);
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
