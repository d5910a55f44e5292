//! Runs the engine `ioloom` as a subject: reading many files and computing on them.

use crate::kernel::{Kernel, Outcome as FileOutcome, digest_part};
use crate::sets::{FileSets, walk_list};
use ioloom::{FileError, Measure};
use ioloom_failure::{quoted, reason};
use ioloom_fileset as fileset;
use ioloom_lab::child::ChildAnswer;
use ioloom_lab::subject::{Sets, Subject};
use ioloom_model::record::{Observe, RunOrder};
use ioloom_model::{
    AnyPlan, CallKind, Compute, Doubt, FileSetRealised, Measured, Outcome, Plan, State, table,
};
use ioloom_stats::stalls;
use ioloom_sys::{file, map};
use ioloom_walk::PathList;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of spans in a trace; keeps its file below about 10 MiB.
#[cfg(feature = "lab")]
const TRACE_SPANS_MAX: usize = 1 << 17;
/// Maximum number of error messages in a record.
const ERROR_SAMPLES_MAX: usize = 10;

/// The subject `files`, a client of the public interface of the library.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files;

impl Subject for Files {
    fn name(&self) -> &str {
        "files"
    }

    fn sets(&self) -> &dyn Sets {
        &FileSets
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, dir: &Path) -> Result<(), String> {
        let plan = plan.files().ok_or_else(|| format!("{plan}: not a plan over files"))?;
        table::check(plan)?;
        if plan.method.is_direct() {
            return probe_direct(plan, dir);
        }
        if plan.method.needs_ring() {
            ioloom_sys::ring::Ring::new(2)
                .map_err(|e| format!("{plan}: cannot create an io_uring: {}", reason(&e)))?;
        }
        Ok(())
    }

    fn observes_itself(&self) -> bool {
        true
    }

    fn run(&self, order: &RunOrder) -> ChildAnswer {
        run_order(order)
    }

    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if order.plan.is_null() {
            return doubts;
        }
        let files = order.files_max.map_or(set.files, |max| max.min(set.files));
        let complete = files == set.files;
        if measured.files + measured.errors != files
            || (complete && measured.errors == 0 && measured.bytes != set.bytes_total)
        {
            doubts.push(Doubt::WrongBytes);
        }
        doubts
    }
}

fn probe_direct(plan: &Plan, dir: &Path) -> Result<(), String> {
    let first = first_file(dir)?;
    let path = quoted(&first);
    match file::direct_alignment(&first) {
        Ok(Some(_)) => {}
        Ok(None) => {
            return Err(format!("{plan}: the file system of {path} does not offer direct I/O"));
        }
        Err(e) => {
            return Err(format!(
                "{plan}: cannot query the direct I/O alignment of {path}: {}",
                reason(&e)
            ));
        }
    }
    file::open(&first, file::OpenHow { direct: true, nofollow: true })
        .map(drop)
        .map_err(|e| format!("{plan}: cannot open {path} for direct I/O: {}", reason(&e)))
}

fn first_file(dir: &Path) -> Result<PathBuf, String> {
    let mut found = None;
    let mut visit = |entry: ioloom_walk::Entry<'_>| {
        found = Some(dir.join(entry.as_path()));
        ioloom_walk::Control::Stop
    };
    ioloom_walk::walk(dir, &ioloom_walk::WalkOptions::default(), &mut visit)
        .map_err(|e| e.to_string())?;
    found.ok_or_else(|| format!("there is no regular file below {}", quoted(dir)))
}

/// Returns the paths of an order in bytewise order, computed from the set or by a walk. A walk
/// warms directories, so generated sets are not walked.
fn paths_of(order: &RunOrder) -> Result<PathList, String> {
    let Some(spec) = &order.set else { return walk_list(&order.dir) };
    let mut list = PathList::new();
    let prefix = if order.dir == Path::new(".") { None } else { Some(order.dir.as_os_str()) };
    for index in 0..order.files_max.map_or(spec.count, |max| max.min(spec.count)) {
        let relative = fileset::relative_path(spec, index);
        match prefix {
            None => list.push_found(&[relative.as_bytes()], 0),
            Some(prefix) => list.push_found(&[prefix.as_bytes(), b"/", relative.as_bytes()], 0),
        }
    }
    Ok(list)
}

