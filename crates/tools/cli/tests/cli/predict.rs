//! `ioloom predict`: the figures of its documentation, its errors, and its scale.

use crate::home::{Home, Ran};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Marks a block of docs/predict.md that is the output of the command that follows.
const MARK: &str = "<!-- output of: ioloom ";

/// Marks a block that is the comparison with the stored runs in the directory that follows.
const STORED: &str = "<!-- stored runs of: ";

/// Returns the text with the block after each mark replaced by the output for the rest of the mark.
fn replaced(text: &str, mark: &str, output: impl Fn(&str) -> String) -> String {
    let (mut all, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(mark) {
        let (before, block) = rest.split_at(at + mark.len());
        let (line, after) = block.split_once(" -->\n\n```text\n").unwrap();
        let (_, after) = after.split_once("```\n").unwrap();
        let out = output(line);
        let wide = out.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "more than 80 columns");
        all += &format!("{before}{line} -->\n\n```text\n{out}```\n");
        rest = after;
    }
    all + rest
}

/// Returns the text with all marked blocks generated again.
fn regenerated(text: &str) -> String {
    let home = Home::new();
    let text = replaced(text, MARK, |line| {
        let args: Vec<&str> = line.split_whitespace().collect();
        home.run(&args).well().out
    });
    replaced(&text, STORED, |dir| {
        let (store, root) = (home.path("store"), Path::new(env!("CARGO_MANIFEST_DIR")));
        std::fs::create_dir_all(&store).unwrap();
        for entry in std::fs::read_dir(root.join("../../..").join(dir)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().extension().is_some_and(|end| end == "jsonl") {
                std::fs::copy(entry.path(), store.join(entry.file_name())).unwrap();
            }
        }
        let store = store.to_str().unwrap();
        let out =
            home.run(&["predict", "--verify", "--runs", "latest", "--store", store]).well().out;
        out[out.find("Stored runs").unwrap()..].to_owned()
    })
}

#[test]
fn the_figures_of_the_documentation_are_those_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/predict.md");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.matches(MARK).count() >= 4, "too few generated blocks");
    assert!(text.contains(STORED), "no stored runs");
    let blocks = text.matches("```text\n").count();
    let generated = text.matches(MARK).count() + text.matches(STORED).count();
    assert_eq!(blocks, generated, "an output is not generated");
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
        (&["predict", "walk", "--files", "99999999999999999999"], 2, "--files"),
        (&["predict", "files", "--compute", "NaNs"], 2, "NaNs"),
        (&["predict", "files", "--compute", "999999999999999h"], 2, "--compute"),
        (&["predict", "files", "--size", "18446744073709551615"], 2, "size"),
        (&["predict", "files", "--size", "1025TiB"], 2, "must be at most 1024 TiB"),
        (&["predict", "copy", "--size", "1025TiB"], 2, "must be at most 1024 TiB"),
        (&["predict", "files", "--disks", "0"], 2, "--disks"),
        (&["predict", "--existing"], 2, "required"),
        (&["predict", "--calibrate", "--dir", ".", "--existing"], 2, "required"),
        (&["predict", "--evict"], 2, "required"),
        (&["predict", "files", "--files", "10000000000G", "--size", "1024TiB"], 2, "files"),
        (&["predict", "--calibrate", "--dir", "nowhere"], 1, "nowhere"),
        (&["predict", "files", "--compute=-1ms"], 2, "-1ms"),
        (&["predict", "files", "--size", "0"], 2, "size"),
        (&["predict", "files", "--cached", "101"], 2, "101"),
        (&["predict", "copy", "--to", "tape"], 2, "tape"),
        (&["predict", "copy", "--size", "0"], 2, "size"),
        (&["predict", "exchange", "--think=-1s"], 2, "-1s"),
        (&["predict", "exchange", "--clients", "1G"], 2, "--clients"),
        (&["predict", "exchange", "--durability", "some"], 2, "some"),
        (&["predict", "exchange", "--sync", "1s"], 2, "--durability"),
        (&["predict"], 2, "walk"),
        (&["predict", "--simulate"], 2, "required"),
        (&["predict", "--runs", "latest"], 2, "required"),
        (&["predict", "--verify", "--runs", "latest"], 1, "no results"),
        (&["predict", "--verify", "--runs", "latest", "--store", "nowhere"], 1, "nowhere"),
        (&["predict", "walk", "--device", "measured"], 3, "--calibrate"),
        (&["predict", "copy", "--to", "measured"], 3, "--calibrate"),
        (&["predict", "exchange", "--measured"], 3, "--exchange"),
        (&["predict", "exchange", "--measured", "--sync", "1ms"], 2, "--sync"),
        (&["predict", "walk", "--threads", "8193"], 2, "1 to 8192"),
        (&["predict", "copy", "--threads", "0"], 2, "1 to 8192"),
        (&["predict", "files", "--device", "measured", "--store", "nowhere"], 3, "--calibrate"),
    ] {
        home.run(args).one_error(code, &[word]);
    }
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

