//! One arm on two media.

use super::kind::{Context, Kind};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::pair::{RatioClaim, compare, the_arm};
use crate::evaluation::runs::Runs;
use crate::location::Location;
use ioloom_stats::Claimed;
use serde::Deserialize;

/// One arm on two media, claimed to be equal.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// Location of the arm.
    pub at: Location,
    /// The arm.
    pub arm: String,
    /// Number or formula.
    pub metric: String,
    /// Overrides the rule's smallest relevant difference.
    #[serde(default)]
    pub margin: Option<f64>,
}

impl Kind for Media {
    fn locations(&self) -> Vec<&Location> {
        vec![&self.at]
    }

    fn patterns(&self) -> Vec<&str> {
        vec![&self.arm]
    }

    fn on_several_media(&self) -> bool {
        true
    }

    fn metrics(&self) -> Vec<&str> {
        vec![&self.metric]
    }

    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let media = Runs::by_medium(&context.records, &self.at);
        let mut ran = Vec::new();
        for (name, runs) in &media {
            if let Ok(arm) = the_arm(runs, &self.arm) {
                match arm.gap() {
                    None => ran.push((name, runs, arm)),
                    Some(gap) if media.len() == 1 => return Err(gap),
                    Some(_) => {}
                }
            }
        }
        let [first, second, ..] = ran.as_slice() else {
            return Err(Gap::Missing(vec![format!(
                "{} on a second medium (ioloom study pipeline --on DIR --on DIR)",
                self.arm
            )]));
        };
        let claim = RatioClaim {
            metrics: [&self.metric; 2],
            claim: Claimed::Equal,
            times: None,
            margin: self.margin,
        };
        let mut found = compare(&context.rule, [first.1, second.1], [first.2, second.2], &claim)?;
        found.words = format!("{} against {}: {}", first.0, second.0, found.words);
        Ok(found)
    }
}
