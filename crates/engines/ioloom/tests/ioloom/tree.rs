//! Trees: what is found, what is skipped and counted, and what fails.

use crate::support::{NEVER, guarded, roots};
use ioloom::{Cause, Error, Files, Links, OnError, Order, Tree, Walked};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than the walk of a small tree takes on a busy disk.
const LONG: Duration = Duration::from_secs(600);

/// A tree with everything that a walk may meet.
fn sample() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["a/b/c", ".hid", "a/target"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    for name in ["one", "a/two", "a/b/three", "a/b/c/four", ".hid/five", "a/.six", "a/target/seven"]
    {
        std::fs::write(at(name), name).unwrap();
    }
    std::fs::write(at("a/.ignore"), "target/\n").unwrap();
    symlink("one", at("link")).unwrap();
    symlink("..", at("a/loop")).unwrap();
    symlink("nowhere", at("broken")).unwrap();
    std::fs::create_dir_all(at("../other-of-sample")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    dir
}

fn names(files: Files<'_, Tree>, root: &Path) -> (Vec<String>, Walked) {
    let run = files.map(|f| f.path().to_owned()).run().unwrap();
    let mut names: Vec<String> = run
        .value
        .iter()
        .map(|path| path.strip_prefix(root).unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    (names, run.walked.unwrap())
}

const ALL: [&str; 8] = [
    ".hid/five",
    "a/.ignore",
    "a/.six",
    "a/b/c/four",
    "a/b/three",
    "a/target/seven",
    "a/two",
    "one",
];

#[test]
fn every_regular_file_is_found_and_the_rest_is_counted() {
    let dir = sample();
    let root = dir.path();
    for sorted in [false, true] {
        let (found, walked) = names(ioloom::tree(root).sorted(sorted), root);
        assert_eq!(found, ALL);
        assert_eq!((walked.files, walked.directories), (8, 6));
        assert_eq!((walked.links, walked.special, walked.failed), (3, 1, 0), "{walked:?}");
    }
    let (found, walked) = names(ioloom::tree(root).skip_hidden(true), root);
    assert_eq!(found, ["a/b/c/four", "a/b/three", "a/target/seven", "a/two", "one"]);
    assert_eq!(walked.hidden, 3);
    let (found, walked) = names(ioloom::tree(root).ignore_files(true), root);
    assert!(!found.iter().any(|name| name.starts_with("a/target")) && found.len() == 7);
    assert_eq!(walked.ignored, 1);
    let (found, walked) = names(ioloom::tree(root).max_depth(2), root);
    assert_eq!(found, [".hid/five", "a/.ignore", "a/.six", "a/two", "one"]);
    assert_eq!(walked.deep, 2);
    let only = |e: &ioloom::TreeEntry<'_>| e.file_name() != "b" && !e.path().ends_with("a/two");
    let (found, walked) = names(ioloom::tree(root).filter_entry(only), root);
    assert_eq!(found, [".hid/five", "a/.ignore", "a/.six", "a/target/seven", "one"]);
    assert_eq!(walked.filtered, 2);
}

#[test]
fn ignore_rules_above_a_root_apply_whatever_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for inner in [".git", "sub/deep"] {
        fs::create_dir_all(root.join(inner)).unwrap();
    }
    fs::write(root.join(".gitignore"), "/sub/anchored\nsub/deep/*.o\n*.log\n").unwrap();
    for name in ["anchored", "kept", "x.log", "deep/x.o", "deep/kept"] {
        fs::write(root.join("sub").join(name), "x").unwrap();
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    symlink(root.join("sub"), &link).unwrap();
    for start in [root.join("sub"), root.join("sub/deep/.."), root.join("./sub/."), link] {
        let (found, walked) = names(ioloom::tree(&start).ignore_files(true), &start);
        assert_eq!(found, ["deep/kept", "kept"], "{}", start.display());
        assert_eq!(walked.ignored, 3, "{}", start.display());
    }
}

#[test]
fn links_are_followed_on_request_and_loops_end() {
    let dir = sample();
    let root = dir.path();
    let (found, walked) = names(ioloom::tree(root).links(Links::Files), root);
    assert_eq!(found.len(), 9, "{found:?}");
    assert!(found.contains(&"link".to_owned()));
    assert_eq!(walked.links, 2, "a link to a directory and a broken one");
    let (found, walked) = names(ioloom::tree(root).links(Links::All), root);
    assert_eq!((found.len(), walked.loops), (9, 1), "{found:?}");
    // A filter that selects files keeps what links to directories lead to.
    symlink("b", root.join("a/linked")).unwrap();
    let four = |e: &ioloom::TreeEntry<'_>| {
        let name = e.file_name().to_str().unwrap();
        assert_eq!(e.is_symlink(), ["link", "loop", "broken", "linked"].contains(&name), "{name}");
        e.is_dir() || e.file_name() == "four"
    };
    let (found, _) = names(ioloom::tree(root).links(Links::All).filter_entry(four), root);
    assert_eq!(found, ["a/b/c/four", "a/linked/c/four"]);
    let (found, _) = names(ioloom::tree(root).links(Links::Skip).filter_entry(four), root);
    assert_eq!(found, ["a/b/c/four"]);
    // A root that is a link is followed.
    symlink("a", root.join("root")).unwrap();
    let (found, _) = names(ioloom::tree(root.join("root")).max_depth(1), &root.join("root"));
    assert_eq!(found, [".ignore", ".six", "two"]);
}

/// A target may be on a server that does not answer.
#[test]
fn targets_of_links_are_queried_when_the_filter_asks() {
    let dir = tempfile::tempdir().unwrap();
    symlink("made", dir.path().join("link")).unwrap();
    let made = dir.path().join("made");
    let filter = move |entry: &ioloom::TreeEntry<'_>| {
        if entry.file_name() == "link" {
            fs::create_dir(&made).unwrap();
            assert!(entry.is_dir());
        }
        true
    };
    let files = ioloom::tree(dir.path()).links(Links::All).filter_entry(filter);
    let walked = files.map(|f| f.len()).run().unwrap().walked.unwrap();
    assert!(walked.directories >= 2, "{walked:?}");
}

