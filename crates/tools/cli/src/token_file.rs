//! Files that hold the token of a server.

use crate::exit::Failure;
use ioloom_exchange::Token;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The token in a file: its first line, which must be the only one.
pub(crate) fn read(path: &Path) -> Result<(Token, String), Failure> {
    let fail = |reason: &dyn std::fmt::Display| {
        Failure::refused(format!("read the token in {}: {reason}", path.display()))
    };
    let mode = std::fs::metadata(path).map_err(|e| fail(&e))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(fail(&"others than its owner may read or change it; chmod 600 it"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| fail(&e))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok((Token::new(text).map_err(|e| fail(&e))?, text.to_owned()))
}
