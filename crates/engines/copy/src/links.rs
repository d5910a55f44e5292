//! Hard links: the first name of a file is copied; all others become links to that copy.
//!
//! A thread that finds a file being copied by another thread waits for it. A copying thread never
//! waits, so there is no deadlock. Memory: about 150 bytes for each file with several names.

use crate::error::CopyError;
use crate::evidence::Evidence;
use crate::mode::Mode;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Device and inode.
pub(crate) type Identity = ((u32, u32), u64);

/// The name of the first copy of a file.
#[derive(Clone)]
pub(crate) enum FirstName<P> {
    /// Of this walk.
    Here(P),
    /// Of a walk before this one.
    Earlier(Arc<EarlierCopy>),
}

/// A copy that was complete before the walk began. Its path can mean another file by now.
pub(crate) struct EarlierCopy {
    pub(crate) path: PathBuf,
    /// Its attributes when it was complete.
    pub(crate) attr: Attr,
}

impl EarlierCopy {
    /// Opens the directory of the copy; returns it with the name.
    pub(crate) fn find(&self) -> io::Result<(Dir, CString)> {
        let above = self.path.parent().filter(|above| !above.as_os_str().is_empty());
        let dir = Dir::open_path_only(above.unwrap_or(Path::new(".")))?;
        let name = CString::new(self.path.file_name().map_or(b"".as_slice(), OsStr::as_bytes))?;
        // An inode can be that of another file by now, and a file can have been written in place.
        let (there, copied) = (attr::of_name(&dir, &name, false)?, &self.attr);
        let is_same = there.identity() == copied.identity()
            && (there.bytes, there.modified) == (copied.bytes, copied.modified);
        if !is_same {
            return Err(Errno::NOENT.into());
        }
        Ok((dir, name))
    }
}

/// Copies of files with several names, by the identity of the source.
pub(crate) type EarlierCopies = HashMap<Identity, Arc<EarlierCopy>>;

impl<P> FirstName<P> {
    /// Returns true if a link failed because the copy of an earlier walk is gone.
    pub(crate) fn is_gone(&self, error: &io::Error) -> bool {
        matches!(self, Self::Earlier(_)) && error.kind() == io::ErrorKind::NotFound
    }
}

enum State<P> {
    Busy,
    Copied(P),
}

/// Maximum number of names that wait for another name of their file. The errors of others are
/// reported at once.
const DEFERRED_MAX: usize = 10_000;

/// A name that could not be copied and becomes a link if another name of its file is.
pub(crate) struct Deferred<P> {
    pub(crate) at: P,
    pub(crate) kind: Kind,
    pub(crate) identity: Identity,
    /// Why it could not be copied.
    pub(crate) error: CopyError,
}

/// Files with several names found so far, and the names of their copies.
pub(crate) struct Links<'a, P> {
    met: Mutex<HashMap<Identity, State<P>>>,
    /// Copies made by earlier walks, unless `met` has another.
    earlier: &'a EarlierCopies,
    changed: Condvar,
    deferred: Mutex<Vec<Deferred<P>>>,
}

impl<'a, P: Clone> Links<'a, P> {
    pub(crate) fn new(earlier: &'a EarlierCopies) -> Self {
        let (met, deferred) = (Mutex::default(), Mutex::default());
        Self { met, earlier, changed: Condvar::new(), deferred }
    }

    /// Returns the files that this walk copied, with the names of their copies.
    pub(crate) fn take_copied(&self) -> Vec<(Identity, P)> {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let copied = std::mem::take(&mut *met).into_iter();
        let name = |(identity, state)| match state {
            State::Copied(name) => Some((identity, name)),
            State::Busy => None,
        };
        copied.filter_map(name).collect()
    }

    /// Returns the name of the copy of a file. On `None`, the caller must copy the file and then
    /// call [`release`](Self::release). Blocks while another thread is copying the file.
    pub(crate) fn claim(&self, identity: Identity) -> Option<FirstName<P>> {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match met.get(&identity) {
                None => match self.earlier.get(&identity) {
                    Some(copy) => return Some(FirstName::Earlier(Arc::clone(copy))),
                    None => {
                        met.insert(identity, State::Busy);
                        return None;
                    }
                },
                Some(State::Copied(name)) => return Some(FirstName::Here(name.clone())),
                Some(State::Busy) => {
                    met = self.changed.wait(met).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Claims a file whose earlier copy was removed or replaced. Returns false if another thread
    /// claimed it first; [`claim`](Self::claim) then waits for that thread.
    pub(crate) fn claim_again(&self, identity: Identity) -> bool {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !met.contains_key(&identity);
        if is_first {
            met.insert(identity, State::Busy);
        }
        is_first
    }

    /// Gives the next names of a file another copy to link to, because the one before has too many
    /// links.
    pub(crate) fn replace(&self, identity: Identity, name: P) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that is copying the file releases it with its own name.
        if !matches!(met.get(&identity), Some(State::Busy)) {
            met.insert(identity, State::Copied(name));
        }
    }

    /// Lets a name wait for the end of the walk.
    pub(crate) fn defer(&self, name: Deferred<P>) -> EntryResult {
        let mut waiting = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= DEFERRED_MAX {
            return Err(name.error);
        }
        waiting.push(name);
        Ok(Outcome::Deferred)
    }

    /// Returns the names that waited.
    pub(crate) fn take_deferred(&self) -> Vec<Deferred<P>> {
        std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Releases a claim: with the name of the copy, or with `None` if copying failed, in which case
    /// the next thread tries.
    pub(crate) fn release(&self, identity: Identity, name: Option<P>) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match name {
            Some(name) => met.insert(identity, State::Copied(name)),
            None => met.remove(&identity),
        };
        debug_assert!(
            matches!(before, Some(State::Busy)),
            "only the thread that claimed a file may release it; two copies of one file would \
             break its hard links"
        );
        drop(met);
        self.changed.notify_all();
    }
}

/// A file that was copied or linked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Number of bytes.
    pub(crate) bytes: u64,
    /// The new name of the file that was there.
    pub(crate) backup: Option<OsString>,
    /// Whether the file that was there was removed.
    pub(crate) removed: bool,
    /// How the content was copied; `None` if it was not.
    pub(crate) mode: Option<Mode>,
    /// Whether the holes of the source were looked for.
    pub(crate) finds_holes: bool,
    /// The evidence that the copy was read back.
    pub(crate) evidence: Evidence,
}

/// The outcome of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Copied(Copied),
    Linked(Copied),
    Skipped,
    /// Decided at the end of the walk.
    Deferred,
    /// Completed by an earlier copy.
    Resumed,
}

/// The result of copying one entry.
pub(crate) type EntryResult = Result<Outcome, CopyError>;
