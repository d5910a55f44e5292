//! `--time` and `--time-style`: times in the formats of GNU du and `date`.
//!
//! Times are local by `TZ`, or by the system's zone. Names of days and months are English, as in the locale C. As in
//! GNU du, years beyond 2,147,485,547 are printed as seconds, with a warning; so are those before -9999.

use crate::abbreviated::choice_of;
use ioloom_du::Newest;
use ioloom_du::scan::Time;
use jiff::Timestamp;
use jiff::fmt::strtime::{BrokenDownTime, Config};
use jiff::tz::TimeZone;
use std::borrow::Cow;
use std::fmt::Write;

/// The words of `--time`, by lines of the same meaning.
const WORDS: [(&str, Time); 5] = [
    ("atime", Time::Accessed),
    ("access", Time::Accessed),
    ("use", Time::Accessed),
    ("ctime", Time::Changed),
    ("status", Time::Changed),
];
/// The words of `--time-style` and their formats.
const STYLES: [(&str, &str); 3] =
    [("full-iso", "%Y-%m-%d %H:%M:%S.%N %z"), ("long-iso", "%Y-%m-%d %H:%M"), ("iso", "%Y-%m-%d")];
/// Stands for the seconds since 1970 in a format. Arguments cannot contain it.
const SECONDS: char = '\0';
/// Seconds of 400 years, after which the calendar repeats, including the days of the week.
const ERA_S: i64 = 146_097 * 86_400;
/// The last year of the C library.
const YEAR_MAX: i64 = 2_147_485_547;
/// The conversions of `date` that `strtime` has, too.
const CONVERSIONS: &str = "%aAbBCdDeFgGhHIjklmMnNpPqRsStTuUVwWyYzZ";

/// Parses the value of `--time`.
pub(super) fn word(text: &str) -> Result<Time, String> {
    choice_of("--time", text, &WORDS)
}

/// How times are printed.
#[derive(Debug, Clone)]
pub(super) struct TimeFormat {
    format: String,
    zone: TimeZone,
}

impl TimeFormat {
    /// Parses the style from the flag or the variable `TIME_STYLE`.
    pub(super) fn new(flag: Option<&str>, variable: Option<&str>) -> Result<Self, String> {
        let style = match (flag, variable) {
            (Some(style), _) => style,
            (None, None | Some("locale")) => "long-iso",
            // For ls, a second format can follow on another line.
            (None, Some(style)) if style.starts_with('+') => {
                style.split('\n').next().unwrap_or(style)
            }
            (None, Some(style)) => {
                let mut style = style;
                while let Some(rest) = style.strip_prefix("posix-") {
                    style = rest;
                }
                style
            }
        };
        let format = match style.strip_prefix('+') {
            Some(format) => expanded(format),
            None => expanded(choice_of("time style", style, &STYLES)?),
        };
        Ok(Self { format, zone: zone(std::env::var("TZ").ok().as_deref()) })
    }

    /// Formats a time, or returns the seconds and `false` if it is out of range.
    pub(super) fn spell(&self, newest: Newest) -> (String, bool) {
        // Entries of a document can have no time. GNU du shows 1970 for what has none.
        let (seconds, nanoseconds) = if newest == Newest::default() { (0, 0) } else { newest.0 };
        let eras = eras_beyond(seconds);
        let near = seconds - eras * ERA_S;
        let Ok(time) = Timestamp::new(near, nanoseconds.cast_signed()) else {
            return (seconds.to_string(), false);
        };
        let time = time.to_zoned(self.zone.clone());
        let years = [time.year(), time.date().iso_week_date().year()];
        let years = years.map(|year| i64::from(year) + eras * 400);
        if years[0] > YEAR_MAX {
            return (seconds.to_string(), false);
        }
        let format = match eras {
            0 => Cow::Borrowed(&self.format),
            _ => Cow::Owned(with_years(&self.format, years, seconds)),
        };
        let config = Config::new().lenient(true);
        match BrokenDownTime::from(&time).to_string_with_config(&config, format.as_str()) {
            // `strtime` rounds seconds before 1970 up.
            Ok(text) => (text.replace(SECONDS, &seconds.to_string()), true),
            Err(_) => (seconds.to_string(), false),
        }
    }
}

/// Returns how many times 400 years a time is to be moved back to be in the range of [`Timestamp`].
fn eras_beyond(seconds: i64) -> i64 {
    let beyond = seconds.saturating_sub(Timestamp::MAX.as_second()).max(0);
    beyond / ERA_S + i64::from(beyond % ERA_S > 0)
}