fn a_probed_server_answers_questions(home: &Home) {
    for (level, most) in [("none", 256), ("group", 256), ("each", 8)] {
        let args = ["predict", "exchange", "--measured", "--think", "0s", "--clients", "128"];
        let answer =
            home.run(&[&args[..], &["--durability", level, "--json"]].concat()).well().json();
        let probes = &answer["calibration"]["measured"]["exchange"][format!("{level}_s")];
        let first = &answer["points"][0];
        let rate = 1.0 / probes[0][1].as_f64().unwrap();
        assert!((first["rate_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-6, "{answer}");
        assert_eq!(answer["points"][7]["beyond"]["threads"], (128.0 / f64::from(most)).max(1.0));
    }
}

#[test]
fn probes_of_this_machine_answer_questions_about_it() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("work")).unwrap();
    let probes = home.run(&[
        "predict",
        "--calibrate",
        "--brief",
        "--exchange",
        "--dir",
        home.path("work").to_str().unwrap(),
    ]);
    if probes.code == Some(3) {
        println!("skipped: {}", probes.err);
        return;
    }
    let saved = home.store().join("predict/calibration.json");
    probes.well();
    assert_eq!(std::fs::read_dir(home.path("work")).unwrap().count(), 0);
    for what in ["walk", "files", "copy"] {
        let args = ["predict", what, "--device", "measured", "--files", "16k", "--json"];
        let answer = home.run(&args).well().json();
        assert_eq!(answer["calibration"]["measured"]["files"], 800);
        let beyond = answer["points"][0]["beyond"]["files"].as_f64().unwrap();
        // Files of 64 KiB are copied by default; the nearest probed ones have 128 KiB.
        let known = match what {
            "walk" => "walk_files",
            "files" => "cold_files",
            _ => "medium_files",
        };
        let known = answer["calibration"]["measured"][known].as_f64().unwrap();
        assert!((beyond * known / 16_000.0 - 1.0).abs() < 1e-9, "{what}: {beyond} {known}");
        let text = home.run(&args[..6]).well().out;
        assert!(text.contains("files ×"), "{text}");
    }
    a_probed_server_answers_questions(&home);
    home.run(&["predict", "exchange", "--measured", "--cores", "4"]).one_error(2, &["cores"]);
    let good = std::fs::read_to_string(&saved).unwrap();
    damaged_calibrations_are_refused(&home, &saved, &good);
    std::fs::write(&saved, &good).unwrap();
    recalibrations_keep_the_server_of_the_directory(&home, &saved, &good);
}

fn damaged_calibrations_are_refused(home: &Home, saved: &Path, good: &str) {
    let mut value: Value = serde_json::from_str(good).unwrap();
    let fingerprint = value["machine"].as_str().unwrap().to_owned();
    let program = format!("\"program\": {}", value["program"]);
    let mut time = |changed: Value| {
        value["measured"]["cold_s"][0][1] = changed;
        value.to_string()
    };
    let damaged = [
        (1, time((-1.0).into())),
        (1, time(0.into())),
        (1, time(Value::Null)),
        (1, time("fast".into())),
        (1, good[..good.len() / 2].to_owned()),
        (1, String::new()),
        (1, good.replace("\"schema\": 4", "\"schema\": 3")),
        (1, good.replace("\"cores\":", "\"cores_x\":")),
        (1, " ".repeat(2 << 20)),
        (1, time(1e300.into())),
        (3, good.replace(&fingerprint, "000000000000")),
        (3, good.replace(&program, "\"program\": \"0.0.1\"")),
    ];
    for (code, text) in damaged {
        std::fs::write(saved, &text).unwrap();
        let args = ["predict", "files", "--device", "measured", "--files", "10"];
        home.run(&args).one_error(code, &["calibration.json", "--calibrate"]);
    }
    std::fs::remove_file(saved).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(saved).status().unwrap().success());
    home.run(&["predict", "walk", "--device", "measured"]).one_error(1, &["it is a named pipe"]);
    std::fs::remove_file(saved).unwrap();
    std::fs::write(saved, [0xff, 0xfe, 0]).unwrap();
    home.run(&["predict", "walk", "--device", "measured"]).one_error(1, &["UTF-8"]);
}

