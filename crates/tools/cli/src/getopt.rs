//! Splits a command line into options and operands by the rules of `getopt_long`.
//!
//! `cp` and `du` accept what scripts pass to the GNU programs, which clap parses differently:
//! abbreviated long options, repeated options of which the last one counts, and options after
//! operands unless `POSIXLY_CORRECT` is set. The words are split here, in order, and clap then sees
//! only whole long options. An abbreviation is looked up among the options of the GNU program
//! first, so new options of ours never make an old script ambiguous.

use crate::out::readable;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Whether an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// Only in the same word: `--time=WORD`.
    Optional,
    Required,
}

/// One option.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// Its name in the result: the long name, or the letter if it has none.
    name: String,
    /// Its long name and the aliases of that.
    longs: Vec<String>,
    letters: Vec<char>,
    takes: Takes,
}

/// The options of a command.
#[derive(Debug)]
pub(crate) struct Options {
    known: Vec<Known>,
    /// The long names that the GNU program has, in its order.
    gnu: &'static [&'static str],
}

/// A word of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    Option {
        /// The long name, or the letter if the option has none.
        name: String,
        value: Option<OsString>,
        /// How messages name it: `--threshold`, or `-t` if it was given as a letter.
        shown: String,
    },
    Operand(OsString),
    /// The message about an invalid word or letter.
    Wrong(String),
}

