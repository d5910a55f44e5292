//! `ioloom completions` and `ioloom man`, generated from the command definitions.

use crate::atomic_file;
use crate::exit::{Ended, Exit, Failure};
use crate::out;
use clap::{Arg, ArgGroup, Args, Command, Id};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use ioloom_failure::{Operation, PathError};
use std::io;
use std::path::{Path, PathBuf};

/// Columns of a line that is not filled: 80 without the margin of man.
const PAGE_COLUMNS: usize = 71;
/// The indent of examples in help.
const EXAMPLE_INDENT: &str = "  ";
/// The indent of a continued line.
const HANGING: &str = "    ";

/// Print a completion script for a shell
///
/// The script completes commands, flags and flag values. For zsh, add fpath+=~/.zfunc before compinit in
/// ~/.zshrc.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  ioloom completions bash > ~/.local/share/bash-completion/completions/ioloom
  mkdir -p ~/.config/fish/completions
  ioloom completions fish > ~/.config/fish/completions/ioloom.fish
  mkdir -p ~/.zfunc
  ioloom completions zsh > ~/.zfunc/_ioloom")]
pub(crate) struct CompletionsArgs {
    /// Target shell
    shell: Shell,
}

/// Print or install the manual pages
///
/// Without --out, prints the main page. With --out, writes one page for each command, such as
/// ioloom-each.1 and ioloom-cache-drop.1. man finds pages below ~/.local/share/man without -M if
/// ~/.local/bin is in PATH or if MANPATH names the directory.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom man | man -l -
  ioloom man --out ~/.local/share/man/man1
  man -M ~/.local/share/man ioloom-each")]
pub(crate) struct ManArgs {
    /// Write all pages to this directory
    ///
    /// The directory is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Ended {
    let mut text = Vec::new();
    command.build();
    clap_complete::generate(args.shell, &mut without_hidden(&command), "ioloom", &mut text);
    out::print_bytes(&text)?;
    Ok(Exit::Ok)
}

/// Returns a copy of a built command without hidden subcommands and arguments, which the generators of
/// completions would list. The copy has only what they read. A visible argument must not name a hidden one, as in
/// `requires`: building the copy would panic in tests.
fn without_hidden(command: &Command) -> Command {
    // Names must be static; the process ends after it has printed the script.
    let text = |text: &str| -> &'static str { text.to_owned().leak() };
    let hidden: Vec<&Id> =
        command.get_arguments().filter(|arg| arg.is_hide_set()).map(Arg::get_id).collect();
    // Arguments may conflict with groups.
    let groups = command.get_groups().map(|group| {
        let args = group.get_args().filter(|id| !hidden.contains(id)).cloned();
        ArgGroup::new(group.get_id().clone()).args(args).multiple(true)
    });
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let mut copy = Command::new(text(command.get_name()))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .groups(groups)
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(subcommands.map(without_hidden));
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        copy = copy.version(text(version));
    }
    copy
}

pub(crate) fn man(args: &ManArgs, mut command: Command) -> Ended {
    command.build();
    match &args.out {
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .map_err(PathError::on(Operation::CreateDir, dir))
                .map_err(Failure::failed)?;
            write_pages(&command, "ioloom", dir)?;
        }
        None => out::print_bytes(&page(&command, "ioloom").map_err(Failure::failed)?)?,
    }
    Ok(Exit::Ok)
}

/// Writes the pages of a command and its subcommands.
fn write_pages(command: &Command, name: &str, dir: &Path) -> Result<(), Failure> {
    let text = page(command, name).map_err(Failure::failed)?;
    atomic_file::write(&dir.join(format!("{name}.1")), text)?;
    for sub in shown(command) {
        write_pages(sub, &format!("{name}-{}", sub.get_name()), dir)?;
    }
    Ok(())
}

