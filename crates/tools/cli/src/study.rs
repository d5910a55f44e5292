//! `ioloom study`: runs studies, judges their claims and writes the report.

use crate::directories::{StoreArg, short, work_dir};
use crate::exit::{Ended, Exit, Failure};
use crate::ledger::Ledger;
use crate::media::{Media, MediaArgs};
use crate::out::{self, columns_of_stderr, wrap};
use crate::resume::{self, Resume};
use crate::shell_line::{command_line, resume_line};
use crate::study_end::{self, Outcomes, lab_failure, spec_failure};
use crate::study_files::StudyFiles;
use crate::study_progress::StudyProgress;
use crate::{atomic_file, facts, session_report, stderr, values};
use clap::Args;
use ioloom_claims::{ClaimVerdict, Rule};
use ioloom_failure::{Operation, PathError};
use ioloom_lab::child::Runner;
use ioloom_lab::expand::blocks_of;
use ioloom_lab::run::{ended_before, finished};
use ioloom_lab::spec;
use ioloom_lab::store::EndReason;
use ioloom_lab::{
    LabError, Mode, Overrides, RunOptions, Session, Store, Subject, Touches, Workspace, run_study,
};
use ioloom_model::study::{Arm, BLOCKS_FULL, Experiment};
use ioloom_model::{Condition, Doubt, StudySpec};
use ioloom_observe::collect;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Version of the `--json` document.
const SCHEMA: u32 = 1;
/// The hidden command with which the laboratory starts a run in a child process.
pub(crate) const RUN_WORD: &str = "run-order";

/// Measure which plan is fastest here and write a report
///
/// Runs each plan of a study in a separate process, in random order and under verified conditions,
/// then judges published claims and writes a report. Without arguments all built-in studies run in
/// quick mode, which takes several minutes and up to 900 MiB of disk space.
///
/// File sets are created in the work directory and results in the store. Ctrl-C stops the study; use
/// --resume to continue after the last finished run.
#[derive(Debug, Default, Args)]
#[command(after_long_help = "\
Examples:
  ioloom study                                run all studies in quick mode
  ioloom study pipeline                       find the fastest read plan
  ioloom study pipeline --files ~/src --blocks 12
                                              test the plans on your files
  ioloom study pipeline --full --resume       run at published size
  ioloom study --experiment elapsed-tree --full --on /mnt/a --on /mnt/b
                                              compare two disks
  ioloom study pipeline --evidence 1          record context switches
  sudo ioloom study --image                   also measure cold names and inodes
  ioloom study walk --after-reboot            run before and after a reboot")]
pub(crate) struct StudyArgs {
    /// Studies to run
    ///
    /// Names of built-in studies or paths to study files. Default: all built-in studies, one after
    /// another.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Run headline arms on small file sets
    ///
    /// This is the default: only headline arms, 8 blocks (fewer if the time runs out), and a time budget
    /// of 27 to 90 seconds per built-in study. Sufficient for choosing a plan, but many claims remain
    /// undecided.
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Run every arm at published size
    ///
    /// Takes hours and many gigabytes of disk space, and has no time budget. Use it to decide claims,
    /// and add --resume to continue after an interruption.
    #[arg(long)]
    full: bool,

    /// Random seed for the run order
    ///
    /// Default: the seed of the study. The seeds of file sets do not change.
    #[arg(long = "random", alias = "seed", value_name = "N")]
    random: Option<u64>,

    /// Work directory for file sets
    ///
    /// Default: $XDG_CACHE_HOME/ioloom or ~/.cache/ioloom. `ioloom clean` removes the file sets.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    store: StoreArg,

    /// Use studies from this directory
    ///
    /// Study files (*.toml) and folders with study.toml replace the built-in studies.
    #[arg(long, value_name = "DIR")]
    studies: Option<PathBuf>,

    /// Use claims from this directory
    ///
    /// Ledgers (*.toml) and folders with claims.toml replace the built-in claims.
    #[arg(long, value_name = "DIR")]
    claims: Option<PathBuf>,

    /// Run on the files in this directory
    ///
    /// Uses your files instead of generated file sets. They are only read. --resume continues a session
    /// only if they have not changed, so keep the store (--store) out of DIR.
    #[arg(long, value_name = "DIR", conflicts_with = "on")]
    files: Option<PathBuf>,

