//! The collecting thread, which drains the rings and has its own lane.
//!
//! It waits for messages on its channel, wakes up every few milliseconds, reads records from the
//! rings and sorts them by time and thread. If a ring was a quarter full, the next pause is shorter; if all were
//! nearly empty, it is longer.

use super::gather::Gather;
use super::in_order::InOrder;
use super::message::{Finished, Message};
use super::recorder::{Recorder, RecorderOptions};
use super::sample::Sampler;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_trace::perf::record::{Record, records};
use ioloom_sys_trace::perf::{Faults, Ring, Target};
use ioloom_sys_trace::tracefs::event::{Decoder, Event};
use ioloom_sys_trace::tracefs::page::Page;
use ioloom_sys_trace::tracefs::{Instance, Pipe};
use ioloom_trace::{NO_FILE, SpanKind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Name and role of the collecting thread.
pub(super) const TOOL: &str = "tool";
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);
/// Maximum number of spans stored for the collecting thread's lane.
const TOOL_SPANS: usize = 1 << 14;
/// Interval between searches for ring workers if scheduler events do not report them.
const WORKERS_EVERY_NS: u64 = 20_000_000;

/// The tracefs part.
pub(super) struct Kernel {
    pub(super) instance: Arc<Instance>,
    pub(super) pipes: Vec<Pipe>,
    pub(super) decoder: Decoder,
}

/// The sources of events.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) kernel: Option<Kernel>,
    /// Rings of a process tree.
    pub(super) rings: Vec<Ring>,
    pub(super) sampler: Option<Sampler>,
    /// Whether the collecting thread has its own ring and opens rings for io_uring workers.
    pub(super) own_events: bool,
}

/// The collected data.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) gather: Gather,
    pub(super) finished: Vec<Finished>,
    pub(super) sampler: Option<Sampler>,
    /// Records of per-thread rings that the kernel counted as lost.
    pub(super) own_lost: u64,
    /// Lost tracefs events.
    pub(super) kernel_lost: u64,
}

/// The running collecting thread. It is stopped on drop: only then does kernel recording end.
pub(super) struct Drain {
    pub(super) to: Sender<Message>,
    /// `None` once it is stopped.
    thread: Option<JoinHandle<Collected>>,
}

impl Drain {
    pub(super) fn start(sources: Sources, gather: Gather) -> std::io::Result<Self> {
        let (to, from) = channel();
        let own = to.clone();
        let thread = std::thread::Builder::new()
            .name("ioloom-tool".to_owned())
            .spawn(move || Worker::new(sources, gather).run(&own, &from))?;
        Ok(Self { to, thread: Some(thread) })
    }

    pub(super) fn stop(mut self) -> Collected {
        self.end()
    }

    fn end(&mut self) -> Collected {
        let Some(thread) = self.thread.take() else { return Collected::default() };
        let _ = self.to.send(Message::Stop);
        thread.join().unwrap_or_default()
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.end();
    }
}

struct Worker {
    sources: Sources,
    rings: Vec<Ring>,
    out: Collected,
    bytes: Vec<u8>,
    records: InOrder<Record>,
    events: InOrder<Event>,
    /// Start of the previous round.
    emptied_ns: u64,
    looked_ns: u64,
}

impl Worker {
    fn new(mut sources: Sources, gather: Gather) -> Self {
        let rings = std::mem::take(&mut sources.rings);
        let out = Collected { gather, ..Collected::default() };
        Self {
            sources,
            rings,
            out,
            bytes: Vec::new(),
            records: InOrder::default(),
            events: InOrder::default(),
            emptied_ns: 0,
            looked_ns: 0,
        }
    }

    fn run(mut self, to: &Sender<Message>, from: &Receiver<Message>) -> Collected {
        let tid = ioloom_sys_trace::perf::thread_id();
        self.out.gather.know(tid);
        if self.sources.own_events {
            let bytes = ioloom_sys_trace::perf::RING_BYTES;
            self.rings.extend(Ring::open(Target::ThisThread, Faults::None, bytes).ok());
        }
        let plan = RecorderOptions { spans_max: TOOL_SPANS, accounts: true, head: None };
        let mut lane = Recorder::new(to.clone(), tid, TOOL, TOOL, plan);
        let mut pause = PAUSE_MIN;
        let mut stop = false;
        while !stop {
            stop = self.listen(from, pause);
            lane.lap(SpanKind::Sleep, NO_FILE);
            let now_ns = monotonic_ns();
            let filled = self.empty();
            self.sort(self.emptied_ns);
            self.emptied_ns = now_ns;
            self.look();
            pause = match filled {
                f if f > 0.25 => pause / 2,
                f if f < 0.05 => pause * 2,
                _ => pause,
            };
            pause = pause.clamp(PAUSE_MIN, PAUSE_MAX);
            if let Some(sampler) = &self.sources.sampler {
                pause = pause.min(sampler.period());
            }
            lane.lap(SpanKind::Other, NO_FILE);
        }
        lane.finish();
        self.listen(from, Duration::ZERO);
        self.end()
    }

