//! A file plan: method, schedule and options.
//!
//! Text form: `METHOD/SCHEDULE[/OPTION,OPTION…]`, for example `read/window:l=32,p=2`,
//! `uring/roles:r=1,h=0,c=3,w=64/buffers=fresh` or `direct:uring/window:l=8,p=2/chunk=1MiB`.
//! Options: `chunk=SIZE` (chunk form), `buffers=pool|fresh|prefaulted`, `order=list|inode`,
//! `stripe=N`, `blocking=N`, `auto`, `auto=polite`, `memory=SIZE`. `auto` and `auto:polite` instead of
//! a method and a schedule stand for [`Plan::auto`]; options may follow.

use crate::units::{parse_size, spell_size};
use crate::{Method, ParseError, Schedule, serialize_as_text};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Numbers that an option may have, and the reasons to refuse others.
const STRIPE: RangeInclusive<u32> = 1..=65_536;
const STRIPE_BOUNDS: &str = "stripe must be 1 to 65536";
const BLOCKING: RangeInclusive<u32> = 1..=4096;
const BLOCKING_BOUNDS: &str = "blocking must be 1 to 4096";
const CHUNK_BOUNDS: &str = "chunk must be at least one byte";

/// Source of read buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Buffers {
    /// Recycled buffers, which cause page faults only on first use.
    #[default]
    Pool,
    /// A new anonymous mapping per file, whose pages are not faulted in before the read. Source
    /// study 000 does this.
    Fresh,
    /// A new mapping per file, with all pages faulted in before the read.
    Prefaulted,
}

/// Order in which files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadOrder {
    /// In the order of the list. Files of a tree that takes time to walk have none: of those found so
    /// far, the one with the next inode number is read, which costs a disk less.
    #[default]
    List,
    /// By inode number: all files of a list, or the next one of up to 65,536 paths of a stream.
    Inode,
}

/// Whether a controller changes the number of requests in flight during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tuning {
    /// No: the plan runs with its numbers.
    #[default]
    Fixed,
    /// It searches the smallest number that loses no throughput; the plan's numbers are the upper
    /// limits. If io_uring is measured to be faster than the plan's method, it is used.
    Auto,
    /// Like `Auto`, but gives up some throughput for fewer requests in flight, and reads at a lower
    /// I/O priority.
    Polite,
}

impl Tuning {
    /// Returns the option in the text form of a plan.
    const fn option(self) -> Option<&'static str> {
        match self {
            Self::Fixed => None,
            Self::Auto => Some("auto"),
            Self::Polite => Some("auto=polite"),
        }
    }
}

/// A file plan. It runs exactly as specified or is refused with a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How files are read.
    pub method: Method,
    /// How threads share the work.
    pub schedule: Schedule,
    /// Chunk size in bytes: the function receives chunks instead of whole files.
    pub chunk_bytes: Option<u64>,
    /// Source of buffers.
    pub buffers: Buffers,
    /// Order in which files are read.
    pub read_order: ReadOrder,
    /// Most adjacent files that a thread takes at once. With 1, all threads open files of the same few
    /// directories and inode blocks, and wait for each other where the file system locks those; larger
    /// values spread the threads over the list. A thread takes fewer near the end of the list. A worker
    /// of a window of reads that do not block also takes fewer if they would last longer than a tenth
    /// of a second, and up to 64 if it hits the page cache repeatedly.
    pub stripe: u32,
    /// For a window of `nowait`: up to this many additional threads read with blocking calls, one
    /// file each, once files turn up whose filesystem does not support `RWF_NOWAIT`; and up to twice as
    /// many while files take no longer than a single one.
    pub blocking: Option<u32>,
    /// Whether the number of requests in flight is adjusted during the run.
    pub tuning: Tuning,
    /// Limit on file data that is in flight, ready or retained, in bytes.
    pub memory_bytes: u64,
}

impl Plan {
    /// Default memory budget in bytes.
    pub const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

    /// Creates a plan with default options.
    pub const fn new(method: Method, schedule: Schedule) -> Self {
        Self {
            method,
            schedule,
            chunk_bytes: None,
            buffers: Buffers::Pool,
            read_order: ReadOrder::List,
            stripe: 1,
            blocking: None,
            tuning: Tuning::Fixed,
            memory_bytes: Self::DEFAULT_MEMORY_BYTES,
        }
    }

