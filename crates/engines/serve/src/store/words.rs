//! Names of sides and refusals in tables.

use ioloom_exchange::{Refused, Side};

/// Returns the name of a side.
pub(crate) fn side_word(side: Side) -> &'static str {
    match side {
        Side::Buy => "buy",
        Side::Sell => "sell",
    }
}

/// Returns the name of a refusal.
pub(crate) fn refusal_word(why: Refused) -> &'static str {
    match why {
        Refused::NotEnough => "not-enough",
        Refused::UnknownStock => "unknown-stock",
        Refused::TooMany => "too-many",
    }
}

/// Returns the refusal with this name, if any.
pub(crate) fn refusal_of(word: &str) -> Option<Refused> {
    [Refused::NotEnough, Refused::UnknownStock, Refused::TooMany]
        .into_iter()
        .find(|why| refusal_word(*why) == word)
}
