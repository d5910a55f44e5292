//! The decomposition of the usable processor time into limits.

use super::facts::Facts;
use super::kind::Limit;

/// Fewest page faults of a process from its start to its end.
const FAULTS_OF_A_PROCESS: u64 = 20;

/// Longest waits of another thread that the activity of a thread explains, as a multiple of it: it may
/// hand over work after each of many short activities, and waking an idle processor takes longer.
const HANDED_OVER_MAX: f64 = 30.0;

/// Percentages by limit, in the order of [`Limit::ALL`]. They add up to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shares {
    percent: [u32; Limit::ALL.len()],
    /// Part of `child processes` in which they ran.
    pub(super) children_ran: u32,
    /// Part of `other programs` on devices.
    pub(super) others_device: u32,
}

impl Shares {
    /// Returns the share of a limit in per cent.
    pub fn of(&self, limit: Limit) -> u32 {
        self.percent[limit as usize]
    }

    /// Returns the limits with their shares, the largest first.
    pub fn ranked(&self) -> Vec<(Limit, u32)> {
        let mut all: Vec<_> = Limit::ALL.into_iter().map(|limit| (limit, self.of(limit))).collect();
        all.sort_by_key(|(_, percent)| std::cmp::Reverse(*percent));
        all
    }

    /// Computes the shares; see the module documentation of [`crate::limit`].
    pub(super) fn new(f: &Facts) -> Self {
        let parts = Parts::new(f);
        let percent = rounded(&parts.ns);
        let of = |limit: Limit, part: f64| {
            let all = parts.ns[limit as usize];
            let share = if all > 0.0 { part / all } else { 0.0 };
            (share * f64::from(percent[limit as usize])).round() as u32
        };
        Self {
            percent,
            children_ran: of(Limit::ChildProcesses, parts.children_ran_ns),
            others_device: of(Limit::OtherPrograms, parts.others_device_ns),
        }
    }
}

/// The parts before they are rounded.
struct Parts {
    ns: [f64; Limit::ALL.len()],
    children_ran_ns: f64,
    others_device_ns: f64,
}

impl Parts {
    fn new(f: &Facts) -> Self {
        let cores_ns = f.cores_ns();
        let own = Own::new(f);
        let used_ns = own.metadata_ns + own.function_ns + f.children_ns as f64;
        let seen_ns = (f.threads_ns as f64).max(used_ns);
        let usable_ns = seen_ns.max(f.elapsed_ns as f64).min(cores_ns).max(1.0);
        let mut parts = Self { ns: [0.0; _], children_ran_ns: 0.0, others_device_ns: 0.0 };
        let all_ns = own.metadata_ns + own.function_ns;
        let own_ns = all_ns.min(usable_ns);
        let metadata_ns = own_ns * own.metadata_ns / all_ns.max(1.0);
        parts.add(Limit::Metadata, metadata_ns);
        parts.add(Limit::Compute, own_ns - metadata_ns);
        parts.children_ran_ns = (f.children_ns as f64).min(usable_ns - own_ns);
        parts.add(Limit::ChildProcesses, parts.children_ran_ns);
        let free_ns = usable_ns - own_ns - parts.children_ran_ns;
        // Nothing is known of a time without threads.
        let unseen_ns = (usable_ns - seen_ns).clamp(0.0, free_ns);
        parts.add(Limit::Unknown, unseen_ns);
        let free_ns = free_ns - unseen_ns;
        // Threads are ready while a quota keeps their group from running.
        let throttled_ns = f.ready_ns.map_or(0, |ready| ready.min(f.throttled_ns));
        let quota_ns = (throttled_ns as f64).min(free_ns);
        parts.add(Limit::Quota, quota_ns);
        let free_ns = free_ns - quota_ns;
        let ready_ns = f.ready_ns.map(|ready| ready - throttled_ns);
        let [others_ns, unclear_ns] = displaced(ready_ns, f.others_ns, own.elsewhere_ns, free_ns);
        parts.add(Limit::OtherPrograms, others_ns);
        parts.add(Limit::Unknown, unclear_ns);
        let displaced_ns = others_ns + unclear_ns;
        let own_of_busy = own_ns / (own_ns + f.others_ns.unwrap_or(0) as f64).max(1.0);
        let stolen_ns = (f.steal_ns as f64 * own_of_busy).min(free_ns - displaced_ns);
        parts.add(Limit::OtherPrograms, stolen_ns);
        let rest_ns = f.others_ns.unwrap_or(0) as f64 - others_ns;
        parts.add_waits(f, free_ns - displaced_ns - stolen_ns, rest_ns.max(0.0));
        parts
    }

