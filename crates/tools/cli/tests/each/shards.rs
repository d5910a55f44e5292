//! Shards: the parts of any plan combine to the result of one `each`, whatever is killed, and nothing
//! else is combined.

use crate::place::{Each, PROGRAM, ProcessOutput, Workspace, fresh};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

/// A directory in memory, if there is one: syncs of a disk would take most of the time.
fn quick() -> Workspace {
    Workspace::in_memory(PROGRAM).unwrap_or_else(fresh)
}

fn shard(place: &Workspace, args: &[&str]) -> ProcessOutput {
    place.ours(&["shard"]).args(args).output().unwrap().into()
}

/// Makes a plan of a tree.
fn plan(place: &Workspace, shards: u64, more: &[&str]) -> Value {
    let shards = shards.to_string();
    let args = ["plan", "t", "--shards", &shards, "--json"];
    shard(place, &[&args, more].concat()).ended(0).json()
}

/// Returns the arguments of one shard.
fn one(number: u64, of: u64, more: &[&str]) -> Vec<String> {
    let args = ["--shard", &format!("{number}/{of}"), "--manifest", "t.shards", "--part", "parts"]
        .map(str::to_owned);
    args.into_iter().chain(more.iter().map(|word| (*word).to_owned())).collect()
}

fn run_all(place: &Workspace, shards: u64, more: &[&str], code: i32) {
    fs::create_dir_all(place.at("parts")).unwrap();
    for number in 1..=shards {
        let ran = place.each(&one(number, shards, more));
        // The shard that holds a file that fails, or none of them.
        assert!(ran.code == Some(code) || ran.code == Some(0), "{ran:?}");
    }
}

/// Returns the lines without those about time and plan.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn the_parts_of_every_work_combine_to_the_result_of_one_run() {
    let works: [(u64, &[&str]); 8] = [
        (3, &[]),
        (1, &["--compute", "sha256"]),
        (2, &["--compute", "none"]),
        (2, &["--method", "null", "--compute", "checksum:2"]),
        (1, &["--method", "mmap:plain", "--compute", "touch"]),
        (2, &["--exec", "true {}"]),
        (1, &["--exec", "false {}"]),
        // More shards than files: one for each.
        (900, &["--exec", "cat"]),
    ];
    for (shards, work) in works {
        let place = quick();
        place.odd_tree("t");
        let shards = plan(&place, shards, &[])["shards"].as_u64().unwrap();
        assert!(shards < 900);
        let code = i32::from(work.contains(&"false {}"));
        run_all(&place, shards, &[work, &["-q"]].concat(), code);
        let merged = shard(&place, &["merge", "t.shards", "parts", "--json"]).ended(code).json();
        let all = place.each(&[&["t", "--json"], work].concat()).ended(code).json();
        for field in ["files", "bytes", "errors", "digest", "digest_partial", "error_samples"] {
            assert_eq!(merged[field], all[field], "{work:?}: {field}");
        }
        assert!(all["files"].as_u64().unwrap() + all["errors"].as_u64().unwrap() > 3);
        let timeline = merged["timeline"].as_array().unwrap();
        let listed: BTreeSet<u64> = timeline
            .iter()
            .flat_map(|lane| lane["shards"].as_array().unwrap())
            .map(|span| span["shard"].as_u64().unwrap())
            .collect();
        assert_eq!(listed, (1..=shards).collect());
    }
}

