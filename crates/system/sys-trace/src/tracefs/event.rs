//! Decodes events. Pure: the layouts come from the kernel's format descriptions.

use super::format::Format;

/// An event on a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Time in monotonic nanoseconds.
    pub at_ns: u64,
    /// Processor.
    pub cpu: u16,
    /// Thread running there; 0 in an interrupt or on an idle processor.
    pub by_tid: u32,
    /// Kind of event, with its fields.
    pub what: EventData,
}

/// Event fields, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventData {
    /// A thread is scheduled out and another is scheduled in; 0 is the idle thread.
    Switch {
        /// The thread scheduled out.
        prev_tid: u32,
        /// Its state bits; the lower byte is 0 if it could have continued.
        prev_state: u32,
        /// The thread scheduled in.
        next_tid: u32,
        /// Name of the thread scheduled in.
        next_name: [u8; 16],
    },
    /// A thread becomes ready to run.
    Waking {
        /// The thread.
        tid: u32,
    },
    /// A request is issued to a device.
    Issue {
        /// Major and minor number, packed as in the kernel.
        device: u32,
        /// First sector.
        sector: u64,
        /// Length in bytes.
        bytes: u32,
        /// Whether it is a write rather than a read. Other requests are not decoded.
        write: bool,
    },
    /// A request completes.
    Complete {
        /// Major and minor number, packed as in the kernel.
        device: u32,
        /// First sector.
        sector: u64,
    },
    /// A thread begins to wait for a kernel lock.
    LockBegin {
        /// Kind of lock; bit 0 means that it spins.
        flags: u32,
    },
    /// The thread has acquired the lock.
    LockEnd,
    /// A thread was created.
    NewTask {
        /// The new thread.
        tid: u32,
        /// Whether it belongs to its creator's process.
        thread: bool,
        /// Initial name.
        name: [u8; 16],
    },
    /// A mark written by a program.
    Mark,
}

/// Kernel events that can be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `sched/sched_switch`
    Switch,
    /// `sched/sched_waking`
    Waking,
    /// `block/block_rq_issue`
    Issue,
    /// `block/block_rq_complete`
    Complete,
    /// `lock/contention_begin`
    LockBegin,
    /// `lock/contention_end`
    LockEnd,
    /// `task/task_newtask`
    NewTask,
    /// `ftrace/print`
    Mark,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Switch,
        Self::Waking,
        Self::Issue,
        Self::Complete,
        Self::LockBegin,
        Self::LockEnd,
        Self::NewTask,
        Self::Mark,
    ];

    /// Returns the event's directory below `events`.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Switch => "sched/sched_switch",
            Self::Waking => "sched/sched_waking",
            Self::Issue => "block/block_rq_issue",
            Self::Complete => "block/block_rq_complete",
            Self::LockBegin => "lock/contention_begin",
            Self::LockEnd => "lock/contention_end",
            Self::NewTask => "task/task_newtask",
            Self::Mark => "ftrace/print",
        }
    }

    /// Returns the names of the fields to read, in decoder order.
    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Switch => &["prev_pid", "prev_state", "next_pid", "next_comm"],
            Self::Waking => &["pid"],
            Self::Issue => &["dev", "sector", "bytes", "rwbs"],
            Self::Complete => &["dev", "sector"],
            Self::LockBegin => &["flags"],
            Self::LockEnd | Self::Mark => &[],
            Self::NewTask => &["pid", "clone_flags", "comm"],
        }
    }
}

const FLAG_INTERRUPT: u64 = 0x08 | 0x10 | 0x40;
const CLONE_THREAD: u64 = 0x0001_0000;

#[derive(Debug, Clone)]
struct Layout {
    id: u16,
    kind: Kind,
    pid: Place,
    flags: Place,
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    offset: usize,
    size: usize,
}

impl Place {
    fn of(format: &Format, name: &str) -> Option<Self> {
        format.field(name).map(|f| Self { offset: f.offset, size: f.size })
    }

