//! rayon: `par_iter` over the paths, `std::fs::read` in the closure, a pool of N threads.

use crate::{FileList, PeerError, Totals};
use rayon::prelude::*;

/// Creates the pool before the clock starts, as a program would create it once.
///
/// # Errors
/// A thread cannot be started.
pub fn pool(threads: usize) -> Result<rayon::ThreadPool, PeerError> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| PeerError::Start { what: "the rayon pool", reason: e.to_string() })
}

/// Reads and hashes all files.
///
/// # Errors
/// A file that cannot be read.
pub fn run(list: &FileList, pool: &rayon::ThreadPool) -> Result<Totals, PeerError> {
    pool.install(|| {
        list.paths()
            .par_iter()
            .map(|path| {
                let bytes = std::fs::read(path).map_err(PeerError::file("read", path))?;
                let mut one = Totals::default();
                one.add_file(list.relative(path), &bytes);
                Ok(one)
            })
            .try_reduce(Totals::default, |a, b| Ok(a.merged(b)))
    })
}
