//! Code shared by all contrast kinds: stored runs by block and arm, comparisons of two arms, factor
//! levels, and reasons to distrust or withhold a finding.

pub(crate) mod answer;
pub(crate) mod dependent;
pub(crate) mod disturbed;
pub(crate) mod doubts;
pub(crate) mod finding;
pub(crate) mod gap;
pub(crate) mod levels;
pub(crate) mod pair;
pub(crate) mod runs;
