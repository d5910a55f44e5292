//! The arms that open claims need, their cost, and what is left out.
//!
//! Claims join the plan from cheap to expensive until the budget for the first look is used. An arm
//! that several claims need is counted once. File sets above `LARGE_BYTES` or `LARGE_FILES` are
//! replaced by their quick size, unless the user wants full size. Claims that need the full size,
//! because they say so or because an arm reads more files than the quick set has, are left out then.

use super::bench::Bench;
use super::looks::arms;
use crate::exit::Failure;
use crate::study_end::lab_failure;
use ioloom_claims::{Claim, Contrast, Rule};
use ioloom_failure::quoted;
use ioloom_lab::definition::Definitions;
use ioloom_lab::estimate::{History, Range};
use ioloom_lab::expand::{Comparison, ReadyArm};
use ioloom_lab::run::{Silent, needs, plan};
use ioloom_lab::selection::Selection;
use ioloom_lab::store::{Sequential, SessionHeader};
use ioloom_lab::{Needs, Progress, RunOptions, Session, Subject, sequential};
use ioloom_model::study::MediaUse;
use ioloom_model::units::{format_counted, format_size};
use ioloom_model::{ColdBy, FileSetSpec, StudySpec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Size of a set above which its quick size is used.
const LARGE_BYTES: u64 = 1 << 30;
/// Number of files of a set above which its quick size is used.
const LARGE_FILES: u64 = 50_000;

/// Why claims are left out whose runs until the first look do not fit into the budget.
pub(super) const NO_BUDGET: &str = "their first 12 blocks do not fit into the budget";

/// A session to run.
pub(super) struct Task {
    pub(super) spec: StudySpec,
    pub(super) subject: &'static dyn Subject,
    pub(super) select: Selection,
    pub(super) rule: Sequential,
    /// Estimated seconds until the first look, and until the last.
    pub(super) first_s: f64,
    pub(super) most_s: f64,
    /// The unfinished session that it continues, and the number of its stored runs.
    pub(super) continues: Option<(String, usize)>,
    /// Whether the duration of its next block can be estimated: not after a look, if a block is incomplete, or if
    /// an arm has no measured duration.
    is_block_known: bool,
}

impl Task {
    /// Returns a new session whose duration is still to be estimated.
    fn without_times(
        spec: StudySpec,
        subject: &'static dyn Subject,
        select: Selection,
        rule: Sequential,
    ) -> Self {
        let (first_s, most_s, continues, is_block_known) = (0.0, 0.0, None, true);
        Self { spec, subject, select, rule, first_s, most_s, continues, is_block_known }
    }

    /// Returns an unfinished session with its estimated duration. Its blocks have the arms of the newest stored
    /// ones.
    pub(super) fn new(
        bench: &Bench<'_>,
        spec: StudySpec,
        header: &SessionHeader,
        rule: Sequential,
    ) -> Result<Self, Failure> {
        let subject = ioloom_subjects::named(&spec.subject).map_err(Failure::usage)?;
        let mut history = History::of(&bench.store, &spec.name, &bench.machine.fingerprint);
        let select = sequential::selection(header);
        let mut task = Self::without_times(spec, subject, select, rule);
        task.continues = Some((header.session.clone(), 0));
        (task.first_s, task.most_s) = task.seconds(bench, &history)?;
        // A session that cannot be read is refused when it is continued.
        let Ok(session) = bench.store.read(&header.session) else { return Ok(task) };
        task.continues = Some((header.session.clone(), session.runs.len()));
        if let Some((slots, is_known)) = next_block(&session, &task.rule.looks) {
            history.learn(&session);
            let sets_s = Price::of(std::slice::from_ref(&task)).sets_s;
            let seconds = |slot: &(u32, u32)| {
                let comparison = session.header.comparisons.get(slot.0 as usize)?;
                history.run_seconds(comparison, comparison.arms.get(slot.1 as usize)?)
            };
            let block_s: Option<f64> = slots.iter().map(seconds).sum();
            task.is_block_known = is_known && block_s.is_some();
            if let Some(block_s) = block_s {
                let [first, .., last] = Rule::LOOKS.map(f64::from);
                (task.first_s, task.most_s) = (sets_s + first * block_s, sets_s + last * block_s);
            }
        }
        Ok(task)
    }

    /// Returns the options of its runs.
    pub(super) fn options<'b>(
        &self,
        bench: &'b Bench<'_>,
        progress: &'b dyn Progress,
    ) -> RunOptions<'b> {
        let mut options = bench.options(&self.spec, progress);
        options.overrides.experiments =
            self.select.experiments().into_iter().map(str::to_owned).collect();
        options.overrides.scaled = self.rule.scaled.iter().cloned().collect();
        options.overrides.select = Some(self.select.clone());
        options
    }

    /// Estimates the seconds until the first and the last look.
    fn seconds(&self, bench: &Bench<'_>, history: &History) -> Result<(f64, f64), Failure> {
        let options = self.options(bench, &Silent);
        let planned = plan(&self.spec, &options).map_err(|e| lab_failure(&e))?;
        let needs: Needs = needs(&self.spec, &planned, self.subject, history, &options)
            .map_err(|e| lab_failure(&e))?;
        // The ends of a range are factors away from the truth, so the middle is that of logarithms.
        let middle = |range: Range| (range.low * range.high).sqrt();
        let (sets, runs) = (middle(needs.sets_s), middle(needs.runs_s));
        let last = f64::from(Rule::LOOKS[Rule::LOOKS.len() - 1]);
        Ok((sets + runs * f64::from(Rule::LOOKS[0]) / last, sets + runs))
    }

    /// Returns the estimated time of its file sets and one block, the least that is of use.
    pub(super) fn least(&self) -> Duration {
        let Price { block_s, sets_s } = Price::of(std::slice::from_ref(self));
        Duration::try_from_secs_f64(block_s + sets_s).unwrap_or(Duration::MAX)
    }

    /// Reports whether the time left is too short for its file sets and one block. If the next block can be smaller
    /// than the stored ones, [`ioloom_lab::run_study`] checks that instead, after the look.
    pub(super) fn exceeds(&self, left: Option<Duration>) -> bool {
        left.is_some_and(|left| left.is_zero() || (self.is_block_known && self.least() > left))
    }

    /// Reports whether it continues one of the sessions.
    pub(super) fn is_among(&self, sessions: &BTreeSet<String>) -> bool {
        self.continues.as_ref().is_some_and(|(session, _)| sessions.contains(session))
    }

    /// Describes the session in a sentence.
    pub(super) fn words(&self) -> String {
        let claims = format_counted(self.rule.claims.len() as u64, "claim", "claims");
        let arms = format_counted(self.select.len() as u64, "arm", "arms");
        let mut text =
            format!("{}: {claims}, {arms} ({}).", self.spec.name, self.rule.claims.join(", "));
        for name in &self.rule.scaled {
            let Some(set) = self.spec.sets.get(name) else { continue };
            let small = set.quick.as_ref().unwrap_or(&set.full);
            let size = |set: &FileSetSpec| {
                let bytes = self.subject.sets().cost(set).bytes;
                let files = format_counted(set.count, "file", "files");
                format!("{files}, {}", format_size(bytes))
            };
            text.push_str(&format!(
                " File set {name} is reduced to {} (published: {}); the verdicts get the doubt scaled.",
                size(small),
                size(&set.full)
            ));
        }
        text
    }
}

