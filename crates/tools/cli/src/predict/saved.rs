//! The calibration of this machine, saved in the store with its context.

use crate::atomic_file;
use crate::directories::StoreArg;
use crate::exit::Failure;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_predict::WalkModel;
use ioloom_predict::answer::profile::Measured;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::PathBuf;

/// Version of the saved file.
const SCHEMA: u32 = 1;

/// What the probes found, and where and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Calibration {
    pub(super) schema: u32,
    /// Version of the program.
    pub(super) program: String,
    /// Fingerprint of the machine.
    pub(super) machine: String,
    /// Time of the probes, in UTC.
    pub(super) at: String,
    /// Directory of the probes.
    pub(super) dir: String,
    /// Conditions of the probes, in one sentence each.
    pub(super) conditions: Vec<String>,
    /// Reading small files and large ones.
    pub(super) files: Measured,
    /// Walking them.
    pub(super) walk: WalkModel,
    pub(super) walk_files: u64,
    pub(super) walk_threads: u32,
    /// All probes: name, requests in flight or threads, seconds.
    pub(super) probes: Vec<(String, u32, f64)>,
}

impl Calibration {
    pub(super) const SCHEMA: u32 = SCHEMA;

    /// Returns where and when the machine was measured.
    pub(super) fn context(&self) -> String {
        format!("{} in {}; {}", self.at, self.dir, self.conditions.join("; "))
    }
}

fn path(store: &StoreArg) -> Result<PathBuf, Failure> {
    Ok(store.dir()?.join("predict").join("calibration.json"))
}

/// Saves a calibration; the previous one is replaced. Returns the path.
pub(super) fn write(store: &StoreArg, calibration: &Calibration) -> Result<PathBuf, Failure> {
    let path = path(store)?;
    let text = serde_json::to_string_pretty(calibration).map_err(Failure::failed)?;
    atomic_file::write(&path, text + "\n")?;
    Ok(path)
}

/// Returns the saved calibration, if any.
pub(super) fn read(store: &StoreArg) -> Result<Option<Calibration>, Failure> {
    let path = path(store)?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::failed(PathError::new(Operation::Read, path, e))),
    };
    let invalid = |reason: String| {
        let path = quoted(&path);
        Failure::failed(format!(
            "cannot read {path}: {reason}; run 'ioloom predict --calibrate' again"
        ))
    };
    let found: Calibration = serde_json::from_str(&text).map_err(|e| invalid(e.to_string()))?;
    if found.schema != SCHEMA {
        return Err(invalid(format!("schema {} is not {SCHEMA}", found.schema)));
    }
    Ok(Some(found))
}
