//! Units of metrics, and the formatting of their values, intervals and ratios.
//!
//! As everywhere in ioloom, the unit is the last part of a metric name (`elapsed_ns`,
//! `bytes_per_s`, `share.io`). Only this module decides the number of digits, which keeps the page,
//! the terminal and the tables consistent.

use crate::estimate::Ends;
use ioloom_model::units::{EXPONENT_MIN, format_ns, format_size};

/// The unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Items per second.
    PerSecond,
    /// A share, 0 to 1.
    Share,
    /// A number without a unit.
    Number,
}

/// Which direction of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Lower is better: times, faults, switches.
    Lower,
    /// Higher is better: rates.
    Higher,
    /// Neither.
    Neither,
}

impl Unit {
    /// Returns the unit of a metric or a factor by its name.
    pub fn of(metric: &str) -> Self {
        let last = metric.rsplit('.').next().unwrap_or(metric);
        if metric.starts_with("share.") || last.ends_with("_share") || last.ends_with("_busy") {
            Self::Share
        } else if last.ends_with("_ns") || last == "ns" {
            Self::Time
        } else if last.ends_with("bytes_per_s") {
            Self::BytesPerSecond
        } else if last.ends_with("_per_s") {
            Self::PerSecond
        } else if last.ends_with("_bytes") || matches!(last, "size" | "bytes" | "chunk" | "memory")
        {
            Self::Bytes
        } else {
            Self::Number
        }
    }

    /// Returns the unit of the values in the data; empty for a number without a unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "ns",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
            Self::PerSecond => "1/s",
            Self::Share => "share",
            Self::Number => "",
        }
    }

    /// Formats a value with three significant digits and its unit.
    pub fn format(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        match self {
            Self::Time => format_ns(value),
            Self::Bytes => format_size(value.max(0.0).round() as u64),
            Self::BytesPerSecond => format!("{}/s", format_size(value.max(0.0).round() as u64)),
            Self::PerSecond => format!("{}/s", plain(value)),
            Self::Share => percent(value),
            Self::Number => plain(value),
        }
    }

    /// Formats two ends in brackets.
    pub fn format_ends(self, ends: Ends) -> String {
        bracketed(ends, |value| self.format(value))
    }

    /// Returns the scale factor and unit name for ticks up to `max`; `None` if each tick has its
    /// own unit.
    pub fn tick_unit(self, max: f64) -> (f64, &'static str) {
        let pick = |steps: &[(f64, &'static str)]| {
            steps.iter().rev().find(|(f, _)| max.abs() >= *f).or(steps.first()).copied()
        };
        match self {
            Self::Time => pick(&[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")]),
            Self::Bytes => {
                pick(&[(1.0, "B"), (1024.0, "KiB"), (1048576.0, "MiB"), (1073741824.0, "GiB")])
            }
            Self::BytesPerSecond => pick(&[
                (1.0, "B/s"),
                (1024.0, "KiB/s"),
                (1048576.0, "MiB/s"),
                (1073741824.0, "GiB/s"),
            ]),
            Self::PerSecond => {
                pick(&[(1.0, "per s"), (1e3, "thousand per s"), (1e6, "million per s")])
            }
            Self::Share => Some((0.01, "%")),
            Self::Number => Some((1.0, "")),
        }
        .unwrap_or((1.0, ""))
    }

    /// Formats a short tick with its own unit, for logarithmic axes.
    pub fn format_tick(self, value: f64) -> String {
        let (factor, name) = self.tick_unit(value * 1.000_001);
        let number = trimmed(value / factor);
        match self {
            Self::PerSecond if factor >= 1e6 => format!("{number} M"),
            Self::PerSecond if factor >= 1e3 => format!("{number} k"),
            Self::PerSecond | Self::Number => number,
            Self::Share => format!("{number} %"),
            _ => format!("{number} {name}"),
        }
    }
}

impl Better {
    /// Returns which direction of a metric is better, by its name.
    pub fn of(metric: &str) -> Self {
        match Unit::of(metric) {
            Unit::BytesPerSecond | Unit::PerSecond => Self::Higher,
            Unit::Time => Self::Lower,
            _ if metric.starts_with("faults") || metric.starts_with("switches") => Self::Lower,
            _ if metric.ends_with("peak_bytes") => Self::Lower,
            _ => Self::Neither,
        }
    }

    /// Returns whether `a` is better than `b`; lower is preferred if neither direction is better.
    pub fn prefers(self, a: f64, b: f64) -> bool {
        match self {
            Self::Higher => a > b,
            Self::Lower | Self::Neither => a < b,
        }
    }
}

/// Formats a share, with one decimal below 10 % and none above.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        v if v < 9.95 => format!("{value:.1} %"),
        v if v < EXPONENT_MIN => format!("{value:.0} %"),
        _ => format!("{value:.2e} %"),
    }
}