#[test]
fn lines_are_those_of_one_run_in_input_order() {
    let place = quick();
    place.odd_tree("t");
    plan(&place, 3, &[]);
    run_all(&place, 3, &["--compute", "sha1", "-q"], 0);
    let forms: [&[&str]; 4] = [&[], &["--tag"], &["-z"], &["--json"]];
    for form in forms {
        let merged = shard(&place, &[&["merge", "t.shards", "parts", "--per-file"], form].concat());
        let args = [&["t", "--per-file", "--ordered", "--compute", "sha1"], form].concat();
        let (merged, all) = (merged.ended(0), place.each(&args).ended(0));
        // The last line of JSON is the document.
        let body = |text: &str| match form {
            ["--json"] => text.trim_end().rsplit_once('\n').unwrap().0.to_owned(),
            _ => text.to_owned(),
        };
        assert_eq!(body(&merged.text()), body(&all.text()), "{form:?}");
    }
    // Lines of a worker are those of its files.
    let all = place.each(&["t", "--per-file", "--compute", "sha1"]).ended(0).text();
    let mut lines = String::new();
    for number in 1..=3 {
        let shard = format!("{number}/3");
        let args = ["--shard", &shard, "--manifest", "t.shards", "--per-file", "--compute", "sha1"];
        lines += &place.each(&args).ended(0).text();
    }
    assert_eq!(sorted(&lines), sorted(&all));
}

#[test]
fn lists_and_selections_are_planned_like_arguments() {
    let place = quick();
    place.odd_tree("t");
    place.write("t/no.o", "object");
    plan(&place, 2, &["--exclude", "*.o"]);
    run_all(&place, 2, &["-q"], 0);
    let merged = shard(&place, &["merge", "t.shards", "parts", "--json", "--recheck"]).ended(0);
    let all = place.each(&["t", "--exclude", "*.o", "--json"]).ended(0).json();
    assert_eq!(merged.json()["digest"], all["digest"]);
    let list = b"t/no.o\0t/no.o\0./t/no.o\0";
    let planned = ioloom_testbed::fed(
        place.ours(&["shard"]).args(["plan", "-0", "-", "--files", "2", "--out", "l"]),
        list,
    );
    assert!(planned.ended(0).text().starts_with("3 files in 2 shards"));
    fs::create_dir(place.at("of list")).unwrap();
    for number in ["1/2", "2/2"] {
        place.each(&["--shard", number, "--manifest", "l", "--part", "of list", "-q"]).ended(0);
    }
    let merged = shard(&place, &["merge", "l", "of list", "--json"]).ended(0).json();
    let all = place.each_of(&["-0", "-", "--json"], list).ended(0).json();
    assert_eq!(merged["digest"], all["digest"]);
    assert_eq!(merged["files"], 3);
}

#[test]
fn a_finished_shard_is_skipped_and_other_work_is_refused() {
    let place = quick();
    place.odd_tree("t");
    plan(&place, 2, &[]);
    run_all(&place, 2, &["-q"], 0);
    let before = fs::read(place.at("parts/part-000001")).unwrap();
    let again = place.each(&one(1, 2, &["--json"])).ended(0);
    assert_eq!(again.json()["shard"]["skipped"], true);
    assert!(again.err.contains("complete") && again.err.contains("skipped"), "{}", again.err);
    assert_eq!(fs::read(place.at("parts/part-000001")).unwrap(), before);
    place.each(&one(1, 2, &["--compute", "md5"])).ended(2).one_error(&["xxh3", "md5", "--part"]);
    place.each(&one(1, 2, &["--redo", "-q"])).ended(0);
    assert_ne!(fs::read(place.at("parts/part-000001")).unwrap(), before);
    fs::write(place.at("parts/part-000001"), &before[..before.len() / 2]).unwrap();
    let repaired = place.each(&one(1, 2, &["-q"])).ended(0);
    assert!(repaired.err.contains("damaged"), "{}", repaired.err);
    shard(&place, &["merge", "t.shards", "parts"]).ended(0);
}

