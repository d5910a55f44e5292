//! The store, its index and exports.

use crate::bench::{Bench, TWO_ARMS, study};
use ioloom_lab::export::{FILE_BYTES_MAX, export};
use ioloom_lab::store::{EndReason, Listing, Picture, Sequential, SessionHeader};
use ioloom_lab::{Index, RunFilter, Session, Store, StoreError, run_study};
use ioloom_model::record::Span;
use ioloom_model::{CallKind, Outcome, RunRecord};
use std::io::Write;
use std::path::PathBuf;

fn finished(bench: &Bench) -> (Session, PathBuf) {
    let store = bench.store();
    let run = run_study(&study(TWO_ARMS), &bench.subject, &store, &bench.silent()).unwrap();
    let path = store.files().unwrap().remove(0).path;
    (run.session, path)
}

fn append(path: &PathBuf, text: &[u8]) {
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text).unwrap();
}

#[test]
fn a_torn_last_line_is_ignored_and_removed_on_resume() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let store = bench.store();
    let name = session.header.session.clone();
    let whole = std::fs::read(&path).unwrap();
    let ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    // Truncate at many positions in the last two lines and in the middle: earlier runs remain.
    for cut in (ends[4]..whole.len()).step_by(97).chain([ends[5] - 1, ends[5], whole.len() - 1]) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let complete = ends.iter().filter(|e| **e <= cut).count();
        let read = store.read(&name).unwrap();
        assert_eq!(read.runs[..], session.runs[..(complete - 1).min(9)], "cut at {cut}");
        let torn = cut - ends[complete - 1];
        assert_eq!(read.torn_bytes, torn as u64);
        drop(store.reopen(&name).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len() as usize, ends[complete - 1]);
    }
    // A power failure can leave zeros followed by a newline.
    std::fs::write(&path, &whole[..ends[5]]).unwrap();
    append(&path, b"\0\0\0\0\n");
    let (mut writer, read) = store.reopen(&name).unwrap();
    assert_eq!((read.runs.len(), read.torn_bytes), (5, 5));
    writer.append(&session.runs[5]).unwrap();
    drop(writer);
    assert_eq!(store.read(&name).unwrap().runs[..], session.runs[..6]);
    // Zeros can replace a part of the line. A line without them has been changed by another program.
    std::fs::write(&path, &whole[..ends[5]]).unwrap();
    append(&path, b"{\"run\":{\"schema\":1,\0\0\0\0\n");
    assert_eq!(store.read(&name).unwrap().torn_bytes, 24);
    std::fs::write(&path, &whole[..ends[5]]).unwrap();
    append(&path, b"{\"run\":{\"schema\":1,\n");
    let error = store.read(&name).unwrap_err();
    assert!(matches!(error, StoreError::Line { line: 7, .. }), "{error}");
    assert!(store.reopen(&name).is_err(), "a damaged line must not be removed");
    // A file without a complete header is not a session.
    std::fs::write(&path, &whole[..ends[0] - 1]).unwrap();
    assert!(store.files().unwrap().is_empty());
    assert!(matches!(store.read(&name), Err(StoreError::NoSession { .. })));
}

#[test]
fn lost_lines_of_sessions_that_end_early_are_found() {
    let bench = Bench::new();
    let (session, _) = finished(&bench);
    let blocks: Vec<u32> = session.header.order.iter().map(|slot| slot.2).collect();
    assert!(blocks.is_sorted() && blocks.last() == Some(&2), "{blocks:?}");
    let lacking = |reason: EndReason, looks: Option<&[u32]>, lost: &[u32]| {
        let mut session = session.clone();
        session.end.as_mut().unwrap().reason = reason;
        session.header.sequential = looks.map(|looks| Sequential {
            claims: Vec::new(),
            looks: looks.to_vec(),
            scaled: Vec::new(),
        });
        session.runs.retain(|run| !lost.contains(&run.key.position));
        session.missing()
    };
    // A budget ends the list at any run, but leaves out none before.
    assert_eq!(lacking(EndReason::Budget, None, &[4, 7, 8]), [4]);
    assert!(lacking(EndReason::Budget, None, &[6, 7, 8]).is_empty());
    let of_first_arm = session.header.order.iter().zip(0_u32..).filter(|(slot, _)| {
        let first = &session.header.order[0];
        (slot.0, slot.1) == (first.0, first.1)
    });
    let arm: Vec<u32> = of_first_arm.map(|(_, position)| position).collect();
    assert_eq!(arm.len(), 3, "one run in each block");
    for reason in [EndReason::Decided, EndReason::Finished] {
        let lacking = |looks: &[u32], lost: &[u32]| lacking(reason, Some(looks), lost);
        assert_eq!(lacking(&[3], &arm[1..2]), arm[1..2]);
        assert_eq!(lacking(&[2], &arm[..1]), arm[..1]);
        assert!(lacking(&[1], &arm[1..]).is_empty(), "left out after the first look");
        assert!(lacking(&[1, 2], &arm[1..2]).is_empty(), "needed again at the second look");
    }
}

