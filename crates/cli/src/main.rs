//! The ioloom program: flags and glue. Every command lives in a module of its name; what it does is
//! in the library crates.

mod each;
mod exit;
mod facts;
mod ledger;
mod out;
mod place;
mod progress;
mod session_report;
mod study;

use clap::{Parser, Subcommand};

use std::process::ExitCode;

/// Version and commit of the program.
pub(crate) const VERSION: &str = env!("IOLOOM_VERSION");

/// Runs your function over many files as fast as this machine allows, and tells why.
#[derive(Debug, Parser)]
#[command(name = "ioloom", version = VERSION, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Study(study::StudyArgs),
    Each(each::EachArgs),
    /// Runs one plan in this process: what the laboratory starts for each run.
    #[command(hide = true)]
    RunOrder,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.command {
        Command::Study(args) => study::run(&args),
        Command::Each(args) => each::run(&args),
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
    let _ = writeln!(std::io::stderr(), "ioloom: {message}");
}
