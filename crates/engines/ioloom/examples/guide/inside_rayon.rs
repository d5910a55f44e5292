//! Inside rayon: several runs at once, and a function that computes in parallel itself. A run waits
//! for its function, and the function waits for rayon. So no thread of rayon may wait for a run: the
//! runs have threads of their own.

use rayon::prelude::*;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let roots: Vec<_> = std::env::args_os().skip(1).collect();
    // Few large files: each is divided among the threads of rayon.
    let sum = |file: &ioloom::File<'_>| -> u64 {
        file.bytes().par_chunks(1 << 20).flatten_iter().map(|byte| u64::from(*byte)).sum()
    };
    let sums: Vec<Result<u64, ioloom::Error>> = std::thread::scope(|scope| {
        let run = |root| scope.spawn(move || ioloom::tree(root).threads(2).map(sum).sum());
        let runs: Vec<_> = roots.iter().map(run).collect();
        runs.into_iter().map(|run| run.join().expect("the run does not panic")).collect()
    });
    for (root, sum) in roots.iter().zip(sums) {
        writeln!(std::io::stdout(), "{}  {}", sum?, root.display())?;
    }
    Ok(())
}
