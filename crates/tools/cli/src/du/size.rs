//! Numbers, units and sizes in the spelling of the GNU programs.
//!
//! A number is decimal, octal after `0` or hexadecimal after `0x`, and may have a suffix: `K` and
//! `KiB` are 1024, `KB` and `KD` are 1000. A block size can be a suffix alone, which is then
//! repeated after each size.

/// The suffixes of block sizes. `0` stands for the second part, `B`, `D` or `iB`.
const BLOCK_SUFFIXES: &[u8] = b"eEgGkKmMpPtTyYzZ0";
/// The suffixes of thresholds.
pub(super) const THRESHOLD_SUFFIXES: &[u8] = b"kKmMGTPEZY0";
/// The letters of powers, starting with the first.
const LETTERS: [char; 8] = ['K', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'];

/// Why a number is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    Invalid,
    Suffix,
    TooLarge,
}

impl Wrong {
    /// Returns the message of GNU for the value of an option.
    pub(super) fn message(self, option: &str, value: &str) -> String {
        match self {
            Self::Invalid => format!("invalid {option} argument '{value}'"),
            Self::Suffix => format!("invalid suffix in {option} argument '{value}'"),
            Self::TooLarge => format!("{option} argument '{value}' too large"),
        }
    }
}

/// A number with what was wrong about it. GNU uses the value even so if it comes from the
/// environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parsed {
    value: i128,
    wrong: Option<Wrong>,
    /// Length of the text that belongs to the number.
    end: usize,
}

impl Parsed {
    const INVALID: Self = Self { value: 0, wrong: Some(Wrong::Invalid), end: 0 };
}

/// Parses a number of at most 64 bits; a negative one only if `signed`.
fn parse(text: &[u8], signed: bool, suffixes: &[u8]) -> Parsed {
    let spaces = text.iter().take_while(|b| b.is_ascii_whitespace() || **b == 0x0b).count();
    let negative = text.get(spaces) == Some(&b'-');
    if negative && !signed {
        return Parsed::INVALID;
    }
    let sign = usize::from(matches!(text.get(spaces), Some(b'-' | b'+')));
    let (mut magnitude, mut end) = digits(text, spaces + sign);
    if end == spaces + sign {
        match text.first() {
            Some(first) if suffixes.contains(first) => (magnitude, end) = (1, 0),
            _ => return Parsed::INVALID,
        }
    }
    let (most, least) = if signed {
        (i128::from(i64::MAX), i128::from(i64::MIN))
    } else {
        (i128::from(u64::MAX), 0)
    };
    let mut wrong = None;
    if let Some(rest) = text.get(end..).filter(|rest| !rest.is_empty()) {
        match factor(rest, suffixes) {
            Some((factor, length)) => {
                magnitude = magnitude.saturating_mul(factor);
                end += length;
                wrong = (end < text.len()).then_some(Wrong::Suffix);
            }
            None => wrong = Some(Wrong::Suffix),
        }
    }
    let exact = if negative { magnitude.saturating_neg() } else { magnitude };
    let value = exact.clamp(least, most);
    if value != exact {
        wrong = wrong.or(Some(Wrong::TooLarge));
    }
    Parsed { value, wrong, end }
}

/// Returns the value of the digits from `start`, and their end.
fn digits(text: &[u8], start: usize) -> (i128, usize) {
    let hex = |at: usize| text.get(at).is_some_and(u8::is_ascii_hexdigit);
    let (base, mut at) = match (text.get(start), text.get(start + 1)) {
        (Some(b'0'), Some(b'x' | b'X')) if hex(start + 2) => (16, start + 2),
        (Some(b'0'), _) => (8, start),
        _ => (10, start),
    };
    let mut value = 0_i128;
    while let Some(digit) = text.get(at).and_then(|b| char::from(*b).to_digit(base)) {
        // Saturates far above the limit of 64 bits.
        value = value.saturating_mul(i128::from(base)).saturating_add(i128::from(digit));
        at += 1;
    }
    (value, at)
}

/// Returns the factor of a suffix and its length.
fn factor(rest: &[u8], suffixes: &[u8]) -> Option<(i128, usize)> {
    let first = rest.first().filter(|first| suffixes.contains(first))?;
    let letter = match first {
        b'e' | b'p' | b'y' | b'z' => return None,
        other => char::from(other.to_ascii_uppercase()),
    };
    let power = LETTERS.iter().position(|known| *known == letter)? as u32 + 1;
    let (base, length): (i128, usize) = match (suffixes.contains(&b'0'), &rest[1..]) {
        (true, [b'i', b'B', ..]) => (1024, 3),
        (true, [b'B' | b'D', ..]) => (1000, 2),
        _ => (1024, 1),
    };
    Some((base.pow(power), length))
}

