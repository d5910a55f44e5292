//! What an interrupted copy had done, so that a later one goes on: by record, never by size.
//!
//! One text file beside the target, appended to. A file that is whole has a line with what its source
//! was then; a big file under way has a line for each piece, with the hash of the piece, written
//! after the piece was on the device. A line counts only while the source is what it was. Lines about
//! whole files are written without waiting for the device, so after another start of the machine only
//! those count that stand before a line that says that everything was synced. A torn last line is
//! ignored.

use ioloom_sys::attr::Attr;
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
    whole: HashMap<String, String>,
    /// Pieces of files: source as it was, start, end and hash, by target.
    pieces: HashMap<String, Vec<Piece>>,
}

/// A piece of a big file that is on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    source: String,
    range: Range<u64>,
    pub(crate) hash: String,
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub(crate) enum JournalTrouble {
    /// Another copy has it.
    Busy,
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
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => make::open_to_go_on(dir, &name)?,
            made => made?,
        };
        if !make::try_lock(&file)? {
            return Err(JournalTrouble::Busy);
        }
        let boot = proc::boot_id()?;
        let mut text = vec![0; ioloom_sys::file::size(&file)? as usize];
        let got = ioloom_sys::file::read_full_at(&file, &mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..got]).into_owned();
        let known = parse(&text, &boot);
        // What follows a torn line would be read as its end.
        let end = text.rfind('\n').map_or(0, |at| at as u64 + 1);
        let state = Mutex::new(State { end, unsynced_bytes: 0 });
        let journal = Self { file, name, known, state };
        journal.write(&format!("begin {boot}\n"))?;
        Ok(journal)
    }

    /// Whether the copy of a source as it is now is whole at `target`.
    pub(crate) fn is_whole(&self, target: &Path, source: &Attr) -> bool {
        self.known.whole.get(&hex(target)).is_some_and(|was| *was == identity(source))
    }

    /// The piece of a source as it is now that begins at `start`, if it is there.
    pub(crate) fn piece(&self, target: &Path, source: &Attr, range: &Range<u64>) -> Option<&Piece> {
        let pieces = self.known.pieces.get(&hex(target))?;
        let source = identity(source);
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

/// Reads a journal. `boot` tells this start of the machine from others.
fn parse(text: &str, boot: &str) -> Known {
    let mut known = Known::default();
    // Whole files whose lines are not yet known to be on the device, with the end of the line.
    let mut open: Vec<(u64, String, String)> = Vec::new();
    let mut last_boot: Option<&str> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len() as u64;
        let Some(line) = line.strip_suffix('\n') else { break };
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["begin", now] => {
                if last_boot.is_some_and(|last| last != now) {
                    open.clear();
                }
                last_boot = Some(now);
            }
            ["synced", end] => {
                let end: u64 = end.parse().unwrap_or(0);
                for (_, target, source) in open.extract_if(.., |(at, ..)| *at <= end) {
                    known.whole.insert(target, source);
                }
            }
            ["whole", source, target] => {
                open.push((at, target.to_owned(), source.to_owned()));
            }
            ["piece", source, start, end, hash, target] => {
                let (Ok(start), Ok(end)) = (start.parse(), end.parse()) else { continue };
                let piece =
                    Piece { source: source.to_owned(), range: start..end, hash: hash.to_owned() };
                known.pieces.entry(target.to_owned()).or_default().push(piece);
            }
            _ => {}
        }
    }
    if last_boot == Some(boot) {
        known.whole.extend(open.into_iter().map(|(_, target, source)| (target, source)));
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "begin one\nwhole s1 aa\nsynced 22\nwhole s2 bb\n";

    #[test]
    fn what_was_synced_counts_and_the_rest_only_in_the_same_start_of_the_machine() {
        let targets = |text: &str, boot: &str| {
            let mut all: Vec<_> = parse(text, boot).whole.into_keys().collect();
            all.sort();
            all
        };
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
    }

    #[test]
    fn lines_that_came_while_everything_was_synced_do_not_count_as_synced() {
        let text = "begin one\nwhole s1 aa\nwhole s2 bb\nsynced 22\n";
        let known = parse(text, "two");
        assert!(known.whole.contains_key("aa") && !known.whole.contains_key("bb"));
    }

    #[test]
    fn pieces_are_told_by_source_and_place() {
        let known = parse("begin one\npiece s1 0 64 abc aa\n", "two");
        let piece = &known.pieces["aa"][0];
        assert_eq!((piece.range.clone(), piece.hash.as_str()), (0..64, "abc"));
    }
}
