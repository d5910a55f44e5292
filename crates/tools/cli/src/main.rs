//! The ioloom program: flags and glue. Every command lives in a module of its name; what it does is
//! in the library crates.

mod cache;
mod claims;
mod clean;
mod compare;
mod cp;
mod doctor;
mod du;
mod each;
mod exit;
mod facts;
mod fileset;
mod ledger;
mod load;
mod machine;
mod manual;
mod media;
mod memory;
mod out;
mod place;
mod progress;
mod report;
mod results;
mod resume;
mod serve;
mod session_report;
mod sessions;
mod study;
mod told;
mod trace;
mod tree_map;
mod watch;

use clap::{Parser, Subcommand};

use std::process::ExitCode;

/// Version and commit of the program.
pub(crate) const VERSION: &str = env!("IOLOOM_VERSION");

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
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
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

/// Commands that take the place of small programs. Where the first word names one, the flags of the others
/// need not be built, which is most of what happens before it begins.
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

fn command() -> Command {
    let is_quick = std::env::args_os().nth(1).is_some_and(|word| {
        let names = ["each", "du", "cp"];
        names.iter().any(|name| word == *name)
    });
    if is_quick { QuickCli::parse().command.into() } else { Cli::parse().command }
}

fn main() -> ExitCode {
    let ended = match command() {
        Command::Study(args) => study::run(&args),
        Command::Each(args) => each::run(&args),
        Command::Du(args) => du::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Cp(args) => cp::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Claims(args) => claims::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Results(args) => results::run(&args),
        Command::Machine(args) => machine::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Watch(args) => return watch::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Fileset(args) => fileset::run(&args),
        Command::Clean(args) => clean::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(_) => manual::man(),
        Command::RunOrder => return ioloom_lab::child::serve(ioloom_subjects::run_order),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                tell(&failure.message);
            }
            failure.exit.into()
        }
    }
}

/// Text on standard error as it is.
pub(crate) fn tell_plain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// One line on standard error, under the name of the program.
pub(crate) fn tell(message: &str) {
    use std::io::Write;
    // Nothing sensible is left to do when standard error is gone.
    let _ = writeln!(std::io::stderr(), "ioloom: {}", in_words(message));
}

/// A message without the numbers that the system has for its errors, whose words stand before.
pub(crate) fn in_words(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(" (os error ") {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once(')').map_or("", |(_, after)| after);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    #[test]
    fn commands_that_start_fast_have_the_same_flags() {
        use clap::CommandFactory;
        let mut all = super::Cli::command();
        let mut quick = super::QuickCli::command();
        all.build();
        quick.build();
        for of in quick.get_subcommands_mut().filter(|of| of.get_name() != "help") {
            let same = all.find_subcommand_mut(of.get_name()).unwrap();
            let (quick, all) = (of.render_long_help(), same.render_long_help());
            assert_eq!(quick.ansi().to_string(), all.ansi().to_string());
        }
    }

    #[test]
    fn errors_are_told_in_words() {
        let told = super::in_words("read x: No such file (os error 2); check (a) it");
        assert_eq!(told, "read x: No such file; check (a) it");
        assert_eq!(super::in_words("plain"), "plain");
    }
}