/// Parses the value of `--threshold`.
pub(super) fn threshold(text: &[u8]) -> Result<i64, Wrong> {
    let parsed = parse(text, true, THRESHOLD_SUFFIXES);
    match parsed.wrong {
        Some(wrong) => Err(wrong),
        None => i64::try_from(parsed.value).map_err(|_| Wrong::TooLarge),
    }
}

/// Parses a number without a suffix, such as the value of `--max-depth`.
pub(super) fn plain(text: &[u8]) -> Option<u64> {
    let parsed = parse(text, false, b"");
    u64::try_from(parsed.value).ok().filter(|_| parsed.wrong.is_none())
}

/// Format of sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spelling {
    /// In whole units of this many bytes, rounded up; with the unit if only that was given.
    Units(u64, String),
    /// With a unit letter, in powers of this base.
    Letter(u64),
}

impl Default for Spelling {
    fn default() -> Self {
        Self::units(1 << 10)
    }
}

impl Spelling {
    pub(super) const fn units(bytes: u64) -> Self {
        Self::Units(bytes, String::new())
    }

    /// Parses a block size. Like GNU, returns a usable spelling even if it is wrong; `default` is
    /// the one for an invalid number.
    pub(super) fn parse(text: &[u8], default: u64) -> (Self, Option<Wrong>) {
        // A quote requests grouping, which the locales C and C.UTF-8 do not have.
        let text = text.strip_prefix(b"'").unwrap_or(text);
        if !text.is_empty() && b"human-readable".starts_with(text) {
            return (Self::Letter(1024), None);
        }
        if !text.is_empty() && b"si".starts_with(text) {
            return (Self::Letter(1000), None);
        }
        let parsed = parse(text, false, BLOCK_SUFFIXES);
        let Some(bytes) = u64::try_from(parsed.value).ok().filter(|bytes| *bytes > 0) else {
            return (Self::units(default), Some(parsed.wrong.unwrap_or(Wrong::Invalid)));
        };
        let own = &text[..parsed.end];
        if parsed.wrong.is_some() || own.iter().any(u8::is_ascii_digit) {
            return (Self::units(bytes), parsed.wrong);
        }
        (Self::Units(bytes, unit_name(bytes, own)), None)
    }

    /// Returns the same for numbers of inodes, whose unit is always 1.
    pub(super) fn of_inodes(self) -> Self {
        match self {
            Self::Units(_, name) => {
                let byte = if name.ends_with('B') { "B" } else { "" };
                Self::Units(1, byte.to_owned())
            }
            letter => letter,
        }
    }

    /// Formats a size. The largest one is that of a sum that does not fit.
    pub(super) fn spell(&self, value: u64) -> String {
        match self {
            _ if value == u64::MAX => "Infinity".to_owned(),
            Self::Units(unit, name) => format!("{}{name}", value.div_ceil(*unit)),
            Self::Letter(base) => letter(value, *base),
        }
    }
}

/// Returns what follows each size if the block size was given as the suffix `own`.
fn unit_name(bytes: u64, own: &[u8]) -> String {
    let byte = own.ends_with(b"B");
    let binary = !byte || own.ends_with(b"iB");
    let base = if binary { 1024 } else { 1000 };
    let mut power = 1_u128;
    let mut exponent = 0;
    while power < u128::from(bytes) && exponent < LETTERS.len() {
        power *= base;
        exponent += 1;
    }
    let mut name = String::new();
    if let Some(letter) = exponent.checked_sub(1).map(|at| LETTERS[at]) {
        name.push(if !binary && letter == 'K' { 'k' } else { letter });
    }
    if byte {
        name += if binary && exponent > 0 { "iB" } else { "B" };
    }
    name
}

