//! The threads, window and permits used for a plan.
//!
//! [`layout`] is the only place that determines them: the engine starts its threads from a
//! [`Layout`], and `ioloom each --explain` and the report print [`Layout::sentence`], which uses
//! the same numbers.

use crate::{Method, Plan, ReadAhead, Schedule, Tuning, table};
use std::fmt;

/// Number of `nowait` workers per permit, and at least. They block in opens and in the read of their
/// oldest miss. Opens wait where inodes are read from a disk; decision 032 has the measurement.
const NOWAIT_WORKERS_PER_PERMIT: u32 = 8;
const NOWAIT_WORKERS_MIN: u32 = 64;
/// Blocking threads that may run while files take no longer than a single one, in numbers of those that
/// may run in any case, if those are not few.
const BLOCKING_WHILE_QUICK: u32 = 2;
const BLOCKING_FEW: u32 = 16;

/// Maximum number of requests in one io_uring, and the window limit of one thread with unlimited
/// readahead.
pub const RING_MAX: u32 = 32_768;

/// Role of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads files and runs the function on them.
    Worker,
    /// Reads files and queues them.
    Reader,
    /// Reads and queues files, and runs the function on queued ones.
    Hybrid,
    /// Runs the function on queued files.
    Computer,
    /// Helps workers where reads cannot return instead of blocking: reads one file after another
    /// and runs the function on it.
    Blocking,
}

impl Role {
    /// Returns the name used in traces, thread names and sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Reader => "reader",
            Self::Hybrid => "hybrid",
            Self::Computer => "computer",
            Self::Blocking => "blocking",
        }
    }

    /// Reports whether threads with this role take paths from the list.
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Computer)
    }
}

/// Threads with the same role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// Role of the threads.
    pub role: Role,
    /// Threads started at the beginning of the run.
    pub first: u32,
    /// Upper limit. Threads beyond `first` are started if the running ones wait for reads.
    pub max: u32,
}

/// The loop executed by a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Processes one file at a time and blocks in each call.
    Sequential,
    /// Keeps its share of the window in flight.
    Windowed,
    /// Passes files from readers to compute threads through one queue.
    Queued,
}

/// Number of requests that one thread can have in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// One.
    One,
    /// An equal share of the window.
    Part(u32),
    /// The whole window, shared by the readers.
    Whole(ReadAhead),
}

/// The layout of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    method: Method,
    /// Threads by role, in the order of thread numbers. Every listed role has at least one thread.
    pub threads: Vec<Threads>,
    /// The loop executed by the threads.
    pub driver: Driver,
    /// Maximum number of files in flight or loaded before compute, over all threads.
    pub window: ReadAhead,
    /// Maximum number of threads in the function at once, if limited.
    pub permits: Option<u32>,
    /// Maximum number of threads opening files at once, if limited.
    pub open_limit: Option<u32>,
    share: Share,
    tuning: Tuning,
}

/// Computes the thread layout of a plan.
///
/// ```
/// use ioloom_model::{Plan, layout::layout};
///
/// let plan: Plan = "nowait/window:l=512,p=2".parse().unwrap();
/// let layout = layout(&plan).unwrap();
/// assert_eq!((layout.threads[0].first, layout.threads[0].max), (2, 64));
/// assert!(layout.sentence().starts_with("2 to 64 workers"));
/// ```
///
/// # Errors
///
/// Returns the reason if no machine can run the plan as specified, like [`table::check`].
pub fn layout(plan: &Plan) -> Result<Layout, String> {
    table::check(plan)?;
    let Plan { method, schedule, .. } = *plan;
    Ok(match schedule {
        Schedule::Threads { n } => Layout {
            method,
            threads: by_role([(Role::Worker, n)]),
            driver: Driver::Sequential,
            window: ReadAhead::Files(n),
            permits: None,
            open_limit: None,
            share: Share::One,
            tuning: Tuning::Fixed,
        },
        Schedule::Window { window, permits } => {
            let layout = windowed(method, window, permits.unwrap_or(1), plan.blocking);
            Layout { tuning: plan.tuning, ..layout }
        }
        Schedule::Roles { readers, hybrids, computers, window, open_limit, .. } => Layout {
            method,
            threads: by_role([
                (Role::Reader, readers),
                (Role::Hybrid, hybrids),
                (Role::Computer, computers),
            ]),
            driver: Driver::Queued,
            window,
            permits: None,
            open_limit,
            share: Share::Whole(window),
            tuning: Tuning::Fixed,
        },
    })
}

