//! An inode as stored in its table.

use super::{Fields, Layout, checksum};
use ioloom_sys::dir::{Kind, Meta};
use rustix::fs::FileType;

/// The data of a small file is stored in the inode; `stat` then counts its size as space.
const FLAG_INLINE_DATA: u32 = 0x1000_0000;
/// Space is counted in file system blocks.
const FLAG_HUGE_FILE: u32 = 0x4_0000;
/// The stored size of a symlink is that of its encrypted target, which differs from what `stat`
/// reports.
const FLAG_ENCRYPTED: u32 = 0x800;
/// Size and space have a different meaning if fs-verity is enabled on a file.
const FLAG_VERITY: u32 = 0x10_0000;

/// Size of the original ext2 inode.
const OLD_BYTES: usize = 128;
const CHECKSUM_LOW_AT: usize = 0x7C;
const CHECKSUM_HIGH_AT: usize = 0x82;

/// The contents of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    /// Metadata as `statx` would report it, without device and mount.
    pub meta: Meta,
    /// Distinguishes files that had the same inode number at different times.
    pub generation: u32,
    /// Inode change time: seconds since 1970 and nanoseconds.
    pub changed: (i64, u32),
}

/// Why an inode cannot be used and its file must be queried by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InodeError {
    /// The inode is not entirely within the supplied bytes.
    Short,
    /// The checksum does not match: a partial change, or damage.
    Checksum,
    /// It belongs to no file: it was never used, or the file has been removed.
    Unused,
    /// `statx` reports different values from those stored in the inode.
    Special,
}

/// Parses the inode `number` from its bytes.
///
/// # Errors
/// Returns why the file must be queried by name.
pub fn inode(layout: &Layout, number: u64, raw: &[u8]) -> Result<Inode, InodeError> {
    let raw = raw.get(..layout.inode_bytes).ok_or(InodeError::Short)?;
    let f = Fields(raw);
    let (mode, links) = (f.u16(0x00), f.u16(0x1A));
    if mode == 0 || links == 0 {
        return Err(InodeError::Unused);
    }
    if layout.checksums && !own_checksum(layout, number, raw) {
        return Err(InodeError::Checksum);
    }
    let kind = Kind::of(FileType::from_raw_mode(mode.into()));
    let flags = f.u32(0x20);
    if flags & FLAG_VERITY != 0 || flags & FLAG_ENCRYPTED != 0 && kind == Kind::Symlink {
        return Err(InodeError::Special);
    }
    // For other types, the upper half was introduced with large directories.
    let high = kind == Kind::Regular || layout.large_directories;
    let bytes = if high { f.u64(0x04, 0x6C) } else { u64::from(f.u32(0x04)) };
    let changed = time(&f, 0x0C, 0x84);
    let meta = Meta {
        kind,
        mode: mode & 0o7777,
        device: (0, 0),
        inode: number,
        links: links.into(),
        user: u32::from(f.u16(0x02)) | u32::from(f.u16(0x78)) << 16,
        group: u32::from(f.u16(0x18)) | u32::from(f.u16(0x7A)) << 16,
        bytes,
        blocks_512: space(layout, &f, flags, bytes),
        mtime: time(&f, 0x10, 0x88),
        atime: time(&f, 0x08, 0x8C),
        ctime: changed,
        mount: None,
    };
    Ok(Inode { meta, generation: f.u32(0x64), changed })
}

/// Returns the allocated space in units of 512 bytes, like `stat`.
fn space(layout: &Layout, f: &Fields<'_>, flags: u32, bytes: u64) -> u64 {
    let low = u64::from(f.u32(0x1C));
    let mut blocks = if layout.huge_files { low | u64::from(f.u16(0x74)) << 32 } else { low };
    if layout.huge_files && flags & FLAG_HUGE_FILE != 0 {
        blocks = blocks.saturating_mul(layout.block_bytes / 512);
    }
    if flags & FLAG_INLINE_DATA != 0 {
        blocks = blocks.saturating_add(bytes.div_ceil(512));
    }
    blocks
}

/// Returns how many bytes of the extended part are in use.
fn extra_bytes(f: &Fields<'_>) -> usize {
    if f.0.len() > OLD_BYTES { usize::from(f.u16(0x80)) } else { 0 }
}

/// Returns a time in seconds and nanoseconds; the extra field, if present, contains two more bits
/// of seconds, and the nanoseconds.
fn time(f: &Fields<'_>, at: usize, extra_at: usize) -> (i64, u32) {
    let seconds = i64::from(f.u32(at) as i32);
    if extra_at + 4 > OLD_BYTES + extra_bytes(f) {
        return (seconds, 0);
    }
    let extra = f.u32(extra_at);
    (seconds + (i64::from(extra & 3) << 32), extra >> 2)
}

fn own_checksum(layout: &Layout, number: u64, raw: &[u8]) -> bool {
    let f = Fields(raw);
    let mut sum = checksum(layout.seed, &(number as u32).to_le_bytes());
    sum = checksum(sum, &raw[0x64..0x68]);
    // The checksum field itself counts as zeros.
    sum = checksum(sum, &raw[..CHECKSUM_LOW_AT]);
    sum = checksum(sum, &[0; 2]);
    sum = checksum(sum, &raw[CHECKSUM_LOW_AT + 2..OLD_BYTES]);
    let low = u32::from(f.u16(CHECKSUM_LOW_AT));
    if raw.len() == OLD_BYTES {
        return sum & 0xFFFF == low;
    }
    sum = checksum(sum, &raw[OLD_BYTES..CHECKSUM_HIGH_AT]);
    if extra_bytes(&f) < 4 {
        return checksum(sum, &raw[CHECKSUM_HIGH_AT..]) & 0xFFFF == low;
    }
    sum = checksum(sum, &[0; 2]);
    sum = checksum(sum, &raw[CHECKSUM_HIGH_AT + 2..]);
    sum == low | u32::from(f.u16(CHECKSUM_HIGH_AT)) << 16
}
