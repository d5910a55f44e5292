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
    patterns(&bytes).for_each(|pattern| exclude.add(pattern));
    Ok(())
}

/// Returns the patterns of a file: its lines without spaces at their ends. As in GNU du, a pattern ends at
/// the first zero byte.
fn patterns(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b;
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(move |line| {
        let last = line.iter().rposition(|byte| !is_space(*byte))?;
        Some(&line[..=last])
    });
    lines.map(|line| line.split(|byte| *byte == 0).next().unwrap_or(line))
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

#[cfg(test)]
mod tests {
    #[test]
    fn patterns_end_before_spaces_and_at_zero_bytes() {
        for (text, expected) in [
            (&b"a\n\n b \nc"[..], &[&b"a"[..], b" b", b"c"][..]),
            (b"a\x0b\n\x0b\x0b\nb\t\x0b\r\x0c \n", &[b"a", b"b"]),
            (b"*.o\0\na\0b\n\0\nc \0 \n", &[b"*.o", b"a", b"", b"c "]),
        ] {
            let found: Vec<&[u8]> = super::patterns(text).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