/// Rounds a share up to the digits of [`percent`], for an upper bound.
pub fn rounded_up(share: f64) -> f64 {
    // A bound that already has these digits stays.
    // The sum turns a negative zero into zero.
    let up = |step: f64| (share / step - 1e-6).ceil() * step + 0.0;
    if up(0.001) < 0.0995 { up(0.001) } else { up(0.01) }
}

/// Formats a ratio: `1.42×`.
pub fn ratio(value: f64) -> String {
    match value {
        v if !v.is_finite() => "–".to_owned(),
        v if v >= EXPONENT_MIN => format!("{v:.2e}×"),
        v if v >= 99.5 => format!("{v:.0}×"),
        v if v >= 9.995 => format!("{v:.1}×"),
        v if v < 0.0995 => format!("{v:.3}×"),
        v => format!("{v:.2}×"),
    }
}

/// Formats a ratio with its interval bounds: `1.42× [1.31, 1.55]`, or `1.42× (1.31 to 1.55)`.
pub fn ratio_ends(value: f64, ends: Ends) -> String {
    let bare = |v: f64| ratio(v).trim_end_matches('×').to_owned();
    format!("{} {}", ratio(value), bracketed(ends, bare))
}

/// Formats two ends: in square brackets if they are an interval, in parentheses if they are minimum and
/// maximum.
pub fn bracketed(ends: Ends, format: impl Fn(f64) -> String) -> String {
    let (low, high) = (format(ends.low), format(ends.high));
    if ends.is_interval() { format!("[{low}, {high}]") } else { format!("({low} to {high})") }
}

/// Formats a number without a unit: with grouped digits if it is a large integer, otherwise, and from
/// 10¹⁵, with three digits.
pub fn plain(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "–".to_owned(),
        v if v >= EXPONENT_MIN => format!("{value:.2e}"),
        v if v >= 999.5 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", ioloom_model::units::format_count(v.round() as u64))
        }
        v if v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.2e}"),
    }
}

/// Formats a count with narrow no-break spaces, for running text.
pub fn count(n: u64) -> String {
    ioloom_model::units::format_count(n).replace(' ', "\u{202F}")
}

/// Formats a number with up to three decimals, without trailing zeros; from 10¹⁵ with three digits.
pub fn trimmed(value: f64) -> String {
    if value.abs() >= EXPONENT_MIN {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_units() {
        for (name, unit) in [
            ("elapsed_ns", Unit::Time),
            ("calls.read.p99_ns", Unit::Time),
            ("share.io", Unit::Share),
            ("bytes_per_s", Unit::BytesPerSecond),
            ("files_per_s", Unit::PerSecond),
            ("memory_peak_bytes", Unit::Bytes),
            ("in_flight_mean", Unit::Number),
            ("size", Unit::Bytes),
            ("n", Unit::Number),
        ] {
            assert_eq!(Unit::of(name), unit, "{name}");
        }
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(ratio_ends(1.423, Ends::interval(1.306, 12.0)), "1.42× [1.31, 12.0]");
        let few = Ends { confidence: 0.75, ..Ends::interval(1.306, 12.0) };
        assert_eq!(ratio_ends(1.423, few), "1.42× (1.31 to 12.0)");
        assert_eq!(Unit::Time.format_ends(few), "(1.31 ns to 12.0 ns)");
        assert_eq!(Unit::Time.format_tick(2e6), "2 ms");
        assert_eq!(Unit::Bytes.format_tick(65536.0), "64 KiB");
        assert_eq!(Unit::Share.format(0.973), "97 %");
        assert_eq!(plain(1234567.0), "1 234 567");
        assert_eq!(plain(0.25), "0.25");
        assert_eq!(plain(1e100), "1.00e100");
        assert_eq!(trimmed(2e91), "2.00e91");
        assert_eq!(ratio(1e100), "1.00e100×");
        assert_eq!(percent(1e98), "1.00e100 %");
    }

    #[test]
    fn bounds_are_rounded_up() {
        for (share, text) in [
            (0.000_4, "0.1 %"),
            (1.01 - 1.0, "1.0 %"),
            (0.020_1, "2.1 %"),
            (0.0996, "10 %"),
            (0.101, "11 %"),
        ] {
            assert_eq!(percent(rounded_up(share)), text);
        }
        assert!(rounded_up(0.0).is_sign_positive());
    }
}
