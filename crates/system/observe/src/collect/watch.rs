//! Observes another program from outside: a process and all its descendants.
//!
//! The levels are the same: 2 adds wake-ups, processors and devices, 1 has every switch of the
//! tree, 0 samples /proc. At every level, samples identify the calls in which threads wait because
//! another program records no spans. Waits during which no sample was taken remain unnamed, and the
//! evidence reports how many were named.

use super::assemble::{Run, cores, evidence, raw, source, thread};
use super::drain::{Collected, Drain, Sources, TOOL};
use super::gather::{Gather, Stream};
use super::message::Finished;
use super::probe::remedy_of_own_events;
use super::sample::{
    Sample, Sampler, accounts_of_samples, grown, spans_of_samples, spans_of_waits,
};
use super::session::Opened;
use super::{Refused, TraceOptions};
use ioloom_failure::reason;
use ioloom_model::Level;
use ioloom_model::units::format_counted;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_trace::perf::{Faults, Ring, Target};
use ioloom_sys_trace::tracefs::Instance;
use ioloom_trace::raw::{Raw, RawThread, SAMPLES, Switch};
use std::io;
use std::sync::Arc;

/// Per-processor ring size at level 1 in bytes, for the switches of all observed threads on that
/// processor.
const RING_BYTES: usize = 256 << 10;
/// Minimum number of samples that give a thread without switches a duration.
const SAMPLES_MIN: usize = 2;
/// Number of samples after the recorded end of a thread that disprove it. A thread that exits can be sampled until
/// it has left its processor.
const SAMPLES_AFTER_END: usize = 3;

/// An observation of a process tree.
pub struct Watch {
    run: Run,
    instance: Option<Arc<Instance>>,
    drain: Drain,
}

impl Watch {
    /// Observes process `pid` and all processes that it starts from now on. To miss nothing, start
    /// it as a [`ioloom_sys_trace::perf::paused::PausedChild`] and release it afterwards.
    ///
    /// # Errors
    ///
    /// Fails if a requested level does not work (the error contains the remedy), or if there is no
    /// such process.
    pub fn start(level: Option<Level>, pid: u32, options: TraceOptions) -> Result<Self, Refused> {
        let opened = Opened::level(level, &options)?;
        let mut notes = opened.notes;
        let mut found_level = opened.level;
        let mut rings = Vec::new();
        if opened.own_events {
            match tree_rings(pid) {
                Ok(opened) => rings = opened,
                Err(e) if level == Some(Level::Switch) => {
                    let remedy = remedy_of_own_events(&e);
                    return Err(Refused::Level { level: Level::Switch, why: reason(&e), remedy });
                }
                Err(e) => {
                    notes.push(format!("no context switches of process {pid}: {}", reason(&e)));
                    found_level =
                        if opened.kernel.is_some() { Level::Kernel } else { Level::Account };
                }
            }
        }
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            return Err(Refused::Process { pid, why: "no such process".to_owned() });
        }
        let own_events = !rings.is_empty();
        let instance = opened.kernel.as_ref().map(|kernel| kernel.instance.clone());
        let mut gather = Gather::new(options.events_max, true);
        // The process exists already, so no record shows its begin.
        let root = gather.know(pid);
        (root.pid, root.begin_ns) = (pid, Some(monotonic_ns()));
        let sources =
            Sources { kernel: opened.kernel, rings, sampler: Some(Sampler::new(pid)), own_events };
        let drain = Drain::start(sources, gather).map_err(Refused::Thread)?;
        if let Some(instance) = &instance
            && let Err(e) = instance.set_recording(true)
        {
            notes.push(format!("no kernel events: {}", reason(&e)));
        }
        let run = Run {
            level: found_level,
            own_events,
            delegated: instance.as_ref().map(|instance| instance.is_delegated()),
            start_ns: monotonic_ns(),
            end_ns: 0,
            clock: opened.clock,
            costs: opened.costs,
            notes,
            registered: 0,
        };
        Ok(Self { run, instance, drain })
    }

    /// Returns the level in use.
    pub fn level(&self) -> Level {
        self.run.level
    }

    /// Returns the start time of the observation in nanoseconds on the monotonic clock; event times
    /// are relative to it.
    pub fn started_ns(&self) -> u64 {
        self.run.start_ns
    }

    /// Ends the observation.
    pub fn stop(mut self) -> Raw {
        self.run.end_ns = monotonic_ns();
        let collected = self.drain.stop();
        drop(self.instance);
        assemble(self.run, collected)
    }
}

