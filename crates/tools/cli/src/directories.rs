//! The default directories: file sets in the user's cache directory, results in the data directory.
//!
//! They are separate so that clearing the cache does not delete measurements. XDG base directory
//! variables are ignored unless they contain absolute paths.

use crate::exit::Failure;
use crate::out::readable;
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The `--store` flag.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StoreArg {
    /// Directory for results
    ///
    /// Default: $XDG_DATA_HOME/ioloom or ~/.local/share/ioloom.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
}

impl StoreArg {
    /// Returns the store directory, which may not exist yet.
    pub(crate) fn dir(&self) -> Result<PathBuf, Failure> {
        match &self.store {
            Some(dir) => Ok(dir.clone()),
            None => base("XDG_DATA_HOME", ".local/share", "--store DIR"),
        }
    }
}

/// Returns the directory for file sets: `dir`, or the default in the cache directory.
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
        .ok_or_else(|| {
            let reason = format!("neither HOME nor {variable} is an absolute path");
            Failure::usage(format!("{reason}; use {flag}"))
        })
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// Returns a path for messages, with `~` for the home directory.
pub(crate) fn short(path: &Path) -> String {
    match home().and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", readable(rest.as_os_str().as_encoded_bytes())),
        None => readable(path.as_os_str().as_encoded_bytes()),
    }
}
