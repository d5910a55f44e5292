//! Exclude patterns with the semantics of GNU du.
//!
//! A pattern is matched against the whole path as printed, and against every suffix that starts
//! after a slash. So `*.o` excludes files with that suffix at any depth, and `a/b` excludes every
//! `b` inside an `a`. `*` and `?` also match a slash; `[a-z]`, `[!a-z]` and `[[:digit:]]` match one
//! character of a class; a backslash escapes the next character. Paths are bytes. A character is a
//! UTF-8 sequence in a UTF-8 locale if both the pattern and the compared part of the path are valid;
//! otherwise it is a byte, and no class contains bytes above 127. As in the C library, a sequence has up
//! to six bytes.
//!
//! Like GNU du, a pattern without wildcards is also matched after the first of two slashes, and an ill-formed
//! class matches nothing; nor does a pattern with wildcards that ends with a single backslash.
//!
//! Matching backtracks only to the last star, so it takes at most |pattern| × |path| steps.

mod named;

use named::Named;

/// One token of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A literal character.
    Is(u32),
    /// Any character.
    Any,
    /// Any number of characters, including none.
    Star,
    /// One character of a class.
    Class { negated: bool, members: Vec<Member> },
}

/// Matches nothing.
const NOTHING: Token = Token::Class { negated: false, members: Vec::new() };

/// A member of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    Range(u32, u32),
    Named(Named),
    /// Ends the class: no character matches that no earlier member has matched, not even if the class
    /// is negated.
    Invalid,
}

/// Offset added to invalid UTF-8 bytes to place their codes above all characters.
const RAW: u32 = 0x8000_0000;

/// What `?` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Characters {
    /// A UTF-8 sequence.
    #[default]
    Utf8,
    /// A byte, as in the locale `C`.
    Bytes,
}

/// A set of exclude patterns.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    patterns: Vec<Pattern>,
    characters: Characters,
    posix: bool,
}

/// A pattern, read in both ways.
#[derive(Debug, Clone)]
struct Pattern {
    /// `None` if it is not valid UTF-8 or the locale is another one.
    utf8: Option<Vec<Token>>,
    bytes: Vec<Token>,
    /// Whether it has no wildcards.
    plain: bool,
    /// As it was given.
    given: Box<[u8]>,
}

impl Pattern {
    /// Returns whether the pattern matches a text, of which `is_utf8` says whether it is valid UTF-8.
    fn matches(&self, text: &[u8], is_utf8: bool) -> bool {
        match &self.utf8 {
            Some(tokens) if is_utf8 && matches(tokens, text, Characters::Utf8) => true,
            // As in the C library, bytes are compared if characters do not match.
            _ => matches(&self.bytes, text, Characters::Bytes),
        }
    }
}

impl Exclude {
    /// Returns a set that excludes nothing and whose patterns are UTF-8.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a set that excludes nothing. With `posix`, `^` does not negate a class, as in the C library if
    /// `POSIXLY_CORRECT` is set.
    pub fn of(characters: Characters, posix: bool) -> Self {
        Self { patterns: Vec::new(), characters, posix }
    }

    /// Adds a pattern.
    pub fn add(&mut self, pattern: &[u8]) {
        let utf8 = self.characters == Characters::Utf8 && valid_from(pattern) == 0;
        let bytes = read_pattern(pattern, Characters::Bytes, self.posix);
        // An unclosed bracket becomes a literal character, but counts as a wildcard.
        let literal = bytes.iter().all(|token| matches!(token, Token::Is(_)));
        let plain = literal && !has_bracket(pattern);
        let utf8 = utf8.then(|| read_pattern(pattern, Characters::Utf8, self.posix));
        let given = pattern.into();
        let escapes = pattern.iter().rev().take_while(|byte| **byte == b'\\').count();
        if !plain && escapes % 2 == 1 {
            // With wildcards, a pattern that ends within an escape matches nothing.
            self.patterns.push(Pattern { utf8: None, bytes: vec![NOTHING], plain, given });
        } else {
            self.patterns.push(Pattern { utf8, bytes, plain, given });
        }
    }

    /// Returns the patterns as text; bytes that are not UTF-8 are escaped.
    pub fn texts(&self) -> Vec<String> {
        let text = |pattern: &Pattern| match std::str::from_utf8(&pattern.given) {
            Ok(text) => text.to_owned(),
            Err(_) => pattern.given.escape_ascii().to_string(),
        };
        self.patterns.iter().map(text).collect()
    }

