//! What a log holds: the stocks it begins with, carried on by each order in turn.
//!
//! Reading ends at the first place where no whole frame begins. If what is there was never synced,
//! it is the torn end of a write that nobody was told about, and is left out. If a later frame shows
//! that it had been synced, the disk has lost it: that is damage, and the log is refused, because
//! everything behind it was built on what is missing. Each order must follow from the state before
//! it, so a log that reads whole and was put together wrongly is refused too.

use super::frame::{self, Beginning, Frames, Head, Kind, MARK, Source};
use ioloom_exchange::{Exchange, Line, State};
use std::io;

/// A log that was read.
#[derive(Debug)]
pub(super) struct Found {
    /// Its number.
    pub(super) log: u64,
    /// Frames begin at multiples of so many bytes.
    pub(super) align: u32,
    /// The state after its last order.
    pub(super) state: State,
    /// The number of the latest order before its first.
    pub(super) base: u64,
    /// Hashes of stock files that may be found.
    pub(super) hashes: Vec<u64>,
    /// Where the last frame ends.
    pub(super) end: u64,
    /// How far its frames say that it was synced.
    pub(super) synced: u64,
    /// Whether something that is no frame and not zero lies behind it.
    pub(super) is_torn: bool,
}

/// Why a log is not used.
#[derive(Debug)]
pub(super) enum Problem {
    /// It cannot be read.
    Read(io::Error),
    /// It is no log.
    NotOurs,
    /// What it holds cannot be right: what, and where.
    Damaged(&'static str, u64),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// What a log begins with.
pub(super) struct Begun {
    pub(super) log: u64,
    pub(super) align: u32,
    pub(super) base: u64,
    pub(super) lines: Vec<Line>,
    pub(super) hashes: Vec<u64>,
    pub(super) end: u64,
}

/// Reads what a log begins with. It was synced before the log got its name, so it is whole or damaged.
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
    Problem::Damaged("the stocks it begins with are not whole", at)
}

/// Reads a log.
pub(super) fn recover(source: &dyn Source) -> Result<Found, Problem> {
    let mut frames = Frames::new(source)?;
    let begun = beginning(&mut frames)?;
    let count = begun.lines.len();
    let exchange: Exchange = begun.lines.into_iter().collect();
    if exchange.len() != count {
        return Err(Problem::Damaged("two of its stocks have the same number", 0));
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
    };
    while found.take(&mut frames)? {}
    let after = frames.after(found.end, found.log)?;
    if after.synced_frame.is_some() {
        let what = "what is written there is not whole, and orders behind it are";
        return Err(Problem::Damaged(what, found.end));
    }
    found.is_torn = !after.is_zeros;
    Ok(found)
}

impl Found {
    /// Takes the next frame; whether there was one.
    fn take(&mut self, frames: &mut Frames<'_>) -> Result<bool, Problem> {
        let at = self.end;
        let next = frames.frame(at)?.filter(|(head, ..)| head.log == self.log);
        let Some((head, content, end)) = next else { return Ok(false) };
        let wrong = || Problem::Damaged("what is written there does not follow from before", at);
        match head.kind {
            Kind::Hashes => {
                self.hashes = super::super::bytes::hashes_of(content).ok_or_else(wrong)?;
            }
            Kind::Orders => {
                for (seq, value) in (head.first..).zip(frame::orders(content)) {
                    let record = value.and_then(|value| frame::record(seq, value));
                    self.state.replay(&record.ok_or_else(wrong)?).map_err(|_| wrong())?;
                }
            }
            Kind::Beginning | Kind::Stocks => return Err(wrong()),
        }
        (self.end, self.synced) = (end, self.synced.max(head.synced));
        Ok(true)
    }
}
