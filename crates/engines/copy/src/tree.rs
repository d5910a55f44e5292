//! Copies the entries that a walk finds.
//!
//! A new directory is created under a hidden name, filled, and renamed when everything below it is
//! complete. Other programs see either the complete directory or none, so files inside it need no
//! hidden names. An existing directory is merged into; each new file appears there when complete.
//!
//! Every directory being copied has a pair of open descriptors: source and target. When too many
//! are open, a thread opens the pair it needs, starting from the nearest open ancestor. Each
//! directory costs one mkdir, two opens, two closes, two statx calls, and its preserved attributes.

mod location;
mod visit;

use crate::context::CopyContext;
use crate::dirs::{
    CopiedName, CopyDir, DirCounters, DirPair, ResumedDir, Roots, TargetDir, c_name,
    new_target_path, open_target, remove_hidden, root_of, target_path,
};
use crate::error::{CopyError, Errors};
use crate::file::{self, BUFFER_BYTES};
use crate::links::{EntryResult, Outcome};
use crate::meta::{Creation, FileRef, ParentAttr};
use crate::new_file::with_hidden_name;
use crate::options::{Durable, Follow};
use crate::report::Counts;
use crate::route::{Route, Source, TargetState};
use crate::{resume, special};
use ioloom_failure::Operation;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use ioloom_walk::{Control, DirRef, NewDir};
use location::Location;
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of directory pairs to keep open.
const PAIRS_MAX: usize = 128;

/// One thread of a copy.
pub(crate) struct Worker<'r> {
    context: &'r CopyContext<'r>,
    roots: &'r Roots,
    dirs: &'r DirCounters,
    buffer: Buffer,
    /// The current name, NUL-terminated.
    name: Vec<u8>,
    /// The last pair used, with its directory number.
    last_pair: Option<(u64, Arc<DirPair>)>,
    /// The parent of the last source, for long lists of files in one directory.
    above: Option<(PathBuf, Dir)>,
    pub(crate) counts: Counts,
    pub(crate) errors: Errors,
}

impl<'r> Worker<'r> {
    pub(crate) fn new(
        context: &'r CopyContext<'r>,
        roots: &'r Roots,
        dirs: &'r DirCounters,
    ) -> Self {
        Self {
            context,
            roots,
            dirs,
            buffer: Buffer::new(BUFFER_BYTES),
            name: Vec::new(),
            last_pair: None,
            above: None,
            counts: Counts::default(),
            errors: Errors::default(),
        }
    }

    fn failed(&mut self, error: CopyError) {
        if error.is_cancelled() {
            return;
        }
        if error.is_out_of_space() {
            self.context.out_of_space.store(true, Ordering::Relaxed);
        }
        self.errors.add(error);
    }

    fn goes_on(&self) -> Control {
        if self.context.ends() { Control::Stop } else { Control::Continue }
    }

    fn done(&mut self, kind: Kind, ended: EntryResult, paths: &dyn Fn() -> (PathBuf, PathBuf)) {
        let count = match ended {
            Err(error) => return self.failed(error),
            Ok(Outcome::Skipped) => &mut self.counts.skipped,
            Ok(Outcome::Linked) => &mut self.counts.hard_links,
            Ok(Outcome::Resumed) => &mut self.counts.resumed,
            Ok(Outcome::Copied(_)) => match kind {
                Kind::Regular => &mut self.counts.files,
                Kind::Symlink => &mut self.counts.symlinks,
                _ => &mut self.counts.specials,
            },
        };
        *count += 1;
        self.context.progress.entries.fetch_add(1, Ordering::Relaxed);
        if self.context.watcher.wants_names()
            && matches!(ended, Ok(Outcome::Copied(_) | Outcome::Linked))
        {
            let (from, to) = paths();
            self.context.watcher.copied(&from, &to);
        }
    }

    /// Returns the pair for a directory that is being copied.
    fn pair_of(&mut self, dir: DirRef<'_, CopyDir>) -> io::Result<Arc<DirPair>> {
        let id = dir.data().id;
        if let Some((at, pair)) = &self.last_pair
            && *at == id
        {
            return Ok(Arc::clone(pair));
        }
        let open = locked(&dir.data().pair).clone();
        let pair = match open {
            Some(pair) => pair,
            None => Arc::new(self.open_pair(dir)?),
        };
        self.last_pair = Some((id, Arc::clone(&pair)));
        Ok(pair)
    }