/// Returns the visible subcommands.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// Returns one page as roff. `name` is the page name, such as `ioloom-cache-drop`.
fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let words = name.replace('-', " ");
    let named = command.clone().bin_name(words).display_name(name);
    let source = concat!("ioloom ", env!("CARGO_PKG_VERSION"));
    let usage = named.clone().render_usage().to_string();
    let man = Man::new(named).title(name).section("1").manual("ioloom manual").source(source);
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(&usage).to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let (notes, examples) = after.split_once("Examples:\n").unwrap_or((after.as_str(), ""));
    // Text after the examples, separated by an empty line, belongs to the notes.
    let (examples, rest) = examples.split_once("\n\n").unwrap_or((examples, ""));
    // Exit codes have their own section.
    let rest = if rest.starts_with("Exit codes:") { "" } else { rest };
    for part in [notes, rest].map(str::trim_end).into_iter().filter(|part| !part.is_empty()) {
        for paragraph in part.split("\n\n") {
            note(paragraph, &mut text)?;
        }
    }
    man.render_options_section(&mut text)?;
    if shown(command).next().is_some() {
        commands(command, name).to_writer(&mut text)?;
    }
    literal(Some("EXAMPLES"), examples, &mut text)?;
    exit_status(name).to_writer(&mut text)?;
    see_also(command, name).to_writer(&mut text)?;
    Ok(text)
}

/// Returns the usage of the help as a synopsis: that of the generator lists options without their values, and
/// does not show which operands repeat.
fn synopsis(usage: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let usage = usage.strip_prefix("Usage:").unwrap_or(usage);
    for (at, line) in usage.lines().map(str::trim).enumerate() {
        if at > 0 {
            roff.control("br", []);
        }
        // The name of the command ends before its first argument.
        let is_argument = |word: &str| word.starts_with(['[', '<', '-']);
        let name: Vec<&str> = line.split(' ').take_while(|word| !is_argument(word)).collect();
        let name = name.join(" ");
        let rest = line.strip_prefix(&name).unwrap_or_default();
        roff.text([bold(name), roman(rest)]);
    }
    roff
}

/// Writes a paragraph: prose is filled, and text with indented lines is not.
fn note(paragraph: &str, out: &mut Vec<u8>) -> io::Result<()> {
    if paragraph.lines().any(|line| line.starts_with(' ')) {
        return literal(None, paragraph, out);
    }
    let mut roff = Roff::new();
    roff.control("PP", []);
    roff.text([roman(paragraph)]);
    roff.to_writer(out)
}

/// Writes text line by line without filling. The common indent of examples is dropped: man has its own.
fn literal(head: Option<&str>, body: &str, out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    match head {
        Some(head) => roff.control("SH", [head]),
        None => roff.control("PP", []),
    };
    roff.control("nf", []);
    let indented = |line: &str| line.is_empty() || line.starts_with(EXAMPLE_INDENT);
    let is_indented = body.lines().all(indented);
    // The lines that continue a broken description have its indent.
    let mut is_broken = false;
    for line in body.lines() {
        let line = line.strip_prefix(EXAMPLE_INDENT).filter(|_| is_indented).unwrap_or(line);
        let continued = line.trim_start();
        let goes_on = is_broken && line.len() - continued.len() > HANGING.len();
        let parts = if goes_on { vec![format!("{HANGING}{continued}")] } else { broken(line) };
        is_broken = goes_on || parts.len() > 1;
        for part in parts {
            roff.text([roman(part)]);
        }
    }
    roff.control("fi", []);
    roff.to_writer(out)
}

/// Breaks a line that is too long for a page: the description of a command begins a line of its own, and a command
/// goes on after a backslash.
fn broken(line: &str) -> Vec<String> {
    if line.chars().count() <= PAGE_COLUMNS {
        return vec![line.to_owned()];
    }
    let lead = line.len() - line.trim_start().len();
    let (command, description) = match line[lead..].rfind("  ") {
        // It goes on from the line above.
        _ if lead > HANGING.len() => ("", Some(line.trim_start())),
        Some(at) => (line[..lead + at].trim_end(), Some(line[lead + at..].trim_start())),
        None => (line, None),
    };
    let mut lines = Vec::new();
    let mut rest = command.to_owned();
    while rest.chars().count() > PAGE_COLUMNS {
        let Some(at) = last_break(&rest) else { break };
        let after = format!("{HANGING}{}", &rest[at + 1..]);
        rest.truncate(at);
        lines.push(format!("{rest} \\"));
        rest = after;
    }
    if !rest.trim().is_empty() {
        lines.push(rest);
    }
    if let Some(description) = description {
        let text = out::wrap(&format!("{HANGING}{description}"), PAGE_COLUMNS, HANGING.len());
        lines.extend(text.lines().map(str::to_owned));
    }
    lines
}

