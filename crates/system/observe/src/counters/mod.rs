//! The counters of the machine over the time of a run: page cache, paging, devices, pressure, and
//! what the watched program itself read and wrote.
//!
//! The columns are those of `sar -r`, `-B` and `-d -p`, read from the same files, and what sar
//! lacks: dirty pages with their thresholds, throttled writes, refaults, stalls, pressure. Samples
//! hold the kernel's counters as they are; rates come from differences, so a phase between two
//! marks is exact and needs no interpolation: a mark takes a sample of its own ([`Sampler::mark`]).
//!
//! Each file is kept open and read with one call into a buffer of its own, without allocating. A
//! thread that wakes finds the caches full of others' data: beside other programs each further file
//! costs some 8 µs, three to four times what it costs when it is read again at once, and waking alone
//! some 20 (`examples/counters_cost.rs`, kept in `results/superseded/sampler-cost/2026-11-22-intel-xeon-2c-before-026`). So not everything
//! is read each time:
//!
//! | what | source | read |
//! |---|---|---|
//! | page-in, page-out, dirty, writeback, their limits, free, cached, refaults | first lines of /proc/vmstat | each time |
//! | faults, freed, scanned, stolen, stalls (the rest of `-B`) | further lines of it | every 100 ms, where dear less often |
//! | devices (`-d -p`) | /sys/block/NAME/stat | every 100 ms, where dear less often |
//! | memory (`-r`), pressure | /proc/meminfo, /proc/pressure | every 100 ms, where dear less often |
//! | what the watched processes read and wrote | /proc/PID/io | every 100 ms, where dear less often |
//!
//! The thread keeps itself within half a percent of a processor by reading those files less often where
//! they are dear, at least once a second (decision 026). Marks, the first and the last sample have
//! everything, and where the period is 100 ms or longer, so has each. What was not read is unknown in a sample, never what it was before. Times of devices
//! grow in ticks of the kernel, often 4 ms: shorter steps would say little of them.
//!
//! Memory is bounded: when it is full every second sample goes and the period doubles; marks stay.
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
mod schedule;

pub use field::{Field, Kind, Origin};
pub use rates::{DeviceRates, MemoryLevels, PagingRates, devices, memory, paging};
pub use read::{DEVICES_MAX, Reader, Sample, Scope};
pub use record::Record;
pub use sampler::{Sampler, SamplerOptions};
