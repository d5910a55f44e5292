//! The word by which a server knows those who may use it.

use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// The shortest token in bytes: 16 random letters and digits are beyond guessing.
const LEN_MIN: usize = 16;
/// The longest, so that it fits a request with room to spare.
const LEN_MAX: usize = 256;

/// A text that cannot be a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a token is {LEN_MIN} to {LEN_MAX} visible characters of ASCII without spaces")]
pub struct BadToken;

/// What a client must show before it is served. It never appears in a debug print.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// A token of this text.
    ///
    /// # Errors
    /// The text is too short, too long, or has other characters than visible ones of ASCII.
    pub fn new(text: &str) -> Result<Self, BadToken> {
        let fits = (LEN_MIN..=LEN_MAX).contains(&text.len());
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        if fits && visible { Ok(Self(Arc::from(text))) } else { Err(BadToken) }
    }

    /// Whether a word is the token. The time that this takes tells its length and nothing else.
    pub(crate) fn is(&self, word: &[u8]) -> bool {
        let differ = |sum: u8, (a, b): (&u8, &u8)| std::hint::black_box(sum | (a ^ b));
        let own = self.0.as_bytes();
        own.len() == word.len() && own.iter().zip(word).fold(0, differ) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_word_is_the_token() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for other in ["0123456789abcdeF", "0123456789abcde", "0123456789abcdef0", ""] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn what_cannot_be_shown_in_every_protocol_is_no_token() {
        for bad in ["", "short", "0123456789 abcdef", "0123456789abcdeé", "0123456789abcdef\n"] {
            assert_eq!(Token::new(bad), Err(BadToken), "{bad:?}");
        }
        assert!(Token::new(&"x".repeat(257)).is_err());
    }
}
