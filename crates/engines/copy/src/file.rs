//! One regular file: from an open source to a whole target under its name.
//!
//! ```text
//! open source ─► ask ─► new file without a final name ─► bytes ─► ask again ─► owner, attributes,
//!     mode, times ─► (sync) ─► name
//! ```
//!
//! The name comes last, so that at any moment the target is absent, the old one, or complete. A
//! source that does not answer the same before and after is copied again a few times if it is not
//! large, else it is an error. Costs seven calls for a small file of a fresh tree: open, ask, read,
//! ask, close; create, write, close.

use crate::data::{self, Flow, Job, Trouble};
use crate::error::{CopyError, Reason};
use crate::facts;
use crate::hash::Hasher;
use crate::links::Done;
use crate::meta::{Home, Made, On};
use crate::options::{Durable, Existing, Preserve, Verify, When};
use crate::place::{NewFile, Spot, hidden_name};
use crate::plan::{self, CopyPlan, FileFacts, Mode, SMALL_BYTES, Wanted};
use crate::resume;
use crate::run::{Pairing, Run};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::{file, make, transfer};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a source that changes meanwhile is copied in all.
const TRIES: u32 = 3;

/// Size up to which it is.
const RETRY_BYTES_MAX: u64 = 64 << 20;

/// `ENOSPC`, for the words of the system.
const NO_SPACE: i32 = 28;

/// Room for one byte more than a small file has: reading less than that proves its end.
pub(crate) const BUFFER_BYTES: usize = SMALL_BYTES as usize + 4096;

/// Where a file comes from and goes to.
pub(crate) struct Way<'a> {
    pub(crate) from: &'a Dir,
    pub(crate) from_name: &'a CStr,
    /// The source may be reached through a symbolic link.
    pub(crate) follow: bool,
    pub(crate) to: &'a Dir,
    pub(crate) to_name: &'a CStr,
    /// Nobody sees the target's directory yet.
    pub(crate) hidden: bool,
    pub(crate) home: Home,
    /// The two paths, for messages.
    pub(crate) paths: &'a dyn Fn() -> (PathBuf, PathBuf),
}

impl Way<'_> {
    pub(crate) fn failed_from(&self, operation: &'static str, error: io::Error) -> CopyError {
        CopyError::io(operation, (self.paths)().0, error)
    }

    pub(crate) fn failed_to(&self, operation: &'static str, error: io::Error) -> CopyError {
        CopyError::io(operation, (self.paths)().1, error)
    }

    pub(crate) fn changed(&self, how: &'static str) -> CopyError {
        let (path, _) = (self.paths)();
        CopyError { operation: "copy", path, reason: Reason::Changed(how) }
    }

    pub(crate) fn trouble(&self, trouble: Trouble) -> CopyError {
        match trouble {
            Trouble::Read(e) => self.failed_from("read", e),
            Trouble::Write(e) => self.failed_to("write", e),
            Trouble::Ended => self.changed("became shorter"),
            Trouble::Cancelled => {
                let (path, _) = (self.paths)();
                CopyError { operation: "copy", path, reason: Reason::Cancelled }
            }
            Trouble::Unsupported(e) => self.failed_to("copy in this mode to", e),
        }
    }
}

/// What is at the target.
pub(crate) enum There {
    Nothing,
    Old(Attr),
}

/// An open source with what it was when it was opened.
pub(crate) struct Source {
    pub(crate) file: OwnedFd,
    pub(crate) attr: Attr,
}

impl Source {
    pub(crate) fn open(way: &Way<'_>) -> Result<Self, CopyError> {
        let file = make::open_to_read(way.from, way.from_name, way.follow)
            .map_err(|e| way.failed_from("open", e))?;
        let attr = attr::of_file(&file).map_err(|e| way.failed_from("ask for", e))?;
        if attr.kind != Kind::Regular {
            return Err(way.changed("was replaced by something else"));
        }
        Ok(Self { file, attr })
    }
}

