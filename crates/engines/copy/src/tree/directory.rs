//! The beginning and end of a directory.

use super::{Worker, merge};
use crate::dirs::{CopyDir, DirPair, NewDirs, TargetDir, c_name, new_target_path, target_path};
use crate::error::CopyError;
use crate::meta::{Creation, DirModes, FileRef, ParentAttr};
use crate::new_file::is_remote_name;
use crate::options::{Durable, Existing, Follow, Make};
use crate::report::{Counts, Tally};
use crate::resume;
use crate::sweep;
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::Dir;
use ioloom_sys::{make, remove};
use ioloom_walk::{DirRef, NewDir};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The place of a directory that is about to be created.
struct Place {
    /// The pair of the directory above; `None` for a source.
    above: Option<Arc<DirPair>>,
    name: CString,
    parent_attr: ParentAttr,
    hidden: bool,
    from: Dir,
}

impl Worker<'_> {
    /// Returns true if a directory is on another file system than its source, where a copy that stays on
    /// one creates it and leaves it empty.
    pub(super) fn is_elsewhere(
        &self,
        new: &NewDir<'_, CopyDir>,
        above: DirRef<'_, CopyDir>,
    ) -> bool {
        let device = |path: &Path| attr::of_path(path, false).map(|found| found.device);
        self.context.options.one_file_system
            && device(&new.path()).is_ok_and(|device| device != above.data().root_device)
    }

    /// Creates or opens the target of a directory. Returns `None` if nothing remains to be done.
    pub(super) fn begin_dir(
        &mut self,
        new: &NewDir<'_, CopyDir>,
    ) -> Result<Option<CopyDir>, CopyError> {
        let roots = self.roots;
        let paths = || (new.path(), new_target_path(roots, new));
        if let Some(above) = new.parent.filter(|above| above.data().is_doomed()) {
            return Ok(Some(self.absent_dir(new, above, paths().1)));
        }
        let Place { above, name, parent_attr, hidden, from } = self.place_of(new)?;
        let source =
            attr::of_file(&from).map_err(|e| CopyError::io(Operation::Stat, paths().0, e))?;
        let root_device = new.parent.map_or(source.device, |above| above.data().root_device);
        let excluded = root_device != source.device && self.context.options.one_file_system;
        let is_written = self.context.is_written(source.identity());
        if !excluded && (is_written || self.shows_target(new, &from, &source)) {
            // As in GNU cp, not the paths found, which can have the hidden name of this copy.
            return Err(into_itself(&roots.from[new.root], &roots.to[new.root].path));
        }
        let parent = match &above {
            Some(pair) => &pair.to,
            None => &roots.parents[roots.to[new.root].parent].dir,
        };
        let mode = self.initial_mode(&source, parent_attr);
        let new_dirs =
            (self.new_dirs(new, &source, parent_attr), self.context.resume.get().is_some());
        let sweep = || self.sweep(new, parent, &name, true);
        let target = match TargetDir::make(parent, &name, hidden, mode, new_dirs, sweep) {
            Err(e) => return self.not_begun(new, e, &paths()).map(Some),
            Ok(target) if self.is_done(&target, &source, paths)? => return Ok(None),
            Ok(target) => target,
        };
        let own =
            self.begun(&target, (&from, &source, excluded), (mode, parent_attr), &paths().1)?;
        if !target.is_new {
            self.sweep_existing(new, parent, &name, &target.dir);
        }
        if !target.is_hidden || target.hidden_name.is_some() {
            self.context.writes_into(own.identity(), target.hidden_name.as_deref());
        }
        let has_default_acl = match target.is_new {
            true => parent_attr.has_default_acl,
            false => self.context.rules.has_default_acl(&target.dir),
        };
        let modes = DirModes { found: own.mode, withheld: self.context.rules.withheld() };
        let owner = Some((own.user, own.group));
        let made = Creation { owner, ..Creation::dir(mode, parent_attr, !target.is_new, modes) };
        let is_top = target.hidden_name.is_some();
        let above = new.parent.map(|above| above.data()).filter(|_| !is_top);
        let dir = CopyDir {
            id: self.dirs.next.fetch_add(1, Ordering::Relaxed),
            source,
            hidden_name: target.hidden_name,
            published: AtomicBool::new(false),
            merged: AtomicBool::new(false),
            own: own.identity(),
            root_device,
            absent: false,
            doomed: above.map(|above| above.doomed.clone()).unwrap_or_default(),
            swept: AtomicBool::new(!target.is_new),
            hidden: target.is_hidden,
            tally: Tally::default(),
            empty: excluded,
            parent_attr: ParentAttr {
                device: own.device,
                group: own.group,
                has_default_acl,
                is_remote: is_remote(&target.dir, &own, parent_attr),
                append_only: own.append_only,
            },
            made,
            pair: Arc::default(),
        };
        self.keep_open(&dir, DirPair { from, to: target.dir });
        Ok(Some(dir))
    }

    /// Returns true if the target is the source itself and hard links are made: they exist. To copy a directory onto
    /// itself is an error.
    fn is_done(
        &self,
        target: &TargetDir,
        source: &Attr,
        paths: impl FnOnce() -> (PathBuf, PathBuf),
    ) -> Result<bool, CopyError> {
        let options = self.context.options;
        let is_same = !target.is_new && target.own.identity() == source.identity();
        // What is mounted in only one of the two places can still be copied to the other.
        if !is_same || options.existing == Existing::Keep {
            return Ok(false);
        }
        if options.make == Make::HardLink {
            return Ok(true);
        }
        let (from, to) = paths();
        Err(same_file(&from, &to))
    }

    /// Prepares what an earlier copy left, if it did; with `excluded`, nothing below the directory is copied. Returns
    /// the attributes that count as those found.
    fn begun(
        &self,
        target: &TargetDir,
        (from, source, excluded): (&Dir, &Attr, bool),
        modes: (u32, ParentAttr),
        path: &Path,
    ) -> Result<Attr, CopyError> {
        if let (Some(journal), Some(_)) = (self.context.resume.get(), &target.hidden_name) {
            resume::check_source(journal, from, source, target.is_adopted, path)?;
        }
        if !target.is_adopted {
            return Ok(target.own);
        }
        let failed = |e| CopyError::io(Operation::Resume, path.to_owned(), e);
        let from = (!excluded).then_some(from);
        self.adopt(target, (from, source), modes, path).map_err(failed)
    }

    /// Prepares a directory that an earlier copy left: gives it the mode of a new one, since that of the source
    /// can have changed, and removes what the source has no more, or everything without `from`.
    fn adopt(
        &self,
        target: &TargetDir,
        (from, source): (Option<&Dir>, &Attr),
        (mode, parent_attr): (u32, ParentAttr),
        path: &Path,
    ) -> io::Result<Attr> {
        let mut own = target.own;
        let me = attr::own_ids();
        if own.user != me.0 {
            // The earlier copy had finished it, and given it to the owner of its source.
            if self.given(source) != Some(own.user) {
                return Err(Errno::PERM.into());
            }
            attr::set_owner(&target.dir, me.0, me.1)?;
            (own.user, own.group) = me;
        }
        let umask = if parent_attr.has_default_acl { 0 } else { self.context.rules.umask() };
        let mode = own.mode & !0o777 | mode & 0o777 & !umask;
        if own.mode != mode | 0o700 {
            match attr::set_mode(&target.dir, mode | 0o700) {
                // Some file systems refuse it; others may then do no more than they should.
                Err(e) if own.mode & 0o077 & !mode != 0 => return Err(e),
                _ => {}
            }
        }
        if let Some(journal) = self.context.resume.get() {
            let follow = self.context.options.follow == Follow::Always;
            let has_pieces = |source: &Attr| resume::has_pieces(self.context, source);
            let removed = resume::prune(journal.number, follow, &has_pieces, from, &target.dir)?;
            if removed > 0 {
                let path = quoted(path);
                let which = match from {
                    Some(_) => "that the source has no more",
                    None => "of another file system",
                };
                let entries = if removed == 1 { "entry" } else { "entries" };
                let text = format!("{path}: removed {removed} {entries} {which}");
                self.context.watcher.note(&text);
            }
        }
        Ok(Attr { mode, ..own })
    }

    /// Returns the owner that this copy gives to a finished directory, if it may.
    fn given(&self, source: &Attr) -> Option<u32> {
        let gives = self.context.rules.may_give_away() && self.context.options.preserve.owner;
        gives.then_some(source.user)
    }

    /// Returns the mode with which to create a directory.
    fn initial_mode(&self, source: &Attr, parent_attr: ParentAttr) -> u32 {
        let rules = &self.context.rules;
        // The umask does not apply where an ACL is inherited.
        let withheld = if parent_attr.has_default_acl { rules.withheld() } else { 0 };
        let mode = rules.initial_mode(source) & !withheld;
        (if self.context.options.contents { rules.visible_mode(mode) } else { mode }) | 0o700
    }

    /// Handles a target that could not be created. Without space, what is below is reported.
    fn not_begun(
        &self,
        new: &NewDir<'_, CopyDir>,
        error: io::Error,
        paths: &(PathBuf, PathBuf),
    ) -> Result<CopyDir, CopyError> {
        match new.parent {
            Some(above) if crate::error::out_of_space(&error) => {
                self.context.failed(CopyError::io(Operation::CreateDir, paths.1.clone(), error));
                if above.data().hidden {
                    above.data().doomed.store(true, Ordering::Release);
                }
                Ok(self.absent(new, above))
            }
            _ => Err(not_created(error, paths)),
        }
    }

    fn place_of(&mut self, new: &NewDir<'_, CopyDir>) -> Result<Place, CopyError> {
        let failed = |e| CopyError::io(Operation::OpenDir, new.path(), e);
        let Some(parent) = new.parent else {
            let root = &self.roots.to[new.root];
            return Ok(Place {
                above: None,
                name: root.name.clone(),
                parent_attr: self.roots.parents[root.parent].parent_attr,
                hidden: false,
                from: Dir::open_path_only(&self.roots.from[new.root]).map_err(failed)?,
            });
        };
        let pair = self.pair_of(parent).map_err(failed)?;
        let name = c_name(new.name).map_err(failed)?;
        // Without search permission on the directory above, not even its type is known.
        let unopened = |e: io::Error| match e.kind() {
            io::ErrorKind::PermissionDenied => CopyError::io(Operation::Stat, new.path(), e),
            _ => failed(e),
        };
        let from = pair.from.open_child_path_only(&name, new.linked).map_err(unopened)?;
        let (parent_attr, hidden) = (parent.data().parent_attr, parent.data().hidden);
        Ok(Place { above: Some(pair), name, parent_attr, hidden, from })
    }

    /// Returns how a new directory is created. A copy that reads pipes can wait for other programs,
    /// which may look for the directory.
    fn new_dirs(&self, new: &NewDir<'_, CopyDir>, source: &Attr, above: ParentAttr) -> NewDirs {
        let is_root = new.parent.is_none();
        match self.context.resume.get() {
            _ if self.context.options.contents || above.append_only => NewDirs::Visible,
            Some(resume) if is_root => NewDirs::Resumed(resume.number, self.given(source)),
            // A later copy could not find a hidden name here, so fill it under its final name.
            Some(_) => NewDirs::Visible,
            None => NewDirs::Hidden,
        }
    }

    /// Looks for remains of interrupted copies where a directory is about to be created.
    fn sweep(&self, new: &NewDir<'_, CopyDir>, dir: &Dir, name: &CStr, adopts: bool) {
        let roots = self.roots;
        let Some(above) = new.parent else {
            let number = roots.to[new.root].parent;
            if roots.parents[number].swept.swap(true, Ordering::Relaxed) {
                return;
            }
            let siblings = roots.to.iter().filter(|to| to.parent == number);
            let names: Vec<&CStr> = siblings.map(|to| to.name.as_c_str()).collect();
            let path = roots.to[new.root].path.parent().unwrap_or(Path::new(""));
            return sweep::sweep(self.context, dir, path, &names, adopts);
        };
        if !above.data().swept.swap(true, Ordering::Relaxed) {
            let path = target_path(roots, Some(above), above.root(), b"");
            sweep::sweep(self.context, dir, &path, &[name], adopts);
        }
    }

    /// Looks for remains of interrupted copies inside an existing directory and, for a source, next
    /// to it.
    fn sweep_existing(&self, new: &NewDir<'_, CopyDir>, above: &Dir, name: &CStr, dir: &Dir) {
        if new.parent.is_none() {
            self.sweep(new, above, name, false);
        }
        sweep::sweep(self.context, dir, &new_target_path(self.roots, new), &[], true);
    }

    /// A directory that could not be created for lack of space. Everything below it is reported.
    fn absent_dir(
        &self,
        new: &NewDir<'_, CopyDir>,
        above: DirRef<'_, CopyDir>,
        to: PathBuf,
    ) -> CopyDir {
        let error = self.context.lack();
        self.context.failed(CopyError::io(Operation::CreateDir, to, error));
        self.absent(new, above)
    }

    fn absent(&self, new: &NewDir<'_, CopyDir>, above: DirRef<'_, CopyDir>) -> CopyDir {
        let data = above.data();
        CopyDir {
            id: self.dirs.next.fetch_add(1, Ordering::Relaxed),
            source: data.source,
            hidden_name: None,
            published: AtomicBool::new(false),
            merged: AtomicBool::new(false),
            own: data.own,
            root_device: data.root_device,
            absent: true,
            doomed: data.doomed.clone(),
            swept: AtomicBool::new(true),
            hidden: data.hidden,
            tally: Tally::default(),
            empty: self.is_elsewhere(new, above),
            parent_attr: data.parent_attr,
            made: data.made,
            pair: Arc::default(),
        }
    }

    /// Finishes a directory after everything below it: preserves its attributes, syncs it if
    /// requested, and renames it. If attributes cannot be preserved, reports the error and renames
    /// the directory anyway; if the sync fails, or the device became full, removes it unless the copy can be
    /// resumed. A remote file system may rename only directories with few entries: there, it stays.
    pub(super) fn end_dir(&mut self, dir: DirRef<'_, CopyDir>) -> Result<(), CopyError> {
        let data = dir.data();
        if data.absent {
            return Ok(());
        }
        let doomed = data.hidden && data.is_doomed();
        let gives_up = doomed || (self.context.cancelled() && data.hidden);
        let Some(hidden) = &data.hidden_name else {
            if gives_up {
                return Ok(());
            }
            self.finish_attributes(dir);
            return self.sync(dir);
        };
        let published = match gives_up {
            true => Ok(false),
            false => self.complete(dir, hidden).map(|kept| {
                self.counts.skipped += kept;
                true
            }),
        };
        if !published.as_ref().is_ok_and(|published| *published) {
            let not_renamed = published.as_ref().is_err_and(|e| e.operation == Operation::Publish);
            match self.context.resume.get() {
                // Later copies do not remove it.
                None if not_renamed && is_remote_name(hidden) => self.note_whole(dir, hidden),
                None => self.discard(dir, hidden, doomed || published.is_err()),
                Some(_) if doomed => self.note_kept(dir, hidden),
                Some(_) => {}
            }
        }
        published.map(drop)
    }

    /// Syncs and renames a hidden directory. It gets its attributes after the sync, which can take long: a copy
    /// that is killed should leave a directory of this user. Returns the number of existing entries that
    /// were kept.
    fn complete(&mut self, dir: DirRef<'_, CopyDir>, hidden: &CStr) -> Result<u64, CopyError> {
        self.sync(dir)?;
        self.finish_attributes(dir);
        if self.context.options.durable != Durable::None {
            // What it contains is synced.
            let synced = self.open_or_take(dir).and_then(|pair| pair.to.sync());
            if let Err(e) = synced {
                self.context.failed(self.failed_at(dir, Operation::Sync, e));
            }
        }
        self.publish(dir, hidden)
    }

    /// Copies the preserved attributes of a directory, and reports errors.
    fn finish_attributes(&mut self, dir: DirRef<'_, CopyDir>) {
        // Others still add entries to it.
        let is_unfinished = self.context.alone && dir.parent().is_none();
        if !is_unfinished && let Err(error) = self.preserve_attributes(dir) {
            self.context.failed(error);
        }
    }

    /// Reports the hidden directory that is complete but could not be renamed.
    fn note_whole(&self, dir: DirRef<'_, CopyDir>, hidden: &CStr) {
        let path = target_path(self.roots, Some(dir), dir.root(), b"");
        let kept = path.with_file_name(OsStr::from_bytes(hidden.to_bytes()));
        let (kept, path) = (quoted(&kept), quoted(&path));
        // Some entries can be in the directory of another copy.
        let is_rest = dir.data().merged.load(Ordering::Acquire);
        let what = if is_rest { "the rest of the copy" } else { "the copy" };
        let text = format!("kept {kept}, {what} of {path}, which could not be renamed");
        self.context.watcher.note(&text);
    }

    /// Reports the hidden directory that a resumed copy can complete when there is space.
    fn note_kept(&self, dir: DirRef<'_, CopyDir>, hidden: &CStr) {
        let path = target_path(self.roots, Some(dir), dir.root(), b"");
        let kept = path.with_file_name(OsStr::from_bytes(hidden.to_bytes()));
        let found = self.above_of(dir).and_then(|above| remove::measure(above.dir(), hidden));
        let size = found.map_or(String::new(), |found| format!(", {} bytes", found.bytes));
        let (kept, path) = (quoted(&kept), quoted(&path));
        let text = format!(
            "kept {kept}{size}, the incomplete copy of {path}; free space and repeat the command, or \
             remove it"
        );
        self.context.watcher.note(&text);
    }

    pub(super) fn failed_at(
        &self,
        dir: DirRef<'_, CopyDir>,
        operation: Operation,
        error: io::Error,
    ) -> CopyError {
        CopyError::io(operation, target_path(self.roots, Some(dir), dir.root(), b""), error)
    }

    /// Removes a hidden directory that cannot be completed. `reports`: with a message for every
    /// file that was already in it.
    fn discard(&self, dir: DirRef<'_, CopyDir>, hidden: &CStr, reports: bool) {
        let _cleaning = self.context.cleaning();
        let path = target_path(self.roots, Some(dir), dir.root(), b"");
        let mut counts = Counts::default();
        let mut each = |below: &[u8], found: Option<&Attr>| {
            counts.add_removed(found);
            if reports && !below.is_empty() {
                let to = path.join(OsStr::from_bytes(below));
                let text = format!("{} was removed: its directory is incomplete", quoted(&to));
                self.context.failed(CopyError::whole(&to, text));
            }
        };
        let above = self.above_of(dir);
        let removed = above.and_then(|above| remove::tree(above.dir(), hidden, &mut each));
        if let Err(error) = removed {
            let hidden = path.with_file_name(OsStr::from_bytes(hidden.to_bytes()));
            self.context.failed(CopyError::io(Operation::Remove, hidden, error));
        }
        if reports {
            let text = format!("{} was removed: it is incomplete", quoted(&path));
            self.context.failed(CopyError::whole(&path, text));
        }
        self.context.discarded(&path, &counts, &dir.data().tally);
    }

    /// Copies the preserved attributes of a directory.
    pub(super) fn preserve_attributes(
        &mut self,
        dir: DirRef<'_, CopyDir>,
    ) -> Result<(), CopyError> {
        let data = dir.data();
        // Becomes the current pair, from which the thread goes up to the next directory.
        let pair = self.pair_of(dir).map_err(|e| self.failed_at(dir, Operation::OpenDir, e))?;
        let (from, on) = (FileRef::Open(pair.from.as_fd()), FileRef::Open(pair.to.as_fd()));
        let failed = self.context.rules.put(&data.source, from, on, data.made);
        let path = || target_path(self.roots, Some(dir), dir.root(), b"");
        self.context.failed_attributes(failed, path);
        Ok(())
    }

    /// Syncs a directory if requested, unless syncing an ancestor will cover it.
    pub(super) fn sync(&self, dir: DirRef<'_, CopyDir>) -> Result<(), CopyError> {
        let data = dir.data();
        let is_top = data.hidden_name.is_some();
        if self.context.options.durable == Durable::None || (data.hidden && !is_top) {
            return Ok(());
        }
        let pair =
            self.open_or_take(dir).map_err(|e| self.failed_at(dir, Operation::OpenDir, e))?;
        let synced = if is_top { pair.to.sync_file_system() } else { pair.to.sync() };
        synced.map_err(|e| self.failed_at(dir, Operation::Sync, e))
    }

    /// Opens the directory above a hidden one.
    fn above_of(&self, dir: DirRef<'_, CopyDir>) -> io::Result<Above<'_>> {
        match dir.parent() {
            Some(above) => self.open_or_take(above).map(Above::Pair),
            None => Ok(Above::Root(&self.roots.parents[self.roots.to[dir.root()].parent].dir)),
        }
    }

    /// Renames a directory to its final name, or merges it into one that exists there by now. Returns the number of
    /// existing entries that were kept.
    fn publish(&self, dir: DirRef<'_, CopyDir>, hidden: &CStr) -> Result<u64, CopyError> {
        let failed = |what, e| self.failed_at(dir, what, e);
        let above = self.above_of(dir).map_err(|e| failed(Operation::OpenDir, e))?;
        let name = match dir.parent() {
            Some(_) => c_name(dir.name()).map_err(|e| failed(Operation::OpenDir, e))?,
            None => self.roots.to[dir.root()].name.clone(),
        };
        let mut kept = 0;
        match make::rename(above.dir(), hidden, above.dir(), &name, false) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let _cleaning = self.context.cleaning();
                let path = target_path(self.roots, Some(dir), dir.root(), b"");
                let there = above.dir().open_at(name.to_bytes());
                let there = there.map_err(|_| failed(Operation::Publish, e))?;
                let pair = self.open_or_take(dir).map_err(|e| failed(Operation::OpenDir, e))?;
                let source = dir.path_of(b"");
                dir.data().merged.store(true, Ordering::Release);
                let mut left = merge::merge(self.context, (&pair.to, &there), &source, &path)
                    .map_err(|e| failed(Operation::Publish, e))?;
                let mut each = |below: &[u8], found: Option<&Attr>| left.add(below, found);
                let removed = remove::tree(above.dir(), hidden, &mut each);
                kept = left.report(self.context, &path, &dir.data().tally);
                if let Err(e) = removed {
                    // The directory is there, so it is not discarded; what remains is the hidden one.
                    let hidden = path.with_file_name(OsStr::from_bytes(hidden.to_bytes()));
                    self.context.failed(CopyError::io(Operation::Remove, hidden, e));
                }
            }
            renamed => renamed.map_err(|e| failed(Operation::Publish, e))?,
        }
        dir.data().published.store(true, Ordering::Release);
        Ok(kept)
    }
}