/// Replaces the conversions for the year, the year of the week and the seconds in a format.
fn with_years(format: &str, [year, week_year]: [i64; 2], seconds: i64) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let spec = &rest[at + 1..];
        let flags = spec.len() - spec.trim_start_matches(['_', '-', '0', '^', '#']).len();
        let digits = spec[flags..].chars().take_while(char::is_ascii_digit).count();
        let letter = spec[flags + digits..].chars().next();
        let end = flags + digits + letter.map_or(0, char::len_utf8);
        let padded = |number: i64| padded(number, &spec[..flags], &spec[flags..flags + digits]);
        match letter {
            Some('Y') => out.push_str(&padded(year)),
            Some('G') => out.push_str(&padded(week_year)),
            Some('C') => out.push_str(&padded(year / 100)),
            Some('s') => out.push_str(&padded(seconds)),
            // GNU writes the sign of a year with more than four digits here.
            Some('F') if end == 1 => {
                let _ = write!(out, "+{year}-%m-%d");
            }
            // The width is that of the whole date.
            Some('F') => {
                let width: usize = spec[flags..flags + digits].parse().unwrap_or(0);
                let width = width.saturating_sub("-mm-dd".len()).to_string();
                let _ = write!(out, "{}-%m-%d", self::padded(year, &spec[..flags], &width));
            }
            _ => {
                let _ = write!(out, "%{}", &spec[..end]);
            }
        }
        rest = &spec[end..];
    }
    out + rest
}

/// Pads a number as `date` does for these flags and this width.
fn padded(number: i64, flags: &str, width: &str) -> String {
    let text = number.to_string();
    let missing = width.parse().unwrap_or(0_usize).saturating_sub(text.len());
    match flags.chars().rfind(|flag| "_-0".contains(*flag)) {
        Some('-') => text,
        Some('_') => " ".repeat(missing) + &text,
        _ => "0".repeat(missing) + &text,
    }
}

/// Returns the time zone of the variable `TZ`, or of the system. A zone with summer time but without
/// rules has the current ones of the United States, as POSIX suggests.
fn zone(variable: Option<&str>) -> TimeZone {
    let text = variable.map(|text| text.strip_prefix(':').unwrap_or(text));
    let with_rules = |text: &str| TimeZone::posix(&format!("{text},M3.2.0,M11.1.0"));
    match text {
        Some("") => TimeZone::UTC,
        Some(text) => TimeZone::posix(text)
            .or_else(|_| with_rules(text))
            .unwrap_or_else(|_| TimeZone::system()),
        None => TimeZone::system(),
    }
}

