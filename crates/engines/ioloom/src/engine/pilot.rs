//! Runs the controller of a run with an `auto` plan (`control::Auto`).
//!
//! The watching thread calls [`Pilot::check`] about every five milliseconds. It adds up the counters
//! that each thread keeps in its own cache line, and gathers the differences until enough reads have
//! completed (`control::Gather`), which smooths the bursts in which reads of one queue complete. Then
//! the controller decides, and the limit on files in flight is set, which workers read with one relaxed
//! load. The threads themselves count nothing for this that they would not count anyway, except
//! completed misses.
//!
//! Files in flight are those of workers and of blocking threads together. Where reads block because
//! the file system does not support `RWF_NOWAIT`, a worker has one in flight and the rest of the
//! limit belongs to blocking threads.
//!
//! While memory is short in the control group of the process, or on the machine where groups do not
//! report it, the limit is halved every tenth of a second; afterwards it doubles every second. While it is
//! below the window of the controller, the controller does not measure.

use super::choice::Choice;
use super::remaining::Remaining;
use crate::shared::Shared;
use ioloom_budget::Permits;
use ioloom_control::{Auto, AutoLimits, BATCH_NS, Batch, Gather};
use ioloom_model::layout::Role;
use ioloom_model::{Decided, ReadAhead, Tuned, TunedPoint, Tuning};
use ioloom_observe::GaugeCounts;
use ioloom_sys::cgroup;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::{ProcFile, Usage, parse};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Waits of threads that are remembered.
const WAITS_MAX: u64 = 1024;

/// Decisions of memory pressure that are kept.
const PRESSED_MAX: usize = 256;

/// The controller of a run and what it has seen.
pub(super) struct Pilot<'e> {
    shared: &'e Shared<'e>,
    auto: Auto,
    choice: Choice<'e>,
    gather: Gather,
    remaining: Remaining,
    /// Waits of threads for reads that have not been counted yet.
    waits: u64,
    pressure: MemoryPressure,
    start_ns: u64,
    /// Time from the start to the first batch, at which the time of the controller begins.
    offset_ns: u64,
    before: Counts,
    /// Moving mean of the share of permits that are held.
    held: f64,
    next_ns: u64,
    /// Decisions that memory pressure made, the first ones.
    pressed: Vec<Decided>,
    pressed_dropped: u64,
}

/// What had happened at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    at_ns: u64,
    done: GaugeCounts,
    /// Processor time of the process.
    cpu_ns: u64,
    /// Waits of threads for reads.
    waits: u64,
    /// Later pieces that waited for a device.
    waited_later: u64,
    /// First reads of files that blocked because the file system does not support `RWF_NOWAIT`.
    unanswered: u64,
    /// Reads of later pieces that blocked for that reason.
    unanswered_later: u64,
    refused: u64,
    /// Files that failed.
    failed: u64,
}

impl Counts {
    /// Returns what the threads of a run have done until `at_ns`.
    fn of(shared: &Shared<'_>, at_ns: u64, usage: &Usage, waits: u64) -> Self {
        Self {
            at_ns,
            done: shared.gauges.counts(),
            cpu_ns: usage.user_ns + usage.system_ns,
            waits,
            waited_later: shared.waited_later.load(Ordering::Relaxed),
            unanswered: shared.unanswered.load(Ordering::Relaxed),
            unanswered_later: shared.unanswered_later.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            failed: shared.failed.load(Ordering::Relaxed),
        }
    }
}

/// What is true at the end of a batch, rather than counted during it.
#[derive(Debug, Clone, Copy, Default)]
struct Present {
    permits: u32,
    /// Mean share of permits that are held.
    held: f64,
    input_empty: bool,
    memory_short: bool,
}

