//! Typed flag values: parsed by clap, listed in errors and offered as completions.
//!
//! Invalid values are reported before any file is opened. Fixed sets of words are a [`Choice`];
//! values with a grammar use [`spelled`] or [`Grammar`], which call the `FromStr` of the type.

use crate::abbreviated::choice_of;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command};
use ioloom_model::{ParseError, units};
use ioloom_walk::{THREADS_MAX, Threads};
use std::ffi::OsStr;
use std::str::FromStr;
use std::time::Duration;

/// A parser for a fixed set of words.
#[derive(Clone)]
pub(crate) struct Choice<T> {
    words: Vec<(&'static str, T)>,
    /// Accepted but not listed or completed.
    hidden: Vec<(&'static str, T)>,
    /// The option of a GNU program: words can be abbreviated, and messages are GNU's.
    gnu: Option<&'static str>,
}

/// Accepts these words.
pub(crate) fn choice<T>(words: impl IntoIterator<Item = (&'static str, T)>) -> Choice<T> {
    Choice { words: words.into_iter().collect(), hidden: Vec::new(), gnu: None }
}

impl<T> Choice<T> {
    /// Also accepts these words without listing them.
    pub(crate) fn hidden(mut self, words: impl IntoIterator<Item = (&'static str, T)>) -> Self {
        self.hidden.extend(words);
        self
    }

    /// Accepts abbreviations and reports other words as a GNU program does for `option`.
    pub(crate) fn abbreviated(mut self, option: &'static str) -> Self {
        self.gnu = Some(option);
        self
    }
}

impl<T: Copy + PartialEq + Send + Sync + 'static> TypedValueParser for Choice<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let mut all = self.words.iter().chain(&self.hidden);
        if let Some((_, parsed)) = all.find(|(word, _)| value == *word) {
            return Ok(*parsed);
        }
        if let Some(option) = self.gnu {
            let chosen = choice_of(option, &value.to_string_lossy(), &self.words);
            return chosen.map_err(|message| {
                clap::Error::raw(clap::error::ErrorKind::ValueValidation, message)
            });
        }
        let listed = PossibleValuesParser::new(self.words.iter().map(|(word, _)| *word));
        Err(match listed.parse_ref(command, arg, value) {
            Err(error) => error,
            // Listed words were handled above.
            Ok(_) => clap::Error::new(clap::error::ErrorKind::InvalidValue).with_cmd(command),
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(|(word, _)| PossibleValue::new(*word))))
    }
}

/// A parser for values with a grammar, with some words that shells can complete.
#[derive(Clone)]
pub(crate) struct Grammar<T> {
    words: &'static [&'static str],
    parse: fn(&str) -> Result<T, String>,
}

/// Parses with `parse` and completes `words`.
pub(crate) const fn grammar<T>(
    words: &'static [&'static str],
    parse: fn(&str) -> Result<T, String>,
) -> Grammar<T> {
    Grammar { words, parse }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Grammar<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        self.parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().copied().map(PossibleValue::new)))
    }
}

/// Parses a `model` value, which has exactly one spelling.
pub(crate) fn spelled<T: FromStr<Err = ParseError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| reason(text, error))
}

/// Parses a thread count, or `auto`.
pub(crate) fn threads(text: &str) -> Result<Threads, String> {
    text.parse().map_err(|_| format!("must be 1 to {THREADS_MAX}, or auto"))
}

/// Parses a size in bytes, such as `64KiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    units::parse_size(text).map_err(|error| reason(text, error))
}

/// Parses a duration, such as `90s`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    units::parse_duration_ns(text).map(Duration::from_nanos).map_err(|error| reason(text, error))
}

/// Returns only the reason if the message already quotes the value.
pub(crate) fn reason(text: &str, error: ParseError) -> String {
    if error.text == text { error.reason } else { error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_words_are_accepted_and_not_listed() {
        let choice = choice([("a", 1), ("b", 2)]).hidden([("c", 3)]);
        let command = clap::Command::new("x");
        let parse = |text: &str| choice.parse_ref(&command, None, OsStr::new(text));
        assert_eq!(parse("b").unwrap(), 2);
        assert_eq!(parse("c").unwrap(), 3);
        assert!(parse("d").is_err());
        let listed: Vec<_> = choice.possible_values().unwrap().collect();
        assert_eq!(listed.len(), 2);
    }

    #[test]
    fn the_value_is_not_quoted_twice() {
        let error = size("1x").unwrap_err();
        assert!(!error.contains("1x"), "{error}");
        let error = spelled::<ioloom_model::Plan>("reed/threads:n=1").unwrap_err();
        assert!(error.contains("'reed'"), "{error}");
    }
}