/// Executes an order in this process.
fn run_order(order: &RunOrder) -> ChildAnswer {
    let outcome = match paths_of(order) {
        Ok(list) => run_list(order, list),
        Err(reason) => Outcome::Failed { reason },
    };
    ChildAnswer { outcome, device_bytes: None }
}

fn run_list(order: &RunOrder, list: PathList) -> Outcome {
    let Some(plan) = order.plan.files() else {
        return Outcome::Failed { reason: format!("{}: not a plan over files", order.plan) };
    };
    let _ = ioloom_sys::proc::raise_open_files_limit();
    if plan.method.is_mmap()
        && let Err(e) = map::on_bus_error()
    {
        return Outcome::Failed { reason: format!("cannot handle SIGBUS: {e}") };
    }
    let plan = plan.complete(ioloom::usable_cores());
    let medium = fileset::medium(&order.dir).ok();
    let threads = u64::from(plan.threads().max(1));
    let mut measure = Measure::default().in_flight();
    // A trace already contains the spans, so a traced run does not record them.
    if order.observe.trace.is_none() {
        measure = measure.calls((order.spans_max / threads) as usize);
    }
    if let Compute::Sleep(_) = order.compute {
        measure = measure.function_waits(State::Sleep);
    }
    if let Some(device) = medium.and_then(|medium| medium.block_device) {
        measure = measure.block_device(device);
    }
    let files = ioloom::Files::from(list).pin(plan).measure(measure);
    let files = match order.files_max {
        Some(max) => files.take(max),
        None => files,
    };
    let files = match observed(files, &order.observe, &plan) {
        Ok(files) => files,
        Err(reason) => return Outcome::Refused { reason },
    };
    let kernel = Kernel::new(order.compute.clone(), order.set.clone(), order.seed);
    let run = files
        .pieces()
        .fold_file(
            |_| (kernel.begin(), 0),
            |(state, index), c| {
                *index = c.index();
                kernel.piece(state, c.index(), c.offset(), c.is_last(), c.bytes());
            },
            |(state, index), _| (index, kernel.finish(state, index)),
        )
        .fold_results(Counted::default, Counted::take, Counted::append);
    match run {
        Ok(run) => {
            let mut measured = run.measured;
            fill(&mut measured, run.value);
            Outcome::Done { measured: Box::new(measured) }
        }
        Err(ioloom::Error::Refused(reason)) => Outcome::Refused { reason },
        Err(error) => Outcome::Failed { reason: error.to_string() },
    }
}

/// Requests what an order observes.
#[cfg(feature = "lab")]
fn observed<'a>(
    files: ioloom::Files<'a>,
    observe: &Observe,
    plan: &Plan,
) -> Result<ioloom::Files<'a>, String> {
    let tracing = (observe.events || observe.trace.is_some()).then_some(ioloom::engine::Tracing {
        level: observe.level,
        files: true,
        spans_max: TRACE_SPANS_MAX,
    });
    let files = match &observe.trace {
        Some(path) => files.trace(path),
        None => files.untraced(),
    };
    Ok(files.lab(ioloom::LabOptions { mmap: plan.method.is_mmap(), tracing }))
}

/// Requests what an order observes, as far as the library offers it to others.
#[cfg(not(feature = "lab"))]
fn observed<'a>(
    files: ioloom::Files<'a>,
    observe: &Observe,
    plan: &Plan,
) -> Result<ioloom::Files<'a>, String> {
    if plan.method.is_mmap() || observe.events || observe.trace.is_some() {
        return Err(format!(
            "{plan}: mappings, and traces of studies, need the cargo feature 'lab'"
        ));
    }
    Ok(files.untraced())
}

