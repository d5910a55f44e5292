//! Inspection and backup of stores, for an operator.
//!
//! Reading a store takes its lock and changes nothing. A backup of a store that a server is using
//! stops the server's commits while the files are copied (`pause`); the copy is verified before it
//! gets its name.

use super::copying::{copy_store, remove, remove_leftovers, sync_directory};
use super::interface::{INTACT, StoreError, invalid};
use super::mark::{self, Found, Guard, Here, Mark};
use super::path::{resolve, with_suffix};
use super::pause::Pause;
use super::{Facts, facts, fjall, log, make, mark_hashes, prove_to_read, sqlite};
use crate::choice::{Durability, StoreKind};
use crate::lock::{self, Sharing, Taken};
use crate::temporary;
use ioloom_exchange::Record;
use ioloom_failure::Operation;
use ioloom_sys::attr;
use ioloom_sys::file::{self, OpenHow, WriteMode};
use rustix::io::Errno;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Number of attempts to copy a directory in which fjall merges files.
const ATTEMPTS: usize = 5;
/// Advice for the name of a backup.
const OTHER_NAME: &str = "specify another name";
/// The same if a file of a removed database remains.
const LEFT_OVER: &str = "move it away, or specify another name";
/// Advice if a backup fails.
const BACKUP: &str = "the original is unchanged; fix the cause and repeat the backup";

/// What the mark of a store says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkFacts {
    /// Durability level of the latest server.
    pub durability: Option<Durability>,
    /// Number of the latest order that may have been acknowledged.
    pub acknowledged: u64,
    /// Number of the latest order known to be synced.
    pub synced: u64,
    /// Whether the mark was written in this boot, on this file system.
    pub is_this_boot: bool,
}

impl MarkFacts {
    fn of(mark: &Mark, here: &Here) -> Self {
        Self {
            durability: mark.durability(),
            acknowledged: mark.acknowledged,
            synced: mark.synced,
            is_this_boot: mark.boot == here.boot && mark.device == here.device,
        }
    }
}

/// What a store contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFacts {
    /// Kind of the store; all raw logs are [`StoreKind::Log`].
    pub kind: StoreKind,
    /// The file or directory.
    pub path: PathBuf,
    /// Allocated bytes.
    pub bytes: u64,
    /// Number of stocks.
    pub stocks: usize,
    /// Contents of a stock file with these stocks.
    pub stock_file: String,
    /// Number of the latest order.
    pub latest: u64,
    /// Number of retained orders.
    pub orders: u64,
    /// The mark; `None` if it is missing or damaged.
    pub mark: Option<MarkFacts>,
    /// Whether a mark exists but is damaged.
    pub is_mark_damaged: bool,
    /// Number of missing orders.
    pub missing_orders: u64,
    /// Location of unreadable bytes: file, offset and number.
    pub unreadable: Option<(PathBuf, u64, u64)>,
    /// Description of missing orders that no kill and no power failure explains.
    pub damage: Option<String>,
    /// Description of missing orders that a power failure explains, or that a missing mark does not rule out.
    pub loss: Option<String>,
}

impl StoreFacts {
    /// Returns why the store may lack orders: damage, missing orders, or a damaged mark. `None` if nothing
    /// that was acknowledged is missing, as far as the store and its mark show.
    pub fn problem(&self) -> Option<String> {
        if let Some(damage) = &self.damage {
            return Some(format!("it is damaged: {damage}"));
        }
        if let Some(loss) = &self.loss {
            return Some(format!("acknowledged orders are missing: {loss}"));
        }
        self.is_mark_damaged.then(|| {
            "its mark is damaged, so orders missing from its end cannot be detected".to_owned()
        })
    }
}

