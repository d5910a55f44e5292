//! The event loop: workers, a page cache, devices, a neighbour, and a controller.

use super::device::{Cap, Device, Request, Running};
use super::job::{Job, Unit, Units};
use super::random::Draws;
use ioloom_control::{BATCH_NS, Batch, Tuner};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// What calls cost a worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Workers, one per core.
    pub cores: u32,
    /// Opening a file, in nanoseconds.
    pub open_ns: u64,
    /// Issuing a request, in nanoseconds.
    pub request_ns: u64,
    /// Taking a file that became ready, in nanoseconds.
    pub hand_off_ns: u64,
    /// Copying a byte, in nanoseconds.
    pub byte_ns: f64,
    /// Bytes that may be in flight or ready.
    pub memory: u64,
}

/// Another process on the first device: `readers` loops that read 4 KiB at random and then think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Loops.
    pub readers: u32,
    /// Time between a completion and the next request.
    pub think_ns: u64,
}

/// What changes when half of the requests are complete.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The first device gets another cap.
    Cap(Cap),
    /// Each request takes longer.
    Latency(u64),
    /// The first device serves nothing for this time in nanoseconds.
    Stall(u64),
    /// A neighbour begins to read.
    Neighbour(Neighbour),
    /// Computing and calls take longer by this factor.
    Slower(f64),
}

/// A job on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Name in tables.
    pub name: String,
    /// Seed of all draws.
    pub seed: u64,
    /// Cores and costs.
    pub machine: Machine,
    /// First device.
    pub device: Device,
    /// Device of the second half, if the job crosses.
    pub second: Option<Device>,
    /// What is read.
    pub job: Job,
    /// What changes midway.
    pub change: Option<Change>,
    /// A neighbour from the beginning.
    pub neighbour: Option<Neighbour>,
}

/// One batch of a timeline, or several batches of a long run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Time of its end in nanoseconds.
    pub at_ns: u64,
    /// Window after it.
    pub window: u32,
    /// Requests at the device at its end.
    pub in_flight: u32,
    /// Requests completed in it, hits included.
    pub requests: u64,
    /// Bytes completed in it.
    pub bytes: u64,
    /// Share of worker time without work.
    pub idle: f64,
}

impl Moment {
    /// Returns this moment and a later one as one; they consist of so many batches.
    fn and(&self, later: &Self, own: u64, others: u64) -> Self {
        let (own, others) = (own as f64, others as f64);
        Self {
            requests: self.requests + later.requests,
            bytes: self.bytes + later.bytes,
            idle: (self.idle * own + later.idle * others) / (own + others),
            ..*later
        }
    }
}

/// What a worker does in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Opens a file or issues a request.
    Issue,
    /// Copies and computes data that the page cache had.
    Hit,
    /// Copies and computes data that the device delivered.
    Compute,
}

/// One step of a worker, for timelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The worker, from 0.
    pub worker: u32,
    /// What it does.
    pub work: Work,
    /// The request, in list order.
    pub unit: u32,
    /// Start in nanoseconds.
    pub start_ns: u64,
    /// End in nanoseconds.
    pub end_ns: u64,
}

/// One request at a device, for timelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The request, in list order.
    pub unit: u32,
    /// The device, from 0.
    pub device: u32,
    /// First byte on the device.
    pub at: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Worker that issued it.
    pub worker: u32,
    /// Issue in nanoseconds.
    pub issue_ns: u64,
    /// Completion in nanoseconds.
    pub end_ns: u64,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Elapsed time in nanoseconds.
    pub ns: u64,
    /// Time of the change, if it happened.
    pub changed_ns: Option<u64>,
    /// Requests completed; fewer than all of the job if the run reached the limit of simulated time.
    pub completed: usize,
    /// All batches, in moments of equal length, at most 262,144 of them.
    pub timeline: Vec<Moment>,
    /// Mean number of requests at the device.
    pub in_flight: f64,
    /// Latencies of the neighbour's requests in nanoseconds, in order of completion.
    pub neighbour_ns: Vec<u64>,
    /// Steps of the workers by start, if they are recorded.
    pub steps: Vec<Step>,
    /// Requests by completion, if they are recorded.
    pub sent: Vec<Sent>,
}

impl Outcome {
    /// Returns the latency that nine of ten requests of the neighbour did not exceed.
    pub fn neighbour_p90_ns(&self) -> Option<u64> {
        let mut sorted = self.neighbour_ns.clone();
        sorted.sort_unstable();
        sorted.get((sorted.len() * 9).div_ceil(10).checked_sub(1)?).copied()
    }
}

