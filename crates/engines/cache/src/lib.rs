//! What of files and trees lies in the page cache; putting it out and bringing it in, with proof.
//!
//! [`residency`] asks about one open file: by cachestat(2), which is exact and touches nothing; where
//! that is not allowed (it is only for owners and writers) by reads that must not wait, at most
//! [`SAMPLES_MAX`] of them, which gives an estimate with its interval and says nothing of dirty
//! pages; else the answer is unknown. mincore(2) is never used: for a file of somebody else it
//! answers that everything is resident.
//!
//! [`evict_file`] and [`load_file`] act on one file and ask again afterwards, so that what they say
//! was seen and not assumed. [`Scan`] does one of the three to whole trees, through the walker, or
//! to a list. Sums go up per directory; files are handed to the caller one by one and only the
//! largest are kept, so memory grows with the directories that are open, not with the files.
//!
//! Cost per file: open, fstat, one cachestat of about a microsecond, close.

mod act;
mod error;
mod held;
mod map;
mod scan;
mod state;
mod tally;
mod tree;

pub use act::{Incomplete, evict_file, load_file};
pub use error::CacheError;
pub use map::{Cell, map};
pub use scan::{
    Action, CacheProgress, DirReport, FileReport, INCOMPLETE_MAX, Report, RootReport, Scan,
};
pub use state::{Pages, SAMPLES_MAX, Source, State, residency};
pub use tally::Tally;
