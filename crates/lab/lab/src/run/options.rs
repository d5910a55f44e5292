//! How a study is to run, and the bounds that hold unless the caller says otherwise.

use super::Progress;
use crate::child::Runner;
use crate::expand::{Mode, Overrides};
use crate::media::OwnImage;
use crate::workspace::{self, Workspace};
use ioloom_model::{Level, MachineFacts};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Spans that a run may keep in all, unless the caller says otherwise.
pub const SPANS_MAX: u64 = 32_768;
/// Spans that a session keeps in all, about 60 MB of text; runs after that keep totals only.
pub const SESSION_SPANS_MAX: usize = 1 << 20;
/// Longest time of one run.
pub const DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// How a study is to run.
#[derive(Clone)]
pub struct RunOptions<'a> {
    /// Quick or full.
    pub mode: Mode,
    /// Seed, blocks, experiments, conditions. Media and files are filled in from below.
    pub overrides: Overrides,
    /// The media; the first is the default one. At least one.
    pub workspaces: Vec<Workspace>,
    /// The media among them that are images of ours.
    pub images: &'a [OwnImage],
    /// A directory of the user's in place of every set.
    pub files: Option<PathBuf>,
    /// Whether the user allowed the system's whole cache to be dropped.
    pub drop_caches: bool,
    /// Whether the user allowed settings of the kernel to be changed while a run needs it.
    pub allow_sysctl: bool,
    /// Go on with the latest unfinished session of the same study, mode, seed and machine.
    pub resume: bool,
    /// The first session of the command, when it runs several studies.
    pub batch: Option<String>,
    /// Time that the study may take; `None` is the file's own budget in quick mode and none in
    /// full. Making sets counts.
    pub budget: Option<Duration>,
    /// Bytes that must stay free on each medium; see [`workspace::RESERVE_BYTES`].
    pub reserve_bytes: u64,
    /// How children are started.
    pub runner: Runner,
    /// Longest time of one run; see [`DEADLINE_MAX`].
    pub deadline_max: Duration,
    /// Spans that one run may keep in all; they are stored for the first block alone, as far as
    /// [`SESSION_SPANS_MAX`] reaches, but taken in every block so that all blocks are alike. See
    /// [`SPANS_MAX`].
    pub spans_max: u64,
    /// Pins the level at which every run is watched. Without it runs of blocks keep accounts alone
    /// (level 0), so that what is compared is not slowed by its watching, and runs for pictures are
    /// watched as closely as the system allows.
    pub evidence: Option<Level>,
    /// The machine.
    pub machine: MachineFacts,
    /// Version and commit of the program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// Raised to stop: the run that is under way is killed and not recorded.
    pub stop: &'a AtomicBool,
    /// Told what happens.
    pub progress: &'a dyn Progress,
}

impl<'a> RunOptions<'a> {
    /// The usual options: quick, in `work_dir`, children of this program, nothing overridden.
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
            stop,
            progress,
        }
    }
}
