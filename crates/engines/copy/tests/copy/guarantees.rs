//! The guarantees of the copier, except for content.

use crate::test_dir::TestDir;
use ioloom_copy::{
    CopyCounters, CopyError, CopyOptions, Durable, Existing, Follow, Mode, Preserve, Report,
    Silent, Target, Tuning, Verify, Watcher, When, copy,
};
use ioloom_sys::attr::Attr;
use ioloom_testbed::alone;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

fn run(sources: &[&Path], target: Target, options: &CopyOptions, watcher: &dyn Watcher) -> Report {
    let sources: Vec<PathBuf> = sources.iter().map(|path| path.to_path_buf()).collect();
    copy(&sources, &target, options, watcher, &CopyCounters::default()).unwrap()
}

fn one(from: &Path, to: &Path, options: &CopyOptions) -> Report {
    run(&[from], Target::Auto(to.to_owned()), options, &Silent)
}

fn messages(report: &Report) -> String {
    report.errors.iter().map(CopyError::to_string).collect::<Vec<_>>().join("\n")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut all: Vec<_> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// Modifies the source between open and read.
struct Meddler<F: Fn() + Sync>(F);

impl<F: Fn() + Sync> Watcher for Meddler<F> {
    fn may_replace(&self, _: &Path, _: &Attr) -> bool {
        (self.0)();
        true
    }
}

#[test]
fn a_source_that_changes_is_copied_in_part_or_refused() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let size = 70 << 20;
    type Meddle = fn(&File);
    let ways: [(Meddle, &str, u64); 3] = [
        (|f| f.set_len(1 << 20).unwrap(), "shrank", 1 << 20),
        (|f| f.set_len(80 << 20).unwrap(), "grew", 80 << 20),
        (|f| f.write_all_at(b"x", 5).unwrap(), "was modified", size),
    ];
    for (meddle, word, after) in ways {
        for strict_source in [true, false] {
            let options =
                CopyOptions { existing: Existing::Ask, strict_source, ..CopyOptions::default() };
            let source = File::create(&from).unwrap();
            source.set_len(size).unwrap();
            fs::write(&to, "old").unwrap();
            let meddler = Meddler(|| meddle(&source));
            let report = run(&[&from], Target::Auto(to.clone()), &options, &meddler);
            let text = messages(&report);
            if strict_source {
                assert_eq!(report.errors_count, 1, "{text}");
                assert!(text.contains(word), "{text}");
                assert_eq!(fs::read(&to).unwrap(), b"old");
            } else {
                // The second attempt finds a file that does not change.
                assert_eq!(report.errors_count, 0, "{text}");
                assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap());
                // Holes are not counted.
                let source = fs::metadata(&from).unwrap();
                assert_eq!((source.len(), report.bytes), (after, source.blocks() * 512));
            }
            assert_eq!(names(place.path()), ["from", "to"]);
        }
    }
}

/// A log file grows faster than it can be copied.
#[test]
fn a_source_that_always_grows_is_copied_up_to_its_size() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, vec![b'x'; 300_000]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let log = File::options().append(true).open(&from).unwrap();
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                io::Write::write_all(&mut &log, &[b'x'; 500]).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        for _ in 0..5 {
            let report = one(&from, &to, &CopyOptions::default());
            let text = messages(&report);
            assert!(report.errors_count == 0 || text.contains("while it was copied"), "{text}");
            let copied = fs::read(&to).unwrap();
            assert!(copied.len() >= 300_000 && copied.iter().all(|byte| *byte == b'x'));
            assert_eq!(report.bytes, copied.len() as u64);
            assert_eq!(report.counts.files, 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_small_source_that_changes_once_is_copied_again() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "before").unwrap();
    fs::write(&to, "old").unwrap();
    let meddler = Meddler(|| fs::write(&from, "longer than before").unwrap());
    let options = CopyOptions { existing: Existing::Ask, ..CopyOptions::default() };
    let report = run(&[&from], Target::Auto(to.clone()), &options, &meddler);
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert_eq!(fs::read(&to).unwrap(), b"longer than before");
}

