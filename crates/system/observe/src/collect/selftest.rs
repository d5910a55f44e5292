//! Compares the states reported at each level with the known activity of the threads.
//!
//! Four workers repeatedly compute, read cold blocks, touch cold pages of a mapping, wait for a
//! partner, sleep and read from a pipe, while other threads keep the processors busy. Each worker
//! measures itself independently of the observation: it reads the clock, its processor time and its
//! run-queue delay before and after each kind of work. The remaining time of a phase was spent
//! blocked, and the worker knows on what. This is the ground truth for the comparison; it requires
//! no events, spans or classification rules. The shares are compared in percentage points of the
//! elapsed time.
//!
//! The second part measures the cost: the processor time of compute-only tasks with and without a
//! recorder, alternately.

mod cost;

use super::{Refused, Session, TraceOptions};
use cost::{cost, spin};
use ioloom_failure::{Operation, PathError, reason};
use ioloom_model::{Level, State};
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use ioloom_sys::map::{Map, MapAdvice};
use ioloom_sys::proc::ThreadSched;
use ioloom_sys::{cache, fault, file};
use ioloom_trace::{NO_FILE, SpanKind, Trace};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

const WORKERS: usize = 4;
/// Half of each worker's file is mapped, the other half is read.
const FILE_BYTES: u64 = 16 << 20;
const READS: u64 = 8;
const READ_BYTES: usize = 64 << 10;
const TOUCHES: usize = 24;
const COMPUTE_NS: u64 = 2_000_000;
const WAIT: Duration = Duration::from_millis(1);
const SLEEP: Duration = Duration::from_micros(1500);

/// Self-test options.
#[derive(Debug, Clone)]
pub struct SelftestOptions {
    /// Levels to compare; levels that do not work are reported and skipped.
    pub levels: Vec<Level>,
    /// Number of runs per level.
    pub runs: u32,
    /// Length of one run in milliseconds.
    pub run_ms: u64,
    /// Number of tasks in one pass of the cost part; 0 skips it.
    pub tasks: u64,
    /// Directory for the files; cold reads require a device.
    pub dir: PathBuf,
}

/// Why the self-test failed.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// A file cannot be created or written.
    #[error("{0}; choose another directory with --dir")]
    File(#[from] PathError),
    /// A worker failed.
    #[error("a worker of the self-test failed: {}; repeat the test", reason(.0))]
    Worker(io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread of the self-test: {}", reason(.0))]
    Thread(io::Error),
}

/// One state at one level, as shares of the workers' time in percent, medians over the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// State name; `ready+preempted` is the sum of both.
    pub state: String,
    /// Share according to the workers.
    pub truth_pct: f64,
    /// Share according to the level; null if the level does not measure the state.
    pub level_pct: Option<f64>,
    /// Absolute difference in percentage points.
    pub difference_pp: Option<f64>,
    /// Maximum difference in one run.
    pub difference_pp_max: Option<f64>,
}

/// Result for one level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelReport {
    /// Level number.
    pub level: u8,
    /// Why the level was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Number of runs.
    pub runs: u32,
    /// Comparison by state.
    pub states: Vec<Compared>,
    /// Minimum and maximum sum of all shares in percent: 100 unless there is a bug.
    pub tiling_pct: (f64, f64),
    /// Records lost in all runs.
    pub lost: u64,
    /// Median cost to the thread of leaving a processor and returning, in nanoseconds.
    pub switch_ns: Option<f64>,
    /// Additional processor time of a recorded 30 µs task in percent, median over pairs.
    pub task_overhead_pct: Option<f64>,
    /// Number of pairs of passes.
    pub task_pairs: u32,
}

