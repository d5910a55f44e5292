//! Copying what a walk finds: the visitor.
//!
//! A directory that was not there is made under a hidden name, filled, and renamed when everything
//! below is done: whoever looks sees it whole or not at all, and inside it files need no care of
//! their own. A directory that was there is merged into, and each file in it appears whole.
//!
//! Every directory has a pair of descriptors, source and target, that is held while it is in work;
//! when there are too many, a thread opens the pair that it needs from the nearest one above that is
//! held. Costs per directory: mkdir, two opens, two closes, one statx for each of both, and what is
//! kept of it.

mod visit;

use crate::dirs::{
    Again, CopyDir, Held, MadeDir, Pair, Place, Roots, c_name, new_target_path, open_target,
    remove_hidden, root_of, target_path,
};
use crate::error::{CopyError, Errors};
use crate::file::{self, BUFFER_BYTES, Source, There, Way};
use crate::links::{Done, Ended};
use crate::meta::{Home, Made, On};
use crate::options::{Durable, Follow};
use crate::place::with_hidden_name;
use crate::report::Counts;
use crate::run::Run;
use crate::{resume, special};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use ioloom_walk::{Control, DirRef, NewDir};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Pairs of directories held open at most.
const PAIRS_MAX: usize = 128;

/// One thread of a copy.
pub(crate) struct Worker<'r> {
    run: &'r Run<'r>,
    roots: &'r Roots,
    held: &'r Held,
    buffer: Buffer,
    /// The name at hand, with its zero byte.
    name: Vec<u8>,
    /// The pair used last, by the number of its directory.
    at: Option<(u64, Arc<Pair>)>,
    /// The directory of the source named last, for long lists of files.
    above: Option<(PathBuf, Dir)>,
    pub(crate) counts: Counts,
    pub(crate) errors: Errors,
}

impl<'r> Worker<'r> {
    pub(crate) fn new(run: &'r Run<'r>, roots: &'r Roots, held: &'r Held) -> Self {
        Self {
            run,
            roots,
            held,
            buffer: Buffer::new(BUFFER_BYTES),
            name: Vec::new(),
            at: None,
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
            self.run.out_of_space.store(true, Ordering::Relaxed);
        }
        self.errors.add(error);
    }

    fn goes_on(&self) -> Control {
        if self.run.ends() { Control::Stop } else { Control::Continue }
    }

    fn done(&mut self, kind: Kind, ended: Ended, paths: &dyn Fn() -> (PathBuf, PathBuf)) {
        let count = match ended {
            Err(error) => return self.failed(error),
            Ok(Done::Skipped) => &mut self.counts.skipped,
            Ok(Done::Linked) => &mut self.counts.hard_links,
            Ok(Done::Resumed) => &mut self.counts.resumed,
            Ok(Done::Copied(_)) => match kind {
                Kind::Regular => &mut self.counts.files,
                Kind::Symlink => &mut self.counts.symlinks,
                _ => &mut self.counts.specials,
            },
        };
        *count += 1;
        self.run.progress.entries.fetch_add(1, Ordering::Relaxed);
        if self.run.watcher.wants_names() && matches!(ended, Ok(Done::Copied(_) | Done::Linked)) {
            let (from, to) = paths();
            self.run.watcher.copied(&from, &to);
        }
    }

    // ---- descriptors

    /// The pair of a directory in work.
    fn pair_of(&mut self, dir: DirRef<'_, CopyDir>) -> io::Result<Arc<Pair>> {
        let id = dir.data().id;
        if let Some((at, pair)) = &self.at
            && *at == id
        {
            return Ok(Arc::clone(pair));
        }
        let held = locked(&dir.data().pair).clone();
        let pair = match held {
            Some(pair) => pair,
            None => Arc::new(self.open_pair(dir)?),
        };
        self.at = Some((id, Arc::clone(&pair)));
        Ok(pair)
    }

