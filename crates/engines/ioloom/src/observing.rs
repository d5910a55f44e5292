//! How closely a run is observed: measurements, and the trace.

use crate::default_plan::usable_cores;
use crate::engine::Tracing;
use crate::error::Error;
use crate::trace::{TraceWanted, level_of_environment};
use ioloom_model::{Level, State};
use ioloom_observe::Detail;
use std::path::PathBuf;

/// What a run measures in addition to the counts and totals of every run, for
/// [`Files::measure`](crate::Files::measure).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "it has no effect until it is passed to Files::measure"]
pub struct Measure {
    spans: Option<usize>,
    pub(crate) in_flight: bool,
    pub(crate) block_device: Option<String>,
    pub(crate) function_waits: Option<State>,
}

impl Measure {
    /// Times every call instead of a sample, reads the processor clock after long ones, and stores
    /// the first `spans` calls of each thread in [`Measured::spans`](crate::Measured). Costs up to
    /// 4 % of a long call, and 24 bytes per span.
    pub fn calls(mut self, spans: usize) -> Self {
        self.spans = Some(spans);
        self
    }

    /// Samples the number of reads in flight, into [`Measured::in_flight`](crate::Measured).
    pub fn in_flight(mut self) -> Self {
        self.in_flight = true;
        self
    }

    /// Measures how long a block device such as `sda` was busy.
    pub fn block_device(mut self, name: impl Into<String>) -> Self {
        self.block_device = Some(name.into());
        self
    }

    /// States what the function does while it is blocked, for instance [`State::Sleep`]. The
    /// library cannot distinguish the states inside the function by itself.
    pub fn function_waits(mut self, state: State) -> Self {
        self.function_waits = Some(state);
        self
    }

    pub(crate) fn detail(&self) -> Detail {
        self.spans.map_or(Detail::Totals, |spans_max| Detail::Full { spans_max })
    }
}

/// What a caller wants to see of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observing {
    pub(crate) trace: Option<PathBuf>,
    pub(crate) level: Option<Level>,
    pub(crate) untraced: bool,
    pub(crate) measure: Option<Measure>,
}

impl Observing {
    /// Returns the trace that the caller or the environment requests.
    pub(crate) fn trace_wanted(&self) -> Result<Option<TraceWanted>, Error> {
        if self.untraced {
            return Ok(None);
        }
        let Some(path) = self.trace.clone().or_else(TraceWanted::file_of_environment) else {
            return Ok(None);
        };
        let level = match self.level {
            Some(level) => Some(level),
            None => level_of_environment()?,
        };
        Ok(Some(TraceWanted { path, level }))
    }

    /// Returns the number of processors that shares of the machine refer to: those online for a run
    /// that measures more, because finding their number takes as long as reading a few small files.
    pub(crate) fn cpus(&self) -> u32 {
        let online = || ioloom_sys::proc::system_stat().ok().map(|stat| stat.cpus.len().max(1));
        let online = self.measure.as_ref().and_then(|_| online());
        online.map_or_else(usable_cores, |cpus| cpus as u32)
    }
}

/// Runs code in which a function writes results or passes them on, and counts its waits as `output`: if
/// the reader of the results is the limit, [`Run::why`](crate::Run::why) then says so instead of
/// blaming the function. Waits for the caller of [`Job::scope`](crate::Job::scope) and of iterators
/// count without it.
///
/// Costs about a microsecond; include locks, and exclude computation.
///
/// ```
/// use std::io::Write;
/// let out = std::sync::Mutex::new(std::io::sink());
/// ioloom::files(["Cargo.toml"]).try_for_each(|f| {
///     ioloom::writing(|| writeln!(out.lock().unwrap(), "{} {}", f.len(), f.path().display()))
/// })?;
/// # Ok::<(), ioloom::Error<std::io::Error>>(())
/// ```
pub fn writing<T>(write: impl FnOnce() -> T) -> T {
    ioloom_observe::writing(write)
}

/// What only the laboratory and the program need. No stable interface.
#[derive(Debug, Clone, Copy, Default)]
pub struct LabOptions {
    /// Allow mappings, which may end the process with SIGBUS.
    pub mmap: bool,
    /// How closely the run is traced, with or without a file.
    pub tracing: Option<Tracing>,
}
