//! What would decide a contrast that is open.
//!
//! An estimate in closed form for a ratio of two arms, from the scatter of its blocks; [`crate::power`] judges
//! simulated sessions, which takes minutes for all claims.

use crate::contrast::Contrast;
use crate::evaluation::disturbed;
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::power;
use crate::rule::Rule;
use ioloom_model::units::format_counted;
use ioloom_stats::Claimed;

/// Says what would decide a contrast; `None` if it is decided. `session` is the number of the next session with
/// a result, from 1.
pub(crate) fn words(
    contrast: &Contrast,
    result: &Result<Finding<'_>, Gap>,
    session: u32,
) -> Option<String> {
    let least = Rule::LOOKS[0];
    let what = match result {
        Ok(finding) if finding.holds.is_some() => return None,
        Ok(finding) if finding.withheld => {
            format!("{least} blocks {}", disturbed::wanted(finding))
        }
        Ok(finding) => {
            let blocks = estimated(contrast, finding, session).unwrap_or_else(|| {
                format!(
                    "more blocks, or less noise, than in the {} stored",
                    finding.evidence.blocks
                )
            });
            match disturbed::wanted(finding) {
                // Statements about every run use disturbed runs too.
                _ if contrast.as_kind().is_about_every_run() => blocks,
                wanted if wanted.is_empty() => blocks,
                wanted => format!("{blocks}, {wanted}"),
            }
        }
        Err(Gap::Untested { needs }) => return Some(needs.clone()),
        Err(Gap::BeforeFirstLook { have, first }) => {
            let more = first.saturating_sub(*have);
            format_counted(u64::from(more), "more block", "more blocks")
        }
        Err(Gap::FewBlocks { need, .. }) => format!("{need} blocks"),
        Err(Gap::Refused { .. } | Gap::NoNumber { .. } | Gap::NotTimed { .. }) => {
            "a machine or a permission with which its arms can be measured".to_owned()
        }
        Err(Gap::Missing(_) | Gap::Failed { .. } | Gap::Undefined(_)) => {
            format!("{least} complete blocks")
        }
    };
    Some(format!("{}: {what}", contrast.as_kind().place()))
}

/// Estimates the blocks of one more session that decide a ratio, if its effect and scatter are those found. An
/// equality, and a ratio near the claimed one, have no closed form.
fn estimated(contrast: &Contrast, finding: &Finding<'_>, session: u32) -> Option<String> {
    let Contrast::Ratio(ratio) = contrast else { return None };
    let times = ratio.times.unwrap_or(1.0);
    let bound = match ratio.claim {
        Claimed::Greater => times,
        Claimed::Less => 1.0 / times,
        Claimed::AtMost => power::bound(ratio.claim, ratio.margin),
        Claimed::Equal => return None,
    };
    let noise = power::deviation(&finding.series)?;
    let blocks = power::blocks_of_ratio(finding.evidence.effect? / bound, noise, session)?;
    let percent = 100.0 * power::POWER;
    (blocks as usize > finding.evidence.blocks).then(|| {
        format!(
            "a session of about {blocks} blocks (power {percent:.0} % with the effect and the \
             scatter of {noise:.3} seen)"
        )
    })
}
