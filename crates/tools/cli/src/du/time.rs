//! `--time` and `--time-style`: times in the formats of GNU du and `date`.
//!
//! Times are local by `TZ`, or by the system's zone. Names of days and months are English, as in the locale C. As in
//! GNU du, years beyond 2,147,485,547 are printed as seconds, with a warning; so are those before -9999.

use crate::abbreviated::choice_of;
use ioloom_du::Newest;
use ioloom_du::scan::Time;
use jiff::fmt::strtime::{BrokenDownTime, Config};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::path::Path;

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
/// Seconds of 400 years, after which the calendar repeats, including the days of the week.
const ERA_S: i64 = 146_097 * 86_400;
/// The last year of the C library.
const YEAR_MAX: i64 = 2_147_485_547;
/// Limit of the width of a conversion.
const WIDTH_MAX: usize = 1 << 20;

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
            Some(format) => format,
            None => choice_of("time style", style, &STYLES)?,
        };
        Ok(Self { format: format.to_owned(), zone: zone(std::env::var("TZ").ok().as_deref()) })
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
        (Shown { time: &time, years, seconds, nanoseconds }.format(&self.format), true)
    }
}

/// Returns how many times 400 years a time is to be moved back to be in the range of [`Timestamp`].
fn eras_beyond(seconds: i64) -> i64 {
    let beyond = seconds.saturating_sub(Timestamp::MAX.as_second()).max(0);
    beyond / ERA_S + i64::from(beyond % ERA_S > 0)
}

/// Returns the time zone of the variable `TZ`, or of the system. A zone with summer time but without
/// rules has the current ones of the United States, as POSIX suggests.
fn zone(variable: Option<&str>) -> TimeZone {
    let text = variable.map(|text| text.strip_prefix(':').unwrap_or(text));
    let with_rules = |text: &str| TimeZone::posix(&format!("{text},M3.2.0,M11.1.0"));
    match text {
        Some("") => TimeZone::UTC,
        // Names of the database come first: some of them, such as EST5EDT, are rules of POSIX, too, which
        // lack those of former years. As file names, they are case-sensitive.
        Some(text) => TimeZone::get(text)
            .ok()
            .filter(|zone| zone.iana_name() == Some(text))
            .or_else(|| TimeZone::posix(text).ok())
            .or_else(|| TimeZone::posix(&clamped(text)?).ok())
            .or_else(|| with_rules(text).ok())
            .or_else(|| without_distance(text))
            .unwrap_or_else(TimeZone::system),
        None => TimeZone::system(),
    }
}

/// Splits the name of a zone from what follows.
fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len())
}

/// Returns a zone of a name and a distance to UTC with the distance in range, as in the C library: at most 24 hours,
/// 59 minutes and 59 seconds.
fn clamped(text: &str) -> Option<String> {
    let (name, distance) = split_name(text);
    let digits = distance.trim_start_matches(['+', '-']);
    let sign = &distance[..distance.len() - digits.len()];
    let parts: Vec<u16> = digits.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    if sign.len() > 1 || parts.len() > 3 {
        return None;
    }
    let part = |at: usize, most: u16| parts.get(at).copied().unwrap_or(0).min(most);
    Some(format!("{name}{sign}{}:{:02}:{:02}", part(0, 24), part(1, 59), part(2, 59)))
}

/// Returns the zone of a text without a distance to UTC that is not a file of the database, either: UTC under the
/// letters at its start, as in the C library.
fn without_distance(text: &str) -> Option<TimeZone> {
    let (name, rest) = split_name(text);
    let distance = rest.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c));
    if name.is_empty() || distance || Path::new("/usr/share/zoneinfo").join(text).exists() {
        return None;
    }
    Some(TimeZone::posix(&format!("{name}0")).unwrap_or(TimeZone::UTC))
}

/// Flags and width of a conversion.
struct Spec<'a> {
    flags: &'a str,
    width: Option<usize>,
}

