//! Verification of claims: only the needed arms run, until the claims are decided.

use crate::home::{Home, TINY};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Returns a claim about the numbers of files that two arms process, which do not depend on time.
fn claim(id: &str, statement: &str, arms: [&str; 2], relation: &str) -> String {
    let [a, b] = arms;
    format!(
        r#"
[[claim]]
id = "{id}"
seed = 0
statement = "{statement}"
scope = "s"
confirms = "c"
refutes = "r"
[[claim.contrast]]
kind = "ratio"
at = {{ study = "tiny", experiment = "two", set = "T" }}
a = "{a}"
b = "{b}"
metric = "files"
claim = "{relation}"
"#
    )
}

/// One claim that holds exactly, one that fails exactly, and one that needs a missing arm.
fn three_claims() -> String {
    let [one, two, three] = ["threads-1", "threads-2", "threads-3"];
    [
        claim("000-V1", "Two threads process as many files as one.", [one, two], "equal"),
        claim("000-V2", "Two threads process fewer files than one.", [two, one], "less"),
        claim("000-V3", "Three threads process as many files as one.", [three, one], "equal"),
    ]
    .concat()
}

fn arguments(home: &Home, more: &[&str]) -> Vec<String> {
    arguments_for(home, &three_claims(), more)
}

fn arguments_for(home: &Home, text_of_claims: &str, more: &[&str]) -> Vec<String> {
    let text = TINY.replace("n = [1, 2] }", "n = [1, 2, 4] }");
    let studies = home.studies(&text);
    let claims = home.path("claims");
    std::fs::create_dir_all(&claims).unwrap();
    std::fs::write(claims.join("v.toml"), text_of_claims).unwrap();
    let claims = claims.to_str().unwrap().to_owned();
    let fixed = ["claims", "--verify", "--studies", &studies, "--claims", &claims];
    fixed.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

fn verdict<'v>(json: &'v Value, id: &str) -> &'v str {
    let claims = json["claims"].as_array().unwrap();
    let claim = claims.iter().find(|c| c["id"] == id).unwrap();
    claim["verdict"].as_str().unwrap()
}

/// Returns the number of blocks of a session, which ends at a look. On a busy machine, claims can need
/// more than the first.
fn blocks(home: &Home) -> usize {
    let records = home.records();
    let blocks = records.iter().map(|r| r["key"]["block"].as_u64().unwrap() as usize + 1).max();
    let blocks = blocks.unwrap_or(0);
    assert!([12, 18, 24, 30].contains(&blocks), "{blocks} blocks");
    blocks
}

/// Reports whether other programs disturbed no run. Disturbed runs decide nothing.
fn quiet(home: &Home) -> bool {
    let doubt = |r: &Value| r["doubts"].as_array().unwrap().contains(&"noisy-neighbour".into());
    let quiet = !home.records().iter().any(doubt);
    if !quiet {
        println!("skipped: verdicts, because other programs disturbed the runs");
    }
    quiet
}

#[test]
fn claims_are_decided_by_their_own_arms_alone() {
    let home = Home::new();
    let plan = home.run(&arguments(&home, &["--open", "--dry-run"])).well();
    assert!(plan.err.contains("2 claims, 2 arms (000-V1, 000-V2)"), "{}", plan.err);
    assert!(plan.err.contains("Left out, study tiny has no arm threads-3: 000-V3"), "{}", plan.err);
    assert!(plan.err.contains("Estimate: about"), "{}", plan.err);
    assert_eq!(plan.out, "");
    assert!(home.lines().is_empty());
    let ran = home.run(&arguments(&home, &["--open", "--json"])).well();
    let json = ran.json();
    if quiet(&home) {
        let words = "after 12 blocks: 2 claims decided, 0 given up, 0 open";
        assert!(ran.err.contains(words), "{}", ran.err);
        assert_eq!(verdict(&json, "000-V1"), "confirmed");
        assert_eq!(verdict(&json, "000-V2"), "refuted");
    }
    assert_eq!(verdict(&json, "000-V3"), "undecided");
    let all = blocks(&home);
    let records = home.records();
    let arms = |name: &str| records.iter().filter(|r| r["key"]["arm"] == name).count();
    assert_eq!([arms("threads-1"), arms("threads-2"), arms("threads-4")], [all, all, 0]);
    let end: Value = serde_json::from_str(home.lines().last().unwrap()).unwrap();
    assert_eq!(end["end"]["reason"], "decided");
    // Decided claims are not measured again.
    if quiet(&home) {
        let again = home.run(&arguments(&home, &["000-V1"])).well();
        assert!(again.err.contains("000-V1 is already decided: confirmed"), "{}", again.err);
        assert_eq!(home.records().len(), records.len());
    }
}