    /// Create file sets in this directory
    ///
    /// Measures the medium of this directory instead of the work directory. Repeat the flag to compare
    /// several media.
    #[arg(long, value_name = "DIR")]
    on: Vec<PathBuf>,

    #[command(flatten)]
    media: MediaArgs,

    /// Drop system caches before cold runs
    ///
    /// Needs root. Other programs slow down, because their data must be read again. Without this flag
    /// only file data is evicted; names and inodes stay warm. Also permits experiments on dropping
    /// caches.
    #[arg(long)]
    drop_caches: bool,

    /// Permit runs that change sysctl values
    ///
    /// Needs root. The old values are restored after each run, even if ioloom is killed.
    #[arg(long)]
    allow_sysctl: bool,

    /// Evidence level for all runs: 0, 1 or 2
    ///
    /// Default: the highest available level for runs that record timelines, 0 for all others. Higher
    /// levels slow down every context switch, which penalizes some plans more than others.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=2))]
    evidence: Option<u8>,

    /// Run only cold-boot experiments
    ///
    /// The first run creates the file set. Reboot, then run the same command before anything else.
    #[arg(long, conflicts_with_all = ["on", "files", "image", "media", "drop_caches", "resume"])]
    after_reboot: bool,

    /// Continue the latest unfinished session
    ///
    /// The study, options, program version and machine must match. Starts a session if none is stored,
    /// and fails if the latest one is complete.
    #[arg(long)]
    resume: bool,

    /// Time limit per study
    ///
    /// For example 90s or 10min. Default: the quick budget of the study; none with --full. The study
    /// ends before a block that does not fit.
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    budget: Option<Duration>,

    /// Number of blocks
    ///
    /// Each arm runs once per block. At least 6 blocks are needed for confidence intervals. With --full,
    /// experiments that declare fewer than 12 blocks keep that number unless selected with
    /// --experiment.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: Option<u32>,

    /// Run only this experiment
    ///
    /// Repeat the flag for several experiments.
    #[arg(long, value_name = "NAME")]
    experiment: Vec<String>,

    /// Also write the report to this file
    ///
    /// The report in the store directory is written in any case.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Also write anonymous results to this file
    ///
    /// One JSON document with the numbers of the report. Command lines, mounts, paths and the names of
    /// your directories are removed.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,

    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StudyArgs) -> Ended {
    let specs = specs(args)?;
    let bench = Bench::new(args)?;
    let specs = with_the_experiments(specs, &args.experiment)?;
    let go_on = bench.go_on(args, &specs)?;
    let files = StudyFiles::begin(args.report.as_deref(), args.export.as_deref())?;
    let mut ran: Vec<Ran> = Vec::new();
    let (mut exit, mut failed) = (Exit::Ok, None);
    for study in &specs {
        // If a study of the batch to be continued does not match, a new batch begins with it.
        let batch = go_on.batch(ran.iter().map(|one| one.session.header.batch()));
        match bench.run(args, study, batch, &go_on) {
            Ok(one) => {
                exit = if one.interrupted { Exit::Interrupted } else { exit };
                ran.push(one);
            }
            // Report the studies that ran before the failure.
            Err(failure) if !ran.is_empty() => failed = Some(failure),
            Err(failure) => return Err(failure),
        }
        if exit == Exit::Interrupted || failed.is_some() {
            break;
        }
    }
    if failed.is_none() && exit == Exit::Ok {
        failed = study_end::unsuccessful(ran.iter().map(|one| &one.session));
    }
    let reported = bench.report(args, ran, files).and_then(|studies| match args.json {
        true => out::print_json(&Document { schema: SCHEMA, command: "study", studies }),
        false => Ok(()),
    });
    study_end::after_report(reported, failed.map_or(Ok(exit), Err))
}

/// Selects the studies that contain a requested experiment.
fn with_the_experiments(
    specs: Vec<StudySpec>,
    experiments: &[String],
) -> Result<Vec<StudySpec>, Failure> {
    if specs.len() < 2 || experiments.is_empty() {
        return Ok(specs);
    }
    let has = |s: &StudySpec, name: &String| s.experiments.iter().any(|e| e.name == *name);
    if let Some(name) = experiments.iter().find(|name| !specs.iter().any(|s| has(s, name))) {
        return Err(Failure::usage(format!("no study contains experiment '{name}'")));
    }
    Ok(specs.into_iter().filter(|s| experiments.iter().any(|name| has(s, name))).collect())
}

