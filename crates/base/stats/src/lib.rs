//! Summaries, intervals, paired ratios, series tests, knees and histograms over plain numbers.
//!
//! Numbers in, small structs with the evidence out. No input or output, no clock, and no ioloom
//! crate: the engine, the laboratory and the report use the same arithmetic, and anyone can check it
//! against another program. Whatever draws random numbers takes a seed, so that a verdict comes out
//! the same on every machine and on every day.
//!
//! Two kinds of functions, told apart by what they return:
//! - small statistics of a slice (`median`, `mean`, `mad`, …) return `f64`, and NaN where the
//!   statistic is not defined, so that they can be handed to the bootstrap as they are;
//! - everything that decides something returns a `Result` and refuses bad input with a
//!   [`StatsError`] that says which value was wrong.
//!
//! The module heads hold the formulas and name their sources.

pub mod bootstrap;
pub mod correlation;
pub mod equivalence;
mod error;
pub mod histogram;
pub mod knee;
pub mod levels;
pub mod linear;
pub mod noise;
pub mod paired;
pub mod series;
pub mod summary;
pub mod tails;

pub use bootstrap::{Bootstrap, CONFIDENCE, Interval, IntervalKind};
pub use correlation::{Correlation, pearson, spearman};
pub use equivalence::{Equivalence, equivalence};
pub use error::StatsError;
pub use histogram::Histogram;
pub use knee::{Better, Knee, Segmented, knee};
pub use linear::{Line, theil_sen};
pub use noise::{AaNoise, aa_noise};
pub use paired::{Claimed, Finding, Judgement, Ratio, Reason, Rule, decide, judge};
pub use series::{Alternation, Drift, FirstRun, TwoRegimes};
pub use summary::{
    Summary, coefficient_of_variation, mad, mean, median, quantile, sd, trimmed_mean,
};
