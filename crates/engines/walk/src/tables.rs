//! Sizes from the inode tables of ext4, without a call per file.
//!
//! Names and kinds come from the directories. Files wait in batches and are looked up in the order
//! of their inodes (see `sweep`), so that each table is read from the device once, in long reads.
//! Files that the tables do not contain are queried by name and counted: those on another device or
//! below a mount point, those created or removed in the meantime, and those whose checksum is
//! wrong. Directories are queried when they are opened, as with the other methods.
//!
//! The tables show the file system as of a sync at the start or later. To verify them, one in every
//! `SAMPLE_FILES` files is also queried by name. It may differ only if it has changed since the
//! sync; otherwise the walk reports an error. One case goes unnoticed: an inode number that was
//! reused for a new file between reading the name and reading the inode.

use crate::method::Refused;
use crate::node::Node;
use crate::tables_use::{Counts, TablesUse};
use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_sys::dir::Record;
use ioloom_sys::mount;
use ioloom_sys_lab::ext4;
use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The tables below the roots of one walk.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) tables: ext4::Tables,
    /// Last names of all mount points. A file can be mounted on a file; the directory entry then
    /// has the inode of the covered one.
    mounted: HashSet<Box<[u8]>>,
}

fn refused(error: ext4::OpenError) -> Refused {
    Refused::InodeTables(error.to_string())
}

/// Returns the roots that exist.
fn there(roots: &[PathBuf]) -> impl Iterator<Item = &Path> {
    roots.iter().map(PathBuf::as_path).filter(|root| std::fs::symlink_metadata(root).is_ok())
}

/// Checks whether the roots can be walked by inode tables.
pub(crate) fn probe(roots: &[PathBuf]) -> Result<(), Refused> {
    there(roots).try_for_each(|root| ext4::Tables::probe(root).map_err(refused))
}

impl Tables {
    /// Opens the tables that contain all roots; `None` if no root exists.
    pub(crate) fn below(roots: &[PathBuf]) -> Result<Option<Self>, Refused> {
        let Some(first) = there(roots).next() else { return Ok(None) };
        for root in there(roots) {
            let (here, device) = (device_of(root)?, device_of(first)?);
            if here != device {
                return Err(Refused::InodeTables(format!(
                    "{} and {} are on different file systems; walk them one after the other",
                    quoted(first),
                    quoted(root)
                )));
            }
        }
        let tables = ext4::Tables::open(first).map_err(refused)?;
        let cannot =
            |e: io::Error| Refused::InodeTables(format!("cannot read the mounts: {}", reason(&e)));
        let mounts = mount::mounts().map_err(cannot)?;
        let name = |point: &Path| point.file_name().map(|name| Box::from(name.as_bytes()));
        let mounted = mounts.iter().filter_map(|mount| name(&mount.point)).collect();
        Ok(Some(Self { tables, mounted }))
    }

    /// Returns the use of the tables.
    pub(crate) fn use_of(&self, counts: Counts) -> TablesUse {
        let Counts { read, asked, sampled, changed } = counts;
        TablesUse {
            device: self.tables.device().to_owned(),
            synced: self.tables.synced(),
            checksums: self.tables.checksums(),
            read,
            asked,
            sampled,
            changed,
        }
    }

    /// Reports whether the inode of a directory entry is that of the file.
    pub(crate) fn hold<D>(&self, node: &Node<D>, record: &Record<'_>) -> bool {
        node.meta.is_some_and(|dir| dir.device == self.tables.number())
            && !self.mounted.contains(record.name.to_bytes())
    }
}

fn device_of(root: &Path) -> Result<u64, Refused> {
    let cannot =
        |error| Refused::InodeTables(PathError::new(Operation::Stat, root, error).to_string());
    std::fs::metadata(root)
        .or_else(|_| std::fs::symlink_metadata(root))
        .map(|m| m.dev())
        .map_err(cannot)
}
