//! Reads lists of paths, such as `find -print0` writes.
//!
//! Paths are bytes and are read one at a time into one reused buffer. A path longer than
//! [`PATH_BYTES_MAX`] ends the list with an error, because it nearly always means that the list
//! uses the other separator.

use std::ffi::OsString;
use std::io::{self, BufRead};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Longest path in a list, bytes.
pub const PATH_BYTES_MAX: usize = 1 << 20;

/// What ends a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separator {
    /// A zero byte, which no path contains.
    Nul,
    /// A newline, so that paths containing one cannot be listed.
    Newline,
}

impl Separator {
    const fn byte(self) -> u8 {
        match self {
            Self::Nul => 0,
            Self::Newline => b'\n',
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Nul => "zero bytes",
            Self::Newline => "newlines",
        }
    }
}

/// Why a list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The reader failed.
    #[error("cannot read the list of paths after {read} paths: {}", ioloom_failure::reason(.source))]
    Read {
        /// Paths read before.
        read: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A path is longer than [`PATH_BYTES_MAX`].
    #[error(
        "path {number} of the list is longer than 1 MiB; check that the paths are separated by \
         {separator}"
    )]
    TooLong {
        /// Number of the path, from 1.
        number: u64,
        /// Name of the separator.
        separator: &'static str,
    },
    /// A path contains a zero byte.
    #[error(
        "path {number} of the list contains a zero byte; if zero bytes separate the paths, give \
         the option for zero bytes"
    )]
    Zero {
        /// Number of the path, from 1.
        number: u64,
    },
}

/// A reader of a list of paths.
#[derive(Debug)]
pub struct ListReader<R> {
    reader: R,
    separator: Separator,
    path: Vec<u8>,
    read: u64,
    ended: bool,
    keeps_empty: bool,
}

/// Reads paths from `reader` to its end. Skips empty paths.
pub fn read_list<R: BufRead>(reader: R, separator: Separator) -> ListReader<R> {
    ListReader { reader, separator, path: Vec::new(), read: 0, ended: false, keeps_empty: false }
}

impl<R: BufRead> ListReader<R> {
    /// Returns empty paths as well.
    #[must_use]
    pub fn with_empty(self) -> Self {
        Self { keeps_empty: true, ..self }
    }

    /// Returns the next path, borrowed until the next call; `None` at the end and after an error.
    pub fn next_path(&mut self) -> Option<Result<&[u8], ListError>> {
        loop {
            if self.ended {
                return None;
            }
            self.path.clear();
            if let Err(error) = self.fill() {
                self.ended = true;
                return Some(Err(error));
            }
            // What follows the last separator is not a path if it is empty.
            if !self.path.is_empty() || (self.keeps_empty && !self.ended) {
                self.read += 1;
                return Some(Ok(&self.path));
            }
        }
    }

    /// Reads up to the next separator or the end into `path`.
    fn fill(&mut self) -> Result<(), ListError> {
        loop {
            let block = match self.reader.fill_buf() {
                Ok(block) => block,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(ListError::Read { read: self.read, source }),
            };
            if block.is_empty() {
                self.ended = true;
                break;
            }
            let end = block.iter().position(|b| *b == self.separator.byte());
            let part = &block[..end.unwrap_or(block.len())];
            let number = self.read + 1;
            if self.path.len() + part.len() > PATH_BYTES_MAX {
                return Err(ListError::TooLong { number, separator: self.separator.word() });
            }
            if part.contains(&0) {
                return Err(ListError::Zero { number });
            }
            self.path.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        Ok(())
    }
}

impl<R: BufRead> Iterator for ListReader<R> {
    type Item = Result<PathBuf, ListError>;

    fn next(&mut self) -> Option<Self::Item> {
        let path = self.next_path()?;
        Some(path.map(|bytes| PathBuf::from(OsString::from_vec(bytes.to_vec()))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    fn all(bytes: &[u8], separator: Separator) -> Vec<Vec<u8>> {
        // A tiny buffer, so that paths cross its boundary.
        let reader = BufReader::with_capacity(3, bytes);
        read_list(reader, separator).map(|p| p.unwrap().into_os_string().into_vec()).collect()
    }

    #[test]
    fn the_last_path_needs_no_separator() {
        assert_eq!(all(b"a\nb\n\nc", Separator::Newline), [b"a", b"b", b"c"]);
        assert_eq!(all(b"a\nb\0\xff\0", Separator::Nul), [&b"a\nb"[..], b"\xff"]);
        assert!(all(b"", Separator::Nul).is_empty());
    }

    #[test]
    fn empty_paths_are_returned_only_if_wanted() {
        let count = |bytes: &[u8]| {
            let list = read_list(bytes, Separator::Nul).with_empty();
            list.map(|path| path.unwrap().as_os_str().len()).collect::<Vec<_>>()
        };
        assert_eq!(count(b"a\0\0bc"), [1, 0, 2]);
        assert_eq!(count(b"\0"), [0]);
        assert!(count(b"").is_empty());
    }

    #[test]
    fn a_wrong_separator_is_named() {
        let lines = vec![b'x'; PATH_BYTES_MAX + 1];
        let mut list = read_list(&lines[..], Separator::Nul);
        let error = list.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("path 1") && error.contains("zero bytes"), "{error}");
        assert!(list.next().is_none());
        let error = read_list(&b"a\0b"[..], Separator::Newline).next().unwrap().unwrap_err();
        assert!(error.to_string().contains("option for zero bytes"), "{error}");
    }

    #[test]
    fn a_failing_reader_ends_the_list_once() {
        struct Broken;
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("pulled out"))
            }
        }
        let mut list = read_list(BufReader::new(Broken), Separator::Nul);
        assert!(list.next().unwrap().unwrap_err().to_string().contains("pulled out"));
        assert!(list.next().is_none());
    }

    proptest! {
        #[test]
        fn a_list_is_its_parts(paths in proptest::collection::vec(
            proptest::collection::vec(1u8..=255, 1..20), 0..40)) {
            prop_assert_eq!(all(&paths.join(&0), Separator::Nul), paths);
        }
    }
}
