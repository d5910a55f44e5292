//! Files that hold the token of a server.

use crate::exit::Failure;
use ioloom_exchange::Token;
use ioloom_failure::{quoted, reason};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Reads the token in a file: its only line.
pub(crate) fn read(path: &Path) -> Result<(Token, String), Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::refused(format!("cannot read token file {}: {why}", quoted(path)))
    };
    let mode = std::fs::metadata(path).map_err(|e| fail(&reason(&e)))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(fail(&"others may read or change it; run chmod 600 on it"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| fail(&reason(&e)))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok((Token::new(text).map_err(|e| fail(&e))?, text.to_owned()))
}
