//! Runs the hot path for an instruction counter: the counts of `valgrind --tool=callgrind` differ by
//! a fraction of a percent between runs.
//!
//! It is a separate crate to build together with the program `ioloom`, from the same
//! dependencies. As an example of another crate it would also get that crate's dependencies for
//! tests: fault injection, and other features of what both use.
//!
//! It creates 2 000 files of 4 KiB in a fixed or specified directory and runs
//! `null/window:l=32,p=1` and `read/threads:n=1` over them several times with one compute thread.
//! It prints the number of files and a digest; both are constant.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use xxhash_rust::xxh3::xxh3_64;

const FILES: usize = 2000;
const BYTES: usize = 4096;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let dir = given.unwrap_or_else(|| std::env::temp_dir().join("ioloom-gate"));
    std::fs::create_dir_all(&dir)?;
    let mut list = ioloom_walk::PathList::new();
    for i in 0..FILES {
        let path = dir.join(format!("{i:04}"));
        // Rewrite existing files too: every run must do the same work.
        std::fs::write(&path, [i as u8; BYTES])?;
        list.push_found(&[path.as_os_str().as_bytes()], i as u64 + 1);
    }
    let (mut files, mut digest) = (0, 0);
    for _ in 0..ROUNDS {
        for plan in ["null/window:l=32,p=1", "read/threads:n=1"] {
            let run = ioloom::Files::from(list.clone())
                .pin(plan.parse()?)
                .map(|f| xxh3_64(f.bytes()))
                .fold(
                    || 0u64,
                    |sum, hash| *sum = sum.wrapping_add(hash),
                    |sum, other| *sum ^= other,
                )?;
            files += run.measured.files;
            digest ^= run.value.rotate_left(files as u32 % 63);
        }
    }
    writeln!(std::io::stdout(), "{files} files, digest {digest:016x}")?;
    Ok(())
}