    /// Returns the plan whose number of requests in flight adapts to the storage: reads that do not
    /// wait, at most 512 in flight, of files that each thread takes up to 64 at a time.
    pub const fn auto(tuning: Tuning) -> Self {
        let schedule = Schedule::Window { window: 512, permits: None };
        let plan = Self::new(Method::Nowait, schedule);
        Self { stripe: 64, blocking: Some(256), tuning, ..plan }
    }

    /// Sets omitted permits to the number of usable cores.
    #[must_use]
    pub fn complete(mut self, usable_cores: u32) -> Self {
        if let Schedule::Window { permits: permits @ None, .. } = &mut self.schedule {
            *permits = Some(usable_cores.max(1));
        }
        self
    }

    /// Returns why no machine can run a plan with the numbers of these options, or `None` if one can.
    pub(crate) fn refusal_of_options(&self) -> Option<&'static str> {
        if self.chunk_bytes == Some(0) {
            return Some(CHUNK_BOUNDS);
        }
        if !STRIPE.contains(&self.stripe) {
            return Some(STRIPE_BOUNDS);
        }
        self.blocking.filter(|n| !BLOCKING.contains(n)).map(|_| BLOCKING_BOUNDS)
    }

    /// Returns how many threads run or wait for user code.
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
        if let Some(n) = self.blocking {
            options.push(format!("blocking={n}"));
        }
        options.extend(self.tuning.option().map(str::to_owned));
        if self.memory_bytes != Self::DEFAULT_MEMORY_BYTES {
            options.push(format!("memory={}", spell_size(self.memory_bytes)));
        }
        if options.is_empty() { Ok(()) } else { write!(f, "/{}", options.join(",")) }
    }
}

/// The forms of a plan.
const FORMS: &str = "auto, auto:polite or METHOD/SCHEDULE, as in read/window:l=32";

impl FromStr for Plan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = |reason: String| ParseError::new("plan", text, reason);
        let mut parts = text.split('/');
        let mut plan = match parts.next().unwrap_or_default() {
            "auto" => Self::auto(Tuning::Auto),
            "auto:polite" => Self::auto(Tuning::Polite),
            method => {
                let schedule = parts.next();
                let method = method.parse::<Method>().map_err(|error| match schedule {
                    Some(_) => error,
                    None => refuse(format!("must be {FORMS}")),
                })?;
                let missing = "a schedule must follow, as in read/window:l=32";
                let schedule = schedule.ok_or_else(|| refuse(missing.to_owned()))?;
                Self::new(method, schedule.parse()?)
            }
        };
        for option in parts.next().unwrap_or_default().split(',').filter(|o| !o.is_empty()) {
            match option.split_once('=') {
                Some(("chunk", size)) => {
                    let bytes = parse_size(size)?;
                    if bytes == 0 {
                        return Err(refuse(CHUNK_BOUNDS.to_owned()));
                    }
                    plan.chunk_bytes = Some(bytes);
                }
                Some(("stripe", n)) => {
                    plan.stripe = n
                        .parse()
                        .ok()
                        .filter(|n| STRIPE.contains(n))
                        .ok_or_else(|| refuse(STRIPE_BOUNDS.to_owned()))?;
                }
                Some(("blocking", n)) => {
                    plan.blocking = Some(
                        n.parse()
                            .ok()
                            .filter(|n| BLOCKING.contains(n))
                            .ok_or_else(|| refuse(BLOCKING_BOUNDS.to_owned()))?,
                    );
                }
                Some(("auto", "polite")) => plan.tuning = Tuning::Polite,
                None if option == "auto" => plan.tuning = Tuning::Auto,
                Some(("memory", size)) => plan.memory_bytes = parse_size(size)?,
                Some(("buffers", "pool")) => plan.buffers = Buffers::Pool,
                Some(("buffers", "fresh")) => plan.buffers = Buffers::Fresh,
                Some(("buffers", "prefaulted")) => plan.buffers = Buffers::Prefaulted,
                Some(("order", "list")) => plan.read_order = ReadOrder::List,
                Some(("order", "inode")) => plan.read_order = ReadOrder::Inode,
                _ => {
                    return Err(refuse(format!(
                        "unknown option '{option}'; use chunk=, buffers=pool|fresh|prefaulted, \
                         order=list|inode, stripe=, blocking=, auto, auto=polite or memory="
                    )));
                }
            }
        }
        match parts.next() {
            None => Ok(plan),
            Some(extra) => Err(refuse(format!("unexpected '{extra}' at the end"))),
        }
    }
}