    /// Opens both sides from the nearest directory above that is held.
    fn open_pair(&self, dir: DirRef<'_, CopyDir>) -> io::Result<Pair> {
        let mut below = Vec::new();
        let mut at = dir;
        let mut pair = loop {
            if let Some(pair) = locked(&at.data().pair).clone() {
                break Pair { from: pair.from.open_at(b".")?, to: pair.to.open_at(b".")? };
            }
            match at.parent() {
                Some(parent) => {
                    below.push(at);
                    at = parent;
                }
                None => {
                    let from = Dir::open(&self.roots.from[at.root()])?;
                    break Pair { from, to: self.open_root_target(at)? };
                }
            }
        };
        let follow = self.run.options.follow == Follow::Always;
        while let Some(next) = below.pop() {
            let from = pair.from.open_child(&c_name(next.name())?, follow, false)?;
            pair = Pair { from, to: open_target(&pair.to, next.name(), next.data())? };
        }
        Ok(pair)
    }

    fn open_root_target(&self, root: DirRef<'_, CopyDir>) -> io::Result<Dir> {
        let to = &self.roots.to[root.root()];
        open_target(&self.roots.parents[to.parent].dir, to.name.to_bytes(), root.data())
    }

    /// The target side alone of a directory that may be done already.
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

    // ---- directories

    fn begin(&mut self, new: &NewDir<'_, CopyDir>) -> Result<CopyDir, CopyError> {
        let roots = self.roots;
        let paths = || (new.path(), new_target_path(roots, new));
        let failed = |what, e: io::Error| CopyError::io(what, paths().0, e);
        let failed_to = |what, e: io::Error| CopyError::io(what, paths().1, e);
        let (above, name, parent_home, hidden);
        let from = match new.parent {
            None => {
                let root = &self.roots.to[new.root];
                let parent = &self.roots.parents[root.parent];
                (above, name, parent_home, hidden) = (None, root.name.clone(), parent.home, false);
                Dir::open(&self.roots.from[new.root])
            }
            Some(parent) => {
                let data = parent.data();
                let pair = self.pair_of(parent).map_err(|e| failed("open", e))?;
                name = c_name(new.name).map_err(|e| failed("open", e))?;
                (parent_home, hidden) = (data.home, data.hidden);
                let from = pair.from.open_child(&name, new.linked, false);
                above = Some(pair);
                from
            }
        };
        let from = from.map_err(|e| failed("open directory", e))?;
        let source = attr::of_file(&from).map_err(|e| failed("ask for", e))?;
        let device = new.parent.map(|above| root_of(above).data().source.device);
        let other = device.is_some_and(|device| device != source.device);
        let stays_out = other && self.run.options.one_file_system;
        if !stays_out && self.run.is_written(source.identity()) {
            let why = "it is a directory that this copy writes into";
            return Err(CopyError::cannot("copy", &paths().0, why));
        }
        let parent = match &above {
            Some(pair) => &pair.to,
            None => &self.roots.parents[self.roots.to[new.root].parent].dir,
        };
        let mode = self.run.rules.mode_at_first(&source) | 0o700;
        let again = self.again(new.parent.is_none());
        let made = MadeDir::make(parent, &name, hidden, mode, again);
        let target = made.map_err(|e| failed_to("make directory", e))?;
        let (to, own) = (target.dir, target.own);
        if !target.is_hidden || target.hidden_name.is_some() {
            self.run.writes_into(own.identity());
        }
        let gives_acl =
            if target.is_new { parent_home.gives_acl } else { self.run.rules.gives_acl(&to) };
        let dir = CopyDir {
            id: self.held.next.fetch_add(1, Ordering::Relaxed),
            source,
            hidden_name: target.hidden_name,
            shown: AtomicBool::new(false),
            hidden: target.is_hidden,
            bytes: AtomicU64::new(0),
            empty: stays_out,
            home: Home { device: own.device, group: own.group, gives_acl },
            made: Made {
                mode,
                home: parent_home,
                is_link: false,
                is_dir: true,
                is_old: !target.is_new,
            },
            pair: Mutex::new(None),
        };
        self.hold(&dir, Pair { from, to });
        Ok(dir)
    }

    fn again(&self, is_root: bool) -> Option<Again> {
        self.run.resume.get().map(|resume| Again { number: resume.number, is_root })
    }

    /// Keeps the pair of a directory at hand, and open for others if not too many are.
    fn hold(&mut self, dir: &CopyDir, pair: Pair) {
        let pair = Arc::new(pair);
        if self.held.pairs.fetch_add(1, Ordering::Relaxed) < PAIRS_MAX {
            *locked(&dir.pair) = Some(Arc::clone(&pair));
        } else {
            self.held.pairs.fetch_sub(1, Ordering::Relaxed);
        }
        self.at = Some((dir.id, pair));
    }

