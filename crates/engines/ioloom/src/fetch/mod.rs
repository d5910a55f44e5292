//! Methods: how one thread gets loaded files.
//!
//! A [`Fetch`] belongs to one thread. [`Fetch::start`] begins with the first piece of a file,
//! [`Fetch::resume`] with the next; either has it at once, or it is in flight and comes out of
//! [`Fetch::reap`]. Blocking methods always have it at once. One interface for all of them is what
//! lets every schedule drive every method.

mod after_read;
mod blocking;
mod interface;
mod lease;
mod map;
mod nowait;
mod opening;
mod piece;
mod pread;
mod ring;

pub(crate) use interface::{Cx, Fetch, Reaped, Started};
pub(crate) use lease::{full_of_window, no_buffer};
pub(crate) use ring::REGISTERED_BYTES;

use crate::error::Error;
use crate::shared::Shared;
use ioloom_model::Method;

/// Makes the fetch of a plan for the calling thread with at most `window` pieces in flight.
pub(crate) fn make<'p, S: Send + 'p>(
    shared: &Shared<'_>,
    window: u32,
) -> Result<Box<dyn Fetch<'p, S> + 'p>, Error> {
    Ok(match shared.plan.method {
        Method::Read => Box::new(blocking::Blocking::new(false)),
        Method::DirectRead => Box::new(blocking::Blocking::new(true)),
        Method::Null => Box::new(blocking::Nothing),
        Method::Nowait => Box::new(nowait::NowaitWindow::new(window)),
        Method::MmapPlain | Method::MmapSequential | Method::MmapPopulate => {
            Box::new(map::Mapped::new(shared.plan.method, 1))
        }
        Method::MmapWillneed => Box::new(map::Mapped::new(Method::MmapWillneed, window)),
        Method::Uring | Method::UringOpen | Method::UringRegistered | Method::DirectUring => {
            Box::new(ring::Rings::new(shared, window)?)
        }
    })
}