/// Returns the comparison and arm indices of the next block of a session, if runs are stored, and whether they
/// are known; see [`arms_after`].
fn next_block(session: &Session, looks: &[u32]) -> Option<(BTreeSet<(u32, u32)>, bool)> {
    let mut blocks: BTreeMap<u32, BTreeSet<(u32, u32)>> = BTreeMap::new();
    for run in &session.runs {
        let slot = session.header.order.get(run.key.position as usize)?;
        blocks.entry(slot.2).or_default().insert((slot.0, slot.1));
    }
    arms_after(&blocks, looks)
}

/// Returns the arms of the newest stored blocks, and whether they are those of the next block: if the newest
/// block is complete, and no look follows that may leave out some.
fn arms_after<T: Ord + Copy>(
    blocks: &BTreeMap<u32, BTreeSet<T>>,
    looks: &[u32],
) -> Option<(BTreeSet<T>, bool)> {
    let (newest, arms) = blocks.last_key_value()?;
    // The block before has the same arms, unless a look is between them.
    let before = newest.checked_sub(1).filter(|_| !looks.contains(newest));
    let Some(before) = before.and_then(|block| blocks.get(&block)) else {
        return Some((arms.clone(), false));
    };
    let is_known = before == arms && !looks.contains(&(newest + 1));
    Some((before.union(arms).copied().collect(), is_known))
}

/// The sessions to run, and the claims that they leave out.
pub(super) struct Plan {
    pub(super) tasks: Vec<Task>,
    /// Claims by the reason for leaving them out.
    pub(super) left_out: BTreeMap<String, Vec<String>>,
}

