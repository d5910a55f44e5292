//! Sorts incoming events by thread, processor and device. No I/O.
//!
//! Thread events are stored only for known threads; processor usage and device requests are stored
//! for the whole machine. All storage is bounded: events beyond the limit are counted as lost.

use ioloom_sys_trace::perf::record::Record;
use ioloom_sys_trace::tracefs::event::{Event, EventData, Kind};
use ioloom_trace::Wake;
use ioloom_trace::raw::{Fault, LockWait, Switch};
use ioloom_trace::{CoreRun, Request};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Lock flag bit: the lock spins, so no thread leaves its processor.
const LOCK_SPINS: u32 = 1;
/// State bits that give the reason why a thread left; if none is set, it could have continued.
const STATE_BLOCKED: u32 = 0xFF;
const STATE_UNINTERRUPTIBLE: u32 = 2;
/// Maximum number of threads with events; a large build has one per process.
const THREADS_MAX: usize = 1 << 16;

/// Kernel events of one thread.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) pid: u32,
    pub(super) name: Option<String>,
    /// Whether it is a kernel worker for one of our rings.
    pub(super) kernel_worker: bool,
    pub(super) begin_ns: Option<u64>,
    pub(super) end_ns: Option<u64>,
    /// Start time in ticks since boot, which distinguishes threads that had the same ID.
    pub(super) start_ticks: Option<u64>,
    /// Time when another thread got its ID.
    pub(super) reused_ns: Option<u64>,
    /// Switches from the thread's own ring.
    pub(super) own: Vec<Switch>,
    /// Switches from scheduler events.
    pub(super) sched: Vec<Switch>,
    pub(super) wakes: Vec<Wake>,
    pub(super) faults: Vec<Fault>,
    pub(super) locks: Vec<LockWait>,
    pub(super) lock_since: Option<u64>,
}

/// The thread on a processor.
#[derive(Debug, Default)]
struct Core {
    runs: Vec<CoreRun>,
    holder: Option<(u32, u64)>,
}

/// Everything gathered so far, with times on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Gather {
    pub(super) threads: BTreeMap<u32, Stream>,
    /// Threads whose IDs the kernel has reused, oldest first.
    pub(super) replaced: BTreeMap<u32, Vec<Stream>>,
    /// Number of these threads.
    replaced_count: usize,
    /// Whether threads created by known threads become known.
    pub(super) follow: bool,
    pub(super) events_max: usize,
    pub(super) requests: Vec<Request>,
    /// Device numbers, in the order of [`Request::device`].
    pub(super) devices: Vec<u32>,
    pub(super) chain_breaks: u64,
    /// Number of stored events by kind.
    pub(super) kept: BTreeMap<Kind, u64>,
    /// Number of delivered switches from the rings of threads.
    pub(super) own_switches: u64,
    /// Those of them that were stored.
    pub(super) own_kept: u64,
    /// Number of stored page faults.
    pub(super) own_faults: u64,
    /// Records reported as lost by the rings.
    pub(super) reported_lost: u64,
    /// Events beyond the limit.
    pub(super) over: u64,
    /// Those of them that came from the rings of threads.
    pub(super) own_over: u64,
    /// Time of the earliest of them.
    pub(super) full_ns: Option<u64>,
    /// Records from the rings of the program about threads that are not known.
    pub(super) unknown: u64,
    /// Maximum number of threads that become known by following others.
    pub(super) threads_max: usize,
    /// Threads beyond this number.
    pub(super) left_out: BTreeSet<u32>,
    /// Malformed records.
    pub(super) broken: u64,
    cores: Vec<Core>,
    open: HashMap<(u32, u64), usize>,
    stored: usize,
}

impl Gather {
    pub(super) fn new(events_max: usize, follow: bool) -> Self {
        Self { events_max, follow, threads_max: THREADS_MAX, ..Self::default() }
    }

    /// Makes a thread known and returns its events.
    pub(super) fn know(&mut self, tid: u32) -> &mut Stream {
        self.threads.entry(tid).or_default()
    }

