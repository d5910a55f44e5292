//! Rules of `.gitignore` and `.ignore` files.

mod glob;
mod rule;

use ioloom_sys::file::{self, Kind};
use rule::Rule;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The names of ignore files; the first one prevails.
const NAMES: [&str; 2] = [".ignore", GIT];
/// The name of those whose rules end at a nested repository.
const GIT: &str = ".gitignore";

/// The rules of a directory and of those above it.
#[derive(Debug)]
pub(super) struct Rules {
    /// Those of the files in [`NAMES`].
    own: [Option<IgnoreFile>; 2],
    /// Whether it is the directory of a repository in another one, whose rules do not apply to it.
    repository: bool,
    above: Option<Arc<Self>>,
}

/// An ignore file with rules.
#[derive(Debug)]
struct IgnoreFile {
    directory: PathBuf,
    rules: Vec<Rule>,
}

/// An ignore file that could not be read.
pub(super) type Unreadable = (PathBuf, io::Error);

impl Rules {
    /// Reads the rules that apply to a root: its own and those above it, up to a repository.
    pub(super) fn of_root(root: &Path, failed: &mut Vec<Unreadable>) -> Option<Arc<Self>> {
        let mut above = Vec::new();
        for dir in root.ancestors() {
            above.push(dir);
            if dir.join(".git").exists() {
                break;
            }
        }
        above.into_iter().rev().fold(None, |rules, dir| Self::of(dir, rules, failed))
    }

    /// Reads the rules of a directory. Returns those above it where it has none.
    pub(super) fn of(
        dir: &Path,
        above: Option<Arc<Self>>,
        failed: &mut Vec<Unreadable>,
    ) -> Option<Arc<Self>> {
        let mut own = [None, None];
        for (own, name) in own.iter_mut().zip(NAMES) {
            let path = dir.join(name);
            match read(&path) {
                Ok(text) => *own = IgnoreFile::parse(dir, &text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed.push((path, error)),
            }
        }
        let repository = above.is_some() && dir.join(".git").exists();
        if !repository && own.iter().all(Option::is_none) {
            return above;
        }
        Some(Arc::new(Self { own, repository, above }))
    }

    /// Reports whether an entry is ignored: the rule nearest to it decides.
    pub(super) fn ignores(&self, path: &Path, directory: bool) -> bool {
        let (mut rules, mut outside) = (Some(self), false);
        while let Some(here) = rules {
            for (own, name) in here.own.iter().zip(NAMES) {
                let own = own.as_ref().filter(|_| !outside || name != GIT);
                if let Some(ignored) = own.and_then(|file| file.ignores(path, directory)) {
                    return ignored;
                }
            }
            outside |= here.repository;
            rules = here.above.as_deref();
        }
        false
    }
}

impl IgnoreFile {
    /// Parses an ignore file of a directory. Returns `None` if it has no rules.
    fn parse(directory: &Path, text: &[u8]) -> Option<Self> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let lines = text.split(|byte| *byte == b'\n');
        let rules: Vec<Rule> = lines.filter_map(Rule::read).collect();
        (!rules.is_empty()).then(|| Self { directory: directory.to_owned(), rules })
    }

    /// Reports whether an entry is ignored: the last rule that matches it decides. `None` if none does.
    fn ignores(&self, path: &Path, directory: bool) -> Option<bool> {
        let path = path.strip_prefix(&self.directory).ok()?.as_os_str().as_bytes();
        let rule = self.rules.iter().rev().find(|rule| rule.matches(path, directory))?;
        Some(!rule.negated)
    }
}

