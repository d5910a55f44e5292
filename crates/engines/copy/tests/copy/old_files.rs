//! What files that exist at the target keep, and which of them are replaced.

use crate::test_dir::TestDir;
use ioloom_copy::{
    Backup, BackupNames, CopyCounters, CopyError, CopyOptions, Existing, Mode, Overwrite, Preserve,
    Report, Silent, Target, Verify, Watcher, When, copy,
};
use ioloom_sys::inode_flags::InodeFlags;
use ioloom_sys_lab::image::can_mount_images;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

fn one(from: &Path, to: &Path, options: &CopyOptions) -> Report {
    let (sources, target) = ([from.to_owned()], Target::As(to.to_owned()));
    copy(&sources, &target, options, &Silent, &CopyCounters::default()).unwrap()
}

fn messages(report: &Report) -> String {
    report.errors.iter().map(CopyError::to_string).collect::<Vec<_>>().join("\n")
}

/// Goal: overwriting neither loses nor adds a flag. Method: no access times, which any owner may set.
#[test]
fn a_file_with_other_flags_than_a_new_one_is_written_in_place() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    let chattr = |flag: &str, path: &Path| {
        let done = Command::new("chattr").arg(flag).arg(path).output();
        done.is_ok_and(|output| output.status.success())
    };
    for (flag, overwrite, stays) in [
        ("+A", Overwrite::Auto, true),
        ("+d", Overwrite::Auto, true),
        ("+A", Overwrite::Replace, false),
        ("-A", Overwrite::Auto, false),
    ] {
        let _ = fs::remove_file(&to);
        fs::write(&to, "old").unwrap();
        if !chattr(flag, &to) {
            return println!("skipped: chattr is missing or not supported here");
        }
        let before = fs::metadata(&to).unwrap().ino();
        let report = one(&from, &to, &CopyOptions { overwrite, ..CopyOptions::default() });
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        assert_eq!(fs::read(&to).unwrap(), b"new");
        assert_eq!(fs::metadata(&to).unwrap().ino() == before, stays, "{flag} {overwrite:?}");
    }
    // A new file there inherits the flag.
    let dir = place.path().join("dir");
    fs::create_dir(&dir).unwrap();
    assert!(chattr("+A", &dir));
    fs::write(dir.join("to"), "old").unwrap();
    let before = fs::metadata(dir.join("to")).unwrap().ino();
    assert_eq!(one(&from, &dir.join("to"), &CopyOptions::default()).errors_count, 0);
    assert_ne!(fs::metadata(dir.join("to")).unwrap().ino(), before);
    // The old file does not have it.
    let inherits = !InodeFlags::of_file(File::open(dir.join("to")).unwrap()).unwrap().is_empty();
    assert!(chattr("-A", &dir.join("to")));
    let before = fs::metadata(dir.join("to")).unwrap().ino();
    assert_eq!(one(&from, &dir.join("to"), &CopyOptions::default()).errors_count, 0);
    assert_eq!(fs::metadata(dir.join("to")).unwrap().ino() == before, inherits);
}

/// Goal: the file in the place of a link is not open to all, as the link was.
#[test]
fn a_link_that_is_replaced_leaves_no_permissions() {
    let place = TestDir::disk();
    let at = |name: &str| place.path().join(name);
    fs::write(at("from"), "new").unwrap();
    fs::set_permissions(at("from"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(at("end"), "old").unwrap();
    symlink("end", at("to")).unwrap();
    let options = CopyOptions { overwrite: Overwrite::Replace, ..CopyOptions::default() };
    assert_eq!(one(&at("from"), &at("to"), &options).errors_count, 0);
    let found = fs::symlink_metadata(at("to")).unwrap();
    assert_eq!((found.is_file(), found.mode() & 0o777), (true, 0o600));
    assert_eq!(fs::read(at("end")).unwrap(), b"old");
}

/// A file system in an image that was made by `mkfs`, unmounted when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    /// `options`: how to mount it.
    fn make(mkfs: &[&str], options: &str) -> Option<Self> {
        if let Err(why) = can_mount_images() {
            println!("skipped: {why}");
            return None;
        }
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (image, point) = (dir.path().join("image"), dir.path().join("point"));
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        fs::create_dir(&point).unwrap();
        let is_made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image).output();
        if !is_made.is_ok_and(|output| output.status.success()) {
            println!("skipped: {} is missing", mkfs[0]);
            return None;
        }
        let mount = Command::new("mount").args(["-o", options]).arg(&image).arg(&point).output();
        if !mount.is_ok_and(|output| output.status.success()) {
            println!("skipped: an image by {} cannot be mounted", mkfs[0]);
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path().join("point")).status();
    }
}

