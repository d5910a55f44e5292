//! A file system served by this process.

use crate::counters::{Counters, Tally};
use crate::filesystem::Server;
use crate::options::Options;
use fuser::{BackgroundSession, Config, MountOption};
use rustix::mount::{UnmountFlags, unmount};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file system in the table of mounts.
const NAME: &str = "delayfs";

/// A mount and the threads that serve it. Dropping it unmounts.
#[derive(Debug)]
pub(crate) struct Session {
    root: PathBuf,
    tally: Arc<Tally>,
    _threads: BackgroundSession,
}

impl Session {
    pub(crate) fn start(root: &Path, options: Options) -> io::Result<Self> {
        let tally = Arc::new(Tally::default());
        let server = Server::new(options, Arc::clone(&tally))?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::RO, MountOption::FSName(NAME.to_owned())];
        let threads = fuser::spawn_mount(server, root, &config)?;
        Ok(Self { root: root.to_owned(), tally, _threads: threads })
    }

    pub(crate) fn counters(&self) -> Counters {
        self.tally.counters()
    }

    pub(crate) fn reset(&self) {
        self.tally.reset();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // At once, although files may be open. The kernel refuses this to plain users, for whom the
        // threads start `fusermount3 -u -z` when they are dropped.
        let _ = unmount(&self.root, UnmountFlags::DETACH);
    }
}
