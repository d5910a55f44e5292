//! The common form of plans, manifests and parts.
//!
//! The first line names the kind of file, its version and the XXH3-128 checksum of everything after
//! that line. The second line is a JSON object, the header. The body follows.

use crate::error::Invalid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_128;

/// Version of the format.
const VERSION: u32 = 1;

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
    rest.extend_from_slice(body);
    let checksum = format!("{:032x}", xxh3_128(&rest));
    let mut bytes = format!("{}{VERSION} {checksum}\n", kind.magic()).into_bytes();
    bytes.append(&mut rest);
    (bytes, checksum)
}

/// Verifies the bytes of a file and takes them apart.
pub(crate) fn open<H: DeserializeOwned>(
    kind: Kind,
    bytes: &[u8],
) -> Result<Opened<'_, H>, Invalid> {
    let magic = kind.magic();
    let is_lost = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let wrong_kind = || match magic.as_bytes().starts_with(bytes) || is_lost(bytes) {
        // It ends within its first word, or a crash of the system left zeros.
        true => Invalid::Checksum,
        false => Invalid::Kind(kind.word()),
    };
    let rest = bytes.strip_prefix(magic.as_bytes()).ok_or_else(wrong_kind)?;
    let end = rest.iter().position(|b| *b == b'\n').ok_or(Invalid::Checksum)?;
    let first = std::str::from_utf8(&rest[..end]).map_err(|_| Invalid::Checksum)?;
    let (version, checksum) = first.split_once(' ').ok_or(Invalid::Checksum)?;
    match version.parse::<u32>() {
        Ok(VERSION) => {}
        Ok(other) => return Err(Invalid::Version(other)),
        Err(_) => return Err(Invalid::Checksum),
    }
    let rest = &rest[end + 1..];
    if format!("{:032x}", xxh3_128(rest)) != checksum {
        return Err(Invalid::Checksum);
    }
    let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    let header = serde_json::from_slice(&rest[..end]);
    let header = header.map_err(|e| Invalid::Content(format!("its header: {e}")))?;
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
        assert_eq!(open::<Vec<u8>>(Kind::Part, &[0; 99]).unwrap_err(), Invalid::Checksum);
        for cut in [0, 1, 13, 19] {
            assert_eq!(open::<Vec<u8>>(Kind::Part, &bytes[..cut]).unwrap_err(), Invalid::Checksum);
        }
    }

    #[test]
    fn other_versions_are_named() {
        let (bytes, _) = seal(Kind::Plan, &1, b"");
        let newer = String::from_utf8(bytes).unwrap().replacen("plan 1 ", "plan 7 ", 1);
        assert_eq!(open::<u8>(Kind::Plan, newer.as_bytes()).unwrap_err(), Invalid::Version(7));
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
