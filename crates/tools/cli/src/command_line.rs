//! The commands of the program and how the first words of a command line choose one.

use crate::version::VERSION;
use crate::{
    cache, claims, clean, compare, cp, du, each, fileset, load, machine, manual, memory, report,
    results, serve, study, trace, watch,
};
use clap::{CommandFactory, Parser, Subcommand};

/// Runs your function over many files as fast as this machine allows, and tells why.
#[derive(Debug, Parser)]
#[command(name = "ioloom", version = VERSION, propagate_version = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  ioloom study                  which plan is fastest on this machine, in 90 seconds
  ioloom each ~/src --per-file  a fast parallel checksum tool
  ioloom du ~                   what takes the space, with a picture
  ioloom cp -a ~/src /mnt/disk  a copy that is whole or not there
  ioloom claims                 what was published, and what holds here

Exit codes: 0 ok, 1 something failed, 2 wrong use, 3 refused, 130 interrupted.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// A command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Study(study::StudyArgs),
    Each(each::EachArgs),
    Du(du::DuArgs),
    Cache(cache::CacheArgs),
    Cp(cp::CpArgs),
    Serve(serve::ServeArgs),
    Load(load::LoadArgs),
    Claims(claims::ClaimsArgs),
    Report(report::ReportArgs),
    Compare(compare::CompareArgs),
    Results(results::ResultsArgs),
    Machine(machine::MachineArgs),
    Memory(memory::MemoryArgs),
    Watch(watch::WatchArgs),
    Trace(trace::TraceArgs),
    Fileset(fileset::FilesetArgs),
    Clean(clean::CleanArgs),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
    /// Runs one plan in this process: what the laboratory starts for each run.
    #[command(hide = true)]
    RunOrder,
}

/// The commands that replace small programs, for which startup time matters. Building the flags of
/// every command dominates startup, so their command line is parsed by itself.
#[derive(Debug, Parser)]
#[command(name = "ioloom", version = VERSION, propagate_version = true, max_term_width = 100)]
struct QuickCli {
    #[command(subcommand)]
    command: Quick,
}

#[derive(Debug, Subcommand)]
enum Quick {
    Each(each::EachArgs),
    Du(du::DuArgs),
    Cp(cp::CpArgs),
}

impl From<Quick> for Command {
    fn from(quick: Quick) -> Self {
        match quick {
            Quick::Each(args) => Self::Each(args),
            Quick::Du(args) => Self::Du(args),
            Quick::Cp(args) => Self::Cp(args),
        }
    }
}

/// Parses the command line; prints help or an error and exits where clap asks for it.
pub(crate) fn parse() -> Command {
    let is_quick = std::env::args_os().nth(1).is_some_and(|word| {
        let names = ["each", "du", "cp"];
        names.iter().any(|name| word == *name)
    });
    if is_quick { QuickCli::parse().command.into() } else { Cli::parse().command }
}

/// Returns the description of every command, for completions and manual pages.
pub(crate) fn complete() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_start_fast_have_the_same_flags() {
        let mut all = Cli::command();
        let mut quick = QuickCli::command();
        all.build();
        quick.build();
        for of in quick.get_subcommands_mut().filter(|of| of.get_name() != "help") {
            let same = all.find_subcommand_mut(of.get_name()).unwrap();
            let (quick, all) = (of.render_long_help(), same.render_long_help());
            assert_eq!(quick.ansi().to_string(), all.ansi().to_string());
        }
    }
}