/// Kills a verification when its session has this many lines. Returns whether it was in time: a busy machine can
/// hold up the test until the verification has finished.
fn killed(home: &Home, args: &[String], least: usize) -> bool {
    let mut command = home.command(args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while home.lines().len() < least {
        assert!(since.elapsed() < Duration::from_secs(120), "no runs are made");
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The first look at the claims is after twelve blocks of three runs.
    home.lines().len() < 3 * 12
}

/// Returns a home with a verification that was killed at each of these numbers of lines, and its arguments.
fn killed_in_time(lines: &[usize]) -> (Home, Vec<String>) {
    let attempt = || {
        let home = Home::new();
        let args = arguments(&home, &["--open", "--json"]);
        lines.iter().all(|least| killed(&home, &args, *least)).then_some((home, args))
    };
    (0..10).find_map(|_| attempt()).expect("every verification ended before it was killed")
}

#[test]
fn a_named_claim_of_an_unfinished_session_is_not_verified() {
    let (home, _) = killed_in_time(&[5]);
    // No run fits.
    let ran = home.run(&arguments(&home, &["000-V1", "--budget", "1us"]));
    assert!(ran.err.contains("Continues an unfinished session"), "{}", ran.err);
    let text = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
    let left_out =
        "Left out, the time left is too short for one more block of their session: 000-V1";
    assert!(text.contains(left_out), "{}", ran.err);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
}

#[test]
fn a_killed_verification_continues_with_the_same_runs() {
    let (home, args) = killed_in_time(&[5, 12]);
    let before = home.lines();
    let shown = home.run(&["results", "show", "latest"]).well().out;
    assert!(shown.contains("continue with the same `ioloom claims --verify` command"), "{shown}");
    let list = home.run(&["results", "list"]).well().out;
    assert!(list.contains("no: use --verify"), "{list}");
    let ran = home.run(&args).well();
    assert!(ran.err.contains("Continues an unfinished session"), "{}", ran.err);
    assert_eq!(home.lines()[..before.len()], before);
    let positions: Vec<u64> =
        home.records().iter().map(|r| r["key"]["position"].as_u64().unwrap()).collect();
    let runs = 3 * blocks(&home) as u64;
    assert_eq!(positions, (0..runs).collect::<Vec<_>>(), "two arms and one repetition per block");
    assert!(!quiet(&home) || verdict(&ran.json(), "000-V1") == "confirmed");
}

/// A budget that is too short for the first look leaves claims out and says so.
#[test]
fn claims_that_do_not_fit_into_the_budget_are_named() {
    let home = Home::new();
    let ran = home.run(&arguments(&home, &["--open", "--budget", "1ms"])).well();
    assert!(ran.err.contains("do not fit into the budget: 000-V"), "{}", ran.err);
    assert!(home.lines().is_empty());
    let ran = home.run(&arguments(&home, &["000-V1", "--budget", "1us", "--dry-run"]));
    assert!(ran.err.contains("Nothing fits into the budget."), "{}", ran.err);
    assert!(!ran.err.contains("None of these claims"), "{}", ran.err);
}

/// The estimate without earlier runs is too high for such small sets. What it leaves of the budget goes to
/// the claim that did not seem to fit, unless other programs have used it.
#[test]
fn time_that_is_left_goes_to_further_claims() {
    let home = Home::new();
    let text = "Four threads process as many files as one.";
    let claims = three_claims() + &claim("000-V4", text, ["threads-4", "threads-1"], "equal");
    let estimate_s = |named: &[&str]| -> f64 {
        let args = [named, &["--dry-run"]].concat();
        let plan = home.run(&arguments_for(&home, &claims, &args)).well();
        let (_, after) = plan.err.split_once("Estimate: about ").expect("an estimate");
        let (duration, rest) = after.split_once(" for 12 blocks").expect("an estimate");
        assert!(rest.starts_with(','), "{rest}");
        let (number, unit) = duration.split_once(' ').expect("a number and a unit");
        let unit_s = match unit {
            "s" => 1.0,
            "ms" => 1e-3,
            _ => panic!("an estimate in {unit}"),
        };
        number.parse::<f64>().unwrap() * unit_s
    };
    // Just too short for both, and half as long again as one of them.
    let budget_s = estimate_s(&["000-V1", "000-V4"]) * 0.98;
    let named = ["000-V1", "000-V4", "--budget", &format!("{budget_s:.3}s")];
    let since = Instant::now();
    let ran = home.run(&arguments_for(&home, &claims, &named));
    let Some((before, later)) = ran.err.split_once("Time is left for more claims.") else {
        let taken_s = since.elapsed().as_secs_f64();
        let needed_s = taken_s + estimate_s(&["000-V4"]);
        assert!(needed_s > budget_s * 0.9, "{needed_s} of {budget_s} s: {}", ran.err);
        println!("skipped: {taken_s} s of {budget_s} s were used");
        return;
    };
    assert!(before.contains("do not fit into the budget: 000-V4"), "{before}");
    assert!(later.contains("1 claim, 2 arms (000-V4)"), "{later}");
}

#[test]
fn a_refused_study_leaves_the_others() {
    let home = Home::new();
    let claim_of = |id, study: &str| {
        let [one, two] = ["threads-1", "threads-2"];
        let text = claim(id, "Two threads process as many files as one.", [one, two], "equal");
        text.replace("study = \"tiny\"", &format!("study = \"{study}\""))
    };
    let claims = claim_of("000-V1", "tiny") + &claim_of("000-V2", "huge");
    let named = arguments_for(&home, &claims, &["000-V1", "000-V2"]);
    let open = arguments_for(&home, &claims, &["--open"]);
    let huge = TINY.replace("\"tiny\"", "\"huge\"").replace("count = 40", "count = 4");
    let huge = huge.replace("exp(mean=4KiB,min=1,max=64KiB)", "512TiB");
    std::fs::write(home.path("studies").join("huge.toml"), huge).unwrap();
    let ran = home.run(&named);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    let text = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Left out, not enough space"), "{}", ran.err);
    assert!(text.contains("`ioloom clean`: 000-V2."), "{}", ran.err);
    assert!(home.records().iter().all(|run| run["key"]["study"] == "tiny"));
    blocks(&home);
    let ran = home.run(&open);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
}

/// `--media` adds a file system in memory, which has no direct reads, so two directories must be given.
#[test]
fn a_claim_about_two_devices_needs_two_directories() {
    let home = Home::new();
    let ran = home.run(&["claims", "--verify", "000-P13", "--media", "--dry-run"]);
    assert_eq!(ran.code, Some(3), "a named claim cannot be verified");
    let text = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("`ioloom study pipeline --on DIR --on DIR`: 000-P13."), "{}", ran.err);
}

/// Other limits can permit what was refused, so the claim is not decided.
#[test]
fn a_claim_whose_arm_is_refused_is_verified_again() {
    let home = Home::new();
    let claims = claim("000-V1", "A window reads as many files.", ["threads-1", "deep"], "equal");
    let claims = claims.replace("\"tiny\"", "\"deep\"");
    let args = arguments_for(&home, &claims, &["000-V1"]);
    let deep = "[[experiment.arm]]\nname = \"deep\"\nplan = \"read/window:l=1000000\"\n";
    let study = TINY.replace("\"tiny\"", "\"deep\"") + deep;
    std::fs::write(home.path("studies").join("deep.toml"), study).unwrap();
    let ran = home.run(&args);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    assert!(ran.err.contains("0 claims decided, 1 given up, 0 open"), "{}", ran.err);
    let sessions = || std::fs::read_dir(home.store().join("sessions")).unwrap().count();
    assert_eq!(sessions(), 1);
    let again = home.run(&args);
    assert_eq!(again.code, Some(3), "{}", again.err);
    assert!(!again.err.contains("already decided"), "{}", again.err);
    assert_eq!(sessions(), 2, "{}", again.err);
}

/// Runs of an edited study never decide a built-in claim, so none are made for it.
#[test]
fn claims_are_left_out_if_their_study_is_edited() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let edited = include_str!("../../../../../studies/pipeline/study.toml");
    let edited = edited.replace(", seed = ", ", seed = 9");
    std::fs::write(home.path("studies").join("pipeline.toml"), edited).unwrap();
    let args = ["claims", "--verify", "000-P33", "--dry-run", "--studies", &studies];
    let ran = home.run(&args);
    let text = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Left out, study pipeline in '"), "{}", ran.err);
    assert!(text.contains("is not the built-in one: 000-P33."), "{}", ran.err);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
}

