//! Runs the engine `memory` as a subject that measures single numbers of the memory hierarchy.
//!
//! A plan is `memory:METHOD` with the setting required by the method: `kib=`, `pages=` or `work=`.
//! There is no file set and no cache condition. A run measures one number and records its minimum,
//! 10th percentile and median over blocks. Run durations are not compared; the metric of the
//! experiments is `access_ns`.

use crate::sets::FileSets;
use ioloom_lab::ChildAnswer;
use ioloom_lab::subject::{Sets, Subject, Touches};
use ioloom_machine::topology;
use ioloom_memory::SmtPlan;
use ioloom_memory::single::{METHODS, Single};
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, Measured, SubjectPlan};
use ioloom_observe::Usage;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::{affinity, proc};
use std::path::Path;

/// The subject `memory`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory;

fn single(plan: &AnyPlan) -> Result<Single, String> {
    let own: &SubjectPlan =
        plan.for_subject("memory").ok_or_else(|| format!("{plan}: not of memory"))?;
    let needs = METHODS.iter().find(|(word, _)| *word == own.method).map_or("", |(_, key)| *key);
    own.allow_only(&[needs])?;
    let setting = own.settings.get(needs).map(String::as_str);
    Single::parse(&own.method, setting).map_err(|e| format!("{plan}: {e}"))
}

/// Returns which processors share a core on this machine.
fn seats() -> SmtPlan {
    let topology = topology(Path::new("/"));
    let allowed = affinity::allowed().unwrap_or_default();
    SmtPlan::choose(&topology.cores(), &allowed, topology.smt.control.as_deref())
}

impl Subject for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn sets(&self) -> &dyn Sets {
        &FileSets
    }

    fn touches(&self) -> Touches {
        Touches::Nothing
    }

    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        Ok(single(plan)?.sentence().to_owned())
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, _: &Path) -> Result<(), String> {
        single(plan)?.check_possible(&seats())
    }

    fn run(&self, order: &RunOrder) -> ChildAnswer {
        measured(order).into()
    }

    fn verify(&self, _: &RunOrder, _: &FileSetRealised, _: &Measured) -> Vec<Doubt> {
        Vec::new()
    }
}

fn measured(order: &RunOrder) -> Result<Measured, String> {
    let single = single(&order.plan)?;
    let before = Usage::now(None);
    let start = monotonic_ns();
    let (least, tenth, middle) = single.run(order.seed, &seats()).map_err(|e| e.to_string())?;
    let mut measured = Measured {
        elapsed_ns: monotonic_ns() - start,
        bytes: single.set_bytes(),
        ..Measured::default()
    };
    let cpus = proc::system_stat().map_or(1, |stat| stat.cpus.len().max(1) as u32);
    Usage::now(None).since(&before).fill(&mut measured, cpus);
    let numbers = [("access_ns", least), ("access_p10_ns", tenth), ("access_median_ns", middle)];
    measured.extra.extend(numbers.map(|(name, ns)| (name.to_owned(), ns)));
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_of_the_study_are_understood_and_wrong_ones_refused() {
        for text in ["memory:add", "memory:chase/kib=48", "memory:siblings/work=wide"] {
            let plan: AnyPlan = text.parse().unwrap();
            assert!(!Memory.explain(&plan).unwrap().is_empty(), "{text}");
        }
        for (text, word) in [
            ("memory:leap", "unknown method"),
            ("memory:chase", "requires kib"),
            ("memory:chase/pages=9", "unknown setting"),
            ("memory:alone/work=none", "unknown work"),
            ("walk:statx/threads=1", "not of memory"),
        ] {
            let error = Memory.explain(&text.parse().unwrap()).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
