//! The result of a run over files.

use super::selection::SkippedCounts;
use crate::exit::Exit;
use ioloom_model::Measured;
use ioloom_shard::record::Record;

/// How the objects of a store were read.
#[cfg_attr(not(feature = "objects"), allow(dead_code, reason = "only objects have it"))]
pub(crate) struct Remote {
    /// How threads shared the work, in the words of a schedule.
    pub(crate) schedule: String,
    /// Requests sent, refused because there were too many, and repeated.
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    pub(crate) repeated: u64,
}

/// The result of a run over files.
pub(crate) struct Outcome {
    pub(crate) measured: Measured,
    /// XXH3-64 over the sorted lines `HASH  PATH`; `None` when the work gives no hash.
    pub(crate) digest: Option<String>,
    pub(crate) errors: Vec<String>,
    /// The errors that are still to be printed, and their number with those whose text was not kept.
    pub(crate) unprinted: (Vec<String>, u64),
    /// What the walk skipped; `None` for a list.
    pub(crate) skipped: Option<SkippedCounts>,
    /// What the walk skipped, in words.
    pub(crate) warnings: Vec<String>,
    pub(crate) cancelled: bool,
    /// Commands of --exec that failed; their files are among the errors.
    pub(crate) commands_failed: u64,
    /// The result of each file by position, for a part.
    pub(crate) records: Vec<(usize, Record)>,
    /// How objects were read, if these were the files.
    pub(crate) remote: Option<Remote>,
    /// Which shard this is, for the document.
    pub(crate) shard: Option<serde_json::Value>,
}

impl Outcome {
    /// Creates the result. The texts of some `errors` are kept; `printed` if all were printed.
    pub(super) fn new(
        measured: Measured,
        digest: Option<String>,
        errors: Vec<String>,
        printed: bool,
    ) -> Self {
        let unprinted = if printed { (Vec::new(), 0) } else { (errors.clone(), measured.errors) };
        Self {
            measured,
            digest,
            errors,
            unprinted,
            skipped: None,
            warnings: Vec::new(),
            cancelled: false,
            commands_failed: 0,
            records: Vec::new(),
            remote: None,
            shard: None,
        }
    }

    /// Returns whether the digest lacks files: the run was interrupted, or files failed.
    pub(crate) fn is_partial(&self) -> bool {
        self.cancelled || self.measured.errors > 0
    }

    /// Notes failed commands. If no command succeeded, nothing limited the run.
    pub(super) fn add_failed_commands(&mut self, commands: u64) {
        self.commands_failed = commands;
        if commands > 0 && self.measured.files == 0 {
            self.measured.bottleneck = None;
        }
    }

    /// Adds the error that ended the list of paths early, before the errors of single files.
    pub(super) fn add_first(&mut self, error: Option<&String>) {
        let Some(error) = error else { return };
        self.measured.errors += 1;
        self.unprinted.1 += 1;
        self.unprinted.0.insert(0, error.clone());
        self.errors.insert(0, error.clone());
    }

    /// An interrupt after the last file changes nothing.
    pub(super) fn exit(&self) -> Exit {
        if self.cancelled {
            Exit::Interrupted
        } else if self.measured.errors > 0 {
            Exit::Failed
        } else {
            Exit::Ok
        }
    }
}
