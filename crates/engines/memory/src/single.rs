//! Individual figures, for a study that repeats each one in a separate process.

use crate::blocks::{Bench, region, summary};
use crate::error::MemoryError;
use crate::ladder::ChaseRegion;
use crate::pages::chain_ns;
use crate::rulers;
use crate::smt::{SmtPlan, Work};
use ioloom_sys::affinity::{self, PinnedThread};
use ioloom_sys_lab::memory::{Layout, Pages, Step, dependent_adds};

/// Number of blocks per figure; large enough that start-up does not dominate a run.
const BLOCKS: usize = 41;
/// Cache line size in bytes.
const LINE: usize = 64;
/// Small page size in bytes.
const PAGE: usize = 4096;
/// Size of the largest set in KiB.
const KIB_MAX: u64 = 1 << 20;

/// Placement of threads on processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// One thread.
    Alone,
    /// Two threads on one core.
    Siblings,
    /// Two threads on different cores.
    Cores,
}

/// The figure to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Single {
    /// Arithmetic in registers.
    Add,
    /// Dependent loads in random order in a set of this many bytes.
    Chase(usize),
    /// The same with a store in each step.
    ChaseStore(usize),
    /// The published loop, optimised: one store per line, in order.
    Store(usize),
    /// The published loop, not optimised.
    Plain(usize),
    /// Independent loads of random lines.
    Random(usize),
    /// A matrix sum by rows.
    Rows,
    /// The same sum by columns.
    Columns,
    /// Dependent loads, one per page, in this many pages.
    Spread(usize),
    /// Dependent loads from the same number of adjacent lines.
    Packed(usize),
    /// A fixed amount of work on threads.
    Threads(Placement, Work),
}

/// The methods, each with the setting that it needs.
pub const METHODS: [(&str, &str); 13] = [
    ("add", ""),
    ("chase", "kib"),
    ("chase-store", "kib"),
    ("store", "kib"),
    ("plain", "kib"),
    ("random", "kib"),
    ("rows", ""),
    ("columns", ""),
    ("spread", "pages"),
    ("packed", "pages"),
    ("alone", "work"),
    ("siblings", "work"),
    ("cores", "work"),
];

impl Single {
    /// Parses a method and its setting, which is a number or the name of a type of work.
    ///
    /// # Errors
    /// Returns what is wrong, and the accepted values.
    pub fn parse(method: &str, setting: Option<&str>) -> Result<Self, String> {
        let Some((_, needs)) = METHODS.iter().find(|(word, _)| *word == method) else {
            let known: Vec<_> = METHODS.iter().map(|(word, _)| *word).collect();
            return Err(format!("unknown method '{method}'; use one of {}", known.join(", ")));
        };
        let text = match (setting, needs.is_empty()) {
            (None, true) => "",
            (Some(text), false) => text,
            (None, false) => return Err(format!("{method} requires {needs}=…")),
            (Some(_), true) => return Err(format!("{method} takes no setting")),
        };
        let number = |max: u64| match text.parse::<u64>() {
            Ok(n) if (4..=max).contains(&n) => Ok(n as usize),
            _ => Err(format!("invalid value '{text}' for {needs}: must be 4 to {max}")),
        };
        let placement = |placement| Work::parse(text).map(|work| Self::Threads(placement, work));
        Ok(match method {
            "chase" => Self::Chase(number(KIB_MAX)? << 10),
            "chase-store" => Self::ChaseStore(number(KIB_MAX)? << 10),
            "store" => Self::Store(number(KIB_MAX)? << 10),
            "plain" => Self::Plain(number(KIB_MAX)? << 10),
            "random" => Self::Random(number(KIB_MAX)? << 10),
            "rows" => Self::Rows,
            "columns" => Self::Columns,
            "spread" => Self::Spread(number(1 << 18)?),
            "packed" => Self::Packed(number(1 << 18)?),
            "alone" => placement(Placement::Alone)?,
            "siblings" => placement(Placement::Siblings)?,
            "cores" => placement(Placement::Cores)?,
            _ => Self::Add,
        })
    }

