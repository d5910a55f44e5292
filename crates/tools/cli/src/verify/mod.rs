//! `ioloom claims --verify`: gathers the runs that open claims need, and no others.
//!
//! A full study runs every arm at its published size, which takes hours per block. Verification
//! collects the arms of the open claims (`plan`), shares them between claims, reduces large file sets
//! unless a claim is about their size, and leaves out claims that no run here can decide. Each study
//! is one session with a list of 30 blocks. After 12, 18, 24 and 30 blocks the claims are judged
//! (`looks`); arms that no open claim needs end there. Every p-value is multiplied by the number of
//! looks, so that stopping early does not decide more false claims.
//!
//! An unfinished session is continued by the same command, with the arms it started with.

mod bench;
mod looks;
mod plan;
mod power;

pub(crate) use bench::{Request, fingerprint};

use crate::exit::{Ended, Exit, Failure};
use crate::ledger::Evidence;
use crate::study_end::{lab_failure, spec_failure};
use crate::study_progress::StudyProgress;
use crate::{out, stderr};
use bench::Bench;
use ioloom_claims::power::{Stored, least_blocks};
use ioloom_claims::{
    Claim, ClaimVerdict, Combine, Part, Rule, Verdict, forecast, verdicts_at_looks,
};
use ioloom_lab::store::{Sequential, SessionHeader};
use ioloom_lab::{RunOptions, Session, run_study};
use ioloom_model::units::format_ns;
use ioloom_model::{Doubt, RunRecord};
use looks::Judge;
use plan::{Plan, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Runs what the claims need.
///
/// Estimates can be factors too high, and claims may be decided early. If a budget is left, the claims
/// for which it seemed too short are therefore planned again, with the durations seen so far, and sessions
/// whose share was too short are continued. A session that cannot begin a block leaves the time to the others.
pub(crate) fn run(request: &Request<'_>) -> Ended {
    let bench = Bench::new(request)?;
    let began = Instant::now();
    let mut wanted = request.claims.clone();
    let (mut left_out, mut has_refused) = (false, false);
    let mut again = false;
    let mut stuck = BTreeSet::new();
    loop {
        let budget = request.budget.map(|budget| budget.saturating_sub(began.elapsed()));
        // Sessions of the rounds before have used a part of the error rate.
        let reread = if again { Some(bench.evidence()?) } else { None };
        let evidence = reread.as_ref().unwrap_or(request.evidence);
        let (continued, planned) = round((&bench, evidence), &wanted, &stuck, budget)?;
        // A block that is cut would be completed hours later.
        let (skipped, continued): (Vec<Task>, Vec<Task>) = continued
            .into_iter()
            .partition(|task| task.is_among(&stuck) || (again && task.exceeds(budget)));
        if again {
            if continued.is_empty() && planned.tasks.is_empty() {
                break;
            }
            stderr::line("Time is left for more claims.");
        }
        report_plan(&continued, &planned);
        if request.dry_run {
            let is_refused = request.named && !planned.left_out.is_empty();
            return Ok(if is_refused { Exit::Refused } else { Exit::Ok });
        }
        left_out |= planned.left_out.keys().any(|reason| reason != plan::NO_BUDGET);
        let tasks: Vec<Task> = continued.into_iter().chain(planned.tasks).collect();
        let Some(ran) = run_tasks(&bench, &tasks, budget)? else {
            stderr::line("Stopped; finished runs are kept. Continue with the same command.");
            return Ok(Exit::Interrupted);
        };
        has_refused |= ran.has_refused;
        let later = planned.left_out.get(plan::NO_BUDGET);
        wanted.retain(|claim| {
            ran.unfinished.contains(&claim.id)
                || skipped.iter().any(|task| task.rule.claims.contains(&claim.id))
                || later.is_some_and(|later| later.contains(&claim.id))
        });
        let spent = request.budget.is_none_or(|budget| began.elapsed() >= budget);
        // The time that the plan reserved for a stuck session is left for other claims.
        let is_freed = later.is_some() && !ran.stuck.is_empty();
        if wanted.is_empty() || spent || !(ran.is_further || is_freed) {
            break;
        }
        stuck.extend(ran.stuck);
        again = true;
    }
    // The plan has said why named claims cannot be verified.
    let unverified = request.named && (left_out || !wanted.is_empty());
    Ok(if unverified || has_refused { Exit::Refused } else { Exit::Ok })
}

/// Plans the runs of the claims: unfinished sessions that test one of them, and new ones. No time is reserved
/// for `stuck` sessions.
fn round(
    (bench, evidence): (&Bench<'_>, &Evidence),
    claims: &[&Claim],
    stuck: &BTreeSet<String>,
    budget: Option<Duration>,
) -> Result<(Vec<Task>, Plan), Failure> {
    let sessions = bench.sessions()?;
    let continued = continued(bench, claims, &sessions)?;
    let running: BTreeSet<&String> = continued.iter().flat_map(|task| &task.rule.claims).collect();
    let mut claims = claims.to_vec();
    claims.retain(|claim| !running.contains(&claim.id));
    let mut left_out = futile(bench, evidence, &claims);
    left_out.extend(given_up(bench.request, &sessions));
    left_out.extend(out_of_reach(bench, evidence, &claims));
    // Unfinished sessions come first, each with its share, unless the time is too short for a block.
    let fitting = continued.iter().filter(|task| !task.is_among(stuck) && !task.exceeds(budget));
    let taken = Duration::try_from_secs_f64(fitting.map(|task| task.first_s).sum());
    let budget = budget.map(|budget| budget.saturating_sub(taken.unwrap_or(Duration::MAX)));
    let planned = Plan::new(bench, &claims, &left_out, budget)?;
    Ok((continued, planned))
}

/// What a round of sessions has achieved.
#[derive(Default)]
struct Round {
    /// Whether a session has ended or has more runs than before.
    is_further: bool,
    /// Claims of sessions that have not ended, or not begun for lack of time.
    unfinished: BTreeSet<String>,
    /// Sessions that were continued without one more run.
    stuck: BTreeSet<String>,
    /// Whether a session was refused.
    has_refused: bool,
}

/// Runs the sessions one after another, each with its share of the budget; `None` if the user stopped
/// them.
fn run_tasks(
    bench: &Bench<'_>,
    tasks: &[Task],
    budget: Option<Duration>,
) -> Result<Option<Round>, Failure> {
    let began = Instant::now();
    let mut round = Round::default();
    for (at, task) in tasks.iter().enumerate() {
        let left = budget.map(|budget| budget.saturating_sub(began.elapsed()));
        // The plan has found time for a new session that is the first.
        if (at > 0 || task.continues.is_some()) && task.exceeds(left) {
            let reason = match task.continues.is_some() {
                true => "the time left is too short for one more block of their session",
                false => "the time left is too short for one block",
            };
            report_left_out(reason, &task.rule.claims);
            round.unfinished.extend(task.rule.claims.iter().cloned());
            continue;
        }
        let share = left.map(|left| {
            let rest: f64 = tasks[at..].iter().map(|task| task.first_s).sum();
            let share = left.mul_f64((task.first_s / rest.max(1e-9)).clamp(0.0, 1.0));
            // Less than a block is of no use, and the estimate is not exact.
            share.max(task.least().mul_f64(1.5)).min(left)
        });
        let session = match measure(bench, task, share) {
            Ok(session) => session,
            // Other studies may fit.
            Err(failure) if failure.exit == Exit::Refused => {
                report_left_out(&failure.message, &task.rule.claims);
                round.has_refused = true;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if bench.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if session.end.is_some() {
            round.is_further = true;
        } else {
            let name = session.header.session;
            round.unfinished.extend(task.rule.claims.iter().cloned());
            stderr::line(&format!(
                "Session {name} is not finished. Continue with the same command."
            ));
            if has_advanced(task.continues.as_ref(), &name, session.runs.len()) {
                round.is_further = true;
            } else {
                round.stuck.insert(name);
            }
        }
    }
    Ok(Some(round))
}

/// Reports whether an unfinished session is new or has more runs than `before`, the session to continue and its
/// runs. A new one without runs has made its file sets, so that its first block may fit now.
fn has_advanced(before: Option<&(String, usize)>, session: &str, count: usize) -> bool {
    before.is_none_or(|(name, before)| name != session || count > *before)
}

/// Prints the blocks and minutes that the claims need, and runs nothing.
pub(crate) fn needs(request: &Request<'_>, verdicts: &[ClaimVerdict], json: bool) -> Ended {
    power::report(&Bench::new(request)?, verdicts, json)
}

/// Returns the unfinished sessions that test one of the claims; not those with reduced file sets if the published
/// size is wanted.
fn continued(
    bench: &Bench<'_>,
    claims: &[&Claim],
    sessions: &[(SessionHeader, bool)],
) -> Result<Vec<Task>, Failure> {
    let mut tasks: Vec<Task> = Vec::new();
    for (header, ended) in sessions.iter().rev() {
        let Some(rule) = header.sequential.as_ref().filter(|_| !ended) else { continue };
        // A claim of several unfinished sessions is continued in the newest.
        let is_open = |id: &String| !tasks.iter().any(|task| task.rule.claims.contains(id));
        let is_tested = |claim: &&&Claim| rule.claims.contains(&claim.id) && is_open(&claim.id);
        let mut tested = claims.iter().filter(is_tested).peekable();
        // Continuing it would run the reduced sets of all its claims.
        let is_reduced = |claim: &Claim| is_too_small(bench.request, &header.study, rule, claim);
        if tested.peek().is_none() || tested.any(|claim| is_reduced(claim)) {
            continue;
        }
        let spec = bench.study(&header.study).map_err(spec_failure)?;
        tasks.push(Task::new(bench, spec, header, rule.clone())?);
    }
    Ok(tasks)
}

/// Reports whether a session of a study reduced a file set of the claim although the published size is wanted.
fn is_too_small(request: &Request<'_>, study: &str, rule: &Sequential, claim: &Claim) -> bool {
    request.full_size && uses_reduced_set(study, rule, claim)
}

/// Reports whether a session of a study reduced a file set that decides the claim.
fn uses_reduced_set(study: &str, rule: &Sequential, claim: &Claim) -> bool {
    let places = claim.contrasts.iter().flat_map(|test| test.locations());
    let mut own = places.filter(|at| at.study == study);
    own.any(|at| rule.scaled.iter().any(|set| at.has_set(set)))
}

/// Returns the claims that a finished session with the same test did not decide, and the reason. Claims whose arms
/// were refused are tried again, because other limits or permissions can change that.
fn given_up(request: &Request<'_>, sessions: &[(SessionHeader, bool)]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let ended = sessions.iter().filter(|(_, ended)| *ended && !request.named);
    for (header, rule) in ended.filter_map(|(h, _)| Some((h, h.sequential.as_ref()?))) {
        let is_given_up = |claim: &&&Claim| {
            rule.claims.contains(&claim.id)
                && !request.untestable.contains(&claim.id)
                && !is_too_small(request, &header.study, rule, claim)
        };
        for claim in request.claims.iter().filter(is_given_up) {
            if header.claims.get(&claim.id) == Some(&claim.definition) {
                let session = &header.session;
                let reason = format!("given up in session {session}; name a claim to try it again");
                found.insert(claim.id.clone(), reason);
            }
        }
    }
    found
}

/// Returns the claims that would stay undecided with the largest number of blocks like those stored on
/// this machine, and the reason. The stored blocks are repeated; see [`forecast`]. Sessions without a first look and
/// disturbed blocks are no reason.
fn futile(bench: &Bench<'_>, evidence: &Evidence, claims: &[&Claim]) -> BTreeMap<String, String> {
    if bench.request.named {
        return BTreeMap::new();
    }
    let machine = &bench.machine.fingerprint;
    let used = |record: &&RunRecord| {
        // Reduced file sets do not show what those of the published size would.
        if bench.request.full_size && record.doubts.contains(&Doubt::Scaled) {
            return false;
        }
        let places = claims.iter().flat_map(|claim| &claim.contrasts).flat_map(|c| c.locations());
        let mut same = places.filter(|at| at.study == record.key.study);
        record.machine == *machine && same.any(|at| at.experiment == record.key.experiment)
    };
    let records: Vec<RunRecord> = evidence.records.iter().filter(used).cloned().collect();
    let records = forecast::from_first_look(records);
    let last = Rule::LOOKS[Rule::LOOKS.len() - 1];
    let sessions = records.iter().map(|record| record.key.session.clone()).collect();
    let repeated = forecast::repeated(&records, last);
    let rule = forecast::rule(Rule::STANDARD);
    let later = verdicts_at_looks(claims, &repeated, rule, &sessions);
    let hopeless = later.into_iter().filter(|verdict| {
        let open = |part: &&Part| !part.note && part.verdict == Verdict::Undecided;
        let mut open = verdict.parts.iter().filter(open).peekable();
        let is_enough = |part: &Part| part.evidence.blocks >= last as usize;
        open.peek().is_some() && open.all(|part| is_enough(part) && !forecast::is_disturbed(part))
    });
    let reason = format!("they would stay undecided with {last} blocks like those stored here");
    hopeless.map(|verdict| (verdict.id, reason.clone())).collect()
}

/// Returns the claims that one more session cannot decide, whatever it measures, and the reason. It measures
/// all contrasts of a claim again.
fn out_of_reach(
    bench: &Bench<'_>,
    evidence: &Evidence,
    claims: &[&Claim],
) -> BTreeMap<String, String> {
    let stored = Stored {
        records: &evidence.records,
        sequential: &evidence.sequential,
        machine: &bench.machine.fingerprint,
    };
    let reason = |claim: &&Claim| {
        let contrasts = claim.contrasts.iter().map(|test| &test.contrast);
        let measured = contrasts.filter(|contrast| !contrast.locations().is_empty());
        let least: Vec<Option<u32>> =
            measured.map(|contrast| least_blocks(contrast, stored)).collect();
        Some((claim.id.clone(), spent_words(claim.combine, &least)?))
    };
    claims.iter().filter_map(reason).collect()
}

/// Says that no session of several looks can decide a claim whose contrasts need `least` blocks, if so.
fn spent_words(combine: Combine, least: &[Option<u32>]) -> Option<String> {
    let last = Rule::LOOKS[Rule::LOOKS.len() - 1];
    let is_out = |least: &Option<u32>| least.is_none_or(|blocks| blocks > last);
    let is_claim_out = match combine {
        Combine::Places => least.iter().any(is_out),
        // One contrast can refute it, or confirm it.
        Combine::All | Combine::Any => !least.is_empty() && least.iter().all(is_out),
    };
    let all: Option<Vec<u32>> = least.iter().copied().collect();
    let advice = all.and_then(|all| all.into_iter().max()).map_or(String::new(), |blocks| {
        format!("; a study with --blocks {blocks}, judged once, may decide them")
    });
    let reason = "earlier sessions used the error rate of their resampled test";
    is_claim_out.then(|| format!("{reason}{advice}"))
}

/// Prints a sentence, wrapped to the width of standard error.
fn line(text: &str) {
    stderr::line(out::wrap(text, out::columns_of_stderr(), 2).trim_end());
}

/// Prints which claims are left out, and why.
fn report_left_out(reason: &str, claims: &[String]) {
    line(&format!("Left out, {reason}: {}.", claims.join(", ")));
}

/// Says why a plan has no runs.
const fn nothing_to_run(is_short: bool) -> &'static str {
    match is_short {
        true => "Nothing fits into the budget.",
        false => "None of these claims can be decided by more runs here.",
    }
}

/// Prints the plan before anything runs.
fn report_plan(continued: &[Task], planned: &Plan) {
    for task in continued {
        line(&format!("Continues an unfinished session. {}", task.words()));
    }
    planned.tasks.iter().for_each(|task| line(&task.words()));
    let tasks = || continued.iter().chain(&planned.tasks);
    if tasks().next().is_none() {
        line(nothing_to_run(planned.left_out.contains_key(plan::NO_BUDGET)));
    } else {
        let (first, most) = (tasks().map(|t| t.first_s).sum(), tasks().map(|t| t.most_s).sum());
        let about = |seconds: f64| format!("about {}", format_ns(seconds * 1e9));
        line(&format!(
            "Estimate: {} for {} blocks, {} if every claim needs {}.",
            about(first),
            Rule::LOOKS[0],
            about(most),
            Rule::LOOKS[Rule::LOOKS.len() - 1],
        ));
    }
    for (reason, claims) in &planned.left_out {
        report_left_out(reason, claims);
    }
}

/// Runs one session until its claims are decided, given up, or out of budget.
fn measure(bench: &Bench<'_>, task: &Task, budget: Option<Duration>) -> Result<Session, Failure> {
    let progress = StudyProgress::new();
    let evidence = bench.evidence()?;
    let judge = Judge::new(bench, &evidence, &task.spec.name, &task.rule.claims);
    let mut options = task.options(bench, &progress);
    options.resume = task.continues.is_some();
    options.sequential = Some((task.rule.clone(), &judge));
    options.budget = budget;
    options.claims = bench.request.ledger.definitions(&task.spec.name);
    let media = bench.media(&task.spec, task.subject, &options);
    let media = media.inspect_err(|_| progress.finish())?;
    let mut options = RunOptions { images: &media.images, ..options };
    options.workspaces.clone_from(&media.places);
    options.overrides.ladders_on_further = media.further;
    let done = run_study(&task.spec, task.subject, &bench.store, &options);
    progress.finish();
    done.map(|run| run.session).map_err(|error| lab_failure(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_sessions_and_more_runs_are_progress() {
        let before = |count| ("s".to_owned(), count);
        assert!(has_advanced(None, "s", 0), "it has made its file sets");
        assert!(!has_advanced(Some(&before(0)), "s", 0));
        assert!(!has_advanced(Some(&before(100)), "s", 100), "not one run was added");
        assert!(has_advanced(Some(&before(100)), "s", 101));
        assert!(has_advanced(Some(&before(100)), "t", 0), "nothing could be resumed");
    }

    #[test]
    fn only_reduced_sets_of_a_claim_are_too_small_for_it() {
        let claim = |id: &str| {
            ioloom_claims::ledger().iter().find(|claim| claim.id == id).expect("a built-in claim")
        };
        let rule = Sequential {
            claims: vec!["000-P17".to_owned(), "000-P47".to_owned()],
            looks: Rule::LOOKS.to_vec(),
            scaled: vec!["C".to_owned()],
        };
        assert!(uses_reduced_set("pipeline", &rule, claim("000-P47")));
        assert!(!uses_reduced_set("pipeline", &rule, claim("000-P17")), "it uses C-20000");
        assert!(!uses_reduced_set("walk", &rule, claim("000-P47")));
    }

    #[test]
    fn a_claim_is_out_of_reach_if_no_contrast_can_decide_it() {
        let words =
            |combine, least: &[Option<u32>]| spent_words(combine, least).unwrap_or_default();
        let mixed = [Some(12), Some(48)];
        assert!(words(Combine::Places, &mixed).contains("--blocks 48"));
        assert_eq!(words(Combine::All, &mixed), "", "the first contrast can refute it");
        assert_eq!(words(Combine::Any, &mixed), "", "the first contrast can confirm it");
        assert!(words(Combine::All, &[Some(96), Some(48)]).contains("--blocks 96"));
        let never = words(Combine::All, &[Some(48), None]);
        assert!(never.starts_with("earlier sessions") && !never.contains("--blocks"), "{never}");
        assert_eq!(words(Combine::Places, &[Some(30)]), "");
        assert_eq!(words(Combine::All, &[]), "");
    }
}
