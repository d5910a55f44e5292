//! One arm compared with another, block by block.

use super::kind::{Context, Kind, elapsed};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::pair::{RatioClaim, compare, the_arm};
use crate::location::Location;
use ioloom_stats::Claimed;
use serde::Deserialize;

/// The ratio of arm `a` to arm `b`, block by block.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// Location of both arms, or of the first.
    pub at: Location,
    /// Location of the second arm, if different; it must be in the same study.
    #[serde(default)]
    pub at_b: Option<Location>,
    /// First arm.
    pub a: String,
    /// Second arm.
    pub b: String,
    /// Number or formula.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// Number or formula of `b`, if different.
    #[serde(default)]
    pub metric_b: Option<String>,
    /// Claim about `a / b`.
    pub claim: Claimed,
    /// Claimed factor: `greater` with 10 claims that `a` is at least ten times `b`.
    #[serde(default)]
    pub times: Option<f64>,
    /// Overrides the rule's smallest relevant difference.
    #[serde(default)]
    pub margin: Option<f64>,
}

impl Kind for Ratio {
    fn locations(&self) -> Vec<&Location> {
        std::iter::once(&self.at).chain(&self.at_b).collect()
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.a, &self.b]
    }

    fn needs(&self) -> Vec<(&Location, Vec<&str>)> {
        vec![(&self.at, vec![&self.a]), (self.at_b.as_ref().unwrap_or(&self.at), vec![&self.b])]
    }

    fn metrics(&self) -> Vec<&str> {
        std::iter::once(&self.metric).chain(&self.metric_b).map(String::as_str).collect()
    }

    fn check(&self) -> Result<(), String> {
        match self.times {
            None => Ok(()),
            Some(times) => match self.claim {
                Claimed::Less | Claimed::Greater if times > 1.0 => Ok(()),
                Claimed::Less | Claimed::Greater | Claimed::Equal | Claimed::AtMost => {
                    Err("times must be above 1 and requires the claim less or greater".to_owned())
                }
            },
        }
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let runs = context.runs(&self.at, self);
        let other = self.at_b.as_ref().map(|at| context.runs(at, self));
        let claim = RatioClaim {
            metrics: [&self.metric, self.metric_b.as_deref().unwrap_or(&self.metric)],
            claim: self.claim,
            times: self.times,
            margin: self.margin,
        };
        let places = [&runs, other.as_ref().unwrap_or(&runs)];
        let (first, second) = (the_arm(places[0], &self.a)?, the_arm(places[1], &self.b)?);
        compare(&context.rule, places, [first, second], &claim)
    }
}
