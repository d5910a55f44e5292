//! Runs a function over many files as fast as the machine allows, and reports what limited it.
//!
//! The function is plain and synchronous. It runs on one thread per core while other threads read,
//! and borrows the bytes from recycled buffers. One number bounds memory: a budget in bytes, not a
//! count of files. No async runtime is needed.
//!
//! ```
//! let bytes: u64 = ioloom::tree("src").map(|f| f.len()).sum()?;
//! assert!(bytes > 10_000);
//! # Ok::<(), ioloom::Error>(())
//! ```
//!
//! The [`guide`] has eight complete programs.
//!
//! An error of one file is a [`FileError`] with operation, path and cause; [`OnError`] decides
//! whether the run goes on. If the function panics, the run drains what is in flight and resumes
//! the panic. [`Run::why`] says what limited a run. The plan ([`Files::pin`]) is for experts and
//! for measurements.
//!
//! Every program that uses this library can be traced. With `IOLOOM_TRACE=run.ioloom` in the
//! environment, or [`Files::trace`] in the source, a run records what each thread did over time;
//! show the file with `ioloom trace show run.ioloom`. The trace uses the highest level of evidence
//! that works on the machine. `IOLOOM_EVIDENCE=0`, `1` or `2` pins a level; a level that does not
//! work is refused, with advice on how to make it work. Both variables are read when a run starts.
//! A second run of the same process writes to `run.2.ioloom`. A traced run times every file; other
//! runs pay one comparison per call.
//!
//! Cost per file: its system calls, five clock readings (24 ns each where the vDSO serves them) and
//! a few uncontended atomics. The method `null` measures this overhead alone.

mod arena;
mod bell;
mod blocking_threads;
mod cancel;
mod claim;
mod default_plan;
mod elevator;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod engine;
#[cfg(not(feature = "lab"))]
#[allow(dead_code, unreachable_pub, reason = "the laboratory's symbols")]
mod engine;
mod error;
mod feed;
mod fetch;
mod file_fn;
mod files;
pub mod guide;
mod hold;
mod input;
mod iter;
mod job;
mod keep;
mod loaded;
mod lookups;
mod methods;
#[cfg_attr(not(feature = "lab"), allow(unreachable_pub, reason = "the laboratory's symbols"))]
mod observing;
mod policy;
mod polite;
mod reader;
mod required;
mod results;
mod run;
mod shared;
mod short_reads;
mod source;
mod take;
mod trace;
mod tree;
mod trees;
mod view;

pub use cancel::Cancel;
#[doc(hidden)]
pub use default_plan::fitted_plan;
pub use default_plan::{default_memory_bytes, default_plan, usable_cores};
#[doc(hidden)]
pub use engine::refusal;
pub use error::{BoxedFn, Cause, Error, FileError, FnError, Operation};
pub use file_fn::{Fallible, FileFn, FoldFile, Form, MapChunks, Plain, Until, Whole, WithInit};
pub use files::{Files, Paths, files, list};
pub use ioloom_model::{
    Buffers, HybridOrder, Measured, Method, Plan, ReadAhead, ReadOrder, Schedule, Tuning,
};
pub use ioloom_walk::PathList;
pub use iter::{Iter, Results};
pub use job::{Chunks, Job};
pub use keep::Bytes;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use observing::LabOptions;
pub use observing::{Measure, writing};
pub use policy::{OnError, Order, Progress};
pub use reader::Reader;
pub use run::Run;
pub use trace::{EVIDENCE_VARIABLE, TRACE_VARIABLE};
pub use tree::{Links, TreeEntry, Walked};
pub use trees::{Tree, TreeList, tree, trees};
pub use view::{Chunk, File, Reserved};

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The types of [`Measured`].
pub mod measured {
    pub use ioloom_model::evidence::{
        Checks, Evidence, Level, Quality, RoleStates, SourceReport, State, StateTime,
    };
    pub use ioloom_model::record::{Bottleneck, CallKind, CallStats, Span, ThreadTime};
    pub use ioloom_model::tuned::{Decided, Tuned, TunedPoint};
}
