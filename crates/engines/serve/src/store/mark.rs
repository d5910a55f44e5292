//! The mark of a store: how far it was acknowledged and synced, in a separate file.
//!
//! Storage engines recover as much as they can read, and most do so silently: after a flipped bit
//! in its log, SQLite opens with fewer orders. The mark is a lower bound of what a store must
//! contain. It is updated after each commit and before the acknowledgements, by a copy into a
//! shared mapping, so it costs no system call and no sync per commit. After a kill it includes every
//! acknowledged order. After a power failure it may be older, by up to the time the kernel keeps
//! dirty pages, because it is synced only when the server starts and when it writes the stock file.
//! It is never ahead of synced orders; it can be ahead of unsynced ones, which a power failure may
//! lose (decision 034).
//!
//! The file has three pages: two slots, of which one is overwritten while the other stays valid,
//! and a page for other processes: the ID of the process that holds the lock on this file, and the
//! words of a running backup (`pause`). Locking precedes everything else that a server does with a
//! store, including its creation.

use super::copying::sync_directory;
use super::interface::StoreError;
use super::path::with_suffix;
use super::pause::{Pause, WORDS_AT};
use crate::choice::Durability;
use crate::lock::{self, Sharing, Taken};
use ioloom_failure::Operation;
use ioloom_sys::make::open_or_private_file;
use ioloom_sys::shared::Shared;
use ioloom_sys::{attr, fault, file, proc};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Suffix of the file name.
pub(super) const SUFFIX: &str = ".mark";
const MAGIC: [u8; 8] = *b"iomark 1";
/// Distance of the slots. Where a page is not larger, a torn page write damages only one.
const PAGE: usize = 4096;
/// Size of a slot in bytes, including its checksum.
const SLOT: usize = 112;
/// Number of stock file hashes in a slot.
const HASHES: usize = 2;

/// How far a store was acknowledged and synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// Durability level of the server, as its position in [`Durability::ALL`].
    pub(crate) level: u8,
    /// Hash of the boot ID of the system.
    pub(crate) boot: u128,
    /// Device number of the file system.
    pub(crate) device: (u32, u32),
    /// Number of the latest order that was committed, and so may have been acknowledged.
    pub(crate) acknowledged: u64,
    /// Number of the latest order that was synced.
    pub(crate) synced: u64,
    /// Number of the raw log to which the offsets refer; 0 without one.
    pub(crate) log: u64,
    /// End of the acknowledged bytes of that log.
    pub(crate) acknowledged_bytes: u64,
    /// End of the synced bytes of that log.
    pub(crate) synced_bytes: u64,
    /// Hashes of stock files that may exist; 0 for none.
    pub(crate) hashes: [u64; HASHES],
}

impl Mark {
    /// Returns the durability level.
    pub(crate) fn durability(&self) -> Option<Durability> {
        Durability::ALL.get(usize::from(self.level)).copied()
    }

    /// Returns true if written bytes may have been lost since: another boot or another file system.
    pub(crate) fn is_restart(&self, here: &Here) -> bool {
        self.boot != here.boot || here.boot == 0 || self.device != here.device
    }

    fn encode(&self, generation: u64) -> [u8; SLOT] {
        let mut out = [0; SLOT];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&generation.to_le_bytes());
        put(&self.boot.to_le_bytes());
        put(&self.device.0.to_le_bytes());
        put(&self.device.1.to_le_bytes());
        put(&u64::from(self.level).to_le_bytes());
        for number in [
            self.acknowledged,
            self.synced,
            self.log,
            self.acknowledged_bytes,
            self.synced_bytes,
            self.hashes[0],
            self.hashes[1],
        ] {
            put(&number.to_le_bytes());
        }
        let sum = xxh3_64(&out[..SLOT - 8]);
        out[SLOT - 8..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(slot: &[u8]) -> Option<(u64, Self)> {
        let (fields, sum) = slot.split_at_checked(SLOT - 8)?;
        if fields[..8] != MAGIC || sum != xxh3_64(fields).to_le_bytes() {
            return None;
        }
        let long = |at: usize| fields[at..].first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
        let short = |at: usize| fields[at..].first_chunk::<4>().map(|b| u32::from_le_bytes(*b));
        let mark = Self {
            boot: fields[16..].first_chunk::<16>().map(|b| u128::from_le_bytes(*b))?,
            device: (short(32)?, short(36)?),
            level: u8::try_from(long(40)?).ok()?,
            acknowledged: long(48)?,
            synced: long(56)?,
            log: long(64)?,
            acknowledged_bytes: long(72)?,
            synced_bytes: long(80)?,
            hashes: [long(88)?, long(96)?],
        };
        Some((long(8)?, mark))
    }
}

/// What a mark file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing: the store is new, or was written by an earlier version.
    Nothing,
    /// No valid slot.
    Damaged,
    /// The latest valid mark, and its generation.
    Mark(Mark, u64),
}

