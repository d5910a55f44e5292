//! What the built-in studies hold of a family of arms.
//!
//! The best of a family is known only when the family ran; quick mode runs its headline alone. The
//! studies are compiled in to tell the difference. A study that is not built in is not known here,
//! and nothing is said about it.

use crate::claim::Place;
use crate::pattern;
use ioloom_model::StudySpec;
use ioloom_model::study::Experiment;
use std::sync::LazyLock;

static STUDIES: LazyLock<Vec<StudySpec>> = LazyLock::new(|| {
    let texts = ioloom_studies::ALL.iter().map(|study| study.study);
    texts.map(|text| toml::from_str(text).expect("a test reads the built-in studies")).collect()
});

fn experiment(place: &Place) -> Option<&'static Experiment> {
    let study = STUDIES.iter().find(|s| s.name == place.study)?;
    study.experiments.iter().find(|e| e.name == place.experiment)
}

/// How many arms of these patterns the study has, and how many of them quick mode runs; `None` for
/// a study that is not built in.
pub(crate) fn count(place: &Place, patterns: &[&str]) -> Option<(usize, usize)> {
    let (mut all, mut quick) = (0, 0);
    for arm in &experiment(place)?.arms {
        for factors in arm.points() {
            let Some(name) = pattern::fill(&arm.name, &factors) else { continue };
            if patterns.iter().any(|p| pattern::matches(p, &name, &factors)) {
                all += 1;
                quick += usize::from(arm.in_quick(&factors));
            }
        }
    }
    Some((all, quick))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(experiment: &str) -> Place {
        let text = format!("experiment = \"{experiment}\"\nset = \"E\"");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn families_are_counted() {
        let small = place("elapsed-small-files");
        assert_eq!(count(&small, &["mmap-{n}"]), Some((8, 1)));
        assert_eq!(count(&small, &["default", "threads-{n}"]), Some((9, 3)));
        assert_eq!(count(&small, &["threads-8"]), Some((1, 1)));
        assert_eq!(count(&small, &["threads-2"]), Some((1, 0)));
        assert_eq!(count(&small, &["nobody"]), Some((0, 0)));
        assert_eq!(count(&place("unknown"), &["default"]), None);
    }
}