#[test]
fn files_that_changed_since_the_plan_are_reported() {
    let place = quick();
    place.odd_tree("t");
    place.write("t/gone", "soon");
    plan(&place, 3, &[]);
    fs::remove_file(place.at("t/gone")).unwrap();
    place.write("t/new", "file");
    run_all(&place, 3, &["-q"], 1);
    let merged = shard(&place, &["merge", "t.shards", "parts", "--json", "--recheck"]).ended(1);
    let document = merged.json();
    assert_eq!((&document["errors"], &document["gone"]), (&1.into(), &1.into()));
    assert_eq!(document["recheck"], serde_json::json!({"new": 1, "gone": 1}));
    assert!(merged.err.contains("'t/gone'") && merged.err.contains("'t/new'"), "{}", merged.err);
    // A skipped shard keeps its exit code.
    let again: Vec<_> = (1..=3).map(|number| place.each(&one(number, 3, &["-q"]))).collect();
    let failed: Vec<_> = again.iter().filter(|ran| ran.code == Some(1)).collect();
    assert_eq!(failed.len(), 1);
    failed[0].one_error(&["skipped", "1 error", "--redo"]);
    assert_eq!(again.iter().filter(|ran| ran.err.is_empty()).count(), 2);
    let status = shard(&place, &["status", "t.shards", "parts"]).ended(0).text();
    assert!(status.contains("3 of 3 done") && status.contains("errors"), "{status}");
}

#[test]
fn the_page_of_a_recheck_is_in_the_directory_of_the_command() {
    let place = quick();
    place.odd_tree("t");
    plan(&place, 1, &[]);
    run_all(&place, 1, &["-q"], 0);
    fs::create_dir(place.at("elsewhere")).unwrap();
    let args = ["merge", "../t.shards", "../parts", "--recheck", "--report", "page.html"];
    let mut merge = place.ours(&["shard"]);
    let merged: ProcessOutput =
        merge.args(args).current_dir(place.at("elsewhere")).output().unwrap().into();
    merged.ended(0);
    assert!(place.at("elsewhere/page.html").exists() && !place.at("page.html").exists());
}

#[test]
fn a_file_that_is_no_part_is_never_replaced() {
    let place = quick();
    place.odd_tree("t");
    plan(&place, 2, &["--out", "slash/"]);
    plan(&place, 2, &[]);
    fs::create_dir_all(place.at("parts")).unwrap();
    fs::write(place.at("parts/part-000001"), "of another program").unwrap();
    let refused = place.each(&one(1, 2, &["-q"])).ended(2);
    refused.one_error(&[
        "part-000001",
        "it is not a shard part",
        "remove it or run the shard with --redo if it is a damaged part",
        "another --part",
    ]);
    assert_eq!(fs::read(place.at("parts/part-000001")).unwrap(), b"of another program");
    // It can be a part without its first line: a repetition keeps it under another name.
    let redone = place.each(&one(1, 2, &["-q", "--redo"])).ended(0);
    assert!(redone.err.contains("moved to"), "{}", redone.err);
    let kept = place.at("parts/part-000001.damaged-1");
    assert_eq!(fs::read(&kept).unwrap(), b"of another program");
    fs::remove_file(kept).unwrap();
    fs::write(place.at("parts/part-000001"), [0; 500]).unwrap();
    run_all(&place, 2, &["-q"], 0);
    fs::rename(place.at("t"), place.at("moved")).unwrap();
    shard(&place, &["merge", "t.shards", "parts"]).ended(0);
    let again = shard(&place, &["merge", "t.shards", "parts", "--recheck"]).ended(1);
    again.one_error(&["cannot list the files again", "'t'", "--recheck"]);
}

