//! The frames of a log. Only zeros follow the last frame.
//!
//! ```text
//! 0   magic with the version           8
//! 8   number of this log               8   random, drawn when the file was created
//! 16  offset of the frame              8
//! 24  synced length of the log         8   when the frame was written
//! 32  number of the first order        8   in the first frame: of the latest order before it
//! 40  size of the frame                4
//! 44  size of its contents             4   the rest of the frame is zeros
//! 48  kind, and seven zeros            8
//! 56  checksum of all other bytes      8   xxh3
//! 64  contents
//! ```
//!
//! A frame is written with a single write, so one checksum shows whether it is complete. A frame
//! contains its offset and log number, so neither stale bytes nor misplaced bytes form a valid
//! frame. The synced length distinguishes a torn tail from damage: an incomplete frame before that
//! point had once been on disk. The cost is 64 bytes and one hash per commit.

use super::super::bytes;
use ioloom_exchange::{Line, Record};
use std::io;
use std::os::fd::OwnedFd;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Size of the header in bytes.
pub(super) const HEAD: usize = 64;
/// Maximum size of the contents in bytes, unless a single order is larger.
pub(super) const CONTENT_MAX: usize = 1 << 20;
/// Maximum size of a frame accepted when reading, in bytes.
const FRAME_MAX: usize = 2 * CONTENT_MAX;
/// Read size in bytes.
const WINDOW: usize = 1 << 20;

/// The first bytes of a frame, including the version.
pub(super) const MARK: [u8; 8] = *b"iolog v1";
const SUM_AT: usize = 56;
/// Size of the length before an order.
const LEN: usize = 4;

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// First frame of a log; see [`Beginning`].
    Beginning = 1,
    /// Initial stocks, twelve bytes each.
    Stocks = 2,
    /// Orders, each preceded by its length.
    Orders = 3,
    /// Hashes of stock files that may exist.
    Hashes = 4,
}

/// Contents of the first frame in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beginning {
    /// Alignment of frames in bytes.
    pub(super) align: u32,
    /// Number of stocks in the following frames.
    pub(super) stocks: u64,
    /// Hashes of stock files that may exist.
    pub(super) hashes: Vec<u64>,
}

impl Beginning {
    pub(super) fn contents(&self) -> Vec<u8> {
        let fixed = [&self.align.to_le_bytes()[..], &self.stocks.to_le_bytes()].concat();
        [fixed, bytes::hashes(&self.hashes)].concat()
    }

    pub(super) fn of(content: &[u8]) -> Option<Self> {
        let (align, rest) = content.split_first_chunk::<4>()?;
        let (stocks, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            align: u32::from_le_bytes(*align),
            stocks: u64::from_le_bytes(*stocks),
            hashes: bytes::hashes_of(rest)?,
        })
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The log number.
    pub(super) log: u64,
    /// The frame's offset.
    pub(super) at: u64,
    /// Synced length of the log when the frame was written.
    pub(super) synced: u64,
    /// Number of the first order in the frame; in the first frame, of the latest order before it.
    pub(super) first: u64,
    /// The frame type.
    pub(super) kind: Kind,
}

/// Assembles a frame in `out`, padded with zeros to a multiple of `align`.
pub(super) fn put(out: &mut Vec<u8>, head: &Head, content: &[u8], align: u32) {
    let whole = (HEAD + content.len()).next_multiple_of(align as usize);
    debug_assert!(head.at.is_multiple_of(u64::from(align)), "a frame must start at its alignment");
    out.clear();
    out.extend_from_slice(&MARK);
    for number in [head.log, head.at, head.synced, head.first] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [whole, content.len()] {
        // The contents are far smaller.
        out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    }
    out.extend_from_slice(&u64::from(head.kind as u8).to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(content);
    out.resize(whole, 0);
    let sum = sum(out).to_le_bytes();
    out[SUM_AT..HEAD].copy_from_slice(&sum);
}

fn sum(frame: &[u8]) -> u64 {
    xxh3_64_with_seed(&frame[HEAD..], xxh3_64(&frame[..SUM_AT]))
}

/// Appends an order to the contents of a frame.
pub(super) fn push_order(content: &mut Vec<u8>, value: &[u8]) {
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    content.extend_from_slice(&len.to_le_bytes());
    content.extend_from_slice(value);
}

/// Appends the order of a record to the contents of a frame.
pub(super) fn push_record(content: &mut Vec<u8>, record: &Record) {
    let at = content.len();
    content.extend_from_slice(&[0; LEN]);
    bytes::push_value(content, record);
    let len = u32::try_from(content.len() - at - LEN).unwrap_or(u32::MAX);
    content[at..at + LEN].copy_from_slice(&len.to_le_bytes());
}

/// Iterates over the orders in a frame's contents. Yields `None` for an invalid order and then
/// stops.
pub(super) fn orders(mut content: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        if content.is_empty() {
            return None;
        }
        let split = content.split_first_chunk::<4>().and_then(|(len, rest)| {
            rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
        });
        content = split.map_or(&[], |(_, rest)| rest);
        Some(split.map(|(value, _)| value))
    })
}

/// Decodes the record of the order with this number.
pub(super) fn record(seq: u64, value: &[u8]) -> Option<Record> {
    bytes::record(&bytes::key(seq), value)
}

/// Appends a stock to the contents of a frame.
pub(super) fn push_stock(content: &mut Vec<u8>, line: &Line) {
    content.extend_from_slice(&line.id.to_le_bytes());
    content.extend_from_slice(&bytes::stock(line.left, line.price));
}