    /// Opens a pair, starting from the nearest open ancestor.
    fn open_pair(&self, dir: DirRef<'_, CopyDir>) -> io::Result<DirPair> {
        let mut below = Vec::new();
        let mut at = dir;
        let mut pair = loop {
            if let Some(pair) = locked(&at.data().pair).clone() {
                break DirPair { from: pair.from.open_at(b".")?, to: pair.to.open_at(b".")? };
            }
            match at.parent() {
                Some(parent) => {
                    below.push(at);
                    at = parent;
                }
                None => {
                    let from = Dir::open(&self.roots.from[at.root()])?;
                    break DirPair { from, to: self.open_root_target(at)? };
                }
            }
        };
        let follow = self.context.options.follow == Follow::Always;
        while let Some(next) = below.pop() {
            let from = pair.from.open_child(&c_name(next.name())?, follow, false)?;
            pair = DirPair { from, to: open_target(&pair.to, next.name(), next.data())? };
        }
        Ok(pair)
    }

    fn open_root_target(&self, root: DirRef<'_, CopyDir>) -> io::Result<Dir> {
        let to = &self.roots.to[root.root()];
        open_target(&self.roots.parents[to.parent].dir, to.name.to_bytes(), root.data())
    }

    /// Opens only the target of a directory that may already be complete.
    fn target_of(&self, dir: DirRef<'_, CopyDir>) -> io::Result<Dir> {
        let mut below = Vec::new();
        let mut at = dir;
        while let Some(parent) = at.parent() {
            below.push(at);
            at = parent;
        }
        let mut to = self.open_root_target(at)?;
        while let Some(next) = below.pop() {
            to = open_target(&to, next.name(), next.data())?;
        }
        Ok(to)
    }

    /// Creates or opens the target of a directory.
    fn begin_dir(&mut self, new: &NewDir<'_, CopyDir>) -> Result<CopyDir, CopyError> {
        let roots = self.roots;
        let paths = || (new.path(), new_target_path(roots, new));
        let failed = |operation, e: io::Error| CopyError::io(operation, paths().0, e);
        let failed_to = |operation, e: io::Error| CopyError::io(operation, paths().1, e);
        let (above, name, parent_attr, hidden);
        let from = match new.parent {
            None => {
                let root = &self.roots.to[new.root];
                let parent = &self.roots.parents[root.parent];
                (above, name, parent_attr, hidden) =
                    (None, root.name.clone(), parent.parent_attr, false);
                Dir::open(&self.roots.from[new.root])
            }
            Some(parent) => {
                let data = parent.data();
                let pair = self.pair_of(parent).map_err(|e| failed(Operation::OpenDir, e))?;
                name = c_name(new.name).map_err(|e| failed(Operation::OpenDir, e))?;
                (parent_attr, hidden) = (data.parent_attr, data.hidden);
                let from = pair.from.open_child(&name, new.linked, false);
                above = Some(pair);
                from
            }
        };
        let from = from.map_err(|e| failed(Operation::OpenDir, e))?;
        let source = attr::of_file(&from).map_err(|e| failed(Operation::Stat, e))?;
        let device = new.parent.map(|above| root_of(above).data().source.device);
        let other = device.is_some_and(|device| device != source.device);
        let stays_out = other && self.context.options.one_file_system;
        if !stays_out && self.context.is_written(source.identity()) {
            let why = "it is a directory that this copy writes to";
            return Err(CopyError::cannot(Operation::Copy, &paths().0, why));
        }
        let parent = match &above {
            Some(pair) => &pair.to,
            None => &self.roots.parents[self.roots.to[new.root].parent].dir,
        };
        let mode = self.context.rules.initial_mode(&source) | 0o700;
        let resumed = self.resumed(new.parent.is_none());
        let made = TargetDir::make(parent, &name, hidden, mode, resumed);
        let target = made.map_err(|e| failed_to(Operation::CreateDir, e))?;
        let (to, own) = (target.dir, target.own);
        if !target.is_hidden || target.hidden_name.is_some() {
            self.context.writes_into(own.identity());
        }
        let has_default_acl = if target.is_new {
            parent_attr.has_default_acl
        } else {
            self.context.rules.has_default_acl(&to)
        };
        let dir = CopyDir {
            id: self.dirs.next.fetch_add(1, Ordering::Relaxed),
            source,
            hidden_name: target.hidden_name,
            published: AtomicBool::new(false),
            hidden: target.is_hidden,
            bytes: AtomicU64::new(0),
            empty: stays_out,
            parent_attr: ParentAttr { device: own.device, group: own.group, has_default_acl },
            made: Creation {
                mode,
                parent_attr,
                is_link: false,
                is_dir: true,
                is_old: !target.is_new,
            },
            pair: Mutex::new(None),
        };
        self.keep_open(&dir, DirPair { from, to });
        Ok(dir)
    }