/// Formats a size with a unit letter, rounded up: `1023`, `1.5K`, `15M`.
fn letter(value: u64, base: u64) -> String {
    const LETTERS: [char; 7] = ['B', 'K', 'M', 'G', 'T', 'P', 'E'];
    let mut unit = 1_u128;
    for (step, name) in LETTERS.into_iter().enumerate() {
        let tenths = (u128::from(value) * 10).div_ceil(unit);
        let whole = u128::from(value).div_ceil(unit);
        let name = if base == 1000 && name == 'K' { 'k' } else { name };
        if step == 0 && whole < u128::from(base) {
            return whole.to_string();
        }
        if step > 0 && tenths < 100 {
            return format!("{}.{}{name}", tenths / 10, tenths % 10);
        }
        if step > 0 && (whole < u128::from(base) || step + 1 == LETTERS.len()) {
            return format!("{whole}{name}");
        }
        unit *= u128::from(base);
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spelled_as_gnu_du_spells_them() {
        for (value, binary, decimal) in [
            (0, "0", "0"),
            (999, "999", "999"),
            (1000, "1000", "1.0k"),
            (1023, "1023", "1.1k"),
            (1024, "1.0K", "1.1k"),
            (1025, "1.1K", "1.1k"),
            (10_137, "9.9K", "11k"),
            (10_138, "10K", "11k"),
            (1_047_552, "1023K", "1.1M"),
            (1_047_553, "1.0M", "1.1M"),
            (u64::MAX - 1, "16E", "19E"),
            (u64::MAX, "Infinity", "Infinity"),
        ] {
            let spelled =
                (Spelling::Letter(1024).spell(value), Spelling::Letter(1000).spell(value));
            assert_eq!(spelled, (binary.to_owned(), decimal.to_owned()), "{value}");
        }
        assert_eq!(Spelling::units(1024).spell(1025), "2");
        assert_eq!(Spelling::parse(b"KiB", 1024).0.spell(u64::MAX), "Infinity");
    }

    #[test]
    fn block_sizes_are_read_as_gnu_du_reads_them() {
        // The output of GNU du 9.1 for a file of 1,500,000 bytes, or its message.
        for (text, expected) in [
            ("k", Ok("1465K")),
            ("kB", Ok("1500kB")),
            ("KB", Ok("1500kB")),
            ("KiB", Ok("1465KiB")),
            ("MB", Ok("2MB")),
            ("m", Ok("2M")),
            ("1MiB", Ok("2")),
            ("010", Ok("187500")),
            ("0x10", Ok("93750")),
            ("'1", Ok("1500000")),
            ("5KD", Ok("300")),
            ("E", Ok("1E")),
            ("h", Ok("1.5M")),
            ("si", Ok("1.5M")),
            ("", Err("invalid -B argument ''")),
            ("0", Err("invalid -B argument '0'")),
            ("-5", Err("invalid -B argument '-5'")),
            ("b", Err("invalid -B argument 'b'")),
            ("e", Err("invalid suffix in -B argument 'e'")),
            ("1b", Err("invalid suffix in -B argument '1b'")),
            ("5q", Err("invalid suffix in -B argument '5q'")),
            ("K5", Err("invalid suffix in -B argument 'K5'")),
            ("1.5K", Err("invalid suffix in -B argument '1.5K'")),
            ("5D", Err("invalid suffix in -B argument '5D'")),
            ("99999999999999999999", Err("-B argument '99999999999999999999' too large")),
        ] {
            let (spelling, wrong) = Spelling::parse(text.as_bytes(), 1024);
            let got = match wrong {
                None => Ok(spelling.spell(1_500_000)),
                Some(wrong) => Err(wrong.message("-B", text)),
            };
            let got = got.as_ref().map(String::as_str).map_err(String::as_str);
            assert_eq!(got, expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_block_size_of_the_environment_is_still_used() {
        for (text, bytes) in [("5q", 5), ("x", 512), ("", 512), ("99999999999999999999", u64::MAX)]
        {
            assert_eq!(Spelling::parse(text.as_bytes(), 512).0, Spelling::units(bytes), "{text}");
        }
    }

    #[test]
    fn thresholds_and_depths_are_numbers_of_c() {
        for (text, expected) in [
            ("5", Ok(5)),
            (" 5", Ok(5)),
            ("+5", Ok(5)),
            ("-4K", Ok(-4096)),
            ("-4KB", Ok(-4000)),
            ("K", Ok(1024)),
            ("-0", Ok(0)),
            ("-K", Err(Wrong::Invalid)),
            ("", Err(Wrong::Invalid)),
            ("5q", Err(Wrong::Suffix)),
            ("5g", Err(Wrong::Suffix)),
            ("9223372036854775808", Err(Wrong::TooLarge)),
            ("8E", Err(Wrong::TooLarge)),
        ] {
            assert_eq!(threshold(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in [
            ("3", Some(3)),
            ("0x1", Some(1)),
            (" 1", Some(1)),
            ("-1", None),
            ("1K", None),
            ("", None),
        ] {
            assert_eq!(plain(text.as_bytes()), expected, "{text}");
        }
    }
}
