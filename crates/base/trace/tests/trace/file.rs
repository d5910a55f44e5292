//! The trace file: round trips, and damaged or malicious files.

use crate::sample::sample;
use crate::wild;
use ioloom_model::{State, StateTime};
use ioloom_trace::file::{FileError, MAGIC, UNPACK_MAX, VERSION, read, single_section, write};
use ioloom_trace::shares::{self, Lanes};
use ioloom_trace::{NO_CPU, Segment, Thread, Trace};
use proptest::prelude::*;

#[test]
fn a_trace_survives_a_round_trip() {
    for trace in [Trace::default(), sample()] {
        let bytes = write(&trace);
        let again = read(&bytes).unwrap();
        assert_eq!(again, trace);
        assert_eq!(write(&again), bytes);
    }
}

#[test]
fn a_highly_compressible_trace_can_be_read() {
    // A million equal segments shrink beyond the reader's limit.
    let segments: Vec<Segment> = (0..1_000_000)
        .map(|i| {
            let state = if i % 2 == 0 { State::OnCpu } else { State::Io };
            Segment { start_ns: i * 100, state, placed: true, cpu: NO_CPU, by_tid: 0 }
        })
        .collect();
    let thread = Thread { end_ns: 100_000_000, segments, ..Thread::default() };
    let trace = Trace { threads: vec![thread], ..Trace::default() };
    assert_eq!(read(&write(&trace)).unwrap(), trace);
}

/// Returns a file with one section.
fn file(tag: &[u8; 4], kind: u32, stored: &[u8], raw: u64) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(stored);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(tag);
    bytes.extend(kind.to_le_bytes());
    bytes.extend(crc.sum().to_le_bytes());
    bytes.extend((stored.len() as u64).to_le_bytes());
    bytes.extend(raw.to_le_bytes());
    bytes.extend(stored);
    bytes
}

fn reason(bytes: &[u8]) -> String {
    read(bytes).expect_err("the file is damaged").to_string()
}

#[test]
fn each_error_has_a_reason() {
    assert_eq!(read(b""), Err(FileError::NotATrace));
    assert!(reason(b"<html> not a trace").contains("does not begin"));
    let mut newer = write(&Trace::default());
    newer[8] = 9;
    assert_eq!(read(&newer), Err(FileError::Version { found: 9 }));
    let whole = write(&sample());
    assert!(reason(&whole[..whole.len() - 1]).contains("truncated in section FILE"));
    let mut longer = whole.clone();
    longer.push(0);
    assert!(reason(&longer).contains("1 bytes follow"));
    let mut flipped = whole;
    *flipped.last_mut().unwrap() ^= 1;
    assert!(reason(&flipped).contains("section FILE of the trace file is damaged: the checksum"));
    assert!(reason(&file(b"MARK", 2, &[0], 1)).contains("unknown compression"));
    assert!(reason(&file(b"MARK", 1, &[7], 1)).contains("cannot unpack"));
    assert!(reason(&file(b"MARK", 0, &[0, 0], 2)).contains("extra bytes"));
    // A section of a later version is not an error.
    assert_eq!(read(&single_section(b"NEXT", &[9, 9])), Ok(Trace::default()));
}

#[test]
fn a_damaged_tag_does_not_lose_a_section() {
    let whole = write(&Trace::default());
    for tag in ["HEAD", "DEVS", "CORE", "SERI", "MARK", "FILE"] {
        let at = whole.windows(4).position(|part| part == tag.as_bytes()).unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        let wanted = format!("section {tag} of the trace file is damaged: it is missing");
        assert!(reason(&bytes).contains(&wanted), "{tag}");
    }
}

#[test]
fn sizes_in_the_file_are_not_trusted() {
    // Lists with more items than bytes.
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for tag in [b"DEVS", b"CORE", b"SERI", b"MARK", b"FILE"] {
        assert!(reason(&file(tag, 0, &huge, 9)).contains("too short for its number of items"));
    }
    // A number that exceeds 64 bits, and an unterminated one.
    assert!(reason(&file(b"MARK", 0, &[0x80; 20], 20)).contains("64 bits"));
    assert!(reason(&file(b"MARK", 0, &[0x80], 1)).contains("in the middle of a number"));
    // A section that would unpack to a thousand times its size.
    let packed = {
        use std::io::Write;
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![0; 20_000_000]).unwrap();
        encoder.finish().unwrap()
    };
    assert!(packed.len() as u64 * UNPACK_MAX < 20_000_000);
    assert!(reason(&file(b"MARK", 1, &packed, 20_000_000)).contains("cannot unpack to 20000000"));
    assert!(reason(&file(b"MARK", 1, &packed, 100)).contains("unpacked size does not match"));
    // Times that would overflow sums.
    let mut late = vec![1];
    late.extend(huge);
    late.push(0);
    assert!(reason(&file(b"MARK", 0, &late, late.len() as u64)).contains("104 days"));
}