#[test]
fn foreign_lines_and_newer_formats_are_clear_errors() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let name = session.header.session.clone();
    let store = bench.store();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut broken = lines.clone();
    broken[3] = "{\"run\":7}";
    std::fs::write(&path, broken.join("\n") + "\n").unwrap();
    let error = store.read(&name).unwrap_err().to_string();
    assert!(error.contains("line 4"), "{error}");
    for (line, from, to) in [
        (0, "{\"session\":{\"schema\":1,", "{\"session\":{\"schema\":2,"),
        (2, "{\"run\":{\"schema\":1,", "{\"run\":{\"schema\":9,\"plan\":3,"),
    ] {
        let mut newer: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
        newer[line] = newer[line].replacen(from, to, 1);
        assert_ne!(newer[line], lines[line]);
        std::fs::write(&path, newer.join("\n") + "\n").unwrap();
        let error = store.read(&name).unwrap_err();
        assert!(matches!(error, StoreError::Newer { .. }), "{error}");
        assert!(error.to_string().contains("newer ioloom"), "{error}");
    }
}

#[test]
fn runs_that_are_missing_or_not_planned_are_found() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let name = session.header.session.clone();
    let store = bench.store();
    assert!(session.missing().is_empty() && session.lost_runs().is_empty());
    let text = std::fs::read_to_string(&path).unwrap();
    let position = "\"position\":4,";
    let is_lost = |line: &str| line.starts_with("{\"run\":") && line.contains(position);
    let kept: Vec<&str> = text.lines().filter(|line| !is_lost(line)).collect();
    std::fs::write(&path, kept.join("\n") + "\n").unwrap();
    let read = store.read(&name).unwrap();
    assert_eq!(read.missing(), [4]);
    let lost = read.lost_runs();
    assert_eq!((lost.len(), &lost[0].key), (1, &session.runs[4].key));
    assert!(matches!(lost[0].outcome, Outcome::Failed { .. }));
    let changes: [fn(&mut RunRecord); 4] = [
        |run| run.key.session.push('x'),
        |run| run.key.arm.push('x'),
        |run| run.key.block += 1,
        |run| run.key.position = 99,
    ];
    for change in changes {
        let mut run = session.runs[0].clone();
        change(&mut run);
        let line = serde_json::json!({"run": run}).to_string();
        let lines = text.lines().next().map(|header| format!("{header}\n{line}\n")).unwrap();
        std::fs::write(&path, lines).unwrap();
        let error = store.read(&name).unwrap_err();
        assert!(matches!(error, StoreError::Line { .. }), "{error}");
    }
    // A kill leaves the beginning of a header, not zeros.
    std::fs::write(&path, [0; 100]).unwrap();
    let listing = store.list().unwrap();
    let [error @ StoreError::Line { line: 1, .. }] = &listing.errors[..] else {
        panic!("{:?}", listing.errors)
    };
    assert!(error.to_string().contains("no header"), "{error}");
}

