//! Sizes from the inode tables of ext4, without a call for each file.
//!
//! Names and kinds come from the directories as ever. Files wait in batches and are then looked up
//! in the order of their inodes (see `sweep`), so that the tables are read from the device in
//! long pieces, each once. What the tables cannot tell is asked for by name, file by file, and
//! counted: what lies on another device or below a mount point, what was made or removed meanwhile,
//! what a checksum refuses. Directories are asked for when they are opened, as ever.
//!
//! The tables show the file system as of a sync at the start or later. So that nobody has to
//! believe it, every [`SAMPLE_FILES`]th file is asked for as well: it may differ only if it has
//! changed since the sync; else it is an error of the walk. A number that was given to a new file
//! between the reading of its name and that of its inode is the one thing that neither shows.

use crate::method::Refused;
use crate::node::Node;
use crate::tables_use::{Counts, TablesUse};
use ioloom_failure::{Operation, PathError};
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
    /// Last names of all mount points. A file can be mounted on a file; its directory then tells the
    /// inode that is covered.
    mounted: HashSet<Box<[u8]>>,
}

fn refused(error: ext4::OpenError) -> Refused {
    Refused::InodeTables(error.to_string())
}

/// Those of the roots that are there.
fn there(roots: &[PathBuf]) -> impl Iterator<Item = &Path> {
    roots.iter().map(PathBuf::as_path).filter(|root| std::fs::symlink_metadata(root).is_ok())
}

/// Whether the roots can be walked by tables.
pub(crate) fn probe(roots: &[PathBuf]) -> Result<(), Refused> {
    there(roots).try_for_each(|root| ext4::Tables::probe(root).map_err(refused))
}

impl Tables {
    /// The tables that all roots lie in; `None` if no root is there.
    pub(crate) fn below(roots: &[PathBuf]) -> Result<Option<Self>, Refused> {
        let Some(first) = there(roots).next() else { return Ok(None) };
        for root in there(roots) {
            let (here, device) = (device_of(root)?, device_of(first)?);
            if here != device {
                return Err(Refused::InodeTables(format!(
                    "{} and {} lie on two file systems; walk them one after the other",
                    first.display(),
                    root.display()
                )));
            }
        }
        let tables = ext4::Tables::open(first).map_err(refused)?;
        let cannot = |e: io::Error| Refused::InodeTables(format!("cannot read the mounts: {e}"));
        let mounts = mount::mounts().map_err(cannot)?;
        let name = |point: &Path| point.file_name().map(|name| Box::from(name.as_bytes()));
        let mounted = mounts.iter().filter_map(|mount| name(&mount.point)).collect();
        Ok(Some(Self { tables, mounted }))
    }

    /// What was done in all.
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

    /// Whether the inode that a directory tells is that of the file.
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
