//! Runs a study: from a specification to a session in the store.
//!
//! The list of runs is drawn and stored before the first run. The steps of each run: ask the
//! subject whether the plan can run here, establish and prove the condition, run the plan in a
//! child process, judge the result, and append the record. An error within a run becomes that run's
//! outcome. An error in the store or a file set stops the study and leaves a session that can be
//! resumed.
//!
//! A study with a budget stops after a block if the next one would not fit, but not before
//! [`BLOCKS_MIN`](crate::budget::BLOCKS_MIN) blocks and never later than
//! [`BUDGET_HARD`](crate::budget::BUDGET_HARD) times its budget, except for the first run, which has
//! only its own deadline. A sequential session can be continued, so it stops before any block that would
//! not fit, and within one only if it takes twice as long as expected. Only the runs that a block lacks
//! count, and a block of which runs are stored is completed if any time is left.

mod begin;
mod options;
mod plan;
mod progress;

pub use begin::{ended_before, finished};
pub use options::{DEADLINE_MAX, RunOptions, SESSION_SPANS_MAX, SPANS_MAX};
pub use plan::{Planned, needs, plan};
pub use progress::{Event, Progress, Silent};

use crate::budget::Blocks;
use crate::child::{self, ChildEnd};
use crate::condition::{ConditionError, DropAll, Made, Maker};
use crate::error::LabError;
use crate::estimate::History;
use crate::expand::{AGAIN, Comparison, Mode, ReadyArm};
use crate::host_cache;
use crate::judge::{self, Judge};
use crate::media::OwnImage;
use crate::needs::demand_ns;
use crate::order::Slot;
use crate::selection::Selection;
use crate::sets::{ReadySet, Sets};
use crate::store::{EndReason, Session, SessionEnd, SessionHeader, Store, Writer};
use crate::subject::{Subject, Touches};
use ioloom_failure::reason;
use ioloom_model::record::{Observe, RECORD_SCHEMA, RunKey, RunOrder};
use ioloom_model::{ColdBy, Condition, Doubt, Outcome, Proof, RunRecord};
use ioloom_sys::clock;
use ioloom_sys_lab::cgroup::Throttle;
use ioloom_sys_lab::sysctl::ChangedSettings;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Result of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyRun {
    /// The session as read back from the store.
    pub session: Session,
    /// Whether the study was interrupted; the session can then be resumed.
    pub interrupted: bool,
}

/// Starts or resumes a study and returns its session.
///
/// # Errors
/// See [`LabError`]. Runs recorded before the error are retained.
pub fn run_study(
    spec: &ioloom_model::StudySpec,
    subject: &dyn Subject,
    store: &Store,
    options: &RunOptions<'_>,
) -> Result<StudyRun, LabError> {
    let start = Instant::now();
    let planned = plan(spec, options)?;
    plan::check(&planned, subject)?;
    plan::clear(&planned, subject, options);
    let mut history = History::of(store, &spec.name, &options.machine.fingerprint);
    let needs = needs(spec, &planned, subject, &history, options)?;
    options.progress.event(&Event::Needs(&needs));
    if let Some(reason) = needs.refusal() {
        return Err(LabError::Refused(reason));
    }
    if options.drop_caches
        && let Err(error) = ioloom_sys::cache::can_drop_caches()
    {
        return Err(LabError::Refused(format!(
            "cannot drop the page cache: {}; run as root, or omit --drop-caches to evict data \
            file by file and leave names in memory",
            reason(&error)
        )));
    }
    // Making the sets can take hours.
    store.check_writable()?;
    let sets = Sets::prepare(&planned.comparisons, subject.sets(), options)?;
    let (writer, session) = begin::begin(spec, subject, store, &planned, &sets, options)?;
    // The newest sessions may not include the one that is resumed.
    history.learn(&session);
    let budget = plan::budget(spec, options);
    let arm_seconds = plan::arm_seconds(&planned, &needs, &history);
    let name = session.header.session.clone();
    let mut study = Study {
        options,
        subject,
        sets,
        judge: Judge::new(options.machine.cpus_usable),
        writer,
        header: session.header,
        blocks: Blocks::new(start, budget, options.sequential.is_some()),
        arm_seconds,
        spans_left: SESSION_SPANS_MAX,
        traces: store.traces_dir(&name),
        store,
        needed: None,
    };
    for run in &session.runs {
        study.judge.remember(run);
    }
    let done: BTreeSet<u32> = session.runs.iter().map(|r| r.key.position).collect();
    let pictured: BTreeSet<u32> = session.pictures.iter().map(|p| p.record.key.position).collect();
    if study.pictures(&pictured)? {
        return Ok(StudyRun { session: store.read(&name)?, interrupted: true });
    }
    let interrupted = study.run(&done)?;
    Ok(StudyRun { session: store.read(&name)?, interrupted })
}

