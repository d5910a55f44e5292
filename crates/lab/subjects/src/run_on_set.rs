//! Runs a plan of a subject in a test on a generated set.

use crate::sets::FileSets;
use ioloom_fileset::SetText;
use ioloom_lab::subject::{Sets, Subject};
use ioloom_model::record::{Observe, RunOrder};
use ioloom_model::{Compute, Doubt, FileSetRealised, Measured, Outcome};

/// Runs a plan on a set created for it and verifies the bytes. Returns `None` and prints the reason
/// if this machine refuses the plan or the run fails with `skip_reason` in its reason.
pub(crate) fn run_on_set(
    subject: &dyn Subject,
    plan: &str,
    set_text: &str,
    skip_reason: &str,
) -> Option<Measured> {
    let (dir, realised, order) = order_for_set(plan, set_text);
    if let Err(reason) = subject.probe(&order.plan, &Compute::None, &order.dir) {
        println!("skipped: {reason}");
        return None;
    }
    let before = entries(dir.path());
    let outcome = subject.run(&order).outcome;
    assert_eq!(entries(dir.path()), before, "{plan}: files were left behind");
    match outcome {
        Outcome::Done { measured } => {
            let doubts = subject.verify(&order, &realised, &measured);
            assert!(!doubts.contains(&Doubt::WrongBytes), "{plan}: {measured:?}");
            Some(*measured)
        }
        Outcome::Failed { reason } if reason.contains(skip_reason) => {
            println!("skipped: {reason}");
            None
        }
        other => panic!("{plan}: {other:?}"),
    }
}

/// Returns an order for a plan on a set created for it, and the set's temporary directory.
pub(crate) fn order_for_set(
    plan: &str,
    set_text: &str,
) -> (tempfile::TempDir, FileSetRealised, RunOrder) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let Ok(SetText::Spec(spec)) = set_text.parse() else { panic!("a set") };
    let set = dir.path().join("set");
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
    (dir, realised, order)
}

/// Returns everything below a directory.
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
