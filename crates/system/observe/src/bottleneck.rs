//! What limited a run, in the form that is stored and printed.

use crate::limit::{Facts, Limit, Verdict, decide};
use ioloom_model::Measured;
use ioloom_model::record::Bottleneck;

/// Judges a run on `cores` usable processors of `cpus` online; [`crate::limit`] explains how.
pub fn bottleneck(m: &Measured, cores: u32, cpus: u32) -> Bottleneck {
    let facts = Facts::of(m, cores, cpus);
    stored(&decide(&facts), &facts)
}

/// Returns the stored form of a verdict.
fn stored(verdict: &Verdict, facts: &Facts) -> Bottleneck {
    let share = |shares: &crate::limit::Shares| {
        let all = Limit::ALL.into_iter().map(|limit| (limit.word().to_owned(), shares.of(limit)));
        all.filter(|(_, percent)| *percent > 0).collect()
    };
    Bottleneck {
        word: verdict.limit.word().to_owned(),
        sentence: verdict.sentence(facts),
        close: verdict.close.map(|limit| limit.word().to_owned()),
        shares: verdict.shares.as_ref().map(share).unwrap_or_default(),
    }
}
