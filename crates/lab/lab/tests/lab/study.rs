//! Tests studies from text to records.

use crate::bench::{Bench, FILES, Mock, TWO_ARMS, study};
use ioloom_lab::estimate::History;
use ioloom_lab::run::{Event, ended_before, finished, plan};
use ioloom_lab::selection::Selection;
use ioloom_lab::sequential::{Looks, Needed, at_looks};
use ioloom_lab::store::{EndReason, Sequential};
use ioloom_lab::{
    LabError, Mode, Progress, RunFilter, RunOptions, Session, Store, Workspace, clean, run_study,
};
use ioloom_model::{Condition, Doubt, Outcome, RunRecord};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn of<'a>(session: &'a Session, arm: &str) -> Vec<&'a RunRecord> {
    session.runs.iter().filter(|r| r.key.arm == arm).collect()
}

#[test]
fn every_run_of_the_list_is_recorded_in_the_order_that_was_stored() {
    let bench = Bench::new();
    let run = run_study(&study(TWO_ARMS), &bench.subject, &bench.store(), &bench.silent()).unwrap();
    let session = run.session;
    assert!(!run.interrupted);
    assert_eq!(session.end.as_ref().map(|e| e.reason), Some(EndReason::Finished));
    assert_eq!(
        session.end.as_ref().unwrap().doubts,
        [Doubt::FewSamples],
        "three blocks are too \
        few"
    );
    assert_eq!(session.runs.len(), 9, "two arms and one repeated arm, three blocks");
    assert_eq!(of(&session, "t1 (again)").len(), 3);
    assert_eq!(session.runs[0].plan.to_string().split('=').next(), Some("read/threads:n"));
    for (position, run) in session.runs.iter().enumerate() {
        let slot = session.header.order[position];
        let arm = &session.header.comparisons[slot.0 as usize].arms[slot.1 as usize];
        assert_eq!(run.key.position as usize, position);
        assert_eq!((&run.key.arm, run.key.block), (&arm.name, slot.2));
        assert!(run.measured().is_some(), "{:?}", run.outcome);
        assert!(!run.doubts.contains(&Doubt::WrongBytes));
        let timeline = !run.measured().unwrap().spans.is_empty();
        assert_eq!(timeline, slot.2 == 0, "timelines should be stored only for the first block");
        assert_eq!(run.set.medium.as_ref().unwrap().name, "work");
        let proof = run.proof.as_ref().unwrap();
        assert_eq!((proof.asked, proof.device_bytes), (Condition::Cold, Some(FILES * 8192)));
    }
    assert_eq!(bench.started(), 9);
    let planned = plan(&study(TWO_ARMS), &bench.silent()).unwrap();
    assert_eq!(planned.order, session.header.order, "the order should depend only on the seed");
}

#[test]
fn an_error_in_a_run_is_its_outcome_and_the_study_continues() {
    let bench = Bench::new();
    let spec = study(
        r#"{ name = "good", plan = "read/threads:n=1" },
           { name = "refused", plan = "direct:read/threads:n=1" },
           { name = "crash", plan = "mmap:plain/threads:n=1" },
           { name = "liar", plan = "nowait/threads:n=1" },
           { name = "short", plan = "uring/threads:n=1" },
           { name = "part", plan = "read/threads:n=3", files_max = "7" }"#,
    );
    // The first run is the reference for digests, so a good one must come first.
    let mut options = bench.silent();
    options.overrides.blocks = Some(2);
    options.overrides.seed = (0..1000).find(|seed| {
        options.overrides.seed = Some(*seed);
        let planned = plan(&spec, &options).unwrap();
        let first = planned.order.iter().find(|s| s.1 != 1 && s.1 != 2);
        first.is_some_and(|s| s.1 == 0)
    });
    let session = run_study(&spec, &bench.subject, &bench.store(), &options).unwrap().session;
    assert_eq!(session.runs.len(), 14);
    for run in of(&session, "refused") {
        let Outcome::Refused { reason } = &run.outcome else { panic!("{:?}", run.outcome) };
        assert!(reason.contains("no direct reads"));
    }
    for run in of(&session, "crash") {
        let Outcome::Failed { reason } = &run.outcome else { panic!("{:?}", run.outcome) };
        assert!(reason.contains("SIGBUS"), "{reason}");
    }
    for (arm, wrong) in [("good", false), ("liar", true), ("short", true), ("part", true)] {
        for run in of(&session, arm) {
            assert_eq!(run.doubts.contains(&Doubt::WrongBytes), wrong, "{arm}");
        }
    }
}

