//! The trace file `.ioloom`: everything of a [`Trace`], to keep, to send and to open elsewhere.
//!
//! # Layout
//!
//! All fixed numbers are little-endian.
//!
//! ```text
//! 0   8 bytes  magic "IOLMTRCE"
//! 8   u32      version, 1
//! 12  u32      number of sections
//! then per section:
//!     4 bytes  tag: HEAD, THRD (one per thread), DEVS, CORE, SERI, MARK, FILE
//!     u32      0: stored, 1: deflate
//!     u32      CRC-32 of the bytes as stored
//!     u64      number of bytes as stored
//!     u64      number of bytes when unpacked
//!     bytes
//! ```
//!
//! Inside a section stand numbers as LEB128, texts as length and UTF-8, lists as their length and one
//! column after the other; times are differences, so that they are short and in order by
//! construction. What the JSON of a run also holds (evidence, tables of states) is that JSON.
//! A reader skips tags that it does not know.
//!
//! # Hostile files
//!
//! A file may be cut off, damaged or made to harm. So: every length is compared with what is there
//! before anything is reserved; a section unpacks to at most [`UNPACK_MAX`] times its size (the
//! writer stores what would shrink more); what is read satisfies what the other modules rely on
//! (segments tile, spans do not overlap, times below 2^53 ns). Whatever is wrong gives one error.

mod columns;
mod sections;

use crate::lane::Trace;
use flate2::Crc;
use std::io::{Read, Write};

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"IOLMTRCE";
/// Version of the layout.
pub const VERSION: u32 = 1;
/// How many times larger than its stored bytes a section may be. Times of real threads hold noise and
/// shrink less.
pub const UNPACK_MAX: u64 = 8;
/// Unpacked size that is always allowed, bytes: small sections of repeated text shrink more.
const UNPACK_FREE: u64 = 64 * 1024;
/// Latest time in a file: exact in a double, and sums stay far from overflow.
const LATEST_NS: u64 = 1 << 53;

/// Why a file could not be read. The caller knows its path and adds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It does not begin as a trace does.
    #[error("not a trace file: it does not begin with {:?}; give a file that IOLOOM_TRACE or --trace wrote", String::from_utf8_lossy(&MAGIC))]
    NotATrace,
    /// It was written by another version.
    #[error(
        "the trace file has version {found}, this program reads version {VERSION}; use the program that wrote it"
    )]
    Version {
        /// The version it says.
        found: u32,
    },
    /// It ends too early.
    #[error("the trace file is cut off in section {section}; copy it again, or trace again")]
    CutOff {
        /// Where it ends.
        section: String,
    },
    /// Its bytes are not those that were written.
    #[error(
        "section {section} of the trace file is damaged: {reason}; copy it again, or trace again"
    )]
    Damaged {
        /// Which section.
        section: String,
        /// What is wrong.
        reason: String,
    },
}

impl FileError {
    fn damaged(section: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { section: section.to_owned(), reason: reason.into() }
    }
}

/// The bytes of a trace file. The trace must be in order, as [`crate::classify()`] leaves it.
pub fn write(trace: &Trace) -> Vec<u8> {
    let sections = sections::encode(trace);
    let mut file = start(sections.len());
    for (tag, raw) in sections {
        let packed = pack(&raw);
        let (kind, stored) = packed.as_ref().map_or((0_u32, &raw), |packed| (1, packed));
        section(&mut file, &tag, kind, stored, raw.len());
    }
    file
}

/// A file with one section of any contents behind a right checksum: for fuzzing, which would never
/// guess a checksum.
pub fn single_section(tag: &[u8; 4], contents: &[u8]) -> Vec<u8> {
    let mut file = start(1);
    section(&mut file, tag, 0, contents, contents.len());
    file
}

fn start(sections: usize) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&(sections as u32).to_le_bytes());
    file
}

