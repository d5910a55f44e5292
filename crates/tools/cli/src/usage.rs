//! Command-line errors in the format of all other messages.

use crate::exit::Exit;
use crate::stderr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ioloom_sys::stdio::Stream;
use std::error::Error;

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
        if Stream::Output.was_closed() {
            stderr::message(CLOSED);
            std::process::exit(Exit::Failed as i32);
        }
        error.exit();
    }
    match invalid_value(error) {
        Some(message) => stderr::message(&message),
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
        error.exit();
    }
    if let Some(message) = gnu_message(error) {
        exit_with(&message, command);
    }
    if let Some(message) = invalid_value(error) {
        stderr::message(&message);
        std::process::exit(Exit::Failed as i32);
    }
    let text = error.render().to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    exit_with(message, command)
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
    if value.is_empty() && flag.starts_with(['[', '<']) {
        return Some("invalid operand '': a path must not be empty".to_owned());
    }
    let flag = flag.split([' ', '=', '[']).next().unwrap_or(flag);
    let why = match error.kind() {
        ErrorKind::ValueValidation => error.source()?.to_string(),
        ErrorKind::InvalidValue if value.is_empty() => "a value is required".to_owned(),
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(words)) => one_of(words),
            _ => return None,
        },
        _ => return None,
    };
    Some(format!("invalid value '{}' for {flag}: {why}", value.escape_debug()))
}

/// Returns "must be a, b or c".
fn one_of(words: &[String]) -> String {
    match words {
        [] => "no value is allowed".to_owned(),
        [only] => format!("must be {only}"),
        [first @ .., last] => format!("must be {} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, value_parser};

    fn message(args: &[&str]) -> Option<String> {
        let number = value_parser!(u8).range(1..=9);
        let command = clap::Command::new("x")
            .arg(Arg::new("number").long("number").value_name("N").value_parser(number))
            .arg(Arg::new("word").long("word").value_parser(["a", "b", "c"]));
        invalid_value(&command.try_get_matches_from(args).unwrap_err())
    }

    #[test]
    fn a_wrong_value_is_one_line() {
        assert_eq!(
            message(&["x", "--word", "d\n"]).unwrap(),
            "invalid value 'd\\n' for --word: must be a, b or c"
        );
        let number = message(&["x", "--number", "0"]).unwrap();
        assert!(number.starts_with("invalid value '0' for --number: "), "{number}");
        assert_eq!(message(&["x", "--unknown"]), None);
    }
}
