//! What every run meets, whichever arm it is.

use std::path::Path;
use std::process::{Command, Stdio};

/// Writes to each page of fresh memory and gives it back.
///
/// In a virtual machine a page that the host has not provided yet costs a visit to the host when it
/// is first touched, about as much as reading the data. Which run gets such pages is luck.
pub fn touch_memory(bytes: usize) {
    let mut memory = vec![0u8; bytes];
    for page in memory.chunks_mut(rustix::param::page_size()) {
        page[0] = 1;
    }
    std::hint::black_box(&mut memory);
}

/// Brings a program and its libraries into memory. One that knows no `--version` fails at once and
/// has been loaded all the same.
pub fn start_once(program: impl AsRef<Path>) {
    let mut command = Command::new(program.as_ref());
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A program that cannot be started fails its run with the reason.
    let _ = command.status();
}
