//! Token files for authentication.

use crate::exit::Failure;
use ioloom_exchange::{Access, Rights, Token};
use ioloom_failure::{quoted, reason};
use ioloom_sys::file::{self, Kind};
use std::fmt::Display;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum size of the file of a server in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the first token of a file, which can be that of a server.
pub(crate) fn read_first(path: &Path) -> Result<String, Failure> {
    check_private(path)?;
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(path, &e))?;
    let tokens = parse(path, &text)?;
    tokens.first().map(|(word, ..)| (*word).to_owned()).ok_or_else(|| empty(path))
}

/// Reads the tokens of a server: one per line, optionally followed by `trade` or `read`.
pub(crate) fn read_access(path: &Path) -> Result<Access, Failure> {
    // The file is read again while the server runs, which must not wait for a pipe.
    let text = file::read_text(path, BYTES_MAX).map_err(|e| unreadable(path, &e))?;
    check_private(path)?;
    let tokens = parse(path, &text)?.into_iter().map(|(_, token, rights)| (token, rights));
    Access::new(tokens.collect()).ok_or_else(|| empty(path))
}

/// Returns the tokens of the lines with their text and rights.
fn parse<'a>(path: &Path, text: &'a str) -> Result<Vec<(&'a str, Token, Rights)>, Failure> {
    let mut tokens: Vec<(&str, Token, Rights)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: &dyn Display| invalid(path, &format_args!("line {}: {why}", at + 1));
        let (word, rights) = line.split_once(' ').unwrap_or((line, "trade"));
        let rights = match rights {
            "trade" => Rights::Trade,
            "read" => Rights::Read,
            _ => return Err(wrong(&"only trade or read can follow a token, after one space")),
        };
        let token = Token::new(word).map_err(|e| wrong(&e))?;
        if let Some(first) = tokens.iter().position(|(_, known, _)| *known == token) {
            return Err(wrong(&format_args!("it repeats the token of line {}", first + 1)));
        }
        tokens.push((word, token, rights));
    }
    Ok(tokens)
}

/// Refuses a file that other users can access. No mode would make a device or a directory a token file.
fn check_private(path: &Path) -> Result<(), Failure> {
    let mode = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?.mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    match Kind::from_mode(mode as u16) {
        Kind::Regular | Kind::Fifo => {
            let why = "other users can access it; run chmod 600 on it";
            Err(Failure::refused(message(path, &why)))
        }
        kind => {
            let why = format!("it is {}, not a regular file", kind.word());
            Err(Failure::failed(message(path, &why)))
        }
    }
}

fn empty(path: &Path) -> Failure {
    invalid(path, &"it is empty")
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(message(path, &reason(error)))
}

fn invalid(path: &Path, why: &dyn Display) -> Failure {
    Failure::usage(message(path, why))
}

fn message(path: &Path, why: &dyn Display) -> String {
    format!("cannot read token file {}: {why}", quoted(path))
}