impl<'e> Pilot<'e> {
    /// Returns the controller of a run, if its plan has one.
    pub(super) fn new(shared: &'e Shared<'e>) -> Option<Self> {
        let polite = match shared.plan.tuning {
            Tuning::Fixed => return None,
            Tuning::Auto => false,
            Tuning::Polite => true,
        };
        let ReadAhead::Files(window_max) = shared.layout.window else { return None };
        // The disk of a tree or a stream is not known, and that of the first file stands for a list.
        let first = shared.source.first();
        let groups = first.map(|_| cgroup::own_groups());
        let caps = first.zip(groups.as_deref()).map(|(path, own)| cgroup::limits_of(path, own));
        let caps = caps.unwrap_or_default();
        let pressure = move || cgroup::memory_pressure(&groups.unwrap_or_else(cgroup::own_groups));
        let auto = Auto::new(AutoLimits {
            window_max,
            permits: shared.layout.permits.unwrap_or(1),
            start: None,
            polite,
            remaining: shared.source.len().map(|files| files as u64),
            cap_per_s: caps.reads_per_s,
            cap_bytes_per_s: caps.bytes_per_s,
        });
        let now_ns = monotonic_ns();
        Some(Self {
            shared,
            auto,
            choice: Choice::new(shared, window_max),
            gather: Gather::default(),
            remaining: Remaining::default(),
            waits: 0,
            pressure: MemoryPressure::new(pressure, window_max),
            start_ns: now_ns,
            offset_ns: 0,
            before: Counts { at_ns: now_ns, ..Counts::default() },
            held: 0.0,
            next_ns: now_ns + BATCH_NS,
            pressed: Vec::new(),
            pressed_dropped: 0,
        })
    }

    /// Returns the time until the next decision.
    pub(super) fn pause_ns(&self) -> u64 {
        self.next_ns.saturating_sub(monotonic_ns()).max(BATCH_NS / 8)
    }

    /// Makes a decision if it is time, given the processor time and the waits of the process.
    /// `workers` run. Returns how many blocking threads may run.
    pub(super) fn check(&mut self, usage: &Usage, waits: u64, workers: u32) -> u32 {
        let now_ns = monotonic_ns();
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + BATCH_NS;
            self.decide(now_ns, usage, waits);
            self.heed_pressure(now_ns);
        }
        let limit = self.window().min(self.pressure.limit);
        // Reads of workers block, too, so a worker has at most one of them in flight.
        let blocking = match self.shared.unanswered.load(Ordering::Relaxed) {
            0 => 0,
            _ => limit.saturating_sub(workers).min(self.shared.layout.max_of(Role::Blocking)),
        };
        // What threads that rest or have not started leave belongs to the workers.
        self.set_limit(limit - blocking.min(self.shared.blocking.active()));
        blocking
    }

    fn decide(&mut self, now_ns: u64, usage: &Usage, waits: u64) {
        let shared = self.shared;
        let permits = shared.layout.permits.unwrap_or(1);
        let held = shared.permits.as_ref().map_or(0, Permits::held) as f64 / f64::from(permits);
        self.held += (held.min(1.0) - self.held) / 8.0;
        let now = Counts::of(shared, now_ns, usage, waits);
        let source = shared.source;
        let present = Present {
            permits,
            held: self.held,
            // A list waits for nothing.
            input_empty: source.len().is_none() && source.waiting() == 0 && !source.has_ended(),
            memory_short: shared.budget.is_waited_for(),
        };
        // The first batch would include the start of the process.
        if self.before.cpu_ns > 0 {
            let batch = batch(&self.before, &now, present, &mut self.waits);
            let window = self.window();
            if self.pressure.limit < window {
                // The window does not apply, so its rate must not be compared with others.
                if let Some(part) = self.gather.take() {
                    self.auto.restrain(&part, window);
                }
                self.choice.disturb(&mut self.auto);
                self.auto.restrain(&batch, self.pressure.limit);
            } else if let Some(batch) = self.gather.add(&batch, self.window()) {
                let left = self.remaining.files(source, now.done.files + now.failed);
                self.auto.set_remaining(left.map(|files| files + batch.files));
                let at = (now_ns.saturating_sub(self.start_ns), usage.read_bytes);
                self.choice.observe(&mut self.auto, &batch, at);
            }
        } else {
            self.offset_ns = now_ns.saturating_sub(self.start_ns);
        }
        self.before = now;
    }

    /// Returns the window in force, without pressure.
    fn window(&self) -> u32 {
        self.choice.window().unwrap_or(self.auto.window())
    }

    fn heed_pressure(&mut self, now_ns: u64) {
        let permits = self.shared.layout.permits.unwrap_or(1);
        let window = self.window();
        let from = self.pressure.limit.min(window);
        if let Some(share) = self.pressure.check(now_ns, permits, window) {
            let to = self.pressure.limit.min(window);
            if to == from {
                return;
            }
            if self.pressed.len() == PRESSED_MAX {
                self.pressed_dropped += 1;
                return;
            }
            self.pressed.push(Decided {
                at_ns: now_ns.saturating_sub(self.start_ns),
                from,
                window: to,
                reason: waited(share),
            });
        }
    }

    fn set_limit(&self, limit: u32) {
        let before = self.shared.window.limit();
        if limit != before {
            self.shared.window.set_limit(limit);
            if limit > before {
                self.shared.spare_bell.ring_all();
            }
        }
    }

    /// Returns what the controller did.
    pub(super) fn finish(mut self, priority: Option<String>) -> Tuned {
        // What an unfinished comparison has lost counts as well.
        self.choice.disturb(&mut self.auto);
        let (log, cost, offset_ns) = (self.auto.log(), self.auto.cost(), self.offset_ns);
        let why = self.pressure.why(self.auto.window(), self.choice.why(&self.auto));
        let mut decisions: Vec<Decided> = log
            .decisions()
            .map(|decision| Decided {
                at_ns: decision.at_ns.saturating_add(offset_ns),
                from: decision.from,
                window: decision.window,
                reason: decision.reason.to_string(),
            })
            .chain(self.pressed)
            .chain(self.choice.refused(self.start_ns, self.auto.window()))
            .collect();
        decisions.sort_by_key(|decided| decided.at_ns);
        let points = log.points().iter().map(|point| TunedPoint {
            at_ns: point.at_ns.saturating_add(offset_ns),
            elapsed_ns: point.elapsed_ns,
            window: point.window,
            in_flight: point.in_flight,
            files_per_s: point.files_per_s,
            bytes_per_s: point.bytes_per_s,
            idle: point.idle,
        });
        Tuned {
            why,
            decisions,
            decisions_dropped: log.dropped() + self.pressed_dropped,
            points: points.collect(),
            probing_ns: cost.probing_ns,
            choice_ns: cost.choice_ns,
            priority,
        }
    }
}