    fn resumed(&self, is_root: bool) -> Option<ResumedDir> {
        self.context.resume.get().map(|resume| ResumedDir { number: resume.number, is_root })
    }

    /// Remembers the pair for a directory, and keeps it open for other threads unless too many are.
    fn keep_open(&mut self, dir: &CopyDir, pair: DirPair) {
        let pair = Arc::new(pair);
        if self.dirs.pairs.fetch_add(1, Ordering::Relaxed) < PAIRS_MAX {
            *locked(&dir.pair) = Some(Arc::clone(&pair));
        } else {
            self.dirs.pairs.fetch_sub(1, Ordering::Relaxed);
        }
        self.last_pair = Some((dir.id, pair));
    }

    /// Finishes a directory after everything below it: preserves its attributes, syncs it if
    /// requested, and renames it. If attributes cannot be preserved, reports the error and renames
    /// the directory anyway; if the sync fails, does not rename it.
    fn end_dir(&mut self, dir: DirRef<'_, CopyDir>) -> Result<(), CopyError> {
        let data = dir.data();
        let gives_up = self.context.cancelled() && data.hidden;
        let preserved = if gives_up { Ok(()) } else { self.preserve_attributes(dir) };
        let Some(hidden) = &data.hidden_name else {
            return preserved.and(if gives_up { Ok(()) } else { self.sync(dir) });
        };
        let published = match gives_up {
            true => Ok(false),
            false => self.sync(dir).and_then(|()| self.publish(dir, hidden)).map(|()| true),
        };
        if !published.as_ref().is_ok_and(|published| *published)
            && self.context.resume.get().is_none()
        {
            remove_hidden(target_path(self.roots, Some(dir), dir.root(), b""), hidden);
            let gone = data.bytes.load(Ordering::Relaxed);
            self.context.progress.bytes.fetch_sub(gone, Ordering::Relaxed);
        }
        published.map(drop).and(preserved)
    }

    fn failed_at(
        &self,
        dir: DirRef<'_, CopyDir>,
        operation: Operation,
        error: io::Error,
    ) -> CopyError {
        CopyError::io(operation, target_path(self.roots, Some(dir), dir.root(), b""), error)
    }

    /// Copies the preserved attributes of a directory.
    fn preserve_attributes(&self, dir: DirRef<'_, CopyDir>) -> Result<(), CopyError> {
        let data = dir.data();
        let pair =
            self.open_or_take(dir).map_err(|e| self.failed_at(dir, Operation::OpenDir, e))?;
        let (from, on) = (FileRef::Open(pair.from.as_fd()), FileRef::Open(pair.to.as_fd()));
        let put = self.context.rules.put(&data.source, from, on, data.made);
        put.map_err(|(what, e)| self.failed_at(dir, what, e))
    }