#[test]
fn a_set_is_made_once_found_again_and_cleaned_without_touching_results() {
    let bench = Bench::new();
    let spec = study(TWO_ARMS);
    let options = bench.silent();
    let needs = |bench: &Bench| {
        let planned = plan(&spec, &options).unwrap();
        let unknown = History::default();
        ioloom_lab::run::needs(&spec, &planned, &bench.subject, &unknown, &options).unwrap()
    };
    let before = needs(&bench);
    assert_eq!((before.sets_missing, before.runs, before.workspaces[0].files), (1, 9, FILES));
    assert!(before.to_string().contains("1 file set to make"), "{before}");
    run_study(&spec, &bench.subject, &bench.store(), &options).unwrap();
    assert_eq!((needs(&bench).sets_missing, needs(&bench).workspaces[0].bytes), (0, 0));
    let work = bench.dir.join("work");
    std::fs::create_dir_all(work.join("sets/of-the-user")).unwrap();
    std::fs::write(work.join("sets/of-the-user/x"), "x").unwrap();
    let cleaned = clean(&work, &bench.subject).unwrap();
    assert_eq!((cleaned.len(), cleaned[0].files), (1, FILES));
    assert!(!cleaned[0].dir.exists() && work.join("sets/of-the-user/x").exists());
    assert_eq!(clean(&work, &bench.subject).unwrap(), []);
    assert_eq!(bench.store().files().unwrap().len(), 1, "results must not be removed");
    assert_eq!(needs(&bench).sets_missing, 1);
}

#[test]
fn the_estimate_is_a_range_until_similar_runs_are_known() {
    let bench = Bench::new();
    let spec = study(TWO_ARMS);
    let options = bench.silent();
    let planned = plan(&spec, &options).unwrap();
    let needs = |history: &History| {
        ioloom_lab::run::needs(&spec, &planned, &bench.subject, history, &options).unwrap()
    };
    let machine = options.machine.fingerprint.as_str();
    let nothing = History::of(&bench.store(), &spec.name, machine);
    let before = needs(&nothing);
    assert_eq!((nothing.sessions, before.runs_known), (0, 0));
    assert!(before.runs_s.low > 0.0 && before.runs_s.high > 2.0 * before.runs_s.low);
    assert!(before.time_words().contains("on a slow one"), "{}", before.time_words());

    let mut session = run_study(&spec, &bench.subject, &bench.store(), &options).unwrap().session;
    let stored = History::of(&bench.store(), &spec.name, machine);
    assert_eq!((stored.sessions, needs(&stored).runs_known), (1, 9));
    assert_eq!(History::of(&bench.store(), &spec.name, "another").sessions, 0);
    assert_eq!(History::of(&bench.store(), "another", machine).sessions, 0);

    // The duration of a run ends when the next one starts, unless there was a pause.
    for (i, run) in session.runs.iter_mut().enumerate() {
        run.started_unix_ms = 1_000_000 + 250 * i as u64 + if i > 3 { 3_600_000 } else { 0 };
    }
    let mut history = History::default();
    history.learn(&session);
    for comparison in &planned.comparisons {
        for arm in &comparison.arms {
            assert_eq!(history.run_seconds(comparison, arm), Some(0.25), "{}", arm.name);
        }
    }
    let known = needs(&history);
    assert_eq!((known.runs_s.low, known.runs_s.high), (9.0 * 0.25, 9.0 * 0.25));
    assert!(known.time_words().starts_with("about 2.25 s, based on earlier runs"), "{known}");
}

#[test]
fn too_little_space_and_wrong_names_are_refused_before_anything_is_made() {
    let bench = Bench::new();
    let store = bench.store();
    let mut options = bench.silent();
    let mut spec = study(TWO_ARMS);
    spec.sets.get_mut("S").unwrap().full.count = 1 << 40;
    let error = run_study(&spec, &bench.subject, &store, &options).unwrap_err();
    assert_eq!(error.exit_code(), 3, "{error}");
    assert!(error.to_string().contains("must stay free"), "{error}");
    options.workspaces.push(options.workspaces[0].clone());
    let error = run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("twice"), "{error}");
    options.workspaces.pop();
    options.overrides.experiments = vec!["y".to_owned()];
    let error = run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    assert!(!bench.dir.join("work").exists() && store.files().unwrap().is_empty());
}

