//! The commands of the program, and their selection by the first words of a command line.

use crate::exit::Exit;
use crate::version::VERSION;
use crate::{
    advise, cache, claims, clean, compare, cp, du, each, fileset, machine, manual, memory, predict,
    report, results, shard, stderr, study, trace, usage, watch,
};
#[cfg(feature = "exchange")]
use crate::{load, serve, store};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

/// Fast file tools, and a laboratory for I/O concurrency on this machine
///
/// The tools hash, copy, count and cache files with many requests in flight. The laboratory finds the
/// fastest plan (a read method combined with a thread schedule) on this machine and checks published
/// claims against the results.
#[derive(Debug, Parser)]
#[command(name = "ioloom", version = VERSION, propagate_version = true, max_term_width = 100)]
#[command(after_long_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
docs/reference/glossary.md defines terms such as plan, schedule and verdict.

Examples:
  ioloom study pipeline         find the fastest read plan in 90 seconds
  ioloom each ~/src --per-file  print a checksum for each file
  ioloom du ~                   show the largest directories
  ioloom cp -a ~/src /mnt/disk  copy a tree completely or not at all
  ioloom claims                 list published claims and their verdicts here

Exit codes: 0 ok, 1 failure, 2 usage error, 3 refused, 130 interrupted,
128+N ended by signal N. cp and du exit with 1 after any error; watch exits with
the code of its command.";

/// A command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Study(study::StudyArgs),
    Each(each::EachArgs),
    Du(du::DuArgs),
    Cache(cache::CacheArgs),
    Cp(cp::CpArgs),
    Shard(Box<shard::ShardArgs>),
    #[cfg(feature = "exchange")]
    Serve(serve::ServeArgs),
    #[cfg(feature = "exchange")]
    Load(Box<load::LoadArgs>),
    #[cfg(feature = "exchange")]
    Store(store::StoreArgs),
    Advise(advise::AdviseArgs),
    Claims(claims::ClaimsArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Results(results::ResultsArgs),
    Predict(predict::PredictArgs),
    Machine(machine::MachineArgs),
    Memory(memory::MemoryArgs),
    Watch(watch::WatchArgs),
    Trace(trace::TraceArgs),
    Fileset(fileset::FilesetArgs),
    Clean(clean::CleanArgs),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
    /// Run one plan in this process; the laboratory starts one process per run.
    #[command(hide = true)]
    RunOrder,
    /// Not in this build
    #[cfg(not(feature = "exchange"))]
    #[command(hide = true, disable_help_flag = true)]
    Serve(MissingArgs),
    /// Not in this build
    #[cfg(not(feature = "exchange"))]
    #[command(hide = true, disable_help_flag = true)]
    Load(MissingArgs),
    /// Not in this build
    #[cfg(not(feature = "exchange"))]
    #[command(hide = true, disable_help_flag = true)]
    Store(MissingArgs),
}

impl Command {
    /// Reports whether the command writes its result to standard output. Copies and `each
    /// --quiet` do only on request, and the protocol of `run-order` is checked by its parent.
    pub(crate) fn prints(&self) -> bool {
        match self {
            Self::Cp(args) => args.is_verbose() || args.flags.explain || args.flags.json,
            Self::Each(args) => args.prints(),
            Self::RunOrder => false,
            _ => true,
        }
    }
}

/// Arguments of a command that is not in this build. Any arguments are accepted, so the error can name
/// the missing feature.
#[cfg(not(feature = "exchange"))]
#[derive(Debug, clap::Args)]
pub(crate) struct MissingArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<std::ffi::OsString>,
}

/// Commands that replace small programs, whose startup time matters. Building the flags of all
/// commands dominates startup, so each of these parses its command line on its own.
#[derive(Debug, Parser)]
#[command(name = "ioloom", version = VERSION, propagate_version = true, max_term_width = 100)]
struct QuickCli {
    #[command(subcommand)]
    command: Quick,
}

#[derive(Debug, Subcommand)]
enum Quick {
    Each(each::EachArgs),
    Du(du::DuArgs),
    Cp(cp::CpArgs),
}

impl From<Quick> for Command {
    fn from(quick: Quick) -> Self {
        match quick {
            Quick::Each(args) => Self::Each(args),
            Quick::Du(args) => Self::Du(args),
            Quick::Cp(args) => Self::Cp(args),
        }
    }
}