/// A study in progress.
pub(crate) struct Study<'a> {
    pub(crate) options: &'a RunOptions<'a>,
    subject: &'a dyn Subject,
    sets: Sets,
    judge: Judge,
    pub(crate) writer: Writer,
    pub(crate) header: SessionHeader,
    blocks: Blocks,
    /// Estimated seconds of a run of each arm, by the indices of its comparison and of the arm.
    arm_seconds: BTreeMap<(u32, u32), f64>,
    spans_left: usize,
    /// Directory of the traces.
    pub(crate) traces: PathBuf,
    store: &'a Store,
    /// The arms that the last look of a sequential session left.
    needed: Option<Selection>,
}

/// A run to execute.
pub(crate) struct Wanted<'w> {
    pub(crate) comparison: &'w Comparison,
    pub(crate) arm: &'w ReadyArm,
    pub(crate) block: u32,
    pub(crate) position: u32,
    pub(crate) observe: Observe,
}

impl Study<'_> {
    /// Runs the rest of the list. Returns whether it was interrupted.
    fn run(mut self, done: &BTreeSet<u32>) -> Result<bool, LabError> {
        let order = std::mem::take(&mut self.header.order);
        let blocks = order.last().map_or(0, |s| s.2 + 1);
        let mut now: Option<(u32, Instant)> = None;
        let mut last_run = Instant::now();
        let mut looks = self.looks();
        if !done.is_empty() {
            self.blocks.stored();
        }
        for (position, slot) in order.iter().enumerate() {
            let position = position as u32;
            while let Some(look) = looks.pop_if(|look| *look <= slot.2) {
                self.look(look)?;
            }
            if self.needed.as_ref().is_some_and(Selection::is_empty) {
                return self.end(EndReason::Decided, slot.2, blocks);
            }
            if done.contains(&position) || !self.needs(slot.0, slot.1) {
                continue;
            }
            let first = now.is_none_or(|(block, _)| block != slot.2);
            if let Some((_, since)) = now.filter(|_| first) {
                // A look may follow the block.
                self.blocks.finish(last_run.saturating_duration_since(since));
            }
            if first && self.options.sequential.is_some() {
                let (rest, has_begun) = self.rest(&order, slot.2, done);
                self.blocks.expect(rest, has_begun);
            }
            if self.blocks.over(slot.2, first, Instant::now()) {
                if self.options.sequential.is_some() {
                    // It stays open, so that another budget can continue it.
                    self.options.progress.event(&Event::Note("budget exhausted"));
                    return Ok(true);
                }
                return self.end(EndReason::Budget, slot.2, blocks);
            }
            if first {
                now = Some((slot.2, Instant::now()));
            }
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(true);
            }
            let comparison = &self.header.comparisons[slot.0 as usize];
            let arm = &comparison.arms[slot.1 as usize];
            let observe = self.options.observe();
            let wanted = Wanted { comparison, arm, block: slot.2, position, observe };
            let announce =
                |key: &RunKey| self.options.progress.event(&Event::Run(key, order.len()));
            let Some(mut record) = self.one(wanted, &announce)? else { return Ok(true) };
            self.ration_spans(&mut record);
            self.judge.remember(&record);
            self.writer.append(&record)?;
            self.blocks.stored();
            last_run = Instant::now();
            self.options.progress.event(&Event::Recorded(&record));
        }
        if let Some(last) = looks.pop() {
            self.look(last)?;
        }
        self.end(EndReason::Finished, blocks, blocks)
    }

    /// Estimates the duration of the runs that a block lacks. Returns also whether it has stored runs.
    fn rest(&self, order: &[Slot], block: u32, done: &BTreeSet<u32>) -> (Duration, bool) {
        let (mut rest_s, mut has_begun) = (0.0, false);
        for (slot, position) in order.iter().zip(0_u32..).filter(|(slot, _)| slot.2 == block) {
            if done.contains(&position) {
                has_begun = true;
            } else if self.needs(slot.0, slot.1) {
                rest_s += self.arm_seconds.get(&(slot.0, slot.1)).copied().unwrap_or(0.0);
            }
        }
        (Duration::try_from_secs_f64(rest_s).unwrap_or(Duration::MAX), has_begun)
    }

    /// Returns the looks of a sequential session, the first one last.
    fn looks(&self) -> Vec<u32> {
        let rule = self.options.sequential.as_ref().map(|(rule, _)| rule);
        let mut looks = rule.map_or(Vec::new(), |rule| rule.looks.clone());
        looks.sort_unstable_by(|a, b| b.cmp(a));
        looks
    }

    /// Judges the blocks before a look and remembers which arms are still needed.
    fn look(&mut self, blocks: u32) -> Result<(), LabError> {
        let options = self.options;
        let Some((_, judge)) = &options.sequential else { return Ok(()) };
        let mut session = self.store.read(&self.header.session)?;
        session.runs.retain(|run| run.key.block < blocks);
        let needed = judge.look(&session);
        let text = format!("after {blocks} blocks: {}", needed.words);
        options.progress.event(&Event::Note(&text));
        self.needed = Some(needed.arms);
        Ok(())
    }

    /// Returns whether an arm still runs. The arm that runs twice stays as long as any other of its
    /// comparison, because it shows the noise.
    fn needs(&self, comparison: u32, arm: u32) -> bool {
        let Some(needed) = &self.needed else { return true };
        let comparison = &self.header.comparisons[comparison as usize];
        let place = comparison.place();
        let has = |arm: &ReadyArm| needed.has(&place, &arm.name);
        let arm = &comparison.arms[arm as usize];
        let twice = |other: &ReadyArm| {
            other.name.strip_suffix(AGAIN).is_some_and(|first| arm.name.starts_with(first))
                && (arm.name.ends_with(AGAIN) || other.name.len() == arm.name.len() + AGAIN.len())
        };
        has(arm) || (comparison.arms.iter().any(twice) && comparison.arms.iter().any(has))
    }

    /// Retains the spans of the first block up to the session's limit.
    fn ration_spans(&mut self, record: &mut RunRecord) {
        if let Outcome::Done { measured } = &mut record.outcome {
            let count: usize = measured.spans.iter().map(Vec::len).sum();
            if record.key.block > 0 || count > self.spans_left {
                measured.spans.clear();
            } else {
                self.spans_left -= count;
            }
        }
    }

    fn end(self, reason: EndReason, done: u32, blocks: u32) -> Result<bool, LabError> {
        let enough = match self.options.mode {
            Mode::Quick => 8,
            Mode::Full => 12,
        };
        let doubts = if done < enough { vec![Doubt::FewSamples] } else { Vec::new() };
        if reason == EndReason::Budget {
            let text = format!("budget exhausted: {done} of {blocks} blocks ran");
            self.options.progress.event(&Event::Note(&text));
        }
        self.writer.finish(SessionEnd {
            reason,
            blocks_dropped: blocks - done,
            doubts,
            ended_unix_ms: clock::unix_ms(),
        })?;
        Ok(false)
    }

    /// Performs one run. Returns `None` if the study was interrupted.
    pub(crate) fn one(
        &self,
        wanted: Wanted<'_>,
        announce: &dyn Fn(&RunKey),
    ) -> Result<Option<RunRecord>, LabError> {
        let Wanted { comparison, arm, block, position, observe } = wanted;
        let Some(set) = self.sets.of(comparison, arm, self.options) else {
            let reason = "its files are no longer specified; repeat the original \
                options"
                .to_owned();
            return Err(LabError::Set { name: arm.set.clone(), reason });
        };
        let key = RunKey {
            study: self.header.study.clone(),
            session: self.header.session.clone(),
            experiment: comparison.experiment.clone(),
            arm: arm.name.clone(),
            set: arm.set.clone(),
            medium: comparison.medium.clone(),
            condition: comparison.condition,
            compute: comparison.compute.clone(),
            block,
            position,
            factors: arm.factors.clone(),
        };
        announce(&key);
        let order = RunOrder {
            plan: arm.plan.clone(),
            compute: comparison.compute.clone(),
            dir: set.items.clone(),
            set: set.spec.clone(),
            files_max: arm.files_max,
            seed: set.spec.as_ref().map_or(self.header.seed, |s| s.seed),
            spans_max: self.options.spans_max,
            observe,
        };
        let started_unix_ms = clock::unix_ms();
        let Some(ended) = self.execute(&order, (comparison, arm), set, &key)? else {
            return Ok(None);
        };
        let mut realised = set.realised.clone();
        realised.name.clone_from(&arm.set);
        let mut record = RunRecord {
            schema: RECORD_SCHEMA,
            key,
            plan: arm.plan.clone(),
            set: realised,
            proof: ended.proof,
            outcome: ended.outcome,
            doubts: ended.doubts,
            machine: self.header.machine.fingerprint.clone(),
            version: self.options.version.clone(),
            started_unix_ms,
            seed: self.header.seed,
        };
        self.judge.judge(&mut record, &order, &set.files, arm.scaled);
        if let Outcome::Done { measured } = &record.outcome {
            record.doubts.extend(self.subject.verify(&order, &set.realised, measured));
        }
        judge::tidy(&mut record.doubts);
        Ok(Some(record))
    }

    /// Probes the plan, establishes the condition, runs the child and proves the condition. Returns
    /// `None` if the study was interrupted. Fails if kernel settings stay changed.
    fn execute(
        &self,
        order: &RunOrder,
        (comparison, arm): (&Comparison, &ReadyArm),
        set: &ReadySet,
        key: &RunKey,
    ) -> Result<Option<Ended>, LabError> {
        let without_proof = |outcome| Ok(Some(Ended::without_proof(outcome)));
        if self.subject.drops_caches(&order.plan) && !self.options.drop_caches {
            let reason = NOT_DROPPED.to_owned();
            return without_proof(Outcome::Refused { reason });
        }
        if let Err(reason) = self.subject.probe(&order.plan, &order.compute, &set.items) {
            return without_proof(Outcome::Refused { reason });
        }
        let image = self.options.images.iter().find(|i| i.word() == comparison.medium);
        let drop_all: DropAll = ioloom_sys::cache::flush_and_drop_caches;
        let drop_caches = self.options.drop_caches.then_some(drop_all);
        let touches = self.subject.touches_of(&order.plan);
        let lists = order.plan.files().is_some() && set.spec.is_none();
        let maker = Maker { drop_caches, threads: 8, image, touches, cold_by: arm.cold_by, lists };
        let seed = self.header.seed ^ u64::from(key.block);
        let (condition, max) = (comparison.condition, order.files_max);
        let second_read = self.second_read(condition, touches, arm, set);
        let made = maker.make(condition, &set.files, max, seed, self.options.stop);
        if self.options.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let made = match made {
            Ok(made) => made,
            Err(ConditionError::Refused(reason)) => {
                return without_proof(Outcome::Refused { reason });
            }
            Err(error) => {
                let reason = format!("cannot establish condition {}: {error}", key.condition);
                return without_proof(Outcome::Failed { reason });
            }
        };
        let changed = match change(&arm.settings, self.options.allow_sysctl) {
            Ok(changed) => changed,
            Err(reason) => return without_proof(Outcome::Refused { reason }),
        };
        let end = self.child(order, set, image.and_then(OwnImage::throttle));
        // The next runs, and the values that they restore, would be wrong.
        changed.map_or(Ok(()), ChangedSettings::restore).map_err(LabError::Settings)?;
        Ok(match end {
            ChildEnd::Stopped => None,
            ChildEnd::Answered(answer) => {
                let mut ended = Ended::with(&made, *answer, order, set);
                if let Some(proof) = &mut ended.proof {
                    proof.second_read = second_read;
                }
                Some(ended)
            }
        })
    }

    /// Probes for caches below this kernel before the first cold run of a set. A set that must stay
    /// cold after a boot is not read.
    fn second_read(
        &self,
        condition: Condition,
        touches: Touches,
        arm: &ReadyArm,
        set: &ReadySet,
    ) -> Option<f64> {
        let reboot = self.options.overrides.after_reboot || arm.cold_by == Some(ColdBy::Reboot);
        let probed = condition == Condition::Cold && touches == Touches::Data && !reboot;
        let probe = || host_cache::second_read(&set.files, self.options.stop);
        if probed { *set.second_read.get_or_init(probe) } else { None }
    }

    fn child(&self, order: &RunOrder, set: &ReadySet, slow: Option<&Throttle>) -> ChildEnd {
        let bytes = set.files.bytes(order.files_max);
        let files = set.files.count(order.files_max) as u64;
        let work = demand_ns(&order.compute, set.spec.as_ref(), files, bytes as f64)
            + self.subject.takes_s(&order.plan, files, bytes) * 1e9;
        // Runs stopped by the budget would be missing from the verdicts of a sequential session.
        let bounded = self.options.sequential.is_none();
        let left = self.blocks.longest_run(Instant::now()).filter(|_| bounded);
        let longest = left.unwrap_or(Duration::MAX);
        let longest = longest.min(self.options.deadline_max);
        // A set that must stay cold was not listed, so its file count is unknown here.
        let deadline = match self.options.overrides.after_reboot {
            true => longest,
            false => child::deadline(bytes, files, work, longest),
        };
        let (runner, stop) = (&self.options.runner, self.options.stop);
        if set.items.to_str().is_some() {
            return runner.run_in(order, deadline, stop, None, slow);
        }
        // JSON cannot hold a path that is not UTF-8; the child gets it as its working directory.
        let order = RunOrder { dir: PathBuf::from("."), ..order.clone() };
        runner.run_in(&order, deadline, stop, Some(&set.items), slow)
    }
}

