//! Whether new files belong to this user, which a server or a mount can decide: NFS gives the files of root to another
//! user, and FAT gives all files to one.
//!
//! One new file shows it for all on its device, so that a copy costs no stat per file.

use ioloom_sys::attr::Attr;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// No device has this number.
const NONE: u64 = u64::MAX;

/// The owner of new files.
#[derive(Debug)]
pub(crate) struct NewOwner {
    /// User and group of this process.
    own: (u32, u32),
    /// The device on which a new file had this owner last.
    confirmed: AtomicU64,
}

impl NewOwner {
    pub(crate) fn new(own: (u32, u32)) -> Self {
        Self { own, confirmed: AtomicU64::new(NONE) }
    }

    /// Returns true if a new file on `device` belongs to this user, and has the group of this process unless it inherits
    /// another one, `group`, from its directory. `found` returns the attributes of such a file.
    pub(crate) fn is_own(
        &self,
        device: (u32, u32),
        group: u32,
        found: impl FnOnce() -> io::Result<Attr>,
    ) -> bool {
        let device = u64::from(device.0) << 32 | u64::from(device.1);
        if self.confirmed.load(Ordering::Relaxed) == device {
            return true;
        }
        let inherits = group != self.own.1;
        let is_own = found()
            .is_ok_and(|new| new.user == self.own.0 && (inherits || new.group == self.own.1));
        if is_own && !inherits {
            self.confirmed.store(device, Ordering::Relaxed);
        }
        is_own
    }
}
