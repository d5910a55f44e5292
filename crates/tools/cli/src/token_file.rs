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

/// Reads a token from a file with a single line.
pub(crate) fn read(path: &Path) -> Result<(Token, String), Failure> {
    check_private(path)?;
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(path, &e))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok((Token::new(text).map_err(|e| invalid(path, &e))?, text.to_owned()))
}

/// Reads the tokens of a server: one per line, optionally followed by `trade` or `read`.
pub(crate) fn read_access(path: &Path) -> Result<Access, Failure> {
    let mut tokens: Vec<(Token, Rights)> = Vec::new();
    // The file is read again while the server runs, which must not wait for a pipe.
    let text = file::read_text(path, BYTES_MAX).map_err(|e| unreadable(path, &e))?;
    check_private(path)?;
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: &dyn Display| invalid(path, &format_args!("line {}: {why}", at + 1));
        let (token, rights) = line.split_once(' ').unwrap_or((line, "trade"));
        let rights = match rights {
            "trade" => Rights::Trade,
            "read" => Rights::Read,
            _ => return Err(wrong(&"only trade or read can follow a token, after one space")),
        };
        let token = Token::new(token).map_err(|e| wrong(&e))?;
        if let Some(first) = tokens.iter().position(|(known, _)| *known == token) {
            return Err(wrong(&format_args!("it repeats the token of line {}", first + 1)));
        }
        tokens.push((token, rights));
    }
    Access::new(tokens).ok_or_else(|| invalid(path, &"it is empty"))
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

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(message(path, &reason(error)))
}

fn invalid(path: &Path, why: &dyn Display) -> Failure {
    Failure::usage(message(path, why))
}

fn message(path: &Path, why: &dyn Display) -> String {
    format!("cannot read token file {}: {why}", quoted(path))
}