/// Runs the self-test and calls `report_progress` for each step.
///
/// # Errors
///
/// Fails if files cannot be created or threads cannot be started. A level that does not work is not an error.
pub fn selftest(
    plan: &SelftestOptions,
    report_progress: &dyn Fn(&str),
) -> Result<Vec<LevelReport>, SelftestError> {
    let files = Files::make(&plan.dir)?;
    let mut found: Vec<Found> = plan.levels.iter().map(|level| Found::new(*level)).collect();
    // Levels alternate, so changes on the machine affect all of them.
    for run in 0..plan.runs {
        for at in found.iter_mut().filter(|at| at.refused.is_none()) {
            report_progress(&format!(
                "run {} of {} at level {}",
                run + 1,
                plan.runs,
                at.level.number()
            ));
            match mixed(at.level, plan.run_ms, &files) {
                Ok(one) => at.runs.push(one),
                Err(Failed::Refused(e)) => at.refused = Some(e.to_string()),
                Err(Failed::Worker(e)) => return Err(SelftestError::Worker(e)),
                Err(Failed::Thread(e)) => return Err(SelftestError::Thread(e)),
            }
        }
    }
    for at in found.iter_mut().filter(|at| at.refused.is_none() && plan.tasks > 0) {
        for pair in 0..plan.runs {
            report_progress(&format!(
                "cost {} of {} at level {}",
                pair + 1,
                plan.runs,
                at.level.number()
            ));
            at.costs.extend(cost(at.level, plan.tasks, pair % 2 == 0));
        }
    }
    Ok(found.into_iter().map(Found::report).collect())
}

/// The workers' files. They have no names, so an interrupted test leaves none.
struct Files {
    files: Vec<File>,
}

impl Files {
    fn make(dir: &Path) -> Result<Self, SelftestError> {
        let block = vec![0x5A; 1 << 20];
        let mut files = Vec::new();
        for i in 0..WORKERS {
            let path = dir.join(format!(".ioloom-selftest-{}-{i}", std::process::id()));
            let new = File::options().read(true).write(true).create_new(true).open(&path);
            let mut file = new.map_err(PathError::on(Operation::Create, &path))?;
            std::fs::remove_file(&path).map_err(PathError::on(Operation::Remove, &path))?;
            for _ in 0..FILE_BYTES >> 20 {
                file.write_all(&block).map_err(PathError::on(Operation::Write, &path))?;
            }
            file.sync_all().map_err(PathError::on(Operation::Sync, &path))?;
            files.push(file);
        }
        Ok(Self { files })
    }
}

enum Failed {
    Refused(Refused),
    Worker(io::Error),
    Thread(io::Error),
}

/// Nanoseconds by state, as measured by a worker.
#[derive(Debug, Clone, Default)]
struct Truth {
    elapsed_ns: u64,
    on_cpu_ns: u64,
    run_queue_ns: u64,
    blocked_ns: BTreeMap<State, u64>,
}

impl Truth {
    fn add(&mut self, other: &Self) {
        self.elapsed_ns += other.elapsed_ns;
        self.on_cpu_ns += other.on_cpu_ns;
        self.run_queue_ns += other.run_queue_ns;
        for (state, ns) in &other.blocked_ns {
            *self.blocked_ns.entry(*state).or_default() += ns;
        }
    }

