//! Samples threads of other programs through /proc, a hundred times per second.
//!
//! A sample contains the thread's state, the system call in which it waits, its processor time and
//! its run-queue delay. If switches are recorded as well, a sample names the wait during which it
//! was taken; otherwise it represents the time until the next sample. A sample costs four small
//! reads, about 6 µs per thread. New threads are searched for twenty times per second. Where the kernel does not
//! list children, a search reads the parents of all processes; searches then take at most 2 % of the elapsed time,
//! so the more processes there are, the later new threads are found.

use super::gather::Gather;
use ioloom_failure::reason;
use ioloom_model::units::format_counted;
use ioloom_sys::proc::parse::{parse_process_stat, parse_schedstat};
use ioloom_sys::proc::{
    ProcFile, ThreadSched, open_files_limit, processes, read_text, system_stat, ticks_per_second,
};
use ioloom_sys_trace::perf::calls::{Call, call_of};
use ioloom_trace::raw::{Account, Switch};
use ioloom_trace::{NO_FILE, Span, SpanKind};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between samples.
const PERIOD: Duration = Duration::from_millis(10);
/// Number of rounds between searches for new threads.
const LIST_EVERY: u32 = 5;
/// Minimum time between searches among all processes, in durations of the last one.
const LIST_PAUSE: u32 = 50;
/// Maximum number of threads sampled.
const THREADS_MAX: usize = 1024;
/// Number of descriptors per thread sampled.
const DESCRIPTORS: u64 = 3;
/// Number of descriptors per processor, for rings and kernel events.
const DESCRIPTORS_PER_CPU: u64 = 2;
/// Number of descriptors for everything else, such as finding new threads.
const DESCRIPTORS_OTHER: u64 = 64;
/// Maximum number of processes listed.
const PROCESSES_MAX: usize = 1 << 16;
/// Maximum number of samples stored in total.
const SAMPLES_MAX: usize = 1 << 20;

/// A sample of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at_ns: u64,
    /// Kind of wait; `None` if the thread was running or ready.
    pub(super) waits: Option<SpanKind>,
    pub(super) cpu_ns: u64,
    /// `None` if the kernel does not count it.
    pub(super) run_delay_ns: Option<u64>,
}

#[derive(Debug)]
struct Task {
    dir: PathBuf,
    /// `None` if the kernel does not count it.
    sched: Option<ProcFile>,
    stat: ProcFile,
    call: Option<ProcFile>,
    /// Start time in ticks since boot.
    start_ticks: Option<u64>,
}

/// Samples a process tree.
#[derive(Debug)]
pub(super) struct Sampler {
    root: u32,
    /// Whether the kernel counts schedstat. Otherwise all its values are zero, or it does not exist.
    has_sched: bool,
    tasks: BTreeMap<u32, Task>,
    pub(super) samples: BTreeMap<u32, Vec<Sample>>,
    rounds: u32,
    /// Whether the kernel lists the children of a thread. Otherwise a search reads all processes.
    has_children: bool,
    /// Earliest time of the next search for new threads.
    list_after: Option<Instant>,
    kept: usize,
    threads_max: usize,
    samples_max: usize,
    /// Samples beyond the limit.
    pub(super) over: u64,
    /// Time of the earliest of them.
    pub(super) full_ns: Option<u64>,
    /// Threads that were found and not sampled because the maximum number was.
    skipped: BTreeSet<u32>,
    /// Threads whose files could not be opened.
    unopened: BTreeSet<u32>,
    /// Why, for the first of them.
    unopened_why: Option<String>,
}

impl Sampler {
    pub(super) fn new(root: u32) -> Self {
        Self {
            root,
            // This thread has run, so its values are not zero.
            has_sched: ThreadSched::open().is_ok(),
            tasks: BTreeMap::new(),
            samples: BTreeMap::new(),
            rounds: 0,
            has_children: has_children(),
            list_after: None,
            kept: 0,
            threads_max: threads_max(
                open_files_limit(),
                system_stat().map_or(0, |stat| stat.cpus.len() as u64),
            ),
            samples_max: SAMPLES_MAX,
            over: 0,
            full_ns: None,
            skipped: BTreeSet::new(),
            unopened: BTreeSet::new(),
            unopened_why: None,
        }
    }

