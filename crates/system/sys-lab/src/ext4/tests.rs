//! Creates images with `mkfs.ext4`, in every format that moves a table or changes an inode,
//! compares them with their source directory, and checks that every kind of damage is an error.

use super::*;
use ioloom_sys::dir::Kind;
use proptest::prelude::*;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates an image from `from`; prints a message and returns `None` if that is not possible.
fn image(dir: &Path, from: &Path, options: &[&str]) -> Option<Vec<u8>> {
    let path: PathBuf = dir.join("image");
    let _ = std::fs::remove_file(&path);
    std::fs::File::create(&path).unwrap().set_len(48 << 20).unwrap();
    let tool =
        if Path::new("/usr/sbin/mkfs.ext4").exists() { "/usr/sbin/mkfs.ext4" } else { "mkfs.ext4" };
    let made =
        Command::new(tool).args(["-q", "-F", "-d"]).arg(from).args(options).arg(&path).output();
    match made {
        Ok(made) if made.status.success() => Some(std::fs::read(&path).unwrap()),
        other => {
            println!("skipped: mkfs.ext4 {options:?}: {other:?}");
            None
        }
    }
}

/// Returns a reader for a device that ends with `bytes`.
fn reader(bytes: &[u8]) -> impl FnMut(&mut [u8], u64) -> std::io::Result<usize> {
    move |into, at| {
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or(&[]);
        let long = rest.len().min(into.len());
        into[..long].copy_from_slice(&rest[..long]);
        Ok(long)
    }
}

/// Kind, permissions, links, size, and modification time in seconds.
type Listed = (Kind, u16, u32, u64, i64);

/// Lists everything in the image except directories, sorted.
fn list(bytes: &[u8]) -> Vec<Listed> {
    let groups = Groups::read(reader(bytes)).unwrap();
    // Inodes below 11 are reserved by the file system.
    let all = (11..=u64::from(groups.layout().inodes)).filter_map(|number| {
        let at = groups.place(number)? as usize;
        match inode(groups.layout(), number, &bytes[at..]) {
            Ok(found) => Some(found.meta),
            Err(InodeError::Unused) => None,
            Err(other) => panic!("{number}: {other:?}"),
        }
    });
    let files = all.filter(|meta| meta.kind != Kind::Directory);
    let listed = |m: ioloom_sys::dir::Meta| (m.kind, m.mode, m.links, m.bytes, m.mtime.0);
    let mut all: Vec<Listed> = files.map(listed).collect();
    all.sort();
    all
}