/// Parses the command line, or prints help, a version or an error and exits.
pub(crate) fn parse() -> Command {
    let first = std::env::args_os().nth(1);
    if first.as_ref().is_some_and(|word| word == "cp") {
        ioloom_failure::quote_by_locale(cp::locale::is_utf8);
        let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
        let mut words = std::env::args_os();
        let program: Vec<_> = words.by_ref().take(2).collect();
        let words = cp::expand(words, posix).unwrap_or_else(|why| usage::exit_with(&why, "cp"));
        let words = program.into_iter().chain(words);
        let parsed = QuickCli::try_parse_from(words).map(|quick| quick.command.into());
        return parsed.unwrap_or_else(|error| usage::exit_as_gnu(&error, "cp"));
    }
    if first.as_ref().is_some_and(|word| word == "du") {
        return parse_du();
    }
    let is_quick = first.is_some_and(|word| word == "each");
    let parsed = if is_quick {
        let matches = with_negative(QuickCli::command()).try_get_matches();
        let parsed = matches.and_then(|matches| QuickCli::from_arg_matches(&matches));
        parsed.map(|quick| quick.command.into())
    } else {
        let matches = definition().try_get_matches_from(words_without_help_of_help());
        matches.and_then(|matches| Cli::from_arg_matches(&matches)).map(|cli| cli.command)
    };
    parsed.unwrap_or_else(|error| usage::exit(&error))
}

/// Returns the words of the command line. After `help`, which names commands, `--help` and `-h` are left
/// out: `ioloom help each --help` is `ioloom help each`.
fn words_without_help_of_help() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    words
}

/// Returns the definition with which a command line is parsed: a group without a command, such as
/// `ioloom cache`, is an error that names its commands. The derived definition prints the whole help.
fn definition() -> clap::Command {
    Cli::command().mut_subcommands(|group| with_negative(group.arg_required_else_help(false)))
}

/// Lets the values of options with numbers begin with a hyphen: the error of a negative one then names its
/// option.
fn with_negative(command: clap::Command) -> clap::Command {
    let is_number = |arg: &Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        let of_number =
            ["N", "TIME", "SIZE", "PERCENT", "LEVEL", "R", "S", "MS", "SECONDS", "HZ", "CPU"];
        let is_single = arg.get_long().is_some() && arg.get_num_args().is_none();
        // `N,…` is a list of numbers.
        let is_of = |name: &str| of_number.contains(&name.trim_end_matches(",…"));
        is_single && names.iter().any(|name| is_of(name.as_str()))
    };
    command
        .mut_args(|arg| if is_number(&arg) { arg.allow_hyphen_values(true) } else { arg })
        .mut_subcommands(with_negative)
}

/// Parses the command line of `du`, whose words are first read as GNU du reads them.
fn parse_du() -> Command {
    let mut quick = QuickCli::command();
    quick.build();
    let parse = |words: Vec<OsString>| {
        let words = ["ioloom", "du"].map(OsString::from).into_iter().chain(words);
        match QuickCli::try_parse_from(words) {
            Ok(QuickCli { command: Quick::Du(args) }) => args,
            Ok(_) => unreachable!("the first word is du"),
            Err(error) => usage::exit_with_code(&error, Exit::Failed),
        }
    };
    let Some(command) = quick.find_subcommand("du") else { unreachable!("du is a command") };
    match du::parse(command, std::env::args_os().skip(2), parse) {
        Ok(args) => Command::Du(args),
        Err(failure) => {
            stderr::message(&failure.message);
            std::process::exit(failure.exit as i32)
        }
    }
}

