//! The directories of a copy: source and target, current and final names, and how they are created.

use crate::links::{Copied, EarlierCopy, Identity};
use crate::meta::{Creation, OWNER_ALL, ParentAttr};
use crate::new_file::{
    PART, hidden_name, is_private, is_remote_name, other_hidden_name, with_locked_name,
};
use crate::report::Tally;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::{make, remove};
use ioloom_walk::{DirRef, NewDir, RetainedDir};
use rustix::io::Errno;
use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of attempts to create a directory and lock it.
const LOCK_TRIES: u32 = 8;

/// How long to wait between attempts to lock a directory that another copy examines.
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// The file in a directory that is renamed to see whether the file system does that, and its mode.
const PROBE: &CStr = c".ioloom-probe";
const PROBE_MODE: u32 = 0o600;

/// A directory of a source path.
pub(crate) struct MadeDir {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    /// Identity of the target.
    pub(crate) own: ((u32, u32), u64),
    pub(crate) attr: Attr,
    pub(crate) made: Creation,
}

/// The directories created for the paths of all sources.
#[derive(Default)]
pub(crate) struct MadeDirs {
    pub(crate) dirs: Vec<MadeDir>,
    pub(crate) seen: HashSet<PathBuf>,
}

/// The target of one source.
pub(crate) struct RootTo {
    /// Index of the directory that contains it.
    pub(crate) parent: usize,
    pub(crate) name: CString,
    /// The full path of the target.
    pub(crate) path: PathBuf,
    /// The type of the source; that of the link itself where links are not followed.
    pub(crate) kind: Kind,
}

/// A directory that sources are copied into.
pub(crate) struct Parent {
    /// Its path, for the number of a resumable copy.
    pub(crate) path: PathBuf,
    pub(crate) dir: Dir,
    /// Whether this user may not list it: it cannot be synced. All targets in it existed before.
    pub(crate) unlisted: bool,
    pub(crate) parent_attr: ParentAttr,
    /// Whether remains of interrupted copies were looked for here.
    pub(crate) swept: AtomicBool,
}

/// The sources of a copy and their targets.
#[derive(Default)]
pub(crate) struct Roots {
    pub(crate) from: Vec<PathBuf>,
    pub(crate) to: Vec<RootTo>,
    pub(crate) parents: Vec<Parent>,
}

/// A source directory and its target, both open.
pub(crate) struct DirPair {
    pub(crate) from: Dir,
    pub(crate) to: Dir,
}

/// The place where the pair of a directory is kept while it is open.
pub(crate) type PairSlot = Mutex<Option<Arc<DirPair>>>;

/// The state of a directory that is being copied.
pub(crate) struct CopyDir {
    pub(crate) id: u64,
    pub(crate) source: Attr,
    /// The hidden name under which it was created, if it is the directory that is renamed at the
    /// end.
    pub(crate) hidden_name: Option<CString>,
    pub(crate) published: AtomicBool,
    /// Whether its entries are moved into an existing directory, which has another identity.
    pub(crate) merged: AtomicBool,
    /// Identity of the target.
    pub(crate) own: ((u32, u32), u64),
    /// Device of the source that the walk started from.
    pub(crate) root_device: (u32, u32),
    /// Whether the target could not be created because the device is full. The entries below are
    /// reported, not copied.
    pub(crate) absent: bool,
    /// Whether the device became full below the hidden directory that it belongs to, which is then
    /// removed.
    pub(crate) doomed: Arc<AtomicBool>,
    /// Whether remains of interrupted copies were looked for in the target.
    pub(crate) swept: AtomicBool,
    /// Whether it or an ancestor still has a hidden name.
    pub(crate) hidden: bool,
    /// The files below it while it is hidden.
    pub(crate) tally: Tally,
    /// Whether to skip its entries because it is on another file system.
    pub(crate) empty: bool,
    pub(crate) parent_attr: ParentAttr,
    pub(crate) made: Creation,
    pub(crate) pair: Arc<PairSlot>,
}

impl CopyDir {
    pub(crate) fn is_doomed(&self) -> bool {
        self.absent || self.doomed.load(Ordering::Acquire)
    }

    /// Adds a file in a hidden directory.
    pub(crate) fn add_file(&self, copied: &Copied) {
        if self.hidden {
            self.tally.add(copied);
        }
    }
}

/// The name of the first copy of a file with several hard links.
#[derive(Clone)]
pub(crate) enum CopiedName {
    /// In a directory of the walk.
    In(RetainedDir<CopyDir>, Box<[u8]>),
    /// A file named as a source.
    Root(usize),
}