    /// Everything below is done: what is kept of the directory itself, then its name. What cannot be
    /// kept is told, and the directory gets its name all the same; what cannot be made durable where
    /// that was asked gets none.
    fn end(&mut self, dir: DirRef<'_, CopyDir>) -> Result<(), CopyError> {
        let data = dir.data();
        let gives_up = self.run.cancelled() && data.hidden;
        let dressed = if gives_up { Ok(()) } else { self.dress(dir) };
        let Some(hidden) = &data.hidden_name else {
            return dressed.and(if gives_up { Ok(()) } else { self.sync(dir) });
        };
        let shown = match gives_up {
            true => Ok(false),
            false => self.sync(dir).and_then(|()| self.show(dir, hidden)).map(|()| true),
        };
        if !shown.as_ref().is_ok_and(|shown| *shown) && self.run.resume.get().is_none() {
            remove_hidden(target_path(self.roots, Some(dir), dir.root(), b""), hidden);
            let gone = data.bytes.load(Ordering::Relaxed);
            self.run.progress.bytes.fetch_sub(gone, Ordering::Relaxed);
        }
        shown.map(drop).and(dressed)
    }

    fn failed_at(
        &self,
        dir: DirRef<'_, CopyDir>,
        what: &'static str,
        error: io::Error,
    ) -> CopyError {
        CopyError::io(what, target_path(self.roots, Some(dir), dir.root(), b""), error)
    }

    /// Puts what is kept of a directory onto its copy.
    fn dress(&self, dir: DirRef<'_, CopyDir>) -> Result<(), CopyError> {
        let data = dir.data();
        let pair = self.open_or_take(dir).map_err(|e| self.failed_at(dir, "open", e))?;
        let (from, on) = (On::Open(pair.from.as_fd()), On::Open(pair.to.as_fd()));
        let put = self.run.rules.put(&data.source, from, on, data.made);
        put.map_err(|(what, e)| self.failed_at(dir, what, e))
    }

    /// Makes a directory durable, if that is asked and nobody above does it.
    fn sync(&self, dir: DirRef<'_, CopyDir>) -> Result<(), CopyError> {
        let data = dir.data();
        let is_top = data.hidden_name.is_some();
        if self.run.options.durable == Durable::None || (data.hidden && !is_top) {
            return Ok(());
        }
        let pair = self.open_or_take(dir).map_err(|e| self.failed_at(dir, "open", e))?;
        let synced = if is_top { pair.to.sync_file_system() } else { pair.to.sync() };
        synced.map_err(|e| self.failed_at(dir, "sync", e))
    }

    /// Gives a directory its final name.
    fn show(&self, dir: DirRef<'_, CopyDir>, hidden: &CStr) -> Result<(), CopyError> {
        let failed = |what, e| self.failed_at(dir, what, e);
        let (parent, name);
        let above = match dir.parent() {
            Some(above) => {
                parent = self.open_or_take(above).map_err(|e| failed("open", e))?;
                name = c_name(dir.name()).map_err(|e| failed("open", e))?;
                &parent.to
            }
            None => {
                let root = &self.roots.to[dir.root()];
                name = root.name.clone();
                &self.roots.parents[root.parent].dir
            }
        };
        let renamed = make::rename(above, hidden, above, &name, false);
        renamed.map_err(|e| failed("give its name to", e))?;
        dir.data().shown.store(true, Ordering::Release);
        Ok(())
    }

    fn open_or_take(&self, dir: DirRef<'_, CopyDir>) -> io::Result<Arc<Pair>> {
        if let Some((at, pair)) = &self.at
            && *at == dir.data().id
        {
            return Ok(Arc::clone(pair));
        }
        let held = locked(&dir.data().pair).clone();
        held.map_or_else(|| self.open_pair(dir).map(Arc::new), Ok)
    }

    // ---- what is no directory

    fn one(&mut self, at: At<'_>, name: &[u8], kind: Kind) -> Ended {
        self.name.clear();
        self.name.extend_from_slice(name);
        self.name.push(0);
        let held_name = std::mem::take(&mut self.name);
        let ended = self.one_named(at, &held_name, kind);
        self.name = held_name;
        ended
    }