#[test]
fn a_set_that_cannot_be_made_is_one_error() {
    let bench = Bench::new();
    std::fs::write(bench.dir.join("work"), "in the way").unwrap();
    let error =
        run_study(&study(TWO_ARMS), &bench.subject, &bench.store(), &bench.silent()).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("work"), "{error}");
}

#[test]
fn files_of_the_user_replace_sets_even_with_a_path_that_is_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::new();
    let dir = bench.dir.join(std::ffi::OsStr::from_bytes(b"user \xFF files"));
    std::fs::create_dir(&dir).unwrap();
    for i in 0..FILES {
        std::fs::write(dir.join(i.to_string()), vec![1u8; 5000]).unwrap();
    }
    let mut options = bench.silent();
    options.files = Some(dir.clone());
    options.overrides.conditions = vec![Condition::Warm];
    let script = "read -r order; case $order in *'\"dir\":\".\"'*) ls | wc -l >&2; exit 9;; esac";
    options.runner.arguments[1] = script.into();
    let session =
        run_study(&study(TWO_ARMS), &bench.subject, &bench.store(), &options).unwrap().session;
    for run in &session.runs {
        let Outcome::Failed { reason } = &run.outcome else { panic!("{:?}", run.outcome) };
        assert!(reason.ends_with("standard error ended with: 20"), "{reason}");
        assert!(run.key.set.contains("user"), "{}", run.key.set);
    }
    assert_eq!(bench.subject.prepared.load(Ordering::Relaxed), 0);
}

/// The name of the directory is not enough: it can be relative, and its files can change.
#[test]
fn a_session_over_other_files_is_not_resumed() {
    let bench = Bench::new();
    let store = bench.store();
    let dir = bench.dir.join("user");
    std::fs::create_dir(&dir).unwrap();
    (0..FILES).for_each(|i| std::fs::write(dir.join(i.to_string()), "x").unwrap());
    let flag = AtomicBool::new(false);
    let listener = StopAfter(2, Mutex::new(0), &flag);
    let mut options = bench.options(&listener);
    (options.stop, options.files) = (&flag, Some(dir.clone()));
    options.overrides.conditions = vec![Condition::Warm];
    let first = run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap();
    assert!(first.interrupted);
    let first = first.session.header;
    assert!(first.circumstances.contains(&format!("files {}", dir.display())), "{first:?}");
    let resumed = || {
        let notes = Notes::default();
        let mut again = bench.options(&notes);
        (again.resume, again.files) = (true, Some(dir.clone()));
        again.overrides.conditions = vec![Condition::Warm];
        let run = run_study(&study(TWO_ARMS), &bench.subject, &store, &again);
        let name = run.map(|run| run.session.header.session);
        (name, notes.0.into_inner().unwrap().join("\n"))
    };
    let more = dir.join("more");
    std::fs::write(&more, "x").unwrap();
    let (name, notes) = resumed();
    let name = name.unwrap();
    assert_ne!(name, first.session);
    assert!(notes.contains(&format!("{} has different files;", first.session)), "{notes}");
    // The study is complete on these files, though another session is unfinished.
    let error = resumed().0.unwrap_err();
    assert_eq!(error.exit_code(), 3, "{error}");
    assert!(error.to_string().contains(&format!("session {name} is finished")), "{error}");
    let complete = || {
        let mut options = bench.silent();
        options.files = Some(dir.clone());
        options.overrides.conditions = vec![Condition::Warm];
        // The first batch has no session of this study, and the last one does not count.
        let batches = ["none".to_owned(), name.clone(), first.session.clone()];
        let found = finished(&study(TWO_ARMS), &bench.subject, &store, &options, &batches).unwrap();
        found.map(|session| session.header.session)
    };
    assert_eq!(complete(), Some(name.clone()));
    std::fs::remove_file(&more).unwrap();
    assert_eq!(complete(), None);
    assert_eq!(resumed().0.unwrap(), first.session);
}

