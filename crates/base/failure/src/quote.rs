//! Names in messages, quoted for use in a shell.
//!
//! The format matches GNU `ls` and GNU error messages: single quotes around every name, double
//! quotes if the name contains a single quote but nothing else that a shell would interpret, and
//! `$'\n'` for unprintable bytes. A name with a newline or a terminal escape can therefore neither
//! split a message nor change the colours of the terminal.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

/// Reports whether the locale has characters other than ASCII. Unless set, it has.
static HAS_UTF8: OnceLock<fn() -> bool> = OnceLock::new();

/// Quotes names from now on by the locale, as GNU programs do: only ASCII is printable in the locale
/// `C`. `has_utf8` is called for each name that is not ASCII. Later calls have no effect.
pub fn quote_by_locale(has_utf8: fn() -> bool) {
    let _ = HAS_UTF8.set(has_utf8);
}

/// A name that is quoted when displayed.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(&'a [u8]);

/// Quotes a path for a message.
///
/// ```
/// use ioloom_failure::quoted;
/// use std::path::Path;
///
/// assert_eq!(quoted(Path::new("a b")).to_string(), "'a b'");
/// assert_eq!(quoted(Path::new("it's")).to_string(), "\"it's\"");
/// assert_eq!(quoted(Path::new("a\nb")).to_string(), r"'a'$'\n''b'");
/// ```
pub fn quoted(path: &Path) -> Quoted<'_> {
    Quoted(path.as_os_str().as_encoded_bytes())
}

impl<'a> Quoted<'a> {
    /// Quotes a name stored as bytes.
    pub const fn bytes(name: &'a [u8]) -> Self {
        Self(name)
    }
}

/// Characters that GNU `ls` does not put in double quotes: a shell interprets some of them even there.
const NOT_IN_DOUBLE_QUOTES: &str = "\"\\$`!&()*;<=>[^|?{}";

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_locale = HAS_UTF8.get().filter(|_| !self.0.is_ascii());
        write(self.0, by_locale.is_some_and(|has_utf8| !has_utf8()), f)
    }
}

fn write(name: &[u8], ascii: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let prints = if ascii { is_printable_ascii } else { is_printable };
    let plain = std::str::from_utf8(name).is_ok_and(|name| name.chars().all(prints));
    let has = |c: char| u8::try_from(c).is_ok_and(|byte| name.contains(&byte));
    if plain && has('\'') && !NOT_IN_DOUBLE_QUOTES.chars().any(has) {
        f.write_str("\"")?;
        f.write_str(&String::from_utf8_lossy(name))?;
        return f.write_str("\"");
    }
    Pieces { f, mode: Mode::Start, prints }.all(name)
}

fn is_printable_ascii(c: char) -> bool {
    c.is_ascii() && !c.is_control()
}

fn is_printable(c: char) -> bool {
    // U+2028 and U+2029 break lines; directional marks reorder the surrounding text.
    let mark = matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}');
    !c.is_control() && !mark && !matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The kind of quote currently open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Start,
    Single,
    Escape,
}

struct Pieces<'f, 'g> {
    f: &'f mut fmt::Formatter<'g>,
    mode: Mode,
    prints: fn(char) -> bool,
}

impl Pieces<'_, '_> {
    fn all(mut self, name: &[u8]) -> fmt::Result {
        self.open(Mode::Single)?;
        for chunk in name.utf8_chunks() {
            for c in chunk.valid().chars() {
                self.one(c)?;
            }
            self.bytes(chunk.invalid())?;
        }
        self.f.write_str("'")
    }

    /// Closes the current quote and opens another, unless both are the same.
    fn open(&mut self, mode: Mode) -> fmt::Result {
        if self.mode == mode {
            return Ok(());
        }
        if self.mode != Mode::Start {
            self.f.write_str("'")?;
        }
        self.mode = mode;
        self.f.write_str(if mode == Mode::Escape { "$'" } else { "'" })
    }

    fn one(&mut self, c: char) -> fmt::Result {
        if !(self.prints)(c) {
            return self.bytes(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        self.open(Mode::Single)?;
        if c == '\'' { self.f.write_str("'\\''") } else { fmt::Write::write_char(self.f, c) }
    }

    fn bytes(&mut self, bytes: &[u8]) -> fmt::Result {
        for byte in bytes {
            self.open(Mode::Escape)?;
            match byte {
                b'\n' => self.f.write_str("\\n")?,
                b'\t' => self.f.write_str("\\t")?,
                b'\r' => self.f.write_str("\\r")?,
                0x07 => self.f.write_str("\\a")?,
                0x08 => self.f.write_str("\\b")?,
                0x0B => self.f.write_str("\\v")?,
                0x0C => self.f.write_str("\\f")?,
                byte => write!(self.f, "\\{byte:03o}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn text(name: &[u8]) -> String {
        Quoted::bytes(name).to_string()
    }

    #[test]
    fn names_are_quoted_as_gnu_ls_quotes_them() {
        // Generated with GNU coreutils 9.1, `ls --quoting-style=shell-escape-always` in a UTF-8
        // locale.
        for (name, quoted) in [
            (&b"a"[..], "'a'"),
            (b"a b", "'a b'"),
            (b"it's", "\"it's\""),
            (b"it's $x", r"'it'\''s $x'"),
            (b"a\nb", r"'a'$'\n''b'"),
            (b"\n", r"''$'\n'"),
            (b"\x1b[31m", r"''$'\033''[31m'"),
            (b"\xff\xfe", r"''$'\377\376'"),
            ("é".as_bytes(), "'é'"),
            (b"a\\b", r"'a\b'"),
            (b"'\n", r"''\'''$'\n'"),
        ] {
            assert_eq!(text(name), quoted, "{name:?}");
        }
    }

    #[test]
    fn marks_that_reorder_text_are_escaped() {
        for mark in
            ['\u{61C}', '\u{200E}', '\u{200F}', '\u{2028}', '\u{2029}', '\u{202E}', '\u{2069}']
        {
            let name = format!("a{mark}b");
            let quoted = text(name.as_bytes());
            assert!(quoted.is_ascii() && quoted.starts_with("'a'$'"), "{quoted}");
        }
    }

    #[test]
    fn only_ascii_is_printable_in_the_locale_c() {
        struct InC<'a>(&'a [u8]);
        impl fmt::Display for InC<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write(self.0, true, f)
            }
        }
        // Generated with GNU coreutils 9.1 and LC_ALL=C.
        for (name, quoted) in [
            ("ä", r"''$'\303\244'"),
            ("ä b", r"''$'\303\244'' b'"),
            ("dä/ä", r"'d'$'\303\244''/'$'\303\244'"),
            ("it's", "\"it's\""),
            ("a", "'a'"),
        ] {
            assert_eq!(InC(name.as_bytes()).to_string(), quoted);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Verifies that a shell reads back the quoted name.
        #[test]
        fn a_shell_reads_the_name_back(name in proptest::collection::vec(1u8..=255, 1..24)) {
            let script = format!("printf %s {}", text(&name));
            let out = Command::new("bash").env("LC_ALL", "C").arg("-c").arg(script).output();
            prop_assert_eq!(out.unwrap().stdout, name);
        }

        #[test]
        fn nothing_unprintable_is_left(name in proptest::collection::vec(1u8..=255, 0..24)) {
            prop_assert!(text(&name).chars().all(is_printable));
        }
    }
}
