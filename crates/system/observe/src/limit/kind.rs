//! The limits.

/// What can limit a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// Waiting for data of files.
    Device,
    /// Processor time of system calls on files.
    Metadata,
    /// Processor time of the function.
    Compute,
    /// Threads waiting for each other.
    HandOver,
    /// Waiting for the memory budget.
    Memory,
    /// Waiting for the next path.
    InputList,
    /// Processors and devices used by other programs.
    OtherPrograms,
    /// Processor time that quotas of control groups took.
    Quota,
    /// Child processes that the function started.
    ChildProcesses,
    /// Sleep and locks inside the function.
    FunctionWaits,
    /// Waiting for the reader of results.
    Output,
    /// Not explained.
    Unknown,
}

impl Limit {
    /// Every limit, in the order of the shares.
    pub const ALL: [Self; 12] = [
        Self::Device,
        Self::Metadata,
        Self::Compute,
        Self::HandOver,
        Self::Memory,
        Self::InputList,
        Self::OtherPrograms,
        Self::Quota,
        Self::ChildProcesses,
        Self::FunctionWaits,
        Self::Output,
        Self::Unknown,
    ];

    /// Returns the word that is stored.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Metadata => "metadata",
            Self::Compute => "compute",
            Self::HandOver => "hand-over",
            Self::Memory => "memory",
            Self::InputList => "input list",
            Self::OtherPrograms => "other programs",
            Self::Quota => "processor quota",
            Self::ChildProcesses => "child processes",
            Self::FunctionWaits => "function waits",
            Self::Output => "output",
            Self::Unknown => "unknown",
        }
    }
}
