//! Lines of checksum files: writes and parses `HASH  PATH` and `NAME (PATH) = HASH`, as sha256sum,
//! md5sum, b2sum, b3sum and xxhsum do.

use ioloom_model::Hash;
use std::borrow::Cow;

/// Marks XXH3-64 in a line without a tag, because XXH64 has as many digits.
const XXH3_MARK: &[u8] = b"XXH3_";

/// Tags of BLAKE2b with its length, as OpenSSL and other programs write them.
const BLAKE2B_512: [&str; 2] = ["BLAKE2b-512", "BLAKE2B-512"];

/// Marks digits in little-endian order in a tag of xxhsum.
const LITTLE_ENDIAN: &[u8] = b"_LE";

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// `NAME (PATH) = HASH` rather than `HASH  PATH`.
    pub(crate) tag: bool,
    /// The line ends with NUL, and its name is not escaped.
    pub(crate) zero: bool,
}

/// Writes a line of a file. Unless lines end with NUL, a name with a line end or a backslash is
/// escaped and its line begins with a backslash.
pub(crate) fn write_line(out: &mut Vec<u8>, form: Form, hash: Hash, hex: &str, path: &[u8]) {
    let escape = !form.zero && needs_escape(path);
    if escape {
        out.push(b'\\');
    }
    if form.tag {
        out.extend_from_slice(hash.tag().as_bytes());
        out.extend_from_slice(b" (");
        write_name(out, path, escape);
        out.extend_from_slice(b") = ");
        out.extend_from_slice(hex.as_bytes());
    } else {
        if hash == Hash::Xxh3 {
            out.extend_from_slice(XXH3_MARK);
        }
        out.extend_from_slice(hex.as_bytes());
        out.extend_from_slice(b"  ");
        write_name(out, path, escape);
    }
    out.push(if form.zero { 0 } else { b'\n' });
}

/// Writes the result of a check. As in sha256sum, a name with a newline is escaped, so that none can
/// fake another line.
pub(super) fn write_checked(out: &mut Vec<u8>, path: &[u8], found: &str) {
    let escape = path.contains(&b'\n');
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

/// Returns whether the programs of a hash escape a CR in a name. One at the end of such a line is part
/// of the end of the line.
pub(super) fn escapes_cr(hash: Hash) -> bool {
    matches!(hash, Hash::Md5 | Hash::Sha1 | Hash::Sha256 | Hash::Sha512 | Hash::Blake2b)
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

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The hash that the line names; `None` if only the number of digits is known.
    pub(super) hash: Option<Hash>,
    /// Its digits, in lower case.
    pub(super) hex: String,
    /// The path.
    pub(super) path: Cow<'a, [u8]>,
}

/// Parses the lines of one checksum file.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    /// The only hash to accept; `None` accepts every hash.
    pub(super) wanted: Option<Hash>,
    /// Whether one space separates hash and path, as BSD `md5 -r` prints lines. The first line
    /// without a tag decides.
    single_space: Option<bool>,
}

impl LineReader {
    pub(super) fn new(wanted: Option<Hash>) -> Self {
        Self { wanted, single_space: None }
    }

