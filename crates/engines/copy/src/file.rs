//! Copies one regular file: from an open source to a complete target under its final name.
//!
//! ```text
//! open source ─► stat ─► new file without a final name ─► content ─► stat again ─► owner,
//!     attributes, mode, times ─► (sync) ─► final name
//! ```
//!
//! The final name comes last: at any moment the target is absent, the old file, or complete. If the
//! second stat differs from the first, a small source is copied again a few times, and a large one
//! is reported as changed. A small file in a new tree costs eight system calls: open, stat, read,
//! stat and close for the source; create, write and close for the target.

use crate::context::CopyContext;
use crate::data::{self, Job, TransferError};
use crate::error::{CopyError, Reason};
use crate::facts;
use crate::file_transfer::{FileTransfer, has_holes};
use crate::hash::Hasher;
use crate::links::Outcome;
use crate::meta::{Creation, FileRef};
use crate::mode::Mode;
use crate::new_file::{Destination, NewFile, hidden_name};
use crate::options::{Durable, Existing, Preserve, Verify, When};
use crate::plan::{self, CopyPlan, Facts, FileFacts, PlanRequest, SMALL_BYTES};
use crate::resume;
use crate::route::{Route, Source, TargetState};
use ioloom_failure::Operation;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::dir::Kind;
use ioloom_sys::{file, transfer};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of attempts to copy a source that changes during the copy.
const TRIES: u32 = 3;

/// Maximum size of a source that is copied again after a change, in bytes.
const RETRY_BYTES_MAX: u64 = 64 << 20;

/// Buffer size. It exceeds the largest small file, so a short read indicates the end of the file.
pub(crate) const BUFFER_BYTES: usize = SMALL_BYTES as usize + 4096;

/// Inspects the target and decides whether to write it. Returns `None` if it is kept.
pub(crate) fn inspect_target(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Attr,
) -> Result<Option<TargetState>, CopyError> {
    if route.hidden {
        return Ok(Some(TargetState::Absent));
    }
    let old = match attr::of_name(route.to, route.to_name, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some(TargetState::Absent)),
        result => result.map_err(|e| route.failed_to(Operation::Stat, e))?,
    };
    let refuse = |why: &str| Err(CopyError::cannot(Operation::Replace, &(route.paths)().1, why));
    if old.identity() == source.identity() {
        return refuse("it is the same file as the source");
    }
    if source.kind == Kind::Symlink && leads_to(route, &old) {
        return refuse("the source is a symbolic link to it");
    }
    // A target that is kept can have any type.
    let stays = match context.options.existing {
        Existing::Keep => true,
        Existing::Update | Existing::UpdateAsk => source.modified <= old.modified,
        Existing::Replace | Existing::Ask => false,
    };
    if stays {
        return Ok(None);
    }
    match old.kind {
        Kind::Directory => return refuse("it is a directory and the source is not"),
        Kind::Regular | Kind::Symlink => {}
        kind if source.kind == kind => {}
        kind => {
            return refuse(&format!("it is a {}; ioloom cp only replaces files", kind.singular()));
        }
    }
    let asks = matches!(context.options.existing, Existing::Ask | Existing::UpdateAsk);
    let goes_on = !asks || context.watcher.may_replace(&(route.paths)().1);
    Ok(goes_on.then_some(TargetState::Present(old)))
}

/// Returns true if a source that is a symbolic link points to the file it would replace. Copying it
/// would destroy that file and leave a link to itself.
fn leads_to(route: &Route<'_>, old: &Attr) -> bool {
    let end = attr::of_name(route.from, route.from_name, true);
    old.kind == Kind::Regular && end.is_ok_and(|end| end.identity() == old.identity())
}

/// Copies an open source to its target.
pub(crate) fn copy(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    mut source: Source,
    target: &TargetState,
    buffer: &mut Buffer,
) -> Result<Outcome, CopyError> {
    let mut tries = 1;
    loop {
        match attempt(context, route, &source, target, buffer) {
            Err(CopyError { reason: Reason::Changed(_), .. })
                if tries < TRIES && source.attr.bytes <= RETRY_BYTES_MAX =>
            {
                tries += 1;
                source = Source::open(route)?;
            }
            result => return result,
        }
    }
}