/// Reads and verifies a store, and calls `each` for every order that can be read.
///
/// # Errors
/// Returns an error if the store is in use, is not a store, or cannot be read.
pub fn inspect_store(path: &Path, each: &mut dyn FnMut(&Record)) -> Result<StoreFacts, StoreError> {
    let path = resolve(path);
    let kind = kind_of(&path)?;
    let guard = lock_to_read(&path).map_err(StoreError::of_reader)?;
    inspect(kind, &path, guard.as_ref(), each)
}

fn kind_of(path: &Path) -> Result<StoreKind, StoreError> {
    let failed = |error| StoreError::new(Operation::Open, path, error, NO_STORE);
    if let Err(error) = attr::of_path(path, true) {
        return Err(failed(error));
    }
    let kind = make::found(path).map_err(failed)?;
    let kind = kind.filter(|kind| *kind != StoreKind::Fjall || fjall::is_database(path));
    kind.ok_or_else(|| failed(invalid("not a store of this version")))
}

const NO_STORE: &str = "specify the file or directory of a store";

/// Locks a store with a mark.
pub(super) fn lock_to_read(path: &Path) -> Result<Option<Guard>, StoreError> {
    let mark = with_suffix(path, mark::SUFFIX);
    match attr::of_path(&mark, true) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        _ => Guard::take_to_read(path).map(Some),
    }
}

fn inspect(
    kind: StoreKind,
    path: &Path,
    guard: Option<&Guard>,
    each: &mut dyn FnMut(&Record),
) -> Result<StoreFacts, StoreError> {
    let log = with_suffix(path, "-wal");
    let had_log = log.exists();
    let mut orders = 0;
    let mut counted = |record: &Record| {
        orders += 1;
        each(record);
    };
    let proven = prove_to_read(kind, path, &mut counted);
    let proven = proven.map_err(StoreError::of_reader)?;
    let missing = missing(guard, &proven, path);
    let exchange = proven.state.exchange();
    let unusable = |error| StoreError::unusable(Operation::Stat, path)(error).of_reader();
    let found = StoreFacts {
        kind,
        path: path.to_owned(),
        bytes: allocated(path).map_err(unusable)?,
        stocks: exchange.len(),
        stock_file: exchange.to_text(),
        latest: proven.state.seq(),
        orders,
        mark: guard.and_then(|guard| match &guard.found {
            Found::Mark(mark, _) => Some(MarkFacts::of(mark, &guard.here)),
            Found::Nothing | Found::Damaged => None,
        }),
        is_mark_damaged: guard.is_some_and(|guard| guard.found == Found::Damaged),
        missing_orders: missing.as_ref().map_or(0, |missing| missing.orders),
        unreadable: missing
            .as_ref()
            .and_then(|missing| missing.bytes.clone())
            .or_else(|| proven.unreadable.clone().filter(|_| log::is_log(kind)))
            .map(|bytes| (bytes.file, bytes.from, bytes.bytes)),
        damage: text_of(missing.as_ref(), true, path),
        loss: text_of(missing.as_ref(), false, path),
    };
    drop(proven);
    if !had_log {
        remove_empty(&log);
    }
    Ok(found)
}

/// Removes an empty log: SQLite creates it even to read.
fn remove_empty(log: &Path) {
    if fs::metadata(log).is_ok_and(|meta| meta.len() == 0) {
        let _ = fs::remove_file(log);
    }
}

/// Describes what is missing if it is damage, or if it is not.
fn text_of(missing: Option<&super::Missing>, is_damage: bool, path: &Path) -> Option<String> {
    missing.filter(|missing| missing.is_damage == is_damage).map(|missing| missing.text(path))
}

/// Returns what is missing from a store, according to its mark, or without one to its contents alone.
pub(super) fn missing(
    guard: Option<&Guard>,
    proven: &super::Proven,
    path: &Path,
) -> Option<super::Missing> {
    if let Some(guard) = guard {
        return facts(guard, proven, path).missing();
    }
    let here = Here { boot: 0, device: (0, 0) };
    Facts {
        found: &Found::Nothing,
        here: &here,
        latest: proven.state.seq(),
        position: proven.position,
        unreadable: proven.unreadable.as_ref(),
        path,
    }
    .missing()
}