/// The document of `study --json`.
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    command: &'static str,
    studies: Vec<StudyEntry>,
}

/// One study in the document.
#[derive(Debug, Serialize)]
struct StudyEntry {
    study: String,
    session: String,
    mode: Mode,
    /// Recorded and planned runs.
    runs: usize,
    runs_planned: usize,
    #[serde(flatten)]
    outcomes: Outcomes,
    /// Blocks dropped to stay within the budget; `None` if the study is not complete.
    blocks_dropped: Option<u32>,
    interrupted: bool,
    report: PathBuf,
    store: PathBuf,
    doubts: Vec<Doubt>,
    verdicts: Vec<ClaimVerdict>,
}

fn specs(args: &StudyArgs) -> Result<Vec<StudySpec>, Failure> {
    let dir = args.studies.as_deref();
    if args.names.is_empty() {
        let mut all = spec::all(dir).map_err(spec_failure)?;
        all.retain(|study| {
            let subject = ioloom_subjects::named(&study.subject).ok();
            let reason = subject.and_then(|subject| subject.unavailable());
            if let Some(reason) = &reason {
                stderr::message(&format!("skipped study {}: {reason}", study.name));
            }
            reason.is_none()
        });
        return Ok(all);
    }
    args.names.iter().map(|name| spec::load(name, dir).map_err(spec_failure)).collect()
}

fn mode(args: &StudyArgs) -> Mode {
    if args.full { Mode::Full } else { Mode::Quick }
}

/// State shared by all studies of a command line.
struct Bench {
    ledger: Ledger,
    store: Store,
    work_dir: PathBuf,
    places: Vec<Workspace>,
    machine: ioloom_model::MachineFacts,
    budget: Option<Duration>,
    stop: std::sync::Arc<AtomicBool>,
}

/// A study that ran.
struct Ran {
    session: Session,
    /// The requested study, which may come from a file that cannot be located by name.
    study: StudySpec,
    interrupted: bool,
}

impl Bench {
    fn new(args: &StudyArgs) -> Result<Self, Failure> {
        if let Some(level) = args.evidence.and_then(crate::evidence::level) {
            // Refuse early, not in every run.
            let options =
                collect::TraceOptions { calibrate: false, ..collect::TraceOptions::default() };
            collect::Session::start(Some(level), options).map_err(Failure::refused)?;
        }
        let ledger = Ledger::read(args.claims.as_deref())?;
        let work_dir = work_dir(args.dir.as_deref())?;
        let store_dir = args.store.dir()?;
        if let Some(dir) = &args.files {
            std::fs::read_dir(dir).map_err(|e| {
                Failure::failed(PathError::new(Operation::OpenDir, dir.as_path(), e))
            })?;
        }
        let places = if args.on.is_empty() {
            vec![Workspace::describe("work", &work_dir)]
        } else {
            let name = |dir: &PathBuf| Workspace::describe(&dir.display().to_string(), dir);
            args.on.iter().map(name).collect()
        };
        let stop = crate::interrupt::stop_flag();
        let machine = facts::facts(Path::new("/"), &places[0].dir);
        let store = Store::open(&store_dir).map_err(Failure::failed)?;
        Ok(Self { ledger, store, work_dir, places, machine, budget: args.budget, stop })
    }

    /// Returns what `--resume` continues.
    fn go_on(&self, args: &StudyArgs, specs: &[StudySpec]) -> Result<Resume, Failure> {
        match specs {
            _ if !args.resume => Ok(Resume::Nothing),
            [_] => Ok(Resume::Session),
            _ => {
                let request = resume::Request {
                    mode: mode(args),
                    machine: &self.machine,
                    version: crate::version::VERSION,
                    command: &command_line(),
                };
                resume::of_several(&self.store, specs, &request)
            }
        }
    }

