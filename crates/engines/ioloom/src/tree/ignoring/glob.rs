//! Patterns of ignore files, with the semantics of git. Patterns and paths are bytes.
//!
//! `*`, `?` and classes match no slash. `**` between slashes, or at an end of the pattern, matches any number
//! of directories; elsewhere it is `*`, as in git since 2.52: in earlier versions, `a**/b` also matches `ab`. A
//! pattern with a malformed class matches nothing.
//!
//! Matching backtracks to the last star and to the last `**`, so it takes at most |pattern| × |path|² steps.

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bytes([u64; 4]);

impl Bytes {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1_u64 << (byte & 63);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1_u64 << (byte & 63)) != 0
    }
}

/// One token of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Is(u8),
    /// Any byte except a slash.
    Any,
    /// A byte of a class.
    In(Bytes),
    /// Any number of bytes except slashes.
    Star,
    /// Any number of bytes.
    Deep,
    /// Nothing, or any number of bytes that end with a slash.
    DeepSlash,
}

impl Token {
    fn has(&self, byte: u8) -> bool {
        match self {
            Self::Is(this) => *this == byte,
            Self::Any => byte != b'/',
            Self::In(bytes) => byte != b'/' && bytes.has(byte),
            Self::Star | Self::Deep | Self::DeepSlash => false,
        }
    }
}

/// A pattern.
#[derive(Debug)]
pub(super) struct Glob {
    tokens: Vec<Token>,
}

impl Glob {
    /// Reads a pattern, which is compared with a path or, unless `of_path`, with a name. Returns `None` if it
    /// matches nothing.
    pub(super) fn read(pattern: &[u8], of_path: bool) -> Option<Self> {
        let mut tokens = Vec::with_capacity(pattern.len());
        let mut at = 0;
        while let Some(byte) = pattern.get(at) {
            let token = match *byte {
                b'*' => {
                    let stars = pattern[at..].iter().take_while(|byte| **byte == b'*').count();
                    let begins = at == 0 || pattern[at - 1] == b'/';
                    let deep = of_path && stars > 1 && begins;
                    at += stars;
                    match &pattern[at..] {
                        [b'/', ..] if deep => {
                            at += 1;
                            Token::DeepSlash
                        }
                        [] | [b'\\', b'/', ..] if deep => Token::Deep,
                        _ => Token::Star,
                    }
                }
                b'[' => {
                    let (bytes, end) = read_class(pattern, at + 1)?;
                    at = end;
                    Token::In(bytes)
                }
                b'\\' => {
                    at += 2;
                    Token::Is(*pattern.get(at - 1)?)
                }
                other => {
                    at += 1;
                    if other == b'?' { Token::Any } else { Token::Is(other) }
                }
            };
            tokens.push(token);
        }
        Some(Self { tokens })
    }

    /// Returns whether the pattern matches the whole text.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let (mut p, mut t) = (0, 0);
        // Where to resume if the last star must match one more byte.
        let mut star: Option<(usize, usize)> = None;
        // The last double star, and from where it must match more.
        let mut deep: Option<(usize, usize)> = None;
        loop {
            let token = self.tokens.get(p);
            if token == Some(&Token::Star) {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            if matches!(token, Some(Token::Deep | Token::DeepSlash)) {
                (star, deep) = (None, Some((p, t)));
                p += 1;
                continue;
            }
            // The stars match as little as they can: otherwise, even less text would be left.
            let Some(byte) = text.get(t) else { return token.is_none() };
            if token.is_some_and(|token| token.has(*byte)) {
                p += 1;
                t += 1;
            } else if let Some((after, from)) = star.filter(|(_, from)| text[*from] != b'/') {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            } else if let Some((double, from)) = deep {
                let Some(next) = self.more(double, &text[from..]) else { return false };
                (star, deep) = (None, Some((double, from + next)));
                (p, t) = (double + 1, from + next);
            } else {
                return false;
            }
        }
    }

    /// Returns how much more of the text a double star can match at least.
    fn more(&self, double: usize, text: &[u8]) -> Option<usize> {
        match self.tokens[double] {
            Token::Deep => Some(1),
            _ => text.iter().position(|byte| *byte == b'/').map(|slash| slash + 1),
        }
    }
}

