//! Options are applied as requested or refused with a reason, never silently replaced.

use crate::test_dir::TestDir;
use ioloom_copy::{
    CopyCounters, CopyError, CopyOptions, Existing, Follow, Mode, Preserve, Report, Silent, Target,
    Verify, Watcher, When, bytes_to_copy, copy,
};
use ioloom_sys::attr::{Attr, XattrOf};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::{cache, make};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

fn one(from: &Path, to: &Path, options: &CopyOptions) -> Report {
    let target = Target::As(to.to_owned());
    copy(&[from.to_owned()], &target, options, &Silent, &CopyCounters::default()).unwrap()
}

fn messages(report: &Report) -> String {
    report.errors.iter().map(CopyError::to_string).collect::<Vec<_>>().join("\n")
}

fn with(mode: Mode) -> CopyOptions {
    CopyOptions { mode: Some(mode), ..CopyOptions::default() }
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[test]
fn small_files_use_direct_io_if_required() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for bytes in [4096, 100_001, 8 << 20] {
        fs::write(&from, noise(bytes)).unwrap();
        let report = one(&from, &to, &with(Mode::Direct));
        if report.errors_count > 0 {
            assert!(report.errors[0].is_refused(), "{}", messages(&report));
            return println!("skipped: {}", messages(&report));
        }
        // Called before verification reads the copy.
        let state = cache::state(File::open(&to).unwrap(), 0, 0).unwrap();
        // Truncating the padded end makes the kernel zero the rest of a page in memory.
        let most = u64::from(bytes % 4096 != 0);
        assert!(state.is_none_or(|state| state.resident <= most), "{bytes}: {state:?}");
        assert!(fs::read(&to).unwrap() == noise(bytes), "{bytes}");
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn a_source_that_reports_no_size_is_never_copied_as_empty() {
    let place = TestDir::disk();
    let (empty, to) = (place.path().join("empty"), place.path().join("to"));
    fs::write(&empty, "").unwrap();
    for mode in [Mode::Reflink, Mode::Range, Mode::Buffered, Mode::Uncached, Mode::Direct] {
        let report = one(Path::new("/proc/version"), &to, &with(mode));
        if report.errors_count == 0 {
            let content = fs::read("/proc/version").unwrap();
            assert_eq!(fs::read(&to).unwrap(), content, "{mode}");
            fs::remove_file(&to).unwrap();
        } else {
            assert!(report.errors[0].is_refused(), "{mode}: {}", messages(&report));
            assert!(!to.exists(), "{mode}");
        }
        // Every method can copy an empty file.
        let report = one(&empty, &to, &with(mode));
        assert_eq!(
            (report.errors_count, report.counts.files),
            (0, 1),
            "{mode}: {}",
            messages(&report)
        );
        assert_eq!(fs::read(&to).unwrap(), b"", "{mode}");
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn required_sharing_is_never_skipped() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let always = CopyOptions { reflink: When::Always, ..CopyOptions::default() };
    let pinned = CopyOptions { mode: Some(Mode::Reflink), ..CopyOptions::default() };
    for bytes in [5, 1 << 20] {
        fs::write(&from, noise(bytes)).unwrap();
        for base in [&always, &pinned] {
            for (options, word) in [
                (CopyOptions { verify: Verify::Cache, ..base.clone() }, "nothing is hashed"),
                (CopyOptions { sparse: When::Always, ..base.clone() }, "zeros cannot be found"),
            ] {
                let report = one(&from, &to, &options);
                assert_eq!(report.errors_count, 1, "{options:?}");
                assert!(report.errors[0].is_refused(), "{}", messages(&report));
                assert!(messages(&report).contains(word), "{}", messages(&report));
                assert!(!to.exists());
            }
            let report = one(&from, &to, base);
            if report.errors_count > 0 {
                // `--reflink=always` is an option of GNU cp, which reports the failed call.
                let word = base.mode.map_or("failed to clone", |_| "does not share blocks");
                assert_eq!(report.errors[0].is_refused(), base.mode.is_some());
                assert!(messages(&report).contains(word), "{}", messages(&report));
                assert!(!to.exists());
            } else {
                assert_eq!(report.modes, [(Mode::Reflink, 1)]);
                fs::remove_file(&to).unwrap();
            }
        }
    }
    let Some(memory) = TestDir::memory() else { return };
    // Sharing the blocks of an empty file fails like that of any other.
    for bytes in [1 << 20, 0] {
        fs::write(&from, noise(bytes)).unwrap();
        let report = one(&from, &memory.path().join("to"), &always);
        assert!(messages(&report).contains("cross-device link"), "{}", messages(&report));
        assert!(!memory.path().join("to").exists());
    }
}

#[test]
fn holes_are_filled_even_where_blocks_could_be_shared() {
    let Some(place) = TestDir::mounted("xfs", 320) else { return };
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let source = File::create(&from).unwrap();
    source.set_len(2 << 20).unwrap();
    source.write_all_at(b"some", 1 << 20).unwrap();
    source.sync_all().unwrap();
    let never = CopyOptions { sparse: When::Never, ..CopyOptions::default() };
    let report = one(&from, &to, &never);
    assert_eq!((report.errors_count, report.modes), (0, vec![(Mode::Buffered, 1)]));
    File::open(&to).unwrap().sync_all().unwrap();
    assert!(fs::metadata(&to).unwrap().blocks() * 512 >= 2 << 20);
    let always = CopyOptions { reflink: When::Always, ..never };
    assert!(messages(&one(&from, &to, &always)).contains("holes of its source"));
}

#[test]
fn permissions_that_are_not_preserved_are_the_defaults() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    fs::create_dir_all(at("from/dir")).unwrap();
    fs::write(at("from/dir/file"), "text").unwrap();
    fs::write(at("from/run"), "text").unwrap();
    for (name, bits) in [("from/dir/file", 0o400), ("from/run", 0o555), ("from/dir", 0o500)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    fs::write(at("file"), "").unwrap();
    fs::create_dir(at("dir")).unwrap();
    let all_but = Preserve { mode: false, owner: false, ..Preserve::ALL };
    for preserve in [Preserve::default(), all_but] {
        let options =
            CopyOptions { recursive: true, preserve, plain_mode: true, ..CopyOptions::default() };
        let report = one(&at("from"), &at("to"), &options);
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        assert_eq!((mode("to/dir/file"), mode("to/run")), (mode("file"), mode("file")));
        assert_eq!(mode("to/dir"), mode("dir"));
        fs::remove_dir_all(at("to")).unwrap();
    }
    fs::set_permissions(at("from/dir"), fs::Permissions::from_mode(0o700)).unwrap();
}

/// Counts prompts and answers yes.
#[derive(Default)]
struct Counter(AtomicU32);

impl Watcher for Counter {
    fn may_replace(&self, _: &Path, _: &Attr) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[test]
fn the_user_is_not_asked_about_files_that_stay_anyway() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let options = CopyOptions { existing: Existing::UpdateAsk, ..CopyOptions::default() };
    for (later, replaced) in [(false, 0), (true, 1)] {
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        let by = if later { Duration::from_secs(60) } else { Duration::ZERO };
        let time = SystemTime::now();
        File::options().write(true).open(&from).unwrap().set_modified(time + by).unwrap();
        File::options().write(true).open(&to).unwrap().set_modified(time).unwrap();
        let counter = Counter::default();
        let target = Target::As(to.clone());
        let report = copy(
            std::slice::from_ref(&from),
            &target,
            &options,
            &counter,
            &CopyCounters::default(),
        )
        .unwrap();
        assert_eq!(report.counts.files, replaced, "{}", messages(&report));
        assert_eq!(u64::from(counter.0.into_inner()), replaced);
    }
}

/// Goal: the user is asked before the source is opened, as by GNU cp. Method: a socket cannot be opened.
#[test]
fn the_user_is_asked_about_a_source_that_cannot_be_opened() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let dir = Dir::open(place.path()).unwrap();
    make::node(&dir, c"from", Kind::Socket, 0o600, (0, 0)).unwrap();
    fs::write(&to, "old").unwrap();
    let options = CopyOptions { existing: Existing::Ask, ..CopyOptions::default() };
    let (counter, target) = (Counter::default(), Target::As(to.clone()));
    let sources = std::slice::from_ref(&from);
    let report = copy(sources, &target, &options, &counter, &CopyCounters::default());
    assert_eq!((report.unwrap().errors_count, counter.0.into_inner()), (1, 1));
    let report = one(&from, &to, &options);
    assert_eq!((report.errors_count, report.counts.skipped), (0, 1), "a no keeps the target");
    assert_eq!(fs::read(&to).unwrap(), b"old");
}

#[test]
fn copies_that_were_not_read_back_are_not_called_verified() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    fs::write(&to, "old").unwrap();
    for verify in [Verify::Cache, Verify::Device] {
        let options = CopyOptions { existing: Existing::Keep, verify, ..CopyOptions::default() };
        let report = one(&from, &to, &options);
        assert_eq!((report.counts.skipped, report.verified_word()), (1, "not verified"));
    }
}

/// A mount that is removed when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Goal: nothing is written through a link of the same copy where two directories of the target are one. Method: a
/// link comes first in either order of the directories, in existing directories and in a new one.
#[test]
fn nothing_is_written_through_links_by_another_path() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    for dir in ["from/a/sub", "from/b/sub", "to/a", "to/b"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("outside"), "mine").unwrap();
    for (link, file) in [
        ("from/a/x", "from/b/x"),
        ("from/b/y", "from/a/y"),
        ("from/a/sub/x", "from/b/sub/x"),
        ("from/b/sub/y", "from/a/sub/y"),
    ] {
        std::os::unix::fs::symlink(at("outside"), at(link)).unwrap();
        fs::write(at(file), "payload").unwrap();
    }
    let bound = at("to/b");
    let mount = Command::new("mount").arg("--bind").arg(at("to/a")).arg(&bound).output().unwrap();
    if !mount.status.success() {
        return println!("skipped: {}", String::from_utf8_lossy(&mount.stderr));
    }
    let _mounted = Mounted(&bound);
    let options = CopyOptions {
        recursive: true,
        follow: Follow::Never,
        threads: Some(1),
        ..CopyOptions::default()
    };
    let report = one(&at("from"), &at("to"), &options);
    let said = messages(&report);
    let refused = |below: &str| {
        let line = |line: &&str| line.contains("through just-created symlink");
        said.lines().filter(line).any(|line| line.contains(below))
    };
    assert!(refused("/sub/x") || refused("/sub/y"), "{said}");
    assert!(["/a/x", "/b/x", "/a/y", "/b/y"].into_iter().any(refused), "{said}");
    assert_eq!(fs::read(at("outside")).unwrap(), b"mine", "{said}");
}

