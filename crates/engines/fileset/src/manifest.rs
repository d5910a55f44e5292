//! The manifest: whose directory this is, what belongs in it, and whether it is complete.

use crate::SetError;
use crate::error::io_error;
use ioloom_model::{FileSetRealised, FileSetSpec};
use ioloom_sys::dir::Dir;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::Path;

/// Name of the manifest.
pub const MANIFEST: &str = ".ioloom-set.json";

/// Where a new manifest is written before it takes the place of the old one.
pub(crate) const MANIFEST_NEW: &str = ".ioloom-set.json.new";

/// Version of the manifest and of how contents follow from the seed.
pub const FORMAT: u32 = 1;

/// How far a set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Files may be missing.
    Making,
    /// All files were made.
    Complete,
}

/// What the manifest says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`] of the program that made it.
    pub format: u32,
    /// How far it is.
    pub state: State,
    /// Whether the directory itself was made for the set, so that removal takes it too.
    pub made_dir: bool,
    /// What was asked for.
    pub spec: FileSetSpec,
    /// What came out; only when complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realised: Option<FileSetRealised>,
}

/// Reads the manifest of the set in `dir`.
pub fn load(dir: &Path) -> Result<Manifest, SetError> {
    let held = Dir::open(dir).map_err(io_error("open directory", dir))?;
    read(&held, dir)?.ok_or_else(|| SetError::NoSet { dir: dir.to_owned() })
}

/// Reads the manifest; `None` if there is none.
pub(crate) fn read(held: &Dir, dir: &Path) -> Result<Option<Manifest>, SetError> {
    let path = dir.join(MANIFEST);
    let refuse = |reason: String| SetError::Manifest { path: path.clone(), reason };
    let mut file = match held.open_file_at(MANIFEST.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(io_error("open", &path))?,
    };
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(io_error("read", &path))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    if manifest.format != FORMAT {
        let theirs = manifest.format;
        return Err(refuse(format!("it has format {theirs}, and this program reads {FORMAT}")));
    }
    Ok(Some(manifest))
}

/// Puts the manifest in place: written beside, flushed, renamed.
pub(crate) fn write(held: &Dir, dir: &Path, manifest: &Manifest) -> Result<(), SetError> {
    let path = dir.join(MANIFEST);
    let mut text = serde_json::to_vec_pretty(manifest)
        .map_err(|e| SetError::Manifest { path: path.clone(), reason: e.to_string() })?;
    text.push(b'\n');
    let written = held.create_at(MANIFEST_NEW.as_bytes()).and_then(|mut file| {
        file.write(&text)?;
        file.sync()
    });
    written
        .and_then(|()| held.rename_at(MANIFEST_NEW.as_bytes(), MANIFEST.as_bytes()))
        .and_then(|()| held.sync())
        .map_err(io_error("write", &path))
}