impl CopiedName {
    pub(crate) fn path(&self, roots: &Roots) -> PathBuf {
        match self {
            Self::In(dir, name) => {
                let dir = dir.get();
                target_path(roots, Some(dir), dir.root(), name)
            }
            Self::Root(root) => roots.to[*root].path.clone(),
        }
    }
}

/// Returns the copies of files with several names, for the sources that are copied after these.
pub(crate) fn earlier_copies(
    roots: &Roots,
    copied: Vec<(Identity, CopiedName)>,
) -> impl Iterator<Item = (Identity, Arc<EarlierCopy>)> {
    copied.into_iter().filter_map(|(source, copied)| {
        let path = copied.path(roots);
        let attr = attr::of_path(&path, false).ok()?;
        Some((source, Arc::new(EarlierCopy { path, attr })))
    })
}

/// Maximum number of directory pairs to keep open.
const PAIRS_MAX: u64 = 128;
/// Part of the descriptor limit that the pairs may use: two descriptors each, so a quarter.
const PAIRS_SHARE: u64 = 8;

/// The next directory number, the number of directories in progress, and the open pairs.
pub(crate) struct DirCounters {
    pub(crate) next: AtomicU64,
    pub(crate) pairs: AtomicUsize,
    /// The pairs that were opened last; older ones are closed.
    pub(crate) recent: Mutex<VecDeque<Arc<PairSlot>>>,
    /// Maximum number of pairs to keep open.
    pub(crate) pairs_max: usize,
}

impl DirCounters {
    /// `files_max`: the descriptor limit of this process; `None` if unlimited.
    pub(crate) fn new(files_max: Option<u64>) -> Self {
        let pairs = files_max.map_or(PAIRS_MAX, |max| (max / PAIRS_SHARE).clamp(1, PAIRS_MAX));
        Self {
            next: AtomicU64::default(),
            pairs: AtomicUsize::default(),
            recent: Mutex::default(),
            pairs_max: usize::try_from(pairs).unwrap_or(1),
        }
    }
}

pub(crate) fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidFilename.into())
}

pub(crate) fn target_path(
    roots: &Roots,
    dir: Option<DirRef<'_, CopyDir>>,
    root: usize,
    name: &[u8],
) -> PathBuf {
    let Some(dir) = dir else { return roots.to[root].path.clone() };
    let mut relative = Vec::new();
    dir.write_relative(&mut relative);
    relative.extend_from_slice(name);
    let relative = relative.strip_suffix(b"/").unwrap_or(&relative);
    if relative.is_empty() {
        return roots.to[root].path.clone();
    }
    roots.to[root].path.join(OsStr::from_bytes(relative))
}

/// Returns the source path of an entry as GNU cp shows it: below a source that ends with several slashes, with one.
pub(crate) fn shown_source(roots: &Roots, root: usize, path: PathBuf) -> PathBuf {
    let given = roots.from[root].as_os_str().as_bytes();
    let below = path.as_os_str().as_bytes().strip_prefix(given).unwrap_or_default();
    let end = given.iter().rposition(|byte| *byte != b'/');
    match end {
        Some(end) if given.ends_with(b"//") && !below.is_empty() => {
            let mut shown = given[..end + 2].to_vec();
            shown.extend_from_slice(below);
            PathBuf::from(OsString::from_vec(shown))
        }
        _ => path,
    }
}

pub(crate) fn new_target_path(roots: &Roots, new: &NewDir<'_, CopyDir>) -> PathBuf {
    let name = if new.parent.is_some() { new.name } else { b"" };
    target_path(roots, new.parent, new.root, name)
}

/// Opens a directory of the target to copy into it; this user need not be allowed to list it.
fn open_as_place(above: &Dir, name: &[u8]) -> io::Result<Dir> {
    above.open_child_path_only(&c_name(name)?, false)
}

/// Opens the target of a directory under its current name.
pub(crate) fn open_target(above: &Dir, name: &[u8], data: &CopyDir) -> io::Result<Dir> {
    match &data.hidden_name {
        Some(hidden) if !data.published.load(Ordering::Acquire) => {
            match above.open_at(hidden.to_bytes()) {
                // It has been renamed since.
                Err(e) if e.kind() == io::ErrorKind::NotFound => open_as_place(above, name),
                result => result,
            }
        }
        _ => open_as_place(above, name),
    }
}

/// Fails with `ESTALE` if a directory is not the same as before, except where numbers of files can change.
pub(crate) fn check_same(dir: &Dir, is_same: impl FnOnce(&Attr) -> bool) -> io::Result<()> {
    if is_same(&attr::of_file(dir)?) {
        return Ok(());
    }
    let system = attr::file_system(dir)?;
    match system.in_memory || (system.numbers_stay && !system.without_blocks) {
        true => Err(Errno::STALE.into()),
        false => Ok(()),
    }
}