#[test]
fn small_sections_together_do_not_unpack_without_limit() {
    // Each may unpack to 64 KiB.
    let packed = {
        use std::io::Write;
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![0; 60_000]).unwrap();
        encoder.finish().unwrap()
    };
    let one = file(b"NEXT", 1, &packed, 60_000);
    let sections = |count: u32| {
        let mut bytes = one[..12].to_vec();
        bytes.extend(count.to_le_bytes());
        (0..count).for_each(|_| bytes.extend(&one[16..]));
        bytes
    };
    assert!(reason(&sections(10)).contains("it is missing"));
    assert!(reason(&sections(1000)).contains("more than a file of this size may"));
    // The writer respects the limit.
    let thread = Thread { name: "n".repeat(60_000), ..Thread::default() };
    let trace = Trace { threads: vec![thread; 100], ..Trace::default() };
    assert_eq!(read(&write(&trace)), Ok(trace));
}

#[test]
fn states_that_do_not_add_up_are_refused() {
    let with = |ns: u64| {
        let mut trace = sample();
        let thread = &mut trace.threads[0];
        thread.states.get_mut(&State::OnCpu).unwrap().ns = Some(ns);
        write(&trace)
    };
    let on_cpu = sample().threads[0].states[&State::OnCpu].ns.unwrap();
    assert_eq!(read(&with(on_cpu)).unwrap(), sample());
    for ns in [0, on_cpu + 1, u64::MAX] {
        assert!(reason(&with(ns)).contains("do not add up to the time of the thread"));
    }
}

#[test]
fn sums_of_many_long_threads_do_not_overflow() {
    let long = 1 << 53;
    let segments =
        vec![Segment { start_ns: 0, state: State::OnCpu, placed: true, cpu: NO_CPU, by_tid: 0 }];
    let time = StateTime { ns: Some(long), ..StateTime::default() };
    let states = [(State::OnCpu, time)].into();
    let thread = Thread { end_ns: long, segments, states, ..Thread::default() };
    let trace = Trace { elapsed_ns: long, threads: vec![thread; 3000], ..Trace::default() };
    let trace = read(&write(&trace)).unwrap();
    assert_eq!(shares::all(&trace)[&State::OnCpu].ns, Some(u64::MAX));
    assert_eq!(shares::roles(&trace)[0].elapsed_ns, u64::MAX);
    assert_eq!(Lanes::new(&trace).all(0, u64::MAX).total(), u64::MAX);
    use_in_other_modules(&trace);
}

/// Passes the trace to the other modules.
fn use_in_other_modules(trace: &Trace) {
    let lanes = Lanes::new(trace);
    for lane in lanes.lanes() {
        let thread = lane.thread();
        assert_eq!(lane.within(0, u64::MAX).total(), thread.end_ns - thread.start_ns);
        let _ = lane.columns(0, trace.elapsed_ns, 7);
    }
    let _ = ioloom_trace::findings(trace);
    let _ = ioloom_trace::perfetto::encode(trace);
    let _ = ioloom_trace::csv::segments(trace);
    let _ = ioloom_trace::viewer::payload(trace, &[]);
}

proptest! {
    #[test]
    fn random_traces_survive_a_round_trip(trace in wild::trace()) {
        let again = read(&write(&trace)).unwrap();
        prop_assert_eq!(&again, &trace);
        use_in_other_modules(&again);
    }

    #[test]
    fn truncated_files_are_errors(part in 0.0..1.0_f64) {
        let whole = write(&sample());
        let cut = (whole.len() as f64 * part) as usize;
        prop_assert!(read(&whole[..cut]).is_err());
    }

    #[test]
    fn changed_bytes_are_errors_or_harmless(at in any::<prop::sample::Index>(), by in 1..=255_u8) {
        let mut bytes = write(&sample());
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        // The checksum does not cover the unpacked size and the tag of a section. Sections with
        // unknown tags are skipped.
        if let Ok(trace) = read(&bytes) {
            use_in_other_modules(&trace);
        }
    }

    #[test]
    fn changed_contents_with_a_valid_checksum_are_errors_or_harmless(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        // Uncompressed sections, so the changes affect the columns.
        let whole = write(&Trace { title: "t".repeat(3), ..sample() });
        let mut bytes = whole[..16].to_vec();
        let mut at = 16;
        while at < whole.len() {
            let number = |from: usize, n: usize| {
                let mut raw = [0; 8];
                raw[..n].copy_from_slice(&whole[from..from + n]);
                u64::from_le_bytes(raw) as usize
            };
            let (kind, stored) = (number(at + 4, 4), number(at + 12, 8));
            let body = &whole[at + 28..at + 28 + stored];
            let mut raw = Vec::new();
            if kind == 1 {
                use std::io::Read;
                flate2::read::DeflateDecoder::new(body).read_to_end(&mut raw).unwrap();
            } else {
                raw.extend_from_slice(body);
            }
            for (index, value) in &changes {
                if !raw.is_empty() {
                    let index = index.index(raw.len());
                    raw[index] = *value;
                }
            }
            let tag: [u8; 4] = whole[at..at + 4].try_into().unwrap();
            bytes.extend_from_slice(&file(&tag, 0, &raw, raw.len() as u64)[16..]);
            at += 28 + stored;
        }
        if let Ok(trace) = read(&bytes) {
            use_in_other_modules(&trace);
        }
    }

    #[test]
    fn noise_is_an_error_or_harmless(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&noise).is_err());
        for tag in [b"HEAD", b"THRD", b"DEVS", b"CORE", b"SERI", b"MARK", b"FILE"] {
            if let Ok(trace) = read(&file(tag, 0, &noise, noise.len() as u64)) {
                use_in_other_modules(&trace);
            }
        }
    }
}