    /// Runs a study, unless it is complete in the session to be continued.
    fn run(
        &self,
        args: &StudyArgs,
        study: &StudySpec,
        batch: Option<String>,
        go_on: &Resume,
    ) -> Result<Ran, Failure> {
        let subject = ioloom_subjects::named(&study.subject)
            .map_err(|e| Failure::usage(format!("study {}: {e}", study.name)))?;
        let progress = StudyProgress::new();
        let runner = Runner::of_this_program(RUN_WORD)
            .map_err(|e| Failure::failed(format!("cannot find this program: {e}")))?;
        let mode = mode(args);
        let usual =
            RunOptions::new(&self.work_dir, runner, self.machine.clone(), &self.stop, &progress);
        let options = RunOptions {
            mode,
            overrides: Overrides {
                seed: args.random,
                experiments: known(study, &args.experiment),
                blocks: args.blocks,
                after_reboot: args.after_reboot,
                ..Overrides::default()
            },
            workspaces: self.places.clone(),
            files: args.files.clone(),
            drop_caches: args.drop_caches,
            allow_sysctl: args.allow_sysctl,
            // Without a session of this command, those of others do not count.
            resume: *go_on != Resume::Nothing,
            batch,
            budget: self.budget,
            evidence: args.evidence.and_then(crate::evidence::level),
            version: crate::version::VERSION.to_owned(),
            command: command_line(),
            claims: self.ledger.definitions(&study.name),
            ..usual
        };
        stderr::line(&format!("Study {} ({}): {}", study.name, mode.name(), study.title));
        say_conditions(study, subject, args, &options.overrides);
        let here = args.on.is_empty() && args.files.is_none() && !args.after_reboot;
        let all = args.full && here;
        let media = Media::make(&args.media, all, subject, study, &options, &self.work_dir)?;
        let mut options = RunOptions { images: &media.images, ..options };
        options.workspaces.clone_from(&media.places);
        options.overrides.ladders_on_further = media.further;
        if let Some(session) = self.ended(study, subject, &options, go_on)? {
            progress.finish();
            let name = &session.header.session;
            stderr::line(&format!("Already complete in session {name}."));
            return Ok(Ran { session, study: study.clone(), interrupted: false });
        }
        let done = run_study(study, subject, &self.store, &options);
        progress.finish();
        let done = done.map_err(|error| {
            let mut failure = lab_failure(&error);
            let can_resume = matches!(error, LabError::Store(_) | LabError::Files(_));
            if can_resume && progress.has_begun() {
                let again = resume_line();
                failure
                    .message
                    .push_str(&format!("; finished runs are kept; continue with: {again}"));
            }
            failure
        })?;
        if done.interrupted {
            let (ran, all) = (done.session.runs.len(), done.session.header.order.len());
            stderr::line(&format!("Stopped after {ran} of {all} runs; finished runs are kept."));
            stderr::line(&format!("Continue with: {}", resume_line()));
        }
        Ok(Ran { session: done.session, study: study.clone(), interrupted: done.interrupted })
    }

    /// Returns the complete session of a study in the batch that is being continued, or in one that it
    /// replaced.
    ///
    /// # Errors
    /// The only study is already complete, so there is nothing to continue.
    fn ended(
        &self,
        study: &StudySpec,
        subject: &dyn Subject,
        options: &RunOptions<'_>,
        go_on: &Resume,
    ) -> Result<Option<Session>, Failure> {
        let failure = |e: LabError| lab_failure(&e);
        match go_on {
            Resume::Nothing => Ok(None),
            Resume::Batch(batches) => {
                let batches: Vec<String> = options.batch.iter().chain(batches).cloned().collect();
                finished(study, subject, &self.store, options, &batches).map_err(failure)
            }
            Resume::Session => {
                let ended = ended_before(study, &self.store, options).map_err(failure)?;
                ended.map_or(Ok(None), |session| Err(resume::finished(&session)))
            }
        }
    }

    /// Writes one report of all studies that ran and prints the answers. Does nothing without runs.
    fn report(
        &self,
        args: &StudyArgs,
        ran: Vec<Ran>,
        files: StudyFiles,
    ) -> Result<Vec<StudyEntry>, Failure> {
        let (mut entries, mut sessions) = (Vec::new(), Vec::new());
        for one in ran.into_iter().filter(|one| !one.session.runs.is_empty()) {
            entries.push(self.entry(&one));
            sessions.push((one.session, Some(one.study)));
        }
        if sessions.is_empty() {
            return Ok(entries);
        }
        let studies = args.studies.as_deref();
        let made = session_report::inputs(sessions, studies, &self.ledger, self.store.dir());
        let mut inputs = Vec::new();
        for (entry, (mut input, verdicts)) in entries.iter_mut().zip(made) {
            entry.verdicts = verdicts;
            for doubt in input.records.iter().flat_map(|r| &r.doubts) {
                if !entry.doubts.contains(doubt) {
                    entry.doubts.push(*doubt);
                }
            }
            entry.doubts.sort_unstable();
            input.since = session_report::since(&self.store, &input, studies);
            input.report_path = Some(short(args.report.as_deref().unwrap_or(&entry.report)));
            inputs.push(input);
        }
        // A file that cannot be written must not hide the answers, nor a closed output the files.
        let printed = if args.json { Ok(()) } else { session_report::print_summary(&inputs) };
        let page = ioloom_report::html_all(&inputs);
        let stored = atomic_file::write_with_parents(&entries[0].report, &page);
        let asked = files.finish(&page, &inputs);
        stored.and(asked)?;
        out::then(printed, Ok(Exit::Ok)).map(|_| entries)
    }

