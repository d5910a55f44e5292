//! Looks up arms and their metrics by name, and writes table rows.

use crate::group::{ArmRuns, Group};
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;

/// Returns an arm of an experiment on its first file set, with its runs.
pub(super) fn arm<'g, 'a>(
    groups: &'g [Group<'a>],
    experiment: &str,
    name: &str,
) -> Option<&'g ArmRuns<'a>> {
    let group = groups.iter().find(|g| g.experiment.name == experiment)?;
    group.arms.iter().find(|arm| arm.name == name && !arm.is_again())
}

/// Returns the median of an `extra` metric of an arm that ran.
pub(super) fn number(
    input: &Input,
    groups: &[Group<'_>],
    experiment: &str,
    name: &str,
    metric: &str,
) -> Option<f64> {
    let arm = arm(groups, experiment, name).filter(|arm| !arm.runs.is_empty())?;
    Some(arm.metric(&format!("extra.{metric}"), input.seed)?.median)
}

/// Returns the median of an `extra` metric of an arm.
pub(super) fn median_of(arm: Option<&ArmRuns<'_>>, metric: &str, seed: u64) -> Option<f64> {
    Some(arm?.metric(&format!("extra.{metric}"), seed)?.median)
}

/// Writes a table row: text cells, then number cells.
pub(super) fn row<const N: usize>(m: &mut Markup, cells: [&str; N]) {
    m.tag("tr").body(|m| {
        for (number, text) in cells.into_iter().enumerate() {
            if number > 0 {
                m.tag("td").a("class", "r").text(text);
            } else {
                parts::words_cell(m, text);
            }
        }
    });
}
