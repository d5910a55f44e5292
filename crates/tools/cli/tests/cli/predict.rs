//! `ioloom predict`: the figures of its documentation, its errors, and its scale.

use crate::home::Home;
use std::path::Path;

/// Marks a block of docs/predict.md that is the output of the command that follows.
const MARK: &str = "<!-- output of: ioloom ";

/// Returns the text with each marked block replaced by the output of its command.
fn regenerated(text: &str) -> String {
    let home = Home::new();
    let (mut all, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(MARK) {
        let (before, block) = rest.split_at(at + MARK.len());
        let (line, after) = block.split_once(" -->\n\n```text\n").unwrap();
        let (_, after) = after.split_once("```\n").unwrap();
        let args: Vec<&str> = line.split_whitespace().collect();
        let out = home.run(&args).well().out;
        all += &format!("{before}{line} -->\n\n```text\n{out}```\n");
        rest = after;
    }
    all + rest
}

#[test]
fn the_figures_of_the_documentation_are_those_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/predict.md");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.matches(MARK).count() >= 4, "too few generated blocks");
    let fresh = regenerated(&text);
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::write(&path, &fresh).unwrap();
        return;
    }
    assert!(fresh == text, "docs/predict.md differs from the program; new text:\n{fresh}");
}

#[test]
fn each_invalid_question_has_one_error() {
    let home = Home::new();
    for (args, code, word) in [
        (&["predict", "walk", "--device", "floppy"][..], 2, "floppy"),
        (&["predict", "walk", "--files", "0"], 2, "--files"),
        (&["predict", "walk", "--files", "-5"], 2, "-5"),
        (&["predict", "walk", "--threads", "0"], 2, "--threads"),
        (&["predict", "files", "--compute=-1ms"], 2, "-1ms"),
        (&["predict", "files", "--size", "0"], 2, "size"),
        (&["predict", "files", "--cached", "101"], 2, "101"),
        (&["predict", "copy", "--to", "tape"], 2, "tape"),
        (&["predict", "copy", "--size", "0"], 2, "size"),
        (&["predict", "exchange", "--think=-1s"], 2, "-1s"),
        (&["predict", "exchange", "--clients", "1G"], 2, "--clients"),
        (&["predict", "exchange", "--durability", "some"], 2, "some"),
        (&["predict"], 2, "walk"),
        (&["predict", "--simulate"], 2, "required"),
        (&["predict", "--runs", "latest"], 2, "required"),
        (&["predict", "--verify", "--runs", "latest"], 1, "no results"),
        (&["predict", "--verify", "--runs", "latest", "--store", "nowhere"], 1, "nowhere"),
        (&["predict", "walk", "--device", "measured"], 3, "--calibrate"),
        (&["predict", "copy", "--to", "measured"], 3, "--calibrate"),
        (&["predict", "files", "--device", "measured", "--store", "nowhere"], 3, "--calibrate"),
    ] {
        home.run(args).one_error(code, &[word]);
    }
    let saved = home.store().join("predict");
    std::fs::create_dir_all(&saved).unwrap();
    std::fs::write(saved.join("calibration.json"), "{\"schema\": 1}").unwrap();
    let args = ["predict", "walk", "--device", "measured"];
    home.run(&args).one_error(1, &["calibration.json", "--calibrate"]);
}

#[test]
fn a_billion_files_on_64_disks_are_answered_from_a_sample() {
    let home = Home::new();
    let args = ["predict", "files", "--device", "hdd", "--disks", "64", "--files", "1G"];
    let rest = ["--threads", "16", "--cores", "16", "--json"];
    let ask = || home.run(&[&args[..], &rest].concat()).well();
    let (one, two) = (ask(), ask());
    assert_eq!(one.out, two.out);
    let answer = one.json();
    let last = answer["points"].as_array().unwrap().last().unwrap();
    let rate = last["rate_per_s"].as_f64().unwrap();
    let elapsed = last["elapsed_s"].as_f64().unwrap();
    assert!((rate * elapsed / 1e9 - 1.0).abs() < 1e-9, "{rate} {elapsed}");
    assert!(last["low_s"].as_f64().unwrap() < elapsed);
    assert_eq!(answer["evidence"], "predicted");
}

#[test]
fn the_timeline_is_a_trace() {
    let home = Home::new();
    let path = home.path("run.ioloom");
    let file = path.to_str().unwrap();
    let args = ["predict", "files", "--device", "sata", "--files", "2k", "--threads", "8"];
    home.run(&[&args[..], &["--timeline", file]].concat()).well();
    let shown = home.run(&["trace", "show", file]).well().out;
    assert!(shown.contains("simulated"), "{shown}");
    let page = home.path("run.html");
    home.run(&["trace", "export", file, "--format", "html", "-o", page.to_str().unwrap()]).well();
    assert!(std::fs::read_to_string(page).unwrap().contains("simulated"));
}

#[test]
fn probes_of_this_machine_answer_questions_about_it() {
    let home = Home::new();
    let probes =
        home.run(&["predict", "--calibrate", "--dir", home.path("work").to_str().unwrap()]);
    if probes.code == Some(3) {
        println!("skipped: {}", probes.err);
        return;
    }
    probes.well();
    assert_eq!(std::fs::read_dir(home.path("work")).unwrap().count(), 0);
    for what in ["walk", "files", "copy"] {
        let args = ["predict", what, "--device", "measured", "--files", "16k", "--json"];
        let answer = home.run(&args).well().json();
        assert_eq!(answer["calibration"]["walk_files"], 8_000);
        let beyond = &answer["points"][0]["beyond"];
        assert_eq!(beyond["files"], 2.0, "{what}: {beyond}");
    }
}
