//! `ioloom trace`: shows and exports traces; who may see what threads do, and whether what is seen
//! is right.

mod document;
mod export;
mod grant;
pub(crate) mod input;
mod png;
mod selftest;
mod show;

use crate::exit::Ended;
use clap::{Args, Subcommand};

pub(crate) use document::document;
pub(crate) use show::text;

/// Shows what every thread did when; lets a user see kernel events.
#[derive(Debug, Args)]
#[command(after_help = "\
Traces come from `ioloom each --trace FILE`, `ioloom watch -o FILE`, and from any program that uses
the library, with IOLOOM_TRACE=FILE in its environment.

Examples:
  ioloom each ~/src --trace run.ioloom
  ioloom trace show run.ioloom
  ioloom trace export run.ioloom --format html -o run.html
  ioloom trace compare before.ioloom after.ioloom -o both.html
  sudo ioloom trace grant --user anna
  sudo ioloom trace revoke --user anna
  ioloom trace selftest")]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Prints lanes, shares, findings and evidence of a trace
    #[command(
        after_help = "Examples:\n  ioloom trace show run.ioloom --width 160\n  ioloom trace show run.ioloom --json"
    )]
    Show(show::ShowArgs),
    /// Makes a page, a picture, a table or a Perfetto trace of it
    #[command(after_help = "\
Examples:
  ioloom trace export run.ioloom --format html -o run.html
  ioloom trace export run.ioloom --format perfetto -o run.pftrace
  ioloom trace export run.ioloom --format png -o run.png
  ioloom trace export run.ioloom --format csv --table spans -o -")]
    Export(export::ExportArgs),
    /// Puts two traces on one axis, in one page
    #[command(after_help = "Examples:\n  ioloom trace compare a.ioloom b.ioloom -o both.html")]
    Compare(export::CompareArgs),
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
        What::Show(args) => show::run(args),
        What::Export(args) => export::run(args),
        What::Compare(args) => export::compare(args),
        What::Grant(args) => grant::grant(args),
        What::Revoke(args) => grant::revoke(args),
        What::Selftest(args) => selftest::run(args),
    }
}
