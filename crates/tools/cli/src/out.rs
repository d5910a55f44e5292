//! Standard output, and the layout of text for terminals.

use crate::exit::{Ended, Failure};
use crate::{interrupt, slow_reader, stderr};
use base64::Engine;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Maximum text width in columns; longer lines are hard to read.
const COLUMNS_MAX: usize = 100;
/// Columns if neither `COLUMNS` nor the terminal specifies a width.
const COLUMNS: usize = 80;
/// The beginning of the message of a failed write.
const UNWRITTEN: &str = "cannot write to standard output";

/// Writes to standard output. If the reader has closed it, the program exits silently.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Like [`print()`], for bytes.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    slow_reader::clear_bar();
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| unwritten(&error))
}

/// Returns how a command ends that has printed its output; `ended` is evaluated after it, and may print errors. A
/// reader that has closed the pipe changes neither the exit code nor the errors. Another failure to print is an error.
pub(crate) fn then(printed: Result<(), Failure>, ended: Ended) -> Ended {
    let unprinted = printed.err().filter(|failure| !failure.is_quiet());
    match (unprinted, ended) {
        (Some(unprinted), Err(failure)) => {
            stderr::message(&unprinted.message);
            Err(failure)
        }
        (Some(unprinted), Ok(_)) => Err(unprinted),
        (None, ended) => ended,
    }
}

/// Returns the failure of a write to standard output, which is quiet if the reader has closed it.
pub(crate) fn unwritten(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::quiet();
    }
    Failure::failed(format!("{UNWRITTEN}: {}", ioloom_failure::reason(error)))
}

/// Words a failure to write to standard output as the GNU programs do.
pub(crate) fn in_gnu_words(failure: Failure) -> Failure {
    Failure { message: failure.message.replace(UNWRITTEN, "write error"), ..failure }
}

/// Prints one JSON document.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(document).map_err(Failure::failed)?;
    text.push('\n');
    print(&text)
}

/// Like [`print_json`], for commands with a stop flag: a signal ends the wait for a stalled reader.
pub(crate) fn print_json_to_slow_reader(document: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(document).map_err(Failure::failed)?;
    text.push('\n');
    print_to_slow_reader(&text)
}

/// Like [`print()`], for commands with a stop flag: a signal ends the wait for a stalled reader.
pub(crate) fn print_to_slow_reader(text: &str) -> Result<(), Failure> {
    print_bytes_to_slow_reader(text.as_bytes())
}

/// Like [`print_to_slow_reader`], for bytes.
pub(crate) fn print_bytes_to_slow_reader(bytes: &[u8]) -> Result<(), Failure> {
    slow_reader::stdout(|out| out.write_all(bytes)).map_err(|error| {
        if slow_reader::is_given_up(&error) {
            return Failure::new(interrupt::exit(), format!("{UNWRITTEN}: interrupted"));
        }
        unwritten(&error)
    })
}

/// Returns the bytes of a path in base64 if they are not UTF-8 and so cannot be JSON text.
pub(crate) fn base64_unless_utf8(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let encode = || base64::prelude::BASE64_STANDARD.encode(bytes);
    std::str::from_utf8(bytes).is_err().then(encode)
}

/// Returns the text width on standard output in columns.
pub(crate) fn columns() -> usize {
    columns_on(&console::Term::stdout())
}

/// Returns the text width on standard error in columns.
pub(crate) fn columns_of_stderr() -> usize {
    columns_on(&console::Term::stderr())
}

fn columns_on(terminal: &console::Term) -> usize {
    let from_variable = std::env::var("COLUMNS").ok().and_then(|text| columns_in(&text));
    let from_terminal = || terminal.size_checked().map(|(_, columns)| columns.into());
    from_variable.or_else(from_terminal).unwrap_or(COLUMNS).clamp(40, COLUMNS_MAX)
}

/// Returns the width that `COLUMNS` specifies. Zero specifies none.
fn columns_in(text: &str) -> Option<usize> {
    text.parse::<usize>().ok().filter(|columns| *columns > 0)
}

