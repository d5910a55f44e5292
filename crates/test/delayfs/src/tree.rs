//! Names, inode numbers and contents, all computed from the options.
//!
//! The root has the inode number 1, directories follow, then files. File `i` is `dNN/fNNNNNN`.

use crate::Options;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Inode number of the root, fixed by the protocol.
const ROOT: u64 = 1;

/// A directory or file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    Root,
    Dir(usize),
    File(usize),
}

/// The tree of one file system.
#[derive(Debug)]
pub(crate) struct Tree {
    files: usize,
    sizes: Vec<u64>,
    dirs: usize,
}

impl Tree {
    pub(crate) fn new(options: &Options) -> Self {
        Self { files: options.files, sizes: options.sizes.clone(), dirs: options.dirs.get() }
    }

    pub(crate) fn node(&self, inode: u64) -> Option<Node> {
        let index = usize::try_from(inode.checked_sub(ROOT)?).ok()?;
        match index.checked_sub(1) {
            None => Some(Node::Root),
            Some(dir) if dir < self.dirs => Some(Node::Dir(dir)),
            Some(other) => (other - self.dirs < self.files).then(|| Node::File(other - self.dirs)),
        }
    }

    pub(crate) fn inode(&self, node: Node) -> u64 {
        let index = match node {
            Node::Root => 0,
            Node::Dir(dir) => 1 + dir,
            Node::File(file) => 1 + self.dirs + file,
        };
        ROOT + index as u64
    }

    /// Returns the size of a file; of a directory, zero.
    pub(crate) fn size(&self, node: Node) -> u64 {
        match node {
            Node::File(file) => self.sizes[file % self.sizes.len()],
            Node::Root | Node::Dir(_) => 0,
        }
    }

    /// Finds a name in a directory.
    pub(crate) fn child(&self, parent: Node, name: &OsStr) -> Option<Node> {
        let text = name.to_str()?;
        let number = || text.get(1..)?.parse().ok();
        let node = match parent {
            Node::Root => Node::Dir(number().filter(|dir| *dir < self.dirs)?),
            Node::Dir(dir) => Node::File(number().filter(|i| self.files_of(dir).contains(i))?),
            Node::File(_) => return None,
        };
        (self.name(node) == text).then_some(node)
    }

    /// Returns the entries of a directory; of a file, none.
    pub(crate) fn entries(&self, parent: Node) -> Vec<Node> {
        match parent {
            Node::Root => (0..self.dirs).map(Node::Dir).collect(),
            Node::Dir(dir) => self.files_of(dir).map(Node::File).collect(),
            Node::File(_) => Vec::new(),
        }
    }

    pub(crate) fn parent(&self, node: Node) -> Node {
        match node {
            Node::Root | Node::Dir(_) => Node::Root,
            Node::File(file) => Node::Dir(file / self.per_dir()),
        }
    }

    pub(crate) fn name(&self, node: Node) -> String {
        match node {
            Node::Root => String::new(),
            Node::Dir(dir) => format!("d{dir:02}"),
            Node::File(file) => format!("f{file:06}"),
        }
    }

    /// Returns the path of a file relative to the root.
    pub(crate) fn path(&self, file: usize) -> PathBuf {
        let node = Node::File(file);
        PathBuf::from(self.name(self.parent(node))).join(self.name(node))
    }

    fn files_of(&self, dir: usize) -> std::ops::Range<usize> {
        let start = (dir * self.per_dir()).min(self.files);
        start..(start + self.per_dir()).min(self.files)
    }

    fn per_dir(&self) -> usize {
        self.files.div_ceil(self.dirs).max(1)
    }
}

/// Returns `len` bytes of the contents of file `file` from `offset`, as if it had no end. All files
/// and all aligned words of eight bytes differ, so a misplaced piece shows.
pub fn content(file: usize, offset: u64, len: usize) -> Vec<u8> {
    let first = offset / 8;
    let skip = (offset % 8) as usize;
    let words = (skip + len).div_ceil(8) as u64;
    let mut bytes = Vec::with_capacity(words as usize * 8);
    for word in first..first + words {
        bytes.extend_from_slice(&mixed(((file as u64) << 40) ^ word).to_le_bytes());
    }
    bytes.drain(..skip);
    bytes.truncate(len);
    bytes
}

/// A bijection of 64-bit values in which neighbours differ in about half of their bits.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 31)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    value ^ (value >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: usize, dirs: usize) -> Tree {
        let mut options = Options::new(files, 10);
        options.sizes = vec![1, 2, 3];
        options.dirs = dirs.try_into().unwrap();
        Tree::new(&options)
    }

    #[test]
    fn every_file_is_in_one_directory() {
        for (files, dirs) in [(0, 1), (1, 1), (1, 4), (7, 3), (100, 7), (5, 9)] {
            let tree = tree(files, dirs);
            let mut seen = Vec::new();
            for dir in tree.entries(Node::Root) {
                assert_eq!(tree.child(Node::Root, OsStr::new(&tree.name(dir))), Some(dir));
                for file in tree.entries(dir) {
                    assert_eq!(tree.child(dir, OsStr::new(&tree.name(file))), Some(file));
                    assert_eq!(tree.parent(file), dir);
                    assert_eq!(tree.node(tree.inode(file)), Some(file));
                    seen.push(file);
                }
            }
            assert_eq!(seen, (0..files).map(Node::File).collect::<Vec<_>>(), "{files}/{dirs}");
            assert_eq!(tree.node((1 + dirs + files) as u64 + 1), None);
        }
    }

    #[test]
    fn other_names_are_not_found() {
        let tree = tree(100, 7);
        for name in ["d7", "d1", "d007", "x00", "d", "", "f000001", "d\u{e9}"] {
            assert_eq!(tree.child(Node::Root, OsStr::new(name)), None, "{name}");
        }
        // It exists in another directory.
        assert_eq!(tree.child(Node::Dir(1), OsStr::new("f000000")), None);
        assert_eq!(tree.child(Node::File(1), OsStr::new("f000000")), None);
        assert_eq!((tree.node(0), tree.size(Node::File(4))), (None, 2));
    }

    #[test]
    fn content_does_not_depend_on_how_it_is_read() {
        let whole = content(3, 0, 100);
        for offset in 0..100 {
            for len in [0, 1, 7, 8, 9, 100 - offset] {
                let end = (offset + len).min(100);
                let part = content(3, offset as u64, end - offset);
                assert_eq!(part, whole[offset..end], "{offset} {len}");
            }
        }
        assert_ne!(content(4, 0, 100), whole);
        assert_ne!(whole[..8], whole[8..16]);
    }
}