#[test]
fn a_store_among_the_files_is_named_as_the_reason() {
    let bench = Bench::new();
    let dir = bench.dir.join("user");
    std::fs::create_dir(&dir).unwrap();
    let store = Store::open(&dir.join("store")).unwrap();
    let (flag, notes) = (AtomicBool::new(false), Notes::default());
    let listener = StopAfter(2, Mutex::new(0), &flag);
    let progresses: [&dyn Progress; 2] = [&listener, &notes];
    let mut batch = None;
    for (is_first, progress) in [true, false].into_iter().zip(progresses) {
        std::fs::write(dir.join(is_first.to_string()), "x").unwrap();
        let mut options = bench.options(progress);
        (options.resume, options.files) = (!is_first, Some(dir.clone()));
        options.overrides.conditions = vec![Condition::Warm];
        if is_first {
            options.stop = &flag;
        }
        let run = run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap();
        assert_eq!(run.interrupted, is_first);
        batch = Some(run.session.header.session);
    }
    let notes = notes.0.into_inner().unwrap().join("\n");
    assert!(notes.contains("contains the store") && notes.contains("--store"), "{notes}");
    // A finished session of a batch is not continued for the same reason.
    std::fs::write(dir.join("more"), "x").unwrap();
    let notes = Notes::default();
    let mut options = bench.options(&notes);
    (options.resume, options.files, options.batch) = (true, Some(dir.clone()), batch);
    options.overrides.conditions = vec![Condition::Warm];
    run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap();
    let notes = notes.0.into_inner().unwrap().join("\n");
    assert!(
        notes.contains("the finished session") && notes.contains("contains the store"),
        "{notes}"
    );
}

/// Within a batch, the session of another command is not continued, though it is alike.
#[test]
fn only_sessions_of_the_batch_are_resumed() {
    let bench = Bench::new();
    let store = bench.store();
    let flag = AtomicBool::new(false);
    let listener = StopAfter(2, Mutex::new(0), &flag);
    let mut options = bench.options(&listener);
    options.stop = &flag;
    let first = run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap();
    let first = first.session.header.session;
    for (batch, is_resumed) in [("another", false), (first.as_str(), true)] {
        let mut again = bench.silent();
        (again.resume, again.batch) = (true, Some(batch.to_owned()));
        let run = run_study(&study(TWO_ARMS), &bench.subject, &store, &again).unwrap();
        assert_eq!(run.session.header.session == first, is_resumed, "{batch}");
    }
    // A batch gets a session of a study that had not begun, but no second one.
    for (batch, joined) in [(first.as_str(), None), ("third", Some("third".to_owned()))] {
        let mut again = bench.silent();
        (again.resume, again.batch) = (true, Some(batch.to_owned()));
        again.overrides.seed = Some(77);
        let run = run_study(&study(TWO_ARMS), &bench.subject, &store, &again).unwrap();
        assert_eq!(run.session.header.batch, joined);
    }
}

#[test]
fn an_unwritable_store_is_one_error_before_sets_are_made() {
    let bench = Bench::new();
    let store = bench.store();
    std::fs::remove_dir(store.dir().join("sessions")).unwrap();
    let error = run_study(&study(TWO_ARMS), &bench.subject, &store, &bench.silent()).unwrap_err();
    assert!(matches!(error, LabError::Store(_)), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("cannot create a file in "), "{text}");
    assert!(text.contains(&store.dir().join("sessions").display().to_string()), "{text}");
    assert!(!text.contains("writable"), "{text}");
    assert_eq!(bench.subject.prepared.load(Ordering::Relaxed), 0);
    // The check leaves nothing.
    let store = bench.store();
    run_study(&study(TWO_ARMS), &bench.subject, &store, &bench.silent()).unwrap();
    assert_eq!(std::fs::read_dir(store.dir().join("sessions")).unwrap().count(), 1);
}

#[test]
fn each_medium_is_a_comparison_and_memory_refuses_cold() {
    let bench = Bench::new();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let mut options = bench.silent();
    let mut tmpfs = Workspace::work(memory.path());
    tmpfs.medium.name = "tmpfs".to_owned();
    options.workspaces.push(tmpfs);
    options.overrides.blocks = Some(1);
    let session =
        run_study(&study(TWO_ARMS), &bench.subject, &bench.store(), &options).unwrap().session;
    assert_eq!(session.header.comparisons.len(), 2);
    assert_eq!(session.runs.len(), 6);
    for run in session.runs.iter().filter(|r| r.key.medium == "tmpfs") {
        let refused =
            matches!(&run.outcome, Outcome::Refused { reason } if reason.contains("cold"));
        assert!(refused, "{:?}", run.outcome);
    }
}