#[test]
fn what_cannot_be_combined_is_one_error_with_every_fault() {
    let place = quick();
    place.odd_tree("t");
    plan(&place, 5, &[]);
    run_all(&place, 5, &["-q"], 0);
    fs::create_dir(place.at("more")).unwrap();
    fs::copy(place.at("parts/part-000002"), place.at("more/part-000002")).unwrap();
    fs::remove_file(place.at("parts/part-000004")).unwrap();
    fs::write(place.at("parts/part-000005"), "short").unwrap();
    plan(&place, 5, &["--out", "other"]);
    let args = ["--shard", "1/5", "--manifest", "other", "--part", "more", "-q"];
    place.each(&args).ended(0);
    let merge = ["merge", "t.shards", "parts", "more"];
    let merged = shard(&place, &merge).ended(1);
    for words in ["no part: 4-5", "several parts: 2", "another plan", "damaged"] {
        assert!(merged.err.contains(words), "{words}: {}", merged.err);
    }
    assert!(merged.out.is_empty());
    let document = shard(&place, &[&merge[..], &["--json"]].concat()).ended(1).json();
    assert_eq!(document["complete"], false);
    assert_eq!(document["faults"]["missing"], serde_json::json!([4, 5]));
    assert_eq!(document["faults"]["double"][0]["shard"], 2);
    assert_eq!(document["faults"]["foreign"].as_array().unwrap().len(), 1);
    assert_eq!(document["faults"]["damaged"].as_array().unwrap().len(), 1);
}

#[test]
fn wrong_plans_shards_and_places_are_one_error() {
    let place = quick();
    place.odd_tree("t");
    plan(&place, 2, &[]);
    for (number, words) in [("0/2", "from 1"), ("3/2", "from 1"), ("3/3", "2 shards"), ("x", "I/N")]
    {
        let args = ["--shard", number, "--manifest", "t.shards"];
        place
            .each(&args)
            .ended(2)
            .one_error(&["--shard", words].map(|w| w.trim_start_matches('-')));
    }
    let missing = ["--shard", "1/2", "--manifest", "t.shards", "--part", "nope"];
    place.each(&missing).ended(1).one_error(&["nope", "create the directory"]);
    place.each(&["--shard", "1/2", "--manifest", "t"]).ended(1).one_error(&["shard plan"]);
    place.write("text", "text");
    place.each(&["--shard", "1/2", "--manifest", "text"]).ended(2).one_error(&["not a shard plan"]);
    shard(&place, &["plan", "t"]).ended(3).one_error(&["t.shards", "--out"]);
    let parent = ["cannot create the plan 'nodir/x': No such file", "create the directory 'nodir'"];
    let ran = shard(&place, &["plan", "t", "--out", "nodir/x"]).ended(1);
    assert!(parent.iter().all(|words| ran.err.contains(words)), "{}", ran.err);
    shard(&place, &["merge", "t.shards", "nope"]).ended(1).one_error(&["nope"]);
    // The manifest of another shard, and a damaged one.
    let manifest = |number: u32| place.at(format!("t.shards/shard-00000{number}"));
    let second = fs::read(manifest(2)).unwrap();
    fs::copy(manifest(1), manifest(2)).unwrap();
    let args = ["--shard", "2/2", "--manifest", "t.shards"];
    place.each(&args).ended(2).one_error(&["shard-000002", "not the manifest"]);
    fs::write(manifest(2), &second[..second.len() - 1]).unwrap();
    place.each(&args).ended(2).one_error(&["shard-000002", "damaged", "new plan"]);
    // The tree is not there.
    fs::rename(place.at("t"), place.at("moved")).unwrap();
    let args = ["--shard", "1/2", "--manifest", "t.shards"];
    place.each(&args).ended(1).one_error(&["cannot stat 't'", "mount"]);
}

/// The command of the first worker runs the shard in a second worker, which thus commits first.
#[test]
fn a_worker_that_commits_late_says_so_and_counts_nothing() {
    let place = quick();
    place.write("t/file", "");
    plan(&place, 1, &[]);
    fs::create_dir(place.at("parts")).unwrap();
    let shard_flags = "--shard 1/1 --manifest t.shards --part parts";
    let script = format!(
        "mkdir once 2>/dev/null || exit 0\n{PROGRAM} each {shard_flags} --exec 'sh work.sh {{}}' -q\n"
    );
    place.write("work.sh", script);
    let late = place.each(&one(1, 1, &["--exec", "sh work.sh {}", "--json"])).ended(0);
    assert_eq!(late.err.lines().count(), 1, "{}", late.err);
    for words in ["shard 1/1 does not count", "part-000001", "first"] {
        assert!(late.err.contains(words), "{}", late.err);
    }
    let about = &late.json()["shard"];
    assert_eq!((&about["late"], &about["skipped"]), (&true.into(), &false.into()));
    let merged = shard(&place, &["merge", "t.shards", "parts", "--json"]).ended(0).json();
    assert_eq!((&merged["files"], &merged["errors"]), (&1.into(), &0.into()));
}