    /// Returns the entry for a study in the `--json` document.
    fn entry(&self, ran: &Ran) -> StudyEntry {
        let header = &ran.session.header;
        if let Some(end) = ran.session.end.as_ref().filter(|e| e.reason == EndReason::Budget) {
            stderr::line(&format!(
                "{}: {} blocks were dropped to stay within the budget.",
                header.study, end.blocks_dropped
            ));
        }
        StudyEntry {
            study: header.study.clone(),
            session: header.session.clone(),
            mode: header.mode,
            runs: ran.session.runs.len(),
            runs_planned: header.order.len(),
            outcomes: Outcomes::of(&ran.session.runs),
            blocks_dropped: ran.session.end.as_ref().map(|e| e.blocks_dropped),
            interrupted: ran.interrupted,
            report: session_report::report_path(self.store.dir(), header.batch()),
            store: self.store.dir().to_owned(),
            doubts: ran.session.end.as_ref().map_or(Vec::new(), |e| e.doubts.clone()),
            verdicts: Vec::new(),
        }
    }
}

/// Returns the requested experiments that exist in this study.
fn known(study: &StudySpec, asked: &[String]) -> Vec<String> {
    let has = |name: &&String| study.experiments.iter().any(|e| e.name == **name);
    // If there are none, pass all names on: the laboratory reports unknown ones.
    let own: Vec<String> = asked.iter().filter(has).cloned().collect();
    if own.is_empty() { asked.to_vec() } else { own }
}

/// Explains what cold means if system caches are not dropped, and which experiments have few blocks.
fn say_conditions(
    study: &StudySpec,
    subject: &dyn Subject,
    args: &StudyArgs,
    overrides: &Overrides,
) {
    let named = |e: &&Experiment| {
        overrides.experiments.is_empty() || overrides.experiments.contains(&e.name)
    };
    let headline = |arm: &Arm| arm.headline || !arm.headline_with.is_empty();
    let runs = |e: &&Experiment| args.full || e.arms.iter().any(headline);
    let run = || study.experiments.iter().filter(named).filter(runs);
    let cold = run().any(|e| e.conditions.contains(&Condition::Cold));
    let touches = subject.touches();
    if cold && touches != Touches::Names && !args.drop_caches && !args.media.image() {
        // An image has space only for its sets, so subjects that create files cannot use one.
        let flag = if touches == Touches::Data { "--image" } else { "--drop-caches" };
        let text = format!(
            "Cold: file data is evicted, but names and inodes (metadata) stay warm. As root, use \
             {flag} to make them cold as well."
        );
        stderr::line(wrap(&text, columns_of_stderr(), 2).trim_end());
    }
    let mode = mode(args);
    let usual = args.blocks.unwrap_or(BLOCKS_FULL);
    let few = |e: &&Experiment| args.full && blocks_of(e, mode, overrides) < usual;
    let few: Vec<_> = run()
        .filter(few)
        .map(|e| format!("{} {}", e.name, blocks_of(e, mode, overrides)))
        .collect();
    if !few.is_empty() {
        let text = format!(
            "Blocks: {usual}, but fewer for long experiments: {}. Select one with --experiment to run \
             it for the number of --blocks.",
            few.join(", ")
        );
        stderr::line(wrap(&text, columns_of_stderr(), 2).trim_end());
    }
    let rule = Rule::STANDARD;
    if let Some(blocks) = args.blocks.filter(|blocks| (*blocks as usize) < rule.blocks_min) {
        let text = format!(
            "Blocks: {blocks}. Claims that compare runs remain undecided; they need {} blocks.",
            rule.blocks_min
        );
        stderr::line(wrap(&text, columns_of_stderr(), 2).trim_end());
    }
}
