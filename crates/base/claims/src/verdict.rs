//! The output: a verdict with its reason and evidence, as printed by `ioloom claims --json`.

use crate::rule::Rule;
use ioloom_model::{Doubt, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Version of [`VerdictList`] and its contents.
pub const VERDICT_SCHEMA: u32 = 2;

/// What the effect of a contrast measures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Effect {
    /// No effect was measured.
    #[default]
    None,
    /// A ratio of two arms.
    Ratio,
    /// A difference in percentage points.
    Points,
    /// Share of the variance explained by a line.
    Explained,
    /// A level of a factor.
    Level,
    /// A rank correlation.
    Correlation,
    /// A difference of two shares.
    Share,
    /// A difference in the unit of the metric.
    Difference,
    /// A number of bytes.
    Bytes,
    /// A growth factor.
    Times,
    /// A recomputed published number, described in the claim.
    Stated(String),
}

impl Effect {
    /// Effects with a fixed name.
    const NAMED: [Self; 9] = [
        Self::Ratio,
        Self::Points,
        Self::Explained,
        Self::Level,
        Self::Correlation,
        Self::Share,
        Self::Difference,
        Self::Bytes,
        Self::Times,
    ];

    /// Returns the name used in documents, or an empty string without an effect.
    pub fn name(&self) -> &str {
        match self {
            Self::None => "",
            Self::Ratio => "ratio",
            Self::Points => "points",
            Self::Explained => "explained",
            Self::Level => "level",
            Self::Correlation => "correlation",
            Self::Share => "share",
            Self::Difference => "difference",
            Self::Bytes => "bytes",
            Self::Times => "times",
            Self::Stated(words) => words,
        }
    }
}

impl From<String> for Effect {
    fn from(name: String) -> Self {
        if name.is_empty() {
            return Self::None;
        }
        Self::NAMED.into_iter().find(|e| e.name() == name).unwrap_or(Self::Stated(name))
    }
}

impl From<Effect> for String {
    fn from(effect: Effect) -> Self {
        effect.name().to_owned()
    }
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The basis of a verdict.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Effect size, in the unit of `effect_is`; `None` without an effect.
    pub effect: Option<f64>,
    /// Lower bound of the 95 % interval; `None` if there are too few blocks for an interval.
    pub lo: Option<f64>,
    /// Upper bound of the 95 % interval.
    pub hi: Option<f64>,
    /// What the effect measures.
    pub effect_is: Effect,
    /// Number of blocks in which every arm finished, without disturbed ones if all are too few for a verdict; 0
    /// before the first look of a sequential session.
    pub blocks: usize,
    /// Arms that were compared; empty without an effect.
    pub arms: Vec<String>,
    /// Sessions of the runs.
    pub sessions: Vec<String>,
    /// Additional numbers by name, with the unit as suffix.
    pub numbers: BTreeMap<String, f64>,
}

/// The result of one contrast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Kind of contrast, as in claims files.
    pub kind: String,
    /// Source of the numbers: experiment, file set, condition, compute.
    pub place: String,
    /// Verdict on this contrast alone.
    pub verdict: Verdict,
    /// Whether the statement held, even if simulated compute or a partial family limits the verdict
    /// to `scope`.
    pub holds: Option<bool>,
    /// The reason, in one sentence.
    pub sentence: String,
    /// Whether this is a note, which does not affect the verdict of the claim.
    pub note: bool,
    /// Two-sided p-value of the answer; 1 if the numbers allow both answers, `None` without runs or with too few
    /// blocks for a verdict.
    pub p: Option<f64>,
    /// The p-value corrected for all contrasts that the same session measured: the smallest false
    /// discovery rate at which the contrast is decided.
    pub p_adjusted: Option<f64>,
    /// Published size of the effect, in the unit of the evidence.
    pub published_size: Option<f64>,
    /// Whether the measured effect agrees with the published one; `None` without both, or if the interval contains
    /// both the published effect and no effect.
    pub agreement: Option<Agreement>,
    /// The same contrast in each other session of this machine, from old to new, then in those of other
    /// machines. Sessions are never pooled.
    pub apart: Vec<SessionEffect>,
    /// Evidence for the verdict.
    pub evidence: Evidence,
    /// Reasons to distrust it.
    pub doubts: Vec<Doubt>,
}