/// A reader that takes one line does not cost the part.
#[test]
fn a_part_is_written_although_the_reader_of_lines_has_gone() {
    let place = quick();
    for file in 0..3000 {
        place.write(format!("t/{file}"), "");
    }
    plan(&place, 1, &[]);
    fs::create_dir(place.at("parts")).unwrap();
    let mut command = place.ours(&["each"]);
    command.args(one(1, 1, &["--per-file", "--quiet"])).stdout(Stdio::piped());
    let mut worker = command.spawn().unwrap();
    drop(worker.stdout.take());
    assert!(worker.wait().unwrap().success());
    shard(&place, &["merge", "t.shards", "parts", "--quiet"]).ended(0);
}

#[test]
fn errors_of_a_merge_survive_a_closed_pipe() {
    let place = quick();
    place.write("t/a", "a");
    place.write("t/b", "b");
    plan(&place, 1, &[]);
    fs::remove_file(place.at("t/b")).unwrap();
    run_all(&place, 1, &["-q"], 1);
    let forms: [&[&str]; 4] = [&[], &["--json"], &["--per-file"], &["--per-file", "--json"]];
    for form in forms {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.ours(&["shard", "merge", "t.shards", "parts"]);
        let ran: ProcessOutput = command.args(form).stdout(writer).output().unwrap().into();
        assert!(ran.ended(1).err.contains("1 file failed in shard"), "{form:?}");
    }
}

#[test]
fn a_command_that_is_not_utf8_is_exact_in_parts() {
    let place = quick();
    place.write("t/a", "a");
    plan(&place, 1, &[]);
    fs::create_dir(place.at("parts")).unwrap();
    let args = one(1, 1, &["-q", "--exec"]).into_iter().map(OsString::from);
    let command = OsString::from_vec(b"true {} \xff".to_vec());
    place.each(&args.chain([command]).collect::<Vec<_>>()).ended(0);
    let merged = shard(&place, &["merge", "t.shards", "parts", "--json"]).ended(0).json();
    assert_eq!(merged["work"]["options"]["exec_base64"], "dHJ1ZSB7fSD/", "{merged}");
}

/// A worker that is killed at any moment leaves a part that counts, or none.
#[test]
fn killed_workers_leave_nothing_that_counts_wrongly() {
    const SHARDS: u64 = 6;
    let place = quick();
    for file in 0..60 {
        place.write(format!("t/{}/{file}", file % 7), format!("content of {file}"));
    }
    plan(&place, SHARDS, &[]);
    fs::create_dir(place.at("parts")).unwrap();
    let (mut state, mut killed) = (24_u64, 0);
    for round in 0..200 {
        // On a busy machine, workers can end before they are killed.
        if round >= 14 && killed > 0 {
            break;
        }
        // Numbers of Knuth's MMIX.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = round % SHARDS + 1;
        let mut command = place.ours(&["each"]);
        command.args(one(number, SHARDS, &["--redo", "--exec", "cat", "-j", "1"]));
        let mut worker = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(state >> 49));
        worker.kill().unwrap();
        let ended = worker.wait().unwrap();
        killed += u32::from(ended.code().is_none());
        let mut message = String::new();
        // The programs of a killed worker may hold the pipe for a moment.
        worker.stderr.take().unwrap().read_to_string(&mut message).unwrap();
        let status = shard(&place, &["status", "t.shards", "parts", "--json"]).ended(0).json();
        let faults = &status["faults"];
        for kind in ["double", "foreign", "damaged"] {
            assert_eq!(faults[kind], serde_json::json!([]), "{kind} after round {round}");
        }
        let missing = faults["missing"].as_array().unwrap().len() as u64;
        assert_eq!(status["done"].as_u64().unwrap() + missing, SHARDS);
    }
    assert!(killed > 0, "no worker was killed in time");
    run_all(&place, SHARDS, &["--exec", "cat", "-q"], 0);
    let merged = shard(&place, &["merge", "t.shards", "parts", "--json"]).ended(0).json();
    assert_eq!((&merged["files"], &merged["errors"]), (&60.into(), &0.into()));
    let hidden = fs::read_dir(place.at("parts")).unwrap().map(|e| e.unwrap().file_name());
    assert_eq!(hidden.filter(|name| name.to_string_lossy().starts_with('.')).count(), 0);
}