    /// Parses one line without its end; `None` if it is not of a known form. A leading backslash
    /// marks an escaped name.
    pub(super) fn read<'a>(&mut self, line: &'a [u8]) -> Option<Line<'a>> {
        let line = line.trim_ascii_start();
        let (escaped, rest) = match line {
            [b'\\', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (hash, digits, path) = match read_tagged(rest) {
            Some((hash, digits, path)) => (Some(hash), digits, path),
            None => self.read_plain(rest)?,
        };
        if path.is_empty() || path.contains(&0) || !self.accepts(hash, digits) {
            return None;
        }
        let path = if escaped { unescape(path)? } else { Cow::Borrowed(path) };
        let mut hex = String::from_utf8_lossy(digits).to_ascii_lowercase();
        if is_little_endian(rest) {
            hex = reversed(&hex);
        }
        Some(Line { hash: hash.or(self.wanted), hex, path })
    }

    /// Parses `HASH  PATH`, `HASH *PATH` or `HASH PATH`.
    fn read_plain<'a>(&mut self, line: &'a [u8]) -> Option<(Option<Hash>, &'a [u8], &'a [u8])> {
        let (hash, rest) = match line.strip_prefix(XXH3_MARK) {
            Some(rest) => (Some(Hash::Xxh3), rest),
            None => (None, line),
        };
        let end = rest.iter().position(|b| matches!(b, b' ' | b'\t'))?;
        let (digits, name) = (&rest[..end], &rest[end + 1..]);
        if name.is_empty() || !self.accepts(hash, digits) {
            return None;
        }
        let marked = matches!(name, [b' ' | b'*', _, ..]);
        match *self.single_space.get_or_insert(!marked) {
            true => Some((hash, digits, name)),
            false => marked.then(|| (hash, digits, &name[1..])),
        }
    }

    /// Returns whether the digits can be those of a wanted hash, and of the named one.
    fn accepts(&self, named: Option<Hash>, digits: &[u8]) -> bool {
        let fits = |hash: Hash| {
            hash.digits() == digits.len()
                && named.is_none_or(|named| named == hash)
                && self.wanted.is_none_or(|wanted| wanted == hash)
        };
        Hash::ALL.into_iter().any(fits) && digits.iter().all(u8::is_ascii_hexdigit)
    }
}