impl Spec<'_> {
    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// Returns the last flag for padding.
    fn pad(&self) -> Option<char> {
        self.flags.chars().rfind(|flag| "_-0+".contains(*flag))
    }

    /// Pads text, with spaces unless a flag says otherwise.
    fn text(&self, text: &str) -> String {
        let missing = self.width.unwrap_or(0).saturating_sub(text.len());
        match self.pad() {
            Some('-') => text.to_owned(),
            Some('0' | '+') => "0".repeat(missing) + text,
            _ => " ".repeat(missing) + text,
        }
    }

    /// Pads the digits of a number after its sign, or with spaces before it. `width` and `pad` are the defaults.
    fn digits(&self, sign: &str, digits: &str, width: usize, pad: char) -> String {
        let missing = self.width.unwrap_or(width).saturating_sub(sign.len() + digits.len());
        match self.pad().unwrap_or(pad) {
            '-' => format!("{sign}{digits}"),
            '_' => format!("{}{sign}{digits}", " ".repeat(missing)),
            _ => format!("{sign}{}{digits}", "0".repeat(missing)),
        }
    }

    fn number(&self, number: impl Into<i64>, width: usize, pad: char) -> String {
        let number = number.into();
        let sign = if number < 0 { "-" } else { "" };
        self.digits(sign, &number.unsigned_abs().to_string(), width, pad)
    }

    /// Formats a year or century of usually `width` digits. With the flag `+`, one of more digits has a sign.
    fn year(&self, year: i64, width: usize) -> String {
        let usual = if width == 2 { 99 } else { 9999 };
        let wide = year > usual || self.width.is_some_and(|own| own > width);
        if self.pad() == Some('+') && wide && year >= 0 {
            return self.digits("+", &year.to_string(), width, '0');
        }
        self.number(year, width, '0')
    }
}

/// A time and what formats show.
struct Shown<'a> {
    /// The time, in a year that the calendar knows.
    time: &'a Zoned,
    /// The year, and the year of the week.
    years: [i64; 2],
    seconds: i64,
    nanoseconds: u32,
}

