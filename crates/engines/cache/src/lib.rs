//! Queries, evicts and loads the page cache contents of files and trees, and proves the result.
//!
//! [`residency`] queries one open file. It uses cachestat(2), which is exact and has no side
//! effects, but is permitted only to the owner of a file and to users who can write it. Otherwise
//! it samples the file with up to [`SAMPLES_MAX`] non-blocking reads (`RWF_NOWAIT`), which yield an
//! estimate with a confidence interval but no information about dirty pages or pages in holes. If neither
//! works, the state is unknown. mincore(2) is never used: it reports every page of other users' files as
//! resident.
//!
//! [`evict_file`] and [`load_file`] act on one file and query it again afterwards, so the reported
//! state is measured rather than assumed. [`Scan`] applies one of the three actions to whole trees,
//! using the walker, or to a list of files. Totals are maintained per directory. Files are passed
//! to the caller one by one, and only the largest are retained, so memory grows with the number of
//! open directories, not with the number of files.
//!
//! Cost per file: open, fstat, one cachestat of about one microsecond, close. If no page is resident, also
//! fstatfs, because the pages of an overlay cannot be queried.

mod file;
mod holes;
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
