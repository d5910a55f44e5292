//! Methods: how one thread gets loaded files.
//!
//! A [`Fetch`] belongs to one thread. [`Fetch::start`] starts the first piece of a file and
//! [`Fetch::resume`] the next one. Either returns a loaded piece, or the piece is in flight and
//! [`Fetch::reap`] returns it later. Blocking methods always return loaded pieces. Because all
//! methods share this interface, every schedule can drive every method.

mod after_read;
mod blocking;
mod either;
mod interface;
mod lease;
mod map;
mod missed;
mod neighbours;
mod nowait;
mod opening;
mod piece;
mod pread;
mod progress;
mod ring;

pub(crate) use interface::{Cx, Fetch, Reaped, SHORT_FUNCTION_NS, Started};
pub(crate) use lease::{FIRST_READ, full_of_window, no_buffer, try_lease};
pub(crate) use missed::Missed;
pub(crate) use ring::REGISTERED_BYTES;

use crate::error::Error;
use crate::shared::Shared;
use ioloom_model::Method;

/// Creates the fetch of a plan for the calling thread, which has a number, with at most `window` pieces
/// in flight.
pub(crate) fn make<'p, S: Send + 'p>(
    shared: &Shared<'_>,
    number: usize,
    window: u32,
) -> Result<Box<dyn Fetch<'p, S> + 'p>, Error> {
    // References to directories are not among the descriptors that a plan requires.
    let may_refer = (number as u64) < shared.spare_descriptors;
    Ok(match shared.plan.method {
        Method::Read => Box::new(blocking::Blocking::new(false)),
        Method::DirectRead => Box::new(blocking::Blocking::new(true)),
        Method::Null => Box::new(blocking::Nothing),
        Method::Nowait => match shared.methods.ring_of(number) {
            Some(depth) => Box::new(either::Either::new(window, depth, may_refer)),
            None => Box::new(nowait::NowaitWindow::new(window, may_refer)),
        },
        Method::MmapPlain | Method::MmapSequential | Method::MmapPopulate => {
            Box::new(map::Mapped::new(shared.plan.method, 1))
        }
        Method::MmapWillneed => Box::new(map::Mapped::new(Method::MmapWillneed, window)),
        Method::Uring | Method::UringOpen | Method::UringRegistered | Method::DirectUring => {
            Box::new(ring::Rings::new(shared, window)?)
        }
    })
}
