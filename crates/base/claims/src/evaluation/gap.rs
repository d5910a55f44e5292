//! Why a contrast has no result.

use ioloom_model::Verdict;
use std::fmt;

/// Why an arm or a contrast has no numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Gap {
    /// No run of these arms is stored.
    Missing(Vec<String>),
    /// The plan cannot run on this machine.
    Refused { arm: String, reason: String },
    /// The arm started but did not finish correctly.
    Failed { arm: String, reason: String },
    /// The runs do not contain this number.
    NoNumber { arm: String, name: String },
    /// The read call only queued the request, so its duration is not the read time.
    NotTimed { arm: String },
    /// Too few blocks in which all arms finished.
    FewBlocks { have: usize, need: usize },
    /// A session that is judged at looks has not reached the first one.
    BeforeFirstLook { have: u32, first: u32 },
    /// The statistic is undefined for these numbers.
    Undefined(String),
    /// This version has no test for the claim.
    Untested { needs: String },
}

impl Gap {
    /// Returns a gap for a statistic that failed with `error`.
    pub(crate) fn undefined(error: impl fmt::Display) -> Self {
        Self::Undefined(error.to_string())
    }

    /// Returns the verdict on a contrast with this gap.
    pub(crate) const fn verdict(&self) -> Verdict {
        match self {
            Self::Refused { .. } | Self::NoNumber { .. } | Self::NotTimed { .. } => {
                Verdict::NotTestableHere
            }
            Self::Missing(_)
            | Self::Failed { .. }
            | Self::FewBlocks { .. }
            | Self::BeforeFirstLook { .. }
            | Self::Undefined(_)
            | Self::Untested { .. } => Verdict::Undecided,
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(arms) => write!(f, "no stored runs of {}", arms.join(", ")),
            Self::Refused { arm, reason } => write!(f, "{arm} cannot run here: {reason}"),
            Self::Failed { arm, reason } => write!(f, "{arm} failed: {reason}"),
            Self::NoNumber { arm, name } => {
                write!(
                    f,
                    "the runs of {arm} do not contain {name}, which this machine cannot measure"
                )
            }
            Self::NotTimed { arm } => write!(
                f,
                "{arm} queues its reads and submits them with the wait for completions, so the \
                 read call itself was not timed"
            ),
            Self::FewBlocks { have, need } => write!(
                f,
                "too few blocks: {have}, at least {need} are required; repeat the study with \
                 --blocks {need}"
            ),
            Self::BeforeFirstLook { have, first } => {
                write!(f, "open, first look after {first} blocks ({have} so far)")
            }
            Self::Undefined(reason) => f.write_str(reason),
            Self::Untested { needs } => write!(f, "not tested by this version: needs {needs}"),
        }
    }
}