fn by_role<const N: usize>(counts: [(Role, u32); N]) -> Vec<Threads> {
    let all = |(role, count)| Threads { role, first: count, max: count };
    counts.into_iter().filter(|(_, count)| *count > 0).map(all).collect()
}

fn windowed(method: Method, window: u32, permits: u32, blocking: Option<u32>) -> Layout {
    // A worker without a part of the window would have nothing to do.
    let (driver, max, permits) = match method {
        Method::Read | Method::DirectRead => (Driver::Sequential, window, Some(permits)),
        Method::Nowait => {
            let workers = permits.saturating_mul(NOWAIT_WORKERS_PER_PERMIT);
            let max = workers.max(NOWAIT_WORKERS_MIN).min(window);
            (Driver::Windowed, max, Some(permits))
        }
        _ => (Driver::Windowed, permits.min(window), None),
    };
    let first = permits.unwrap_or(max).min(max);
    let blocking = blocking.map(|sure| {
        let more = if sure < BLOCKING_FEW { 1 } else { BLOCKING_WHILE_QUICK };
        let max = sure.saturating_mul(more);
        Threads { role: Role::Blocking, first: 0, max }
    });
    Layout {
        method,
        threads: [Threads { role: Role::Worker, first, max }].into_iter().chain(blocking).collect(),
        driver,
        window: ReadAhead::Files(window),
        permits,
        open_limit: None,
        share: if driver == Driver::Sequential { Share::One } else { Share::Part(window) },
        tuning: Tuning::Fixed,
    }
}