fn allocated(path: &Path) -> io::Result<u64> {
    let facts = attr::of_path(path, true)?;
    let mut bytes = facts.blocks_512 * 512;
    if fs::metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += allocated(&entry?.path())?;
        }
    } else if let Ok(log) = attr::of_path(&with_suffix(path, "-wal"), true) {
        bytes += log.blocks_512 * 512;
    }
    Ok(bytes)
}

/// Copies a store, which a server may be using, to `to`, which must not exist. The copy is
/// consistent, verified and synced when this returns, and has a mark.
///
/// # Errors
/// Returns an error if the store is damaged or the copy fails; then nothing remains of the copy.
pub fn backup_store(from: &Path, to: &Path) -> Result<StoreFacts, StoreError> {
    let from = resolve(from);
    let kind = kind_of(&from)?;
    let failed = |error| StoreError::new(Operation::Copy, &from, error, BACKUP);
    let target = |error| StoreError::new(Operation::Create, to, error, OTHER_NAME);
    if attr::of_path(to, false).is_ok() {
        return Err(target(Errno::EXIST.into()));
    }
    make::check_alone(kind, to, LEFT_OVER)?;
    let guard = Guard::take(to).map_err(|error| error.with_advice(OTHER_NAME))?;
    remove_leftovers(to).map_err(target)?;
    let temp = temporary::name_for(to);
    let made = copy(kind, &from, &temp).map_err(failed).and_then(|least| {
        let facts = inspect(kind, &temp, None, &mut |_| {})?;
        if facts.latest < least || facts.missing_orders > 0 {
            let missing = least.saturating_sub(facts.latest).max(facts.missing_orders);
            let what = format!("the store is damaged: {missing} acknowledged orders are missing");
            return Err(StoreError::new(Operation::Copy, &from, io::Error::other(what), INTACT));
        }
        make::put(kind, &temp, to).map_err(target)?;
        Ok(facts)
    });
    if made.is_err() {
        let _ = remove(&temp);
    }
    let facts = made?;
    // A copy without a mark would seem to be complete whatever it lacks.
    let proven = prove_to_read(kind, to, &mut |_| {}).map_err(|error| {
        let _ = remove(to);
        error.of_reader()
    })?;
    let first = Mark {
        level: u8::MAX,
        acknowledged: facts.latest,
        synced: facts.latest,
        log: proven.position.log,
        acknowledged_bytes: proven.position.written,
        synced_bytes: proven.position.written,
        hashes: mark_hashes(&proven.hashes),
        ..Mark::default()
    };
    drop(proven);
    remove_empty(&with_suffix(to, "-wal"));
    let here = guard.here;
    let marked = guard.start(first).and_then(|writer| {
        sync_directory(to)?;
        Ok(MarkFacts::of(writer.mark(), &here))
    });
    if marked.is_err() {
        let _ = remove(to);
        let _ = fs::remove_file(with_suffix(to, mark::SUFFIX));
    }
    let mark = marked.map_err(|error| mark::failed(to)(error).with_advice(BACKUP))?;
    Ok(StoreFacts { path: to.to_owned(), mark: Some(mark), ..facts })
}

