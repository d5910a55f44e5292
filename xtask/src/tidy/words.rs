//! Words that must not be committed: marks of unfinished work, and machine-specific paths.

use super::finding::{Finding, Source};

/// Marks of unfinished work, split so that this file does not contain them.
const UNFINISHED: [(&str, &str); 5] = [
    (concat!("FIX", "ME"), "finish it or open an issue"),
    (concat!("TO", "DO"), "finish it or open an issue"),
    (concat!("XX", "X:"), "finish it or open an issue"),
    (concat!("to", "do!("), "finish it"),
    (concat!("unimpl", "emented!("), "finish it"),
];

/// Machine-specific directories.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/fa", "rm/")];

/// The only registry allowed in the viewer's lock file.
const NPM_SOURCE: &str = "https://registry.npmjs.org/";

/// Checks every text file.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        if source.is("lock") || source.path.ends_with("package-lock.json") {
            findings.extend(foreign_registry(source));
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            let words = UNFINISHED.iter().filter(|(word, _)| line.contains(word));
            for (word, advice) in words {
                let text = format!("'{word}' marks unfinished work; {advice}");
                findings.push(Finding::at(&source.path, number + 1, text));
            }
            for path in MACHINE_PATHS.iter().filter(|path| has_path(line, path)) {
                let text = format!("'{path}' is a machine-specific path");
                findings.push(Finding::at(&source.path, number + 1, text));
            }
        }
    }
    findings
}

/// Returns whether the line contains the path itself rather than as part of a longer path.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.})~".contains(c))
    })
}

/// A lock file must refer to public registries, or it only works on one machine.
fn foreign_registry(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let line = line.trim();
        let foreign = if source.is("lock") {
            line.starts_with("source = ") && !line.contains("github.com/rust-lang/crates.io-index")
        } else {
            line.starts_with("\"resolved\": \"http") && !line.contains(NPM_SOURCE)
        };
        if foreign {
            let text = "comes from a registry other than the public one";
            findings.push(Finding::at(&source.path, number + 1, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&[Source { path: path.into(), text: text.into() }]).len()
    }

    #[test]
    fn unfinished_work_is_found() {
        for (word, _) in UNFINISHED {
            assert!(found("a.rs", &format!("// {word} later")) > 0, "{word}");
        }
        assert_eq!(found("a.rs", "// done"), 0);
    }

    #[test]
    fn machine_paths_are_roots() {
        for path in MACHINE_PATHS {
            assert_eq!(found("a.md", &format!("see {path}x")), 1);
            assert_eq!(found("a.md", &format!("see net{path}x")), 0);
        }
    }

    #[test]
    fn lock_files_name_public_registries() {
        let good = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
        assert_eq!(found("Cargo.lock", good), 0);
        assert_eq!(found("Cargo.lock", "source = \"registry+https://mirror.invalid/\""), 1);
        let line = "\"resolved\": \"https://registry.npmjs.org/vite/-/vite-8.tgz\",";
        assert_eq!(found("ui/package-lock.json", line), 0);
        let line = "\"resolved\": \"http://mirror.invalid/vite-8.tgz\",";
        assert_eq!(found("ui/package-lock.json", line), 1);
    }
}
