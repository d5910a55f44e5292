//! A line of an ignore file.

use super::glob::Glob;

/// A rule of an ignore file.
#[derive(Debug)]
pub(super) struct Rule {
    /// Whether what it matches is not ignored.
    pub(super) negated: bool,
    /// Whether it matches only directories.
    directory: bool,
    /// Whether it is compared with the name, not with the path.
    by_name: bool,
    glob: Glob,
}

impl Rule {
    /// Reads a line. Returns `None` if it is blank, a comment, or matches nothing.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        if line.first().is_none_or(|byte| *byte == b'#') {
            return None;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // To git, a zero byte ends the line.
        let line = trimmed(line.split(|byte| *byte == 0).next().unwrap_or_default());
        let (negated, line) = match line.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (directory, pattern) = match line.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let by_name = !pattern.contains(&b'/');
        let pattern = pattern.strip_prefix(b"/").unwrap_or(pattern);
        Some(Self { negated, directory, by_name, glob: Glob::read(pattern, !by_name)? })
    }

    /// Returns whether the rule matches an entry, of which `path` is relative to the ignore file.
    pub(super) fn matches(&self, path: &[u8], directory: bool) -> bool {
        if self.directory && !directory {
            return false;
        }
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        self.glob.matches(if self.by_name { &path[start..] } else { path })
    }
}

/// Removes spaces at the end, unless a backslash precedes the first one.
fn trimmed(line: &[u8]) -> &[u8] {
    let mut at = 0;
    let mut spaces = None;
    while let Some(byte) = line.get(at) {
        match byte {
            b' ' => spaces = spaces.or(Some(at)),
            // git leaves a line that ends with a backslash as it is.
            b'\\' if at + 1 == line.len() => return line,
            b'\\' => {
                at += 1;
                spaces = None;
            }
            _ => spaces = None,
        }
        at += 1;
    }
    &line[..spaces.unwrap_or(line.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what git 2.39 does with an entry: `Some(true)` if it is ignored because of this rule.
    fn ignores(line: &str, path: &str, directory: bool) -> Option<bool> {
        let rule = Rule::read(line.as_bytes())?;
        rule.matches(path.as_bytes(), directory).then_some(!rule.negated)
    }

    #[test]
    fn lines_are_read_as_git_reads_them() {
        for (line, path, expected) in [
            ("a", "x/a", Some(true)),
            ("/a", "x/a", None),
            ("/a", "a", Some(true)),
            ("!a", "a", Some(false)),
            ("\\!a", "!a", Some(true)),
            ("#a", "#a", None),
            ("\\#a", "#a", Some(true)),
            ("a  ", "a", Some(true)),
            ("a\\ ", "a ", Some(true)),
            ("a\\  ", "a ", Some(true)),
            ("a\t", "a", None),
            ("a\t", "a\t", Some(true)),
            ("a\r", "a", Some(true)),
            ("a\0b", "a", Some(true)),
            ("a/", "a", None),
            ("x/a", "y/x/a", None),
            ("x/a", "x/a", Some(true)),
            ("!/", "a", None),
            ("!", "a", None),
            ("//", "a", None),
            ("\\/", "a", None),
            ("*[ab]", "x/ab", Some(true)),
            ("*[/]", "a/", None),
        ] {
            assert_eq!(ignores(line, path, false), expected, "{line:?} {path:?}");
        }
        assert_eq!(ignores("a/", "x/a", true), Some(true));
        assert_eq!(ignores("x/a//", "x/a", true), None);
    }
}
