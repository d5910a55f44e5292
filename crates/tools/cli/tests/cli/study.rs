//! A study, its report, a comparison, claims, results and the machine.

use crate::home::{Home, TINY};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

#[test]
fn a_study_ends_with_its_report_and_everything_can_be_shown_again() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let study = ["study", "tiny", "--studies", &studies];
    let ran = home.run(&study).well();
    let last = ran.out.lines().last().unwrap();
    let path = last.split_whitespace().last().unwrap();
    let page = std::fs::read_to_string(path.replacen('~', home.path("").to_str().unwrap(), 1));
    let page = page.unwrap_or_else(|e| panic!("{last}: {e}"));
    assert!(page.contains("Which of two plans is faster") && page.contains("</html>"));
    assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{}", ran.out);
    let words = ["Needs", "Space", "metadata", "session tiny-"];
    assert!(words.iter().all(|w| ran.err.contains(w)), "{}", ran.err);
    let records = home.records();
    // Two arms, and the first one repeated, three times each.
    assert_eq!(records.len(), 9);
    let digests: BTreeSet<_> =
        records.iter().map(|r| r["outcome"]["measured"]["digest"].as_str().unwrap()).collect();
    assert_eq!(digests.len(), 1, "all runs read the same bytes");

    shown_again(&home, &studies);
    // As a run leaves it that is killed.
    let sets = std::fs::read_dir(home.path("cache/ioloom/sets")).unwrap();
    let mut sets = sets.map(|entry| entry.unwrap().path());
    let scratch = sets.find(|path| path.is_dir()).unwrap().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    std::fs::write(scratch.join("copy"), "x").unwrap();
    let mut again = study.to_vec();
    again.extend(["--json", "--random", "5", "--blocks", "2", "--report", "mine.html"]);
    let json = home.run(&again).well().json();
    assert_eq!(json["schema"], 1);
    let study = &json["studies"][0];
    assert_eq!((&study["runs"], &study["interrupted"]), (&6.into(), &false.into()));
    assert!(study["verdicts"].is_array() && study["doubts"].is_array());
    assert!(home.path("mine.html").is_file());
    assert!(!scratch.exists(), "its space is free again");
    two_sessions(&home, &studies);
}

#[test]
fn a_study_of_a_file_is_reported_with_its_own_questions_and_metric() {
    let home = Home::new();
    let text = TINY.replace("name = \"tiny\"", "name = \"mine\"").replace(
        "question = \"One thread or two?\"",
        "question = \"Mine?\"\nmetric = \"files_per_s\"",
    );
    std::fs::write(home.path("mine.toml"), text).unwrap();
    let report = home.path("mine.html");
    let report = report.to_str().unwrap();
    home.run(&["study", "./mine.toml", "--report", report]).well();
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.contains("Mine?") && page.contains("files per second"), "texts of the study file");
    assert!(!page.contains("was not found"), "the study file was just read");
    // The session contains the study, so the report can be recreated without the file.
    std::fs::remove_file(home.path("mine.toml")).unwrap();
    let again = home.run(&["report", "-o", "-"]).well().out;
    assert!(
        again.contains("Mine?") && again.contains("files per second"),
        "texts of the study file"
    );
    home.run(&["results", "keep", "latest"]).well();
    let kept = home.run(&["report", "-o", "-", "--store", "results"]).well().out;
    assert!(kept.contains("Mine?"), "the export contains the study");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_before_the_first_run() {
    let home = Home::new();
    let studies = home.studies(TINY);
    std::fs::write(home.path("file"), "").unwrap();
    for flag in ["--report", "--export"] {
        let study = ["study", "tiny", "--studies", &studies, flag, "file/x"];
        home.run(&study).one_error(1, &["cannot", "file"]);
        let study = ["study", "tiny", "--studies", &studies, flag, "-"];
        home.run(&study).one_error(2, &[flag, "does not write to standard output"]);
    }
    for same in ["file", "new.html"] {
        let other = format!("./{same}");
        let study = ["study", "tiny", "--studies", &studies, "--report", same, "--export", &other];
        home.run(&study).one_error(2, &["--report and --export name the same file"]);
        assert!(!home.path("new.html").exists());
    }
    assert_eq!(std::fs::read_dir(home.store().join("sessions")).unwrap().count(), 0);
}

