//! How threads share the work.

use crate::{ParseError, serialize_as_text};
use std::fmt;
use std::str::FromStr;

/// Maximum number of threads of a schedule.
pub const THREADS_MAX: u32 = 4096;

/// Order in which a hybrid thread alternates between reads and compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HybridOrder {
    /// Issue all reads that the window allows, then compute. Source study 000 uses this order.
    ReadFirst,
    /// Compute all ready files before issuing the next read.
    ComputeFirst,
    /// Alternate between one read and one compute.
    Alternate,
}

impl HybridOrder {
    /// Returns the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadFirst => "read-first",
            Self::ComputeFirst => "compute-first",
            Self::Alternate => "turns",
        }
    }
}

/// How far reads can be ahead of compute in the `roles` schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadAhead {
    /// At most this many files in flight, or read but not yet computed.
    Files(u32),
    /// All files, as in source study 000. The memory and open-file limits still apply; a run that
    /// exceeds them is refused.
    All,
}

/// How work is assigned to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// N threads that each process one file at a time: the synchronous form of source study 000.
    Threads {
        /// Number of threads.
        n: u32,
    },
    /// Reader, hybrid and compute threads connected by bounded queues.
    Roles {
        /// Number of threads that only read.
        readers: u32,
        /// Number of threads that read and compute.
        hybrids: u32,
        /// Number of threads that only compute.
        computers: u32,
        /// How far reads can be ahead of compute.
        window: ReadAhead,
        /// Maximum number of threads that open and submit at once; `None` for no limit.
        open_limit: Option<u32>,
        /// Order of work in hybrid threads.
        order: HybridOrder,
    },
    /// P compute permits, and L requests in flight over all workers.
    Window {
        /// Requests in flight, L.
        window: u32,
        /// Compute permits, P. If omitted, set to the number of usable cores before the run.
        permits: Option<u32>,
    },
}

impl Schedule {
    /// Returns the name: `threads`, `roles` or `window`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Threads { .. } => "threads",
            Self::Roles { .. } => "roles",
            Self::Window { .. } => "window",
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads { n } => write!(f, "threads:n={n}"),
            Self::Window { window, permits } => {
                write!(f, "window:l={window}")?;
                permits.map_or(Ok(()), |p| write!(f, ",p={p}"))
            }
            Self::Roles { readers, hybrids, computers, window, open_limit, order } => {
                write!(f, "roles:r={readers},h={hybrids},c={computers}")?;
                match window {
                    ReadAhead::Files(n) => write!(f, ",w={n}")?,
                    ReadAhead::All => f.write_str(",w=all")?,
                }
                if let Some(limit) = open_limit {
                    write!(f, ",open={limit}")?;
                }
                if *hybrids > 0 {
                    write!(f, ",order={}", order.name())?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Schedule {
    type Err = ParseError;

    /// Parses `threads:n=4`, `window:l=32,p=2` or `roles:r=1,h=0,c=3,w=64,open=12,order=turns`.
    /// The first key can be omitted (`threads:4`, `window:32`).
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut fields = Fields::read(text, rest)?;
        let schedule = match name {
            "threads" => Self::Threads { n: fields.count("n")?.unwrap_or(1) },
            "window" => Self::Window {
                window: fields.count("l")?.unwrap_or(32),
                permits: fields.count("p")?,
            },
            "roles" => fields.roles()?,
            _ => {
                return Err(ParseError::new(
                    "schedule",
                    text,
                    "use threads:n=N, window:l=L,p=P or roles:r=R,h=H,c=C,w=W",
                ));
            }
        };
        fields.finish()?;
        schedule.check(text)?;
        Ok(schedule)
    }
}

impl Schedule {
    fn check(&self, text: &str) -> Result<(), ParseError> {
        let many = matches!(self, Self::Window { permits: Some(p), .. } if *p > 4096);
        match self.refusal() {
            Some(reason) => Err(ParseError::new("schedule", text, reason)),
            None if many => Err(ParseError::new("schedule", text, "p must be at most 4096")),
            None => Ok(()),
        }
    }

    /// Returns why no machine can run the schedule with its counts, or `None` if one can. The text form
    /// also limits permits; plans without a text may have one for each of very many threads.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        match *self {
            Self::Threads { n } if !(1..=THREADS_MAX).contains(&n) => Some("n must be 1 to 4096"),
            Self::Window { window, .. } if !(1..=1_048_576).contains(&window) => {
                Some("l must be 1 to 1048576")
            }
            Self::Window { permits: Some(0), .. } => Some("p must be at least 1"),
            Self::Roles { readers, hybrids, computers, window, open_limit, .. } => {
                // The sum of three counts may exceed their type.
                let threads = [readers, hybrids, computers].map(u64::from).iter().sum::<u64>();
                if readers == 0 && hybrids == 0 {
                    Some("no thread reads; r or h must be at least 1")
                } else if hybrids == 0 && computers == 0 {
                    Some("no thread computes; h or c must be at least 1")
                } else if threads > u64::from(THREADS_MAX) {
                    Some("r, h and c must add up to at most 4096")
                } else if window == ReadAhead::Files(0) || open_limit == Some(0) {
                    Some("w and open must be at least 1")
                } else {
                    None
                }
            }
            _ => None,
        }
    }
}

/// The `key=value` pairs of a schedule. Each pair must be taken exactly once.
struct Fields<'a> {
    whole: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    fn read(whole: &'a str, rest: &'a str) -> Result<Self, ParseError> {
        let mut pairs = Vec::new();
        for (i, part) in rest.split(',').filter(|p| !p.is_empty()).enumerate() {
            match part.split_once('=') {
                Some(pair) => pairs.push(pair),
                None if i == 0 => {
                    pairs.push((if whole.starts_with('t') { "n" } else { "l" }, part))
                }
                None => return Err(ParseError::new("schedule", whole, "use key=value pairs")),
            }
        }
        Ok(Self { whole, pairs })
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.pairs.iter().position(|(k, _)| *k == key)?;
        Some(self.pairs.remove(at).1)
    }

    fn count(&mut self, key: &str) -> Result<Option<u32>, ParseError> {
        self.take(key)
            .map(|text| {
                text.parse().map_err(|_| {
                    ParseError::new("schedule", self.whole, format!("{key} must be a whole number"))
                })
            })
            .transpose()
    }

    fn roles(&mut self) -> Result<Schedule, ParseError> {
        let window = match self.take("w") {
            None => ReadAhead::Files(64),
            Some("all") => ReadAhead::All,
            Some(text) => ReadAhead::Files(text.parse().map_err(|_| {
                ParseError::new("schedule", self.whole, "w must be a whole number or all")
            })?),
        };
        let order = match self.take("order") {
            None | Some("read-first") => HybridOrder::ReadFirst,
            Some("compute-first") => HybridOrder::ComputeFirst,
            Some("turns") => HybridOrder::Alternate,
            Some(_) => {
                return Err(ParseError::new(
                    "schedule",
                    self.whole,
                    "order must be read-first, compute-first or turns",
                ));
            }
        };
        Ok(Schedule::Roles {
            readers: self.count("r")?.unwrap_or(0),
            hybrids: self.count("h")?.unwrap_or(0),
            computers: self.count("c")?.unwrap_or(0),
            window,
            open_limit: self.count("open")?,
            order,
        })
    }

    fn finish(&self) -> Result<(), ParseError> {
        match self.pairs.first() {
            None => Ok(()),
            Some((key, _)) => {
                Err(ParseError::new("schedule", self.whole, format!("unknown or repeated '{key}'")))
            }
        }
    }
}

serialize_as_text!(Schedule);
