//! A loaded piece of a file, ready for the function.

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
    #[inline]
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        match self {
            Self::Buffer(lease) => lease.bytes(len),
            Self::Map(map) => map.bytes(),
            Self::Empty => &[],
        }
    }
}

/// A loaded piece of a file, ready for the function.
pub(crate) struct Loaded<'p, S> {
    pub(crate) item: Item<'p, S>,
    pub(crate) file: Option<OwnedFd>,
    pub(crate) data: Data,
    pub(crate) len: usize,
    pub(crate) offset: u64,
    /// Size of the file, if it was queried.
    pub(crate) size: Option<u64>,
    /// Whether a short read may not be the end of the file.
    pub(crate) cut: bool,
    pub(crate) last: bool,
}

impl<S> Loaded<'_, S> {
    /// Takes the first buffer of a finished piece for the next file of the same thread, which gives it back
    /// before it waits for a path. Returns `None` where the buffer is better shared: buffers are scarce,
    /// must be fresh, or are retained by the user. Neither is it reused while copies that the user retains
    /// exceed the budget: the thread must wait for memory.
    pub(crate) fn take_spare(&mut self, shared: &Shared<'_>) -> Option<Lease> {
        match &self.data {
            Data::Buffer(lease)
                if shared.spares
                    && !lease.is_kept()
                    && lease.charged() == shared.first_charge
                    && shared.budget.used() <= shared.budget.limit() => {}
            _ => return None,
        }
        match std::mem::replace(&mut self.data, Data::Empty) {
            Data::Buffer(lease) => Some(lease),
            _ => None,
        }
    }

    /// Releases the bytes and the file of a finished piece, and a state that is left if the run ends early.
    /// Unmapping is timed as a call of its own.
    #[inline]
    pub(crate) fn release(&mut self, meter: &mut Meter) {
        let mapped = matches!(self.data, Data::Map(_));
        self.data = Data::Empty;
        self.file = None;
        self.item.state = None;
        if mapped {
            meter.lap(CallKind::Unmap, self.item.index);
        } else {
            meter.skip();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::Started;

    #[test]
    fn the_state_of_a_file_does_not_enlarge_its_pieces() {
        // More than 128 bytes are moved by a call, and a piece is moved several times.
        assert!(size_of::<Loaded<'_, [u64; 100]>>() <= 128);
        assert!(size_of::<Started<'_, [u64; 100]>>() <= 128);
    }
}