/// Looks at the target and decides whether it is to be made. `None`: it stays as it is.
pub(crate) fn look(
    run: &Run<'_>,
    way: &Way<'_>,
    source: &Attr,
) -> Result<Option<There>, CopyError> {
    if way.hidden {
        return Ok(Some(There::Nothing));
    }
    let old = match attr::of_name(way.to, way.to_name, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some(There::Nothing)),
        result => result.map_err(|e| way.failed_to("ask for", e))?,
    };
    let refuse = |why: &str| Err(CopyError::cannot("replace", &(way.paths)().1, why));
    if old.identity() == source.identity() {
        return refuse("it is the same file as the source");
    }
    if source.kind == Kind::Symlink && leads_to(way, &old) {
        return refuse("the source is a symbolic link that leads to it");
    }
    // What stays may be anything.
    let stays = match run.options.existing {
        Existing::Keep => true,
        Existing::Update | Existing::UpdateAsk => source.modified <= old.modified,
        Existing::Replace | Existing::Ask => false,
    };
    if stays {
        return Ok(None);
    }
    match old.kind {
        Kind::Directory => return refuse("it is a directory and the source is none"),
        Kind::Regular | Kind::Symlink => {}
        kind if source.kind == kind => {}
        kind => return refuse(&format!("it is a {}; ioloom cp makes files only", kind.singular())),
    }
    let asks = matches!(run.options.existing, Existing::Ask | Existing::UpdateAsk);
    let goes_on = !asks || run.watcher.may_replace(&(way.paths)().1);
    Ok(goes_on.then_some(There::Old(old)))
}

/// Whether a source that is a symbolic link leads to the very file that it would replace: that file
/// would be gone, and the link lead to itself.
fn leads_to(way: &Way<'_>, old: &Attr) -> bool {
    let end = attr::of_name(way.from, way.from_name, true);
    old.kind == Kind::Regular && end.is_ok_and(|end| end.identity() == old.identity())
}

/// Copies an open source to where it belongs.
pub(crate) fn copy(
    run: &Run<'_>,
    way: &Way<'_>,
    mut source: Source,
    there: &There,
    buffer: &mut Buffer,
) -> Result<Done, CopyError> {
    let mut tries = 1;
    loop {
        match attempt(run, way, &source, there, buffer) {
            Err(CopyError { reason: Reason::Changed(_), .. })
                if tries < TRIES && source.attr.bytes <= RETRY_BYTES_MAX =>
            {
                tries += 1;
                source = Source::open(way)?;
            }
            result => return result,
        }
    }
}

fn attempt(
    run: &Run<'_>,
    way: &Way<'_>,
    source: &Source,
    there: &There,
    buffer: &mut Buffer,
) -> Result<Done, CopyError> {
    let mode = run.rules.mode_at_first(&source.attr);
    let spot = match there {
        _ if way.hidden => Spot::Hidden,
        There::Nothing => Spot::Free,
        There::Old(_) => Spot::Taken,
    };
    let resume = run.resume.get().filter(|_| resume::in_pieces(run, &source.attr));
    let new = match resume {
        Some(resume) => {
            let hidden = hidden_name(way.to_name, resume.number);
            NewFile::resumable(way.to, way.to_name, spot, hidden, (mode, run.rules.umask()))
        }
        None => NewFile::make(way.to, way.to_name, spot, mode),
    };
    // It may be that the old file could be written and its directory not.
    let what = if spot == Spot::Taken { "make a new file beside" } else { "create" };
    let new = new.map_err(|e| way.failed_to(what, e))?;
    let mine = AtomicU64::new(0);
    let moving = Moving { run, way, source, new: &new, mine: &mine };
    let moved = moving.bytes(buffer).and_then(|moved| {
        still_the_same(way, source)?;
        Ok(moved)
    });
    let finished = match moved {
        Ok(moved) => finish(run, way, source, there, new, moved),
        Err(error) => {
            if resume.is_some() && !matches!(error.reason, Reason::Changed(_)) {
                // What is recorded of it is gone on with.
                new.leave();
            }
            Err(error)
        }
    };
    if finished.is_err() {
        run.flow(&mine).take_back_to(0);
    }
    finished.map(|()| Done::Copied(mine.load(Ordering::Relaxed)))
}

/// What was moved of a file.
struct Moved {
    /// Its size as it came, bytes.
    bytes: u64,
    /// Its hash, if one was wanted and this process saw the bytes.
    hash: Option<String>,
}

