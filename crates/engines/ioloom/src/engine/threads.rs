//! The threads of a run: started, released at one moment, watched and joined.
//!
//! All threads of a plan wait at a start gate, so that the run begins when the last of them is
//! ready. The exception is a window of calls that block: it has more threads than permits, and each
//! of the additional threads starts only when the running ones wait (`control::Ramp`). With
//! everything in the page cache that never happens, and the run costs as many threads as it has
//! permits. The calling thread watches, and reports progress.

use super::traced::{Sampled, Traced};
use super::work::{Executed, RunOptions, Work, Worker};
use super::{blocking, looped, roles, traced};
use crate::error::Error;
use crate::fetch;
use crate::shared::Shared;
use ioloom_budget::Permits;
use ioloom_control::Ramp;
use ioloom_model::Method;
use ioloom_model::layout::{Driver, Role};
use ioloom_observe::{GaugeSampler, ThreadReport, Usage, UsageDelta};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::{self, UsageOf};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex};
use std::thread::{Scope, ScopedJoinHandle, Thread};
use std::time::Duration;

/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_millis(100);

/// The result of a thread; `None` after a panic.
type ThreadResult<L> = Option<(ThreadReport, L, u64)>;

/// What every thread of a run needs.
struct Threads<'e, W: Work> {
    shared: &'e Shared<'e>,
    roles: &'e [Role],
    options: &'e RunOptions<'e>,
    work: &'e W,
    gate: &'e Gate,
    queues: &'e roles::Queues<'e, W::State>,
    ready: &'e looped::Ready<'e, W::State>,
    main: &'e Thread,
    traced: Option<&'e Traced>,
}

impl<W: Work> Clone for Threads<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Work> Copy for Threads<'_, W> {}

/// Runs all threads of a plan to their end.
pub(super) fn run<W: Work>(
    shared: &Shared<'_>,
    options: &RunOptions<'_>,
    work: &W,
) -> Result<Executed<W::Local>, Error> {
    let gate = Gate::default();
    let roles: Vec<Role> = shared.layout.roles().collect();
    let queues = roles::Queues::new(shared);
    let ready = looped::Ready::new(roles.len(), shared.gauges.clone());
    let main = std::thread::current();
    let traced = options.tracing.map(|wanted| Traced::start(wanted, roles.len())).transpose()?;
    let threads = Threads {
        shared,
        roles: &roles,
        options,
        work,
        gate: &gate,
        queues: &queues,
        ready: &ready,
        main: &main,
        traced: traced.as_ref(),
    };
    let Finished { locals, reports, start, ended, usage, sampled } = run_threads(threads);
    let elapsed_ns = ended.saturating_sub(start);
    let panic = shared.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    if let Some(payload) = panic {
        std::panic::resume_unwind(payload);
    }
    let fatal = shared.fatal.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    let trace = traced.map(|traced| {
        let ran = traced::Ran {
            elapsed_ns,
            reports: &reports,
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
    Ok(Executed {
        locals,
        elapsed_ns,
        files: shared.gauges.files(),
        bytes: shared.gauges.bytes(),
        reports,
        usage,
        in_flight: sampled.into_iter().map(|(at, (now, _))| (at, now.in_flight)).collect(),
        budget_peak_bytes: shared.budget.peak(),
        cancelled: shared.cancel.is_cancelled(),
        stopped: shared.work_stopped.load(Ordering::Relaxed),
        trace,
        function_waits: options.function_waits,
        plan: shared.plan,
    })
}

/// The results of all threads; times are on the monotonic clock.
struct Finished<L> {
    locals: Vec<L>,
    reports: Vec<ThreadReport>,
    start: u64,
    ended: u64,
    usage: UsageDelta,
    sampled: Sampled,
}

/// Runs the threads from the start gate to the end of the last one.
fn run_threads<W: Work>(threads: Threads<'_, W>) -> Finished<W::Local> {
    let (shared, options) = (threads.shared, threads.options);
    let mut all = Finished {
        locals: Vec::new(),
        reports: Vec::new(),
        start: 0,
        ended: 0,
        usage: UsageDelta::default(),
        sampled: Vec::new(),
    };
    let mut ramp = threads.ramp();
    std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads.roles.len());
        threads.start_more(scope, ramp.running(), &mut handles);
        threads.gate.wait_until_ready(handles.len());
        let before = Usage::now(options.block_device);
        all.start = monotonic_ns();
        let sampled = options.sample || threads.traced.is_some();
        let sampler = sampled.then(|| traced::sample(shared, all.start)).flatten();
        if let Some(traced) = threads.traced {
            traced.begin(all.start);
        }
        let waits = ReadWaits::new(shared);
        threads.gate.open(all.start);
        threads.watch(&mut ramp, waits, |more| threads.start_more(scope, more, &mut handles));
        for handle in handles {
            let out = handle.join().expect("panics are caught");
            let Some((report, local, end)) = out else { continue };
            all.ended = all.ended.max(end);
            all.reports.push(report);
            all.locals.push(local);
        }
        assert_eq!(shared.live.load(Ordering::Acquire), 0, "no thread outlives the measurements");
        all.usage = Usage::now(options.block_device).since(&before);
        all.sampled = sampler.map(GaugeSampler::stop).unwrap_or_default();
    });
    all
}

