//! Causal sentences of the chapters, generated from the runs of the session.
//!
//! No cause is typed in. A sentence compares two arms block by block and gives the ratio, its
//! interval and the number of blocks; with other runs it says something else. "Because" appears only
//! if the two arms differ in one factor alone. Otherwise a factor "goes with" an effect. What the
//! runs cannot show is labelled as theory, with its source.

use super::arms::arm;
use crate::estimate::Ratio;
use crate::group::Group;
use crate::markup::Markup;

/// A comparison of two arms of one experiment.
pub(super) struct Cause {
    /// The experiment.
    pub(super) experiment: &'static str,
    /// The arm with the factor, and the arm without it.
    pub(super) arms: [&'static str; 2],
    /// The metric, as in `Measured::metric`.
    pub(super) metric: &'static str,
    /// What the metric measures, as the subject of the sentence.
    pub(super) what: &'static str,
    /// The factor, as a noun phrase.
    pub(super) factor: &'static str,
    /// Whether the arms differ in this factor alone.
    pub(super) alone: bool,
}

/// Returns the sentence for a comparison; `None` if an arm has no runs.
pub(super) fn sentence(groups: &[Group<'_>], cause: &Cause) -> Option<String> {
    let [with, without] = cause.arms.map(|name| arm(groups, cause.experiment, name));
    let ratio = Ratio::paired(&with?.blocks(cause.metric), &without?.blocks(cause.metric))?;
    let Cause { what, factor, arms: [a, b], .. } = cause;
    let ends = format!("{} to {}", plain(ratio.ends.low), plain(ratio.ends.high));
    let place = format!("{a} / {b}, {} blocks", ratio.n);
    if !ratio.ends.is_interval() {
        return Some(format!(
            "With {factor}, {what} is {} times as high (range {ends}; {place}): too few blocks to say \
             whether this is more than noise.",
            plain(ratio.value)
        ));
    }
    let evidence = format!("95 % interval {ends}; {place}");
    if !ratio.is_clear() {
        return Some(format!(
            "With {factor}, {what} is {} times as high ({evidence}): no difference is shown.",
            plain(ratio.value)
        ));
    }
    let size = match ratio.value {
        v if v >= 1.0 => format!("{} times as high", plain(v)),
        v => format!("lower by a factor of {}", plain(1.0 / v)),
    };
    let link = if cause.alone { "because of" } else { "which goes with" };
    let rest = if cause.alone { "; the arms differ in nothing else" } else { "" };
    Some(format!("Here, {what} is {size}, {link} {factor} ({evidence}{rest})."))
}

/// Formats a ratio with about three significant digits.
fn plain(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Writes the sentences of all comparisons that ran.
pub(super) fn write(m: &mut Markup, groups: &[Group<'_>], causes: &[Cause]) {
    m.tag("h3").text("Explanation");
    for text in causes.iter().filter_map(|cause| sentence(groups, cause)) {
        m.tag("p").text(&text);
    }
}

/// Writes a paragraph that the runs do not show, with its source.
pub(super) fn theory(m: &mut Markup, source: &str, text: &str) {
    m.tag("p").a("class", "lead").body(|m| {
        m.tag("b").text(&format!("Theory ({source}). "));
        m.text(text);
    });
}
