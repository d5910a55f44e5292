//! One arm on several media, every two of which are compared.

use super::kind::{Context, Kind};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::pair::{RatioClaim, compare, the_arm};
use crate::evaluation::runs::Runs;
use crate::location::Location;
use ioloom_stats::Claimed;
use serde::Deserialize;

/// One arm on at least two media, claimed to be equal on all of them.
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
        let (mut ran, mut refused, mut lost) = (Vec::new(), 0, None);
        for (name, runs) in &media {
            if let Ok(arm) = the_arm(runs, &self.arm) {
                match arm.gap() {
                    None => ran.push((name, runs, arm)),
                    Some(gap) if media.len() == 1 => return Err(gap),
                    Some(Gap::Refused { .. }) => refused += 1,
                    Some(gap) => lost = Some(gap),
                }
            }
        }
        if ran.len() < 2 {
            return Err(Gap::Missing(vec![format!(
                "{} on a second medium (ioloom study pipeline --on DIR --on DIR)",
                self.arm
            )]));
        }
        let claim = RatioClaim {
            metrics: [&self.metric; 2],
            claim: Claimed::Equal,
            times: None,
            margin: self.margin,
        };
        let mut pairs = Vec::new();
        for (at, first) in ran.iter().enumerate() {
            for second in &ran[at + 1..] {
                let (runs, arms) = ([first.1, second.1], [first.2, second.2]);
                let mut found = compare(&context.rule, runs, arms, &claim)?;
                found.words = format!("{} against {}: {}", first.0, second.0, found.words);
                pairs.push(found);
            }
        }
        let found = of_all(pairs);
        // Two media that differ are enough; equality needs all of them.
        match lost {
            Some(gap) if found.holds != Some(false) => Err(gap),
            _ => Ok(found.without(refused, ["medium", "media"])),
        }
    }
}

/// Returns the pair that decides: of those that differ, the clearest, whose p-value counts once for each
/// pair; otherwise one that is undecided; otherwise, if all are equal, the least certain.
fn of_all(pairs: Vec<Finding<'_>>) -> Finding<'_> {
    let count = pairs.len();
    let rank = |finding: &Finding<'_>| {
        let p = finding.p.unwrap_or(1.0);
        match finding.holds {
            Some(false) => (0, p),
            None => (1, 0.0),
            Some(true) => (2, -p),
        }
    };
    let chosen = pairs.into_iter().min_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let mut chosen = chosen.unwrap_or_default();
    if chosen.holds == Some(false) {
        chosen.p = chosen.p.map(|p| (p * count as f64).min(1.0));
    }
    if count > 1 {
        chosen.words.push_str(&format!(" (of {count} pairs of media, the one that decides)"));
    }
    chosen
}