#[test]
fn several_roots_single_files_and_other_file_systems() {
    let dir = sample();
    let root = dir.path();
    let files = ioloom::tree(root.join("a/b")).root(root.join("one")).root(root.join(".hid"));
    let (found, _) = names(files.skip_hidden(true), root);
    assert_eq!(found, [".hid/five", "a/b/c/four", "a/b/three", "one"], "roots are not filtered");
    let (found, _) = names(ioloom::trees([root.join("one")]).max_depth(0), root);
    assert_eq!(found, ["one"]);
    if Path::new("/dev/shm").is_dir() {
        let run = ioloom::tree("/dev").same_file_system(true).on_error(OnError::Skip);
        let run = run.filter_entry(|e| e.depth() == 1).map(|f| f.path().to_owned()).run().unwrap();
        assert!(run.walked.unwrap().foreign >= 1, "{:?}", run.walked);
        assert!(!run.value.iter().any(|path| path.starts_with("/dev/shm")));
    } else {
        eprintln!("skipped: no /dev/shm");
    }
}

#[test]
fn a_root_that_cannot_be_walked_is_a_failure_like_others() {
    let dir = sample();
    let (missing, socket) = (dir.path().join("missing"), dir.path().join("socket"));
    for (root, number) in [(&missing, Some(2)), (&socket, None)] {
        match ioloom::tree(root).map(|f| f.len()).run() {
            Err(Error::File(error)) => {
                let Cause::Walk(cause) = &error.cause else { panic!("{error:?}") };
                assert_eq!((&error.path, cause.raw_os_error()), (root, number));
            }
            other => panic!("{other:?}"),
        }
    }
    let files = || ioloom::tree(dir.path()).root(&missing).sorted(true);
    let run = files().on_error(OnError::Collect).map(|f| f.len()).run().unwrap();
    assert_eq!((run.value.len(), run.failed, run.errors.len()), (8, 1, 1));
    assert!(matches!(run.errors[0].cause, Cause::Walk(_)), "{:?}", run.errors);
    assert_eq!(run.walked.unwrap().failed, 1);
    let run = files().on_error(OnError::Skip).map(|f| f.len()).run().unwrap();
    assert_eq!((run.value.len(), run.failed), (8, 1));
    let failed = files().map(|f| f.len()).scope(|results| results.filter(Result::is_err).count());
    assert_eq!(failed.unwrap().value, 1);
}

