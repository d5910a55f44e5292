//! Threads that share a core: the throughput of one thread alone, of two threads on siblings, and
//! of two threads on separate cores.
//!
//! Each thread does a fixed amount of work, so the gain is the time alone divided by the time with
//! another thread. It is reported in two ways that are often confused: work per time, and time
//! saved. Rounds run in the order A B B A to balance out clock drift. Without visible siblings,
//! separate cores are still measured: if virtual processors are reported as cores but slow each
//! other down in work that keeps a core busy, they share a core.

use crate::blocks::minimum;
use crate::cycle::sattolo;
use crate::error::MemoryError;
use crate::threads::{named, together};
use ioloom_model::memory::{MemoryResult, SmtResult, SmtWork};
use ioloom_sys::affinity::PinnedThread;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_lab::memory::{
    Chain, Layout, Pages, Region, Step, dependent_adds, independent_work,
};
use std::sync::Barrier;

/// If two busy threads do less than this multiple of the work of one, they share a core.
const SHARED: f64 = 1.4;
/// At this ratio and above, they do not share a core.
const SEPARATE: f64 = 1.8;

/// Number of repetitions of each type of work; the best one counts.
const TURNS: usize = 3;

/// The processors for measuring threads that share a core.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SmtPlan {
    /// Two permitted processors on one core.
    pub siblings: Option<(u32, u32)>,
    /// Two permitted processors on different cores.
    pub cores: Option<(u32, u32)>,
    /// Why there are no siblings; `None` if there are.
    pub why_none: Option<String>,
}

impl SmtPlan {
    /// Chooses from the permitted processors. `cores` lists the processors of each core; `state` is
    /// the kernel's SMT state, such as `notsupported`.
    pub fn choose(cores: &[Vec<u32>], allowed: &[u32], state: Option<&str>) -> Self {
        let usable: Vec<Vec<u32>> = cores
            .iter()
            .map(|core| core.iter().copied().filter(|cpu| allowed.contains(cpu)).collect())
            .filter(|core: &Vec<u32>| !core.is_empty())
            .collect();
        let siblings = usable.iter().find(|core| core.len() >= 2).map(|core| (core[0], core[1]));
        let firsts: Vec<u32> = usable.iter().map(|core| core[0]).collect();
        let separate = match firsts.as_slice() {
            [a, b, ..] => Some((*a, *b)),
            _ => None,
        };
        let per_core = cores.iter().map(Vec::len).max().unwrap_or(0);
        let state_text = state.map_or(String::new(), |s| format!(" (kernel: {s})"));
        let why_none = match (&siblings, per_core) {
            (Some(_), _) => None,
            (None, 0) => Some("it is unknown which processors share a core".to_owned()),
            (None, 1) => Some(format!("no SMT visible here: 1 thread per core{state_text}")),
            (None, n) => Some(format!(
                "{n} threads per core, but no two allowed processors are on the same core"
            )),
        };
        Self { siblings, cores: separate, why_none }
    }
}

/// A type of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Dependent additions; they use at most half of a core.
    Alu,
    /// Independent operations that keep all execution units busy.
    Wide,
    /// Dependent loads from memory.
    Chase,
    /// A working set of 60 % of the first-level cache per thread.
    L1Share,
    /// Computation alternating with sleep, as if waiting for a device.
    Mixed,
}

impl Work {
    /// All types of work.
    pub const ALL: [Self; 5] = [Self::Alu, Self::Wide, Self::Chase, Self::L1Share, Self::Mixed];

