//! Runs a plan: sets up what its threads share, starts them, and collects their results.

use super::gate::Gate;
use super::threads::{Crew, Finished, Handles, Left, Threads};
use super::traced::Traced;
use super::work::{Executed, RunOptions, Work};
use super::{few_files, ready, roles, traced};
use crate::error::{Error, START_THREAD};
use crate::shared::Shared;
use ioloom_model::layout::Role;
use ioloom_observe::{Detail, GaugeSampler, Usage, UsageDelta};
use ioloom_sys::clock::monotonic_ns;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Runs all threads of a plan to their end.
pub(super) fn run<W: Work>(
    shared: &Shared<'_>,
    options: &RunOptions<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    let gate = Gate::default();
    let roles: Vec<Role> = shared.layout.roles().collect();
    let queues = roles::Queues::new(shared);
    let workers = shared.layout.max_of(Role::Worker) as usize;
    let ready = ready::Ready::new(workers, shared.gauges.clone());
    let (watcher, left) = (OnceLock::new(), Left::default());
    let of_caller = few_files::Caller::default();
    // Blocking threads seldom start, so that a trace need not reserve space for all of them.
    let recorded = roles.len() - shared.layout.max_of(Role::Blocking) as usize * 3 / 4;
    let traced = options.tracing.map(|wanted| Traced::start(wanted, recorded)).transpose()?;
    let threads = Threads {
        shared,
        roles: &roles,
        options,
        work,
        gate: &gate,
        queues: &queues,
        ready: &ready,
        watcher: &watcher,
        left: &left,
        traced: traced.as_ref(),
        delay: None,
    };
    let Finished { locals, reports, start, ended, usage, sampled, tuned } =
        run_threads(threads, &of_caller);
    shared.arena.close();
    let elapsed_ns = ended.saturating_sub(start);
    let panic = shared.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    // If all workers rested when the iterator panicked, none of them has looked again.
    if let Some(payload) = panic.or_else(|| shared.source.panic()) {
        std::panic::resume_unwind(payload);
    }
    let fatal = shared.fatal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    let trace = traced.map(|traced| {
        let ran = traced::Ran {
            elapsed_ns,
            reports: &reports,
            usage: &usage,
            sampled: &sampled,
            list_end_ns: shared.source.ended_ns().map(|at| at.saturating_sub(start)),
            function_waits: options.function_waits,
            failed: fatal.as_ref().map(ToString::to_string).or_else(|| work.failure()),
        };
        Box::new(traced.end(shared, &ran))
    });
    if let Some(error) = fatal {
        if let (Some(slot), Some(trace)) = (options.trace_of_failure, trace) {
            *slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(trace);
        }
        return Err(error);
    }
    let (cancelled, stopped) = shared.ended_early();
    Ok(Executed {
        locals,
        elapsed_ns,
        files: shared.gauges.files(),
        bytes: shared.gauges.bytes(),
        reports,
        usage,
        in_flight: sampled.into_iter().map(|(at, (now, _))| (at, now.in_flight)).collect(),
        budget_peak_bytes: shared.budget.peak(),
        cancelled,
        stopped,
        trace,
        function_waits: options.function_waits,
        plan: shared.plan,
        tuned,
    })
}

/// Runs the threads from the start gate to the end of the last one.
fn run_threads<'e, W: Work>(
    threads: Threads<'e, W>,
    caller: &'e few_files::Caller,
) -> Finished<W::Local> {
    let (shared, options) = (threads.shared, threads.options);
    let mut all = Finished {
        locals: Vec::new(),
        reports: Vec::new(),
        start: 0,
        ended: 0,
        usage: UsageDelta::default(),
        sampled: Vec::new(),
        tuned: None,
    };
    std::thread::scope(|scope| {
        let mut handles = Handles::new();
        if few_files::applies(threads) {
            few_files::run(threads, caller, scope, &mut all);
            return;
        }
        let watcher = threads.watcher.get_or_init(std::thread::current);
        let _watched = options.cancel.wakes(watcher.clone());
        let mut crew = Crew::new(threads);
        let mut start = |numbers: Range<usize>| threads.start(scope, numbers, &mut handles);
        // A single worker has no other to wait for. Its start is then part of the run, and two waits of
        // one thread for another, which take longer than reading two small files, are not.
        let waits = !shared.on_demand;
        if waits {
            crew.begin(&mut start);
            // A thread that could not be started never arrives.
            threads.gate.wait_until_ready(shared.live.load(Ordering::Acquire));
        }
        let sampled = options.sample || threads.traced.is_some();
        let mut before = match options.detail {
            Detail::Totals if !sampled => Usage::begin(),
            _ => Usage::now(options.block_device),
        };
        all.start = monotonic_ns();
        let sampler = sampled.then(|| traced::sample(shared, all.start)).flatten();
        if let Some(traced) = threads.traced {
            traced.begin(all.start);
        }
        threads.gate.open(all.start);
        if !waits {
            crew.begin(&mut start);
        }
        if let Err(source) = shared.source.start() {
            shared.fail(Error::System { operation: START_THREAD, source });
        }
        threads.watch(&mut crew, &mut before, &mut start);
        all.tuned = crew.tuned();
        all.join(handles);
        assert_eq!(shared.live.load(Ordering::Acquire), 0, "no thread outlives the measurements");
        all.used(&before);
        all.sampled = sampler.map(GaugeSampler::stop).unwrap_or_default();
    });
    threads.left.add_to(&mut all);
    all
}
