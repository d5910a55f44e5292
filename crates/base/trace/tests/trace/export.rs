//! Exports, decoded by independent readers.

use crate::sample::sample;
use crate::schema::{self, DebugAnnotation, EventType, Interned, TracePacket, TrackEvent};
use ioloom_model::State;
use ioloom_trace::{NO_CPU, Trace, csv, perfetto};
use prost::Message;
use std::collections::BTreeMap;

/// A decoded event.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    at_ns: u64,
    kind: EventType,
    name: Option<String>,
    category: Option<String>,
    notes: Vec<(String, String)>,
    value: Option<f64>,
}

/// Tracks and their events, by identifier.
struct Read {
    names: BTreeMap<u64, String>,
    parents: BTreeMap<u64, u64>,
    events: BTreeMap<u64, Vec<Event>>,
    interned: [BTreeMap<u64, String>; 3],
}

impl Read {
    fn of(bytes: &[u8]) -> Self {
        let mut read = Self {
            names: BTreeMap::new(),
            parents: BTreeMap::new(),
            events: BTreeMap::new(),
            interned: Default::default(),
        };
        let trace = schema::Trace::decode(bytes).unwrap();
        assert_eq!(trace.encoded_len(), bytes.len(), "bytes outside known fields");
        for (i, packet) in trace.packet.iter().enumerate() {
            assert_eq!(packet.trusted_packet_sequence_id(), 1);
            assert_eq!(packet.sequence_flags(), if i == 0 { 1 } else { 2 });
            read.packet(packet);
        }
        read
    }

    fn packet(&mut self, packet: &TracePacket) {
        if let Some(data) = packet.interned_data.as_ref() {
            let table = |names: &[Interned]| {
                names.iter().map(|entry| (entry.iid(), entry.name().to_owned())).collect()
            };
            let names = [&data.event_names, &data.event_categories, &data.debug_annotation_names];
            self.interned = names.map(|names| table(names));
        } else if let Some(track) = packet.track_descriptor.as_ref() {
            let name = if let Some(process) = track.process.as_ref() {
                format!("process {} {}", process.pid(), process.process_name())
            } else if let Some(thread) = track.thread.as_ref() {
                format!("thread {} {}", thread.tid(), thread.thread_name())
            } else if let Some(counter) = track.counter.as_ref() {
                format!("counter {} {}", track.name(), counter.unit_name())
            } else {
                track.name().to_owned()
            };
            assert!(self.names.insert(track.uuid(), name).is_none(), "an identifier is used twice");
            self.parents.insert(track.uuid(), track.parent_uuid());
        } else {
            let event =
                packet.track_event.as_ref().expect("a packet must have names, a track or an event");
            let read = self.event(packet.timestamp(), event);
            self.events.entry(event.track_uuid()).or_default().push(read);
        }
    }

    fn event(&self, at_ns: u64, event: &TrackEvent) -> Event {
        let name = match event.name_iid {
            Some(iid) => Some(self.interned[0][&iid].clone()),
            None => event.name.clone(),
        };
        let value = match event.kind() {
            EventType::Counter => {
                Some(event.double_counter_value.unwrap_or(event.counter_value() as f64))
            }
            _ => None,
        };
        let note = |note: &DebugAnnotation| {
            let value = match &note.string_value {
                Some(text) => text.clone(),
                None => note.uint_value().to_string(),
            };
            (self.interned[2][&note.name_iid()].clone(), value)
        };
        Event {
            at_ns,
            kind: event.kind(),
            name,
            category: event.category_iids.first().map(|iid| self.interned[1][iid].clone()),
            notes: event.debug_annotations.iter().map(note).collect(),
            value,
        }
    }

    /// Returns the events of the track with this name and parent.
    fn track(&self, name: &str, parent: Option<&str>) -> &[Event] {
        let found = self.names.iter().find(|(uuid, n)| {
            let of = self.names.get(&self.parents[uuid]);
            *n == name && (parent.is_none() || of.map(String::as_str) == parent)
        });
        let (uuid, _) = found.unwrap_or_else(|| panic!("{name} in {:?}", self.names));
        self.events.get(uuid).map_or(&[], Vec::as_slice)
    }
}

fn slice(
    from_ns: u64,
    to_ns: u64,
    category: &str,
    name: &str,
    notes: Vec<(String, String)>,
) -> [Event; 2] {
    let begin = Event {
        at_ns: from_ns,
        kind: EventType::SliceBegin,
        name: Some(name.to_owned()),
        category: Some(category.to_owned()),
        notes,
        value: None,
    };
    let end = Event {
        at_ns: to_ns,
        kind: EventType::SliceEnd,
        name: None,
        category: None,
        notes: Vec::new(),
        value: None,
    };
    [begin, end]
}

