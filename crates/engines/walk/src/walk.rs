//! How to walk.

use crate::Fields;
use crate::method::{Method, Threads};
use crate::watch::Waits;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// None; a root that is a link is an entry.
    Never,
    /// Those given as roots.
    #[default]
    Roots,
    /// All. A directory that lies within itself is not entered again. A link that leads nowhere is
    /// an entry of its own.
    Always,
}

/// How to walk.
#[derive(Debug, Clone)]
pub struct Walk {
    /// How files are asked for.
    pub method: Method,
    /// How many threads.
    pub threads: Threads,
    /// What is asked for about files and directories. With [`Fields::NONE`], and for files with
    /// [`Method::NamesOnly`], nothing.
    pub fields: Fields,
    /// What [`Threads::Auto`] takes a waiting thread's time for.
    pub waits: Waits,
    /// Which symbolic links are followed.
    pub follow: Follow,
    /// Directories held open for their children, at most. Each thread has one more open, and each
    /// part of a wide directory that waits.
    pub descriptors_max: usize,
    /// Kernel threads that answer one thread's [`Method::Uring`], at most.
    pub ring_workers_max: u32,
    /// Files whose names [`Method::Sweep`] holds at once, at most; more are done in several sweeps.
    pub sweep_files_max: usize,
    /// Ends the walk early when it becomes true.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for Walk {
    /// By `statx` with as many threads as pay, asking for nothing, at most a quarter of the
    /// descriptors that the process may have and 256.
    fn default() -> Self {
        let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
        Self {
            method: Method::Statx,
            threads: Threads::Auto,
            fields: Fields::NONE,
            waits: Waits::default(),
            follow: Follow::default(),
            descriptors_max: (limit / 4).min(256) as usize,
            ring_workers_max: 16,
            sweep_files_max: 1_000_000,
            cancel: None,
        }
    }
}
