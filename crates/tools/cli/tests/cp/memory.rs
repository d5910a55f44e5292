//! Memory use of a copy, which must not grow with the size or number of files.

use crate::{ioloom, place};
use ioloom_sys::proc::{UsageOf, usage};
use ioloom_testbed::alone;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Returns the peak resident memory of a copy, including the program.
const PEAK_MAX_BYTES: u64 = 64 << 20;
const BIG_MIB: usize = 256;
const FILES: usize = 20_000;

fn make(source: &Path) {
    fs::create_dir_all(source.join("many")).unwrap();
    for number in 0..FILES {
        fs::write(source.join(format!("many/{number}")), number.to_string()).unwrap();
    }
    // Write in small pieces: memory inherited by a child counts towards its peak.
    let mut big = fs::File::create(source.join("big")).unwrap();
    (0..BIG_MIB * 16).for_each(|i| big.write_all(&[i as u8; 64 << 10]).unwrap());
}

#[test]
fn a_copy_of_more_files_takes_no_more_memory() {
    if !alone("memory::a_copy_of_more_files_takes_no_more_memory") {
        return;
    }
    let dir = place();
    make(&dir.path().join("source"));
    for args in [
        &["-a", "source", "tree"][..],
        &["source/big", "buffered", "--mode", "buffered"],
        &["-a", "source", "resumed", "--resume", "--verify", "cache"],
    ] {
        let ran = ioloom().current_dir(dir.path()).arg("cp").args(args).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {}", crate::said(&ran));
        // The maximum over all children so far.
        let peak = usage(UsageOf::Children).unwrap().peak_rss_bytes;
        println!("{args:?}: at most {} KiB", peak >> 10);
        assert!(peak <= PEAK_MAX_BYTES, "{args:?} took {} MiB", peak >> 20);
    }
}
