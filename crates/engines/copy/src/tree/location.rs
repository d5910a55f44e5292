//! Where the walk found an entry.

use crate::dirs::{CopiedName, CopyDir, Roots, shown_source, target_path};
use ioloom_walk::DirRef;
use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The location of an entry.
#[derive(Clone, Copy)]
pub(super) enum Location<'a> {
    In(DirRef<'a, CopyDir>),
    Root(usize, &'a Path),
}

impl Location<'_> {
    /// Returns the source and target paths of the entry.
    pub(super) fn paths(&self, roots: &Roots, name: &[u8]) -> (PathBuf, PathBuf) {
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        match self {
            Self::In(dir) => {
                let from = shown_source(roots, dir.root(), dir.path_of(name));
                (from, target_path(roots, Some(*dir), dir.root(), name))
            }
            Self::Root(root, path) => ((*path).to_owned(), roots.to[*root].path.clone()),
        }
    }

    /// Returns the name under which later hard links find the copy.
    pub(super) fn copied_name(&self, name: &CStr) -> CopiedName {
        match self {
            Self::In(dir) => CopiedName::In(dir.keep(), name.to_bytes().into()),
            Self::Root(root, _) => CopiedName::Root(*root),
        }
    }
}
