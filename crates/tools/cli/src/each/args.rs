//! Flags of `each`.

use super::selection::Selection;
use super::shard_args::Sharding;
use crate::exit::Failure;
use crate::values::{self, Choice, Grammar};
use clap::Args;
use ioloom::Plan;
use ioloom_model::schedule::THREADS_MAX;
use ioloom_model::units::format_size;
use ioloom_model::{Buffers, Compute, Hash, Method, ReadOrder, Schedule, Tuning};
use std::ffi::OsString;
use std::path::PathBuf;

/// The least --memory that a plan accepts.
const MEMORY_MIN: u64 = 64 << 10;

/// Flags that have no effect with `--check`, with those that need one of them: clap does not require a flag
/// that conflicts with another one.
const UNCHECKED: [&str; 16] = [
    "per_file",
    "ordered",
    "tag",
    "exec",
    "jobs",
    "json",
    "dereference",
    "one_file_system",
    "exclude",
    "ignore",
    "skip_hidden",
    "trace",
    "evidence",
    "explain",
    "shard",
    "queue",
];

/// Flags that conflict with `--strict` and the other flags of `--check`. `ordered`, `tag` and `jobs` are here
/// because clap does not require a flag, such as `per_file`, that conflicts with another one.
const UNLISTED: [&str; 6] = ["per_file", "ordered", "tag", "exec", "jobs", "json"];

/// Run a hash, checksum or command on every file
///
/// Reads every file below the given directories, with many reads in flight and computation on all
/// cores, and prints one digest over all files, the throughput and what limited it. With --per-file
/// it replaces sha256sum, b3sum, xxhsum and others; with --check it reads their lists; with --exec
/// it runs a program for each file.
///
/// How files are read and how threads share the work is a plan. The default plan keeps up to 512
/// reads in flight without blocking a thread for each; use `ioloom study` to find out whether
/// another plan is faster on this machine. Every plan gives the same digest: XXH3-64 over the sorted
/// lines HASH  PATH of all files.
///
/// Files that cannot be read are reported and counted, and the exit code is then 1.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  ioloom each ~/src                             one digest over a tree
  ioloom each ~/src --compute sha256 --per-file  lines as sha256sum prints them
  ioloom each --check SHA256SUMS --compute sha256
  find . -name '*.c' -print0 | ioloom each -0 - --exec 'wc -l {}'
  ioloom each big/ --method direct:uring --schedule window:l=8
  ioloom each ~/src --trace run.ioloom          record a trace
  ioloom each --shard 7/100 --manifest data.shards --part parts
  ioloom each --explain                         print the table of plans")]
pub(crate) struct EachArgs {
    /// Directories or files, or - for a list on standard input
    ///
    /// Every file below a directory is processed; -L, -x, --exclude, --ignore and --skip-hidden
    /// change that. With - the paths are read from standard input, one per line, and each file is processed when its path arrives.
    pub(crate) paths: Vec<PathBuf>,

    /// Work on the contents [default: xxh3]
    ///
    /// xxh3, xxh64, crc32c, blake3, sha256, sha1, sha512, blake2b and md5 hash each file and can be
    /// used with --per-file and --check; all use the instructions that the processor has for them.
    /// xxh3, xxh64 and crc32c detect accidental changes only. none only reads files, or maps them
    /// with mmap methods. touch reads one byte of each 4 KiB page, for mapped plans. Neither has a
    /// digest. checksum:N sums all bytes N times. spin:TIME and sleep:TIME keep each file busy or
    /// asleep for TIME, which may be a distribution such as exp(mean=5ms); they simulate work for
    /// measurements.
    #[arg(long, value_name = "WORK", value_parser = compute_words(), hide_possible_values = true)]
    pub(crate) compute: Option<Compute>,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Run a command for each file
    ///
    /// With {} in the command, the path takes its place and the command reads the file itself;
    /// without {} the contents arrive on its standard input. The command is split like a shell
    /// command, but no shell runs: pipes, globs and variables are not expanded. Use --exec 'sh -c
    /// "..." sh {}' for them. As many commands run at once as there are usable cores; -j changes
    /// that. The standard output of a command is printed when the command ends, so the output of
    /// two commands does not mix; with --json it goes to standard error. Standard error is not held
    /// back. A nonzero exit code counts as an error.
    ///
    /// Each command runs in its own process group; a command that uses the terminal is an error.
    /// SIGINT and SIGTERM are forwarded to all commands; a second signal at least 200 ms after the
    /// first kills them. Ctrl-Z stops ioloom and the commands, and Ctrl-\ ends them.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["compute", "per_file", "threads"])]
    pub(crate) exec: Option<OsString>,

