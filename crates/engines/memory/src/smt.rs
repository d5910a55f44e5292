//! Threads that share a core: what two of them bring on siblings, on separate cores, and alone.
//!
//! Fixed work for each thread, so that time alone over time together is the gain, which is told in
//! two ways that are often mixed up: work per time, and time saved. Rounds stand in the order
//! A B B A, so that a drift of the clock rate hits all alike. Where no siblings are told, separate
//! cores are still measured: processors of a virtual machine that are told to be cores and slow
//! each other down in work that keeps a core busy share one.

use crate::blocks::least;
use crate::cycle::sattolo;
use crate::threads::spawn;
use ioloom_model::memory::{MemoryResult, SmtResult, SmtWork};
use ioloom_sys::affinity::PinnedThread;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_lab::memory::{
    Chain, Layout, Pages, Region, Step, dependent_adds, independent_work,
};
use std::sync::Barrier;

/// Two busy threads that get less than this of twice the work of one share a core.
const SHARED: f64 = 1.4;
/// From here on they do not.
const APART: f64 = 1.8;

/// Turns of one kind of work, of which the best counts.
const TURNS: usize = 3;

/// What is told about threads that share a core.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SmtPlan {
    /// Two allowed processors of one core.
    pub siblings: Option<(u32, u32)>,
    /// Two allowed processors of different cores.
    pub cores: Option<(u32, u32)>,
    /// Why there are no siblings, in words; `None` when there are.
    pub why_none: Option<String>,
}

impl SmtPlan {
    /// Chooses among the allowed processors. `cores` lists the processors of each core, `state` is
    /// what the kernel says of threads that share a core, such as `notsupported`.
    pub fn choose(cores: &[Vec<u32>], allowed: &[u32], state: Option<&str>) -> Self {
        let usable: Vec<Vec<u32>> = cores
            .iter()
            .map(|core| core.iter().copied().filter(|cpu| allowed.contains(cpu)).collect())
            .filter(|core: &Vec<u32>| !core.is_empty())
            .collect();
        let siblings = usable.iter().find(|core| core.len() >= 2).map(|core| (core[0], core[1]));
        let firsts: Vec<u32> = usable.iter().map(|core| core[0]).collect();
        let apart = match firsts.as_slice() {
            [a, b, ..] => Some((*a, *b)),
            _ => None,
        };
        let per_core = cores.iter().map(Vec::len).max().unwrap_or(0);
        let told = state.map_or(String::new(), |s| format!(", the kernel says: {s}"));
        let why_none = match (&siblings, per_core) {
            (Some(_), _) => None,
            (None, 0) => Some("which processors share a core is not known".to_owned()),
            (None, 1) => Some(format!("no SMT visible here: 1 thread per core{told}")),
            (None, n) => Some(format!(
                "{n} threads per core, but no two allowed processors are on the same core"
            )),
        };
        Self { siblings, cores: apart, why_none }
    }
}

/// The kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Additions that wait for each other: half of a core or less.
    Alu,
    /// Work that keeps all units busy.
    Wide,
    /// A chain of loads from memory.
    Chase,
    /// A working set of six tenths of the first level for each thread.
    L1Share,
    /// Computing, then waiting as for a device.
    Mixed,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Alu, Self::Wide, Self::Chase, Self::L1Share, Self::Mixed];

    /// From its word.
    ///
    /// # Errors
    /// There is none of that name; the sentence names those there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|work| work.word() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|work| work.word()).collect();
            format!("no work '{text}'; there are: {}", known.join(", "))
        })
    }

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Alu => "alu",
            Self::Wide => "wide",
            Self::Chase => "chase",
            Self::L1Share => "l1-share",
            Self::Mixed => "mixed",
        }
    }

    /// The work of one thread, ready to run; each run does the same.
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

    /// Time of the same work on each of `cpus` at once: that of the slowest, the best of some
    /// turns. `None` without a processor, or where one cannot be had.
    pub(crate) fn time(self, l1_bytes: usize, cpus: &[u32]) -> Option<f64> {
        if cpus.is_empty() {
            return None;
        }
        let barrier = Barrier::new(cpus.len());
        let times: Vec<Option<Vec<f64>>> = std::thread::scope(|scope| {
            let handles: Vec<_> = cpus
                .iter()
                .map(|cpu| {
                    let barrier = &barrier;
                    let role = format!("sibling-cpu{cpu}");
                    spawn(scope, role, move || self.on(*cpu, l1_bytes, barrier))
                })
                .collect();
            handles.into_iter().map(|h| h.join().ok().flatten()).collect()
        });
        let times: Vec<Vec<f64>> = times.into_iter().collect::<Option<_>>()?;
        let slowest = |turn: usize| times.iter().map(|of| of[turn]).fold(0.0, f64::max);
        (0..TURNS).map(slowest).reduce(f64::min)
    }

    /// One thread of it: made ready, then run in turns that begin together with the others'.
    fn on(self, cpu: u32, l1_bytes: usize, barrier: &Barrier) -> Option<Vec<f64>> {
        let held = PinnedThread::pin(cpu);
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
        (held.is_ok() && run.is_some()).then_some(times)
    }
}

/// Measures; on a machine without siblings only cores against alone, with the reason.
pub(crate) fn run(plan: &SmtPlan, result: &MemoryResult, quick: bool) -> SmtResult {
    let mut out = SmtResult {
        skipped: plan.why_none.clone(),
        siblings: plan.siblings,
        cores: plan.cores,
        ..SmtResult::default()
    };
    let l1 = result.levels.first().and_then(|l| l.bracket_bytes).map_or(32 << 10, |(low, _)| low);
    let rounds = if quick { 2 } else { 4 };
    let Some(alone) = plan.siblings.or(plan.cores).map(|(a, _)| a) else {
        return out;
    };
    for work in Work::ALL {
        let (mut one, mut siblings, mut cores) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            // A B B A: what comes first changes sides.
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
                times.extend(work.time(l1 as usize, &cpus));
            }
        }
        let some = |times: &[f64]| Some(least(times)).filter(|ns| ns.is_finite());
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
    out
}

fn pair(pair: Option<(u32, u32)>) -> Vec<u32> {
    pair.map_or(Vec::new(), |(a, b)| vec![a, b])
}

/// Whether processors that are told to be cores behave like siblings.
fn hidden(found: &SmtResult) -> Option<String> {
    let wide = found.works.iter().find(|w| w.work == "wide")?;
    let ratio = wide.throughput_ratio(wide.cores_ns?);
    let word = if ratio < SHARED {
        "likely: told to be cores, they behave like threads of one, or another program held one"
    } else if ratio >= APART {
        "unlikely: each does its work as if alone"
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
    fn a_machine_without_siblings_says_so() {
        let plan = SmtPlan::choose(&[vec![0], vec![1]], &[0, 1], Some("notsupported"));
        assert_eq!((plan.siblings, plan.cores), (None, Some((0, 1))));
        assert_eq!(
            plan.why_none.unwrap(),
            "no SMT visible here: 1 thread per core, the kernel says: notsupported"
        );
        let plan = SmtPlan::choose(&[], &[0], None);
        assert!(plan.why_none.unwrap().contains("not known"));
        let one = SmtPlan::choose(&[vec![0]], &[0], None);
        let found = run(&one, &MemoryResult::default(), true);
        assert!(found.skipped.is_some() && found.works.is_empty());
    }

    #[test]
    fn cores_that_slow_each_other_down_are_called_out() {
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
