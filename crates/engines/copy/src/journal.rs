//! What an interrupted copy had done, so that a later one goes on: by record, never by size.
//!
//! One text file beside the target, appended to. A file that is whole has a line with what its source
//! was then; a big file under way has a line for each piece, with the hash of the piece, written
//! after the piece was on the device. A line counts only while the source is what it was. Lines about
//! whole files are written without waiting for the device, so after another start of the machine only
//! those count that stand before a line that says that everything was synced. A torn last line is
//! ignored, and so are lines that are no text.
//!
//! Memory: of a line only hashes of 16 bytes are kept, so about 50 bytes for each file of an earlier
//! copy and 150 for each piece; the text itself is read a block at a time.

use crate::place::is_ours;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::Dir;
use ioloom_sys::{make, proc, transfer};
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Write;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Bytes of files after which everything is synced, so that little is done again.
const SYNC_BYTES: u64 = 1 << 30;

/// Bytes that are read at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// A line that is longer is none: paths are shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Stands for a path or for what a source was.
type Key = [u8; 16];

/// The record of one copy, shared by its threads.
pub(crate) struct Journal {
    file: OwnedFd,
    name: CString,
    known: Known,
    state: Mutex<State>,
}

struct State {
    end: u64,
    unsynced_bytes: u64,
}

/// What was read of earlier copies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    /// Whole files: the source as it was, by target.
    whole: HashMap<Key, Key>,
    /// Pieces of files, by target.
    pieces: HashMap<Key, Vec<Piece>>,
}

/// A piece of a big file that is on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    source: Key,
    range: Range<u64>,
    pub(crate) hash: String,
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub(crate) enum JournalTrouble {
    /// Another copy has it.
    Busy,
    /// It is no file of this user: what it says is not believed.
    Foreign,
    Io(io::Error),
}

impl From<io::Error> for JournalTrouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Journal {
    /// Opens the journal `name` in the directory of the target, or makes it.
    pub(crate) fn open(dir: &Dir, name: CString) -> Result<Self, JournalTrouble> {
        let file = match make::file(dir, &name, 0o600) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => make::open_to_resume(dir, &name)?,
            made => made?,
        };
        if !make::try_lock(&file)? {
            return Err(JournalTrouble::Busy);
        }
        let own = attr::of_file(&file)?;
        if own.links == 0 {
            // The copy that had it came to its end while it was waited for.
            return Err(JournalTrouble::Busy);
        }
        if !is_ours(&own) {
            return Err(JournalTrouble::Foreign);
        }
        let boot = proc::boot_id()?;
        let mut reading = Reading::default();
        // What follows a torn line would be read as its end.
        let end = each_line(&file, |end, line| reading.line(end, line))?;
        let known = reading.known(&boot);
        let state = Mutex::new(State { end, unsynced_bytes: 0 });
        let journal = Self { file, name, known, state };
        journal.write(&format!("begin {boot}\n"))?;
        Ok(journal)
    }

    /// Whether the copy of a source as it is now is whole at `target`.
    pub(crate) fn is_whole(&self, target: &Path, source: &Attr) -> bool {
        self.known.whole.get(&key(&hex(target))).is_some_and(|was| *was == key(&identity(source)))
    }

    /// The piece of a source as it is now that begins at `start`, if it is there.
    pub(crate) fn piece(&self, target: &Path, source: &Attr, range: &Range<u64>) -> Option<&Piece> {
        let pieces = self.known.pieces.get(&key(&hex(target)))?;
        let source = key(&identity(source));
        pieces.iter().rev().find(|piece| piece.range == *range && piece.source == source)
    }

    /// A file is whole under its name. Everything is synced now and then.
    pub(crate) fn whole(&self, dir: &Dir, target: &Path, source: &Attr) -> io::Result<()> {
        self.write(&format!("whole {} {}\n", identity(source), hex(target)))?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unsynced_bytes += source.bytes.max(4096);
        let due = state.unsynced_bytes >= SYNC_BYTES;
        if due {
            state.unsynced_bytes = 0;
        }
        drop(state);
        if due { self.synced(dir) } else { Ok(()) }
    }

    /// Writes everything to the device and says so.
    fn synced(&self, dir: &Dir) -> io::Result<()> {
        // Lines that others write meanwhile come after this length and are not covered.
        let end = self.state.lock().unwrap_or_else(PoisonError::into_inner).end;
        dir.sync_file_system()?;
        self.write(&format!("synced {end}\n"))?;
        transfer::sync_data(&self.file)
    }

    /// A piece of a big file is on the device.
    pub(crate) fn piece_is_there(
        &self,
        target: &Path,
        source: &Attr,
        range: &Range<u64>,
        hash: &str,
    ) -> io::Result<()> {
        let (id, path) = (identity(source), hex(target));
        self.write(&format!("piece {id} {} {} {hash} {path}\n", range.start, range.end))?;
        transfer::sync_data(&self.file)
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

    /// The copy is complete: nothing is to be gone on with.
    pub(crate) fn remove(self, dir: &Dir) -> io::Result<()> {
        make::remove(dir, &self.name)
    }
}