#[test]
fn the_perfetto_export_has_every_event() {
    let mut trace = sample();
    trace.threads[0].segments[1].placed = false;
    let read = Read::of(&perfetto::encode(&trace));
    assert!(read.track(&format!("process 11 {}", trace.title), None).is_empty());
    let mut count = 0;
    for thread in &trace.threads {
        let name = format!("thread {} {} {}", thread.tid, thread.role, thread.name);
        let spans: Vec<Event> = thread
            .spans
            .iter()
            .flat_map(|s| {
                let file = trace.files.get(s.file as usize);
                let notes = file.map(|f| ("file".to_owned(), f.clone())).into_iter().collect();
                slice(s.start_ns, s.start_ns + s.ns, "span", s.kind.name(), notes)
            })
            .collect();
        assert_eq!(read.track(&name, None), spans);
        let states: Vec<Event> = thread
            .segments
            .iter()
            .enumerate()
            .flat_map(|(i, s)| {
                let end = thread.segments.get(i + 1).map_or(thread.end_ns, |next| next.start_ns);
                let mut notes = Vec::new();
                if s.cpu != NO_CPU {
                    notes.push(("cpu".to_owned(), s.cpu.to_string()));
                }
                if s.by_tid != 0 {
                    notes.push(("by tid".to_owned(), s.by_tid.to_string()));
                }
                if !s.placed {
                    notes.push(("position".to_owned(), "unknown".to_owned()));
                }
                slice(s.start_ns, end, "state", s.state.name(), notes)
            })
            .collect();
        assert_eq!(read.track("states", Some(&name)), states);
        count += spans.len() + states.len();
    }
    for series in &trace.series {
        let events = read.track(&format!("counter {} {}", series.name, series.unit), None);
        let points: Vec<(u64, f64)> = events.iter().map(|e| (e.at_ns, e.value.unwrap())).collect();
        assert_eq!(points, series.points);
        count += points.len();
    }
    let flight = read.track("counter vda in flight requests", None);
    for event in flight {
        let open = trace.devices[0].requests.iter().filter(|r| {
            r.complete_ns.is_some_and(|end| r.issue_ns <= event.at_ns && event.at_ns < end)
        });
        assert_eq!(event.value, Some(open.count() as f64), "{event:?}");
    }
    let marks = read.track("marks", None);
    assert_eq!(marks[0].name.as_deref(), Some("drained <b>"));
    assert_eq!((marks[0].at_ns, marks[0].kind), (1_000_000, EventType::Instant));
    count += flight.len() + marks.len();
    assert_eq!(read.events.values().map(Vec::len).sum::<usize>(), count);
}

/// Splits a line as specified in RFC 4180.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut inside) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if inside && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => inside = !inside,
            ',' if !inside => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

fn table(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = csv.lines();
    let header = fields(lines.next().unwrap());
    lines
        .map(|line| {
            let row = fields(line);
            assert_eq!(row.len(), header.len(), "{line}");
            header.iter().cloned().zip(row).collect()
        })
        .collect()
}

#[test]
fn csv_tables_have_every_item() {
    let trace = sample();
    let segments = table(&csv::segments(&trace));
    let wanted: Vec<_> =
        trace.threads.iter().flat_map(|t| t.segments.iter().map(move |s| (t, s))).collect();
    assert_eq!(segments.len(), wanted.len());
    for (row, (thread, segment)) in segments.iter().zip(wanted) {
        assert_eq!(row["thread"], thread.name);
        assert_eq!(row["start_ns"], segment.start_ns.to_string());
        assert_eq!(row["state"], segment.state.name());
        assert_eq!(row["by_tid"].is_empty(), segment.by_tid == 0);
        assert_eq!(row["cpu"].is_empty(), segment.cpu == NO_CPU);
    }
    let on_cpu: u64 = segments
        .iter()
        .filter(|row| row["tid"] == "11" && row["state"] == "on-cpu")
        .map(|row| row["end_ns"].parse::<u64>().unwrap() - row["start_ns"].parse::<u64>().unwrap())
        .sum();
    assert_eq!(Some(on_cpu), trace.threads[0].states[&State::OnCpu].ns);
    let spans = table(&csv::spans(&trace));
    assert_eq!(spans.len(), trace.threads.iter().map(|t| t.spans.len()).sum::<usize>());
    assert_eq!((spans[4]["file"].as_str(), spans[4]["file_bytes"].as_str()), ("d/f1.txt", "4096"));
    let requests = table(&csv::requests(&trace));
    assert_eq!(requests.len(), 60);
    assert_eq!((requests[8]["complete_ns"].as_str(), requests[8]["latency_ns"].as_str()), ("", ""));
    assert_eq!((requests[0]["kind"].as_str(), requests[1]["tid"].as_str()), ("write", ""));
    assert_eq!(requests[1]["latency_ns"], "70001");
    assert_eq!(table(&csv::requests(&Trace::default())).len(), 0);
}
