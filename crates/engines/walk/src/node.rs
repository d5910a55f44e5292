//! Directories, stored as name and parent so that deep paths share their prefixes.

use ioloom_sys::dir::Meta;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A directory that was entered.
#[derive(Debug)]
pub(crate) struct Node<D> {
    pub(crate) parent: Option<Arc<Node<D>>>,
    /// The last name; for a root the path as given.
    pub(crate) name: Box<[u8]>,
    pub(crate) depth: u32,
    pub(crate) root: u32,
    pub(crate) meta: Option<Meta>,
    pub(crate) data: D,
    /// Unfinished parts and subdirectories. The last one to finish leaves the directory.
    open: AtomicU32,
    missed: AtomicBool,
}

impl<D> Drop for Node<D> {
    /// Drops the chain in a loop; recursion would overflow the stack in a deep tree.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(parent) = next {
            next = Arc::into_inner(parent).and_then(|mut node| node.parent.take());
        }
    }
}

impl<D> Node<D> {
    /// Creates a directory with one open part, which is the reading of it.
    pub(crate) fn new(
        parent: Option<Arc<Self>>,
        name: Box<[u8]>,
        root: u32,
        meta: Option<Meta>,
        data: D,
    ) -> Self {
        let depth = parent.as_ref().map_or(0, |parent| parent.depth + 1);
        let (open, missed) = (AtomicU32::new(1), AtomicBool::new(false));
        Self { parent, name, depth, root, meta, data, open, missed }
    }

    /// Adds a part or subdirectory. Another one must be open.
    pub(crate) fn begin(&self) {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a directory that was left must not get new parts");
    }

    /// Finishes parts or subdirectories. Returns true if they were the last; the caller then sees
    /// the effects of all others.
    pub(crate) fn end(&self, parts: u32) -> bool {
        let before = self.open.fetch_sub(parts, Ordering::AcqRel);
        debug_assert!(before >= parts, "each part ends once, so that a directory is left once");
        before == parts
    }

    pub(crate) fn miss(&self) {
        self.missed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_whole(&self) -> bool {
        !self.missed.load(Ordering::Relaxed)
    }

    /// Reports whether this directory or one above it is the one that `meta` describes.
    pub(crate) fn is_within(&self, meta: &Meta) -> bool {
        let mut at = Some(self);
        while let Some(node) = at {
            if node.meta.is_some_and(|own| own.identity() == meta.identity()) {
                return true;
            }
            at = node.parent.as_deref();
        }
        false
    }

    /// Returns the path of the root as given.
    pub(crate) fn root_path(&self) -> &[u8] {
        let mut at = self;
        while let Some(parent) = at.parent.as_deref() {
            at = parent;
        }
        &at.name
    }

    /// Writes the path below the root, with a final slash; empty for the root.
    pub(crate) fn write_path(&self, path: &mut Vec<u8>) {
        path.clear();
        self.append_path(path);
    }

    /// Appends the path below the root, with a final slash.
    fn append_path(&self, path: &mut Vec<u8>) {
        let start = path.len();
        let mut bytes = 0;
        let mut at = self;
        while let Some(parent) = at.parent.as_deref() {
            bytes += at.name.len() + 1;
            at = parent;
        }
        path.resize(start + bytes, b'/');
        let mut end = start + bytes;
        let mut at = self;
        while let Some(parent) = at.parent.as_deref() {
            let first = end - 1 - at.name.len();
            path[first..end - 1].copy_from_slice(&at.name);
            end = first;
            at = parent;
        }
    }

    /// Returns the path of `name` in this directory, or of the directory if `name` is empty. It
    /// begins with the root as given.
    pub(crate) fn whole_path(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.root_path().to_vec();
        if (self.parent.is_some() || !name.is_empty()) && path.last() != Some(&b'/') {
            path.push(b'/');
        }
        self.append_path(&mut path);
        if name.is_empty() && self.parent.is_some() {
            path.pop();
        }
        path.extend_from_slice(name);
        path
    }
}

pub(crate) fn path_from(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(root: &[u8], names: &[&[u8]]) -> Arc<Node<()>> {
        let mut at = Arc::new(Node::new(None, root.into(), 0, None, ()));
        for name in names {
            at = Arc::new(Node::new(Some(at), (*name).into(), 0, None, ()));
        }
        at
    }

    #[test]
    fn paths_are_built_from_names() {
        let node = chain(b"/r", &[b"a", b"bc"]);
        let mut path = b"old".to_vec();
        node.write_path(&mut path);
        assert_eq!(path, b"a/bc/");
        assert_eq!(node.whole_path(b"f"), b"/r/a/bc/f");
        assert_eq!(node.whole_path(b""), b"/r/a/bc");
        assert_eq!(node.depth, 2);
        let root = chain(b"dir/", &[]);
        assert_eq!(
            (root.whole_path(b""), root.whole_path(b"x")),
            (b"dir/".to_vec(), b"dir/x".to_vec())
        );
        root.write_path(&mut path);
        assert!(path.is_empty());
        assert_eq!(chain(b"/", &[b"etc"]).whole_path(b""), b"/etc");
    }

    #[test]
    fn the_last_part_ends_a_directory_and_long_chains_drop_without_recursion() {
        let names: Vec<&[u8]> = vec![b"n"; 200_000];
        let node = chain(b".", &names);
        node.begin();
        node.begin();
        assert!(!node.end(1));
        assert!(node.end(2));
        drop(node);
    }
}
