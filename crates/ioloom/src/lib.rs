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
//! [`Errors`]; a panic of the function is resumed after everything in flight was drained. The plan
//! ([`Files::pin`]) is for experts and for the laboratory; [`Run::why`] says what limited a run.
//!
//! What it costs: a file costs its system calls, five clock readings (24 ns each where the vDSO
//! serves them) and a few uncontended atomics; the `null` method measures it.

mod arena;
mod cancel;
mod each;
pub mod engine;
mod error;
mod fetch;
mod files;
mod keep;
mod run;
mod source;

pub use cancel::Cancel;
pub use each::{Each, FoldFile, MapChunks, Whole};
pub use error::{Error, FileError, FnError, Operation};
pub use files::{
    Chunk, Chunks, Errors, File, Files, Progress, Results, default_plan, default_plan_for, files,
    list, tree, usable_cores,
};
pub use ioloom_model::{Plan, ReadOrder};
pub use keep::Bytes;
pub use run::{Iter, Job, Run};