    /// Returns true if there are no patterns. Callers then need not build paths.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns true if a path, as printed, is excluded.
    pub fn matches(&self, path: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        // Slashes are ASCII, so what begins after one is valid if nothing invalid follows.
        let valid_from = valid_from(path);
        self.patterns.iter().any(|pattern| {
            let mut starts = std::iter::once(0).chain((1..=path.len()).filter(|start| {
                let doubled = path.get(*start) == Some(&b'/');
                path[start - 1] == b'/' && (pattern.plain || !doubled)
            }));
            starts.any(|start| pattern.matches(&path[start..], start >= valid_from))
        })
    }
}

/// Returns whether a pattern has a bracket that is not escaped.
fn has_bracket(pattern: &[u8]) -> bool {
    let mut rest = pattern.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'[' => return true,
            b'\\' => drop(rest.next()),
            _ => {}
        }
    }
    false
}

/// Returns the end of the last byte that is not part of a character.
fn valid_from(bytes: &[u8]) -> usize {
    if std::str::from_utf8(bytes).is_ok() {
        return 0;
    }
    let (mut at, mut valid_from) = (0, 0);
    while at < bytes.len() {
        if let Some((_, length)) = decode(&bytes[at..]) {
            at += length;
        } else {
            at += 1;
            valid_from = at;
        }
    }
    valid_from
}

/// Decodes the first character. Like the C library, it accepts sequences of up to six bytes, beyond Unicode.
fn decode(bytes: &[u8]) -> Option<(u32, usize)> {
    let first = u32::from(bytes[0]);
    let (length, least): (usize, u32) = match first {
        0..0x80 => return Some((first, 1)),
        0xC2..0xE0 => (2, 0x80),
        0xE0..0xF0 => (3, 0x800),
        0xF0..0xF8 => (4, 0x1_0000),
        0xF8..0xFC => (5, 0x20_0000),
        0xFC..0xFE => (6, 0x400_0000),
        _ => return None,
    };
    let mut code = first & (0x7F_u32 >> length);
    for byte in bytes.get(1..length)? {
        if byte & 0xC0 != 0x80 {
            return None;
        }
        code = code << 6 | u32::from(byte & 0x3F);
    }
    (code >= least && !(0xD800..0xE000).contains(&code)).then_some((code, length))
}

/// Returns the first character and its length. Bytes above 127 get codes above all characters.
fn character(bytes: &[u8], characters: Characters) -> (u32, usize) {
    let first = bytes[0];
    let decoded = match characters {
        Characters::Utf8 => decode(bytes),
        Characters::Bytes => first.is_ascii().then_some((u32::from(first), 1)),
    };
    decoded.unwrap_or((RAW + u32::from(first), 1))
}

fn read_pattern(mut rest: &[u8], characters: Characters, posix: bool) -> Vec<Token> {
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        let (c, length) = character(rest, characters);
        let after = &rest[length..];
        rest = match rest[0] {
            b'*' => {
                if tokens.last() != Some(&Token::Star) {
                    tokens.push(Token::Star);
                }
                after
            }
            b'?' => {
                tokens.push(Token::Any);
                after
            }
            b'\\' if !after.is_empty() => {
                let (c, length) = character(after, characters);
                tokens.push(Token::Is(c));
                &after[length..]
            }
            b'[' => match read_class(after, characters, posix) {
                Some((class, after)) => {
                    tokens.push(class);
                    after
                }
                // An unclosed bracket is literal.
                None => {
                    tokens.push(Token::Is(c));
                    after
                }
            },
            _ => {
                tokens.push(Token::Is(c));
                after
            }
        };
    }
    tokens
}

/// Parses a class after its opening bracket; returns the class and the text after the closing
/// bracket, or `None` if it is not closed.
fn read_class(mut rest: &[u8], characters: Characters, posix: bool) -> Option<(Token, &[u8])> {
    let negated = rest.first().is_some_and(|c| *c == b'!' || *c == b'^' && !posix);
    if negated {
        rest = &rest[1..];
    }
    let mut members = Vec::new();
    let mut first = true;
    loop {
        if rest.first() == Some(&b']') && !first {
            return Some((Token::Class { negated, members }, &rest[1..]));
        }
        first = false;
        let (member, after) = match read_member(rest, characters) {
            Ok(read) => read,
            Err(Wrong::Unclosed) => return None,
            // The pattern matches nothing.
            Err(Wrong::Invalid) => return Some((NOTHING, b"")),
        };
        members.push(member);
        rest = after;
    }
}

/// Why a member of a class cannot be read.
enum Wrong {
    /// The pattern ends within the class.
    Unclosed,
    /// The pattern ends within an escape or a symbol.
    Invalid,
}

