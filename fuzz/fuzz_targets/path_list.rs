//! Path lists: the parsed paths are the pieces between the separators, in order, up to the first
//! error. The oracle is the standard library's split.
#![no_main]

use ioloom_walk::{Separator, read_list};
use libfuzzer_sys::fuzz_target;
use std::io::BufReader;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (nul, block, bytes) = input;
    let (separator, byte) = if nul { (Separator::Nul, 0) } else { (Separator::Newline, b'\n') };
    // A small block size makes paths cross block boundaries.
    let reader = BufReader::with_capacity(usize::from(block).max(1), bytes);
    let mut list = read_list(reader, separator);
    let mut pieces = bytes.split(|&b| b == byte).filter(|piece| !piece.is_empty());
    while let Some(path) = list.next_path() {
        match path {
            Ok(path) => assert_eq!(Some(path), pieces.next()),
            Err(_) => return,
        }
    }
    assert_eq!(pieces.next(), None);
});