impl Options {
    /// Takes the options of a clap command. `gnu` lists the long options of the GNU program in the
    /// order in which its messages list them.
    pub(crate) fn of(command: &clap::Command, gnu: &'static [&'static str]) -> Self {
        let known = command.get_arguments().filter(|arg| !arg.is_positional());
        let known = known.map(|arg| {
            let mut longs: Vec<String> = arg.get_long().into_iter().map(str::to_owned).collect();
            longs.extend(arg.get_all_aliases().unwrap_or_default().into_iter().map(str::to_owned));
            let mut letters: Vec<char> = arg.get_short().into_iter().collect();
            letters.extend(arg.get_all_short_aliases().unwrap_or_default());
            let name = longs.first().cloned().unwrap_or_else(|| letters.iter().collect());
            let at_least = arg.get_num_args().map_or(1, |range| range.min_values());
            let takes = match (arg.get_action().takes_values(), at_least) {
                (false, _) => Takes::Nothing,
                (true, 0) => Takes::Optional,
                (true, _) => Takes::Required,
            };
            Known { name, longs, letters, takes }
        });
        Self { known: known.collect(), gnu }
    }

    /// Like [`Self::words`]. Returns the words, or a message for each invalid one.
    pub(crate) fn split(
        &self,
        words: impl IntoIterator<Item = OsString>,
        posix: bool,
    ) -> Result<Vec<Word>, Vec<String>> {
        let words = self.words(words, posix);
        let wrong = words.iter().filter_map(|word| match word {
            Word::Wrong(message) => Some(message.clone()),
            _ => None,
        });
        let wrong: Vec<String> = wrong.collect();
        if wrong.is_empty() { Ok(words) } else { Err(wrong) }
    }

    /// Splits the words after the name of the command, in order. With `posix`, the first operand ends the options.
    pub(crate) fn words(
        &self,
        words: impl IntoIterator<Item = OsString>,
        posix: bool,
    ) -> Vec<Word> {
        let mut found = Vec::new();
        let mut words = words.into_iter();
        let mut only_operands = false;
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            if only_operands || bytes == b"-" || !bytes.starts_with(b"-") {
                only_operands |= posix;
                found.push(Word::Operand(word));
            } else if bytes == b"--" {
                only_operands = true;
            } else {
                match bytes.strip_prefix(b"--") {
                    Some(long) => {
                        found.push(self.long(long, &mut words).unwrap_or_else(Word::Wrong));
                    }
                    None => self.letters(&bytes[1..], &mut words, &mut found),
                }
            }
        }
        found
    }

    fn long(&self, word: &[u8], more: &mut impl Iterator<Item = OsString>) -> Result<Word, String> {
        let (name, value) = match word.iter().position(|b| *b == b'=') {
            Some(at) => (&word[..at], Some(OsString::from_vec(word[at + 1..].to_vec()))),
            None => (word, None),
        };
        let (option, long) = self.find(name, word)?;
        let shown = format!("--{long}");
        let value = match (option.takes, value) {
            (Takes::Nothing, Some(_)) => {
                return Err(format!("option '{shown}' doesn't allow an argument"));
            }
            (Takes::Required, None) => {
                Some(more.next().ok_or_else(|| format!("option '{shown}' requires an argument"))?)
            }
            (_, value) => value,
        };
        Ok(Word::Option { name: option.name.clone(), value, shown })
    }

    /// Finds a long option by its name or by the start of its name, and returns the whole name.
    /// Messages show the whole word.
    fn find(&self, name: &[u8], word: &[u8]) -> Result<(&Known, &str), String> {
        let named = |option: &'_ Known| option.longs.iter().any(|long| long.as_bytes() == name);
        if let Some(option) = self.known.iter().find(|option| named(option)) {
            let long = option.longs.iter().find(|long| long.as_bytes() == name);
            return Ok((option, long.map_or(&*option.name, String::as_str)));
        }
        let pairs = self.known.iter().flat_map(|of| of.longs.iter().map(move |long| (of, &**long)));
        let all: Vec<_> = pairs.filter(|(_, long)| long.as_bytes().starts_with(name)).collect();
        let place = |long: &str| self.gnu.iter().position(|gnu| *gnu == long);
        let mut found: Vec<_> = all.iter().copied().filter(|of| place(of.1).is_some()).collect();
        found.sort_by_key(|of| place(of.1));
        let found = if found.is_empty() { all } else { found };
        let shown = readable(word);
        match found[..] {
            [] => Err(format!("unrecognized option '--{shown}'")),
            // Several names of one option are not ambiguous.
            [first, ref more @ ..] if more.iter().all(|(option, _)| *option == first.0) => {
                Ok(first)
            }
            _ => {
                let names: String = found.iter().map(|(_, long)| format!(" '--{long}'")).collect();
                Err(format!("option '--{shown}' is ambiguous; possibilities:{names}"))
            }
        }
    }

    /// Splits a word of letters, the last of which may have a value.
    fn letters(
        &self,
        letters: &[u8],
        more: &mut impl Iterator<Item = OsString>,
        found: &mut Vec<Word>,
    ) {
        let mut rest = letters;
        while !rest.is_empty() {
            let (letter, length) = first_letter(rest);
            let shown = readable(&rest[..length]);
            rest = &rest[length..];
            let known = |option: &&Known| letter.is_some_and(|c| option.letters.contains(&c));
            let (Some(letter), Some(option)) = (letter, self.known.iter().find(known)) else {
                found.push(Word::Wrong(format!("invalid option -- '{shown}'")));
                continue;
            };
            let (name, shown) = (option.name.clone(), format!("-{letter}"));
            if option.takes != Takes::Required {
                found.push(Word::Option { name, value: None, shown });
                continue;
            }
            let value = match rest {
                [] => more.next(),
                rest => Some(OsString::from_vec(rest.to_vec())),
            };
            found.push(match value {
                Some(_) => Word::Option { name, value, shown },
                None => Word::Wrong(format!("option requires an argument -- '{letter}'")),
            });
            return;
        }
    }
}

/// Returns the first character, or `None` for a byte that is not UTF-8, and its length.
fn first_letter(letters: &[u8]) -> (Option<char>, usize) {
    let valid = letters[..letters.len().min(4)]
        .utf8_chunks()
        .next()
        .and_then(|chunk| chunk.valid().chars().next());
    (valid, valid.map_or(1, char::len_utf8))
}