/// Parses a member of a class; returns it and the text after it.
fn read_member(rest: &[u8], characters: Characters) -> Result<(Member, &[u8]), Wrong> {
    if let Some(named) = read_named(rest) {
        return Ok(named);
    }
    if let Some(after) = rest.strip_prefix(b"[=").filter(|after| !after.is_empty()) {
        let (c, length) = character(after, characters);
        if let Some(after) = after[length..].strip_prefix(b"=]") {
            return Ok((Member::Range(c, c), after));
        }
    }
    let (low, after) = class_character(rest, characters)?;
    // A minus before the closing bracket is literal.
    let range = after.first() == Some(&b'-') && after.get(1).is_some_and(|b| *b != b']');
    let (high, end) = match range {
        true => class_character(&after[1..], characters)?,
        false => (low, after),
    };
    let member = match (low, high) {
        // The C library takes a symbol before a minus for the start of a range, and then finds none.
        (Some(_), _) if rest.starts_with(b"[.") && after.starts_with(b"-]") => Member::Range(1, 0),
        (Some(low), Some(high)) => Member::Range(low, high),
        _ => Member::Invalid,
    };
    Ok((member, end))
}

/// Parses a character of a class; returns it and the text after it. A symbol such as `[.a.]` is the character
/// in it; a symbol with a longer name is `None`.
fn class_character(rest: &[u8], characters: Characters) -> Result<(Option<u32>, &[u8]), Wrong> {
    if let Some(symbol) = rest.strip_prefix(b"[.") {
        let length = symbol.windows(2).position(|pair| pair == b".]").ok_or(Wrong::Invalid)?;
        let (name, after) = (&symbol[..length], &symbol[length + 2..]);
        let c = (!name.is_empty()).then(|| character(name, characters));
        return Ok((c.filter(|(_, own)| *own == length).map(|(c, _)| c), after));
    }
    let rest = match rest {
        [b'\\'] => return Err(Wrong::Invalid),
        [b'\\', after @ ..] => after,
        [] => return Err(Wrong::Unclosed),
        rest => rest,
    };
    let (c, length) = character(rest, characters);
    Ok((Some(c), &rest[length..]))
}

/// Parses `[:NAME:]`; returns `None` if it is not one. The C library does not take words with a `z` for names.
fn read_named(rest: &[u8]) -> Option<(Member, &[u8])> {
    let rest = rest.strip_prefix(b"[:")?;
    let length = rest.iter().take_while(|byte| (b'a'..=b'y').contains(*byte)).count();
    let after = rest[length..].strip_prefix(b":]")?;
    Some((Named::of(&rest[..length]).map_or(Member::Invalid, Member::Named), after))
}

fn one(token: &Token, c: u32) -> bool {
    match token {
        Token::Is(this) => *this == c,
        Token::Any => true,
        Token::Star => false,
        Token::Class { negated, members } => {
            let decides = members.iter().find(|member| match member {
                Member::Range(low, high) => (*low..=*high).contains(&c),
                Member::Named(named) => char::from_u32(c).is_some_and(|c| named.has(c)),
                Member::Invalid => true,
            });
            match decides {
                Some(Member::Invalid) => false,
                decides => decides.is_some() != *negated,
            }
        }
    }
}

