//! Parses ring records. Pure: arbitrary bytes yield records or one [`Record::Broken`].

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A thread was scheduled out or in.
    Switch {
        /// Time in monotonic nanoseconds.
        at_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Processor.
        cpu: u32,
        /// Whether the thread was scheduled out.
        out: bool,
        /// Whether the thread was scheduled out although it could have continued.
        preempted: bool,
    },
    /// A page fault ended.
    Fault {
        /// Time in monotonic nanoseconds.
        at_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// The accessed address.
        address: u64,
    },
    /// Records that did not fit.
    Lost {
        /// Number of records.
        count: u64,
    },
    /// A thread started.
    Begin {
        /// Time in monotonic nanoseconds.
        at_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// The thread that created it.
        parent_tid: u32,
    },
    /// A thread exited.
    End {
        /// Time in monotonic nanoseconds.
        at_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
    },
    /// A thread changed its name.
    Name {
        /// Time in monotonic nanoseconds.
        at_ns: u64,
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// The name, padded with zeros.
        name: [u8; 16],
    },
    /// A record of another kind.
    Other,
    /// Bytes that do not form a record. The iterator ends.
    Broken,
}

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const SWITCH: u32 = 14;
const MISC_OUT: u16 = 1 << 13;
const MISC_PREEMPT: u16 = 1 << 14;
const HEADER_BYTES: usize = 8;
/// Thread, time and processor at the end of every record except samples.
const TRAILER_BYTES: usize = 24;
/// Offset of the time in these bytes.
const TRAILER_TIME_AT: usize = 8;

impl Record {
    /// Returns the time of the event; `None` for records that are not about one.
    pub fn at_ns(&self) -> Option<u64> {
        match self {
            Self::Switch { at_ns, .. }
            | Self::Fault { at_ns, .. }
            | Self::Begin { at_ns, .. }
            | Self::End { at_ns, .. }
            | Self::Name { at_ns, .. } => Some(*at_ns),
            Self::Lost { .. } | Self::Other | Self::Broken => None,
        }
    }
}

/// Returns an iterator over the records in `bytes`.
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { rest: bytes }
}

/// An iterator over records.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.rest.is_empty() {
            return None;
        }
        let size = u16_at(self.rest, 6).map_or(0, usize::from);
        if size < HEADER_BYTES || size > self.rest.len() {
            self.rest = &[];
            return Some(Record::Broken);
        }
        let (record, rest) = self.rest.split_at(size);
        self.rest = rest;
        Some(decode(record).unwrap_or(Record::Broken))
    }
}

fn decode(record: &[u8]) -> Option<Record> {
    let kind = u32_at(record, 0)?;
    let misc = u16_at(record, 4)?;
    let body = &record[HEADER_BYTES..];
    Some(match kind {
        SWITCH => Record::Switch {
            pid: u32_at(body, 0)?,
            tid: u32_at(body, 4)?,
            at_ns: u64_at(body, 8)?,
            cpu: u32_at(body, 16)?,
            out: misc & MISC_OUT != 0,
            preempted: misc & MISC_PREEMPT != 0,
        },
        SAMPLE => Record::Fault {
            pid: u32_at(body, 0)?,
            tid: u32_at(body, 4)?,
            at_ns: u64_at(body, 8)?,
            address: u64_at(body, 16)?,
        },
        LOST => Record::Lost { count: u64_at(body, 8)? },
        FORK | EXIT => {
            let (pid, tid) = (u32_at(body, 0)?, u32_at(body, 8)?);
            let at_ns = u64_at(body, 16)?;
            match kind {
                FORK => Record::Begin { at_ns, pid, tid, parent_tid: u32_at(body, 12)? },
                _ => Record::End { at_ns, pid, tid },
            }
        }
        COMM => {
            let end = body.len().checked_sub(TRAILER_BYTES)?;
            let text = body.get(8..end)?;
            let at_ns = u64_at(body, end + TRAILER_TIME_AT)?;
            let mut name = [0; 16];
            for (to, from) in name.iter_mut().zip(text.iter().take_while(|b| **b != 0)) {
                *to = *from;
            }
            Record::Name { at_ns, pid: u32_at(body, 0)?, tid: u32_at(body, 4)?, name }
        }
        _ => Record::Other,
    })
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(((HEADER_BYTES + body.len()) as u16).to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn every_kind_is_parsed() {
        let mut bytes = record(SWITCH, MISC_OUT | MISC_PREEMPT, &words(&[1, 2, 9, 0, 3, 0]));
        bytes.extend(record(SWITCH, 0, &words(&[1, 2, 10, 0, 4, 0])));
        bytes.extend(record(SAMPLE, 0, &words(&[1, 2, 11, 0, 0x1000, 0, 4, 0])));
        bytes.extend(record(LOST, 0, &words(&[0, 0, 7, 0, 1, 2, 0, 0, 0, 0])));
        bytes.extend(record(FORK, 0, &words(&[1, 1, 5, 2, 12, 0, 0, 0, 0, 0, 0, 0])));
        bytes.extend(record(EXIT, 0, &words(&[1, 1, 5, 2, 13, 0, 0, 0, 0, 0, 0, 0])));
        let mut comm = words(&[1, 5]);
        comm.extend(b"name\0\0\0\0");
        comm.extend(words(&[1, 5, 14, 0, 3, 0]));
        bytes.extend(record(COMM, 0, &comm));
        bytes.extend(record(99, 0, &[]));
        let mut name = [0; 16];
        name[..4].copy_from_slice(b"name");
        let switch =
            |at_ns, cpu, out| Record::Switch { at_ns, pid: 1, tid: 2, cpu, out, preempted: out };
        let expected = [
            switch(9, 3, true),
            switch(10, 4, false),
            Record::Fault { at_ns: 11, pid: 1, tid: 2, address: 0x1000 },
            Record::Lost { count: 7 },
            Record::Begin { at_ns: 12, pid: 1, tid: 5, parent_tid: 2 },
            Record::End { at_ns: 13, pid: 1, tid: 5 },
            Record::Name { at_ns: 14, pid: 1, tid: 5, name },
            Record::Other,
        ];
        assert_eq!(records(&bytes).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_truncated_record_ends_the_iteration() {
        let bytes = record(SWITCH, 0, &words(&[1, 2, 9, 0, 3, 0]));
        let cut: Vec<_> = records(&bytes[..20]).collect();
        assert_eq!(cut, [Record::Broken]);
        let zero: Vec<_> = records(&[0; 64]).collect();
        assert_eq!(zero, [Record::Broken]);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(records(&bytes).count() <= bytes.len() / HEADER_BYTES + 1);
        }
    }
}