fn fill(measured: &mut Measured, counted: Counted) {
    measured.error_samples = counted.error_samples;
    measured.error_samples.truncate(ERROR_SAMPLES_MAX);
    measured.digest = format!("{:016x}", counted.digest);
    stalls_of(measured, counted.touches, counted.touches_lost);
    let waits = [CallKind::HandOver, CallKind::Memory, CallKind::Input];
    let own = |kind: &CallKind| !waits.contains(kind);
    let in_calls: u64 =
        measured.calls.iter().filter(|(kind, _)| own(kind)).map(|(_, c)| c.total_ns).sum();
    if measured.files > 0 {
        measured.extra.insert("task_ns_mean".to_owned(), in_calls as f64 / measured.files as f64);
    }
}

/// Maximum number of touches of all files, in memory.
const TOUCHES_MAX: usize = 1 << 20;
/// Maximum number of touches in a record.
const TOUCHES_RECORDED: usize = 8192;

/// Records slow touches and the numbers derived from all of them. A growth needs the ends of the files.
fn stalls_of(measured: &mut Measured, mut touches: Vec<(f64, f64)>, lost: bool) {
    if touches.is_empty() {
        return;
    }
    let growth = stalls::growth(&touches).filter(|_| !lost);
    let numbers = [("touch_period_bytes", stalls::period(&touches)), ("touch_growth", growth)];
    let known = numbers.into_iter().filter_map(|(name, n)| Some((name.to_owned(), n?)));
    measured.extra.extend(known);
    let last = touches.len() - 1;
    if last >= TOUCHES_RECORDED {
        let evenly = (0..TOUCHES_RECORDED).map(|i| touches[i * last / (TOUCHES_RECORDED - 1)]);
        touches = evenly.collect();
    }
    measured.curves.insert("touch_ns".to_owned(), touches);
}

/// Results of one thread.
#[derive(Default)]
struct Counted {
    digest: u64,
    error_samples: Vec<String>,
    touches: Vec<(f64, f64)>,
    /// Whether there were more touches.
    touches_lost: bool,
}

impl Counted {
    /// Adds the result of a file.
    fn take(&mut self, result: Result<(usize, FileOutcome), FileError>) {
        match result {
            Ok((index, FileOutcome { xxh3, touches, touches_lost, .. })) => {
                self.digest = self.digest.wrapping_add(digest_part(index, xxh3));
                self.touches_lost |= touches_lost;
                self.add_touches(touches);
            }
            Err(error) if self.error_samples.len() < ERROR_SAMPLES_MAX => {
                self.error_samples.push(error.to_string());
            }
            Err(_) => {}
        }
    }

    /// Adds the results of another thread.
    fn append(&mut self, other: Self) {
        self.digest = self.digest.wrapping_add(other.digest);
        self.error_samples.extend(other.error_samples);
        self.touches_lost |= other.touches_lost;
        self.add_touches(other.touches);
    }

