//! Order stores.
//!
//! A store accepts batches of records. Each batch is one commit: after a crash, the store contains
//! all of it or nothing. A store contains the stocks, the latest orders with their answers (so a
//! repeated order gets the same answer after a restart), and the hashes of the stock files written
//! from it.
//!
//! Opening has five steps: lock the store (`mark`), create it if it is missing (`make`), read and
//! verify it without changing anything (`proof`, and `prove` of each store), compare it with its
//! mark (`judging`), and begin to use it. A store that is refused is therefore unchanged, and what
//! cannot be read is kept in a separate file before the store is changed (`copying`).

mod bytes;
mod copying;
mod fjall;
pub(crate) mod ignored;
mod interface;
mod judging;
mod log;
mod make;
mod mark;
#[cfg(test)]
#[allow(clippy::print_stdout, reason = "the table and skipped stores are printed")]
mod matrix;
mod overlay;
mod path;
mod pause;
mod proof;
mod redb;
#[cfg(test)]
mod scratch;
mod sqlite;
mod sqlite_log;
mod tool;
pub(crate) mod words;

use crate::choice::{Durability, StoreKind};
use crate::options::StoreChoice;
pub use interface::StoreError;
use interface::{
    Beginning, EachOrder, MOVED, OTHER_KIND, Position, Proven, Unreadable, is_missing,
};
pub(crate) use interface::{ORDERS_KEPT, Store};
use ioloom_exchange::{Exchange, Record, State};
use ioloom_failure::{Operation, quoted};
use ioloom_sys::{fault, file};
use judging::{Facts, Missing, bytes_text};
use mark::{Found, Guard, Mark, Writer};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
pub use tool::{MarkFacts, StoreFacts, backup_store, inspect_store};

/// A store and the state that it contained.
pub(crate) struct Opened {
    /// The store.
    pub(crate) store: Box<dyn Store>,
    /// The state.
    pub(crate) state: State,
    /// Hashes of stock files that may exist.
    pub(crate) hashes: Vec<u64>,
    /// Whether this call created the store.
    pub(crate) is_new: bool,
    /// What the operator should know about the store.
    pub(crate) notices: Vec<String>,
}

/// A locked store, which may not exist yet.
pub(crate) struct Locked {
    guard: Guard,
    kind: StoreKind,
    path: PathBuf,
    accept_loss: bool,
}

impl Locked {
    /// Locks a store, unless it is among the files that are locked already.
    pub(crate) fn take(
        choice: &StoreChoice,
        handed: &mut Vec<OwnedFd>,
    ) -> Result<Self, StoreError> {
        let path = path::resolve(&choice.path);
        let guard = Guard::take_or_keep(&path, handed)?;
        Ok(Self { guard, kind: choice.kind, path, accept_loss: choice.accept_loss })
    }

    /// Returns a descriptor that keeps the store locked after it is closed.
    pub(crate) fn keep_lock(&self) -> Result<Option<OwnedFd>, StoreError> {
        self.guard.keep().map_err(|error| StoreError::unlockable(&self.path, error))
    }

    /// Opens the store, or creates one with these stocks from a file with this hash.
    pub(crate) fn open(
        self,
        durability: Durability,
        stocks: &Exchange,
        file_hash: u64,
    ) -> Result<Opened, StoreError> {
        let mut notices = Vec::new();
        let unusable = StoreError::unusable(Operation::Open, &self.path);
        let is_new = make::is_missing(self.kind, &self.path).map_err(unusable)?;
        if is_new {
            self.check_unmarked(&mut notices)?;
            make::make(self.kind, &self.path, &Beginning { stocks, file_hash })?;
        }
        let is_known = is_new || self.check_kind()?;
        let proven = prove(self.kind, &self.path, durability, &mut |_| {});
        let mut proven =
            proven.map_err(|error| if is_known { error } else { error.of_unknown_file() })?;
        if !is_new {
            self.judge(&proven, &mut notices)?;
        }
        let latest = proven.state.seq();
        if latest > ORDERS_KEPT {
            proven.state.forget_older();
        }
        let old = match self.guard.found {
            Found::Mark(mark, _) if !is_new => Some(mark),
            _ => None,
        };
        let hashes = hashes(&proven, old.as_ref());
        let store = (proven.begin)()?;
        let first = self.first(durability, latest, store.position(), old.as_ref(), &hashes);
        let mark = self.guard.start(first).map_err(mark::failed(&self.path))?;
        let syncs = self.kind == StoreKind::Redb
            || matches!(durability, Durability::Group | Durability::Each);
        // A raw log checks the file that it writes, which it also replaces itself.
        let place = (!log::is_log(self.kind)).then(|| place(&self.path)).transpose();
        let place = place.map_err(StoreError::unusable(Operation::Open, &self.path))?;
        let store = Box::new(Seam { store, path: self.path, place, latest, mark, syncs });
        Ok(Opened { store, state: proven.state, hashes, is_new, notices })
    }