    fn bytes(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..self.offset.checked_add(self.size)?)
    }

    fn number(self, record: &[u8]) -> Option<u64> {
        let bytes = self.bytes(record)?;
        match bytes.len() {
            1 => Some(u64::from(bytes[0])),
            2 => Some(u64::from(u16::from_ne_bytes(bytes.try_into().ok()?))),
            4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
            8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    fn name(self, record: &[u8]) -> Option<[u8; 16]> {
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(self.bytes(record)?.iter().take_while(|b| **b != 0)) {
            *to = *from;
        }
        Some(name)
    }
}

/// Returns whether a request with these operation letters is a write; `None` if it is neither a read nor a write,
/// such as a discard, a flush or a command of the driver. The letters end at a zero byte.
fn is_write(letters: &[u8]) -> Option<bool> {
    // The first F is a flush before the operation. The letters after the operation are its flags.
    let letters = letters.strip_prefix(b"F").unwrap_or(letters);
    match letters {
        [b'R', ..] => Some(false),
        [b'W', ..] | [b'Z', b'A', ..] => Some(true),
        _ => None,
    }
}

/// Layouts of the events to decode.
#[derive(Debug, Clone, Default)]
pub struct Decoder(Vec<Layout>);

impl Decoder {
    /// Adds the layout of one event; returns `false` if a required field is missing.
    pub fn learn(&mut self, kind: Kind, format: &Format) -> bool {
        let places = kind.fields().iter().map(|name| Place::of(format, name)).collect();
        let common = (Place::of(format, "common_pid"), Place::of(format, "common_flags"));
        let (Some(places), (Some(pid), Some(flags))) = (places, common) else { return false };
        self.0.push(Layout { id: format.id, kind, pid, flags, places });
        true
    }

    /// Decodes one record; `None` for events without a layout and for bytes that do not fit it.
    pub fn decode(&self, at_ns: u64, cpu: u16, record: &[u8]) -> Option<Event> {
        let id = u16::from_ne_bytes(record.get(..2)?.try_into().ok()?);
        let layout = self.0.iter().find(|layout| layout.id == id)?;
        let interrupt = layout.flags.number(record)? & FLAG_INTERRUPT != 0;
        let by_tid = if interrupt { 0 } else { layout.pid.number(record)? as u32 };
        let number = |i: usize| layout.places.get(i)?.number(record);
        let name = |i: usize| layout.places.get(i)?.name(record);
        let what = match layout.kind {
            Kind::Switch => EventData::Switch {
                prev_tid: number(0)? as u32,
                prev_state: number(1)? as u32,
                next_tid: number(2)? as u32,
                next_name: name(3)?,
            },
            Kind::Waking => EventData::Waking { tid: number(0)? as u32 },
            Kind::Issue => EventData::Issue {
                device: number(0)? as u32,
                sector: number(1)?,
                bytes: number(2)? as u32,
                write: is_write(layout.places.get(3)?.bytes(record)?)?,
            },
            Kind::Complete => EventData::Complete { device: number(0)? as u32, sector: number(1)? },
            Kind::LockBegin => EventData::LockBegin { flags: number(0)? as u32 },
            Kind::LockEnd => EventData::LockEnd,
            Kind::NewTask => EventData::NewTask {
                tid: number(0)? as u32,
                thread: number(1)? & CLONE_THREAD != 0,
                name: name(2)?,
            },
            Kind::Mark => EventData::Mark,
        };
        Some(Event { at_ns, cpu, by_tid, what })
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;

    fn decoder() -> Decoder {
        let mut decoder = Decoder::default();
        for (kind, text) in [
            (Kind::Switch, include_str!("fixtures/sched_switch.format")),
            (Kind::Waking, include_str!("fixtures/sched_waking.format")),
            (Kind::Issue, include_str!("fixtures/block_rq_issue.format")),
            (Kind::Complete, include_str!("fixtures/block_rq_complete.format")),
            (Kind::NewTask, include_str!("fixtures/task_newtask.format")),
            (Kind::Mark, include_str!("fixtures/print.format")),
        ] {
            assert!(decoder.learn(kind, &Format::parse(text).unwrap()), "{kind:?}");
        }
        decoder
    }

    /// Decodes pages recorded from a kernel while a marked thread slept, read and started a thread.
    fn recorded() -> Vec<Event> {
        let decoder = decoder();
        let pages = include_bytes!("fixtures/pages.bin");
        let events = pages.chunks(4096).flat_map(|bytes| {
            let page = Page::parse(bytes).expect("a whole page");
            assert_eq!(page.missed, None);
            page.events().filter_map(|(at, record)| decoder.decode(at, 0, record))
        });
        events.collect()
    }

    #[test]
    fn recorded_pages_give_every_kind_in_order() {
        let events = recorded();
        assert!(events.windows(2).all(|w| w[0].at_ns <= w[1].at_ns));
        let count = |f: fn(&EventData) -> bool| events.iter().filter(|e| f(&e.what)).count();
        assert!(count(|w| matches!(w, EventData::Switch { .. })) > 20);
        assert!(count(|w| matches!(w, EventData::Waking { .. })) > 8);
        assert!(count(|w| matches!(w, EventData::Issue { write: false, .. })) >= 1);
        assert_eq!(count(|w| matches!(w, EventData::Mark)), 2);
        assert!(count(|w| matches!(w, EventData::NewTask { thread: false, .. })) >= 1);
    }

    #[test]
    fn the_thread_that_gets_the_processor_leaves_it_next() {
        let mut holder = None;
        let (mut links, mut breaks) = (0, 0);
        for event in recorded() {
            if let EventData::Switch { prev_tid, next_tid, .. } = event.what {
                links += 1;
                breaks += u32::from(holder.is_some_and(|tid| tid != prev_tid));
                holder = Some(next_tid);
            }
        }
        assert!(breaks * 4 < links, "{breaks} of {links}");
    }

    /// Returns a request with these letters, followed by bytes of an earlier record.
    fn issued(letters: &[u8]) -> Option<EventData> {
        let format = Format::parse(include_str!("fixtures/block_rq_issue.format")).unwrap();
        let mut record = vec![0; 64];
        record[..2].copy_from_slice(&format.id.to_ne_bytes());
        let at = format.field("rwbs").unwrap().offset;
        record[at..at + 10].copy_from_slice(b"\0WRWRWRWRW");
        record[at..at + letters.len()].copy_from_slice(letters);
        record[at + letters.len()] = 0;
        decoder().decode(5, 0, &record).map(|event| event.what)
    }

    #[test]
    fn the_letters_of_a_request_give_its_kind() {
        let write = |letters: &[u8]| match issued(letters) {
            Some(EventData::Issue { write, .. }) => Some(write),
            other => {
                assert_eq!(other, None);
                None
            }
        };
        for letters in ["R", "RA", "RM", "RSM", "FR"] {
            assert_eq!(write(letters.as_bytes()), Some(false), "{letters}");
        }
        for letters in ["W", "WS", "WFS", "FWFS", "WSM", "ZA"] {
            assert_eq!(write(letters.as_bytes()), Some(true), "{letters}");
        }
        for letters in ["D", "DS", "DE", "N", "NS", "F", "FF", "FN", "ZR", ""] {
            assert_eq!(write(letters.as_bytes()), None, "{letters}");
        }
    }

    #[test]
    fn an_event_without_its_fields_is_refused() {
        let format = Format::parse(include_str!("fixtures/sched_waking.format")).unwrap();
        assert!(!Decoder::default().learn(Kind::Issue, &format));
        assert_eq!(decoder().decode(0, 0, &[1]), None);
        assert_eq!(decoder().decode(0, 0, &[0xFF; 64]), None);
    }
}
