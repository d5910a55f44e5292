//! The journal of a resumable copy.
//!
//! Resuming relies on this record, never on file sizes. The journal is an append-only text file
//! next to the target. Its paths are relative to the target, so that the next copy can spell it in another
//! way. Each complete file has a line that identifies its source and the copy. Each large file in
//! progress has a line for every piece, with the hash of the piece, written after the piece was
//! synced. A line is valid only while the source is unchanged. Lines about complete files are
//! written without a sync, so after a reboot only those before a `synced` line are valid. They are valid only
//! for copies with the same options, of which each copy writes a hash when it begins. A torn
//! last line and lines that are not UTF-8 are ignored.
//!
//! Memory: only 16-byte hashes of each line are stored, about 50 bytes per file of an earlier copy
//! and 150 per piece. The text is read one block at a time.

use crate::new_file::is_ours;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::Dir;
use ioloom_sys::{make, proc, transfer};
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Write;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Number of bytes of complete files between two syncs of the file system. After a crash, at most
/// this much is copied again.
const SYNC_BYTES: u64 = 1 << 30;

/// Read size in bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum line length. Paths are shorter, so a longer line is garbage.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Hash of a path or source identity.
type Key = [u8; 16];

/// The journal of one copy, shared by its threads.
pub(crate) struct Journal {
    file: OwnedFd,
    name: CString,
    /// The suffix of this copy's hidden names.
    pub(crate) number: u64,
    /// The target of the copy. Lines contain paths relative to it.
    target: PathBuf,
    known: Known,
    state: Mutex<State>,
}

struct State {
    end: u64,
    unsynced_bytes: u64,
}

/// The records of earlier copies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    /// What identifies the source directory.
    root: Option<String>,
    /// The source identity of each complete file, by target.
    complete: HashMap<Key, Key>,
    /// The pieces of incomplete files, by target.
    pieces: HashMap<Key, Vec<Piece>>,
}

/// A synced piece of a big file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    source: Key,
    range: Range<u64>,
    pub(crate) hash: String,
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub(crate) enum JournalError {
    /// Another copy has locked it.
    Busy,
    /// It is not owned exclusively by this user, so its content cannot be trusted.
    Foreign,
    /// A system call failed.
    Io(io::Error),
}