    /// Refuses a store of another type. Returns whether the file or directory looks like a store.
    fn check_kind(&self) -> Result<bool, StoreError> {
        let found = make::found(&self.path);
        let found = found.map_err(StoreError::unusable(Operation::Open, &self.path))?;
        let Some(kind) = found else { return Ok(false) };
        if kind == StoreKind::Fjall && !fjall::is_database(&self.path) {
            return Ok(false);
        }
        if kind != self.kind && !(log::is_log(kind) && log::is_log(self.kind)) {
            let what = io::Error::other(format!("it is a store of type {kind}"));
            return Err(StoreError::new(Operation::Open, &self.path, what, OTHER_KIND));
        }
        Ok(true)
    }

    /// Refuses to create a store whose mark says that it had orders.
    fn check_unmarked(&self, notices: &mut Vec<String>) -> Result<(), StoreError> {
        let Found::Mark(mark, _) = self.guard.found else { return Ok(()) };
        if mark.acknowledged == 0 {
            return Ok(());
        }
        let missing = Missing { orders: mark.acknowledged, bytes: None, is_damage: true };
        if !self.accept_loss {
            let what = format!("the store does not exist: {}", missing.text(&self.path));
            return Err(StoreError::lost(&self.path, what));
        }
        notices.push(format!("{}; started over from the stock file", missing.text(&self.path)));
        Ok(())
    }

    /// Compares the contents of the store with its mark, and keeps what cannot be read.
    fn judge(&self, proven: &Proven, notices: &mut Vec<String>) -> Result<(), StoreError> {
        if self.guard.found == Found::Damaged {
            notices.push(judging::damaged_mark(&self.path));
        }
        let missing = facts(&self.guard, proven, &self.path).missing();
        let is_damage = missing.as_ref().is_some_and(|missing| missing.is_damage);
        if let Some(missing) = missing.as_ref().filter(|_| is_damage && !self.accept_loss) {
            return Err(missing.refusal(&self.path));
        }
        let is_log = log::is_log(self.kind);
        let kept = match &proven.unreadable {
            Some(bytes) if is_log || missing.is_some() => self.keep(Some(bytes), is_damage)?,
            _ if is_damage && !is_log => self.keep(None, true)?,
            _ => None,
        };
        let kept = kept.map(|kept| format!("; moved to {}", quoted(&kept))).unwrap_or_default();
        let notice = match (&missing, &proven.unreadable) {
            (Some(missing), _) if missing.is_damage => {
                format!("{}; continuing without them{kept}", missing.text(&self.path))
            }
            (Some(missing), _) => format!(
                "{} after a restart of the system; they were acknowledged but not synced{kept}",
                missing.text(&self.path)
            ),
            (None, Some(bytes)) if is_log => format!(
                "{} are left over from an interrupted write{kept}",
                bytes_text(bytes, &self.path)
            ),
            (None, _) => return Ok(()),
        };
        notices.push(notice);
        Ok(())
    }