/// Counts how often the workers waited for reads.
///
/// The system counts all waits of a process. The waits of the watching thread and those for permits
/// are known and subtracted. New threads also wait for the lock of the shared address space, more
/// so the more there are. So for `nowait`, whose reads report whether they found their data in
/// memory, the count is capped at the number of misses and of blocks read from a device.
struct ReadWaits<'e> {
    shared: &'e Shared<'e>,
    before: proc::Usage,
    /// Waits of the watching thread.
    watcher: u64,
}

/// Smallest read from a device, for one name or inode.
const BLOCK_BYTES: u64 = 4096;

impl<'e> ReadWaits<'e> {
    fn new(shared: &'e Shared<'e>) -> Self {
        Self { shared, before: proc::usage(UsageOf::Process).unwrap_or_default(), watcher: 0 }
    }

    fn for_reads(&self) -> u64 {
        let Ok(now) = proc::usage(UsageOf::Process) else { return 0 };
        let for_permits = self.shared.permits.as_ref().map_or(0, Permits::sleeps);
        let all = now.voluntary_switches.saturating_sub(self.before.voluntary_switches);
        let for_reads = all.saturating_sub(self.watcher + for_permits);
        if self.shared.plan.method != Method::Nowait {
            return for_reads;
        }
        let blocks = now.read_bytes.saturating_sub(self.before.read_bytes) / BLOCK_BYTES;
        let asked = self.shared.gauges.misses() + self.shared.unanswered.load(Ordering::Relaxed);
        for_reads.min(asked + blocks)
    }
}

impl<'e, W: Work> Threads<'e, W> {
    /// Returns the controller of the number of threads.
    fn ramp(self) -> Ramp {
        let layout = &self.shared.layout;
        let files_per_wait = match self.shared.plan.method {
            // A worker waits for the oldest of its window, and then for nothing for a long time.
            Method::Nowait => 256,
            // A thread that waits less leaves its processor idle for less time than a thread costs.
            _ => 8,
        };
        Ramp::new(layout.threads_first(), layout.threads_max(), files_per_wait)
    }