#[test]
fn a_damaged_session_leaves_the_others_readable() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let store = bench.store();
    let text = std::fs::read_to_string(&path).unwrap();
    let damage = |name: &str, from: &str, to: &str| {
        let text = text.replace(&session.header.session, name).replacen(from, to, 1);
        std::fs::write(path.with_file_name(format!("{name}.jsonl")), text).unwrap();
    };
    damage("newer", "{\"session\":{\"schema\":1,", "{\"session\":{\"schema\":2,");
    damage("headless", "{\"session\":", "{\"sess\":");
    damage("inner", "{\"run\":{\"schema\":1,", "{\"run\":{");
    let listing = store.list().unwrap();
    let names: Vec<_> = listing.files.iter().map(|f| f.header.session.clone()).collect();
    assert_eq!(names, ["inner".to_owned(), session.header.session.clone()]);
    let is_of = |error: &StoreError, name: &str| error.path().ends_with(format!("{name}.jsonl"));
    let of = |errors: &[StoreError], names: &[&str]| {
        let found = errors.iter().zip(names).all(|(error, name)| is_of(error, name));
        assert!(found && errors.len() == names.len(), "{errors:?}");
    };
    of(&listing.errors, &["headless", "newer"]);
    assert_eq!(store.read(&session.header.session).unwrap(), session);
    for name in ["headless", "newer", "inner"] {
        assert!(is_of(&store.read(name).unwrap_err(), name), "{name}");
    }
    assert!(matches!(store.read("absent"), Err(StoreError::NoSession { .. })));
    // A second index finds the same, though the first one exists.
    for _ in 0..2 {
        let index = Index::open(&store).unwrap();
        of(index.unreadable(), &["headless", "newer", "inner"]);
        assert_eq!(index.sessions().unwrap().len(), 1);
        assert_eq!(index.runs(&RunFilter::default()).unwrap(), session.runs);
    }
    // Without a part, an export would be incomplete.
    let dest = bench.dir.join("kept");
    std::fs::create_dir(&dest).unwrap();
    let other = text.replace(&session.header.session, "s").replacen("{\"session\":", "{", 1);
    std::fs::write(dest.join("s.jsonl"), text.replace(&session.header.session, "s")).unwrap();
    std::fs::write(dest.join("s.part1.jsonl"), other).unwrap();
    let error = Store::open_to_read(&dest).unwrap().read("s").unwrap_err();
    assert!(is_of(&error, "s.part1"), "{error}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn a_file_of_anything_is_an_error_or_nothing_but_no_panic(bytes: Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("sessions/x.jsonl"), &bytes).unwrap();
        proptest::prop_assert!(store.read("x").is_err());
        if let Ok(files) = store.files() {
            proptest::prop_assert!(files.is_empty());
        }
    }
}

#[test]
fn one_session_has_one_writer() {
    let bench = Bench::new();
    let (session, _) = finished(&bench);
    let store = bench.store();
    let (_writer, _) = store.reopen(&session.header.session).unwrap();
    let error = store.reopen(&session.header.session).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    let error = store.reopen("missing").unwrap_err();
    assert!(error.to_string().contains("no session 'missing'"), "{error}");
}

#[test]
fn a_damaged_index_is_rebuilt() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let store = bench.store();
    let file = bench.dir.join("store/index.sqlite");
    let all =
        |index: &Index| (index.sessions().unwrap(), index.runs(&RunFilter::default()).unwrap());
    let first = all(&Index::open(&store).unwrap());
    assert_eq!(first.1, session.runs);
    assert_eq!((first.0.len(), first.0[0].runs_done, first.0[0].ended), (1, 9, true));
    // A damaged, missing or partial index is rebuilt.
    let mut damaged = std::fs::read(&file).unwrap();
    damaged[100..].fill(b'x');
    std::fs::write(&file, &damaged).unwrap();
    assert_eq!(all(&Index::open(&store).unwrap()), first);
    assert_ne!(std::fs::read(&file).unwrap(), damaged);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(all(&Index::open(&store).unwrap()), first);
    // Files of others are neither changed nor deleted.
    std::fs::remove_file(&file).unwrap();
    let other = rusqlite::Connection::open(&file).unwrap();
    other
        .execute_batch("CREATE TABLE birds (name TEXT); INSERT INTO birds VALUES ('wren')")
        .unwrap();
    drop(other);
    let database = std::fs::read(&file).unwrap();
    for theirs in [database, b"no database, but long enough to look like one".repeat(50)] {
        std::fs::write(&file, &theirs).unwrap();
        let index = Index::open(&store).unwrap();
        assert_eq!((all(&index), index.is_file()), (first.clone(), false));
        assert!(Index::remove(&store).unwrap_err().to_string().contains("not an index"));
        assert_eq!(std::fs::read(&file).unwrap(), theirs);
    }
    std::fs::remove_file(&file).unwrap();
    // One that cannot be written is in memory, with the reason.
    std::os::unix::fs::symlink(bench.dir.join("missing/index.sqlite"), &file).unwrap();
    let index = Index::open(&store).unwrap();
    assert_eq!((all(&index), index.is_file()), (first.clone(), false));
    assert!(index.write_error().is_some());
    std::fs::remove_file(&file).unwrap();
    let index = Index::open(&store).unwrap();
    assert_eq!((index.is_file(), index.write_error()), (true, None));
    // The index detects a session that lost lines, and a new session.
    let text = std::fs::read_to_string(&path).unwrap();
    let less: Vec<&str> = text.lines().take(5).collect();
    std::fs::write(&path, less.join("\n") + "\n").unwrap();
    let index = Index::open(&store).unwrap();
    assert_eq!(index.runs(&RunFilter::default()).unwrap()[..], session.runs[..4]);
    assert!(!index.sessions().unwrap()[0].ended);
    run_study(&study(TWO_ARMS), &bench.subject, &store, &bench.silent()).unwrap();
    let index = Index::open(&store).unwrap();
    assert_eq!(index.sessions().unwrap().len(), 2);
    let filter = RunFilter {
        session: Some(session.header.session.clone()),
        arm: Some("t2".to_owned()),
        outcome: Some("done".to_owned()),
        ..RunFilter::default()
    };
    let wanted = session.runs[..4].iter().filter(|r| r.key.arm == "t2").count();
    assert_eq!(index.runs(&filter).unwrap().len(), wanted);
    // A deleted session is removed from the index.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(Index::open(&store).unwrap().sessions().unwrap().len(), 1);
}