/// Returns the last space outside quotes that leaves room for a backslash.
fn last_break(command: &str) -> Option<usize> {
    let start = command.len() - command.trim_start().len();
    let (mut is_quoted, mut last) = (false, None);
    for (columns, (at, c)) in command.char_indices().enumerate() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted && at > start && columns + 2 <= PAGE_COLUMNS => last = Some(at),
            _ => {}
        }
    }
    last
}

/// Lists the subcommands with their pages.
fn commands(command: &Command, name: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["COMMANDS"]);
    for sub in shown(command) {
        roff.control("TP", []);
        roff.text([bold(format!("{name}-{}", sub.get_name())), roman("(1)")]);
        roff.text([roman(sub.get_about().map(ToString::to_string).unwrap_or_default())]);
    }
    roff
}

const SUCCESS: (&str, &str) = ("0", "Success.");
const FAILURE: (&str, &str) = ("1", "Something failed and was reported.");
const USAGE: (&str, &str) = ("2", "The command line or an input file is invalid.");
const REFUSED: (&str, &str) = ("3", "The request was refused; the reason was reported.");
const INTERRUPTED: (&str, &str) = (
    "130",
    "Interrupted by SIGINT, or by another signal that the command handles. Another one at least \
     200 ms after the first ends the command at once, without a result.",
);
const SIGNALLED: (&str, &str) = ("128+N", "Ended by signal N, which the command does not handle.");
/// Of commands whose code depends on the signal.
const STOPPED: (&str, &str) =
    ("128+N", "Stopped by signal N: 129 by SIGHUP, 130 by SIGINT, 143 by SIGTERM.");

/// Returns the exit codes of a command with their meaning.
fn codes(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "ioloom-cp" | "ioloom-du" => &[
            SUCCESS,
            ("1", "Something failed, or the command line is invalid; the error was reported."),
            STOPPED,
        ],
        "ioloom-watch" => &[
            ("N", "The command exited with N."),
            ("1", "A file of watch cannot be written."),
            ("2", "The command line of watch is invalid."),
            ("3", "The evidence level does not work here."),
            ("126", "The command cannot be run."),
            ("127", "The command does not exist."),
            ("128+N", "Signal N ended the command."),
        ],
        "ioloom-claims" => &[
            SUCCESS,
            FAILURE,
            USAGE,
            ("3", "A named claim cannot be verified here, or the budget ended first."),
            INTERRUPTED,
            SIGNALLED,
        ],
        "ioloom-load" => &[
            ("0", "Success, also of --null-server after SIGINT or SIGTERM."),
            FAILURE,
            USAGE,
            (
                "3",
                "The load generator was the bottleneck, the run ended within its warm-up, nothing \
                 was due, or a search reached its limit.",
            ),
            INTERRUPTED,
            SIGNALLED,
        ],
        "ioloom-predict" => &[SUCCESS, FAILURE, USAGE, REFUSED, STOPPED],
        "ioloom-serve" => &[
            ("0", "Success, also after SIGINT or SIGTERM."),
            FAILURE,
            USAGE,
            REFUSED,
            ("130", "A second signal ended the server before its connections were closed."),
            ("128+N", "Signal N ended the server before it was ready."),
        ],
        _ => &[SUCCESS, FAILURE, USAGE, REFUSED, INTERRUPTED, SIGNALLED],
    }
}

fn exit_status(name: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in codes(name) {
        roff.control("TP", []);
        roff.text([bold(*code)]);
        roff.text([roman(*meaning)]);
    }
    roff
}

