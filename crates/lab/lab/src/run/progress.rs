//! What a study tells while it runs, to whoever watches.

use crate::needs::Needs;
use ioloom_model::RunRecord;
use ioloom_model::record::RunKey;

/// What happens while a study runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// What the study needs, before anything is made.
    Needs(&'a Needs),
    /// A set is being made or checked: name, medium, files done, files in all.
    Preparing(&'a str, &'a str, u64, u64),
    /// The session has begun or goes on: its name, runs done already, runs in all.
    Begun(&'a str, usize, usize),
    /// A run begins: its position from 0, runs in all.
    Run(&'a RunKey, usize),
    /// A run is recorded.
    Recorded(&'a RunRecord),
    /// Something worth a line.
    Note(&'a str),
}

/// Listens to a study.
pub trait Progress: Sync {
    /// Called between runs, never during one; while sets are made, from any thread.
    fn event(&self, event: &Event<'_>);
}

/// A listener that does not listen.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn event(&self, _: &Event<'_>) {}
}
