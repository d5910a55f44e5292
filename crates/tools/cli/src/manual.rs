//! `ioloom completions` and `ioloom man`: made from the command line's own description.

use crate::exit::{Ended, Exit, Failure};
use crate::out;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

/// Prints completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ioloom completions bash > ~/.local/share/bash-completion/completions/ioloom
  ioloom completions fish > ~/.config/fish/completions/ioloom.fish
  ioloom completions zsh  > ~/.zfunc/_ioloom")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the manual page.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ioloom man | man -l -
  ioloom man > ~/.local/share/man/man1/ioloom.1")]
pub(crate) struct ManArgs {}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Ended {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "ioloom", &mut text);
    out::print_bytes(&text)?;
    Ok(Exit::Ok)
}

pub(crate) fn man(mut command: Command) -> Ended {
    command.build();
    let mut text = Vec::new();
    let page = Man::new(command.clone());
    page.render_title(&mut text)
        .and_then(|()| page.render_name_section(&mut text))
        .and_then(|()| page.render_synopsis_section(&mut text))
        .and_then(|()| page.render_options_section(&mut text))
        .and_then(|()| page.render_extra_section(&mut text))
        .map_err(Failure::failed)?;
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        section(sub, &format!("ioloom {}", sub.get_name()), &mut text)?;
    }
    out::print_bytes(&text)?;
    Ok(Exit::Ok)
}

/// A command as a section of its own, and its subcommands after it.
fn section(command: &Command, name: &str, text: &mut Vec<u8>) -> Result<(), Failure> {
    let page = Man::new(command.clone());
    let mut parts = Vec::new();
    page.render_synopsis_section(&mut parts)
        .and_then(|()| page.render_description_section(&mut parts))
        .and_then(|()| page.render_options_section(&mut parts))
        .and_then(|()| page.render_extra_section(&mut parts))
        .map_err(Failure::failed)?;
    text.extend_from_slice(format!(".SH {}\n", name.to_uppercase()).as_bytes());
    for line in String::from_utf8_lossy(&parts).lines() {
        let line = line.strip_prefix(".SH ").map_or(line.to_owned(), |head| format!(".SS {head}"));
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        section(sub, &format!("{name} {}", sub.get_name()), text)?;
    }
    Ok(())
}
