//! The patterns of `--exclude` and of the files of `--exclude-from`.

use crate::cp::locale;
use crate::standard_input;
use ioloom_du::exclude::{Characters, Exclude};
use ioloom_failure::{quoted, reason};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns an empty set for the environment of this process.
pub(super) fn none() -> Exclude {
    let characters = if locale::is_utf8() { Characters::Utf8 } else { Characters::Bytes };
    Exclude::of(characters, std::env::var_os("POSIXLY_CORRECT").is_some())
}

/// Adds the patterns of a file; `-` is standard input. Fails with a message.
pub(super) fn add_from(exclude: &mut Exclude, file: &Path) -> Result<(), String> {
    let read = if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        standard_input::open().and_then(|mut input| input.read_to_end(&mut bytes)).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    let bytes = read.map_err(|e| format!("{}: {}", plain(file), reason(&e)))?;
    // Spaces at the end of a line do not belong to the pattern.
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.filter(|line| !line.is_empty()).for_each(|line| exclude.add(line));
    Ok(())
}

/// Returns a path for a message that does not quote plain names.
pub(crate) fn plain(path: &Path) -> String {
    let safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./+,@%^".contains(byte);
    let bytes = OsStr::as_bytes(path.as_os_str());
    if !bytes.is_empty() && bytes.iter().all(safe) {
        path.to_string_lossy().into_owned()
    } else {
        quoted(path).to_string()
    }
}