impl Layout {
    /// Returns the role of each thread, by thread number.
    pub fn roles(&self) -> impl Iterator<Item = Role> + '_ {
        let same = |threads: &Threads| std::iter::repeat_n(threads.role, threads.max as usize);
        self.threads.iter().flat_map(same)
    }

    /// Returns the number of threads started at the beginning of the run.
    pub fn threads_first(&self) -> u32 {
        self.threads.iter().map(|threads| threads.first).sum()
    }

    /// Returns the maximum number of threads during the run.
    pub fn threads_max(&self) -> u32 {
        self.threads.iter().map(|threads| threads.max).sum()
    }

    /// Returns the most threads of `role` that the run may have.
    pub fn max_of(&self, role: Role) -> u32 {
        let same = |threads: &&Threads| threads.role == role;
        self.threads.iter().filter(same).map(|threads| threads.max).sum()
    }

    /// Returns how many blocking threads may run in any case. Up to [`Layout::max_of`] run while files
    /// take no longer than a single one.
    pub fn blocking_sure(&self) -> u32 {
        let max = self.max_of(Role::Blocking);
        if max < BLOCKING_FEW { max } else { max / BLOCKING_WHILE_QUICK }
    }

    /// Returns the loop that threads of `role` run.
    pub fn driver_of(&self, role: Role) -> Driver {
        if role == Role::Blocking { Driver::Sequential } else { self.driver }
    }

    /// Returns how many files may hold a buffer at once, in a run of `files` files.
    pub fn files_at_once(&self, files: u64) -> u64 {
        // With queues, a computing thread holds a file that has left the window. A blocking thread holds
        // its own file; where so many run, most of the window is unused, because workers block, too.
        let beyond = self.threads.iter().map(|threads| match threads.role {
            Role::Blocking => self.blocking_sure(),
            Role::Hybrid | Role::Computer if self.driver == Driver::Queued => threads.max,
            _ => 0,
        });
        match self.window {
            ReadAhead::All => files,
            ReadAhead::Files(n) => u64::from(n) + beyond.map(u64::from).sum::<u64>(),
        }
    }

    /// Returns how many requests thread `number` can have in flight if all threads share
    /// `files_at_once`. The shares add up to the window.
    pub fn window_of(&self, number: usize, files_at_once: u64) -> u32 {
        match self.share {
            Share::One => 1,
            Share::Part(window) => {
                let threads = self.max_of(Role::Worker);
                if number as u32 >= threads {
                    return 1;
                }
                window / threads + u32::from((number as u32) < window % threads)
            }
            Share::Whole(ReadAhead::Files(n)) => n,
            Share::Whole(ReadAhead::All) => files_at_once.min(u64::from(RING_MAX)) as u32,
        }
    }

    /// Describes the layout in one sentence, without a full stop.
    pub fn sentence(&self) -> String {
        match self.driver {
            Driver::Sequential if self.permits.is_none() => {
                format!("{} {}", Count(&self.threads), sequential(self.method))
            }
            Driver::Sequential | Driver::Windowed => self.windowed_sentence(),
            Driver::Queued => self.queued_sentence(),
        }
    }

    fn windowed_sentence(&self) -> String {
        let (blocking, workers): (Vec<Threads>, Vec<Threads>) =
            self.threads.iter().partition(|threads| threads.role == Role::Blocking);
        let mut text = format!("{} ", Count(&workers));
        if workers.iter().any(|threads| threads.first < threads.max) {
            text += "(more start while reads wait) ";
        }
        text += match self.method {
            Method::Read => "block in open and pread, one file each",
            Method::DirectRead => "block in open and pread with O_DIRECT, one file each",
            _ => "",
        };
        let requests = match self.window {
            ReadAhead::Files(n) => Plural(n, "request"),
            ReadAhead::All => Plural(RING_MAX, "request"),
        };
        let files = Plural(requests.0, "file");
        text += &match self.method {
            Method::Nowait => format!(
                "start up to {files} with RWF_NOWAIT, compute hits immediately, and finish the \
                 oldest miss with a blocking pread"
            ),
            Method::Uring | Method::UringOpen | Method::UringRegistered | Method::DirectUring => {
                let ring = ring(self.method);
                format!("keep up to {requests} in flight per ring{ring}")
            }
            Method::MmapWillneed => {
                format!("map and prefetch up to {files} ahead and compute on the oldest mapping")
            }
            Method::Null => "compute on empty input; no file is opened".to_owned(),
            _ => String::new(),
        };
        for threads in blocking {
            let sure = self.blocking_sure();
            text += &format!(
                "; up to {} start if the filesystem does not support RWF_NOWAIT",
                Plural(sure, "blocking reader")
            );
            if threads.max > sure {
                text +=
                    &format!(", and up to {} while they do not slow each other down", threads.max);
            }
        }
        if let Some(permits) = self.permits {
            text += &format!("; at most {permits} compute at once");
        }
        text += match self.tuning {
            Tuning::Fixed => "",
            Tuning::Auto => "; the number of files in flight is adjusted while they run",
            Tuning::Polite => {
                "; the number of files in flight is adjusted while they run, at a lower I/O priority"
            }
        };
        if self.tuning != Tuning::Fixed {
            // As many as get a ring.
            let workers = self.permits.unwrap_or(1).min(self.max_of(Role::Worker)).max(1);
            let workers = Plural(workers, "worker");
            text += &format!(
                "; {workers} may read with io_uring instead, if that is measured to be faster"
            );
        }
        text
    }

    fn queued_sentence(&self) -> String {
        let reading = match self.method {
            Method::Read => "readers open and pread whole files",
            Method::DirectRead => "readers open and pread whole files with O_DIRECT",
            Method::Nowait => {
                "readers start reads with RWF_NOWAIT and finish the oldest with a blocking pread"
            }
            Method::Uring | Method::UringOpen | Method::UringRegistered | Method::DirectUring => {
                "each reader keeps reads in flight on its own ring"
            }
            Method::MmapPlain
            | Method::MmapSequential
            | Method::MmapWillneed
            | Method::MmapPopulate => "readers map files, compute threads fault the pages in",
            Method::Null => "empty input passes through the same queue",
        };
        let mut text = format!("{} share a queue; {reading}", Count(&self.threads));
        text += &match self.window {
            ReadAhead::Files(n) => format!("; at most {} ahead of compute", Plural(n, "file")),
            ReadAhead::All => "; no limit on files ahead of compute".to_owned(),
        };
        if let Some(limit) = self.open_limit {
            text += &format!("; at most {} in open at once", Plural(limit, "thread"));
        }
        text
    }
}

