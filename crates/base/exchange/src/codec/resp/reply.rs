//! Encodes replies whose form depends on the version of RESP.

use super::super::syntax::put_number;
use std::sync::Arc;

/// A reply under construction.
pub(super) struct Reply {
    out: Vec<u8>,
    is_three: bool,
}

impl Reply {
    pub(super) fn new(is_three: bool) -> Self {
        Self { out: Vec::new(), is_three }
    }

    /// Starts a map, which RESP2 encodes as an array of keys and values.
    pub(super) fn map(mut self, len: usize) -> Self {
        let (mark, len) = if self.is_three { (b'%', len) } else { (b'*', 2 * len) };
        self.header(mark, len as u64);
        self
    }

    pub(super) fn array(mut self, len: usize) -> Self {
        self.header(b'*', len as u64);
        self
    }

    pub(super) fn bulk(mut self, bytes: &[u8]) -> Self {
        self.header(b'$', bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends a simple string, which must not contain a line end.
    pub(super) fn simple(mut self, text: &str) -> Self {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends an error, whose first word is its code.
    pub(super) fn error(mut self, text: &str) -> Self {
        self.out.push(b'-');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn number(mut self, value: u64) -> Self {
        self.header(b':', value);
        self
    }

    /// Appends an integer that can be negative.
    pub(super) fn signed(mut self, value: i64) -> Self {
        self.out.push(b':');
        if value < 0 {
            self.out.push(b'-');
        }
        put_number(&mut self.out, value.unsigned_abs());
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends a null value.
    pub(super) fn null(mut self) -> Self {
        self.out.extend_from_slice(if self.is_three { b"_\r\n" } else { b"$-1\r\n" });
        self
    }

    pub(super) fn end(self) -> Arc<[u8]> {
        self.out.into()
    }

    fn header(&mut self, mark: u8, value: u64) {
        self.out.push(mark);
        put_number(&mut self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }
}