    /// Like [`Gather::know`], but counts a new thread beyond the limit instead.
    pub(super) fn discover(&mut self, tid: u32) -> Option<&mut Stream> {
        let count = self.threads.len() + self.replaced_count;
        if count >= self.threads_max && !self.threads.contains_key(&tid) {
            self.left_out.insert(tid);
            return None;
        }
        Some(self.know(tid))
    }

    /// Sets a thread aside because another thread got its ID at `at_ns`.
    pub(super) fn replace(&mut self, tid: u32, at_ns: u64) {
        let Some(mut stream) = self.threads.remove(&tid) else { return };
        stream.reused_ns = Some(at_ns);
        self.replaced.entry(tid).or_default().push(stream);
        self.replaced_count += 1;
    }

    /// Removes all threads and returns them by ID, those with the same ID by age.
    pub(super) fn take_threads(&mut self) -> Vec<(u32, Stream)> {
        let replaced = std::mem::take(&mut self.replaced).into_iter();
        let mut all: Vec<(u32, Stream)> = replaced
            .flat_map(|(tid, streams)| streams.into_iter().map(move |stream| (tid, stream)))
            .collect();
        all.extend(std::mem::take(&mut self.threads));
        all.sort_by_key(|(tid, _)| *tid);
        all
    }

    /// Returns the events of a thread if it is known, or counts a record that is lost with it.
    fn known(&mut self, tid: u32) -> Option<&mut Stream> {
        let stream = self.threads.get_mut(&tid);
        self.unknown += u64::from(stream.is_none() && !self.left_out.contains(&tid));
        stream
    }