/// Sets the stop flag after a number of records.
struct StopAfter<'a>(usize, Mutex<usize>, &'a AtomicBool);

impl Progress for StopAfter<'_> {
    fn event(&self, event: &Event<'_>) {
        if let Event::Recorded(_) = event {
            let mut seen = self.1.lock().unwrap();
            *seen += 1;
            if *seen == self.0 {
                self.2.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn an_interrupted_study_resumes_where_it_stopped_and_repeats_nothing() {
    let bench = Bench::new();
    let flag = AtomicBool::new(false);
    let listener = StopAfter(4, Mutex::new(0), &flag);
    let mut options = bench.options(&listener);
    options.stop = &flag;
    let store = bench.store();
    let first = run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap();
    assert!(first.interrupted && first.session.end.is_none());
    assert_eq!(first.session.runs.len(), 4);
    // With another seed, it is a different study, which does not resume this session.
    let mut other = bench.silent();
    other.resume = true;
    other.overrides.seed = Some(77);
    let fresh = run_study(&study(TWO_ARMS), &bench.subject, &store, &other).unwrap();
    assert_ne!(fresh.session.header.session, first.session.header.session);
    // Nor does one that may do more, or on another medium.
    let mut more = bench.silent();
    (more.resume, more.allow_sysctl) = (true, true);
    let mut moved = bench.silent();
    moved.resume = true;
    moved.workspaces[0].medium.file_system = "another".to_owned();
    for options in [more, moved] {
        let fresh = run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap();
        assert_ne!(fresh.session.header.session, first.session.header.session);
    }
    let mut again = bench.silent();
    again.resume = true;
    let second = run_study(&study(TWO_ARMS), &bench.subject, &store, &again).unwrap();
    assert_eq!(second.session.header, first.session.header);
    assert_eq!(second.session.runs[..4], first.session.runs[..]);
    let positions: BTreeSet<u32> = second.session.runs.iter().map(|r| r.key.position).collect();
    assert_eq!((positions.len(), second.session.runs.len()), (9, 9));
    assert_eq!(second.session.notes.len(), 1);
    assert_eq!(bench.started(), 4 * 9, "each session should start nine runs");
    // A finished session is not resumed, which the caller can check in advance.
    let ended = ended_before(&study(TWO_ARMS), &store, &again).unwrap();
    assert_eq!(ended.as_ref(), Some(&first.session.header.session));
    let mut unknown = bench.silent();
    unknown.overrides.seed = Some(78);
    assert_eq!(ended_before(&study(TWO_ARMS), &store, &unknown).unwrap(), None);
    let third = run_study(&study(TWO_ARMS), &bench.subject, &store, &again).unwrap();
    assert_ne!(third.session.header.session, first.session.header.session);
}

/// Collects messages.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn event(&self, event: &Event<'_>) {
        if let Event::Note(text) = event {
            self.0.lock().unwrap().push((*text).to_owned());
        }
    }
}

#[test]
fn the_reason_for_not_resuming_a_session_is_reported() {
    let bench = Bench::new();
    let flag = AtomicBool::new(false);
    let listener = StopAfter(2, Mutex::new(0), &flag);
    let mut options = bench.options(&listener);
    options.stop = &flag;
    let store = bench.store();
    let first = run_study(&study(TWO_ARMS), &bench.subject, &store, &options).unwrap();
    assert!(first.interrupted);
    let edited = TWO_ARMS.replace("n = [1, 2] }", "n = [1, 3] }");
    assert_ne!(edited, TWO_ARMS);
    let version = options.version.as_str();
    for (arms, version, cpus, word) in [
        (edited.as_str(), version, 2, "list of experiments"),
        (TWO_ARMS, "another", 2, "different version of this program"),
        (TWO_ARMS, version, 1, "different number of usable processors"),
    ] {
        let notes = Notes::default();
        let mut again = bench.options(&notes);
        again.resume = true;
        again.version = version.to_owned();
        again.machine.cpus_usable = cpus;
        let run = run_study(&study(arms), &bench.subject, &store, &again).unwrap();
        assert_ne!(run.session.header.session, first.session.header.session);
        let messages = notes.0.into_inner().unwrap().join("\n");
        let name = &first.session.header.session;
        assert!(messages.contains(word) && messages.contains(name.as_str()), "{messages}");
    }
    assert_eq!(store.read(&first.session.header.session).unwrap().runs.len(), 2, "untouched");
}

#[test]
fn an_exhausted_budget_ends_the_session_after_its_first_run() {
    let bench = Bench::new();
    let mut options = bench.silent();
    options.budget = Some(Duration::from_nanos(1));
    let run = run_study(&study(TWO_ARMS), &bench.subject, &bench.store(), &options).unwrap();
    let end = run.session.end.unwrap();
    assert_eq!((end.reason, end.blocks_dropped), (EndReason::Budget, 3));
    assert_eq!(end.doubts, [Doubt::FewSamples]);
    assert_eq!(run.session.runs.len(), 1, "a session must not end without a run");
    let arms = r#"{ name = "refused", plan = "direct:read/threads:n=1" },
        { name = "good", plan = "read/threads:n=1" }"#;
    for seed in 0..8 {
        options.overrides.seed = Some(seed);
        let run = run_study(&study(arms), &bench.subject, &bench.store(), &options).unwrap();
        let (last, refused) = run.session.runs.split_last().unwrap();
        assert!(last.measured().is_some(), "{:?}", last.outcome);
        assert!(refused.iter().all(|r| matches!(r.outcome, Outcome::Refused { .. })));
    }
}

#[test]
fn quick_mode_runs_headline_arms() {
    let bench = Bench::new();
    let mut options = bench.silent();
    options.mode = Mode::Quick;
    options.overrides.blocks = Some(1);
    let session =
        run_study(&study(TWO_ARMS), &bench.subject, &bench.store(), &options).unwrap().session;
    let arms: BTreeSet<_> = session.runs.iter().map(|r| r.key.arm.as_str()).collect();
    assert_eq!(arms, BTreeSet::from(["t1", "t1 (again)"]));
    let index = ioloom_lab::Index::open(&bench.store()).unwrap();
    let filter = RunFilter { arm: Some("t1".to_owned()), ..RunFilter::default() };
    assert_eq!(index.runs(&filter).unwrap().len(), 1);
}

#[test]
fn an_interrupt_while_sets_are_made_ends_before_the_session() {
    let bench = Bench::new();
    bench.stop.store(true, Ordering::Relaxed);
    let error = run_study(&study(TWO_ARMS), &Mock::default(), &bench.store(), &bench.silent());
    let error = error.unwrap_err();
    assert!(matches!(error, LabError::Interrupted), "{error}");
    assert_eq!(error.exit_code(), 130);
    assert!(bench.store().files().unwrap().is_empty());
}

#[test]
fn a_traced_run_is_separate_from_the_blocks_and_is_made_once() {
    let bench = Bench::new();
    let mut spec = study(TWO_ARMS);
    spec.experiments[0].pictures = vec!["t2".to_owned()];
    let planned = plan(&spec, &bench.silent()).unwrap();
    let without = plan(&study(TWO_ARMS), &bench.silent()).unwrap();
    assert_eq!((&planned.order, &planned.spec_hash), (&without.order, &without.spec_hash));
    bench.stop.store(true, Ordering::Relaxed);
    let mut options = bench.silent();
    options.overrides.blocks = Some(1);
    assert!(
        run_study(&spec, &bench.subject, &bench.store(), &options).is_err(),
        "no session \
        should exist"
    );
    bench.stop.store(false, Ordering::Relaxed);
    let session = run_study(&spec, &bench.subject, &bench.store(), &options).unwrap().session;
    assert_eq!((session.runs.len(), session.pictures.len(), bench.started()), (3, 1, 4));
    assert!(session.runs.iter().all(|run| run.measured().unwrap().spans.len() == 1));
    let picture = &session.pictures[0];
    assert_eq!(picture.record.key.arm, "t2");
    assert_eq!(picture.trace, None, "these children do not write traces");
    assert!(
        picture.record.proof.is_some(),
        "its condition should be established and proved like any other"
    );
    let kept = tempfile::tempdir().unwrap();
    let name = session.header.session.clone();
    ioloom_lab::export::export(&bench.store(), std::slice::from_ref(&name), kept.path()).unwrap();
    let again = ioloom_lab::Store::open_to_read(kept.path()).unwrap().read(&name).unwrap();
    assert_eq!(again.pictures.len(), 1);

    spec.experiments[0].pictures = vec!["t9".to_owned()];
    let wrong = plan(&spec, &bench.silent()).unwrap();
    assert!(
        wrong.pictures.is_empty(),
        "reading a study file with an unknown picture fails, so it \
        has none"
    );
}

/// Needs only arm t2 after two blocks, and nothing after four.
struct Fixed;

impl Looks for Fixed {
    fn look(&self, session: &Session) -> Needed {
        let blocks = session.runs.iter().map(|r| r.key.block + 1).max().unwrap_or(0);
        let mut needed = Needed::default();
        if blocks < 4 {
            needed.arms.add(&session.header.comparisons[0].place(), "t2");
        }
        needed
    }
}

fn looked_at<'a>(mut options: RunOptions<'a>) -> RunOptions<'a> {
    let rule = Sequential { claims: vec!["c".into()], looks: vec![2, 4, 6], scaled: Vec::new() };
    options.overrides.blocks = Some(6);
    options.overrides.experiments = vec!["x".into()];
    options.sequential = Some((rule, &Fixed));
    options.resume = true;
    options
}

