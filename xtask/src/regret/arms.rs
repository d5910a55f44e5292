//! The plans of a sweep: methods and windows, and the plans of other programs.
//!
//! `auto` may also choose other numbers of permits and sizes of chunks. The sweep varies these little:
//! its windows have one permit per core, and one of them has larger chunks.

use std::fmt;

/// Files that a thread of the default takes at once.
const STRIPE: &str = "stripe=64";

/// Most files in flight of the finer sweep, unless the plan that it surrounds has more.
const WIDEST: u32 = 2048;

/// Most threads and permits of a plan of `ioloom each`.
const THREADS_MAX: u32 = 4096;

/// A plan of `ioloom each`, or its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// Today's plan: no flag.
    Default,
    /// `--plan auto` and `--plan auto:polite`.
    Auto,
    Polite,
    /// A window of a method.
    Window {
        method: String,
        window: u32,
        permits: u32,
        /// Such as `stripe=64`; empty for none.
        options: String,
    },
    /// Blocking threads.
    Threads(u32),
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::Auto => write!(f, "auto"),
            Self::Polite => write!(f, "auto:polite"),
            Self::Threads(n) => write!(f, "read/threads:n={n}"),
            Self::Window { method, window, permits, options } => {
                write!(f, "{method}/window:l={window},p={permits}")?;
                match options.as_str() {
                    "" => Ok(()),
                    options => write!(f, "/{options}"),
                }
            }
        }
    }
}

impl Plan {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "default" => Self::Default,
            "auto" => Self::Auto,
            "auto:polite" => Self::Polite,
            _ => match text.strip_prefix("read/threads:n=") {
                Some(n) => Self::Threads(n.parse().ok()?),
                None => {
                    let (method, rest) = text.split_once("/window:l=")?;
                    let (rest, options) = rest.split_once('/').unwrap_or((rest, ""));
                    let (window, permits) = rest.split_once(",p=")?;
                    Self::Window {
                        method: method.to_owned(),
                        window: window.parse().ok()?,
                        permits: permits.parse().ok()?,
                        options: options.to_owned(),
                    }
                }
            },
        })
    }

    /// Returns the words that select the plan.
    pub(super) fn words(&self) -> Vec<String> {
        match self {
            Self::Default => Vec::new(),
            plan => vec!["--plan".to_owned(), plan.to_string()],
        }
    }

    fn window(method: &str, window: u32, permits: u32) -> Self {
        Self::with(method, window, permits, "")
    }

    fn with(method: &str, window: u32, permits: u32, options: &str) -> Self {
        let (method, options) = (method.to_owned(), options.to_owned());
        Self::Window { method, window, permits, options }
    }
}

/// Returns the coarse sweep: windows in steps of four; one thread, one per core and four per core.
pub(super) fn coarse(cores: u32) -> Vec<Plan> {
    let cores = cores.clamp(1, THREADS_MAX);
    let mut all = Vec::new();
    for (method, options, windows) in [
        ("nowait", "", &[4, 16, 64, 256, 1024][..]),
        ("nowait", STRIPE, &[64, 256, 1024]),
        ("uring", "", &[16, 64, 256]),
        ("uring:open", "", &[16, 64, 256]),
        ("direct:uring", "", &[2, 8, 32]),
        ("read", "", &[2, 8, 32, 128]),
    ] {
        all.extend(windows.iter().map(|window| Plan::with(method, *window, cores, options)));
    }
    let mut threads = vec![1, cores, (4 * cores).min(THREADS_MAX)];
    threads.dedup();
    all.extend(threads.into_iter().map(Plan::Threads));
    all.push(Plan::with("read", 8, cores, "chunk=1024KiB"));
    all
}

/// Returns half and twice the numbers of the best two, which also widens the sweep at its edges.
pub(super) fn finer(best: &[(Plan, f64)]) -> Vec<Plan> {
    let mut all: Vec<Plan> = Vec::new();
    for (plan, _) in best.iter().take(2) {
        let numbers = |n: u32| [(n / 2).max(1), n.saturating_mul(2).min(WIDEST.max(n))];
        let near: Vec<Plan> = match plan {
            Plan::Window { method, window, permits, options } => numbers(*window)
                .map(|window| Plan::with(method, window, *permits, options))
                .to_vec(),
            Plan::Threads(n) => numbers(*n).map(Plan::Threads).to_vec(),
            _ => Vec::new(),
        };
        for plan in near {
            if !all.contains(&plan) && best.iter().all(|(known, _)| *known != plan) {
                all.push(plan);
            }
        }
    }
    all
}

/// Returns the plans that every cell runs at the end: ours, and those of other programs.
pub(super) fn rivals(cores: u32) -> Vec<Plan> {
    let cores = cores.clamp(1, THREADS_MAX);
    vec![
        Plan::Default,
        Plan::Auto,
        Plan::Polite,
        Plan::with("nowait", 512, cores, STRIPE),
        Plan::with("nowait", 64, cores, STRIPE),
        Plan::with("nowait", 32, cores, STRIPE),
        // Threads that take one file at a time.
        Plan::window("nowait", 512, cores),
        // The blocking pool of tokio, and one thread per core as rayon starts them.
        Plan::window("read", 512, cores),
        Plan::Threads(cores),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_round_trip_through_their_text() {
        for plan in coarse(2).into_iter().chain(rivals(2)) {
            assert_eq!(Plan::parse(&plan.to_string()), Some(plan));
        }
        assert_eq!(Plan::parse("read"), None);
    }

    #[test]
    fn every_machine_has_a_sweep_of_different_plans_that_can_run() {
        for (cores, expected) in [
            (0, vec![1, 4]),
            (1, vec![1, 4]),
            (2, vec![1, 2, 8]),
            (512, vec![1, 512, 2048]),
            (1500, vec![1, 1500, 4096]),
            (u32::MAX, vec![1, 4096]),
        ] {
            let threads = coarse(cores).into_iter().filter_map(|plan| match plan {
                Plan::Threads(n) => Some(n),
                _ => None,
            });
            assert_eq!(threads.collect::<Vec<_>>(), expected, "{cores}");
        }
        let widened = finer(&[(Plan::Threads(4096), 1.0)]);
        assert_eq!(widened, [Plan::Threads(2048)], "its double cannot run");
    }

    #[test]
    fn the_finer_sweep_surrounds_the_best_two() {
        let best = [(Plan::Threads(8), 1.0), (Plan::window("nowait", 1024, 2), 2.0)];
        let finer = finer(&best);
        let expected = [
            Plan::Threads(4),
            Plan::Threads(16),
            Plan::window("nowait", 512, 2),
            Plan::window("nowait", 2048, 2),
        ];
        assert_eq!(finer, expected, "an edge is widened");
    }
}
