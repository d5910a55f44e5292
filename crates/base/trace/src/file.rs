//! The trace file `.ioloom`: a complete [`Trace`] to store, send and open elsewhere.
//!
//! # Layout
//!
//! All fixed-size numbers are little-endian.
//!
//! ```text
//! 0   8 bytes  magic "IOLMTRCE"
//! 8   u32      version, 1
//! 12  u32      number of sections
//! then per section:
//!     4 bytes  tag: HEAD, THRD (one per thread), DEVS, CORE, SERI, MARK, FILE, LIMT (optional)
//!     u32      0: stored, 1: deflate
//!     u32      CRC-32 of the bytes as stored
//!     u64      number of bytes as stored
//!     u64      number of bytes when unpacked
//!     bytes
//! ```
//!
//! In a section, numbers are LEB128, text is a length and UTF-8, and a list is its length followed
//! by its columns. Times are stored as differences, so they are short and always in order. Data
//! also contained in the JSON of a run (evidence, state tables) is stored as that JSON. A reader
//! skips unknown tags, and refuses a file without one of HEAD, DEVS, CORE, SERI, MARK and FILE.
//!
//! # Untrusted files
//!
//! A file can be truncated, damaged or malicious. Every length is therefore compared with the
//! available bytes before memory is reserved, a section unpacks to at most 64 KiB or [`UNPACK_MAX`]
//! times its size, all sections together to at most 1 MiB plus [`UNPACK_MAX`] times the size of the
//! file (the writer stores sections that would exceed a limit), the items of all lists take at most
//! 64 MiB plus 64 times the size of the file in memory, and every trace that is read satisfies the
//! invariants of the other modules (segments tile, spans do not overlap, times are below 2^53 ns).
//! Any violation is an error.

mod columns;
mod error;
mod format;
mod sections;

pub use error::FileError;
pub use format::{MAGIC, VERSION};

use crate::lane::Trace;
use flate2::Crc;
use std::io::{Read, Write};

/// Maximum ratio of unpacked to stored bytes per section. Times of real threads contain noise and
/// shrink less.
pub const UNPACK_MAX: u64 = 8;
/// Unpacked size in bytes that is always allowed: small sections with repeated text shrink more.
const UNPACK_FREE: u64 = 64 * 1024;
/// The same for all sections together.
const UNPACK_FREE_TOTAL: u64 = 16 * UNPACK_FREE;
/// Number of bytes in memory per unpacked byte that items other than short text take at most.
const ITEMS_MAX: u64 = 8;
/// Memory in bytes that items may always take.
const ITEMS_FREE: u64 = 64 << 20;
/// Number of bytes that [`check_start`] needs.
pub const START_BYTES: u64 = 12;

/// Returns the bytes of a trace file. The trace must be in the order in which [`crate::classify()`]
/// returns it.
pub fn write(trace: &Trace) -> Vec<u8> {
    let sections = sections::encode(trace);
    let mut file = start(sections.len());
    let mut unpacked = 0_u64;
    for (tag, raw) in sections {
        let after = unpacked + raw.len() as u64;
        // The file only grows, so a reader has at least this limit.
        let packed = pack(&raw).filter(|p| after <= total_max(file.len() + p.len()));
        if packed.is_some() {
            unpacked = after;
        }
        let (kind, stored) = packed.as_ref().map_or((0_u32, &raw), |packed| (1, packed));
        section(&mut file, &tag, kind, stored, raw.len());
    }
    file
}