/// Reads a class from after its opening bracket. Returns its bytes and the index after its closing bracket, or
/// `None` if it is malformed.
fn read_class(pattern: &[u8], mut at: usize) -> Option<(Bytes, usize)> {
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let first = at;
    let mut bytes = Bytes::default();
    // The byte before, if a range can begin with it.
    let mut low: Option<u8> = None;
    loop {
        let byte = *pattern.get(at)?;
        let next = pattern.get(at + 1).copied();
        low = match (byte, low) {
            (b']', _) if at > first => break,
            (b'\\', _) => {
                at += 1;
                bytes.add(next?);
                next
            }
            (b'-', Some(low)) if next.is_some_and(|next| next != b']') => {
                at += if next == Some(b'\\') { 2 } else { 1 };
                for byte in low..=*pattern.get(at)? {
                    bytes.add(byte);
                }
                None
            }
            (b'[', _) if next == Some(b':') => {
                let start = at + 2;
                let length = pattern[start..].iter().position(|byte| *byte == b']')?;
                if let Some(name) = pattern[start..start + length].strip_suffix(b":") {
                    add_named(name, &mut bytes)?;
                    at = start + length;
                    None
                } else {
                    bytes.add(byte);
                    Some(byte)
                }
            }
            _ => {
                bytes.add(byte);
                Some(byte)
            }
        };
        at += 1;
    }
    if negated {
        bytes = Bytes(bytes.0.map(|word| !word));
    }
    Some((bytes, at + 1))
}

/// Adds the bytes of a named class. Returns `None` if git does not know its name.
fn add_named(name: &[u8], bytes: &mut Bytes) -> Option<()> {
    for byte in 0..=u8::MAX {
        let has = match name {
            b"alnum" => byte.is_ascii_alphanumeric(),
            b"alpha" => byte.is_ascii_alphabetic(),
            b"blank" => matches!(byte, b' ' | b'\t'),
            b"cntrl" => byte.is_ascii_control(),
            b"digit" => byte.is_ascii_digit(),
            b"graph" => byte.is_ascii_graphic(),
            b"lower" => byte.is_ascii_lowercase(),
            b"print" => matches!(byte, b' '..=b'~'),
            b"punct" => byte.is_ascii_punctuation(),
            b"space" => matches!(byte, b' ' | b'\t' | b'\n' | b'\r'),
            b"upper" => byte.is_ascii_uppercase(),
            b"xdigit" => byte.is_ascii_hexdigit(),
            _ => return None,
        };
        if has {
            bytes.add(byte);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(pattern: &str, of_path: bool, texts: &[&str]) -> String {
        let glob = Glob::read(pattern.as_bytes(), of_path);
        let has = |text: &&&str| glob.as_ref().is_some_and(|glob| glob.matches(text.as_bytes()));
        texts.iter().filter(has).copied().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_match_as_in_git() {
        // The answers of git 2.39.
        let names = ["a", "ab", "b", "A", "1", "]", "\\", "-", "[a", "[:x", "\u{e9}", "1\n"];
        for (pattern, expected) in [
            ("a*", "a ab"),
            ("?", "a b A 1 ] \\ -"),
            ("??", "ab [a \u{e9} 1\n"),
            ("1[[:space:]]", "1\n"),
            ("[\\]]", "]"),
            ("[]-a]", "a ]"),
            ("[!]]", "a b A 1 \\ -"),
            ("[a-]", "a -"),
            ("[\\a-b]", "a b"),
            ("[c-a]", ""),
            ("[[:upper:]]", "A"),
            ("[^[:alpha:]]", "1 ] \\ -"),
            ("[[:foo:]]", ""),
            ("[[:x]*", "[a [:x"),
            ("[a", ""),
            ("\\[a", "[a"),
            ("a\\", ""),
            ("[\u{e9}][\u{e9}]", "\u{e9}"),
        ] {
            assert_eq!(matching(pattern, false, &names), expected, "{pattern}");
        }
    }

    #[test]
    fn paths_match_as_in_git() {
        let paths = ["b", "a/b", "a/x/b", "a/x/y/b", "ab/b", "x/a/b"];
        for (pattern, expected) in [
            ("a/b", "a/b"),
            ("*/b", "a/b ab/b"),
            ("**/b", "b a/b a/x/b a/x/y/b ab/b x/a/b"),
            ("a/**", "a/b a/x/b a/x/y/b"),
            ("a/**/b", "a/b a/x/b a/x/y/b"),
            // Not as in git 2.39.
            ("a**/b", "a/b ab/b"),
            ("*a**/b", "a/b ab/b"),
            ("a/?**/b", "a/x/b"),
            ("**/x/**/b", "a/x/b a/x/y/b x/a/b"),
            ("a[/]b", ""),
            ("a[!x]b", ""),
            ("a\\/b", "a/b"),
        ] {
            assert_eq!(matching(pattern, true, &paths), expected, "{pattern}");
        }
    }

    #[test]
    fn many_stars_end_soon() {
        let text = "a/".repeat(2000);
        for pattern in ["*a".repeat(500), "**/a/".repeat(500) + "b", "**/*a*a*".repeat(200) + "b"] {
            assert!(!Glob::read(pattern.as_bytes(), true).unwrap().matches(text.as_bytes()));
        }
    }
}
