//! Command-line errors in the format of all other messages.

use crate::exit::Exit;
use crate::{out, stderr};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ioloom_sys::stdio::Stream;
use std::error::Error;
use std::io::Write;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

/// The error if standard output was closed before the program started.
pub(crate) const CLOSED: &str = "standard output is closed; redirect it, for example to /dev/null";

/// Prints clap's output and exits: help and versions on standard output with code 0, errors on
/// standard error with code 2.
pub(crate) fn exit(error: &clap::Error) -> ! {
    exit_with_code(error, Exit::Usage)
}

/// The same with another code for errors.
pub(crate) fn exit_with_code(error: &clap::Error, code: Exit) -> ! {
    if !error.use_stderr() {
        print(error);
    }
    match invalid_value(error).or_else(|| missing_command(error)) {
        Some(message) => stderr::message(&message),
        // The help of the program, because no command was given.
        None if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            stderr::line(error.render().to_string().trim_end());
        }
        None => {
            let text = error.render().to_string();
            stderr::message(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
        }
    }
    std::process::exit(code as i32)
}

/// Like [`exit`], with the messages and the exit code of a GNU program.
pub(crate) fn exit_as_gnu(error: &clap::Error, command: &str) -> ! {
    if !error.use_stderr() {
        print(error);
    }
    if let Some(message) = gnu_message(error) {
        exit_with(&message, command);
    }
    if let Some(message) = invalid_value(error) {
        stderr::message(&message);
        std::process::exit(Exit::Failed as i32);
    }
    let text = error.render().to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text);
    // GNU's hint replaces clap's.
    let message = message.split("\n\nUsage:").next().unwrap_or(message).trim_end();
    exit_with(message, command)
}

/// Prints help or a version and exits.
fn print(text: &clap::Error) -> ! {
    if Stream::Output.was_closed() {
        stderr::message(CLOSED);
        std::process::exit(Exit::Failed as i32);
    }
    let exit = match text.print().and_then(|()| std::io::stdout().flush()) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            let failure = out::unwritten(&error);
            if !failure.is_quiet() {
                stderr::message(&failure.message);
            }
            failure.exit
        }
    };
    std::process::exit(exit as i32)
}

/// Prints an error in the command line of a GNU program and exits.
pub(crate) fn exit_with(message: &str, command: &str) -> ! {
    stderr::message(&with_hint(message, command));
    std::process::exit(Exit::Failed as i32)
}

/// Adds GNU's hint at the help to a message.
pub(crate) fn with_hint(message: &str, command: &str) -> String {
    format!("{message}\nTry 'ioloom {command} --help' for more information.")
}

/// Returns the message of GNU programs for an unknown option or a missing value.
fn gnu_message(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.split([' ', '=', '[']).next().unwrap_or(flag);
    let letter = name.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    let is_empty = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.is_empty(),
        _ => true,
    };
    match (error.kind(), letter) {
        (ErrorKind::UnknownArgument, Some(letter)) => {
            let first: String = letter.chars().take(1).collect();
            Some(format!("invalid option -- '{first}'"))
        }
        (ErrorKind::UnknownArgument, None) => Some(format!("unrecognized option '{name}'")),
        (ErrorKind::InvalidValue, _) if is_empty && name.starts_with('-') => match letter {
            Some(letter) => Some(format!("option requires an argument -- '{letter}'")),
            None => Some(format!("option '{name}' requires an argument")),
        },
        (ErrorKind::TooManyValues, None) => {
            Some(format!("option '{name}' doesn't allow an argument"))
        }
        _ => None,
    }
}

/// Returns the one-line message for an invalid flag value.
fn invalid_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (flag, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let operand = flag.strip_prefix(['[', '<']);
    if value.is_empty() && operand.is_some() && error.kind() == ErrorKind::InvalidValue {
        return Some("invalid operand '': a path must not be empty".to_owned());
    }
    let name = match operand {
        Some(operand) => operand.split([']', '>']).next(),
        None => flag.split([' ', '=', '[']).next(),
    };
    let name = name.unwrap_or(flag);
    let why = match error.kind() {
        ErrorKind::ValueValidation => reason(error.source()?, value),
        ErrorKind::InvalidValue if value.is_empty() => "a value is required".to_owned(),
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(words)) => one_of(words),
            _ => return None,
        },
        _ => return None,
    };
    Some(format!("invalid value '{}' for {name}: {why}", value.escape_debug()))
}