/// A scenario whose requests are drawn, ready for any number of runs.
#[derive(Debug, Clone)]
pub struct Prepared<'a> {
    scenario: &'a Scenario,
    units: Units,
    disks: u32,
    recorded: usize,
}

/// Ids from here on are the neighbour's.
const NEIGHBOUR: u64 = 1 << 40;
/// Time without an event, and with nothing at a device, that is one batch. Computing takes less in all listed
/// scenarios, so their controllers see each batch.
const REST_NS: u64 = 1_000_000_000;
/// Limit of simulated time, 146 years: sums of times must not overflow.
const END_NS: u64 = 1 << 62;
/// Simulated time from which batches become longer: twice as long whenever the time has doubled, so
/// that the number of batches grows only with the logarithm of the time.
const LONG_NS: u64 = 20_000_000_000_000;
/// Batches since the start from which they become longer.
const BATCHES_LONG: u64 = 2 * (LONG_NS / BATCH_NS);
/// Most moments of a timeline; an even number. When there are more, pairs are merged.
const MOMENTS_MAX: usize = 1 << 18;

impl Scenario {
    /// Draws the requests.
    pub fn prepare(&self) -> Prepared<'_> {
        Prepared { scenario: self, units: self.job.units(self.seed), disks: 1, recorded: 0 }
    }
}

impl Prepared<'_> {
    /// Spreads the files over `disks` copies of the first device, at most 256, and places them as far
    /// apart as if there were `stretch` times as many. A second device is not used.
    pub fn spread(mut self, disks: u32, stretch: f64) -> Self {
        self.disks = disks.clamp(1, 256);
        self.units.spread(self.disks, stretch, self.scenario.job.order);
        self
    }

    /// Records the first `limit` steps and as many requests, for a timeline.
    pub fn record(mut self, limit: usize) -> Self {
        self.recorded = limit;
        self
    }

    /// Returns the end of the files on the device, one after another.
    pub(super) fn end(&self) -> u64 {
        self.units.end
    }

    /// Returns the number of requests.
    pub fn requests(&self) -> usize {
        self.units.units.len()
    }

    /// Runs the job with a controller, and with at most `window_max` requests in flight or ready.
    pub fn run(&self, tuner: &mut dyn Tuner, window_max: u32) -> Outcome {
        let mut run = Run::new(self, tuner.window(), window_max);
        while run.completed < self.units.units.len() && run.now < END_NS {
            run.dispatch();
            if run.completed == self.units.units.len() {
                break;
            }
            let event = run.next_event();
            if event > run.tick && (tuner.is_fixed() || run.rests(event)) {
                run.pass_over(event.min(END_NS), tuner);
            }
            run.advance(event.min(run.tick));
            if run.now == run.tick {
                run.observe(tuner);
            }
        }
        run.finish()
    }
}

struct Run<'a> {
    prepared: &'a Prepared<'a>,
    now: u64,
    window: u32,
    window_max: u32,
    workers: usize,
    /// Workers that are busy: end of the step, index, and the request that it then issues.
    busy: BinaryHeap<Reverse<(u64, u32, Option<u32>)>>,
    /// Workers that are not; the lowest index is taken first.
    idle: BinaryHeap<Reverse<u32>>,
    slow: f64,
    known: u32,
    issued: u32,
    in_flight: u32,
    ready: VecDeque<u32>,
    held_bytes: u64,
    /// Whether memory was the limit when a worker last looked.
    short: bool,
    completed: usize,
    devices: Vec<Running>,
    /// The next event of each device, and the devices that have one, by its time.
    next: Vec<u64>,
    due: BTreeSet<(u64, usize)>,
    neighbour: Option<Neighbour>,
    /// When each of the neighbour's loops issues next, or issued last.
    readers: Vec<(u64, bool)>,
    asked: u64,
    changed: bool,
    tick: u64,
    /// Length of a batch, in nanoseconds.
    batch_ns: u64,
    batch: Batch,
    /// The moment that is not complete, its batches, and how many batches of [`BATCH_NS`] a moment has.
    moment: Option<Moment>,
    gathered: u64,
    per_moment: u64,
    /// Integrals over the batch: idle workers, requests in flight, no input, no memory.
    sums: [f64; 4],
    flying: f64,
    outcome: Outcome,
    ended: Vec<u64>,
    /// Recorded requests that are not complete.
    flights: Vec<Sent>,
}

