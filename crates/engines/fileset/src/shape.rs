//! The shape of an existing tree, and the storage medium of a directory.

use crate::error::{SetError, io_error};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::fileset::Medium;
use ioloom_model::{Creation, DirectoryLayout, Distribution, FileSetSpec};
use std::path::Path;

/// The shape of a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// A set with the same number of files and the same sizes, in path order.
    pub spec: FileSetSpec,
    /// Total size in bytes.
    pub bytes: u64,
    /// Number of files and directories that could not be read and are missing from the set.
    pub errors_count: u64,
    /// The first error message.
    pub first_error: Option<String>,
}

/// Determines the shape of the tree below `dir`: the number of regular files and the size of each.
/// Names, contents and directories are ignored. Each file costs one stat and 8 bytes of memory,
/// plus its path.
pub fn spec_from_tree(dir: &Path, seed: u64) -> Result<Shape, SetError> {
    let (mut list, summary) = ioloom_walk::files(dir, &ioloom_walk::WalkOptions::default())?;
    list.sort();
    let mut sizes = Vec::with_capacity(list.len());
    let mut errors_count = summary.errors_count;
    let mut first_error = summary.errors.first().map(ToString::to_string);
    for index in 0..list.len() {
        let path = list.path(index);
        match ioloom_sys::dir::stat(path) {
            Ok(stat) => sizes.push(stat.bytes),
            Err(e) => {
                errors_count += 1;
                let error = PathError::new(Operation::Stat, path, e);
                first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }
    if sizes.is_empty() {
        let why = first_error.map_or_else(String::new, |error| format!(" ({error})"));
        let reason = format!("no regular files below {}{why}", quoted(dir));
        return Err(SetError::Spec { reason });
    }
    let bytes = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
    let spec = FileSetSpec {
        count: sizes.len() as u64,
        size: Distribution::List(sizes),
        compute: None,
        layout: DirectoryLayout::Nested,
        making: Creation::default(),
        seed,
    };
    Ok(Shape { spec, bytes, errors_count, first_error })
}

/// Returns the medium of `dir`, named `tmpfs` if in memory and otherwise after the directory. A
/// study that knows a better name replaces it.
pub fn medium(dir: &Path) -> Result<Medium, SetError> {
    let found = ioloom_sys::mount::medium(dir).map_err(io_error(Operation::FindMount, dir))?;
    let file_system = found.mount.file_system;
    let name = match file_system.as_str() {
        "tmpfs" | "ramfs" => "tmpfs".to_owned(),
        _ => dir.display().to_string(),
    };
    let (major, minor) = found.mount.device;
    Ok(Medium {
        name,
        device: format!("{major}:{minor}"),
        block_device: found.block_device,
        file_system,
        scheduler: found.scheduler,
        rotational: found.rotational,
        read_ahead_kib: found.read_ahead_kib,
    })
}