#[test]
fn failures_of_the_walk_do_not_count_as_files_that_are_taken() {
    let dir = sample();
    let missing: Vec<PathBuf> = (0..12).map(|n| dir.path().join(format!("missing{n}"))).collect();
    for (order, sorted) in [(Order::Any, false), (Order::Any, true), (Order::Input, true)] {
        for (files, taken) in [(3, 3), (8, 8), (100, 8)] {
            let roots = missing.iter().map(PathBuf::as_path).chain([dir.path()]);
            let run = ioloom::trees(roots).sorted(sorted).order(order).on_error(OnError::Collect);
            let run = run.take(files).map(|f| f.index()).run().unwrap();
            assert_eq!(run.value.len(), taken, "{files} files, sorted {sorted}");
            if sorted {
                let mut failed: Vec<_> = run.errors.iter().map(|error| error.index).collect();
                failed.sort_unstable();
                assert_eq!(failed, (0..12).collect::<Vec<_>>(), "before all files");
                assert_eq!(run.value.iter().max(), Some(&(12 + taken - 1)));
            }
        }
    }
}

/// Run in a child as a plain user, because root may read every directory.
#[test]
fn one_unreadable_directory_fails_alone() {
    let dir = sample();
    let closed = dir.path().join("a/b");
    let mode = |mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0);
    if std::fs::read_dir(&closed).is_ok() {
        mode(0o700);
        return eprintln!("skipped: this user may read every directory");
    }
    let run = ioloom::tree(dir.path()).on_error(OnError::Collect).map(|f| f.len()).run().unwrap();
    mode(0o700);
    assert_eq!((run.value.len(), run.failed), (6, 1));
    let Cause::Walk(cause) = &run.errors[0].cause else { panic!("{:?}", run.errors) };
    assert_eq!((&run.errors[0].path, cause.raw_os_error()), (&closed, Some(13)));
}

/// The walk is lazy, and an early end stops it.
#[test]
fn the_first_file_is_processed_before_the_walk_has_ended() {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    for i in 0..300 {
        let sub = dir.path().join(format!("{i}"));
        std::fs::create_dir(&sub).unwrap();
        for j in 0..40 {
            std::fs::write(sub.join(format!("{j}")), "x").unwrap();
        }
    }
    let root: PathBuf = dir.path().to_owned();
    guarded("lazy".to_owned(), move || {
        // The filter holds the walk back until the first file was processed: a walk that ran to
        // its end before the first read would wait here for ever.
        let (processed, entered) = (std::sync::Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let seen = processed.clone();
        let run = ioloom::tree(&root)
            .filter_entry(move |entry| {
                while entry.is_dir()
                    && entered.load(Ordering::SeqCst) > 20
                    && seen.load(Ordering::SeqCst) == 0
                {
                    std::thread::yield_now();
                }
                entered.fetch_add(usize::from(!entry.is_dir()), Ordering::SeqCst);
                true
            })
            .map(|_| processed.fetch_add(1, Ordering::SeqCst));
        assert_eq!(run.run().unwrap().value.len(), 12_000);
        let run = ioloom::tree(&root).map(|f| f.len()).scope(|results| results.take(3).count());
        let run = run.unwrap();
        assert!(run.stopped && run.value == 3);
        assert!(run.walked.unwrap().files <= 12_000);
        let panicked = std::panic::catch_unwind(|| {
            ioloom::tree(&root).filter_entry(|_| panic!("filter")).map(|f| f.len()).run().map(drop)
        });
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"filter"));
    });
}

