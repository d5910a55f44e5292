//! ext4 inode tables, read from the block device.
//!
//! ext4 stores every inode in a table whose position follows from the superblock and the group
//! descriptors. Reading the tables gives size, blocks and links of many files in bulk, without a
//! call per file. The reads go through the page cache of the device, the same pages that ext4 reads
//! and modifies while mounted: a buffered read sees the latest contents whether or not they have
//! reached the device. Size and space of delayed allocations are not yet in the tables; syncing the
//! file system writes them first ([`Tables::open`]).
//!
//! Nothing on the device is trusted. Every position is checked against the device size, features
//! that could change the meaning of a field are refused by name, and each inode is verified by its
//! checksum if the file system has them. A read during a write can return half of a change; the
//! checksum detects this, and the caller then stats the file by name.
//!
//! Parsing works only on bytes ([`Layout`], [`Groups`], [`inode`]) and makes no system calls.

mod inode;
mod open;

pub use inode::{Inode, InodeError, inode};
pub use open::{OpenError, Span, Tables};

use std::io;

/// Offset of the superblock on the device in bytes.
pub const SUPERBLOCK_AT: u64 = 1024;
/// Length of the superblock in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;

/// Maximum number of groups accepted: 2 PiB in groups of 128 MiB.
const GROUPS_MAX: u64 = 1 << 24;

const MAGIC: u16 = 0xEF53;

/// Incompatible features under which inodes have the supported format: file types in directories, a
/// journal to replay (which a mounted file system has done), meta block groups, extents, 64 bit,
/// multiple mount protection, flexible groups, attributes in inodes, a stored checksum seed, large
/// directories, inline data, encryption, case folding.
const INCOMPAT_KNOWN: u32 = 0x2
    | 0x4
    | INCOMPAT_META_GROUPS
    | 0x40
    | INCOMPAT_64_BIT
    | 0x100
    | 0x200
    | 0x400
    | INCOMPAT_SEED
    | INCOMPAT_LARGE_DIRECTORIES
    | 0x8000
    | 0x1_0000
    | 0x2_0000;
const INCOMPAT_META_GROUPS: u32 = 0x10;
const INCOMPAT_64_BIT: u32 = 0x80;
const INCOMPAT_SEED: u32 = 0x2000;
const INCOMPAT_LARGE_DIRECTORIES: u32 = 0x4000;

const COMPAT_SPARSE_2: u32 = 0x200;

const RO_SPARSE: u32 = 0x1;
const RO_HUGE_FILE: u32 = 0x8;
const RO_GROUP_CHECKSUM: u32 = 0x10;
const RO_CHECKSUM: u32 = 0x400;

/// Why a device cannot be read as ext4.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// There is no ext4 superblock.
    #[error("no ext4 superblock found")]
    NotExt4,
    /// The device is too short.
    #[error("the device is too small for its {0}")]
    Short(&'static str),
    /// A feature with unknown meaning.
    #[error("unsupported ext4 features (incompatible features {0:#x})")]
    Feature(u32),
    /// A field has an impossible value.
    #[error("damaged superblock or group descriptors: {0}")]
    Damaged(String),
}

fn damaged<T>(what: impl Into<String>) -> Result<T, LayoutError> {
    Err(LayoutError::Damaged(what.into()))
}

/// Superblock fields that determine the positions of inodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Inode size in the table, in bytes.
    pub inode_bytes: usize,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Total number of inodes.
    pub inodes: u32,
    /// Number of groups.
    pub groups: u32,
    /// Whether every inode has a checksum.
    pub checksums: bool,
    blocks: u64,
    blocks_per_group: u32,
    first_block: u32,
    descriptor_bytes: usize,
    /// From this descriptor block on, descriptors are stored in the groups they describe.
    meta_groups_from: Option<u32>,
    superblocks: Superblocks,
    /// Whether the descriptors record which part of a table is unused.
    has_unused_counts: bool,
    huge_files: bool,
    large_directories: bool,
    seed: u32,
}

/// The groups that begin with a copy of the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Superblocks {
    All,
    /// 0, 1 and the powers of 3, 5 and 7.
    Sparse,
    /// 0 and the two listed groups.
    These([u32; 2]),
}

impl Superblocks {
    fn has(self, group: u32) -> bool {
        let power = |base: u32| {
            let mut at = base;
            while at < group {
                at = at.saturating_mul(base);
            }
            at == group
        };
        match self {
            _ if group == 0 => true,
            Self::All => true,
            Self::Sparse => group == 1 || power(3) || power(5) || power(7),
            Self::These(these) => these.contains(&group),
        }
    }
}

