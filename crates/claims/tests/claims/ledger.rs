//! The built-in ledger is complete, and every contrast names arms, levels and places that exist.

use crate::expansion::{Expanded, arms, study};
use ioloom_claims::claim::{Contrast, Place, Shape};
use ioloom_claims::pattern::matches;
use ioloom_claims::{FILES, ledger, load};
use ioloom_model::study::Experiment;
use ioloom_model::{Compute, Distribution, Measured, StudySpec};
use std::collections::BTreeSet;

#[test]
fn every_claim_of_the_first_seed_is_there() {
    let claims = load(FILES.iter().copied()).unwrap();
    assert_eq!(claims, ledger());
    let ids: BTreeSet<&str> = claims.iter().map(|c| c.id.as_str()).collect();
    let wanted = (1..=52)
        .map(|n| format!("000-P{n:02}"))
        .chain((1..=2).map(|n| format!("000-D{n}")))
        .chain((1..=7).map(|n| format!("000-S{n}")))
        .chain(["000-P08a".to_owned(), "000-P08b".to_owned()]);
    for id in wanted {
        assert!(ids.contains(id.as_str()), "{id} is missing");
    }
    assert_eq!(ids.len(), 63);
}

#[test]
fn claims_say_what_they_mean() {
    for claim in ledger() {
        for text in [&claim.statement, &claim.scope, &claim.confirms, &claim.refutes] {
            assert!(
                text.len() > 10 && text.is_ascii() && text.ends_with('.'),
                "{}: {text}",
                claim.id
            );
        }
        let untested = claim.contrasts.iter().all(|c| matches!(c, Contrast::Untested { .. }));
        let only_said = claim.published.is_empty();
        assert!(!only_said || !claim.confounds.is_empty(), "{}: no number and no word", claim.id);
        if untested {
            assert_eq!(claim.id, "000-P30", "{} has no test", claim.id);
        }
    }
}

fn experiment<'a>(study: &'a StudySpec, place: &Place) -> &'a Experiment {
    assert_eq!(place.study, study.name);
    let found = study.experiments.iter().find(|e| e.name == place.experiment);
    found.unwrap_or_else(|| panic!("no experiment {}", place.experiment))
}

fn belongs(pattern: &str, arm: &Expanded) -> bool {
    matches(pattern, &arm.arm, &arm.factors)
}

fn demand_ns(compute: &Compute) -> Option<f64> {
    match compute {
        Compute::Sleep(Some(Distribution::Identical(ns)))
        | Compute::Spin(Some(Distribution::Identical(ns))) => Some(*ns as f64),
        _ => None,
    }
}

/// One set, condition and compute, unless the contrast runs over the computes.
fn check_place(experiment: &Experiment, place: &Place, contrast: &Contrast, id: &str) {
    let mut sets: BTreeSet<String> = experiment.sets.iter().cloned().collect();
    let found: Vec<Expanded> = arms(experiment)
        .into_iter()
        .filter(|a| contrast.patterns().iter().any(|p| belongs(p, a)))
        .collect();
    if found.iter().any(|a| a.set.is_some()) {
        sets = found.iter().filter_map(|a| a.set.clone()).collect();
        assert!(sets.iter().all(|s| place.has_set(s)), "{id}: {} of {sets:?}", place.set);
    }
    assert!(sets.iter().any(|s| place.has_set(s)), "{id}: {} of {sets:?}", place.set);
    match place.condition {
        Some(condition) => assert!(experiment.conditions.contains(&condition), "{id}"),
        None => assert_eq!(experiment.conditions.len(), 1, "{id}: several conditions"),
    }
    match &place.compute {
        Some(compute) => assert!(experiment.computes.contains(compute), "{id}: {compute}"),
        None if contrast.axis() == Some("compute") => {
            assert!(experiment.computes.iter().all(|c| demand_ns(c).is_some()), "{id}");
        }
        None => assert_eq!(experiment.computes.len(), 1, "{id}: several computes"),
    }
}

/// The levels that the study has for a pattern of a contrast.
fn levels(experiment: &Experiment, pattern: &str, axis: &str) -> Vec<f64> {
    if axis == "compute" {
        return experiment.computes.iter().filter_map(demand_ns).collect();
    }
    let found = arms(experiment).into_iter().filter(|a| belongs(pattern, a));
    found.filter_map(|a| a.factors.get(axis).copied()).collect()
}

#[test]
fn every_contrast_can_be_run_by_the_study() {
    let study = study();
    for claim in ledger() {
        for contrast in claim.contrasts.iter().chain(&claim.notes) {
            for place in contrast.places() {
                let experiment = experiment(&study, place);
                check_place(experiment, place, contrast, &claim.id);
                let all = arms(experiment);
                for pattern in contrast.patterns() {
                    let found = all.iter().filter(|a| belongs(pattern, a)).count();
                    assert!(found > 0, "{}: no arm {pattern} in {}", claim.id, place.experiment);
                }
            }
            check_levels(&study, contrast, &claim.id);
        }
    }
}