    fn pct(&self, state: State) -> f64 {
        let ns = match state {
            State::OnCpu => self.on_cpu_ns,
            State::Ready | State::Preempted => self.run_queue_ns,
            other => self.blocked_ns.get(&other).copied().unwrap_or(0),
        };
        100.0 * ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

/// The clocks of a thread at one point in time.
#[derive(Debug, Clone, Copy)]
struct Reading {
    wall_ns: u64,
    cpu_ns: u64,
    delay_ns: u64,
}

/// Measures the calling thread independently of the observation.
struct Witness {
    sched: ThreadSched,
    last: Reading,
    truth: Truth,
}

impl Witness {
    fn new() -> io::Result<Self> {
        let sched = ThreadSched::open()?;
        let last = Reading { wall_ns: 0, cpu_ns: 0, delay_ns: 0 };
        let mut witness = Self { sched, last, truth: Truth::default() };
        witness.last = witness.read()?;
        Ok(witness)
    }

    fn read(&mut self) -> io::Result<Reading> {
        let delay_ns = self.sched.read()?.run_delay_ns;
        Ok(Reading { wall_ns: monotonic_ns(), cpu_ns: thread_cpu_ns(), delay_ns })
    }

    /// Ends a phase: time neither on a processor nor waiting for one was blocked in `state`.
    fn phase(&mut self, state: State) -> io::Result<()> {
        let now = self.read()?;
        let wall = now.wall_ns - self.last.wall_ns;
        let cpu = (now.cpu_ns - self.last.cpu_ns).min(wall);
        let delay = (now.delay_ns - self.last.delay_ns).min(wall - cpu);
        self.truth.elapsed_ns += wall;
        self.truth.on_cpu_ns += cpu;
        self.truth.run_queue_ns += delay;
        *self.truth.blocked_ns.entry(state).or_default() += wall - cpu - delay;
        self.last = now;
        Ok(())
    }
}

/// A worker's request to its partner, which answers after a delay.
enum Ask {
    Answer,
    Write,
}

struct Partner {
    ask: SyncSender<Ask>,
    answer: Receiver<()>,
    pipe: io::PipeReader,
}

impl Partner {
    /// Starts a partner, which exits when its channel is closed.
    fn start<'scope>(scope: &'scope Scope<'scope, '_>) -> io::Result<Self> {
        let (ask, asked) = sync_channel(1);
        let (give, answer) = sync_channel(1);
        let (pipe, mut to) = io::pipe()?;
        spawn(scope, move || {
            for ask in asked {
                std::thread::sleep(WAIT);
                let went = match ask {
                    Ask::Answer => give.send(()).is_ok(),
                    Ask::Write => to.write_all(&[1]).is_ok(),
                };
                if !went {
                    return;
                }
            }
        })?;
        Ok(Self { ask, answer, pipe })
    }
}

/// Starts a thread. Unlike [`Scope::spawn`], this returns an error if the system refuses.
fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    fault::call("start-thread", || Builder::new().spawn_scoped(scope, run).map(drop))
}

/// One run: the workers according to the level, and according to themselves.
struct One {
    truth: Truth,
    level_pct: BTreeMap<State, Option<f64>>,
    tiling_pct: f64,
    lost: u64,
    switch_ns: Option<f64>,
}

/// What the threads of a run share.
struct Shared {
    session: Session,
    over: AtomicBool,
    /// Sum of the workers' times, and the error of a worker.
    sum: Mutex<(Truth, Option<io::Error>)>,
}

/// A worker's side of the start of a run.
struct Start {
    ready: SyncSender<()>,
    /// Receives one message when the run begins; closed if it does not.
    begins: Receiver<()>,
}

fn mixed(level: Level, run_ms: u64, files: &Files) -> Result<One, Failed> {
    let session =
        Session::start(Some(level), TraceOptions { spans_max: 1 << 16, ..TraceOptions::default() });
    let session = session.map_err(Failed::Refused)?;
    let switch_ns = match level {
        Level::Account => None,
        Level::Switch => session.costs().switch_ns,
        Level::Kernel => {
            session.costs().switch_ns.zip(session.costs().kernel_ns).map(|(a, b)| a + b)
        }
    };
    let shared =
        Shared { session, over: AtomicBool::new(false), sum: Mutex::new((Truth::default(), None)) };
    std::thread::scope(|scope| {
        let ran = run_threads(scope, &shared, files, run_ms);
        shared.over.store(true, Ordering::Relaxed);
        ran
    })
    .map_err(Failed::Thread)?;
    let Shared { session, sum, .. } = shared;
    let raw = session.stop();
    let (truth, error) = sum.into_inner().unwrap_or_default();
    if let Some(error) = error {
        return Err(Failed::Worker(error));
    }
    let lost = raw.evidence.sources.iter().map(|source| source.lost).sum();
    let trace = ioloom_trace::classify(raw);
    let (level_pct, tiling_pct) = shares(&trace);
    Ok(One { truth, level_pct, tiling_pct, lost, switch_ns })
}

