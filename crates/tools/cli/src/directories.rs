//! Where things lie: sets in the user's cache directory, results in the user's data directory.
//!
//! Two places, so that whoever empties a cache loses nothing that took time to measure. The
//! variables of the XDG base directories are honoured when they are absolute.

use crate::exit::Failure;
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where results are kept.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StoreArg {
    /// Where results are kept [default: $XDG_DATA_HOME/ioloom or ~/.local/share/ioloom]
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
}

impl StoreArg {
    /// The directory of the store; it may not be there yet.
    pub(crate) fn dir(&self) -> Result<PathBuf, Failure> {
        match &self.store {
            Some(dir) => Ok(dir.clone()),
            None => base("XDG_DATA_HOME", ".local/share", "--store DIR"),
        }
    }
}

/// Where sets are made: the given directory, or below the user's cache directory.
pub(crate) fn work_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    match given {
        Some(dir) => Ok(dir.to_owned()),
        None => base("XDG_CACHE_HOME", ".cache", "--dir DIR"),
    }
}

fn base(variable: &str, below_home: &str, flag: &str) -> Result<PathBuf, Failure> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    std::env::var_os(variable)
        .and_then(absolute)
        .or_else(|| Some(home()?.join(below_home)))
        .map(|dir| dir.join("ioloom"))
        .ok_or_else(|| Failure::usage(format!("neither HOME nor {variable} is set: use {flag}")))
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// A path for people: `~` for the home directory.
pub(crate) fn short(path: &Path) -> String {
    match home().and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}