/// A session with a reduced file set does not decide at the published size, whether it ended or not.
#[test]
fn the_full_size_is_measured_after_a_reduced_one() {
    let home = Home::new();
    let text = "Two threads process as many files as one.";
    let claims = claim("000-V1", text, ["threads-1", "threads-2"], "equal");
    let full = "full = { count = 40, size = \"exp(mean=4KiB,min=1,max=64KiB)\", seed = 3 }";
    let sizes = [full.replace("40", "50001"), full.replace("full", "quick")].join("\n");
    let arguments = |more: &[&str]| {
        let args = arguments_for(&home, &claims, more);
        home.studies(&TINY.replace(full, &sizes));
        args
    };
    let ran = home.run(&arguments(&["--open"])).well();
    let text = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("File set T is reduced to 40 files"), "{}", ran.err);
    let at_full_size = || {
        let plan = home.run(&arguments(&["--open", "--full-size", "--dry-run"])).well();
        assert!(plan.err.contains("1 claim, 2 arms (000-V1)"), "{}", plan.err);
        let is_new = !plan.err.contains("reduced") && !plan.err.contains("Continues");
        assert!(is_new && !plan.err.contains("Left out"), "{}", plan.err);
    };
    at_full_size();
    // The same session after its first runs.
    let file = std::fs::read_dir(home.store().join("sessions")).unwrap().next().unwrap();
    let file = file.unwrap().path();
    let whole = std::fs::read_to_string(&file).unwrap();
    let unfinished: String = whole.split_inclusive('\n').take(5).collect();
    std::fs::write(&file, unfinished).unwrap();
    let plan = home.run(&arguments(&["--open", "--dry-run"])).well();
    assert!(plan.err.contains("Continues an unfinished session"), "{}", plan.err);
    at_full_size();
}

