//! Resuming an interrupted copy.
//!
//! A resumable copy uses the same hidden names in each run, and a [`Journal`] next to the target
//! records which of the data under those names is valid. Files recorded as complete are skipped. In
//! a large file, the recorded pieces are read and compared with their hashes, and only the
//! remaining pieces are copied. The cost is one line per file, one sync per piece, and hashing of
//! large files.

use crate::context::CopyContext;
use crate::data::{self, Job, TransferError};
use crate::dirs::Roots;
use crate::error::CopyError;
use crate::file_transfer::{FileTransfer, has_holes};
use crate::hash::Hasher;
use crate::journal::{Journal, JournalError};
use crate::mode::Mode;
use crate::new_file::{hidden_name, journal_name, part_name};
use crate::options::HashKind;
use crate::plan::CopyPlan;
use crate::route::Route;
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::descriptor::Descriptor;
use ioloom_sys::dir::{Dir, DirEntry, Kind, ReadBuffer};
use ioloom_sys::{file, make, remove, transfer};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Piece size of a large file in bytes.
const PIECE_BYTES: u64 = 32 << 20;

/// Opens the journal for copying `sources`, of which there must be exactly one.
pub(crate) fn begin(
    context: &CopyContext<'_>,
    sources: &[PathBuf],
    roots: &Roots,
) -> Result<(), CopyError> {
    let ([from], [to], [parent]) = (&roots.from[..], &roots.to[..], &roots.parents[..]) else {
        let why = "a resumable copy takes a single source";
        return Err(CopyError::cannot(Operation::Copy, &sources[0], why));
    };
    if parent.parent_attr.append_only {
        let why = "the journal could not be removed from an append-only directory; omit --resume";
        return Err(CopyError::cannot(Operation::Copy, from, why));
    }
    let failed = |e| CopyError::io(Operation::OpenJournal, to.path.clone(), e);
    // The same however the paths are spelled.
    let canonical = |path: &Path| std::fs::canonicalize(path).map_err(failed);
    let target = canonical(&parent.path)?.join(std::ffi::OsStr::from_bytes(to.name.to_bytes()));
    let source = match (to.kind, from.file_name()) {
        // Following a link would change its access time before it is copied, or fail.
        (Kind::Symlink, Some(name)) => {
            let above = from.parent().filter(|above| !above.as_os_str().is_empty());
            canonical(above.unwrap_or(Path::new(".")))?.join(name)
        }
        _ => canonical(from)?,
    };
    let number = number_of(&source, &target);
    let name = journal_name(&hidden_name(&to.name, number));
    let shown = name.clone();
    let options = options_word(context);
    let opened = Journal::open(&parent.dir, name, (number, &options), to.path.clone());
    let journal = opened.map_err(|error| match error {
        JournalError::Busy => {
            let why = "another copy of it to the same target is running";
            CopyError::cannot(Operation::Copy, from, why)
        }
        JournalError::Foreign => {
            let path = to.path.with_file_name(std::ffi::OsStr::from_bytes(shown.to_bytes()));
            let why = "the journal has another owner or a second hard link; remove it";
            CopyError::cannot(Operation::Resume, &path, why)
        }
        JournalError::Io(e) => failed(e),
    })?;
    let unset = context.resume.set(journal).is_ok();
    assert!(unset, "a copy has one journal; a second one would use other hidden names");
    Ok(())
}

