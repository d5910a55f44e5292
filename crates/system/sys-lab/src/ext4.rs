//! The inode tables of ext4, as they lie on a block device.
//!
//! ext4 keeps every inode in tables at places that the superblock and the group descriptors tell,
//! so that sizes, blocks and links of many files can be read in bulk, without a call for each. What
//! is read here goes through the page cache of the device, which is where ext4 itself keeps and
//! changes these blocks while it is mounted: a buffered read sees what the file system last put
//! into them, written to the device or not. What it has not yet put there is the size and space of
//! data that wait to be written; a sync of the file system does that first ([`Tables::open`]).
//!
//! Nothing is believed: every place is checked against the size of the device, features that could
//! change a meaning are refused by name, and where the file system keeps checksums each inode is
//! checked by its own. Reading while it is written can show half of a change; the checksum tells,
//! and the caller asks for that file by its name.
//!
//! Parsing works on bytes alone ([`Layout`], [`Groups`], [`inode`]) and touches no system.

mod inode;
mod open;

pub use inode::{Inode, InodeError, inode};
pub use open::{OpenError, Span, Tables};

use std::io;

/// Where the superblock lies on the device, and how long it is, bytes.
pub const SUPERBLOCK_AT: u64 = 1024;
/// Length of the superblock, bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;

/// Groups that are looked at, at most: 2 PiB of 128 MiB each.
const GROUPS_MAX: u64 = 1 << 24;

const MAGIC: u16 = 0xEF53;

/// Incompatible features under which inodes mean what is read here: file types in directories, a
/// journal to be played (a mounted file system has played it), groups of descriptors, extents, 64
/// bits, protection from two mounts, flexible groups, attributes in inodes, a stored seed, large
/// directories, small files in inodes, encryption, folded case.
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

/// Why a device is not read as ext4.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No superblock of ext4.
    #[error("there is no superblock of ext4 on it")]
    NotExt4,
    /// The device ends too early.
    #[error("it ends before its {0}")]
    Short(&'static str),
    /// A feature whose meaning is not known here.
    #[error("it has features that are not known here (incompatible features {0:#x})")]
    Feature(u32),
    /// A field that cannot be.
    #[error("its superblock or group descriptors are damaged: {0}")]
    Damaged(String),
}

fn damaged<T>(what: impl Into<String>) -> Result<T, LayoutError> {
    Err(LayoutError::Damaged(what.into()))
}

/// What the superblock tells of the places of inodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of an inode in its table.
    pub inode_bytes: usize,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Inodes in all.
    pub inodes: u32,
    /// Groups.
    pub groups: u32,
    /// Whether every inode carries a checksum.
    pub checksums: bool,
    blocks: u64,
    blocks_per_group: u32,
    first_block: u32,
    descriptor_bytes: usize,
    /// Groups of descriptors lie with their groups from this block of descriptors on.
    meta_groups_from: Option<u32>,
    superblocks: Superblocks,
    /// Whether unused parts of a table are told.
    tells_unused: bool,
    huge_files: bool,
    large_directories: bool,
    seed: u32,
}

/// Which groups begin with a copy of the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Superblocks {
    All,
    /// 0, 1 and the powers of 3, 5 and 7.
    Sparse,
    /// 0 and these.
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

/// Little-endian fields of a structure that is long enough.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u16(&self, at: usize) -> u16 {
        self.0.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    /// Returns a number whose halves lie apart.
    fn u64(&self, low: usize, high: usize) -> u64 {
        u64::from(self.u32(low)) | u64::from(self.u32(high)) << 32
    }
}

/// Returns the checksum of ext4: CRC-32C as a running register, inverted neither before nor after.
fn checksum(register: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!register, bytes)
}

impl Layout {
    /// Reads a superblock of [`SUPERBLOCK_BYTES`].
    ///
    /// # Errors
    /// What it is not, or what is wrong with it.
    pub fn parse(superblock: &[u8]) -> Result<Self, LayoutError> {
        if superblock.len() < SUPERBLOCK_BYTES {
            return Err(LayoutError::Short("superblock"));
        }
        let f = Fields(superblock);
        if f.u16(0x38) != MAGIC {
            return Err(LayoutError::NotExt4);
        }
        // The first revision had neither features nor a choice of the inode size.
        let (compat, incompat, ro) = match f.u32(0x4C) {
            0 => (0, 0, 0),
            _ => (f.u32(0x5C), f.u32(0x60), f.u32(0x64)),
        };
        if incompat & !INCOMPAT_KNOWN != 0 {
            return Err(LayoutError::Feature(incompat & !INCOMPAT_KNOWN));
        }
        let checksums = ro & RO_CHECKSUM != 0;
        if checksums && superblock[0x175] != 1 {
            return damaged(format!("checksums of the unknown kind {}", superblock[0x175]));
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
            tells_unused: ro & (RO_GROUP_CHECKSUM | RO_CHECKSUM) != 0,
            huge_files: ro & RO_HUGE_FILE != 0,
            large_directories: incompat & INCOMPAT_LARGE_DIRECTORIES != 0,
            seed,
        };
        layout.checked()
    }