fn recalibrations_keep_the_server_of_the_directory(home: &Home, saved: &Path, good: &str) {
    let calibrate = |name: &str| {
        let dir = home.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        let args = ["predict", "--calibrate", "--brief", "--json", "--dir", dir.to_str().unwrap()];
        home.run(&args).well()
    };
    let earlier: Value = serde_json::from_str(good).unwrap();
    let again = calibrate("work");
    assert_eq!(again.json()["measured"]["exchange"], earlier["measured"]["exchange"]);
    let condition = format!("the server as probed at {}", earlier["at"].as_str().unwrap());
    let conditions = again.json()["conditions"].clone();
    assert!(conditions.as_array().unwrap().contains(&condition.into()), "{conditions}");
    assert!(!again.err.contains("dropped"), "{}", again.err);
    let elsewhere = calibrate("elsewhere");
    assert!(elsewhere.json()["measured"]["exchange"].is_null(), "{}", elsewhere.out);
    assert_eq!(elsewhere.err.matches("dropped the earlier probes").count(), 1, "{}", elsewhere.err);
    std::fs::write(saved, good.replace("\"schema\": 4", "\"schema\": 3")).unwrap();
    let unusable = calibrate("work");
    assert_eq!(unusable.err.matches("dropped the earlier probes").count(), 1, "{}", unusable.err);
}

#[test]
fn the_same_question_gives_the_same_bytes_everywhere() {
    let home = Home::new();
    let ask = ["predict", "files", "--device", "usb", "--files", "3k", "--threads", "8"];
    for question in [&ask[..], &["predict", "walk", "--device", "hdd", "--json"]] {
        let one = home.run(question).well().out;
        for (name, value) in [("LC_ALL", "de_DE.UTF-8"), ("LC_ALL", "C"), ("TZ", "Asia/Tokyo")] {
            let out = home.command(question).env(name, value).output().unwrap();
            assert!(out.status.success());
            assert_eq!(String::from_utf8(out.stdout).unwrap(), one, "{name}={value}");
        }
    }
    let other = home.run(&[&ask[..], &["--random", "2"]].concat()).well().out;
    assert_ne!(other, home.run(&ask).well().out);
}

/// Without work for them, more cores cost nothing and change nothing.
#[test]
fn cores_without_work_change_no_prediction() {
    let home = Home::new();
    let ask = |cores| {
        let args = ["predict", "files", "--device", "sata", "--files", "20k", "--threads", "1"];
        let answer = home.run(&[&args[..], &["--json", "--cores", cores]].concat()).well().json();
        answer["points"][0]["elapsed_s"].clone()
    };
    assert_eq!(ask("16"), ask("4096"));
}