    /// Parses a name.
    ///
    /// # Errors
    /// Returns a message with the known names.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|work| work.word() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|work| work.word()).collect();
            format!("unknown work '{text}'; use one of {}", known.join(", "))
        })
    }

    /// Returns the name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Alu => "alu",
            Self::Wide => "wide",
            Self::Chase => "chase",
            Self::L1Share => "l1-share",
            Self::Mixed => "mixed",
        }
    }

    /// Prepares the work of one thread; each run performs the same work.
    fn make(self, l1_bytes: usize, seed: u64) -> Option<Box<dyn FnMut() + Send>> {
        let chain = |bytes: usize| {
            let region = Region::new(bytes, Pages::Huge).ok()?;
            let next = sattolo((bytes / 64).max(2) as u32, seed);
            Some(Chain::link(region, Layout::packed(64), &next))
        };
        Some(match self {
            Self::Alu => Box::new(|| {
                dependent_adds(4_000_000);
            }),
            Self::Wide => Box::new(|| {
                independent_work(250_000);
            }),
            Self::Chase => {
                let mut chain = chain(32 << 20)?;
                Box::new(move || {
                    chain.walk(10_000, Step::Load);
                })
            }
            Self::L1Share => {
                let mut chain = chain((l1_bytes as f64 * 0.6) as usize)?;
                Box::new(move || {
                    chain.walk(1_000_000, Step::Load);
                })
            }
            Self::Mixed => Box::new(|| {
                for _ in 0..4 {
                    dependent_adds(500_000);
                    std::thread::sleep(std::time::Duration::from_micros(150));
                }
            }),
        })
    }

    /// Measures the same work on all of `cpus` at once. Returns the time of the slowest thread in
    /// the fastest turn, or `None` if there are no processors or one of them cannot be used.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn time(self, l1_bytes: usize, cpus: &[u32]) -> Result<Option<f64>, MemoryError> {
        if cpus.is_empty() {
            return Ok(None);
        }
        assert!(
            (1..cpus.len()).all(|i| !cpus[..i].contains(&cpus[i])),
            "two threads on one processor would be counted as siblings: {cpus:?}"
        );
        let barrier = Barrier::new(cpus.len());
        let works = cpus.iter().map(|cpu| {
            let barrier = &barrier;
            let work = move || self.on(*cpu, l1_bytes, barrier);
            (named(format!("sibling-cpu{cpu}")), work)
        });
        let times = together(works).map_err(MemoryError::Thread)?;
        let Some(times) = times.into_iter().map(Option::flatten).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let slowest = |turn: usize| times.iter().map(|of| of[turn]).fold(0.0, f64::max);
        Ok((0..TURNS).map(slowest).reduce(f64::min))
    }

    /// Runs one thread: prepares the work, then runs turns that start together with the other
    /// threads.
    fn on(self, cpu: u32, l1_bytes: usize, barrier: &Barrier) -> Option<Vec<f64>> {
        let pinned = PinnedThread::pin(cpu);
        let mut run = self.make(l1_bytes, u64::from(cpu));
        let mut turn = || {
            barrier.wait();
            let start = monotonic_ns();
            if let Some(run) = &mut run {
                run();
            }
            (monotonic_ns() - start) as f64
        };
        turn();
        let times = (0..TURNS).map(|_| turn()).collect();
        (pinned.is_ok() && run.is_some()).then_some(times)
    }
}

/// Measures all types of work; without siblings, only separate cores and one thread alone.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn run(
    plan: &SmtPlan,
    result: &MemoryResult,
    quick: bool,
) -> Result<SmtResult, MemoryError> {
    let mut out = SmtResult {
        skipped: plan.why_none.clone(),
        siblings: plan.siblings,
        cores: plan.cores,
        ..SmtResult::default()
    };
    let l1 = result.levels.first().and_then(|l| l.bracket_bytes).map_or(32 << 10, |(low, _)| low);
    let rounds = if quick { 2 } else { 4 };
    let Some(alone) = plan.siblings.or(plan.cores).map(|(a, _)| a) else {
        return Ok(out);
    };
    for work in Work::ALL {
        let (mut one, mut siblings, mut cores) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            // A B B A: reverse the order every other round.
            let mut order = [0, 1, 2];
            if round % 2 == 1 {
                order.reverse();
            }
            for which in order {
                let (cpus, times) = match which {
                    0 => (vec![alone], &mut one),
                    1 => (pair(plan.siblings), &mut siblings),
                    _ => (pair(plan.cores), &mut cores),
                };
                times.extend(work.time(l1 as usize, &cpus)?);
            }
        }
        let some = |times: &[f64]| Some(minimum(times)).filter(|ns| ns.is_finite());
        if let Some(alone_ns) = some(&one) {
            out.works.push(SmtWork {
                work: work.word().to_owned(),
                alone_ns,
                siblings_ns: some(&siblings),
                cores_ns: some(&cores),
            });
        }
    }
    out.hidden = hidden(&out);
    Ok(out)
}

