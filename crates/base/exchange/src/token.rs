//! The tokens that authorize clients.

use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Minimum length in bytes: 16 random letters and digits cannot be guessed.
const LEN_MIN: usize = 16;
/// Maximum length in bytes; leaves room for the rest of a request.
const LEN_MAX: usize = 256;

/// The text is not a valid token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a token must be {LEN_MIN} to {LEN_MAX} visible ASCII characters without spaces")]
pub struct BadToken;

/// Token that clients must present. Debug output never shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// Creates a token from text.
    pub fn new(text: &str) -> Result<Self, BadToken> {
        let fits = (LEN_MIN..=LEN_MAX).contains(&text.len());
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        if fits && visible { Ok(Self(Arc::from(text))) } else { Err(BadToken) }
    }

    /// Compares a word with the token in constant time. Only the length can be inferred.
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

/// What a token permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rights {
    /// Orders, lists and monitoring.
    #[default]
    Trade,
    /// Lists and monitoring only.
    Read,
}

/// The tokens of a server; clients must present one of them.
#[derive(Debug, Clone)]
pub struct Access(Arc<[(Token, Rights)]>);

impl Access {
    /// Creates the set of tokens. Without any, no client would be served.
    pub fn new(tokens: Vec<(Token, Rights)>) -> Option<Self> {
        (!tokens.is_empty()).then(|| Self(tokens.into()))
    }

    /// Returns the rights of a token. Compares all tokens, so the time reveals nothing about which
    /// one is similar.
    pub(crate) fn rights(&self, word: &[u8]) -> Option<Rights> {
        let all = self.0.iter();
        all.fold(None, |found, (token, rights)| {
            let is_it = token.is(word);
            found.or(is_it.then_some(*rights))
        })
    }
}

impl From<Token> for Access {
    fn from(token: Token) -> Self {
        Self(Arc::new([(token, Rights::Trade)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exact_match_is_accepted() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for other in ["0123456789abcdeF", "0123456789abcde", "0123456789abcdef0", ""] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn tokens_that_some_protocol_cannot_carry_are_rejected() {
        for bad in ["", "short", "0123456789 abcdef", "0123456789abcdeé", "0123456789abcdef\n"] {
            assert_eq!(Token::new(bad), Err(BadToken), "{bad:?}");
        }
        assert!(Token::new(&"x".repeat(257)).is_err());
    }
}
