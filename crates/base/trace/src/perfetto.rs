//! Export as a Perfetto protobuf, for ui.perfetto.dev and trace_processor.
//!
//! The encoder is hand-written. A protobuf message is a list of field number, type and value, and
//! this export needs two dozen fields; a generated encoder would add megabytes of code. A test
//! decodes the output with an independent decoder, using the field numbers published by Perfetto,
//! and compares every event.
//!
//! Contents: one track per thread with its spans as slices; below it a track `states` with its
//! states as slices, annotated with the processor, the thread that took over, and `position` =
//! `unknown` if only the sum within a span is known; one counter per series; one counter `in
//! flight` per device; one track for marks. Names are interned. Times are nanoseconds after the
//! start of the run, on the clock of the trace. Thread numbers and tracks follow the track-event
//! format. The process name is the title of the trace.

use crate::lane::{Device, NO_CPU, Series, Thread, Trace};
use crate::span::SpanKind;
use ioloom_model::State;

/// The sequence of all packets.
const SEQUENCE: u64 = 1;
/// Identifier of the process track.
const PROCESS: u64 = 1;
/// Identifier of the marks track.
const MARKS: u64 = 2;
/// First identifier for the tracks of threads, series and devices.
const FIRST_TRACK: u64 = 16;

/// Field numbers, by message.
mod field {
    pub(super) const TRACE_PACKET: u32 = 1;

    pub(super) const PACKET_TIMESTAMP: u32 = 8;
    pub(super) const PACKET_SEQUENCE_ID: u32 = 10;
    pub(super) const PACKET_TRACK_EVENT: u32 = 11;
    pub(super) const PACKET_INTERNED_DATA: u32 = 12;
    pub(super) const PACKET_SEQUENCE_FLAGS: u32 = 13;
    pub(super) const PACKET_TRACK_DESCRIPTOR: u32 = 60;

    pub(super) const TRACK_UUID: u32 = 1;
    pub(super) const TRACK_NAME: u32 = 2;
    pub(super) const TRACK_PROCESS: u32 = 3;
    pub(super) const TRACK_THREAD: u32 = 4;
    pub(super) const TRACK_PARENT: u32 = 5;
    pub(super) const TRACK_COUNTER: u32 = 8;

    pub(super) const PROCESS_PID: u32 = 1;
    pub(super) const PROCESS_NAME: u32 = 6;
    pub(super) const THREAD_PID: u32 = 1;
    pub(super) const THREAD_TID: u32 = 2;
    pub(super) const THREAD_NAME: u32 = 5;
    pub(super) const COUNTER_UNIT_NAME: u32 = 6;

    pub(super) const EVENT_CATEGORY_IIDS: u32 = 3;
    pub(super) const EVENT_ANNOTATIONS: u32 = 4;
    pub(super) const EVENT_TYPE: u32 = 9;
    pub(super) const EVENT_NAME_IID: u32 = 10;
    pub(super) const EVENT_TRACK: u32 = 11;
    pub(super) const EVENT_NAME: u32 = 23;
    pub(super) const EVENT_COUNTER: u32 = 30;
    pub(super) const EVENT_DOUBLE_COUNTER: u32 = 44;

    pub(super) const INTERNED_CATEGORIES: u32 = 1;
    pub(super) const INTERNED_EVENT_NAMES: u32 = 2;
    pub(super) const INTERNED_ANNOTATION_NAMES: u32 = 3;
    pub(super) const INTERNED_IID: u32 = 1;
    pub(super) const INTERNED_NAME: u32 = 2;

    pub(super) const ANNOTATION_NAME_IID: u32 = 1;
    pub(super) const ANNOTATION_UINT: u32 = 3;
    pub(super) const ANNOTATION_STRING: u32 = 6;
}

/// Event types.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Interned categories.
const CATEGORY_SPAN: u64 = 1;
const CATEGORY_STATE: u64 = 2;
/// Interned annotation names.
const ANNOTATION_FILE: u64 = 1;
const ANNOTATION_CPU: u64 = 2;
const ANNOTATION_BY: u64 = 3;
const ANNOTATION_POSITION: u64 = 4;

