//! Section contents.

use super::columns::{Reader, Writer};
use super::error::FileError;
use crate::lane::{
    Core, CoreRun, Device, Mark, NO_CPU, NO_FILE, Request, Segment, Series, Thread, Trace, Wake,
};
use crate::span::{Span, SpanKind};
use ioloom_model::{Evidence, State, StateTable};

/// Bit in a segment's code: its position is unknown.
const NOT_PLACED: u64 = 0x80;

/// Sections that every file has.
pub(super) const REQUIRED: [&str; 6] = ["HEAD", "DEVS", "CORE", "SERI", "MARK", "FILE"];

/// Returns the uncompressed sections of a trace.
pub(super) fn encode(trace: &Trace) -> Vec<([u8; 4], Vec<u8>)> {
    let mut sections = vec![(*b"HEAD", section(|w| head(w, trace)))];
    sections.extend(trace.threads.iter().map(|t| (*b"THRD", section(|w| thread(w, t)))));
    sections.push((*b"DEVS", section(|w| list(w, &trace.devices, device))));
    sections.push((*b"CORE", section(|w| list(w, &trace.cores, core))));
    sections.push((*b"SERI", section(|w| list(w, &trace.series, series))));
    sections.push((*b"MARK", section(|w| marks(w, &trace.marks))));
    sections.push((*b"FILE", section(|w| files(w, trace))));
    sections.extend(trace.limit.as_ref().map(|limit| (*b"LIMT", section(|w| json(w, limit)))));
    sections
}

/// Reads one section into the trace, whose items take at most `room` bytes of memory. Ignores unknown
/// tags.
pub(super) fn decode(
    tag: &str,
    bytes: &[u8],
    trace: &mut Trace,
    room: &mut u64,
) -> Result<(), FileError> {
    let mut reader = Reader::new(bytes, tag, room);
    let r = &mut reader;
    match tag {
        "HEAD" => read_head(r, trace)?,
        "THRD" => trace.threads.push(read_thread(r)?),
        "DEVS" => trace.devices = read_list(r, 2, read_device)?,
        "CORE" => trace.cores = read_list(r, 2, read_core)?,
        "SERI" => trace.series = read_list(r, 3, read_series)?,
        "MARK" => trace.marks = read_marks(r)?,
        "FILE" => read_files(r, trace)?,
        "LIMT" => trace.limit = Some(r.json()?),
        _ => return Ok(()),
    }
    reader.end()
}

fn section(fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    fill(&mut writer);
    writer.bytes
}

fn list<T>(w: &mut Writer, items: &[T], one: fn(&mut Writer, &T)) {
    w.number(items.len() as u64);
    items.iter().for_each(|item| one(w, item));
}