    pub(super) fn period(&self) -> Duration {
        PERIOD
    }

    /// Describes the threads and times without samples.
    pub(super) fn skipped(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.over > 0 {
            notes.push(format!(
                "{} samples exceeded the limit and were dropped; later states that only samples \
                show are unknown",
                self.over
            ));
        }
        if !self.skipped.is_empty() {
            let (max, count) = (self.threads_max, self.skipped.len());
            notes.push(format!("at most {max} threads are sampled at a time: {count} were not"));
        }
        if let Some(why) = self.unopened_why.as_ref().filter(|_| !self.unopened.is_empty()) {
            let threads = format_counted(self.unopened.len() as u64, "thread", "threads");
            notes.push(format!("the files of {threads} could not be opened: {why}"));
        }
        notes
    }

    /// Samples every thread once.
    pub(super) fn sample(&mut self, now_ns: u64, gather: &mut Gather) {
        let begun = Instant::now();
        if self.rounds.is_multiple_of(LIST_EVERY) && self.list_after.is_none_or(|at| begun >= at) {
            self.list(now_ns, gather);
            self.list_after = (!self.has_children).then(|| next_list(begun, Instant::now()));
        }
        self.rounds += 1;
        let mut gone = Vec::new();
        for (tid, task) in &mut self.tasks {
            let Some(sample) = task.look() else {
                gone.push(*tid);
                continue;
            };
            if self.kept == self.samples_max {
                self.over += 1;
                self.full_ns.get_or_insert(sample.at_ns);
                continue;
            }
            self.kept += 1;
            self.samples.entry(*tid).or_default().push(sample);
        }
        for tid in gone {
            let Some(task) = self.tasks.remove(&tid) else { continue };
            // Another thread can have its ID by now.
            if let Some(stream) = gather.threads.get_mut(&tid)
                && stream.start_ticks == task.start_ticks
            {
                stream.end_ns.get_or_insert(now_ns);
            }
        }
    }

    /// Detects new threads of the tree.
    fn list(&mut self, now_ns: u64, gather: &mut Gather) {
        for pid in tree(self.root) {
            for tid in numbers(Path::new(&format!("/proc/{pid}/task"))) {
                if self.tasks.contains_key(&tid) {
                    continue;
                }
                if self.tasks.len() >= self.threads_max {
                    self.skipped.insert(tid);
                    continue;
                }
                let dir = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
                let mut task = match Task::open(dir, self.has_sched) {
                    Ok(task) => task,
                    // It has exited.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => {
                        self.unopened.insert(tid);
                        self.unopened_why.get_or_insert_with(|| reason(&e));
                        continue;
                    }
                };
                let start_ticks = task.read_start_ticks();
                let known = gather.threads.get(&tid).and_then(|stream| stream.start_ticks);
                if known.zip(start_ticks).is_some_and(|(known, found)| known != found) {
                    gather.replace(tid, now_ns);
                }
                let Some(stream) = gather.discover(tid) else { continue };
                self.skipped.remove(&tid);
                self.unopened.remove(&tid);
                stream.pid = pid;
                stream.start_ticks = stream.start_ticks.or(start_ticks);
                task.start_ticks = stream.start_ticks;
                let begin_ns = stream.end_ns.map_or(now_ns, |end_ns| end_ns.min(now_ns));
                stream.begin_ns.get_or_insert(begin_ns);
                stream.name = task.name().or(stream.name.take());
                self.tasks.insert(tid, task);
            }
        }
    }
}

/// Returns when the next search among all processes may begin.
fn next_list(begun: Instant, ended: Instant) -> Instant {
    ended + ended.saturating_duration_since(begun) * LIST_PAUSE
}