/// Returns the bytes of a Perfetto trace.
pub fn encode(trace: &Trace) -> Vec<u8> {
    let mut out = Packets { bytes: Vec::new(), next_track: FIRST_TRACK };
    out.interned();
    let pid = trace.threads.iter().map(|t| t.tid).min().unwrap_or(1);
    out.track(PROCESS, None, |track| {
        track.message(field::TRACK_PROCESS, |process| {
            process.number(field::PROCESS_PID, u64::from(pid));
            process.text(field::PROCESS_NAME, &trace.title);
        });
    });
    for thread in &trace.threads {
        out.thread(trace, thread, pid);
    }
    for series in &trace.series {
        out.series(series);
    }
    for device in &trace.devices {
        out.in_flight(device);
    }
    out.track(MARKS, Some(PROCESS), |track| track.text(field::TRACK_NAME, "marks"));
    for mark in &trace.marks {
        out.event(mark.at_ns, INSTANT, MARKS, |event| event.text(field::EVENT_NAME, &mark.name));
    }
    out.bytes
}

/// One protobuf message being written.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn double(&mut self, field: u32, value: f64) {
        self.varint(u64::from(field) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, field: u32, text: &str) {
        self.delimited(field, text.as_bytes());
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.delimited(field, &inner.bytes);
    }

    fn delimited(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }
}

/// The packets written so far.
struct Packets {
    bytes: Vec<u8>,
    next_track: u64,
}

