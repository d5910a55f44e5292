//! Random trees: names with all kinds of bytes, sizes around every boundary, holes, links, modes,
//! attributes and times.

use proptest::prelude::*;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// An entry to create in a directory that was created earlier.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    name: Vec<u8>,
    /// Index of the directory among those created so far.
    home: usize,
    mode: u32,
    modified_s: i64,
    modified_ns: u32,
    owner: Option<u32>,
    xattr: Option<Vec<u8>>,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Dir,
    File(u64, u8),
    /// Size, and data ranges as shares of it.
    Sparse(u64, Vec<(u16, u16)>),
    Symlink(Vec<u8>),
    HardLink(usize),
    Fifo,
}

/// Boundaries of the copier and of file systems, and one byte on either side.
fn sizes() -> impl Strategy<Value = u64> {
    let around = [0u64, 512, 4096, 8192, 64 << 10, 256 << 10, 1 << 20, 3 << 20];
    let edge = (proptest::sample::select(around.to_vec()), 0u64..3)
        .prop_map(|(size, side)| (size + side).saturating_sub(1));
    prop_oneof![4 => edge, 2 => 0u64..70_000, 1 => 0u64..2_000_000]
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => "[a-z]{1,8}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(1u8.., 1..40),
        1 => Just(vec![b'n'; 255]),
        1 => "[ \n\t'\"\\\\*?-]{1,4}".prop_map(String::into_bytes),
    ]
    .prop_map(|mut name| {
        name.iter_mut().filter(|b| **b == b'/').for_each(|b| *b = b'_');
        if name == b"." || name == b".." { b"dots".to_vec() } else { name }
    })
}

fn whats() -> impl Strategy<Value = What> {
    let pieces = proptest::collection::vec((any::<u16>(), 0u16..2000), 0..4);
    prop_oneof![
        3 => Just(What::Dir),
        8 => (sizes(), any::<u8>()).prop_map(|(size, seed)| What::File(size, seed)),
        2 => (sizes().prop_map(|s| s * 3), pieces).prop_map(|(s, p)| What::Sparse(s, p)),
        2 => names().prop_map(What::Symlink),
        3 => any::<usize>().prop_map(What::HardLink),
        1 => Just(What::Fifo),
    ]
}

/// A tree as a list of entries to create.
pub(crate) fn tree() -> impl Strategy<Value = Vec<Item>> {
    let modes =
        prop_oneof![4 => Just(0o644u32), 2 => 0u32..0o1000, 1 => Just(0o6755), 1 => Just(0o1777)];
    // Sizes that every file system here supports.
    let time = (-2_000_000_000i64..4_000_000_000, 0u32..1_000_000_000);
    let owner = proptest::option::weighted(0.2, 1u32..70_000);
    let xattr = proptest::option::weighted(0.2, proptest::collection::vec(any::<u8>(), 0..60));
    let item = (names(), any::<usize>(), modes, time, owner, xattr, whats()).prop_map(
        |(name, home, mode, (modified_s, modified_ns), owner, xattr, what)| Item {
            name,
            home,
            mode,
            modified_s,
            modified_ns,
            owner,
            xattr,
            what,
        },
    );
    proptest::collection::vec(item, 0..40)
}

/// Creates the tree below `root`, omitting entries that this file system does not support.
pub(crate) fn make(root: &Path, items: &[Item]) {
    let mut dirs = vec![root.to_owned()];
    let mut made: Vec<(PathBuf, &Item)> = Vec::new();
    for item in items {
        let path = dirs[item.home % dirs.len()].join(OsStr::from_bytes(&item.name));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        let done = match &item.what {
            What::Dir => std::fs::create_dir(&path).map(|()| dirs.push(path.clone())),
            What::File(size, seed) => std::fs::write(&path, content(*size, *seed)),
            What::Sparse(size, pieces) => sparse(&path, *size, pieces),
            What::Symlink(to) => std::os::unix::fs::symlink(OsStr::from_bytes(to), &path),
            What::HardLink(which) => match made.len() {
                0 => continue,
                n => std::fs::hard_link(&made[which % n].0, &path),
            },
            What::Fifo => {
                std::process::Command::new("mkfifo").arg("--").arg(&path).status().map(drop)
            }
        };
        if done.is_ok() {
            made.push((path, item));
        }
    }
    for (path, item) in made.iter().rev() {
        if let What::HardLink(_) = item.what {
            continue;
        }
        dress(path, item);
    }
}

fn content(size: u64, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) | 1;
    let mut bytes = Vec::with_capacity(size as usize);
    while (bytes.len() as u64) < size {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.push((state >> 33) as u8);
    }
    bytes
}

fn sparse(path: &Path, size: u64, pieces: &[(u16, u16)]) -> std::io::Result<()> {
    let file = std::fs::File::create(path)?;
    file.set_len(size)?;
    for (at, len) in pieces {
        let at = size * u64::from(*at) / 65_536;
        let len = u64::from(*len).min(size - at);
        file.write_all_at(&content(len, 7), at)?;
    }
    Ok(())
}

fn dress(path: &Path, item: &Item) {
    let is_link = matches!(item.what, What::Symlink(_));
    if let (Some(value), false) = (&item.xattr, is_link) {
        let name = CString::new("user.ioloom.test").unwrap();
        // Not every file type and file system supports them.
        let _ = rustix::fs::lsetxattr(path, &name, value, rustix::fs::XattrFlags::empty());
    }
    if let Some(owner) = item.owner {
        // Only root can do this.
        let _ = std::os::unix::fs::lchown(path, Some(owner), Some(owner));
    }
    if !is_link {
        // An unprivileged user could no longer read it.
        let floor = if rustix::process::geteuid().is_root() { 0 } else { 0o700 };
        let permissions = std::fs::Permissions::from_mode(item.mode | floor);
        std::fs::set_permissions(path, permissions).unwrap();
    }
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: item.modified_s / 2, tv_nsec: 5 },
        last_modification: rustix::fs::Timespec {
            tv_sec: item.modified_s,
            tv_nsec: item.modified_ns.into(),
        },
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}