/// Returns how many threads can be sampled with a descriptor limit.
fn threads_max(limit: Option<u64>, cpus: u64) -> usize {
    let others = cpus.saturating_mul(DESCRIPTORS_PER_CPU).saturating_add(DESCRIPTORS_OTHER);
    limit.map_or(THREADS_MAX, |limit| {
        (limit.saturating_sub(others) / DESCRIPTORS).min(THREADS_MAX as u64) as usize
    })
}

impl Task {
    fn open(dir: PathBuf, has_sched: bool) -> io::Result<Self> {
        let sched = has_sched.then(|| ProcFile::open(&dir.join("schedstat"), 128)).transpose()?;
        let stat = ProcFile::open(&dir.join("stat"), 1000)?;
        // It requires the permission to trace the thread.
        let call = ProcFile::open(&dir.join("syscall"), 256).ok();
        Ok(Self { dir, sched, stat, call, start_ticks: None })
    }

    fn name(&mut self) -> Option<String> {
        let text = read_text(&self.dir.join("comm")).ok()?;
        Some(text.trim_end().to_owned())
    }

    /// Returns when the thread started, in ticks since boot.
    fn read_start_ticks(&mut self) -> Option<u64> {
        Some(parse_process_stat(self.stat.read().ok()?)?.start_ticks)
    }

    fn look(&mut self) -> Option<Sample> {
        let stat = parse_process_stat(self.stat.read().ok()?)?;
        if stat.state == 'Z' || stat.state == 'X' {
            return None;
        }
        let (cpu_ns, run_delay_ns) = match &mut self.sched {
            Some(file) => {
                let sched = parse_schedstat(file.read().ok()?)?;
                (sched.on_cpu_ns, Some(sched.run_delay_ns))
            }
            None => (ns_of_ticks(stat.user_ticks + stat.system_ticks), None),
        };
        // The clock is read after the statistics, so they are never newer than it.
        let at_ns = ioloom_sys::clock::monotonic_ns();
        let waits = (stat.state != 'R').then(|| self.wait(stat.state));
        Some(Sample { at_ns, waits, cpu_ns, run_delay_ns })
    }

    /// Returns the kind of wait of a blocked thread.
    fn wait(&mut self, state: char) -> SpanKind {
        let text = self.call.as_mut().and_then(|call| call.read().ok()).unwrap_or("");
        let mut words = text.split_ascii_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
            return SpanKind::Other;
        };
        let argument = words.next().and_then(|word| word.strip_prefix("0x"));
        let file = argument.and_then(|hex| u64::from_str_radix(hex, 16).ok());
        if number < 0 {
            // Not in a system call, so it waits for a page.
            return if state == 'D' { SpanKind::Fault } else { SpanKind::Other };
        }
        let kind = kind_of(call_of(number));
        let on_file = matches!(kind, SpanKind::Read | SpanKind::Write);
        if on_file && file.is_some_and(|fd| self.is_pipe(fd)) { SpanKind::Event } else { kind }
    }

    /// Reports whether a descriptor is a pipe, socket or terminal, which waits for another process
    /// rather than a device.
    fn is_pipe(&self, fd: u64) -> bool {
        let Some(process) = self.dir.parent().and_then(Path::parent) else { return false };
        let link = std::fs::read_link(process.join(format!("fd/{fd}")));
        link.is_ok_and(|to| {
            let to = to.to_string_lossy();
            !to.starts_with('/') || to.starts_with("/dev/pts") || to.starts_with("/dev/tty")
        })
    }
}

fn kind_of(call: Call) -> SpanKind {
    match call {
        Call::Read => SpanKind::Read,
        Call::Write => SpanKind::Write,
        Call::Open => SpanKind::Open,
        Call::Close => SpanKind::Close,
        Call::Stat => SpanKind::Stat,
        Call::List => SpanKind::List,
        Call::Flush => SpanKind::Flush,
        Call::Map => SpanKind::Map,
        Call::Unmap => SpanKind::Unmap,
        Call::Sync => SpanKind::Sync,
        Call::Event => SpanKind::Event,
        Call::Sleep => SpanKind::Sleep,
        Call::Ring => SpanKind::RingWait,
        Call::Other => SpanKind::Other,
    }
}