impl Shown<'_> {
    /// Replaces the conversions in a format as `date` does; others remain.
    fn format(&self, format: &str) -> String {
        let mut out = String::new();
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let spec = &rest[at + 1..];
            let after = spec.trim_start_matches(['_', '-', '0', '^', '#', '+']);
            let flags = &spec[..spec.len() - after.len()];
            let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (width, after) = after.split_at(digits);
            let width =
                (digits > 0).then(|| width.parse::<usize>().unwrap_or(WIDTH_MAX).min(WIDTH_MAX));
            let letters = after.trim_start_matches(':');
            let colons = after.len() - letters.len();
            let refused = match letters.chars().next() {
                Some('E') => "aAbBdDeFgGhHIjklmMNSUVwW",
                Some('O') => "aAcDFqxXY",
                _ => "",
            };
            let letters = letters.strip_prefix(['E', 'O']).unwrap_or(letters);
            // A `%` after flags begins the next conversion.
            let plain = letters.len() == spec.len();
            let letter = letters.chars().next().filter(|letter| *letter != '%' || plain);
            let end = spec.len() - letters.len() + letter.map_or(0, char::len_utf8);
            let (text, parsed) = (&spec[..end], Spec { flags, width });
            let converted = match letter {
                Some('%') if end == 1 => Some("%".to_owned()),
                Some('z') if colons <= 3 => Some(self.offset(&parsed, colons)),
                Some(letter) if colons == 0 && !refused.contains(letter) => {
                    self.part(&parsed, letter).or_else(|| self.number(&parsed, letter))
                }
                _ => None,
            };
            out.push_str(&converted.unwrap_or_else(|| parsed.text(&format!("%{text}"))));
            rest = &spec[end..];
        }
        out + rest
    }

    /// Formats a conversion to text.
    fn part(&self, spec: &Spec<'_>, letter: char) -> Option<String> {
        let format = match letter {
            'c' => "%a %b %e %H:%M:%S %Y",
            'D' | 'x' => "%m/%d/%y",
            'r' => "%I:%M:%S %p",
            'R' => "%H:%M",
            'T' | 'X' => "%H:%M:%S",
            'F' => return Some(self.date(spec)),
            'N' => return Some(self.fraction(spec)),
            'n' => return Some(spec.text("\n")),
            't' => return Some(spec.text("\t")),
            'a' | 'A' | 'b' | 'B' | 'h' | 'p' | 'P' | 'Z' => {
                let name = self.name(letter);
                let changes = spec.has('#');
                let lower = letter == 'P' || changes && matches!(letter, 'p' | 'Z');
                return Some(match lower {
                    true => spec.text(&name.to_lowercase()),
                    false if changes || spec.has('^') => spec.text(&name.to_uppercase()),
                    false => spec.text(&name),
                });
            }
            _ => return None,
        };
        let text = self.format(format);
        Some(spec.text(&if spec.has('^') { text.to_uppercase() } else { text }))
    }

    /// Returns the name that a conversion shows.
    fn name(&self, letter: char) -> String {
        if letter == 'Z' {
            let zone = self.time.time_zone().to_offset_info(self.time.timestamp());
            return zone.abbreviation().to_owned();
        }
        let config = Config::new().lenient(true);
        let format = format!("%{letter}");
        let name = BrokenDownTime::from(self.time).to_string_with_config(&config, format);
        name.unwrap_or_default()
    }

    /// Formats a conversion to a number.
    fn number(&self, spec: &Spec<'_>, letter: char) -> Option<String> {
        let (time, [year, week_year]) = (self.time, self.years);
        let hour_12 = (time.hour() + 11) % 12 + 1;
        let day = time.day_of_year() - 1;
        let sunday = i16::from(time.weekday().to_sunday_zero_offset());
        let monday = (sunday + 6) % 7;
        Some(match letter {
            'C' => spec.year(year / 100, 2),
            'd' => spec.number(time.day(), 2, '0'),
            'e' => spec.number(time.day(), 2, '_'),
            'g' => spec.year(week_year.rem_euclid(100), 2),
            'G' => spec.year(week_year, 4),
            'H' => spec.number(time.hour(), 2, '0'),
            'I' => spec.number(hour_12, 2, '0'),
            'j' => spec.number(day + 1, 3, '0'),
            'k' => spec.number(time.hour(), 2, '_'),
            'l' => spec.number(hour_12, 2, '_'),
            'm' => spec.number(time.month(), 2, '0'),
            'M' => spec.number(time.minute(), 2, '0'),
            'q' => spec.number((time.month() + 2) / 3, 1, '0'),
            's' => spec.number(self.seconds, 1, '0'),
            'S' => spec.number(time.second(), 2, '0'),
            'u' => spec.number(monday + 1, 1, '0'),
            'U' => spec.number((day + 7 - sunday) / 7, 2, '0'),
            'V' => spec.number(time.date().iso_week_date().week(), 2, '0'),
            'w' => spec.number(sunday, 1, '0'),
            'W' => spec.number((day + 7 - monday) / 7, 2, '0'),
            'y' => spec.year((year % 100).abs(), 2),
            'Y' => spec.year(year, 4),
            _ => return None,
        })
    }

    /// Formats the date. The width is that of the whole; without one, a year of more than four digits has a sign.
    fn date(&self, spec: &Spec<'_>) -> String {
        let year = match (spec.pad(), spec.width) {
            (None, None) => Spec { flags: "+", width: None },
            (_, width) => {
                let width = width.unwrap_or(0).saturating_sub("-mm-dd".len());
                Spec { flags: spec.flags, width: Some(width) }
            }
        };
        year.year(self.years[0], 4) + &self.format("-%m-%d")
    }

    /// Formats the nanoseconds. The width is the precision; zeros at the end are padding.
    fn fraction(&self, spec: &Spec<'_>) -> String {
        let width = spec.width.filter(|width| *width > 0).unwrap_or(9);
        let all = format!("{:09}", self.nanoseconds);
        let kept = all[..width.min(9)].trim_end_matches('0');
        let kept = if kept.is_empty() { "0" } else { kept };
        let missing = width - kept.len();
        match spec.pad() {
            Some('-') => kept.to_owned(),
            Some('_') => kept.to_owned() + &" ".repeat(missing),
            _ => kept.to_owned() + &"0".repeat(missing),
        }
    }

    /// Formats the distance to UTC, with up to three colons.
    fn offset(&self, spec: &Spec<'_>, colons: usize) -> String {
        let offset = self.time.offset().seconds();
        let all = offset.unsigned_abs();
        let (hours, minutes, seconds) = (all / 3600, all / 60 % 60, all % 60);
        let (digits, width) = match colons {
            0 => ((hours * 100 + minutes).to_string(), 5),
            3 if minutes == 0 && seconds == 0 => (hours.to_string(), 3),
            2 | 3 if colons == 2 || seconds != 0 => {
                (format!("{hours}:{minutes:02}:{seconds:02}"), 9)
            }
            _ => (format!("{hours}:{minutes:02}"), 6),
        };
        spec.digits(if offset < 0 { "-" } else { "+" }, &digits, width, '0')
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a skipped test says so")]
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
        for (style, expected) in [
            ("%10A|%^10a|%10T|%#b", "    Monday|       MON|  16:04:39|NOV"),
            ("%010A|%-10A|%#Z|%#p|%^P|%5p|%08b", "0000Monday|Monday|utc|pm|pm|   PM|00000Nov"),
            ("%12N|%_12N|%-12N|%1N", "582628932000|582628932   |582628932|5"),
            ("%10z|%_10z|%-10z|%_z|%3z|%5e", "+000000000|        +0|+0|   +0|+00|   23"),
            ("%_:z|%10:z|%-:z|%:::z", " +0:00|+000000:00|+0:00|+00"),
            ("%12F|%_12F|%-F|%+4Y|%010T", "002026-11-23|  2026-11-23|2026-11-23|2026|0016:04:39"),
            ("%5d|%_5d|%-5d|%-_5d|%3u|%_6G|%5j", "00023|   23|23|   23|001|  2026|00327"),
            (
                "%Es|%EY|%5Q|%^Q|%10n|%:d|%E5d|%-",
                "1795449879|2026|  %5Q|%^Q|         \n|%:d|%E5d|%-",
            ),
        ] {
            assert_eq!(spell(&format!("+{style}"), time), expected, "{style}");
        }
        let early = spell("+%s|%10s|%_10s|%12s", (-31_536_000, 0));
        assert_eq!(early, "-31536000|-031536000| -31536000|-00031536000");
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
    fn other_zones_are_those_of_the_c_library() {
        for (variable, expected) in [
            ("aBc5", "-0500 aBc"),
            ("abc25", "-2400 abc"),
            ("ABCDEF3:70", "-0359 ABCDEF"),
            ("utc", "+0000 utc"),
            ("europe/berlin", "+0000 europe"),
            ("Nowhere/Town", "+0000 Nowhere"),
        ] {
            let style = TimeFormat::new(Some("+%z %Z"), None).unwrap();
            let format = TimeFormat { zone: zone(Some(variable)), ..style };
            assert_eq!(format.spell(Newest((820_800, 0))).0, expected, "{variable}");
        }
    }

    #[test]
    fn zones_of_the_database_have_the_rules_of_former_years() {
        if TimeZone::get("EST5EDT").is_err() {
            println!("skipped: the zone database is missing");
            return;
        }
        // Before 2007, summer time began in April.
        for (variable, expected) in [
            ("EST5EDT", "2006-03-20 07:00 -0500"),
            (":PST8PDT", "2006-03-20 04:00 -0800"),
            ("EST5EDT,M3.2.0,M11.1.0", "2006-03-20 08:00 -0400"),
        ] {
            let style = TimeFormat::new(Some("+%Y-%m-%d %H:%M %z"), None).unwrap();
            let format = TimeFormat { zone: zone(Some(variable)), ..style };
            assert_eq!(format.spell(Newest((1_142_856_000, 0))).0, expected, "{variable}");
        }
    }

    #[test]
    fn distances_to_utc_are_padded_as_in_gnu_du() {
        let style = TimeFormat::new(Some("+%z|%10z|%_z|%-z|%:z|%::z|%:::z|%_12:z|%5Z"), None);
        let format = TimeFormat { zone: zone(Some("XXX5:30")), ..style.unwrap() };
        let expected = "-0530|-000000530| -530|-530|-05:30|-05:30:00|-05:30|       -5:30|  XXX";
        assert_eq!(format.spell(Newest((0, 0))).0, expected);
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