    fn one_named(&mut self, at: At<'_>, name: &[u8], kind: Kind) -> Ended {
        let roots = self.roots;
        let paths = || at.paths(roots, name);
        let name = CStr::from_bytes_with_nul(name)
            .map_err(|_| CopyError::cannot("copy", &paths().0, "its name holds a zero byte"))?;
        match at {
            At::In(dir) => {
                let pair = self.pair_of(dir).map_err(|e| CopyError::io("open", paths().0, e))?;
                let way = Way {
                    from: &pair.from,
                    from_name: name,
                    follow: self.run.options.follow == Follow::Always,
                    to: &pair.to,
                    to_name: name,
                    hidden: dir.data().hidden,
                    home: dir.data().home,
                    paths: &paths,
                };
                self.along(&way, at, kind)
            }
            At::Root(root, _) => {
                let from = self.above(root).map_err(|e| CopyError::io("open", paths().0, e))?;
                let to = &roots.to[root];
                let parent = &roots.parents[to.parent];
                let way = Way {
                    from: &from,
                    from_name: name,
                    follow: self.run.options.follow != Follow::Never,
                    to: &parent.dir,
                    to_name: &to.name,
                    hidden: false,
                    home: parent.home,
                    paths: &paths,
                };
                let ended = self.along(&way, at, kind);
                self.above = roots.from[root].parent().map(|p| (p.to_owned(), from));
                ended
            }
        }
    }

    /// The directory that holds a source that is no directory.
    fn above(&mut self, root: usize) -> io::Result<Dir> {
        let parent = self.roots.from[root].parent().unwrap_or(Path::new(""));
        if let Some((path, dir)) = self.above.take()
            && path == parent
        {
            return Ok(dir);
        }
        Dir::open_path_only(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
    }

    fn along(&mut self, way: &Way<'_>, at: At<'_>, kind: Kind) -> Ended {
        if kind != Kind::Regular {
            // What a followed link leads to is copied, not the link.
            let follow = way.follow && kind != Kind::Symlink;
            let attr = attr::of_name(way.from, way.from_name, follow)
                .map_err(|e| way.failed_from("ask for", e))?;
            if attr.kind != kind {
                return Err(way.changed("was replaced by something else"));
            }
            let Some(there) = file::look(self.run, way, &attr)? else { return Ok(Done::Skipped) };
            let run = self.run;
            resume::make_room(run, way)?;
            return self.linked(way, at, &attr, &there, |_| special::copy(run, way, &attr, &there));
        }
        let source = Source::open(way)?;
        let attr = source.attr;
        let run = self.run;
        if resume::is_whole(run, way, &attr) && self.stays(way, at, &attr) {
            return Ok(Done::Resumed);
        }
        let Some(there) = file::look(run, way, &attr)? else { return Ok(Done::Skipped) };
        resume::make_room(run, way)?;
        self.linked(way, at, &attr, &there, |buffer| file::copy(run, way, source, &there, buffer))
    }

    /// Whether what an earlier copy made of a file stays. It does not where another name of the file was
    /// copied anew meanwhile: it becomes a further name of that.
    fn stays(&self, way: &Way<'_>, at: At<'_>, attr: &Attr) -> bool {
        if !self.may_have_more_names(way, attr) {
            return true;
        }
        let is_first = self.run.links.claim(attr.identity()).is_none();
        if is_first {
            self.run.links.made(attr.identity(), Some(at.place(way.from_name)));
        }
        is_first
    }

    /// Whether a file may be met again under another name; one that links lead to has theirs too.
    fn may_have_more_names(&self, way: &Way<'_>, attr: &Attr) -> bool {
        self.run.options.preserve.links && (attr.links > 1 || way.follow)
    }

    /// Copies, or makes a further name of a copy that was made before.
    fn linked(
        &mut self,
        way: &Way<'_>,
        at: At<'_>,
        attr: &Attr,
        there: &There,
        copy: impl FnOnce(&mut Buffer) -> Ended,
    ) -> Ended {
        if !self.may_have_more_names(way, attr) {
            return copy(&mut self.buffer);
        }
        if let Some(place) = self.run.links.claim(attr.identity()) {
            match self.link(way, &place, there) {
                Ok(()) => return Ok(Done::Linked),
                // Too many names, or a file system without them, or another one: a copy of its own.
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(errno::EMLINK | errno::EPERM | errno::EXDEV)
                    ) =>
                {
                    return copy(&mut self.buffer);
                }
                Err(e) => return Err(way.failed_to("link", e)),
            }
        }
        let ended = copy(&mut self.buffer);
        let place = ended.is_ok().then(|| at.place(way.from_name));
        self.run.links.made(attr.identity(), place);
        ended
    }

