//! Inside rayon: several runs at once, and a function that computes in parallel itself. The threads
//! of a run are its own, so neither can starve the other.

use rayon::prelude::*;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let roots: Vec<_> = std::env::args_os().skip(1).collect();
    let sums: Result<Vec<u64>, ioloom::Error> = roots
        .par_iter()
        .map(|root| {
            // Few large files: each is divided among the threads of rayon.
            let sum = |file: &ioloom::File<'_>| -> u64 {
                file.bytes().par_chunks(1 << 20).flatten_iter().map(|byte| u64::from(*byte)).sum()
            };
            ioloom::tree(root).threads(2).map(sum).sum()
        })
        .collect();
    for (root, sum) in roots.iter().zip(sums?) {
        writeln!(std::io::stdout(), "{sum}  {}", root.display())?;
    }
    Ok(())
}