#[test]
fn a_shard_without_any_of_its_files_is_not_complete() {
    let place = quick();
    (0..4).for_each(|number| place.write(format!("t/{number}"), "x"));
    plan(&place, 2, &[]);
    fs::create_dir(place.at("parts")).unwrap();
    fs::rename(place.at("t"), place.at("elsewhere")).unwrap();
    fs::create_dir(place.at("t")).unwrap();
    let ran = place.each(&one(1, 2, &["-q"])).ended(1);
    assert!(ran.err.contains("none of its 2 files exists in"), "{ran:?}");
    assert!(fs::read_dir(place.at("parts")).unwrap().next().is_none(), "no part and no marker");
    fs::remove_dir(place.at("t")).unwrap();
    fs::rename(place.at("elsewhere"), place.at("t")).unwrap();
    place.each(&one(1, 2, &["-q"])).ended(0);
    // One of two files is gone: the part counts, and its shard is named.
    fs::rename(place.at("t/3"), place.at("3")).unwrap();
    place.each(&one(2, 2, &["-q"])).ended(1);
    let status = shard(&place, &["status", "t.shards", "parts"]).ended(0);
    assert!(status.text().contains("errors      1 file in shard 2; run it again"), "{status:?}");
    let merged = shard(&place, &["merge", "t.shards", "parts"]).ended(1);
    assert!(merged.err.contains("1 file failed in shard 2; run it again with"), "{merged:?}");
    assert!(!merged.err.contains("plan again"), "{merged:?}");
    fs::rename(place.at("3"), place.at("t/3")).unwrap();
    place.each(&one(2, 2, &["-q", "--redo"])).ended(0);
    shard(&place, &["merge", "t.shards", "parts"]).ended(0);
}

/// Goal: files of one argument whose file system is not mounted are not taken for removed ones.
#[test]
fn an_argument_without_any_of_its_files_completes_no_shard() {
    let place = quick();
    for name in ["t/0", "t/1", "u/0", "u/1", "u/2", "u/3"] {
        place.write(name, "x");
    }
    shard(&place, &["plan", "t", "u", "--shards", "2"]).ended(0);
    fs::create_dir(place.at("parts")).unwrap();
    fs::rename(place.at("u"), place.at("away")).unwrap();
    place.write("u/.not-mounted", "");
    let ran = place.each(&one(1, 2, &["-q"])).ended(1);
    ran.one_error(&["no planned file in 'u' exists", "mount the tree of"]);
    place.each(&one(2, 2, &["-q"])).ended(1).one_error(&["none of its 3 files exists in"]);
    assert_eq!(fs::read_dir(place.at("parts")).unwrap().count(), 0, "no part and no marker");
    // The only file of this shard in the argument is gone, and those of another shard are not.
    fs::rename(place.at("away/2"), place.at("u/2")).unwrap();
    place.each(&one(1, 2, &["-q"])).ended(1);
    assert!(place.at("parts/part-000001").exists());
}

