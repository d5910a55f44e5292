//! Summaries, intervals, paired ratios, series tests, knees and histograms over plain numbers.
//!
//! No I/O, no clock, and no other ioloom crate: the engine, the laboratory and the report use the
//! same arithmetic, and anyone can check it with another program. Functions that draw random
//! numbers take a seed, so a verdict is the same on every machine.
//!
//! Two kinds of functions:
//! - simple statistics of a slice (`median`, `mean`, `mad`, …) return `f64`, and NaN if undefined,
//!   so they can be passed directly to the bootstrap;
//! - decision functions return a `Result`. They reject invalid input with a [`StatsError`] that
//!   names the invalid value.
//!
//! Formulas and their sources are in the module documentation.

pub mod bootstrap;
pub mod correlation;
pub mod dependence;
pub mod discovery;
pub mod equivalence;
mod error;
pub mod histogram;
pub mod interval;
pub mod knee;
pub mod levels;
pub mod linear;
pub mod noise;
pub mod order;
pub mod paired;
pub mod proportion;
pub mod series;
pub mod shape;
pub mod signed_rank;
pub mod stalls;
pub mod summary;
pub mod tails;

pub use bootstrap::{Bootstrap, Resampled};
pub use correlation::{Correlation, spearman};
pub use dependence::Dependence;
pub use discovery::{benjamini_hochberg, expected_false};
pub use equivalence::{Equivalence, equivalence};
pub use error::StatsError;
pub use histogram::Histogram;
pub use interval::{CONFIDENCE, INTERVAL_MIN, Interval};
pub use knee::{Better, Knee, Segmented, knee};
pub use linear::{Line, theil_sen};
pub use noise::{AaNoise, aa_noise, difference_floor};
pub use order::{median_interval, sign_test};
pub use paired::{Claimed, Decision, Judgement, Ratio, Reason, Rule, decide, shift_test};
pub use proportion::proportion_interval;
pub use series::{Alternation, Drift, FirstRun, TwoRegimes};
pub use shape::{SignWeight, triples_test};
pub use signed_rank::SignedRank;
pub use summary::{mad, mean, median, quantile, trimmed_mean};