#[test]
fn latest_is_every_session_of_a_command() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let second = TINY.replace("name = \"tiny\"", "name = \"second\"");
    std::fs::write(std::path::Path::new(&studies).join("second.toml"), second).unwrap();
    let study = ["study", "tiny", "second", "--studies", &studies, "--blocks", "1"];
    home.run(&study).well();
    let shown = home.run(&["results", "show", "latest"]).well().out;
    assert!(shown.starts_with("tiny-") && shown.contains("second-"), "{shown}");
    let kept = home.run(&["results", "keep", "latest"]).well().out;
    let has = |name: &str| kept.lines().any(|line| line.contains(name));
    assert!(has("tiny-") && has("second-"), "{kept}");
    let picture = |wanted: &str| home.run(&["report", "--studies", &studies, "--picture", wanted]);
    picture("two").one_error(2, &["several studies", "second/two or tiny/two"]);
    assert!(picture("second/two").well().out.contains("<svg"));
    picture("nothing").one_error(2, &["no runs of experiment 'nothing'"]);
    picture("second/two:nowhere").one_error(2, &["no chart of 'second/two:nowhere'"]);
}

#[test]
fn latest_does_not_need_the_first_session_of_a_command() {
    let home = Home::new();
    let studies = home.studies(TINY);
    for name in ["earlier", "second"] {
        let text = TINY.replace("name = \"tiny\"", &format!("name = \"{name}\""));
        std::fs::write(std::path::Path::new(&studies).join(format!("{name}.toml")), text).unwrap();
    }
    let options = ["--studies", &studies, "--blocks", "1"];
    home.run(&[&["study", "earlier"][..], &options].concat()).well();
    home.run(&[&["study", "tiny", "second"][..], &options].concat()).well();
    for entry in std::fs::read_dir(home.store().join("sessions")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("tiny-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    for (word, name) in [("latest", "second-"), ("latest-1", "earlier-")] {
        let shown = home.run(&["results", "show", word]).well().out;
        assert!(shown.starts_with(name), "{word}: {shown}");
    }
    home.run(&["results", "show", "latest-2"]).one_error(1, &["only 2 commands"]);
}

#[test]
fn a_missing_ledger_is_reported_with_its_flag() {
    let home = Home::new();
    let studies = home.studies(TINY);
    std::fs::create_dir(home.path("mine")).unwrap();
    let claim = "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\n\
                 confirms = \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"untested\"\n\
                 needs = \"a test\"\n";
    std::fs::write(home.path("mine/own.toml"), claim).unwrap();
    home.run(&["study", "tiny", "--studies", &studies, "--claims", "mine"]).well();
    for command in ["report", "claims"] {
        let ran = home.run(&[command]).well();
        assert!(ran.err.contains("repeat --claims mine"), "{command}: {}", ran.err);
        let ran = home.run(&[command, "--claims", "mine"]).well();
        assert!(!ran.err.contains("again"), "{command}: {}", ran.err);
    }
}

fn shown_again(home: &Home, studies: &str) {
    std::fs::remove_dir_all(home.store().join("reports")).unwrap();
    home.run(&["report", "--studies", studies]).well();
    assert_eq!(std::fs::read_dir(home.store().join("reports")).unwrap().count(), 1);
    let page = home.run(&["report", "latest", "--studies", studies, "-o", "-"]).well().out;
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
    let svg = home.run(&["report", "--studies", studies, "--picture", "two"]).well().out;
    assert!(svg.contains("<svg"), "{svg}");
    home.run(&["report", "--studies", studies, "--picture", "two:nowhere"])
        .one_error(2, &["no chart of 'two:nowhere'"]);
    // The session contains its study. For older sessions without it the comparisons are shown.
    let page = home.run(&["report", "-o", "-"]).well().out;
    assert!(page.contains("Which of two plans is faster") && !page.contains("--studies DIR"));
    without_its_study(home);
    let page = home.run(&["report", "-o", "-"]).well().out;
    assert!(page.contains("Study tiny") && page.contains("threads-2"));
    assert!(page.contains("use --studies DIR"));
}

/// Raw data of a comparison is skipped without a message; a damaged session is not.
fn exports_next_to_other_lines(home: &Home) {
    let raw = home.path("results/other");
    std::fs::create_dir_all(&raw).unwrap();
    std::fs::write(raw.join("raw.jsonl"), "{\"record\":\"setup\"}\n").unwrap();
    let ran = home.run(&["claims", "000-P01"]).well();
    assert!(!ran.err.contains("skipped"), "{}", ran.err);
    std::fs::write(raw.join("raw.jsonl"), "{\"session\":7}\n").unwrap();
    let ran = home.run(&["claims", "000-P01"]).well();
    assert!(ran.err.contains("skipped: 'results/other/raw.jsonl'"), "{}", ran.err);
    std::fs::remove_dir_all(&raw).unwrap();
    // The other sessions of the store remain usable.
    let damaged = home.store().join("sessions/damaged.jsonl");
    std::fs::write(&damaged, "{\"session\":7}\n").unwrap();
    let ran = home.run(&["claims", "000-P01"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.out.contains("000-P01") && ran.err.contains("damaged.jsonl"), "{}", ran.err);
    std::fs::remove_file(&damaged).unwrap();
    // A session that has the name of another one is skipped with a message only.
    let sessions = home.store().join("sessions");
    let path = std::fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(path).unwrap();
    let later = text.replacen("\"started_unix_ms\":1", "\"started_unix_ms\":2", 1);
    assert_ne!(later, text);
    let other = sessions.join("other.jsonl");
    std::fs::write(&other, later).unwrap();
    let ran = home.run(&["claims", "000-P01"]).well();
    assert!(ran.err.contains("contains another session of the same name as"), "{}", ran.err);
    std::fs::remove_file(&other).unwrap();
}

/// Removes the study from the only session, as in sessions of older versions.
fn without_its_study(home: &Home) {
    let mut entries = std::fs::read_dir(home.store().join("sessions")).unwrap();
    let path = entries.next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut header: serde_json::Value = serde_json::from_str(first).unwrap();
    assert!(header["session"].as_object_mut().unwrap().remove("spec").is_some());
    std::fs::write(&path, format!("{header}\n{rest}")).unwrap();
}

fn two_sessions(home: &Home, studies: &str) {
    let args = ["compare", "latest-1", "latest", "--studies", studies];
    let text = home.run(&[&args[..], &["--html", "diff.html"]].concat()).well().out;
    assert!(text.contains("threads-1") && text.contains("seed"), "{text}");
    let page = std::fs::read_to_string(home.path("diff.html")).unwrap();
    assert!(page.contains("</html>"));
    let json = home.run(&[&args[..], &["--json"]].concat()).well().json();
    assert_eq!(json["schema"], 1);
    let arm = &json["arms"][0];
    for field in ["experiment", "set", "arm", "ratio", "lo", "hi", "confidence", "n", "change"] {
        assert!(arm.get(field).is_some(), "{field}: {arm}");
    }
    let list = home.run(&["results", "list", "--json"]).well().json();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(list["sessions"][0]["runs_done"], 6);
    home.run(&["results", "show", "latest"]).well();
    let kept = home.run(&["results", "keep", "latest", "latest-1"]).well().out;
    assert_eq!(kept.lines().count(), 2);
    for file in std::fs::read_dir(home.path("results")).unwrap() {
        assert!(file.unwrap().metadata().unwrap().len() <= 1 << 20);
    }
    home.run(&["results", "index"]).well();
    // One that cannot be written is not reported as written.
    let index = home.store().join("index.sqlite");
    std::fs::remove_file(&index).unwrap();
    std::os::unix::fs::symlink(home.path("missing/index.sqlite"), &index).unwrap();
    home.run(&["results", "index"]).one_error(1, &["cannot write to", "index.sqlite"]);
    std::fs::remove_file(&index).unwrap();
    exports_next_to_other_lines(home);
    let ran = home.run(&["report", "-o", "-", "--store", "results"]).well();
    // Exports have no traces, which is reported once for each session.
    assert!(!ran.err.contains("cannot read"), "{}", ran.err);
    let cleaned = home.run(&["clean"]).well().out;
    assert!(cleaned.contains("40 files"), "{cleaned}");
    assert!(!home.path("cache/ioloom/sets").exists());
    assert!(home.store().join("sessions").is_dir(), "results stay");
}

#[test]
fn a_user_directory_is_studied_and_only_read() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let dir = home.path("mine");
    std::fs::create_dir(&dir).unwrap();
    for i in 0..30 {
        std::fs::write(dir.join(format!("f{i}")), vec![7; 1000 * i]).unwrap();
    }
    home.run(&["study", "tiny", "--studies", &studies, "--files", "mine"]).well();
    assert_eq!(home.records().len(), 9);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 30);
    assert!(!home.path("cache/ioloom/sets").exists(), "no file set was created");
}

