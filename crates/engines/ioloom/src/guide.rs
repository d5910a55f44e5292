//! A guide: eight programs, and when to use which form.
//!
//! Each program is complete. The repository compiles and runs them as a crate of its own, with this
//! library as its only access to ioloom.
//!
//! | task | form | program |
//! |---|---|---|
//! | one number from many files | [`map`](crate::Files::map), [`fold`](crate::Job::fold), [`sum`](crate::Job::sum) | [`from_rayon`] |
//! | inside an async program | [`scope`](crate::Job::scope) in `spawn_blocking`, [`Cancel`](crate::Cancel) | [`inside_tokio`] |
//! | next to other parallel code | a run per task, [`threads`](crate::Files::threads) | [`inside_rayon`] |
//! | files larger than memory | [`map_reader`](crate::Chunks::map_reader), [`fold_file`](crate::Chunks::fold_file) | [`archives`] |
//! | errors that the caller handles | [`try_map`](crate::Files::try_map), [`OnError::Collect`](crate::OnError) | [`json`] |
//! | a function that allocates much | [`memory`](crate::Files::memory), [`reserve`](crate::File::reserve) | [`thumbnails`] |
//! | the first results only | [`ordered`](crate::Files::ordered), [`find_first`](crate::Job::find_first) | [`search`] |
//! | results that add input | [`files`](crate::files()) over a channel | [`crawler`] |
//!
//! # Which input
//!
//! [`tree`](crate::tree()) walks directories while files are read. [`list`](crate::list()) takes
//! paths that are in memory; their number is known from the start, and threads divide them without a
//! lock. [`files`](crate::files()) takes an iterator that may block.
//!
//! # Where results go
//!
//! [`collect`](crate::Job::collect) and [`run`](crate::Job::run) keep all values in memory,
//! [`fold`](crate::Job::fold) one accumulator per thread. [`scope`](crate::Job::scope) and
//! `into_iter` pass values to the caller while the run goes on, and hold it back if the caller is
//! slower.
//!
//! # Memory
//!
//! The budget covers bytes that are being read, loaded, retained by
//! [`keep`](crate::File::keep) and reserved by [`reserve`](crate::File::reserve). Paths, values and
//! what the function allocates without a reservation are not part of it. With a pinned plan, neither
//! are the copies of [`map_reader`](crate::Chunks::map_reader): two chunks for each file in progress.

macro_rules! program {
    ($name:ident, $summary:literal) => {
        #[doc = $summary]
        ///
        #[doc = concat!("```ignore\n", include_str!(concat!("../examples/guide/", stringify!($name), ".rs")), "```")]
        pub mod $name {}
    };
}

program!(from_rayon, "From rayon and walkdir: one number from many files.");
program!(inside_tokio, "Inside tokio: results as messages, and a timeout.");
program!(inside_rayon, "Inside rayon: several runs at once, and a parallel function.");
program!(archives, "Archives larger than memory, through `Read`.");
program!(json, "JSON documents, and typed errors of those that are damaged.");
program!(thumbnails, "Thumbnails with a bound on the memory of decoded images.");
program!(search, "A search that stops early, in the order of the paths.");
program!(crawler, "A crawler, in which results add to the input.");