/// Starts the threads and lets them run for `run_ms`. If one cannot be started, the others end: no
/// worker begins before all threads exist.
fn run_threads<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    files: &'scope Files,
    run_ms: u64,
) -> io::Result<()> {
    let (mut workers_ready, mut begin) = (Vec::new(), Vec::new());
    for file in &files.files {
        let partner = Partner::start(scope)?;
        // One channel per worker: it is closed if this worker exits.
        let (ready, is_ready) = sync_channel(1);
        let (to, begins) = sync_channel(1);
        workers_ready.push(is_ready);
        begin.push(to);
        let start = Start { ready, begins };
        spawn(scope, move || {
            let done = worker(&shared.session, partner, file, &start, &shared.over);
            let mut sum = shared.sum.lock().unwrap_or_else(PoisonError::into_inner);
            match done {
                Ok(truth) => sum.0.add(&truth),
                Err(e) => sum.1 = Some(e),
            }
        })?;
    }
    for is_ready in &workers_ready {
        // An error means that the worker has exited; it reports its own error.
        let _ = is_ready.recv();
    }
    for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
        spawn(scope, move || {
            while !shared.over.load(Ordering::Relaxed) {
                black_box(spin(1000));
            }
        })?;
    }
    shared.session.begin();
    for to in &begin {
        let _ = to.send(());
    }
    std::thread::sleep(Duration::from_millis(run_ms));
    Ok(())
}

/// Returns the shares of the workers' time by state, and their sum.
fn shares(trace: &Trace) -> (BTreeMap<State, Option<f64>>, f64) {
    let workers = || trace.threads.iter().filter(|thread| thread.role == "worker");
    let elapsed: u64 = workers().map(|thread| thread.end_ns - thread.start_ns).sum();
    let pct = |ns: u64| 100.0 * ns as f64 / elapsed.max(1) as f64;
    let mut all = BTreeMap::new();
    for state in State::ALL {
        let times = workers().map(|thread| thread.states.get(&state).and_then(|time| time.ns));
        all.insert(state, times.sum::<Option<u64>>().map(pct));
    }
    let sum = all.values().flatten().sum();
    (all, sum)
}

fn worker(
    session: &Session,
    mut partner: Partner,
    file: &File,
    start: &Start,
    over: &AtomicBool,
) -> io::Result<Truth> {
    let mut recorder = session.register("worker", "worker");
    let evicted = cache::evict_file(file);
    let mut buffer = vec![0; READ_BYTES];
    let cancelled = || io::Error::other("the run was cancelled");
    start.ready.send(()).map_err(|_| cancelled())?;
    start.begins.recv().map_err(|_| cancelled())?;
    evicted?;
    let page = ioloom_sys::proc::page_bytes() as usize;
    let half = FILE_BYTES / 2;
    let gone = |_| io::Error::other("the partner has exited");
    recorder.begin();
    let mut witness = Witness::new()?;
    while !over.load(Ordering::Relaxed) {
        recorder.skip();
        compute(COMPUTE_NS);
        recorder.lap(SpanKind::Compute, NO_FILE);
        witness.phase(State::Unknown)?;
        recorder.skip();
        for i in 0..READS {
            file::read_at(file, &mut buffer, half + i * half / READS)?;
            recorder.lap(SpanKind::Read, 0);
        }
        witness.phase(State::Io)?;
        recorder.skip();
        let map = Map::new(file, half as usize, MapAdvice::None)?;
        recorder.lap(SpanKind::Map, 0);
        for i in 0..TOUCHES {
            black_box(map.bytes()[i * (half as usize / TOUCHES) / page * page]);
            recorder.lap(SpanKind::Fault, 0);
        }
        witness.phase(State::Paging)?;
        drop(map);
        cache::evict_file(file)?;
        witness.phase(State::Unknown)?;
        partner.ask.send(Ask::Answer).map_err(gone)?;
        recorder.skip();
        partner.answer.recv().map_err(|_| gone(std::sync::mpsc::SendError(Ask::Answer)))?;
        recorder.lap(SpanKind::Sync, NO_FILE);
        witness.phase(State::Sync)?;
        recorder.skip();
        std::thread::sleep(SLEEP);
        recorder.lap(SpanKind::Sleep, NO_FILE);
        witness.phase(State::Sleep)?;
        partner.ask.send(Ask::Write).map_err(gone)?;
        recorder.skip();
        partner.pipe.read_exact(&mut [0])?;
        recorder.lap(SpanKind::Event, NO_FILE);
        witness.phase(State::Event)?;
    }
    recorder.finish();
    Ok(witness.truth)
}

