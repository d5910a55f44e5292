//! Doubts: a closed list of reasons to distrust a result, each with advice.

use serde::{Deserialize, Serialize};

/// A reason to distrust a result. It is stored with the result and shown in its chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// The clock resolution is coarse compared with the measured time.
    ClockCoarse,
    /// The run required a cold cache, but the evidence does not confirm it.
    NotCold,
    /// The run required a warm cache, but the evidence does not confirm it.
    NotWarm,
    /// The condition could not be measured.
    ConditionUnknown,
    /// Other programs used the processors during the run.
    NoisyNeighbour,
    /// There are fewer blocks than the verdict rule requires.
    FewSamples,
    /// Later blocks differ from earlier ones.
    Drift,
    /// Blocks alternate between high and low values.
    Alternation,
    /// The first block differs from the rest.
    FirstRun,
    /// The values form two groups.
    TwoRegimes,
    /// Runs of the same plan differ by more than the effect.
    NoiseFloor,
    /// The overhead of ioloom is a large part of the measured time.
    OwnOverhead,
    /// Spans exceeded their memory limit: totals are complete, but the timeline is not.
    SpansLost,
    /// More threads were computing than there are cores.
    Oversubscribed,
    /// The run took less than 10 ms, so start-up effects matter.
    ShortRun,
    /// The digest or the byte count does not match the set.
    WrongBytes,
    /// Some files failed.
    Errors,
    /// The set is smaller than the published one.
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

    /// Returns a short name for tables and charts.
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

    /// Returns the meaning of the doubt and the recommended action. Callers that know the study
    /// mode add the required number of blocks.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::ClockCoarse => "measure longer intervals, or use a machine with a vDSO clock",
            Self::NotCold => {
                "data was already in memory; run as root with --drop-caches, or use a set larger \
                 than memory"
            }
            Self::NotWarm => "pages were reclaimed before the run; use a smaller set",
            Self::ConditionUnknown => {
                "the kernel or file system does not report what is cached; do not compare cold \
                with warm runs"
            }
            Self::NoisyNeighbour => {
                "other programs used the processors or the device; repeat on an idle machine"
            }
            Self::FewSamples => "repeat with more --blocks or a longer --budget",
            Self::Drift => "the machine changed during the study; check the runs in order",
            Self::Alternation => "there is a periodic disturbance; check the runs in order",
            Self::FirstRun => {
                "the first block, which is included, shows a warm-up effect; check it"
            }
            Self::TwoRegimes => "the median is between two modes; check the individual runs",
            Self::NoiseFloor => "runs of the same plan differ by as much; use more blocks",
            Self::OwnOverhead => "compare with the null method",
            Self::SpansLost => "totals are correct; use fewer files for a complete timeline",
            Self::Oversubscribed => {
                "more threads computed than there are cores; use the sleep arm or a larger machine"
            }
            Self::ShortRun => "use more files or larger ones",
            Self::WrongBytes => "the files changed or a method is broken; do not use this result",
            Self::Errors => "see the list of failed files; times cover only the successful ones",
            Self::Scaled => {
                "for the published size, use `study --full`, if the study has that size, or `claims \
                 --verify --full-size`"
            }
        }
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference of JSON names every doubt as it is stored.
    #[test]
    fn the_reference_of_json_names_every_doubt() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/json.md");
        let text = std::fs::read_to_string(path).unwrap();
        let row = text.lines().find(|line| line.starts_with("| doubt |")).unwrap();
        for doubt in Doubt::ALL {
            let word = serde_json::to_value(doubt).unwrap();
            assert!(row.contains(&format!("`{}`", word.as_str().unwrap())), "{word}");
        }
    }
}