    /// Syncs a directory if requested, unless syncing an ancestor will cover it.
    fn sync(&self, dir: DirRef<'_, CopyDir>) -> Result<(), CopyError> {
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

    /// Renames a directory to its final name.
    fn publish(&self, dir: DirRef<'_, CopyDir>, hidden: &CStr) -> Result<(), CopyError> {
        let failed = |what, e| self.failed_at(dir, what, e);
        let (parent, name);
        let above = match dir.parent() {
            Some(above) => {
                parent = self.open_or_take(above).map_err(|e| failed(Operation::OpenDir, e))?;
                name = c_name(dir.name()).map_err(|e| failed(Operation::OpenDir, e))?;
                &parent.to
            }
            None => {
                let root = &self.roots.to[dir.root()];
                name = root.name.clone();
                &self.roots.parents[root.parent].dir
            }
        };
        let renamed = make::rename(above, hidden, above, &name, false);
        renamed.map_err(|e| failed(Operation::Publish, e))?;
        dir.data().published.store(true, Ordering::Release);
        Ok(())
    }

    fn open_or_take(&self, dir: DirRef<'_, CopyDir>) -> io::Result<Arc<DirPair>> {
        if let Some((at, pair)) = &self.last_pair
            && *at == dir.data().id
        {
            return Ok(Arc::clone(pair));
        }
        let open = locked(&dir.data().pair).clone();
        open.map_or_else(|| self.open_pair(dir).map(Arc::new), Ok)
    }

    /// Copies one entry that is not a directory.
    fn one(&mut self, at: Location<'_>, name: &[u8], kind: Kind) -> EntryResult {
        self.name.clear();
        self.name.extend_from_slice(name);
        self.name.push(0);
        let own_name = std::mem::take(&mut self.name);
        let ended = self.one_named(at, &own_name, kind);
        self.name = own_name;
        ended
    }

    fn one_named(&mut self, at: Location<'_>, name: &[u8], kind: Kind) -> EntryResult {
        let roots = self.roots;
        let paths = || at.paths(roots, name);
        let name = CStr::from_bytes_with_nul(name).map_err(|_| {
            CopyError::cannot(Operation::Copy, &paths().0, "the name contains a NUL byte")
        })?;
        match at {
            Location::In(dir) => {
                let pair = self
                    .pair_of(dir)
                    .map_err(|e| CopyError::io(Operation::OpenDir, paths().0, e))?;
                let route = Route {
                    from: &pair.from,
                    from_name: name,
                    follow: self.context.options.follow == Follow::Always,
                    to: &pair.to,
                    to_name: name,
                    hidden: dir.data().hidden,
                    parent_attr: dir.data().parent_attr,
                    paths: &paths,
                };
                self.along(&route, at, kind)
            }
            Location::Root(root, _) => {
                let from = self
                    .above(root)
                    .map_err(|e| CopyError::io(Operation::OpenDir, paths().0, e))?;
                let to = &roots.to[root];
                let parent = &roots.parents[to.parent];
                let route = Route {
                    from: &from,
                    from_name: name,
                    follow: self.context.options.follow != Follow::Never,
                    to: &parent.dir,
                    to_name: &to.name,
                    hidden: false,
                    parent_attr: parent.parent_attr,
                    paths: &paths,
                };
                let ended = self.along(&route, at, kind);
                self.above = roots.from[root].parent().map(|p| (p.to_owned(), from));
                ended
            }
        }
    }

    /// Opens the parent directory of a source that is not a directory itself.
    fn above(&mut self, root: usize) -> io::Result<Dir> {
        let parent = self.roots.from[root].parent().unwrap_or(Path::new(""));
        if let Some((path, dir)) = self.above.take()
            && path == parent
        {
            return Ok(dir);
        }
        Dir::open_path_only(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
    }

    fn along(&mut self, route: &Route<'_>, at: Location<'_>, kind: Kind) -> EntryResult {
        if kind != Kind::Regular {
            // With `follow`, copy the target of a link instead of the link.
            let follow = route.follow && kind != Kind::Symlink;
            let attr = attr::of_name(route.from, route.from_name, follow)
                .map_err(|e| route.failed_from(Operation::Stat, e))?;
            if attr.kind != kind {
                return Err(route.changed("was replaced"));
            }
            let Some(there) = file::inspect_target(self.context, route, &attr)? else {
                return Ok(Outcome::Skipped);
            };
            let context = self.context;
            resume::remove_partial(context, route)?;
            return self.linked(route, at, &attr, &there, |_| {
                special::copy(context, route, &attr, &there)
            });
        }
        let source = Source::open(route)?;
        let attr = source.attr;
        let context = self.context;
        if resume::is_complete(context, route, &attr) && self.stays(route, at, &attr) {
            return Ok(Outcome::Resumed);
        }
        let Some(there) = file::inspect_target(context, route, &attr)? else {
            return Ok(Outcome::Skipped);
        };
        resume::remove_partial(context, route)?;
        self.linked(route, at, &attr, &there, |buffer| {
            file::copy(context, route, source, &there, buffer)
        })
    }

    /// Returns true if a copy completed by an earlier run is kept. It is not kept if another name
    /// of the source was copied in this run; it then becomes a hard link to that copy.
    fn stays(&self, route: &Route<'_>, at: Location<'_>, attr: &Attr) -> bool {
        if !self.may_have_more_names(route, attr) {
            return true;
        }
        let is_first = self.context.links.claim(attr.identity()).is_none();
        if is_first {
            self.context.links.release(attr.identity(), Some(at.copied_name(route.from_name)));
        }
        is_first
    }

    /// Returns true if the walk can find a file again: under another hard link, or through a
    /// followed symbolic link.
    fn may_have_more_names(&self, route: &Route<'_>, attr: &Attr) -> bool {
        self.context.options.preserve.links && (attr.links > 1 || route.follow)
    }

    /// Copies a file, or links it to a copy made under another name.
    fn linked(
        &mut self,
        route: &Route<'_>,
        at: Location<'_>,
        attr: &Attr,
        there: &TargetState,
        copy: impl FnOnce(&mut Buffer) -> EntryResult,
    ) -> EntryResult {
        if !self.may_have_more_names(route, attr) {
            return copy(&mut self.buffer);
        }
        if let Some(copied) = self.context.links.claim(attr.identity()) {
            match self.link(route, &copied, there) {
                Ok(()) => return Ok(Outcome::Linked),
                // There are too many links, or the file system does not support hard links, or it
                // is a different file system: make a separate copy.
                Err(e)
                    if matches!(
                        Errno::from_io_error(&e),
                        Some(Errno::MLINK | Errno::PERM | Errno::XDEV)
                    ) =>
                {
                    return copy(&mut self.buffer);
                }
                Err(e) => return Err(route.failed_to(Operation::HardLink, e)),
            }
        }
        let ended = copy(&mut self.buffer);
        let copied = ended.is_ok().then(|| at.copied_name(route.from_name));
        self.context.links.release(attr.identity(), copied);
        ended
    }

    fn link(&self, route: &Route<'_>, copied: &CopiedName, there: &TargetState) -> io::Result<()> {
        let (dir, name);
        let from = match copied {
            CopiedName::In(kept, kept_name) => {
                dir = self.target_of(kept.get())?;
                name = c_name(kept_name)?;
                &dir
            }
            CopiedName::Root(root) => {
                let to = &self.roots.to[*root];
                name = to.name.clone();
                &self.roots.parents[to.parent].dir
            }
        };
        match there {
            TargetState::Absent => make::link(from, &name, route.to, route.to_name),
            TargetState::Present(_) => {
                let linked = |hidden: &CStr| make::link(from, &name, route.to, hidden);
                let (hidden, ()) = with_hidden_name(route.to_name, linked)?;
                let renamed = make::rename(route.to, &hidden, route.to, route.to_name, true);
                // Renaming one hard link of a file to another has no effect, so the hidden name may
                // still exist.
                let removed = make::remove(route.to, &hidden);
                renamed?;
                match removed {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                    result => result,
                }
            }
        }
    }

    fn entry_of(&mut self, at: Location<'_>, name: &[u8], kind: Kind) -> Control {
        if self.context.ends() {
            return Control::Stop;
        }
        let roots = self.roots;
        let ended = match kind {
            Kind::Symlink if self.context.options.follow == Follow::Always => {
                let (path, _) = at.paths(roots, name);
                let why = "it is a broken symbolic link";
                Err(CopyError::cannot(Operation::Copy, &path, why))
            }
            Kind::Regular | Kind::Symlink => self.one(at, name, kind),
            _ if !self.context.options.recursive => {
                let why = format!("it is a {}; use -r to copy it", kind.singular());
                Err(CopyError::cannot(Operation::Copy, &at.paths(roots, name).0, why))
            }
            _ => self.one(at, name, kind),
        };
        if let (Location::In(dir), Ok(Outcome::Copied(bytes))) = (at, &ended) {
            dir.data().add_bytes(*bytes);
        }
        self.done(kind, ended, &|| at.paths(roots, name));
        self.goes_on()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Syncs the directories into which sources were copied.
pub(crate) fn sync_parents(context: &CopyContext<'_>, roots: &Roots, errors: &mut Errors) {
    for (number, parent) in roots.parents.iter().enumerate() {
        let synced = match context.options.durable {
            Durable::None => return,
            Durable::File => parent.dir.sync(),
            Durable::Full => parent.dir.sync().and_then(|()| parent.dir.sync_file_system()),
        };
        let of = roots.to.iter().find(|to| to.parent == number);
        if let Err(error) = synced {
            let path = of.and_then(|to| to.path.parent()).unwrap_or(Path::new("."));
            errors.add(CopyError::io(Operation::Sync, path.to_owned(), error));
        }
    }
}
