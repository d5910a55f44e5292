//! The laboratory: a study file in, an ordered list of runs, each in a process of its own under a
//! proved condition, one line of an append-only store for each.
//!
//! The way of a study: [`spec`] reads and checks the text, [`expand`] turns factors into
//! comparisons with concrete arms, [`order`] draws the list of runs from the seed, [`run::needs`] says
//! what space and time it takes, [`run`] executes the list: [`condition`] makes and proves the
//! state of the cache, [`child`] runs one plan in a child process with a deadline, [`judge`] adds
//! doubts, [`store`] keeps the record before the next run starts. [`index`] is a cache over the
//! store for queries, [`keep`] exports sessions, [`clean`] removes sets that were made, never
//! results.
//!
//! No engine is named here; engines come as [`Subject`]. Statistics, claims and pictures are made
//! elsewhere, from the stored records alone, so that every verdict can be computed again.

mod boot_note;
pub mod budget;
pub mod child;
mod clean;
pub mod condition;
mod error;
pub mod estimate;
pub mod expand;
pub mod export;
pub mod files;
pub mod index;
pub mod judge;
pub mod media;
pub mod names;
pub mod needs;
pub mod order;
mod picture;
pub mod run;
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
pub use subject::{Cost, Removed, SetProgress, Sets, Subject, Touches};
pub use workspace::Workspace;
