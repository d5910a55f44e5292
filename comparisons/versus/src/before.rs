//! Preparation of every run, the same for each arm.

use std::path::Path;
use std::process::{Command, Stdio};

/// Writes to each page of newly allocated memory and releases it.
///
/// In a virtual machine, the first touch of a page that the host has not provided yet costs an exit
/// to the host, about as much as reading the data. Which runs get such pages is random.
pub fn touch_memory(bytes: usize) {
    let mut memory = vec![0u8; bytes];
    for page in memory.chunks_mut(rustix::param::page_size()) {
        page[0] = 1;
    }
    std::hint::black_box(&mut memory);
}

/// Loads a program and its libraries into memory. A program without `--version` fails immediately
/// but has been loaded.
pub fn start_once(program: impl AsRef<Path>) {
    let mut command = Command::new(program.as_ref());
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // If a program cannot be started, its run fails with the reason.
    let _ = command.status();
}
