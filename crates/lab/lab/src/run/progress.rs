//! Events of a running study.

use crate::needs::Needs;
use ioloom_model::RunRecord;
use ioloom_model::record::RunKey;

/// An event of a running study.
#[derive(Debug)]
pub enum Event<'a> {
    /// The study's requirements, before anything is created.
    Needs(&'a Needs),
    /// A set is being created or checked: name, medium, files done, total files.
    Preparing(&'a str, &'a str, u64, u64),
    /// The session was started or resumed: its name, runs done, total runs.
    Begun(&'a str, usize, usize),
    /// A run is starting: its key and the total number of runs.
    Run(&'a RunKey, usize),
    /// A run is recorded.
    Recorded(&'a RunRecord),
    /// A message for the user.
    Note(&'a str),
}

/// Receives the events of a study.
pub trait Progress: Sync {
    /// Called between runs, never during one. During set creation, called from any thread.
    fn event(&self, event: &Event<'_>);
}

/// Ignores all events.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn event(&self, _: &Event<'_>) {}
}