/// An open target directory.
pub(crate) struct TargetDir {
    pub(crate) dir: Dir,
    /// Its attributes when it was opened, with the mode it was created with.
    pub(crate) own: Attr,
    pub(crate) hidden_name: Option<CString>,
    pub(crate) is_hidden: bool,
    pub(crate) is_new: bool,
    /// Whether an earlier copy left it.
    pub(crate) is_adopted: bool,
}

/// How new directories are created where no directory above is hidden.
#[derive(Clone, Copy)]
pub(crate) enum NewDirs {
    /// Under a hidden name.
    Hidden,
    /// Under the hidden name with this number, which an earlier copy may have left, and given to this owner.
    Resumed(u64, Option<u32>),
    /// Under the final name.
    Visible,
}

/// Creates a directory; with `resumed`, accepts one left by an earlier copy. Returns whether there was one.
fn make_or_reuse(above: &Dir, name: &CStr, mode: u32, resumed: bool) -> io::Result<bool> {
    match make::directory(above, name, mode) {
        Err(e) if resumed && e.kind() == io::ErrorKind::AlreadyExists => Ok(true),
        made => made.map(|()| false),
    }
}

/// Opens a newly created directory, with all permissions for its owner, which the umask may have
/// removed. Removes it on failure unless a later copy can resume with it.
fn open_new(above: &Dir, name: &CStr, stays: bool) -> io::Result<(Dir, Attr)> {
    let open = || {
        let dir = above.open_at(name.to_bytes())?;
        attr::of_file(&dir).map(|own| (dir, own))
    };
    let opened = match open() {
        Ok((dir, own)) if own.mode & OWNER_ALL != OWNER_ALL => {
            attr::set_mode(&dir, own.mode | OWNER_ALL).map(|()| (dir, own))
        }
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let own = attr::of_name(above, name, false);
            own.and_then(|own| {
                attr::set_mode_at(above, name, own.mode | OWNER_ALL)?;
                Ok((above.open_at(name.to_bytes())?, own))
            })
        }
        opened => opened,
    };
    if opened.is_err() && !stays {
        // Ignore a failure: the directory is empty, and its name identifies it.
        let _ = make::remove_directory(above, name);
    }
    opened
}

impl TargetDir {
    /// Creates or opens the directory `name`. Fails with `ENOTDIR` if another type of file has that
    /// name.
    pub(crate) fn make(
        above: &Dir,
        name: &CStr,
        above_hidden: bool,
        mode: u32,
        (new_dirs, resumes): (NewDirs, bool),
        sweep: impl FnOnce(),
    ) -> io::Result<Self> {
        if above_hidden {
            let is_adopted = make_or_reuse(above, name, mode, resumes)?;
            let (dir, own) = open_new(above, name, resumes)?;
            let (hidden_name, is_hidden, is_new) = (None, true, true);
            return Ok(Self { dir, own, hidden_name, is_hidden, is_new, is_adopted });
        }
        if let Some(existing) = Self::existing(above, name)? {
            return Ok(existing);
        }
        sweep();
        let ((hidden, dir, own), is_adopted) = match new_dirs {
            NewDirs::Hidden => match make_hidden(above, name, mode)? {
                Some(made) => (made, false),
                None => return Self::make_visible(above, name, mode),
            },
            NewDirs::Resumed(number, given) => {
                make_resumed(above, hidden_name(name, number), mode, given)?
            }
            NewDirs::Visible => return Self::make_visible(above, name, mode),
        };
        let hidden_name = Some(hidden);
        Ok(Self { dir, own, hidden_name, is_hidden: true, is_new: true, is_adopted })
    }

