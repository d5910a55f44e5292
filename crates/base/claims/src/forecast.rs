//! What more blocks would decide.
//!
//! A claim is not worth more runs if it would stay undecided even after the largest number of blocks,
//! all of them like those seen so far. [`repeated`] makes such blocks by repeating the known ones,
//! and [`rule`] judges them. This is a stopping rule, not evidence: the repeated blocks are never
//! stored, and a claim given up by mistake only stays undecided.

use crate::evaluation::disturbed;
use crate::rule::Rule;
use crate::verdict::Part;
use ioloom_model::RunRecord;
use std::collections::BTreeMap;

/// Returns the runs of the sessions that have begun as many blocks of an experiment as the first look needs. Fewer
/// blocks do not show the noise, and one of them would become many.
pub fn from_first_look(mut records: Vec<RunRecord>) -> Vec<RunRecord> {
    let mut begun: BTreeMap<(String, String), u32> = BTreeMap::new();
    let place = |record: &RunRecord| (record.key.session.clone(), record.key.experiment.clone());
    for record in &records {
        let blocks = begun.entry(place(record)).or_default();
        *blocks = (*blocks).max(record.key.block + 1);
    }
    records.retain(|record| begun[&place(record)] >= Rule::LOOKS[0]);
    records
}

/// Reports whether the blocks behind a result were disturbed, so that they do not show what quiet blocks would
/// decide.
pub fn is_disturbed(part: &Part) -> bool {
    part.doubts.iter().any(|doubt| disturbed::excludes(*doubt))
}

/// Returns the runs of a session with its blocks repeated in order up to a number of blocks.
pub fn repeated(records: &[RunRecord], blocks: u32) -> Vec<RunRecord> {
    let mut arms: BTreeMap<String, BTreeMap<u32, &RunRecord>> = BTreeMap::new();
    for record in records {
        let key = &record.key;
        let place = [&*key.session, &*key.experiment, &*key.set, &*key.medium, &*key.arm];
        let arm = format!("{place:?} {} {}", key.condition, key.compute);
        arms.entry(arm).or_default().insert(key.block, record);
    }
    let mut all = Vec::new();
    for known in arms.into_values() {
        let period = known.keys().last().map_or(1, |last| last + 1);
        for block in 0..blocks.max(period) {
            if let Some(record) = known.get(&(block % period)) {
                let mut record = (*record).clone();
                record.key.block = block;
                all.push(record);
            }
        }
    }
    all
}

/// Returns the rule for repeated blocks. They resemble each other by construction, so dependence is
/// not tested.
#[must_use]
pub const fn rule(of: Rule) -> Rule {
    Rule { dependence: false, ..of }
}