/// Decodes the stocks in the contents of a frame.
pub(super) fn stocks(content: &[u8]) -> Option<Vec<Line>> {
    let (whole, rest) = content.as_chunks::<12>();
    let line = |bytes: &[u8; 12]| {
        let (id, stock) = bytes.split_first_chunk::<4>()?;
        let (left, price) = bytes::left_and_price(stock)?;
        Some(Line { id: u32::from_le_bytes(*id), left, price })
    };
    if rest.is_empty() { whole.iter().map(line).collect() } else { None }
}

/// A source of frames.
pub(super) trait Source {
    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Reads at offset `at` until `into` is full or the end is reached; returns the number of bytes
    /// read.
    fn read(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
}

impl Source for OwnedFd {
    fn size(&self) -> io::Result<u64> {
        ioloom_sys::file::size(self)
    }

    fn read(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        ioloom_sys::file::read_full_at(self, into, at)
    }
}

/// Reads a source in large pieces.
pub(super) struct Frames<'a> {
    source: &'a dyn Source,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Frames<'a> {
    pub(super) fn new(source: &'a dyn Source) -> io::Result<Self> {
        Ok(Self { source, size: source.size()?, start: 0, bytes: Vec::new() })
    }

    /// Returns up to `count` bytes; fewer at the end.
    pub(super) fn bytes(&mut self, at: u64, count: usize) -> io::Result<&[u8]> {
        let rest = self.size.saturating_sub(at);
        let count = usize::try_from(rest).unwrap_or(count).min(count);
        let have = self.start..self.start + self.bytes.len() as u64;
        if !have.contains(&at) || at + count as u64 > have.end {
            let most = usize::try_from(rest).unwrap_or(WINDOW);
            self.bytes.resize(count.max(WINDOW).min(most), 0);
            let read = self.source.read(&mut self.bytes, at)?;
            self.bytes.truncate(read);
            self.start = at;
        }
        let from = usize::try_from(at - self.start).unwrap_or(0).min(self.bytes.len());
        let to = (from + count).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }

    /// Returns the frame at an offset, with its contents and end, if it is complete.
    pub(super) fn frame(&mut self, at: u64) -> io::Result<Option<(Head, &[u8], u64)>> {
        let Some((head, whole, used)) = head_of(self.bytes(at, HEAD)?) else { return Ok(None) };
        if head.at != at || !(HEAD..=FRAME_MAX).contains(&whole) || used > whole - HEAD {
            return Ok(None);
        }
        let frame = self.bytes(at, whole)?;
        if frame.len() < whole || frame[SUM_AT..HEAD] != sum(frame).to_le_bytes() {
            return Ok(None);
        }
        Ok(Some((head, &frame[HEAD..HEAD + used], at + whole as u64)))
    }

    /// Searches the bytes starting at `from` for complete frames of this log and nonzero bytes.
    pub(super) fn after(&mut self, from: u64, log: u64) -> io::Result<After> {
        let sign = [&MARK[..], &log.to_le_bytes()].concat();
        let mut found = After { synced_frame: None, latest: 0, used_end: from };
        let mut at = from;
        while at < self.size {
            let piece = self.bytes(at, WINDOW)?;
            let used = bytes::used(piece);
            if used > 0 {
                found.used_end = found.used_end.max(at + used as u64);
            }
            let places: Vec<u64> = if found.is_zeros(from) {
                Vec::new()
            } else {
                // The rest is zero. A sign can end in zeros, but not start with one.
                let piece = &piece[..piece.len().min(used + sign.len())];
                let places = piece.windows(sign.len()).enumerate();
                let places = places.filter(|(_, bytes)| bytes[0] == sign[0] && **bytes == sign);
                places.map(|(place, _)| at + place as u64).collect()
            };
            let read = piece.len() as u64;
            for place in places {
                let Some((head, content, _)) = self.frame(place)? else { continue };
                if head.synced > from && found.synced_frame.is_none() {
                    found.synced_frame = Some(place);
                }
                if head.kind == Kind::Orders {
                    let count = orders(content).count() as u64;
                    found.latest = found.latest.max(head.first + count - 1);
                }
            }
            if read < WINDOW as u64 {
                break;
            }
            // The pattern may start in the last bytes of a piece.
            at += read - sign.len() as u64;
        }
        Ok(found)
    }
}

/// The bytes after the last frame of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct After {
    /// Offset of a complete frame that was written when the log was synced past the searched
    /// offset, which proves that the bytes there had been on disk.
    pub(super) synced_frame: Option<u64>,
    /// Number of the latest order in any complete frame, or 0.
    pub(super) latest: u64,
    /// End of the nonzero bytes.
    pub(super) used_end: u64,
}

impl After {
    /// Returns true if all bytes from offset `from`, where the search started, are zero.
    pub(super) fn is_zeros(&self, from: u64) -> bool {
        self.used_end == from
    }
}

fn head_of(bytes: &[u8]) -> Option<(Head, usize, usize)> {
    let bytes = bytes.first_chunk::<HEAD>()?;
    let long = |at: usize| bytes[at..].first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
    let short = |at: usize| {
        let number = bytes[at..].first_chunk::<4>().map(|b| u32::from_le_bytes(*b))?;
        usize::try_from(number).ok()
    };
    if bytes[..8] != MARK {
        return None;
    }
    let kind = match long(48)? {
        1 => Kind::Beginning,
        2 => Kind::Stocks,
        3 => Kind::Orders,
        4 => Kind::Hashes,
        _ => return None,
    };
    let head = Head { log: long(8)?, at: long(16)?, synced: long(24)?, first: long(32)?, kind };
    Some((head, short(40)?, short(44)?))
}