/// All bytes are there: they are read again if that is wanted, and the file gets what is kept and,
/// last, its name.
fn finish(
    run: &Run<'_>,
    way: &Way<'_>,
    source: &Source,
    there: &There,
    new: NewFile<'_>,
    moved: Moved,
) -> Result<(), CopyError> {
    if run.options.verify.reads_again() {
        crate::verify::check(run, way, &new.file, moved.bytes, moved.hash.as_deref())?;
    }
    let made = Made::file(run.rules.mode_at_first(&source.attr), way.home);
    if let There::Old(old) = there
        && old.kind == Kind::Regular
    {
        let old_on = On::Name(way.to, way.to_name);
        run.rules.take_place(old, old_on, On::Open(new.file.as_fd()));
        if run.options.preserve != Preserve::default() {
            put(run, way, source, &new, Made { is_old: true, ..made })?;
        }
    } else {
        put(run, way, source, &new, made)?;
    }
    if run.options.durable != Durable::None && !way.hidden {
        transfer::sync_all(&new.file).map_err(|e| way.failed_to("sync", e))?;
    }
    new.publish().map_err(|e| way.failed_to("give its name to", e))?;
    if let Some(hash) = moved.hash {
        run.hashed(way, hash, moved.bytes);
    }
    if let Some(resume) = run.resume.get() {
        resume.whole(way, &source.attr)?;
    }
    Ok(())
}

fn put(
    run: &Run<'_>,
    way: &Way<'_>,
    source: &Source,
    new: &NewFile<'_>,
    made: Made,
) -> Result<(), CopyError> {
    let (from, on) = (On::Open(source.file.as_fd()), On::Open(new.file.as_fd()));
    run.rules.put(&source.attr, from, on, made).map_err(|(what, e)| way.failed_to(what, e))
}

fn still_the_same(way: &Way<'_>, source: &Source) -> Result<(), CopyError> {
    let after = attr::of_file(&source.file).map_err(|e| way.failed_from("ask for", e))?;
    let before = &source.attr;
    match after.bytes.cmp(&before.bytes) {
        std::cmp::Ordering::Less => Err(way.changed("became shorter")),
        std::cmp::Ordering::Greater => Err(way.changed("grew")),
        _ if !before.same_content(&after) => Err(way.changed("was written to")),
        _ => Ok(()),
    }
}

/// The bytes of one file on their way.
pub(crate) struct Moving<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) way: &'a Way<'a>,
    pub(crate) source: &'a Source,
    pub(crate) new: &'a NewFile<'a>,
    /// Bytes that were moved.
    mine: &'a AtomicU64,
}

