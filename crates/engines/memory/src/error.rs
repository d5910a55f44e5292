//! Measurement errors.

use ioloom_failure::{PathError, reason};
use std::io;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The working set could not be mapped.
    #[error(
        "cannot map {bytes} bytes of memory: {}; close other programs or use --max SIZE",
        reason(.source)
    )]
    Region {
        /// Number of bytes requested.
        bytes: usize,
        /// The system error.
        source: io::Error,
    },
    /// A call on the scratch file failed.
    #[error("{0}; use --dir DIR to choose another directory")]
    Scratch(#[from] PathError),
    /// A thread could not be started.
    #[error("cannot start a thread: {}; raise the limit on processes (ulimit -u)", reason(.0))]
    Thread(#[source] io::Error),
    /// Threads could not run on these processors.
    #[error("cannot run threads on processors {0:?}; check which processors this process may use")]
    Pin(Vec<u32>),
    /// The curve is too short to identify levels.
    #[error("cannot find cache levels: {0}")]
    Curve(#[from] ioloom_stats::StatsError),
    /// The user stopped the measurement.
    #[error("interrupted; no result was stored")]
    Interrupted,
}
