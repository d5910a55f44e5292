//! The paths to scan, from the command line and from files.

use super::gnu::hinted;
use super::patterns::plain;
use crate::exit::Failure;
use crate::standard_input;
use ioloom_failure::{quoted, reason};
use ioloom_sys::stream::{self, Ready};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum number of names of a list that are read before the first is scanned. In a longer list, any file
/// can be named later, so the scan remembers all files.
const KNOWN_MAX: usize = 65_536;
/// How long the next name of a list may take before those already read are scanned: its writer may wait for their
/// lines.
const PAUSE: Duration = Duration::from_millis(100);

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

/// The paths that a file contains, each ended by a zero byte; `-` is standard input.
pub(super) struct List {
    reader: BufReader<File>,
    is_stdin: bool,
    /// The name of the file in messages.
    shown: String,
    /// Number of names read so far.
    count: u64,
    /// The beginning of the next name, before what the reader contains.
    partial: Vec<u8>,
    /// Whether the end of the file was read.
    at_end: bool,
    /// Whether the last name was returned.
    ended: bool,
    /// The error that ended the list.
    failed: Option<String>,
    /// Whether the list is being opened or a name is being read, which can block.
    reading: Arc<AtomicBool>,
}

impl List {
    /// Opens a list. `paths` are those of the command line, which cannot be combined with one.
    pub(super) fn open(
        file: &Path,
        paths: &[OsString],
        reading: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        if let Some(path) = paths.first() {
            let path = quoted(Path::new(path));
            return Err(Failure::failed(hinted(&format!(
                "extra operand {path}\nfile operands cannot be combined with --files0-from"
            ))));
        }
        let (is_stdin, shown) = (file.as_os_str() == "-", plain(file));
        let opened = if is_stdin {
            // Without the buffer of the runtime, `wait` can find out whether there is more to read.
            let input = standard_input::open().and_then(|input| input.as_fd().try_clone_to_owned());
            File::from(input.map_err(|e| Failure::failed(unread(&shown, &e)))?)
        } else {
            // A pipe is opened when another process opens it for writing.
            reading.store(true, Ordering::Relaxed);
            let opened = File::open(file);
            reading.store(false, Ordering::Relaxed);
            opened.map_err(|e| {
                Failure::failed(format!("cannot open {} for reading: {}", quoted(file), reason(&e)))
            })?
        };
        Ok(Self {
            reader: BufReader::new(opened),
            is_stdin,
            shown,
            count: 0,
            partial: Vec::new(),
            at_end: false,
            ended: false,
            failed: None,
            reading,
        })
    }

    /// Reads the first names, with `prompt` only those before a pause. Returns the list as well, unless it ended.
    pub(super) fn begin(mut self, prompt: bool) -> (Vec<Operand>, Option<Self>) {
        let mut first: Vec<Operand> = Vec::new();
        while first.len() < KNOWN_MAX
            && (!prompt || first.is_empty() || self.arrives())
            && let Some(operand) = self.next()
        {
            first.push(operand);
        }
        let is_done = self.ended && self.failed.is_none();
        (first, (!is_done).then_some(self))
    }

    /// Returns whether the whole next name, or the end, arrives without a pause.
    fn arrives(&mut self) -> bool {
        self.reading.store(true, Ordering::Relaxed);
        let arrives = self.read_ahead();
        self.reading.store(false, Ordering::Relaxed);
        arrives
    }

    fn read_ahead(&mut self) -> bool {
        while !self.ended && !self.reader.buffer().contains(&0) {
            self.partial.extend_from_slice(self.reader.buffer());
            self.reader.consume(self.reader.buffer().len());
            if !stream::wait(self.reader.get_ref(), Ready::Read, PAUSE).unwrap_or(true) {
                return false;
            }
            match self.reader.fill_buf() {
                Ok([]) => {
                    self.at_end = true;
                    return true;
                }
                Ok(_) => {}
                // The next read reports it.
                Err(_) => return true,
            }
        }
        true
    }

