//! Attributes of files and directories that existed at the target.

use super::{alone, run};
use ioloom_copy::{Attributes, Backup, BackupNames, CopyOptions, Preserve, Report};
use ioloom_sys::attr::XattrOf;
use ioloom_sys::fault;
use ioloom_testbed::Disk;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::{Arc, Mutex};

/// Goal: an old file whose ACL cannot be read is not replaced by one that more users can read. Method: the mask
/// of the ACL is in the bits of the group.
#[test]
fn an_acl_that_cannot_be_listed_is_an_error_and_grants_nothing() {
    // user::rw-, user:1000:rw-, group::---, mask::rw-, other::---
    const LIST: [u8; 44] = [
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 232, 3, 0, 0, 4, 0, 0, 0, 255, 255,
        255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
    ];
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    let options = CopyOptions::default();
    for call in 1..=3 {
        let _ = fs::remove_file(&to);
        fs::write(&to, "old").unwrap();
        fs::set_permissions(&to, Permissions::from_mode(0o600)).unwrap();
        let old = File::open(&to).unwrap();
        let name = c"system.posix_acl_access";
        if XattrOf::Open(old.as_fd()).set(name, &LIST).is_err() {
            return println!("skipped: this file system has no ACLs");
        }
        assert_eq!(old.metadata().unwrap().mode() & 0o777, 0o660);
        fault::set(&format!("listxattr:{call}:5"));
        let report: Report = run(&from, &to, &options).unwrap();
        fault::set("");
        let now = File::open(&to).unwrap();
        let has_acl = XattrOf::Open(now.as_fd()).get(name).unwrap().is_some();
        let group = now.metadata().unwrap().mode() & 0o070;
        assert!(has_acl || group == 0, "call {call}: the group got {group:o}");
        assert!(has_acl || report.errors_count > 0, "call {call}: no error was reported");
    }
}

/// Goal: an old file whose attributes of security modules find no space stays as it is: written in place, it could lose
/// its content without getting the new one.
#[test]
fn an_old_file_stays_if_its_attributes_find_no_space() {
    const ENOSPC: i32 = 28;
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    fs::write(&to, "old").unwrap();
    let old = File::open(&to).unwrap();
    if let Err(e) = XattrOf::Open(old.as_fd()).set(c"security.foo", b"x") {
        return println!("skipped: cannot set attributes of security modules: {e}");
    }
    fault::set(&format!("setxattr:1:{ENOSPC}"));
    let report = run(&from, &to, &CopyOptions::default()).unwrap();
    fault::set("");
    assert_eq!(report.errors_count, 1, "{:?}", report.errors);
    assert!(report.errors[0].is_out_of_space(), "{:?}", report.errors);
    assert_eq!(fs::read(&to).unwrap(), b"old");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "a hidden file is left");
}

/// Goal: an attribute for which a file has no space, although the disk is not full, is an error only if attributes are
/// required.
#[test]
fn a_file_without_space_for_an_attribute_is_copied() {
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    if let Err(e) = XattrOf::Open(File::open(&from).unwrap().as_fd()).set(c"user.test", b"x") {
        return println!("skipped: cannot set extended attributes: {e}");
    }
    for (attributes, errors) in [(Attributes::Possible, 0), (Attributes::Required, 1)] {
        let options = CopyOptions { preserve: Preserve::ALL, attributes, ..CopyOptions::default() };
        fault::set("setxattr:1:28");
        let report = run(&from, &to, &options).unwrap();
        fault::set("");
        assert_eq!(report.errors_count, errors, "{:?}", report.errors);
        assert!(report.errors.iter().all(|error| {
            error.to_string().ends_with("; the file system limits the attributes of a file")
        }));
        assert_eq!(fs::read(&to).unwrap(), b"new");
        fs::remove_file(&to).unwrap();
    }
}

/// Goal: whether the file system sets modes itself is known of the directory that is merged into. Method: a file
/// system mounted on that directory is asked once more than that of the directory above.
#[test]
fn the_properties_of_a_target_are_those_of_what_is_mounted_on_it() {
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let from = place.path().join("from");
    fs::create_dir(&from).unwrap();
    let Some(disk) = Disk::make(&place.path().join("image"), 16 << 20) else { return };
    let same = place.path().join("same");
    fs::create_dir(&same).unwrap();
    let options = CopyOptions { recursive: true, threads: Some(1), ..CopyOptions::default() };
    let calls = [same.as_path(), disk.path()].map(|to| {
        fault::set("");
        assert_eq!(run(&from, to, &options).unwrap().errors_count, 0);
        fault::calls_of("fstatfs")
    });
    fault::set("");
    assert_eq!(calls[1], calls[0] + 1);
}

/// Goal: the new owner and group of an existing file do not get its old permissions. Method: its mode is recorded
/// before each change of the owner.
#[test]
fn old_permissions_are_restricted_before_the_owner_changes() {
    const OTHER: u32 = 65534;
    let _alone = alone();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::write(&from, "new").unwrap();
    fs::write(&to, "old").unwrap();
    // It is written in place.
    fs::hard_link(&to, place.path().join("other")).unwrap();
    fs::set_permissions(&to, Permissions::from_mode(0o666)).unwrap();
    let own = fs::metadata(&from).unwrap().uid();
    if own == OTHER || std::os::unix::fs::chown(&from, Some(OTHER), Some(OTHER)).is_err() {
        return println!("skipped: this user may not change owners");
    }
    fs::set_permissions(&from, Permissions::from_mode(0o440)).unwrap();
    let (modes, path) = (Arc::new(Mutex::new(Vec::new())), to.clone());
    let seen = modes.clone();
    fault::before_each(Some(Box::new(move |op| {
        if op == "fchown" {
            seen.lock().unwrap().push(fs::metadata(&path).unwrap().mode() & 0o7777);
        }
    })));
    let preserve = Preserve { mode: true, owner: true, ..Preserve::default() };
    let report = run(&from, &to, &CopyOptions { preserve, ..CopyOptions::default() }).unwrap();
    fault::before_each(None);
    assert_eq!(report.errors_count, 0, "{:?}", report.errors);
    assert_eq!(*modes.lock().unwrap(), [0o400]);
    let now = fs::metadata(&to).unwrap();
    assert_eq!((now.mode() & 0o7777, now.uid(), now.nlink()), (0o440, OTHER, 2));
}

/// Goal: an old file that has its backup is not left under a hidden name by a copy that succeeds. Method: the removals
/// fail, one after another.
#[test]
fn an_old_name_that_cannot_be_removed_is_an_error() {
    let _alone = alone();
    let mut removals = 0;
    for call in 1..=3 {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        let backup = Backup { names: BackupNames::Numbered, suffix: "~".into() };
        let options = CopyOptions { backup: Some(backup), ..CopyOptions::default() };
        fault::set(&format!("unlinkat:{call}:5"));
        let report = run(&from, &to, &options).unwrap();
        removals += fault::calls_of("unlinkat");
        fault::set("");
        let names = fs::read_dir(place.path()).unwrap();
        let hidden = names.filter(|name| {
            let name = name.as_ref().unwrap().file_name();
            name.to_string_lossy().contains(".ioloom-")
        });
        assert!(report.errors_count > 0 || hidden.count() == 0, "removal {call}: {report:?}");
        let text = fs::read_to_string(&to).unwrap();
        assert_eq!(text, if report.errors_count == 0 { "new" } else { "old" }, "{call}");
    }
    assert!(removals > 0, "nothing was removed");
}
