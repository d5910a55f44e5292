//! Reasons to distrust a result: a closed list, each with advice.

use serde::{Deserialize, Serialize};

/// A reason to distrust a result. Stored with it and shown on its chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// The clock's step is large beside what was timed.
    ClockCoarse,
    /// Asked for cold, but the evidence does not show it.
    NotCold,
    /// Asked for warm, but the evidence does not show it.
    NotWarm,
    /// The condition could not be measured at all.
    ConditionUnknown,
    /// Others used the processors during the run.
    NoisyNeighbour,
    /// Fewer blocks than the verdict rule needs.
    FewSamples,
    /// Later blocks differ from earlier ones.
    Drift,
    /// Blocks alternate between high and low.
    Alternation,
    /// The first block differs from the rest.
    FirstRun,
    /// The values fall into two groups.
    TwoRegimes,
    /// The same plan against itself differs: the noise floor is above the effect.
    NoiseFloor,
    /// Our own machinery is a large part of what was timed.
    OwnOverhead,
    /// Spans did not fit their budget; totals are complete, the timeline is not.
    SpansLost,
    /// More threads computed than there are cores.
    Oversubscribed,
    /// A small run, under a hundredth of a second: start-up effects weigh.
    ShortRun,
    /// The digest or the count of bytes is not what the set says.
    WrongBytes,
    /// Some files failed.
    Errors,
    /// The set is smaller than the one published; the size is said.
    Scaled,
}

impl Doubt {
    /// Every doubt.
    pub const ALL: [Self; 18] = [
        Self::ClockCoarse,
        Self::NotCold,
        Self::NotWarm,
        Self::ConditionUnknown,
        Self::NoisyNeighbour,
        Self::FewSamples,
        Self::Drift,
        Self::Alternation,
        Self::FirstRun,
        Self::TwoRegimes,
        Self::NoiseFloor,
        Self::OwnOverhead,
        Self::SpansLost,
        Self::Oversubscribed,
        Self::ShortRun,
        Self::WrongBytes,
        Self::Errors,
        Self::Scaled,
    ];

    /// A short name for tables and charts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClockCoarse => "clock coarse",
            Self::NotCold => "not cold",
            Self::NotWarm => "not warm",
            Self::ConditionUnknown => "condition unknown",
            Self::NoisyNeighbour => "noisy neighbour",
            Self::FewSamples => "few samples",
            Self::Drift => "drift",
            Self::Alternation => "alternation",
            Self::FirstRun => "first run differs",
            Self::TwoRegimes => "two regimes",
            Self::NoiseFloor => "noise floor",
            Self::OwnOverhead => "own overhead",
            Self::SpansLost => "spans lost",
            Self::Oversubscribed => "oversubscribed",
            Self::ShortRun => "short run",
            Self::WrongBytes => "wrong bytes",
            Self::Errors => "errors",
            Self::Scaled => "scaled",
        }
    }

    /// What it means and what to do about it. How many blocks are enough is known where a study was
    /// quick or full; whoever knows that says the number.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::ClockCoarse => "time longer stretches, or on a machine with a vDSO clock",
            Self::NotCold => {
                "data were already in memory; run as root with --drop-caches, or use a set larger \
                 than memory"
            }
            Self::NotWarm => "memory was reclaimed before the run; use a smaller set",
            Self::ConditionUnknown => {
                "this kernel or file system cannot tell what is cached; treat cold and warm alike"
            }
            Self::NoisyNeighbour => "other programs used the processors; repeat on a quiet machine",
            Self::FewSamples => "repeat it with more --blocks or a longer --budget",
            Self::Drift => "the machine changed during the study; look at the order of runs",
            Self::Alternation => "something periodic disturbs; look at the order of runs",
            Self::FirstRun => "the first block warmed something; it counts, but look at it",
            Self::TwoRegimes => "the median stands between two modes; look at the single runs",
            Self::NoiseFloor => "a plan against itself differs by as much; take more blocks",
            Self::OwnOverhead => "compare with the null method before blaming the machine",
            Self::SpansLost => "totals hold; for a full timeline use fewer files",
            Self::Oversubscribed => {
                "more threads computed than cores exist; use the sleep arm, or a larger machine"
            }
            Self::ShortRun => "use more files or larger ones",
            Self::WrongBytes => "the files changed, or a method is broken; do not use this result",
            Self::Errors => "see the list of files; the times cover only those that worked",
            Self::Scaled => "run --full for the published size",
        }
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
