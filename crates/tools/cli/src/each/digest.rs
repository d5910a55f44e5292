//! Writes and parses lines `HASH  PATH`, and computes the digest over all of them.

use ioloom_walk::PathList;
use std::borrow::Cow;
use xxhash_rust::xxh3::Xxh3;

/// The two hexadecimal digits of each byte.
const HEX: [[u8; 2]; 256] = {
    let (mut digits, mut byte) = ([[0; 2]; 256], 0);
    while byte < 256 {
        digits[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    digits
};

/// Entries per thread below which sorting in parallel does not pay.
const SORT_PART_MIN: usize = 16_384;

/// Capacity of the buffer for lines; it is hashed when half full.
const LINES_BYTES: usize = 16 << 10;

/// Hashes of files, each with the position of its path: in the list that was read or, for streamed
/// paths, in `streamed`.
#[derive(Default)]
pub(super) struct Hashes {
    entries: Vec<(u64, usize)>,
    streamed: PathList,
}

impl Hashes {
    /// Adds the hash of a file of the list.
    pub(super) fn push_listed(&mut self, xxh3: u64, index: usize) {
        self.entries.push((xxh3, index));
    }

    /// Adds the hash of a file whose path came as a stream.
    pub(super) fn push_streamed(&mut self, xxh3: u64, path: &[u8]) {
        self.entries.push((xxh3, self.streamed.len()));
        self.streamed.push(path);
    }

    /// Appends everything of `other`, which must belong to the same list or stream.
    pub(super) fn append(&mut self, other: Self) {
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        let base = self.streamed.len();
        self.entries.extend(other.entries.into_iter().map(|(hash, at)| (hash, base + at)));
        self.streamed.append(other.streamed);
    }

    /// Returns XXH3-64 over the lines `HEX  PATH\n`, sorted by their bytes; `shown` maps a path to
    /// its form in the line. Every hash has sixteen digits, so sorting by number and then by path
    /// sorts the lines.
    pub(super) fn digest(self, list: Option<&PathList>, shown: impl Fn(&[u8]) -> &[u8]) -> String {
        let Self { mut entries, streamed } = self;
        let list = list.unwrap_or(&streamed);
        let name = |at: usize| shown(list.get(at));
        sort_by_line(&mut entries, &name);
        let mut hasher = Xxh3::new();
        let mut lines = Vec::with_capacity(LINES_BYTES);
        for (hash, at) in entries {
            for byte in hash.to_be_bytes() {
                lines.extend_from_slice(&HEX[usize::from(byte)]);
            }
            lines.extend_from_slice(b"  ");
            lines.extend_from_slice(name(at));
            lines.push(b'\n');
            if lines.len() >= LINES_BYTES / 2 {
                hasher.update(&lines);
                lines.clear();
            }
        }
        hasher.update(&lines);
        format!("{:016x}", hasher.digest())
    }
}

/// Sorts entries as their lines sort. Parts are sorted by number on all cores and then merged: the
/// stable sort detects sorted runs. Entries with equal numbers are then sorted by path.
fn sort_by_line<'a>(entries: &mut [(u64, usize)], name: &impl Fn(usize) -> &'a [u8]) {
    let part = entries.len().div_ceil(ioloom::usable_cores() as usize).max(SORT_PART_MIN);
    if entries.len() > part {
        std::thread::scope(|scope| {
            let mut parts = entries.chunks_mut(part);
            let here = parts.next();
            for part in parts {
                scope.spawn(move || part.sort_unstable_by_key(|entry| entry.0));
            }
            here.into_iter().for_each(|part| part.sort_unstable_by_key(|entry| entry.0));
        });
        entries.sort_by_key(|entry| entry.0);
    } else {
        entries.sort_unstable_by_key(|entry| entry.0);
    }
    for alike in entries.chunk_by_mut(|a, b| a.0 == b.0).filter(|alike| alike.len() > 1) {
        let line = |entry: &(u64, usize)| name(entry.1).iter().chain(b"\n").copied();
        alike.sort_unstable_by(|a, b| line(a).cmp(line(b)));
    }
}

/// Writes a line as b3sum and md5sum print it. Unless lines end with NUL, a name with a line end or
/// a backslash is escaped and its line begins with a backslash.
pub(super) fn write_line(out: &mut Vec<u8>, hex: &str, path: &[u8], zero: bool) {
    let escape = !zero && needs_escape(path);
    if escape {
        out.push(b'\\');
    }
    out.extend_from_slice(hex.as_bytes());
    out.extend_from_slice(b"  ");
    write_name(out, path, escape);
    out.push(if zero { 0 } else { b'\n' });
}

/// Writes a result line as md5sum prints it. Names are escaped, so that none can fake another line.
pub(super) fn write_checked(out: &mut Vec<u8>, path: &[u8], found: &str) {
    let escape = needs_escape(path);
    if escape {
        out.push(b'\\');
    }
    write_name(out, path, escape);
    out.extend_from_slice(b": ");
    out.extend_from_slice(found.as_bytes());
    out.push(b'\n');
}

fn needs_escape(path: &[u8]) -> bool {
    path.iter().any(|b| matches!(b, b'\n' | b'\r' | b'\\'))
}

fn write_name(out: &mut Vec<u8>, path: &[u8], escape: bool) {
    if escape {
        for byte in path {
            match byte {
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\\' => out.extend_from_slice(b"\\\\"),
                other => out.push(*other),
            }
        }
    } else {
        out.extend_from_slice(path);
    }
}

/// A parsed line: the hash in lower case, and the path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) hex: String,
    pub(super) path: Cow<'a, [u8]>,
}

