//! Log recovery: replays the orders, starting from the initial stocks.
//!
//! Reading stops at the first offset without a complete frame. If the bytes there were never
//! synced, they may be the torn tail of an unacknowledged write. If a later frame proves that they
//! had been synced, the disk has lost them: the log is damaged, because everything that follows
//! depends on the missing part. Each order must follow from the
//! preceding state, so a log that is readable but incorrectly assembled is rejected too.

use super::frame::{self, After, Beginning, Frames, Head, Kind, MARK, Source};
use ioloom_exchange::{Exchange, Line, Record, State};
use std::io;

/// A recovered log.
#[derive(Debug)]
pub(super) struct Found {
    /// The log number.
    pub(super) log: u64,
    /// Alignment of frames in bytes.
    pub(super) align: u32,
    /// State after the last order.
    pub(super) state: State,
    /// Number of the latest order before the first one in the log.
    pub(super) base: u64,
    /// Hashes of stock files that may exist.
    pub(super) hashes: Vec<u64>,
    /// End of the last frame.
    pub(super) end: u64,
    /// Synced length according to the frames.
    pub(super) synced: u64,
    /// Whether nonzero bytes follow the last frame.
    pub(super) is_torn: bool,
    /// What follows the last frame.
    pub(super) after: After,
}

/// Why a log is rejected.
#[derive(Debug)]
pub(super) enum Problem {
    /// The log cannot be read.
    Read(io::Error),
    /// The file is not a log.
    NotOurs,
    /// The contents are wrong: description and offset.
    Damaged(&'static str, u64),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// The initial contents of a log.
pub(super) struct Begun {
    pub(super) log: u64,
    pub(super) align: u32,
    pub(super) base: u64,
    pub(super) lines: Vec<Line>,
    pub(super) hashes: Vec<u64>,
    pub(super) end: u64,
}

/// Reads the initial contents. They were synced before the log got its name, so they are either
/// complete or damaged.
pub(super) fn beginning(frames: &mut Frames<'_>) -> Result<Begun, Problem> {
    let Some((head, content, mut end)) = frames.frame(0)? else {
        let is_ours = frames.bytes(0, MARK.len())? == MARK;
        return Err(if is_ours { damaged(0) } else { Problem::NotOurs });
    };
    let begun = Beginning::of(content).filter(|begun| begun.align.is_power_of_two());
    let begun = begun.filter(|_| head.kind == Kind::Beginning).ok_or_else(|| damaged(0))?;
    let Head { log, first: base, .. } = head;
    let mut lines = Vec::new();
    while (lines.len() as u64) < begun.stocks {
        let more = frames.frame(end)?;
        let more = more.filter(|(head, ..)| head.log == log && head.kind == Kind::Stocks);
        let (_, content, next) = more.ok_or_else(|| damaged(end))?;
        lines.extend(frame::stocks(content).ok_or_else(|| damaged(end))?);
        end = next;
    }
    let Beginning { align, hashes, .. } = begun;
    Ok(Begun { log, align, base, lines, hashes, end })
}

fn damaged(at: u64) -> Problem {
    Problem::Damaged("the initial stocks are incomplete", at)
}

/// Description of a log whose missing bytes had been synced.
pub(super) const INCOMPLETE: &str = "a frame is incomplete, but later ones are complete";

/// Reads a log up to the first damage, and calls `each` for every order.
pub(super) fn read(source: &dyn Source, each: &mut dyn FnMut(&Record)) -> Result<Found, Problem> {
    let mut frames = Frames::new(source)?;
    let begun = beginning(&mut frames)?;
    let count = begun.lines.len();
    let exchange: Exchange = begun.lines.into_iter().collect();
    if exchange.len() != count {
        return Err(Problem::Damaged("two stocks have the same number", 0));
    }
    let mut found = Found {
        log: begun.log,
        align: begun.align,
        state: State::new(exchange, begun.base),
        base: begun.base,
        hashes: begun.hashes,
        end: begun.end,
        synced: begun.end,
        is_torn: false,
        after: After { synced_frame: None, latest: 0, used_end: begun.end },
    };
    while found.take(&mut frames, each)? {}
    found.after = frames.after(found.end, found.log)?;
    found.is_torn = !found.after.is_zeros(found.end);
    Ok(found)
}

impl Found {
    /// Replays the next frame; returns false if there is none.
    fn take(
        &mut self,
        frames: &mut Frames<'_>,
        each: &mut dyn FnMut(&Record),
    ) -> Result<bool, Problem> {
        let at = self.end;
        let next = frames.frame(at)?.filter(|(head, ..)| head.log == self.log);
        let Some((head, content, end)) = next else { return Ok(false) };
        let wrong = || Problem::Damaged("a frame does not follow from the previous ones", at);
        match head.kind {
            Kind::Hashes => {
                self.hashes = super::super::bytes::hashes_of(content).ok_or_else(wrong)?;
            }
            Kind::Orders => {
                for (seq, value) in (head.first..).zip(frame::orders(content)) {
                    let record = value.and_then(|value| frame::record(seq, value));
                    let record = record.ok_or_else(wrong)?;
                    self.state.replay(&record).map_err(|_| wrong())?;
                    each(&record);
                }
            }
            Kind::Beginning | Kind::Stocks => return Err(wrong()),
        }
        (self.end, self.synced) = (end, self.synced.max(head.synced));
        Ok(true)
    }
}