fn source(root: &Path) -> Vec<Listed> {
    for d in 0..12 {
        let dir = root.join(format!("d{d}"));
        std::fs::create_dir(&dir).unwrap();
        for f in 0..30 {
            std::fs::write(dir.join(format!("f{f}")), vec![7; d * f * 13]).unwrap();
        }
        std::fs::hard_link(dir.join("f3"), root.join(format!("again{d}"))).unwrap();
        symlink("somewhere", dir.join("link")).unwrap();
    }
    // Fits the oldest format but not 32 bits.
    std::fs::File::create(root.join("hole")).unwrap().set_len(5 << 30).unwrap();
    let mut seen = std::collections::HashSet::new();
    let mut all = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                dirs.push(entry.path());
            } else if seen.insert(meta.ino()) {
                let kind = if meta.is_symlink() { Kind::Symlink } else { Kind::Regular };
                let (mode, links) = ((meta.mode() & 0o7777) as u16, meta.nlink() as u32);
                all.push((kind, mode, links, meta.size(), meta.mtime()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn tables_of_every_format_hold_the_files() {
    let (from, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = source(from.path());
    let mut images = 0;
    for options in [
        &[][..],
        &["-I", "128"],
        &["-I", "512", "-b", "1024"],
        &["-b", "1024", "-I", "128", "-O", "^metadata_csum"],
        &["-b", "1024", "-O", "^64bit"],
        &["-O", "^64bit,^flex_bg"],
        &["-O", "meta_bg,^resize_inode", "-b", "1024"],
        &["-O", "meta_bg,^resize_inode,^64bit,^flex_bg", "-b", "1024", "-g", "1024"],
        &["-O", "sparse_super2", "-b", "1024"],
        &["-O", "inline_data"],
        &["-O", "bigalloc", "-C", "16384"],
        &["-O", "^metadata_csum,uninit_bg", "-E", "lazy_itable_init=1"],
        &["-O", "metadata_csum_seed,large_dir,encrypt,casefold", "-N", "9000"],
        &["-t", "ext2"],
        &["-t", "ext3"],
    ] {
        let Some(bytes) = image(dir.path(), from.path(), options) else { continue };
        images += 1;
        assert_eq!(list(&bytes), expected, "{options:?}");
    }
    println!("{images} images");
}

#[test]
fn the_checksum_detects_every_changed_bit() {
    let (from, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(from.path().join("file"), vec![1; 9000]).unwrap();
    for size in ["128", "256"] {
        let options = ["-I", size, "-O", "metadata_csum"];
        let Some(mut bytes) = image(dir.path(), from.path(), &options) else { return };
        let groups = Groups::read(reader(&bytes)).unwrap();
        let layout = groups.layout();
        assert!(layout.checksums);
        let place = |number| groups.place(number).unwrap() as usize;
        let is_file = |n: &u64| {
            inode(layout, *n, &bytes[place(*n)..]).is_ok_and(|i| i.meta.kind == Kind::Regular)
        };
        let number = (12..40).find(is_file).unwrap();
        let at = place(number);
        assert_eq!(inode(layout, number, &bytes[at..]).unwrap().meta.bytes, 9000);
        assert_eq!(inode(layout, number + 1, &bytes[at..]), Err(InodeError::Checksum));
        for bit in 0..layout.inode_bytes * 8 {
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            let seen = inode(layout, number, &bytes[at..]);
            assert!(seen.is_err(), "bit {bit} of {size} bytes: {seen:?}");
            bytes[at + bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(inode(layout, number, &bytes[at..at + 100]), Err(InodeError::Short));
    }
}

fn put(bytes: &mut [u8], at: usize, value: u32, long: usize) {
    bytes[at..at + long].copy_from_slice(&value.to_le_bytes()[..long]);
}

/// Builds a small file system manually: two groups of 64 blocks of 1 KiB with 32 inodes each.
fn device() -> Vec<u8> {
    let mut bytes = vec![0; 128 * 1024];
    let block = &mut bytes[1024..2048];
    for (at, value, long) in [
        (0x00, 64, 4),
        (0x04, 128, 4),
        (0x14, 1, 4),
        (0x20, 64, 4),
        (0x28, 32, 4),
        (0x38, u32::from(MAGIC), 2),
        (0x4C, 1, 4),
        (0x58, 128, 2),
        (0x60, 0x2, 4),
    ] {
        put(block, at, value, long);
    }
    put(&mut bytes[2048..], 0x08, 10, 4);
    put(&mut bytes[2048 + 32..], 0x08, 70, 4);
    for number in 0..32 {
        let at = 10 * 1024 + number * 128;
        put(&mut bytes, at, 0o100_644, 2);
        put(&mut bytes, at + 0x04, 1000 + number as u32, 4);
        put(&mut bytes, at + 0x1A, 1, 2);
        put(&mut bytes, at + 0x1C, 8, 4);
    }
    bytes
}

fn error_of(bytes: &[u8]) -> String {
    Groups::read(reader(bytes)).unwrap_err().to_string()
}

#[test]
fn damage_is_named() {
    let good = device();
    let groups = Groups::read(reader(&good)).unwrap();
    assert_eq!((groups.place(1), groups.place(33)), (Some(10 * 1024), Some(70 * 1024)));
    assert_eq!((groups.place(0), groups.place(65), groups.place(u64::MAX)), (None, None, None));
    let found = inode(groups.layout(), 3, &good[groups.place(3).unwrap() as usize..]).unwrap();
    assert_eq!((found.meta.bytes, found.meta.blocks_512, found.meta.mode), (1002, 8, 0o644));
    for (at, value, word) in [
        (1024 + 0x38, 0, "no ext4 superblock"),
        (1024 + 0x60, 0x8_0002, "unsupported ext4 features (incompatible features 0x80000)"),
        (1024 + 0x60, 0x1000, "0x1000"),
        (1024 + 0x18, 99, "block size"),
        (1024 + 0x58, 100, "inode size 100"),
        (1024 + 0x58, 4096, "inode size 4096"),
        (1024 + 0x28, 0, "0 inodes per group"),
        (1024 + 0x28, u32::MAX, "inodes per group"),
        (1024 + 0x20, 0, "0 per group"),
        (1024 + 0x04, 1, "1 blocks"),
        (1024 + 0x04, u32::MAX, "groups cannot hold"),
        (1024, 63, "2 groups cannot hold 63 inodes"),
        (2048 + 0x08, 126, "inode table at block 126 of 128"),
        (2048 + 0x08, 0, "inode table at block 0"),
        (2048 + 0x28, u32::MAX, "inode table"),
    ] {
        let mut bytes = good.clone();
        put(&mut bytes, at, value, 4);
        assert!(error_of(&bytes).contains(word), "{word}: {}", error_of(&bytes));
    }
    assert!(error_of(&good[..1500]).contains("too small for its superblock"));
    assert!(error_of(&good[..2500]).contains("too small for its group descriptors"));
    let failing = Groups::read(|_, _| Err(std::io::ErrorKind::PermissionDenied.into()));
    assert_eq!(failing.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn unused_parts_of_a_table_have_no_position() {
    let mut bytes = device();
    put(&mut bytes, 1024 + 0x64, RO_GROUP_CHECKSUM, 4);
    put(&mut bytes, 2048 + 0x1C, 30, 2);
    put(&mut bytes, 2048 + 32 + 0x12, 1, 2);
    let groups = Groups::read(reader(&bytes)).unwrap();
    assert_eq!((groups.place(2).is_some(), groups.place(3)), (true, None));
    assert_eq!(groups.place(33), None, "a table that was never written");
    put(&mut bytes, 2048 + 0x1C, 33, 2);
    assert!(error_of(&bytes).contains("33 of 32 inodes unused"));
}

#[test]
fn sizes_and_space_are_those_of_stat() {
    let mut bytes = device();
    put(&mut bytes, 1024 + 0x64, RO_HUGE_FILE, 4);
    let at = 10 * 1024;
    put(&mut bytes, at + 0x6C, 3, 4);
    put(&mut bytes, at + 0x74, 2, 2);
    let seen = |bytes: &[u8]| {
        let groups = Groups::read(reader(bytes)).unwrap();
        inode(groups.layout(), 1, &bytes[at..]).map(|i| (i.meta.bytes, i.meta.blocks_512))
    };
    assert_eq!(seen(&bytes), Ok(((3 << 32) + 1000, (2 << 32) + 8)));
    put(&mut bytes, at + 0x20, 0x4_0000, 4);
    assert_eq!(seen(&bytes), Ok(((3 << 32) + 1000, ((2 << 32) + 8) * 2)), "in 1 KiB blocks");
    put(&mut bytes, at + 0x20, 0x1000_0000, 4);
    put(&mut bytes, at + 0x6C, 0, 4);
    put(&mut bytes, at + 0x74, 0, 2);
    assert_eq!(seen(&bytes), Ok((1000, 8 + 2)), "inline data counts as space");
    put(&mut bytes, at + 0x20, 0x10_0000, 4);
    assert_eq!(seen(&bytes), Err(InodeError::Special), "sealed");
    put(&mut bytes, at + 0x20, 0x800, 4);
    assert_eq!(seen(&bytes), Ok((1000, 8)), "the size of an encrypted file is correct");
    put(&mut bytes, at, 0o120_777, 2);
    assert_eq!(seen(&bytes), Err(InodeError::Special), "the size of an encrypted symlink is not");
    put(&mut bytes, at + 0x20, 0, 4);
    put(&mut bytes, at + 0x6C, 9, 4);
    assert_eq!(seen(&bytes), Ok((1000, 8)), "a symlink has no high half");
    put(&mut bytes, at + 0x1A, 0, 2);
    assert_eq!(seen(&bytes), Err(InodeError::Unused));
}

proptest! {
    #[test]
    fn no_device_panics(
        changes in proptest::collection::vec((1024usize..2200, any::<u8>()), 0..12),
        raw in proptest::collection::vec(any::<u8>(), 0..600),
        numbers in proptest::collection::vec(any::<u64>(), 8),
    ) {
        let mut bytes = device();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if let Ok(groups) = Groups::read(reader(&bytes)) {
            let all = u64::from(groups.layout().inodes);
            for number in numbers {
                let number = if number % 2 == 0 { number % (all + 2) } else { number };
                if let Some(at) = groups.place(number) {
                    prop_assert!(number >= 1 && number <= all && at >= 1024);
                }
                let _ = inode(groups.layout(), number, &raw);
            }
        }
    }
}
