//! Text forms of sizes and durations.
//!
//! Sizes: a number with an optional suffix. `KiB MiB GiB TiB` (and bare `K M G T`) are powers of
//! 1024, `kB MB GB TB` are powers of 1000; `B` or no suffix means bytes. Durations: `ns us µs ms s
//! min`.

use crate::ParseError;

/// Numbers from this one on are written with an exponent.
pub const EXPONENT_MIN: f64 = 1e15;

const SIZE_SUFFIXES: [(&str, u64); 17] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("k", 1 << 10),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("B", 1),
];

const DURATION_SUFFIXES: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("min", 60e9), ("s", 1e9), ("h", 3600e9)];

/// Escapes characters that could control the terminal, break lines or change the order of the text.
pub fn readable(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if is_odd(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

fn is_odd(c: char) -> bool {
    let mark = matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}');
    c.is_control() || mark || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Parses a size in bytes, such as `4096`, `512KiB`, `1.5 MiB` or `2MB`.
pub fn parse_size(text: &str) -> Result<u64, ParseError> {
    let refuse = |reason: &str| ParseError::new("size", text, reason);
    let (number, suffix) = split_number(text);
    let factor = if suffix.is_empty() {
        1
    } else {
        SIZE_SUFFIXES
            .iter()
            .find(|(name, _)| *name == suffix)
            .map(|(_, factor)| *factor)
            .ok_or_else(|| refuse("use bytes, KiB, MiB, GiB, TiB, kB, MB or GB, as in 64KiB"))?
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| refuse("must be at most 16 EiB"));
    }
    let value: f64 = number.parse().map_err(|_| refuse("must begin with a number, as in 64KiB"))?;
    let bytes = value * factor as f64;
    if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
        return Err(refuse("out of range"));
    }
    Ok(bytes.round() as u64)
}

/// Parses a duration into nanoseconds, such as `5ms`, `0.4 us`, `2s` or `0`.
pub fn parse_duration_ns(text: &str) -> Result<u64, ParseError> {
    let refuse = |reason: &str| ParseError::new("duration", text, reason);
    let (number, suffix) = split_number(text);
    let value: f64 = number.parse().map_err(|_| refuse("must begin with a number, as in 5ms"))?;
    if suffix.is_empty() && value != 0.0 {
        return Err(refuse("missing unit; use ns, us, ms, s, min or h"));
    }
    let factor = if suffix.is_empty() {
        1.0
    } else {
        DURATION_SUFFIXES
            .iter()
            .find(|(name, _)| *name == suffix)
            .map(|(_, factor)| *factor)
            .ok_or_else(|| refuse("use ns, us, ms, s, min or h, as in 5ms"))?
    };
    let ns = value * factor;
    if !ns.is_finite() || !(0.0..1e18).contains(&ns) {
        return Err(refuse("out of range"));
    }
    Ok(ns.round() as u64)
}

fn split_number(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+'))
        .unwrap_or(text.len());
    (text[..end].trim(), text[end..].trim())
}

/// Formats a size: exact if small, otherwise with three significant digits in powers of 1024.
pub fn format_size(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut step = 0;
    while value >= 1023.5 && step + 1 < NAMES.len() {
        value /= 1024.0;
        step += 1;
    }
    if step == 0 { format!("{bytes} B") } else { format!("{} {}", three(value), NAMES[step]) }
}

/// Formats a size exactly, as input for [`parse_size`].
pub fn spell_size(bytes: u64) -> String {
    for (name, factor) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{name}", bytes / factor);
        }
    }
    format!("{bytes}")
}

/// Formats a duration with three significant digits.
pub fn format_ns(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        n if n < 999.5 => (ns, "ns"),
        n if n < 999.5e3 => (ns / 1e3, "µs"),
        n if n < 999.5e6 => (ns / 1e6, "ms"),
        n if n < 120e9 => (ns / 1e9, "s"),
        n if n < 7200e9 => (ns / 60e9, "min"),
        _ => (ns / 3600e9, "h"),
    };
    format!("{} {unit}", three(value))
}

/// Formats a duration exactly, as input for [`parse_duration_ns`].
pub fn spell_ns(ns: u64) -> String {
    for (name, factor) in [("s", 1_000_000_000u64), ("ms", 1_000_000), ("us", 1_000)] {
        if ns >= factor && ns.is_multiple_of(factor) {
            return format!("{}{name}", ns / factor);
        }
    }
    format!("{ns}ns")
}

/// Formats a count in groups of three digits: `1 234 567`.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// Formats a count with a singular or plural noun: `1 file`, `2 000 files`.
pub fn format_counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", format_count(count), if count == 1 { one } else { many })
}

fn three(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        v if v >= EXPONENT_MIN => format!("{value:.2e}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("4K", 4096),
            ("1.5MiB", 1_572_864),
            ("2MB", 2_000_000),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "x", "-1", "4XB", "1e99GiB", "99999999999TiB", "."] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration_ns("5ms").unwrap(), 5_000_000);
        assert_eq!(parse_duration_ns("0.4us").unwrap(), 400);
        assert_eq!(parse_duration_ns("0").unwrap(), 0);
        assert!(parse_duration_ns("5").unwrap_err().to_string().contains("unit"));
        assert!(parse_duration_ns("-5ms").is_err());
    }

    #[test]
    fn durations_have_three_digits() {
        assert_eq!(format_size(1023), "1023 B");
        assert_eq!(format_size(1024), "1.00 KiB");
        assert_eq!(format_size(1024 * 1024 - 1), "1.00 MiB");
        assert_eq!(format_ns(999.6), "1.00 µs");
        assert_eq!(format_ns(1_500_000.0), "1.50 ms");
        assert_eq!(format_ns(3.6e112), "1.00e100 h");
        assert_eq!(format_count(1_234_567), "1 234 567");
    }

    #[test]
    fn marks_that_reorder_or_break_text_are_escaped() {
        let marks =
            ['\u{61C}', '\u{200E}', '\u{200F}', '\u{2028}', '\u{2029}', '\u{202E}', '\u{2069}'];
        for mark in marks.into_iter().chain(['\u{1B}', '\n']) {
            let text = readable(&format!("a{mark}b"));
            assert!(text.is_ascii() && text.starts_with("a\\"), "{text:?}");
        }
        assert_eq!(readable("äé €"), "äé €");
    }

    #[test]
    fn counts_have_singular_and_plural() {
        let files = [0, 1, 2, 1_000].map(|count| format_counted(count, "file", "files"));
        assert_eq!(files, ["0 files", "1 file", "2 files", "1 000 files"]);
    }

    proptest! {
        #[test]
        fn exact_sizes_survive_a_round_trip(bytes in any::<u64>()) {
            prop_assert_eq!(parse_size(&spell_size(bytes)).unwrap(), bytes);
        }
        #[test]
        fn exact_durations_survive_a_round_trip(ns in 0u64..1_000_000_000_000) {
            prop_assert_eq!(parse_duration_ns(&spell_ns(ns)).unwrap(), ns);
        }
        #[test]
        fn no_text_causes_a_panic(text in ".*") {
            let _ = parse_size(&text);
            let _ = parse_duration_ns(&text);
        }
    }
}