/// Simulates copying a system to a disk mounted inside it.
#[test]
fn a_file_system_can_be_copied_to_another_one_mounted_inside_it() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("system/other")).unwrap();
    fs::write(at("system/file"), "text").unwrap();
    let other = at("system/other");
    let mount = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&other).output().unwrap();
    if !mount.status.success() {
        return println!("skipped: mount: {}", String::from_utf8_lossy(&mount.stderr).trim());
    }
    let _mounted = Mounted(&other);
    let options = CopyOptions {
        recursive: true,
        follow: Follow::Never,
        preserve: Preserve::ALL,
        one_file_system: true,
        ..CopyOptions::default()
    };
    for from in [at("system"), at("system/.")] {
        let report = one(&from, &other, &options);
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        assert_eq!(fs::read(other.join("file")).unwrap(), b"text");
        let inner = fs::read_dir(other.join("other")).unwrap();
        assert_eq!(inner.count(), 0, "the mount point is copied but its content is not");
    }
    let both = CopyOptions { one_file_system: false, ..options };
    let report = one(&at("system"), &other, &both);
    assert!(messages(&report).contains("into itself"), "{}", messages(&report));
    let to = Target::As(at("to"));
    let [apart, all] =
        [CopyOptions { one_file_system: true, ..both.clone() }, both].map(|options| {
            bytes_to_copy(&[at("system")], &to, &options, SystemTime::now(), &Arc::default())
        });
    assert_eq!((apart, all), (Some(4), Some(8)));
}