fn read_list<T>(
    r: &mut Reader<'_>,
    bytes_each: usize,
    one: fn(&mut Reader<'_>) -> Result<T, FileError>,
) -> Result<Vec<T>, FileError> {
    let count = r.items::<T>(bytes_each)?;
    r.column(count, one)
}

fn json(w: &mut Writer, value: &impl serde::Serialize) {
    w.text(&serde_json::to_string(value).unwrap_or_default());
}

fn head(w: &mut Writer, trace: &Trace) {
    w.text(&trace.title);
    w.number(trace.started_unix_ms);
    w.number(trace.elapsed_ns);
    // JSON cannot represent infinity, so a cost that is not finite is unknown.
    let mut evidence: Evidence = trace.evidence.clone();
    for value in [&mut evidence.overhead_pct, &mut evidence.checks.tiling_pct] {
        *value = if value.is_finite() { *value } else { 0.0 };
    }
    json(w, &evidence);
}

fn read_head(r: &mut Reader<'_>, trace: &mut Trace) -> Result<(), FileError> {
    trace.title = r.text()?;
    trace.started_unix_ms = r.number()?;
    trace.elapsed_ns = r.ns()?;
    trace.evidence = r.json()?;
    Ok(())
}

fn thread(w: &mut Writer, thread: &Thread) {
    w.number(u64::from(thread.tid));
    w.text(&thread.name);
    w.text(&thread.role);
    w.number(thread.start_ns);
    w.number(thread.end_ns.saturating_sub(thread.start_ns));
    json(w, &thread.states);
    spans(w, &thread.spans);
    segments(w, &thread.segments);
    w.number(thread.wakes.len() as u64);
    w.times(thread.wakes.iter().map(|wake| wake.at_ns));
    w.column(thread.wakes.iter().map(|wake| u64::from(wake.by_tid)));
}

fn read_thread(r: &mut Reader<'_>) -> Result<Thread, FileError> {
    let (tid, name, role) = (r.small()?, r.text()?, r.text()?);
    let (start_ns, length) = (r.ns()?, r.ns()?);
    let end_ns = r.later(start_ns, length)?;
    let states: StateTable = r.json()?;
    let add = |sum: u64, ns: Option<u64>| sum.checked_add(ns.unwrap_or(0));
    let sum = states.values().try_fold(0, |sum, time| add(sum, time.ns));
    if !states.is_empty() && sum != Some(length) {
        return r.damaged("the times of the states do not add up to the time of the thread");
    }
    let spans = read_spans(r)?;
    let segments = read_segments(r, start_ns, end_ns)?;
    let count = r.items::<Wake>(2)?;
    let times = r.times(count)?;
    let by = r.column(count, Reader::small::<u32>)?;
    let wakes = times.into_iter().zip(by).map(|(at_ns, by_tid)| Wake { at_ns, by_tid }).collect();
    Ok(Thread { tid, name, role, start_ns, end_ns, spans, segments, states, wakes })
}

/// Writes ranges as gaps and lengths, so they cannot overlap.
fn gaps(w: &mut Writer, ranges_ns: impl Iterator<Item = (u64, u64)> + Clone) {
    let mut before = 0;
    w.column(ranges_ns.clone().map(|(start, end)| {
        let gap = start.saturating_sub(before);
        before = end.max(start);
        gap
    }));
    w.column(ranges_ns.map(|(start, end)| end.saturating_sub(start)));
}

fn read_gaps(r: &mut Reader<'_>, count: usize) -> Result<Vec<(u64, u64)>, FileError> {
    let gaps = r.column(count, Reader::ns)?;
    let mut at_ns = 0;
    let mut ranges = Vec::with_capacity(count);
    for gap in gaps {
        let start = r.later(at_ns, gap)?;
        let length = r.ns()?;
        at_ns = r.later(start, length)?;
        ranges.push((start, at_ns));
    }
    Ok(ranges)
}

fn spans(w: &mut Writer, spans: &[Span]) {
    w.number(spans.len() as u64);
    gaps(w, spans.iter().map(|s| (s.start_ns, s.start_ns.saturating_add(s.ns))));
    w.column(spans.iter().map(|s| s.kind as u64));
    let file = |file: u32| if file == NO_FILE { 0 } else { u64::from(file) + 1 };
    w.column(spans.iter().map(|s| file(s.file)));
}

fn read_spans(r: &mut Reader<'_>) -> Result<Vec<Span>, FileError> {
    let count = r.items::<Span>(4)?;
    let ranges = read_gaps(r, count)?;
    let kinds = r.column(count, |r| {
        let kind = SpanKind::ALL.get(r.small::<usize>()?).copied();
        kind.map_or_else(|| r.damaged("unknown span kind"), Ok)
    })?;
    let files = r.column(count, |r| {
        let file = r.number()?.checked_sub(1).map_or(Ok(NO_FILE), u32::try_from);
        file.or_else(|_| r.damaged("a number is too large"))
    })?;
    let spans = ranges.into_iter().zip(kinds).zip(files);
    Ok(spans
        .map(|(((start_ns, end), kind), file)| Span { start_ns, ns: end - start_ns, kind, file })
        .collect())
}

fn segments(w: &mut Writer, segments: &[Segment]) {
    w.number(segments.len() as u64);
    w.times(segments.iter().map(|s| s.start_ns));
    w.column(segments.iter().map(|s| s.state as u64 | if s.placed { 0 } else { NOT_PLACED }));
    let cpu = |cpu: u16| if cpu == NO_CPU { 0 } else { u64::from(cpu) + 1 };
    w.column(segments.iter().map(|s| cpu(s.cpu)));
    w.column(segments.iter().map(|s| u64::from(s.by_tid)));
}

fn read_segments(
    r: &mut Reader<'_>,
    start_ns: u64,
    end_ns: u64,
) -> Result<Vec<Segment>, FileError> {
    let count = r.items::<Segment>(4)?;
    let starts = r.times(count)?;
    let tiles = match (starts.first(), starts.last()) {
        (Some(first), Some(last)) => {
            *first == start_ns && *last < end_ns && starts.is_sorted_by(|a, b| a < b)
        }
        _ => start_ns == end_ns,
    };
    if !tiles {
        return r.damaged("the segments do not tile the thread");
    }
    let codes = r.column(count, |r| {
        let code = r.number()?;
        let state = usize::try_from(code & !NOT_PLACED).ok().and_then(|i| State::ALL.get(i));
        match state {
            Some(state) => Ok((*state, code & NOT_PLACED == 0)),
            None => r.damaged("unknown state"),
        }
    })?;
    let cpus = r.column(count, |r| {
        let cpu = r.number()?.checked_sub(1).map_or(Ok(NO_CPU), u16::try_from);
        cpu.or_else(|_| r.damaged("a number is too large"))
    })?;
    let by = r.column(count, Reader::small::<u32>)?;
    let segments = starts.into_iter().zip(codes).zip(cpus).zip(by);
    Ok(segments
        .map(|(((start_ns, (state, placed)), cpu), by_tid)| Segment {
            start_ns,
            state,
            placed,
            cpu,
            by_tid,
        })
        .collect())
}

fn device(w: &mut Writer, device: &Device) {
    let requests = &device.requests;
    w.text(&device.name);
    w.number(requests.len() as u64);
    w.times(requests.iter().map(|r| r.issue_ns));
    let latency = |r: &Request| r.complete_ns.map_or(0, |end| end.saturating_sub(r.issue_ns) + 1);
    w.column(requests.iter().map(latency));
    w.column(requests.iter().map(|r| u64::from(r.device) << 1 | u64::from(r.write)));
    w.column(requests.iter().map(|r| r.sector));
    w.column(requests.iter().map(|r| u64::from(r.bytes)));
    w.column(requests.iter().map(|r| u64::from(r.tid)));
}

fn read_device(r: &mut Reader<'_>) -> Result<Device, FileError> {
    let name = r.text()?;
    let count = r.items::<Request>(6)?;
    let issued = r.times(count)?;
    let latencies = r.column(count, |r| Ok(r.number()?.checked_sub(1)))?;
    let kinds = r.column(count, |r| {
        let code = r.number()?;
        let device = u16::try_from(code >> 1).or_else(|_| r.damaged("a number is too large"))?;
        Ok((device, code & 1 == 1))
    })?;
    let sectors = r.column(count, Reader::number)?;
    let bytes = r.column(count, Reader::small::<u32>)?;
    let tids = r.column(count, Reader::small::<u32>)?;
    let mut requests = Vec::with_capacity(count);
    for i in 0..count {
        let complete_ns = latencies[i].map(|ns| r.later(issued[i], ns)).transpose()?;
        requests.push(Request {
            device: kinds[i].0,
            write: kinds[i].1,
            issue_ns: issued[i],
            complete_ns,
            sector: sectors[i],
            bytes: bytes[i],
            tid: tids[i],
        });
    }
    Ok(Device { name, requests })
}

fn core(w: &mut Writer, core: &Core) {
    w.number(u64::from(core.cpu));
    w.number(core.runs.len() as u64);
    gaps(w, core.runs.iter().map(|run| (run.start_ns, run.end_ns)));
    w.column(core.runs.iter().map(|run| u64::from(run.tid) << 1 | u64::from(run.ours)));
}

fn read_core(r: &mut Reader<'_>) -> Result<Core, FileError> {
    let cpu = r.small()?;
    let count = r.items::<CoreRun>(3)?;
    let ranges = read_gaps(r, count)?;
    let codes = r.column(count, |r| {
        let code = r.number()?;
        let tid = u32::try_from(code >> 1).or_else(|_| r.damaged("a number is too large"))?;
        Ok((tid, code & 1 == 1))
    })?;
    let runs = ranges.into_iter().zip(codes);
    let runs =
        runs.map(|((start_ns, end_ns), (tid, ours))| CoreRun { start_ns, end_ns, tid, ours });
    Ok(Core { cpu, runs: runs.collect() })
}

fn series(w: &mut Writer, series: &Series) {
    w.text(&series.name);
    w.text(&series.unit);
    w.number(series.points.len() as u64);
    w.times(series.points.iter().map(|p| p.0));
    series.points.iter().for_each(|p| w.float(p.1));
}

fn read_series(r: &mut Reader<'_>) -> Result<Series, FileError> {
    let (name, unit) = (r.text()?, r.text()?);
    let count = r.items::<(u64, f64)>(9)?;
    let times = r.times(count)?;
    let values = r.column(count, Reader::float)?;
    Ok(Series { name, unit, points: times.into_iter().zip(values).collect() })
}

fn marks(w: &mut Writer, marks: &[Mark]) {
    w.number(marks.len() as u64);
    w.times(marks.iter().map(|m| m.at_ns));
    marks.iter().for_each(|m| w.text(&m.name));
}

fn read_marks(r: &mut Reader<'_>) -> Result<Vec<Mark>, FileError> {
    let count = r.items::<Mark>(2)?;
    let times = r.times(count)?;
    let names = r.column(count, Reader::text)?;
    Ok(times.into_iter().zip(names).map(|(at_ns, name)| Mark { at_ns, name }).collect())
}

fn files(w: &mut Writer, trace: &Trace) {
    list(w, &trace.files, |w, name| w.text(name));
    list(w, &trace.file_bytes, |w, bytes| w.number(*bytes));
}

fn read_files(r: &mut Reader<'_>, trace: &mut Trace) -> Result<(), FileError> {
    trace.files = read_list(r, 1, |r| r.text())?;
    trace.file_bytes = read_list(r, 1, |r| r.number())?;
    Ok(())
}