/// Copies the files of a store. Returns the number of an order that the copy must contain.
fn copy(kind: StoreKind, from: &Path, temp: &Path) -> io::Result<u64> {
    let path = with_suffix(from, mark::SUFFIX);
    let taken = match attr::of_path(&path, true) {
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        _ => Some(lock::take(&path, Sharing::Alone, || lock::open_to_lock(&path))?),
    };
    let least = || -> io::Result<u64> {
        match mark::read(from)? {
            Found::Mark(mark, _) => Ok(mark.acknowledged),
            Found::Nothing | Found::Damaged => Ok(0),
        }
    };
    let least = match &taken {
        Some(Taken::Held(_)) => {
            let pause = Pause::new(file::open_to_write(&path, WriteMode::Buffered)?)?;
            pause.while_stopped(|| {
                let least = least()?;
                copy_while_merging(kind, from, temp)?;
                Ok(least)
            })?
        }
        // The lock is held until the copy is complete.
        Some(Taken::Ours(_)) | None => {
            copy_store(kind, from, temp)?;
            least()?
        }
    };
    drop(taken);
    if kind == StoreKind::Sqlite {
        sqlite::settle(temp)?;
        let file = file::open(temp, OpenHow::default())?;
        ioloom_sys::transfer::sync_all(&file)?;
    }
    Ok(least)
}

