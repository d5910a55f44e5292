//! What the options of GNU du mean together, in the order given.
//!
//! Of several options about the same thing the last one counts, `-b` sets two things of which `-k`
//! changes one, and the environment gives defaults. clap keeps no such order, so the words are read
//! here, before it. Messages and their order are GNU's; each error ends the program with code 1.

use super::patterns;
use super::size::{self, Spelling, Wrong};
use super::time::{self, TimeFormat};
use crate::exit::{Exit, Failure};
use crate::getopt::{self, Options, Word};
use crate::{out, stderr, usage};
use ioloom_du::exclude::Exclude;
use ioloom_du::scan::Time;
use ioloom_walk::Follow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The long options of GNU du, in its order.
const GNU: [&str; 25] = [
    "all",
    "apparent-size",
    "block-size",
    "bytes",
    "count-links",
    "dereference",
    "dereference-args",
    "exclude",
    "exclude-from",
    "files0-from",
    "human-readable",
    "inodes",
    "si",
    "max-depth",
    "null",
    "no-dereference",
    "one-file-system",
    "separate-dirs",
    "summarize",
    "total",
    "threshold",
    "time",
    "time-style",
    "help",
    "version",
];
/// The variables that GNU du reads.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub(crate) posix: bool,
    /// `DU_BLOCK_SIZE`, `BLOCK_SIZE` or `BLOCKSIZE`, the first that is set.
    block_size: Option<OsString>,
    time_style: Option<String>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let names = ["DU_BLOCK_SIZE", "BLOCK_SIZE", "BLOCKSIZE"];
        Self {
            posix: std::env::var_os("POSIXLY_CORRECT").is_some(),
            block_size: names.iter().find_map(std::env::var_os),
            time_style: std::env::var_os("TIME_STYLE").map(|s| s.to_string_lossy().into_owned()),
        }
    }

    fn spelling(&self) -> Spelling {
        let default = if self.posix { 512 } else { 1024 };
        match &self.block_size {
            Some(text) => Spelling::parse(text.as_bytes(), default).0,
            None => Spelling::units(default),
        }
    }
}

/// The range of sizes shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Threshold {
    #[default]
    None,
    AtLeast(u64),
    AtMost(u64),
}