/// Parses `NAME (PATH) = HASH`, also without the spaces, as OpenSSL prints it.
fn read_tagged(line: &[u8]) -> Option<(Hash, &[u8], &[u8])> {
    let (hash, rest) = named_hash(line)?;
    let close = rest.iter().rposition(|b| *b == b')')?;
    let digits = rest[close + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let digits = digits.strip_suffix(b"\r").unwrap_or(digits);
    Some((hash, digits, &rest[..close]))
}

/// Returns the supported hash that a tag names, and what follows the parenthesis after the tag.
fn named_hash(line: &[u8]) -> Option<(Hash, &[u8])> {
    Hash::ALL.into_iter().find_map(|hash| {
        let tag = hash.tag();
        // OpenSSL 3 writes SHA2-256.
        let openssl =
            || line.strip_prefix(b"SHA2-")?.strip_prefix(tag.strip_prefix("SHA")?.as_bytes());
        let mut names = BLAKE2B_512.iter().filter(|_| hash == Hash::Blake2b);
        let long = names.find_map(|name| line.strip_prefix(name.as_bytes()));
        let rest = long.or_else(|| line.strip_prefix(tag.as_bytes())).or_else(openssl)?;
        let is_xxhash = matches!(hash, Hash::Xxh3 | Hash::Xxh64);
        let reversed = if is_xxhash { rest.strip_prefix(LITTLE_ENDIAN) } else { None };
        let rest = reversed.unwrap_or(rest);
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        Some((hash, rest.strip_prefix(b"(")?))
    })
}

/// Returns whether a line has a tag of xxhsum --little-endian.
fn is_little_endian(line: &[u8]) -> bool {
    let follows = |hash: Hash| line.strip_prefix(hash.tag().as_bytes());
    [Hash::Xxh3, Hash::Xxh64].into_iter().filter_map(follows).any(|r| r.starts_with(LITTLE_ENDIAN))
}

/// Returns the digits with their bytes in reverse order.
fn reversed(hex: &str) -> String {
    let bytes = hex.as_bytes().rchunks(2).flatten();
    bytes.map(|digit| char::from(*digit)).collect()
}

/// Returns the name of the hash in a tagged line, if it is not supported.
pub(super) fn unsupported(line: &[u8]) -> Option<&str> {
    let line = line.trim_ascii_start();
    let line = line.strip_prefix(b"\\").unwrap_or(line);
    if named_hash(line).is_some() {
        return None;
    }
    let open = line.iter().position(|b| *b == b'(')?;
    let name = str::from_utf8(line[..open].trim_ascii_end()).ok()?;
    let close = line.iter().rposition(|b| *b == b')').filter(|close| *close > open)?;
    let digits = line[close + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let is_name = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-/_".contains(&b))
        && Hash::ALL.into_iter().all(|hash| !hash.tag().eq_ignore_ascii_case(name));
    let is_hash = digits.len() >= 8 && digits.iter().all(u8::is_ascii_hexdigit);
    (is_name && is_hash).then_some(name)
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

    fn read(line: &[u8]) -> Option<Line<'_>> {
        LineReader::new(None).read(line)
    }

    #[test]
    fn lines_read_back_whatever_the_name() {
        for name in [
            &b"plain"[..],
            b"with space",
            b" leading",
            b"*star",
            b"line\nend",
            b"cr\r",
            b"back\\slash",
            b"\xff\xfe",
            b"a  b",
            b"a) = b",
        ] {
            for hash in Hash::ALL {
                let hex = "0123456789abcdef".repeat(8)[..hash.digits()].to_owned();
                for form in [(false, false), (true, false), (false, true), (true, true)] {
                    let form = Form { tag: form.0, zero: form.1 };
                    let mut out = Vec::new();
                    write_line(&mut out, form, hash, &hex, name);
                    assert_eq!(out.pop(), Some(if form.zero { 0 } else { b'\n' }));
                    let line = LineReader::new(Some(hash)).read(&out).unwrap();
                    assert_eq!((line.hex.as_str(), &*line.path), (&*hex, name), "{hash} {form:?}");
                    let named = read(&out).unwrap().hash;
                    assert_eq!(named.is_some(), form.tag || hash == Hash::Xxh3, "{hash}");
                }
            }
        }
    }

    #[test]
    fn lines_of_other_programs_are_understood() {
        let line = read(b"XXH3 (a (1)) = 78AF5F94892F3950").unwrap();
        assert_eq!((line.hex.as_str(), &*line.path), ("78af5f94892f3950", &b"a (1)"[..]));
        assert_eq!(&*read(b"900150983cd24fb0d6963f7d28e17f72 *a").unwrap().path, b"a");
        assert_eq!(&*read(b"  900150983cd24fb0d6963f7d28e17f72  a").unwrap().path, b"a");
        let line = read(b"MD5(a)= 900150983cd24fb0d6963f7d28e17f72").unwrap();
        assert_eq!((line.hash, &*line.path), (Some(Hash::Md5), &b"a"[..]));
        let sha256 = "0123456789abcdef".repeat(4);
        for tag in ["SHA2-256(a)= ", "SHA256(a)= "] {
            let text = format!("{tag}{sha256}");
            let line = read(text.as_bytes()).unwrap();
            assert_eq!((line.hash, line.hex.as_str()), (Some(Hash::Sha256), &*sha256));
        }
        let blake2b = "0123456789abcdef".repeat(8);
        for tag in ["BLAKE2b (a) = ", "BLAKE2b-512 (a) = ", "BLAKE2B-512(a)= "] {
            let text = format!("{tag}{blake2b}");
            let line = read(text.as_bytes()).unwrap();
            assert_eq!((line.hash, line.hex.as_str()), (Some(Hash::Blake2b), &*blake2b));
        }
        for line in [&b"XXH64_LE (a) = 343d5092dd6304d5"[..], b"XXH64 (a) = d50463dd92503d34\r"] {
            let line = read(line).unwrap();
            assert_eq!((line.hash, line.hex.as_str()), (Some(Hash::Xxh64), "d50463dd92503d34"));
        }
        let line = read(b"\\XXH3_LE (a\\nb) = 70cebeb23a1a4db3").unwrap();
        assert_eq!((line.hash, line.hex.as_str()), (Some(Hash::Xxh3), "b34d1a3ab2bece70"));
        let line = read(b"\\XXH3 (a\\nb) = 78af5f94892f3950").unwrap();
        assert_eq!(&*line.path, b"a\nb");
        let line = read(b"XXH3_78af5f94892f3950  a").unwrap();
        assert_eq!((line.hash, &*line.path), (Some(Hash::Xxh3), &b"a"[..]));
        for wrong in [
            &b""[..],
            b"hello",
            b"1234  a",
            b"78af5f94892f3950",
            b"78af5f94892f395g  a",
            b"MD5 (a) = 78af5f94892f3950",
            b"MD5 (a) 900150983cd24fb0d6963f7d28e17f72",
            b"\\900150983cd24fb0d6963f7d28e17f72  bad\\x",
            b"\\900150983cd24fb0d6963f7d28e17f72  cut\\",
            b"900150983cd24fb0d6963f7d28e17f72  a\0b",
        ] {
            assert_eq!(read(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn tags_of_other_hashes_are_named() {
        for (line, name) in [
            (&b"XXH128 (a) = 78af5f94892f395078af5f94892f3950"[..], Some("XXH128")),
            (b"XXH32 (a) = 78af5f94", Some("XXH32")),
            (b"\\BLAKE2b-256 (a (1)\\n) = 78af5f94892f3950", Some("BLAKE2b-256")),
            (b"SHA512/256(a)= 78af5f94892f3950", Some("SHA512/256")),
            (b"MD5 (a) = 900150983cd24fb0d6963f7d28e17f72", None),
            (b"BLAKE2B-512(a)= 78af5f94892f3950", None),
            (b"SHA2-256(a)= 78af5f94892f3950", None),
            (b"SHA2-384(a)= 78af5f94892f3950", Some("SHA2-384")),
            (b"XXH3_LE (a) = 78af5f94", None),
            (b"XXH128_LE (a) = 78af5f94", Some("XXH128_LE")),
            (b"md5 (a) = 900150983cd24fb0d6963f7d28e17f72", None),
            (b"XXH32 (a) = none", None),
            (b"some text (with a remark)", None),
            (b"two words (a) = 78af5f94", None),
            (b"X )( = 78af5f94", None),
        ] {
            assert_eq!(unsupported(line), name, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_wanted_hash_rejects_other_lines() {
        let mut reader = LineReader::new(Some(Hash::Xxh64));
        let line = reader.read(b"78af5f94892f3950  a").unwrap();
        assert_eq!(line.hash, Some(Hash::Xxh64));
        assert!(reader.read(b"XXH64 (a) = 78af5f94892f3950").is_some());
        for other in [
            &b"XXH3_78af5f94892f3950  a"[..],
            b"XXH3 (a) = 78af5f94892f3950",
            b"900150983cd24fb0d6963f7d28e17f72  a",
        ] {
            assert_eq!(reader.read(other), None);
        }
    }

    #[test]
    fn the_first_line_decides_whether_one_space_separates() {
        let md5 = b"900150983cd24fb0d6963f7d28e17f72";
        let mut one = LineReader::default();
        assert_eq!(one.read(b"no hash"), None);
        assert_eq!(one.read(&[&md5[..], b" "].concat()), None);
        assert_eq!(&*one.read(&[&md5[..], b" a"].concat()).unwrap().path, b"a");
        assert_eq!(&*one.read(&[&md5[..], b"  a"].concat()).unwrap().path, b" a");
        let mut two = LineReader::default();
        assert_eq!(two.read(&[&md5[..], b" "].concat()), None);
        assert_eq!(&*two.read(&[&md5[..], b"  a"].concat()).unwrap().path, b"a");
        assert_eq!(&*two.read(&[&md5[..], b"   a"].concat()).unwrap().path, b" a");
        assert_eq!(two.read(&[&md5[..], b" a"].concat()), None);
    }
}