/// As in the published program: 64 KiB requests, four in flight, a growing target, and a padded
/// last block that is truncated.
#[test]
fn tuning_values_do_not_change_the_bytes() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let bytes: Vec<u8> = (0..5_000_001u32).map(|i| (i >> 8) as u8 ^ i as u8).collect();
    fs::write(&from, &bytes).unwrap();
    // The last half mebibyte is a hole: it is not written, but the size must be correct.
    let holed = place.path().join("holed");
    fs::write(&holed, &bytes).unwrap();
    File::options().write(true).open(&holed).unwrap().set_len(5_500_001).unwrap();
    let tuning =
        Tuning { block_bytes: Some(64 << 10), depth: Some(4), threads: Some(1), extends: true };
    for mode in [Mode::Direct, Mode::Buffered, Mode::Uncached, Mode::Range] {
        let options = CopyOptions { mode: Some(mode), tuning, ..CopyOptions::default() };
        for (source, size) in [(&from, 5_000_001), (&holed, 5_500_001)] {
            let report = one(source, &to, &options);
            if let Some(why) = messages(&report).split_once("cannot be used here") {
                println!("skipped: {mode}{}", why.1);
                continue;
            }
            assert_eq!(report.errors_count, 0, "{mode}: {}", messages(&report));
            let copied = fs::read(&to).unwrap();
            assert_eq!(copied.len(), size, "{mode}");
            assert!(copied[..bytes.len()] == bytes[..], "{mode}");
            assert!(copied[bytes.len()..].iter().all(|b| *b == 0), "{mode}");
        }
    }
}

#[test]
fn existing_files_are_kept_or_replaced_as_requested() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    fs::write(&to, "old").unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
    let keeps = CopyOptions { existing: Existing::Keep, ..CopyOptions::default() };
    assert_eq!(one(&from, &to, &keeps).counts.skipped, 1);
    let updates = CopyOptions { existing: Existing::Update, ..CopyOptions::default() };
    let newer = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    File::options().write(true).open(&to).unwrap().set_modified(newer).unwrap();
    assert_eq!(one(&from, &to, &updates).counts.skipped, 1);
    assert_eq!(fs::read(&to).unwrap(), b"old");
    let before = fs::metadata(&to).unwrap().ino();
    assert_eq!(one(&from, &to, &CopyOptions::default()).counts.files, 1);
    let after = fs::metadata(&to).unwrap();
    assert_eq!((fs::read(&to).unwrap(), after.mode() & 0o7777), (b"new".to_vec(), 0o600));
    assert_ne!(after.ino(), before, "the file must be replaced rather than overwritten");
    assert_eq!(names(place.path()), ["from", "to"]);
}

#[test]
fn set_user_id_is_kept_only_with_the_mode_as_in_gnu_cp() {
    let place = TestDir::disk();
    let from = place.path().join("from");
    fs::write(&from, "x").unwrap();
    let other = std::os::unix::fs::chown(&from, Some(1234), Some(1234)).is_ok();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o6755)).unwrap();
    let mode = |preserve: Preserve, name: &str| {
        let to = place.path().join(name);
        let report = one(&from, &to, &CopyOptions { preserve, ..CopyOptions::default() });
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        fs::metadata(&to).unwrap().mode() & 0o7000
    };
    assert_eq!(mode(Preserve::default(), "plain"), 0);
    assert_eq!(mode(Preserve::ALL, "all"), 0o6000);
    if !other {
        return println!("skipped: only root can change the owner of files");
    }
    assert_eq!(mode(Preserve { mode: true, ..Preserve::default() }, "mode"), 0o6000);
    assert_eq!(mode(Preserve { times: true, ..Preserve::default() }, "times"), 0);
}

#[test]
fn links_at_the_target_of_a_file_are_followed_and_of_a_directory_are_errors() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("from/sub")).unwrap();
    fs::create_dir_all(at("to")).unwrap();
    fs::create_dir_all(at("elsewhere")).unwrap();
    fs::write(at("from/file"), "new").unwrap();
    fs::write(at("from/sub/x"), "new").unwrap();
    fs::write(at("outside"), "mine").unwrap();
    symlink(at("outside"), at("to/file")).unwrap();
    symlink(at("elsewhere"), at("to/sub")).unwrap();
    let deep = CopyOptions { recursive: true, follow: Follow::Never, ..CopyOptions::default() };
    let report = run(&[&at("from")], Target::As(at("to")), &deep, &Silent);
    assert!(messages(&report).contains("cannot overwrite non-directory"), "{}", messages(&report));
    assert_eq!(names(&at("elsewhere")), [""; 0]);
    assert_eq!(fs::read(at("outside")).unwrap(), b"new");
    assert!(fs::symlink_metadata(at("to/file")).unwrap().is_symlink());
    symlink(at("nowhere"), at("dangling")).unwrap();
    let report = one(&at("from/file"), &at("dangling"), &CopyOptions::default());
    assert!(messages(&report).contains("not writing through dangling"), "{}", messages(&report));
    assert!(!at("nowhere").exists());
}