fn tree_rings(pid: u32) -> io::Result<Vec<Ring>> {
    let online = ioloom_sys::proc::system_stat()?.cpus;
    online.iter().map(|(cpu, _)| ring(pid, *cpu)).collect()
}

fn ring(pid: u32, cpu: u32) -> io::Result<Ring> {
    let target = Target::Tree { pid, cpu };
    let mut bytes = RING_BYTES;
    loop {
        match Ring::open(target, Faults::Major, bytes) {
            // An unprivileged user can lock only a little memory: a smaller ring is better than
            // none.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && bytes > 16 << 10 => bytes /= 4,
            opened => return opened,
        }
    }
}

fn assemble(run: Run, mut collected: Collected) -> Raw {
    let sampler = collected.sampler.take();
    let samples_over = sampler.as_ref().map_or(0, |sampler| sampler.over);
    let samples_full_ns = sampler.as_ref().and_then(|sampler| sampler.full_ns);
    let skipped = sampler.as_ref().map(Sampler::skipped).unwrap_or_default();
    let mut samples = sampler.map(|sampler| sampler.samples).unwrap_or_default();
    let finished = std::mem::take(&mut collected.finished);
    let lived_ns = lived_ns(&run, &collected.gather, &finished);
    let mut evidence = evidence(&run, &collected, &finished, lived_ns);
    let taken: u64 = samples.values().map(|list| list.len() as u64).sum();
    evidence.sources.push(source(SAMPLES, taken, samples_over, None, "user"));
    evidence.notes.extend(skipped);
    let mut threads = Vec::new();
    // Whether all switches that the kernel recorded were kept.
    let complete =
        collected.own_lost == 0 && collected.kernel_lost == 0 && collected.gather.over == 0;
    let mut gather = collected.gather;
    // The collecting thread is not part of the program.
    for done in &finished {
        gather.threads.remove(&done.tid);
    }
    let cores = cores(&run, &mut gather, &[]);
    let until_ns = gather.full_ns.unwrap_or(u64::MAX);
    let (mut waits, mut named, mut by_samples, mut unobserved) = (0, 0, 0, 0);
    for (tid, stream) in gather.take_threads() {
        let samples = samples_of(&stream, samples.entry(tid).or_default());
        let done = Finished {
            tid,
            name: stream.name.clone().unwrap_or_else(|| tid.to_string()),
            role: format!("process {}", stream.pid),
            start_ns: begin_ns(&run, &stream),
            end_ns: stream.end_ns.unwrap_or(run.end_ns),
            ..Finished::default()
        };
        let (thread, counted) = outside(&run, done, stream, &samples, (until_ns, samples_full_ns));
        waits += counted.waits;
        named += counted.named;
        by_samples += u64::from(counted.by_samples);
        unobserved += u64::from(counted.is_unobserved);
        threads.push(thread);
    }
    if by_samples > 0 {
        let of = format_counted(by_samples, "thread", "threads");
        let why = if complete {
            format!(
                "the kernel recorded no switches of {of}, as for programs that run as another user"
            )
        } else {
            format!("no switches of {of} remain: switches were dropped or lost")
        };
        evidence.notes.push(format!("{why}; the states come from /proc samples"));
    }
    if unobserved > 0 {
        let of = format_counted(unobserved, "thread", "threads");
        evidence.notes.push(format!(
            "no switches and fewer than {SAMPLES_MIN} samples of {of}: the states are unknown"
        ));
    }
    if waits > 0 && run.level > Level::Account {
        evidence.notes.push(format!(
            "the program records no spans: /proc samples identify {named} of {waits} waits"
        ));
    }
    for done in finished {
        if done.role == TOOL {
            threads.push(thread(&run, done, Stream::default()));
        }
    }
    raw(&run, threads, cores, gather, evidence)
}

/// Removes the samples of a thread from those of all threads that had its ID, oldest first.
fn samples_of(stream: &Stream, all: &mut Vec<Sample>) -> Vec<Sample> {
    let is_of = |sample: &Sample| stream.reused_ns.is_none_or(|at_ns| sample.at_ns < at_ns);
    let later = all.split_off(all.partition_point(is_of));
    std::mem::replace(all, later)
}

/// Returns the sum of the lifetimes of the observed threads within the run.
fn lived_ns(run: &Run, gather: &Gather, finished: &[Finished]) -> u64 {
    let others = gather.threads.iter().filter(|(tid, _)| finished.iter().all(|d| d.tid != **tid));
    let replaced = gather.replaced.values().flatten();
    let lives = others
        .map(|(_, stream)| stream)
        .chain(replaced)
        .map(|stream| stream.end_ns.unwrap_or(run.end_ns).saturating_sub(begin_ns(run, stream)));
    lives.sum()
}

