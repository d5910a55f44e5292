//! The shape of a tree that exists, and the medium below a directory.

use crate::SetError;
use crate::error::io_error;
use ioloom_model::fileset::Medium;
use ioloom_model::{Creation, DirectoryLayout, Distribution, FileSetSpec};
use std::path::Path;

/// What was learnt of a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// A set with the same number of files and the same sizes, in the order of their paths.
    pub spec: FileSetSpec,
    /// Sum of sizes, bytes.
    pub bytes: u64,
    /// Files and directories that could not be asked, and are missing in the set.
    pub errors_count: u64,
    /// The first of them in words.
    pub first_error: Option<String>,
}

/// Copies the shape of the tree below `dir`: how many regular files, and how large each is. Names,
/// contents and directories are not copied. One question per file; 8 bytes of memory per file
/// besides its path.
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
                let error = io_error("ask for", path)(e);
                first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }
    if sizes.is_empty() {
        let why = first_error.map_or_else(String::new, |error| format!(" ({error})"));
        let reason = format!("there is no regular file below {}{why}", dir.display());
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

/// What `dir` lies on. Its name is `tmpfs` for memory, else the directory; a study that knows a
/// better word puts it in.
pub fn medium(dir: &Path) -> Result<Medium, SetError> {
    let found = ioloom_sys::mount::medium(dir).map_err(io_error("find the medium of", dir))?;
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