fn matches(pattern: &[Token], text: &[u8], characters: Characters) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to resume if the last star must match one more character.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let (c, length) = character(&text[t..], characters);
        match pattern.get(p) {
            Some(Token::Star) => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(token) if one(token, c) => {
                p += 1;
                t += length;
            }
            _ => match star {
                Some((after, at)) => {
                    let at = at + character(&text[at..], characters).1;
                    (p, t) = (after, at);
                    star = Some((after, at));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|token| *token == Token::Star)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hit(pattern: &str, path: &str) -> bool {
        let mut exclude = Exclude::new();
        exclude.add(pattern.as_bytes());
        exclude.matches(path.as_bytes())
    }

    #[test]
    fn patterns_match_as_in_gnu_du() {
        for (pattern, path, expected) in [
            ("*.o", "t/a.o", true),
            ("*.o", "t/a.oo", false),
            ("a", "t/a", true),
            ("a", "t/ab", false),
            ("t/a", "t/a", true),
            ("t/a", "x/t/a", true),
            ("t/a", "xt/a", false),
            ("t*a", "t/x/y/a", true),
            ("a?c", "t/a/c", true),
            ("[ab]c", "t/bc", true),
            ("[!ab]c", "t/bc", false),
            ("[^ab]c", "t/xc", true),
            ("[]a]", "t/]", true),
            ("[a-]", "t/-", true),
            ("[[:digit:]]*", "t/7up", true),
            ("[[:digit:]]*", "t/up7", false),
            ("[a", "t/[a", true),
            ("\\*", "t/*", true),
            ("\\*", "t/x", false),
            ("?", "t/é", true),
            (".*", "t/.hidden", true),
            (".*", "./x", true),
            ("*", "", true),
            ("", "t", false),
            ("", "t/", true),
            ("", "t//", true),
            ("", "t/a", false),
            ("/a", "t//a", true),
            ("\\/a", "t//a", true),
            ("/?", "t//a", false),
            ("[/]a", "t//a", false),
            ("[[.a.]]", "t/a", true),
            ("[[.a.]]", "t/.", false),
            ("[[.a.]-c]", "t/b", true),
            ("[a-[.c.]]", "t/b", true),
            ("[[.a.]-]", "t/a", false),
            ("[[.a.]-]", "t/-", true),
            ("[[.].]]", "t/]", true),
            ("[[.é.]]", "t/é", true),
            ("[[.ab.]]", "t/a", false),
            ("[c[.ab.]]", "t/c", true),
            ("[!c[.ab.]]", "t/x", false),
            ("[a-[.ab.]]", "t/a", false),
            ("[c[.a", "t/[c[.a", false),
            ("[[=a=]]", "t/a", true),
            ("[![=a=]]", "t/b", true),
            ("[[=]=]]", "t/]", true),
            ("[[=a]", "t/=", true),
            ("[[:foo:]]", "t/f]", false),
            ("[![:foo:]]", "t/a", false),
            ("[c[:foo:]]", "t/c", true),
            ("[[:foz:]]", "t/f]", true),
            ("[[:a]", "t/:", true),
            ("[\\", "t/[\\", false),
            ("[a-\\", "t/[a-\\", false),
            ("*a\\", "t/a\\", false),
            ("*\\", "t/a\\", false),
            ("*\\\\", "t/a\\", true),
            ("a\\", "t/a\\", true),
        ] {
            assert_eq!(hit(pattern, path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_character_is_a_byte_outside_utf8() {
        // The results of GNU du 9.1 in the locales C and C.UTF-8.
        let cases: [(&[u8], &[u8], bool, bool); 19] = [
            ("??".as_bytes(), "éé".as_bytes(), false, true),
            ("??".as_bytes(), "日".as_bytes(), false, false),
            ("?".as_bytes(), "é".as_bytes(), false, true),
            ("??".as_bytes(), "é".as_bytes(), true, true),
            ("[é]".as_bytes(), "é".as_bytes(), false, true),
            ("[!b]".as_bytes(), "é".as_bytes(), false, true),
            ("[[:alpha:]]".as_bytes(), "é".as_bytes(), false, true),
            (b"?", b"\xff", true, true),
            (b"[[:alpha:]]", b"\xff", false, false),
            (b"[\xff]", b"\xff", true, true),
            (b"\xc3?", "é".as_bytes(), true, true),
            (b"[!\xc3]", "é".as_bytes(), false, false),
            (b"[\xc3]?", "é".as_bytes(), true, true),
            (b"?", b"\xf4\x90\x80\x80", false, true),
            (b"[!a]", b"\xf8\x88\x80\x80\x80", false, true),
            (b"[\xfc\x84\x80\x80\x80\x80]", b"\xfc\x84\x80\x80\x80\x80", false, true),
            (b"?", b"\xf8\x80\x80\x80\x80", false, false),
            (b"?", b"\xed\xa0\x80", false, false),
            (b"???", b"\xed\xa0\x80", true, true),
        ];
        for (pattern, name, bytes, utf8) in cases {
            for (characters, expected) in [(Characters::Bytes, bytes), (Characters::Utf8, utf8)] {
                let mut exclude = Exclude::of(characters, false);
                exclude.add(pattern);
                let path = [b"xxx/", name].concat();
                assert_eq!(exclude.matches(&path), expected, "{pattern:?} {characters:?}");
            }
        }
    }

    #[test]
    fn posix_has_no_caret_in_classes() {
        for (path, expected) in [("t/a", true), ("t/^", true), ("t/b", false)] {
            let mut exclude = Exclude::of(Characters::Utf8, true);
            exclude.add(b"[^a]");
            assert_eq!(exclude.matches(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn many_stars_match_quickly() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!hit(&pattern, &"a".repeat(4000)));
    }

    /// The reference definition of the semantics, as a recursion.
    fn oracle(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                oracle(&pattern[1..], text) || !text.is_empty() && oracle(pattern, &text[1..])
            }
            (Some(p), Some(t)) => (*p == b'?' || p == t) && oracle(&pattern[1..], &text[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn stars_agree_with_the_recursion(pattern in "[ab*?/]{0,7}", text in "[ab/]{0,9}") {
            let (p, t) = (pattern.as_bytes(), text.as_bytes());
            for how in [Characters::Utf8, Characters::Bytes] {
                prop_assert_eq!(matches(&read_pattern(p, how, false), t, how), oracle(p, t));
            }
        }
        #[test]
        fn no_bytes_panic(
            pattern in proptest::collection::vec(any::<u8>(), 0..30),
            path in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut exclude = Exclude::new();
            exclude.add(&pattern);
            exclude.matches(&path);
        }
    }
}
