//! Options for running a study, with default limits.

use super::Progress;
use crate::child::Runner;
use crate::expand::{Mode, Overrides};
use crate::media::OwnImage;
use crate::sequential::Looks;
use crate::store::Sequential;
use crate::workspace::{self, Workspace};
use ioloom_model::{Level, MachineFacts};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Default maximum number of spans per run.
pub const SPANS_MAX: u64 = 32_768;
/// Maximum number of spans per session, about 60 MB of text. Later runs store only totals.
pub const SESSION_SPANS_MAX: usize = 1 << 20;
/// Maximum duration of a run.
pub const DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// Options for running a study.
#[derive(Clone)]
pub struct RunOptions<'a> {
    /// Quick or full.
    pub mode: Mode,
    /// Seed, blocks, experiments and conditions. Media and files come from the fields below.
    pub overrides: Overrides,
    /// Workspaces, at least one. The first is the default medium.
    pub workspaces: Vec<Workspace>,
    /// The workspaces that are images created by ioloom.
    pub images: &'a [OwnImage],
    /// A user directory that replaces every file set.
    pub files: Option<PathBuf>,
    /// Whether dropping the system's page cache is permitted.
    pub drop_caches: bool,
    /// Whether changing kernel settings during a run is permitted.
    pub allow_sysctl: bool,
    /// Whether to resume the latest unfinished session of the same study, mode, seed and machine.
    pub resume: bool,
    /// The first session of the command, if it runs several studies.
    pub batch: Option<String>,
    /// Time limit of the study, including the creation of file sets. `None` means the budget in the
    /// study file for quick mode and no limit for full mode.
    pub budget: Option<Duration>,
    /// Bytes that must stay free on each medium; see [`workspace::RESERVE_BYTES`].
    pub reserve_bytes: u64,
    /// How to start child processes.
    pub runner: Runner,
    /// Maximum duration of a run; see [`DEADLINE_MAX`].
    pub deadline_max: Duration,
    /// Maximum number of spans per run; see [`SPANS_MAX`]. Spans are recorded in every block to
    /// keep the cost equal, but stored only for the first block, up to [`SESSION_SPANS_MAX`].
    pub spans_max: u64,
    /// Evidence level of every run. By default, runs in blocks use level 0, which does not slow
    /// down the compared runs, and traced runs use the highest level that the system allows.
    pub evidence: Option<Level>,
    /// The machine.
    pub machine: MachineFacts,
    /// Version and commit of the program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// Fingerprints of the tests of the claims that the study decides; see
    /// [`SessionHeader::claims`](crate::store::SessionHeader::claims).
    pub claims: BTreeMap<String, String>,
    /// The rule of a session that ends when its claims are decided, and what judges them.
    pub sequential: Option<(Sequential, &'a dyn Looks)>,
    /// Flag that stops the study. The current run is killed and not recorded.
    pub stop: &'a AtomicBool,
    /// Receives events.
    pub progress: &'a dyn Progress,
}

impl<'a> RunOptions<'a> {
    /// Returns default options: quick mode in `work_dir`, with runs as child processes.
    pub fn new(
        work_dir: &Path,
        runner: Runner,
        machine: MachineFacts,
        stop: &'a AtomicBool,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            mode: Mode::Quick,
            overrides: Overrides::default(),
            workspaces: vec![Workspace::describe("work", work_dir)],
            images: &[],
            files: None,
            drop_caches: false,
            allow_sysctl: false,
            resume: false,
            batch: None,
            budget: None,
            reserve_bytes: workspace::RESERVE_BYTES,
            runner,
            deadline_max: DEADLINE_MAX,
            spans_max: SPANS_MAX,
            evidence: None,
            machine,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: Vec::new(),
            claims: BTreeMap::new(),
            sequential: None,
            stop,
            progress,
        }
    }
}
