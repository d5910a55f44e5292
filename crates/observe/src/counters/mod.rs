//! The counters of the machine over the time of a run: page cache, paging, devices, pressure, and
//! what the watched program itself read and wrote.
//!
//! The columns are those of `sar -r`, `-B` and `-d -p`, read from the same files, and what sar
//! lacks: dirty pages with their thresholds, throttled writes, refaults, stalls, pressure. Samples
//! hold the kernel's counters as they are; rates come from differences, so a phase between two
//! marks is exact and needs no interpolation: a mark takes a sample of its own ([`Sampler::mark`]).
//!
//! Each file is kept open and read with one call into a buffer of its own, without allocating.
//! /proc/vmstat is the dear one (the kernel adds up all processors and writes all lines): it is read
//! only as far as its last wanted line. /proc/meminfo, of which only a few lines cannot be had from
//! vmstat, is read every tenth time and at marks; so are devices that have done nothing for a while,
//! whose first work may stand up to nine samples late. Pressure, which the kernel adds up over all
//! processors for each reader, is read every fifth time. Memory is bounded:
//! when it is full every second sample goes and the period doubles; marks stay.
//!
//! What the numbers do not say: page-in and page-out count what is *submitted* to any device, direct
//! input and output and the journal included, and once more below a loop or stacked device. `nr_dirty`
//! is gathered per processor and may lag a second behind for fewer than some hundred pages; ask
//! cachestat about single files. Busy time of a device is no saturation where it serves requests side
//! by side.

mod field;
mod rates;
mod read;
mod record;
mod sampler;

pub use field::{Field, Kind, Origin};
pub use rates::{DeviceRates, MemoryLevels, PagingRates, devices, memory, paging};
pub use read::{DEVICES_MAX, Reader, Sample, Scope};
pub use record::Record;
pub use sampler::{Options, Sampler};
