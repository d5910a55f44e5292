//! The arms of a family in the built-in studies.
//!
//! The best arm of a family is known only if the whole family ran, but quick mode runs only its
//! headline arms, and an edited study can lack some. The studies are compiled in to detect this. A family in a study that is not built
//! in counts as complete.

use crate::evaluation::runs::at_location;
use crate::location::Location;
use crate::pattern;
use ioloom_model::study::Experiment;
use ioloom_model::{RunRecord, StudySpec};
use std::collections::BTreeSet;
use std::sync::LazyLock;

static STUDIES: LazyLock<Vec<StudySpec>> = LazyLock::new(|| {
    let texts = ioloom_studies::ALL.iter().map(|study| study.study);
    texts.map(|text| toml::from_str(text).expect("a test reads the built-in studies")).collect()
});

fn experiment(at: &Location) -> Option<&'static Experiment> {
    let study = STUDIES.iter().find(|s| s.name == at.study)?;
    study.experiments.iter().find(|e| e.name == at.experiment)
}

/// The number of arms in a study that match given patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    /// In a full study.
    pub(crate) all: usize,
    /// In quick mode.
    pub(crate) quick: usize,
}

/// Counts the arms that match these patterns; `None` if the study is not built in.
pub(crate) fn count(at: &Location, patterns: &[&str]) -> Option<Count> {
    let mut count = Count::default();
    for arm in &experiment(at)?.arms {
        for factors in arm.points() {
            let Some(name) = pattern::fill(&arm.name, &factors) else { continue };
            if patterns.iter().any(|p| pattern::matches(p, &name, &factors)) {
                count.all += 1;
                count.quick += usize::from(arm.in_quick(&factors));
            }
        }
    }
    Some(count)
}

/// A family all of whose arms a contrast needs: which level is best, or where a curve bends, is unknown if
/// one was never tried.
pub(crate) struct Whole<'k> {
    pub(crate) at: &'k Location,
    pub(crate) pattern: &'k str,
    /// A factor, and its levels that matter; all arms without it.
    pub(crate) levels: Option<(&'k str, [f64; 2])>,
}

impl Whole<'_> {
    /// Reports whether an arm of the built-in study was not tried in these runs. One that was refused was.
    pub(crate) fn lacks(&self, records: &[&RunRecord]) -> bool {
        let Some(experiment) = experiment(self.at) else { return false };
        let here = at_location(records, self.at);
        let tried: BTreeSet<&str> = here.iter().map(|record| record.key.arm.as_str()).collect();
        experiment.arms.iter().any(|arm| {
            arm.points().into_iter().any(|factors| {
                let Some(name) = pattern::fill(&arm.name, &factors) else { return false };
                let matters = |(axis, [lo, hi]): (&str, [f64; 2])| {
                    factors.get(axis).is_some_and(|level| (lo..=hi).contains(level))
                };
                pattern::matches(self.pattern, &name, &factors)
                    && self.levels.is_none_or(matters)
                    && !tried.contains(name.as_str())
            })
        })
    }
}

/// Reports whether the study has matching arms but quick mode runs none of them.
pub(crate) fn skipped_by_quick(at: &Location, patterns: &[&str]) -> bool {
    count(at, patterns).is_some_and(|count| count.all > 0 && count.quick == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(experiment: &str) -> Location {
        let text = format!("experiment = \"{experiment}\"\nset = \"E\"");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn families_are_counted() {
        let small = location("elapsed-small-files");
        assert_eq!(count(&small, &["mmap-{n}"]), Some(Count { all: 8, quick: 1 }));
        assert_eq!(count(&small, &["default", "threads-{n}"]), Some(Count { all: 9, quick: 3 }));
        assert_eq!(count(&small, &["threads-8"]), Some(Count { all: 1, quick: 1 }));
        assert_eq!(count(&small, &["threads-2"]), Some(Count { all: 1, quick: 0 }));
        assert_eq!(count(&small, &["unknown"]), Some(Count { all: 0, quick: 0 }));
        assert_eq!(count(&location("unknown"), &["default"]), None);
    }
}
