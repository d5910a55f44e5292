//! What a run does with results, failures and progress.

/// What a run does when a file fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Stop at the first failure and return it.
    #[default]
    Stop,
    /// Count failures and go on.
    Skip,
    /// Go on, keep the first 1000 failures in [`Run::errors`](crate::Run::errors) and count all.
    Collect,
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As they become ready.
    #[default]
    Any,
    /// In the order of the input.
    Input,
}

/// Progress of a run, reported about ten times a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Files processed.
    pub files: u64,
    /// Bytes processed.
    pub bytes: u64,
    /// Number of files, if known before the end.
    pub files_total: Option<u64>,
}

pub(crate) type ProgressFn<'a> = Box<dyn Fn(Progress) + Sync + Send + 'a>;