/// One file at a time.
const fn sequential(method: Method) -> &'static str {
    match method {
        Method::Read => "open, pread, compute and close one file at a time",
        Method::Nowait => "read one file at a time: pread with RWF_NOWAIT, then a blocking pread",
        Method::Uring => "keep one request in flight per ring",
        Method::UringOpen => "keep one request in flight per ring, opens included",
        Method::UringRegistered => "keep one request in flight per ring, into registered buffers",
        Method::DirectRead => "pread one file at a time with O_DIRECT, past the page cache",
        Method::DirectUring => "keep one O_DIRECT request in flight per ring",
        Method::MmapPlain => {
            "map, compute (page faults read the file) and unmap one file at a time"
        }
        Method::MmapSequential => {
            "map for sequential access, compute (page faults read the file) and unmap one file at \
             a time"
        }
        Method::MmapWillneed => {
            "map, prefetch, compute and unmap one file at a time; no file is mapped ahead"
        }
        Method::MmapPopulate => "map and read a file in one call, compute and unmap",
        Method::Null => "compute on empty input; no file is opened",
    }
}

const fn ring(method: Method) -> &'static str {
    match method {
        Method::UringOpen => ", opens included, and compute between reaps",
        Method::UringRegistered => ", into registered buffers, and compute between reaps",
        Method::DirectUring => " with O_DIRECT and compute between reaps",
        _ => " and compute between reaps",
    }
}

/// A number with its noun: "1 file", "2 files".
struct Plural(u32, &'static str);

impl fmt::Display for Plural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// Threads by role: "2 to 64 workers", "1 reader and 3 computers".
struct Count<'a>(&'a [Threads]);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Threads { role, first, max }) in self.0.iter().enumerate() {
            let before = match self.0.len() - at {
                _ if at == 0 => "",
                1 => " and ",
                _ => ", ",
            };
            f.write_str(before)?;
            if first < max {
                write!(f, "{first} to ")?;
            }
            Plural(*max, role.name()).fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Layout {
        layout(&text.parse::<Plan>().unwrap().complete(2)).unwrap()
    }

    #[test]
    fn every_pair_has_a_sentence_with_its_numbers_or_is_refused() {
        for method in Method::ALL {
            for schedule in ["threads:n=3", "window:l=8,p=2", "roles:r=1,h=1,c=2,w=5,open=1"] {
                let plan: Plan = format!("{method}/{schedule}").parse().unwrap();
                let Ok(layout) = layout(&plan) else {
                    assert!(table::refusal(method, &plan.schedule).is_some(), "{plan}");
                    continue;
                };
                let sentence = layout.sentence();
                assert!(sentence.starts_with(&Count(&layout.threads).to_string()), "{sentence}");
                for Threads { role, max, .. } in &layout.threads {
                    assert!(
                        sentence.contains(&Plural(*max, role.name()).to_string()),
                        "{sentence}"
                    );
                }
                assert_eq!(layout.roles().count() as u32, layout.threads_max(), "{plan}");
                if let Some(permits) = layout.permits {
                    assert!(sentence.contains(&format!("at most {permits} compute")), "{sentence}");
                }
                assert!(!sentence.contains("  ") && !sentence.ends_with(' '), "{sentence}");
            }
        }
    }