/// The second source would write through the link that the first one created.
#[test]
fn nothing_is_written_through_links_that_the_copy_created() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    for dir in ["a/x", "b/x", "to"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("outside"), "mine").unwrap();
    symlink("../outside", at("a/1")).unwrap();
    symlink("../../outside", at("a/x/1")).unwrap();
    symlink("../nowhere", at("a/2")).unwrap();
    for file in ["b/1", "b/2", "b/x/1"] {
        fs::write(at(file), "payload").unwrap();
    }
    let options = CopyOptions { recursive: true, follow: Follow::Never, ..CopyOptions::default() };
    for sources in [&["a/.", "b/."][..], &["a/1", "b/1", "a/2", "b/2"], &["a/x", "b/x"]] {
        let sources: Vec<PathBuf> = sources.iter().map(|source| at(source)).collect();
        let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        let report = run(&sources, Target::Into(at("to")), &options, &Silent);
        assert!(
            messages(&report).contains("through just-created symlink"),
            "{}",
            messages(&report)
        );
        assert_eq!(fs::read(at("outside")).unwrap(), b"mine", "{sources:?}");
        assert!(!at("nowhere").exists());
        fs::remove_dir_all(at("to")).unwrap();
        fs::create_dir(at("to")).unwrap();
    }
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("dir/sub")).unwrap();
    symlink(at("dir"), at("way")).unwrap();
    let deep = CopyOptions { recursive: true, follow: Follow::Roots, ..CopyOptions::default() };
    for (from, to) in
        [("dir", "dir/new"), ("dir", "dir/sub"), ("way", "dir/sub/x"), ("dir", "way/y")]
    {
        let report = one(&at(from), &at(to), &deep);
        assert!(messages(&report).contains("into itself"), "{from} {to}: {}", messages(&report));
    }
    assert_eq!(names(&at("dir")), ["sub"]);
    assert_eq!(names(&at("dir/sub")), Vec::<String>::new());
}

#[test]
fn one_failure_is_one_error_and_the_rest_is_copied() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::write(at("a"), "a").unwrap();
    fs::create_dir(at("into")).unwrap();
    fs::create_dir(at("into/c")).unwrap();
    fs::write(at("c"), "c").unwrap();
    let into = Target::Into(at("into"));
    let report = run(&[&at("a"), &at("gone"), &at("c")], into, &CopyOptions::default(), &Silent);
    assert_eq!((report.errors_count, report.counts.files), (2, 1), "{}", messages(&report));
    assert!(
        messages(&report).contains("gone") && messages(&report).contains("overwrite directory")
    );
    assert_eq!(names(&at("into")), ["a", "c"]);
}

/// Removes the other file after one has been copied.
struct Remover {
    one: PathBuf,
    other: PathBuf,
}

impl Watcher for Remover {
    fn wants_names(&self) -> bool {
        true
    }

    fn copied(&self, from: &Path, _to: &Path, _backup: Option<&Path>) {
        match (from == self.one, from == self.other) {
            (true, _) => fs::remove_file(&self.other).unwrap(),
            (_, true) => fs::remove_file(&self.one).unwrap(),
            _ => {}
        }
    }
}

/// Creates the target of a copy while that is being filled.
struct Rival<'a>(&'a Path);

impl Watcher for Rival<'_> {
    fn wants_names(&self) -> bool {
        true
    }

    fn copied(&self, _from: &Path, _to: &Path, _backup: Option<&Path>) {
        if fs::create_dir(self.0).is_ok() {
            fs::create_dir(self.0.join("sub")).unwrap();
            for name in ["kept", "sub/kept", "no-dir"] {
                fs::write(self.0.join(name), "theirs").unwrap();
            }
        }
    }
}