/// A study with all of its arms.
struct Study {
    spec: StudySpec,
    subject: &'static dyn Subject,
    comparisons: Vec<Comparison>,
    /// The built-in study of its name, if only that one decides the claims.
    built_in: Option<Definitions>,
    /// Large sets with a quick size, and its number of files.
    large: BTreeMap<String, u64>,
    history: History,
}

/// The arms that a claim needs in each study, and the large sets among theirs.
#[derive(Clone, Default)]
struct Wanted {
    arms: BTreeMap<String, Selection>,
    scaled: BTreeMap<String, BTreeSet<String>>,
    claims: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    fn extend(&mut self, other: &Self) {
        for (study, arms) in &other.arms {
            self.arms.entry(study.clone()).or_default().extend(arms);
        }
        for (study, sets) in &other.scaled {
            self.scaled.entry(study.clone()).or_default().extend(sets.iter().cloned());
        }
        for (study, claims) in &other.claims {
            self.claims.entry(study.clone()).or_default().extend(claims.iter().cloned());
        }
    }
}

impl Plan {
    /// Plans the runs of claims, except those given up for a reason.
    pub(super) fn new(
        bench: &Bench<'_>,
        claims: &[&Claim],
        given_up: &BTreeMap<String, String>,
        budget: Option<Duration>,
    ) -> Result<Self, Failure> {
        let Candidates { studies, wanted, mut left_out, .. } =
            Candidates::of(bench, claims, given_up)?;
        let chosen = within_budget(bench, &studies, (wanted, budget), &mut left_out)?;
        let tasks = tasks(bench, &studies, &chosen)?;
        Ok(Self { tasks, left_out })
    }
}

/// Claims that runs here can decide, and the others.
pub(super) struct Candidates<'b> {
    bench: &'b Bench<'b>,
    studies: BTreeMap<String, Result<Study, String>>,
    wanted: Vec<(String, Wanted)>,
    /// Claims by the reason for leaving them out.
    left_out: BTreeMap<String, Vec<String>>,
    prices: BTreeMap<String, Price>,
}

/// The estimated time of runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Price {
    /// Seconds of one block.
    pub(super) block_s: f64,
    /// Seconds to make the file sets.
    pub(super) sets_s: f64,
}

impl Price {
    fn of(tasks: &[Task]) -> Self {
        let sum = |of: fn(&Task) -> f64| tasks.iter().map(of).sum::<f64>();
        let [first, .., last] = Rule::LOOKS.map(f64::from);
        let block_s = (sum(|task| task.most_s) - sum(|task| task.first_s)) / (last - first);
        Self { block_s, sets_s: (sum(|task| task.first_s) - first * block_s).max(0.0) }
    }
}

impl<'b> Candidates<'b> {
    /// Returns the claims except those given up for a reason.
    pub(super) fn of(
        bench: &'b Bench<'b>,
        claims: &[&Claim],
        given_up: &BTreeMap<String, String>,
    ) -> Result<Self, Failure> {
        let mut all = Self {
            bench,
            studies: BTreeMap::new(),
            wanted: Vec::new(),
            left_out: BTreeMap::new(),
            prices: BTreeMap::new(),
        };
        for claim in claims {
            let wanted = match given_up.get(&claim.id) {
                Some(reason) => Err(reason.clone()),
                None => wanted(bench, claim, &mut all.studies),
            };
            match wanted {
                Ok(wanted) => all.wanted.push((claim.id.clone(), wanted)),
                Err(reason) => all.left_out.entry(reason).or_default().push(claim.id.clone()),
            }
        }
        Ok(all)
    }

    /// Computes what each claim costs alone.
    pub(super) fn priced(mut self) -> Result<Self, Failure> {
        for (id, wanted) in &self.wanted {
            let price = Price::of(&tasks(self.bench, &self.studies, wanted)?);
            self.prices.insert(id.clone(), price);
        }
        Ok(self)
    }

    /// Returns what a claim costs alone.
    pub(super) fn price(&self, id: &str) -> Option<Price> {
        self.prices.get(id).copied()
    }

    /// Returns the reason for leaving out a claim.
    pub(super) fn left_out(&self, id: &str) -> Option<String> {
        let mut reasons = self.left_out.iter();
        reasons.find(|(_, ids)| ids.iter().any(|i| i == id)).map(|(reason, _)| reason.clone())
    }