/// How a measured effect agrees with the published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// The interval contains the published effect, the direction is the same and the effects differ by at
    /// most a quarter of the published one, or both are equalities within the margin of the contrast.
    Size,
    /// The interval is on the published side, but the size differs.
    Direction,
    /// The interval excludes the published effect, and includes no effect or is on the other side.
    Neither,
}

impl Agreement {
    /// Compares an effect and its interval with the published effect, all relative to no effect. An interval that
    /// contains both the published effect and no effect shows neither: `None`.
    pub(crate) fn of([lo, effect, hi]: [f64; 3], published: f64) -> Option<Self> {
        let contains = |value: f64| (lo..=hi).contains(&value);
        if contains(published) {
            let is_open = published != 0.0 && contains(0.0);
            return (!is_open).then_some(Self::Size);
        }
        let near = (effect - published).abs() <= 0.25 * published.abs();
        let side = if published >= 0.0 { lo > 0.0 } else { hi < 0.0 };
        Some(match side && published != 0.0 {
            true if near => Self::Size,
            true => Self::Direction,
            false => Self::Neither,
        })
    }

    /// Returns the words for a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Size => "agrees in size",
            Self::Direction => "agrees in direction, not in size",
            Self::Neither => "agrees in neither direction nor size",
        }
    }
}

/// The effect of a contrast in one session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEffect {
    /// The session.
    pub session: String,
    /// Fingerprint of the machine of the session.
    #[serde(default)]
    pub machine: String,
    /// Effect size.
    pub effect: Option<f64>,
    /// Lower bound of its 95 % interval.
    pub lo: Option<f64>,
    /// Upper bound.
    pub hi: Option<f64>,
    /// Number of blocks.
    pub blocks: usize,
    /// Whether the statement held in this session, without correction for other contrasts.
    pub holds: Option<bool>,
    /// Two-sided p-value of the answer in this session; 1 without an answer, or if another session
    /// contradicts it.
    #[serde(default)]
    pub p: Option<f64>,
    /// The p-value corrected for all contrasts that this session measured; `None` on a machine that
    /// decides no contrast like this.
    #[serde(default)]
    pub p_adjusted: Option<f64>,
}

/// A published number with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedValue {
    /// Description of the number.
    pub what: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

/// When the test of a claim was fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Registered {
    /// The session stored this test before its first run.
    Before,
    /// The session stored this test before its first run, but an earlier version of the rule was in force.
    EarlierRule,
    /// The session stored a different test, or none for this claim: it was changed or added after
    /// the runs.
    Changed,
    /// The session is older than the registration of tests.
    Unknown,
}

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimVerdict {
    /// Identifier of the claim.
    pub id: String,
    /// Number of the published study the claim comes from.
    #[serde(rename = "seed")]
    pub source: u32,
    /// The claim that this one repeats. It is judged by the tests of that claim and counted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// Fingerprint of the contrasts and thresholds, 16 digits.
    pub definition: String,
    /// Whether that fingerprint was stored before the first of the runs behind the verdict; `None`
    /// without runs.
    pub registered: Option<Registered>,
    /// The statement.
    pub statement: String,
    /// Published numbers for the claim.
    pub published: Vec<PublishedValue>,
    /// Circumstances in which the claim can hold.
    pub scope: String,
    /// What the tests cannot show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caveat: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, including the effect and its interval in words.
    pub sentence: String,
    /// What would decide each open contrast; empty if runs can decide nothing more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Evidence of the first contrast that decided the verdict.
    pub evidence: Evidence,
    /// Reasons to distrust the verdict.
    pub doubts: Vec<Doubt>,
    /// The result of each contrast and note.
    pub parts: Vec<Part>,
}

