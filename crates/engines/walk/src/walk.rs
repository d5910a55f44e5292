//! The settings of a walk.

use crate::Fields;
use crate::method::{Method, Threads};
use crate::watch::Waits;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// None. A root that is a link is an entry.
    Never,
    /// Links given as roots.
    #[default]
    Roots,
    /// All. A directory that contains itself is not entered again. A broken link is an entry.
    Always,
}

/// The settings of a walk.
#[derive(Debug, Clone)]
pub struct Walk {
    /// How files are queried.
    pub method: Method,
    /// Number of threads.
    pub threads: Threads,
    /// Attributes to query for files and directories. With [`Fields::NONE`], and for files with
    /// [`Method::NamesOnly`], none.
    pub fields: Fields,
    /// Attributes to query for directories besides [`Walk::fields`], whatever the method.
    pub dir_fields: Fields,
    /// What [`Threads::Auto`] assumes that a waiting thread waits for.
    pub waits: Waits,
    /// Which symbolic links are followed.
    pub follow: Follow,
    /// Most directories held open for their children. Each thread holds one more, and so does each
    /// waiting part of a wide directory.
    pub descriptors_max: usize,
    /// Most kernel threads that answer one thread's [`Method::Uring`].
    pub ring_workers_max: u32,
    /// Most files whose names [`Method::Sweep`] holds at once; more take several sweeps.
    pub sweep_files_max: usize,
    /// Stops the walk when it becomes true.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for Walk {
    /// Queries nothing, uses `statx` and an automatic number of threads, and holds at most 256
    /// directories open, and at most an eighth of the descriptors that the process may have.
    fn default() -> Self {
        let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
        Self {
            method: Method::Statx,
            threads: Threads::Auto,
            fields: Fields::NONE,
            dir_fields: Fields::NONE,
            waits: Waits::default(),
            follow: Follow::default(),
            descriptors_max: (limit / 8).min(256) as usize,
            ring_workers_max: 16,
            sweep_files_max: 1_000_000,
            cancel: None,
        }
    }
}