    /// Returns a description in one sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Add => "dependent additions in registers",
            Self::Chase(_) => "dependent loads in random order",
            Self::ChaseStore(_) => "dependent loads in random order, with a store in each line",
            Self::Store(_) => "the published loop: a store in each line, in order",
            Self::Plain(_) => "the published loop, compiled without optimisation",
            Self::Random(_) => "independent loads of random lines",
            Self::Rows => "the sum of a 32 MiB matrix by rows",
            Self::Columns => "the sum of a 32 MiB matrix by columns",
            Self::Spread(_) => "dependent loads, one in each page",
            Self::Packed(_) => "dependent loads from the same number of adjacent lines",
            Self::Threads(Placement::Alone, _) => "a fixed amount of work on one thread",
            Self::Threads(Placement::Siblings, _) => {
                "the same work on each of two threads that share a core"
            }
            Self::Threads(Placement::Cores, _) => "the same work on each of two separate cores",
        }
    }

    /// Checks whether this machine has the processors needed for the placement.
    ///
    /// # Errors
    /// Returns a sentence that states what is missing.
    pub fn check_possible(self, plan: &SmtPlan) -> Result<(), String> {
        match self {
            Self::Threads(Placement::Siblings, _) if plan.siblings.is_none() => Err(plan
                .why_none
                .clone()
                .unwrap_or_else(|| "no two permitted processors share a core".to_owned())),
            Self::Threads(Placement::Cores, _) if plan.cores.is_none() => {
                Err("two cores are required, but only one is permitted".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the size of the accessed set in bytes; 0 if it is not a setting. Only figures with
    /// equal sizes do the same work.
    pub fn set_bytes(self) -> u64 {
        match self {
            Self::Chase(bytes)
            | Self::ChaseStore(bytes)
            | Self::Store(bytes)
            | Self::Plain(bytes)
            | Self::Random(bytes) => bytes as u64,
            Self::Spread(pages) | Self::Packed(pages) => (pages * PAGE) as u64,
            Self::Add | Self::Rows | Self::Columns | Self::Threads(..) => 0,
        }
    }

    /// Measures the figure: minimum, tenth percentile and median of its blocks, in nanoseconds per
    /// access, or in nanoseconds for the entire work of the threads.
    ///
    /// # Errors
    /// Returns an error if memory cannot be mapped or a thread cannot be pinned.
    pub fn run(self, seed: u64, plan: &SmtPlan) -> Result<(f64, f64, f64), MemoryError> {
        if let Self::Threads(placement, work) = self {
            return Ok(summary(&threads(placement, work, plan)?));
        }
        let cpu = affinity::allowed().ok().and_then(|all| all.last().copied());
        let pin = |cpu| PinnedThread::pin(cpu).map_err(|_| MemoryError::Pin(vec![cpu]));
        let mut bench = Bench::new(cpu.map(pin).transpose()?, true, seed);
        let times = match self {
            Self::Chase(bytes) => {
                ChaseRegion::new(bytes, LINE)?.measure_with(&mut bench, bytes, BLOCKS, Step::Load)
            }
            Self::ChaseStore(bytes) => {
                ChaseRegion::new(bytes, LINE)?.measure_with(&mut bench, bytes, BLOCKS, Step::Store)
            }
            Self::Spread(n) => page_times(&mut bench, Layout::one_per_page(PAGE, LINE), n)?,
            Self::Packed(n) => page_times(&mut bench, Layout::packed(LINE), n)?,
            Self::Store(bytes) => rulers::published(&mut bench, bytes, true, BLOCKS),
            Self::Plain(bytes) => rulers::published(&mut bench, bytes, false, BLOCKS),
            Self::Random(bytes) => rulers::random(&mut bench, bytes, LINE, BLOCKS)?,
            Self::Rows => rulers::matrix(&mut bench, true, 5)?,
            Self::Columns => rulers::matrix(&mut bench, false, 5)?,
            Self::Add | Self::Threads(..) => {
                bench.time(BLOCKS, |steps| dependent_adds(steps as u64).max(1) as usize)
            }
        };
        Ok(summary(&times))
    }
}

fn page_times(bench: &mut Bench, layout: Layout, pages: usize) -> Result<Vec<f64>, MemoryError> {
    let mut pinned = Some(region(pages * PAGE + PAGE, Pages::Small)?);
    Ok((0..3).map(|_| chain_ns(bench, &mut pinned, layout, pages, 13)).collect())
}

fn threads(placement: Placement, work: Work, plan: &SmtPlan) -> Result<Vec<f64>, MemoryError> {
    let cpus = match (placement, plan.siblings.or(plan.cores)) {
        (Placement::Alone, Some((a, _))) => vec![a],
        (Placement::Alone, None) => {
            affinity::allowed().unwrap_or_default().into_iter().take(1).collect()
        }
        (Placement::Siblings, _) => plan.siblings.map_or(Vec::new(), |(a, b)| vec![a, b]),
        (Placement::Cores, _) => plan.cores.map_or(Vec::new(), |(a, b)| vec![a, b]),
    };
    let mut times = Vec::new();
    for _ in 0..3 {
        times.extend(work.time(32 << 10, &cpus)?);
    }
    if times.is_empty() {
        return Err(MemoryError::Pin(cpus));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_parses_only_with_its_setting() {
        for (word, needs) in METHODS {
            let setting = match needs {
                "" => None,
                "work" => Some("wide"),
                _ => Some("64"),
            };
            let single = Single::parse(word, setting).unwrap();
            assert!(!single.sentence().is_empty());
            let wrong = if needs.is_empty() { Some("64") } else { None };
            assert!(Single::parse(word, wrong).is_err(), "{word}");
        }
        assert_eq!(Single::parse("chase", Some("64")), Ok(Single::Chase(65536)));
        for (word, setting) in [("chase", "0"), ("chase", "x"), ("cores", "nothing"), ("leap", "4")]
        {
            assert!(Single::parse(word, Some(setting)).is_err(), "{word} {setting}");
        }
    }

    #[test]
    fn figures_are_measured_and_missing_processors_are_refused() {
        let plan = SmtPlan::choose(&[vec![0]], &[0], Some("notsupported"));
        for (word, setting) in [("add", None), ("chase", Some("16")), ("packed", Some("16"))] {
            let single = Single::parse(word, setting).unwrap();
            assert!(single.check_possible(&plan).is_ok());
            let (low, tenth, middle) = single.run(1, &plan).unwrap();
            assert!(0.0 < low && low <= tenth && tenth <= middle, "{word} {low} {tenth} {middle}");
        }
        let siblings = Single::parse("siblings", Some("wide")).unwrap();
        assert!(siblings.check_possible(&plan).unwrap_err().contains("no SMT visible here"));
        assert!(Single::parse("cores", Some("alu")).unwrap().check_possible(&plan).is_err());
    }
}