#[test]
fn a_path_that_only_a_directory_can_have_is_not_written_as_a_file() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::write(at("file"), "text").unwrap();
    fs::create_dir(at("dir")).unwrap();
    for (to, word) in [
        ("new/", "new/': Not a directory"),
        ("new/.", "new/.': No such file or directory"),
        ("dir/", "cannot overwrite directory"),
        ("dir/.", "cannot overwrite directory"),
    ] {
        let report = one(&at("file"), &at(to), &CopyOptions::default());
        assert!(messages(&report).contains(word), "{to}: {}", messages(&report));
    }
    assert!(!at("new").exists());
    // A link to a file without a path, such as /dev/stdout, is followed.
    let (mut read, write) = std::io::pipe().unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&write);
    std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), at("out")).unwrap();
    let report = one(&at("file"), &at("out"), &CopyOptions::default());
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    let mut text = [0; 4];
    std::io::Read::read_exact(&mut read, &mut text).unwrap();
    assert_eq!(&text, b"text");
}

/// If files share a name, the later source always wins, as with cp; counts are added up.
#[test]
fn contents_of_several_directories_are_merged_in_order() {
    const FILES: usize = 200;
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    for (dir, content) in [("a", "a"), ("b", "bb")] {
        fs::create_dir_all(at(dir).join("sub")).unwrap();
        for i in 0..FILES {
            fs::write(at(dir).join(format!("sub/{i}")), content).unwrap();
        }
    }
    fs::write(at("a/only"), "a").unwrap();
    let options = CopyOptions {
        recursive: true,
        threads: Some(4),
        verify: Verify::Cache,
        ..CopyOptions::default()
    };
    for (sources, last) in [
        ([at("a/."), at("b/.")], "bb"),
        ([at("b/."), at("a/.")], "a"),
        ([at("a/."), at("b/sub")], "bb"),
    ] {
        fs::create_dir(at("to")).unwrap();
        let progress = CopyCounters::default();
        let into = Target::Auto(at("to"));
        let report = copy(&sources, &into, &options, &Silent, &progress).unwrap();
        assert_eq!(report.errors_count, 0, "{sources:?}: {}", messages(&report));
        let wrong = (0..FILES)
            .filter(|i| fs::read(at("to").join(format!("sub/{i}"))).unwrap() != last.as_bytes());
        assert_eq!(wrong.count(), 0, "{sources:?}");
        assert_eq!(report.counts.files as usize, 2 * FILES + 1);
        assert_eq!((report.bytes as usize, report.hashes.len()), (3 * FILES + 1, 2 * FILES + 1));
        assert_eq!(
            (report.modes[0].1 as usize, report.verified_word()),
            (2 * FILES + 1, "verified-cache")
        );
        fs::remove_dir_all(at("to")).unwrap();
    }
    // Without a directory as the target, nothing is copied.
    let none = Target::Auto(at("new"));
    let refused = copy(&[at("a/."), at("b/.")], &none, &options, &Silent, &CopyCounters::default());
    assert!(refused.is_err() && !at("new").exists());
}