#[test]
fn a_thousand_cores_and_a_million_clients_are_answered() {
    let home = Home::new();
    let last = |args: &[&str]| {
        let answer = home.run(&[args, &["--json"]].concat()).well().json();
        answer["points"].as_array().unwrap().last().unwrap().clone()
    };
    let args = ["predict", "exchange", "--clients", "1M", "--cores", "1000", "--think", "0s"];
    let clients = last(&args);
    // 5.89 µs per request on each core.
    let rate = clients["rate_per_s"].as_f64().unwrap();
    assert!((rate / (1000.0 / 5.89e-6) - 1.0).abs() < 0.02, "{clients}");
    assert_eq!(clients["limit"], "compute");
    assert_eq!(clients["beyond"]["threads"], 15_625.0);
    let walk = last(&["predict", "walk", "--cores", "1000", "--files", "1G"]);
    assert!(walk["low_s"].as_f64() < walk["elapsed_s"].as_f64(), "{walk}");
    assert!(walk["beyond"]["files"].as_f64().unwrap() > 300.0, "{walk}");
}

/// Collects all names of fields.
fn names(value: &Value, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                all.insert(name.clone());
                names(value, all);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, all)),
        _ => {}
    }
}

#[test]
fn the_documents_have_the_documented_fields() {
    let home = Home::new();
    let mut printed = BTreeSet::new();
    for args in [
        &["predict", "walk", "--threads", "2", "--json"][..],
        &["predict", "files", "--files", "100", "--threads", "2", "--json"],
        &["predict", "copy", "--threads", "2", "--json"],
        &["predict", "exchange", "--clients", "2", "--json"],
        &["predict", "--verify", "--json"],
    ] {
        names(&home.run(args).well().json(), &mut printed);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/json.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("## Predictions: `predict`").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for name in &printed {
        assert!(section.contains(&format!("`{name}`")), "'{name}' is not documented");
    }
    // Fields of calibrations, simulations and stored runs are not in these documents.
    for name in ["points", "enough", "elapsed_s", "beyond", "rows", "predicted", "goal"] {
        assert!(printed.contains(name), "'{name}' is documented and not printed");
    }
}

/// A signal removes the files, and the next calibration those of a killed one.
#[test]
fn an_interrupted_calibration_leaves_nothing() {
    let home = Home::new();
    let work = home.path("work");
    std::fs::create_dir_all(&work).unwrap();
    let words = ["predict", "--calibrate", "--dir", work.to_str().unwrap()];
    let left = || std::fs::read_dir(&work).unwrap().count();
    let signalled = |signal: &str| {
        let mut command = home.command(&words);
        let pipe = std::process::Stdio::piped;
        let child = command.stdout(pipe()).stderr(pipe()).spawn().unwrap();
        for _ in 0..6_000 {
            let scratch = work.join(format!("ioloom-predict-files-{}", child.id()));
            if scratch.join("created-by-ioloom-predict").exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let kill =
            std::process::Command::new("kill").arg(signal).arg(child.id().to_string()).status();
        assert!(kill.unwrap().success());
        Ran::from(child.wait_with_output().unwrap())
    };
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        signalled(signal).one_error(code, &["interrupted", "removed"]);
        assert_eq!(left(), 0, "{signal}");
    }
    assert_eq!(signalled("-KILL").code, None);
    assert_eq!(left(), 1);
    signalled("-INT").one_error(130, &["interrupted"]);
    assert_eq!(left(), 0, "the files of the killed calibration are removed");
}

#[test]
fn another_number_of_cores_than_that_of_the_probes_is_refused() {
    let home = Home::new();
    // The default directory does not exist yet.
    assert!(!home.path("cache").exists());
    let probes = home.run(&["predict", "--calibrate", "--brief"]);
    if probes.code == Some(3) {
        println!("skipped: {}", probes.err);
        return;
    }
    probes.well();
    for what in ["walk", "files", "copy"] {
        let args = ["predict", what, "--device", "measured", "--files", "1k"];
        let own = home.run(&args).well().out;
        let cores = home.run(&[&args[..], &["--json"]].concat()).well().json();
        let cores = cores["calibration"]["measured"]["cores"].as_u64().unwrap();
        let named = home.run(&[&args[..], &["--cores", &cores.to_string()]].concat()).well().out;
        assert_eq!(own, named, "{what}");
        let other = (cores + 1).to_string();
        home.run(&[&args[..], &["--cores", &other]].concat()).one_error(2, &["cores"]);
    }
}