#[test]
fn a_sequential_session_runs_only_what_its_looks_leave() {
    let three = study(&TWO_ARMS.replace("n = [1, 2] }", "n = [1, 2, 3] }"));
    let whole = Bench::new();
    let run =
        run_study(&three, &whole.subject, &whole.store(), &looked_at(whole.silent())).unwrap();
    let blocks = |session: &Session, arm| of(session, arm).len();
    let session = run.session;
    assert_eq!(session.end.as_ref().map(|e| e.reason), Some(EndReason::Decided));
    assert_eq!(session.end.as_ref().map(|e| e.blocks_dropped), Some(2));
    // The arm that runs twice stays, because it shows the noise.
    for (arm, count) in [("t1", 4), ("t1 (again)", 4), ("t2", 4), ("t3", 2)] {
        assert_eq!(blocks(&session, arm), count, "{arm}");
    }
    let keys =
        |session: &Session| -> Vec<u32> { session.runs.iter().map(|r| r.key.position).collect() };
    // Stopped twice, it makes the same runs in the same order.
    let bench = Bench::new();
    let store = bench.store();
    for after in [5, 6] {
        let flag = AtomicBool::new(false);
        let listener = StopAfter(after, Mutex::new(0), &flag);
        let mut options = looked_at(bench.options(&listener));
        options.stop = &flag;
        assert!(run_study(&three, &bench.subject, &store, &options).unwrap().interrupted);
    }
    let last = run_study(&three, &bench.subject, &store, &looked_at(bench.silent())).unwrap();
    assert_eq!(keys(&last.session), keys(&session));
    assert_eq!(bench.started(), session.runs.len());
    // Runs after the last look do not count.
    let mut cut = session.clone();
    cut.runs.retain(|r| r.key.block < 3);
    at_looks(&mut cut);
    assert_eq!(cut.runs.iter().map(|r| r.key.block).max(), Some(1));
    // Before the first look, the open block does not count.
    let mut early = session.clone();
    early.header.sequential.as_mut().unwrap().looks = vec![12];
    early.runs.retain(|r| r.key.block == 0 || (r.key.block == 1 && r.key.arm == "t1"));
    at_looks(&mut early);
    assert_eq!(early.runs.iter().map(|r| r.key.block).max(), Some(0));
    let mut all = session.clone();
    at_looks(&mut all);
    assert_eq!(all.runs.len(), session.runs.len());
}

#[test]
fn a_selection_plans_only_its_arms() {
    let bench = Bench::new();
    let mut options = bench.silent();
    let all = plan(&study(TWO_ARMS), &options).unwrap();
    let mut select = Selection::default();
    select.add(&all.comparisons[0].place(), "t2");
    options.overrides.select = Some(select);
    let planned = plan(&study(TWO_ARMS), &options).unwrap();
    let names: BTreeSet<&str> =
        planned.comparisons.iter().flat_map(|c| &c.arms).map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["t2", "t2 (again)"]));
}