#[test]
fn an_existing_target_that_is_kept_may_be_a_directory() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    for dir in ["from", "to/name"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("from/name"), "text").unwrap();
    let hour = Duration::from_secs(3600);
    let source = File::options().write(true).open(at("from/name")).unwrap();
    source.set_modified(SystemTime::now() - hour).unwrap();
    for existing in [Existing::Keep, Existing::Update, Existing::UpdateAsk] {
        let options = CopyOptions { recursive: true, existing, ..CopyOptions::default() };
        let report = one(&at("from"), &at("to"), &options);
        assert_eq!((report.errors_count, report.counts.skipped), (0, 1), "{}", messages(&report));
    }
    source.set_modified(SystemTime::now() + hour).unwrap();
    let newer =
        CopyOptions { recursive: true, existing: Existing::Update, ..CopyOptions::default() };
    let report = one(&at("from"), &at("to"), &newer);
    assert!(messages(&report).contains("cannot overwrite directory"), "{}", messages(&report));
    assert!(at("to/name").is_dir());
}

#[test]
fn a_followed_link_to_a_pipe_is_copied_as_a_pipe() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("from")).unwrap();
    assert!(Command::new("mkfifo").arg(at("from/pipe")).status().unwrap().success());
    std::os::unix::fs::symlink("pipe", at("from/link")).unwrap();
    for (follow, piped) in [(Follow::Always, true), (Follow::Never, false)] {
        let options = CopyOptions { recursive: true, follow, ..CopyOptions::default() };
        let to = at(if piped { "followed" } else { "link" });
        let report = one(&at("from"), &to, &options);
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        let kind = |name: &str| fs::symlink_metadata(to.join(name)).unwrap().file_type();
        assert!(kind("pipe").is_fifo());
        assert_eq!((kind("link").is_fifo(), kind("link").is_symlink()), (piped, !piped));
    }
    let roots = CopyOptions { recursive: true, follow: Follow::Roots, ..CopyOptions::default() };
    let report = one(&at("from/link"), &at("named"), &roots);
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert!(fs::symlink_metadata(at("named")).unwrap().file_type().is_fifo());
}