fn found(bytes: &[u8]) -> Found {
    if bytes.iter().take(2 * PAGE).all(|byte| *byte == 0) {
        return Found::Nothing;
    }
    let slots = [0, PAGE].into_iter().filter_map(|at| bytes.get(at..at + SLOT));
    let best = slots.filter_map(Mark::decode).max_by_key(|(generation, _)| *generation);
    best.map_or(Found::Damaged, |(generation, mark)| Found::Mark(mark, generation))
}

/// Reads the mark of a store without locking it.
pub(crate) fn read(store: &Path) -> io::Result<Found> {
    let path = with_suffix(store, SUFFIX);
    let opened = match file::open(&path, file::OpenHow::default()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        opened => opened?,
    };
    contents(&opened).map(|bytes| found(&bytes))
}

fn contents(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 3 * PAGE];
    let count = file::read_full_at(file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The circumstances of this process that decide whether written bytes may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Here {
    /// Hash of the boot ID.
    pub(crate) boot: u128,
    /// Device number of the file system that contains the mark.
    pub(crate) device: (u32, u32),
}

impl Here {
    /// Determines them for an open file. An unknown boot differs from every known one.
    pub(crate) fn of(file: &OwnedFd) -> io::Result<Self> {
        let boot = proc::boot_id().map_or(0, |id| xxh3_128(id.as_bytes()));
        Ok(Self { boot, device: attr::of_file(file)?.device })
    }
}

/// The lock on a store, held from before its creation until the store is closed.
pub(super) struct Guard {
    /// `None` once the mark is in use.
    file: Option<OwnedFd>,
    /// Path of the mark.
    path: PathBuf,
    /// Whether this process created the file.
    is_new: bool,
    /// What the file contained.
    pub(super) found: Found,
    /// Where this process runs.
    pub(super) here: Here,
}

impl Guard {
    /// Locks a store, which may not exist yet.
    pub(super) fn take(store: &Path) -> Result<Self, StoreError> {
        Self::take_or_keep(store, &mut Vec::new())
    }

    /// Locks a store, unless its mark is among the files that are locked already.
    pub(super) fn take_or_keep(
        store: &Path,
        handed: &mut Vec<OwnedFd>,
    ) -> Result<Self, StoreError> {
        let path = with_suffix(store, SUFFIX);
        let failed = |source| StoreError::unlockable(store, source);
        let taken = match lock::take_handed(&path, handed) {
            Some(file) => Ok(Taken::Ours(file)),
            None => lock::take(&path, Sharing::Alone, || open_or_private_file(&path)),
        };
        let file = match taken.map_err(failed)? {
            Taken::Ours(file) => file,
            Taken::Held(holder) => return Err(StoreError::locked(store, holder)),
        };
        let bytes = contents(&file).map_err(failed)?;
        let here = Here::of(&file).map_err(failed)?;
        let is_new = bytes.is_empty();
        Ok(Self { found: found(&bytes), is_new, file: Some(file), path, here })
    }

    /// Returns another descriptor of the mark, which keeps the store locked after it is closed.
    pub(super) fn keep(&self) -> io::Result<Option<OwnedFd>> {
        self.file.as_ref().map(|file| fault::call("fcntl", || file.try_clone())).transpose()
    }

    /// Locks an existing mark, to read the store.
    pub(super) fn take_to_read(store: &Path) -> Result<Self, StoreError> {
        let path = with_suffix(store, SUFFIX);
        let failed = |source| StoreError::unlockable(store, source);
        let open = || file::open(&path, file::OpenHow::default());
        let file = match lock::take(&path, Sharing::Alone, open).map_err(failed)? {
            Taken::Ours(file) => file,
            Taken::Held(holder) => return Err(StoreError::in_use(store, holder)),
        };
        let bytes = contents(&file).map_err(failed)?;
        let here = Here::of(&file).map_err(failed)?;
        Ok(Self { found: found(&bytes), is_new: false, file: Some(file), path, here })
    }

    /// Allocates the file, writes the first mark and syncs both.
    pub(super) fn start(mut self, first: Mark) -> io::Result<Writer> {
        let generation = match self.found {
            Found::Mark(_, generation) => generation,
            Found::Nothing | Found::Damaged => 0,
        };
        let mut page = vec![0; PAGE];
        let pid = format!("{}\n", std::process::id());
        page[..pid.len()].copy_from_slice(pid.as_bytes());
        let file = self.file.take().expect("the mark is started once");
        let size = file::size(&file)?;
        if size < 3 * PAGE as u64 {
            // A mapped write into a hole of a full disk would be a signal instead of an error.
            let missing = vec![0; 3 * PAGE - usize::try_from(size).unwrap_or(0)];
            file::write_full_at(&file, &missing, size)?;
        }
        file::write_full_at(&file, &page, WORDS_AT)?;
        let pause = Pause::new(&file)?;
        pause.announce();
        let area = Shared::new(file, 2 * PAGE)?;
        let mark = Mark { boot: self.here.boot, device: self.here.device, ..first };
        let mut writer = Writer { area, mark, generation, pause };
        // Both slots, so an older or damaged one cannot be mistaken for the state of this server.
        writer.put()?;
        writer.put()?;
        ioloom_sys::transfer::sync_all(writer.area.file())?;
        if self.is_new {
            sync_directory(&self.path)?;
        }
        Ok(writer)
    }
}

impl Drop for Guard {
    /// Removes a file that only this attempt created. The lock is still held, so no other server
    /// can be using it.
    fn drop(&mut self) {
        if self.is_new && self.file.is_some() {
            let _ = fault::call("unlink", || std::fs::remove_file(&self.path));
        }
    }
}

/// Writes the mark of an open store, and holds its lock.
pub(super) struct Writer {
    area: Shared,
    mark: Mark,
    generation: u64,
    /// Lets backups stop commits.
    pub(super) pause: Pause,
}

impl Writer {
    /// Changes the mark.
    ///
    /// # Errors
    /// Fails if the file was truncated or its device fails: the mark would not outlive this process.
    #[inline]
    pub(super) fn update(&mut self, change: impl FnOnce(&mut Mark)) -> io::Result<()> {
        change(&mut self.mark);
        self.put()
    }

    /// Returns the current mark.
    pub(super) fn mark(&self) -> &Mark {
        &self.mark
    }

    fn put(&mut self) -> io::Result<()> {
        self.generation += 1;
        let at = if self.generation.is_multiple_of(2) { 0 } else { PAGE };
        self.area.write(at, &self.mark.encode(self.generation))?;
        self.pause.check()
    }

    /// Syncs the mark.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.area.sync()
    }
}