fn pair(pair: Option<(u32, u32)>) -> Vec<u32> {
    pair.map_or(Vec::new(), |(a, b)| vec![a, b])
}

/// Decides whether processors that are reported as cores behave like siblings.
fn hidden(found: &SmtResult) -> Option<String> {
    let wide = found.works.iter().find(|w| w.work == "wide")?;
    let ratio = wide.throughput_ratio(wide.cores_ns?);
    let word = if ratio < SHARED {
        "likely: reported as cores, but they behave like threads of one core, or another \
         program used one"
    } else if ratio >= SEPARATE {
        "unlikely: each is as fast as when alone"
    } else {
        "undecided"
    };
    Some(format!("{word} (two busy threads do {ratio:.2} times the work of one)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [[u32; 2]; 4] = [[0, 4], [1, 5], [2, 6], [3, 7]];

    fn seed_cores() -> Vec<Vec<u32>> {
        SEED.iter().map(|pair| pair.to_vec()).collect()
    }

    #[test]
    fn siblings_and_cores_are_chosen_among_the_allowed() {
        let all: Vec<u32> = (0..8).collect();
        let plan = SmtPlan::choose(&seed_cores(), &all, Some("on"));
        assert_eq!((plan.siblings, plan.cores, plan.why_none), (Some((0, 4)), Some((0, 1)), None));
        let plan = SmtPlan::choose(&seed_cores(), &[3, 5, 7], Some("on"));
        assert_eq!((plan.siblings, plan.cores), (Some((3, 7)), Some((5, 3))));
        let plan = SmtPlan::choose(&seed_cores(), &[0, 1], Some("on"));
        assert!(plan.siblings.is_none() && plan.why_none.unwrap().contains("no two allowed"));
    }

    #[test]
    fn a_machine_without_siblings_gives_the_reason() {
        let plan = SmtPlan::choose(&[vec![0], vec![1]], &[0, 1], Some("notsupported"));
        assert_eq!((plan.siblings, plan.cores), (None, Some((0, 1))));
        assert_eq!(
            plan.why_none.unwrap(),
            "no SMT visible here: 1 thread per core (kernel: notsupported)"
        );
        let plan = SmtPlan::choose(&[], &[0], None);
        assert!(plan.why_none.unwrap().contains("unknown"));
        let one = SmtPlan::choose(&[vec![0]], &[0], None);
        let found = run(&one, &MemoryResult::default(), true).unwrap();
        assert!(found.skipped.is_some() && found.works.is_empty());
    }

    #[test]
    fn cores_that_slow_each_other_down_are_reported() {
        let with = |cores_ns: f64| SmtResult {
            works: vec![SmtWork {
                work: "wide".to_owned(),
                alone_ns: 100.0,
                siblings_ns: None,
                cores_ns: Some(cores_ns),
            }],
            ..SmtResult::default()
        };
        assert!(hidden(&with(190.0)).unwrap().starts_with("likely"));
        assert!(hidden(&with(102.0)).unwrap().starts_with("unlikely"));
        assert!(hidden(&with(125.0)).unwrap().starts_with("undecided"));
        assert_eq!(hidden(&SmtResult::default()), None);
    }
}