/// Goal: a file that was copied to a file system with coarse times is not copied again. Method: ext4 with inodes
/// that have no room for nanoseconds, and FAT.
#[test]
fn an_update_to_a_file_system_with_coarse_times_copies_once() {
    let place = TestDir::disk();
    let from = place.path().join("from");
    fs::write(&from, "text").unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(1_600_000_001_500);
    File::options().write(true).open(&from).unwrap().set_modified(modified).unwrap();
    let times = Preserve { times: true, ..Preserve::default() };
    let updates =
        |preserve| CopyOptions { existing: Existing::Update, preserve, ..CopyOptions::default() };
    for mkfs in [&["mkfs.ext4", "-q", "-F", "-I", "128"][..], &["mkfs.vfat"]] {
        let Some(mounted) = Mounted::make(mkfs, "loop") else { continue };
        let to = mounted.0.path().join("point/to");
        let files: Vec<u64> =
            (0..2).map(|_| one(&from, &to, &updates(times)).counts.files).collect();
        assert_eq!(files, [1, 0], "{mkfs:?}");
        // Times that are not preserved are compared as they are.
        assert_eq!(one(&from, &to, &updates(Preserve::default())).counts.files, 1, "{mkfs:?}");
        assert_eq!(one(&from, &to, &updates(times)).counts.files, 0, "{mkfs:?}");
    }
}

/// Goal: an owner that cannot be preserved is an error also if this user is the owner. Method: all files of a mount
/// belong to one user.
#[test]
fn an_owner_that_the_mount_decides_is_not_preserved_silently() {
    let Some(mounted) = Mounted::make(&["mkfs.vfat"], "loop,uid=1000,gid=0") else { return };
    let place = TestDir::disk();
    let from = place.path().join("from");
    fs::write(&from, "text").unwrap();
    if fs::metadata(&from).unwrap().uid() != 0 {
        return println!("skipped: other users cannot expect to preserve owners");
    }
    let to = mounted.0.path().join("point/to");
    let preserve = Preserve { owner: true, ..Preserve::default() };
    let options = CopyOptions { preserve, ..CopyOptions::default() };
    for state in ["new", "replaced"] {
        let report = one(&from, &to, &options);
        let errors: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 1, "{state}: {errors:?}");
        assert!(errors[0].contains("preserve ownership"), "{state}: {errors:?}");
        assert_eq!(fs::read(&to).unwrap(), b"text", "{state}");
    }
}

/// Goal: a file in a directory that can have no other names is written. Method: the name of this process in /proc,
/// from files and from a source without a size.
#[test]
fn a_file_in_proc_is_written_in_place() {
    let place = TestDir::disk();
    let from = place.path().join("from");
    fs::write(&from, "renamed").unwrap();
    let comm = Path::new("/proc/self/comm");
    let report = one(&from, comm, &CopyOptions::default());
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert_eq!(fs::read(comm).unwrap(), b"renamed\n");
    let report = one(Path::new("/proc/sys/kernel/ostype"), comm, &CopyOptions::default());
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert!(fs::read(comm).unwrap().starts_with(b"Linux"));
    // Sources that are written at offsets elsewhere: with a hole, and large enough for several threads.
    let sparse = File::create(place.path().join("sparse")).unwrap();
    sparse.write_all_at(b"sparse", 0).unwrap();
    sparse.set_len(100_000).unwrap();
    fs::write(place.path().join("large"), vec![b'x'; 33 << 20]).unwrap();
    for (name, sparse, found) in [
        ("sparse", When::Auto, "sparse\n"),
        ("from", When::Always, "renamed\n"),
        ("large", When::Auto, "xxxxxxxxxxxxxxx\n"),
        ("large", When::Never, "xxxxxxxxxxxxxxx\n"),
    ] {
        fs::write(comm, "before").unwrap();
        let options = CopyOptions { sparse, ..CopyOptions::default() };
        let report = one(&place.path().join(name), comm, &options);
        assert_eq!(report.errors_count, 0, "{name} {sparse:?}: {}", messages(&report));
        assert_eq!(fs::read_to_string(comm).unwrap(), found, "{name} {sparse:?}");
    }
}