    /// Reports whether a thread is known or was left out.
    fn is_ours(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid) || self.left_out.contains(&tid)
    }

    /// Reports whether a thread that was on a processor from `start_ns` is known or was left out.
    fn was_ours(&self, tid: u32, start_ns: u64) -> bool {
        let mut replaced = self.replaced.get(&tid).into_iter().flatten();
        self.is_ours(tid)
            || replaced.any(|stream| stream.reused_ns.is_none_or(|reused_ns| start_ns < reused_ns))
    }

    /// Reports whether another event can be stored, or counts it.
    fn room(&mut self, at_ns: u64) -> bool {
        let room = self.stored < self.events_max;
        if room {
            self.stored += 1;
        } else {
            self.over += 1;
            self.full_ns = Some(self.full_ns.map_or(at_ns, |full_ns| full_ns.min(at_ns)));
        }
        debug_assert!(self.stored <= self.events_max, "more events stored than the limit allows");
        room
    }

    /// Adds a record from a thread's own ring.
    pub(super) fn own(&mut self, record: Record) {
        let over_before = self.over;
        match record {
            Record::Switch { at_ns, tid, cpu, out, preempted, .. } => {
                self.own_switches += 1;
                let cpu = u16::try_from(cpu).unwrap_or(ioloom_trace::NO_CPU);
                let (uninterruptible, next_tid) = (false, 0);
                if self.known(tid).is_some() && self.room(at_ns) {
                    let switch = Switch { at_ns, out, preempted, uninterruptible, cpu, next_tid };
                    self.know(tid).own.push(switch);
                    self.own_kept += 1;
                }
            }
            Record::Fault { at_ns, tid, address, .. } => {
                if self.known(tid).is_some() && self.room(at_ns) {
                    self.know(tid).faults.push(Fault { at_ns, address });
                    self.own_faults += 1;
                }
            }
            Record::Lost { count } => self.reported_lost += count,
            Record::Begin { at_ns, pid, tid, parent_tid } => {
                self.unknown += u64::from(!self.is_ours(parent_tid));
                self.begins(at_ns, tid, parent_tid, None, Some(pid));
            }
            Record::End { at_ns, tid, .. } => {
                if let Some(stream) = self.known(tid) {
                    stream.end_ns = Some(at_ns);
                }
            }
            Record::Name { tid, name, .. } => {
                if let Some(stream) = self.known(tid) {
                    stream.name = Some(text(&name));
                }
            }
            Record::Other => {}
            Record::Broken => self.broken += 1,
        }
        self.own_over += self.over - over_before;
    }

    fn begins(&mut self, at: u64, tid: u32, parent: u32, name: Option<String>, pid: Option<u32>) {
        if !self.follow {
            return;
        }
        // Only a new thread begins after the end of the thread with its ID.
        let ended_ns = self.threads.get(&tid).and_then(|stream| stream.end_ns);
        if ended_ns.is_some_and(|ended_ns| ended_ns <= at) {
            self.replace(tid, at);
        }
        let Some(parent) = self.threads.get(&parent) else {
            // A sample can have found it before.
            if self.left_out.contains(&parent) && !self.threads.contains_key(&tid) {
                self.left_out.insert(tid);
            }
            return;
        };
        let (parent_pid, parent_name) = (parent.pid, parent.name.clone());
        let Some(stream) = self.discover(tid) else { return };
        // A sample can have found the thread before.
        stream.begin_ns = Some(stream.begin_ns.map_or(at, |found_ns| found_ns.min(at)));
        stream.pid = pid.unwrap_or(parent_pid);
        stream.name = stream.name.take().or(name).or(parent_name);
    }

    /// Adds a scheduler, device or lock event.
    pub(super) fn kernel(&mut self, event: &Event) {
        let Event { at_ns, cpu, by_tid, what } = *event;
        match what {
            EventData::Switch { prev_tid, prev_state, next_tid, next_name } => {
                self.find_worker(next_tid, &next_name, at_ns);
                let preempted = prev_state & STATE_BLOCKED == 0;
                let left = Switch {
                    at_ns,
                    out: true,
                    preempted,
                    uninterruptible: prev_state & STATE_UNINTERRUPTIBLE != 0,
                    cpu,
                    next_tid,
                };
                self.scheduled(prev_tid, left);
                self.scheduled(
                    next_tid,
                    Switch {
                        out: false,
                        preempted: false,
                        next_tid: 0,
                        uninterruptible: false,
                        ..left
                    },
                );
                self.core(cpu, at_ns, prev_tid, next_tid);
            }
            EventData::Waking { tid } => {
                if self.threads.contains_key(&tid) && self.room(at_ns) {
                    self.know(tid).wakes.push(Wake { at_ns, by_tid });
                    self.count(Kind::Waking);
                }
            }
            EventData::Issue { device, sector, bytes, write } => {
                let (issue_ns, tid) = (at_ns, by_tid);
                let request =
                    Request { device: 0, write, issue_ns, complete_ns: None, sector, bytes, tid };
                self.issued(device, request);
            }
            EventData::Complete { device, sector } => {
                if let Some(index) = self.open.remove(&(device, sector)) {
                    self.requests[index].complete_ns = Some(at_ns);
                    self.count(Kind::Complete);
                }
            }
            EventData::LockBegin { flags } => {
                if flags & LOCK_SPINS == 0
                    && let Some(stream) = self.threads.get_mut(&by_tid)
                {
                    stream.lock_since = Some(at_ns);
                }
            }
            EventData::LockEnd => self.lock_ends(at_ns, by_tid),
            EventData::NewTask { tid, thread, name } => {
                let pid = if thread { None } else { Some(tid) };
                self.begins(at_ns, tid, by_tid, Some(text(&name)), pid);
            }
            EventData::Mark => {}
        }
    }

    fn count(&mut self, kind: Kind) {
        *self.kept.entry(kind).or_default() += 1;
    }

    fn scheduled(&mut self, tid: u32, switch: Switch) {
        if tid != 0 && self.threads.contains_key(&tid) && self.room(switch.at_ns) {
            self.know(tid).sched.push(switch);
            self.count(Kind::Switch);
        }
    }

    /// Detects ring workers, which are named after the thread they serve.
    fn find_worker(&mut self, tid: u32, name: &[u8; 16], at_ns: u64) {
        let Some(owner) = name.strip_prefix(b"iou-wrk-") else { return };
        let name = text(name);
        let owner = text(owner).parse::<u32>().ok();
        if owner.is_some_and(|owner| self.threads.contains_key(&owner)) {
            let Some(stream) = self.discover(tid) else { return };
            stream.kernel_worker = true;
            stream.name = Some(name);
            stream.begin_ns.get_or_insert(at_ns);
        }
    }

    fn core(&mut self, cpu: u16, at_ns: u64, prev_tid: u32, next_tid: u32) {
        let index = usize::from(cpu);
        if self.cores.len() <= index {
            self.cores.resize_with(index + 1, Core::default);
        }
        let core = &mut self.cores[index];
        let (holder, since) = core.holder.replace((next_tid, at_ns)).unwrap_or((prev_tid, at_ns));
        let fits = holder == prev_tid;
        // A switch was missed, so the start time of the thread that leaves now is unknown.
        let run = CoreRun { start_ns: since, end_ns: at_ns, tid: prev_tid, ours: false };
        let kept = fits && prev_tid != 0 && at_ns > since;
        if kept && self.room(at_ns) {
            self.cores[index].runs.push(run);
        }
        self.chain_breaks += u64::from(!fits);
    }

    /// Adds a request issued to the device with this number.
    fn issued(&mut self, number: u32, mut request: Request) {
        if request.bytes == 0 || !self.room(request.issue_ns) {
            return;
        }
        let index = self.devices.iter().position(|known| *known == number).unwrap_or_else(|| {
            self.devices.push(number);
            self.devices.len() - 1
        });
        request.device = index as u16;
        // A second request for the same sector: the completion of the first was missed.
        self.open.insert((number, request.sector), self.requests.len());
        self.requests.push(request);
        self.count(Kind::Issue);
    }

    fn lock_ends(&mut self, at_ns: u64, tid: u32) {
        let Some(stream) = self.threads.get_mut(&tid) else { return };
        if let Some(start_ns) = stream.lock_since.take()
            && self.room(at_ns)
        {
            self.know(tid).locks.push(LockWait { start_ns, end_ns: at_ns });
            self.count(Kind::LockBegin);
        }
    }

    /// Returns the threads on each processor until `end_ns`, with the program's threads marked, including those
    /// left out.
    pub(super) fn cores(&mut self, end_ns: u64) -> Vec<Vec<CoreRun>> {
        let cores = std::mem::take(&mut self.cores);
        let finish = |mut core: Core| {
            if let Some((tid, start_ns)) = core.holder
                && tid != 0
                && end_ns > start_ns
            {
                core.runs.push(CoreRun { start_ns, end_ns, tid, ours: false });
            }
            for run in &mut core.runs {
                run.ours = self.was_ours(run.tid, run.start_ns);
            }
            core.runs
        };
        cores.into_iter().map(finish).collect()
    }
}

/// Converts a name from the kernel to text.
fn text(name: &[u8]) -> String {
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Adds information that only scheduler events contain to a thread's own switches: the thread that
/// took over, and whether the wait is interruptible. The two records of one switch are within
/// microseconds of each other.
pub(super) fn enrich(own: &mut [Switch], sched: &[Switch]) {
    const APART_NS_MAX: u64 = 50_000;
    let mut outs = sched.iter().filter(|s| s.out).peekable();
    for switch in own.iter_mut().filter(|s| s.out) {
        while outs.next_if(|s| s.at_ns + APART_NS_MAX < switch.at_ns).is_some() {}
        let near = |s: &&Switch| s.at_ns <= switch.at_ns + APART_NS_MAX && s.cpu == switch.cpu;
        if let Some(same) = outs.next_if(near) {
            switch.uninterruptible = same.uninterruptible;
            switch.next_tid = same.next_tid;
        }
    }
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