impl<'a> Run<'a> {
    fn new(prepared: &'a Prepared<'a>, window: u32, window_max: u32) -> Self {
        let scenario = prepared.scenario;
        let second = scenario.second.filter(|_| prepared.disks == 1);
        let workers = scenario.machine.cores.max(1);
        let devices: Vec<Running> = std::iter::repeat_n(scenario.device, prepared.disks as usize)
            .chain(second)
            .map(|device| Running::new(device, scenario.seed))
            .collect();
        let mut run = Self {
            prepared,
            now: 0,
            window,
            window_max,
            workers: workers as usize,
            busy: BinaryHeap::new(),
            idle: (0..workers).map(Reverse).collect(),
            slow: 1.0,
            known: prepared.units.known,
            issued: 0,
            in_flight: 0,
            ready: VecDeque::new(),
            held_bytes: 0,
            short: false,
            completed: 0,
            next: vec![u64::MAX; devices.len()],
            due: BTreeSet::new(),
            devices,
            neighbour: None,
            readers: Vec::new(),
            asked: 0,
            changed: false,
            tick: BATCH_NS,
            batch_ns: BATCH_NS,
            batch: Batch::default(),
            moment: None,
            gathered: 0,
            per_moment: 1,
            sums: [0.0; 4],
            flying: 0.0,
            outcome: Outcome::default(),
            ended: Vec::new(),
            flights: Vec::new(),
        };
        if let Some(neighbour) = scenario.neighbour {
            run.invite(neighbour);
        }
        run
    }

