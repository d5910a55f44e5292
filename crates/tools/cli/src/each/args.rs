//! Flags of `each`.

use crate::exit::Failure;
use clap::Args;
use ioloom::Plan;
use ioloom_model::units::parse_size;
use ioloom_model::{Buffers, Method, ReadOrder, Schedule};
use std::path::{Path, PathBuf};

/// Runs work over every file: a hash, a sum, a program of yours.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ioloom each ~/src --compute xxh3              hash a tree, one digest over all
  ioloom each ~/src --compute blake3 --per-file lines as b3sum prints them
  ioloom each --check sums.txt                  check such lines
  find . -name '*.c' -print0 | ioloom each -0 - --exec 'wc -l {}'
  ioloom each big/ --method direct:uring --schedule window:l=8
  ioloom each ~/src --trace run.ioloom          keep what every thread did when
  ioloom each --explain                         what every plan does")]
pub(crate) struct EachArgs {
    /// Directories or files; `-` reads a list of paths from standard input
    pub(crate) paths: Vec<PathBuf>,

    /// Work on the bytes: none, touch, checksum:N, xxh3, blake3, md5, spin:TIME, sleep:TIME
    #[arg(long, default_value = "xxh3", value_name = "WORK")]
    pub(crate) compute: String,

    /// Run a program for each file: with {} it gets the path, without it the bytes on stdin
    #[arg(long, value_name = "CMD", conflicts_with_all = ["compute", "per_file"])]
    pub(crate) exec: Option<String>,

    /// How bytes are fetched: read, nowait, uring[:open|:registered], direct[:read|:uring],
    /// mmap[:plain|:sequential|:willneed|:populate], null
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// Who does what: threads:N, window:l=L,p=P, roles:r=R,h=H,c=C,w=W
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<String>,

    /// A whole plan, METHOD/SCHEDULE[/OPTIONS], instead of the flags above
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["method", "schedule", "chunk",
        "memory", "buffers", "read_order"])]
    pub(crate) plan: Option<String>,

    /// Read files in pieces of this size
    #[arg(long, value_name = "SIZE")]
    pub(crate) chunk: Option<String>,

    /// Memory that may be in flight or ready at once
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: String,

    /// Buffers: pool, fresh or prefaulted
    #[arg(long, value_name = "KIND", default_value = "pool")]
    pub(crate) buffers: String,

    /// Read in the order of the list or of the inodes
    #[arg(long, value_name = "ORDER", default_value = "list")]
    pub(crate) read_order: String,

    /// Print a line HASH  PATH for each file, as b3sum, xxhsum and md5sum do
    #[arg(long, conflicts_with = "json")]
    pub(crate) per_file: bool,

    /// Check the lines HASH  PATH of a file (- for standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["per_file", "exec", "json",
        "compute"])]
    pub(crate) check: Option<PathBuf>,

    /// Paths on standard input and lines of output end with a zero byte
    #[arg(short = '0', long = "null")]
    pub(crate) zero: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,

    /// Keep a trace of what every thread did when, for `ioloom trace`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["explain", "check"])]
    pub(crate) trace: Option<PathBuf>,

    /// Level of evidence of the trace: 0, 1 or 2 [default: the highest that works]
    #[arg(long, value_name = "LEVEL", requires = "trace",
          value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) evidence: Option<u8>,

    /// Print what the chosen plan does, or with no path and no plan the table of all plans
    #[arg(long)]
    pub(crate) explain: bool,

    /// This process may end by SIGBUS: set for the child that runs a mapped plan
    #[arg(long, hide = true)]
    pub(crate) mapped_here: bool,

    /// Tell progress in lines on standard error: set for that child when its parent draws a bar
    #[arg(long, hide = true)]
    pub(crate) tell_progress: bool,
}

impl EachArgs {
    /// The complete plan that the flags ask for.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let cores = ioloom::usable_cores();
        if let Some(text) = &self.plan {
            return Ok(text.parse::<Plan>().map_err(Failure::usage)?.complete(cores));
        }
        let memory_bytes = parse_size(&self.memory).map_err(Failure::usage)?;
        let mut plan = ioloom::default_plan(memory_bytes);
        if let Some(method) = &self.method {
            plan.method = method.parse::<Method>().map_err(Failure::usage)?;
            if self.schedule.is_none() {
                plan.schedule = default_schedule(plan, cores);
            }
        }
        if let Some(schedule) = &self.schedule {
            plan.schedule = schedule.parse::<Schedule>().map_err(Failure::usage)?;
        }
        if let Some(chunk) = &self.chunk {
            plan.chunk_bytes = Some(parse_size(chunk).map_err(Failure::usage)?.max(1));
        }
        plan.buffers = match self.buffers.as_str() {
            "pool" => Buffers::Pool,
            "fresh" => Buffers::Fresh,
            "prefaulted" => Buffers::Prefaulted,
            other => return Err(unknown("--buffers", other, "pool, fresh or prefaulted")),
        };
        plan.read_order = match self.read_order.as_str() {
            "list" => ReadOrder::List,
            "inode" => ReadOrder::Inode,
            other => return Err(unknown("--read-order", other, "list or inode")),
        };
        Ok(plan.complete(cores))
    }

    /// The plan for a list that begins with `first`: where nothing was asked for, what its file system
    /// can do decides.
    pub(crate) fn settled(&self, plan: Plan, first: &Path) -> Plan {
        if self.method_given() || self.schedule.is_some() || self.exec.is_some() {
            return plan;
        }
        let Plan { method, schedule, .. } = ioloom::default_plan_for(first, plan.memory_bytes);
        Plan { method, schedule, ..plan }
    }

    /// The trace that flags or environment ask for.
    pub(crate) fn trace_wanted(&self) -> Result<Option<ioloom::TraceWanted>, Failure> {
        if let Some(path) = &self.trace {
            let level = self.evidence.and_then(crate::evidence::level);
            return Ok(Some(ioloom::TraceWanted { path: path.clone(), level }));
        }
        ioloom::TraceWanted::from_environment().map_err(Failure::refused)
    }

    /// Whether the user asked for a method.
    pub(crate) fn method_given(&self) -> bool {
        self.method.is_some() || self.plan.is_some()
    }
}

/// The schedule that goes with a method when none is given.
fn default_schedule(plan: Plan, cores: u32) -> Schedule {
    match plan.method {
        Method::MmapPlain | Method::MmapSequential | Method::MmapPopulate => {
            Schedule::Threads { n: 4 * cores }
        }
        Method::Nowait => plan.schedule,
        // A window of as many threads, or a ring that waits for reads through the page cache.
        Method::Read | Method::DirectRead | Method::Uring | Method::UringOpen => {
            Schedule::Window { window: 256.min(window_of(plan)), permits: Some(cores) }
        }
        _ => Schedule::Window { window: 64.min(window_of(plan)), permits: Some(cores) },
    }
}

fn window_of(plan: Plan) -> u32 {
    match plan.schedule {
        Schedule::Window { window, .. } => window,
        Schedule::Threads { n } => n,
        Schedule::Roles { readers, hybrids, .. } => readers + hybrids,
    }
}

fn unknown(flag: &str, value: &str, right: &str) -> Failure {
    Failure::usage(format!("{flag} '{value}' is unknown: use {right}"))
}