#[test]
fn an_unprivileged_user_gets_an_answer_and_the_note_on_metadata() {
    let Some(home) = Home::of_nobody() else {
        println!("skipped: only root can become another user");
        return;
    };
    let studies = home.studies(TINY);
    let ran = home.run(&["study", "tiny", "--studies", &studies]).well();
    assert!(ran.err.contains("(metadata) stay warm"), "{}", ran.err);
    let records = home.records();
    assert_eq!(records.len(), 9);
    assert!(records.iter().all(|r| r["proof"]["metadata"] == "warm"));
    let refused = home.run(&["study", "tiny", "--studies", &studies, "--drop-caches"]);
    refused.one_error(3, &["--drop-caches", "root"]);
}

#[test]
fn claims_have_the_documented_fields_and_one_is_shown_in_full() {
    let home = Home::new();
    let json = home.run(&["claims", "--seed", "0", "--json"]).well().json();
    assert_eq!(json["schema"], 2);
    assert!(json["score"]["repeated"].is_number() && json["score"]["false_expected"] == 0.0);
    let claims = json["claims"].as_array().unwrap();
    assert!(claims.len() >= 60, "{}", claims.len());
    for claim in claims {
        for field in ["id", "seed", "statement", "published", "scope", "verdict", "evidence"] {
            assert!(claim.get(field).is_some(), "{field}: {claim}");
        }
        assert_eq!(claim["seed"], 0);
    }
    let table = home.run(&["claims"]).well().out;
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let one = home.run(&["claims", "000-p01"]).well().out;
    assert!(one.contains("000-P01") && one.contains("Confound") && one.contains("Published"));
    home.run(&["claims", "000-P99"]).one_error(2, &["000-P99"]);
    home.run(&["claims", "--source", "77"]).one_error(2, &["77"]);
    home.run(&["claims", "000-P30", "--check"]).well();
    assert!(!home.store().exists());
    // A claim that this version cannot test was named and cannot be verified: exit code 3 and the reason.
    let ran = home.run(&["claims", "000-P30", "--verify"]);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    let left_out = ran.err;
    assert!(left_out.contains("not testable by this version") && left_out.contains("000-P30"));
    assert!(home.lines().is_empty(), "{left_out}");
    home.run(&["claims", "--verify"]).one_error(2, &["--open"]);
}

