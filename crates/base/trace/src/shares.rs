//! Time per state: by role, for any range, and per pixel column.
//!
//! Exact at any zoom level. Prefix sums per state are stored for every 64th segment, so the time
//! before a point takes a binary search and at most 64 steps, and a range is the difference of two
//! such times. The viewer in the report uses the same arithmetic, so its charts and percentages
//! match. The index takes 1.4 bytes per segment.

use crate::lane::{ROLE_KERNEL_WORKER, ROLE_TOOL, Thread, Trace};
use crate::raw::PROCESSORS;
use ioloom_model::evidence::RoleStates;
use ioloom_model::{Level, Quality, State, StateTable, StateTime};
use std::collections::{BTreeMap, HashMap};

/// Number of segments between two prefix sums.
const BLOCK: usize = 64;

/// Time per state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    /// Nanoseconds, indexed by `state as usize`.
    pub ns: [u64; State::ALL.len()],
}

impl Shares {
    /// Returns the nanoseconds in a state.
    pub fn of(&self, state: State) -> u64 {
        self.ns[state as usize]
    }

    /// Returns the nanoseconds in all states.
    pub fn total(&self) -> u64 {
        self.ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Returns the percentage of the total; `None` if the total is 0.
    pub fn pct(&self, state: State) -> Option<f64> {
        let total = self.total();
        (total > 0).then(|| self.of(state) as f64 / total as f64 * 100.0)
    }

    /// Adds the times of another value.
    pub fn add(&mut self, other: &Self) {
        for (sum, ns) in self.ns.iter_mut().zip(other.ns) {
            *sum = sum.saturating_add(ns);
        }
    }

    fn less(&self, other: &Self) -> Self {
        Self { ns: std::array::from_fn(|i| self.ns[i] - other.ns[i]) }
    }
}

/// A thread with its prefix sums.
#[derive(Debug, Clone)]
pub struct Lane<'a> {
    thread: &'a Thread,
    /// Time per state before each block of segments.
    before: Vec<Shares>,
}

impl<'a> Lane<'a> {
    /// Computes the prefix sums.
    pub fn new(thread: &'a Thread) -> Self {
        let mut before = Vec::with_capacity(thread.segments.len() / BLOCK + 1);
        let mut sum = Shares::default();
        for (i, segment) in thread.segments.iter().enumerate() {
            if i % BLOCK == 0 {
                before.push(sum);
            }
            sum.ns[segment.state as usize] += end_of(thread, i) - segment.start_ns;
        }
        Self { thread, before }
    }

    /// Returns the thread.
    pub fn thread(&self) -> &'a Thread {
        self.thread
    }

    /// Returns the time per state in `from..to`, in nanoseconds after the start of the run.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> Shares {
        if to_ns <= from_ns {
            return Shares::default();
        }
        self.until(to_ns).less(&self.until(from_ns))
    }

    /// Returns the time per state in each of `width` equal parts of `from..to`, in order. The sum
    /// is less than the length of a part if the thread does not exist for all of it.
    pub fn columns(&self, from_ns: u64, to_ns: u64, width: usize) -> Vec<Shares> {
        let mut last = self.until(from_ns);
        let edge = edges(from_ns, to_ns, width);
        (1..=width)
            .map(|x| {
                let next = self.until(edge(x));
                let column = next.less(&last);
                last = next;
                column
            })
            .collect()
    }

    /// Returns the time per state before a point.
    fn until(&self, at_ns: u64) -> Shares {
        let segments = &self.thread.segments;
        let count = segments.partition_point(|s| s.start_ns < at_ns);
        let Some(last) = count.checked_sub(1) else { return Shares::default() };
        let block = last / BLOCK;
        let mut sum = self.before[block];
        for (i, segment) in segments.iter().enumerate().take(count).skip(block * BLOCK) {
            let end = end_of(self.thread, i).min(at_ns);
            sum.ns[segment.state as usize] += end - segment.start_ns;
        }
        sum
    }
}

/// Returns the end of a segment.
fn end_of(thread: &Thread, index: usize) -> u64 {
    thread.segments.get(index + 1).map_or(thread.end_ns, |next| next.start_ns)
}

/// Returns a function that maps `x` to the start of the `x`-th of `width` equal parts.
pub(crate) fn edges(from_ns: u64, to_ns: u64, width: usize) -> impl Fn(usize) -> u64 {
    let length = u128::from(to_ns.saturating_sub(from_ns));
    move |x| from_ns + (length * x as u128 / width.max(1) as u128) as u64
}

/// The lanes of a trace.
#[derive(Debug, Clone)]
pub struct Lanes<'a> {
    lanes: Vec<Lane<'a>>,
}

impl<'a> Lanes<'a> {
    /// Computes the prefix sums of all threads.
    pub fn new(trace: &'a Trace) -> Self {
        Self { lanes: trace.threads.iter().map(Lane::new).collect() }
    }

    /// Returns one lane per thread, in the order of the trace.
    pub fn lanes(&self) -> &[Lane<'a>] {
        &self.lanes
    }

    /// Returns the sum over all threads with one role in `from..to`.
    pub fn role(&self, role: &str, from_ns: u64, to_ns: u64) -> Shares {
        self.sum(from_ns, to_ns, |thread| thread.role == role)
    }

    /// Returns the sum over all threads of the program in `from..to`, excluding kernel workers and
    /// the tool.
    pub fn all(&self, from_ns: u64, to_ns: u64) -> Shares {
        self.sum(from_ns, to_ns, is_program_thread)
    }