fn attempt(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Source,
    target: &TargetState,
    buffer: &mut Buffer,
) -> Result<Outcome, CopyError> {
    let mode = context.rules.initial_mode(&source.attr);
    let destination = match target {
        _ if route.hidden => Destination::Hidden,
        TargetState::Absent => Destination::Free,
        TargetState::Present(_) => Destination::Occupied,
    };
    let resume = context.resume.get().filter(|_| resume::in_pieces(context, &source.attr));
    let new = match resume {
        Some(resume) => {
            let hidden = hidden_name(route.to_name, resume.number);
            NewFile::resumable(
                route.to,
                route.to_name,
                destination,
                hidden,
                (mode, context.rules.umask()),
            )
        }
        None => NewFile::make(route.to, route.to_name, destination, mode),
    };
    // The old file may be writable even if its directory is not; the message must distinguish the
    // two.
    let operation = match destination {
        Destination::Occupied => Operation::CreateBeside,
        _ => Operation::Create,
    };
    let new = new.map_err(|e| route.failed_to(operation, e))?;
    let mine = AtomicU64::new(0);
    let file_transfer = FileTransfer { context, route, source, new: &new, mine: &mine };
    let moved = file_transfer.bytes(buffer).and_then(|moved| {
        still_the_same(route, source)?;
        Ok(moved)
    });
    let finished = match moved {
        Ok(moved) => finish(context, route, source, target, new, moved),
        Err(error) => {
            if resume.is_some() && !matches!(error.reason, Reason::Changed(_)) {
                // A later copy resumes from the pieces recorded in the journal.
                new.leave();
            }
            Err(error)
        }
    };
    if finished.is_err() {
        context.meter(&mine).take_back_to(0);
    }
    finished.map(|()| Outcome::Copied(mine.load(Ordering::Relaxed)))
}

/// Describes the copied content.
struct Transferred {
    /// Number of bytes read from the source.
    bytes: u64,
    /// The hash, if it was requested and this process saw the bytes.
    hash: Option<String>,
}

/// Finishes a file whose content has been written: verifies it if requested, applies the preserved
/// attributes and then gives it its final name.
fn finish(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Source,
    target: &TargetState,
    new: NewFile<'_>,
    moved: Transferred,
) -> Result<(), CopyError> {
    if context.options.verify.reads_again() {
        crate::verify::check(context, route, &new.file, moved.bytes, moved.hash.as_deref())?;
    }
    let made = Creation::file(context.rules.initial_mode(&source.attr), route.parent_attr);
    if let TargetState::Present(old) = target
        && old.kind == Kind::Regular
    {
        let old_on = FileRef::Name(route.to, route.to_name);
        context.rules.take_over_attributes(old, old_on, FileRef::Open(new.file.as_fd()));
        if context.options.preserve != Preserve::default() {
            put(context, route, source, &new, Creation { is_old: true, ..made })?;
        }
    } else {
        put(context, route, source, &new, made)?;
    }
    if context.options.durable != Durable::None && !route.hidden {
        transfer::sync_all(&new.file).map_err(|e| route.failed_to(Operation::Sync, e))?;
    }
    new.publish().map_err(|e| route.failed_to(Operation::Publish, e))?;
    if let Some(hash) = moved.hash {
        context.hashed(route, hash, moved.bytes);
    }
    if let Some(resume) = context.resume.get() {
        resume::record_complete(resume, route, &source.attr)?;
    }
    Ok(())
}

fn put(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Source,
    new: &NewFile<'_>,
    made: Creation,
) -> Result<(), CopyError> {
    let (from, on) = (FileRef::Open(source.file.as_fd()), FileRef::Open(new.file.as_fd()));
    context.rules.put(&source.attr, from, on, made).map_err(|(what, e)| route.failed_to(what, e))
}

fn still_the_same(route: &Route<'_>, source: &Source) -> Result<(), CopyError> {
    let after = attr::of_file(&source.file).map_err(|e| route.failed_from(Operation::Stat, e))?;
    let before = &source.attr;
    match after.bytes.cmp(&before.bytes) {
        std::cmp::Ordering::Less => Err(route.changed("shrank")),
        std::cmp::Ordering::Greater => Err(route.changed("grew")),
        _ if !before.same_content(&after) => Err(route.changed("was modified")),
        _ => Ok(()),
    }
}

