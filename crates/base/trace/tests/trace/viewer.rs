//! The viewer payload, decoded by an independent reader written from its documentation.

use crate::sample::sample;
use ioloom_model::State;
use ioloom_trace::viewer::{COARSE_TICK_NS, embedded, payload};
use ioloom_trace::{NO_CPU, NO_FILE, Segment, Span, SpanKind, Thread, Trace, findings};
use serde_json::Value;
use std::io::Read;

/// Header and body.
struct View {
    header: Value,
    body: Vec<u8>,
}

impl View {
    fn of(bytes: &[u8]) -> Self {
        assert_eq!(&bytes[..8], b"IOLMVIEW");
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(word(8), 1);
        let body = 16 + word(12);
        assert_eq!(body % 8, 0);
        let header = serde_json::from_slice(&bytes[16..body]).unwrap();
        Self { header, body: bytes[body..].to_vec() }
    }

    fn column(&self, of: &Value) -> Vec<u64> {
        let number = |key: &str| of[key].as_u64().unwrap() as usize;
        let (at, n, planes) = (number("at"), number("n"), number("p"));
        assert!(at % 8 == 0 && planes <= 7);
        let plane = |k: usize, i: usize| u64::from(self.body[at + k * n + i]) << (8 * k);
        (0..n).map(|i| (0..planes).map(|k| plane(k, i)).sum()).collect()
    }

    /// Reads a column that may be absent.
    fn sparse(&self, of: &Value, n: usize) -> Vec<u64> {
        if of.is_null() { vec![0; n] } else { self.column(of) }
    }

    fn starts(&self, of: &Value) -> Vec<u64> {
        let tick = self.header["tick_ns"].as_u64().unwrap();
        let mut at = 0;
        self.column(of)
            .into_iter()
            .map(|step| {
                at += step;
                at * tick
            })
            .collect()
    }

    fn floats(&self, of: &Value) -> Vec<f64> {
        assert_eq!(of["f64"], true);
        let at = of["at"].as_u64().unwrap() as usize;
        let n = of["n"].as_u64().unwrap() as usize;
        self.body[at..at + 8 * n]
            .chunks(8)
            .map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    }
}

fn assert_thread(view: &View, header: &Value, thread: &Thread) {
    assert_eq!(header["tid"], thread.tid);
    assert_eq!(header["name"], thread.name);
    assert_eq!(header["end_ns"], thread.end_ns);
    assert_eq!(header["states"], serde_json::to_value(&thread.states).unwrap());
    let of = &header["segments"];
    let n = of["n"].as_u64().unwrap() as usize;
    let (starts, codes) = (view.starts(&of["dt"]), view.column(&of["code"]));
    let (cpus, by) = (view.sparse(&of["cpu"], n), view.sparse(&of["by"], n));
    let segments: Vec<Segment> = (0..n)
        .map(|i| Segment {
            start_ns: starts[i],
            state: State::ALL[(codes[i] & 15) as usize],
            placed: codes[i] & 128 == 0,
            cpu: if cpus[i] == 0 { NO_CPU } else { cpus[i] as u16 - 1 },
            by_tid: by[i] as u32,
        })
        .collect();
    assert_eq!(segments, thread.segments);
    let of = &header["spans"];
    let n = of["n"].as_u64().unwrap() as usize;
    let (starts, lengths) = (view.starts(&of["dt"]), view.column(&of["len"]));
    let (kinds, files) = (view.column(&of["kind"]), view.sparse(&of["file"], n));
    let spans: Vec<Span> = (0..n)
        .map(|i| Span {
            start_ns: starts[i],
            ns: lengths[i],
            kind: SpanKind::ALL[kinds[i] as usize],
            file: if files[i] == 0 { NO_FILE } else { files[i] as u32 - 1 },
        })
        .collect();
    assert_eq!(spans, thread.spans);
    let wakes = view.starts(&header["wakes"]["dt"]);
    assert_eq!(wakes, thread.wakes.iter().map(|w| w.at_ns).collect::<Vec<_>>());
}

