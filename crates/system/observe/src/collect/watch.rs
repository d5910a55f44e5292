//! Observes another program from outside: a process and all its descendants.
//!
//! The levels are the same: 2 adds wake-ups, processors and devices, 1 has every switch of the
//! tree, 0 samples /proc. At every level, samples identify the calls in which threads wait because
//! another program records no spans. Waits during which no sample was taken remain unnamed, and the
//! evidence reports how many were named.

use super::assemble::{Run, cores, evidence, raw, source, thread};
use super::drain::{Collected, Drain, Sources, TOOL};
use super::gather::Gather;
use super::message::Finished;
use super::probe::remedy_of_own_events;
use super::sample::{Sample, Sampler, accounts_of_samples, spans_of_samples, spans_of_waits};
use super::session::Opened;
use super::{Refused, TraceOptions};
use ioloom_failure::reason;
use ioloom_model::Level;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_trace::perf::{Faults, Ring, Target};
use ioloom_sys_trace::tracefs::Instance;
use ioloom_trace::raw::{Raw, RawThread};
use std::io;
use std::sync::Arc;

/// Per-processor ring size at level 1 in bytes, for the switches of all observed threads on that
/// processor.
const RING_BYTES: usize = 256 << 10;

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
        gather.know(pid).pid = pid;
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
    let mut samples = sampler.map(|sampler| sampler.samples).unwrap_or_default();
    let finished = std::mem::take(&mut collected.finished);
    let mut evidence = evidence(&run, &collected, &finished);
    let taken: u64 = samples.values().map(|list| list.len() as u64).sum();
    evidence.sources.push(source("proc.samples", taken, 0, None, "user"));
    let mut threads = Vec::new();
    let mut gather = collected.gather;
    let cores = cores(&run, &mut gather, &[]);
    let (mut waits, mut named) = (0, 0);
    for (tid, stream) in std::mem::take(&mut gather.threads) {
        if finished.iter().any(|done| done.tid == tid) {
            continue;
        }
        let samples = samples.remove(&tid).unwrap_or_default();
        let first =
            [&stream.own, &stream.sched].iter().filter_map(|l| Some(l.first()?.at_ns)).min();
        let begin_ns = stream.begin_ns.or(first).unwrap_or(run.start_ns);
        let done = Finished {
            tid,
            name: stream.name.clone().unwrap_or_else(|| tid.to_string()),
            role: format!("process {}", stream.pid),
            start_ns: begin_ns.max(run.start_ns),
            end_ns: stream.end_ns.unwrap_or(run.end_ns),
            ..Finished::default()
        };
        let (thread, counted) = outside(&run, done, stream, &samples);
        waits += counted.0;
        named += counted.1;
        threads.push(thread);
    }
    if waits > 0 && run.level > Level::Account {
        evidence.notes.push(format!(
            "the program records no spans: /proc samples identify {named} of {waits} waits"
        ));
    }
    for done in finished {
        if done.role == TOOL {
            threads.push(thread(&run, done, super::gather::Stream::default()));
        }
    }
    raw(&run, threads, cores, gather, evidence)
}

/// Assembles a thread of the other program; also returns the number of its waits and the number of
/// named ones.
fn outside(
    run: &Run,
    mut done: Finished,
    mut stream: super::gather::Stream,
    samples: &[Sample],
) -> (RawThread, (usize, usize)) {
    let mut counted = (0, 0);
    // A thread that moves between processors has records in several rings.
    stream.own.sort_by_key(|switch| switch.at_ns);
    stream.sched.sort_by_key(|switch| switch.at_ns);
    if run.level == Level::Account {
        // Nothing is known before the first sample.
        done.start_ns = samples.first().map_or(done.start_ns, |s| s.at_ns).max(run.start_ns);
        done.end_ns = samples.last().map_or(done.end_ns, |s| s.at_ns).max(done.start_ns);
        done.spans = spans_of_samples(samples);
        done.accounts = accounts_of_samples(samples);
    } else {
        let switches = if stream.own.is_empty() { &stream.sched } else { &stream.own };
        done.spans = spans_of_waits(switches, samples);
        let wait = |s: &&ioloom_trace::raw::Switch| s.out && !s.preempted;
        counted = (switches.iter().filter(wait).count(), done.spans.len());
    }
    let clocks = samples.first().zip(samples.last());
    let mut raw = thread(run, done, stream);
    // Samples do not cover the thread's start and end, so they prove nothing at levels with
    // switches.
    let level_0 = run.level == Level::Account;
    raw.cpu_ns = clocks.filter(|_| level_0).map(|(a, b)| b.cpu_ns.saturating_sub(a.cpu_ns));
    raw.run_delay_ns =
        clocks.filter(|_| level_0).map(|(a, b)| b.run_delay_ns.saturating_sub(a.run_delay_ns));
    (raw, counted)
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "skipped tests print a notice")]
#[path = "watch_tests.rs"]
mod tests;