    fn add(&mut self, limit: Limit, ns: f64) {
        self.ns[limit as usize] += ns;
    }

    /// Splits the time in which processors were free for our threads by the waits of the threads. Other
    /// programs ran for `others_ns` without displacing our threads.
    fn add_waits(&mut self, f: &Facts, free_ns: f64, others_ns: f64) {
        let cores_ns = f.cores_ns();
        let ahead = [f.io_ns, f.input_ns, f.memory_ns].map(|ns| ns as f64);
        let useful_ns = (cores_ns - f.function_wall_ns as f64).max(0.0);
        let ahead_ns: f64 = ahead.iter().sum();
        let [io, input, memory] = ahead.map(|ns| ns * (useful_ns / ahead_ns.max(1.0)).min(1.0));
        let inside = [f.function_ns, f.output_ns, f.reserve_ns, f.child_ns].map(|ns| ns as f64);
        let [function, output, reserve, child] = inside;
        let waiting = io + input + memory + function + output + reserve + child;
        let active = waiting + (f.on_cpu_ns + f.ready_ns.unwrap_or(0)) as f64;
        let handed_over = active * HANDED_OVER_MAX * f64::from(f.threads.max(2) - 1);
        let hand_over = (f.hand_over_ns as f64).min(handed_over);
        let unknown = (f.unknown_ns + f.hand_over_ns) as f64 - hand_over;
        let unknown_ns = free_ns * unknown / (waiting + hand_over + unknown).max(1.0);
        let free_ns = free_ns - unknown_ns;
        let at_any_time = (waiting / f.elapsed_ns.max(1) as f64).min(1.0);
        let caused_ns = waiting.max(free_ns * at_any_time).min(free_ns);
        let hand_over_ns = hand_over.min(free_ns - caused_ns);
        self.add(Limit::HandOver, hand_over_ns);
        self.add(Limit::Unknown, unknown_ns + free_ns - caused_ns - hand_over_ns);
        let caused = |wait: f64| caused_ns * wait / waiting.max(1.0);
        let read = f.device_bytes.is_some_and(|bytes| bytes > 0);
        let others = if read { f.others_device.clamp(0.0, 1.0) } else { 0.0 };
        self.others_device_ns = caused(io) * others;
        self.add(Limit::OtherPrograms, caused(io) * others);
        self.add(Limit::Device, caused(io) * (1.0 - others));
        self.add(Limit::InputList, caused(input));
        self.add(Limit::Memory, caused(memory + reserve));
        self.add(function_limit(f), caused(function));
        // Children are also ready while a quota keeps their group from running.
        let own_throttled_ns = f.ready_ns.map_or(0, |ready| ready.min(f.throttled_ns));
        let throttled_ns = f.child_ready_ns.min(f.throttled_ns - own_throttled_ns);
        let quota_ns = (throttled_ns as f64).min(caused(child));
        self.add(Limit::Quota, quota_ns);
        // Otherwise they wait for processors, which other children may have.
        let ready_ns = (f.child_ready_ns - throttled_ns) as f64;
        let displaced_ns = ready_ns.min(others_ns).min(caused(child) - quota_ns);
        self.add(Limit::OtherPrograms, displaced_ns);
        self.add(Limit::ChildProcesses, caused(child) - quota_ns - displaced_ns);
        self.add(Limit::Output, caused(output));
    }
}

