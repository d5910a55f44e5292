//! Expands the arms of a study with their factors. Independent of the expansion in the laboratory,
//! so the two can be compared.

use ioloom_claims::pattern::fill;
use ioloom_model::study::{Arm, Experiment};
use ioloom_model::{Plan, StudySpec};
use std::collections::BTreeMap;

pub(crate) struct Expanded {
    pub(crate) arm: String,
    pub(crate) plan: String,
    pub(crate) set: Option<String>,
    pub(crate) files_max: Option<u64>,
    pub(crate) factors: BTreeMap<String, f64>,
    pub(crate) headline: bool,
}

pub(crate) fn study() -> StudySpec {
    studies().swap_remove(0)
}

/// Returns every built-in study.
pub(crate) fn studies() -> Vec<StudySpec> {
    let texts = ioloom_studies::ALL.iter().map(|study| study.study);
    texts.map(|text| toml::from_str(text).expect("a study")).collect()
}

fn product(with: &BTreeMap<String, Vec<f64>>) -> Vec<BTreeMap<String, f64>> {
    let mut rows = vec![BTreeMap::new()];
    for (name, values) in with {
        rows = rows
            .into_iter()
            .flat_map(|row| {
                values.iter().map(move |value| {
                    let mut row = row.clone();
                    row.insert(name.clone(), *value);
                    row
                })
            })
            .collect();
    }
    rows
}

fn of_arm(arm: &Arm) -> Vec<Expanded> {
    product(&arm.with)
        .into_iter()
        .map(|factors| {
            let text = |t: &str| fill(t, &factors).unwrap_or_else(|| panic!("factors of {t}"));
            let chosen = !arm.headline_with.is_empty()
                && arm.headline_with.iter().all(|(k, values)| values.contains(&factors[k]));
            Expanded {
                arm: text(&arm.name),
                plan: text(&arm.plan),
                set: arm.set.as_deref().map(text),
                files_max: arm.files_max.as_deref().map(|t| text(t).parse().expect("a count")),
                headline: arm.headline || chosen,
                factors,
            }
        })
        .collect()
}

pub(crate) fn arms(experiment: &Experiment) -> Vec<Expanded> {
    experiment.arms.iter().flat_map(of_arm).collect()
}

pub(crate) fn plan(expanded: &Expanded) -> Plan {
    expanded.plan.parse().unwrap_or_else(|e| panic!("{}: {e}", expanded.arm))
}
