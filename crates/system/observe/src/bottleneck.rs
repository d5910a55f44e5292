//! What limited a run, in the form that is stored and printed.

use crate::limit::{Facts, Limit, Verdict, decide};
use ioloom_model::Measured;
use ioloom_model::record::Bottleneck;

/// Judges a run on `cores` usable processors of `cpus` online, of which `permits` threads could run the
/// function at once, if that is limited; [`crate::limit`] explains how.
pub fn bottleneck(m: &Measured, (cores, cpus): (u32, u32), permits: Option<u32>) -> Bottleneck {
    let facts = Facts::of(m, cores, cpus).permitted(permits);
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
