//! System counters sampled during a run: page cache, paging, devices, pressure, and the I/O of the
//! observed program.
//!
//! The columns are those of `sar -r`, `-B` and `-d -p`, read from the same files, plus some that
//! sar lacks: dirty pages with their thresholds, throttled writes, refaults, stalls, pressure.
//! Samples store the kernel's counters unchanged; rates are computed from differences. A mark takes
//! its own sample ([`Sampler::mark`]), so a phase between two marks is exact and requires no
//! interpolation.
//!
//! Each file stays open and is read with one call into its own buffer, without allocating. When a
//! thread wakes up, the processor caches contain other data: alongside other programs, each
//! additional file costs about 8 µs, three to four times as much as reading it again immediately,
//! and waking up alone costs about 20 µs (`examples/counters_cost.rs`, stored in
//! `results/superseded/sampler-cost/2026-11-22-intel-xeon-2c-before-026`). Therefore not everything
//! is read each time:
//!
//! | counters | source | read |
//! |---|---|---|
//! | page-in, page-out, dirty, writeback, their limits, free, cached, refaults | first lines of /proc/vmstat | each time |
//! | faults, freed, scanned, stolen, stalls (the rest of `-B`) | later lines of /proc/vmstat | every 100 ms, less often if expensive |
//! | devices (`-d -p`) | /sys/block/NAME/stat | every 100 ms, less often if expensive |
//! | memory (`-r`), pressure | /proc/meminfo, /proc/pressure | every 100 ms, less often if expensive |
//! | I/O of the observed processes | /proc/PID/io | every 100 ms, less often if expensive |
//!
//! The thread limits itself to half a percent of a processor: if those files are expensive, it
//! reads them less often, but at least once per second (decision 026). Marks, the first sample and
//! the last sample contain everything, as does every sample if the period is 100 ms or more. A
//! value that was not read is unknown in a sample, never the previous value. Device times grow in
//! kernel ticks, often 4 ms, so shorter intervals would be imprecise.
//!
//! Memory is bounded: when it is full, every second sample is dropped and the period doubles; marks
//! are retained.
//!
//! Limits: page-in and page-out count requests *submitted* to any device, including direct I/O and
//! the journal, and count again below a loop or stacked device. `nr_dirty` is summed from
//! per-processor counters and can lag by a second and by several hundred pages; use cachestat for
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