/// Returns whether to colour standard output.
pub(crate) fn colour() -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !forbidden && !is_dumb() && io::stdout().is_terminal()
}

/// Returns whether `TERM` says that a terminal cannot be drawn on.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}

/// Breaks text at spaces into lines of at most `width` columns, indenting all but the first.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let lead: String = text.chars().take_while(|c| *c == ' ').collect();
    wrap_words(lead, text.split_whitespace(), width, indent)
}

/// Like [`wrap`], with the words of the text after `lead`. A word may contain spaces.
pub(crate) fn wrap_words<'a>(
    lead: String,
    words: impl IntoIterator<Item = &'a str>,
    width: usize,
    indent: usize,
) -> String {
    let mut out = String::new();
    let (mut line, mut empty) = (lead, true);
    for word in words {
        let wide = line.chars().count() + word.chars().count();
        if !empty && wide + 1 > width {
            out.push_str(line.trim_end());
            out.push('\n');
            (line, empty) = (" ".repeat(indent), true);
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

/// Formats a label in a column of width `head_width`, followed by wrapped text.
pub(crate) fn labelled(head: &str, head_width: usize, text: &str, width: usize) -> String {
    let body = wrap(text, width.saturating_sub(head_width + 1), 0);
    let mut out = String::new();
    for (i, line) in body.lines().enumerate() {
        let head = if i == 0 { head } else { "" };
        out.push_str(format!("{head:<head_width$} {line}").trim_end());
        out.push('\n');
    }
    out
}

/// Creates a table of `width` columns without borders.
pub(crate) fn table(width: usize) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    table
}

/// Formats a table without trailing spaces.
pub(crate) fn table_text(table: &comfy_table::Table) -> String {
    let text = table.to_string();
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

/// Escapes characters that could control the terminal.
pub(crate) fn readable(name: &[u8]) -> String {
    ioloom_model::units::readable(&String::from_utf8_lossy(name))
}

/// Shortens text to `width` columns, marking the cut with an ellipsis.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    if columns_of(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut taken = 0;
    for c in text.chars() {
        let next = columns_of(c.encode_utf8(&mut [0; 4]));
        if taken + next + 1 > width {
            break;
        }
        taken += next;
        out.push(c);
    }
    out + "…"
}

/// Returns the display width of text in columns.
pub(crate) fn columns_of(text: &str) -> usize {
    use ratatui::text::Span;
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_reader_that_leaves_does_not_change_how_a_command_ends() {
        let full = || Err(Failure::failed("full"));
        let end = |printed, ended| then(printed, ended).map_err(|failure| failure.message);
        for printed in [Ok(()), Err(Failure::quiet())] {
            assert_eq!(end(printed, Ok(Exit::Refused)), Ok(Exit::Refused));
        }
        assert_eq!(
            end(Err(Failure::quiet()), Err(Failure::failed("lost"))),
            Err("lost".to_owned())
        );
        assert_eq!(end(full(), Ok(Exit::Ok)), Err("full".to_owned()));
        assert_eq!(end(full(), Err(Failure::failed("lost"))), Err("lost".to_owned()));
    }

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("  one two three", 9, 4), "  one two\n    three\n");
        assert_eq!(wrap("averyverylongword b", 5, 2), "averyverylongword\n  b\n");
        assert_eq!(wrap("", 5, 2), "\n");
        assert_eq!(labelled("head", 6, "one two", 11), "head   one\n       two\n");
    }

    #[test]
    fn columns_are_a_positive_number() {
        assert_eq!(
            ["72", "0", "", "-1", "wide"].map(columns_in),
            [Some(72), None, None, None, None]
        );
    }

    #[test]
    fn names_cannot_draw_and_are_cut_by_columns() {
        assert_eq!(readable(b"a\x1b[31m\n\xff"), "a\\u{1b}[31m\\n\u{FFFD}");
        assert_eq!(fitted("abcdef", 4), "abc…");
        assert_eq!(fitted("파일이름", 5), "파일…");
        assert_eq!(fitted("abc", 3), "abc");
    }
}
