//! The manifest: which set a directory contains, and whether it is complete.

use crate::error::{SetError, io_error};
use crate::names::{MANIFEST, MANIFEST_NEW};
use ioloom_failure::Operation;
use ioloom_model::{FileSetRealised, FileSetSpec};
use ioloom_sys::dir::Dir;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::Path;

/// Version of the manifest format and of the method that derives contents from the seed.
pub const FORMAT: u32 = 1;

/// The state of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Files may be missing.
    Making,
    /// All files have been created.
    Complete,
}

/// The content of a manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`] of the program that created the set.
    pub format: u32,
    /// The state of the set.
    pub state: State,
    /// Whether the directory itself was created for the set; if so, removal deletes it as well.
    pub made_dir: bool,
    /// The requested set.
    pub spec: FileSetSpec,
    /// The created set, if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realised: Option<FileSetRealised>,
}

/// Reads the manifest of the set in `dir`.
pub fn load(dir: &Path) -> Result<Manifest, SetError> {
    let held = Dir::open(dir).map_err(io_error(Operation::OpenDir, dir))?;
    read(&held, dir)?.ok_or_else(|| SetError::NoSet { dir: dir.to_owned() })
}

/// Reads the manifest; returns `None` if it does not exist.
pub(crate) fn read(held: &Dir, dir: &Path) -> Result<Option<Manifest>, SetError> {
    let path = dir.join(MANIFEST);
    let refuse = |reason: String| SetError::Manifest { path: path.clone(), reason };
    let mut file = match held.open_file_at(MANIFEST.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(io_error(Operation::Open, &path))?,
    };
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(io_error(Operation::Read, &path))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    if manifest.format != FORMAT {
        let theirs = manifest.format;
        return Err(refuse(format!("it has format {theirs}; this program reads {FORMAT}")));
    }
    Ok(Some(manifest))
}

/// Replaces the manifest atomically: writes a new one, syncs it and renames it.
pub(crate) fn write(held: &Dir, dir: &Path, manifest: &Manifest) -> Result<(), SetError> {
    let path = dir.join(MANIFEST);
    let mut text = serde_json::to_vec_pretty(manifest)
        .map_err(|e| SetError::Manifest { path: path.clone(), reason: e.to_string() })?;
    text.push(b'\n');
    let written = held.create_at(MANIFEST_NEW.as_bytes()).and_then(|mut file| {
        file.write(&text)?;
        file.sync()?;
        file.close()
    });
    written
        .and_then(|()| held.rename_at(MANIFEST_NEW.as_bytes(), MANIFEST.as_bytes()))
        .and_then(|()| held.sync())
        .map_err(io_error(Operation::Write, &path))
}
