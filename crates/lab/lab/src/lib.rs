//! The laboratory: runs a study under proved conditions and stores every run.
//!
//! Steps of a study: [`spec`] reads and checks the file. [`expand()`](expand::expand) turns factors
//! into comparisons with concrete arms. [`order`] draws the list of runs from the seed. [`needs`]
//! estimates space and time. [`run`] executes the list: [`condition`] establishes and proves the
//! state of the page cache, [`child`] runs one plan in a child process with a deadline, [`judge`]
//! adds doubts, and [`store`] writes the record before the next run starts. [`index`] caches the
//! store for queries, [`export`] copies sessions, and [`clean()`] removes file sets but never
//! results.
//!
//! This crate does not depend on any engine; engines implement [`Subject`]. Statistics, claims and
//! charts are computed elsewhere, from the stored records alone, so every verdict can be
//! recomputed.

mod boot_note;
pub mod budget;
pub mod child;
mod clean;
pub mod condition;
pub mod definition;
mod error;
pub mod estimate;
pub mod expand;
pub mod export;
pub mod files;
mod host_cache;
pub mod index;
pub mod judge;
pub mod media;
pub mod names;
pub mod needs;
pub mod order;
mod picture;
mod published;
pub mod run;
pub mod selection;
pub mod sequential;
mod sets;
pub mod spec;
pub mod store;
pub mod subject;
pub mod workspace;

pub use child::{ChildAnswer, Runner};
pub use clean::{Cleaned, clean};
pub use error::LabError;
pub use expand::{Comparison, Mode, Overrides};
pub use index::{Index, RunFilter};
pub use media::OwnImage;
pub use needs::Needs;
pub use run::{Event, Progress, RunOptions, StudyRun, run_study};
pub use store::{Session, Store, StoreError};
pub use subject::{Cost, Removed, Room, SetProgress, Sets, Subject, Touches};
pub use workspace::Workspace;
