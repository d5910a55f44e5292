//! Token files for authentication.

use crate::exit::Failure;
use ioloom_exchange::Token;
use ioloom_failure::{quoted, reason};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Reads a token from a file with a single line.
pub(crate) fn read(path: &Path) -> Result<(Token, String), Failure> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::refused(format!("cannot read token file {}: {why}", quoted(path)))
    };
    let mode = std::fs::metadata(path).map_err(|e| fail(&reason(&e)))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(fail(&"other users can access it; run chmod 600 on it"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| fail(&reason(&e)))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok((Token::new(text).map_err(|e| fail(&e))?, text.to_owned()))
}