/// Returns when a thread began within the run. /proc may show it only after its first switches.
fn begin_ns(run: &Run, stream: &Stream) -> u64 {
    let switches = stream.own.iter().chain(&stream.sched).map(|switch| switch.at_ns);
    let begin_ns = switches.chain(stream.begin_ns).min().unwrap_or(run.start_ns);
    begin_ns.max(run.start_ns)
}

/// What is known about the waits of a thread.
#[derive(Debug, Default)]
struct Counted {
    waits: usize,
    /// Waits that samples identify.
    named: usize,
    /// Whether samples replace switches that were not recorded.
    by_samples: bool,
    /// Whether nothing shows its states.
    is_unobserved: bool,
}

/// Assembles a thread of the other program. Its switches were kept until `until_ns`, and its samples until
/// `samples_full_ns`.
fn outside(
    run: &Run,
    mut done: Finished,
    mut stream: Stream,
    samples: &[Sample],
    (until_ns, samples_full_ns): (u64, Option<u64>),
) -> (RawThread, Counted) {
    let mut counted = Counted::default();
    // A thread that moves between processors has records in several rings.
    stream.own.sort_by_key(|switch| switch.at_ns);
    stream.sched.sort_by_key(|switch| switch.at_ns);
    if run.level > Level::Account {
        let switches = switches(&mut stream, samples);
        done.end_ns = stream.end_ns.unwrap_or(run.end_ns).max(done.start_ns);
        counted.by_samples = !switches && samples.len() >= SAMPLES_MIN;
    }
    let by_samples = run.level == Level::Account || counted.by_samples;
    if by_samples {
        // Nothing is known before the first sample.
        done.start_ns = samples.first().map_or(done.start_ns, |s| s.at_ns).max(run.start_ns);
        // Nor is it after the last one, but a thread does not end because no more samples are kept.
        let is_cut = samples_full_ns.is_some_and(|full_ns| full_ns <= done.end_ns);
        let last = samples.last().filter(|_| !is_cut);
        done.end_ns = last.map_or(done.end_ns, |s| s.at_ns).max(done.start_ns);
        done.spans = spans_of_samples(samples);
        done.accounts = accounts_of_samples(samples);
        (stream.own, stream.sched) = (Vec::new(), Vec::new());
    } else {
        let switches = if stream.own.is_empty() { &stream.sched } else { &stream.own };
        done.spans = spans_of_waits(switches, samples, done.end_ns.min(until_ns));
        counted.waits = switches.iter().filter(|s| s.out && !s.preempted).count();
        counted.named = done.spans.len();
    }
    let clocks = samples.first().zip(samples.last());
    let mut raw = thread(run, done, stream);
    // Samples do not cover the thread's start and end, so they prove nothing about threads with
    // switches.
    let clocks = clocks.filter(|_| by_samples);
    raw.cpu_ns = clocks.map(|(a, b)| b.cpu_ns.saturating_sub(a.cpu_ns));
    raw.run_delay_ns = clocks.and_then(|(a, b)| grown(a.run_delay_ns, b.run_delay_ns));
    counted.is_unobserved =
        raw.switches.is_empty() && samples.len() < SAMPLES_MIN && raw.end_ns > raw.start_ns;
    if counted.is_unobserved {
        // Without a clock it would count as on a processor.
        raw.cpu_ns = Some(0);
    }
    (raw, counted)
}

/// Selects the switches that cover the life of a thread; returns whether there are any. The kernel ends the events
/// of a thread that executes a program of another user, such as sudo: it then reports the end of the thread, but
/// samples continue.
fn switches(stream: &mut Stream, samples: &[Sample]) -> bool {
    let later = samples.partition_point(|s| stream.end_ns.is_none_or(|end| s.at_ns <= end));
    if let Some(proof) = samples.get(later + SAMPLES_AFTER_END - 1) {
        let covers = |list: &[Switch]| list.last().is_some_and(|last| last.at_ns >= proof.at_ns);
        if !covers(&stream.own) {
            stream.own.clear();
        }
        if !covers(&stream.sched) {
            stream.sched.clear();
        }
        let last = |list: &[Switch]| list.last().map(|switch| switch.at_ns);
        let last_sample = samples.last().map(|sample| sample.at_ns);
        stream.end_ns = last_sample.max(last(&stream.own)).max(last(&stream.sched));
    }
    !stream.own.is_empty() || !stream.sched.is_empty()
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "skipped tests print a notice")]
#[path = "watch_tests.rs"]
mod tests;