/// Returns the definitions of all commands, for completions and manual pages.
pub(crate) fn complete() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::{ContextKind, ContextValue, ErrorKind};

    /// Values for options and operands; most accept one of them.
    const VALUES: [&str; 6] = ["1", "1/2", "1s", "4KiB", "x", "127.0.0.1:1"];

    /// Adds all commands below a command.
    fn all_below(command: &clap::Command, found: &mut Vec<clap::Command>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            found.push(below.clone());
            all_below(below, found);
        }
    }

    fn outcome(command: &clap::Command, words: &[String]) -> Result<(), clap::Error> {
        let all = [&[String::from("ioloom")], words].concat();
        command.clone().try_get_matches_from(all).map(|_| ())
    }

    /// Returns an argument with a value that it accepts.
    fn words_of(command: &clap::Command, arg: &Arg) -> Option<String> {
        let flag = arg.get_long().map(|long| format!("--{long}"));
        let flag = flag.or_else(|| arg.get_short().map(|short| format!("-{short}")));
        if !arg.get_action().takes_values() {
            return flag;
        }
        let named = arg.get_possible_values().into_iter().map(|v| v.get_name().to_owned());
        let values = named.chain(VALUES.map(str::to_owned));
        let mut words = values.map(|value| match &flag {
            Some(flag) => format!("{flag}={value}"),
            None => value,
        });
        words.find(|word| {
            let ended = outcome(command, std::slice::from_ref(word));
            let invalid = [ErrorKind::ValueValidation, ErrorKind::InvalidValue];
            ended.is_ok() || ended.is_err_and(|error| !invalid.contains(&error.kind()))
        })
    }

    /// Returns what the words need that is missing.
    fn missing(command: &clap::Command, words: &[String]) -> Option<Vec<String>> {
        let error = outcome(command, words).err()?;
        if error.kind() != ErrorKind::MissingRequiredArgument {
            return None;
        }
        match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing)) => Some(missing.clone()),
            _ => Some(Vec::new()),
        }
    }

    #[test]
    fn no_flag_is_accepted_without_the_flag_that_it_needs() {
        let mut all = definition();
        all.build();
        let mut commands = Vec::new();
        all_below(&all, &mut commands);
        let mut found = Vec::new();
        for command in &commands {
            let args: Vec<(&Arg, String)> = command
                .get_arguments()
                .filter_map(|arg| Some((arg, words_of(command, arg)?)))
                .collect();
            let needed = args.iter().filter(|(arg, _)| arg.is_required_set());
            let base: Vec<String> = needed.map(|(_, word)| word.clone()).collect();
            if missing(command, &base).is_some() {
                continue;
            }
            let with = |more: &[&String]| -> Vec<String> {
                base.iter().chain(more.iter().copied()).cloned().collect()
            };
            for (arg, word) in &args {
                let Some(missing) = missing(command, &with(&[word])) else { continue };
                found.push(format!("{} {}", command.get_name(), arg.get_id()));
                let is_needed = |other: &Arg| {
                    let flag = other.get_long().map(|long| format!("--{long}"));
                    flag.is_some_and(|flag| missing.iter().any(|needed| needed.contains(&flag)))
                };
                let others = args.iter().filter(|(other, _)| {
                    other.get_id() != arg.get_id() && !other.is_required_set() && !is_needed(other)
                });
                for (_, other) in others {
                    let ended = outcome(command, &with(&[word, other]));
                    assert!(ended.is_err(), "{}: {word} {other}", command.get_name());
                }
            }
        }
        for known in ["claims budget", "predict evict", "each jobs", "each ordered", "each tag"] {
            assert!(found.iter().any(|found| found == known), "{known}: {found:?}");
        }
        #[cfg(feature = "exchange")]
        for known in ["load orders", "load session_requests", "load p99"] {
            assert!(found.iter().any(|found| found == known), "{known}: {found:?}");
        }
    }

    #[test]
    fn an_error_of_a_negative_number_names_its_option() {
        for words in [
            ["study", "sleep", "--random", "-1"],
            ["study", "sleep", "--evidence", "-1"],
            ["claims", "000-P01", "--source", "-1"],
            ["predict", "files", "--files", "-1"],
            ["predict", "files", "--compute", "-1s"],
            ["predict", "exchange", "--sync", "-1s"],
            ["each", ".", "--threads", "-1"],
        ] {
            let all = ["ioloom"].iter().chain(&words);
            let command = match words[0] {
                "each" => with_negative(QuickCli::command()),
                _ => definition(),
            };
            let error = command.try_get_matches_from(all).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{words:?}: {error}");
            assert!(error.to_string().contains(words[2]), "{error}");
        }
    }

    #[test]
    fn options_with_a_fixed_list_of_words_complete_them() {
        let mut all = definition();
        all.build();
        let serve: &[&str] = &["model", "sharing", "durability", "store", "show"];
        let load: &[&str] = &["protocol", "arrival", "skew"];
        for (name, options) in [("serve", serve), ("load", load)] {
            let Some(command) = all.find_subcommand(name) else { continue };
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
                let words = arg.get_possible_values();
                let option = arg.get_id().as_str();
                assert!(!options.contains(&option) || !words.is_empty(), "{name} --{option}");
                // A default that is a word is one of several.
                for default in arg.get_default_values().iter().filter_map(|text| text.to_str()) {
                    let is_word = default.bytes().all(|byte| byte.is_ascii_lowercase());
                    let is_listed = words.iter().any(|word| word.get_name() == default);
                    assert!(!is_word || is_listed, "{name} --{option} {default}");
                }
            }
        }
    }

    #[test]
    fn commands_that_start_fast_have_the_same_flags() {
        let mut all = Cli::command();
        let mut quick = QuickCli::command();
        all.build();
        quick.build();
        for of in quick.get_subcommands_mut().filter(|of| of.get_name() != "help") {
            let same = all.find_subcommand_mut(of.get_name()).unwrap();
            let (quick, all) = (of.render_long_help(), same.render_long_help());
            assert_eq!(quick.ansi().to_string(), all.ansi().to_string());
        }
    }
}