    /// Starts the next `more` threads.
    fn start_more<'scope>(
        self,
        scope: &'scope Scope<'scope, 'e>,
        more: u32,
        handles: &mut Vec<ScopedJoinHandle<'scope, ThreadResult<W::Local>>>,
    ) {
        let next = handles.len();
        for (number, role) in self.roles.iter().copied().enumerate().skip(next).take(more as usize)
        {
            let name = format!("ioloom-{}-{number}", role.name());
            let shared = self.shared;
            shared.live.fetch_add(1, Ordering::AcqRel);
            self.ready.joins();
            let builder = std::thread::Builder::new().name(name.clone());
            let spawned = builder.spawn_scoped(scope, move || {
                // Catches panics of the caller's other code: accumulators, path iterators.
                let out = catch_unwind(AssertUnwindSafe(|| self.thread(number, role, name)));
                let out = out.map_err(|payload| shared.panicked(payload)).ok();
                if shared.live.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.main.unpark();
                }
                out
            });
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    shared.live.fetch_sub(1, Ordering::AcqRel);
                    shared.fail(Error::System { operation: "start a thread", source });
                    return;
                }
            }
        }
    }

    /// Runs one thread, from its setup to its report.
    fn thread(self, number: usize, role: Role, name: String) -> (ThreadReport, W::Local, u64) {
        let shared = self.shared;
        let mut window = shared.layout.window_of(number, shared.at_once);
        if let (Method::Nowait, Driver::Windowed, Some(files)) =
            (shared.plan.method, shared.layout.driver, shared.source.len())
        {
            // With a short list no worker starts more than its part, or later ones would have none.
            let part = u32::try_from(files.div_ceil(self.roles.len())).unwrap_or(u32::MAX);
            window = window.min(part.max(1));
        }
        let fetch = match role {
            Role::Computer => None,
            _ => match fetch::make::<W::State>(shared, window) {
                Ok(fetch) => Some(fetch),
                Err(error) => {
                    shared.fail(error);
                    None
                }
            },
        };
        let recorder = self.traced.map(|traced| (traced.register(&name, role.name()), traced));
        let start_ns = self.gate.arrive();
        let mut worker = Worker::new(shared, number, self.work, start_ns, self.options.detail);
        if let Some((recorder, traced)) = recorder {
            worker.trace(recorder, traced);
        }
        match (shared.layout.driver, fetch) {
            (Driver::Queued, fetch) => roles::run(&mut worker, role, fetch, self.queues),
            (_, None) => {}
            (Driver::Windowed, Some(fetch)) => {
                looped::run(&mut worker, fetch, window, self.ready);
            }
            (Driver::Sequential, Some(fetch)) => blocking::run(&mut worker, fetch),
        }
        worker.end(name, role, self.traced)
    }

    /// Starts threads as they are needed and reports progress, until the last thread has ended.
    fn watch(self, ramp: &mut Ramp, mut waits: ReadWaits<'_>, mut start_more: impl FnMut(u32)) {
        let shared = self.shared;
        let mut progress = self.options.progress;
        let mut reported_ns = monotonic_ns();
        while shared.live.load(Ordering::Acquire) > 0 {
            let look = Duration::from_nanos(ramp.pause_ns());
            std::thread::park_timeout(if ramp.is_full() { PROGRESS } else { look.min(PROGRESS) });
            waits.watcher += 1;
            if !ramp.is_full() && !shared.stopping() {
                start_more(ramp.decide(shared.gauges.files(), waits.for_reads()));
            }
            if shared.cancel.is_cancelled() {
                shared.budget.close();
            }
            let now_ns = monotonic_ns();
            if let Some(report) = progress
                && (now_ns - reported_ns >= PROGRESS.as_nanos() as u64
                    || shared.live.load(Ordering::Acquire) == 0)
            {
                reported_ns = now_ns;
                let total = shared.source.len().map(|n| n as u64);
                let report = || report(shared.gauges.files(), shared.gauges.bytes(), total);
                if let Err(payload) = catch_unwind(AssertUnwindSafe(report)) {
                    // Ends the run as a panic of the function does; there are no more reports.
                    shared.panicked(payload);
                    progress = None;
                }
            }
        }
    }
}

/// The start gate: threads set themselves up, then all begin at one moment.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, Option<u64>)>,
    changed: Condvar,
}

impl Gate {
    /// Waits for the start after a thread is set up. Returns the moment of the start.
    fn arrive(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.0 += 1;
        self.changed.notify_all();
        loop {
            if let Some(start_ns) = state.1 {
                return start_ns;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn wait_until_ready(&self, threads: usize) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while state.0 < threads {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn open(&self, start_ns: u64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        assert!(state.1.is_none(), "all threads start at one moment, from which times count");
        state.1 = Some(start_ns);
        self.changed.notify_all();
    }
}