    #[test]
    fn the_default_plan_has_a_worker_per_file_of_the_window_up_to_64() {
        let layout = of("nowait/window:l=512,p=2");
        assert_eq!(layout.threads, [Threads { role: Role::Worker, first: 2, max: 64 }]);
        assert_eq!(layout.permits, Some(2));
        assert_eq!(
            layout.sentence(),
            "2 to 64 workers (more start while reads wait) start up to 512 files with RWF_NOWAIT, \
             compute hits immediately, and finish the oldest miss with a blocking pread; at most 2 \
             compute at once"
        );
        assert_eq!(of("nowait/window:l=5,p=2").threads_max(), 5, "one file of the window each");
        assert_eq!(of("nowait/window:l=512,p=16").threads_max(), 128, "eight per permit");
        let blocking = super::layout(
            &"nowait/window:l=512,p=2/blocking=256".parse::<Plan>().unwrap().complete(2),
        )
        .unwrap();
        assert_eq!(blocking.threads_max(), 64 + 512);
        assert_eq!(blocking.files_at_once(1000), 512 + 256);
        assert_eq!((blocking.window_of(0, 768), blocking.window_of(64, 768)), (8, 1));
        let sentence = blocking.sentence();
        assert!(sentence.contains("up to 256 blocking readers start"), "{sentence}");
        assert!(sentence.contains("and up to 512 while"), "{sentence}");
    }

    #[test]
    fn a_plan_with_a_controller_may_read_by_another_method() {
        let says =
            |text| of(text).sentence().contains("; 2 workers may read with io_uring instead");
        assert_eq!(["auto", "auto:polite", "nowait/window:l=512"].map(says), [true, true, false]);
        let sentence = of("nowait/window:l=1,p=2/auto").sentence();
        assert!(sentence.contains("; 1 worker may read with io_uring instead"), "{sentence}");
    }

    #[test]
    fn parts_of_a_window_add_up_to_it() {
        for text in ["nowait/window:l=37,p=2", "uring/window:l=9,p=4", "uring/window:l=2,p=4"] {
            let layout = of(text);
            let parts = (0..layout.threads_max() as usize).map(|n| layout.window_of(n, 0));
            let ReadAhead::Files(window) = layout.window else { panic!("{text}") };
            assert_eq!(parts.clone().sum::<u32>(), window, "{text}");
            assert!(parts.min() >= Some(1), "{text}");
        }
    }

    #[test]
    fn files_at_once_count_those_that_are_computed() {
        assert_eq!(of("read/roles:r=1,h=1,c=2,w=5").files_at_once(100), 8);
        assert_eq!(of("read/roles:r=1,c=1,w=all").files_at_once(100), 100);
        assert_eq!(of("read/window:l=32,p=2").files_at_once(100), 32);
        assert_eq!(of("read/threads:n=3").files_at_once(100), 3);
    }

    #[test]
    fn roles_are_numbered_readers_first() {
        let roles: Vec<Role> = of("read/roles:r=2,h=1,c=1,w=5").roles().collect();
        assert_eq!(roles, [Role::Reader, Role::Reader, Role::Hybrid, Role::Computer]);
        assert_eq!(
            of("uring/roles:r=2,h=1,c=1,w=all,open=1").sentence(),
            "2 readers, 1 hybrid and 1 computer share a queue; each reader keeps reads in flight on \
             its own ring; no limit on files ahead of compute; at most 1 thread in open at once"
        );
    }
}