/// Parses `HASH  PATH`, `HASH *PATH`, `XXH3_HASH  PATH` or `NAME (PATH) = HASH`, escaped or not.
pub(super) fn read_line(line: &[u8]) -> Option<Line<'_>> {
    let (escaped, rest) = match line {
        [b'\\', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if let Some(tagged) = read_tagged(rest, escaped) {
        return Some(tagged);
    }
    let rest = rest.strip_prefix(b"XXH3_").unwrap_or(rest);
    let end = rest.iter().position(|b| *b == b' ')?;
    let hex = hex_of(&rest[..end])?;
    let path = match &rest[end..] {
        [b' ', b' ' | b'*', path @ ..] if !path.is_empty() => path,
        _ => return None,
    };
    Some(Line { hex, path: if escaped { unescape(path)? } else { Cow::Borrowed(path) } })
}

fn read_tagged(line: &[u8], escaped: bool) -> Option<Line<'_>> {
    let rest = [&b"XXH3 ("[..], b"MD5 (", b"BLAKE3 ("]
        .into_iter()
        .find_map(|name| line.strip_prefix(name))?;
    let at = rest.windows(4).rposition(|w| w == b") = ")?;
    let path = &rest[..at];
    let path = if escaped { unescape(path)? } else { Cow::Borrowed(path) };
    Some(Line { hex: hex_of(&rest[at + 4..])?, path })
}

fn hex_of(text: &[u8]) -> Option<String> {
    let known = matches!(text.len(), 16 | 32 | 64);
    (known && text.iter().all(u8::is_ascii_hexdigit))
        .then(|| String::from_utf8_lossy(text).to_ascii_lowercase())
}

fn unescape(path: &[u8]) -> Option<Cow<'static, [u8]>> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => out.push(match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            }),
            other => out.push(*other),
        }
    }
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_whatever_the_name() {
        for name in
            [&b"plain"[..], b"with space", b"line\nend", b"back\\slash", b"\xff\xfe", b"a  b"]
        {
            for hex in ["2d06800538d394c2", "d41d8cd98f00b204e9800998ecf8427e"] {
                let mut out = Vec::new();
                write_line(&mut out, hex, name, false);
                let line = read_line(out.strip_suffix(b"\n").unwrap()).unwrap();
                assert_eq!((line.hex.as_str(), &*line.path), (hex, name));
            }
        }
    }

    #[test]
    fn lines_of_other_programs_are_understood() {
        let line = read_line(b"XXH3 (a (1)) = 78AF5F94892F3950").unwrap();
        assert_eq!((line.hex.as_str(), &*line.path), ("78af5f94892f3950", &b"a (1)"[..]));
        assert_eq!(&*read_line(b"900150983cd24fb0d6963f7d28e17f72 *a").unwrap().path, b"a");
        let line = read_line(b"\\XXH3 (a\\nb) = 78af5f94892f3950").unwrap();
        assert_eq!(&*line.path, b"a\nb");
        assert_eq!(&*read_line(b"XXH3_78af5f94892f3950  a").unwrap().path, b"a");
        for wrong in [&b""[..], b"hello", b"1234  a", b"78af5f94892f3950", b"78af5f94892f395g  a"] {
            assert_eq!(read_line(wrong), None);
        }
    }

    #[test]
    fn the_digest_is_that_of_sorted_lines() {
        let lines = "0000000000000001  a\n0000000000000001  z\n0000000000000002  b\n";
        let expected = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(lines.as_bytes()));
        let (mut hashes, mut other) = (Hashes::default(), Hashes::default());
        hashes.push_streamed(2, b"b");
        other.push_streamed(1, b"z");
        other.push_streamed(1, b"a");
        hashes.append(other);
        assert_eq!(hashes.digest(None, |path| path), expected);
        let mut list = PathList::new();
        ["r/z", "r/b", "r/a"].into_iter().for_each(|path| list.push(path.as_bytes()));
        let (mut hashes, mut other) = (Hashes::default(), Hashes::default());
        hashes.push_listed(2, 1);
        other.push_listed(1, 0);
        other.push_listed(1, 2);
        hashes.append(other);
        assert_eq!(hashes.digest(Some(&list), |path| &path[2..]), expected);
    }

    #[test]
    fn many_lines_sorted_in_parts_are_sorted_lines() {
        let mut hashes = Hashes::default();
        let mut lines = Vec::new();
        for file in 0..3 * SORT_PART_MIN {
            let name = format!("file {file}");
            let hash = xxhash_rust::xxh3::xxh3_64(&(file % 1000).to_le_bytes());
            hashes.push_streamed(hash, name.as_bytes());
            lines.push(format!("{hash:016x}  {name}\n"));
        }
        lines.sort();
        let expected = xxhash_rust::xxh3::xxh3_64(lines.concat().as_bytes());
        assert_eq!(hashes.digest(None, |path| path), format!("{expected:016x}"));
    }
}