/// Little-endian fields of a structure; all fields beyond its end are 0.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u16(&self, at: usize) -> u16 {
        self.0.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    /// Returns a number whose two halves are stored separately.
    fn u64(&self, low: usize, high: usize) -> u64 {
        u64::from(self.u32(low)) | u64::from(self.u32(high)) << 32
    }
}

/// Returns ext4's checksum: a running CRC-32C register, not inverted before or after.
fn checksum(register: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!register, bytes)
}

impl Layout {
    /// Parses a superblock of [`SUPERBLOCK_BYTES`].
    ///
    /// # Errors
    /// Fails if the superblock cannot be used.
    pub fn parse(superblock: &[u8]) -> Result<Self, LayoutError> {
        if superblock.len() < SUPERBLOCK_BYTES {
            return Err(LayoutError::Short("superblock"));
        }
        let f = Fields(superblock);
        if f.u16(0x38) != MAGIC {
            return Err(LayoutError::NotExt4);
        }
        // Revision 0 had neither features nor a variable inode size.
        let (compat, incompat, ro) = match f.u32(0x4C) {
            0 => (0, 0, 0),
            _ => (f.u32(0x5C), f.u32(0x60), f.u32(0x64)),
        };
        if incompat & !INCOMPAT_KNOWN != 0 {
            return Err(LayoutError::Feature(incompat & !INCOMPAT_KNOWN));
        }
        let checksums = ro & RO_CHECKSUM != 0;
        if checksums && superblock[0x175] != 1 {
            return damaged(format!("unknown checksum type {}", superblock[0x175]));
        }
        let wide = incompat & INCOMPAT_64_BIT != 0;
        let superblocks = if compat & COMPAT_SPARSE_2 != 0 {
            Superblocks::These([f.u32(0x24C), f.u32(0x250)])
        } else if ro & RO_SPARSE != 0 {
            Superblocks::Sparse
        } else {
            Superblocks::All
        };
        let seed = match incompat & INCOMPAT_SEED {
            0 => checksum(u32::MAX, &superblock[0x68..0x78]),
            _ => f.u32(0x270),
        };
        let layout = Self {
            block_bytes: 1024u64.checked_shl(f.u32(0x18)).unwrap_or(0),
            inode_bytes: if f.u32(0x4C) == 0 { 128 } else { usize::from(f.u16(0x58)) },
            inodes_per_group: f.u32(0x28),
            inodes: f.u32(0x00),
            groups: 0,
            checksums,
            blocks: if wide { f.u64(0x04, 0x150) } else { u64::from(f.u32(0x04)) },
            blocks_per_group: f.u32(0x20),
            first_block: f.u32(0x14),
            descriptor_bytes: if wide { usize::from(f.u16(0xFE)) } else { 32 },
            meta_groups_from: (incompat & INCOMPAT_META_GROUPS != 0).then(|| f.u32(0x104)),
            superblocks,
            has_unused_counts: ro & (RO_GROUP_CHECKSUM | RO_CHECKSUM) != 0,
            huge_files: ro & RO_HUGE_FILE != 0,
            large_directories: incompat & INCOMPAT_LARGE_DIRECTORIES != 0,
            seed,
        };
        layout.checked()
    }

    /// Fills in the number of groups after checking the fields for consistency.
    fn checked(mut self) -> Result<Self, LayoutError> {
        if !(1024..=65536).contains(&self.block_bytes) {
            return damaged(format!("block size {}", self.block_bytes));
        }
        let inode = self.inode_bytes;
        if inode < 128 || !inode.is_power_of_two() || inode as u64 > self.block_bytes {
            return damaged(format!("inode size {inode}"));
        }
        let descriptor = self.descriptor_bytes;
        if !(32..=1024).contains(&descriptor) || !descriptor.is_power_of_two() {
            return damaged(format!("descriptor size {descriptor}"));
        }
        // A one-block bitmap records which inodes of a group are in use.
        if self.inodes_per_group == 0 || u64::from(self.inodes_per_group) > self.block_bytes * 8 {
            return damaged(format!("{} inodes per group", self.inodes_per_group));
        }
        let (first, per_group) = (u64::from(self.first_block), u64::from(self.blocks_per_group));
        if per_group == 0 || self.blocks <= first {
            return damaged(format!("{} blocks, {per_group} per group", self.blocks));
        }
        if self.blocks.checked_mul(self.block_bytes).is_none_or(|all| i64::try_from(all).is_err()) {
            return damaged(format!("{} blocks", self.blocks));
        }
        let groups = (self.blocks - first).div_ceil(per_group);
        let expected = groups.saturating_mul(u64::from(self.inodes_per_group));
        if groups > GROUPS_MAX || expected != u64::from(self.inodes) {
            let inodes = self.inodes;
            return damaged(format!("{groups} groups cannot hold {inodes} inodes"));
        }
        self.groups = groups as u32;
        Ok(self)
    }