/// Copies a store whose commits are stopped. fjall can still replace files by merged ones.
fn copy_while_merging(kind: StoreKind, from: &Path, temp: &Path) -> io::Result<()> {
    let mut attempts = 1;
    loop {
        match copy_store(kind, from, temp) {
            Err(e) if e.kind() == ErrorKind::NotFound && attempts < ATTEMPTS => remove(temp)?,
            copied => return copied,
        }
        attempts += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Locked, Opened};
    use super::*;
    use crate::options::StoreChoice;
    use ioloom_exchange::{Exchange, Order, Side, State};
    use ioloom_sys::fault;
    use ioloom_testbed::{alone, as_nobody};
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use tempfile::TempDir;

    /// Returns a raw log of 30 orders at level `os`, left by a killed server.
    fn store() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let stocks = Exchange::from_text("1 1000 10\n").unwrap();
        let choice = StoreChoice { kind: StoreKind::Log, path: path.clone(), accept_loss: false };
        let locked = Locked::take(&choice, &mut Vec::new()).unwrap();
        let mut store = locked.open(Durability::Os, &stocks, 7).unwrap().store;
        let mut state = State::new(stocks, 0);
        for _ in 0..30 {
            let record = state.trade(&Order::new(Side::Buy, 1, 1).unwrap(), None).1.unwrap();
            store.commit(&[record]).unwrap();
        }
        (dir, path)
    }

    fn flip(path: &Path, at: u64) {
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }

    fn facts(path: &Path) -> StoreFacts {
        inspect_store(path, &mut |_| {}).unwrap()
    }

    #[test]
    fn missing_orders_and_a_damaged_mark_are_problems() {
        let (_dir, whole) = store();
        assert_eq!((facts(&whole).problem(), facts(&whole).orders), (None, 30));
        // A power failure may lose what was not synced; it is missing nevertheless.
        let (_dir, path) = store();
        let (_, mark) = mark::of_another_boot(&path);
        fs::write(with_suffix(&path, mark::SUFFIX), mark).unwrap();
        let size = fs::metadata(&path).unwrap().len();
        fs::File::options().write(true).open(&path).unwrap().set_len(size * 2 / 3).unwrap();
        let cut = facts(&path);
        assert_eq!((&cut.damage, cut.missing_orders), (&None, 30 - cut.latest), "{cut:?}");
        let problem = cut.problem().unwrap();
        assert!(problem.contains("acknowledged orders are missing: "), "{problem}");
        // Without a mark, readable orders behind the damage show that some are missing.
        for is_damaged in [false, true] {
            let (_dir, path) = store();
            let mark = with_suffix(&path, mark::SUFFIX);
            if is_damaged {
                fs::write(&mark, [1; 9000]).unwrap();
            } else {
                fs::remove_file(&mark).unwrap();
            }
            flip(&path, size / 2);
            let gap = facts(&path);
            assert!(gap.damage.is_none() && gap.missing_orders > 0, "{gap:?}");
            assert!(gap.problem().is_some(), "{gap:?}");
            let error = backup_store(&path, &with_suffix(&path, "-copy")).unwrap_err().to_string();
            assert!(error.contains("acknowledged orders are missing"), "{error}");
        }
        let mark = with_suffix(&whole, mark::SUFFIX);
        [50, 4146].into_iter().for_each(|at| flip(&mark, at));
        let problem = facts(&whole).problem().unwrap();
        assert!(problem.contains("mark is damaged"), "{problem}");
    }

    #[test]
    fn a_backup_is_not_merged_with_the_log_of_a_removed_database() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let stocks = Exchange::from_text("1 1000 10\n").unwrap();
        let choice = StoreChoice { kind: StoreKind::Sqlite, path: at("store"), accept_loss: false };
        drop(Locked::take(&choice, &mut Vec::new()).unwrap().open(Durability::Os, &stocks, 7));
        fs::write(at("copy-wal"), "of a removed database").unwrap();
        let error = backup_store(&at("store"), &at("copy")).unwrap_err().to_string();
        assert!(error.contains("copy-wal") && error.contains("move it away"), "{error}");
        assert!(at("copy-wal").exists() && !at("copy").exists() && !at("copy.mark").exists());
        fs::remove_file(at("copy-wal")).unwrap();
        assert_eq!(backup_store(&at("store"), &at("copy")).unwrap().latest, 0);
    }

    #[test]
    fn an_incomplete_copy_of_damaged_bytes_does_not_remain() {
        let name = "store::tool::tests::an_incomplete_copy_of_damaged_bytes_does_not_remain";
        if !alone(name) {
            return;
        }
        let (_dir, path) = store();
        let size = fs::metadata(&path).unwrap().len();
        fs::File::options().write(true).open(&path).unwrap().write_all_at(b"torn", size).unwrap();
        let stocks = Exchange::from_text("1 1000 10\n").unwrap();
        let open = || {
            let (kind, path) = (StoreKind::Log, path.clone());
            let choice = StoreChoice { kind, path, accept_loss: false };
            Locked::take(&choice, &mut Vec::new()).unwrap().open(Durability::Os, &stocks, 7)
        };
        let kept = with_suffix(&path, ".damaged-1");
        fault::set("sync-directory:1:5");
        let refused = open();
        fault::set("");
        assert!(refused.is_err() && !kept.exists());
        assert_eq!(open().unwrap().state.seq(), 30);
        assert_eq!(fs::read(&kept).unwrap(), b"torn");
    }

    #[test]
    fn a_backup_whose_mark_fails_leaves_nothing() {
        if !alone("store::tool::tests::a_backup_whose_mark_fails_leaves_nothing") {
            return;
        }
        let (dir, path) = store();
        let to = dir.path().join("copy");
        let fails = |n: u64| {
            fault::set(&format!("sync-directory:{n}:5"));
            let made = backup_store(&path, &to);
            fault::set("");
            let left = to.exists() || with_suffix(&to, mark::SUFFIX).exists();
            assert_eq!(made.is_ok(), left, "{n}");
            made.is_err()
        };
        assert!((1..).take_while(|n| fails(*n)).count() > 0);
    }

    #[test]
    fn a_backup_removes_what_a_killed_one_left() {
        let (dir, path) = store();
        let to = dir.path().join("copy");
        let left = dir.path().join("copy.new-0123456789abcdef");
        let nested = with_suffix(&left, ".new-0123456789abcdef");
        fs::write(&left, "x").unwrap();
        fs::create_dir_all(nested.join("tables")).unwrap();
        backup_store(&path, &to).unwrap();
        assert!(to.exists() && !left.exists() && !nested.exists());
    }

    /// Creates a store of 30 orders in a directory, as a server leaves it, and another one as a killed
    /// server leaves it.
    fn ended_and_killed(kind: StoreKind, dir: &Path) -> [PathBuf; 2] {
        let [ended, killed] = ["ended", "killed"].map(|name| dir.join(name));
        let stocks = Exchange::from_text("1 1000 10\n").unwrap();
        let choice = StoreChoice { kind, path: ended.clone(), accept_loss: false };
        let locked = Locked::take(&choice, &mut Vec::new()).unwrap();
        let opened = locked.open(Durability::Group, &stocks, 7).unwrap();
        let Opened { mut store, mut state, .. } = opened;
        for _ in 0..30 {
            let record = state.trade(&Order::new(Side::Buy, 1, 1).unwrap(), None).1.unwrap();
            store.commit(&[record]).unwrap();
        }
        copy_store(kind, &ended, &killed).unwrap();
        let [from, to] = [&ended, &killed].map(|path| with_suffix(path, mark::SUFFIX));
        fs::copy(from, to).unwrap();
        drop(store);
        [ended, killed]
    }

    /// Sets the permissions of a directory and everything below it, and adds their names.
    fn restrict(path: &Path, of_dirs: u32, of_files: u32, names: &mut Vec<PathBuf>) {
        let is_dir = path.is_dir();
        let entries = is_dir.then(|| fs::read_dir(path).unwrap()).into_iter().flatten();
        entries.for_each(|entry| restrict(&entry.unwrap().path(), of_dirs, of_files, names));
        let mode = if is_dir { of_dirs } else { of_files };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        names.push(path.to_owned());
    }

    #[test]
    fn a_store_without_write_access_is_read_and_unchanged() {
        if as_nobody("store::tool::tests::a_store_without_write_access_is_read_and_unchanged") {
            return;
        }
        for kind in [StoreKind::Log, StoreKind::Sqlite, StoreKind::Redb, StoreKind::Fjall] {
            let place = tempfile::tempdir().unwrap();
            let dir = place.path().join("stores");
            fs::create_dir(&dir).unwrap();
            let stores = ended_and_killed(kind, &dir);
            let writable = stores.each_ref().map(|path| facts(path));
            assert!(writable.iter().all(|facts| facts.orders == 30 && facts.problem().is_none()));
            for of_files in [0o600, 0o400] {
                let (mut before, mut after) = (Vec::new(), Vec::new());
                restrict(&dir, 0o500, of_files, &mut before);
                for (path, expected) in stores.iter().zip(&writable) {
                    assert_eq!(facts(path), *expected, "{kind} {of_files:o}");
                    let copy = place.path().join(format!("copy-{of_files:o}"));
                    assert_eq!(backup_store(path, &copy).unwrap().latest, 30, "{kind}");
                    remove(&copy).unwrap();
                    fs::remove_file(with_suffix(&copy, mark::SUFFIX)).unwrap();
                    // A server that uses it must be able to pause for a backup.
                    let _held = Guard::take_to_read(path).unwrap();
                    let error = inspect_store(path, &mut |_| {}).unwrap_err().to_string();
                    assert!(error.contains("ioloom store backup"), "{kind}: {error}");
                    if of_files == 0o400 {
                        let error = backup_store(path, &copy).unwrap_err().to_string();
                        assert!(error.contains("Permission denied"), "{kind}: {error}");
                    }
                }
                restrict(&dir, 0o700, 0o600, &mut after);
                before.sort();
                after.sort();
                assert_eq!(before, after, "{kind} {of_files:o}");
            }
        }
    }

    #[test]
    fn the_backup_of_a_database_is_a_file_and_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        let (path, to) = (dir.path().join("store"), dir.path().join("backups/copy"));
        fs::create_dir(dir.path().join("backups")).unwrap();
        let stocks = Exchange::from_text("1 1000 10\n").unwrap();
        let kind = StoreKind::Sqlite;
        let choice = StoreChoice { kind, path: path.clone(), accept_loss: false };
        let locked = Locked::take(&choice, &mut Vec::new()).unwrap();
        drop(locked.open(Durability::Os, &stocks, 7).unwrap());
        backup_store(&path, &to).unwrap();
        let entries = fs::read_dir(dir.path().join("backups")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names, [to.clone(), with_suffix(&to, mark::SUFFIX)]);
    }
}