impl Moving<'_> {
    pub(crate) fn flow(&self) -> Flow<'_> {
        self.run.flow(self.mine)
    }

    /// Moves them all.
    fn bytes(&self, buffer: &mut Buffer) -> Result<Moved, CopyError> {
        let mut hasher =
            (self.run.options.verify != Verify::None).then(|| Hasher::new(self.run.options.hash));
        let mut bytes = self.source.attr.bytes;
        let pinned = self.run.pinned_other_than_buffered();
        if let (0, Some(mode)) = (bytes, pinned) {
            self.holds_nothing(mode)?;
            return Ok(Moved { bytes, hash: hasher.map(Hasher::finish) });
        }
        if bytes > 0 && self.share_blocks()? {
            self.run.count_mode(Mode::Reflink);
            return Ok(Moved { bytes, hash: None });
        }
        if bytes <= SMALL_BYTES && !self.has_holes() && pinned.is_none() {
            bytes = self.small(buffer, hasher.as_mut())?;
        } else {
            self.large(buffer, hasher.as_mut())?;
        }
        Ok(Moved { bytes, hash: hasher.map(Hasher::finish) })
    }

    fn has_holes(&self) -> bool {
        has_holes(self.run, &self.source.attr)
    }

    /// One read, one write; returns the bytes. A read of less than the buffer holds is the end of the
    /// file.
    fn small(&self, buffer: &mut Buffer, hasher: Option<&mut Hasher>) -> Result<u64, CopyError> {
        let (way, attr) = (self.way, &self.source.attr);
        self.run.count_mode(Mode::Buffered);
        if attr.bytes == 0 {
            return self.unsized_source(buffer, hasher);
        }
        let want = attr.bytes as usize + 1;
        let into = &mut buffer.whole_mut()[..want];
        let mut got = file::read_at(&self.source.file, &mut *into, 0)
            .map_err(|e| way.failed_from("read", e))?;
        if got < attr.bytes as usize {
            let rest = &mut into[got..];
            got += file::read_full_at(&self.source.file, rest, got as u64)
                .map_err(|e| way.failed_from("read", e))?;
        }
        if got < attr.bytes as usize && !self.tells_more_than_it_has()? {
            return Err(way.changed("became shorter"));
        }
        if got > attr.bytes as usize {
            return Err(way.changed("grew"));
        }
        let mut rest = buffer.bytes(got);
        if let Some(hasher) = hasher {
            hasher.update(rest);
        }
        let mut at = 0;
        while !rest.is_empty() {
            let n = transfer::write_at(&self.new.file, rest, at)
                .map_err(|e| way.failed_to("write", e))?;
            if n == 0 {
                return Err(way.failed_to("write", io::ErrorKind::WriteZero.into()));
            }
            rest = &rest[n..];
            at += n as u64;
        }
        self.flow().moved(got as u64);
        Ok(got as u64)
    }

    /// Whether a source that ended early is a file of the kernel (/sys), which tells the size of a page
    /// whatever it holds: it takes no space, and nothing of it has changed.
    fn tells_more_than_it_has(&self) -> Result<bool, CopyError> {
        let before = &self.source.attr;
        let now =
            attr::of_file(&self.source.file).map_err(|e| self.way.failed_from("ask for", e))?;
        Ok(before.blocks_512 == 0 && before.same_content(&now))
    }

    /// Whether nothing is to be moved. A file of the kernel says so and holds more, which only reading
    /// to its end finds.
    fn holds_nothing(&self, mode: Mode) -> Result<(), CopyError> {
        let got = file::read_at(&self.source.file, &mut [0], 0);
        match got.map_err(|e| self.way.failed_from("read", e))? {
            0 => Ok(()),
            _ => Err(self.refused(mode, "the source tells no size, so it is read to its end")),
        }
    }

    fn refused(&self, mode: Mode, why: &'static str) -> CopyError {
        let (path, _) = (self.way.paths)();
        CopyError { operation: "copy", path, reason: Reason::Refused(plan::Refused { mode, why }) }
    }

    /// Files of the kernel say that they are empty and are not.
    fn unsized_source(
        &self,
        buffer: &mut Buffer,
        hasher: Option<&mut Hasher>,
    ) -> Result<u64, CopyError> {
        let plan = CopyPlan::buffered("told to be empty: read to its end");
        let job = self.job(plan, false);
        data::to_the_end(&job, buffer, hasher).map_err(|t| self.way.trouble(t))
    }

    fn job(&self, plan: CopyPlan, reserve: bool) -> Job<'_> {
        Job {
            ends: data::borrow(&self.source.file, &self.new.file),
            bytes: self.source.attr.bytes,
            holes: self.has_holes(),
            punch_zeros: self.run.options.sparse == When::Always,
            reserve,
            pinned: self.run.options.mode.is_some(),
            plan,
            flow: self.flow(),
        }
    }

    fn large(&self, buffer: &mut Buffer, mut hasher: Option<&mut Hasher>) -> Result<(), CopyError> {
        let pairing = self.pairing()?;
        let plan = self.plan(&pairing, hasher.is_some())?;
        self.look_for_space(&pairing)?;
        let job = self.job(plan, pairing.facts.reserves);
        if let Some(resume) = self.run.resume.get()
            && resume::in_pieces(self.run, &self.source.attr)
        {
            self.run.count_mode(resume.pieces(self, &job, buffer, hasher)?);
            return Ok(());
        }
        if buffer.capacity() < plan.buffer_bytes() {
            *buffer = Buffer::new(plan.buffer_bytes());
        }
        let mut mode = plan.mode;
        let moved = match data::transfer(&job, buffer, hasher.as_deref_mut()) {
            Err(Trouble::Unsupported(_)) if self.run.options.mode.is_none() => {
                // Said to work and does not, for this file: the way that always does, from nothing. What
                // was planned may have made the target longer than the source.
                let plan = CopyPlan::buffered("what was planned does not work for this file");
                mode = plan.mode;
                self.flow().take_back_to(0);
                transfer::set_len(&self.new.file, 0)
                    .map_err(|e| self.way.failed_to("set the size of", e))?;
                if let Some(hasher) = hasher.as_deref_mut() {
                    *hasher = Hasher::new(self.run.options.hash);
                }
                data::transfer(&self.job(plan, false), buffer, hasher)
            }
            moved => moved,
        };
        moved.map_err(|trouble| self.way.trouble(trouble))?;
        self.run.count_mode(mode);
        Ok(())
    }

    /// The facts of this pair of file systems, gathered for the first file.
    fn pairing(&self) -> Result<Arc<Pairing>, CopyError> {
        let target = attr::of_file(&self.new.file).map_err(|e| self.way.failed_to("ask for", e))?;
        self.run
            .pairing((self.source.attr.device, target.device), || {
                facts::gather(&self.source.file, &self.new.file)
            })
            .map_err(|e| self.way.failed_to("ask for the file system of", e))
    }

    fn plan(&self, pairing: &Pairing, hashed: bool) -> Result<CopyPlan, CopyError> {
        let bytes = self.source.attr.bytes;
        let big = bytes >= plan::BIG_BYTES;
        let resident = big.then(|| facts::resident_share(&self.source.file, bytes)).flatten();
        let wanted = Wanted {
            mode: self.run.options.mode,
            reflink: self.run.options.reflink,
            durable: self.run.options.durable,
            sees_bytes: hashed || self.run.options.sparse == When::Always,
        };
        let tuning = self.run.options.tuning;
        let planned = plan::plan(&pairing.facts, FileFacts { bytes, resident }, wanted);
        planned.map(|plan| plan.tuned(tuning)).map_err(|refused| {
            let (path, _) = (self.way.paths)();
            CopyError { operation: "copy", path, reason: Reason::Refused(refused) }
        })
    }

    /// Where space cannot be reserved it is at least looked for.
    fn look_for_space(&self, pairing: &Pairing) -> Result<(), CopyError> {
        let needed = self.source.attr.blocks_512.saturating_mul(512);
        if pairing.facts.reserves || needed < data::RESERVE_BYTES_MIN {
            return Ok(());
        }
        match attr::file_system(&self.new.file) {
            Ok(system) if system.free_bytes < needed => {
                let error = io::Error::from_raw_os_error(NO_SPACE);
                Err(self.way.failed_to("reserve space for", error))
            }
            _ => Ok(()),
        }
    }

    /// Lets the copy share the blocks of the source, if that is wanted and can be.
    fn share_blocks(&self) -> Result<bool, CopyError> {
        let (options, attr) = (&self.run.options, &self.source.attr);
        let must = self.run.pinned_other_than_buffered() == Some(Mode::Reflink);
        let may = options.mode.is_none() && options.reflink == When::Auto;
        // Shared blocks are neither read nor written.
        let not = match (options.verify, options.sparse) {
            (Verify::InFlight | Verify::Cache | Verify::Device, _) => {
                Some("shared blocks are not read, so nothing is hashed")
            }
            (_, When::Always) => Some("shared blocks are not read, so no zeros are found"),
            (_, When::Never) if attr.blocks_512 * 512 < attr.bytes => {
                Some("what shares blocks has the holes of its source")
            }
            _ => None,
        };
        match not {
            Some(why) if must => return Err(self.refused(Mode::Reflink, why)),
            Some(_) => return Ok(false),
            None if !must && !may => return Ok(false),
            None => {}
        }
        let devices = (attr.device, self.way.home.device);
        if !must && self.run.cannot_share(devices) {
            return Ok(false);
        }
        match transfer::clone_file(&self.source.file, &self.new.file) {
            Ok(()) => {
                self.flow().moved(attr.bytes);
                Ok(true)
            }
            // Invalid is a file, not the file system.
            Err(e)
                if must
                    && transfer::is_unsupported(&e)
                    && e.kind() != io::ErrorKind::InvalidInput =>
            {
                Err(self.refused(Mode::Reflink, plan::no_sharing(devices.0 == devices.1)))
            }
            Err(e) if !must && !crate::error::out_of_space(&e) => {
                if transfer::is_unsupported(&e) {
                    self.run.no_sharing(devices);
                }
                Ok(false)
            }
            Err(e) => Err(self.way.failed_to("share blocks with", e)),
        }
    }
}

/// Whether a source has holes that are to stay or to be looked for.
pub(crate) fn has_holes(run: &Run<'_>, attr: &Attr) -> bool {
    match run.options.sparse {
        When::Always => attr.bytes > 0,
        When::Never => false,
        // A page or less is no hole worth its calls.
        When::Auto => attr.bytes > 4096 && attr.blocks_512 * 512 < attr.bytes,
    }
}
