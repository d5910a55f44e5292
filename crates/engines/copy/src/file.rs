//! Copies one file with content: from an open source to a complete target under its final name.
//!
//! ```text
//! open source ─► stat ─► new file without a final name ─► content ─► stat again ─► owner,
//!     attributes, mode, times ─► (sync) ─► close ─► final name
//! ```
//!
//! The final name comes last: at any moment the target is absent, the old file, or complete. If the
//! second stat differs from the first, a small source is copied again a few times. If it still
//! changes, as a log file does, it is copied up to the size at which it was opened, and reported.
//! A small file in a new tree costs eight system calls: open, stat, read, stat and close for the
//! source; create, write and close for the target.
//!
//! A file that is written in place (see `crate::place`) is opened and truncated instead. So is the
//! target of a pipe or device, which can go on for ever. A new target of such a source has its final name from
//! the start, and keeps the data that it has if the copy fails or is interrupted. An old file that gets a backup or
//! is removed is renamed or removed before that.

mod replacing;

use crate::backup::Kept;
use crate::content::Transferred;
use crate::context::CopyContext;
use crate::error::{CopyError, MODIFIED, Reason};
use crate::evidence::Evidence;
use crate::file_transfer::{FileTransfer, has_holes};
use crate::links::{Copied, EntryResult, Outcome};
use crate::meta::{Creation, FileRef};
use crate::mode::Mode;
use crate::new_file::{Destination, NewFile, Replace, part_name};
use crate::options::{Durable, Existing, Preserve};
use crate::plan::SMALL_BYTES;
use crate::resume;
use crate::route::{Route, Source, TargetState};
use crate::streams;
use ioloom_failure::Operation;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::dir::Kind;
use ioloom_sys::{make, transfer};
use rustix::io::Errno;
use std::cmp::Ordering::{Greater, Less};
use std::ffi::{CStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum number of attempts to copy a source that changes during the copy.
const TRIES: u32 = 3;

/// Maximum size of a source that is copied again after a change, in bytes.
const RETRY_BYTES_MAX: u64 = 64 << 20;

/// Buffer size. It exceeds the largest small file, so a short read indicates the end of the file.
pub(crate) const BUFFER_BYTES: usize = SMALL_BYTES as usize + 4096;

/// Time between two attempts to open a pipe that has no reader.
const PIPE_WAIT: Duration = Duration::from_millis(20);

/// Mode of a new file until it takes over the attributes of the file that it replaces.
const PRIVATE: u32 = 0o600;

/// Copies an open source to its target.
pub(crate) fn copy(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    mut source: Source,
    mut target: TargetState,
    buffer: &mut Buffer,
) -> EntryResult {
    let kind = source.attr.kind;
    if source.is_stream()
        && let TargetState::Replace(old) = target
    {
        target = TargetState::InPlace(old);
    }
    streams::check(context, route, &source, &target)?;
    let (mut tries, mut tolerant) = (1, false);
    loop {
        let final_names = context.final_names.load(Ordering::Relaxed);
        let no_unnamed = context.no_unnamed.load(Ordering::Relaxed);
        let names = (final_names, no_unnamed);
        let attempt = Attempt { context, route, source: &source, target, tolerant, names };
        let error = match attempt.run(buffer) {
            Ok(copied) => {
                source.file.close().map_err(|e| route.failed_from(Operation::Close, e))?;
                return Ok(Outcome::Copied(copied));
            }
            Err(error) => error,
        };
        match (&error.reason, target) {
            // What went into a pipe or device cannot be written again.
            (Reason::Changed(_), _) if !tolerant && !attempt.writes_stream() => {
                if tries < TRIES && source.attr.bytes <= RETRY_BYTES_MAX {
                    tries += 1;
                } else if context.options.strict_source || attempt.needs_its_method() {
                    return Err(error);
                } else {
                    tolerant = true;
                }
                source = Source::open(route, kind)?;
            }
            (_, TargetState::Replace(old)) if attempt.must_be_in_place(&error) => {
                target = TargetState::InPlace(old);
            }
            (_, TargetState::Absent)
                if error.operation == Operation::Publish
                    && is_unsupported(&error)
                    && !final_names =>
            {
                context.final_names.store(true, Ordering::Relaxed);
            }
            // Without /proc, older kernels let only privileged users link an unnamed file.
            (_, TargetState::Absent)
                if error.operation == Operation::Publish
                    && error.errno() == Some(Errno::NOENT)
                    && !no_unnamed =>
            {
                context.no_unnamed.store(true, Ordering::Relaxed);
            }
            _ => return Err(attempt.advised(error)),
        }
    }
}

/// Returns true if the file system lacks the call.
fn is_unsupported(error: &CopyError) -> bool {
    matches!(error.errno(), Some(Errno::NOSYS | Errno::OPNOTSUPP))
}

/// One attempt to copy a file.
struct Attempt<'a> {
    context: &'a CopyContext<'a>,
    route: &'a Route<'a>,
    source: &'a Source,
    target: TargetState,
    /// Whether a source that changes is copied in part.
    tolerant: bool,
    /// Whether new files have their final names, and whether no file is unnamed. Other threads can find out during the
    /// attempt.
    names: (bool, bool),
}