/// Reason for refusing a plan that drops the system's page cache.
const NOT_DROPPED: &str = "the plan drops the page cache of the system; allow it with \
    --drop-caches as root";

/// Applies the kernel settings of an arm, if permitted by the user.
fn change(
    settings: &BTreeMap<String, u64>,
    allowed: bool,
) -> Result<Option<ChangedSettings>, String> {
    if settings.is_empty() {
        return Ok(None);
    }
    if !allowed {
        let names = settings.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "the arm changes kernel settings ({names}); allow it with --allow-sysctl as root \
            (the settings are restored after each run)"
        ));
    }
    ChangedSettings::set(settings).map(Some)
}

/// The outcome of a run and the proof of its condition.
struct Ended {
    outcome: Outcome,
    proof: Option<Proof>,
    doubts: Vec<Doubt>,
}

impl Ended {
    fn without_proof(outcome: Outcome) -> Self {
        Self { outcome, proof: None, doubts: Vec::new() }
    }

    fn with(made: &Made, answer: child::ChildAnswer, order: &RunOrder, set: &ReadySet) -> Self {
        let measured = match &answer.outcome {
            Outcome::Done { measured } => Some(measured.as_ref()),
            _ => None,
        };
        let (proof, doubt) = made.conclude(
            order.plan.files().map(|p| p.method),
            answer.device_bytes,
            measured,
            &set.files,
        );
        let doubts = doubt.filter(|_| measured.is_some()).into_iter().collect();
        Self { outcome: answer.outcome, proof: Some(proof), doubts }
    }
}
