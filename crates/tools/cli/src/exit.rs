//! Exit codes and failures.

#[cfg(feature = "exchange")]
use ioloom_tls::TlsError;
use std::process::ExitCode;

/// Exit codes. `cp` and `du` replace [`Exit::Usage`] and [`Exit::Refused`] with [`Exit::Failed`], as
/// GNU's programs do, and `watch` exits with the code of its command. The codes of signals are 128 plus
/// the number; many commands use [`Exit::Interrupted`] for every signal that they handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok = 0,
    /// Something failed and was reported.
    Failed = 1,
    /// The command line or an input file is invalid.
    Usage = 2,
    /// The request cannot be carried out as specified; the reason was reported.
    Refused = 3,
    /// The terminal was closed (SIGHUP).
    Hangup = 129,
    /// The user interrupted the command (SIGINT).
    Interrupted = 130,
    /// The command was terminated (SIGTERM).
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that terminates a command: one message and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// The reader has closed standard output: exit without a message.
    pub(crate) fn quiet() -> Self {
        Self::new(Exit::Ok, "")
    }

    /// Returns true if the reader has closed standard output.
    pub(crate) fn is_quiet(&self) -> bool {
        self.exit == Exit::Ok && self.message.is_empty()
    }

    /// The work failed (exit 1).
    pub(crate) fn failed(error: impl std::fmt::Display) -> Self {
        Self::new(Exit::Failed, error.to_string())
    }

    /// The command line is invalid (exit 2).
    pub(crate) fn usage(error: impl std::fmt::Display) -> Self {
        Self::new(Exit::Usage, error.to_string())
    }

    /// The request is refused (exit 3).
    pub(crate) fn refused(error: impl std::fmt::Display) -> Self {
        Self::new(Exit::Refused, error.to_string())
    }

    /// A TLS file cannot be read (exit 1), it or the server name is invalid (exit 2), or TLS cannot be
    /// used as requested (exit 3).
    #[cfg(feature = "exchange")]
    pub(crate) fn tls(error: TlsError) -> Self {
        match error {
            TlsError::Read { .. } => Self::failed(error),
            TlsError::Invalid { .. } | TlsError::Name(_) => Self::usage(error),
            _ => Self::refused(error),
        }
    }

    /// The request needs the stock exchange, which is not in this build (exit 3).
    #[cfg(not(feature = "exchange"))]
    pub(crate) fn no_exchange() -> Self {
        Self::refused("this build has no stock exchange; rebuild with the cargo feature 'exchange'")
    }
}

/// The result of a command.
pub(crate) type Ended = Result<Exit, Failure>;