    /// Processes messages until the pause is over; returns whether the run is over.
    fn listen(&mut self, from: &Receiver<Message>, pause: Duration) -> bool {
        let until = monotonic_ns() + pause.as_nanos() as u64;
        let mut stop = false;
        loop {
            let left = until.saturating_sub(monotonic_ns());
            // After the stop message, process only what is already queued.
            let left = if stop { 0 } else { left };
            match from.recv_timeout(Duration::from_nanos(left)) {
                Ok(Message::Thread(tid, ring)) => {
                    self.out.gather.know(tid);
                    self.rings.extend(ring);
                }
                Ok(Message::Finished(done)) => self.out.finished.push(*done),
                Ok(Message::Stop) => stop = true,
                Err(RecvTimeoutError::Timeout) => return stop,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Drains every ring; returns the fill level of the fullest one as a share.
    fn empty(&mut self) -> f64 {
        let mut filled: f64 = 0.0;
        for ring in &mut self.rings {
            filled = filled.max(ring.drain(&mut self.bytes));
            for record in records(&self.bytes) {
                match record.at_ns() {
                    Some(at_ns) => self.records.push(at_ns, record),
                    None => self.out.gather.own(record),
                }
            }
            self.bytes.clear();
        }
        if let Some(kernel) = &mut self.sources.kernel {
            for pipe in &mut kernel.pipes {
                let (cpu, mut pages) = (pipe.cpu, 0);
                while let Ok(Some(bytes)) = pipe.next_page() {
                    pages += 1;
                    let Some(page) = Page::parse(bytes) else {
                        self.out.gather.broken += 1;
                        continue;
                    };
                    let decoder = &kernel.decoder;
                    let events = page.events().filter_map(|(at, e)| decoder.decode(at, cpu, e));
                    events.for_each(|event| self.events.push(event.at_ns, event));
                }
                // 64 pages, a quarter of a MiB, shorten the pause.
                filled = filled.max(f64::from(pages) / 256.0);
            }
        }
        filled
    }

    /// Passes on the events up to `until_ns` by time. A child can run on one processor before its creation is
    /// read from another processor's ring.
    fn sort(&mut self, until_ns: u64) {
        self.records.until(until_ns).for_each(|record| self.out.gather.own(record));
        self.events.until(until_ns).for_each(|event| self.out.gather.kernel(&event));
    }

    /// Collects data that does not arrive as events: samples and new ring workers.
    fn look(&mut self) {
        let now = monotonic_ns();
        if let Some(sampler) = &mut self.sources.sampler {
            sampler.sample(now, &mut self.out.gather);
            return;
        }
        let due = now.saturating_sub(self.looked_ns) >= WORKERS_EVERY_NS;
        if due && self.sources.own_events && self.sources.kernel.is_none() {
            self.looked_ns = now;
            for (tid, name) in super::sample::ring_workers() {
                if self.out.gather.threads.contains_key(&tid) {
                    continue;
                }
                let bytes = ioloom_sys_trace::perf::RING_BYTES;
                if let Ok(ring) = Ring::open(Target::Thread(tid), Faults::None, bytes) {
                    let stream = self.out.gather.know(tid);
                    stream.kernel_worker = true;
                    stream.name = Some(name);
                    stream.begin_ns = Some(now);
                    self.rings.push(ring);
                }
            }
        }
    }

    fn end(mut self) -> Collected {
        if let Some(kernel) = &self.sources.kernel {
            let _ = kernel.instance.set_recording(false);
        }
        self.empty();
        self.sort(u64::MAX);
        debug_assert!(
            self.bytes.is_empty() && self.records.is_empty() && self.events.is_empty(),
            "every record read from a ring must be sorted or counted as lost"
        );
        self.out.own_lost = self.rings.iter().filter_map(Ring::lost).sum();
        self.out.own_lost = self.out.own_lost.max(self.out.gather.reported_lost);
        if let Some(kernel) = &self.sources.kernel {
            let lost = kernel.pipes.iter().filter_map(|pipe| pipe.stats().ok());
            self.out.kernel_lost = lost.map(ioloom_sys_trace::tracefs::PipeStats::lost).sum();
        }
        self.out.sampler = self.sources.sampler.take();
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_collector_ends() {
        let drain = Drain::start(Sources::default(), Gather::new(10, false)).unwrap();
        let to = drain.to.clone();
        drop(drain);
        assert!(to.send(Message::Stop).is_err(), "the collecting thread must have ended");
    }
}