/// Returns what happened between two moments. `waits`: threads that waited for reads and were not
/// matched with a read, because a thread begins to wait before its read is counted.
fn batch(before: &Counts, now: &Counts, present: Present, waits: &mut u64) -> Batch {
    let elapsed_ns = now.at_ns.saturating_sub(before.at_ns);
    let files = now.done.files.saturating_sub(before.done.files);
    // Reads that cannot be asked whether they would wait have waited if threads did.
    let first = now.unanswered.saturating_sub(before.unanswered);
    let later = now.unanswered_later.saturating_sub(before.unanswered_later);
    *waits = (*waits + now.waits.saturating_sub(before.waits)).min(WAITS_MAX);
    let have_waited = *waits * 2 >= first + later;
    *waits = waits.saturating_sub(first + later);
    let (first, later) = if have_waited { (first, later) } else { (0, 0) };
    // A file is a hit if its first piece is; later pieces that waited are misses besides.
    let files_missed = now.done.waited.saturating_sub(before.done.waited) + first;
    let pieces_missed = now.waited_later.saturating_sub(before.waited_later) + later;
    let cpu_ns = now.cpu_ns.saturating_sub(before.cpu_ns);
    let area_ns = elapsed_ns.saturating_mul(u64::from(present.permits)).max(1);
    // A permit that is held by a function that waits is not idle.
    let busy = (cpu_ns as f64 / area_ns as f64).max(present.held);
    Batch {
        elapsed_ns,
        files,
        idle: (1.0 - busy).clamp(0.0, 1.0),
        locked: 0.0,
        bytes: now.done.bytes.saturating_sub(before.done.bytes),
        hits: files.saturating_sub(files_missed),
        misses: files_missed + pieces_missed,
        in_flight: f64::from(before.done.in_flight + now.done.in_flight) / 2.0,
        input_limited: f64::from(u8::from(present.input_empty)),
        memory_limited: f64::from(u8::from(present.memory_short)),
        // They count towards the places of the run, not towards the limit of the controller.
        ready: now.done.ready,
        refused: now.refused.saturating_sub(before.refused),
        first_ns: None,
    }
}