/// Returns the words for clap: each option on its own with its value, then the operands after `--`.
pub(crate) fn whole(words: Vec<Word>) -> Vec<OsString> {
    let (mut options, mut operands) = (Vec::new(), vec![OsString::from("--")]);
    for word in words {
        match word {
            Word::Wrong(_) => {}
            Word::Operand(operand) => operands.push(operand),
            Word::Option { value: None, shown, .. } => options.push(shown.into()),
            Word::Option { value: Some(value), mut shown, .. } => {
                // clap strips one `=` after a letter, too.
                shown.push('=');
                let mut option = OsString::from(shown);
                option.push(value);
                options.push(option);
            }
        }
    }
    options.append(&mut operands);
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};

    fn options() -> Options {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let command = clap::Command::new("x")
            .arg(flag("all").short('a'))
            .arg(flag("threads-auto"))
            .arg(Arg::new("threshold").long("threshold").short('t'))
            .arg(Arg::new("time").long("time").num_args(0..=1))
            .arg(Arg::new("time-style").long("time-style"))
            .arg(flag("use").alias("utility"))
            .arg(Arg::new("kib").short('k').action(ArgAction::SetTrue))
            .arg(Arg::new("paths").num_args(0..));
        Options::of(&command, &["all", "use", "utility", "time-style", "threshold", "time"])
    }

    /// Returns each word as `name=value` or the operand, or the messages.
    fn split(words: &[&str], posix: bool) -> Vec<String> {
        match options().split(words.iter().map(OsString::from), posix) {
            Err(messages) => messages,
            Ok(words) => words
                .into_iter()
                .map(|word| match word {
                    Word::Operand(operand) => operand.into_string().unwrap(),
                    Word::Wrong(message) => message,
                    Word::Option { name, value: None, .. } => format!("-{name}"),
                    Word::Option { name, value: Some(value), shown } => {
                        format!("-{name}={} ({shown})", value.into_string().unwrap())
                    }
                })
                .collect(),
        }
    }

    #[test]
    fn words_are_split_as_getopt_long_splits_them() {
        for (words, expected) in [
            (&["f", "-ak", "g"][..], &["f", "-all", "-k", "g"][..]),
            (&["-at5", "-t", "6"], &["-all", "-threshold=5 (-t)", "-threshold=6 (-t)"]),
            (
                &["--th=-4", "--th", "-7"],
                &["-threshold=-4 (--threshold)", "-threshold=-7 (--threshold)"],
            ),
            (&["--time", "x", "--time=y"], &["-time", "x", "-time=y (--time)"]),
            (&["--threa", "-", "--", "-a"], &["-threads-auto", "-", "-a"]),
            (&["--ti"], &["option '--ti' is ambiguous; possibilities: '--time-style' '--time'"]),
            (
                &["--ti=1"],
                &["option '--ti=1' is ambiguous; possibilities: '--time-style' '--time'"],
            ),
            (&["--u", "--utility"], &["-use", "-use"]),
            (
                &["--q", "-qa", "-t"],
                &[
                    "unrecognized option '--q'",
                    "invalid option -- 'q'",
                    "option requires an argument -- 't'",
                ],
            ),
            (
                &["-qaz5", "-t"],
                &[
                    "invalid option -- 'q'",
                    "invalid option -- 'z'",
                    "invalid option -- '5'",
                    "option requires an argument -- 't'",
                ],
            ),
            (&["-éa", "-aü"], &["invalid option -- 'é'", "invalid option -- 'ü'"]),
            (&["--all=1"], &["option '--all' doesn't allow an argument"]),
            (&["--util=1"], &["option '--utility' doesn't allow an argument"]),
            (&["--threshold"], &["option '--threshold' requires an argument"]),
            (&["--"], &[]),
            (&["", "-a"], &["", "-all"]),
        ] {
            assert_eq!(split(words, false), expected, "{words:?}");
        }
    }

    #[test]
    fn a_byte_that_is_not_a_character_is_one_letter() {
        let word = OsString::from_vec(b"-\xe9a\xff".to_vec());
        let wrong = "invalid option -- '\u{FFFD}'".to_owned();
        assert_eq!(options().split([word], false), Err(vec![wrong.clone(), wrong]));
    }

    #[test]
    fn the_first_operand_ends_the_options_of_posix() {
        assert_eq!(split(&["-a", "f", "-a"], true), ["-all", "f", "-a"]);
        assert_eq!(split(&["-a", "f", "-a"], false), ["-all", "f", "-all"]);
    }
    #[test]
    fn clap_gets_whole_options_and_then_operands() {
        let words = ["-at", "", "x", "--th", "-7", "-t=-", "--util", "--", "-a"];
        let words = options().split(words.map(OsString::from), false).unwrap();
        let expected = ["-a", "-t=", "--threshold=-7", "-t==-", "--utility", "--", "x", "-a"];
        assert_eq!(whole(words), expected);
    }
}
