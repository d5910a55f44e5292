//! Reads the kernel's dirty page limits and compares them with the settings.
//!
//! While little memory is in use, a percentage of total memory and of available memory are nearly
//! equal. The scenario therefore reads the limits again while holding some memory: a limit relative
//! to available memory drops. It takes too little to disturb other programs, and none in a cgroup
//! with a limit.

use ioloom_failure::reason;
use ioloom_model::Measured;
use ioloom_observe::counters::{Field, Reader, Sample, Scope};
use ioloom_sys::cgroup;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::{page_bytes, read_text};
use ioloom_sys_lab::memory::{Pages, Region};
use std::path::Path;

/// Maximum memory to allocate for the second reading: bytes, and a fraction of available memory.
const HELD_BYTES_MAX: u64 = 1 << 30;
const HELD_SHARE: u64 = 8;

/// Settings that are recorded.
const SETTINGS: [&str; 8] = [
    "dirty_background_ratio",
    "dirty_background_bytes",
    "dirty_ratio",
    "dirty_bytes",
    "dirty_writeback_centisecs",
    "dirty_expire_centisecs",
    "swappiness",
    "vfs_cache_pressure",
];

pub(super) fn run() -> Result<Measured, String> {
    let start = monotonic_ns();
    let mut measured = Measured::default();
    let mut reader = Reader::open(Path::new("/"));
    let sample = reader.read(Scope::All);
    for name in SETTINGS {
        let text = read_text(&Path::new("/proc/sys/vm").join(name));
        let number = text.ok().and_then(|text| text.trim().parse::<f64>().ok());
        measured.extra.extend(number.map(|number| (name.to_owned(), number)));
    }
    record(&mut measured, &sample, "");
    let total = sample.get(Field::MemTotal).map(|kib| kib as f64 * 1024.0);
    measured.extra.extend(total.map(|total| ("total_bytes".to_owned(), total)));
    let get = |name: &str| measured.extra.get(name).copied();
    let mut shares = Vec::new();
    for (limit, ratio, short) in [
        ("dirty_limit_bytes", "dirty_ratio", "dirty_limit"),
        ("background_limit_bytes", "dirty_background_ratio", "background_limit"),
    ] {
        // A ratio of 0 means that the limit is set in bytes.
        let Some(ratio) = get(ratio).filter(|ratio| *ratio > 0.0) else { continue };
        for of in ["total", "available"] {
            let whole = get(&format!("{of}_bytes"));
            if let (Some(limit), Some(whole)) = (get(limit), whole) {
                shares
                    .push((format!("{short}_over_ratio_of_{of}"), limit / (whole * ratio / 100.0)));
            }
        }
    }
    measured.extra.extend(shares);
    held(&mut reader, &mut measured)?;
    measured.elapsed_ns = monotonic_ns() - start;
    Ok(measured)
}

/// Records the limits and the available memory, under names that end in `_bytes`.
fn record(measured: &mut Measured, sample: &Sample, when: &str) {
    let pages = |field| sample.get(field).map(|pages| pages as f64 * page_bytes() as f64);
    let available = sample.get(Field::MemAvailable).map(|kib| kib as f64 * 1024.0);
    for (name, value) in [
        ("dirty_limit", pages(Field::DirtyLimit)),
        ("background_limit", pages(Field::BackgroundLimit)),
        ("available", available),
    ] {
        measured.extra.extend(value.map(|value| (format!("{name}{when}_bytes"), value)));
    }
}

/// Records the limits again while this process holds memory.
fn held(reader: &mut Reader, measured: &mut Measured) -> Result<(), String> {
    let Some(available) = measured.extra.get("available_bytes") else { return Ok(()) };
    let bytes = (*available as u64 / HELD_SHARE).min(HELD_BYTES_MAX);
    if cgroup::memory_limit_bytes().is_some() {
        return Ok(());
    }
    let failed = |e| format!("cannot allocate {bytes} bytes of memory: {}", reason(&e));
    let mut region = Region::new(bytes as usize, Pages::Huge).map_err(failed)?;
    region.touch(page_bytes() as usize);
    record(measured, &reader.read(Scope::All), "_held");
    measured.extra.insert("held_bytes".to_owned(), region.bytes() as f64);
    Ok(())
}