    /// Opens the directory `name`; `None` if nothing has that name.
    fn existing(above: &Dir, name: &CStr) -> io::Result<Option<Self>> {
        let existing = open_as_place(above, name.to_bytes());
        match existing.and_then(|dir| attr::of_file(&dir).map(|own| (dir, own))) {
            Ok((dir, own)) => {
                let (hidden_name, is_hidden, is_new, is_adopted) = (None, false, false, false);
                Ok(Some(Self { dir, own, hidden_name, is_hidden, is_new, is_adopted }))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(e),
            Err(e) => Err(match attr::of_name(above, name, false) {
                Ok(there) if there.kind != Kind::Directory => Errno::NOTDIR.into(),
                _ => e,
            }),
        }
    }

    fn make_visible(above: &Dir, name: &CStr, mode: u32) -> io::Result<Self> {
        if let Err(error) = make::directory(above, name, mode) {
            // Another copy has created it since.
            return match error.kind() {
                io::ErrorKind::AlreadyExists => Self::existing(above, name)?.ok_or(error),
                _ => Err(error),
            };
        }
        let (dir, own) = open_new(above, name, true)?;
        let (hidden_name, is_hidden, is_new, is_adopted) = (None, false, true, false);
        Ok(Self { dir, own, hidden_name, is_hidden, is_new, is_adopted })
    }
}

/// Gives the new hidden directory `dir` another hidden name, because it must be known before it is filled whether the
/// file system renames directories. Returns it with that name; `None`, and removes the directory, if it does not. Some
/// remote ones rename only empty directories, so it has a file there meanwhile; one in which that file cannot be
/// created is removed, too, because only the file shows where a descriptor leads.
fn renamed(
    above: &Dir,
    name: &CStr,
    hidden: &CStr,
    (dir, own): (Dir, Attr),
) -> io::Result<Option<(CString, Dir, Attr)>> {
    use Errno as E;
    let is_remote = is_remote_name(hidden);
    let filled = if is_remote { make::file(&dir, PROBE, PROBE_MODE).map(drop) } else { Ok(()) };
    let other = other_hidden_name(name, hidden);
    let renamed = filled.and_then(|()| make::rename(above, hidden, above, &other, true));
    if is_remote {
        // Frees the lock.
        drop(dir);
        if let Ok((dir, now)) = renamed.and_then(|()| opened_empty(above, &other)) {
            return Ok(Some((other, dir, Attr { mode: own.mode, ..now })));
        }
        for name in [hidden, &other] {
            // Ignore a failure: the name identifies it.
            let _ = remove::tree(above, name, &mut |_, _| {});
        }
        return Ok(None);
    }
    let Err(error) = renamed else { return Ok(Some((other, dir, own))) };
    // Ignore a failure: the directory is empty, and its name identifies it.
    let _ = make::remove_directory(above, hidden);
    let is_unsupported = matches!(
        Errno::from_io_error(&error),
        Some(E::NOSYS | E::OPNOTSUPP | E::PERM | E::ACCESS | E::XDEV | E::INVAL)
    );
    if is_unsupported { Ok(None) } else { Err(error) }
}

/// Opens and locks a remote directory under its new name, and removes the file in it. With some FUSE file systems, a
/// descriptor that was opened before leads to the old path, in which everything would be lost.
fn opened_empty(above: &Dir, name: &CStr) -> io::Result<(Dir, Attr)> {
    let dir = above.open_at(name.to_bytes())?;
    attr::of_name(&dir, PROBE, false)?;
    make::remove(&dir, PROBE)?;
    match attr::of_name(&dir, PROBE, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        _ => return Err(Errno::BUSY.into()),
    }
    // Ignore a failure: other copies remove no remote directory.
    let _ = make::try_lock(&dir);
    let own = attr::of_file(&dir)?;
    Ok((dir, own))
}

/// Creates the hidden directory of a copy that can be resumed, or opens the one that an earlier copy left. The
/// journal excludes other copies of its kind, but another copy can be removing the directory. `given`: the owner
/// that the earlier copy may have given it, which counts only where other users cannot make or rename directories.
fn make_resumed(
    above: &Dir,
    hidden: CString,
    mode: u32,
    given: Option<u32>,
) -> io::Result<((CString, Dir, Attr), bool)> {
    let mut tries = 0;
    let place = attr::of_file(above)?;
    let given = given.filter(|_| is_private(&place));
    let me = attr::own_ids().0;
    let is_foreign = |found: &Attr| found.user != me && Some(found.user) != given;
    loop {
        let is_adopted = make_or_reuse(above, &hidden, mode, true)?;
        // Others can predict the name, and make a directory that stays theirs.
        if is_foreign(&attr::of_name(above, &hidden, false)?) {
            return Err(Errno::PERM.into());
        }
        let (dir, own) = open_new(above, &hidden, true)?;
        if is_foreign(&own) {
            return Err(Errno::PERM.into());
        }
        if !lock_soon(&dir) {
            return Err(Errno::BUSY.into());
        }
        let is_there = attr::of_name(above, &hidden, false)
            .is_ok_and(|there| there.identity() == own.identity());
        match is_there {
            true => return Ok(((hidden, dir, own), is_adopted)),
            // What is copied into a directory that was removed is lost.
            false if tries >= LOCK_TRIES => return Err(Errno::BUSY.into()),
            false => tries += 1,
        }
    }
}

/// Locks a directory, which another copy locks for a moment to see whether it was abandoned. Returns false if it stays
/// locked.
fn lock_soon(dir: &Dir) -> bool {
    (0..LOCK_TRIES).any(|tries| {
        if tries > 0 {
            std::thread::sleep(LOCK_WAIT);
        }
        // Without support for locks, no other copy can lock and remove it either.
        make::try_lock(dir).unwrap_or(true)
    })
}

/// Creates a directory under a hidden name, and locks it until it is complete: other copies remove
/// hidden directories that are not locked. Returns `None` if the file system cannot rename it.
fn make_hidden(above: &Dir, name: &CStr, mode: u32) -> io::Result<Option<(CString, Dir, Attr)>> {
    let mut tries = 0;
    loop {
        let made = |hidden: &CStr| make::directory(above, hidden, mode);
        let (hidden, ()) = with_locked_name(above, name, PART, made)?;
        let opened = open_new(above, &hidden, true);
        let (dir, created) = match opened {
            // Another copy found and removed it before it was locked.
            Err(e) if e.kind() == io::ErrorKind::NotFound && tries < LOCK_TRIES => {
                tries += 1;
                continue;
            }
            Err(e) => {
                // Ignore a failure: the directory is empty, and its name identifies it.
                let _ = make::remove_directory(above, &hidden);
                return Err(e);
            }
            Ok(opened) => opened,
        };
        // Without support for locks, no other copy can lock and remove it either.
        let locked = make::try_lock(&dir).unwrap_or(true);
        let own = attr::of_file(&dir).inspect_err(|_| {
            let _ = make::remove_directory(above, &hidden);
        })?;
        if (locked && own.links > 0) || tries >= LOCK_TRIES {
            let own = Attr { mode: created.mode, ..own };
            return renamed(above, name, &hidden, (dir, own));
        }
        tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIDDEN: &CStr = c".d.ioloom-0123456789abcdef.remote.part";

    fn made(above: &Dir, name: &CStr) -> (Dir, Attr) {
        make::directory(above, name, 0o700).unwrap();
        let dir = above.open_at(name.to_bytes()).unwrap();
        let own = attr::of_file(&dir).unwrap();
        (dir, own)
    }

    /// Goal: two copies merge where directories have their final names at once. Method: the other one creates it between
    /// the search and the creation.
    #[test]
    fn a_directory_that_another_copy_creates_is_merged_into() {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let above = Dir::open(place.path()).unwrap();
        let make = |name: &CStr, other: &dyn Fn()| {
            TargetDir::make(&above, name, false, 0o700, (NewDirs::Visible, false), other)
        };
        let target = make(c"d", &|| drop(made(&above, c"d"))).unwrap();
        assert!(!target.is_new && !target.is_hidden);
        assert!(make(c"new", &|| {}).unwrap().is_new);
        let file = || drop(make::file(&above, c"f", 0o600).unwrap());
        let refused = make(c"f", &file).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn a_remote_directory_is_renamed_with_a_file_in_it_and_is_empty_afterwards() {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let above = Dir::open(place.path()).unwrap();
        let (dir, before) = made(&above, HIDDEN);
        std::thread::sleep(LOCK_WAIT);
        let (other, dir, own) = renamed(&above, c"d", HIDDEN, (dir, before)).unwrap().unwrap();
        assert!(own.modified > before.modified, "nothing was in it");
        assert!(other.as_c_str() != HIDDEN && is_remote_name(&other), "{other:?}");
        let left = place.path().join(OsStr::from_bytes(other.to_bytes()));
        assert_eq!(std::fs::read_dir(&left).unwrap().count(), 0);
        assert!(!make::try_lock(std::fs::File::open(left).unwrap()).unwrap(), "it is not locked");
        assert_eq!(attr::of_file(&dir).unwrap().identity(), own.identity());
    }

    /// Goal: files never go to the old path of a directory that was renamed. Method: a descriptor of another directory,
    /// as it is after a rename with some FUSE file systems.
    #[test]
    fn a_remote_directory_whose_descriptor_leads_elsewhere_is_removed() {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let above = Dir::open(place.path()).unwrap();
        made(&above, HIDDEN);
        let stale = made(&above, c"stale");
        assert!(renamed(&above, c"d", HIDDEN, stale).unwrap().is_none());
        let names =
            std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["stale"]);
    }

    #[test]
    fn a_remote_directory_in_which_no_file_can_be_created_is_removed() {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let above = Dir::open(place.path()).unwrap();
        let full = made(&above, HIDDEN);
        make::directory(&full.0, PROBE, 0o700).unwrap();
        assert!(renamed(&above, c"d", HIDDEN, full).unwrap().is_none());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