impl FileTransfer<'_> {
    /// Copies the entire content.
    fn bytes(&self, buffer: &mut Buffer) -> Result<Transferred, CopyError> {
        let mut hasher = (self.context.options.verify != Verify::None)
            .then(|| Hasher::new(self.context.options.hash));
        let mut bytes = self.source.attr.bytes;
        let pinned = self.context.pinned_other_than_buffered();
        if let (0, Some(mode)) = (bytes, pinned) {
            self.check_is_empty(mode)?;
            return Ok(Transferred { bytes, hash: hasher.map(Hasher::finish) });
        }
        if bytes > 0 && self.share_blocks()? {
            self.context.count_mode(Mode::Reflink);
            return Ok(Transferred { bytes, hash: None });
        }
        if bytes <= SMALL_BYTES && !self.has_holes() && pinned.is_none() {
            bytes = self.small(buffer, hasher.as_mut())?;
        } else {
            self.large(buffer, hasher.as_mut())?;
        }
        Ok(Transferred { bytes, hash: hasher.map(Hasher::finish) })
    }

    fn has_holes(&self) -> bool {
        has_holes(self.context, &self.source.attr)
    }

    /// Copies a small file with one read and one write; returns the number of bytes copied. The
    /// read requests one byte more than the file size, so a full read indicates that the file grew.
    fn small(&self, buffer: &mut Buffer, hasher: Option<&mut Hasher>) -> Result<u64, CopyError> {
        let (route, attr) = (self.route, &self.source.attr);
        self.context.count_mode(Mode::Buffered);
        if attr.bytes == 0 {
            return self.unsized_source(buffer, hasher);
        }
        let want = attr.bytes as usize + 1;
        let into = &mut buffer.whole_mut()[..want];
        let mut got = file::read_at(&self.source.file, &mut *into, 0)
            .map_err(|e| route.failed_from(Operation::Read, e))?;
        if got < attr.bytes as usize {
            let rest = &mut into[got..];
            got += file::read_full_at(&self.source.file, rest, got as u64)
                .map_err(|e| route.failed_from(Operation::Read, e))?;
        }
        if got < attr.bytes as usize && !self.overstates_its_size()? {
            return Err(route.changed("shrank"));
        }
        if got > attr.bytes as usize {
            return Err(route.changed("grew"));
        }
        let mut rest = buffer.bytes(got);
        if let Some(hasher) = hasher {
            hasher.update(rest);
        }
        let mut at = 0;
        while !rest.is_empty() {
            let n = transfer::write_at(&self.new.file, rest, at)
                .map_err(|e| route.failed_to(Operation::Write, e))?;
            if n == 0 {
                return Err(route.failed_to(Operation::Write, io::ErrorKind::WriteZero.into()));
            }
            rest = &rest[n..];
            at += n as u64;
        }
        self.meter().moved(got as u64);
        Ok(got as u64)
    }

    /// Returns true if a source with a premature end of file is a kernel file (as in /sys). These
    /// report a size of one page regardless of content: such a file occupies no blocks and has not
    /// changed.
    fn overstates_its_size(&self) -> Result<bool, CopyError> {
        let before = &self.source.attr;
        let now = attr::of_file(&self.source.file)
            .map_err(|e| self.route.failed_from(Operation::Stat, e))?;
        Ok(before.blocks_512 == 0 && before.same_content(&now))
    }

    /// Checks that a source of size zero is really empty. Kernel files report size zero but can
    /// have content, which can be discovered only by reading to the end; `mode` cannot copy those.
    fn check_is_empty(&self, mode: Mode) -> Result<(), CopyError> {
        let got = file::read_at(&self.source.file, &mut [0], 0);
        match got.map_err(|e| self.route.failed_from(Operation::Read, e))? {
            0 => Ok(()),
            _ => Err(self.refused(
                mode,
                "the source reports size zero but has content and must be read to the end",
            )),
        }
    }

    fn refused(&self, mode: Mode, why: &'static str) -> CopyError {
        let (path, _) = (self.route.paths)();
        let reason = Reason::Refused(plan::Refused { mode, why });
        CopyError { operation: Operation::Copy, path, reason }
    }

    /// Copies a source that reports size zero, such as a kernel file, by reading to the end.
    fn unsized_source(
        &self,
        buffer: &mut Buffer,
        hasher: Option<&mut Hasher>,
    ) -> Result<u64, CopyError> {
        let plan = CopyPlan::buffered("reported size is zero: read to the end");
        let job = self.job(plan, false);
        data::until_eof(&job, buffer, hasher).map_err(|t| self.route.transfer_error(t))
    }

    fn job(&self, plan: CopyPlan, reserve: bool) -> Job<'_> {
        Job {
            ends: data::borrow(&self.source.file, &self.new.file),
            bytes: self.source.attr.bytes,
            holes: self.has_holes(),
            punch_zeros: self.context.options.sparse == When::Always,
            reserve,
            pinned: self.context.options.mode.is_some(),
            plan,
            meter: self.meter(),
        }
    }

    fn large(&self, buffer: &mut Buffer, mut hasher: Option<&mut Hasher>) -> Result<(), CopyError> {
        let facts = self.facts()?;
        let plan = self.plan(&facts, hasher.is_some())?;
        self.check_free_space(&facts)?;
        let job = self.job(plan, facts.reserves);
        if let Some(resume) = self.context.resume.get()
            && resume::in_pieces(self.context, &self.source.attr)
        {
            self.context.count_mode(resume::copy_pieces(resume, self, &job, buffer, hasher)?);
            return Ok(());
        }
        if buffer.capacity() < plan.buffer_bytes() {
            *buffer = Buffer::new(plan.buffer_bytes());
        }
        let mut mode = plan.mode;
        let moved = match data::transfer(&job, buffer, hasher.as_deref_mut()) {
            Err(TransferError::Unsupported(_)) if self.context.options.mode.is_none() => {
                // The file system claims to support this method, but it fails for this file: start
                // over with the method that always works. The failed attempt may have left the
                // target too long.
                let plan = CopyPlan::fallback();
                mode = plan.mode;
                self.meter().take_back_to(0);
                transfer::set_len(&self.new.file, 0)
                    .map_err(|e| self.route.failed_to(Operation::Truncate, e))?;
                if let Some(hasher) = hasher.as_deref_mut() {
                    *hasher = Hasher::new(self.context.options.hash);
                }
                data::transfer(&self.job(plan, false), buffer, hasher)
            }
            moved => moved,
        };
        moved.map_err(|error| self.route.transfer_error(error))?;
        self.context.count_mode(mode);
        Ok(())
    }

    /// Returns the facts about this pair of file systems, gathering them for the first file.
    fn facts(&self) -> Result<Arc<Facts>, CopyError> {
        let target =
            attr::of_file(&self.new.file).map_err(|e| self.route.failed_to(Operation::Stat, e))?;
        self.context
            .facts_of((self.source.attr.device, target.device), || {
                facts::gather(&self.source.file, &self.new.file)
            })
            .map_err(|e| self.route.failed_to(Operation::StatFs, e))
    }

    fn plan(&self, facts: &Facts, hashed: bool) -> Result<CopyPlan, CopyError> {
        let bytes = self.source.attr.bytes;
        let big = bytes >= plan::BIG_BYTES;
        let resident = big.then(|| facts::resident_share(&self.source.file, bytes)).flatten();
        let request = PlanRequest {
            mode: self.context.options.mode,
            reflink: self.context.options.reflink,
            durable: self.context.options.durable,
            sees_bytes: hashed || self.context.options.sparse == When::Always,
        };
        let tuning = self.context.options.tuning;
        let planned = plan::plan(facts, FileFacts { bytes, resident }, request);
        planned.map(|plan| plan.tuned(tuning)).map_err(|refused| {
            let (path, _) = (self.route.paths)();
            CopyError { operation: Operation::Copy, path, reason: Reason::Refused(refused) }
        })
    }

    /// Checks the free space if the file system cannot reserve it.
    fn check_free_space(&self, facts: &Facts) -> Result<(), CopyError> {
        let needed = self.source.attr.blocks_512.saturating_mul(512);
        if facts.reserves || needed < data::RESERVE_BYTES_MIN {
            return Ok(());
        }
        match attr::file_system(&self.new.file) {
            Ok(system) if system.free_bytes < needed => {
                Err(self.route.failed_to(Operation::Allocate, Errno::NOSPC.into()))
            }
            _ => Ok(()),
        }
    }

    /// Shares the blocks of the source if requested and possible.
    fn share_blocks(&self) -> Result<bool, CopyError> {
        let (options, attr) = (&self.context.options, &self.source.attr);
        let must = self.context.pinned_other_than_buffered() == Some(Mode::Reflink);
        let may = options.mode.is_none() && options.reflink == When::Auto;
        // Sharing blocks does not read or write them.
        let not = match (options.verify, options.sparse) {
            (Verify::InFlight | Verify::Cache | Verify::Device, _) => Some(plan::SHARED_NOT_HASHED),
            (_, When::Always) => Some("shared blocks are not read, so zeros cannot be found"),
            (_, When::Never) if attr.blocks_512 * 512 < attr.bytes => {
                Some("a copy that shares blocks also shares the holes of its source")
            }
            _ => None,
        };
        match not {
            Some(why) if must => return Err(self.refused(Mode::Reflink, why)),
            Some(_) => return Ok(false),
            None if !must && !may => return Ok(false),
            None => {}
        }
        let devices = (attr.device, self.route.parent_attr.device);
        if !must && self.context.cannot_share(devices) {
            return Ok(false);
        }
        match transfer::clone_file(&self.source.file, &self.new.file) {
            Ok(()) => {
                self.meter().moved(attr.bytes);
                Ok(true)
            }
            // EINVAL concerns the file, not the file system.
            Err(e)
                if must
                    && transfer::is_unsupported(&e)
                    && e.kind() != io::ErrorKind::InvalidInput =>
            {
                Err(self.refused(Mode::Reflink, plan::no_sharing(devices.0 == devices.1)))
            }
            Err(e) if !must && !crate::error::out_of_space(&e) => {
                if transfer::is_unsupported(&e) {
                    self.context.no_sharing(devices);
                }
                Ok(false)
            }
            Err(e) => Err(self.route.failed_from(Operation::Clone, e)),
        }
    }
}