/// Goal: the counts are those of entries that have their final names. Method: another program creates the directory
/// meanwhile, with files that are kept and one in place of a directory.
#[test]
fn what_a_merge_leaves_out_is_not_counted_as_copied() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for dir in ["sub", "no-dir"] {
        fs::create_dir_all(from.join(dir)).unwrap();
        for name in ["kept", "new"] {
            fs::write(from.join(dir).join(name), "12345").unwrap();
        }
    }
    fs::write(from.join("kept"), "12345").unwrap();
    fs::hard_link(from.join("kept"), from.join("other")).unwrap();
    let preserve = Preserve { links: true, ..Preserve::default() };
    let existing = Existing::Keep;
    let options =
        CopyOptions { recursive: true, existing, preserve, threads: Some(1), ..Default::default() };
    let report = run(&[&from], Target::As(to.clone()), &options, &Rival(&to));
    assert_eq!(report.errors_count, 1, "{}", messages(&report));
    assert_eq!(names(&to), ["kept", "no-dir", "other", "sub"]);
    assert_eq!(fs::read(to.join("sub/kept")).unwrap(), b"theirs");
    let counts = report.counts;
    assert_eq!((counts.files, counts.hard_links), (2, 0), "{counts:?}");
    assert_eq!((counts.directories, counts.skipped, report.bytes), (2, 2, 10), "{counts:?}");
}

#[test]
fn a_source_that_vanishes_after_it_was_listed_is_one_error() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("from")).unwrap();
    fs::write(at("from/a"), "same").unwrap();
    fs::write(at("from/b"), "same").unwrap();
    // A single thread lists both before it copies the first one.
    let options = CopyOptions { recursive: true, threads: Some(1), ..CopyOptions::default() };
    let remover = Remover { one: at("from/a"), other: at("from/b") };
    let report = run(&[&at("from")], Target::As(at("to")), &options, &remover);
    assert_eq!((report.errors_count, report.counts.files), (1, 1), "{}", messages(&report));
    assert!(messages(&report).ends_with("No such file or directory"), "{}", messages(&report));
    assert_eq!(names(&at("to")), names(&at("from")));
    assert_eq!(fs::read(at("to").join(&names(&at("to"))[0])).unwrap(), b"same");
}

#[test]
fn a_read_only_target_is_one_error_and_stays_unchanged() {
    let Some(target) = TestDir::mounted("ext4", 16) else { return };
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("from")).unwrap();
    fs::write(at("from/a"), "new").unwrap();
    fs::write(target.path().join("a"), "old").unwrap();
    let before = names(target.path());
    target.read_only();
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let to = |name: &str| target.path().join(name);
    for (from, to) in [("from", to("tree")), ("from/a", to("a")), ("from/a", to("b"))] {
        let report = run(&[&at(from)], Target::As(to.clone()), &options, &Silent);
        assert_eq!((report.errors_count, report.counts.files), (1, 0), "{}", messages(&report));
        let text = messages(&report);
        assert!(text.contains("remount the file system read-write"), "{text}");
        assert!(text.contains(&to.display().to_string()), "{text}");
    }
    assert_eq!(names(target.path()), before);
    assert_eq!(fs::read(to("a")).unwrap(), b"old");
}

#[test]
fn a_file_in_place_of_a_directory_is_one_error() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("from/sub")).unwrap();
    fs::write(at("from/sub/x"), "x").unwrap();
    fs::create_dir(at("to")).unwrap();
    fs::write(at("to/sub"), "mine").unwrap();
    let deep = CopyOptions { recursive: true, ..CopyOptions::default() };
    let report = run(&[&at("from")], Target::As(at("to")), &deep, &Silent);
    assert_eq!(report.errors_count, 1);
    assert!(messages(&report).contains("cannot overwrite non-directory"), "{}", messages(&report));
    assert_eq!(fs::read(at("to/sub")).unwrap(), b"mine");
}

#[test]
fn a_full_target_fails_before_the_first_write_and_keeps_its_files() {
    for kind in ["ext4", "btrfs"] {
        let Some(small) = TestDir::mounted(kind, 128) else { continue };
        let place = TestDir::disk();
        let from = place.path().join("from");
        fs::write(&from, vec![7u8; 140 << 20]).unwrap();
        let to = small.path().join("to");
        fs::write(&to, "old").unwrap();
        let progress = CopyCounters::default();
        let target = Target::Auto(to.clone());
        let report = copy(&[from], &target, &CopyOptions::default(), &Silent, &progress).unwrap();
        assert_eq!(report.errors_count, 1);
        assert!(messages(&report).contains("No space left"), "{}", messages(&report));
        assert!(report.out_of_space);
        assert_eq!(report.bytes, 0, "{kind}: the shortage must be detected before writing");
        assert_eq!(fs::read(&to).unwrap(), b"old");
        assert!(!names(small.path()).iter().any(|name| name.contains("ioloom")));
    }
}

