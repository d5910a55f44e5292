//! Encoding of numbers, text and columns within a section.

use super::error::FileError;
use super::format::LATEST_NS;

/// Writes one section.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn column(&mut self, values: impl Iterator<Item = u64>) {
        values.for_each(|value| self.number(value));
    }

    /// Writes times in order, as differences.
    pub(super) fn times(&mut self, times_ns: impl Iterator<Item = u64>) {
        let mut before = 0;
        for ns in times_ns {
            self.number(ns.saturating_sub(before));
            before = before.max(ns);
        }
    }

    pub(super) fn float(&mut self, value: f64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }
}

/// Reads one section. Compares every count with the remaining bytes and memory.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    section: &'a str,
    /// Number of bytes that further items may take in memory.
    room: &'a mut u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8], section: &'a str, room: &'a mut u64) -> Self {
        Self { rest, section, room }
    }

    pub(super) fn damaged<T>(&self, reason: &str) -> Result<T, FileError> {
        Err(FileError::damaged(self.section, reason))
    }

    pub(super) fn number(&mut self) -> Result<u64, FileError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.rest.split_first() else {
                return self.damaged("it ends in the middle of a number");
            };
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return self.damaged("a number exceeds 64 bits");
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.damaged("a number exceeds 64 bits")
    }

    /// Reads a number that must fit into a smaller type.
    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, FileError> {
        let value = self.number()?;
        T::try_from(value).or_else(|_| self.damaged("a number is too large"))
    }

    /// Reads a time or a duration.
    pub(super) fn ns(&mut self) -> Result<u64, FileError> {
        let ns = self.number()?;
        if ns > LATEST_NS { self.damaged("a time exceeds 104 days") } else { Ok(ns) }
    }

    /// Adds a duration to a time.
    pub(super) fn later(&self, at_ns: u64, by_ns: u64) -> Result<u64, FileError> {
        match at_ns.checked_add(by_ns).filter(|at| *at <= LATEST_NS) {
            Some(at) => Ok(at),
            None => self.damaged("a time exceeds 104 days"),
        }
    }

    /// Reads the length of a list whose items take at least `bytes_each` bytes, and become a `T` each.
    pub(super) fn items<T>(&mut self, bytes_each: usize) -> Result<usize, FileError> {
        let count = self.count(bytes_each)?;
        let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
        match self.room.checked_sub(bytes) {
            Some(room) => *self.room = room,
            None => return self.damaged("it has more items than a file of this size may contain"),
        }
        Ok(count)
    }

    /// Reads the length of a list whose items take at least `bytes_each` bytes.
    fn count(&mut self, bytes_each: usize) -> Result<usize, FileError> {
        let count: usize = self.small()?;
        if count > self.rest.len() / bytes_each {
            return self.damaged("it is too short for its number of items");
        }
        Ok(count)
    }

    pub(super) fn text(&mut self) -> Result<String, FileError> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => self.damaged("text is not UTF-8"),
        }
    }

    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, FileError> {
        let bytes = self.bytes()?;
        serde_json::from_slice(bytes)
            .or_else(|error| self.damaged(&format!("invalid JSON ({error})")))
    }

    fn bytes(&mut self) -> Result<&'a [u8], FileError> {
        let count = self.count(1)?;
        let (bytes, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn column<T>(
        &mut self,
        count: usize,
        mut one: impl FnMut(&mut Self) -> Result<T, FileError>,
    ) -> Result<Vec<T>, FileError> {
        (0..count).map(|_| one(self)).collect()
    }

    /// Reads times in order.
    pub(super) fn times(&mut self, count: usize) -> Result<Vec<u64>, FileError> {
        let mut at_ns = 0;
        self.column(count, |reader| {
            let step = reader.number()?;
            at_ns = reader.later(at_ns, step)?;
            Ok(at_ns)
        })
    }

    pub(super) fn float(&mut self) -> Result<f64, FileError> {
        match self.rest.split_first_chunk::<8>() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(f64::from_le_bytes(*bytes))
            }
            None => self.damaged("it ends in the middle of a number"),
        }
    }

    /// Fails if bytes remain.
    pub(super) fn end(&self) -> Result<(), FileError> {
        if self.rest.is_empty() { Ok(()) } else { self.damaged("extra bytes at the end") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted_by_their_size_in_memory() {
        let mut room = 40 * size_of::<String>() as u64;
        let mut bytes = vec![0_u8; 26];
        bytes[0] = 25;
        let read = |room: &mut u64| Reader::new(&bytes, "FILE", room).items::<String>(1);
        assert_eq!(read(&mut room), Ok(25));
        assert_eq!(room, 15 * size_of::<String>() as u64);
        let refused = read(&mut room).unwrap_err().to_string();
        assert!(refused.contains("more items than a file of this size"), "{refused}");
    }
}
