//! The result of a run over files.

use crate::exit::Exit;
use ioloom_model::Measured;
use std::sync::atomic::AtomicBool;

/// The result of a run over files.
pub(crate) struct Outcome {
    pub(crate) measured: Measured,
    /// XXH3-64 over the sorted lines `HASH  PATH`; `None` when the work gives no hash.
    pub(crate) digest: Option<String>,
    pub(crate) errors: Vec<String>,
    pub(crate) cancelled: bool,
}

impl Outcome {
    /// Adds the errors of the walk to those of the run.
    pub(super) fn add_walk_errors(&mut self, errors: Vec<String>) {
        self.measured.errors += errors.len() as u64;
        self.errors.extend(errors);
    }

    /// Adds the error that ended the list of paths early, before the errors of single files.
    pub(super) fn add_first(&mut self, error: Option<&String>) {
        self.measured.errors += u64::from(error.is_some());
        self.errors.splice(..0, error.cloned());
    }

    pub(super) fn exit(&self, stop: &AtomicBool) -> Exit {
        if self.cancelled || stop.load(std::sync::atomic::Ordering::Relaxed) {
            Exit::Interrupted
        } else if self.measured.errors > 0 {
            Exit::Failed
        } else {
            Exit::Ok
        }
    }
}
