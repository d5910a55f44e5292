//! Standard input as a file to read. If it was closed, the runtime has opened `/dev/null` in its place, which would
//! pass for empty input.

use crate::exit::Failure;
use ioloom_sys::stdio::Stream;
use std::io::{self, Stdin};

/// Returns standard input. Fails with `EBADF` if it was closed.
pub(crate) fn open() -> io::Result<Stdin> {
    Stream::Input.required()?;
    Ok(io::stdin())
}

/// Returns standard input. Fails with a message if it was closed.
pub(crate) fn required() -> Result<Stdin, Failure> {
    open().map_err(|_| Failure::failed("cannot read standard input: it is closed"))
}