    /// Copies the unreadable end of a raw log, or a whole damaged database, to a new file.
    fn keep(
        &self,
        bytes: Option<&Unreadable>,
        is_damage: bool,
    ) -> Result<Option<PathBuf>, StoreError> {
        let failed = StoreError::unusable(Operation::Copy, &self.path);
        let kept = copying::damaged_path(&self.path).map_err(&failed)?;
        let copied = match bytes {
            Some(bytes) if log::is_log(self.kind) => {
                copying::copy_bytes(&bytes.file, &kept, bytes.from..bytes.from + bytes.bytes)
            }
            _ if is_damage => copying::copy_store(self.kind, &self.path, &kept),
            Some(bytes) => copying::copy_file(&bytes.file, &kept),
            None => return Ok(None),
        };
        let copied = copied.and_then(|()| copying::sync_directory(&kept)).inspect_err(|error| {
            // An incomplete copy proves nothing, and each start would leave another one.
            if error.kind() != io::ErrorKind::AlreadyExists {
                let _ = copying::remove(&kept);
            }
        });
        copied.map_err(failed)?;
        Ok(Some(kept))
    }

    /// Returns the first mark of this server.
    fn first(
        &self,
        durability: Durability,
        latest: u64,
        position: Position,
        old: Option<&Mark>,
        hashes: &[u64],
    ) -> Mark {
        let level = Durability::ALL.iter().position(|level| *level == durability);
        let is_synced = log::is_log(self.kind) || self.kind == StoreKind::Redb;
        Mark {
            level: level.and_then(|level| u8::try_from(level).ok()).unwrap_or(u8::MAX),
            acknowledged: latest,
            synced: if is_synced { latest } else { old.map_or(0, |old| old.synced.min(latest)) },
            log: position.log,
            acknowledged_bytes: position.written,
            synced_bytes: position.synced,
            hashes: mark_hashes(hashes),
            ..Mark::default()
        }
    }
}

fn facts<'a>(guard: &'a Guard, proven: &'a Proven, path: &'a Path) -> Facts<'a> {
    Facts {
        found: &guard.found,
        here: &guard.here,
        latest: proven.state.seq(),
        position: proven.position,
        unreadable: proven.unreadable.as_ref(),
        path,
    }
}

/// Returns the hashes in a store and in its mark: the latest ones of a store may be unreadable.
fn hashes(proven: &Proven, old: Option<&Mark>) -> Vec<u64> {
    let mut hashes = proven.hashes.clone();
    let marked = old.map_or([0; 2], |old| old.hashes);
    hashes.extend(marked.into_iter().filter(|hash| *hash != 0 && !proven.hashes.contains(hash)));
    hashes
}

fn mark_hashes(hashes: &[u64]) -> [u64; 2] {
    let mut out = [0; 2];
    for (out, hash) in out.iter_mut().zip(hashes) {
        *out = *hash;
    }
    out
}

/// Reads and verifies an existing store.
fn prove(
    kind: StoreKind,
    path: &Path,
    durability: Durability,
    each: EachOrder<'_>,
) -> Result<Proven, StoreError> {
    match kind {
        StoreKind::Sqlite => sqlite::prove(path, durability, each),
        StoreKind::Redb => redb::prove(path, each),
        StoreKind::Fjall => fjall::prove(path, durability, each),
        StoreKind::Log | StoreKind::LogDsync | StoreKind::LogDirect | StoreKind::LogUring => {
            log::prove(kind, path, durability, each)
        }
    }
}

/// Reads and verifies an existing store that is not to be used. Its files and directory need not be
/// writable.
fn prove_to_read(kind: StoreKind, path: &Path, each: EachOrder<'_>) -> Result<Proven, StoreError> {
    match kind {
        StoreKind::Sqlite => sqlite::prove_to_read(path, each),
        StoreKind::Redb => redb::prove_to_read(path, each),
        StoreKind::Fjall => fjall::prove_to_read(path, each),
        StoreKind::Log | StoreKind::LogDsync | StoreKind::LogDirect | StoreKind::LogUring => {
            log::prove_to_read(path, each)
        }
    }
}

