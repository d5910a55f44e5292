//! Copies the entries that a walk finds.
//!
//! A new directory is created under a hidden name, filled, and renamed when everything below it is
//! complete. Other programs see either the complete directory or none, so files inside it need no
//! hidden names. An existing directory is merged into; each new file appears there when complete.
//!
//! Every directory being copied has a pair of open descriptors: source and target. When too many
//! are open, a thread opens the pair it needs, starting from the nearest open ancestor. Each
//! directory costs one mkdir, two opens, two closes, two statx calls, and its preserved attributes.

mod deferred;
mod directory;
mod location;
mod merge;
mod pairs;
mod view;
mod visit;

pub(crate) use directory::{into_itself, not_recursive, same_file};

use crate::backup::{Kept, sibling};
use crate::context::CopyContext;
use crate::dirs::{CopiedName, DirCounters, DirPair, Roots, c_name};
use crate::error::CopyError;
use crate::file::{self, BUFFER_BYTES};
use crate::links::{Copied, EntryResult, FirstName, Outcome};
use crate::new_file::{unless_swept, with_temporary_name};
use crate::options::{Backup, Durable, Existing, Follow, Make};
use crate::place::{self, Placement};
use crate::report::Counts;
use crate::route::{Route, Source, TargetState};
use crate::{resume, special, sweep};
use ioloom_failure::Operation;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::cache::flush_file_system;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use ioloom_walk::Control;
use location::Location;
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Minimum size of a named file for which remains of interrupted copies are looked for, in bytes.
const SWEEP_BYTES_MIN: u64 = 1 << 20;

/// Minimum ratio of the size of such a file to that of the directory, which is listed.
const SWEEP_RATIO_MIN: u64 = 64;