#[test]
fn an_argument_that_was_a_file_and_is_removed_is_an_error_of_its_shard() {
    let place = quick();
    (0..3).for_each(|number| place.write(format!("t/{number}"), "x"));
    (0..2).for_each(|number| place.write(format!("u/{number}"), "x"));
    place.write("file", "x");
    let plan = ["plan", "t", "u", "file", "--shards", "1"];
    shard(&place, &plan).ended(0);
    fs::create_dir(place.at("parts")).unwrap();
    // Of a directory, it is more likely that it is not mounted.
    fs::rename(place.at("u"), place.at("away")).unwrap();
    place.each(&one(1, 1, &["-q"])).ended(1).one_error(&["cannot stat 'u'", "mount the files"]);
    assert!(!place.at("parts/part-000001").exists());
    fs::rename(place.at("away"), place.at("u")).unwrap();
    fs::remove_file(place.at("file")).unwrap();
    let ran = place.each(&one(1, 1, &["-q"])).ended(1);
    assert!(!ran.err.contains("mount the files"), "{}", ran.err);
    let merged = shard(&place, &["merge", "t.shards", "parts", "--json"]).ended(1).json();
    assert_eq!((&merged["errors"], &merged["gone"]), (&1.into(), &1.into()));
}

/// Goal: files of a file system that is not mounted are not taken for removed ones.
#[test]
fn absent_files_with_nothing_next_to_them_complete_no_shard() {
    let place = quick();
    for name in ["a/x", "b/y", "b/other", "c/1", "c/2", "c/other", "d/1", "d/2", "d/sub/g"] {
        place.write(name, "x");
    }
    let files = ["a/x", "b/y", "c/1", "c/2", "d/1", "d/2", "d/sub/g"];
    shard(&place, &[&["plan", "--shards", "1", "--out", "p"], &files[..]].concat()).ended(0);
    fs::create_dir(place.at("parts")).unwrap();
    let args = ["--shard", "1/1", "--manifest", "p", "--part", "parts", "-q"].map(String::from);
    let refused = |name: &str| {
        let ran = place.each(&args).ended(1);
        ran.one_error(&[&format!("cannot stat '{name}'"), "mount the files"]);
        assert!(!place.at("parts/part-000001").exists());
    };
    let hide = |name: &str| fs::rename(place.at(name), place.at("away")).unwrap();
    let show = |name: &str| fs::rename(place.at("away"), place.at(name)).unwrap();
    hide("b");
    refused("b/y");
    fs::create_dir(place.at("b")).unwrap();
    refused("b/y");
    fs::remove_dir(place.at("b")).unwrap();
    show("b");
    // Not even another file is one of the plan.
    fs::remove_file(place.at("c/1")).unwrap();
    hide("c/2");
    refused("c/1");
    show("c/2");
    hide("d");
    refused("d/1");
    show("d");
    // One of two, one that was the only argument in its directory, and two of three at different depths.
    for name in ["b/y", "d/1", "d/2"] {
        fs::remove_file(place.at(name)).unwrap();
    }
    let ran = place.each(&args).ended(1);
    assert!(!ran.err.contains("mount the files"), "{}", ran.err);
    let merged = shard(&place, &["merge", "p", "parts", "--json"]).ended(1).json();
    assert_eq!((&merged["errors"], &merged["gone"]), (&4.into(), &4.into()));
}

