//! The floor: the minimum number of system calls that read a file by name.
//!
//! Per file `openat` below an open directory, `read` into a reused buffer, `close`. A read that
//! does not fill the buffer has reached the end of a regular file, so no second one is needed.
//! It neither calls `fstat` nor allocates, and prepares names as C strings beforehand. The CPU
//! time divided by the cores is a lower bound for blocking reads on this machine; without the hash,
//! it is almost entirely kernel time.

use crate::digest::{Pieces, mix};
use crate::{FileList, PeerError, Totals, workers};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, read};
use std::ffi::CString;
use std::os::fd::OwnedFd;

/// The names of a list as C strings.
#[derive(Debug)]
pub struct Names {
    dir: OwnedFd,
    names: Vec<CString>,
}

impl Names {
    /// Opens the directory and copies the relative names.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn of(list: &FileList) -> Result<Self, PeerError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(list.dir(), flags, Mode::empty())
            .map_err(|e| PeerError::file("open", list.dir())(e.into()))?;
        let name = |path: &std::path::PathBuf| {
            CString::new(list.relative(path)).map_err(|_| PeerError::List {
                list: path.clone(),
                reason: "a name contains a NUL byte".to_owned(),
            })
        };
        Ok(Self { dir, names: list.paths().iter().map(name).collect::<Result<_, _>>()? })
    }
}

/// Reads all files with `threads` threads and a buffer of `buffer_bytes` each, and hashes them if
/// requested. Without hashing, the sum remains 0.
///
/// # Errors
/// A file cannot be opened or read, or a thread cannot be started.
pub fn run(
    list: &FileList,
    names: &Names,
    threads: usize,
    buffer_bytes: usize,
    hash: bool,
) -> Result<Totals, PeerError> {
    workers::run(threads, list.len(), |take| {
        let mut buffer = vec![0; buffer_bytes];
        let mut pieces = Pieces::default();
        let mut totals = Totals::default();
        while let Some(index) = take() {
            let name = &names.names[index];
            let fail =
                |operation, e: Errno| PeerError::file(operation, &list.paths()[index])(e.into());
            let file =
                again(|| openat(&names.dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
                    .map_err(|e| fail("open", e))?;
            let mut bytes = 0;
            let last = loop {
                let n = again(|| read(&file, &mut buffer[..])).map_err(|e| fail("read", e))?;
                bytes += n as u64;
                if n < buffer.len() {
                    break n;
                }
                if hash {
                    pieces.add(&buffer);
                }
            };
            drop(file);
            let digest = match hash {
                true => mix(pieces.finish(&buffer[..last]), name.as_bytes()),
                false => 0,
            };
            totals.add(bytes, digest);
        }
        Ok(totals)
    })
}

fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
