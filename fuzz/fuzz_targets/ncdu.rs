//! ncdu exports and saved scans: no input causes a panic, and everything parsed can be written and
//! read back.
#![no_main]

use ioloom_du::document::Document;
use ioloom_du::ncdu::{self, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Document::read(bytes);
    let limits = Limits { nodes_max: 10_000, ..Limits::default() };
    let Ok(imported) = ncdu::import(&mut &*bytes, limits) else { return };
    let tree = imported.tree;
    let mut written = Vec::new();
    ncdu::export(&tree, ("fuzz", "0"), 0, false, &mut written).expect("memory takes everything");
    let again = ncdu::import(&mut &written[..], Limits::default()).expect("it is ours");
    assert_eq!(tree.root().total, again.tree.root().total);
});
