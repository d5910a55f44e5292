//! A plan of a subject, run in a test on a set of its own.

use crate::sets::FileSets;
use ioloom_fileset::SetText;
use ioloom_lab::subject::{Sets, Subject};
use ioloom_model::record::{Observe, RunOrder};
use ioloom_model::{Compute, Doubt, FileSetRealised, Measured, Outcome};

/// Runs a plan on a set made for it; the bytes are verified. `None`, with the reason, where this
/// machine refuses it, or where the run ended with `cannot` in its reason.
pub(crate) fn run_on_set(
    subject: &dyn Subject,
    plan: &str,
    set_text: &str,
    cannot: &str,
) -> Option<Measured> {
    let (place, realised, order) = order_for_set(plan, set_text);
    if let Err(reason) = subject.probe(&order.plan, &Compute::None, &order.dir) {
        println!("skipped: {reason}");
        return None;
    }
    let before = entries(place.path());
    let outcome = subject.run(&order).outcome;
    assert_eq!(entries(place.path()), before, "{plan}: something is left behind");
    match outcome {
        Outcome::Done { measured } => {
            let doubts = subject.verify(&order, &realised, &measured);
            assert!(!doubts.contains(&Doubt::WrongBytes), "{plan}: {measured:?}");
            Some(*measured)
        }
        Outcome::Failed { reason } if reason.contains(cannot) => {
            println!("skipped: {reason}");
            None
        }
        other => panic!("{plan}: {other:?}"),
    }
}

/// A plan on a set made for it, with the directory that goes away.
pub(crate) fn order_for_set(
    plan: &str,
    set_text: &str,
) -> (tempfile::TempDir, FileSetRealised, RunOrder) {
    let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let Ok(SetText::Spec(spec)) = set_text.parse() else { panic!("a set") };
    let set = place.path().join("set");
    let realised = FileSets.prepare("t", &spec, &set, 0, &|_, _| true).unwrap();
    let order = RunOrder {
        plan: plan.parse().unwrap(),
        compute: Compute::None,
        dir: FileSets.items(&set),
        set: Some(spec),
        files_max: None,
        seed: 7,
        spans_max: 0,
        observe: Observe::default(),
    };
    (place, realised, order)
}

/// Everything below a directory.
fn entries(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(entries(&entry.path()));
        }
        found.push(entry.path());
    }
    found.sort();
    found
}