#[test]
fn a_tree_that_is_walked_ahead_is_a_list_with_a_known_length() {
    let dir = sample();
    let root = dir.path();
    for (ahead, known) in [(LONG, true), (Duration::from_nanos(1), false)] {
        let totals = Mutex::new(Vec::new());
        let files = ioloom::tree(root).walk_ahead(ahead).threads(1);
        let run = files
            .progress(|p| totals.lock().unwrap().push((p.files, p.files_found, p.files_total)))
            // Longer than two reports of progress.
            .map(|f| {
                std::thread::sleep(Duration::from_millis(60));
                (f.index(), f.path().to_owned())
            })
            .run()
            .unwrap();
        let totals = totals.into_inner().unwrap();
        assert_eq!((run.value.len(), run.walked.unwrap().files), (8, 8));
        assert!(!totals.is_empty() && totals.iter().all(|(done, found, _)| done <= found));
        assert_eq!(totals.last().unwrap().2, Some(8), "{totals:?}");
        if known {
            assert!(totals.iter().all(|(_, found, total)| (*found, *total) == (8, Some(8))));
            let mut indexes: Vec<usize> = run.value.iter().map(|(index, _)| *index).collect();
            indexes.sort_unstable();
            assert!(indexes.into_iter().eq(0..8), "each file has its own position");
            let files = ioloom::tree(root).walk_ahead(ahead);
            let paths = files.map(|f| f.path().to_owned()).collect().unwrap();
            assert!(paths.is_sorted(), "results in input order are in the order of paths");
        }
    }
    // A failure of the walk is passed on, whenever it happens.
    let missing = root.join("missing");
    for ahead in [LONG, Duration::from_nanos(1)] {
        let files = ioloom::trees([root, &missing]).walk_ahead(ahead).on_error(OnError::Collect);
        let run = files.map(|f| f.len()).run().unwrap();
        assert_eq!((run.value.len(), run.failed), (8, 1));
        assert_eq!(run.errors[0].path, missing);
    }
}

/// The clock cannot represent its end.
#[test]
fn a_tree_may_be_walked_ahead_without_a_limit() {
    let run = ioloom::tree("src").walk_ahead(Duration::MAX).map(|f| f.len()).run().unwrap();
    assert_eq!(run.value.len() as u64, run.walked.unwrap().files);
}

#[test]
fn a_walk_knows_the_inodes_of_its_files() {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    for i in 0..300 {
        std::fs::write(dir.path().join(format!("{}", (i * 7) % 300)), "x").unwrap();
    }
    let seen = Mutex::new(Vec::new());
    let files = ioloom::tree(dir.path()).walk_ahead(LONG);
    let plan = "read/threads:n=1/order=inode".parse().unwrap();
    let run = files.into_files().pin(plan).for_each(|f| {
        seen.lock().unwrap().push(std::fs::metadata(f.path()).unwrap().ino());
    });
    run.unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.len() == 300 && seen.is_sorted(), "{seen:?}");
    let found = ioloom::tree(dir.path()).walk().files;
    assert!((0..300).all(|index| found.inode(index).is_some()));
}

#[test]
fn a_run_that_ends_early_says_what_it_has_walked() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..300 {
        std::fs::create_dir(dir.path().join(n.to_string())).unwrap();
        std::fs::write(dir.path().join(n.to_string()).join("f"), "x").unwrap();
    }
    let run = ioloom::tree(dir.path()).map(|f| f.len()).take_results(1).unwrap();
    let walked = run.walked.unwrap();
    assert!(run.stopped && walked.files > 0 && walked.directories > 0, "{walked:?}");
}

/// What was skipped in directories without files is counted, even if the walk then waits.
#[test]
fn a_run_that_ends_during_the_walk_has_the_counts_of_all_directories_before() {
    static WAITS: AtomicUsize = AtomicUsize::new(0);
    static RUN_ENDED: AtomicUsize = AtomicUsize::new(0);
    let until = |flag: &AtomicUsize| {
        while flag.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("skipped/waits")).unwrap();
    for name in ["first", "skipped/.hidden", "skipped/waits/last"] {
        std::fs::write(dir.path().join(name), "x").unwrap();
    }
    let files = ioloom::tree(dir.path()).skip_hidden(true).filter_entry(move |entry| {
        if entry.file_name() == "last" {
            WAITS.store(1, Ordering::SeqCst);
            until(&RUN_ENDED);
        }
        true
    });
    let read = |file: &ioloom::File<'_>| {
        until(&WAITS);
        file.len()
    };
    let run = files.map(read).take_results(1).unwrap();
    RUN_ENDED.store(1, Ordering::SeqCst);
    assert_eq!(run.walked.unwrap().hidden, 1);
}

