//! Who does what.

use crate::{ParseError, spelled};
use std::fmt;
use std::str::FromStr;

/// In which order a hybrid thread issues reads and computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HybridOrder {
    /// All read calls that the window allows before any compute (the seed's order).
    ReadFirst,
    /// Compute whatever is ready before another read is issued.
    ComputeFirst,
    /// One read, then one compute, in turn.
    Alternate,
}

impl HybridOrder {
    /// The spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadFirst => "read-first",
            Self::ComputeFirst => "compute-first",
            Self::Alternate => "turns",
        }
    }
}

/// How far reads may run ahead of compute in the `roles` schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadAhead {
    /// At most this many files read or in flight and not yet computed.
    Files(u32),
    /// As many as there are files: the seed's form. Still under the memory and open-file limits;
    /// exceeding them ends the run as refused.
    All,
}

/// The assignment of work to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// N threads, a file at a time each: the seed's synchronous form.
    Threads {
        /// Number of threads.
        n: u32,
    },
    /// Readers, hybrids and computers over bounded queues.
    Roles {
        /// Threads that only read.
        readers: u32,
        /// Threads that read and compute.
        hybrids: u32,
        /// Threads that only compute.
        computers: u32,
        /// How far reads may run ahead.
        window: ReadAhead,
        /// How many threads may be inside open + submit at once; `None` is no limit.
        open_limit: Option<u32>,
        /// What a hybrid does first.
        order: HybridOrder,
    },
    /// P compute permits, L requests in flight over all workers.
    Window {
        /// Requests in flight, L.
        window: u32,
        /// Compute permits, P; `None` in a text means the usable cores and is filled in before
        /// the run.
        permits: Option<u32>,
    },
}

impl Schedule {
    /// The word: `threads`, `roles` or `window`.
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

    /// Reads `threads:n=4`, `window:l=32,p=2` or `roles:r=1,h=0,c=3,w=64,open=12,order=turns`;
    /// a bare first number is the main one (`threads:4`, `window:32`).
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
        let refuse = |reason: &str| Err(ParseError::new("schedule", text, reason));
        match *self {
            Self::Threads { n } if !(1..=4096).contains(&n) => refuse("1 to 4096 threads"),
            Self::Window { window, .. } if !(1..=1_048_576).contains(&window) => {
                refuse("a window of 1 to 1048576")
            }
            Self::Window { permits: Some(p), .. } if !(1..=4096).contains(&p) => {
                refuse("1 to 4096 permits")
            }
            Self::Roles { readers, hybrids, computers, window, open_limit, .. } => {
                if readers + hybrids == 0 {
                    refuse("somebody must read: r or h at least 1")
                } else if hybrids + computers == 0 {
                    refuse("somebody must compute: h or c at least 1")
                } else if readers + hybrids + computers > 4096 {
                    refuse("at most 4096 threads")
                } else if window == ReadAhead::Files(0) || open_limit == Some(0) {
                    refuse("w and open are at least 1")
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }
}

/// `key=value` pairs of a schedule; each may be taken once, none may be left over.
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
                ParseError::new("schedule", self.whole, "w is a whole number or all")
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
                    "order is read-first, compute-first or turns",
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

spelled!(Schedule);