/// What a source is, as one word: it changes with any change of its content.
fn identity(source: &Attr) -> String {
    let ((major, minor), inode) = source.identity();
    let ((m, m_ns), (c, c_ns)) = (source.modified, source.changed);
    format!("{major}:{minor}:{inode}:{}:{m}.{m_ns}:{c}.{c_ns}", source.bytes)
}

fn hex(path: &Path) -> String {
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

/// Gives each whole line of a file with the offset of its end; returns the end of the last one.
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
    /// Whole files whose lines are not yet known to be on the device: end of the line, target, source.
    open: Vec<(u64, Key, Key)>,
    /// The start of the machine that the latest lines are of.
    boot: Option<String>,
}

impl Reading {
    fn line(&mut self, at: u64, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["begin", now] => {
                if self.boot.as_ref().is_some_and(|last| last != now) {
                    self.open.clear();
                }
                self.boot = Some(now.to_owned());
            }
            ["synced", end] => {
                let end: u64 = end.parse().unwrap_or(0);
                for (_, target, source) in self.open.extract_if(.., |(at, ..)| *at <= end) {
                    self.known.whole.insert(target, source);
                }
            }
            ["whole", source, target] => self.open.push((at, key(target), key(source))),
            ["piece", source, start, end, hash, target] => {
                let (Ok(start), Ok(end)) = (start.parse(), end.parse()) else { return };
                let piece = Piece { source: key(source), range: start..end, hash: hash.to_owned() };
                self.known.pieces.entry(key(target)).or_default().push(piece);
            }
            _ => {}
        }
    }

    /// What counts. `boot` tells this start of the machine from others.
    fn known(mut self, boot: &str) -> Known {
        if self.boot.as_deref() == Some(boot) {
            let open = self.open.into_iter().map(|(_, target, source)| (target, source));
            self.known.whole.extend(open);
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
        assert!(known.whole.len() <= of.len());
        of.iter().copied().filter(|target| known.whole.contains_key(&key(target))).collect()
    }

    #[test]
    fn what_was_synced_counts_and_the_rest_only_in_the_same_start_of_the_machine() {
        let targets = |text: &str, boot: &str| targets(text, boot, &["aa", "bb", "cc"]);
        assert_eq!(targets(TEXT, "one"), ["aa", "bb"]);
        assert_eq!(targets(TEXT, "two"), ["aa"]);
        let later = format!("{TEXT}begin two\nwhole s3 cc\n");
        assert_eq!(targets(&later, "two"), ["aa", "cc"]);
        assert_eq!(targets(&later, "three"), ["aa"]);
        let again = format!("{TEXT}begin one\nwhole s3 cc\n");
        assert_eq!(targets(&again, "one"), ["aa", "bb", "cc"]);
    }

    #[test]
    fn a_torn_line_and_strange_lines_are_nothing() {
        let torn = format!("{TEXT}whole s3 c");
        assert_eq!(parse(&torn, "one"), parse(TEXT, "one"));
        let strange = format!("{TEXT}what is this\npiece s x y h dd\n\n");
        assert_eq!(parse(&strange, "one"), parse(TEXT, "one"));
        let long = format!("{TEXT}{}\nwhole s3 cc\n", "x".repeat(3 * BLOCK_BYTES));
        assert_eq!(targets(&long, "one", &["aa", "bb", "cc"]), ["aa", "bb", "cc"]);
    }

    #[test]
    fn lines_that_came_while_everything_was_synced_do_not_count_as_synced() {
        let text = "begin one\nwhole s1 aa\nwhole s2 bb\nsynced 22\n";
        assert_eq!(targets(text, "two", &["aa", "bb"]), ["aa"]);
    }

    #[test]
    fn pieces_are_told_by_source_and_place() {
        let known = parse("begin one\npiece s1 0 64 abc aa\n", "two");
        let piece = &known.pieces[&key("aa")][0];
        assert_eq!((piece.range.clone(), piece.hash.as_str()), (0..64, "abc"));
    }

    #[test]
    fn bytes_that_are_no_text_do_not_move_what_is_written_next() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (dir, path) = (Dir::open(temp.path()).unwrap(), temp.path().join("j"));
        let open = || Journal::open(&dir, c"j".to_owned());
        fs::write(&path, b"begin one\nwhole \xff\xff\xff\xff\nto").unwrap();
        let opened = open().unwrap();
        assert!(matches!(open(), Err(JournalTrouble::Busy)));
        let text = fs::read(&path).unwrap();
        let boot = proc::boot_id().unwrap();
        let begun = format!("begin {boot}\n");
        let wanted = [&b"begin one\nwhole \xff\xff\xff\xff\n"[..], begun.as_bytes()];
        assert_eq!(text, wanted.concat());
        drop(opened);
        // Two names: it may be somebody else's by the other one.
        fs::hard_link(&path, temp.path().join("k")).unwrap();
        assert!(matches!(open(), Err(JournalTrouble::Foreign)));
    }
}
