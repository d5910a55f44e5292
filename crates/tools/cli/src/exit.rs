//! How the program ends.

use std::process::ExitCode;

/// Exit codes, the same for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok = 0,
    /// Something failed and was reported.
    Failed = 1,
    /// The command line or an input file was not understood.
    Usage = 2,
    /// The request cannot be carried out as asked; the reason was given.
    Refused = 3,
    /// The user interrupted.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command ends early: one message and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// The reader of standard output has closed it: end without a message.
    pub(crate) fn quiet() -> Self {
        Self::new(Exit::Ok, "")
    }

    /// The work failed (exit 1).
    pub(crate) fn failed(error: impl std::fmt::Display) -> Self {
        Self::new(Exit::Failed, error.to_string())
    }

    /// The command line was not understood (exit 2).
    pub(crate) fn usage(error: impl std::fmt::Display) -> Self {
        Self::new(Exit::Usage, error.to_string())
    }

    /// The request is refused (exit 3).
    pub(crate) fn refused(error: impl std::fmt::Display) -> Self {
        Self::new(Exit::Refused, error.to_string())
    }
}

/// What a command returns.
pub(crate) type Ended = Result<Exit, Failure>;