impl Threshold {
    /// Returns whether entries of this size are shown.
    pub(crate) fn shows(self, value: u64) -> bool {
        match self {
            Self::None => true,
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

/// The options of GNU du whose order matters, or whose values have GNU's spelling.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    pub(super) spelling: Spelling,
    /// Whether an option, and not only the environment or the default, gives the spelling.
    pub(super) spelling_given: bool,
    pub(super) apparent: bool,
    pub(super) follow: FollowChoice,
    pub(super) max_depth: Option<u64>,
    pub(super) threshold: Threshold,
    pub(super) time: Option<(Time, TimeFormat)>,
    /// `None` without patterns.
    pub(super) exclude: Option<Exclude>,
}

/// [`Follow`], with the default of du.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FollowChoice(pub(super) Follow);

impl Default for FollowChoice {
    fn default() -> Self {
        Self(Follow::Never)
    }
}

/// The words of a command line, read.
#[derive(Debug)]
pub(crate) struct CommandLine {
    /// The same options for clap: whole long options first, then operands.
    pub(crate) words: Vec<OsString>,
    pub(crate) choices: Choices,
}

/// Messages for standard error; the last may be followed by a hint at the help.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    messages: Vec<String>,
    hint: bool,
}

impl Refusal {
    fn of(message: String, hint: bool) -> Self {
        Self { messages: vec![message], hint }
    }
}

impl From<Refusal> for Failure {
    /// Prints all but the last message.
    fn from(refusal: Refusal) -> Self {
        let mut messages = refusal.messages;
        let mut last = messages.pop().unwrap_or_default();
        messages.iter().for_each(|message| stderr::message(message));
        if refusal.hint {
            last = hinted(&last);
        }
        Self::new(Exit::Failed, last)
    }
}

/// Adds the hint at the help to a message.
pub(super) fn hinted(message: &str) -> String {
    usage::with_hint(message, "du")
}

/// Reads the words after `du`. `command` defines the options. Warnings are printed.
pub(crate) fn read(
    command: &clap::Command,
    words: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<CommandLine, Failure> {
    let words = Options::of(command, &GNU).words(words, environment.posix);
    let asks = |word: &Word| matches!(word, Word::Option { name, .. } if name == "help" || name == "version");
    let (choices, messages) = match words.iter().position(asks) {
        // The rest is not read.
        Some(end) => (Choices::default(), Reading::of(&words[..end], environment)?.wrong),
        None => choose(&words, environment)?,
    };
    messages.iter().for_each(|message| stderr::message(message));
    Ok(CommandLine { words: getopt::whole(words), choices })
}

/// The options while they are read.
#[derive(Default)]
struct Reading {
    choices: Choices,
    all: bool,
    summarize: bool,
    inodes: bool,
    time: Option<Time>,
    style: Option<String>,
    wrong: Vec<String>,
}

/// Returns the choices and the warnings.
fn choose(words: &[Word], environment: &Environment) -> Result<(Choices, Vec<String>), Refusal> {
    Reading::of(words, environment)?.finish(environment)
}

impl Reading {
    /// Reads words up to one whose error ends GNU du at once; the messages before it are then part of the refusal.
    fn of(words: &[Word], environment: &Environment) -> Result<Self, Refusal> {
        let mut reading = Self::default();
        reading.choices.spelling = environment.spelling();
        for word in words {
            let taken = match word {
                Word::Option { name, value, shown } => {
                    reading.take(name, value.as_deref().unwrap_or_default(), shown, value.is_some())
                }
                Word::Wrong(message) => {
                    reading.wrong.push(message.clone());
                    Ok(())
                }
                Word::Operand(_) => Ok(()),
            };
            if let Err(Refusal { messages, hint }) = taken {
                reading.wrong.extend(messages);
                return Err(Refusal { messages: reading.wrong, hint });
            }
        }
        Ok(reading)
    }

    fn take(
        &mut self,
        name: &str,
        value: &OsStr,
        shown: &str,
        has_value: bool,
    ) -> Result<(), Refusal> {
        let (text, readable) = (value.to_string_lossy(), out::readable(value.as_bytes()));
        let fatal = |wrong: Wrong| Refusal::of(wrong.message(shown, &readable), false);
        let choices = &mut self.choices;
        choices.spelling_given |=
            matches!(name, "bytes" | "human-readable" | "si" | "k" | "m" | "block-size");
        match name {
            "all" => self.all = true,
            "summarize" => self.summarize = true,
            "inodes" => self.inodes = true,
            "apparent-size" => choices.apparent = true,
            "bytes" => {
                choices.apparent = true;
                choices.spelling = Spelling::units(1);
            }
            "human-readable" => choices.spelling = Spelling::Letter(1024),
            "si" => choices.spelling = Spelling::Letter(1000),
            "k" => choices.spelling = Spelling::units(1 << 10),
            "m" => choices.spelling = Spelling::units(1 << 20),
            "block-size" => {
                let (spelling, wrong) = Spelling::parse(value.as_bytes(), 0);
                if let Some(wrong) = wrong {
                    return Err(fatal(wrong));
                }
                choices.spelling = spelling;
            }
            "exclude" => choices.exclude.get_or_insert_with(patterns::none).add(value.as_bytes()),
            "exclude-from" => {
                let exclude = choices.exclude.get_or_insert_with(patterns::none);
                self.wrong.extend(patterns::add_from(exclude, Path::new(value)).err());
            }
            "dereference" => choices.follow.0 = Follow::Always,
            "dereference-args" => choices.follow.0 = Follow::Roots,
            "no-dereference" => choices.follow.0 = Follow::Never,
            "threshold" => {
                choices.threshold = match size::threshold(value.as_bytes()).map_err(fatal)? {
                    0 if text.starts_with('-') => {
                        let message = "invalid --threshold argument '-0'".to_owned();
                        return Err(Refusal::of(message, false));
                    }
                    least if least >= 0 => Threshold::AtLeast(least.unsigned_abs()),
                    most => Threshold::AtMost(most.unsigned_abs()),
                };
            }
            "max-depth" => match size::plain(value.as_bytes()) {
                Some(depth) => choices.max_depth = Some(depth),
                None => self.wrong.push(format!("invalid maximum depth '{readable}'")),
            },
            "time" => {
                let time = if has_value { time::word(&text) } else { Ok(Time::Modified) };
                self.time = Some(time.map_err(|message| Refusal::of(message, true))?);
            }
            "time-style" => self.style = Some(text.into_owned()),
            _ => {}
        }
        Ok(())
    }

    fn finish(self, environment: &Environment) -> Result<(Choices, Vec<String>), Refusal> {
        let mut choices = self.choices;
        let mut warnings = Vec::new();
        if !self.wrong.is_empty() {
            return Err(Refusal { messages: self.wrong, hint: true });
        }
        if self.all && self.summarize {
            let message = "cannot both summarize and show all entries".to_owned();
            return Err(Refusal::of(message, true));
        }
        match choices.max_depth.filter(|_| self.summarize) {
            None => {}
            Some(0) => {
                warnings.push("warning: summarizing is the same as using --max-depth=0".to_owned())
            }
            Some(depth) => {
                let message = format!("warning: summarizing conflicts with --max-depth={depth}");
                return Err(Refusal::of(message, true));
            }
        }
        if self.summarize {
            choices.max_depth = Some(0);
        }
        if self.inodes {
            if choices.apparent {
                let text = "warning: options --apparent-size and -b are ineffective with --inodes";
                warnings.push(text.to_owned());
            }
            choices.spelling = choices.spelling.of_inodes();
        }
        if let Some(time) = self.time {
            let format = TimeFormat::new(self.style.as_deref(), environment.time_style.as_deref());
            let refusal = |message| {
                let messages = warnings.iter().cloned().chain([message]).collect();
                Refusal { messages, hint: true }
            };
            choices.time = Some((time, format.map_err(refusal)?));
        }
        Ok((choices, warnings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits words at spaces and reads them.
    fn chosen(line: &str, environment: &Environment) -> Result<(Choices, Vec<String>), Refusal> {
        let command = <super::super::DuArgs as clap::Args>::augment_args(clap::Command::new("du"));
        let words = line.split_whitespace().map(OsString::from);
        choose(&Options::of(&command, &GNU).words(words, false), environment)
    }

    fn plain(line: &str) -> Choices {
        chosen(line, &Environment::default()).unwrap().0
    }

    #[test]
    fn of_several_units_the_last_one_counts() {
        for (line, spelling, apparent) in [
            ("", Spelling::units(1024), false),
            ("-b -k", Spelling::units(1024), true),
            ("-k -b", Spelling::units(1), true),
            ("-bh", Spelling::Letter(1024), true),
            ("-hb", Spelling::units(1), true),
            ("-h --si", Spelling::Letter(1000), false),
            ("--si -hm", Spelling::units(1 << 20), false),
            ("-h -B 5", Spelling::units(5), false),
            ("-A -B si", Spelling::Letter(1000), true),
            ("--bl=M", Spelling::Units(1 << 20, "M".to_owned()), false),
            ("--inodes -BM", Spelling::units(1), false),
            ("--inodes -h", Spelling::Letter(1024), false),
        ] {
            let choices = plain(line);
            assert_eq!((choices.spelling, choices.apparent), (spelling, apparent), "{line}");
        }
    }

    #[test]
    fn of_several_ways_to_follow_links_the_last_one_counts() {
        for (line, follow) in [
            ("", Follow::Never),
            ("-L", Follow::Always),
            ("-LP", Follow::Never),
            ("-LD", Follow::Roots),
            ("-H", Follow::Roots),
            ("-DL", Follow::Always),
            ("--deref", Follow::Always),
        ] {
            // `--deref` is ambiguous in GNU du, too.
            match chosen(line, &Environment::default()) {
                Ok((choices, _)) => assert_eq!(choices.follow.0, follow, "{line}"),
                Err(refusal) => assert!(line == "--deref", "{line}: {refusal:?}"),
            }
        }
    }

    #[test]
    fn the_environment_gives_defaults() {
        let with = |posix, block: Option<&str>| Environment {
            posix,
            block_size: block.map(OsString::from),
            time_style: None,
        };
        for (environment, line, expected) in [
            (with(true, None), "", Spelling::units(512)),
            (with(true, Some("1")), "", Spelling::units(1)),
            (with(false, Some("si")), "", Spelling::Letter(1000)),
            (with(false, Some("si")), "-k", Spelling::units(1024)),
            (with(false, Some("x")), "", Spelling::units(1024)),
            (with(true, Some("0")), "", Spelling::units(512)),
        ] {
            let spelling = chosen(line, &environment).unwrap().0.spelling;
            assert_eq!(spelling, expected, "{environment:?} {line}");
        }
    }

    #[test]
    fn messages_are_those_of_gnu_du() {
        let message = |line: &str| match chosen(line, &Environment::default()) {
            Err(refusal) => (refusal.messages.join("|"), refusal.hint),
            Ok((_, warnings)) => (warnings.join("|"), false),
        };
        for (line, text, hint) in [
            ("--th=SIZE", "invalid --threshold argument 'SIZE'", false),
            ("-t SIZE", "invalid -t argument 'SIZE'", false),
            ("-t-0", "invalid --threshold argument '-0'", false),
            ("--threshold=", "invalid --threshold argument ''", false),
            ("-B 5q", "invalid suffix in -B argument '5q'", false),
            ("--block=0", "invalid --block-size argument '0'", false),
            ("-d x -d 1K", "invalid maximum depth 'x'|invalid maximum depth '1K'", true),
            ("-sa", "cannot both summarize and show all entries", true),
            ("-s -d1", "warning: summarizing conflicts with --max-depth=1", true),
            ("-s -d0", "warning: summarizing is the same as using --max-depth=0", false),
            (
                "--inodes -b",
                "warning: options --apparent-size and -b are ineffective with --inodes",
                false,
            ),
            ("-bq", "invalid option -- 'q'", true),
            ("-qz", "invalid option -- 'q'|invalid option -- 'z'", true),
            ("-q -B x", "invalid option -- 'q'|invalid -B argument 'x'", false),
            ("-B x -q", "invalid -B argument 'x'", false),
            ("-X absent -d x", "absent: No such file or directory|invalid maximum depth 'x'", true),
            ("-q --all=1", "invalid option -- 'q'|option '--all' doesn't allow an argument", true),
        ] {
            assert_eq!(message(line), (text.to_owned(), hint), "{line}");
        }
    }

    #[test]
    fn control_characters_of_values_are_escaped() {
        for line in
            ["-d x\u{1b}[1m", "-t x\u{1b}", "-B x\u{1b}", "--time=x\u{1b}", "--x\u{1b}", "-\u{1b}"]
        {
            let messages = chosen(line, &Environment::default()).unwrap_err().messages.join("|");
            assert!(!messages.contains('\u{1b}') && messages.contains("\\u{1b}"), "{messages}");
        }
        let style = chosen("--time --time-style=x\u{1b}", &Environment::default()).unwrap_err();
        assert!(style.messages[0].starts_with("invalid argument 'x\\u{1b}'"), "{style:?}");
    }

    #[test]
    fn only_options_give_a_unit_to_the_tree_view() {
        for (line, given) in [("", false), ("-A", false), ("-b", true), ("-BM", true), ("-k", true)]
        {
            assert_eq!(plain(line).spelling_given, given, "{line}");
        }
    }
}