impl Packets {
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) {
        /// This packet resets the interned data.
        const CLEARED: u64 = 1;
        /// This packet uses the interned data.
        const NEEDED: u64 = 2;
        let flags = if self.bytes.is_empty() { CLEARED } else { NEEDED };
        let mut packet = Message::default();
        packet.number(field::PACKET_SEQUENCE_ID, SEQUENCE);
        packet.number(field::PACKET_SEQUENCE_FLAGS, flags);
        fill(&mut packet);
        let mut framed = Message::default();
        framed.delimited(field::TRACE_PACKET, &packet.bytes);
        self.bytes.extend_from_slice(&framed.bytes);
    }

    /// Writes span and state names, categories, and annotation names.
    fn interned(&mut self) {
        let table = |message: &mut Message, field: u32, names: &[(u64, &str)]| {
            for (iid, name) in names {
                message.message(field, |entry| {
                    entry.number(field::INTERNED_IID, *iid);
                    entry.text(field::INTERNED_NAME, name);
                });
            }
        };
        let spans = SpanKind::ALL.into_iter().map(|kind| (span_name(kind), kind.name()));
        let states = State::ALL.into_iter().map(|state| (state_name(state), state.name()));
        let names: Vec<(u64, &str)> = spans.chain(states).collect();
        self.packet(|packet| {
            packet.message(field::PACKET_INTERNED_DATA, |data| {
                let categories = [(CATEGORY_SPAN, "span"), (CATEGORY_STATE, "state")];
                table(data, field::INTERNED_CATEGORIES, &categories);
                table(data, field::INTERNED_EVENT_NAMES, &names);
                let annotations = [
                    (ANNOTATION_FILE, "file"),
                    (ANNOTATION_CPU, "cpu"),
                    (ANNOTATION_BY, "by tid"),
                    (ANNOTATION_POSITION, "position"),
                ];
                table(data, field::INTERNED_ANNOTATION_NAMES, &annotations);
            });
        });
    }

    fn track(&mut self, uuid: u64, parent: Option<u64>, fill: impl FnOnce(&mut Message)) {
        self.packet(|packet| {
            packet.message(field::PACKET_TRACK_DESCRIPTOR, |track| {
                track.number(field::TRACK_UUID, uuid);
                if let Some(parent) = parent {
                    track.number(field::TRACK_PARENT, parent);
                }
                fill(track);
            });
        });
    }

    fn new_track(&mut self, parent: u64, fill: impl FnOnce(&mut Message)) -> u64 {
        let uuid = self.next_track;
        self.next_track += 1;
        self.track(uuid, Some(parent), fill);
        uuid
    }

    fn event(&mut self, at_ns: u64, kind: u64, track: u64, fill: impl FnOnce(&mut Message)) {
        self.packet(|packet| {
            packet.number(field::PACKET_TIMESTAMP, at_ns);
            packet.message(field::PACKET_TRACK_EVENT, |event| {
                event.number(field::EVENT_TYPE, kind);
                event.number(field::EVENT_TRACK, track);
                fill(event);
            });
        });
    }

    fn slice(
        &mut self,
        (start_ns, end_ns): (u64, u64),
        track: u64,
        (category, name): (u64, u64),
        annotate: impl FnOnce(&mut Message),
    ) {
        self.event(start_ns, SLICE_BEGIN, track, |event| {
            event.number(field::EVENT_CATEGORY_IIDS, category);
            event.number(field::EVENT_NAME_IID, name);
            annotate(event);
        });
        self.event(end_ns, SLICE_END, track, |_| {});
    }

    fn thread(&mut self, trace: &Trace, thread: &Thread, pid: u32) {
        let spans = self.new_track(PROCESS, |track| {
            track.message(field::TRACK_THREAD, |descriptor| {
                descriptor.number(field::THREAD_PID, u64::from(pid));
                descriptor.number(field::THREAD_TID, u64::from(thread.tid));
                descriptor.text(field::THREAD_NAME, &format!("{} {}", thread.role, thread.name));
            });
        });
        for span in &thread.spans {
            let range = (span.start_ns, span.start_ns.saturating_add(span.ns));
            let name = (CATEGORY_SPAN, span_name(span.kind));
            let file = trace.files.get(span.file as usize);
            self.slice(range, spans, name, |event| {
                if let Some(file) = file {
                    annotation(event, ANNOTATION_FILE, |a| a.text(field::ANNOTATION_STRING, file));
                }
            });
        }
        let states = self.new_track(spans, |track| track.text(field::TRACK_NAME, "states"));
        for (i, segment) in thread.segments.iter().enumerate() {
            let end_ns = thread.segments.get(i + 1).map_or(thread.end_ns, |next| next.start_ns);
            let name = (CATEGORY_STATE, state_name(segment.state));
            self.slice((segment.start_ns, end_ns), states, name, |event| {
                let number = |value: u32| {
                    move |a: &mut Message| a.number(field::ANNOTATION_UINT, u64::from(value))
                };
                if segment.cpu != NO_CPU {
                    annotation(event, ANNOTATION_CPU, number(u32::from(segment.cpu)));
                }
                if segment.by_tid != 0 {
                    annotation(event, ANNOTATION_BY, number(segment.by_tid));
                }
                if !segment.placed {
                    let unknown = |a: &mut Message| a.text(field::ANNOTATION_STRING, "unknown");
                    annotation(event, ANNOTATION_POSITION, unknown);
                }
            });
        }
    }

    fn series(&mut self, series: &Series) {
        let track = self.counter(&series.name, &series.unit);
        for (at_ns, value) in &series.points {
            self.event(*at_ns, COUNTER, track, |event| {
                event.double(field::EVENT_DOUBLE_COUNTER, *value);
            });
        }
    }

    /// Writes the number of requests in flight after each issue and completion, ignoring requests
    /// whose completion was not observed.
    fn in_flight(&mut self, device: &Device) {
        let track = self.counter(&format!("{} in flight", device.name), "requests");
        let ended = device.requests.iter().filter_map(|r| Some((r.issue_ns, r.complete_ns?)));
        let mut steps: Vec<(u64, i64)> =
            ended.flat_map(|(issue, complete)| [(issue, 1), (complete, -1)]).collect();
        steps.sort_unstable();
        let mut count = 0;
        for (i, (at_ns, step)) in steps.iter().enumerate() {
            count += step;
            // One value per point in time.
            if steps.get(i + 1).is_none_or(|next| next.0 != *at_ns) {
                self.event(*at_ns, COUNTER, track, |event| {
                    event.number(field::EVENT_COUNTER, count.max(0) as u64);
                });
            }
        }
    }

    fn counter(&mut self, name: &str, unit: &str) -> u64 {
        self.new_track(PROCESS, |track| {
            track.text(field::TRACK_NAME, name);
            track.message(field::TRACK_COUNTER, |counter| {
                counter.text(field::COUNTER_UNIT_NAME, unit);
            });
        })
    }
}

fn annotation(event: &mut Message, name: u64, value: impl FnOnce(&mut Message)) {
    event.message(field::EVENT_ANNOTATIONS, |annotation| {
        annotation.number(field::ANNOTATION_NAME_IID, name);
        value(annotation);
    });
}

/// Returns the interned name of a span kind; 0 is not allowed.
fn span_name(kind: SpanKind) -> u64 {
    kind as u64 + 1
}

/// Returns the interned name of a state; state names follow span names.
fn state_name(state: State) -> u64 {
    (SpanKind::ALL.len() + 1 + state as usize) as u64
}