/// Interval of checks of the memory pressure.
const PRESSURE_NS: u64 = 100_000_000;
/// Share of time in which some task waited for memory that counts as pressure.
const PRESSURE_SHARE: f64 = 0.1;
/// Checks without pressure after which the limit is doubled.
const CALM: u32 = 10;

/// A limit on files in flight that falls while memory is short.
struct MemoryPressure {
    /// Finds the file at the first check, which short runs do not reach.
    find: Option<Box<dyn FnOnce() -> PathBuf + Send>>,
    file: Option<ProcFile>,
    most: u32,
    limit: u32,
    /// Share of time stalled for which the limit was lowered last.
    share: f64,
    /// Time of the last check, and the time stalled until then, microseconds.
    last: Option<(u64, u64)>,
    calm: u32,
}

/// Returns the reason of a decision after memory was short, or no longer was, for this share of time.
fn waited(share: f64) -> String {
    format!("tasks waited for memory {:.0} % of the time", 100.0 * share)
}

impl MemoryPressure {
    fn new(find: impl FnOnce() -> PathBuf + Send + 'static, most: u32) -> Self {
        let find: Option<Box<dyn FnOnce() -> PathBuf + Send>> = Some(Box::new(find));
        Self { find, file: None, most, limit: most, share: 0.0, last: None, calm: 0 }
    }

    /// Returns the reason for the files in flight: that of the controller for its `window`, after that of a
    /// limit below it.
    fn why(&self, window: u32, why: String) -> String {
        if self.limit >= window {
            return why;
        }
        format!("{} in flight: {}; without that {why}", self.limit, waited(self.share))
    }

    /// Reads the pressure if it is time; `window` is in force without it. Returns the share of time stalled
    /// if the limit changed.
    fn check(&mut self, now_ns: u64, least: u32, window: u32) -> Option<f64> {
        if self.last.is_some_and(|(at_ns, _)| now_ns < at_ns + PRESSURE_NS) {
            return None;
        }
        if let Some(find) = self.find.take() {
            self.file = ProcFile::open(&find(), 512).ok();
        }
        let some_us = parse::parse_pressure(self.file.as_mut()?.read().ok()?)?.some_us;
        let (at_ns, before_us) = self.last.replace((now_ns, some_us))?;
        let stalled_ns = some_us.saturating_sub(before_us) as f64 * 1e3;
        self.adjust(stalled_ns / (now_ns - at_ns).max(1) as f64, least, window)
    }

