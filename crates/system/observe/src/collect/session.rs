//! An observation of this process.

use super::assemble::{Run, assemble};
use super::check::{self, ClockTest, Costs};
use super::drain::{Drain, Kernel, Sources};
use super::gather::Gather;
use super::message::Message;
use super::probe::{KERNEL, remedy_of_kernel, remedy_of_own_events};
use super::recorder::RecorderOptions;
use super::{Recorder, Refused, TraceOptions};
use ioloom_failure::reason;
use ioloom_model::Level;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_trace::perf::{Faults, Ring, Target, thread_id};
use ioloom_sys_trace::tracefs::Instance;
use ioloom_sys_trace::tracefs::event::{Decoder, Kind};
use ioloom_trace::raw::Raw;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of threads for which wake-ups are filtered in the kernel.
const FILTER_THREADS_MAX: usize = 64;

/// The opened sources of a level.
pub(super) struct Opened {
    pub(super) level: Level,
    pub(super) own_events: bool,
    pub(super) kernel: Option<Kernel>,
    pub(super) clock: ClockTest,
    pub(super) costs: Costs,
    pub(super) notes: Vec<String>,
}

impl Opened {
    /// Opens the requested level, or the highest one that works.
    pub(super) fn level(wanted: Option<Level>, options: &TraceOptions) -> Result<Self, Refused> {
        let mut opened = Self {
            level: Level::Account,
            own_events: false,
            kernel: None,
            clock: ClockTest::default(),
            costs: Costs::default(),
            notes: Vec::new(),
        };
        let refuse =
            |level, e: &io::Error, remedy| Refused::Level { level, why: reason(e), remedy };
        if wanted.is_none_or(|level| level > Level::Account) {
            match Ring::open(Target::ThisThread, Faults::Major, options.ring_bytes) {
                Ok(_) => opened.own_events = true,
                Err(e) if wanted == Some(Level::Switch) => {
                    return Err(refuse(Level::Switch, &e, remedy_of_own_events(&e)));
                }
                Err(e) => {
                    let remedy = remedy_of_own_events(&e);
                    opened.notes.push(format!(
                        "no context switches of the process's threads: {}; {remedy}",
                        reason(&e)
                    ));
                }
            }
        }
        if opened.own_events {
            opened.level = Level::Switch;
            opened.clock = check::clock_of_own_events();
        }
        if wanted.is_none_or(|level| level == Level::Kernel) {
            match opened.open_kernel(options) {
                Ok(()) => opened.level = Level::Kernel,
                Err(e) if wanted == Some(Level::Kernel) => {
                    return Err(refuse(Level::Kernel, &e, remedy_of_kernel(&e)));
                }
                Err(e) => {
                    let remedy = remedy_of_kernel(&e);
                    opened.notes.push(format!("no kernel events: {}; {remedy}", reason(&e)));
                }
            }
        }
        opened.calibrate(options);
        Ok(opened)
    }

    fn open_kernel(&mut self, options: &TraceOptions) -> io::Result<()> {
        let mut instance = Instance::open()?;
        instance.set_ring_kib(options.trace_ring_kib)?;
        let mut decoder = Decoder::default();
        for (kind, source, _) in KERNEL {
            // A thread does not leave its processor for a spinning lock.
            let filter = if kind == Kind::LockBegin { "!(flags & 1)" } else { "" };
            match instance.enable(kind, filter, &mut decoder) {
                Err(e) if matches!(kind, Kind::Switch | Kind::Waking) => return Err(e),
                Err(e) => self.notes.push(format!("no {source}: {}", reason(&e))),
                Ok(()) => {}
            }
        }
        let (pipes, clock) = check::clock_of_marks(&mut instance, &mut decoder)?;
        self.clock = self.clock.with(clock);
        self.kernel = Some(Kernel { instance: Arc::new(instance), pipes, decoder });
        Ok(())
    }

    fn calibrate(&mut self, options: &TraceOptions) {
        if !options.calibrate {
            return;
        }
        check::calibrate_user(&mut self.costs);
        if self.own_events {
            check::calibrate_switch(&mut self.costs);
        }
        if let Some(kernel) = &mut self.kernel {
            check::calibrate_kernel(&mut self.costs, &kernel.instance);
            for pipe in &mut kernel.pipes {
                while let Ok(Some(_)) = pipe.next_page() {}
            }
        }
    }
}

/// An observation of threads in this process.
pub struct Session {
    level: Level,
    options: TraceOptions,
    own_events: bool,
    instance: Option<Arc<Instance>>,
    drain: Drain,
    start_ns: AtomicU64,
    registered: Mutex<Vec<u32>>,
    clock: ClockTest,
    costs: Costs,
    notes: Mutex<Vec<String>>,
}