#[test]
fn a_plan_below_its_tree_and_plans_of_objects_are_refused() {
    let place = quick();
    place.odd_tree("t");
    place.write("list", "t/x\ns3://bucket/key\n");
    for (args, words) in [
        (&["plan", "."][..], "choose another directory with --out"),
        (&["plan", "t", "--out", "t/plan"], "choose another directory with --out"),
        (&["plan", "s3://bucket/key"], "objects cannot be split into shards"),
        (&["plan", "--files-from", "list"], "objects cannot be split into shards"),
        (&["plan", "--files-from", "s3://bucket/list"], "files, not objects"),
        (&["plan", "t", "--out", "s3://bucket/plan"], "files, not objects"),
        (&["merge", "s3://bucket/plan", "parts"], "files, not objects"),
        (&["merge", "t.plan", "s3://bucket/parts"], "files, not objects"),
        (&["status", "t.plan", "s3://bucket/parts"], "files, not objects"),
    ] {
        let refused = shard(&place, args);
        assert!(refused.code != Some(0) && refused.err.contains(words), "{args:?}: {refused:?}");
        assert!(refused.code != Some(1), "{args:?}: {refused:?}");
    }
    shard(&place, &["plan", "t", "--out", "t.plan"]).ended(0);
    for (plan, parts) in [("t.plan", "s3://bucket/parts"), ("s3://bucket/plan", "parts")] {
        let refused = place.each(&["--shard", "1/1", "--manifest", plan, "--part", parts]);
        assert!(refused.err.contains("files, not objects"), "{refused:?}");
        assert!(refused.code.is_some_and(|code| code > 1), "{refused:?}");
    }
    place.write("SUMS", format!("{}  s3://bucket/key\n", "0".repeat(64)));
    let checked = place.each(&["--check", "SUMS", "--compute", "sha256"]);
    assert!(checked.err.contains("; objects cannot be in a list"), "{checked:?}");
    let refused = place.each(&["--check", "s3://bucket/SUMS"]);
    assert!(refused.err.contains("files, not objects"), "{refused:?}");
    assert!(refused.code.is_some_and(|code| code > 1), "{refused:?}");
}

#[test]
fn a_part_under_the_name_of_another_one_is_named_with_its_own() {
    let place = quick();
    place.odd_tree("t");
    plan(&place, 2, &[]);
    run_all(&place, 2, &["-q"], 0);
    fs::copy(place.at("parts/part-000001"), place.at("parts/part-000002")).unwrap();
    for more in [&["-q"][..], &["--redo"]] {
        let refused = place.each(&one(2, 2, more)).ended(2);
        refused.one_error(&["the part of shard 1; remove it if part-000001 exists"]);
    }
    fs::remove_file(place.at("parts/part-000002")).unwrap();
    place.each(&one(2, 2, &["-q"])).ended(0);
}

#[test]
fn printed_commands_work_with_names_that_begin_with_a_dash() {
    let place = quick();
    place.write("-x/file", "1");
    fs::create_dir(place.at("parts")).unwrap();
    let planned = shard(&place, &["plan", "./-x"]).ended(0);
    let text = String::from_utf8(planned.out).unwrap();
    for head in ["run ", "combine "] {
        let line = text.lines().find_map(|line| line.strip_prefix(head)).unwrap();
        let line = line.replace("I/1", "1/1").replace("DIR", "parts");
        let script = format!("ioloom() {{ \"$0\" \"$@\"; }}; {line}");
        let mut bash = place.command("bash");
        let ran = bash.arg("-c").arg(script).arg(PROGRAM).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn parts_in_a_directory_that_cannot_be_read_are_refused_before_the_work() {
    let place = fresh();
    place.write("t/file", "");
    plan(&place, 1, &[]);
    fs::create_dir(place.at("parts")).unwrap();
    fs::set_permissions(place.at("parts"), fs::Permissions::from_mode(0o333)).unwrap();
    let args = ["each", "--shard", "1/1", "--manifest", "t.shards", "--part", "parts"];
    let place = place.for_nobody();
    let ran = ProcessOutput::from(place.ours(&args).output().unwrap());
    fs::set_permissions(place.at("parts"), fs::Permissions::from_mode(0o755)).unwrap();
    let words = "Permission denied; run as a user with permission";
    ran.ended(1).one_error(&["cannot open directory", "parts", words]);
    assert_eq!(fs::read_dir(place.at("parts")).unwrap().count(), 0);
}
