//! The private home in which a program is crashed, and the random kill times.

use crate::guard::{Job, Kept};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for a command.
pub(super) const LIMIT: Duration = Duration::from_secs(300);
/// Time limit for a run's process to notice that its parent is gone.
pub(super) const ORPHAN: Duration = Duration::from_secs(10);

pub(super) const SET: &str = "count=3000,size=exp(mean=2KiB,min=1,max=64KiB)";
pub(super) const SET_FILES: usize = 3000;

/// Seeded pseudo-random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random duration below `max`.
    pub(super) fn moment(&mut self, max: Duration) -> Duration {
        max.mul_f64((self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// A home directory with a copy of the program; removed on drop.
pub(super) struct Home(pub(super) PathBuf);

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Home {
    pub(super) fn new(program: &Path, word: &str) -> anyhow::Result<Self> {
        // The temporary directory is often in memory, where no run can be cold.
        let disk = Path::new("/var/tmp");
        let base = if disk.is_dir() { disk.to_owned() } else { std::env::temp_dir() };
        let dir = base.join(format!("ioloom-crash-{}-{word}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let home = Self(dir);
        std::fs::copy(program, home.program())
            .with_context(|| format!("copy {}", program.display()))?;
        Ok(home)
    }

    pub(super) fn program(&self) -> PathBuf {
        self.0.join("ioloom")
    }

    pub(super) fn start(&self, args: &[&str]) -> anyhow::Result<Kept> {
        Job::built(self.program(), args, &self.0, LIMIT.as_secs())
            .env("HOME", self.0.to_string_lossy())
            .env("XDG_CACHE_HOME", self.0.join("cache").to_string_lossy())
            .env("XDG_DATA_HOME", self.0.join("data").to_string_lossy())
            .start_apart(&self.0.join("said"))
    }

    /// Runs a command to completion; it must exit with 0.
    pub(super) fn well(&self, args: &[&str]) -> anyhow::Result<()> {
        match self.start(args)?.wait(LIMIT)? {
            Some(0) => Ok(()),
            code => {
                let said = std::fs::read_to_string(self.0.join("said")).unwrap_or_default();
                let how = code.map_or("did not exit".to_owned(), |c| format!("exited with {c}"));
                bail!("ioloom {} {how}: {}", args.join(" "), said.trim())
            }
        }
    }

    /// Waits until no process is running the copy.
    pub(super) fn nobody_left(&self) -> anyhow::Result<()> {
        let since = Instant::now();
        loop {
            let left = self.running();
            if left.is_empty() {
                return Ok(());
            }
            ensure!(since.elapsed() < ORPHAN, "processes {left:?} outlive the study");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn running(&self) -> Vec<u32> {
        let program = self.program();
        let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(number)
            .filter(|id| std::fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|p| p == program))
            .collect()
    }
}

/// A home in which a file set is created.
pub(super) struct SetHome(pub(super) Home);

impl SetHome {
    pub(super) const CREATE: [&str; 6] = ["fileset", "create", SET, "set", "--random", "7"];

    pub(super) fn new(program: &Path, word: &str) -> anyhow::Result<Self> {
        Home::new(program, word).map(Self)
    }

    /// Creates the set undisturbed. Returns its manifest and the elapsed time.
    pub(super) fn undisturbed(&self) -> anyhow::Result<(String, Duration)> {
        let since = Instant::now();
        self.0.well(&Self::CREATE)?;
        let takes = since.elapsed();
        Ok((self.manifest()?.context("the set has no manifest")?, takes))
    }

    /// Returns the manifest as text, or `None` if there is none yet. Omits `made_dir`: a process
    /// killed between creating the directory and recording that leaves an empty directory, whose
    /// origin is unknown.
    pub(super) fn manifest(&self) -> anyhow::Result<Option<String>> {
        match std::fs::read_to_string(self.0.0.join("set/.ioloom-set.json")) {
            Ok(text) => {
                let mut manifest: Value =
                    serde_json::from_str(&text).context("the manifest is torn")?;
                manifest
                    .as_object_mut()
                    .context("the manifest is not an object")?
                    .remove("made_dir");
                Ok(Some(manifest.to_string()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).context("read the manifest"),
        }
    }

    pub(super) fn files(&self) -> usize {
        fn count(dir: &Path) -> usize {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|e| if e.path().is_dir() { count(&e.path()) } else { 1 }).sum()
        }
        count(&self.0.0.join("set"))
    }
}