#[test]
fn a_session_does_not_choose_where_files_are_written() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let store = bench.store();
    for (number, name) in
        ["", "../x", ".x", "a/b", "/tmp/x", "a\nb", "a\0", "\u{1b}[2J"].iter().enumerate()
    {
        for is_batch in [false, true] {
            let mut header = session.header.clone();
            match is_batch {
                true => header.batch = Some((*name).to_owned()),
                false => header.session = (*name).to_owned(),
            }
            let text = serde_json::json!({"session": header}).to_string() + "\n";
            let file = path.with_file_name(format!("other{number}.jsonl"));
            std::fs::write(&file, text).unwrap();
            let listing = store.list().unwrap();
            assert_eq!(listing.files.len(), 1, "{name:?}");
            let [error @ StoreError::Line { line: 1, .. }] = &listing.errors[..] else {
                panic!("{name:?}: {:?}", listing.errors)
            };
            assert!(!error.to_string().contains(char::is_control), "{error}");
            std::fs::remove_file(&file).unwrap();
        }
    }
    assert_eq!(store.read(&session.header.session).unwrap(), session);
}

/// Creates a long session: many large records under one header.
fn long_session(store: &Store, session: &Session) -> (SessionHeader, Vec<RunRecord>, Vec<Picture>) {
    let mut header = session.header.clone();
    header.session = "long".to_owned();
    header.order = vec![session.header.order[0]; 60];
    let (mut writer, header) = store.create(header).unwrap();
    let span = Span { kind: CallKind::Read, start_ns: 1, ns: 2, file: 3 };
    let mut runs = Vec::new();
    for position in 0..60 {
        let mut run = session.runs[0].clone();
        run.key.session = header.session.clone();
        run.key.position = position;
        let Outcome::Done { measured } = &mut run.outcome else { panic!() };
        measured.spans = vec![vec![span; 1000]];
        measured.in_flight = (0..10_000).map(|i| (i, 1)).collect();
        measured.digest = "d".repeat(40_000);
        writer.append(&run).unwrap();
        runs.push(run);
    }
    writer.note("resumed", 7).unwrap();
    let mut pictures = Vec::new();
    for (position, bytes) in [(0, 40_000), (1, FILE_BYTES_MAX)] {
        let mut record = runs[0].clone();
        record.key.position = position;
        let Outcome::Done { measured } = &mut record.outcome else { panic!() };
        measured.spans.clear();
        measured.digest = "d".repeat(bytes);
        let trace = Some("missing".to_owned());
        pictures.push(Picture { record, trace, trace_bytes: 1 });
        writer.append_picture(&pictures[position as usize]).unwrap();
    }
    (header, runs, pictures)
}