    fn add_touches(&mut self, touches: Vec<(f64, f64)>) {
        let room = TOUCHES_MAX - self.touches.len();
        self.touches_lost |= touches.len() > room;
        self.touches.extend(touches.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::FileSetSpec;

    /// The arm called default is the plan used when the user specifies none.
    #[test]
    fn the_default_of_the_study_is_the_default_of_the_library() {
        let memory = ioloom_model::Plan::DEFAULT_MEMORY_BYTES;
        // The default of a shell is too low for this plan.
        let _ = ioloom_sys::proc::raise_open_files_limit();
        let wanted = ioloom::default_plan(memory).to_string();
        let studies = ioloom_lab::spec::all(None).unwrap();
        let pipeline = studies.iter().find(|s| s.name == "pipeline").unwrap();
        let arms = pipeline.experiments.iter().flat_map(|e| &e.arms);
        let defaults: Vec<_> = arms.filter(|a| a.name == "default").collect();
        assert!(!defaults.is_empty());
        for arm in defaults {
            let concrete = ioloom_lab::expand::concrete_arms(arm, ioloom::usable_cores()).unwrap();
            assert_eq!(concrete[0].plan.to_string(), wanted);
        }
    }

    fn set() -> (tempfile::TempDir, RunOrder) {
        let dir = tempfile::tempdir().unwrap();
        let spec = FileSetSpec {
            count: 300,
            size: "mix(0.9*exp(mean=4KiB)+0.1*200KiB)".parse().unwrap(),
            compute: Some("exp(mean=20us)".parse().unwrap()),
            layout: ioloom_model::DirectoryLayout::Nested,
            making: ioloom_model::Creation::default(),
            seed: 5,
        };
        let made = dir.path().join("set");
        FileSets.prepare("t", &spec, &made, 0, &|_, _| true).unwrap();
        let order = RunOrder {
            plan: "read/threads:n=1".parse().unwrap(),
            compute: Compute::Spin(None),
            dir: FileSets.items(&made),
            set: Some(spec),
            files_max: None,
            seed: 5,
            spans_max: 1000,
            observe: ioloom_model::record::Observe::default(),
        };
        (dir, order)
    }

    #[test]
    fn every_plan_gives_the_same_digest_or_is_refused() {
        let (_dir, order) = set();
        let mut digests = std::collections::BTreeSet::new();
        let mut done = 0;
        for method in ioloom_model::Method::ALL {
            for schedule in ["threads:n=3", "window:l=8,p=2", "roles:r=1,h=1,c=2,w=16"] {
                let plan: Plan = format!("{method}/{schedule}").parse().unwrap();
                let order = RunOrder { plan: plan.into(), ..order.clone() };
                match run_order(&order).outcome {
                    Outcome::Done { measured } => {
                        assert_eq!(measured.files, 300, "{plan}");
                        for t in &measured.threads {
                            let sum = t.on_cpu_ns
                                + t.ready_ns.unwrap_or(0)
                                + t.io_ns
                                + t.sync_ns
                                + t.compute_blocked_ns
                                + t.unknown_ns;
                            assert_eq!(sum, t.elapsed_ns, "{plan}");
                        }
                        if method != ioloom_model::Method::Null {
                            digests.insert(measured.digest.clone());
                        }
                        done += 1;
                    }
                    Outcome::Refused { reason } => assert!(reason.len() > 20, "{plan}: {reason}"),
                    other => panic!("{plan}: {other:?}"),
                }
            }
        }
        assert!(done >= 18, "{done}");
        assert_eq!(digests.len(), 1, "{digests:?}");
    }

    #[test]
    fn a_growth_needs_every_touch_and_a_distance_does_not() {
        let file = |i: u32| (f64::from(i) * 4096.0, f64::from(1000 + i));
        let fill = |count: u32, lost| {
            let mut measured = Measured::default();
            stalls_of(&mut measured, (0..count).map(file).collect(), lost);
            measured
        };
        for (lost, names) in
            [(false, &["touch_growth", "touch_period_bytes"][..]), (true, &["touch_period_bytes"])]
        {
            let measured = fill(100_000, lost);
            assert!(measured.extra.keys().eq(names), "{lost}: {:?}", measured.extra);
            assert_eq!(measured.extra.get("touch_period_bytes"), Some(&4096.0));
            let curve = &measured.curves["touch_ns"];
            assert_eq!((curve.len(), curve.last()), (TOUCHES_RECORDED, Some(&file(99_999))));
        }
        assert_eq!(fill(0, false), Measured::default());
        let mut counted = Counted::default();
        counted.add_touches(vec![(0.0, 1.0); TOUCHES_MAX]);
        assert!(!counted.touches_lost);
        counted.add_touches(vec![(0.0, 1.0)]);
        assert!(counted.touches_lost && counted.touches.len() == TOUCHES_MAX);
    }

    #[test]
    fn a_set_that_lost_a_file_is_doubted() {
        let (_dir, order) = set();
        let spec = order.set.clone().unwrap();
        std::fs::remove_file(order.dir.join(fileset::relative_path(&spec, 7))).unwrap();
        let Outcome::Done { measured } = run_order(&order).outcome else { panic!("must run") };
        assert_eq!((measured.files, measured.errors), (299, 1));
        assert!(measured.error_samples[0].contains("No such file"), "{:?}", measured.error_samples);
        let realised = FileSets.survey(&order.dir).unwrap();
        let wrong = Measured { errors: 0, files: 200, ..*measured };
        assert_eq!(Files.verify(&order, &realised, &wrong), [Doubt::WrongBytes]);
    }
}