fn ns_of_ticks(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000 / ticks_per_second().max(1))
}

/// Reports whether the kernel lists the children of a thread (CONFIG_PROC_CHILDREN).
fn has_children() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

/// Returns a process and its descendants. There can be more than are sampled: those are counted.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    // Reading the parents of all processes takes longer.
    if has_children() {
        return tree_by_children(root);
    }
    let all = processes().unwrap_or_default();
    tree_by_parents(root, all.iter().map(|process| (process.pid, process.parent)))
}

/// Like [`tree`], from pairs of a process and its parent.
fn tree_by_parents(root: u32, pairs: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, parent) in pairs {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        // Removed, so that inconsistent pairs cannot form a cycle.
        let new = children.remove(pid).unwrap_or_default();
        let room = PROCESSES_MAX.saturating_sub(found.len());
        found.extend(new.into_iter().filter(|child| *child != root).take(room));
        next += 1;
    }
    found
}

fn tree_by_children(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut known = BTreeSet::from([root]);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for tid in numbers(Path::new(&format!("/proc/{pid}/task"))) {
            let path = format!("/proc/{pid}/task/{tid}/children");
            let text = read_text(Path::new(&path)).unwrap_or_default();
            for child in text.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
                if found.len() < PROCESSES_MAX && known.insert(child) {
                    found.push(child);
                }
            }
        }
    }
    found
}