/// What a thread knows about targets.
#[derive(Default)]
struct Views {
    /// The source in which directories were found last, and whether the file system of its target can show directories
    /// of others; `None` while the target has a hidden name.
    target: Option<(usize, Option<bool>)>,
}

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
    views: Views,
    pub(crate) counts: Counts,
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
            views: Views::default(),
            counts: Counts::default(),
        }
    }

    fn goes_on(&self) -> Control {
        if self.context.cancelled() { Control::Stop } else { Control::Continue }
    }

    fn done(&mut self, kind: Kind, ended: EntryResult, paths: &dyn Fn() -> (PathBuf, PathBuf)) {
        let (count, copied) = match ended {
            Err(error) => return self.context.failed(error),
            Ok(Outcome::Deferred) => return,
            Ok(Outcome::Skipped) => (&mut self.counts.skipped, None),
            Ok(Outcome::Linked(copied)) if self.context.options.make == Make::Symlink => {
                (&mut self.counts.symlinks, Some(copied))
            }
            Ok(Outcome::Linked(copied)) => (&mut self.counts.hard_links, Some(copied)),
            Ok(Outcome::Resumed) => (&mut self.counts.resumed, None),
            Ok(Outcome::Copied(copied)) => match kind {
                Kind::Regular => (&mut self.counts.files, Some(copied)),
                Kind::Symlink => (&mut self.counts.symlinks, Some(copied)),
                _ => (&mut self.counts.specials, Some(copied)),
            },
        };
        *count += 1;
        self.context.progress.entries.fetch_add(1, Ordering::Relaxed);
        if let Some(copied) = copied
            && self.context.watcher.wants_names()
        {
            let (from, to) = paths();
            if copied.removed {
                self.context.watcher.removed(&to);
            }
            let backup = copied.backup.map(|name| sibling(&to, &name));
            self.context.watcher.copied(&from, &to, backup.as_deref());
            if let Some(mode) = copied.mode {
                self.context.watcher.copied_by(mode, copied.finds_holes);
            }
        }
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
                    named: false,
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
                    named: true,
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
        let context = self.context;
        if let Location::In(dir) = at
            && kind == Kind::Symlink
            && route.hidden
        {
            context.links_in(dir.data().own);
        }
        let _making = context.making(route, kind);
        let mut ended = self.place_and_copy(route, at, kind);
        if ended.as_ref().is_err_and(|error| self.has_appeared(error)) {
            ended = self.place_and_copy(route, at, kind);
        }
        let ended = ended.or_else(|error| self.defer(route, at, kind, error));
        if matches!(ended, Ok(Outcome::Copied(_) | Outcome::Linked(_)))
            && (route.named || kind == Kind::Symlink)
        {
            context.created(route, kind);
        }
        ended
    }

    /// Returns true if an entry did not get its name because another program created one of that name during the copy.
    /// It is then treated like one that existed before: kept, backed up, or replaced after a question.
    fn has_appeared(&self, error: &CopyError) -> bool {
        let keeps = self.context.options.existing == Existing::Keep;
        let is_late = keeps || error.operation == Operation::Publish;
        is_late && error.errno() == Some(Errno::EXIST)
    }

    fn place_and_copy(&mut self, route: &Route<'_>, at: Location<'_>, kind: Kind) -> EntryResult {
        let context = self.context;
        let reads = context.options.contents || !context.options.recursive;
        let as_file = kind == Kind::Regular || (reads && kind != Kind::Symlink);
        let links = context.options.make != Make::Copy;
        if !as_file || links || context.options.attributes_only {
            return self.without_content(route, at, kind, as_file);
        }
        let source = match Source::open(route, kind) {
            Ok(source) => source,
            Err(error) => return self.unopened(route, at, kind, error),
        };
        let attr = source.attr;
        if resume::is_complete(context, route, &attr) && self.stays(route, at, &attr) {
            return Ok(Outcome::Resumed);
        }
        let target = match place::decide(context, route, &attr, true)? {
            Placement::Copy(target) => target,
            kept => return self.kept(route, at, &attr, kept),
        };
        resume::remove_partial(context, route)?;
        self.sweep_parent(at, &attr, &target);
        self.linked(route, at, &attr, &target, |buffer| {
            file::copy(context, route, source, target, buffer)
        })
    }

    /// Looks for remains of interrupted copies next to the target of a large source, unless listing that
    /// directory takes long compared with the copy.
    fn sweep_parent(&self, at: Location<'_>, source: &Attr, target: &TargetState) {
        let Location::Root(root, _) = at else { return };
        let number = self.roots.to[root].parent;
        let parent = &self.roots.parents[number];
        let is_new = !matches!(target, TargetState::InPlace(_) | TargetState::Dangling);
        let is_large = is_new && source.bytes >= SWEEP_BYTES_MIN;
        if !is_large || parent.swept.load(Ordering::Relaxed) {
            return;
        }
        let is_cheap = |dir: Attr| source.bytes / SWEEP_RATIO_MIN >= dir.bytes;
        if !attr::of_file(&parent.dir).is_ok_and(is_cheap)
            || parent.swept.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let siblings = self.roots.to.iter().filter(|to| to.parent == number);
        let names: Vec<&CStr> = siblings.map(|to| to.name.as_c_str()).collect();
        let path = self.roots.to[root].path.parent().unwrap_or(Path::new(""));
        sweep::sweep(self.context, &parent.dir, path, &names, true);
    }

    /// An entry whose source cannot be opened, which matters only if the target is not kept. As in GNU cp,
    /// the user is asked first.
    fn unopened(
        &mut self,
        route: &Route<'_>,
        at: Location<'_>,
        kind: Kind,
        error: CopyError,
    ) -> EntryResult {
        if self.context.options.existing == Existing::Replace {
            return Err(error);
        }
        let Ok(attr) = attr_of(route, kind) else { return Err(error) };
        match place::decide(self.context, route, &attr, true)? {
            Placement::Copy(_) => Err(error),
            kept => self.kept(route, at, &attr, kept),
        }
    }

    /// Creates an entry whose source is not read.
    fn without_content(
        &mut self,
        route: &Route<'_>,
        at: Location<'_>,
        kind: Kind,
        as_file: bool,
    ) -> EntryResult {
        let context = self.context;
        let attr = attr_of(route, kind)?;
        let target = match place::decide(context, route, &attr, as_file)? {
            Placement::Copy(target) => target,
            kept => return self.kept(route, at, &attr, kept),
        };
        resume::remove_partial(context, route)?;
        if context.options.make != Make::Copy {
            return special::link(context, route, &attr, &target);
        }
        self.linked(route, at, &attr, &target, |buffer| {
            if !as_file {
                return special::copy(context, route, &attr, &target);
            }
            let source = Source::open(route, kind)?;
            file::copy(context, route, source, target, buffer)
        })
    }

    /// An entry whose existing target is kept. A newer target does not prevent hard links from being
    /// preserved.
    fn kept(
        &mut self,
        route: &Route<'_>,
        at: Location<'_>,
        attr: &Attr,
        kept: Placement,
    ) -> EntryResult {
        if !matches!(kept, Placement::KeepNewer) || !self.may_have_more_names(route, attr) {
            return Ok(Outcome::Skipped);
        }
        if let Some(copied) = self.context.links.claim(attr.identity()) {
            match self.link(route, &copied, &TargetState::Fresh, None) {
                Err(e) if copied.is_gone(&e) => {
                    if !self.context.links.claim_again(attr.identity()) {
                        return Ok(Outcome::Skipped);
                    }
                }
                linked => {
                    return linked
                        .map(Outcome::Linked)
                        .map_err(|e| self.not_linked(route, &copied, e));
                }
            }
        }
        self.context.links.release(attr.identity(), Some(at.copied_name(route.from_name)));
        Ok(Outcome::Skipped)
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

    /// Copies a file, or links it to a copy made under another name. If it cannot be linked, reports the
    /// error, and copies it unless what is there cannot be removed.
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
        let is_there = !matches!(there, TargetState::Absent);
        while let Some(copied) = self.context.links.claim(attr.identity()) {
            let backup = self.context.options.backup.as_ref();
            match self.link(route, &copied, there, backup) {
                Ok(linked) => {
                    let removed = is_there && linked.backup.is_none();
                    return Ok(Outcome::Linked(Copied { removed, ..linked }));
                }
                Err(e) if copied.is_gone(&e) => {
                    if self.context.links.claim_again(attr.identity()) {
                        break;
                    }
                }
                // What is there cannot be removed.
                Err(e) if route.parent_attr.append_only && is_there => {
                    return Err(self.not_linked(route, &copied, e));
                }
                Err(e) => {
                    let errno = Errno::from_io_error(&e);
                    let error = self.not_linked(route, &copied, e);
                    if !errno.is_some_and(is_unlinkable) {
                        return Err(error);
                    }
                    // The separate copy keeps the content. Its own error is enough.
                    let ended = copy(&mut self.buffer)?;
                    self.context.failed(error);
                    if errno == Some(Errno::MLINK) {
                        let name = at.copied_name(route.from_name);
                        self.context.links.replace(attr.identity(), name);
                    }
                    return Ok(ended);
                }
            }
        }
        let ended = copy(&mut self.buffer);
        let copied = ended.is_ok().then(|| at.copied_name(route.from_name));
        self.context.links.release(attr.identity(), copied);
        ended
    }

    fn not_linked(
        &self,
        route: &Route<'_>,
        copied: &FirstName<CopiedName>,
        error: io::Error,
    ) -> CopyError {
        let copied = match copied {
            FirstName::Earlier(earlier) => earlier.path.clone(),
            FirstName::Here(name) => name.path(self.roots),
        };
        route.failed_to(Operation::HardLink, error).and(copied)
    }

    /// Links a file to the copy of another name of its source; keeps a backup of what is there.
    fn link(
        &self,
        route: &Route<'_>,
        copied: &FirstName<CopiedName>,
        there: &TargetState,
        backup: Option<&Backup>,
    ) -> io::Result<Copied> {
        let (dir, name);
        let from = match copied {
            FirstName::Earlier(earlier) => {
                (dir, name) = earlier.find()?;
                &dir
            }
            FirstName::Here(CopiedName::In(kept, kept_name)) => {
                dir = self.target_of(kept.get())?;
                name = c_name(kept_name)?;
                &dir
            }
            FirstName::Here(CopiedName::Root(root)) => {
                let to = &self.roots.to[*root];
                name = to.name.clone();
                &self.roots.parents[to.parent].dir
            }
        };
        if matches!(there, TargetState::Absent) {
            return make::link(from, &name, route.to, route.to_name).map(|()| Copied::default());
        }
        if route.parent_attr.append_only {
            return Err(Errno::PERM.into());
        }
        let linked = |hidden: &CStr| make::link(from, &name, route.to, hidden);
        unless_swept(|| {
            let (hidden, ()) = with_temporary_name(route.to_name, linked)?;
            let kept = match backup.map(|backup| Kept::make(backup, route.to, route.to_name)) {
                Some(Err(error)) => {
                    let _ = make::remove(route.to, &hidden);
                    return Err(error);
                }
                kept => kept.and_then(Result::ok),
            };
            let backup = kept.as_ref().map(|kept| kept.name().to_owned());
            let renamed = match &kept {
                Some(kept) => kept.replace_by(route.to, &hidden),
                None => make::rename(route.to, &hidden, route.to, route.to_name, true),
            };
            // Renaming one hard link of a file to another has no effect, so the hidden name may
            // still exist. Ignore a failure: it identifies itself.
            let _ = make::remove(route.to, &hidden);
            if let Err(error) = renamed {
                kept.into_iter().for_each(Kept::undo);
                return Err(error);
            }
            Ok(Copied { backup, ..Copied::default() })
        })
    }

    fn entry_of(&mut self, at: Location<'_>, name: &[u8], kind: Kind) -> Control {
        if self.context.cancelled() {
            return Control::Stop;
        }
        let (roots, options) = (self.roots, self.context.options);
        let doomed = matches!(at, Location::In(dir) if dir.data().is_doomed());
        let ended = match kind {
            _ if doomed => {
                let (_, to) = at.paths(roots, name);
                Err(CopyError::io(Operation::CopyTo, to, self.context.lack()))
            }
            Kind::Symlink if options.follow == Follow::Always => {
                let (path, _) = at.paths(roots, name);
                Err(CopyError::io(Operation::Stat, path, Errno::NOENT.into()))
            }
            _ => self.one(at, name, kind),
        };
        if let Location::In(dir) = at {
            match &ended {
                Ok(Outcome::Copied(copied)) => dir.data().add_file(copied),
                Err(error) if error.is_out_of_space() && dir.data().hidden => {
                    self.context.note_lack(error);
                    dir.data().doomed.store(true, Ordering::Release);
                }
                _ => {}
            }
        }
        self.done(kind, ended, &|| at.paths(roots, name));
        self.goes_on()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if a hard link failed because there are too many, the file system does not support
/// them, or it is a different file system.
fn is_unlinkable(errno: Errno) -> bool {
    matches!(errno, Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV)
}

/// Returns the attributes of a source that is not opened. With `follow`, they are those of the target of a
/// link.
fn attr_of(route: &Route<'_>, kind: Kind) -> Result<Attr, CopyError> {
    let follow = route.follow && kind != Kind::Symlink;
    let attr = attr::of_name(route.from, route.from_name, follow)
        .map_err(|e| route.failed_from(Operation::Stat, e))?;
    if attr.kind == kind { Ok(attr) } else { Err(route.replaced()) }
}

/// Syncs the file system of an existing directory or file.
fn sync_file_system_of(dir: &Dir, name: &CStr) -> io::Result<()> {
    match dir.open_at(name.to_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            let file = ioloom_sys::open_at::open_to_read(dir, name, true)
                .or_else(|_| make::open_in_place(dir, name, false))?;
            flush_file_system(file)
        }
        opened => opened?.sync_file_system(),
    }
}

/// Syncs the directories into which sources were copied, except those whose names did not change and
/// that this user may not list.
pub(crate) fn sync_parents(context: &CopyContext<'_>, roots: &Roots) {
    for (number, parent) in roots.parents.iter().enumerate() {
        let targets = || roots.to.iter().filter(|to| to.parent == number);
        let synced = match context.options.durable {
            Durable::None => return,
            Durable::File if parent.unlisted => Ok(()),
            Durable::File => parent.dir.sync(),
            Durable::Full if parent.unlisted => {
                targets().try_for_each(|to| sync_file_system_of(&parent.dir, &to.name))
            }
            Durable::Full => parent.dir.sync().and_then(|()| parent.dir.sync_file_system()),
        };
        let of = targets().next();
        if let Err(error) = synced {
            let path = of.and_then(|to| to.path.parent());
            let path = path.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
            context.failed(CopyError::io(Operation::Sync, path.to_owned(), error));
        }
    }
}
