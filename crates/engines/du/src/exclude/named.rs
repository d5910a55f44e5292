//! The named classes of patterns, such as `[:alpha:]`, as in the C library in a UTF-8 locale. Only characters that
//! Unicode has not assigned differ: here, they are punctuation.

/// A named class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Alnum,
    Alpha,
    Blank,
    Control,
    Digit,
    Graph,
    Lower,
    Print,
    Punct,
    Space,
    Upper,
    Hex,
}

const NAMED: [(&[u8], Named); 12] = [
    (b"alnum", Named::Alnum),
    (b"alpha", Named::Alpha),
    (b"blank", Named::Blank),
    (b"cntrl", Named::Control),
    (b"digit", Named::Digit),
    (b"graph", Named::Graph),
    (b"lower", Named::Lower),
    (b"print", Named::Print),
    (b"punct", Named::Punct),
    (b"space", Named::Space),
    (b"upper", Named::Upper),
    (b"xdigit", Named::Hex),
];

/// The zeros of the decimal digits beyond ASCII; the other nine digits follow each of them.
const ZEROS: [u32; 65] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6,
    0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50,
    0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
    0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650,
    0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50,
    0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

impl Named {
    /// Returns the class of a name.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, named)| *named)
    }

    pub(super) fn has(self, c: char) -> bool {
        match self {
            Self::Alnum => Self::Alpha.has(c) || c.is_ascii_digit(),
            // Digits of other scripts are letters.
            Self::Alpha => c.is_alphabetic() || is_other_digit(c),
            Self::Blank => c == '\t' || Self::Space.has(c) && !Self::Control.has(c),
            Self::Control => c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'),
            Self::Digit => c.is_ascii_digit(),
            Self::Graph => !Self::Space.has(c) && !Self::Control.has(c),
            Self::Lower => {
                c.is_lowercase() || matches!(c, '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}')
            }
            Self::Print => !Self::Control.has(c),
            Self::Punct => Self::Graph.has(c) && !Self::Alnum.has(c),
            // A space that prevents a line break, and the control character U+0085, are none.
            Self::Space => {
                let other = matches!(c, '\u{85}' | '\u{a0}' | '\u{2007}' | '\u{202f}');
                c.is_whitespace() && !other
            }
            Self::Upper => c.is_uppercase() || is_titlecase(c),
            Self::Hex => c.is_ascii_hexdigit(),
        }
    }
}

/// Returns whether a character is a decimal digit beyond ASCII.
fn is_other_digit(c: char) -> bool {
    let code = u32::from(c);
    let zeros = ZEROS.partition_point(|zero| *zero <= code);
    zeros > 0 && code - ZEROS[zeros - 1] < 10
}

/// Returns whether a character is a letter in title case.
const fn is_titlecase(c: char) -> bool {
    matches!(
        c,
        '\u{1c5}'
            | '\u{1c8}'
            | '\u{1cb}'
            | '\u{1f2}'
            | '\u{1f88}'..='\u{1f8f}'
            | '\u{1f98}'..='\u{1f9f}'
            | '\u{1fa8}'..='\u{1faf}'
            | '\u{1fbc}'
            | '\u{1fcc}'
            | '\u{1ffc}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_characters_of_the_c_library() {
        // The results of GNU du 9.1 with glibc 2.36.
        for (c, classes) in [
            ('f', "alnum alpha graph lower print xdigit"),
            ('1', "alnum digit graph print xdigit"),
            (' ', "blank print space"),
            ('\t', "blank cntrl space"),
            ('\u{85}', "cntrl"),
            ('\u{a0}', "graph print punct"),
            ('\u{b2}', "graph print punct"),
            ('\u{1c5}', "alnum alpha graph lower print upper"),
            ('\u{1f88}', "alnum alpha graph print upper"),
            ('\u{300}', "graph print punct"),
            ('\u{661}', "alnum alpha graph print"),
            ('\u{2003}', "blank print space"),
            ('\u{2028}', "cntrl space"),
            ('\u{e000}', "graph print punct"),
            ('\u{fffd}', "graph print punct"),
        ] {
            let has = NAMED.iter().filter(|(_, named)| named.has(c));
            let has: Vec<&str> = has.map(|(name, _)| std::str::from_utf8(name).unwrap()).collect();
            assert_eq!(has.join(" "), classes, "{c:?}");
        }
    }
}