/// Returns why a value is invalid. Errors of the standard library and of clap's ranges describe the
/// parser; these describe the value that is expected.
fn reason(source: &(dyn Error + 'static), value: &str) -> String {
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        return match error.kind() {
            IntErrorKind::PosOverflow => "the number is too large".to_owned(),
            IntErrorKind::NegOverflow => "the number is too small".to_owned(),
            IntErrorKind::Zero => "must be at least 1".to_owned(),
            _ if value.parse::<i128>().is_ok() => "must not be negative".to_owned(),
            _ => "must be a whole number".to_owned(),
        };
    }
    if source.is::<ParseFloatError>() {
        return "must be a number".to_owned();
    }
    if source.is::<AddrParseError>() {
        return "must be an IP address and a port, such as 127.0.0.1:7004".to_owned();
    }
    let text = source.to_string();
    range(&text).unwrap_or(text)
}

/// Returns "must be A to B" for clap's "N is not in A..=B", whose error has no type.
fn range(text: &str) -> Option<String> {
    let (number, bounds) = text.split_once(" is not in ")?;
    let (low, high) = bounds.split_once("..")?;
    let (high, above) = high.strip_prefix('=').map_or((high, 1), |high| (high, 0));
    let [number, low, high] = [number, low, high].map(|text| text.parse::<i128>().ok());
    let (number, low, high) = (number?, low?, high? - above);
    // The largest value of a type is not a limit that a user needs to know.
    Some(match high >= u32::MAX.into() && number < low {
        true => format!("must be at least {low}"),
        false => format!("must be {low} to {high}"),
    })
}

/// Returns the one-line message for a group of commands without one, such as `ioloom cache`.
fn missing_command(error: &clap::Error) -> Option<String> {
    let (Some(ContextValue::String(group)), Some(ContextValue::Strings(commands))) =
        (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::ValidSubcommand))
    else {
        return None;
    };
    if error.kind() != ErrorKind::MissingSubcommand {
        return None;
    }
    let commands: Vec<_> = commands.iter().filter(|name| *name != "help").cloned().collect();
    Some(format!("{group} needs a command: {}; see '{group} --help'", alternatives(&commands)))
}

/// Returns "must be a, b or c".
fn one_of(words: &[String]) -> String {
    match words {
        [] => "no value is allowed".to_owned(),
        words => format!("must be {}", alternatives(words)),
    }
}

/// Returns "a, b or c".
fn alternatives(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, value_parser};

    fn message(args: &[&str]) -> Option<String> {
        let arg = |name: &'static str| Arg::new(name).long(name).value_name("N");
        let command = clap::Command::new("x")
            .arg(
                arg("number")
                    .value_parser(value_parser!(u8).range(1..=9))
                    .allow_hyphen_values(true),
            )
            .arg(arg("open").value_parser(value_parser!(u32).range(2..)))
            .arg(arg("long").value_parser(value_parser!(u64).range(3..)))
            .arg(arg("size").value_parser(value_parser!(usize)).allow_hyphen_values(true))
            .arg(arg("full").value_parser(value_parser!(std::num::NonZeroU64)))
            .arg(arg("share").value_parser(value_parser!(f64)))
            .arg(arg("word").value_parser(["a", "b", "c"]))
            .arg(
                Arg::new("operand")
                    .value_name("ADDRESS:PORT")
                    .value_parser(value_parser!(std::net::SocketAddr)),
            );
        invalid_value(&command.try_get_matches_from(args).unwrap_err())
    }

    #[test]
    fn a_wrong_value_is_one_line() {
        assert_eq!(
            message(&["x", "--word", "d\n"]).unwrap(),
            "invalid value 'd\\n' for --word: must be a, b or c"
        );
        assert_eq!(message(&["x", "--unknown"]), None);
    }

    #[test]
    fn a_wrong_operand_is_named_without_brackets() {
        for value in ["localhost:7004", ""] {
            assert_eq!(
                message(&["x", value]).unwrap(),
                format!(
                    "invalid value '{value}' for ADDRESS:PORT: must be an IP address and a port, such as \
                     127.0.0.1:7004"
                )
            );
        }
    }

    #[test]
    fn a_wrong_number_says_which_numbers_are_right() {
        for (flag, value, reason) in [
            ("--number", "x", "must be a whole number"),
            ("--number", "1.5", "must be a whole number"),
            ("--number", "0", "must be 1 to 9"),
            ("--number", "-1", "must be 1 to 9"),
            ("--number", "99999999999999999999", "the number is too large"),
            ("--open", "1", "must be at least 2"),
            ("--open", "4294967296", "must be 2 to 4294967295"),
            ("--long", "0", "must be at least 3"),
            ("--size", "", "must be a whole number"),
            ("--size", "-1", "must not be negative"),
            ("--size", "99999999999999999999", "the number is too large"),
            ("--full", "0", "must be at least 1"),
            ("--share", "half", "must be a number"),
        ] {
            let expected = format!("invalid value '{value}' for {flag}: {reason}");
            assert_eq!(message(&["x", flag, value]).unwrap(), expected);
        }
    }
}
