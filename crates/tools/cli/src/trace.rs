//! `ioloom trace`: shows and exports traces, grants access to kernel events, and tests the recorder.

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

/// Show and export what every thread did
///
/// Traces come from `ioloom each --trace FILE`, `ioloom watch -o FILE`, and from any program that uses
/// the library, with IOLOOM_TRACE=FILE in its environment.
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
    /// Print lanes, shares, findings and evidence
    ///
    /// One lane per thread shows its states over time; below are shares of time, and what the trace
    /// reveals.
    #[command(
        after_long_help = "Examples:\n  ioloom trace show run.ioloom --width 160\n  ioloom trace show run.ioloom --json"
    )]
    Show(show::ShowArgs),
    /// Export a trace to a page, picture or table
    ///
    /// Also to the format of Perfetto.
    #[command(after_long_help = "\
Examples:
  ioloom trace export run.ioloom --format html -o run.html
  ioloom trace export run.ioloom --format perfetto -o run.pftrace
  ioloom trace export run.ioloom --format png -o run.png
  ioloom trace export run.ioloom --format csv --table spans -o -")]
    Export(export::ExportArgs),
    /// Show two traces on one time axis
    ///
    /// Writes one HTML page with both.
    #[command(after_long_help = "Examples:\n  ioloom trace compare a.ioloom b.ioloom -o both.html")]
    Compare(export::CompareArgs),
    /// Let a user record kernel events
    ///
    /// The user can then record scheduler and device events: names, numbers and context switches of
    /// every process, and requests to devices, but no contents. Lasts until `ioloom trace revoke` or
    /// the next boot. Needs root.
    #[command(after_long_help = "\
Examples:
  sudo ioloom trace grant --user anna")]
    Grant(grant::UserArgs),
    /// Revoke the access granted to a user
    ///
    /// Needs root.
    #[command(after_long_help = "Examples:\n  sudo ioloom trace revoke --user anna")]
    Revoke(grant::UserArgs),
    /// Test the accuracy and cost of each level
    ///
    /// Four workers compute, read cold blocks, touch cold pages, wait, sleep and read from a pipe, while
    /// other threads keep the processors busy. Each keeps its own account, with which the shares of the
    /// level are compared, in percentage points of the elapsed time. Then tasks of 30 us run with and
    /// without a recorder.
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
