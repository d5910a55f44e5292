//! The common form of plans, manifests and parts.
//!
//! The first line names the kind of file, its version, the XXH3-128 checksum of everything after that
//! line, that of the second line, and the number of bytes after the first line. The second line is a
//! JSON object, the header. The body follows. In version 1 the first line ends after the first checksum.

use crate::error::Invalid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_128;

/// Version of the format that is written.
const VERSION: u32 = 2;
/// Older version that is read.
const WITHOUT_HEADER_CHECKSUM: u32 = 1;

/// Kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plan,
    Manifest,
    Part,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Manifest => "manifest",
            Self::Part => "part",
        }
    }

    fn magic(self) -> String {
        format!("ioloom-shard-{} ", self.word())
    }
}

/// The content of a file.
#[derive(Debug)]
pub(crate) struct Opened<'a, H> {
    pub(crate) header: H,
    pub(crate) body: &'a [u8],
    /// The checksum in its first line.
    pub(crate) checksum: String,
}

/// Returns the bytes of a file and their checksum.
pub(crate) fn seal(kind: Kind, header: &impl Serialize, body: &[u8]) -> (Vec<u8>, String) {
    // Only maps with keys that are not text fail to serialise; headers are structs.
    let mut rest = serde_json::to_vec(header).unwrap_or_default();
    rest.push(b'\n');
    let of_header = sum(&rest);
    rest.extend_from_slice(body);
    let checksum = sum(&rest);
    let len = rest.len();
    let first = format!("{}{VERSION} {checksum} {of_header} {len}\n", kind.magic());
    let mut bytes = first.into_bytes();
    bytes.append(&mut rest);
    (bytes, checksum)
}

fn sum(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

/// The first line of a file.
struct First<'a> {
    checksum: &'a str,
    /// The checksum of the header and the number of bytes after the first line.
    more: Option<(&'a str, &'a str)>,
    rest: &'a [u8],
}

fn first(kind: Kind, bytes: &[u8]) -> Result<First<'_>, Invalid> {
    let magic = kind.magic();
    let is_lost = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let wrong_kind = || match magic.as_bytes().starts_with(bytes) || is_lost(bytes) {
        // It ends within its first word, or a crash of the system left zeros.
        true => Invalid::Checksum,
        false => Invalid::Kind(kind.word()),
    };
    let rest = bytes.strip_prefix(magic.as_bytes()).ok_or_else(wrong_kind)?;
    let end = rest.iter().position(|b| *b == b'\n').ok_or(Invalid::Checksum)?;
    let line = std::str::from_utf8(&rest[..end]).map_err(|_| Invalid::Checksum)?;
    let (version, words) = line.split_once(' ').ok_or(Invalid::Checksum)?;
    let rest = &rest[end + 1..];
    match version.parse::<u32>() {
        Ok(WITHOUT_HEADER_CHECKSUM) => Ok(First { checksum: words, more: None, rest }),
        Ok(VERSION) => {
            let (checksum, more) = words.split_once(' ').ok_or(Invalid::Checksum)?;
            let more = more.split_once(' ').ok_or(Invalid::Checksum)?;
            Ok(First { checksum, more: Some(more), rest })
        }
        Ok(other) => Err(Invalid::Version(other)),
        Err(_) => Err(Invalid::Checksum),
    }
}

fn header<H: DeserializeOwned>(line: &[u8]) -> Result<H, Invalid> {
    serde_json::from_slice(line).map_err(|e| Invalid::Content(format!("its header: {e}")))
}

/// Returns whether a file whose first word is unknown has a header: its first line is damaged.
fn has_header<H: DeserializeOwned>(bytes: &[u8]) -> bool {
    let kinds = [Kind::Plan, Kind::Manifest, Kind::Part];
    let is_known = kinds.iter().any(|kind| bytes.starts_with(kind.magic().as_bytes()));
    let line = bytes.split(|byte| *byte == b'\n').nth(1).unwrap_or_default();
    !is_known && header::<H>(line).is_ok()
}

/// Verifies the header of a file that begins with `bytes` and has `size` bytes. The body is not
/// verified, except for its length. Returns the header and the checksum of the file, or `None` if that
/// needs the whole file.
pub(crate) fn open_header<H: DeserializeOwned>(
    kind: Kind,
    bytes: &[u8],
    size: u64,
) -> Option<Result<(H, String), Invalid>> {
    let First { checksum, more: Some((of_header, len)), rest } = first(kind, bytes).ok()? else {
        return None;
    };
    let end = rest.iter().position(|b| *b == b'\n')?;
    let after = size.checked_sub((bytes.len() - rest.len()) as u64)?;
    if after.to_string() != len || sum(&rest[..=end]) != of_header {
        return Some(Err(Invalid::Checksum));
    }
    Some(header(&rest[..end]).map(|header| (header, checksum.to_owned())))
}