#[test]
fn the_payload_matches_its_documentation() {
    let trace = sample();
    let found = findings(&trace);
    let view = View::of(&payload(&trace, &found));
    let header = &view.header;
    assert_eq!(header["tick_ns"], 1);
    assert_eq!(header["title"], trace.title);
    assert_eq!(header["processors"], 2);
    assert_eq!(header["states"][10], "unknown");
    assert_eq!(header["kinds"][3], "read call");
    assert_eq!(header["blocked"][3], "io");
    for (i, thread) in trace.threads.iter().enumerate() {
        assert_thread(&view, &header["threads"][i], thread);
    }
    let of = &header["devices"][0]["requests"];
    let (issued, latency) = (view.starts(&of["dt"]), view.column(&of["latency"]));
    let (sectors, writes) = (view.column(&of["sector"]), view.column(&of["write"]));
    for (i, request) in trace.devices[0].requests.iter().enumerate() {
        assert_eq!(issued[i], request.issue_ns);
        assert_eq!(latency[i].checked_sub(1).map(|ns| issued[i] + ns), request.complete_ns);
        assert_eq!((sectors[i], writes[i] == 1), (request.sector, request.write));
    }
    let runs = &header["cores"][0]["runs"];
    assert_eq!(view.starts(&runs["dt"])[7], trace.cores[0].runs[7].start_ns);
    assert_eq!(view.column(&runs["len"])[7], 700);
    assert_eq!(view.column(&runs["ours"])[7], 1);
    for (i, series) in trace.series.iter().enumerate() {
        let points = &header["series"][i]["points"];
        let times = view.starts(&points["dt"]);
        let points: Vec<(u64, f64)> =
            times.into_iter().zip(view.floats(&points["value"])).collect();
        assert_eq!(points, series.points);
    }
    assert_eq!(header["marks"][0]["name"], "drained <b>");
    assert_eq!(header["files"][39], "d/f39.txt");
    assert_eq!(header["file_bytes"][2], 8192);
    assert_eq!(header["roles"][0]["threads"], 2);
    assert_eq!(header["evidence"]["level"], "kernel");
    assert!(header["evidence"]["notes"][0].as_str().unwrap().contains("lost 3"));
    assert_eq!(header["findings"].as_array().unwrap().len(), found.len());
}

#[test]
fn times_after_a_gap_of_days_do_not_shift() {
    let segment =
        |start_ns, state| Segment { start_ns, state, placed: true, cpu: NO_CPU, by_tid: 0 };
    // 2^48 ns are 78 hours.
    let (woken, end_ns) = ((1 << 48) + 5, 1 << 53);
    let segments = vec![segment(0, State::Sleep), segment(woken, State::OnCpu)];
    let span = Span { start_ns: 0, ns: end_ns, kind: SpanKind::Sleep, file: NO_FILE };
    let thread = Thread { end_ns, segments, spans: vec![span], ..Thread::default() };
    let trace = Trace { elapsed_ns: end_ns, threads: vec![thread], ..Trace::default() };
    let view = View::of(&payload(&trace, &[]));
    assert_thread(&view, &view.header["threads"][0], &trace.threads[0]);
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{c} in base64"),
    };
    let text = text.trim_end_matches('=').as_bytes();
    let (mut bytes, mut word, mut bits) = (Vec::new(), 0_u32, 0);
    for c in text {
        word = word << 6 | u32::from(value(*c));
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    bytes
}

#[test]
fn the_embedded_text_contains_the_payload() {
    for trace in [sample(), Trace::default(), Trace { title: "x".to_owned(), ..Trace::default() }] {
        let text = embedded(&trace, &[]);
        assert!(text.len().is_multiple_of(4));
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&from_base64(&text)[..]).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, payload(&trace, &[]));
    }
}

#[test]
fn a_million_segments_fit_in_three_megabytes() {
    // Sixteen threads with random states and exponential lengths of about 30 µs, as in a real run.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as f64 / (1_u64 << 53) as f64
    };
    let threads = (0..16)
        .map(|tid| {
            let mut at_ns = 0;
            let segments = (0..62_500)
                .map(|i| {
                    let start_ns = at_ns;
                    at_ns += 1 + (-random().max(1e-12).ln() * 30_000.0) as u64;
                    let blocked = [State::Io, State::Io, State::Sync, State::Ready];
                    let state = match i % 2 {
                        0 => State::OnCpu,
                        _ => blocked[(random() * 4.0) as usize],
                    };
                    Segment { start_ns, state, placed: true, cpu: NO_CPU, by_tid: 0 }
                })
                .collect();
            Thread { tid, end_ns: at_ns, segments, ..Thread::default() }
        })
        .collect();
    let trace = Trace { threads, ..Trace::default() };
    let text = embedded(&trace, &[]);
    assert!(text.len() <= 3_000_000, "{} bytes", text.len());
    // Coarse ticks move a boundary by at most half a tick, and errors do not accumulate.
    let view = View::of(&payload(&trace, &[]));
    let starts = view.starts(&view.header["threads"][15]["segments"]["dt"]);
    for (read, segment) in starts.iter().zip(&trace.threads[15].segments) {
        assert!(read.abs_diff(segment.start_ns) <= COARSE_TICK_NS / 2);
    }
}