/// Runs that another machine made decide its verdict, but not what is open here.
#[test]
fn claims_decided_on_another_machine_are_open_here() {
    let home = Home::new();
    home.run(&arguments(&home, &["000-V1", "--json"])).well();
    if !quiet(&home) {
        return;
    }
    let own = home.records()[0]["machine"].as_str().unwrap().to_owned();
    let file = std::fs::read_dir(home.store().join("sessions")).unwrap().next().unwrap();
    let file = file.unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&format!("\"{own}\""), "\"0000000000000000\"")).unwrap();
    let plan = home.run(&arguments(&home, &["000-V1", "--dry-run"])).well();
    assert!(!plan.err.contains("already decided"), "{}", plan.err);
    assert!(plan.err.contains("Estimate: about"), "{}", plan.err);
    let claims = home.path("claims").to_str().unwrap().to_owned();
    let shown = home.run(&["claims", "000-V1", "--claims", &claims]).well();
    assert!(shown.out.contains("(machine 0000000000000000)"), "{}", shown.out);
}

/// Few stored blocks do not show the noise, and disturbed ones do not show what quiet ones would decide.
#[test]
fn few_or_disturbed_stored_blocks_leave_no_claim_out() {
    for blocks in ["4", "12"] {
        let home = Home::new();
        let text = "Two threads process as many files as one.";
        let claims = claim("000-V1", text, ["threads-1", "threads-2"], "equal");
        let args = arguments_for(&home, &claims, &["--open", "--dry-run"]);
        let studies = home.path("studies").to_str().unwrap().to_owned();
        home.run(&["study", "tiny", "--studies", &studies, "--blocks", blocks]).well();
        let file = std::fs::read_dir(home.store().join("sessions")).unwrap().next().unwrap();
        let file = file.unwrap().path();
        // Twelve blocks are all disturbed; four quiet ones contradict each other.
        let edited = |line: &str| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            if line["run"].is_object() {
                let run = &mut line["run"];
                let is_few = blocks == "4";
                let doubts: &[&str] = if is_few { &[] } else { &["noisy-neighbour"] };
                run["doubts"] = serde_json::json!(doubts);
                if is_few && run["key"]["arm"] == "threads-2" {
                    let is_even = run["key"]["block"].as_u64().unwrap().is_multiple_of(2);
                    let files = if is_even { 20 } else { 80 };
                    run["outcome"]["measured"]["files"] = serde_json::json!(files);
                }
            }
            format!("{line}\n")
        };
        let lines = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, lines.lines().map(edited).collect::<String>()).unwrap();
        let plan = home.run(&args).well();
        assert!(plan.err.contains("1 claim, 2 arms (000-V1)"), "{blocks} blocks: {}", plan.err);
        assert!(!plan.err.contains("Left out"), "{blocks} blocks: {}", plan.err);
    }
}

/// The store of a verification is created, as that of a study is.
#[test]
fn a_verification_needs_no_store() {
    let home = Home::new();
    let store = home.path("later").to_str().unwrap().to_owned();
    let plan = home.run(&arguments(&home, &["--open", "--dry-run", "--store", &store])).well();
    assert!(plan.err.contains("Estimate: about"), "{}", plan.err);
    let claims = home.path("claims").to_str().unwrap().to_owned();
    let absent = home.path("absent").to_str().unwrap().to_owned();
    let shown = home.run(&["claims", "--claims", &claims, "--store", &absent]);
    assert_eq!(shown.code, Some(1), "{}", shown.err);
    assert!(shown.err.contains("no store in"), "{}", shown.err);
}
