//! `ioloom trace`: shows and exports traces, grants access to kernel events and tests the recorder.

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

/// Show and export thread traces
///
/// A trace records the state of every thread over time. Create one with `ioloom each --trace FILE` or
/// `ioloom watch -o FILE`, or set IOLOOM_TRACE=FILE for any program that uses the library.
#[derive(Debug, Args)]
#[command(after_long_help = "\
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
    /// Print a timeline, time shares, findings and evidence
    ///
    /// Prints findings, one lane per thread with its states over time, the share of time in each state
    /// by role and by thread, and what could not be observed.
    #[command(
        after_long_help = "Examples:\n  ioloom trace show run.ioloom --width 160\n  ioloom trace show run.ioloom --json"
    )]
    Show(show::ShowArgs),
    /// Export a trace as a page, picture, table or Perfetto trace
    #[command(after_long_help = "\
Examples:
  ioloom trace export run.ioloom --format html -o run.html
  ioloom trace export run.ioloom --format perfetto -o run.pftrace
  ioloom trace export run.ioloom --format png -o run.png
  ioloom trace export run.ioloom --format csv --table spans -o -")]
    Export(export::ExportArgs),
    /// Compare two traces on a common time axis
    ///
    /// Writes an HTML page that shows both.
    #[command(after_long_help = "Examples:\n  ioloom trace compare a.ioloom b.ioloom -o both.html")]
    Compare(export::CompareArgs),
    /// Let a user record kernel events
    ///
    /// The user can then record scheduler and device events: the names, IDs and context switches of all
    /// processes, and device requests without their data. The grant lasts until `ioloom trace revoke`
    /// or a reboot. Needs root.
    #[command(after_long_help = "\
Examples:
  sudo ioloom trace grant --user anna")]
    Grant(grant::UserArgs),
    /// Revoke a grant
    ///
    /// Needs root.
    #[command(after_long_help = "Examples:\n  sudo ioloom trace revoke --user anna")]
    Revoke(grant::UserArgs),
    /// Test the accuracy and cost of the evidence levels
    ///
    /// Four workers compute, read cold blocks, touch cold pages, wait, sleep and read from a pipe
    /// while other threads keep the processors busy. Each worker records its time for each
    /// activity, and the test compares these times with the shares reported by each level. It then
    /// runs 30 us tasks with and without recording to measure the cost.
    #[command(after_long_help = "\
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