serialize_as_text!(Plan);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plans_survive_a_round_trip() {
        for text in [
            "read/threads:n=4",
            "uring/window:l=64,p=2",
            "read/roles:r=1,h=0,c=3,w=64",
            "nowait/window:l=512,p=2/blocking=256,memory=64MiB",
            "nowait/window:l=512/blocking=256,auto",
            "nowait/window:l=64,p=3/auto=polite,memory=64MiB",
            "uring/roles:r=0,h=16,c=0,w=all,open=12,order=read-first",
            "direct:uring/window:l=8/chunk=1MiB,buffers=fresh,order=inode,stripe=16,memory=64MiB",
        ] {
            assert_eq!(text.parse::<Plan>().unwrap().to_string(), text);
        }
        for (short, tuning) in [("auto", Tuning::Auto), ("auto:polite", Tuning::Polite)] {
            let plan: Plan = short.parse().unwrap();
            assert_eq!(plan, Plan::auto(tuning));
            assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
        }
        let chunks: Plan = "auto/chunk=1MiB".parse().unwrap();
        assert_eq!(chunks, Plan { chunk_bytes: Some(1 << 20), ..Plan::auto(Tuning::Auto) });
        assert_eq!("mmap/threads:4".parse::<Plan>().unwrap().to_string(), "mmap:plain/threads:n=4");
    }

    /// The reference names every method and option, and its examples are plans.
    #[test]
    fn the_reference_of_plans_is_complete() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/plans.md");
        let text = std::fs::read_to_string(path).unwrap();
        for method in Method::ALL {
            assert!(text.contains(&format!("| `{method}` |")), "{method}");
        }
        let unknown = "read/threads:n=1/unknown".parse::<Plan>().unwrap_err().to_string();
        let options = unknown.rsplit_once("use ").unwrap().1;
        for option in options.split([',', ' ', '|']).filter(|word| !["", "or"].contains(word)) {
            assert!(text.contains(&format!("`{option}")), "{option}");
        }
        let examples = text.split("```").nth(1).unwrap().lines().skip(1);
        let plans: Vec<Plan> = examples.map(|line| line.parse().unwrap()).collect();
        assert!(plans.len() > 5 && plans.iter().all(|plan| crate::table::check(plan).is_ok()));
        let default = crate::units::format_size(Plan::DEFAULT_MEMORY_BYTES).replace(' ', "");
        assert!(text.contains(&format!("| {default} |")), "{default}");
    }

    #[test]
    fn errors_say_what_is_accepted() {
        for (text, part) in [
            ("reed/threads:n=1", "one of read"),
            ("read", "a schedule must follow"),
            ("default", "must be auto, auto:polite or METHOD/SCHEDULE"),
            ("polite", "must be auto, auto:polite or METHOD/SCHEDULE"),
            ("auto:", "must be auto, auto:polite or METHOD/SCHEDULE"),
            ("read/threads:n=0", "1 to 4096"),
            ("read/roles:c=2", "no thread reads"),
            ("read/roles:r=2", "no thread computes"),
            ("read/roles:r=4294967295,h=2,c=0", "at most 4096"),
            ("read/roles:r=4294967295,h=1", "at most 4096"),
            ("read/roles:h=4294967295,c=2", "at most 4096"),
            ("read/window:l=2/warp=1", "unknown option"),
            ("read/window:l=2/auto=rude", "unknown option"),
            ("auto/window:l=2", "unknown option"),
            ("nowait/window:l=2/blocking=0", "blocking must be 1 to 4096"),
            ("read/window:l=2/chunk=1/more", "unexpected 'more'"),
            ("read/window:l=2,l=3", "unknown or repeated"),
        ] {
            let error = text.parse::<Plan>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in ".{0,60}") {
            let _ = text.parse::<Plan>();
        }
        #[test]
        fn almost_valid_plans_do_not_cause_a_panic(text in "(read|uring|mmap|auto)/(roles|window|threads):[a-z0-9=,/]{0,30}") {
            if let Ok(plan) = text.parse::<Plan>() {
                prop_assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
            }
        }
    }
}
