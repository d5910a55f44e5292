//! Adapters that let the laboratory run each engine.
//!
//! The laboratory accesses engines only through `lab::Subject`; the program passes it a subject
//! from the list here. The parent asks an adapter whether a plan can run and whether a measurement
//! is plausible. The child executes a [`RunOrder`] and returns the measurement. Each subject is a
//! module here; `ioloom_studies` registers it with its study.

pub mod copy;
#[cfg(feature = "exchange")]
pub mod exchange;
#[cfg(not(feature = "exchange"))]
#[path = "exchange_absent.rs"]
pub mod exchange;
mod hasher;
pub mod kernel;
pub mod memory;
pub mod pagecache;
pub mod pipeline;
#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod run_on_set;
pub mod sets;
mod stage;
mod travel;
pub mod walk;
mod watched;

use ioloom_lab::{ChildAnswer, Subject};
use ioloom_model::Outcome;
use ioloom_model::record::RunOrder;

pub use copy::Copy;
pub use exchange::Exchange;
pub use kernel::Kernel;
pub use memory::Memory;
pub use pagecache::PageCache;
pub use pipeline::Files;
pub use sets::FileSets;
pub use walk::Walk;

macro_rules! subjects {
    ($($study:ident $(, subject $subject:ident)? $(, chapter $chapter:ident)?;)*) => {
        /// Every subject, in the order of the studies that register them.
        pub const ALL: &[&dyn Subject] = &[$($(&$subject,)?)*];
    };
}

ioloom_studies::for_each_study!(subjects);

/// Returns the subject named in a study file.
///
/// # Errors
/// The name is unknown; the message lists the known names.
pub fn named(name: &str) -> Result<&'static dyn Subject, String> {
    ALL.iter().copied().find(|subject| subject.name() == name).ok_or_else(|| {
        let known: Vec<_> = ALL.iter().map(|subject| subject.name()).collect();
        format!("no subject '{name}'; there are: {}", known.join(", "))
    })
}

/// Executes an order in this process, the child, using the subject of its plan.
pub fn run_order(order: &RunOrder) -> ChildAnswer {
    match named(order.plan.subject()) {
        Ok(subject) => watched::run(subject, order),
        Err(reason) => {
            let outcome = Outcome::Failed { reason: format!("{}: {reason}", order.plan) };
            ChildAnswer { outcome, device_bytes: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_lab::expand::{Mode, Overrides, expand};

    #[test]
    fn every_arm_of_every_built_in_study_is_a_plan_of_its_subject() {
        for study in ioloom_lab::spec::all(None).unwrap() {
            let subject = named(&study.subject).unwrap();
            if subject.unavailable().is_some() {
                continue;
            }
            for mode in [Mode::Quick, Mode::Full] {
                let all = expand(&study, mode, &Overrides::default(), 2).unwrap();
                let arms = || all.iter().flat_map(|c| &c.arms);
                for arm in arms() {
                    let sentence = subject.explain(&arm.plan);
                    let sentence = sentence.unwrap_or_else(|e| panic!("{}: {e}", study.name));
                    assert_eq!(arm.plan.subject(), subject.name(), "{}", arm.name);
                    assert!(arm.plan.files().is_some() || !sentence.is_empty());
                }
                // Eighteen headline arms, one of them twice. Runs without files are short, so more
                // of them fit into the budget.
                let most = if study.sets.is_empty() { 44 } else { 19 };
                assert!(
                    mode == Mode::Full || arms().count() <= most,
                    "{}: {}",
                    study.name,
                    arms().count()
                );
            }
        }
        assert!(named("unknown").err().unwrap().contains("there are: files"));
    }
}
