//! Frames, of which a log consists, and nothing but zeros after the last one.
//!
//! ```text
//! 0   mark with the version            8
//! 8   number of this log               8   drawn when the file was made
//! 16  where the frame begins           8
//! 24  how far the log was synced       8   when the frame was written
//! 32  number of the first order        8   of a beginning: of the latest order before it
//! 40  bytes of the frame               4
//! 44  bytes of its content             4   the rest of the frame is zeros
//! 48  kind, and seven zeros            8
//! 56  sum of all other bytes           8   xxh3
//! 64  content
//! ```
//!
//! One frame is one write, so one sum says whether it arrived whole. It knows its place and its log,
//! so bytes that were there before, or lie in the wrong place, are no frame. How far the log was
//! synced tells a torn end from damage: a frame that is not whole and lies before that point was on
//! the disk once. Costs 64 bytes and one hash for each commit.

use super::super::bytes;
use ioloom_exchange::{Line, Record};
use std::io;
use std::os::fd::OwnedFd;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes before the content.
pub(super) const HEAD: usize = 64;
/// Bytes of a content at most, unless one order is larger.
pub(super) const CONTENT_MAX: usize = 1 << 20;
/// Bytes of a frame that is read at most.
const FRAME_MAX: usize = 2 * CONTENT_MAX;
/// Bytes that are read at once.
const WINDOW: usize = 1 << 20;

/// What a frame begins with, the version among it.
pub(super) const MARK: [u8; 8] = *b"iolog v1";
const SUM_AT: usize = 56;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What the log begins with: see [`Beginning`].
    Beginning = 1,
    /// Stocks of the beginning, twelve bytes each.
    Stocks = 2,
    /// Orders, each with its length before it.
    Orders = 3,
    /// Hashes of stock files that may be found.
    Hashes = 4,
}

/// A log's first frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beginning {
    /// Frames begin at multiples of so many bytes.
    pub(super) align: u32,
    /// Stocks in the frames that follow.
    pub(super) stocks: u64,
    /// Hashes of stock files that may be found.
    pub(super) hashes: Vec<u64>,
}

impl Beginning {
    pub(super) fn content(&self) -> Vec<u8> {
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

/// Everything about a frame but its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The log that it belongs to.
    pub(super) log: u64,
    /// Where it begins.
    pub(super) at: u64,
    /// How far the log was synced when it was written.
    pub(super) synced: u64,
    /// The number of its first order; of a beginning, of the latest order before it.
    pub(super) first: u64,
    /// What it holds.
    pub(super) kind: Kind,
}

/// Puts a frame together in `out`, filled up with zeros to a multiple of `align`.
pub(super) fn put(out: &mut Vec<u8>, head: &Head, content: &[u8], align: u32) {
    let whole = (HEAD + content.len()).next_multiple_of(align as usize);
    out.clear();
    out.extend_from_slice(&MARK);
    for number in [head.log, head.at, head.synced, head.first] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [whole, content.len()] {
        // Contents are bounded far below that.
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

/// Adds an order to a content.
pub(super) fn push_order(content: &mut Vec<u8>, value: &[u8]) {
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    content.extend_from_slice(&len.to_le_bytes());
    content.extend_from_slice(value);
}

/// The orders of a content, as they were pushed; an error of one ends them with `None`.
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

/// The record of the order with a number.
pub(super) fn record(seq: u64, value: &[u8]) -> Option<Record> {
    bytes::record(&bytes::key(seq), value)
}

/// Adds a stock to a content.
pub(super) fn push_stock(content: &mut Vec<u8>, line: &Line) {
    content.extend_from_slice(&line.id.to_le_bytes());
    content.extend_from_slice(&bytes::stock(line.left, line.price));
}

/// The stocks of a content.
pub(super) fn stocks(content: &[u8]) -> Option<Vec<Line>> {
    let (whole, rest) = content.as_chunks::<12>();
    let line = |bytes: &[u8; 12]| {
        let (id, stock) = bytes.split_first_chunk::<4>()?;
        let (left, price) = bytes::left_and_price(stock)?;
        Some(Line { id: u32::from_le_bytes(*id), left, price })
    };
    if rest.is_empty() { whole.iter().map(line).collect() } else { None }
}

/// Where frames are read from.
pub(super) trait Source {
    /// Bytes that are there.
    fn size(&self) -> io::Result<u64>;
    /// Reads at `at` until `into` is full or the end has come; gives the bytes read.
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

    /// So many bytes, fewer at the end.
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

    /// The frame at a place, with its content and where it ends, if a whole one begins there.
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

    /// Looks for what follows `from`: where a whole frame of this log lies that was written when the
    /// log was synced beyond `from`, and whether anything but zeros is there.
    pub(super) fn after(&mut self, from: u64, log: u64) -> io::Result<After> {
        let sign = [&MARK[..], &log.to_le_bytes()].concat();
        let mut found = After { synced_frame: None, is_zeros: true };
        let mut at = from;
        while at < self.size {
            let piece = self.bytes(at, WINDOW)?;
            found.is_zeros &= piece.iter().all(|byte| *byte == 0);
            let places: Vec<u64> = if found.is_zeros {
                Vec::new()
            } else {
                let places = piece.windows(sign.len()).enumerate();
                let places = places.filter(|(_, bytes)| bytes[0] == sign[0] && **bytes == sign);
                places.map(|(place, _)| at + place as u64).collect()
            };
            let read = piece.len() as u64;
            for place in places {
                if self.frame(place)?.is_some_and(|(head, ..)| head.synced > from) {
                    found.synced_frame = Some(place);
                    return Ok(found);
                }
            }
            if read < WINDOW as u64 {
                break;
            }
            // A sign may begin in the last bytes of a piece.
            at += read - sign.len() as u64;
        }
        Ok(found)
    }
}

/// What lies behind the last frame of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct After {
    /// A frame that shows that what lies before it was on the disk.
    pub(super) synced_frame: Option<u64>,
    /// Whether there are zeros only.
    pub(super) is_zeros: bool,
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