    /// Run at most N commands of --exec at once
    ///
    /// The default is the number of usable cores. More help only if commands wait, for example for a
    /// network.
    #[arg(short, long, value_name = "N", requires = "exec", value_parser = count,
          conflicts_with_all = ["schedule", "plan", "compute", "per_file", "ordered", "tag",
                                "threads", "zero"])]
    pub(crate) jobs: Option<u32>,

    /// Compute on N threads
    ///
    /// The default is the number of usable cores, and four times as many with mmap:plain,
    /// mmap:sequential and mmap:populate, whose threads also read. With other methods, reads in
    /// flight are limited by --schedule and --memory, not by this number.
    #[arg(long, value_name = "N", value_parser = count,
          conflicts_with_all = ["schedule", "plan"])]
    pub(crate) threads: Option<u32>,

    /// How files are read [default: nowait, else read]
    ///
    /// nowait starts a read with RWF_NOWAIT and blocks only for the oldest. read blocks a thread in
    /// each read; it is the default on file systems without non-blocking reads. uring, uring:open
    /// and uring:registered use io_uring: for reads, also for opening files, or with registered
    /// buffers. direct:read and direct:uring bypass the page cache, which suits large cold files
    /// that are read once. mmap:plain, mmap:sequential, mmap:willneed and mmap:populate map files
    /// in a child process, which is killed if a mapped file is truncated. null reads nothing and
    /// measures overhead. direct means direct:uring, mmap means mmap:plain.
    #[arg(long, value_name = "METHOD", value_parser = method_words(), hide_possible_values = true)]
    pub(crate) method: Option<Method>,

    /// How threads share the work
    ///
    /// The default depends on the method; --explain prints it.
    ///
    /// window:l=L,p=P keeps L files in flight and lets P threads compute (default: the usable
    /// cores). threads:N runs N threads that each read and compute one file at a time.
    /// roles:r=R,h=H,c=C,w=W uses R reading, H hybrid and C computing threads with at most W files
    /// read ahead. More files in flight hide more device latency and need more memory.
    #[arg(long, value_name = "SCHEDULE",
          value_parser = values::grammar(&["threads:", "window:", "roles:"], values::spelled::<Schedule>),
          hide_possible_values = true)]
    pub(crate) schedule: Option<Schedule>,

    /// Use a complete plan instead of these flags
    ///
    /// The spelling is METHOD/SCHEDULE[/OPTION,...], as printed in results and reports, for example
    /// read/window:l=32,p=2/buffers=fresh. Options are chunk=SIZE, buffers=KIND, order=ORDER,
    /// stripe=N, blocking=N, auto and memory=SIZE. The plan auto adjusts the number of files in flight
    /// while it runs, and auto:polite is what --polite selects. The option auto needs the method nowait
    /// and the schedule window.
    #[arg(long, value_name = "PLAN", value_parser = given_plan,
          conflicts_with_all = ["method", "schedule", "chunk", "memory", "buffers", "read_order"])]
    pub(crate) plan: Option<Plan>,

    /// Leave more of the storage to other programs
    ///
    /// Searches for the smallest number of files in flight that keeps 95 % of the throughput, and
    /// lowers the I/O priority of the threads that read. The summary reports both. The priority has
    /// no effect with the I/O schedulers mq-deadline, kyber and none, and on FUSE and tmpfs.
    #[arg(long, conflicts_with_all = ["plan", "schedule", "method"])]
    pub(crate) polite: bool,

    /// Read files in pieces of this size
    ///
    /// Files that are hashed or summed are read in pieces of 256 KiB, or less with a small
    /// --memory, so files can be larger than memory. Files are read as a whole if the work needs
    /// that, with the schedule roles, and with mapped plans. Direct methods need a multiple of 4
    /// KiB.
    #[arg(long, value_name = "SIZE", value_parser = chunk_size)]
    pub(crate) chunk: Option<u64>,

    /// Limit buffered file data [default: 256MiB]
    ///
    /// Reads wait when buffers in flight and buffers ready for work reach this limit. A smaller limit
    /// also reduces the number of files in flight. In a control group with less than 512 MiB of memory,
    /// the default is half of that. Under ulimit -v it is at most a quarter of what is left.
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    pub(crate) memory: Option<u64>,

    /// Where buffers come from
    ///
    /// pool reuses buffers, which is fastest. fresh maps new memory for each file, and prefaulted
    /// touches every page of it before the read; both exist to measure what page faults cost.
    #[arg(long, value_name = "KIND", default_value = "pool",
          value_parser = buffer_words(), hide_possible_values = true)]
    pub(crate) buffers: Buffers,

    /// Read in list or inode order
    ///
    /// list is the order of the list. inode sorts by inode number, which is faster on a disk with a
    /// cold cache. A list on standard input, and a long list with --ordered, is sorted in batches
    /// of 65536 paths. Without --ordered or a mapped method, the files of each directory are read
    /// by inode number in any case.
    #[arg(long, value_name = "ORDER", default_value = "list",
          value_parser = order_words(), hide_possible_values = true)]
    pub(crate) read_order: ReadOrder,

    /// Print HASH  PATH for each file
    ///
    /// The lines are those of sha256sum, b3sum and other programs of that hash; names with line ends
    /// or backslashes are escaped in the same way. XXH3_ precedes an xxh3 hash, as xxhsum 0.8.2 and
    /// later print it; xxhsum 0.8.1 needs --tag. Each line is printed when its file is done, so the
    /// order differs between runs; see --ordered. With --json each line is an object. The run ends
    /// when standard output is closed.
    #[arg(long)]
    pub(crate) per_file: bool,

    /// Print lines in input order
    ///
    /// Files of a directory are then sorted by path. While more than 16 MiB of lines wait for an
    /// earlier file, no further files are taken. Lines of objects wait without a limit, and so do
    /// those of plans that read all files ahead. After an interrupt, files that were not done have
    /// no line, also between others that have one.
    #[arg(long, requires = "per_file", conflicts_with = "exec")]
    pub(crate) ordered: bool,

    /// Print NAME (PATH) = HASH for each file
    ///
    /// These lines name their hash, so --check needs no --compute for them.
    #[arg(long, requires = "per_file", conflicts_with_all = ["json", "exec"])]
    pub(crate) tag: bool,

    /// Check files against the lines of a file
    ///
    /// Use - for standard input. Reads the lists of sha256sum, sha1sum, sha512sum, md5sum, b2sum,
    /// b3sum and xxhsum, with or without --tag. A line without a tag does not name its hash: add
    /// --compute, unless it begins with XXH3_ or has 40 digits, which are read as sha1. XXH32, XXH128
    /// and other lengths of BLAKE2b and BLAKE3 are not read, and lists of xxhsum --little-endian only
    /// with tags. The name - in a list is standard input. Prints OK or FAILED for each file in the
    /// order of the list. The exit code is 1 if a file differs or cannot be read, if no line is
    /// properly formatted, and, without --compute, if a tag names a hash that is not supported.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = UNCHECKED)]
    pub(crate) check: Option<PathBuf>,

    /// Pass over listed files that do not exist
    ///
    /// The exit code is 1 if not one file was verified.
    #[arg(long, conflicts_with_all = UNLISTED)]
    pub(crate) ignore_missing: bool,

    /// Print no result lines; only the exit code counts
    ///
    /// Of --quiet, --status and --warn, the last one given applies.
    #[arg(long, overrides_with_all = ["quiet", "warn"], conflicts_with_all = UNLISTED)]
    pub(crate) status: bool,

    /// Fail if a line is improperly formatted
    ///
    /// Without it such lines are counted in a warning.
    #[arg(long, conflicts_with_all = UNLISTED)]
    pub(crate) strict: bool,

    /// Name each line that is improperly formatted
    #[arg(short, long, overrides_with_all = ["quiet", "status"], conflicts_with_all = UNLISTED)]
    pub(crate) warn: bool,

    #[command(flatten)]
    pub(crate) sharding: Sharding,

    /// Read a NUL-separated list
    ///
    /// Paths on standard input end with a zero byte, as `find -print0` writes them. Lines of output do
    /// not change; see --zero.
    #[arg(short = '0', long)]
    pub(crate) null: bool,

    /// End lines with NUL
    ///
    /// The lines of --per-file end with a zero byte and names are not escaped, as with sha256sum -z.
    /// --check reads such lines. What it prints ends with line feeds.
    #[arg(short, long, conflicts_with_all = ["json", "exec"])]
    pub(crate) zero: bool,

    /// Print the result as JSON
    ///
    /// The document is described in docs/reference/json.md. With --per-file, standard output is one
    /// object per line: one for each file, and the document as the last.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print only errors
    ///
    /// With --check, print no line for files that match. With --per-file, print no summary and do not
    /// compute the digest over all files.
    #[arg(short, long, conflicts_with = "json", overrides_with_all = ["status", "warn"])]
    pub(crate) quiet: bool,

    /// Record a trace of all threads
    ///
    /// The file is shown and exported by `ioloom trace`. Recording costs memory for each event;
    /// measure without it.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    pub(crate) trace: Option<PathBuf>,

    /// Evidence level of the trace: 0, 1 or 2
    ///
    /// The default is the highest level that works; `ioloom machine --doctor` prints it. 0 reads
    /// thread times from /proc, 1 adds context switches (perf events), and 2 adds wake-ups and device
    /// requests (tracefs). An unavailable level is refused.
    #[arg(long, value_name = "LEVEL", requires = "trace", conflicts_with_all = ["explain", "queue"],
          value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) evidence: Option<u8>,

    /// Explain the plan without running it
    ///
    /// Prints what the threads of the chosen plan do. Without a path or a flag that changes the plan,
    /// prints the table of all methods and schedules, with the reason where a pair is not possible.
    #[arg(long, conflicts_with_all = ["shard", "json"])]
    pub(crate) explain: bool,

    /// This process may end by SIGBUS; set for the child that runs a mapped plan.
    #[arg(long, hide = true)]
    pub(crate) mapped_here: bool,

    /// Print progress as lines on standard error; set for that child when its parent draws a bar.
    #[arg(long, hide = true)]
    pub(crate) progress_lines: bool,
}

