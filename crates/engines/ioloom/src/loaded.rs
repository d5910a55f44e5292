//! A piece of a file, loaded and ready to be computed.

use crate::arena::Lease;
use crate::shared::Shared;
use crate::source::Item;
use ioloom_model::CallKind;
use ioloom_observe::Meter;
use ioloom_sys::map::Map;
use std::os::fd::OwnedFd;

/// The bytes of a piece.
pub(crate) enum Data {
    /// In a recycled buffer.
    Buffer(Lease),
    /// In a mapping.
    Map(Map),
    /// None.
    Empty,
}

impl Data {
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        match self {
            Self::Buffer(lease) => lease.bytes(len),
            Self::Map(map) => map.bytes(),
            Self::Empty => &[],
        }
    }
}

/// A piece of a file, ready to be computed.
pub(crate) struct Loaded<'p, S> {
    pub(crate) item: Item<'p, S>,
    pub(crate) file: Option<OwnedFd>,
    pub(crate) data: Data,
    pub(crate) len: usize,
    pub(crate) offset: u64,
    pub(crate) last: bool,
}

impl<S> Loaded<'_, S> {
    /// The first buffer of a piece that is done, for the same thread's next file. Not where buffers
    /// are scarce, wanted fresh, kept by the user, or where the next path may be long in coming:
    /// there it goes back to all.
    pub(crate) fn take_spare(&mut self, shared: &Shared<'_>) -> Option<Lease> {
        match &self.data {
            Data::Buffer(lease)
                if shared.spares && !lease.is_kept() && lease.charged() == shared.first_charge => {}
            _ => return None,
        }
        match std::mem::replace(&mut self.data, Data::Empty) {
            Data::Buffer(lease) => Some(lease),
            _ => None,
        }
    }

    /// Releases a piece that was computed. Unmapping is timed as a call of its own.
    pub(crate) fn release(self, meter: &mut Meter) {
        let (mapped, index) = (matches!(self.data, Data::Map(_)), self.item.index);
        drop(self);
        if mapped {
            meter.lap(CallKind::Unmap, index);
        } else {
            meter.skip();
        }
    }
}
