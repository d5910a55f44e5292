//! The plans of a sweep: everything that `auto` may choose, and what other programs do.

use std::fmt;

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
        chunk_kib: Option<u32>,
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
            Self::Window { method, window, permits, chunk_kib } => {
                write!(f, "{method}/window:l={window},p={permits}")?;
                match chunk_kib {
                    Some(kib) => write!(f, "/chunk={kib}KiB"),
                    None => Ok(()),
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
                    let (rest, chunk_kib) = match rest.split_once("/chunk=") {
                        Some((rest, chunk)) => {
                            (rest, Some(chunk.strip_suffix("KiB")?.parse().ok()?))
                        }
                        None => (rest, None),
                    };
                    let (window, permits) = rest.split_once(",p=")?;
                    Self::Window {
                        method: method.to_owned(),
                        window: window.parse().ok()?,
                        permits: permits.parse().ok()?,
                        chunk_kib,
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
        Self::Window { method: method.to_owned(), window, permits, chunk_kib: None }
    }
}

/// Returns the coarse sweep: steps of four.
pub(super) fn coarse(cores: u32) -> Vec<Plan> {
    let mut all = Vec::new();
    for (method, windows) in [
        ("nowait", &[4, 16, 64, 256, 1024][..]),
        ("uring", &[16, 64, 256]),
        ("uring:open", &[16, 64, 256]),
        ("direct:uring", &[2, 8, 32]),
        ("read", &[2, 8, 32, 128]),
    ] {
        all.extend(windows.iter().map(|window| Plan::window(method, *window, cores)));
    }
    all.extend([1, cores, 4 * cores].map(Plan::Threads));
    let large = Plan::window("read", 8, cores);
    if let Plan::Window { method, window, permits, .. } = large {
        all.push(Plan::Window { method, window, permits, chunk_kib: Some(1024) });
    }
    all
}

/// Returns half and twice the numbers of the best two, which also widens the sweep at its edges.
pub(super) fn finer(best: &[(Plan, f64)]) -> Vec<Plan> {
    let mut all: Vec<Plan> = Vec::new();
    for (plan, _) in best.iter().take(2) {
        let numbers = |n: u32| [(n / 2).max(1), n.saturating_mul(2).min(2048)];
        let near: Vec<Plan> = match plan {
            Plan::Window { method, window, permits, chunk_kib } => numbers(*window)
                .map(|window| Plan::Window {
                    method: method.clone(),
                    window,
                    permits: *permits,
                    chunk_kib: *chunk_kib,
                })
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
    vec![
        Plan::Default,
        Plan::Auto,
        Plan::Polite,
        Plan::window("nowait", 64, cores),
        Plan::window("nowait", 32, cores),
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