fn numbers(dir: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Returns the kernel workers for rings of this process, with their names.
pub(super) fn ring_workers() -> Vec<(u32, String)> {
    let tasks = numbers(Path::new("/proc/self/task")).into_iter();
    let named = tasks.filter_map(|tid| {
        let name = read_text(Path::new(&format!("/proc/self/task/{tid}/comm"))).ok()?;
        Some((tid, name.trim_end().to_owned()))
    });
    named.filter(|(_, name)| name.starts_with("iou-wrk-")).collect()
}

/// Converts samples without switches into spans: each lasts until the next sample.
pub(super) fn spans_of_samples(samples: &[Sample]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for pair in samples.windows(2) {
        let kind = pair[0].waits.unwrap_or(SpanKind::Compute);
        let (start_ns, ns) = (pair[0].at_ns, pair[1].at_ns - pair[0].at_ns);
        spans.push(Span { start_ns, ns, kind, file: NO_FILE });
    }
    spans
}

/// Returns the clock readings at each sample, relative to the first.
pub(super) fn accounts_of_samples(samples: &[Sample]) -> Vec<Account> {
    let Some(first) = samples.first() else { return Vec::new() };
    let account = |sample: &Sample| Account {
        at_ns: sample.at_ns,
        cpu_ns: sample.cpu_ns.saturating_sub(first.cpu_ns),
        run_delay_ns: grown(first.run_delay_ns, sample.run_delay_ns),
    };
    samples.iter().map(account).collect()
}

/// Returns the difference of two values of a counter; `None` if it is not counted.
pub(super) fn grown(from: Option<u64>, to: Option<u64>) -> Option<u64> {
    from.zip(to).map(|(from, to)| to.saturating_sub(from))
}

/// Returns a named span for each recorded wait during which a sample was taken. Both lists are
/// sorted. A wait after the last switch ends at `end_ns`.
pub(super) fn spans_of_waits(switches: &[Switch], samples: &[Sample], end_ns: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut samples = samples.iter().peekable();
    for (i, out) in switches.iter().enumerate() {
        let back = switches.get(i + 1);
        if !out.out || out.preempted || back.is_some_and(|back| back.out) {
            continue;
        }
        let back_ns = back.map_or(end_ns, |back| back.at_ns);
        while samples.next_if(|s| s.at_ns < out.at_ns).is_some() {}
        let mut kind = None;
        while let Some(sample) = samples.next_if(|s| s.at_ns < back_ns) {
            kind = kind.or(sample.waits);
        }
        let ns = back_ns.saturating_sub(out.at_ns);
        spans.extend(kind.map(|kind| Span { start_ns: out.at_ns, ns, kind, file: NO_FILE }));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ns: u64, waits: Option<SpanKind>) -> Sample {
        Sample { at_ns, waits, cpu_ns: 100 + at_ns / 2, run_delay_ns: Some(7) }
    }

    fn switch(at_ns: u64, out: bool) -> Switch {
        Switch { at_ns, out, preempted: false, uninterruptible: false, cpu: 0, next_tid: 0 }
    }

    #[test]
    fn samples_alone_are_contiguous_and_start_at_the_first() {
        let samples =
            [sample(10, None), sample(20, Some(SpanKind::Read)), sample(35, Some(SpanKind::Sync))];
        let spans = spans_of_samples(&samples);
        let seen: Vec<_> = spans.iter().map(|s| (s.start_ns, s.ns, s.kind)).collect();
        assert_eq!(seen, [(10, 10, SpanKind::Compute), (20, 15, SpanKind::Read)]);
        let accounts = accounts_of_samples(&samples);
        assert_eq!(accounts.iter().map(|a| a.cpu_ns).collect::<Vec<_>>(), [0, 5, 12]);
        assert_eq!(accounts[2].run_delay_ns, Some(0));
        let uncounted = samples.map(|sample| Sample { run_delay_ns: None, ..sample });
        assert_eq!(accounts_of_samples(&uncounted)[2].run_delay_ns, None);
    }

    #[test]
    fn a_kernel_that_does_not_count_run_delay_has_none() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut gather = Gather::new(100, true);
        let mut sampler = Sampler { has_sched: false, ..Sampler::new(child.id()) };
        sampler.sample(0, &mut gather);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(sampler.samples[&child.id()][0].run_delay_ns, None);
    }

    #[test]
    fn a_thread_with_another_start_time_is_another_thread() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut gather = Gather::new(100, true);
        let earlier = gather.know(child.id());
        (earlier.start_ticks, earlier.end_ns) = (Some(1), Some(5));
        let mut sampler = Sampler::new(child.id());
        (0..LIST_EVERY * 2).for_each(|_| sampler.sample(9, &mut gather));
        child.kill().unwrap();
        child.wait().unwrap();
        let seen = gather.take_threads();
        let lives: Vec<_> = seen.iter().map(|(_, s)| (s.begin_ns, s.end_ns, s.reused_ns)).collect();
        assert_eq!(lives, [(None, Some(5), Some(9)), (Some(9), None, None)]);
    }

    #[test]
    fn the_exit_of_a_thread_does_not_end_another_with_its_id() {
        for is_reused in [false, true] {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let mut gather = Gather::new(100, true);
            let mut sampler = Sampler::new(child.id());
            sampler.sample(1, &mut gather);
            child.kill().unwrap();
            child.wait().unwrap();
            if is_reused {
                gather.replace(child.id(), 5);
                gather.know(child.id()).begin_ns = Some(5);
            }
            sampler.sample(9, &mut gather);
            let end_ns = gather.threads[&child.id()].end_ns;
            assert_eq!(end_ns, if is_reused { None } else { Some(9) });
        }
    }

    #[test]
    fn searches_among_all_processes_take_at_most_a_fiftieth_of_the_time() {
        let (begun, took) = (Instant::now(), Duration::from_millis(30));
        assert_eq!(next_list(begun, begun + took), begun + took * 51);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut gather = Gather::new(100, true);
        let mut sampler = Sampler { has_children: false, ..Sampler::new(child.id()) };
        sampler.sample(0, &mut gather);
        assert!(sampler.list_after.is_some());
        // The thread would be found again.
        let found = sampler.tasks.remove(&child.id()).is_some();
        sampler.list_after = Some(Instant::now() + Duration::from_secs(3600));
        (0..LIST_EVERY).for_each(|_| sampler.sample(0, &mut gather));
        let found_early = !sampler.tasks.is_empty();
        sampler.list_after = None;
        (0..LIST_EVERY).for_each(|_| sampler.sample(0, &mut gather));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found && !found_early && !sampler.tasks.is_empty());
    }

    #[test]
    fn descendants_are_found_by_their_parents() {
        let pairs = [(1, 0), (5, 1), (7, 5), (8, 1), (9, 7), (6, 7)];
        assert_eq!(tree_by_parents(5, pairs.into_iter()), [5, 7, 9, 6]);
        assert_eq!(tree_by_parents(8, pairs.into_iter()), [8]);
        assert_eq!(tree_by_parents(2, [(2, 3), (3, 2)].into_iter()), [2, 3]);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let all = processes().unwrap();
        let found = tree_by_parents(
            std::process::id(),
            all.iter().map(|process| (process.pid, process.parent)),
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
    }

    #[test]
    fn a_wait_is_named_by_the_sample_in_it() {
        let switches = [
            switch(10, true),
            switch(30, false),
            switch(40, true),
            switch(50, false),
            switch(60, true),
        ];
        let samples = [
            sample(5, Some(SpanKind::Read)),
            sample(20, Some(SpanKind::Sleep)),
            sample(35, None),
            sample(70, Some(SpanKind::Event)),
        ];
        let spans = spans_of_waits(&switches, &samples, 90);
        let seen: Vec<_> = spans.iter().map(|s| (s.start_ns, s.ns, s.kind)).collect();
        // The last wait lasts until the end.
        assert_eq!(seen, [(10, 20, SpanKind::Sleep), (60, 30, SpanKind::Event)]);
    }

    #[test]
    fn descriptors_remain_for_finding_threads() {
        let max = [Some(1024), Some(1 << 20), None].map(|limit| threads_max(limit, 256));
        assert_eq!(max, [149, 1024, 1024]);
        assert_eq!(threads_max(Some(256), 256), 0);
    }

    #[test]
    fn threads_whose_files_cannot_be_opened_have_their_own_note() {
        let why = Some("too many open files".to_owned());
        let sampler =
            Sampler { unopened: BTreeSet::from([7, 8]), unopened_why: why, ..Sampler::new(7) };
        let note = "the files of 2 threads could not be opened: too many open files";
        assert_eq!(sampler.skipped(), [note]);
    }

    #[test]
    fn samples_and_threads_beyond_the_limits_are_counted() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut gather = Gather::new(100, true);
        let mut sampler = Sampler { samples_max: 2, ..Sampler::new(child.id()) };
        (0..5).for_each(|_| sampler.sample(0, &mut gather));
        let kept = &sampler.samples[&child.id()];
        assert_eq!((kept.len(), sampler.over), (2, 3));
        assert!(sampler.full_ns > kept.last().map(|sample| sample.at_ns));
        let notes = sampler.skipped();
        assert!(notes.len() == 1 && notes[0].starts_with("3 samples exceeded"), "{notes:?}");
        let mut sampler = Sampler { threads_max: 0, ..Sampler::new(child.id()) };
        (0..LIST_EVERY * 2).for_each(|_| sampler.sample(0, &mut gather));
        child.kill().unwrap();
        child.wait().unwrap();
        let skipped = sampler.skipped();
        assert!(skipped.len() == 1 && skipped[0].ends_with("at a time: 1 were not"), "{skipped:?}");
    }

    #[test]
    fn a_sleeping_child_is_sampled_asleep() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut gather = Gather::new(100, true);
        let mut sampler = Sampler::new(child.id());
        // It may still be starting: sample until it sleeps, for at most a minute.
        let slept = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            sampler.sample(ioloom_sys::clock::monotonic_ns(), &mut gather);
            let last = sampler.samples.get(&child.id()).and_then(|s| s.last());
            last.is_some_and(|s| s.waits == Some(SpanKind::Sleep))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(slept, "{:?}", sampler.samples);
        sampler.sample(1, &mut gather);
        assert!(gather.threads[&child.id()].end_ns.is_some());
    }
}
