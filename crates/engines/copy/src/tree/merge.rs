//! Moves the contents of a finished hidden directory into one that another program created in the
//! meantime under the final name: two copies into one directory merge, and neither is lost.

use crate::backup::Kept;
use crate::context::CopyContext;
use crate::error::CopyError;
use crate::meta::{Creation, DirModes, FileRef, OWNER_ALL, ParentAttr};
use crate::newer;
use crate::options::{Durable, Existing, Follow, Preserve};
use crate::report::{Counts, Tally};
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind, ReadBuffer};
use ioloom_sys::make;
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// What a merge left in the hidden directory, by path below that, and what of it was not counted as copied.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Directories that were merged into existing ones.
    merged: HashSet<Vec<u8>>,
    /// Number of entries whose existing targets were kept.
    kept: u64,
    counts: Counts,
    /// An estimate for files with holes.
    bytes: u64,
    /// Regular files, which can have hashes.
    files: HashSet<Vec<u8>>,
}

impl Left {
    /// Adds an entry that is about to be removed; `None` for a directory.
    pub(super) fn add(&mut self, below: &[u8], found: Option<&Attr>) {
        if found.is_none() && self.merged.contains(below) {
            return;
        }
        self.counts.add_removed(found);
        if let Some(found) = found.filter(|found| found.kind == Kind::Regular) {
            self.files.insert(below.to_vec());
            // Holes were not copied.
            let is_last = found.links == 1;
            self.bytes += if is_last { found.bytes.min(found.blocks_512 * 512) } else { 0 };
        }
    }

    /// Takes the entries out of the result; returns the number of those whose existing targets were kept.
    pub(super) fn report(&self, context: &CopyContext<'_>, path: &Path, tally: &Tally) -> u64 {
        let bytes = self.bytes.min(tally.bytes.load(Ordering::Relaxed));
        context.not_moved(&self.counts, bytes, |of| {
            let below = of.strip_prefix(path).ok();
            below.is_some_and(|below| self.files.contains(below.as_os_str().as_bytes()))
        });
        self.kept
    }
}

/// What happened to one entry.
enum Moved {
    Yes,
    /// The existing target stays.
    Kept,
    /// Both are directories, which remain to be merged.
    Below,
}

/// Moves everything that can be moved; what remains in `from` has been reported. `source` is the
/// directory that was copied, `path` the final path of its copy.
pub(super) fn merge(
    context: &CopyContext<'_>,
    (from, to): (&Dir, &Dir),
    source: &Path,
    path: &Path,
) -> io::Result<Left> {
    let mut left = Left::default();
    let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(below) = waiting.pop() {
        let (from, to) = (from.open_below(&below)?, to.open_below(&below)?);
        let copied = attr::of_file(&from)?;
        if copied.mode & OWNER_ALL != OWNER_ALL {
            attr::set_mode(&from, copied.mode | OWNER_ALL)?;
        }
        context.links_move(copied.identity(), &to)?;
        let mut names = Vec::new();
        from.read(&mut ReadBuffer::new(), &mut |entry| {
            names.extend(CString::new(entry.name));
            true
        })?;
        let (source, at) =
            (source.join(OsStr::from_bytes(&below)), path.join(OsStr::from_bytes(&below)));
        for name in names {
            let pair = Both { context, from: &from, to: &to, source: &source, at: &at };
            let here = || {
                let separator: &[u8] = if below.is_empty() { b"" } else { b"/" };
                [below.as_slice(), separator, name.to_bytes()].concat()
            };
            match pair.move_one(&name) {
                Ok(Moved::Yes) => {}
                Ok(Moved::Kept) => left.kept += 1,
                Ok(Moved::Below) => waiting.push(here()),
                Err(error) => context.failed(error),
            }
        }
        put_attributes(context, (&copied, &from), &to, &at)?;
        if context.options.durable != Durable::None {
            to.sync()?;
        }
        left.merged.insert(below);
    }
    Ok(left)
}

