//! The plan and the work that the flags select, checked before any file is opened.

use super::args::EachArgs;
use super::exec::Exec;
use crate::exit::Failure;
use crate::stderr;
use ioloom::Plan;
use ioloom_model::units::format_counted;
use ioloom_model::{Compute, Method, Schedule, Tuning, table};

/// Bytes of one chunk when files are streamed.
pub(super) const CHUNK_BYTES: u64 = 256 << 10;
/// Chunks are multiples of it.
const BLOCK_BYTES: u64 = 4096;

/// Descriptors that a walk, a list and a trace may need while commands run.
const SPARE_DESCRIPTORS: u64 = 256;

/// Returns how many commands a schedule runs at once: each thread that computes runs one, and in a window
/// each file that was begun has one.
pub(super) fn commands_of(schedule: &Schedule) -> u32 {
    match schedule {
        Schedule::Threads { n } => *n,
        Schedule::Window { window, permits } => permits.unwrap_or(1).min(*window),
        Schedule::Roles { hybrids, computers, .. } => hybrids + computers,
    }
}

/// Returns how many commands may run at once, if a flag or the limit on open files says so. Fewer than
/// wanted are reported, or refused if a schedule was given.
fn commands_at_once(exec: &Exec, args: &EachArgs) -> Result<Option<u32>, Failure> {
    let is_planned = args.has_schedule();
    let wanted = match is_planned {
        true => commands_of(&args.plan().schedule),
        false => args.jobs.unwrap_or_else(ioloom::usable_cores),
    };
    // Raised before the plan is made, as commands need descriptors whatever it is, and only if need be:
    // commands start faster where their limit is not another one.
    let limit = || ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
    if is_planned || limit() < exec.descriptors(wanted) + SPARE_DESCRIPTORS {
        let _ = ioloom_sys::proc::raise_open_files_limit();
    }
    let limit = limit();
    let most = exec.most_at_once(limit);
    if most >= u64::from(wanted) {
        return Ok(args.jobs);
    }
    let advice = format!("raise it with 'ulimit -n {}'", exec.descriptors(wanted));
    if most == 0 || is_planned {
        let commands = format_counted(u64::from(wanted), "command", "commands");
        return Err(Failure::refused(format!(
            "the limit of {limit} open files is too low for {commands} at once; {advice}"
        )));
    }
    if !args.quiet {
        let commands = format_counted(most, "command", "commands");
        stderr::message(&format!(
            "running {commands} at once instead of {wanted}: the limit on open files is {limit}; {advice}"
        ));
    }
    Ok(Some(most as u32))
}

/// Makes a plan stream, unless it cannot or has a chunk already. Direct reads need whole blocks.
pub(super) fn stream(plan: &mut Plan) {
    let may_chunk =
        plan.schedule.name() != "roles" && !plan.method.is_mmap() && plan.method != Method::Null;
    if may_chunk && plan.chunk_bytes.is_none() {
        let bytes = CHUNK_BYTES.min(plan.memory_bytes / 64) / BLOCK_BYTES * BLOCK_BYTES;
        plan.chunk_bytes = Some(bytes.max(BLOCK_BYTES));
    }
}

/// Makes a plan that no flag pins, or `auto`, fit its memory budget and the limit on open files.
pub(super) fn fit(plan: &mut Plan, args: &EachArgs) {
    if args.may_be_fitted() {
        *plan = ioloom::fitted_plan(*plan);
    }
}

/// Makes a plan for commands that read files themselves.
fn by_path(plan: &mut Plan, args: &EachArgs) -> Result<(), Failure> {
    if args.method_given() && plan.method != Method::Null {
        return Err(Failure::usage(
            "a command with {} reads the file itself: leave --method out, or leave {} out to get the \
             contents on standard input",
        ));
    }
    if args.polite {
        return Err(Failure::usage(
            "a command with {} reads the file itself, so --polite has no effect: leave {} out to get \
             the contents on standard input",
        ));
    }
    if args.plan.is_none() {
        plan.method = Method::Null;
        plan.blocking = None;
        plan.tuning = Tuning::Fixed;
    }
    Ok(())
}

/// Makes a plan for commands that get contents. Keeps no more files in flight than commands may run: each
/// file that was begun has a running command.
fn by_contents(plan: &mut Plan, args: &EachArgs) -> Result<(), Failure> {
    if plan.method.is_mmap() {
        return Err(Failure::usage(format!(
            "{} runs in a child process, whose commands could outlive the run: choose a --method that \
             reads",
            plan.method
        )));
    }
    if plan.method == Method::Null {
        return Err(Failure::usage(
            "--exec without {} needs a method that reads; null reads nothing",
        ));
    }
    let Schedule::Window { window, permits } = &mut plan.schedule else { return Ok(()) };
    let most = permits.unwrap_or(1);
    if *window > most && args.has_schedule() {
        return Err(Failure::usage(format!(
            "a command without {{}} runs for each of the {window} files in flight: use l={most},p={most}, \
             or -j without a plan"
        )));
    }
    if args.plan.is_some_and(|plan| plan.blocking.is_some()) {
        return Err(Failure::usage(
            "a command without {} runs for each file that was begun, so none can be read by a blocking \
             reader: leave blocking= out",
        ));
    }
    *window = most.min(*window);
    plan.blocking = None;
    Ok(())
}

/// A checked combination of plan and work.
pub(crate) struct Job {
    pub(crate) plan: Plan,
    pub(crate) compute: Compute,
    pub(crate) exec: Option<Exec>,
}

impl Job {
    pub(super) fn read(args: &EachArgs) -> Result<Self, Failure> {
        let exec = args.exec.as_deref().map(|text| Exec::read(text, args.json)).transpose()?;
        if let Some(warning) = exec.as_ref().and_then(Exec::names_in_code) {
            stderr::message(warning);
        }
        let compute = args.work();
        if args.per_file && compute.hash().is_none() {
            return Err(Failure::usage(format!(
                "--per-file prints hashes, and {} has none: use --compute xxh3, sha256 or \
                 another hash",
                compute.name()
            )));
        }
        args.check_separators()?;
        args.check_chunk()?;
        let mut plan = match &exec {
            Some(exec) => args.plan_of(commands_at_once(exec, args)?),
            None => args.plan_with_all_descriptors(),
        };
        if args.per_file && plan.method == Method::Null {
            return Err(Failure::usage("--per-file needs a method that reads; null reads nothing"));
        }
        match &exec {
            Some(exec) if exec.takes_path => by_path(&mut plan, args)?,
            Some(_) => by_contents(&mut plan, args)?,
            None => {}
        }
        if !matches!(compute, Compute::Touch) {
            stream(&mut plan);
        }
        // Commands are counted before.
        if exec.is_none() {
            fit(&mut plan, args);
        }
        table::check(&plan).map_err(Failure::refused)?;
        Ok(Self { plan, compute, exec })
    }

    /// Returns the name of the work.
    pub(crate) fn work_name(&self) -> String {
        if self.exec.is_some() { "exec".to_owned() } else { self.compute.to_string() }
    }
}