/// Returns the file of an empty trace, except for one section with the specified contents and a valid
/// checksum. Used for fuzzing, which would never guess a valid checksum.
pub fn single_section(tag: &[u8; 4], contents: &[u8]) -> Vec<u8> {
    let mut sections = sections::encode(&Trace::default());
    sections.retain(|(known, _)| known != tag);
    sections.push((*tag, contents.to_vec()));
    let mut file = start(sections.len());
    for (tag, raw) in &sections {
        section(&mut file, tag, 0, raw, raw.len());
    }
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

/// Checks the first [`START_BYTES`] bytes of a file, so that other files are not read.
///
/// # Errors
///
/// Fails if they are not the start of a trace file of this version.
pub fn check_start(bytes: &[u8]) -> Result<(), FileError> {
    let mut rest = bytes;
    skip_start(&mut rest)
}

fn skip_start(rest: &mut &[u8]) -> Result<(), FileError> {
    if take(rest, 8, "start").ok() != Some(&MAGIC[..]) {
        return Err(FileError::NotATrace);
    }
    let found = number32(rest, "start")?;
    if found == VERSION { Ok(()) } else { Err(FileError::Version { found }) }
}

/// Reads a trace file.
///
/// # Errors
///
/// Fails if the bytes are not a valid trace file.
pub fn read(bytes: &[u8]) -> Result<Trace, FileError> {
    let mut rest = bytes;
    skip_start(&mut rest)?;
    let mut unpacked = 0_u64;
    let mut room = items_max(bytes.len());
    let count = number32(&mut rest, "start")?;
    let mut trace = Trace::default();
    let mut missing = sections::REQUIRED.to_vec();
    for _ in 0..count {
        let tag = take(&mut rest, 4, "list of sections")?;
        let section = tag.escape_ascii().to_string();
        let kind = number32(&mut rest, &section)?;
        let sum = number32(&mut rest, &section)?;
        let stored = number64(&mut rest, &section)?;
        let raw = number64(&mut rest, &section)?;
        let stored = usize::try_from(stored).unwrap_or(usize::MAX);
        let stored = take(&mut rest, stored, &section)?;
        if crc(stored) != sum {
            return Err(FileError::damaged(&section, "the checksum does not match"));
        }
        match kind {
            0 => sections::decode(&section, stored, &mut trace, &mut room)?,
            1 => {
                let contents = unpack(stored, raw, &section)?;
                unpacked += contents.len() as u64;
                if unpacked > total_max(bytes.len()) {
                    let reason = "the sections unpack to more than a file of this size may contain";
                    return Err(FileError::damaged(&section, reason));
                }
                sections::decode(&section, &contents, &mut trace, &mut room)?;
            }
            _ => return Err(FileError::damaged(&section, "unknown compression")),
        }
        missing.retain(|tag| *tag != section);
    }
    if !rest.is_empty() {
        let reason = format!("{} bytes follow the last section", rest.len());
        return Err(FileError::damaged("end", reason));
    }
    // The checksum does not cover the tag.
    missing.first().map_or(Ok(trace), |tag| Err(FileError::damaged(tag, "it is missing")))
}

/// Compresses bytes. Returns `None` if they do not shrink or shrink more than a reader accepts.
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

/// Returns how many bytes the sections of a file may unpack to.
fn total_max(file: usize) -> u64 {
    UNPACK_FREE_TOTAL.saturating_add(UNPACK_MAX.saturating_mul(file as u64))
}

/// Returns how many bytes of memory the items of a file may take.
fn items_max(file: usize) -> u64 {
    let per_byte = UNPACK_MAX * ITEMS_MAX;
    ITEMS_FREE.saturating_add(per_byte.saturating_mul(file as u64))
}

fn unpack(stored: &[u8], size: u64, section: &str) -> Result<Vec<u8>, FileError> {
    if size > unpacked_max(stored.len()) {
        let reason = format!("{} stored bytes cannot unpack to {size}", stored.len());
        return Err(FileError::damaged(section, reason));
    }
    let mut raw = Vec::new();
    let mut decoder = flate2::read::DeflateDecoder::new(stored).take(size + 1);
    decoder
        .read_to_end(&mut raw)
        .map_err(|error| FileError::damaged(section, format!("cannot unpack it ({error})")))?;
    if raw.len() as u64 != size {
        return Err(FileError::damaged(section, "the unpacked size does not match"));
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