/// Processor time of the process.
struct Own {
    metadata_ns: f64,
    function_ns: f64,
    /// Threads outside of the run, in user mode: the caller's iterator, the consumer of results, and
    /// whatever else the application does.
    elsewhere_ns: f64,
}

impl Own {
    /// Divides the processor time of the process.
    ///
    /// The wall times of the calls that fetch data and of the function decide, because the kernel
    /// samples how processor time is divided into user mode and kernel: a run of a tenth of a second has
    /// ten samples. Only for threads outside of the run nothing else is known.
    fn new(f: &Facts) -> Self {
        let all = (f.user_ns + f.kernel_ns) as f64;
        let runnable = (f.on_cpu_ns + f.ready_ns.unwrap_or(0)) as f64;
        let running = f.on_cpu_ns as f64 / runnable.max(1.0);
        let fetching = f.fetch_wall_ns.saturating_sub(f.io_ns) as f64 * running;
        let helpers = f.helper_ns as f64;
        let waited = f.function_ns + f.output_ns + f.reserve_ns + f.child_ns + f.helper_ns;
        let function = f.function_wall_ns.saturating_sub(waited) as f64 * running + helpers;
        let outside = (all - f.on_cpu_ns as f64 - helpers).max(0.0);
        let outside_kernel = (f.kernel_ns as f64 - fetching).clamp(0.0, outside);
        let inside = all - outside;
        let metadata = inside * fetching / (fetching + function).max(1.0);
        Self {
            metadata_ns: metadata + outside_kernel,
            function_ns: inside - metadata,
            elsewhere_ns: outside - outside_kernel,
        }
    }
}

/// Returns the time in which our threads were ready while other programs ran (`others_ns`), and while it is
/// not known what ran or the application itself did in threads outside of the run (`elsewhere_ns`).
fn displaced(
    ready_ns: Option<u64>,
    others_ns: Option<u64>,
    elsewhere_ns: f64,
    free_ns: f64,
) -> [f64; 2] {
    match (ready_ns, others_ns) {
        (Some(ready), Some(others)) => {
            let by_others = (ready.min(others) as f64).min(free_ns);
            let rest = (ready as f64 - by_others).max(0.0).min(free_ns - by_others);
            [by_others, rest.min(elsewhere_ns)]
        }
        // One of the two is not known; the other is an upper bound.
        (Some(ready), None) => [0.0, (ready as f64).min(free_ns)],
        (None, Some(others)) => [0.0, (others as f64 + elsewhere_ns).min(free_ns)],
        (None, None) => [0.0, 0.0],
    }
}

/// Returns what a wait inside the function counts as, if its cause was not reported.
fn function_limit(f: &Facts) -> Limit {
    let ran = f.children_ns > 0 && f.children_ns >= f.function_ns / 10;
    let started = f.calls > 0 && f.children_faults / f.calls >= FAULTS_OF_A_PROCESS;
    if ran || started {
        Limit::ChildProcesses
    } else if f.mapped {
        Limit::Device
    } else {
        Limit::FunctionWaits
    }
}

/// Rounds parts to percentages that add up to 100: down, and then up where most was cut off.
fn rounded(parts: &[f64; Limit::ALL.len()]) -> [u32; Limit::ALL.len()] {
    let all: f64 = parts.iter().sum();
    if all <= 0.0 {
        let mut none = [0; _];
        none[Limit::Unknown as usize] = 100;
        return none;
    }
    let exact = parts.map(|ns| 100.0 * ns / all);
    let mut percent = exact.map(|share| share.floor() as u32);
    let mut by_rest: Vec<usize> = (0..exact.len()).collect();
    by_rest.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
    let missing = 100_u32.saturating_sub(percent.iter().sum()) as usize;
    for at in by_rest.into_iter().take(missing) {
        percent[at] += 1;
    }
    percent
}
