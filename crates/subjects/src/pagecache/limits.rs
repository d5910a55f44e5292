//! The limits of dirty pages, as the kernel uses them, beside what they are said to be shares of.

use ioloom_model::Measured;
use ioloom_observe::counters::{Field, Reader, Scope};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::{page_bytes, read_text};
use std::path::Path;

/// Settings that are told as they are.
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

pub(super) fn play() -> Result<Measured, String> {
    let start = monotonic_ns();
    let mut measured = Measured::default();
    let sample = Reader::open(Path::new("/")).read(Scope::All);
    for name in SETTINGS {
        let text = read_text(&Path::new("/proc/sys/vm").join(name));
        let number = text.ok().and_then(|text| text.trim().parse::<f64>().ok());
        measured.extra.extend(number.map(|number| (name.to_owned(), number)));
    }
    let pages = |field| sample.get(field).map(|pages| pages as f64 * page_bytes() as f64);
    let kib = |field| sample.get(field).map(|kib| kib as f64 * 1024.0);
    for (name, value) in [
        ("dirty_limit_bytes", pages(Field::DirtyLimit)),
        ("background_limit_bytes", pages(Field::BackgroundLimit)),
        ("total_bytes", kib(Field::MemTotal)),
        ("available_bytes", kib(Field::MemAvailable)),
    ] {
        measured.extra.extend(value.map(|value| (name.to_owned(), value)));
    }
    let get = |name: &str| measured.extra.get(name).copied();
    let mut shares = Vec::new();
    for (limit, ratio, short) in [
        ("dirty_limit_bytes", "dirty_ratio", "dirty_limit"),
        ("background_limit_bytes", "dirty_background_ratio", "background_limit"),
    ] {
        // A ratio of 0 means that the limit was given in bytes.
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
    measured.elapsed_ns = monotonic_ns() - start;
    Ok(measured)
}
