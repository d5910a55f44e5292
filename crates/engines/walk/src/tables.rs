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

use crate::Meta;
use crate::method::Refused;
use crate::node::Node;
use crate::sweep::Plan;
use crate::tables_use::{Counts, TablesUse};
use crate::task::Held;
use crate::visit::{DirRef, Visitor};
use crate::worker::Worker;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::dir::{Kind, Record};
use ioloom_sys::mount;
use ioloom_sys_lab::ext4::{self, Inode, Span};
use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of so many files whose inode was read one is asked for too.
const SAMPLE_FILES: u64 = 1024;

/// The tables below the roots of one walk.
#[derive(Debug)]
pub(crate) struct Tables {
    tables: ext4::Tables,
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
    fn hold<D>(&self, node: &Node<D>, record: &Record<'_>) -> bool {
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

impl<V: Visitor> Worker<'_, '_, V> {
    /// Keeps a name until its inode is read, or asks for it if the tables do not hold it.
    pub(crate) fn entry_in_tables(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<Held>,
        record: &Record<'_>,
    ) -> bool {
        if self.ground.tables.as_ref().is_some_and(|tables| tables.hold(node, record)) {
            self.collect(node, record.name, record.inode);
            return true;
        }
        self.part.tables.asked += 1;
        let meta = held.dir.meta_at(record.name, false, self.fields);
        self.answered(node, Some(held), record.name, meta, false)
    }

    /// Looks up the next files of a plan until there are none.
    pub(crate) fn look_up(&mut self, tables: &Tables, plan: &Plan<V::Dir>) {
        let mut bytes = Vec::new();
        loop {
            let mut rest = plan.next_chunk();
            if rest.is_empty() {
                return;
            }
            while !rest.is_empty() {
                let span = tables.tables.span(rest.iter().map(|place| place.0));
                let (span, count) = span.unwrap_or((Span { at: 0, bytes: 0 }, 1));
                // What cannot be read here fails by name too, with a path.
                if tables.tables.read(span, &mut bytes).is_err() {
                    bytes.clear();
                }
                let (now, later) = rest.split_at(count);
                for run in now.chunk_by(|a, b| Arc::ptr_eq(plan.get(a).0, plan.get(b).0)) {
                    let node = plan.get(&run[0]).0;
                    self.set_path(node);
                    for place in run {
                        let name = plan.get(place).1;
                        let found = tables.tables.inode(place.0, span, &bytes).ok();
                        if !self.looked_up(tables, node, name, found) {
                            node.miss();
                            break;
                        }
                    }
                    self.visitor.part(DirRef(node));
                    self.finish_many(Arc::clone(node), run.len() as u32);
                }
                rest = later;
            }
        }
    }

    /// One file's inode is here, or is not; false when the walk ends.
    fn looked_up(
        &mut self,
        tables: &Tables,
        node: &Arc<Node<V::Dir>>,
        name: &CStr,
        found: Option<Inode>,
    ) -> bool {
        self.step();
        if self.ground.pool.stopped() {
            return false;
        }
        // A directory was replaced by something else, or the other way round: the name decides.
        let found = found.filter(|inode| inode.meta.kind != Kind::Directory);
        let meta = match found {
            Some(inode) => {
                let counts = &mut self.part.tables;
                counts.read += 1;
                if counts.read % SAMPLE_FILES == 1 {
                    self.sample(tables, node, name, &inode);
                }
                Ok(Meta { mount: node.meta.and_then(|dir| dir.mount), ..inode.meta })
            }
            None => {
                self.part.tables.asked += 1;
                self.meta_by_path(node, name)
            }
        };
        if self.answered(node, None, name, meta, false) {
            return true;
        }
        self.ground.pool.stop();
        false
    }

    /// Asks for a file whose inode was read. That they differ is an error unless the file has
    /// changed since the sync.
    #[cold]
    fn sample(&mut self, tables: &Tables, node: &Arc<Node<V::Dir>>, name: &CStr, inode: &Inode) {
        let base = self.path.len();
        self.path.extend_from_slice(name.to_bytes());
        let path = PathBuf::from(OsStr::from_bytes(&self.path));
        self.path.truncate(base);
        // Gone, or beyond what one call takes: no sample.
        let Ok(asked) = std::fs::symlink_metadata(&path) else { return };
        self.part.tables.sampled += 1;
        let meta = &inode.meta;
        let told = (asked.ino(), asked.size(), asked.blocks(), asked.nlink());
        if told == (meta.inode, meta.bytes, meta.blocks_512, u64::from(meta.links)) {
            return;
        }
        if !tables.tables.is_settled(asked.ctime()) {
            self.part.tables.changed += 1;
            return;
        }
        let error = io::Error::other(
            "they tell another size, space or number of links than the file system does, though \
             the file has not changed since the sync; the method inode-tables is not right here",
        );
        self.fail(Some(node), Operation::VerifyInode, path, error);
    }
}
