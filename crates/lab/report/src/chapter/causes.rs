//! Causal sentences of the chapters, generated from the runs of the session.
//!
//! No cause is typed in. A sentence compares two arms block by block and gives the ratio, its
//! interval and the number of blocks; with other runs it says something else. "Because" appears only
//! if the plans that ran differ in one setting alone. Otherwise a factor "goes with" an effect. What
//! the runs cannot show is labelled as theory, with its source.

use crate::estimate::Ratio;
use crate::group::{ArmRuns, Group};
use crate::markup::Markup;
use ioloom_model::AnyPlan;
use ioloom_model::study::fill;
use ioloom_stats::Rule;
use std::collections::BTreeSet;

/// Name of a difference in the method, which is not a setting.
const METHOD: &str = "method";

/// A plan setting with its values in the arm with a factor and in the arm without it; `None` if a plan
/// does not set it.
pub(super) type Key = (&'static str, [Option<&'static str>; 2]);

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
    /// The only plan setting in which the arms may differ; `None` if the factor is more than one.
    pub(super) key: Option<Key>,
}

impl Cause {
    /// Returns whether the arms as they ran differ in the factor and in nothing else.
    fn is_alone(&self, group: &Group<'_>, a: &ArmRuns<'_>, b: &ArmRuns<'_>) -> bool {
        let Some((key, values)) = self.key else { return false };
        let around = |arm: &ArmRuns<'_>| {
            let spec = group.spec(arm)?;
            let files_max = spec.files_max.as_ref().and_then(|max| fill(max, arm.factors).ok());
            Some((arm.set.to_owned(), spec.cold_by, spec.settings.clone(), files_max))
        };
        let same_around = around(a).is_some() && around(a) == around(b);
        same_around
            && [a.plan, b.plan].map(|plan| setting(plan, key)) == values
            && differences(a.plan, b.plan).into_iter().eq([key])
    }
}

/// Returns a setting of a plan.
fn setting<'p>(plan: &'p AnyPlan, key: &str) -> Option<&'p str> {
    let AnyPlan::Subject(plan) = plan else { return None };
    plan.settings.get(key).map(String::as_str)
}

/// Returns the settings in which two plans differ.
fn differences<'p>(a: &'p AnyPlan, b: &'p AnyPlan) -> BTreeSet<&'p str> {
    let (AnyPlan::Subject(x), AnyPlan::Subject(y)) = (a, b) else {
        return if a == b { BTreeSet::new() } else { BTreeSet::from(["plan"]) };
    };
    let keys = x.settings.keys().chain(y.settings.keys());
    let other = keys.filter(|key| x.settings.get(*key) != y.settings.get(*key));
    let mut out: BTreeSet<&str> = other.map(String::as_str).collect();
    if (&x.subject, &x.method) != (&y.subject, &y.method) {
        out.insert(METHOD);
    }
    out
}

/// Returns the sentence for a comparison; `None` if an arm has no runs.
pub(super) fn sentence(groups: &[Group<'_>], cause: &Cause) -> Option<String> {
    let group = groups.iter().find(|group| group.experiment.name == cause.experiment)?;
    let arm = |name: &str| group.arms.iter().find(|arm| arm.name == name && !arm.is_again());
    let (with, without) = (arm(cause.arms[0])?, arm(cause.arms[1])?);
    let Cause { what, factor, arms: [a, b], .. } = cause;
    if let Some(killed) = [with, without].into_iter().find(|arm| arm.is_cut_short()) {
        return Some(format!(
            "With and without {factor}, {what} is not compared: at least a quarter of the runs of {} \
             were killed at their deadline.",
            killed.name
        ));
    }
    let ratio = Ratio::paired(&with.blocks(cause.metric), &without.blocks(cause.metric))?;
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
    let margin = 1.0 + Rule::FULL.margin;
    if (1.0 / margin..=margin).contains(&ratio.value) {
        return Some(format!(
            "With {factor}, {what} is {} times as high ({evidence}): the measured difference is \
             below {:.0} %.",
            plain(ratio.value),
            Rule::FULL.margin * 100.0
        ));
    }
    let size = match ratio.value {
        v if v >= 1.0 => format!("{} times as high", plain(v)),
        v => format!("lower by a factor of {}", plain(1.0 / v)),
    };
    let (link, rest) = match cause.is_alone(group, with, without) {
        true => ("because of", "; the arms differ in nothing else"),
        false => ("which goes with", ""),
    };
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
pub(crate) fn theory(m: &mut Markup, source: &str, text: &str) {
    m.tag("p").a("class", "lead").body(|m| {
        m.tag("b").text(&format!("Theory ({source}). "));
        m.text(text);
    });
}
