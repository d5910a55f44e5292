//! One number at a time, for a study that repeats each in a process of its own.

use crate::blocks::{Bench, region, three};
use crate::ladder::Walk;
use crate::pages::chain_ns;
use crate::smt::{SmtPlan, Work};
use crate::{MemoryError, rulers};
use ioloom_sys::affinity::{self, PinnedThread};
use ioloom_sys_lab::memory::{Layout, Pages, Step, dependent_adds};

/// Blocks of one number: enough that a run is not mostly start-up.
const BLOCKS: usize = 41;
/// A line where nothing tells.
const LINE: usize = 64;
/// Pages of the smallest kind.
const PAGE: usize = 4096;
/// Largest set, KiB.
const KIB_MAX: u64 = 1 << 20;

/// Where two threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// One thread.
    Alone,
    /// Two on one core.
    Siblings,
    /// Two on different cores.
    Cores,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Single {
    /// Arithmetic in registers.
    Add,
    /// Dependent loads in random order in a set of so many bytes.
    Chase(usize),
    /// The same with a store at each step.
    ChaseStore(usize),
    /// The published loop: one store in each line in order, optimised.
    Store(usize),
    /// The same, not optimised.
    Plain(usize),
    /// Loads of random lines that do not wait for each other.
    Random(usize),
    /// A matrix by rows.
    Rows,
    /// The same matrix by columns.
    Columns,
    /// Dependent loads, one in each of so many pages.
    Spread(usize),
    /// As many lines side by side.
    Packed(usize),
    /// Fixed work on threads.
    Threads(Placement, Work),
}

/// Words of the methods, with the setting that each needs.
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
    /// From a method and its setting, a number or the word of a work.
    ///
    /// # Errors
    /// What is wrong, with what there is.
    pub fn parse(method: &str, setting: Option<&str>) -> Result<Self, String> {
        let Some((_, needs)) = METHODS.iter().find(|(word, _)| *word == method) else {
            let known: Vec<_> = METHODS.iter().map(|(word, _)| *word).collect();
            return Err(format!("no method '{method}'; there are: {}", known.join(", ")));
        };
        let text = match (setting, needs.is_empty()) {
            (None, true) => "",
            (Some(text), false) => text,
            (None, false) => return Err(format!("{method} needs {needs}=…")),
            (Some(_), true) => return Err(format!("{method} takes no setting")),
        };
        let number = |max: u64| match text.parse::<u64>() {
            Ok(n) if (4..=max).contains(&n) => Ok(n as usize),
            _ => Err(format!("{needs}={text}: give a whole number from 4 to {max}")),
        };
        let seats = |seats| Work::parse(text).map(|work| Self::Threads(seats, work));
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
            "alone" => seats(Placement::Alone)?,
            "siblings" => seats(Placement::Siblings)?,
            "cores" => seats(Placement::Cores)?,
            _ => Self::Add,
        })
    }

    /// What it does, in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Add => "additions in registers that wait for each other",
            Self::Chase(_) => "loads in random order, each waiting for the one before",
            Self::ChaseStore(_) => "the same loads, and a store in each line",
            Self::Store(_) => "the published loop: a store in each line, in order",
            Self::Plain(_) => "the published loop as compiled without optimisation",
            Self::Random(_) => "loads of random lines that do not wait for each other",
            Self::Rows => "a matrix of 32 MiB by rows",
            Self::Columns => "a matrix of 32 MiB by columns",
            Self::Spread(_) => "loads that wait for each other, one in each page",
            Self::Packed(_) => "the same number of lines side by side",
            Self::Threads(Placement::Alone, _) => "fixed work on one thread",
            Self::Threads(Placement::Siblings, _) => {
                "the same work on each of two threads of a core"
            }
            Self::Threads(Placement::Cores, _) => "the same work on threads of two cores",
        }
    }

    /// Whether this machine has the seats that it needs.
    ///
    /// # Errors
    /// What is missing, as a sentence.
    pub fn possible(self, plan: &SmtPlan) -> Result<(), String> {
        match self {
            Self::Threads(Placement::Siblings, _) if plan.siblings.is_none() => {
                Err(plan.why_none.clone().unwrap_or_else(|| "no siblings are allowed".to_owned()))
            }
            Self::Threads(Placement::Cores, _) if plan.cores.is_none() => {
                Err("two cores are needed, one is allowed".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Bytes that its accesses lie in; 0 where the size is no setting. Only equal ones are the same
    /// work.
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

    /// Measures it: least, tenth percentile and median of its blocks, nanoseconds for each access,
    /// or for the whole work of threads.
    ///
    /// # Errors
    /// No memory.
    pub fn run(self, seed: u64, plan: &SmtPlan) -> Result<(f64, f64, f64), MemoryError> {
        if let Self::Threads(seats, work) = self {
            return Ok(three(&threads(seats, work, plan)?));
        }
        let cpu = affinity::allowed().ok().and_then(|all| all.last().copied());
        let mut bench = Bench::new(cpu.and_then(|cpu| PinnedThread::pin(cpu).ok()), true, seed);
        let times = match self {
            Self::Chase(bytes) => {
                Walk::new(bytes, LINE)?.measure_with(&mut bench, bytes, BLOCKS, Step::Load)
            }
            Self::ChaseStore(bytes) => {
                Walk::new(bytes, LINE)?.measure_with(&mut bench, bytes, BLOCKS, Step::Store)
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
        Ok(three(&times))
    }
}

fn page_times(bench: &mut Bench, layout: Layout, pages: usize) -> Result<Vec<f64>, MemoryError> {
    let mut held = Some(region(pages * PAGE + PAGE, Pages::Small)?);
    Ok((0..3).map(|_| chain_ns(bench, &mut held, layout, pages, 13)).collect())
}

fn threads(seats: Placement, work: Work, plan: &SmtPlan) -> Result<Vec<f64>, MemoryError> {
    let cpus = match (seats, plan.siblings.or(plan.cores)) {
        (Placement::Alone, Some((a, _))) => vec![a],
        (Placement::Alone, None) => {
            affinity::allowed().unwrap_or_default().into_iter().take(1).collect()
        }
        (Placement::Siblings, _) => plan.siblings.map_or(Vec::new(), |(a, b)| vec![a, b]),
        (Placement::Cores, _) => plan.cores.map_or(Vec::new(), |(a, b)| vec![a, b]),
    };
    let times: Vec<f64> = (0..3).filter_map(|_| work.time(32 << 10, &cpus)).collect();
    if times.is_empty() {
        return Err(MemoryError::Call {
            operation: "hold threads to processors",
            path: format!("{cpus:?}"),
            reason: std::io::Error::other("no round came to its end"),
            remedy: "see which processors this process may use",
        });
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_understood_with_its_setting_alone() {
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
    fn numbers_come_out_and_missing_seats_are_refused() {
        let plan = SmtPlan::choose(&[vec![0]], &[0], Some("notsupported"));
        for (word, setting) in [("add", None), ("chase", Some("16")), ("packed", Some("16"))] {
            let single = Single::parse(word, setting).unwrap();
            assert!(single.possible(&plan).is_ok());
            let (low, tenth, middle) = single.run(1, &plan).unwrap();
            assert!(0.0 < low && low <= tenth && tenth <= middle, "{word} {low} {tenth} {middle}");
        }
        let siblings = Single::parse("siblings", Some("wide")).unwrap();
        assert!(siblings.possible(&plan).unwrap_err().contains("no SMT visible here"));
        assert!(Single::parse("cores", Some("alu")).unwrap().possible(&plan).is_err());
    }
}