/// Reads an ignore file, without opening what would block, such as a pipe.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    match file::kind_of(path)? {
        Kind::Regular => std::fs::read(path),
        other => Err(io::Error::other(format!("it is {}, not a regular file", other.word()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn the_nearest_rule_decides() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("deep");
        std::fs::create_dir_all(dir.path().join(".git")).unwrap();
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(dir.path().join(".gitignore"), "*.log\n/deep/only\nbuild/\n[\n").unwrap();
        std::fs::write(deep.join(".gitignore"), "*.tmp\n").unwrap();
        std::fs::write(deep.join(".ignore"), "!keep.log\n!a.tmp\n").unwrap();
        let mut failed = Vec::new();
        let rules = Rules::of_root(&deep, &mut failed).unwrap();
        let ignores = |name: &str, directory| rules.ignores(&deep.join(name), directory);
        assert!(ignores("a.log", false) && ignores("b.tmp", false) && ignores("only", false));
        assert!(!ignores("keep.log", false) && !ignores("a.tmp", false) && !ignores("x", false));
        assert!(ignores("build", true) && !ignores("build", false));
        assert!(failed.is_empty());
        let none = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(none.path().join(".git")).unwrap();
        assert!(Rules::of_root(none.path(), &mut failed).is_none());
    }

    #[test]
    fn braces_are_ordinary_characters_and_a_mark_of_byte_order_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let text = "\u{feff}first\n*.{o,rs}\nx[{]y\nz\\{\n";
        std::fs::write(dir.path().join(".gitignore"), text).unwrap();
        let rules = Rules::of(dir.path(), None, &mut Vec::new()).unwrap();
        let ignored = |name: &str| rules.ignores(&dir.path().join(name), false);
        assert!(ignored("first") && ignored("a.{o,rs}") && ignored("x{y") && ignored("z{"));
        assert!(!ignored("a.o") && !ignored("a.rs"));
    }

    #[test]
    fn rules_and_names_need_not_be_utf_8() {
        let dir = tempfile::tempdir().unwrap();
        let text = b"# caf\xe9\n*.o\r\ncaf\xe9\n*.log\n";
        std::fs::write(dir.path().join(".gitignore"), text).unwrap();
        let mut failed = Vec::new();
        let rules = Rules::of(dir.path(), None, &mut failed).unwrap();
        let ignored = |name: &[u8]| rules.ignores(&dir.path().join(OsStr::from_bytes(name)), false);
        assert!(ignored(b"a.o") && ignored(b"caf\xe9") && ignored(b"\xff.log"));
        assert!(!ignored(b"caf\xe8") && failed.is_empty());
    }

    #[test]
    fn git_rules_end_at_a_nested_repository() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir_all(inner.join(".git")).unwrap();
        for (name, text) in [(".gitignore", "*.log\n"), (".ignore", "*.tmp\n")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let mut failed = Vec::new();
        let above = Rules::of(dir.path(), None, &mut failed);
        for with_own in [false, true] {
            if with_own {
                std::fs::write(inner.join(".gitignore"), "*.o\n").unwrap();
            }
            let rules = Rules::of(&inner, above.clone(), &mut failed);
            let below = Rules::of(&inner.join("src"), rules, &mut failed).unwrap();
            let ignores = |name: &str| below.ignores(&inner.join("src").join(name), false);
            assert_eq!(ignores("a.o"), with_own);
            assert!(!ignores("a.log") && ignores("a.tmp"));
        }
        assert!(above.unwrap().ignores(&dir.path().join("a.log"), false) && failed.is_empty());
    }

    #[test]
    fn an_ignore_file_that_cannot_be_read_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".ignore")).unwrap();
        let mut failed = Vec::new();
        assert!(Rules::of(dir.path(), None, &mut failed).is_none());
        assert_eq!(failed[0].0, dir.path().join(".ignore"));
    }

    #[test]
    fn an_ignore_file_that_is_a_pipe_is_reported_and_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join(".gitignore");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let mut failed = Vec::new();
        assert!(Rules::of(dir.path(), None, &mut failed).is_none());
        assert_eq!(failed.len(), 1);
        assert!(failed[0].1.to_string().contains("not a regular file"), "{}", failed[0].1);
    }
}