/// Copies a file by every supported method; returns these methods.
fn by_every_mode(place: &TestDir) -> Vec<Mode> {
    let from = place.path().join("from");
    let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i * 7 % 251) as u8).collect();
    fs::write(&from, &bytes).unwrap();
    let mut offered = Vec::new();
    for mode in [Mode::Range, Mode::Buffered, Mode::Uncached, Mode::Direct, Mode::Reflink] {
        let to = place.path().join(mode.word());
        let report = one(&from, &to, &CopyOptions { mode: Some(mode), ..CopyOptions::default() });
        if report.errors_count > 0 {
            println!("{}: {mode}: {}", place.kind, messages(&report));
            assert!(report.errors[0].is_refused() || mode == Mode::Reflink);
            assert!(!to.exists());
            continue;
        }
        assert_eq!(report.modes, [(mode, 1)]);
        assert!(fs::read(&to).unwrap() == bytes, "{mode}");
        offered.push(mode);
    }
    offered
}

#[test]
fn unsupported_methods_are_refused_and_the_others_copy_the_same_bytes() {
    let place = TestDir::disk();
    assert!(by_every_mode(&place).contains(&Mode::Buffered));
    for kind in ["xfs", "btrfs"] {
        let Some(sharing) = TestDir::mounted(kind, 320) else { continue };
        assert!(by_every_mode(&sharing).contains(&Mode::Reflink), "{kind} must share blocks");
    }
    let from = place.path().join("from");
    let Some(memory) = TestDir::memory() else { return };
    for mode in [Mode::Direct, Mode::Uncached] {
        let to = memory.path().join("to");
        let report = one(&from, &to, &CopyOptions { mode: Some(mode), ..CopyOptions::default() });
        assert!(report.errors[0].is_refused(), "{mode}: {}", messages(&report));
        assert!(!to.exists());
    }
    // Some kernels copy between all file systems.
    let options = CopyOptions { mode: Some(Mode::Range), ..CopyOptions::default() };
    let report = one(&from, &memory.path().join("to"), &options);
    assert!(report.errors.iter().all(CopyError::is_refused), "{}", messages(&report));
}

#[test]
fn zeros_become_holes_and_holes_are_filled_on_request() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let mut bytes = vec![0u8; 2 << 20];
    bytes[1_000_000..1_000_100].fill(1);
    fs::write(&from, &bytes).unwrap();
    let taken = |sparse: When| {
        let report = one(&from, &to, &CopyOptions { sparse, ..CopyOptions::default() });
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        assert_eq!(fs::read(&to).unwrap(), bytes);
        fs::metadata(&to).unwrap().blocks() * 512
    };
    assert!(taken(When::Always) < 100_000);
    assert!(taken(When::Auto) >= 2 << 20);
    fs::rename(&to, &from).unwrap();
    let source = File::create(&from).unwrap();
    source.set_len(2 << 20).unwrap();
    source.write_all_at(&bytes[1_000_000..1_000_100], 1_000_000).unwrap();
    assert!(taken(When::Auto) < 100_000);
    assert!(taken(When::Never) >= 2 << 20);
}

#[test]
fn hashes_match_the_bytes() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "abc").unwrap();
    for verify in [Verify::InFlight, Verify::Cache, Verify::Device] {
        let hash = ioloom_copy::HashKind::Md5;
        let options =
            CopyOptions { verify, hash, durable: Durable::File, ..CopyOptions::default() };
        let report = one(&from, &to, &options);
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        assert_eq!(report.hashes[0].hash, "900150983cd24fb0d6963f7d28e17f72");
        let word = match verify {
            Verify::InFlight => "not verified",
            Verify::Cache => "verified-cache",
            _ if report.evidence.not_from_device > 0 => "verified-cache",
            _ => "verified-device",
        };
        assert_eq!(report.verified_word(), word);
    }
}

#[test]
fn kernel_files_are_copied_whatever_size_they_report() {
    let place = TestDir::disk();
    let to = place.path().join("to");
    let options = CopyOptions { verify: Verify::Cache, ..CopyOptions::default() };
    for from in ["/proc/version", "/sys/devices/system/cpu/online"].map(Path::new) {
        let Ok(content) = fs::read(from) else {
            println!("skipped: no {}", from.display());
            continue;
        };
        assert_ne!(fs::metadata(from).unwrap().len(), content.len() as u64);
        let report = one(from, &to, &options);
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        assert_eq!(fs::read(&to).unwrap(), content);
        assert_eq!(report.bytes, content.len() as u64);
        assert_eq!(
            (report.verified_word(), report.hashes[0].bytes),
            ("verified-cache", report.bytes)
        );
    }
}