impl From<io::Error> for JournalError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Journal {
    /// Opens or creates the journal `name` in the directory of the target. `options`: a word that is the same
    /// for copies whose complete files are the same.
    pub(crate) fn open(
        dir: &Dir,
        name: CString,
        (number, options): (u64, &str),
        target: PathBuf,
    ) -> Result<Self, JournalError> {
        let file = match make::file(dir, &name, 0o600) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => make::open_to_resume(dir, &name)?,
            made => made?,
        };
        if !make::try_lock(&file)? {
            return Err(JournalError::Busy);
        }
        let own = attr::of_file(&file)?;
        if own.links == 0 {
            // The copy that held the lock has completed and removed the journal.
            return Err(JournalError::Busy);
        }
        if !is_ours(&own) {
            return Err(JournalError::Foreign);
        }
        let boot = proc::boot_id()?;
        let mut reading = Reading::default();
        // Overwrite a torn last line: a line appended to it would be read as its continuation.
        let end = each_line(&file, |end, line| reading.line(end, line))?;
        // Also of this copy, if its options differ from those of the last one.
        reading.begin(&boot, Some(options));
        let known = reading.known(&boot);
        let state = Mutex::new(State { end, unsynced_bytes: 0 });
        let journal = Self { file, name, number, target, known, state };
        journal.write(&format!("begin {boot} {options}\n"))?;
        Ok(journal)
    }

    /// Returns true if `target`, which has these attributes, is the copy that was made of the source, and
    /// neither has changed since.
    pub(crate) fn is_complete(&self, target: &Path, (source, there): (&Attr, &Attr)) -> bool {
        self.known
            .complete
            .get(&key(&self.word(target)))
            .is_some_and(|was| *was == key(&pair(source, there)))
    }

    /// Returns the recorded piece that covers `range` of the source in its current state, if any.
    pub(crate) fn piece(&self, target: &Path, source: &Attr, range: &Range<u64>) -> Option<&Piece> {
        let pieces = self.known.pieces.get(&key(&self.word(target)))?;
        let source = key(&identity(source));
        pieces.iter().rev().find(|piece| piece.range == *range && piece.source == source)
    }

    /// Records a file that is complete under its final name. Syncs the file system once per
    /// [`SYNC_BYTES`].
    pub(crate) fn record_complete(
        &self,
        dir: &Dir,
        target: &Path,
        (source, there): (&Attr, &Attr),
    ) -> io::Result<()> {
        self.write(&format!("whole {} {}\n", pair(source, there), self.word(target)))?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unsynced_bytes += source.bytes.max(4096);
        let due = state.unsynced_bytes >= SYNC_BYTES;
        if due {
            state.unsynced_bytes = 0;
        }
        drop(state);
        if due { self.sync_all(dir) } else { Ok(()) }
    }

    /// Syncs the file system and records how much of the journal the sync covers.
    fn sync_all(&self, dir: &Dir) -> io::Result<()> {
        // Lines appended by other threads during the sync are after this offset and not covered.
        let end = self.state.lock().unwrap_or_else(PoisonError::into_inner).end;
        dir.sync_file_system()?;
        self.write(&format!("synced {end}\n"))?;
        transfer::sync_data(&self.file)
    }

    /// Returns what identified the source directory of the earlier copies.
    pub(crate) fn root(&self) -> Option<&str> {
        self.known.root.as_deref()
    }

    /// Records what identifies the source directory, a word.
    pub(crate) fn record_root(&self, root: &str) -> io::Result<()> {
        if self.root() == Some(root) {
            return Ok(());
        }
        self.write(&format!("root {root}\n"))?;
        transfer::sync_data(&self.file)
    }

    /// Records a synced piece of a big file.
    pub(crate) fn record_piece(
        &self,
        target: &Path,
        source: &Attr,
        range: &Range<u64>,
        hash: &str,
    ) -> io::Result<()> {
        let (id, path) = (identity(source), self.word(target));
        self.write(&format!("piece {id} {} {} {hash} {path}\n", range.start, range.end))?;
        transfer::sync_data(&self.file)
    }

    /// Returns the path of a file below the target as one word.
    fn word(&self, path: &Path) -> String {
        hex(path.strip_prefix(&self.target).unwrap_or(path))
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = line.as_bytes();
        while !bytes.is_empty() {
            let n = transfer::write_at(&self.file, bytes, state.end)?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            state.end += n as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// Closes the journal, which stays for a later copy; returns its name.
    pub(crate) fn leave(self) -> CString {
        self.name
    }

    /// Removes the journal of a completed copy.
    pub(crate) fn remove(self, dir: &Dir) -> io::Result<()> {
        make::remove(dir, &self.name)
    }
}

/// Returns the source identity as one word. Any change of content produces a different word. Numbers of
/// devices do not belong to it: some file systems get another one with each mount.
fn identity(source: &Attr) -> String {
    let ((m, m_ns), (c, c_ns)) = (source.modified, source.changed);
    format!("{}:{}:{m}.{m_ns}:{c}.{c_ns}", source.inode, source.bytes)
}

/// Returns the identities of a source and its copy as one word. A rename changes the times of the inode in
/// some file systems, so that of the copy is its time of modification.
fn pair(source: &Attr, there: &Attr) -> String {
    let (m, m_ns) = there.modified;
    format!("{}>{}:{}:{m}.{m_ns}", identity(source), there.inode, there.bytes)
}

fn hex(path: &Path) -> String {
    // The target itself.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let bytes = path.as_os_str().as_encoded_bytes();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn key(text: &str) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    key
}

/// Calls `each` with every terminated line of a file and the offset of its end. Returns the offset
/// of the last line end.
fn each_line(file: &OwnedFd, mut each: impl FnMut(u64, &str)) -> io::Result<u64> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut line = Vec::new();
    let (mut at, mut end) = (0, 0);
    loop {
        let got = ioloom_sys::file::read_full_at(file, &mut block, at)?;
        at += got as u64;
        let mut rest = &block[..got];
        while let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&rest[..length]);
            rest = &rest[length + 1..];
            end = at - rest.len() as u64;
            if let Ok(text) = std::str::from_utf8(&line) {
                each(end, text);
            }
            line.clear();
        }
        line.extend_from_slice(rest);
        if got == 0 || line.len() > LINE_BYTES_MAX {
            return Ok(end);
        }
    }
}

/// A journal that is being read.
#[derive(Default)]
struct Reading {
    known: Known,
    /// Complete files whose lines may not have reached the device: end of line, target, source.
    open: Vec<(u64, Key, Key)>,
    /// The boot during which the latest lines were written.
    boot: Option<String>,
    /// The options of the copy that wrote the latest lines; `None` for older versions, which did not write them.
    options: Option<String>,
}

impl Reading {
    /// Begins with the lines of the next copy.
    fn begin(&mut self, boot: &str, options: Option<&str>) {
        if self.boot.as_ref().is_some_and(|last| last != boot) {
            self.open.clear();
        }
        if self.options.as_deref() != options {
            self.open.clear();
            self.known.complete.clear();
        }
        self.boot = Some(boot.to_owned());
        self.options = options.map(str::to_owned);
    }