/// Detects the type of a store from its first bytes. Returns `None` if there is no store. Raw logs
/// differ only in how they are written, so all of them are detected as [`StoreKind::Log`].
///
/// # Errors
/// Returns an error if the path cannot be read.
pub fn detect_store(path: &Path) -> Result<Option<StoreKind>, StoreError> {
    make::found(path).map_err(StoreError::unusable(Operation::Open, path))
}

/// Tests whether a store of this type works below a directory.
///
/// # Errors
/// Returns the reason why it does not work.
pub fn probe_store(kind: StoreKind, dir: &Path) -> Result<(), String> {
    log::probe(kind, dir)
}

/// Inode and device number of a file or directory.
type Place = (u64, (u32, u32));

fn place(path: &Path) -> io::Result<Place> {
    file::stat(path).map(|stat| (stat.inode, stat.device))
}

/// Passes calls through the fault injection layer, because system calls made by a storage engine
/// bypass it, checks that commits are consecutive, and updates the mark.
struct Seam {
    store: Box<dyn Store>,
    path: PathBuf,
    /// What the path of a database referred to when it was opened.
    place: Option<Place>,
    /// Log number of the latest stored order.
    latest: u64,
    mark: Writer,
    /// Whether commits are synced.
    syncs: bool,
}

impl Seam {
    fn pass(&self, operation: &'static str) -> Result<(), StoreError> {
        fault::call(operation, || Ok(())).map_err(|e| StoreError::stopped(&self.path, e))
    }

    /// Fails if the path does not refer to the database that is in use.
    fn check_place(&self) -> Result<(), StoreError> {
        let Some(opened) = self.place else { return Ok(()) };
        let is_moved = match place(&self.path) {
            Ok(named) => named != opened,
            // Other errors say nothing about the database.
            Err(error) => is_missing(&error),
        };
        if !is_moved {
            return Ok(());
        }
        let what = io::Error::other("it was removed, renamed or replaced");
        Err(StoreError::new(Operation::Write, &self.path, what, MOVED))
    }
}

impl Store for Seam {
    fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let Some((first, last)) = records.first().zip(records.last()) else { return Ok(()) };
        let (first, last) = (first.outcome.seq(), last.outcome.seq());
        assert_eq!(first, self.latest + 1, "a store with gaps between orders cannot be reopened");
        debug_assert_eq!(
            last - first + 1,
            records.len() as u64,
            "a store with gaps between orders cannot be reopened"
        );
        self.pass("commit")?;
        if self.syncs {
            self.check_place()?;
        }
        let committed = {
            let _commit = self.mark.pause.enter();
            self.store.commit(records)
        };
        committed?;
        self.latest = last;
        let (position, syncs) = (self.store.position(), self.syncs);
        debug_assert!(last >= self.mark.mark().acknowledged, "the mark must not go back");
        let updated = self.mark.update(|mark| {
            mark.acknowledged = last;
            (mark.log, mark.acknowledged_bytes) = (position.log, position.written);
            if syncs {
                (mark.synced, mark.synced_bytes) = (last, position.synced);
            }
        });
        updated.map_err(mark::failed(&self.path))
    }

    fn set_stock_hashes(&mut self, hashes: &[u64]) -> Result<(), StoreError> {
        self.pass("set-stock-hashes")?;
        self.check_place()?;
        let set = {
            let _commit = self.mark.pause.enter();
            self.store.set_stock_hashes(hashes)
        };
        set?;
        let (position, latest) = (self.store.position(), self.latest);
        let updated = self.mark.update(|mark| {
            mark.synced = latest;
            (mark.log, mark.synced_bytes) = (position.log, position.synced);
            mark.acknowledged_bytes = position.written;
            mark.hashes = mark_hashes(hashes);
        });
        updated.and_then(|()| self.mark.sync()).map_err(mark::failed(&self.path))
    }

    fn verify(&mut self) -> Result<(), StoreError> {
        self.check_place()?;
        self.store.verify()
    }

    fn position(&self) -> Position {
        self.store.position()
    }
}
