//! Mappings: the function faults the bytes in.
//!
//! `mmap:willneed` prefetches the pages of a window of files and returns the oldest; the other
//! variants map one file at a time. An empty file cannot be mapped and has no data.

use super::interface::{Cx, Fetch, Reaped, Started};
use super::opening::{Opened, failed_on, open, size_of};
use crate::arena::Lease;
use crate::error::{Error, FileError, Operation};
use crate::loaded::{Data, Loaded};
use crate::source::Item;
use ioloom_model::{CallKind, Method};
use ioloom_sys::file;
use ioloom_sys::map::{Map, MapAdvice};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

pub(crate) struct Mapped<'p, S> {
    advice: MapAdvice,
    window: usize,
    ahead: VecDeque<Loaded<'p, S>>,
}

impl<S> Mapped<'_, S> {
    pub(crate) fn new(method: Method, window: u32) -> Self {
        let advice = match method {
            Method::MmapSequential => MapAdvice::Sequential,
            Method::MmapWillneed => MapAdvice::Willneed,
            Method::MmapPopulate => MapAdvice::Populate,
            _ => MapAdvice::None,
        };
        Self { advice, window: window as usize, ahead: VecDeque::new() }
    }
}

impl<'p, S> Mapped<'p, S> {
    fn map(
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        Opened { file, size }: Opened,
        advice: MapAdvice,
    ) -> Result<Loaded<'p, S>, FileError> {
        // Empty files cannot be mapped, and files that are not regular report no size.
        let size = match size {
            Some(size) if size > 0 => size,
            _ => size_of_nonempty(cx, &item, &file)?,
        };
        let data = if size == 0 {
            Data::Empty
        } else {
            let map = match advice {
                MapAdvice::Populate => {
                    Map::populated(&file, size as usize, || cx.shared.stopping())
                }
                _ => Map::new(&file, size as usize, advice),
            };
            cx.meter.lap(CallKind::Map, item.index);
            Data::Map(map.map_err(|e| failed_on(&item, &file, Operation::Map, e))?)
        };
        drop(file);
        cx.meter.lap(CallKind::Close, item.index);
        let len = size as usize;
        let (file, size, cut) = (None, None, false);
        Ok(Loaded { item, file, data, len, offset: 0, size, cut, last: true })
    }
}

/// Returns the size of a file that had none, which is 0 only if the file is empty: files of `/proc`
/// have data, but no size, and cannot be mapped.
fn size_of_nonempty<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    file: &OwnedFd,
) -> Result<u64, FileError> {
    let size = size_of(cx, item, file)?;
    if size > 0 {
        return Ok(size);
    }
    let read = file::read_at(file, &mut [0], 0);
    cx.meter.lap(CallKind::Read, item.index);
    match read {
        Ok(0) => Ok(0),
        // It may have grown since.
        Ok(_) => match size_of(cx, item, file)? {
            0 => {
                let reason = io::Error::other("it has data, but its size is 0");
                Err(failed_on(item, file, Operation::Map, reason))
            }
            size => Ok(size),
        },
        Err(error) => Err(failed_on(item, file, Operation::Read, error)),
    }
}

impl<'p, S> Fetch<'p, S> for Mapped<'p, S> {
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        _: Option<Lease>,
    ) -> Started<'p, S> {
        let opened = match open(cx, &item, false) {
            Ok(opened) => opened,
            Err(not) => return not.started(item),
        };
        match Self::map(cx, item, opened, self.advice) {
            Ok(loaded) if self.window > 1 => {
                self.ahead.push_back(loaded);
                Started::Pending
            }
            Ok(loaded) => Started::Ready(loaded),
            Err(error) => Started::Failed(error),
        }
    }

    fn resume(&mut self, _: &mut Cx<'_, '_>, done: Loaded<'p, S>) -> Started<'p, S> {
        // A mapping is the whole file, so there is no next piece.
        Started::Ready(done)
    }

    fn reap(
        &mut self,
        _: &mut Cx<'_, '_>,
        wait: bool,
        out: &mut Reaped<'p, S>,
    ) -> Result<(), Error> {
        if wait || self.ahead.len() >= self.window {
            out.extend(self.ahead.pop_front().map(Ok));
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.ahead.len()
    }
}