/// Acknowledged orders that a store lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Number of missing orders that were acknowledged.
    pub(crate) orders: u64,
    /// Whether some of them had been synced.
    pub(crate) were_synced: bool,
    /// Whether the page cache may have been lost since: another boot or another file system.
    pub(crate) is_restart: bool,
}

impl Loss {
    /// Compares a mark with the number of the latest order in a store.
    pub(crate) fn of(mark: &Mark, here: &Here, latest: u64) -> Option<Self> {
        let orders = mark.acknowledged.saturating_sub(latest);
        let were_synced = mark.synced > latest;
        let is_restart = mark.is_restart(here);
        (orders > 0).then_some(Self { orders, were_synced, is_restart })
    }

    /// Returns true if no kill and no power failure explains the loss.
    pub(crate) fn is_damage(&self) -> bool {
        self.were_synced || !self.is_restart
    }
}

/// Returns an error of the mark of a store in use.
pub(super) fn failed(store: &Path) -> impl Fn(io::Error) -> StoreError + use<'_> {
    move |source| {
        StoreError::new(
            Operation::Write,
            &with_suffix(store, SUFFIX),
            source,
            "fix the cause and start the server again",
        )
    }
}

/// Returns the mark of a store, and the file as another boot would have left it.
#[cfg(test)]
pub(super) fn of_another_boot(store: &Path) -> (Found, Vec<u8>) {
    let mut bytes = std::fs::read(with_suffix(store, SUFFIX)).expect("a mark");
    let found = found(&bytes);
    if let Found::Mark(mark, generation) = found {
        let mark = Mark { boot: mark.boot ^ 1, ..mark };
        for (at, generation) in [(0, generation), (PAGE, generation + 1)] {
            bytes[at..at + SLOT].copy_from_slice(&mark.encode(generation));
        }
    }
    (found, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    fn mark(acknowledged: u64, synced: u64) -> Mark {
        Mark { acknowledged, synced, boot: 7, device: (8, 1), level: 2, ..Mark::default() }
    }

    proptest! {
        #[test]
        fn slots_read_back_and_no_flipped_bit_is_accepted(
            numbers: [u64; 7], boot: u128, device: (u32, u32), level in 0u8..4, generation: u64,
            bit in 0..SLOT * 8,
        ) {
            let mark = Mark {
                level, boot, device,
                acknowledged: numbers[0], synced: numbers[1], log: numbers[2],
                acknowledged_bytes: numbers[3], synced_bytes: numbers[4],
                hashes: [numbers[5], numbers[6]],
            };
            let mut slot = mark.encode(generation);
            prop_assert_eq!(Mark::decode(&slot), Some((generation, mark)));
            slot[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Mark::decode(&slot), None);
        }
    }

    #[test]
    fn a_damaged_slot_falls_back_to_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let path = with_suffix(&store, SUFFIX);
        assert_eq!(read(&store).unwrap(), Found::Nothing);
        let guard = Guard::take(&store).unwrap();
        assert!(matches!(Guard::take(&store), Err(e) if e.to_string().contains("locked by")));
        let here = guard.here;
        let mut writer = guard.start(Mark::default()).unwrap();
        writer.update(|mark| mark.acknowledged = 1).unwrap();
        writer.update(|mark| mark.acknowledged = 2).unwrap();
        let of = || match read(&store).unwrap() {
            Found::Mark(mark, _) => Some((mark.acknowledged, mark.boot)),
            Found::Nothing | Found::Damaged => None,
        };
        assert_eq!(of(), Some((2, here.boot)));
        let held = std::fs::read(&path).unwrap();
        assert!(held[2 * PAGE..].starts_with(format!("{}\n", std::process::id()).as_bytes()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(writer);
        let flip = |at: u64| {
            let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        };
        flip(50);
        assert_eq!(of(), Some((1, here.boot)), "the older slot");
        flip(PAGE as u64 + 50);
        assert_eq!(read(&store).unwrap(), Found::Damaged);
        // The next server starts over with a valid mark.
        drop(Guard::take(&store).unwrap().start(mark(3, 3)).unwrap());
        assert_eq!(of(), Some((3, here.boot)));
        for len in [0, 10] {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
            drop(Guard::take(&store).unwrap().start(mark(4, 4)).unwrap());
            assert_eq!(of(), Some((4, here.boot)), "truncated to {len}");
        }
    }

    #[test]
    fn a_mark_that_is_truncated_while_in_use_is_an_error() {
        for len in [0, PAGE as u64, 2 * PAGE as u64] {
            let dir = tempfile::tempdir().unwrap();
            let store = dir.path().join("store");
            let mut writer = Guard::take(&store).unwrap().start(mark(1, 1)).unwrap();
            let file = std::fs::File::options().write(true).open(with_suffix(&store, SUFFIX));
            file.unwrap().set_len(len).unwrap();
            let both = [2, 3].map(|number| {
                drop(writer.pause.enter());
                writer.update(|mark| mark.acknowledged = number)
            });
            let error = both.into_iter().find_map(Result::err).expect("an error").to_string();
            assert!(error.contains("truncated"), "{error}");
            drop(writer);
            assert!(Guard::take(&store).unwrap().start(mark(3, 3)).is_ok(), "{len}");
        }
    }

    #[test]
    fn a_lock_without_a_store_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        drop(Guard::take(&store).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        drop(Guard::take(&store).unwrap().start(mark(1, 1)).unwrap());
        drop(Guard::take(&store).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a used mark stays");
    }

    #[test]
    fn only_unsynced_orders_may_be_lost_and_only_by_a_restart() {
        let here = Here { boot: 7, device: (8, 1) };
        let other = Here { boot: 8, ..here };
        let moved = Here { device: (8, 2), ..here };
        let unknown = Here { boot: 0, ..here };
        let of = |mark: Mark, here, latest| Loss::of(&mark, &here, latest);
        assert_eq!(of(mark(5, 5), here, 5), None);
        assert_eq!(of(mark(5, 5), here, 6), None, "committed, not yet acknowledged");
        for here in [here, other, moved, unknown] {
            assert!(of(mark(5, 5), here, 4).unwrap().is_damage());
        }
        assert!(of(mark(5, 3), here, 4).unwrap().is_damage(), "a kill loses no written bytes");
        for here in [other, moved, unknown] {
            let loss = of(mark(5, 3), here, 3).unwrap();
            assert_eq!((loss.orders, loss.is_damage()), (2, false));
            assert!(of(mark(5, 3), here, 2).unwrap().is_damage());
        }
    }
}
