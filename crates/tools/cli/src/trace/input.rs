//! Reads trace files.

use crate::exit::Failure;
use crate::standard_input;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_trace::Trace;
use ioloom_trace::file::{self, FileError, START_BYTES};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum size of a trace file after its start, in bytes.
const REST_MAX: u64 = 2 << 30;

/// Reads a trace; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Trace, Failure> {
    if path.as_os_str() == "-" {
        return read_from(standard_input::required()?, Path::new("/dev/stdin"));
    }
    let opened =
        File::open(path).map_err(|e| Failure::failed(PathError::new(Operation::Read, path, e)))?;
    read_from(opened, path)
}

/// Reads a trace from an open file; errors name `path`.
fn read_from(mut opened: impl Read, path: &Path) -> Result<Trace, Failure> {
    let failed = |e: io::Error| Failure::failed(PathError::new(Operation::Read, path, e));
    let invalid = |e: FileError| Failure::usage(format!("cannot read {}: {e}", quoted(path)));
    let mut bytes = Vec::new();
    opened.by_ref().take(START_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    // The rest of another file can be large or endless.
    file::check_start(&bytes).map_err(invalid)?;
    if !read_rest(opened, &mut bytes, REST_MAX).map_err(failed)? {
        let name = quoted(path);
        let why = "it is larger than 2 GiB, the limit for trace files";
        return Err(Failure::usage(format!("cannot read {name}: {why}")));
    }
    file::read(&bytes).map_err(invalid)
}

/// Appends the rest of a file; returns `false` if it is longer than `max` bytes.
fn read_rest(input: impl Read, bytes: &mut Vec<u8>, max: u64) -> io::Result<bool> {
    let count = input.take(max + 1).read_to_end(bytes)?;
    Ok(count as u64 <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_not_read_to_its_end() {
        let mut bytes = vec![1];
        assert!(!read_rest(io::repeat(0), &mut bytes, 100).unwrap());
        assert_eq!(bytes.len(), 102);
        assert!(read_rest(&[0; 100][..], &mut bytes, 100).unwrap());
    }
}