#[test]
fn the_machine_is_one_document_and_a_text() {
    let home = Home::new();
    let json = home.run(&["machine", "--json"]).well().json();
    assert_eq!(json["schema"], 1);
    assert!(json["cpus_usable"].as_u64().unwrap() >= 1);
    let features = json["features"].as_array().unwrap();
    let names: Vec<_> = features.iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["io_uring", "cachestat", "RWF_NOWAIT", "O_DIRECT"]);
    let text = home.run(&["machine"]).well().out;
    assert!(text.contains(json["fingerprint"].as_str().unwrap()), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(std::fs::read_dir(home.path("")).unwrap().count(), 0, "all files were removed");
}

#[test]
fn the_levels_of_memory_are_one_document_a_text_and_pictures() {
    let home = Home::new();
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    std::fs::File::open(home.path("")).unwrap().set_modified(time).unwrap();
    home.run(&["memory", "--last"]).one_error(1, &["ioloom memory"]);
    for (early, code) in [(&["--last"][..], 1), (&["--cpu", "60000"][..], 2)] {
        let ran = home.run(&[&["memory", "--svg", "new/x.svg"][..], early].concat());
        assert_eq!(ran.code, Some(code), "{}", ran.err);
    }
    let modified = std::fs::metadata(home.path("")).unwrap().modified().unwrap();
    assert_eq!(modified, time, "no file was created");
    home.run(&["memory", "--cpu", "60000"]).one_error(2, &["invalid value '60000' for --cpu"]);
    home.run(&["memory", "--max", "1k"]).one_error(2, &["--max"]);
    // Before the measurement.
    let ran = home.run(&["memory", "--quick", "--max", "1MiB", "--svg", "."]);
    assert!(ran.code == Some(1) && !ran.err.contains("measuring"), "{}", ran.err);
    // A small set keeps debug builds fast; level boundaries are not tested here.
    let quick = ["memory", "--quick", "--max", "1MiB", "--json"];
    let unsaved = home.run(&[&quick[..], &["--store", "/dev/null"]].concat());
    assert!(unsaved.code == Some(1) && unsaved.err.contains("/dev/null"), "{}", unsaved.err);
    assert_eq!(unsaved.json()["command"], "memory");
    let json = home.run(&quick).well().json();
    assert_eq!((json["schema"].as_u64(), json["command"].as_str()), (Some(1), Some("memory")));
    for level in json["levels"].as_array().unwrap() {
        assert!(level["latency_ns"].as_f64().unwrap() > 0.0, "{level}");
        for field in ["bracket_bytes", "advertised_bytes", "verdict"] {
            assert!(level.get(field).is_some(), "{field} in {level}");
        }
    }
    let checks = json["checks"].as_array().unwrap();
    let ids: Vec<_> = checks.iter().map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), ids[0], ids[15]), (16, "H1", "H16"));
    let (page, picture, drawing) = (home.path("m.html"), home.path("m.svg"), home.path("d.svg"));
    let text = home
        .run(&[
            "memory",
            "--last",
            "--html",
            page.to_str().unwrap(),
            "--svg",
            picture.to_str().unwrap(),
        ])
        .well()
        .out;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("Plausibility checks"));
    home.run(&["machine", "--svg", drawing.to_str().unwrap()]).well();
    for file in [&page, &picture, &drawing] {
        assert!(std::fs::read_to_string(file).unwrap().contains("<svg"), "{}", file.display());
    }
}