    /// Estimates the seconds of claims with their numbers of blocks. Shared arms count once.
    pub(super) fn seconds(&self, claims: &[(String, u32)]) -> Result<f64, Failure> {
        let mut seconds = 0.0;
        let mut before = 0;
        let mut ends: Vec<u32> = claims.iter().map(|(_, blocks)| *blocks).collect();
        ends.sort_unstable();
        ends.dedup();
        for end in ends {
            let mut open = Wanted::default();
            let running = |id: &str| claims.iter().any(|(i, blocks)| i == id && *blocks >= end);
            self.wanted.iter().filter(|(id, _)| running(id)).for_each(|(_, w)| open.extend(w));
            let price = Price::of(&tasks(self.bench, &self.studies, &open)?);
            seconds += price.block_s * f64::from(end - before);
            if before == 0 {
                seconds += price.sets_s;
            }
            before = end;
        }
        Ok(seconds)
    }
}

/// Returns a session for each study.
fn tasks(
    bench: &Bench<'_>,
    studies: &BTreeMap<String, Result<Study, String>>,
    wanted: &Wanted,
) -> Result<Vec<Task>, Failure> {
    let mut tasks = Vec::new();
    for (name, select) in &wanted.arms {
        let Some(Ok(study)) = studies.get(name) else { continue };
        let list = |of: &BTreeMap<String, BTreeSet<String>>| -> Vec<String> {
            of.get(name).into_iter().flatten().cloned().collect()
        };
        let rule = Sequential {
            claims: wanted.claims.get(name).cloned().unwrap_or_default(),
            looks: Rule::LOOKS.to_vec(),
            scaled: list(&wanted.scaled),
        };
        let (spec, select) = (study.spec.clone(), select.clone());
        let subject = study.subject;
        let mut task = Task::without_times(spec, subject, select, rule);
        (task.first_s, task.most_s) = task.seconds(bench, &study.history)?;
        tasks.push(task);
    }
    Ok(tasks)
}

/// Joins the candidates whose runs until the first look fit into the budget, cheap ones first.
fn within_budget(
    bench: &Bench<'_>,
    studies: &BTreeMap<String, Result<Study, String>>,
    (candidates, budget): (Vec<(String, Wanted)>, Option<Duration>),
    left_out: &mut BTreeMap<String, Vec<String>>,
) -> Result<Wanted, Failure> {
    let mut chosen = Wanted::default();
    let Some(budget) = budget else {
        candidates.iter().for_each(|(_, wanted)| chosen.extend(wanted));
        return Ok(chosen);
    };
    let cost = |wanted: &Wanted| -> Result<f64, Failure> {
        Ok(tasks(bench, studies, wanted)?.iter().map(|task| task.first_s).sum())
    };
    let mut priced = Vec::new();
    for (id, wanted) in candidates {
        priced.push((cost(&wanted)?, id, wanted));
    }
    priced.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    for (_, id, wanted) in priced {
        let mut with = chosen.clone();
        with.extend(&wanted);
        if cost(&with)? <= budget.as_secs_f64() {
            chosen = with;
        } else {
            left_out.entry(NO_BUDGET.to_owned()).or_default().push(id);
        }
    }
    Ok(chosen)
}

/// Returns the arms that a claim needs.
///
/// # Errors
/// The reason why no run here can decide it.
fn wanted(
    bench: &Bench<'_>,
    claim: &Claim,
    studies: &mut BTreeMap<String, Result<Study, String>>,
) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    for test in &claim.contrasts {
        let contrast = &test.contrast;
        if let Contrast::Untested(test) = contrast {
            return Err(format!("not testable by this version, which needs {}", test.needs));
        }
        let Some(name) = contrast.locations().first().map(|at| at.study.clone()) else { continue };
        let study = studies.entry(name.clone()).or_insert_with(|| Study::new(bench, &name));
        let study = study.as_ref().map_err(Clone::clone)?;
        study.add(bench, claim, contrast, &mut wanted)?;
    }
    let studies: Vec<String> = wanted.arms.keys().cloned().collect();
    wanted.claims.extend(studies.into_iter().map(|study| (study, vec![claim.id.clone()])));
    if wanted.arms.is_empty() { Err("no test needs runs".to_owned()) } else { Ok(wanted) }
}