/// Goal: a file that cannot be created in /proc has the error of GNU cp, also where only root may write.
#[test]
fn a_new_file_in_proc_is_reported_as_missing() {
    let place = TestDir::disk();
    let from = place.path().join("from");
    fs::write(&from, "new").unwrap();
    for to in ["/proc/ioloom-missing", "/proc/sys/ioloom-missing"] {
        let report = one(&from, Path::new(to), &CopyOptions::default());
        let expected = format!("cannot create regular file '{to}': No such file or directory");
        assert_eq!(messages(&report), expected);
    }
}

/// Goal: attributes of security modules survive a replacement, except those that depend on the content.
#[test]
fn a_replacement_keeps_the_attributes_of_security_modules() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    fs::write(&to, "old").unwrap();
    let set = |name: &CStr| {
        let opened = File::options().write(true).open(&to).unwrap();
        rustix::fs::fsetxattr(&opened, name, b"x", rustix::fs::XattrFlags::empty())
    };
    if let Err(e) = set(c"security.foo") {
        return println!("skipped: cannot set attributes of security modules: {e}");
    }
    let before = fs::metadata(&to).unwrap().ino();
    let report = one(&from, &to, &CopyOptions::default());
    assert_eq!(report.errors_count, 0, "{}", messages(&report));
    assert_ne!(fs::metadata(&to).unwrap().ino(), before);
    let mut value = [0; 8];
    let got = rustix::fs::getxattr(&to, c"security.foo", &mut value).unwrap();
    assert_eq!(&value[..got], b"x");
}

/// Creates the target during the copy.
struct Other(PathBuf);

impl Watcher for Other {
    fn before_verify(&self, _: BorrowedFd<'_>) {
        fs::write(&self.0, "other").unwrap();
    }
}

#[test]
fn a_file_that_appears_during_the_copy_is_treated_like_one_that_existed() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let kept = place.path().join("to.old");
    fs::write(&from, "new").unwrap();
    let simple = || Some(Backup { names: BackupNames::Simple, suffix: ".old".into() });
    for (existing, backup, content, skipped) in [
        (Existing::Keep, None, "other", 1),
        (Existing::Update, None, "other", 1),
        (Existing::Replace, None, "new", 0),
        (Existing::Replace, simple(), "new", 0),
    ] {
        let backs_up = backup.is_some();
        let verify = Verify::Cache;
        let options = CopyOptions { existing, backup, verify, ..CopyOptions::default() };
        let (sources, target) = ([from.clone()], Target::As(to.clone()));
        let counters = CopyCounters::default();
        let report = copy(&sources, &target, &options, &Other(to.clone()), &counters).unwrap();
        assert_eq!(report.errors_count, 0, "{}", messages(&report));
        let counts = (report.counts.skipped, report.counts.files);
        assert_eq!(counts, (skipped, 1 - skipped), "{existing:?}");
        assert_eq!(fs::read_to_string(&to).unwrap(), content, "{existing:?}");
        assert_eq!(fs::read(&kept).is_ok_and(|bytes| bytes == b"other"), backs_up);
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn a_file_is_not_emptied_by_a_method_that_cannot_be_used() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    fs::write(&to, "old").unwrap();
    let when = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(&to).unwrap().set_modified(when).unwrap();
    let (overwrite, mode) = (Overwrite::InPlace, Some(Mode::Range));
    for (verify, errors, content) in [(Verify::InFlight, 1, "old"), (Verify::None, 0, "new")] {
        let options = CopyOptions { overwrite, mode, verify, ..CopyOptions::default() };
        let report = one(&from, &to, &options);
        assert_eq!(report.errors_count, errors, "{}", messages(&report));
        let is_untouched = fs::metadata(&to).unwrap().modified().unwrap() == when;
        assert_eq!(is_untouched, errors == 1, "{verify:?}");
        assert_eq!(fs::read_to_string(&to).unwrap(), content, "{verify:?}");
    }
}