/// Returns true if a directory is on a remote file system, which can be mounted on it.
fn is_remote(dir: &Dir, own: &Attr, above: ParentAttr) -> bool {
    match own.device == above.device {
        true => above.is_remote,
        false => attr::file_system(dir).is_ok_and(|system| system.remote),
    }
}

/// The directory above a hidden one.
enum Above<'a> {
    Pair(Arc<DirPair>),
    Root(&'a Dir),
}

impl Above<'_> {
    fn dir(&self) -> &Dir {
        match self {
            Self::Pair(pair) => &pair.to,
            Self::Root(dir) => dir,
        }
    }
}

/// The error for a directory whose target is inside it.
pub(crate) fn into_itself(from: &Path, to: &Path) -> CopyError {
    let text = format!("cannot copy a directory, {}, into itself, {}", quoted(from), quoted(to));
    CopyError::whole(from, text)
}

/// The error for a directory that is a source of a copy that is not recursive.
pub(crate) fn not_recursive(from: &Path) -> CopyError {
    let text = format!("-r not specified; omitting directory {}", quoted(from));
    CopyError::whole(from, text)
}

/// The error for a directory that is its own target.
pub(crate) fn same_file(from: &Path, to: &Path) -> CopyError {
    let text = format!("{} and {} are the same file", quoted(from), quoted(to));
    CopyError::whole(to, text)
}

fn not_created(error: io::Error, (from, to): &(PathBuf, PathBuf)) -> CopyError {
    if error.kind() == io::ErrorKind::PermissionDenied
        && attr::of_path(to, false).is_err_and(|e| e.kind() == error.kind())
    {
        return CopyError::io(Operation::Stat, to.clone(), error);
    }
    if Errno::from_io_error(&error) != Some(Errno::NOTDIR) {
        return CopyError::io(Operation::CreateDir, to.clone(), error);
    }
    let (from, quoted_to) = (quoted(from), quoted(to));
    let text = format!("cannot overwrite non-directory {quoted_to} with directory {from}");
    CopyError::whole(to, text)
}
