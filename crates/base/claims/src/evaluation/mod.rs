//! What the kinds of contrasts share: stored runs by block and arm, comparisons of two arms, levels
//! of a factor, and the reasons to distrust or withhold a finding.

pub(crate) mod disturbed;
pub(crate) mod doubts;
pub(crate) mod finding;
pub(crate) mod gap;
pub(crate) mod levels;
pub(crate) mod pair;
pub(crate) mod runs;