    fn adjust(&mut self, share: f64, least: u32, window: u32) -> Option<f64> {
        let before = self.limit;
        if share > PRESSURE_SHARE {
            self.calm = 0;
            self.share = share;
            // Above the window, the limit has no effect.
            let halved = (self.limit.min(window) / 2).max(least);
            self.limit = halved.min(self.limit).min(self.most);
        } else if self.limit < self.most {
            self.calm += 1;
            if self.calm >= CALM {
                self.calm = 0;
                self.limit = self.limit.saturating_mul(2).min(self.most);
            }
        }
        (self.limit != before).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::super::work::RunOptions;
    use super::*;
    use crate::cancel::Cancel;
    use crate::claim::Claim;
    use crate::fetch::{self, Cx, Reaped, Started};
    use crate::source::{Listed, Next, Source};
    use crate::take::Take;
    use ioloom_budget::Budget;
    use ioloom_model::{Plan, ReadOrder};
    use ioloom_observe::{Detail, Meter};
    use ioloom_sys::file::{Nowait, read_nowait_at};
    use ioloom_walk::PathList;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Arc;
    use std::time::Duration;

    /// Evicts a file. Returns whether nothing of it is in memory: pages of a readahead stay until it ends,
    /// and those of a file system in memory always.
    fn evict(file: &std::fs::File, bytes: usize) -> bool {
        (0..50).any(|_| {
            ioloom_sys::cache::evict_file(file).unwrap();
            let resident = ioloom_sys::cache::resident_pages(file, bytes as u64);
            let is_evicted = matches!(resident, Ok(Some(0)));
            if !is_evicted {
                std::thread::sleep(Duration::from_millis(1));
            }
            is_evicted
        })
    }

    /// Returns how many of the later pieces of a file count as read from the device, and how many do if each
    /// that is not in memory does. Before each piece, the file is evicted if `evicts`.
    fn later_pieces(bytes: usize, evicts: bool) -> (u64, u64) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; bytes]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        // Dirty pages stay.
        ioloom_sys::cache::write_back(&file).unwrap();
        let (mut list, cancel) = (PathList::default(), Cancel::new());
        // As a walk finds it, so that its size is not known.
        list.push_found(&[path.as_os_str().as_bytes()], 1);
        let source = Source::list(Listed::Borrowed(&list), ReadOrder::List, None, &cancel);
        let plan: Plan = "nowait/window:l=8,p=2/chunk=16KiB,auto".parse().unwrap();
        let budget = Arc::new(Budget::new(plan.memory_bytes));
        let shared = prepare(&source, plan, budget, &RunOptions::default()).unwrap();
        let mut fetch = fetch::make::<()>(&shared, 0, 8).unwrap();
        let mut meter = Meter::start(monotonic_ns(), Detail::Totals);
        let meter = &mut meter;
        let mut cx = Cx { shared: &shared, meter, may_wait: true, idle: false, kept: None };
        let take = Take { stripe: 1, threads: 1, paced: false };
        let Next::Item(item) = source.next(&mut Claim::default(), take) else { unreachable!() };
        let mut started = fetch.start(&mut cx, item, None);
        let (mut reaped, mut read, mut evicted) = (Reaped::new(), 0, 0);
        loop {
            let piece = match started {
                Started::Ready(piece) => piece,
                Started::Pending => {
                    fetch.reap(&mut cx, true, &mut reaped).unwrap();
                    reaped.pop_front().unwrap().unwrap()
                }
                Started::Failed(error) => panic!("{error}"),
                Started::Later(_) => unreachable!("descriptors are free"),
            };
            read += piece.len;
            if piece.last {
                break;
            }
            evicted += u64::from(evicts && read < bytes && evict(&file, bytes));
            started = fetch.resume(&mut cx, piece);
        }
        assert_eq!(read, bytes);
        let asked = read_nowait_at(&file, &mut [0], 0);
        let is_supported = !matches!(asked, Ok(Nowait::Unsupported | Nowait::Refused));
        let counts = Counts::of(&shared, 0, &Usage::default(), 0);
        let (counted, other) = match is_supported {
            true => (counts.waited_later, counts.unanswered_later),
            false => (counts.unanswered_later, counts.waited_later),
        };
        assert_eq!(other, 0, "{bytes} bytes, supported: {is_supported}");
        // Elsewhere it is not known what is in memory.
        (counted, if is_supported { evicted } else { 2 })
    }

    #[test]
    fn later_pieces_count_if_they_wait() {
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        if !matches!(ioloom_sys::cache::resident_pages(&own, 4096), Ok(Some(_))) {
            return; // This kernel does not say what is in memory.
        }
        // Each ends with a piece of its own: at a page boundary, inside a page, at the end of a chunk.
        for bytes in [2 * 16_384 + 4096, 2 * 16_384 + 100, 3 * 16_384] {
            for evicts in [false, true] {
                // The system can evict more pages, or read some ahead before they are needed.
                // While the disk is busy, readahead ends late.
                let mut tries = (0..10).map(|at| {
                    std::thread::sleep(Duration::from_millis(200 * at));
                    later_pieces(bytes, evicts)
                });
                let seen: Vec<_> =
                    tries.by_ref().take_while(|(seen, wanted)| seen != wanted).collect();
                assert!(seen.len() < 10, "{bytes} bytes, evicted: {evicts}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_batch_is_the_difference_of_two_moments() {
        let done = GaugeCounts { files: 100, bytes: 1000, waited: 40, in_flight: 8, ready: 20 };
        let before = Counts { at_ns: 1000, done, cpu_ns: 500, ..Counts::default() };
        let done = GaugeCounts { files: 200, bytes: 5000, waited: 70, in_flight: 4, ready: 300 };
        let now = Counts { at_ns: 2000, done, cpu_ns: 1000, refused: 2, ..before };
        let present = Present { permits: 2, ..Present::default() };
        let seen = batch(&before, &now, present, &mut 0);
        assert_eq!((seen.elapsed_ns, seen.files, seen.bytes), (1000, 100, 4000));
        assert_eq!((seen.misses, seen.hits, seen.refused), (30, 70, 2));
        assert_eq!((seen.in_flight, seen.idle, seen.ready), (6.0, 0.75, 300));
        let asleep = batch(&before, &now, Present { held: 1.0, ..present }, &mut 0);
        assert_eq!(asleep.idle, 0.0, "a function that sleeps holds its permit");
        let later = Counts { waited_later: 500, ..now };
        let seen = batch(&before, &later, present, &mut 0);
        assert_eq!((seen.misses, seen.hits), (530, 70), "later pieces are not files");
    }

    #[test]
    fn reads_without_an_answer_count_if_threads_waited() {
        let now = |waits| Counts { at_ns: 10, unanswered: 50, waits, ..Counts::default() };
        let files = GaugeCounts { files: 60, ..GaugeCounts::default() };
        let misses = |waits, earlier: &mut u64| {
            batch(&Counts::default(), &now(waits), Present::default(), earlier).misses
        };
        assert_eq!(
            (misses(3, &mut 0), misses(40, &mut 0)),
            (0, 50),
            "in memory, and behind a server"
        );
        let later = Counts { unanswered_later: 150, done: files, ..now(100) };
        let seen = batch(&Counts::default(), &later, Present::default(), &mut 0);
        assert_eq!((seen.misses, seen.hits), (200, 10), "50 files of 60, and later pieces");
        let mut earlier = 0;
        let none = Counts { waits: 60, ..Counts::default() };
        batch(&Counts::default(), &none, Present::default(), &mut earlier);
        assert_eq!((misses(0, &mut earlier), earlier), (50, 10), "threads waited before");
    }

    #[test]
    fn memory_pressure_halves_the_limit_and_calm_restores_it() {
        let mut pressure = MemoryPressure::new(|| PathBuf::from("/nonexistent"), 100);
        assert_eq!(pressure.check(0, 2, 100), None);
        assert_eq!(pressure.adjust(0.05, 2, 100), None);
        assert_eq!((pressure.adjust(0.5, 2, 100), pressure.limit), (Some(0.5), 50));
        for _ in 0..10 {
            pressure.adjust(0.5, 2, 100);
        }
        assert_eq!(pressure.limit, 2);
        let steps = (0..100).filter(|_| pressure.adjust(0.0, 2, 100).is_some()).count();
        assert_eq!((steps, pressure.limit), (6, 100));
    }

    #[test]
    fn memory_pressure_halves_a_window_below_the_limit_at_once() {
        let mut pressure = MemoryPressure::new(|| PathBuf::from("/nonexistent"), 1024);
        assert_eq!((pressure.adjust(0.5, 2, 32), pressure.limit), (Some(0.5), 16));
        assert_eq!((pressure.adjust(0.5, 2, 32), pressure.limit), (Some(0.5), 8));
        let why = |window| pressure.why(window, format!("{window} in flight: start value"));
        let short = "8 in flight: tasks waited for memory 50 % of the time; without that 32 in";
        assert!(why(32).starts_with(short), "{}", why(32));
        assert_eq!(why(8), "8 in flight: start value");
    }

    #[test]
    fn pressure_is_read_from_the_text_of_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        let text = |total| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        std::fs::write(&path, text(1_000)).unwrap();
        let file = path.clone();
        let mut pressure = MemoryPressure::new(move || file, 64);
        assert_eq!(pressure.check(PRESSURE_NS, 1, 64), None, "nothing to compare with");
        std::fs::write(&path, text(51_000)).unwrap();
        assert_eq!(pressure.check(PRESSURE_NS + 1, 1, 64), None, "too early");
        assert_eq!((pressure.check(2 * PRESSURE_NS, 1, 64), pressure.limit), (Some(0.5), 32));
    }
}
