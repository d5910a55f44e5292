//! The command line as text for a shell: stored with a session, and shown to continue it.

/// Returns the command line, quoted for a shell.
pub(crate) fn command_line() -> Vec<String> {
    let rest = std::env::args_os().skip(1).map(|a| quoted(&a.to_string_lossy()));
    std::iter::once("ioloom".to_owned()).chain(rest).collect()
}

/// Returns the command line that continues the study.
pub(crate) fn resume_line() -> String {
    let mut line = command_line();
    if !line.iter().any(|word| word == "--resume") {
        line.push("--resume".to_owned());
    }
    line.join(" ")
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, text) in [("a/b.c", "a/b.c"), ("a b", "'a b'"), ("", "''"), ("a'b", "'a'\\''b'")]
        {
            assert_eq!(quoted(word), text);
        }
    }
}