#[test]
fn a_list_of_a_walk_that_has_begun_is_complete() {
    for ahead_ms in [0, 5000] {
        let mut files = ioloom::tree("src").walk_ahead(std::time::Duration::from_millis(ahead_ms));
        let _ = files.known_paths();
        let found = files.walk();
        assert!(found.errors.is_empty());
        assert_eq!(found.files.len() as u64, found.walked.files);
        assert!(found.files.len() > 10);
    }
    assert_eq!(ioloom::tree("src").take(3).walk().files.len(), 3);
}

/// Each directory delays the walk, and is found in the one before it. Half of them wait for the cancel.
#[test]
fn a_list_of_a_walk_that_has_begun_ends_when_it_is_cancelled() {
    let dir = tempfile::tempdir_in(&roots()[0]).unwrap();
    let mut deepest = dir.path().to_owned();
    for _ in 0..200 {
        deepest.push("d");
        fs::create_dir(&deepest).unwrap();
        fs::write(deepest.join("f"), "x").unwrap();
    }
    let token = ioloom::Cancel::new();
    let cancelled = token.clone();
    // A walk that is never cancelled fails below, and does not hang.
    let hang = Instant::now() + NEVER;
    let slow = move |entry: &ioloom::TreeEntry<'_>| {
        if entry.is_dir() {
            let is_deep = entry.depth() > 100;
            while is_deep && !cancelled.is_cancelled() && Instant::now() < hang {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(if is_deep { 100 } else { 10 }));
        }
        true
    };
    let files = ioloom::tree(dir.path()).filter_entry(slow).walk_ahead(Duration::from_nanos(1));
    let mut files = files.cancel(&token);
    assert!(files.known_paths().is_none());
    token.cancel();
    let found = files.walk();
    assert!(found.cancelled && found.files.len() < 200, "{} files", found.files.len());
}

/// A sorted tree is walked as a whole, so its paths are known before the run.
#[test]
fn the_paths_of_a_sorted_tree_are_known() {
    let mut files = ioloom::tree("src").sorted(true);
    let known = files.known_paths().unwrap();
    let all: Vec<_> = known.iter().collect();
    assert!(all.len() > 10 && all.is_sorted());
    let run = files.map(|f| (f.index(), f.path().to_owned())).run().unwrap();
    assert_eq!(run.value.len(), known.len());
    assert!(run.value.iter().all(|(index, path)| known.path(*index) == path));
}

/// The positions that a caller knows would change.
#[test]
fn settings_of_a_walk_that_has_ended_are_refused() {
    for sorted in [false, true] {
        let known = || {
            let mut files = ioloom::tree("src").walk_ahead(LONG).sorted(sorted);
            assert!(files.known_paths().is_some());
            files
        };
        let run = known().skip_hidden(true).map(|f| f.len()).run();
        match run {
            Err(Error::Refused(reason)) => assert!(reason.contains("known_paths"), "{reason}"),
            other => panic!("{other:?}"),
        }
        let found = known().root("tests").walk();
        assert!(found.files.is_empty());
        assert!(found.errors[0].to_string().starts_with("cannot walk 'src': "), "{found:?}");
        assert!(known().map(|f| f.len()).run().is_ok());
    }
}

#[test]
fn sorted_files_are_in_the_order_of_the_bytes_of_their_paths() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["a-b/x", "a.txt", "a/x", "a0/x"].map(|name| dir.path().join(name));
    for name in &names {
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        fs::write(name, "x").unwrap();
    }
    let sorted = ioloom::tree(dir.path()).sorted(true).map(|f| f.path().to_owned());
    assert_eq!(sorted.collect().unwrap(), names);
    let walked = ioloom::tree(dir.path()).walk().files;
    assert_eq!(walked.len(), names.len());
    assert!((0..names.len()).all(|index| walked.path(index) == names[index]));
}