impl ClaimVerdict {
    /// Returns the first contrast that decided the verdict, whose evidence is that of the verdict.
    pub fn chief(&self) -> Option<&Part> {
        self.parts.iter().find(|part| !part.note && part.evidence == self.evidence)
    }

    /// Returns the sessions behind the verdict.
    pub fn sessions(&self) -> BTreeSet<&str> {
        let parts = self.parts.iter().filter(|part| !part.note);
        parts.flat_map(|part| part.evidence.sessions.iter().map(String::as_str)).collect()
    }

    /// Compares the test of the claim with those that each session stored before its first run, as a
    /// map from claims to fingerprints by session. `earlier` has the fingerprints of the test under earlier
    /// versions of the rule. A change of the test or the rule is added to the sentence.
    pub fn register(
        &mut self,
        stored: &BTreeMap<String, BTreeMap<String, String>>,
        earlier: &[String],
    ) {
        let of = |session: &str| match stored.get(session).filter(|claims| !claims.is_empty()) {
            None => Registered::Unknown,
            Some(claims) => match claims.get(&self.id) {
                Some(print) if *print == self.definition => Registered::Before,
                Some(print) if earlier.contains(print) => Registered::EarlierRule,
                _ => Registered::Changed,
            },
        };
        // An earlier session with a result counts, too: changing the test after it was seen is a change.
        let apart = self.parts.iter().filter(|part| !part.note).flat_map(|part| &part.apart);
        let mut sessions = self.sessions();
        sessions.extend(apart.map(|effect| effect.session.as_str()));
        let found: Vec<(String, Registered)> =
            sessions.into_iter().map(|s| (s.to_owned(), of(s))).collect();
        let any = |wanted| found.iter().find(|(_, registered)| *registered == wanted);
        if let Some((session, _)) = any(Registered::Changed) {
            self.sentence.push_str(&format!(
                "; the test of this claim was changed or added after session {session} began"
            ));
        } else if let Some((session, _)) = any(Registered::EarlierRule) {
            self.sentence.push_str(&format!(
                "; the rule of verdicts was changed after session {session} began, the test was not"
            ));
        }
        let worst_first =
            [Registered::Changed, Registered::Unknown, Registered::EarlierRule, Registered::Before];
        self.registered = worst_first.into_iter().find(|registered| any(*registered).is_some());
    }
}

/// The verdicts, counted. A claim that repeats another is counted once, with that one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Score {
    /// Confirmed by runs.
    pub confirmed: usize,
    /// Refuted by runs.
    pub refuted: usize,
    /// Limited in scope by runs.
    pub scope: usize,
    /// Undecided.
    pub undecided: usize,
    /// Not testable on this machine or by this version.
    pub not_testable_here: usize,
    /// Recomputed from published numbers alone: consistent.
    pub consistent: usize,
    /// Recomputed from published numbers alone: inconsistent.
    pub inconsistent: usize,
    /// Claims that repeat another one.
    pub repeated: usize,
    /// Claims decided by runs whose test is not known to have been fixed before the first of them.
    #[serde(default)]
    pub not_fixed_before: usize,
    /// Claims decided by runs whose test was fixed before the first of them, but under an earlier version of the
    /// rule.
    #[serde(default)]
    pub earlier_rule: usize,
    /// Contrasts decided by runs.
    pub contrasts_decided: usize,
    /// Maximum expected number of false answers among them.
    pub false_expected: f64,
}

