//! Parses pages of the kernel's trace ring. Pure, and never reads beyond the page.
//!
//! A page starts with the time of its first event and the length of its data; the upper bits of the
//! length indicate whether events were lost before it. Each entry starts with five bits of length
//! or kind and 27 bits of time since the previous entry.

/// Page header size in bytes.
const HEADER_BYTES: usize = 16;
/// Bits of the length field that contain the length.
const LENGTH_MASK: u64 = (1 << 20) - 1;
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// An absolute timestamp has 59 bits; the upper bits are those of the previous time.
const STAMP_MASK: u64 = (1 << 59) - 1;

/// One page of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'a> {
    /// Number of events lost before this page; `Some(0)` if the kernel does not report the number.
    pub missed: Option<u64>,
    at_ns: u64,
    data: &'a [u8],
}

impl<'a> Page<'a> {
    /// Parses the header of a page; `None` if the bytes cannot be a page.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let at_ns = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
        let commit = u64::from_ne_bytes(bytes.get(8..HEADER_BYTES)?.try_into().ok()?);
        let len = (commit & LENGTH_MASK) as usize;
        let data = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(len)?)?;
        let behind = bytes.get(HEADER_BYTES + len..).unwrap_or(&[]);
        let stored = behind.get(..8).filter(|_| commit & MISSED_STORED != 0);
        let stored = stored.and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        let missed = (commit & MISSED != 0).then_some(stored);
        Some(Self { missed, at_ns, data })
    }

    /// Returns the events in the page with their times.
    pub fn events(self) -> Events<'a> {
        Events { at_ns: self.at_ns, rest: self.data }
    }
}

/// An iterator over the time and the bytes of each event.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    at_ns: u64,
    rest: &'a [u8],
}

impl<'a> Events<'a> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_ne_bytes(*word))
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        loop {
            let head = self.word()?;
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            let len = match kind {
                TIME_EXTEND => {
                    let more = u64::from(self.word()?) << DELTA_BITS;
                    self.at_ns = self.at_ns.wrapping_add(more + delta);
                    continue;
                }
                TIME_STAMP => {
                    let stamp = (u64::from(self.word()?) << DELTA_BITS) + delta;
                    self.at_ns = (self.at_ns & !STAMP_MASK) | (stamp & STAMP_MASK);
                    continue;
                }
                PADDING if delta == 0 => return None,
                // The length includes its own word.
                0 | PADDING => (self.word()? as usize).checked_sub(4)?,
                words => words as usize * 4,
            };
            self.at_ns = self.at_ns.wrapping_add(delta);
            let (event, rest) = self.rest.split_at_checked(len)?;
            self.rest = rest;
            if kind != PADDING {
                return Some((self.at_ns, event));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(at_ns: u64, commit_bits: u64, data: &[u32], behind: &[u8]) -> Vec<u8> {
        let mut bytes = at_ns.to_ne_bytes().to_vec();
        bytes.extend((commit_bits | (data.len() as u64 * 4)).to_ne_bytes());
        bytes.extend(data.iter().flat_map(|w| w.to_ne_bytes()));
        bytes.extend(behind);
        bytes
    }

    #[test]
    fn every_kind_of_entry_is_parsed() {
        let data = [
            1 | (5 << 5),
            0xAAAA_AAAA, // 5 ns later, 4 bytes
            TIME_EXTEND | (1 << 5),
            2, // 2 << 27 and 1 later
            7 << 5,
            12,
            0xBBBB_BBBB,
            0xCCCC_CCCC, // 7 ns later, 8 bytes with a long length
            PADDING | (3 << 5),
            8,
            0, // discarded, 3 ns
            1,
            0xDDDD_DDDD,
            TIME_STAMP | (9 << 5),
            1, // absolute
            1,
            0xEEEE_EEEE,
            PADDING, // the rest is empty
            0xFFFF_FFFF,
        ];
        let bytes = page(100, 0, &data, &[]);
        let page = Page::parse(&bytes).unwrap();
        assert_eq!(page.missed, None);
        let base = 105 + (2 << 27) + 1;
        let events: Vec<_> = page.events().map(|(at, e)| (at, e.len(), e[0])).collect();
        let expected =
            [(105, 4, 0xAA), (base + 7, 8, 0xBB), (base + 10, 4, 0xDD), ((1 << 27) + 9, 4, 0xEE)];
        assert_eq!(events, expected);
    }

    #[test]
    fn losses_are_reported() {
        let stored = page(0, MISSED | MISSED_STORED, &[PADDING], &42u64.to_ne_bytes());
        assert_eq!(Page::parse(&stored).unwrap().missed, Some(42));
        assert_eq!(Page::parse(&page(0, MISSED, &[], &[])).unwrap().missed, Some(0));
    }

    #[test]
    fn malformed_pages_are_refused() {
        assert_eq!(Page::parse(&[0; 15]), None);
        let mut bytes = page(0, 0, &[1, 1], &[]);
        bytes.truncate(20);
        assert_eq!(Page::parse(&bytes), None);
        let long = page(0, 0, &[20], &[]);
        assert_eq!(Page::parse(&long).unwrap().events().count(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_end(mut bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if bytes.len() >= 16 {
                let len = (bytes.len() - 16) as u64;
                bytes[8..16].copy_from_slice(&len.to_ne_bytes());
            }
            if let Some(page) = Page::parse(&bytes) {
                prop_assert!(page.events().count() <= bytes.len() / 4);
            }
        }
    }
}