    fn line(&mut self, at: u64, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["begin", now] => self.begin(now, None),
            ["begin", now, options] => self.begin(now, Some(options)),
            ["synced", end] => {
                let end: u64 = end.parse().unwrap_or(0);
                for (_, target, source) in self.open.extract_if(.., |(at, ..)| *at <= end) {
                    self.known.complete.insert(target, source);
                }
            }
            ["root", root] => self.known.root = Some(root.to_owned()),
            ["whole", source, target] => self.open.push((at, key(target), key(source))),
            ["piece", source, start, end, hash, target] => {
                let (Ok(start), Ok(end)) = (start.parse(), end.parse()) else { return };
                let piece = Piece { source: key(source), range: start..end, hash: hash.to_owned() };
                self.known.pieces.entry(key(target)).or_default().push(piece);
            }
            _ => {}
        }
    }

    /// Returns the valid records. `boot` is the current boot ID.
    fn known(mut self, boot: &str) -> Known {
        if self.boot.as_deref() == Some(boot) {
            let open = self.open.into_iter().map(|(_, target, source)| (target, source));
            self.known.complete.extend(open);
        }
        self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TEXT: &str = "begin one\nwhole s1 aa\nsynced 22\nwhole s2 bb\n";

    fn parse(text: &str, boot: &str) -> Known {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let mut reading = Reading::default();
        let end = each_line(&OwnedFd::from(file), |end, line| reading.line(end, line)).unwrap();
        assert_eq!(end as usize, text.rfind('\n').map_or(0, |at| at + 1));
        reading.known(boot)
    }

    fn targets<'a>(text: &str, boot: &str, of: &[&'a str]) -> Vec<&'a str> {
        let known = parse(text, boot);
        assert!(known.complete.len() <= of.len());
        of.iter().copied().filter(|target| known.complete.contains_key(&key(target))).collect()
    }

    #[test]
    fn unsynced_lines_are_valid_only_within_the_same_boot() {
        let targets = |text: &str, boot: &str| targets(text, boot, &["aa", "bb", "cc"]);
        assert_eq!(targets(TEXT, "one"), ["aa", "bb"]);
        assert_eq!(targets(TEXT, "two"), ["aa"]);
        let later = format!("{TEXT}begin two\nwhole s3 cc\n");
        assert_eq!(targets(&later, "two"), ["aa", "cc"]);
        assert_eq!(targets(&later, "three"), ["aa"]);
        let same = format!("{TEXT}begin one\nwhole s3 cc\n");
        assert_eq!(targets(&same, "one"), ["aa", "bb", "cc"]);
    }

    #[test]
    fn lines_of_copies_with_other_options_are_invalid() {
        let targets = |text: &str| targets(text, "one", &["aa", "bb", "cc"]);
        let same = "begin one a\nwhole s1 aa\nsynced 24\nwhole s2 bb\nbegin one a\n";
        assert_eq!(targets(same), ["aa", "bb"]);
        assert_eq!(targets(&format!("{same}begin one b\nwhole s3 cc\n")), ["cc"]);
        assert_eq!(targets(&format!("{same}begin one b\nbegin one a\n")), [""; 0]);
        assert_eq!(targets(&format!("{TEXT}begin one a\n")), [""; 0]);
    }

    #[test]
    fn torn_and_unknown_lines_are_ignored() {
        let torn = format!("{TEXT}whole s3 c");
        assert_eq!(parse(&torn, "one"), parse(TEXT, "one"));
        let strange = format!("{TEXT}what is this\npiece s x y h dd\n\n");
        assert_eq!(parse(&strange, "one"), parse(TEXT, "one"));
        let long = format!("{TEXT}{}\nwhole s3 cc\n", "x".repeat(3 * BLOCK_BYTES));
        assert_eq!(targets(&long, "one", &["aa", "bb", "cc"]), ["aa", "bb", "cc"]);
    }

    #[test]
    fn lines_written_during_a_sync_are_not_covered_by_it() {
        let text = "begin one\nwhole s1 aa\nwhole s2 bb\nsynced 22\n";
        assert_eq!(targets(text, "two", &["aa", "bb"]), ["aa"]);
    }

    #[test]
    fn pieces_are_found_by_target() {
        let known = parse("begin one\npiece s1 0 64 abc aa\n", "two");
        let piece = &known.pieces[&key("aa")][0];
        assert_eq!((piece.range.clone(), piece.hash.as_str()), (0..64, "abc"));
    }

    #[test]
    fn invalid_utf8_does_not_shift_the_lines_that_follow() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (dir, path) = (Dir::open(temp.path()).unwrap(), temp.path().join("j"));
        let open = || Journal::open(&dir, c"j".to_owned(), (7, "some"), "to".into());
        fs::write(&path, b"begin one\nwhole \xff\xff\xff\xff\nto").unwrap();
        let opened = open().unwrap();
        assert!(matches!(open(), Err(JournalError::Busy)));
        let text = fs::read(&path).unwrap();
        let boot = proc::boot_id().unwrap();
        let begun = format!("begin {boot} some\n");
        let wanted = [&b"begin one\nwhole \xff\xff\xff\xff\n"[..], begun.as_bytes()];
        assert_eq!(text, wanted.concat());
        drop(opened);
        // A second hard link would allow another user to write to it.
        fs::hard_link(&path, temp.path().join("k")).unwrap();
        assert!(matches!(open(), Err(JournalError::Foreign)));
    }
}
