//! What limited a run: one decomposition of processor time and waits, and one decision.
//!
//! The decision is a pure function, [`decide`], of a small struct, [`Facts`]. The facts come from
//! the [`Measured`](ioloom_model::Measured) of a run and can be stored and judged again.
//!
//! # The decomposition
//!
//! Everything is a share of the **usable processor time**: what the threads of the run could have
//! used. It is the elapsed time × the usable processors (at most as many as the plan lets run the
//! function at once), or the elapsed time of all threads if that
//! is less (one thread cannot use two processors), but at least the elapsed time. If one file
//! takes almost the whole run, only as many processors are usable as had work on average: one thread reads
//! and computes each file, and the others have nothing to do. Each part is bounded by what the parts before it
//! left over, so the shares add up to 100 %:
//!
//! 1. **Processor time of the process.** It is `metadata` (calls that fetch data: open, stat, read,
//!    close, map) and `compute` (the function) in proportion to the time that threads ran in these calls.
//!    Kernel time of threads of the process outside of the run is `metadata`. Their user time is not
//!    part of the run: the caller's iterator, the consumer of results, or anything else. If the run waits
//!    during that time, the wait counts (5).
//! 2. **Processor time of ended child processes**: `child processes`.
//! 3. **The quota of the control group**: `processor quota`. The time for which it kept the group from
//!    running, as far as our threads were ready to run: other processes of the group count, too. The
//!    quota can also keep child processes from running: see the waits for these.
//! 4. **Other programs on the processors**: `other programs`. The smaller of the rest of the time in which
//!    our threads were ready to run without running, and the processor time of other programs. Other
//!    programs on processors that our threads did not want took nothing from the run. What then remains of
//!    the time in which our threads were ready is unknown as far as threads outside of the run were running.
//!    Time that the hypervisor took is added in proportion to our part of the processor time. If it
//!    is not known how long threads were ready, the part is unknown. Other programs can displace
//!    child processes, too: see the waits for these.
//! 5. **Waits** explain the rest. A thread that waits for data, for a path, for memory of the budget or
//!    inside the user's function waits for a cause; a thread that waits for another thread only passes
//!    a wait on. So the causes explain as much of the rest as there is waiting for them, and all
//!    of it if at least one thread waits for a cause at any time. They share it in proportion to
//!    their waits. Waits for data, paths and memory count only as far as the function could have used
//!    the result: for as many threads as there are processors without a call of the function in
//!    progress. `hand-over` is what only waits for other threads explain.
//!    - Waits for data are `device`, except for the part of the bytes that devices moved for others:
//!      `other programs`.
//!    - Waits for paths are `input list`, waits for the budget `memory`.
//!    - Waits in the function are `child processes` if there were children for the calls, `device` if
//!      files are mapped (the function faults pages in), else `function waits`. The system counts
//!      children by process: those of other threads of the same program are taken for those of the
//!      function.
//!    - Waits in the function for a reader of its results are `output`, if the function reports them
//!      ([`crate::writing`]), those for a reservation of the function are `memory`
//!      ([`crate::reserving`]), and reported waits for children ([`crate::waiting_for_child`]) are
//!      `child processes`, however little the children run. But as far as the children were ready to run
//!      without running ([`crate::child_was_ready`]), they are `processor quota` for the time that the
//!      quota did not take from our threads, and `other programs` for the time that other programs ran
//!      without displacing our threads.
//! 6. What no wait explains is `unknown`, with time that threads spent outside of any call, time without
//!    threads, and waits for other threads while hardly any thread did or awaited anything.
//!
//! # The decision
//!
//! The largest share is the limit. A second one within [`CLOSE_POINTS`] is named as close. The limit is
//! `unknown` if nothing was processed, if the run is shorter than [`JUDGED_FROM_NS`], if the unknown
//! share is the largest, or if no share reaches [`LIMIT_MIN_PERCENT`].

mod decide;
mod facts;
mod kind;
mod sentence;
mod shares;

pub use decide::{CLOSE_POINTS, JUDGED_FROM_NS, LIMIT_MIN_PERCENT, NoVerdict, Verdict, decide};
pub use facts::Facts;
pub use kind::Limit;
pub use shares::Shares;