    fn operand(&self, name: &[u8]) -> Operand {
        match name {
            b"" => Err(format!("{}:{}: invalid zero-length file name", self.shown, self.count)),
            b"-" if self.is_stdin => {
                let text = "when reading file names from stdin, no file name of '-' allowed";
                Err(text.to_owned())
            }
            name => Ok(operand(name)),
        }
    }
}

impl Iterator for List {
    type Item = Operand;

    fn next(&mut self) -> Option<Operand> {
        if self.ended {
            return self.failed.take().map(Err);
        }
        let mut name = std::mem::take(&mut self.partial);
        self.reading.store(true, Ordering::Relaxed);
        let read = if self.at_end { Ok(0) } else { self.reader.read_until(0, &mut name) };
        self.reading.store(false, Ordering::Relaxed);
        if name.last() == Some(&0) {
            name.pop();
        } else {
            self.ended = true;
            self.failed = read.err().map(|error| unread(&self.shown, &error));
            if name.is_empty() {
                return self.failed.take().map(Err);
            }
        }
        self.count += 1;
        Some(self.operand(&name))
    }
}

/// Returns the message about a list that cannot be read.
fn unread(shown: &str, error: &io::Error) -> String {
    format!("{shown}: read error: {}", reason(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn list(file: &Path, paths: &[OsString]) -> Result<List, Failure> {
        List::open(file, paths, Arc::default())
    }

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
            assert_eq!(texts(list(&file, &[]).unwrap().collect()), expected, "{text:?}");
        }
        let dir = texts(list(place.path(), &[]).unwrap().collect());
        assert_eq!(dir, [format!("! {}: read error: Is a directory", place.path().display())]);
        let absent = list(Path::new("/absent"), &[]).err().unwrap();
        assert_eq!(absent.message, "cannot open '/absent' for reading: No such file or directory");
        let extra = list(&file, &["x".into()]).err().unwrap();
        assert!(extra.message.starts_with("extra operand 'x'\n"));
    }

    #[test]
    fn a_long_list_is_read_as_needed() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("list");
        for (names, remaining) in [(KNOWN_MAX - 1, None), (KNOWN_MAX + 2, Some(2))] {
            std::fs::write(&file, b"g\0".repeat(names)).unwrap();
            let (first, further) = list(&file, &[]).unwrap().begin(names % 2 == 0);
            assert_eq!(first.len(), names.min(KNOWN_MAX));
            assert_eq!(further.map(Iterator::count), remaining);
        }
        std::fs::write(&file, vec![0; KNOWN_MAX + 1]).unwrap();
        let (_, further) = list(&file, &[]).unwrap().begin(true);
        let line = KNOWN_MAX + 1;
        let expected = format!("! {}:{line}: invalid zero-length file name", file.display());
        assert_eq!(texts(further.unwrap().collect()), [expected]);
    }

    #[test]
    fn names_before_a_pause_are_returned_first() {
        for (prompt, before, after) in [(true, 1, 2), (false, 3, 0)] {
            let (reader, mut writer) = io::pipe().unwrap();
            let mut list = list(Path::new("/dev/null"), &[]).unwrap();
            list.reader = BufReader::new(File::from(std::os::fd::OwnedFd::from(reader)));
            writer.write_all(b"a\0b").unwrap();
            let rest = std::thread::spawn(move || {
                std::thread::sleep(PAUSE * 3);
                writer.write_all(b"c\0d").unwrap();
            });
            let (first, further) = list.begin(prompt);
            assert_eq!(first.len(), before);
            let all = first.into_iter().chain(further.into_iter().flatten());
            let all = texts(all.collect());
            assert_eq!(all, ["a", "bc", "d"]);
            assert_eq!(all.len() - before, after);
            rest.join().unwrap();
        }
    }

    #[test]
    fn empty_arguments_are_refused_alone() {
        assert_eq!(texts(given(&[])), ["."]);
        let operands = texts(given(&["".into(), "a".into(), "b///".into(), "//".into()]));
        assert_eq!(operands, ["! invalid zero-length file name", "a", "b/", "//"]);
    }
}
