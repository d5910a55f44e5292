//! The readable part of an SQLite write-ahead log.
//!
//! SQLite ignores everything after the first frame whose checksum is wrong, without a message. This
//! finds the same place, for messages. The format is documented at
//! <https://sqlite.org/fileformat2.html#walformat>: a header of 32 bytes, then frames of a header of
//! 24 bytes and a page. Each checksum continues the previous one, and frames of the current log have
//! its two salts. Reading costs as much as SQLite's own recovery, which reads the same bytes.

use super::interface::Unreadable;
use ioloom_sys::file::{self, OpenHow, read_full_at};
use std::io::{self, ErrorKind};
use std::path::Path;

const HEAD: usize = 32;
const FRAME_HEAD: usize = 24;
/// Magic of logs whose checksums use little-endian words; big-endian ones have the last bit set.
const MAGIC: u32 = 0x377f_0682;
/// Page sizes that SQLite supports.
const PAGES: std::ops::RangeInclusive<u32> = 512..=65_536;

/// The running checksum.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sum {
    is_big_endian: bool,
    words: (u32, u32),
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let (mut a, mut b) = self.words;
        for pair in bytes.as_chunks::<8>().0 {
            let word = |at: usize| {
                let bytes = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
                if self.is_big_endian {
                    u32::from_be_bytes(bytes)
                } else {
                    u32::from_le_bytes(bytes)
                }
            };
            a = a.wrapping_add(word(0)).wrapping_add(b);
            b = b.wrapping_add(word(4)).wrapping_add(a);
        }
        self.words = (a, b);
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Returns the bytes of a log after its last complete commit, or `None` if there are none. Frames
/// that an earlier use of the log left behind do not count.
pub(super) fn unreadable(path: &Path) -> io::Result<Option<Unreadable>> {
    let opened = match file::open(path, OpenHow::default()) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let read = |at: u64, bytes: &mut [u8]| read_full_at(&opened, bytes, at);
    let size = file::size(&opened)?;
    let of = |from: u64, end: u64| {
        let bytes = end.saturating_sub(from);
        let file = path.to_owned();
        (bytes > 0).then_some(Unreadable { file, from, bytes, latest: 0, damage: None })
    };
    let mut head = [0; HEAD];
    let count = read(0, &mut head)?;
    let page = word(&head, 8);
    let mut sum = Sum { is_big_endian: word(&head, 0) & 1 == 1, words: (0, 0) };
    sum.add(&head[..HEAD - 8]);
    let is_whole = count == HEAD
        && word(&head, 0) & !1 == MAGIC
        && PAGES.contains(&page)
        && sum.words == (word(&head, 24), word(&head, 28));
    if !is_whole {
        return Ok(of(0, if head.iter().all(|byte| *byte == 0) { 0 } else { size }));
    }
    let salts = &head[16..24];
    let mut frame = vec![0; FRAME_HEAD + page as usize];
    let (mut at, mut end, mut used_end, mut is_readable) = (HEAD as u64, HEAD as u64, 0, true);
    while read(at, &mut frame)? == frame.len() {
        at += frame.len() as u64;
        let is_current = frame[8..16] == *salts && word(&frame, 0) != 0;
        if is_readable {
            sum.add(&frame[..8]);
            sum.add(&frame[FRAME_HEAD..]);
            is_readable = is_current && sum.words == (word(&frame, 16), word(&frame, 20));
            // The frame that ends a commit contains the size of the database.
            if is_readable && word(&frame, 4) != 0 {
                end = at;
            }
        }
        if is_current {
            used_end = at;
        }
    }
    Ok(of(end, used_end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_readable_part_ends_where_sqlite_stops_reading() {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("db"), dir.path().join("db-wal"));
        assert_eq!(unreadable(&log).unwrap(), None);
        let connection = Connection::open(&path).unwrap();
        let run = |text: &str| connection.execute_batch(text).unwrap();
        run("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (n);");
        let mut ends = Vec::new();
        for n in 0..20 {
            ends.push(std::fs::metadata(&log).unwrap().len());
            run(&format!("INSERT INTO t VALUES ({n})"));
        }
        assert_eq!(unreadable(&log).unwrap(), None);
        let whole = std::fs::metadata(&log).unwrap().len();
        for (n, end) in ends.iter().enumerate().skip(1) {
            let copy = dir.path().join(format!("copy{n}"));
            let copied = dir.path().join(format!("copy{n}-wal"));
            std::fs::copy(&path, &copy).unwrap();
            std::fs::copy(&log, &copied).unwrap();
            let file = std::fs::File::options().write(true).open(&copied).unwrap();
            file.write_all_at(b"x", end + 700).unwrap();
            // Zeros after the log are not part of it.
            file.set_len(whole + 100_000).unwrap();
            let found = unreadable(&copied).unwrap().expect("a damaged frame");
            assert_eq!((found.from, found.from + found.bytes), (*end, whole), "frame {n}");
            let read = Connection::open(&copy).unwrap();
            let count: i64 = read.query_row("SELECT count(*) FROM t", [], |r| r.get(0)).unwrap();
            assert_eq!(count, n as i64, "SQLite reads the commits before the damage");
        }
        // After a checkpoint, the log starts over, and the old frames are not part of it.
        run("PRAGMA wal_checkpoint(RESTART); INSERT INTO t VALUES (99)");
        assert_eq!(unreadable(&log).unwrap(), None);
        let file = std::fs::File::options().write(true).open(&log).unwrap();
        file.write_all_at(b"x", 5).unwrap();
        assert_eq!(unreadable(&log).unwrap().map(|found| found.from), Some(0));
    }
}
