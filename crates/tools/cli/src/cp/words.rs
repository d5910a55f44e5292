//! Splits the command line of `cp` as GNU cp does, before clap reads it.

use super::args::CpFlags;
use crate::getopt::{self, Options};
use crate::version::VERSION;
use clap::{Args, Command};
use std::ffi::OsString;

/// The long options of GNU cp, in its order.
const GNU: [&str; 30] = [
    "archive",
    "attributes-only",
    "backup",
    "copy-contents",
    "debug",
    "dereference",
    "force",
    "interactive",
    "link",
    "no-clobber",
    "no-dereference",
    "no-preserve",
    "no-target-directory",
    "one-file-system",
    "parents",
    "path",
    "preserve",
    "recursive",
    "remove-destination",
    "sparse",
    "reflink",
    "strip-trailing-slashes",
    "suffix",
    "symbolic-link",
    "target-directory",
    "update",
    "verbose",
    "context",
    "help",
    "version",
];

/// Rewrites the words after `cp`: whole options, then operands. With `posix`, options end at the
/// first operand.
///
/// # Errors
/// Returns the message for the first invalid word; GNU cp reports no others.
pub(crate) fn expand(
    words: impl Iterator<Item = OsString>,
    posix: bool,
) -> Result<Vec<OsString>, String> {
    let mut command = CpFlags::augment_args(Command::new("cp").version(VERSION));
    command.build();
    let words = Options::of(&command, &GNU).split(words, posix);
    words.map(getopt::whole).map_err(|messages| messages.into_iter().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str, posix: bool) -> String {
        let words = line.split(' ').map(OsString::from);
        let expanded = expand(words, posix).unwrap();
        let text: Vec<_> = expanded.iter().map(|word| word.to_string_lossy()).collect();
        text.join(" ")
    }

    #[test]
    fn abbreviations_are_those_of_gnu_cp() {
        for (short, long) in [
            ("--rem a b", "--remove-destination -- a b"),
            ("--b=simple a b", "--backup=simple -- a b"),
            ("--parent a b", "--parents -- a b"),
            ("--pa a b", "--parents -- a b"),
            ("--pat a b", "--path -- a b"),
            ("--str a", "--strip-trailing-slashes -- a"),
            ("--resume a", "--resume -- a"),
            ("--resu a", "--resume -- a"),
            ("--arch -- --arch", "--archive -- --arch"),
            ("--suf --arch --arch", "--suffix=--arch --archive --"),
            ("-S --arch --arch", "-S=--arch --archive --"),
            ("-aS --arch --arch", "-a -S=--arch --archive --"),
            ("-Sx --arch", "-S=x --archive --"),
            ("--verb --thr 2 --vers -h", "--verbose --threads=2 --version -h --"),
        ] {
            assert_eq!(words(short, false), long);
        }
    }

    #[test]
    fn ambiguous_options_and_missing_values_are_errors() {
        let error = |line: &str| expand(line.split(' ').map(OsString::from), false).unwrap_err();
        for (line, message) in [
            (
                "--re a",
                "option '--re' is ambiguous; possibilities: '--recursive' '--remove-destination' \
                 '--reflink'",
            ),
            ("a -t", "option requires an argument -- 't'"),
            ("a --spa", "option '--sparse' requires an argument"),
            ("--unknown -t", "unrecognized option '--unknown'"),
            ("-aj", "invalid option -- 'j'"),
            ("--pa=x", "option '--parents' doesn't allow an argument"),
        ] {
            assert_eq!(error(line), message, "{line}");
        }
    }

    #[test]
    fn options_end_at_the_first_operand_if_posix_is_requested() {
        assert_eq!(words("-a -t d x -b", true), "-a -t=d -- x -b");
        assert_eq!(words("-a x -b", false), "-a -b -- x");
        assert_eq!(words("-a -- x -b", true), "-a -- x -b");
    }
}
