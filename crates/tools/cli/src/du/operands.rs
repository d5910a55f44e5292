//! The paths to scan, from the command line and from files.

use super::gnu::hinted;
use super::patterns::plain;
use crate::exit::Failure;
use ioloom_failure::{quoted, reason};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path, or the message about an invalid one, which costs only itself.
pub(super) type Operand = Result<PathBuf, String>;

/// Returns the paths of the command line; without any, the current directory.
pub(super) fn given(paths: &[OsString]) -> Vec<Operand> {
    if paths.is_empty() {
        return vec![Ok(PathBuf::from("."))];
    }
    let empty = || "invalid zero-length file name".to_owned();
    let operand = |path: &OsString| match path.as_bytes() {
        b"" => Err(empty()),
        bytes => Ok(operand(bytes)),
    };
    paths.iter().map(operand).collect()
}

/// Returns the path of an operand, with one slash of several at its end, as GNU du shows it.
fn operand(mut bytes: &[u8]) -> PathBuf {
    if bytes.len() > 2 && bytes.iter().all(|byte| *byte == b'/') {
        bytes = b"/";
    }
    while bytes.len() > 2 && bytes.ends_with(b"//") {
        bytes = &bytes[..bytes.len() - 1];
    }
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Returns the paths that a file contains, each ended by a zero byte; `-` is standard input.
pub(super) fn listed(file: &Path, paths: &[OsString]) -> Result<Vec<Operand>, Failure> {
    if let Some(path) = paths.first() {
        let path = quoted(Path::new(path));
        return Err(Failure::failed(hinted(&format!(
            "extra operand {path}\nfile operands cannot be combined with --files0-from"
        ))));
    }
    let stdin = file.as_os_str() == "-";
    let mut bytes = Vec::new();
    let read = if stdin {
        io::stdin().lock().read_to_end(&mut bytes)
    } else {
        let mut opened = std::fs::File::open(file).map_err(|e| {
            Failure::failed(format!("cannot open {} for reading: {}", quoted(file), reason(&e)))
        })?;
        opened.read_to_end(&mut bytes)
    };
    let shown = plain(file);
    let mut operands: Vec<Operand> = Vec::new();
    if bytes.last() == Some(&0) {
        bytes.pop();
    } else if bytes.is_empty() {
        // An empty list has no name, and a single zero byte has an empty one.
        return ended(read, &shown, operands);
    }
    for (index, name) in bytes.split(|byte| *byte == 0).enumerate() {
        operands.push(match name {
            b"" => Err(format!("{shown}:{}: invalid zero-length file name", index + 1)),
            b"-" if stdin => {
                let text = "when reading file names from stdin, no file name of '-' allowed";
                Err(text.to_owned())
            }
            name => Ok(operand(name)),
        });
    }
    ended(read, &shown, operands)
}

/// Adds the error that ended the reading of a list.
fn ended(
    read: io::Result<usize>,
    shown: &str,
    mut operands: Vec<Operand>,
) -> Result<Vec<Operand>, Failure> {
    if let Err(error) = read {
        operands.push(Err(format!("{shown}: read error: {}", reason(&error))));
    }
    Ok(operands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(operands: Vec<Operand>) -> Vec<String> {
        let text = |operand: Operand| {
            operand.map_or_else(|e| format!("! {e}"), |p| p.display().to_string())
        };
        operands.into_iter().map(text).collect()
    }

    #[test]
    fn lists_are_read_as_gnu_du_reads_them() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("list");
        let shown = file.display();
        for (text, expected) in [
            (&b""[..], vec![]),
            (b"\0", vec![format!("! {shown}:1: invalid zero-length file name")]),
            (b"g", vec!["g".to_owned()]),
            (b"g\0", vec!["g".to_owned()]),
            (b"g\0h", vec!["g".to_owned(), "h".to_owned()]),
            (b"-\0", vec!["-".to_owned()]),
            (b"\0g\0", vec![format!("! {shown}:1: invalid zero-length file name"), "g".to_owned()]),
            (
                b"\0\0",
                vec![
                    format!("! {shown}:1: invalid zero-length file name"),
                    format!("! {shown}:2: invalid zero-length file name"),
                ],
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(texts(listed(&file, &[]).unwrap()), expected, "{text:?}");
        }
        let dir = texts(listed(place.path(), &[]).unwrap());
        assert_eq!(dir, [format!("! {}: read error: Is a directory", place.path().display())]);
        let absent = listed(Path::new("/absent"), &[]).unwrap_err();
        assert_eq!(absent.message, "cannot open '/absent' for reading: No such file or directory");
        assert!(
            listed(&file, &["x".into()]).unwrap_err().message.starts_with("extra operand 'x'\n")
        );
    }

    #[test]
    fn empty_arguments_are_refused_alone() {
        assert_eq!(texts(given(&[])), ["."]);
        let operands = texts(given(&["".into(), "a".into(), "b///".into(), "//".into()]));
        assert_eq!(operands, ["! invalid zero-length file name", "a", "b/", "//"]);
    }
}