/// Gives the existing directory the attributes that were preserved for the new one.
fn put_attributes(
    context: &CopyContext<'_>,
    (source, from): (&Attr, &Dir),
    to: &Dir,
    at: &Path,
) -> io::Result<()> {
    if context.options.preserve == Preserve::default() {
        return Ok(());
    }
    let modes = DirModes { found: attr::of_file(to)?.mode, withheld: 0 };
    let made = Creation::dir(source.mode, ParentAttr::default(), true, modes);
    let (from, on) = (FileRef::Open(from.as_fd()), FileRef::Open(to.as_fd()));
    context.failed_attributes(context.rules.put(source, from, on, made), || at.to_owned());
    Ok(())
}

/// A hidden directory and the one that exists under its name.
struct Both<'a> {
    context: &'a CopyContext<'a>,
    from: &'a Dir,
    to: &'a Dir,
    source: &'a Path,
    at: &'a Path,
}

impl Both<'_> {
    /// Moves one entry.
    fn move_one(&self, name: &CString) -> Result<Moved, CopyError> {
        let path = || self.at.join(OsStr::from_bytes(name.to_bytes()));
        let failed = |operation, e| CopyError::io(operation, path(), e);
        match make::rename(self.from, name, self.to, name, false) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return self
                    .move_closed(name)
                    .map(|()| Moved::Yes)
                    .map_err(|_| failed(Operation::Publish, e));
            }
            moved => return moved.map(|()| Moved::Yes).map_err(|e| failed(Operation::Publish, e)),
        }
        let stat = |dir| attr::of_name(dir, name, false).map_err(|e| failed(Operation::Stat, e));
        let (new, old) = (stat(self.from)?, stat(self.to)?);
        let whole = |text: String| Err(CopyError::whole(&path(), text));
        match (new.kind == Kind::Directory, old.kind == Kind::Directory) {
            (true, true) => return Ok(Moved::Below),
            (true, false) => {
                let text = "cannot overwrite non-directory";
                return whole(format!("{text} {} with a directory", quoted(&path())));
            }
            (false, true) => {
                let text = "cannot overwrite directory";
                return whole(format!("{text} {} with non-directory", quoted(&path())));
            }
            (false, false) => {}
        }
        let stays = match self.context.options.existing {
            Existing::Keep => true,
            Existing::Update | Existing::UpdateAsk => {
                let cuts = self.context.options.preserve.times;
                let modified = self.modified(name, &new);
                let has_long_steps = || newer::has_long_steps(self.to, name, &old);
                !newer::is_newer(modified, &old, cuts, has_long_steps)
            }
            Existing::Replace | Existing::Ask => false,
        };
        let asks = matches!(self.context.options.existing, Existing::Ask | Existing::UpdateAsk);
        if stays || (asks && !self.context.watcher.may_replace(&path(), &old)) {
            return Ok(Moved::Kept);
        }
        let kept = match &self.context.options.backup {
            Some(backup) => {
                Some(Kept::make(backup, self.to, name).map_err(|e| failed(Operation::Backup, e))?)
            }
            None => None,
        };
        let moved = match &kept {
            Some(kept) => kept.replace_by(self.from, name),
            None => make::rename(self.from, name, self.to, name, true),
        };
        if moved.is_err() {
            kept.into_iter().for_each(Kept::undo);
        }
        moved.map(|()| Moved::Yes).map_err(|e| failed(Operation::Publish, e))
    }

    /// Moves a directory that this user may not change, which changing its parent does.
    fn move_closed(&self, name: &CString) -> io::Result<()> {
        let mode = attr::of_name(self.from, name, false)?.mode;
        attr::set_mode_at(self.from, name, mode | OWNER_ALL)?;
        // Another program can give the name to something else.
        let moved = self.from.open_child_path_only(name, false)?;
        make::rename(self.from, name, self.to, name, false)?;
        attr::set_mode(&moved, mode)
    }

    /// Returns the time of the last change of a source. Its copy has another one unless times are
    /// preserved.
    fn modified(&self, name: &CString, copy: &Attr) -> attr::Time {
        let follow = self.context.options.follow == Follow::Always;
        let source = attr::of_path(&self.source.join(OsStr::from_bytes(name.to_bytes())), follow);
        source.map_or(copy.modified, |source| source.modified)
    }
}