impl Study {
    fn new(bench: &Bench<'_>, name: &str) -> Result<Self, String> {
        let spec = bench.study(name).map_err(|e| e.to_string())?;
        let subject = ioloom_subjects::named(&spec.subject)?;
        if let Some(reason) = subject.unavailable() {
            return Err(reason.to_owned());
        }
        let options = bench.options(&spec, &Silent);
        let comparisons = plan(&spec, &options).map_err(|e| e.to_string())?.comparisons;
        let built_in = bench.request.ledger.is_built_in() && bench.request.studies.is_some();
        let cores = bench.machine.cpus_usable.max(1);
        let built_in = built_in.then(|| Definitions::of(name, cores)).flatten();
        let history = History::of(&bench.store, name, &bench.machine.fingerprint);
        let mut large = BTreeMap::new();
        for (set, of) in &spec.sets {
            let Some(quick) = of.quick.as_ref().filter(|_| !bench.request.full_size) else {
                continue;
            };
            let many = of.full.count > LARGE_FILES;
            if many || subject.sets().cost(&of.full).bytes > LARGE_BYTES {
                large.insert(set.clone(), quick.count);
            }
        }
        Ok(Self { spec, subject, comparisons, built_in, large, history })
    }

    /// Reports whether an arm also runs on media that the session adds; see [`MediaUse`].
    fn is_on_added_media(&self, comparison: &Comparison, arm: &ReadyArm) -> bool {
        let mut experiments = self.spec.experiments.iter();
        let own = experiments.find(|experiment| experiment.name == comparison.experiment);
        own.is_some_and(|own| own.media != MediaUse::First) && arm.plan.plain_threads().is_some()
    }

    /// Adds the arms of a contrast.
    fn add(
        &self,
        bench: &Bench<'_>,
        claim: &Claim,
        contrast: &Contrast,
        into: &mut Wanted,
    ) -> Result<(), String> {
        let request = bench.request;
        let found = arms(contrast, &self.comparisons)
            .map_err(|missing| format!("study {} has no arm {missing}", self.spec.name))?;
        let mut arms = found.iter().map(|(comparison, arm)| (comparison, &comparison.arms[*arm]));
        if contrast.on_several_media() && !arms.all(|(of, arm)| self.is_on_added_media(of, arm)) {
            return Err(format!(
                "they compare directories on two media, which needs `ioloom study {} --on DIR \
                 --on DIR`",
                self.spec.name
            ));
        }
        let elsewhere = contrast.locations().iter().any(|at| at.medium.is_some());
        if (elsewhere || contrast.on_several_media()) && !request.media {
            return Err("they compare media, which needs --media".to_owned());
        }
        let selection = into.arms.entry(self.spec.name.clone()).or_default();
        let scaled = into.scaled.entry(self.spec.name.clone()).or_default();
        for (comparison, index) in found {
            let arm = &comparison.arms[index];
            if self.built_in.as_ref().is_some_and(|built_in| !built_in.has(comparison, arm)) {
                let dir = quoted(request.studies.unwrap_or(Path::new(".")));
                let name = &self.spec.name;
                return Err(format!("study {name} in {dir} is not the built-in one"));
            }
            if !arm.settings.is_empty() && !request.allow_sysctl {
                return Err("they change kernel settings, which needs --allow-sysctl".to_owned());
            }
            let drops =
                self.subject.drops_caches(&arm.plan) || arm.cold_by == Some(ColdBy::DropCaches);
            if drops && !request.drop_caches {
                return Err("they drop the page cache, which needs --drop-caches".to_owned());
            }
            if let Some(quick) = self.large.get(&arm.set) {
                if claim.full_size || arm.files_max.is_some_and(|max| max > *quick) {
                    let set = &arm.set;
                    return Err(format!(
                        "they need file set {set} at its published size; use --full-size"
                    ));
                }
                scaled.insert(arm.set.clone());
            }
            selection.add(&comparison.place(), &arm.name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continued_session_costs_the_arms_that_its_looks_left() {
        let all: BTreeSet<u32> = (0..40).collect();
        let one = BTreeSet::from([7]);
        let of = |blocks: &[(u32, &BTreeSet<u32>)]| {
            let blocks = blocks.iter().map(|(block, arms)| (*block, (*arms).clone())).collect();
            let (arms, is_known) = arms_after(&blocks, &Rule::LOOKS).unwrap_or_default();
            (arms.len(), is_known)
        };
        assert_eq!(of(&[(11, &all), (12, &one), (13, &one)]), (1, true));
        assert_eq!(of(&[(11, &all), (12, &one)]), (1, false), "it may be incomplete");
        assert_eq!(of(&[(10, &all), (11, &all)]), (40, false), "the look follows");
        assert_eq!(of(&[(3, &all), (4, &one)]), (40, false), "block 4 is incomplete");
        assert_eq!(of(&[(3, &all), (4, &all)]), (40, true));
        assert_eq!((of(&[(0, &all)]), of(&[])), ((40, false), (0, false)));
    }
}