/// Two servers in separate processes, with and without sleeping clients.
const SERVED: &str = r#"
name = "tiny"
title = "A small exchange"
question = "How many resources does a server use?"
subject = "exchange"
quick_budget_s = 600
[[experiment]]
name = "served"
question = "How many resources does a server use?"
conditions = ["as-is"]
blocks_quick = 1
arm = [
  { name = "cell", plan = "exchange:cell/model=pool,workers=2,clients=3,orders=2,sleep=5ms", headline = true },
  { name = "null", plan = "exchange:cell/model=null,clients=3,orders=2,sleep=5ms", headline = true },
  { name = "closed", plan = "exchange:closed/model=epoll,connections=3,lasts=1s,idle=2,durability=group", headline = true },
  { name = "kill", plan = "exchange:restart/model=epoll,dialect=line,end=kill,durability=group,orders=3", headline = true },
  { name = "forgets", plan = "exchange:restart/model=epoll,dialect=line,end=kill,orders=3", headline = true },
  { name = "leave", plan = "exchange:restart/model=epoll,dialect=line,end=leave,orders=3", headline = true },
]
"#;

#[test]
fn studied_servers_are_processes_whose_resource_use_is_recorded() {
    let home = Home::new();
    let studies = home.studies(SERVED);
    home.run(&["study", "tiny", "--studies", &studies]).well();
    let records = home.records();
    let number = |arm: &str, name: &str| {
        let record = records.iter().find(|r| r["key"]["arm"] == arm);
        let record = record.unwrap_or_else(|| panic!("no run of {arm}"));
        let value = &record["outcome"]["measured"]["extra"][name];
        value.as_f64().unwrap_or_else(|| panic!("{arm}: no {name} in {}", record["outcome"]))
    };
    assert_eq!((number("cell", "requests"), number("cell", "rounds")), (6.0, 2.0));
    assert_eq!(number("cell", "stocks_that_differ"), 0.0);
    for arm in ["cell", "closed"] {
        for name in ["server_cpu_ns", "server_memory_bytes", "server_switches_per_request"] {
            assert!(number(arm, name) > 0.0, "{arm}: {name}");
        }
    }
    assert_eq!(number("null", "law_ns"), 1e7);
    assert!(number("closed", "commits") > 0.0);
    let killed = records.iter().find(|r| r["key"]["arm"] == "kill").unwrap();
    let switches = killed["outcome"]["measured"]["extra"].get("server_switches_per_request");
    assert_eq!(switches, None, "the server that was started again answered no order");
    assert_eq!((number("kill", "kept_orders"), number("kill", "lost_orders")), (3.0, 0.0));
    assert_eq!(number("forgets", "lost_orders"), 3.0);
    assert_eq!((number("leave", "kept_orders"), number("leave", "stock_file_written")), (3.0, 1.0));
}

