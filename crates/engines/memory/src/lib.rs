//! Measures the behaviour of the memory hierarchy, independently of what is advertised.
//!
//! [`measure`] determines the latency of dependent loads as a function of the working set size and
//! identifies the cache levels. Unless quick mode is on, it then compares other measurement
//! methods; measures the effects of page size, parallel loads, threads and read buffers; and
//! answers sixteen questions about the validity of the measurement. Cache sizes reported by the
//! kernel and the processor are never an input; they are compared at the end.
//!
//! Every figure is a minimum over many short blocks in shuffled passes, each well below a scheduler
//! tick: on a busy machine, a mean would measure other programs. The median and tenth percentile
//! are stored as well; they show what a program gets under the current load. The cost is a few
//! seconds in quick mode, less than half a minute otherwise, and at most 400 MiB of memory.

mod blocks;
mod buffers;
mod checks;
mod cpu_wait;
mod cycle;
mod error;
mod flight;
mod ladder;
mod measure;
mod options;
mod pages;
mod parallel;
mod rulers;
pub mod single;
pub mod smt;
mod threads;

pub use cycle::{is_one_cycle, sattolo};
pub use error::MemoryError;
pub use measure::measure;
pub use options::{Advertised, MemoryOptions, Part};
pub use smt::SmtPlan;