fn see_also(command: &Command, name: &str) -> Roff {
    let parent = name.rsplit_once('-').map(|(parent, _)| parent.to_owned());
    let children = shown(command).map(|sub| format!("{name}-{}", sub.get_name()));
    let mut pages: Vec<String> = parent.into_iter().chain(children).collect();
    pages.sort();
    let list: Vec<String> = pages.iter().map(|page| format!("{page}(1)")).collect();
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(list.join(", "))]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_section_once() {
        let sub = clap::Command::new("inner").about("Do less").arg(Arg::new("flag").long("flag"));
        let mut command = clap::Command::new("ioloom")
            .about("Do more")
            .after_long_help("A note.\n\nExamples:\n  ioloom x\n\nExit codes: 0 ok.")
            .subcommand(sub);
        command.build();
        let text = String::from_utf8(page(&command, "ioloom").unwrap()).unwrap();
        for head in ["NAME", "SYNOPSIS", "OPTIONS", "COMMANDS", "EXAMPLES", "EXIT STATUS"] {
            let heads = text.lines().filter(|line| line.replace('"', "") == format!(".SH {head}"));
            assert_eq!(heads.count(), 1, "{head}: {text}");
        }
        assert!(text.contains("A note.") && text.contains("ioloom\\-inner"), "{text}");
        assert!(text.contains("\\fBioloom\\fR [COMMAND]\n"), "{text}");
        assert!(!text.contains("Exit codes:"), "{text}");
    }

    #[test]
    fn lines_that_are_not_filled_fit_a_page() {
        let mut all = crate::command_line::complete();
        all.build();
        let mut open = vec![(all, "ioloom".to_owned())];
        while let Some((command, name)) = open.pop() {
            let text = String::from_utf8(page(&command, &name).unwrap()).unwrap();
            let mut is_literal = false;
            for line in text.lines() {
                is_literal = (is_literal || line == ".nf") && line != ".fi";
                let plain = line.replace("\\-", "-").replace("\\*(Aq", "'");
                let columns = plain.replace("\\\\", "\\").chars().count();
                assert!(!is_literal || columns <= PAGE_COLUMNS, "{name}: {line}");
            }
            let named = |sub: &Command| (sub.clone(), format!("{name}-{}", sub.get_name()));
            open.extend(shown(&command).map(named));
        }
    }

    #[test]
    fn long_lines_are_broken_outside_quotes() {
        let described = format!("ioloom {:<50}  what this command does", "x");
        assert_eq!(broken(&described), ["ioloom x", "    what this command does"]);
        let quoted = format!("sqlite3 index '{}'", "a b ".repeat(15));
        assert_eq!(broken(&quoted)[0], "sqlite3 index \\");
        assert_eq!(broken("ioloom x  short"), ["ioloom x  short"]);
        let described = format!("Words:\n  x  {}\n           and more", "word ".repeat(15));
        let mut text = Vec::new();
        literal(None, &described, &mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("\n    and more\n"));
    }

    #[test]
    fn a_page_lists_the_exit_codes_of_its_command() {
        let listed =
            |name: &str| -> Vec<&str> { codes(name).iter().map(|(code, _)| *code).collect() };
        for name in ["ioloom-cp", "ioloom-du"] {
            assert_eq!(listed(name), ["0", "1", "128+N"]);
        }
        assert_eq!(listed("ioloom-each"), ["0", "1", "2", "3", "130", "128+N"]);
        assert_eq!(listed("ioloom-load"), ["0", "1", "2", "3", "130", "128+N"]);
        let load = codes("ioloom-load");
        assert!(load[0].1.contains("--null-server"), "{load:?}");
        for reason in ["bottleneck", "warm-up", "nothing was due", "search"] {
            assert!(load[3].1.contains(reason), "{reason}: {load:?}");
        }
        let page = page(&clap::Command::new("cp").about("Copy"), "ioloom-cp").unwrap();
        let page = String::from_utf8(page).unwrap();
        let section = page.split("EXIT STATUS").nth(1).unwrap();
        assert!(section.contains("143 by SIGTERM") && !section.contains("efused"), "{section}");
    }
}