#[test]
fn a_link_never_replaces_the_file_it_points_to() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::write(at("file"), "text").unwrap();
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    let options = CopyOptions { follow: Follow::Never, ..CopyOptions::default() };
    let report = one(&at("link"), &at("file"), &options);
    assert!(messages(&report).contains("are the same file"), "{}", messages(&report));
    assert_eq!(fs::read(at("file")).unwrap(), b"text");
    assert!(fs::symlink_metadata(at("file")).unwrap().is_file());
}

#[test]
fn a_replaced_file_keeps_its_permissions_unless_they_are_preserved_from_the_source() {
    if !ioloom_testbed::is_root() {
        return println!("skipped: only root can change the owner of files");
    }
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::write(at("from"), "new").unwrap();
    std::os::unix::fs::chown(at("from"), Some(1), Some(2)).unwrap();
    fs::set_permissions(at("from"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(at("to"), "old").unwrap();
    fs::set_permissions(at("to"), fs::Permissions::from_mode(0o604)).unwrap();
    let preserve = Preserve { owner: true, ..Preserve::default() };
    let report = one(&at("from"), &at("to"), &CopyOptions { preserve, ..CopyOptions::default() });
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    let made = fs::metadata(at("to")).unwrap();
    assert_eq!((made.mode() & 0o7777, made.uid(), made.gid()), (0o604, 1, 2));
}

#[test]
fn a_sticky_directory_stays_sticky() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("from/sub")).unwrap();
    fs::set_permissions(at("from/sub"), fs::Permissions::from_mode(0o1755)).unwrap();
    let report =
        one(&at("from"), &at("to"), &CopyOptions { recursive: true, ..CopyOptions::default() });
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert_eq!(fs::metadata(at("to/sub")).unwrap().mode() & 0o7000, 0o1000);
}

#[test]
fn a_file_reached_through_several_links_is_one_file_if_links_are_preserved() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("from")).unwrap();
    fs::write(at("from/a"), "text").unwrap();
    std::os::unix::fs::symlink("a", at("from/b")).unwrap();
    let preserve = Preserve { links: true, ..Preserve::default() };
    let options =
        CopyOptions { recursive: true, follow: Follow::Always, preserve, ..CopyOptions::default() };
    let report = one(&at("from"), &at("to"), &options);
    assert_eq!((report.counts.files, report.counts.hard_links), (1, 1), "{}", messages(&report));
    let inode = |name| fs::symlink_metadata(at(name)).unwrap().ino();
    assert_eq!(inode("to/a"), inode("to/b"));
}

#[test]
fn acls_are_permissions_and_not_attributes() {
    // user::rw-, user:1000:rwx, group::r--, mask::rwx, other::---
    const LIST: [u8; 44] = [
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 7, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255,
        255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
    ];
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let source = File::create(&from).unwrap();
    let name = c"system.posix_acl_access";
    if XattrOf::Open(source.as_fd()).set(name, &LIST).is_err() {
        return println!("skipped: this file system has no ACLs");
    }
    for (mode, xattrs, comes) in [(false, true, false), (true, false, true), (true, true, true)] {
        let preserve = Preserve { mode, xattrs, ..Preserve::default() };
        let report = one(&from, &to, &CopyOptions { preserve, ..CopyOptions::default() });
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        let made = File::open(&to).unwrap();
        let list = XattrOf::Open(made.as_fd()).get(name).unwrap();
        assert_eq!(list.is_some(), comes, "mode {mode}, attributes {xattrs}");
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn the_byte_count_leaves_out_targets_that_stay() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    for (dir, files) in
        [("from", [("a", 1000), ("b", 200), ("c", 30)]), ("to", [("a", 1), ("b", 2), ("d", 3)])]
    {
        fs::create_dir_all(at(dir).join("sub")).unwrap();
        for (name, bytes) in files {
            fs::write(at(dir).join("sub").join(name), vec![1; bytes]).unwrap();
        }
    }
    fs::hard_link(at("from/sub/a"), at("from/another")).unwrap();
    let old = SystemTime::now() - Duration::from_secs(1000);
    File::options().write(true).open(at("from/sub/b")).unwrap().set_modified(old).unwrap();
    let plain = CopyOptions { recursive: true, ..CopyOptions::default() };
    let kept = CopyOptions { existing: Existing::Keep, ..plain.clone() };
    let updated = CopyOptions { existing: Existing::Update, ..plain.clone() };
    let linked = CopyOptions { preserve: Preserve::ALL, ..plain.clone() };
    // No target is newer than a timestamp in the future.
    let later = SystemTime::now() + Duration::from_secs(1000);
    let (sources, target) = ([at("from")], Target::As(at("to")));
    let counted =
        |options, since| bytes_to_copy(&sources, &target, options, since, &Arc::default()).unwrap();
    assert_eq!(counted(&plain, later), 2230);
    assert_eq!(counted(&kept, later), 1030);
    assert_eq!(counted(&linked, later), 1230);
    // Files created by the copy before the count do not count as existing.
    assert_eq!(counted(&kept, old), 2230);
    let report = |options: &CopyOptions| one(&at("from"), &at("to"), options).bytes;
    let update = counted(&updated, later);
    assert_eq!((update, report(&updated)), (update, update), "the count must match the copy");
    assert_eq!(counted(&kept, later), report(&kept));
    assert_eq!(
        bytes_to_copy(&[at("from/sub/a")], &Target::Auto(at("to")), &plain, later, &Arc::default()),
        Some(1000)
    );
    assert_eq!(counted(&CopyOptions::default(), later), 0);
}

/// user::rwx, user:1000:rwx, group::rwx, mask::rwx, other::rwx
const OPEN_LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 232, 3, 0, 0, 4, 0, 7, 0, 255, 255,
    255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 7, 0, 255, 255, 255, 255,
];

