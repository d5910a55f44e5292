//! Queries, evicts and loads the page cache contents of files and trees, and proves the result.
//!
//! [`residency`] queries one open file. It uses cachestat(2), which is exact and changes nothing, but
//! is allowed only for owners and writers of a file. Otherwise it tries reads that must not wait
//! (`RWF_NOWAIT`), at most [`SAMPLES_MAX`] of them; they give an estimate with an interval, and no
//! information about dirty pages. If neither works, the state is unknown. mincore(2) is never used: for
//! files of other users it reports every page as resident.
//!
//! [`evict_file`] and [`load_file`] act on one file and query it again afterwards, so the reported
//! state is measured rather than assumed. [`Scan`] performs one of the three actions on whole trees
//! with the walker, or on a list of files. Sums are kept per directory. Files are passed to the caller
//! one by one and only the largest are kept, so memory grows with the number of open directories and
//! not with the number of files.
//!
//! Cost per file: open, fstat, one cachestat of about a microsecond, close.

mod file;
mod map;
mod mappings;
mod report;
mod run;
mod scan;
mod state;
mod tally;
mod tree;
mod visit;

pub use file::{Incomplete, evict_file, load_file};
pub use map::{Cell, map};
pub use report::{DirReport, FileReport, INCOMPLETE_MAX, Report, RootReport};
pub use scan::{Action, CacheProgress, Scan};
pub use state::{Pages, SAMPLES_MAX, Source, State, residency};
pub use tally::Tally;
