//! System counters sampled during a run: page cache, paging, devices, pressure, and the I/O of the
//! observed program.
//!
//! The columns are those of `sar -r`, `-B` and `-d -p`, read from the same files, and some that sar
//! lacks: dirty pages with their thresholds, throttled writes, refaults, stalls, pressure. Samples
//! keep the kernel's counters unchanged; rates are computed from differences. A mark takes a sample
//! of its own ([`Sampler::mark`]), so a phase between two marks is exact and needs no
//! interpolation.
//!
//! Each file stays open and is read with one call into its own buffer, without allocating. A thread
//! that wakes up finds the processor caches full of other data: next to other programs each further
//! file costs about 8 µs, three to four times as much as when it is read again at once, and waking
//! up alone costs about 20 (`examples/counters_cost.rs`, stored in
//! `results/superseded/sampler-cost/2026-11-22-intel-xeon-2c-before-026`). Therefore not everything
//! is read each time:
//!
//! | what | source | read |
//! |---|---|---|
//! | page-in, page-out, dirty, writeback, their limits, free, cached, refaults | first lines of
//! /proc/vmstat | each time |
//! | faults, freed, scanned, stolen, stalls (the rest of `-B`) | later lines of /proc/vmstat |
//! every 100 ms, less often if expensive |
//! | devices (`-d -p`) | /sys/block/NAME/stat | every 100 ms, less often if expensive |
//! | memory (`-r`), pressure | /proc/meminfo, /proc/pressure | every 100 ms, less often if
//! expensive |
//! | I/O of the observed processes | /proc/PID/io | every 100 ms, less often if expensive |
//!
//! The thread limits itself to half a percent of a processor: where those files are expensive it
//! reads them less often, but at least once per second (decision 026). Marks, the first and the
//! last sample have everything, and with a period of 100 ms or more every sample has. A value that
//! was not read is unknown in a sample, never the previous value. Times of devices grow in ticks of
//! the kernel, often 4 ms, so shorter steps would say little about them.
//!
//! Memory is bounded: when it is full, every second sample is dropped and the period doubles; marks
//! stay.
//!
//! Limits: page-in and page-out count what is *submitted* to any device, including
//! direct I/O and the journal, and count again below a loop or stacked device. `nr_dirty` is summed
//! from per-processor counters and may lag by a second and by some hundred pages; use cachestat for
//! single files. A busy device is not necessarily saturated if it serves requests in parallel.

mod field;
mod rates;
mod read;
mod record;
mod sampler;
mod schedule;

pub use field::{Field, Kind, Origin};
pub use rates::{DeviceRates, MemoryLevels, PagingRates, devices, memory, paging};
pub use read::{DEVICES_MAX, Reader, Sample, Scope};
pub use record::Record;
pub use sampler::{Sampler, SamplerOptions};