#[test]
fn a_new_directory_that_inherits_an_acl_is_not_writable_by_others() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for dir in [&from, &to] {
        fs::create_dir(dir).unwrap();
    }
    fs::create_dir(from.join("dir")).unwrap();
    fs::set_permissions(from.join("dir"), fs::Permissions::from_mode(0o777)).unwrap();
    let dir = File::open(&to).unwrap();
    if XattrOf::Open(dir.as_fd()).set(c"system.posix_acl_default", &OPEN_LIST).is_err() {
        return println!("skipped: this file system has no ACLs");
    }
    if ioloom_sys::attr::umask().unwrap() & 0o022 != 0o022 {
        return println!("skipped: the umask allows others to write");
    }
    let report = one(&from, &to, &CopyOptions { recursive: true, ..CopyOptions::default() });
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    // The umask does not apply to what inherits an ACL, so GNU cp withholds these permissions.
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&to.join("dir")), 0o755);
}

#[test]
fn names_whose_targets_cannot_be_written_become_links() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for dir in [&from, &to] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(from.join("n0"), "content").unwrap();
    for n in 1..10 {
        fs::hard_link(from.join("n0"), from.join(format!("n{n}"))).unwrap();
        std::os::unix::fs::symlink("nowhere", to.join(format!("n{n}"))).unwrap();
    }
    let preserve = Preserve { links: true, times: true, ..Preserve::default() };
    let options = CopyOptions { recursive: true, preserve, ..CopyOptions::default() };
    let report = one(&from, &to, &options);
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert_eq!((report.counts.files, report.counts.hard_links), (1, 9));
    let meta = |path: &Path| fs::symlink_metadata(path).unwrap();
    for n in 1..10 {
        assert_eq!(meta(&to.join(format!("n{n}"))).ino(), meta(&to.join("n0")).ino(), "n{n}");
    }
    assert_eq!(fs::read(to.join("n9")).unwrap(), b"content");
    assert_eq!(meta(&to).modified().unwrap(), meta(&from).modified().unwrap());
    // Without a name that can be copied, the error of each is reported.
    for n in 0..2 {
        fs::remove_file(to.join(format!("n{n}"))).unwrap();
        std::os::unix::fs::symlink("nowhere", to.join(format!("n{n}"))).unwrap();
    }
    for n in 2..10 {
        fs::remove_file(from.join(format!("n{n}"))).unwrap();
    }
    let report = one(&from, &to, &options);
    assert_eq!(report.errors_count, 2, "{}", messages(&report));
    assert!(messages(&report).contains("not writing through dangling symlink"));
}

#[test]
fn sources_written_into_one_file_do_not_mix() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    for dir in [&from, &to] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(to.join("0"), "old").unwrap();
    for n in 0..8u8 {
        fs::write(from.join(n.to_string()), vec![n; 300_000 + usize::from(n)]).unwrap();
        if n > 0 {
            fs::hard_link(to.join("0"), to.join(n.to_string())).unwrap();
        }
    }
    let options = CopyOptions { recursive: true, threads: Some(4), ..CopyOptions::default() };
    for _ in 0..10 {
        let report = one(&from, &to, &options);
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        let copied = fs::read(to.join("0")).unwrap();
        assert!(copied == vec![copied[0]; 300_000 + usize::from(copied[0])]);
    }
}