fn section(file: &mut Vec<u8>, tag: &[u8; 4], kind: u32, stored: &[u8], raw_bytes: usize) {
    file.extend_from_slice(tag);
    file.extend_from_slice(&kind.to_le_bytes());
    file.extend_from_slice(&crc(stored).to_le_bytes());
    file.extend_from_slice(&(stored.len() as u64).to_le_bytes());
    file.extend_from_slice(&(raw_bytes as u64).to_le_bytes());
    file.extend_from_slice(stored);
}

/// Reads a trace file.
///
/// # Errors
///
/// Whatever is wrong with the bytes, as one [`FileError`].
pub fn read(bytes: &[u8]) -> Result<Trace, FileError> {
    let mut rest = bytes;
    if take(&mut rest, 8, "start").ok() != Some(&MAGIC[..]) {
        return Err(FileError::NotATrace);
    }
    let found = number32(&mut rest, "start")?;
    if found != VERSION {
        return Err(FileError::Version { found });
    }
    let count = number32(&mut rest, "start")?;
    let mut trace = Trace::default();
    for _ in 0..count {
        let tag = take(&mut rest, 4, "list of sections")?;
        let section = String::from_utf8_lossy(tag).into_owned();
        let kind = number32(&mut rest, &section)?;
        let sum = number32(&mut rest, &section)?;
        let stored = number64(&mut rest, &section)?;
        let raw = number64(&mut rest, &section)?;
        let stored = usize::try_from(stored).unwrap_or(usize::MAX);
        let stored = take(&mut rest, stored, &section)?;
        if crc(stored) != sum {
            return Err(FileError::damaged(&section, "its checksum does not fit"));
        }
        match kind {
            0 => sections::decode(&section, stored, &mut trace)?,
            1 => sections::decode(&section, &unpack(stored, raw, &section)?, &mut trace)?,
            _ => return Err(FileError::damaged(&section, "it is packed in an unknown way")),
        }
    }
    if rest.is_empty() {
        Ok(trace)
    } else {
        Err(FileError::damaged("end", format!("{} bytes follow the last section", rest.len())))
    }
}

/// Packs what becomes smaller, but not so much that a reader would have to trust it.
fn pack(raw: &[u8]) -> Option<Vec<u8>> {
    let mut encoder =
        flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(raw).ok()?;
    let packed = encoder.finish().ok()?;
    (packed.len() < raw.len() && raw.len() as u64 <= unpacked_max(packed.len())).then_some(packed)
}

fn unpacked_max(packed: usize) -> u64 {
    UNPACK_FREE.max(UNPACK_MAX.saturating_mul(packed as u64))
}

fn unpack(stored: &[u8], size: u64, section: &str) -> Result<Vec<u8>, FileError> {
    if size > unpacked_max(stored.len()) {
        let reason = format!("it claims {size} bytes in {} stored ones", stored.len());
        return Err(FileError::damaged(section, reason));
    }
    let mut raw = Vec::new();
    let mut decoder = flate2::read::DeflateDecoder::new(stored).take(size + 1);
    decoder
        .read_to_end(&mut raw)
        .map_err(|error| FileError::damaged(section, format!("it does not unpack ({error})")))?;
    if raw.len() as u64 != size {
        return Err(FileError::damaged(section, "it unpacks to another size than it says"));
    }
    Ok(raw)
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn take<'a>(rest: &mut &'a [u8], count: usize, section: &str) -> Result<&'a [u8], FileError> {
    let cut_off = || FileError::CutOff { section: section.to_owned() };
    let (taken, left) = rest.split_at_checked(count).ok_or_else(cut_off)?;
    *rest = left;
    Ok(taken)
}

fn number32(rest: &mut &[u8], section: &str) -> Result<u32, FileError> {
    let bytes = take(rest, 4, section)?;
    Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn number64(rest: &mut &[u8], section: &str) -> Result<u64, FileError> {
    let bytes = take(rest, 8, section)?;
    Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}
