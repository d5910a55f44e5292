//! A plan: method, schedule and numbers, complete.
//!
//! Spelling: `METHOD/SCHEDULE[/OPTION,OPTION…]`, for example `read/window:l=32,p=2`,
//! `uring/roles:r=1,h=0,c=3,w=64/buffers=fresh` or `direct:uring/window:l=8,p=2/chunk=1MiB`.
//! Options: `chunk=SIZE` (chunk form), `buffers=pool|fresh|prefaulted`, `order=list|inode`,
//! `stripe=N`, `memory=SIZE`.

use crate::units::{parse_size, spell_size};
use crate::{Method, ParseError, Schedule, spelled};
use std::fmt;
use std::str::FromStr;

/// Where the memory of a read comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Buffers {
    /// Recycled buffers: touched once, used many times.
    #[default]
    Pool,
    /// A fresh anonymous mapping for each file, untouched before the read (the seed's form).
    Fresh,
    /// A fresh mapping for each file, every page touched before the read.
    Prefaulted,
}

/// In which order files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadOrder {
    /// As given.
    #[default]
    List,
    /// By inode number, in batches of 65 536 paths so that long lists still stream.
    Inode,
}

/// A complete plan. It runs as asked or is refused with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How bytes are fetched.
    pub method: Method,
    /// Who does what.
    pub schedule: Schedule,
    /// Chunk form: the function sees pieces of this many bytes instead of whole files.
    pub chunk_bytes: Option<u64>,
    /// Where buffers come from.
    pub buffers: Buffers,
    /// In which order files are read.
    pub read_order: ReadOrder,
    /// Neighbouring files of a known list that a thread takes at once. With 1 all threads work on
    /// the same few directories and inode blocks; more spreads them over the list. It is the least: a
    /// loop worker that finds file after file in memory takes more.
    pub stripe: u32,
    /// Bytes that may be in flight, ready or kept at once.
    pub memory_bytes: u64,
}

impl Plan {
    /// The memory budget when none is given, in bytes.
    pub const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

    /// A plan with the default options.
    pub const fn new(method: Method, schedule: Schedule) -> Self {
        Self {
            method,
            schedule,
            chunk_bytes: None,
            buffers: Buffers::Pool,
            read_order: ReadOrder::List,
            stripe: 1,
            memory_bytes: Self::DEFAULT_MEMORY_BYTES,
        }
    }

    /// Fills in the permits that the text left open with the number of usable cores.
    #[must_use]
    pub fn complete(mut self, usable_cores: u32) -> Self {
        if let Schedule::Window { permits: permits @ None, .. } = &mut self.schedule {
            *permits = Some(usable_cores.max(1));
        }
        self
    }

    /// How many threads run user code or block on its behalf.
    pub fn threads(&self) -> u32 {
        match self.schedule {
            Schedule::Threads { n } => n,
            Schedule::Roles { readers, hybrids, computers, .. } => readers + hybrids + computers,
            Schedule::Window { window, permits } => match self.method {
                Method::Read | Method::DirectRead => window.max(permits.unwrap_or(1)),
                _ => permits.unwrap_or(1),
            },
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.method, self.schedule)?;
        let mut options = Vec::new();
        if let Some(bytes) = self.chunk_bytes {
            options.push(format!("chunk={}", spell_size(bytes)));
        }
        match self.buffers {
            Buffers::Pool => {}
            Buffers::Fresh => options.push("buffers=fresh".to_owned()),
            Buffers::Prefaulted => options.push("buffers=prefaulted".to_owned()),
        }
        if self.read_order == ReadOrder::Inode {
            options.push("order=inode".to_owned());
        }
        if self.stripe != 1 {
            options.push(format!("stripe={}", self.stripe));
        }
        if self.memory_bytes != Self::DEFAULT_MEMORY_BYTES {
            options.push(format!("memory={}", spell_size(self.memory_bytes)));
        }
        if options.is_empty() { Ok(()) } else { write!(f, "/{}", options.join(",")) }
    }
}

impl FromStr for Plan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = |reason: String| ParseError::new("plan", text, reason);
        let mut parts = text.split('/');
        let method = parts.next().unwrap_or_default().parse()?;
        let schedule = parts
            .next()
            .ok_or_else(|| refuse("a schedule must follow, as in read/window:l=32".to_owned()))?
            .parse()?;
        let mut plan = Self::new(method, schedule);
        for option in parts.next().unwrap_or_default().split(',').filter(|o| !o.is_empty()) {
            match option.split_once('=') {
                Some(("chunk", size)) => {
                    let bytes = parse_size(size)?;
                    if bytes == 0 {
                        return Err(refuse("chunk must be at least one byte".to_owned()));
                    }
                    plan.chunk_bytes = Some(bytes);
                }
                Some(("stripe", n)) => {
                    plan.stripe =
                        n.parse().ok().filter(|n| (1..=65_536).contains(n)).ok_or_else(|| {
                            refuse("stripe is a whole number from 1 to 65536".to_owned())
                        })?;
                }
                Some(("memory", size)) => plan.memory_bytes = parse_size(size)?,
                Some(("buffers", "pool")) => plan.buffers = Buffers::Pool,
                Some(("buffers", "fresh")) => plan.buffers = Buffers::Fresh,
                Some(("buffers", "prefaulted")) => plan.buffers = Buffers::Prefaulted,
                Some(("order", "list")) => plan.read_order = ReadOrder::List,
                Some(("order", "inode")) => plan.read_order = ReadOrder::Inode,
                _ => {
                    return Err(refuse(format!(
                        "unknown option '{option}'; use chunk=, buffers=pool|fresh|prefaulted, \
                         order=list|inode, stripe= or memory="
                    )));
                }
            }
        }
        match parts.next() {
            None => Ok(plan),
            Some(extra) => Err(refuse(format!("'{extra}' is left over"))),
        }
    }
}

spelled!(Plan);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plans_read_back_as_spelled() {
        for text in [
            "read/threads:n=4",
            "uring/window:l=64,p=2",
            "read/roles:r=1,h=0,c=3,w=64",
            "uring/roles:r=0,h=16,c=0,w=all,open=12,order=read-first",
            "direct:uring/window:l=8/chunk=1MiB,buffers=fresh,order=inode,stripe=16,memory=64MiB",
        ] {
            assert_eq!(text.parse::<Plan>().unwrap().to_string(), text);
        }
        assert_eq!("mmap/threads:4".parse::<Plan>().unwrap().to_string(), "mmap:plain/threads:n=4");
    }

    #[test]
    fn wrong_plans_say_what_is_right() {
        for (text, part) in [
            ("reed/threads:n=1", "one of read"),
            ("read", "a schedule must follow"),
            ("read/threads:n=0", "1 to 4096"),
            ("read/roles:c=2", "somebody must read"),
            ("read/roles:r=2", "somebody must compute"),
            ("read/window:l=2/warp=1", "unknown option"),
            ("read/window:l=2/chunk=1/more", "left over"),
            ("read/window:l=2,l=3", "unknown or repeated"),
        ] {
            let error = text.parse::<Plan>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = text.parse::<Plan>();
        }
        #[test]
        fn near_plans_never_panic(text in "(read|uring|mmap)/(roles|window|threads):[a-z0-9=,/]{0,30}") {
            if let Ok(plan) = text.parse::<Plan>() {
                prop_assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
            }
        }
    }
}