    fn unit(&self, id: u32) -> &'a Unit {
        &self.prepared.units.units[id as usize]
    }

    fn invite(&mut self, neighbour: Neighbour) {
        self.neighbour = Some(neighbour);
        // Not all at the same time.
        let step = neighbour.think_ns / u64::from(neighbour.readers.max(1));
        self.readers =
            (0..u64::from(neighbour.readers)).map(|i| (self.now + i * step, false)).collect();
    }

    /// Gives every idle worker its next step.
    fn dispatch(&mut self) {
        let machine = self.prepared.scenario.machine;
        while !self.idle.is_empty() {
            let held = self.in_flight + self.ready.len() as u32;
            let room = self.in_flight < self.window && held < self.window_max;
            let fits = held == 0 || self.held_bytes < machine.memory;
            self.short = room && !fits;
            let (cost, issues, work, id) = if room && fits && self.issued < self.known {
                let id = self.issued;
                self.issued += 1;
                let unit = self.unit(id);
                let first = unit.at == 0 || unit.bytes < super::job::CHUNK || unit.last;
                let call = machine.request_ns + if first { machine.open_ns } else { 0 };
                if unit.cached {
                    let copy = (unit.bytes as f64 * machine.byte_ns) as u64;
                    self.batch.hits += 1;
                    self.done(id);
                    (call + copy + unit.compute_ns, None, Work::Hit, id)
                } else {
                    self.in_flight += 1;
                    self.held_bytes += unit.bytes;
                    (call, Some(id), Work::Issue, id)
                }
            } else if let Some(id) = self.ready.pop_front() {
                let unit = self.unit(id);
                let copy = (unit.bytes as f64 * machine.byte_ns) as u64;
                self.held_bytes -= unit.bytes;
                self.done(id);
                let cost = machine.hand_off_ns + copy + unit.compute_ns;
                (cost, None, Work::Compute, id)
            } else {
                return;
            };
            let end = self.now.saturating_add(((cost.max(1)) as f64 * self.slow) as u64);
            let Some(Reverse(worker)) = self.idle.pop() else { return };
            self.busy.push(Reverse((end, worker, issues)));
            if self.outcome.steps.len() < self.prepared.recorded {
                let (start_ns, end_ns) = (self.now, end);
                self.outcome.steps.push(Step { worker, work, unit: id, start_ns, end_ns });
            }
        }
    }

    /// Counts a unit whose computing begins. The last step of a run is short compared with it.
    fn done(&mut self, id: u32) {
        let unit = self.unit(id);
        self.completed += 1;
        self.batch.files += u64::from(unit.last);
        self.batch.bytes += unit.bytes;
        self.known = self.known.max(unit.children.0 + unit.children.1);
        if 2 * self.completed >= self.prepared.units.units.len() && !self.changed {
            self.changed = true;
            self.outcome.changed_ns = Some(self.now);
            match self.prepared.scenario.change {
                Some(Change::Cap(cap)) => self.devices[0].cap(self.now.max(1), cap),
                Some(Change::Latency(ns)) => self.devices[0].slower(ns),
                Some(Change::Stall(ns)) => self.devices[0].stall(self.now, ns),
                Some(Change::Neighbour(neighbour)) => self.invite(neighbour),
                Some(Change::Slower(factor)) => self.slow = factor,
                None => {}
            }
            self.reschedule(0);
        }
    }

    /// Looks again when the next event of a device is.
    fn reschedule(&mut self, device: usize) {
        let next = self.devices[device].next();
        let before = std::mem::replace(&mut self.next[device], next);
        if before != next {
            self.due.remove(&(before, device));
            if next != u64::MAX {
                self.due.insert((next, device));
            }
        }
    }

    fn next_event(&self) -> u64 {
        let worker = self.busy.peek().map(|Reverse((end, ..))| *end);
        let device = self.due.first().map(|(next, _)| *next);
        let readers = self.readers.iter().filter(|(_, waits)| !waits).map(|(at, _)| *at);
        readers.chain(worker).chain(device).min().unwrap_or(u64::MAX).max(self.now)
    }

    fn advance(&mut self, to: u64) {
        let ns = (to - self.now) as f64;
        let starved = self.issued == self.known && self.in_flight < self.window;
        self.sums[0] += ns * self.idle.len() as f64;
        self.sums[1] += ns * f64::from(self.in_flight);
        self.sums[2] += if starved { ns } else { 0.0 };
        self.sums[3] += if self.short { ns } else { 0.0 };
        self.flying += ns * f64::from(self.in_flight);
        self.now = to;
        // Steps that end at the same time are in the order of the workers.
        while let Some(Reverse((end, worker, issues))) = self.busy.peek().copied()
            && end <= to
        {
            self.busy.pop();
            self.idle.push(Reverse(worker));
            if let Some(id) = issues {
                self.submit(to, worker, id);
            }
        }
        self.ask(to);
        let mut ended = std::mem::take(&mut self.ended);
        let due = self.due.iter().take_while(|(next, _)| *next <= to);
        let mut due: Vec<usize> = due.map(|(_, device)| *device).collect();
        due.sort_unstable();
        for device in due {
            self.devices[device].advance(to, &mut ended);
            self.reschedule(device);
        }
        for id in ended.drain(..) {
            if id >= NEIGHBOUR {
                self.answered(id, to);
            } else {
                self.in_flight -= 1;
                if self.outcome.sent.len() < self.prepared.recorded
                    && let Some(i) = self.flights.iter().position(|f| u64::from(f.unit) == id)
                {
                    let sent = self.flights.swap_remove(i);
                    self.outcome.sent.push(Sent { end_ns: to, ..sent });
                }
                self.batch.misses += 1;
                self.ready.push_back(id as u32);
            }
        }
        self.ended = ended;
    }

    /// Gives a device the request that a worker has issued.
    fn submit(&mut self, now: u64, worker: u32, id: u32) {
        let unit = self.unit(id);
        let request = Request { id: u64::from(id), at: unit.at, bytes: unit.bytes };
        let device = usize::from(unit.device).min(self.devices.len() - 1);
        self.devices[device].submit(now, request);
        self.reschedule(device);
        if self.flights.len() < self.prepared.recorded {
            let (at, bytes, device) = (unit.at, unit.bytes, device as u32);
            let (issue_ns, end_ns) = (now, now);
            self.flights.push(Sent { unit: id, device, at, bytes, worker, issue_ns, end_ns });
        }
    }

    /// Issues the neighbour's requests that are due.
    fn ask(&mut self, now: u64) {
        for reader in 0..self.readers.len() {
            let (at, waits) = self.readers[reader];
            if waits || at > now {
                continue;
            }
            self.readers[reader] = (now, true);
            let place = Draws::new(self.prepared.scenario.seed, 9).below(self.asked, 1 << 34);
            let id = NEIGHBOUR + reader as u64;
            self.devices[0].submit(now, Request { id, at: place, bytes: 4096 });
            self.reschedule(0);
            self.asked += 1;
        }
    }

    fn answered(&mut self, id: u64, now: u64) {
        let reader = (id - NEIGHBOUR) as usize;
        let (asked, _) = self.readers[reader];
        self.outcome.neighbour_ns.push(now - asked);
        let think = self.neighbour.map_or(0, |neighbour| neighbour.think_ns);
        // Thinking times vary a little, so that loops do not stay in step.
        let vary = Draws::new(self.prepared.scenario.seed, 10).unit(self.asked) * 0.2 + 0.9;
        self.readers[reader] = (now + (think as f64 * vary) as u64, false);
    }

    /// Reports whether nothing is at a device and no step ends for a long time until `event`.
    fn rests(&self, event: u64) -> bool {
        self.in_flight == 0 && event.saturating_sub(self.now) >= REST_NS
    }

    /// Passes over the whole batches before `event`, which are one batch for a tuner that observes them.
    fn pass_over(&mut self, event: u64, tuner: &mut dyn Tuner) {
        let from = self.now;
        self.skip(event);
        let elapsed_ns = self.now - from;
        if tuner.is_fixed() || elapsed_ns == 0 {
            return;
        }
        let starved = self.issued == self.known && self.in_flight < self.window;
        tuner.observe(&Batch {
            elapsed_ns,
            idle: self.idle.len() as f64 / self.workers as f64,
            ready: self.ready.len() as u32,
            input_limited: f64::from(u8::from(starved)),
            memory_limited: f64::from(u8::from(self.short)),
            ..Batch::default()
        });
        self.window = tuner.window().clamp(1, self.window_max);
    }

    fn observe(&mut self, tuner: &mut dyn Tuner) {
        let ns = self.batch_ns as f64;
        let batch = Batch {
            elapsed_ns: self.batch_ns,
            idle: self.sums[0] / ns / self.workers as f64,
            in_flight: self.sums[1] / ns,
            ready: self.ready.len() as u32,
            input_limited: self.sums[2] / ns,
            memory_limited: self.sums[3] / ns,
            ..self.batch
        };
        tuner.observe(&batch);
        self.window = tuner.window().clamp(1, self.window_max);
        let moment = Moment {
            at_ns: self.now,
            window: self.window,
            in_flight: self.in_flight,
            requests: batch.misses + batch.hits,
            bytes: batch.bytes,
            idle: batch.idle,
        };
        self.note(moment, self.batch_ns / BATCH_NS);
        self.batch = Batch::default();
        self.sums = [0.0; 4];
        self.begin_batch();
    }

    /// Sets the end of the next batch.
    fn begin_batch(&mut self) {
        if self.now >= LONG_NS && self.now / self.batch_ns >= BATCHES_LONG {
            self.batch_ns *= 2;
        }
        self.tick += self.batch_ns;
    }

    /// Passes over the whole batches that end before `event`, if the present one has just begun. Nothing
    /// happens in them.
    fn skip(&mut self, event: u64) {
        let has_begun = self.now > 0 && self.now + self.batch_ns == self.tick;
        if !has_begun || self.batch != Batch::default() {
            return;
        }
        while self.tick < event {
            let unit = self.batch_ns / BATCH_NS;
            let whole = (event - 1 - self.now) / self.batch_ns;
            let full = (self.per_moment - self.gathered).div_ceil(unit);
            // After these, batches may become longer.
            let equal = (BATCHES_LONG * self.batch_ns).saturating_sub(self.now) / self.batch_ns;
            let count = whole.min(full).min(equal).max(1);
            let batch_ns = self.batch_ns as f64;
            let idle = batch_ns * self.idle.len() as f64 / batch_ns / self.workers as f64;
            self.flying += (count * self.batch_ns) as f64 * f64::from(self.in_flight);
            self.now += count * self.batch_ns;
            let (at_ns, window, in_flight) = (self.now, self.window, self.in_flight);
            let moment = Moment { at_ns, window, in_flight, requests: 0, bytes: 0, idle };
            self.note(moment, count * unit);
            self.tick = self.now;
            self.begin_batch();
        }
    }

    /// Adds to the timeline what consists of so many batches of [`BATCH_NS`].
    fn note(&mut self, batch: Moment, batches: u64) {
        let before = self.moment.take();
        let moment = before.map_or(batch, |before| before.and(&batch, self.gathered, batches));
        self.gathered += batches;
        if self.gathered < self.per_moment {
            self.moment = Some(moment);
            return;
        }
        self.gathered = 0;
        self.outcome.timeline.push(moment);
        if self.outcome.timeline.len() >= MOMENTS_MAX {
            let pairs =
                self.outcome.timeline.chunks_exact(2).map(|pair| pair[0].and(&pair[1], 1, 1));
            self.outcome.timeline = pairs.collect();
            self.per_moment *= 2;
        }
    }

    fn finish(mut self) -> Outcome {
        // The last steps of the workers.
        let last = self.busy.iter().map(|Reverse((end, ..))| *end).max().unwrap_or(self.now);
        self.outcome.ns = last.max(self.now);
        self.outcome.completed = self.completed;
        self.outcome.in_flight = self.flying / (self.now as f64).max(1.0);
        self.outcome
    }
}