fn compute_words() -> Grammar<Compute> {
    const WORDS: &[&str] = &[
        "xxh3",
        "xxh64",
        "crc32c",
        "blake3",
        "sha256",
        "sha1",
        "sha512",
        "blake2b",
        "md5",
        "none",
        "touch",
        "checksum:",
        "spin:",
        "sleep:",
    ];
    values::grammar(WORDS, values::spelled::<Compute>)
}

/// Parses a number of threads or commands.
fn count(text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().ok().filter(|number| (1..=1024).contains(number));
    number.ok_or_else(|| "must be a number from 1 to 1024".to_owned())
}

fn chunk_size(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        0 => Err("must be at least 1 byte".to_owned()),
        bytes => Ok(bytes),
    }
}

fn memory_size(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        bytes if bytes < MEMORY_MIN => Err("must be at least 64KiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn given_plan(text: &str) -> Result<Plan, String> {
    Ok(budgeted(values::spelled::<Plan>(text)?, text, ioloom::default_memory_bytes()))
}

/// Returns the plan `auto` with the default memory budget, unless `text` names one. Other plans run as given.
fn budgeted(plan: Plan, text: &str, memory_bytes: u64) -> Plan {
    let mut parts = text.split('/');
    let is_auto = matches!(parts.next(), Some("auto" | "auto:polite"));
    let mut options = parts.flat_map(|options| options.split(','));
    if !is_auto || options.any(|option| option.starts_with("memory=")) {
        return plan;
    }
    Plan { memory_bytes, ..plan }
}

fn method_words() -> Choice<Method> {
    values::choice(Method::ALL.map(|method| (method.name(), method)))
        .hidden([("direct", Method::DirectUring), ("mmap", Method::MmapPlain)])
}

fn buffer_words() -> Choice<Buffers> {
    values::choice([
        ("pool", Buffers::Pool),
        ("fresh", Buffers::Fresh),
        ("prefaulted", Buffers::Prefaulted),
    ])
}

fn order_words() -> Choice<ReadOrder> {
    values::choice([("list", ReadOrder::List), ("inode", ReadOrder::Inode)])
}

impl EachArgs {
    /// Returns whether anything but errors is printed.
    pub(crate) fn prints(&self) -> bool {
        let lines = self.per_file || self.check.is_some() && !self.status;
        !self.quiet && !self.status || lines || self.exec.is_some()
    }

    /// Returns the complete plan that the flags select.
    pub(crate) fn plan(&self) -> Plan {
        self.plan_of(self.threads.or(self.jobs))
    }

    /// Returns the plan with another number of threads or commands.
    pub(super) fn plan_of(&self, threads: Option<u32>) -> Plan {
        let cores = ioloom::usable_cores();
        if let Some(plan) = self.plan {
            return plan.complete(cores);
        }
        let mut plan = ioloom::default_plan(self.memory_bytes());
        if let Some(method) = self.method {
            plan.method = method;
            plan.schedule = default_schedule(plan, cores);
        }
        if self.is_pinned() {
            plan.blocking = None;
            plan.tuning = Tuning::Fixed;
        }
        plan.schedule = self.schedule.unwrap_or(plan.schedule);
        plan.chunk_bytes = self.chunk;
        plan.buffers = self.buffers;
        plan.read_order = self.read_order;
        if self.polite {
            plan.tuning = Tuning::Polite;
        }
        with_threads(plan, threads).complete(cores)
    }

    /// Returns the plan after raising the limit on open files, which limits the files in flight.
    pub(super) fn plan_with_all_descriptors(&self) -> Plan {
        let _ = ioloom_sys::proc::raise_open_files_limit();
        self.plan()
    }

    /// Refuses flags of --check without it. With `requires`, clap would name --check and paths, which exclude
    /// each other.
    pub(super) fn check_list_flags(&self) -> Result<(), Failure> {
        let flags = [
            (self.ignore_missing, "--ignore-missing"),
            (self.status, "--status"),
            (self.strict, "--strict"),
            (self.warn, "--warn"),
        ];
        match flags.into_iter().find(|(given, _)| *given) {
            Some((_, flag)) if self.check.is_none() => {
                Err(Failure::usage(format!("{flag} needs --check FILE")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses separators of what is not read or written.
    pub(super) fn check_separators(&self) -> Result<(), Failure> {
        let is_list = self.paths.as_slice() == [PathBuf::from("-")];
        if self.null && !is_list {
            return Err(Failure::usage(
                "-0 needs a list on standard input; use - as the path, or -z to end lines of --per-file \
                 with NUL",
            ));
        }
        if self.zero && !self.per_file {
            return Err(Failure::usage("-z needs the lines of --per-file or --check"));
        }
        Ok(())
    }

    /// Refuses a --chunk that exceeds the memory budget.
    pub(super) fn check_chunk(&self) -> Result<(), Failure> {
        let memory = self.memory_bytes();
        match self.chunk {
            Some(chunk) if chunk > memory => {
                let limit = limit_words(self.memory.is_some(), memory);
                Err(Failure::usage(format!("--chunk {} exceeds {limit}", format_size(chunk))))
            }
            _ => Ok(()),
        }
    }

    /// Returns the memory budget in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or_else(ioloom::default_memory_bytes)
    }

    /// Returns the work on the contents.
    pub(crate) fn work(&self) -> Compute {
        self.compute.clone().unwrap_or(Compute::Hash(Hash::Xxh3))
    }

    /// Reports whether flags choose how files are read.
    pub(crate) fn is_pinned(&self) -> bool {
        self.plan.is_some() || self.method_given() || self.schedule.is_some()
    }

    /// Reports whether the plan fits itself to the job: no flag chooses it, or it is `auto` as it is.
    pub(crate) fn may_be_fitted(&self) -> bool {
        let is_auto = |plan: Plan| {
            plan.tuning != Tuning::Fixed && plan.schedule == Plan::auto(plan.tuning).schedule
        };
        !self.is_pinned() || self.plan.is_some_and(is_auto)
    }

    /// Reports whether a flag chooses the schedule, which then runs as it is or not at all.
    pub(crate) fn has_schedule(&self) -> bool {
        self.plan.is_some() || self.schedule.is_some()
    }

    /// Returns whether a flag changes the plan.
    pub(crate) fn shapes_plan(&self) -> bool {
        let threads = self.threads.is_some() || self.jobs.is_some() || self.exec.is_some();
        let buffered = self.chunk.is_some() || self.memory.is_some();
        let ordered = self.buffers != Buffers::Pool || self.read_order != ReadOrder::List;
        self.is_pinned() || self.polite || threads || buffered || ordered
    }

    /// Returns whether a flag selects a method.
    pub(crate) fn method_given(&self) -> bool {
        self.method.is_some() || self.plan.is_some()
    }
}

/// Returns the memory budget in words, with what sets it.
fn limit_words(is_given: bool, memory_bytes: u64) -> String {
    let size = format_size(memory_bytes);
    match (is_given, memory_bytes < Plan::DEFAULT_MEMORY_BYTES) {
        (true, _) => format!("--memory {size}"),
        (false, false) => format!("the default memory budget, {size}; raise it with --memory"),
        (false, true) => format!(
            "the default memory budget, {size}, because the memory of the control group or the address \
             space is limited; raise it with --memory"
        ),
    }
}

/// Returns the plan with a number of threads or commands.
fn with_threads(mut plan: Plan, wanted: Option<u32>) -> Plan {
    let Some(wanted) = wanted else { return plan };
    match &mut plan.schedule {
        Schedule::Window { window, permits } => {
            *window = wanted.max(*window);
            *permits = Some(wanted);
        }
        Schedule::Threads { n } => *n = wanted,
        Schedule::Roles { .. } => {}
    }
    plan
}

/// Returns the schedule for a method when none is given.
fn default_schedule(plan: Plan, cores: u32) -> Schedule {
    match plan.method {
        Method::MmapPlain | Method::MmapSequential | Method::MmapPopulate => {
            Schedule::Threads { n: cores.saturating_mul(4).min(THREADS_MAX) }
        }
        Method::Nowait => plan.schedule,
        // A thread per file in the window, or a ring that waits for reads through the page cache.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_plan_auto_without_a_budget_has_the_default_one() {
        for (text, wanted) in [
            ("auto", 64),
            ("auto:polite", 64),
            ("auto/chunk=1MiB", 64),
            ("auto/memory=256MiB", 256),
            ("auto/chunk=1MiB,memory=128MiB", 128),
            ("nowait/window:l=512/auto", 256),
            ("read/threads:n=2", 256),
        ] {
            let plan = budgeted(text.parse().unwrap(), text, 64 << 20);
            assert_eq!(plan.memory_bytes, wanted << 20, "{text}");
        }
    }

    #[test]
    fn default_schedules_are_accepted_with_very_many_cores() {
        let default = ioloom::default_plan(64 << 20);
        for method in Method::ALL {
            let schedule = default_schedule(Plan { method, ..default }, 2000);
            assert!(schedule.to_string().parse::<Schedule>().is_ok(), "{schedule}");
        }
    }

    #[test]
    fn the_memory_budget_is_named_with_what_sets_it() {
        assert_eq!(limit_words(true, 1 << 20), "--memory 1.00 MiB");
        let default = "the default memory budget, 256 MiB; raise it with --memory";
        assert_eq!(limit_words(false, 256 << 20), default);
        let limited = limit_words(false, 64 << 20);
        assert!(limited.contains("64.0 MiB, because the memory of the control group"), "{limited}");
    }
}
