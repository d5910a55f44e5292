//! Going on where an interrupted copy ended.
//!
//! Hidden names of such a copy are the same each time, and a [`Journal`] beside the target says what
//! under them can be trusted. Files that are whole by it are left; of a big file the recorded pieces
//! are read and compared with their hashes, and only the others are copied. Costs a line per file, a
//! sync per piece and the hashing of big files.

use crate::copy;
use crate::data::{self, Job, Trouble};
use crate::dirs::Roots;
use crate::error::CopyError;
use crate::file::{Moving, Way, has_holes};
use crate::hash::Hasher;
use crate::journal::{Journal, JournalTrouble};
use crate::options::HashKind;
use crate::plan::{CopyPlan, Mode};
use crate::run::Run;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::{file, make, transfer};
use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of one piece of a big file.
const PIECE_BYTES: u64 = 32 << 20;

/// What a copy that can be gone on with knows.
pub(crate) struct Resume {
    /// What its hidden names end in.
    pub(crate) number: u64,
    journal: Journal,
}

impl Resume {
    /// Opens the record of this copy.
    pub(crate) fn begin(run: &Run<'_>, roots: &Roots) -> Result<(), CopyError> {
        let ([from], [to], [parent]) = (&roots.from[..], &roots.to[..], &roots.parents[..]) else {
            let why = "a copy that can be gone on with has one source";
            return Err(CopyError::cannot("copy", Path::new("several sources"), why));
        };
        let failed = |e| CopyError::io("open the record of", to.path.clone(), e);
        let number = number_of(&copy::real(from).map_err(failed)?, &to.path);
        let mut name = vec![b'.'];
        let whole = to.name.to_bytes();
        name.extend_from_slice(&whole[..whole.len().min(180)]);
        name.extend_from_slice(format!(".ioloom-{number:016x}.journal").as_bytes());
        let shown = name.clone();
        let name = CString::new(name).map_err(|_| failed(io::ErrorKind::InvalidFilename.into()))?;
        let journal = Journal::open(&parent.dir, name).map_err(|trouble| match trouble {
            JournalTrouble::Busy => {
                CopyError::cannot("copy", from, "another copy of it to the same place is running")
            }
            JournalTrouble::Foreign => {
                let path = to.path.with_file_name(std::ffi::OsStr::from_bytes(&shown));
                let why =
                    "this record of an earlier copy is not a file of this user alone; remove it";
                CopyError::cannot("go on by", &path, why)
            }
            JournalTrouble::Io(e) => failed(e),
        })?;
        // It was empty: nobody else sets it.
        let _ = run.resume.set(Self { number, journal });
        Ok(())
    }

    /// Everything is there: the record goes.
    pub(crate) fn end(self, dir: &Dir) -> io::Result<()> {
        self.journal.remove(dir)
    }

    /// Records that a file is whole.
    pub(crate) fn whole(&self, way: &Way<'_>, source: &Attr) -> Result<(), CopyError> {
        let (_, path) = (way.paths)();
        self.journal.whole(way.to, &path, source).map_err(|e| way.failed_to("record", e))
    }

    /// Copies a big file piece by piece, leaving out those that are there; tells how.
    pub(crate) fn pieces(
        &self,
        moving: &Moving<'_>,
        job: &Job<'_>,
        buffer: &mut Buffer,
        whole: Option<&mut Hasher>,
    ) -> Result<Mode, CopyError> {
        let (way, source) = (moving.way, &moving.source.attr);
        let mut job = *job;
        data::prepare(&job).map_err(|trouble| way.trouble(trouble))?;
        if buffer.capacity() < job.plan.buffer_bytes() {
            *buffer = Buffer::new(job.plan.buffer_bytes());
        }
        let (_, path) = (way.paths)();
        let mut at = 0;
        while at < source.bytes {
            let piece = at..(at + PIECE_BYTES).min(source.bytes);
            at = piece.end;
            if let Some(known) = self.journal.piece(&path, source, &piece)
                && hash_of(&moving.new.file, &piece, buffer).is_ok_and(|hash| hash == known.hash)
            {
                job.flow.moved(piece.end - piece.start);
                continue;
            }
            let mut hasher = Hasher::new(HashKind::Blake3);
            let so_far = job.flow.so_far();
            let mut moved = data::part(&job, piece.clone(), buffer, &mut hasher);
            if matches!(moved, Err(Trouble::Unsupported(_))) && !job.pinned {
                // As for a whole file: this piece and those after it go the way that always works.
                job.plan = CopyPlan::buffered("what was planned does not work for this file");
                job.flow.take_back_to(so_far);
                hasher = Hasher::new(HashKind::Blake3);
                moved = data::part(&job, piece.clone(), buffer, &mut hasher);
            }
            moved.map_err(|trouble| way.trouble(trouble))?;
            transfer::sync_data(&moving.new.file).map_err(|e| way.failed_to("sync", e))?;
            self.journal
                .piece_is_there(&path, source, &piece, &hasher.finish())
                .map_err(|e| way.failed_to("record", e))?;
        }
        transfer::set_len(&moving.new.file, source.bytes)
            .map_err(|e| way.failed_to("set the size of", e))?;
        if let Some(whole) = whole {
            feed(&moving.source.file, &(0..source.bytes), buffer, whole)
                .map_err(|e| way.failed_from("read", e))?;
        }
        Ok(job.plan.mode)
    }
}

/// Whether a file is copied in pieces that are recorded.
pub(crate) fn in_pieces(run: &Run<'_>, source: &Attr) -> bool {
    let copies = !matches!(run.options.mode, Some(Mode::Reflink | Mode::Range));
    copies && source.bytes > PIECE_BYTES && !has_holes(run, source)
}

/// Whether an earlier copy made this file and it is right by its record.
pub(crate) fn is_whole(run: &Run<'_>, way: &Way<'_>, source: &Attr) -> bool {
    let Some(resume) = run.resume.get() else { return false };
    let there = attr::of_name(way.to, way.to_name, false);
    there.is_ok_and(|there| there.kind == Kind::Regular && there.bytes == source.bytes)
        && resume.journal.is_whole(&(way.paths)().1, source)
}

/// Takes away what an earlier copy left half-made in a hidden directory.
pub(crate) fn make_room(run: &Run<'_>, way: &Way<'_>) -> Result<(), CopyError> {
    if run.resume.get().is_none() || !way.hidden {
        return Ok(());
    }
    match make::remove(way.to, way.to_name) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(way.failed_to("remove what an earlier copy left at", e))
        }
        _ => Ok(()),
    }
}

/// The same number for the same source and target.
fn number_of(source: &Path, target: &Path) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(source.as_os_str().as_encoded_bytes()).update(&[0]);
    hasher.update(target.as_os_str().as_encoded_bytes());
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    u64::from_be_bytes(number)
}

fn hash_of(
    file: &std::os::fd::OwnedFd,
    range: &Range<u64>,
    buffer: &mut Buffer,
) -> io::Result<String> {
    let mut hasher = Hasher::new(HashKind::Blake3);
    feed(file, range, buffer, &mut hasher)?;
    Ok(hasher.finish())
}

/// Feeds a range of a file to a hash.
fn feed(
    from: &std::os::fd::OwnedFd,
    range: &Range<u64>,
    buffer: &mut Buffer,
    hasher: &mut Hasher,
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let want = (buffer.capacity() as u64).min(range.end - at) as usize;
        let got = file::read_full_at(from, &mut buffer.whole_mut()[..want], at)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(buffer.bytes(got));
        at += got as u64;
    }
    Ok(())
}