/// Verifies the bytes of a file and takes them apart.
pub(crate) fn open<H: DeserializeOwned>(
    kind: Kind,
    bytes: &[u8],
) -> Result<Opened<'_, H>, Invalid> {
    let First { checksum, more, rest } = first(kind, bytes).map_err(|reason| match reason {
        Invalid::Kind(_) if has_header::<H>(bytes) => Invalid::Checksum,
        reason => reason,
    })?;
    if sum(rest) != checksum {
        return Err(Invalid::Checksum);
    }
    let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    let line = &rest[..rest.len().min(end + 1)];
    if more.is_some_and(|(of_header, len)| sum(line) != of_header || rest.len().to_string() != len)
    {
        return Err(Invalid::Checksum);
    }
    let header = header(&rest[..end])?;
    let body = rest.get(end + 1..).unwrap_or_default();
    Ok(Opened { header, body, checksum: checksum.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let (bytes, checksum) = seal(Kind::Part, &vec![1, 2], b"a\0b\n");
        let whole = open::<Vec<u8>>(Kind::Part, &bytes).unwrap();
        assert_eq!((whole.header, whole.body), (vec![1, 2], &b"a\0b\n"[..]));
        assert_eq!(whole.checksum, checksum);
        for at in 0..bytes.len() {
            assert!(open::<Vec<u8>>(Kind::Part, &bytes[..at]).is_err(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(open::<Vec<u8>>(Kind::Part, &changed).is_err(), "changed at {at}");
        }
        let mut longer = bytes.clone();
        longer.push(b'x');
        assert_eq!(open::<Vec<u8>>(Kind::Part, &longer).unwrap_err(), Invalid::Checksum);
        assert_eq!(open::<Vec<u8>>(Kind::Plan, &bytes).unwrap_err(), Invalid::Kind("plan"));
        for (len, byte) in [(1, bytes[0] ^ 1), (18, 0), (64, 0)] {
            let mut changed = bytes.clone();
            changed[..len].fill(byte);
            assert_eq!(open::<Vec<u8>>(Kind::Part, &changed).unwrap_err(), Invalid::Checksum);
        }
        let other = b"another file\nwith lines\n";
        assert_eq!(open::<Vec<u8>>(Kind::Part, other).unwrap_err(), Invalid::Kind("part"));
        assert_eq!(open::<Vec<u8>>(Kind::Part, &[0; 99]).unwrap_err(), Invalid::Checksum);
        for cut in [0, 1, 13, 19] {
            assert_eq!(open::<Vec<u8>>(Kind::Part, &bytes[..cut]).unwrap_err(), Invalid::Checksum);
        }
    }

    #[test]
    fn other_versions_are_named() {
        let (bytes, _) = seal(Kind::Plan, &1, b"");
        let newer = String::from_utf8(bytes).unwrap().replacen("plan 2 ", "plan 7 ", 1);
        assert_eq!(open::<u8>(Kind::Plan, newer.as_bytes()).unwrap_err(), Invalid::Version(7));
    }

    #[test]
    fn files_of_version_1_are_read() {
        let rest = b"[1]\nbody";
        let mut bytes = format!("ioloom-shard-part 1 {}\n", sum(rest)).into_bytes();
        bytes.extend_from_slice(rest);
        let opened = open::<Vec<u8>>(Kind::Part, &bytes).unwrap();
        assert_eq!((opened.header, opened.body), (vec![1], &b"body"[..]));
        let size = bytes.len() as u64;
        assert!(open_header::<Vec<u8>>(Kind::Part, &bytes, size).is_none());
    }

    #[test]
    fn a_header_is_verified_without_the_body() {
        let (bytes, checksum) = seal(Kind::Part, &vec![1, 2], b"a long body");
        let size = bytes.len() as u64;
        let beginning = &bytes[..bytes.len() - 5];
        let found = open_header::<Vec<u8>>(Kind::Part, beginning, size).unwrap().unwrap();
        assert_eq!(found, (vec![1, 2], checksum));
        for size in [size - 1, size + 1] {
            let cut = open_header::<Vec<u8>>(Kind::Part, beginning, size).unwrap();
            assert_eq!(cut.unwrap_err(), Invalid::Checksum);
        }
        let mut changed = beginning.to_vec();
        let at = changed.iter().position(|byte| *byte == b'[').unwrap() + 1;
        changed[at] = b'7';
        let changed = open_header::<Vec<u8>>(Kind::Part, &changed, size).unwrap();
        assert_eq!(changed.unwrap_err(), Invalid::Checksum);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_or_a_file(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = open::<Vec<u8>>(Kind::Manifest, &bytes);
            let (sealed, _) = seal(Kind::Manifest, &bytes, &bytes);
            let opened = open::<Vec<u8>>(Kind::Manifest, &sealed).unwrap();
            prop_assert_eq!((&opened.header[..], opened.body), (&bytes[..], &bytes[..]));
        }
    }
}