/// Replaces conversions that depend on the locale, and escapes those that `date` does not have.
fn expanded(format: &str) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let spec = &rest[at + 1..];
        let flags = spec.len() - spec.trim_start_matches(['_', '-', '0', '^', '#', '+']).len();
        let width = spec[flags..].len()
            - spec[flags..].trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let colons =
            spec[flags + width..].len() - spec[flags + width..].trim_start_matches(':').len();
        let letter_at = flags + width + colons;
        let modifier = usize::from(spec[letter_at..].starts_with(['E', 'O']));
        let letter = spec[letter_at + modifier..].chars().next();
        let end = letter_at + modifier + letter.map_or(0, char::len_utf8);
        let plain_flags = spec[..flags].replace('+', "");
        match letter {
            Some('c') => out.push_str("%a %b %e %H:%M:%S %Y"),
            Some('x') => out.push_str("%m/%d/%y"),
            Some('X') => out.push_str("%H:%M:%S"),
            Some('r') => out.push_str("%I:%M:%S %p"),
            Some('s') if flags + width + colons == 0 => out.push(SECONDS),
            Some('z') if colons > 0 => {
                let _ = write!(out, "%{}z", &spec[flags + width..letter_at]);
            }
            Some(letter) if colons == 0 && CONVERSIONS.contains(letter) => {
                // Digits of %N are its precision.
                let letter = if letter == 'N' && width > 0 { 'f' } else { letter };
                let _ = write!(out, "%{plain_flags}{}{letter}", &spec[flags..flags + width]);
            }
            _ => {
                let _ = write!(out, "%%{}", &spec[..end]);
            }
        }
        rest = &spec[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(style: &str, time: (i64, u32)) -> String {
        let format =
            TimeFormat { zone: TimeZone::UTC, ..TimeFormat::new(Some(style), None).unwrap() };
        format.spell(Newest(time)).0
    }

    #[test]
    fn times_are_spelled_as_gnu_du_spells_them() {
        // The output of GNU du 9.1 with TZ=UTC0.
        let time = (1_795_449_879, 582_628_932);
        for (style, expected) in [
            ("full-iso", "2026-11-23 16:04:39.582628932 +0000"),
            ("f", "2026-11-23 16:04:39.582628932 +0000"),
            ("long-iso", "2026-11-23 16:04"),
            ("iso", "2026-11-23"),
            ("+%a %b %e %-d %_H %^a", "Mon Nov 23 23 16 MON"),
            ("+%:z %10Y %q %Od", "+00:00 0000002026 4 23"),
            ("+%C %g %G %j %k %l %P %p %r %R", "20 26 2026 327 16  4 pm PM 04:04:39 PM 16:04"),
            ("+%u %U %w %W %x %X %y %Z", "1 47 1 47 11/23/26 16:04:39 26 UTC"),
            ("+%c|%D|%h|%T|%N", "Mon Nov 23 16:04:39 2026|11/23/26|Nov|16:04:39|582628932"),
            ("+%3N %6N %9N %::z %%", "582 582628 582628932 +00:00:00 %"),
            ("+%Q %s", "%Q 1795449879"),
            ("+", ""),
        ] {
            assert_eq!(spell(style, time), expected, "{style}");
        }
        assert_eq!(spell("iso", (-1, 0)), "1969-12-31");
        assert_eq!(spell("iso", (i64::MIN, 0)), "1970-01-01");
        assert_eq!(spell("+%s.%N %%s", (-31_536_000, 999_999_999)), "-31536000.999999999 %s");
        assert_eq!(spell("iso", (i64::MAX, 0)), i64::MAX.to_string());
    }

    #[test]
    fn years_of_five_and_more_digits_are_spelled_as_gnu_du_spells_them() {
        // The output of GNU du 9.1 with TZ=UTC0.
        let time = (327_416_976_550, 5);
        for (style, expected) in [
            ("full-iso", "12345-06-07 08:09:10.000000005 +0000"),
            ("long-iso", "12345-06-07 08:09"),
            ("+%a %j %G-%V %C %y %g %s", "Thu 158 12345-23 123 45 45 327416976550"),
            ("+%10Y|%_8Y|%-8Y|%08Y|%5C", "0000012345|   12345|12345|00012345|00123"),
            ("+%15s|%_14s|%-s", "000327416976550|  327416976550|327416976550"),
            ("+%12F|%015F", "012345-06-07|000012345-06-07"),
            ("+%F|%D|%c|%%Y", "+12345-06-07|06/07/45|Thu Jun  7 08:09:10 12345|%Y"),
        ] {
            assert_eq!(spell(style, time), expected, "{style}");
        }
        assert!(spell("+%70000Y", time).ends_with("00012345"));
        for (seconds, expected) in [
            (253_402_207_200, "9999-12-30 22:00"),
            (253_402_207_201, "9999-12-30 22:00"),
            (253_402_300_800, "10000-01-01 00:00"),
            (3_093_496_444_800, "99999-01-01 00:00"),
            (9_000_000_000_000_000, "285200616-07-24 16:00"),
            (67_768_036_191_676_799, "2147485547-12-31 23:59"),
            (67_768_036_191_676_800, "67768036191676800"),
        ] {
            assert_eq!(spell("long-iso", (seconds, 0)), expected);
        }
    }

    #[test]
    fn zones_without_rules_have_those_of_the_c_library() {
        // The output of GNU du 9.1 for a winter and a summer day.
        for (variable, winter, summer) in [
            ("UTC0", "1970-01-10 12:00 +0000 UTC", "1970-07-01 00:00 +0000 UTC"),
            ("CET-1CEST", "1970-01-10 13:00 +0100 CET", "1970-07-01 02:00 +0200 CEST"),
            ("EST5EDT,M4.1.0,M10.5.0", "1970-01-10 07:00 -0500 EST", "1970-06-30 20:00 -0400 EDT"),
            ("", "1970-01-10 12:00 +0000 UTC", "1970-07-01 00:00 +0000 UTC"),
        ] {
            let style = TimeFormat::new(Some("+%Y-%m-%d %H:%M %z %Z"), None).unwrap();
            let format = TimeFormat { zone: zone(Some(variable)), ..style };
            let spell = |seconds| format.spell(Newest((seconds, 0))).0;
            let shown = (spell(820_800), spell(15_638_400));
            assert_eq!(shown, (winter.to_owned(), summer.to_owned()), "{variable}");
        }
    }

    #[test]
    fn styles_come_from_the_flag_and_then_from_the_variable() {
        let format = |flag, variable| TimeFormat::new(flag, variable).map(|f| f.format);
        let (long, iso) = ("%Y-%m-%d %H:%M".to_owned(), "%Y-%m-%d".to_owned());
        assert_eq!(format(None, None), Ok(long.clone()));
        assert_eq!(format(None, Some("locale")), Ok(long));
        assert_eq!(format(None, Some("posix-posix-iso")), Ok(iso.clone()));
        assert_eq!(format(None, Some("+%Y-%m-%d\n+%s")), Ok(iso.clone()));
        assert_eq!(format(Some("iso"), Some("x")), Ok(iso));
        let wrong = format(Some("x"), None).unwrap_err();
        assert_eq!(
            wrong,
            "invalid argument 'x' for 'time style'\nValid arguments are:\n  - 'full-iso'\n  \
             - 'long-iso'\n  - 'iso'"
        );
    }

    #[test]
    fn words_of_the_same_meaning_share_a_line() {
        assert_eq!(word("a"), Ok(Time::Accessed));
        assert_eq!(word("status"), Ok(Time::Changed));
        assert_eq!(
            word("x").unwrap_err(),
            "invalid argument 'x' for '--time'\nValid arguments are:\n  \
             - 'atime', 'access', 'use'\n  - 'ctime', 'status'"
        );
        assert_eq!(
            word("").unwrap_err().lines().next(),
            Some("ambiguous argument '' for '--time'")
        );
    }
}