#[test]
fn exports_are_small_and_read_back_as_a_store() {
    let bench = Bench::new();
    let (session, _) = finished(&bench);
    let store = bench.store();
    let (header, runs, pictures) = long_session(&store, &session);
    append(&bench.dir.join("store/sessions/long.jsonl"), b"{\"run\"");
    let dest = bench.dir.join("kept");
    let names = [header.session.clone(), session.header.session.clone()];
    let exported = export(&store, &names, &dest).unwrap();
    let lacks = "long: left out the spans of 60 runs, points of long series of 60 runs, \
                 1 traced run above 1 MiB, 2 traces, a torn last line (6 bytes)";
    assert_eq!(
        exported.lacks,
        [lacks.to_owned(), format!("{}: left out the spans of 3 runs", names[1])]
    );
    let kept = exported.files;
    assert!(kept.len() > 3, "{kept:?}");
    assert_eq!(kept.iter().map(|k| k.runs).sum::<usize>(), 69);
    for file in &kept {
        let bytes = std::fs::metadata(&file.path).unwrap().len();
        assert!(bytes == file.bytes && bytes <= FILE_BYTES_MAX as u64, "{file:?}");
    }
    let exported = Store::open_to_read(&dest).unwrap();
    let mut without_timelines = session.clone();
    for run in &mut without_timelines.runs {
        let Outcome::Done { measured } = &mut run.outcome else { panic!() };
        measured.spans.clear();
    }
    assert!(exported.read(&names[1]).unwrap() == without_timelines);
    let back = exported.read("long").unwrap();
    assert_eq!(back.header, header);
    assert_eq!(back.runs.len(), 60);
    assert_eq!((back.notes.len(), &back.notes[0].text[..]), (1, "resumed"));
    assert_eq!(back.pictures[..], pictures[..1]);
    for (run, was) in back.runs.iter().zip(&runs) {
        let (m, w) = (run.measured().unwrap(), was.measured().unwrap());
        assert!(m.spans.is_empty() && m.in_flight.len() <= 64);
        assert_eq!(
            (m.in_flight.first(), m.in_flight.last()),
            (w.in_flight.first(), w.in_flight.last())
        );
        assert_eq!((&run.key, &m.digest), (&was.key, &w.digest));
    }
    let index = Index::open(&exported).unwrap();
    assert_eq!(index.runs(&RunFilter::default()).unwrap().len(), 69);
    assert_eq!(
        export(&store, &names, &dest).unwrap().files,
        kept,
        "exporting again should replace the \
        files"
    );
    // A leftover part of an earlier, longer export is ignored and removed by the next export.
    let parts = kept.iter().filter(|file| file.path.to_string_lossy().contains("long")).count();
    let stale = dest.join(format!("long.part{parts}.jsonl"));
    std::fs::copy(dest.join("long.part1.jsonl"), &stale).unwrap();
    assert_eq!(exported.read("long").unwrap(), back);
    assert_eq!(export(&store, &names, &dest).unwrap().files, kept);
    assert!(!stale.exists());
    assert!(Store::open_to_read(&bench.dir.join("nowhere")).is_err());
}

#[test]
fn an_export_names_runs_that_the_session_lacks() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.remove(5);
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let names = [session.header.session];
    let lacks = export(&bench.store(), &names, &bench.dir.join("kept")).unwrap().lacks;
    assert!(lacks[0].ends_with("1 planned run is missing from its file"), "{lacks:?}");
}

#[test]
fn a_list_of_runs_that_is_too_long_for_an_export_is_named() {
    let bench = Bench::new();
    let (session, _) = finished(&bench);
    let store = bench.store();
    let mut header = session.header;
    header.session = "wide".to_owned();
    header.order = vec![header.order[0]; 100_000];
    drop(store.create(header).unwrap());
    let names = ["wide".to_owned()];
    let error = export(&store, &names, &bench.dir.join("kept")).unwrap_err().to_string();
    let words = "the list of runs is too long for an export; copy the file of the session instead";
    assert!(error.ends_with(words), "{error}");
}

#[test]
fn an_export_does_not_replace_another_session_of_the_same_name() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let name = session.header.session.clone();
    let dest = bench.dir.join("kept");
    let exported = || export(&bench.store(), std::slice::from_ref(&name), &dest);
    let kept = exported().unwrap().files;
    let before = std::fs::read(&kept[0].path).unwrap();
    // The same second on another machine.
    let text = std::fs::read_to_string(&path).unwrap();
    let print = format!("\"fingerprint\":\"{}\"", session.header.machine.fingerprint);
    assert!(text.contains(&print));
    std::fs::write(&path, text.replace(&print, "\"fingerprint\":\"other\"")).unwrap();
    let error = exported().unwrap_err();
    assert!(matches!(&error, StoreError::Taken { path } if *path == kept[0].path), "{error}");
    assert_eq!(std::fs::read(&kept[0].path).unwrap(), before);
    std::fs::write(&path, text).unwrap();
    assert_eq!(exported().unwrap().files, kept);
    let names = std::fs::read_dir(&dest).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), kept.len(), "no temporary files");
}