/// Such a file refuses a read with a small buffer.
#[test]
fn a_kernel_file_that_must_be_read_at_once_is_copied() {
    let place = TestDir::disk();
    let (from, to) = (Path::new("/sys/kernel/tracing/tracing_cpumask"), place.path().join("to"));
    let mut content = vec![0; 4096];
    let read = fs::File::open(from).and_then(|mut file| file.read(&mut content));
    let Ok(bytes) = read else {
        return println!("skipped: cannot read {}", from.display());
    };
    let report = one(from, &to, &CopyOptions::default());
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert_eq!(fs::read(&to).unwrap(), content[..bytes]);
}

#[test]
fn a_missing_source_is_reported_by_a_resumed_copy_too() {
    let place = TestDir::disk();
    let options = CopyOptions { resume: true, ..CopyOptions::default() };
    let report = one(&place.path().join("gone"), &place.path().join("to"), &options);
    assert_eq!(report.errors_count, 1);
    assert!(messages(&report).contains("gone': No such file"), "{}", messages(&report));
    assert_eq!(names(place.path()), [""; 0]);
}

/// Cancels the copy once both names exist; records which one was copied and which was linked.
struct Ender<'a> {
    cancel: &'a AtomicBool,
    seen: Mutex<Vec<PathBuf>>,
}

impl Watcher for Ender<'_> {
    fn wants_names(&self) -> bool {
        true
    }

    fn copied(&self, from: &Path, _to: &Path, _backup: Option<&Path>) {
        let mut seen = self.seen.lock().unwrap();
        seen.extend(from.is_file().then(|| from.to_owned()));
        self.cancel.store(seen.len() == 2, Ordering::Relaxed);
    }
}

/// The threads find the names of a file in a different order than in the interrupted copy: the
/// recorded name comes after one that was not recorded.
#[test]
fn hard_links_survive_a_resumed_copy_that_finds_them_in_another_order() {
    // A program that another test starts has the lock of the journal until its `exec`.
    if !alone("guarantees::hard_links_survive_a_resumed_copy_that_finds_them_in_another_order") {
        return;
    }
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("from")).unwrap();
    fs::write(at("from/a"), "content").unwrap();
    fs::hard_link(at("from/a"), at("from/b")).unwrap();
    let preserve = Preserve { links: true, ..Preserve::default() };
    let options = CopyOptions {
        recursive: true,
        resume: true,
        preserve,
        threads: Some(1),
        ..CopyOptions::default()
    };
    let copied =
        |watcher: &dyn Watcher| run(&[&at("from")], Target::As(at("to")), &options, watcher);
    let ender = Ender { cancel: &options.cancel, seen: Mutex::default() };
    assert!(copied(&ender).cancelled && !at("to").exists());
    options.cancel.store(false, Ordering::Relaxed);
    // Swap the names in the journal.
    let record = names(place.path()).into_iter().find(|name| name.ends_with(".journal")).unwrap();
    let text = fs::read_to_string(at(&record)).unwrap();
    let seen = ender.seen.into_inner().unwrap();
    let (was, is) = if seen[0] == at("from/a") { (" 61\n", " 62\n") } else { (" 62\n", " 61\n") };
    assert_eq!(text.matches(was).count(), 1, "{text}");
    fs::write(at(&record), text.replace(was, is)).unwrap();
    let report = copied(&Silent);
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    let inode = |name| fs::metadata(at(name)).unwrap().ino();
    assert_eq!(inode("to/a"), inode("to/b"), "{:?}", report.counts);
    assert_eq!(fs::read(at("to/b")).unwrap(), b"content");
    assert_eq!(names(place.path()), ["from", "to"]);
}

/// The kernel returns `ENOENT` for a new file in /proc, although nothing was removed.
#[test]
fn a_file_system_that_allows_no_new_files_gets_no_false_advice() {
    let place = TestDir::disk();
    let from = place.path().join("from");
    fs::write(&from, "content").unwrap();
    let to = Path::new("/proc/ioloom-test");
    if !Path::new("/proc/self").exists() {
        return println!("skipped: no /proc");
    }
    let report = run(&[&from], Target::As(to.into()), &CopyOptions::default(), &Silent);
    assert_eq!(
        messages(&report),
        "cannot create regular file '/proc/ioloom-test': No such file or directory",
        "advice must be true or absent"
    );
}