    fn link(&self, way: &Way<'_>, place: &Place, there: &There) -> io::Result<()> {
        let (dir, name);
        let from = match place {
            Place::In(kept, kept_name) => {
                dir = self.target_of(kept.get())?;
                name = c_name(kept_name)?;
                &dir
            }
            Place::Root(root) => {
                let to = &self.roots.to[*root];
                name = to.name.clone();
                &self.roots.parents[to.parent].dir
            }
        };
        match there {
            There::Nothing => make::link(from, &name, way.to, way.to_name),
            There::Old(_) => {
                let linked = |hidden: &CStr| make::link(from, &name, way.to, hidden);
                let (hidden, ()) = with_hidden_name(way.to_name, linked)?;
                let renamed = make::rename(way.to, &hidden, way.to, way.to_name, true);
                // Two names of one file are not renamed onto each other: the hidden one stays then, too.
                let removed = make::remove(way.to, &hidden);
                renamed?;
                match removed {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                    result => result,
                }
            }
        }
    }

    fn entry_of(&mut self, at: At<'_>, name: &[u8], kind: Kind) -> Control {
        if self.run.ends() {
            return Control::Stop;
        }
        let roots = self.roots;
        let ended = match kind {
            Kind::Symlink if self.run.options.follow == Follow::Always => {
                let (path, _) = at.paths(roots, name);
                let why = "the symbolic link leads nowhere";
                Err(CopyError::cannot("copy", &path, why))
            }
            Kind::Regular | Kind::Symlink => self.one(at, name, kind),
            _ if !self.run.options.recursive => {
                let why = format!("it is a {}; give -r to copy it as such", kind.singular());
                Err(CopyError::cannot("copy", &at.paths(roots, name).0, why))
            }
            _ => self.one(at, name, kind),
        };
        if let (At::In(dir), Ok(Done::Copied(bytes))) = (at, &ended) {
            dir.data().holds(*bytes);
        }
        self.done(kind, ended, &|| at.paths(roots, name));
        self.goes_on()
    }
}

/// Where an entry was found.
#[derive(Clone, Copy)]
enum At<'a> {
    In(DirRef<'a, CopyDir>),
    Root(usize, &'a Path),
}

impl At<'_> {
    fn paths(&self, roots: &Roots, name: &[u8]) -> (PathBuf, PathBuf) {
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        match self {
            Self::In(dir) => (dir.path_of(name), target_path(roots, Some(*dir), dir.root(), name)),
            Self::Root(root, path) => ((*path).to_owned(), roots.to[*root].path.clone()),
        }
    }

    fn place(&self, name: &CStr) -> Place {
        match self {
            Self::In(dir) => Place::In(dir.keep(), name.to_bytes().into()),
            Self::Root(root, _) => Place::Root(*root),
        }
    }
}

/// Numbers of errors without a stable kind.
mod errno {
    pub(super) const EMLINK: i32 = 31;
    pub(super) const EPERM: i32 = 1;
    pub(super) const EXDEV: i32 = 18;
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the names in the directories that sources went into to their devices.
pub(crate) fn sync_parents(run: &Run<'_>, roots: &Roots, errors: &mut Errors) {
    for (number, parent) in roots.parents.iter().enumerate() {
        let synced = match run.options.durable {
            Durable::None => return,
            Durable::File => parent.dir.sync(),
            Durable::Full => parent.dir.sync().and_then(|()| parent.dir.sync_file_system()),
        };
        let of = roots.to.iter().find(|to| to.parent == number);
        if let Err(error) = synced {
            let path = of.and_then(|to| to.path.parent()).unwrap_or(Path::new("."));
            errors.add(CopyError::io("sync", path.to_owned(), error));
        }
    }
}