impl Score {
    /// Counts verdicts made with this false discovery rate.
    pub fn of(verdicts: &[ClaimVerdict], false_rate: f64) -> Self {
        let mut score = Self::default();
        // Several claims can use the same contrast.
        let mut decided = BTreeSet::new();
        for verdict in verdicts {
            if verdict.same_as.is_some() {
                score.repeated += 1;
                continue;
            }
            *match verdict.verdict {
                Verdict::Confirmed => &mut score.confirmed,
                Verdict::Refuted => &mut score.refuted,
                Verdict::Scope => &mut score.scope,
                Verdict::Undecided => &mut score.undecided,
                Verdict::NotTestableHere => &mut score.not_testable_here,
                Verdict::Consistent => &mut score.consistent,
                Verdict::Inconsistent => &mut score.inconsistent,
            } += 1;
            let is_reproduced =
                matches!(verdict.verdict, Verdict::Confirmed | Verdict::Refuted | Verdict::Scope);
            let (is_fixed, is_rule) = match verdict.registered {
                Some(Registered::Before) => (true, true),
                Some(Registered::EarlierRule) => (true, false),
                Some(Registered::Changed | Registered::Unknown) | None => (false, false),
            };
            score.not_fixed_before += usize::from(is_reproduced && !is_fixed);
            score.earlier_rule += usize::from(is_reproduced && is_fixed && !is_rule);
            for part in &verdict.parts {
                if !part.note && part.p.is_some() && part.holds.is_some() {
                    let Evidence { arms, sessions, .. } = &part.evidence;
                    decided.insert((&part.kind, &part.place, arms, sessions, &part.sentence));
                }
            }
        }
        score.contrasts_decided = decided.len();
        score.false_expected = ioloom_stats::expected_false(score.contrasts_decided, false_rate);
        score
    }

    /// Returns the number of claims decided by runs.
    pub const fn reproduced(&self) -> usize {
        self.confirmed + self.refuted + self.scope
    }

    /// Returns the number of claims only recomputed from published numbers.
    pub const fn recomputed(&self) -> usize {
        self.consistent + self.inconsistent
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { confirmed, refuted, scope, .. } = self;
        write!(
            f,
            "reproduced from runs: {} ({confirmed} confirmed, {refuted} refuted, {scope} scope); \
             recomputed from published numbers: {} ({} consistent, {} inconsistent); {} undecided; \
             {} not testable here; {} repeat another claim and are counted with it",
            self.reproduced(),
            self.recomputed(),
            self.consistent,
            self.inconsistent,
            self.undecided,
            self.not_testable_here,
            self.repeated,
        )?;
        if self.not_fixed_before > 0 {
            write!(
                f,
                "; the tests of {} reproduced claims are not known to have been fixed before the runs",
                self.not_fixed_before
            )?;
        }
        if self.earlier_rule > 0 {
            write!(
                f,
                "; the tests of {} reproduced claims were fixed before the runs, and the rule of verdicts was \
                 changed later",
                self.earlier_rule
            )?;
        }
        if self.contrasts_decided > 0 {
            write!(
                f,
                "; of {} contrasts decided by runs, at most {:.1} answers are expected to be false",
                self.contrasts_decided, self.false_expected
            )?;
        }
        Ok(())
    }
}

/// The document of `ioloom claims --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictList {
    /// [`VERDICT_SCHEMA`].
    pub schema: u32,
    /// The verdicts of these claims, counted.
    pub score: Score,
    /// Claims, in the order of the built-in files.
    pub claims: Vec<ClaimVerdict>,
}

impl VerdictList {
    /// Returns a document that contains these verdicts.
    pub fn new(claims: Vec<ClaimVerdict>) -> Self {
        let score = Score::of(&claims, Rule::STANDARD.false_rate);
        Self { schema: VERDICT_SCHEMA, score, claims }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_with_no_effect_and_the_published_one_shows_neither() {
        for (interval, published, expected) in [
            ([-0.2, 0.1, 0.4], 0.3, None),
            ([-0.2, -0.1, 0.4], -0.1, None),
            ([0.1, 0.2, 0.4], 0.3, Some(Agreement::Size)),
            ([-0.2, 0.1, 0.4], 0.0, Some(Agreement::Size)),
            ([0.1, 0.2, 0.4], 0.9, Some(Agreement::Direction)),
            ([-0.2, 0.1, 0.4], 0.9, Some(Agreement::Neither)),
        ] {
            assert_eq!(Agreement::of(interval, published), expected, "{interval:?} {published}");
        }
    }
}
