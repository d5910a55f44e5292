//! `ioloom trace`: who may see what threads do, and whether what is seen is right.

mod grant;
mod selftest;

use crate::exit::Ended;
use clap::{Args, Subcommand};

/// Lets a user see kernel events, and tests what is seen.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo ioloom trace grant --user anna
  sudo ioloom trace revoke --user anna
  ioloom trace selftest")]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lets one user record scheduler and device events of the kernel
    #[command(after_help = "\
The user then sees names, numbers and switches of every process of the machine, and requests to its
devices, but no contents. It holds until `ioloom trace revoke` or the next start of the machine.

Examples:
  sudo ioloom trace grant --user anna")]
    Grant(grant::UserArgs),
    /// Takes back what grant gave
    #[command(after_help = "Examples:\n  sudo ioloom trace revoke --user anna")]
    Revoke(grant::UserArgs),
    /// Compares what each level reports with what threads are known to have done
    #[command(after_help = "\
Four workers compute, read cold blocks, touch cold pages, wait, sleep and read from a pipe, while
rivals keep the processors busy. Each keeps an account of its own; the level's shares are compared
with it, in points of the elapsed time. Then tasks of 30 us run with and without a recorder.

Examples:
  ioloom trace selftest
  ioloom trace selftest --evidence 1 --runs 10 --json")]
    Selftest(selftest::SelftestArgs),
}

pub(crate) fn run(args: &TraceArgs) -> Ended {
    match &args.what {
        What::Grant(args) => grant::grant(args),
        What::Revoke(args) => grant::revoke(args),
        What::Selftest(args) => selftest::run(args),
    }
}