/// Returns a word for the options that decide which files are copied, with what attributes, and how far they
/// are synced: what a copy with others completed has to be copied again.
fn options_word(context: &CopyContext<'_>) -> String {
    let options = context.options;
    let attributes = (options.preserve, options.plain_mode, options.attributes, options.context);
    let content = (options.follow, options.sparse, options.attributes_only, options.contents);
    let checked = (options.durable, options.verify);
    let text = format!("{:?}", (attributes, content, checked));
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

/// Removes the journal of a copy to `target`, in `dir`, if that is complete. Otherwise it stays for the next copy.
pub(crate) fn end(context: &CopyContext<'_>, journal: Journal, dir: &Dir, target: &Path) {
    if !context.has_failed() && !context.cancelled() {
        if let Err(error) = journal.remove(dir) {
            context.failed(CopyError::io(Operation::RemoveJournal, target.to_owned(), error));
        }
        return;
    }
    // Printing can take long, and no other copy could continue.
    let name = journal.leave();
    if !context.cancelled() {
        let path = target.with_file_name(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let text = format!(
            "kept {}, with which a copy of the same source to {} copies only what is missing (with -T if \
             that is a directory); remove it unless that copy is to be continued",
            quoted(&path),
            quoted(target)
        );
        context.watcher.note(&text);
    }
}

/// Records that a file is complete, from the attributes of its source and of the copy.
pub(crate) fn record_complete(
    journal: &Journal,
    route: &Route<'_>,
    of: (&Attr, &Attr),
) -> Result<(), CopyError> {
    let (_, path) = (route.paths)();
    journal
        .record_complete(route.to, &path, of)
        .map_err(|e| route.failed_to(Operation::WriteJournal, e))
}

/// Copies a large file piece by piece, skipping valid pieces; returns the method used.
pub(crate) fn copy_pieces(
    journal: &Journal,
    file_transfer: &FileTransfer<'_>,
    job: &Job<'_>,
    buffer: &mut Buffer,
    whole: Option<&mut Hasher>,
) -> Result<Mode, CopyError> {
    let (route, source) = (file_transfer.route, &file_transfer.source.attr);
    let new = file_transfer.new.file();
    let mut job = *job;
    data::prepare(&job).map_err(|error| route.transfer_error(error))?;
    if buffer.capacity() < job.plan.buffer_bytes() {
        *buffer = Buffer::new(job.plan.buffer_bytes());
    }
    let (_, path) = (route.paths)();
    let mut at = 0;
    while at < source.bytes {
        let piece = at..(at + PIECE_BYTES).min(source.bytes);
        at = piece.end;
        if let Some(known) = journal.piece(&path, source, &piece)
            && hash_of(new, &piece, buffer).is_ok_and(|hash| hash == known.hash)
        {
            job.meter.moved(piece.end - piece.start);
            continue;
        }
        let mut hasher = Hasher::new(HashKind::Blake3);
        let so_far = job.meter.so_far();
        let mut moved = data::transfer_range(&job, piece.clone(), buffer, &mut hasher);
        if matches!(moved, Err(TransferError::Unsupported(_))) && !job.pinned {
            // As with a whole file, switch to the method that always works from this piece on.
            job.plan = CopyPlan::fallback();
            job.meter.take_back_to(so_far);
            hasher = Hasher::new(HashKind::Blake3);
            moved = data::transfer_range(&job, piece.clone(), buffer, &mut hasher);
        }
        moved.map_err(|error| route.moving_error(job.plan.mode, error))?;
        transfer::sync_data(new).map_err(|e| route.failed_to(Operation::Sync, e))?;
        journal
            .record_piece(&path, source, &piece, &hasher.finish())
            .map_err(|e| route.failed_to(Operation::WriteJournal, e))?;
    }
    transfer::set_len(new, source.bytes).map_err(|e| route.failed_to(Operation::Truncate, e))?;
    if let Some(whole) = whole {
        feed(&file_transfer.source.file, &(0..source.bytes), buffer, whole)
            .map_err(|e| route.failed_from(Operation::Read, e))?;
    }
    Ok(job.plan.mode)
}

/// Returns true if a file is copied in recorded pieces, which have a hidden name.
pub(crate) fn in_pieces(context: &CopyContext<'_>, route: &Route<'_>, source: &Attr) -> bool {
    !route.parent_attr.append_only && has_pieces(context, source)
}

/// Returns true if the content of a file is copied in recorded pieces.
pub(crate) fn has_pieces(context: &CopyContext<'_>, source: &Attr) -> bool {
    let copies = !matches!(context.options.mode, Some(Mode::Reflink | Mode::Range));
    copies && source.bytes > PIECE_BYTES && !has_holes(context, source)
}

/// Returns true if an earlier copy completed this file, according to its journal.
pub(crate) fn is_complete(context: &CopyContext<'_>, route: &Route<'_>, source: &Attr) -> bool {
    let Some(journal) = context.resume.get() else { return false };
    let there = attr::of_name(route.to, route.to_name, false);
    there.is_ok_and(|there| {
        there.kind == Kind::Regular
            && there.bytes == source.bytes
            && journal.is_complete(&(route.paths)().1, (source, &there))
    })
}

/// Removes from a hidden directory that an earlier copy left what the source has no more, or has with
/// another type: else it would get its final name with the directory. Without `from`, removes all entries.
/// `number` is that of the journal. Returns the number of entries.
pub(crate) fn prune(
    number: u64,
    follow: bool,
    has_pieces: &dyn Fn(&Attr) -> bool,
    from: Option<&Dir>,
    to: &Dir,
) -> io::Result<usize> {
    let names_in = |dir: &Dir| {
        let mut names = Vec::new();
        let all = &mut |entry: DirEntry<'_>| {
            names.extend(CString::new(entry.name));
            true
        };
        dir.open_at(b".")?.read(&mut ReadBuffer::new(), all)?;
        io::Result::Ok(names)
    };
    let names = from.map_or_else(|| Ok(Vec::new()), names_in)?;
    let wanted: HashSet<CString> = names.into_iter().collect();
    let source_of = |name: &CStr| from.and_then(|from| attr::of_name(from, name, follow).ok());
    let is_large = |name: &CStr| {
        let source = source_of(name);
        source.is_some_and(|source| source.kind == Kind::Regular && has_pieces(&source))
    };
    let parts: HashSet<CString> =
        wanted.iter().filter(|name| is_large(name)).map(|name| part_name(name, number)).collect();
    let mut removed = 0;
    for name in names_in(to)? {
        let there = attr::of_name(to, &name, false)?;
        let is_dir = there.kind == Kind::Directory;
        let fits = match source_of(&name) {
            Some(source) => (source.kind == Kind::Directory) == is_dir,
            None => !is_dir,
        };
        if parts.contains(&name) || wanted.contains(&name) && fits {
            continue;
        }
        if is_dir {
            remove::tree(to, &name, &mut |_, _| {})?;
        } else {
            make::remove(to, &name)?;
        }
        removed += 1;
    }
    Ok(removed)
}

/// Refuses to continue in a directory that was begun for another source, such as the empty place of a file
/// system that is not mounted now: everything in it would be removed.
pub(crate) fn check_source(
    journal: &Journal,
    from: &Dir,
    source: &Attr,
    is_adopted: bool,
    path: &Path,
) -> Result<(), CopyError> {
    let failed = |e| CopyError::io(Operation::WriteJournal, path.to_owned(), e);
    let system = attr::file_system(from).map_err(failed)?;
    // The numbers of others need not outlive the mount.
    let inode = if system.numbers_stay { source.inode } else { 0 };
    let now = format!("{:x}:{inode}", system.kind);
    if is_adopted && journal.root().is_some_and(|root| root != now) {
        let why = "the source is another directory than the one whose copy was interrupted; mount or \
                   restore that one, or remove what was copied so far";
        return Err(CopyError::cannot(Operation::Resume, path, why));
    }
    journal.record_root(&now).map_err(failed)
}

/// Removes a file that an earlier copy left incomplete in a hidden directory.
pub(crate) fn remove_partial(
    context: &CopyContext<'_>,
    route: &Route<'_>,
) -> Result<(), CopyError> {
    if context.resume.get().is_none() || !route.hidden {
        return Ok(());
    }
    match make::remove(route.to, route.to_name) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(route.failed_to(Operation::Remove, e)),
        _ => Ok(()),
    }
}