fn check_levels(study: &StudySpec, contrast: &Contrast, id: &str) {
    let Some(axis) = contrast.axis() else { return };
    let experiment = experiment(study, contrast.places()[0]);
    for pattern in contrast.patterns() {
        let found = levels(experiment, pattern, axis);
        match contrast {
            Contrast::Gain { levels, .. } => {
                assert!(levels.iter().all(|l| found.contains(l)), "{id}: {levels:?} of {found:?}");
            }
            Contrast::Ladder { levels, within, shape, .. } => {
                let [lo, hi] = levels.unwrap_or([f64::MIN, f64::MAX]);
                let used: Vec<f64> = found.into_iter().filter(|l| (lo..=hi).contains(l)).collect();
                assert!(
                    used.len() >= 3 || (*shape == Shape::Flat && used.len() == 2),
                    "{id}: {used:?}"
                );
                if let Some([from, to]) = within {
                    assert!(used.iter().any(|l| (from..=to).contains(&l)), "{id}: {used:?}");
                }
            }
            _ => assert!(found.len() >= 3, "{id}: {found:?}"),
        }
    }
}

/// Every metric of the ledger is one that a complete record can answer.
#[test]
fn metrics_are_known_words() {
    let fields = Measured {
        calls_end_ns: Some(1),
        first_compute_ns: Some(1),
        last_compute_ns: Some(1),
        device_busy: Some(0.5),
        threads: vec![ioloom_model::ThreadTime { elapsed_ns: 10, ..Default::default() }],
        calls: ioloom_model::CallKind::ALL.map(|k| (k, Default::default())).into(),
        ..Measured::default()
    };
    let ours = ["files", "bytes", "task_ns_mean"];
    for claim in ledger() {
        for contrast in claim.contrasts.iter().chain(&claim.notes) {
            for metric in contrast.metrics() {
                for name in ioloom_claims::formula::names(metric) {
                    let known = ours.contains(&name) || fields.metric(name).is_some();
                    assert!(known, "{}: no number {name}", claim.id);
                }
            }
        }
    }
}

#[test]
fn quick_mode_can_decide_some_claims() {
    let study = study();
    let headline = |place: &Place, pattern: &str| {
        arms(experiment(&study, place)).iter().any(|a| a.headline && belongs(pattern, a))
    };
    let decided: Vec<&str> = ledger()
        .iter()
        .filter(|claim| {
            claim.contrasts.iter().any(|c| match c {
                Contrast::Ratio { at, a, b, .. } | Contrast::Share { at, a, b, .. } => {
                    headline(at, a) && headline(at, b)
                }
                Contrast::RatioOfBest { at, a, b, .. } => {
                    a.iter().any(|p| headline(at, p)) && b.iter().any(|p| headline(at, p))
                }
                _ => false,
            })
        })
        .map(|c| c.id.as_str())
        .collect();
    for id in ["000-P01", "000-P06", "000-P07", "000-P33", "000-P36", "000-P37", "000-D2"] {
        assert!(decided.contains(&id), "{id}: {decided:?}");
    }
}

#[test]
fn wrong_ledgers_are_refused_with_the_place() {
    let good = "[[claim]]\nid = \"000-X1\"\nseed = 0\nstatement = \"s\"\nscope = \"s\"\n\
                confirms = \"c\"\nrefutes = \"r\"\n";
    let ratio = "[[claim.contrast]]\nkind = \"ratio\"\nat = { experiment = \"e\", set = \"E\" }\n\
                 a = \"x\"\nb = \"y\"\nclaim = \"less\"\n";
    assert_eq!(load([("x", format!("{good}{ratio}").as_str())]).unwrap().len(), 1);
    let published = "[[claim.contrast]]\nkind = \"published\"\nformula = \"a / b\"\n\
                     within = [0, 1]\nsays = \"s\"\n";
    for (text, part) in [
        (good.to_owned(), "missing field"),
        (format!("{good}contrast = []\n"), "no contrast"),
        (format!("{good}{ratio}metric = \"elapsed_ns -\"\n"), "it ends"),
        (format!("{good}{ratio}warp = 9\n"), "warp"),
        (format!("{good}{ratio}times = 0.5\n"), "times is above 1"),
        (format!("{good}{published}values = {{ a = \"000_roles[12,12].elapsed_ms\" }}\n"), "'b'"),
        (format!("{good}{published}values = {{ a = \"000_roles\" }}\n"), "use TABLE"),
        (format!("{good}{ratio}\n{good}{ratio}"), "two claims"),
        (format!("{good}{ratio}").replace("000-X1", "001-X1"), "must begin with"),
        (format!("{good}{ratio}").replace("\"less\"", "\"smaller\""), "smaller"),
    ] {
        let error = load([("mine.toml", text.as_str())]).unwrap_err().to_string();
        assert!(error.contains("mine.toml") && error.contains(part), "{part}: {error}");
    }
}