    fn descriptors_per_block(&self) -> u32 {
        (self.block_bytes / self.descriptor_bytes as u64) as u32
    }

    /// Returns the block that contains a block of descriptors.
    fn descriptor_block(&self, number: u32) -> u64 {
        let first = u64::from(self.first_block);
        if self.meta_groups_from.is_none_or(|from| number < from) {
            // They follow the superblock, which is block 1 if blocks are 1 KiB and otherwise part
            // of block 0.
            return SUPERBLOCK_AT / self.block_bytes + 1 + u64::from(number);
        }
        let group = number * self.descriptors_per_block();
        let mut at = u64::from(self.superblocks.has(group));
        // With 1 KiB blocks and large groups, group 0 may start at block 0, beginning with the boot
        // block.
        if self.block_bytes == 1024 && number == 0 && first == 0 {
            at += 1;
        }
        at + first + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Returns the number of blocks in one inode table.
    fn table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * self.inode_bytes as u64).div_ceil(self.block_bytes)
    }
}

/// The inode table of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    /// Offset of the table in bytes.
    at: u64,
    /// Number of inodes from the start that may be in use.
    used: u32,
}

/// The positions of all inodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    layout: Layout,
    groups: Vec<Group>,
}

impl Groups {
    /// Reads the superblock and descriptors with `read`, which fills a buffer from an offset and
    /// returns the number of bytes read.
    ///
    /// # Errors
    /// Fails if a read fails, or with a [`LayoutError`] wrapped in an [`io::Error`].
    pub fn read(
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    ) -> Result<Self, io::Error> {
        let mut superblock = [0; SUPERBLOCK_BYTES];
        let got = read(&mut superblock, SUPERBLOCK_AT)?;
        let layout = Layout::parse(&superblock[..got]).map_err(io::Error::other)?;
        let per_block = layout.descriptors_per_block();
        let mut block = vec![0; layout.block_bytes as usize];
        let mut groups = Vec::new();
        for number in 0..layout.groups.div_ceil(per_block) {
            let at = layout.descriptor_block(number).saturating_mul(layout.block_bytes);
            if read(&mut block, at)? < block.len() {
                return Err(io::Error::other(LayoutError::Short("group descriptors")));
            }
            let left = (layout.groups - number * per_block).min(per_block) as usize;
            for descriptor in block.chunks_exact(layout.descriptor_bytes).take(left) {
                groups.push(group(&layout, descriptor).map_err(io::Error::other)?);
            }
        }
        Ok(Self { layout, groups })
    }

    /// Returns the superblock fields.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the offset of an inode on the device in bytes; `None` if the inode does not exist or
    /// had never been used when the descriptors were read.
    pub fn place(&self, inode: u64) -> Option<u64> {
        let (group, index) = self.index(inode)?;
        (index < group.used).then(|| group.at + u64::from(index) * self.layout.inode_bytes as u64)
    }

    fn index(&self, inode: u64) -> Option<(&Group, u32)> {
        let number = u32::try_from(inode).ok()?.checked_sub(1)?;
        let per_group = self.layout.inodes_per_group;
        Some((self.groups.get((number / per_group) as usize)?, number % per_group))
    }
}

fn group(layout: &Layout, descriptor: &[u8]) -> Result<Group, LayoutError> {
    let f = Fields(descriptor);
    let wide = layout.descriptor_bytes >= 64;
    let table = if wide { f.u64(0x08, 0x28) } else { u64::from(f.u32(0x08)) };
    let unused = u32::from(f.u16(0x1C)) | if wide { u32::from(f.u16(0x32)) << 16 } else { 0 };
    let unused = match (layout.has_unused_counts, f.u16(0x12) & 1) {
        (false, _) => 0,
        (true, 0) => unused,
        // The table is not initialized, so none of its inodes was ever used.
        (true, _) => layout.inodes_per_group,
    };
    let end = table.checked_add(layout.table_blocks());
    if table <= u64::from(layout.first_block) || end.is_none_or(|end| end > layout.blocks) {
        return damaged(format!("inode table at block {table} of {}", layout.blocks));
    }
    if unused > layout.inodes_per_group {
        return damaged(format!("{unused} of {} inodes unused", layout.inodes_per_group));
    }
    Ok(Group { at: table * layout.block_bytes, used: layout.inodes_per_group - unused })
}

#[cfg(test)]
mod tests;
