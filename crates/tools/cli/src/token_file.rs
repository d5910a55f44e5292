//! Token files for authentication.

use crate::exit::Failure;
use ioloom_exchange::{Access, Rights, Token};
use ioloom_failure::{quoted, reason};
use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Reads a token from a file with a single line.
pub(crate) fn read(path: &Path) -> Result<(Token, String), Failure> {
    let text = text(path)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok((Token::new(text).map_err(|e| invalid(path, &e))?, text.to_owned()))
}

/// Reads the tokens of a server: one per line, optionally followed by `trade` or `read`.
pub(crate) fn read_access(path: &Path) -> Result<Access, Failure> {
    let mut tokens = Vec::new();
    for (at, line) in text(path)?.lines().enumerate() {
        let wrong = |why: &dyn Display| invalid(path, &format_args!("line {}: {why}", at + 1));
        let (token, rights) = line.split_once(' ').unwrap_or((line, "trade"));
        let rights = match rights {
            "trade" => Rights::Trade,
            "read" => Rights::Read,
            _ => return Err(wrong(&"only trade or read can follow a token, after one space")),
        };
        tokens.push((Token::new(token).map_err(|e| wrong(&e))?, rights));
    }
    Access::new(tokens).ok_or_else(|| invalid(path, &"it is empty"))
}

fn text(path: &Path) -> Result<String, Failure> {
    let unreadable = |e| Failure::failed(message(path, &reason(&e)));
    let mode = std::fs::metadata(path).map_err(unreadable)?;
    if mode.permissions().mode() & 0o077 != 0 {
        let why = "other users can access it; run chmod 600 on it";
        return Err(Failure::refused(message(path, &why)));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn invalid(path: &Path, why: &dyn Display) -> Failure {
    Failure::usage(message(path, why))
}

fn message(path: &Path, why: &dyn Display) -> String {
    format!("cannot read token file {}: {why}", quoted(path))
}
