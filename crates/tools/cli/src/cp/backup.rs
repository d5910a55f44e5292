//! The flags `-b`, `--backup` and `-S`, and the variables that complete them.

use crate::abbreviated::choice_of;
use crate::exit::Failure;
use crate::usage::with_hint;
use ioloom_copy::{Backup, BackupNames};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The words of --backup; those of the same meaning follow each other.
const CONTROLS: [(&str, Option<BackupNames>); 8] = [
    ("none", None),
    ("off", None),
    ("simple", Some(BackupNames::Simple)),
    ("never", Some(BackupNames::Simple)),
    ("existing", Some(BackupNames::Existing)),
    ("nil", Some(BackupNames::Existing)),
    ("numbered", Some(BackupNames::Numbered)),
    ("t", Some(BackupNames::Numbered)),
];

/// Returns the requested backups. `control` is the value of --backup, empty if it was given without
/// one or as -b. `keeps` is true if existing files are kept.
pub(super) fn wanted(
    control: Option<&str>,
    suffix: Option<&OsString>,
    keeps: bool,
) -> Result<Option<Backup>, Failure> {
    if control.is_none() && suffix.is_none() {
        return Ok(None);
    }
    // As in GNU cp, also if the control is none or invalid.
    if keeps {
        return Err(refused("options --backup and --no-clobber are mutually exclusive"));
    }
    let control = control.filter(|control| !control.is_empty());
    let (control, from) = match control {
        Some(control) => (control.to_owned(), "backup type"),
        None => (std::env::var("VERSION_CONTROL").unwrap_or_default(), "$VERSION_CONTROL"),
    };
    let names = match &*control {
        "" => Some(BackupNames::Existing),
        word => choice_of(from, word, &CONTROLS).map_err(|message| refused(&message))?,
    };
    let Some(names) = names else { return Ok(None) };
    let suffix = suffix.cloned().or_else(|| std::env::var_os("SIMPLE_BACKUP_SUFFIX"));
    let fits = |suffix: &OsString| !suffix.is_empty() && !suffix.as_bytes().contains(&b'/');
    let suffix = suffix.filter(fits).unwrap_or_else(|| "~".into());
    Ok(Some(Backup { names, suffix }))
}

fn refused(message: &str) -> Failure {
    Failure::usage(with_hint(message, "cp"))
}
