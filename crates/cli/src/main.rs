//! The ioloom program: flags and glue. Every command lives in a module of its name; what it does is
//! in the library crates.

mod each;
mod exit;

use clap::{Parser, Subcommand};

use std::process::ExitCode;

/// Runs your function over many files as fast as this machine allows, and tells why.
#[derive(Debug, Parser)]
#[command(name = "ioloom", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Each(each::EachArgs),
    /// Runs one plan in this process: what the laboratory starts for each run.
    #[command(hide = true)]
    RunOrder,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.command {
        Command::Each(args) => each::run(&args),
        Command::RunOrder => return ioloom_lab::child::serve(ioloom_subjects::run_order),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            tell(&failure.message);
            failure.exit.into()
        }
    }
}

/// One line on standard error, under the name of the program.
pub(crate) fn tell(message: &str) {
    use std::io::Write;
    // Nothing sensible is left to do when standard error is gone.
    let _ = writeln!(std::io::stderr(), "ioloom: {message}");
}