/// The time between an interrupted command and the one that resumes it is not part of the duration.
#[test]
fn an_unfinished_session_says_so_and_a_pause_does_not_count() {
    const PAUSE_MS: u64 = 3_600_000;
    let home = Home::new();
    let studies = home.studies(TINY);
    home.run(&["study", "tiny", "--studies", &studies]).well();
    let file = std::fs::read_dir(home.store().join("sessions")).unwrap().next().unwrap();
    let file = file.unwrap().path();
    let whole = std::fs::read_to_string(&file).unwrap();
    let (mut before, mut after, mut runs) = (Vec::new(), Vec::new(), 0);
    for line in whole.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        runs += usize::from(line["run"].is_object());
        for (kind, time) in [("run", "started_unix_ms"), ("end", "ended_unix_ms")] {
            if let Some(at) = line[kind][time].as_u64().filter(|_| runs > 4) {
                line[kind][time] = json!(at + PAUSE_MS);
                if after.is_empty() {
                    let note = json!({"text": "resumed", "unix_ms": at + PAUSE_MS});
                    after.push(format!("{}\n", json!({"note": note})));
                }
            }
        }
        let part = if runs > 4 { &mut after } else { &mut before };
        part.push(format!("{line}\n"));
    }
    std::fs::write(&file, before.concat()).unwrap();
    let report =
        |format: &str| home.run(&["report", "--studies", &studies, "--format", format]).well().out;
    let data: Value = serde_json::from_str(&report("json")).unwrap();
    let study = &data["studies"][0];
    assert_eq!((&study["ended"], &study["runs_planned"]), (&json!(false), &json!(9)));
    let text = report("md");
    assert!(text.contains("is not finished: 4 of 9 runs"), "{text}");
    std::fs::write(&file, before.concat() + &after.concat()).unwrap();
    let data: Value = serde_json::from_str(&report("json")).unwrap();
    let study = &data["studies"][0];
    assert_eq!(study["ended"], true);
    let took_s = study["duration_s"].as_f64().unwrap();
    assert!(took_s > 0.0 && took_s < PAUSE_MS as f64 / 2e3, "{took_s}");
}

/// Studies that begin on two machines in the same second have one batch, but are not one command.
#[test]
fn a_report_has_studies_of_one_machine() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let first = TINY.replace("name = \"tiny\"", "name = \"before\"");
    std::fs::write(home.path("studies/before.toml"), first).unwrap();
    home.run(&["study", "--studies", &studies]).well();
    let reported = |word: &str| -> Vec<String> {
        let document = home.run(&["report", word, "--format", "json"]).well().json();
        let all = document["studies"].as_array().unwrap().iter();
        all.map(|study| study["study"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(reported("latest"), ["before", "tiny"]);
    let entries = std::fs::read_dir(home.store().join("sessions")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_tiny = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("tiny");
    let path = paths.find(is_tiny).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let header: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let machine = header["session"]["machine"]["fingerprint"].as_str().unwrap();
    std::fs::write(&path, text.replace(machine, "another")).unwrap();
    assert_eq!(reported("latest"), ["tiny"]);
    assert_eq!(reported("latest-1"), ["before"]);
}