    fn sum(&self, from_ns: u64, to_ns: u64, wanted: impl Fn(&Thread) -> bool) -> Shares {
        let mut sum = Shares::default();
        for lane in self.lanes.iter().filter(|l| wanted(l.thread)) {
            sum.add(&lane.within(from_ns, to_ns));
        }
        sum
    }
}

/// Reports whether a thread belongs to the program rather than to the kernel or the tool.
pub fn is_program_thread(thread: &Thread) -> bool {
    ![ROLE_KERNEL_WORKER, ROLE_TOOL].contains(&thread.role.as_str())
}

/// Returns the number of processors from the series [`PROCESSORS`] or from the core lanes of level
/// 2. Core lanes of level 1 show only the processors on which threads of the program ran.
pub fn processors(trace: &Trace) -> Option<u32> {
    let series = trace.series.iter().find(|s| s.name == PROCESSORS);
    let last = series.and_then(|s| s.points.last()).map(|p| p.1 as u32).filter(|n| *n > 0);
    last.or_else(|| {
        let all = trace.evidence.level == Level::Kernel && !trace.cores.is_empty();
        all.then_some(trace.cores.len() as u32)
    })
}

/// Returns the summed table of each role, in order of first appearance.
pub fn roles(trace: &Trace) -> Vec<RoleStates> {
    sum_by_role(trace.threads.iter().map(|t| {
        let elapsed_ns = t.end_ns.saturating_sub(t.start_ns);
        (t.role.as_str(), elapsed_ns, t.states.clone())
    }))
}

/// Sums role, elapsed time and table of each thread by role, in order of first appearance.
pub fn sum_by_role<'t>(
    threads: impl IntoIterator<Item = (&'t str, u64, StateTable)>,
) -> Vec<RoleStates> {
    let mut roles: Vec<RoleStates> = Vec::new();
    let mut indices: HashMap<&str, usize> = HashMap::new();
    for (role, elapsed_ns, states) in threads {
        let index = *indices.entry(role).or_insert(roles.len());
        match roles.get_mut(index) {
            None => {
                roles.push(RoleStates { role: role.to_owned(), threads: 1, elapsed_ns, states });
            }
            Some(sum) => {
                sum.threads += 1;
                sum.elapsed_ns = sum.elapsed_ns.saturating_add(elapsed_ns);
                sum.states = add_tables(std::mem::take(&mut sum.states), &states);
            }
        }
    }
    roles
}

/// Returns the threads of each role, in order of first appearance.
pub fn threads_by_role<'t>(
    threads: impl IntoIterator<Item = &'t Thread>,
) -> Vec<(&'t str, Vec<&'t Thread>)> {
    let mut roles: Vec<(&str, Vec<&Thread>)> = Vec::new();
    let mut indices: HashMap<&str, usize> = HashMap::new();
    for thread in threads {
        let index = *indices.entry(&thread.role).or_insert(roles.len());
        match roles.get_mut(index) {
            None => roles.push((&thread.role, vec![thread])),
            Some((_, members)) => members.push(thread),
        }
    }
    roles
}

/// Returns the sum of the tables of all threads of the program.
pub fn all(trace: &Trace) -> StateTable {
    let mut own = trace.threads.iter().filter(|t| is_program_thread(t));
    let first = own.next().map(|t| t.states.clone()).unwrap_or_default();
    own.fold(first, |sum, thread| add_tables(sum, &thread.states))
}

/// Adds two tables. A state that is unknown in one of them is unknown in the sum because a partial
/// sum would look complete. Its time in the other table is added to the state that includes it, so
/// the sum still equals the elapsed time.
fn add_tables(a: StateTable, b: &StateTable) -> StateTable {
    let mut sum: BTreeMap<State, StateTime> = BTreeMap::new();
    let mut moved: Vec<(State, u64)> = Vec::new();
    for state in State::ALL {
        let none = StateTime::default();
        let (x, y) = (a.get(&state).unwrap_or(&none), b.get(&state).unwrap_or(&none));
        let mut both = if x.ns.is_none() { x.clone() } else { y.clone() };
        both.ns = match (x.ns, y.ns) {
            (Some(x), Some(y)) => Some(x.saturating_add(y)),
            (one, other) => {
                moved.extend(one.or(other).map(|ns| (state, ns)));
                None
            }
        };
        both.quality = both.ns.and(weaker(x.quality, y.quality));
        for included in x.includes.iter().chain(&y.includes) {
            if !both.includes.contains(included) {
                both.includes.push(*included);
            }
        }
        sum.insert(state, both);
    }
    for (state, ns) in moved.into_iter().filter(|(_, ns)| *ns > 0) {
        let holder = State::ALL.into_iter().find(|holder| {
            sum.get(holder).is_some_and(|t| t.ns.is_some() && t.includes.contains(&state))
        });
        let holder = sum.entry(holder.unwrap_or(State::Unknown)).or_default();
        holder.ns = Some(holder.ns.unwrap_or(0).saturating_add(ns));
    }
    sum
}

/// Returns the lower of two qualities.
fn weaker(a: Option<Quality>, b: Option<Quality>) -> Option<Quality> {
    let rank = |q: Quality| match q {
        Quality::Exact => 0,
        Quality::Bounded => 1,
        Quality::Inferred => 2,
    };
    match (a, b) {
        (Some(a), Some(b)) => Some(if rank(a) >= rank(b) { a } else { b }),
        (one, other) => one.or(other),
    }
}
