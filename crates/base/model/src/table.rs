//! Which method goes with which schedule, and what the pair does: one sentence per cell.
//!
//! `ioloom each --explain` prints this table. A pair that cannot run as asked is refused here,
//! before anything is opened; what depends on the machine (a file system without direct I/O, a
//! kernel without rings) is found by probing and refused by the engine.

use crate::{Buffers, Method, Plan, Schedule};

/// What a method does under a schedule, or why the pair is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// Runs; the sentence says how.
    Runs(&'static str),
    /// Refused; the sentence says why.
    Refused(&'static str),
}

/// The cell of the table for a method and the word of a schedule (`threads`, `roles`, `window`).
pub const fn cell(method: Method, schedule: &Schedule) -> Cell {
    use Cell::{Refused, Runs};
    use Method as M;
    match (schedule, method) {
        (Schedule::Threads { .. }, M::Read) => Runs("N loops: open, pread, compute, close"),
        (Schedule::Threads { .. }, M::Nowait) => {
            Runs("N loops: one RWF_NOWAIT try, then a blocking pread")
        }
        (Schedule::Threads { .. }, M::Uring | M::UringOpen | M::UringRegistered) => {
            Runs("N loops with a ring each, one request in flight")
        }
        (Schedule::Threads { .. }, M::DirectRead) => Runs("N loops: O_DIRECT pread past the cache"),
        (Schedule::Threads { .. }, M::DirectUring) => {
            Runs("N loops: O_DIRECT through a ring, one request in flight")
        }
        (Schedule::Threads { .. }, M::MmapPlain | M::MmapSequential | M::MmapPopulate) => {
            Runs("N loops: map, compute on the mapping (it faults), unmap")
        }
        (Schedule::Threads { .. }, M::MmapWillneed) => {
            Runs("N loops: map, ask for the pages, compute, unmap; no file ahead")
        }
        (Schedule::Threads { .. }, M::Null) => Runs("N loops over empty bytes"),
        (Schedule::Window { .. }, M::Read) => {
            Runs("L threads block in open and pread; P of them may compute at once")
        }
        (Schedule::Window { .. }, M::DirectRead) => {
            Runs("L threads block in O_DIRECT pread; P of them may compute at once")
        }
        (Schedule::Window { .. }, M::Nowait) => Runs(
            "P workers keep L files started by RWF_NOWAIT; hits are computed inline, else the \
             oldest is read with a blocking call",
        ),
        (
            Schedule::Window { .. },
            M::Uring | M::UringOpen | M::UringRegistered | M::DirectUring,
        ) => Runs("P workers with a ring each keep L requests in flight and compute between reaps"),
        (Schedule::Window { .. }, M::MmapWillneed) => {
            Runs("P workers map and ask for L files ahead and touch the oldest inline")
        }
        (Schedule::Window { .. }, M::MmapPlain | M::MmapSequential | M::MmapPopulate) => Refused(
            "a window needs a method that can run ahead; of mmap only mmap:willneed can, \
             use it or the threads schedule",
        ),
        (Schedule::Window { .. }, M::Null) => Runs("P workers over empty bytes"),
        (Schedule::Roles { .. }, M::Read | M::DirectRead) => {
            Runs("readers open and read whole files and hand them over; computers compute")
        }
        (Schedule::Roles { .. }, M::Nowait) => Runs(
            "readers start the window with RWF_NOWAIT, finish the oldest with a blocking call and \
             hand over",
        ),
        (Schedule::Roles { .. }, M::Uring | M::UringOpen | M::UringRegistered | M::DirectUring) => {
            Runs("each reader owns a ring, alone reaps it and hands over")
        }
        (
            Schedule::Roles { .. },
            M::MmapPlain | M::MmapSequential | M::MmapWillneed | M::MmapPopulate,
        ) => Runs("readers map, computers fault"),
        (Schedule::Roles { .. }, M::Null) => Runs("empty bytes through the same queues"),
    }
}

/// Refuses a plan that no machine could run as asked; `Ok` carries the sentence of its cell.
pub fn check(plan: &Plan) -> Result<&'static str, String> {
    let sentence = match cell(plan.method, &plan.schedule) {
        Cell::Runs(sentence) => sentence,
        Cell::Refused(reason) => return Err(format!("{plan}: {reason}")),
    };
    let refuse = |reason: &str| Err(format!("{plan}: {reason}"));
    if plan.method.is_mmap() && plan.buffers != Buffers::Pool {
        return refuse("buffers= means nothing to mmap, which has no buffers");
    }
    if plan.method == Method::Null && plan.buffers != Buffers::Pool {
        return refuse("buffers= means nothing to null, which has no buffers");
    }
    if plan.method == Method::UringRegistered && plan.buffers != Buffers::Pool {
        return refuse("registered buffers are a pool; use plain uring with buffers=fresh");
    }
    if plan.memory_bytes < 64 << 10 {
        return refuse("memory must be at least 64KiB");
    }
    if let Some(chunk) = plan.chunk_bytes {
        if plan.schedule.name() == "roles" {
            return refuse(
                "the chunks of a file come in order to one function, which roles do not \
                           promise; use the threads or the window schedule",
            );
        }
        if plan.method.is_direct() && chunk % 4096 != 0 {
            return refuse("chunks of direct reads must be a multiple of 4KiB");
        }
        if chunk > plan.memory_bytes {
            return refuse("one chunk does not fit the memory budget");
        }
        if plan.method.is_mmap() {
            return refuse("a mapping is the whole file; chunk= goes with the other methods");
        }
    }
    Ok(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_decided_and_refusals_advise() {
        for method in Method::ALL {
            for text in ["threads:n=2", "window:l=8,p=2", "roles:r=1,h=1,c=1"] {
                let schedule: Schedule = text.parse().unwrap();
                match cell(method, &schedule) {
                    Cell::Runs(s) => assert!(s.len() > 15, "{method} {text}"),
                    Cell::Refused(s) => assert!(s.contains("use"), "{method} {text}: {s}"),
                }
            }
        }
    }

    #[test]
    fn impossible_options_are_refused() {
        for text in [
            "mmap:plain/window:l=4",
            "mmap:plain/threads:n=1/buffers=fresh",
            "direct:read/threads:n=1/chunk=1000",
            "read/roles:r=1,c=1/chunk=4KiB",
            "read/threads:n=1/chunk=1GiB",
            "read/threads:n=1/memory=1KiB",
        ] {
            let plan: Plan = text.parse().unwrap();
            assert!(check(&plan).is_err(), "{text}");
        }
    }
}