impl<'a> Attempt<'a> {
    fn run(&self, buffer: &mut Buffer) -> Result<Copied, CopyError> {
        let (context, route, source) = (self.context, self.route, self.source);
        let _turn = match self.target {
            TargetState::InPlace(end) if end.kind == Kind::Regular => {
                Some(context.turns.take(end.identity()))
            }
            _ => None,
        };
        let old = self.make_room()?;
        let mut new = match self.open_new() {
            Ok(new) => new,
            Err(error) => {
                old.into_iter().for_each(Kept::undo);
                return Err(error);
            }
        };
        let mine = AtomicU64::new(0);
        let transfer = FileTransfer {
            context,
            route,
            source,
            new: &new,
            mine: &mine,
            tolerant: self.tolerant,
            writes_stream: self.writes_stream(),
        };
        let moved = match context.options.attributes_only {
            true => Ok(Transferred { bytes: 0, hash: None, mode: None }),
            false => transfer.bytes(buffer),
        };
        let moved = moved.and_then(|moved| Ok((self.change(&moved)?, moved)));
        let stays = source.is_stream() && new.stay_with_data();
        let moved_away = old.as_ref().map(|old| old.name().to_owned());
        let finished = match moved {
            Ok((change, moved)) => {
                let (mode, end) = (moved.mode, moved.bytes);
                self.finish(new, moved).map(|finished| (change, finished, mode, end))
            }
            Err(error) => {
                self.give_up(new, &error);
                Err(error)
            }
        };
        if finished.is_err() {
            context.meter(&mine).take_back_to(0);
            old.into_iter().filter(|_| !stays).for_each(Kept::undo);
        }
        let (change, (backup, evidence), mode, end) = finished?;
        let backup = backup.or(moved_away);
        context.copied_file(mode, &evidence);
        let bytes = mine.load(Ordering::Relaxed);
        if let Some(how) = change {
            let (path, _) = (route.paths)();
            let reason = Reason::Partly { how, bytes: end };
            context.failed(CopyError { operation: Operation::Copy, path, other: None, reason });
        }
        let removed = backup.is_none() && matches!(self.target, TargetState::Fresh);
        let attr = &source.attr;
        let finds_holes = has_holes(context, attr) && attr.blocks_512 * 512 < attr.bytes;
        Ok(Copied { bytes, backup, removed, mode, finds_holes, evidence })
    }

    /// Ends a file whose content could not be copied to its end.
    fn give_up(&self, new: NewFile<'a>, error: &CopyError) {
        let _cleaning = self.context.cleaning();
        if self.in_pieces() && !matches!(error.reason, Reason::Changed(_)) {
            // A later copy resumes from the pieces recorded in the journal.
            new.leave();
        } else {
            // Removing a large file takes time, too.
            drop(new);
        }
    }

