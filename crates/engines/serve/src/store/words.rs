//! The words for a side and a refusal in tables that people look at.

use ioloom_exchange::{Refused, Side};

/// The word for a side.
pub(crate) fn side_word(side: Side) -> &'static str {
    match side {
        Side::Buy => "buy",
        Side::Sell => "sell",
    }
}

/// The word for a refusal.
pub(crate) fn refusal_word(why: Refused) -> &'static str {
    match why {
        Refused::NotEnough => "not-enough",
        Refused::UnknownStock => "unknown-stock",
        Refused::TooMany => "too-many",
    }
}

/// The refusal of a word, if it is one.
pub(crate) fn refusal_of(word: &str) -> Option<Refused> {
    [Refused::NotEnough, Refused::UnknownStock, Refused::TooMany]
        .into_iter()
        .find(|why| refusal_word(*why) == word)
}