/// Derives a number from source and target that is the same in every run.
fn number_of(source: &Path, target: &Path) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(source.as_os_str().as_encoded_bytes()).update(&[0]);
    hasher.update(target.as_os_str().as_encoded_bytes());
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    u64::from_be_bytes(number)
}

fn hash_of(file: &Descriptor, range: &Range<u64>, buffer: &mut Buffer) -> io::Result<String> {
    let mut hasher = Hasher::new(HashKind::Blake3);
    feed(file, range, buffer, &mut hasher)?;
    Ok(hasher.finish())
}

/// Hashes a range of a file.
fn feed(
    from: &Descriptor,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_directory_that_was_left_keeps_what_the_source_has() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for dir in ["from/both", "from/now_dir", "to/both/deep", "to/now_file", "to/gone_dir/deep"]
        {
            fs::create_dir_all(at(dir)).unwrap();
        }
        for file in ["from/same", "from/now_file", "from/small", "to/same", "to/now_dir", "to/gone"]
        {
            fs::write(at(file), "x").unwrap();
        }
        fs::File::create(at("from/large")).unwrap().set_len(PIECE_BYTES + 1).unwrap();
        // A link to a directory took the place of one, and one is as it was.
        std::os::unix::fs::symlink("both", at("from/now_link")).unwrap();
        std::os::unix::fs::symlink("both", at("from/link")).unwrap();
        std::os::unix::fs::symlink("both", at("to/link")).unwrap();
        fs::create_dir(at("to/now_link")).unwrap();
        let part = |name: &CStr| part_name(name, 7).into_string().unwrap();
        for part in [part(c"large"), part(c"small"), part(c"gone")] {
            fs::write(at(&format!("to/{part}")), "x").unwrap();
        }
        let open = |name: &str| Dir::open(&at(name)).unwrap();
        let is_large = |source: &Attr| source.bytes > PIECE_BYTES;
        let removed = prune(7, false, &is_large, Some(&open("from")), &open("to")).unwrap();
        let mut left: Vec<_> = fs::read_dir(at("to"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [part(c"large"), "both".into(), "link".into(), "same".into()]);
        assert_eq!(removed, 7);
        // A directory whose entries are not copied.
        assert_eq!(prune(7, false, &is_large, None, &open("to")).unwrap(), 4);
        assert_eq!(fs::read_dir(at("to")).unwrap().count(), 0);
    }
}