    /// With the number of groups, if the numbers fit one another.
    fn checked(mut self) -> Result<Self, LayoutError> {
        if !(1024..=65536).contains(&self.block_bytes) {
            return damaged(format!("a block size of {}", self.block_bytes));
        }
        let inode = self.inode_bytes;
        if inode < 128 || !inode.is_power_of_two() || inode as u64 > self.block_bytes {
            return damaged(format!("an inode size of {inode}"));
        }
        let descriptor = self.descriptor_bytes;
        if !(32..=1024).contains(&descriptor) || !descriptor.is_power_of_two() {
            return damaged(format!("a descriptor size of {descriptor}"));
        }
        // A bitmap of one block tells which inodes of a group are in use.
        if self.inodes_per_group == 0 || u64::from(self.inodes_per_group) > self.block_bytes * 8 {
            return damaged(format!("{} inodes in a group", self.inodes_per_group));
        }
        let (first, per_group) = (u64::from(self.first_block), u64::from(self.blocks_per_group));
        if per_group == 0 || self.blocks <= first {
            return damaged(format!("{} blocks, {per_group} in a group", self.blocks));
        }
        if self.blocks.checked_mul(self.block_bytes).is_none_or(|all| i64::try_from(all).is_err()) {
            return damaged(format!("{} blocks", self.blocks));
        }
        let groups = (self.blocks - first).div_ceil(per_group);
        let expected = groups.saturating_mul(u64::from(self.inodes_per_group));
        if groups > GROUPS_MAX || expected != u64::from(self.inodes) {
            let inodes = self.inodes;
            return damaged(format!("{groups} groups, which cannot hold {inodes} inodes"));
        }
        self.groups = groups as u32;
        Ok(self)
    }

    fn descriptors_per_block(&self) -> u32 {
        (self.block_bytes / self.descriptor_bytes as u64) as u32
    }

    /// Returns the block in which a block of descriptors lies.
    fn descriptor_block(&self, number: u32) -> u64 {
        let first = u64::from(self.first_block);
        if self.meta_groups_from.is_none_or(|from| number < from) {
            // After the superblock, which with blocks of 1 KiB fills block 1, else a part of block
            // 0.
            return SUPERBLOCK_AT / self.block_bytes + 1 + u64::from(number);
        }
        let group = number * self.descriptors_per_block();
        let mut at = u64::from(self.superblocks.has(group));
        // Large groups of 1 KiB blocks may start at block 0, with the boot block before them.
        if self.block_bytes == 1024 && number == 0 && first == 0 {
            at += 1;
        }
        at + first + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks that one inode table takes.
    fn table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * self.inode_bytes as u64).div_ceil(self.block_bytes)
    }
}

/// One group's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    /// First byte of the table.
    at: u64,
    /// Inodes from its start that may be in use.
    used: u32,
}

/// Where every inode lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    layout: Layout,
    groups: Vec<Group>,
}

impl Groups {
    /// Reads superblock and descriptors with `read`, which fills a buffer from an offset and
    /// returns how much there was.
    ///
    /// # Errors
    /// A failing read, or what is wrong with what was read as [`LayoutError`] in an
    /// [`io::Error`].
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

    /// What the superblock tells.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns where an inode lies, bytes from the start of the device; `None` if there is no such
    /// inode, or it was never used when the descriptors were read.
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
    let unused = match (layout.tells_unused, f.u16(0x12) & 1) {
        (false, _) => 0,
        (true, 0) => unused,
        // The whole table was never written.
        (true, _) => layout.inodes_per_group,
    };
    let end = table.checked_add(layout.table_blocks());
    if table <= u64::from(layout.first_block) || end.is_none_or(|end| end > layout.blocks) {
        return damaged(format!("an inode table at block {table} of {}", layout.blocks));
    }
    if unused > layout.inodes_per_group {
        return damaged(format!("{unused} of {} inodes unused", layout.inodes_per_group));
    }
    Ok(Group { at: table * layout.block_bytes, used: layout.inodes_per_group - unused })
}

#[cfg(test)]
mod tests;
