//! Traces: the state of every thread over time.
//!
//! [`classify()`] turns recorded events ([`raw::Raw`]) into a [`Trace`] of lanes. From a trace,
//! this crate computes exact shares for any time range, findings, and export files. It uses no
//! clock and no system calls, so every rule can be tested with synthetic events. All times are
//! nanoseconds after the start of the run, on the monotonic clock.

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
    Core, CoreRun, Device, Mark, NO_CPU, NO_FILE, ROLE_KERNEL_WORKER, ROLE_TOOL, Request, Segment,
    Series, Thread, Trace, Wake,
};
pub use span::{Span, SpanKind};