impl Session {
    /// Opens the sources for `level`, or the highest level that works if none is specified.
    ///
    /// # Errors
    ///
    /// Fails if a requested level does not work; the error contains the remedy.
    pub fn start(level: Option<Level>, options: TraceOptions) -> Result<Self, Refused> {
        let opened = Opened::level(level, &options)?;
        let instance = opened.kernel.as_ref().map(|kernel| kernel.instance.clone());
        let own_events = opened.own_events;
        let sources = Sources { kernel: opened.kernel, own_events, ..Sources::default() };
        let gather = Gather::new(options.events_max, false);
        let drain = Drain::start(sources, gather).map_err(Refused::Thread)?;
        Ok(Self {
            level: opened.level,
            options,
            own_events,
            instance,
            drain,
            start_ns: AtomicU64::new(0),
            registered: Mutex::new(Vec::new()),
            clock: opened.clock,
            costs: opened.costs,
            notes: Mutex::new(opened.notes),
        })
    }

    /// Returns the level in use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the cost of each kind of event.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Registers the calling thread. If its kernel events cannot be opened, the thread takes part
    /// without them, which the evidence reports.
    pub fn register(&self, name: &str, role: &str) -> Recorder {
        let tid = thread_id();
        let ring = self
            .own_events
            .then(|| Ring::open(Target::ThisThread, Faults::Major, self.options.ring_bytes));
        let ring = match ring {
            Some(Ok(ring)) => Some(ring),
            Some(Err(e)) => {
                let remedy = remedy_of_own_events(&e);
                self.note(format!(
                    "no context switches of thread {name}: {}; {remedy}",
                    reason(&e)
                ));
                None
            }
            None => None,
        };
        let head = ring.as_ref().map(Ring::head);
        let _ = self.drain.to.send(Message::Thread(tid, ring));
        if let Ok(mut registered) = self.registered.lock() {
            registered.push(tid);
            if self.start_ns.load(Ordering::Relaxed) != 0 {
                self.filter(&registered);
            }
        }
        let accounts = self.level < Level::Kernel || !self.own_events;
        let plan = RecorderOptions { spans_max: self.options.spans_max, accounts, head };
        Recorder::new(self.drain.to.clone(), tid, name, role, plan)
    }

    fn note(&self, text: String) {
        if let Ok(mut notes) = self.notes.lock() {
            notes.push(text);
        }
    }

    /// Limits wake-ups to those of the program's threads and of the workers for their rings.
    fn filter(&self, threads: &[u32]) {
        let Some(instance) = &self.instance else { return };
        let mut filter = String::new();
        if threads.len() <= FILTER_THREADS_MAX {
            for tid in threads {
                filter += &format!("pid=={tid}||");
            }
            filter += "comm~\"iou-wrk-*\"";
        }
        if let Err(e) = instance.filter(Kind::Waking, &filter) {
            self.note(format!("wake-ups of all threads are recorded: {}", reason(&e)));
        }
    }

    /// Starts the run and returns its start time on the monotonic clock. Threads must register
    /// first.
    pub fn begin(&self) -> u64 {
        self.begin_at(monotonic_ns())
    }

    /// Like [`begin`](Self::begin), for a run whose times are relative to `start_ns`.
    pub fn begin_at(&self, start_ns: u64) -> u64 {
        if let Ok(registered) = self.registered.lock() {
            self.filter(&registered);
        }
        if let Some(instance) = &self.instance
            && let Err(e) = instance.set_recording(true)
        {
            self.note(format!("no kernel events: {}", reason(&e)));
        }
        self.start_ns.store(start_ns, Ordering::Relaxed);
        start_ns
    }

    /// Ends the run. All recorders must be finished first.
    pub fn stop(self) -> Raw {
        let end_ns = monotonic_ns();
        let collected = self.drain.stop();
        let start_ns = self.start_ns.load(Ordering::Relaxed);
        let run = Run {
            level: self.level,
            own_events: self.own_events,
            delegated: self.instance.as_ref().map(|instance| instance.is_delegated()),
            start_ns: if start_ns == 0 { end_ns } else { start_ns },
            end_ns,
            clock: self.clock,
            costs: self.costs,
            notes: self.notes.into_inner().unwrap_or_default(),
            registered: self.registered.into_inner().unwrap_or_default().len(),
        };
        assemble(run, collected)
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "skipped tests print a notice")]
#[path = "session_tests.rs"]
mod tests;
