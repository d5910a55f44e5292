//! One adapter per engine, so that the laboratory can run it.
//!
//! The laboratory knows engines only through `lab::Subject`; the program passes it one from the
//! list here. An adapter has two halves: the parent's questions (can this plan run, is what it
//! measured possible) and the child's run, which takes a [`RunOrder`] and answers with what was
//! measured. A new subject is a module here; `ioloom_studies`
//! registers it with its study.

pub mod copy;
#[cfg(feature = "exchange")]
pub mod exchange;
#[cfg(not(feature = "exchange"))]
#[path = "exchange_absent.rs"]
pub mod exchange;
pub mod kernel;
pub mod memory;
pub mod pagecache;
pub mod pipeline;
#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
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

/// The subject of a name, as a study file gives it.
///
/// # Errors
/// There is none; the sentence names those there are.
pub fn named(name: &str) -> Result<&'static dyn Subject, String> {
    ALL.iter().copied().find(|subject| subject.name() == name).ok_or_else(|| {
        let known: Vec<_> = ALL.iter().map(|subject| subject.name()).collect();
        format!("no subject '{name}'; there are: {}", known.join(", "))
    })
}

/// Runs an order in this process, by the subject of its plan: the child's half.
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
                    let told = subject.explain(&arm.plan);
                    let told = told.unwrap_or_else(|e| panic!("{}: {e}", study.name));
                    assert_eq!(arm.plan.subject(), subject.name(), "{}", arm.name);
                    assert!(arm.plan.files().is_some() || !told.is_empty());
                }
                // Fifteen headline arms, and one of them again; runs that need no files are short, so
                // that the budget holds more of them.
                let most = if study.sets.is_empty() { 44 } else { 16 };
                assert!(mode == Mode::Full || arms().count() <= most, "{}", study.name);
            }
        }
        assert!(named("nobody").err().unwrap().contains("there are: files"));
    }
}
