//! What every thread did when.
//!
//! Pure: recorded events go in ([`raw::Raw`]), a [`Trace`] of lanes comes out, and from it exact
//! shares for any range of time, findings in words, and files. No clock, no system call, so every
//! rule can be tested on planted events. All times are nanoseconds after the start of the run, on
//! the monotonic clock.

pub mod classify;
pub mod csv;
pub mod file;
pub mod findings;
pub mod lane;
pub mod perfetto;
pub mod raw;
pub mod shares;
pub mod span;
pub mod utilisation;
pub mod viewer;

pub use classify::classify;
pub use findings::{Finding, findings};
pub use lane::{
    Core, CoreRun, Device, Mark, NO_CPU, NO_FILE, Request, Segment, Series, Thread, Trace, Wake,
};
pub use span::{Span, SpanKind};