    /// Makes room for the copy of a pipe or device, which has its name from the start: gives the old file
    /// the name of its backup, or removes it. Returns the backup.
    fn make_room(&self) -> Result<Option<Kept<'a>>, CopyError> {
        let route = self.route;
        if !(self.source.is_stream() && matches!(self.target, TargetState::Fresh)) {
            return Ok(None);
        }
        let Some(backup) = &self.context.options.backup else {
            return self.remove_old().map(|()| None);
        };
        let kept = Kept::move_away(backup, route.to, route.to_name);
        kept.map(Some).map_err(|e| route.failed_to(Operation::Backup, e))
    }

    fn remove_old(&self) -> Result<(), CopyError> {
        match make::remove(self.route.to, self.route.to_name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(self.route.failed_to(Operation::Remove, e))
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the content must be copied by a method that cannot copy a changing source.
    fn needs_its_method(&self) -> bool {
        !matches!(self.context.pinned_other_than_buffered(), None | Some(Mode::Reflink))
    }

    fn in_pieces(&self) -> bool {
        let resumes = self.context.resume.get().is_some() && !self.tolerant;
        resumes
            && !self.source.is_stream()
            && resume::in_pieces(self.context, self.route, &self.source.attr)
    }

    /// Returns true if the target is a pipe or device.
    fn writes_stream(&self) -> bool {
        streams::written(&self.target).is_some()
    }

    fn destination(&self) -> Destination {
        let append_only = self.route.parent_attr.append_only;
        let (final_names, no_unnamed) = self.names;
        let is_visible = self.source.is_stream() || final_names || (append_only && no_unnamed);
        match self.target {
            _ if self.route.hidden => Destination::Hidden,
            TargetState::Absent if is_visible => Destination::Visible,
            TargetState::Fresh if self.source.is_stream() => Destination::Visible,
            TargetState::Absent if append_only => Destination::Fixed,
            TargetState::Absent => {
                // What another program creates meanwhile has no backup.
                let options = self.context.options;
                let replace = options.existing == Existing::Replace && options.backup.is_none();
                let hidden = options.durable != Durable::None || no_unnamed;
                Destination::Free { replace, hidden }
            }
            _ => Destination::Occupied,
        }
    }

    /// Returns the attributes of the source as those of a file, which the copy of a pipe or device is: it gets no set-id
    /// bits from its source.
    fn source_attr(&self) -> Attr {
        Attr { kind: Kind::Regular, ..self.source.attr }
    }

    /// Returns the mode with which to create the file.
    fn initial_mode(&self) -> u32 {
        let rules = &self.context.rules;
        let mode = rules.initial_mode(&self.source_attr());
        match self.destination() {
            Destination::Visible | Destination::Fixed | Destination::Free { hidden: true, .. } => {
                rules.visible_mode(mode)
            }
            // Under a hidden name, which others can open: the group bits of a file with an ACL are
            // not those of the group. Also the replacement of a file that cannot be opened.
            Destination::Occupied => rules.visible_mode(mode),
            _ => mode,
        }
    }

    /// Creates or opens the file to write.
    fn open_new(&self) -> Result<NewFile<'a>, CopyError> {
        let (context, route) = (self.context, self.route);
        let failed = |e| route.not_made(context.options, &self.target, (Operation::Create, e));
        let mode = self.initial_mode();
        let new = |destination, mode| NewFile::make(route.to, route.to_name, destination, mode);
        match self.target {
            TargetState::InPlace(end) => return self.open_in_place(end),
            TargetState::Dangling => {
                let file = make::file_through(route.to, route.to_name, mode).map_err(failed)?;
                return Ok(NewFile::in_place(route.to, route.to_name, file));
            }
            _ => {}
        }
        if let Some(resume) = context.resume.get().filter(|_| self.in_pieces()) {
            let hidden = part_name(route.to_name, resume.number);
            let replaces = matches!(self.target, TargetState::Replace(_));
            let modes = (if replaces { PRIVATE } else { mode }, context.rules.umask());
            let made =
                NewFile::resumable(route.to, route.to_name, self.destination(), hidden, modes)
                    .map_err(failed)?;
            self.check_flags(&made)?;
            if let (TargetState::Replace(old), false) = (self.target, context.rules.is_root()) {
                // The file still belongs to this user, who can go on with it later.
                self.take_over_owner(&old, &made)?;
            }
            return Ok(made);
        }
        let TargetState::Replace(old) = self.target else {
            return new(self.destination(), mode).map_err(failed);
        };
        // The old file may be writable even if its directory is not.
        let made = new(Destination::Occupied, PRIVATE);
        let made = made.map_err(|e| route.failed_to(Operation::CreateBeside, e))?;
        self.check_flags(&made)?;
        self.take_over_owner(&old, &made)?;
        Ok(made)
    }

    fn open_in_place(&self, end: Attr) -> Result<NewFile<'a>, CopyError> {
        let route = self.route;
        self.check_before_emptying(&end)?;
        match self.wait_to_open(end) {
            Ok(file) => Ok(NewFile::in_place(route.to, route.to_name, file)),
            Err(e)
                if self.context.options.force
                    && e.kind() != io::ErrorKind::NotFound
                    && !self.context.cancelled() =>
            {
                if route.parent_attr.append_only {
                    return Err(route.failed_to(Operation::Remove, Errno::PERM.into()));
                }
                let mode = self.initial_mode();
                let destination = match self.source.is_stream() {
                    true => self.remove_old().map(|()| Destination::Visible)?,
                    false => Destination::Occupied,
                };
                let made = NewFile::make(route.to, route.to_name, destination, mode);
                made.map_err(|e| {
                    route.not_made(self.context.options, &self.target, (Operation::Create, e))
                })
            }
            Err(e) if self.context.cancelled() => {
                let _ = e;
                Err(route.cancelled())
            }
            Err(e) => Err(self.unwritable(e)),
        }
    }

    /// Opens an existing file for writing. A pipe is waited for until it has a reader.
    fn wait_to_open(&self, end: Attr) -> io::Result<OwnedFd> {
        let truncate = !self.context.options.attributes_only && end.kind == Kind::Regular;
        loop {
            let opened = make::open_in_place(self.route.to, self.route.to_name, truncate);
            match opened {
                Err(e)
                    if end.kind == Kind::Fifo
                        && Errno::from_io_error(&e) == Some(Errno::NXIO)
                        && !self.context.cancelled() =>
                {
                    std::thread::sleep(PIPE_WAIT);
                }
                opened => return opened,
            }
        }
    }

    /// Checks whether the source changed during the copy; returns how if that is tolerated. Blocks are
    /// shared at one moment, so only preserved times could belong to older content.
    fn change(&self, moved: &Transferred) -> Result<Option<&'static str>, CopyError> {
        let options = self.context.options;
        let is_atomic = moved.mode == Some(Mode::Reflink) && !options.preserve.times;
        if self.source.is_stream() || options.attributes_only || is_atomic {
            return Ok(None);
        }
        let after = attr::of_file(&self.source.file)
            .map_err(|e| self.route.failed_from(Operation::Stat, e))?;
        let before = &self.source.attr;
        let how = match after.bytes.cmp(&before.bytes) {
            Less => "shrank",
            Greater => "grew",
            _ if !before.same_content(&after) => MODIFIED,
            _ => return Ok(None),
        };
        let is_stream = self.writes_stream() && !options.strict_source;
        match how {
            // It was read to its end, as by GNU cp.
            "grew" if is_stream && moved.bytes == after.bytes => Ok(None),
            _ if is_stream || self.tolerant => Ok(Some(how)),
            _ => Err(self.route.changed(how)),
        }
    }

    /// Finishes a file whose content has been written: verifies it if requested, applies the
    /// preserved attributes and then gives it its final name. Returns the name of the backup of the
    /// old file, and the evidence from the verification.
    fn finish(
        &self,
        new: NewFile<'a>,
        moved: Transferred,
    ) -> Result<(Option<OsString>, Evidence), CopyError> {
        let (context, route) = (self.context, self.route);
        let options = context.options;
        let mut evidence = Evidence::default();
        if options.verify.reads_again() && !options.attributes_only {
            let hash = moved.hash.as_deref();
            evidence = crate::verify::check(context, route, new.file(), moved.bytes, hash)?;
        }
        if let (TargetState::Replace(old), true) = (self.target, self.in_pieces()) {
            // Until now it belonged to root, who may have to go on with it later.
            self.take_over_owner(&old, &new)?;
        }
        self.put_attributes(&new);
        let is_synced = streams::can_be_synced(&self.target) && !route.hidden;
        if options.durable != Durable::None && is_synced {
            transfer::sync_all(new.file()).map_err(|e| route.failed_to(Operation::Sync, e))?;
        }
        // Under its name, it could be that of another program.
        let made = context.resume.get().map(|_| attr::of_file(new.file())).transpose();
        let made = made.map_err(|e| route.failed_to(Operation::Stat, e))?;
        let backup = self.give_name(new)?;
        if let Some(hash) = moved.hash {
            context.hashed(route, hash, moved.bytes);
        }
        if let (Some(resume), Some(made)) = (context.resume.get(), made) {
            resume::record_complete(resume, route, (&self.source.attr, &made))?;
        }
        Ok((backup, evidence))
    }

    /// Gives a file its final name, and makes a backup of the old one if requested. Returns the name of the backup.
    fn give_name(&self, new: NewFile<'a>) -> Result<Option<OsString>, CopyError> {
        let route = self.route;
        let kept = match (&self.context.options.backup, self.target) {
            (Some(backup), TargetState::Fresh) if !self.source.is_stream() => {
                let kept = Kept::make(backup, route.to, route.to_name);
                Some(kept.map_err(|e| route.failed_to(Operation::Backup, e))?)
            }
            _ => None,
        };
        let backup = kept.as_ref().map(|kept| kept.name().to_owned());
        let by = kept.as_ref().map(|kept| |hidden: &CStr| kept.replace_by(route.to, hidden));
        let by = by.as_ref().map(|by| by as Replace<'_>);
        let mut named = false;
        if let Err((operation, error)) = new.publish(by, &mut named) {
            // With its name, the new file may be damaged: the old one stays under that of the backup.
            kept.into_iter().filter(|_| !named).for_each(Kept::undo);
            return Err(route.not_published(&self.target, operation, error));
        }
        Ok(backup)
    }

    fn put_attributes(&self, new: &NewFile<'_>) {
        let (context, route) = (self.context, self.route);
        let rules = &context.rules;
        let (from, on) =
            (FileRef::Open(self.source.file.as_fd()), FileRef::Open(new.file().as_fd()));
        let mode = self.initial_mode();
        let mut made = Creation::file(mode, route.parent_attr);
        let to = || (route.paths)().1;
        // A new file can take the place of one that could not be opened.
        let target = match self.target {
            TargetState::InPlace(_) if !new.is_in_place() => TargetState::Fresh,
            target => target,
        };
        match target {
            TargetState::InPlace(end) => {
                (made.is_old, made.owner) = (true, Some((end.user, end.group)));
            }
            TargetState::Replace(old) => {
                // It is a new file, but without preserved permissions it has those of the old one.
                (made.mode, made.is_old) = (PRIVATE, !context.options.preserve.mode);
                let has_it =
                    self.takes_over_owner() || rules.is_owner_of_new(&old, on, route.parent_attr);
                made.owner = has_it.then_some((old.user, old.group));
                let old_on = FileRef::Name(route.to, route.to_name);
                let failed = rules.take_over_attributes(&old, old_on, on, route.parent_attr);
                context.failed_attributes(failed, to);
            }
            TargetState::Absent | TargetState::Fresh | TargetState::Dangling => {}
        }
        let is_new =
            matches!(target, TargetState::Absent | TargetState::Fresh | TargetState::Dangling);
        if !is_new && context.options.preserve == Preserve::default() {
            return;
        }
        context.failed_attributes(rules.put(&self.source_attr(), from, on, made), to);
    }
}