#[test]
fn another_session_of_the_same_name_is_reported() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let store = bench.store();
    // A further file of the same session is not another one.
    std::fs::copy(&path, path.with_file_name("again.jsonl")).unwrap();
    assert!(Index::open(&store).unwrap().unreadable().is_empty());
    let text = std::fs::read_to_string(&path).unwrap();
    let start = |ms: u64| format!("\"started_unix_ms\":{ms}");
    let started = session.header.started_unix_ms;
    let later = text.replacen(&start(started), &start(started + 1), 1);
    assert_ne!(later, text);
    let other = path.with_file_name("other.jsonl");
    std::fs::write(&other, later).unwrap();
    // A second index finds the same, though the first one exists.
    for _ in 0..2 {
        let index = Index::open(&store).unwrap();
        let [StoreError::SameName { path: left_out, kept }] = index.unreadable() else {
            panic!("{:?}", index.unreadable())
        };
        assert_eq!((left_out, kept), (&other, &path));
        assert_eq!(index.runs(&RunFilter::default()).unwrap(), session.runs);
    }
    // The session of this store is read, also if another one is older.
    std::fs::remove_file(path.with_file_name("again.jsonl")).unwrap();
    let earlier = text.replacen(&start(started), &start(started - 1), 1);
    std::fs::write(&other, earlier).unwrap();
    let Listing { files, .. } = store.list().unwrap();
    assert_eq!((files.len(), &files[0].path), (2, &other));
    let errors = store.namesakes(&files);
    let left_out: Vec<_> = errors.iter().map(StoreError::path).collect();
    assert_eq!(left_out, [other.as_path()]);
    assert_eq!(store.read(&session.header.session).unwrap(), session);
}

#[test]
fn a_pipe_is_an_error_and_does_not_block() {
    let bench = Bench::new();
    let (session, path) = finished(&bench);
    let pipe = path.with_file_name("pipe.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let Listing { files, errors } = bench.store().list().unwrap();
    assert_eq!(files.len(), 1);
    assert!(errors.len() == 1 && errors[0].path() == pipe, "{errors:?}");
    assert!(errors[0].to_string().contains("a named pipe, not a regular file"), "{}", errors[0]);
    assert!(bench.store().read("pipe").is_err());
    let read = bench.store().read(&session.header.session).unwrap();
    assert_eq!(read.runs.len(), session.runs.len());
}

#[test]
fn a_lost_part_of_an_export_is_an_error() {
    let bench = Bench::new();
    let (session, _) = finished(&bench);
    let store = bench.store();
    let name = session.header.session.clone();
    let (header, ..) = long_session(&store, &session);
    let dest = bench.dir.join("kept");
    let kept = export(&store, &[header.session, name.clone()], &dest).unwrap().files;
    assert!(kept.len() > 3, "{kept:?}");
    let exported = Store::open_to_read(&dest).unwrap();
    let back = exported.read("long").unwrap();
    for (lost, part) in [("long.jsonl", 0), ("long.part1.jsonl", 1)] {
        let (file, aside) = (dest.join(lost), bench.dir.join("aside"));
        std::fs::rename(&file, &aside).unwrap();
        let error = exported.read("long").unwrap_err();
        assert!(matches!(&error, StoreError::NoPart { part: n, .. } if *n == part), "{error}");
        assert!(exported.read(&name).is_ok(), "another session");
        std::fs::rename(&aside, &file).unwrap();
    }
    assert_eq!(exported.read("long").unwrap(), back);
    // A torn line is the end of a session only in its last part.
    let last = kept.iter().filter(|f| f.path.to_string_lossy().contains("long")).count() - 1;
    for (part, is_error) in
        [("long.jsonl".to_owned(), true), (format!("long.part{last}.jsonl"), false)]
    {
        let file = dest.join(part);
        let text = std::fs::read(&file).unwrap();
        std::fs::write(&file, &text[..text.len() - 5]).unwrap();
        let read = exported.read("long");
        match is_error {
            true => assert!(matches!(read, Err(StoreError::Line { line: 2.., .. })), "{read:?}"),
            false => assert!(read.unwrap().torn_bytes > 0),
        }
        std::fs::write(&file, &text).unwrap();
    }
}
