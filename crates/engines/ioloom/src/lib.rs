//! Run a function over many files as fast as the machine allows, and tell why.
//!
//! A plain synchronous function runs on as many threads as there are cores to compute on, while
//! others fetch; it borrows the bytes from recycled buffers. Memory is bounded by one number, not by
//! a count of files. No runtime is needed.
//!
//! ```
//! let bytes: u64 = ioloom::tree("src")?.map(|f| Ok(f.len())).sum()?;
//! assert!(bytes > 10_000);
//! # Ok::<(), ioloom::Error>(())
//! ```
//!
//! What can go wrong with one file is a [`FileError`] with operation, path and reason, treated by
//! [`OnError`]; a panic of the function is resumed after everything in flight was drained. The plan
//! ([`Files::pin`]) is for experts and for the laboratory; [`Run::why`] says what limited a run.
//!
//! Any program that uses this library can be traced: with `IOLOOM_TRACE=run.ioloom` in its
//! environment (or [`Files::trace`] in its source) a run writes what every thread did when to that
//! file, for `ioloom trace show run.ioloom`. The highest level of evidence that works is used;
//! `IOLOOM_EVIDENCE=0`, `1` or `2` pins one, and a level that does not work is refused with what
//! would make it work. A run that fails writes no trace. Both are read when a run starts; a second
//! run of the same process writes to `run.2.ioloom`. Every file of a traced run is timed; other runs
//! pay one comparison a lap.
//!
//! What it costs: a file costs its system calls, five clock readings (24 ns each where the vDSO
//! serves them) and a few uncontended atomics; the `null` method measures it.

mod arena;
mod cancel;
mod default_plan;
pub mod engine;
mod error;
mod fetch;
mod file_fn;
mod files;
mod job;
mod keep;
mod loaded;
mod policy;
mod run;
mod shared;
mod source;
mod trace;
mod view;

pub use cancel::Cancel;
pub use default_plan::{default_plan, default_plan_for, usable_cores};
pub use error::{Cause, Error, FileError, FnError, Operation};
pub use file_fn::{FileFn, FoldFile, MapChunks, Whole};
pub use files::{Files, files, list, tree};
pub use ioloom_model::{Plan, ReadOrder};
pub use job::{Chunks, Iter, Job};
pub use keep::Bytes;
pub use policy::{OnError, Order, Progress};
pub use run::Run;
pub use trace::{EVIDENCE_VARIABLE, TRACE_VARIABLE, TraceFile, TraceWanted, keeping_trace};
pub use view::{Chunk, File};