/// Computes for about `ns`.
fn compute(ns: u64) {
    let until = thread_cpu_ns() + ns;
    while thread_cpu_ns() < until {
        black_box(spin(20_000));
    }
}

/// Results for one level so far.
struct Found {
    level: Level,
    refused: Option<String>,
    runs: Vec<One>,
    costs: Vec<f64>,
}

impl Found {
    fn new(level: Level) -> Self {
        Self { level, refused: None, runs: Vec::new(), costs: Vec::new() }
    }

    fn report(self) -> LevelReport {
        let tiling = || self.runs.iter().map(|run| run.tiling_pct);
        LevelReport {
            level: self.level.number(),
            runs: self.runs.len() as u32,
            states: compared(&self.runs),
            tiling_pct: (
                tiling().fold(f64::INFINITY, f64::min).min(100.0),
                tiling().fold(100.0, f64::max),
            ),
            lost: self.runs.iter().map(|run| run.lost).sum(),
            switch_ns: median(self.runs.iter().filter_map(|run| run.switch_ns).collect()),
            task_overhead_pct: median(self.costs.clone()),
            task_pairs: self.costs.len() as u32,
            refused: self.refused,
        }
    }
}

fn compared(runs: &[One]) -> Vec<Compared> {
    let states = State::ALL.into_iter().filter(|state| *state != State::Preempted);
    let of = |run: &One, state: State| {
        let one = run.level_pct.get(&state).copied().flatten();
        if state != State::Ready {
            return one;
        }
        let other = run.level_pct.get(&State::Preempted).copied().flatten();
        one.zip(other).map(|(a, b)| a + b).or(one).or(other)
    };
    let rows = states.map(|state| {
        let truth: Vec<f64> = runs.iter().map(|run| run.truth.pct(state)).collect();
        let level: Vec<f64> = runs.iter().filter_map(|run| of(run, state)).collect();
        let pairs =
            runs.iter().filter_map(|run| Some((of(run, state)? - run.truth.pct(state)).abs()));
        let differences: Vec<f64> = pairs.collect();
        let name = if state == State::Ready { "ready+preempted" } else { state.name() };
        Compared {
            state: name.to_owned(),
            truth_pct: median(truth).unwrap_or(0.0),
            level_pct: median(level),
            difference_pp_max: differences.iter().copied().reduce(f64::max),
            difference_pp: median(differences),
        }
    });
    rows.collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => values.get(middle).copied(),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_is_complete_at_every_level_and_refusals_have_reasons() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let levels = vec![Level::Account, Level::Switch, Level::Kernel];
        let plan =
            SelftestOptions { levels, runs: 1, run_ms: 60, tasks: 50, dir: dir.path().to_owned() };
        let reports = selftest(&plan, &|_| {}).unwrap();
        assert_eq!(reports.len(), 3);
        assert!(reports[0].refused.is_none(), "level 0 must always work");
        for report in reports {
            if let Some(why) = &report.refused {
                assert!(why.contains("does not work here"), "{why}");
                continue;
            }
            let (low, high) = report.tiling_pct;
            assert!(low > 99.999 && high < 100.001, "{report:?}");
            let truth: f64 = report.states.iter().map(|state| state.truth_pct).sum();
            assert!((truth - 100.0).abs() < 0.001, "{report:?}");
            assert_eq!(report.task_pairs, 1);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "all files must be removed");
    }

    #[test]
    fn an_interrupted_test_leaves_no_files() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = Files::make(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "while the test runs");
        assert_eq!(files.files.len(), WORKERS);
        for file in &files.files {
            assert_eq!(file.metadata().unwrap().len(), FILE_BYTES);
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0, 10.0]), Some(2.5));
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![]), None);
    }
}
