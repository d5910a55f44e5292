//! What earlier trials learnt, per file system, kind of work, condition, size class and kernel.
//!
//! A stored plan is never used unseen: the next trial of the same kind of job compares it with the
//! default. A trial of cached files says nothing about files on the device, so the condition is part
//! of the key.

use crate::atomic_file;
use crate::exit::Failure;
use crate::interrupt;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::Compute;
use ioloom_sys::file::{self, OpenHow};
use ioloom_sys::make;
use ioloom_sys::mount::Mount;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Version of the file.
const SCHEMA: u32 = 1;
/// Longest accepted file; [`ENTRIES_MAX`] entries with long mount points are shorter.
const BYTES_MAX: u64 = 8 << 20;
/// Longest wait for the lock, and the time between two attempts.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
/// Most entries; the oldest are dropped.
const ENTRIES_MAX: usize = 1000;

/// Where the bytes of a trial came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Condition {
    /// From a device.
    Cold,
    /// From memory.
    Warm,
    /// From both.
    Mixed,
    /// The system does not count the reads of this file system.
    Unknown,
}

impl Condition {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Mixed => "mixed",
            Self::Unknown => "unknown",
        }
    }
}

/// The kind of job that an entry is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    /// Type, source, device number and mount point of the file system.
    pub(super) file_system: String,
    pub(super) compute: String,
    pub(super) condition: Condition,
    /// Upper limit of the mean file size.
    pub(super) size_class: String,
    pub(super) kernel: String,
}

/// What a trial learnt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) plan: String,
    /// Time of the default divided by that of the plan.
    pub(super) gain: f64,
    pub(super) learnt_unix_ms: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Document {
    schema: u32,
    entries: Vec<Entry>,
}

/// The profiles of a store.
pub(super) struct Profiles {
    path: PathBuf,
    pub(super) entries: Vec<Entry>,
}

impl Key {
    /// Returns the key of a job on the file system of `path`.
    pub(super) fn new(path: &Path, compute: &Compute, condition: Condition, mean: f64) -> Self {
        let file_system = ioloom_sys::mount::mount_of(path)
            .map_or_else(|_| "unknown".to_owned(), |mount| file_system(&mount));
        let release = ioloom_sys::proc::read_text(Path::new("/proc/sys/kernel/osrelease"));
        Self {
            file_system,
            compute: compute.to_string(),
            condition,
            size_class: size_class(mean).to_owned(),
            kernel: release.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned()),
        }
    }
}

/// Returns what identifies a file system: several may have the same type and source, such as `overlay`.
fn file_system(mount: &Mount) -> String {
    let (source, point) = (mount.source.display(), mount.point.display());
    let device = match mount.device {
        // Numbers without a disk change with each mount.
        (0, _) => String::new(),
        (major, minor) => format!("{major}:{minor} "),
    };
    format!("{} on {source} ({device}at {point})", mount.file_system)
}

/// Returns the file systems of a path and of what is below it.
pub(super) fn file_systems(path: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error| Failure::failed(PathError::new(Operation::Stat, path, error));
    let real = std::fs::canonicalize(path).map_err(failed)?;
    let own = ioloom_sys::mount::mount_of(&real).map_err(failed)?;
    let below = ioloom_sys::mount::mounts().map_err(failed)?;
    let below = below.iter().filter(|mount| mount.point.starts_with(&real));
    Ok(below.chain([&own]).map(file_system).collect())
}

fn size_class(mean: f64) -> &'static str {
    match mean {
        m if m <= 16_384.0 => "16KiB",
        m if m <= 262_144.0 => "256KiB",
        m if m <= 4_194_304.0 => "4MiB",
        _ => "larger",
    }
}

impl Profiles {
    /// Reads the profiles of a store; without a file they are empty.
    pub(super) fn read(store: &Path) -> Result<Self, Failure> {
        let path = store.join("profiles.json");
        let entries = entries(&path)?;
        Ok(Self { path, entries })
    }

    /// Returns what is known about a kind of job. What is not known to be cold or warm is never found,
    /// because it may have been the opposite.
    pub(super) fn find(&self, key: &Key) -> Option<&Entry> {
        let known = key.condition != Condition::Unknown;
        self.entries.iter().find(|entry| known && entry.key == *key)
    }

    /// Keeps an entry instead of the earlier one with its key, unless its condition is unknown.
    pub(super) fn keep(&mut self, entry: Entry) -> Result<(), Failure> {
        if entry.key.condition == Condition::Unknown {
            return Ok(());
        }
        self.change(|entries| {
            entries.retain(|old| old.key != entry.key);
            entries.push(entry);
            let excess = entries.len().saturating_sub(ENTRIES_MAX);
            entries.drain(..excess);
        })
    }

    /// Forgets everything, or what `wanted` selects. Returns how many entries that were.
    pub(super) fn forget(&mut self, wanted: impl Fn(&Key) -> bool) -> Result<usize, Failure> {
        if self.entries.is_empty() {
            return Ok(0);
        }
        let mut forgotten = 0;
        self.change(|entries| {
            let before = entries.len();
            entries.retain(|entry| !wanted(&entry.key));
            forgotten = before - entries.len();
        })?;
        Ok(forgotten)
    }

    /// Changes the file, including what other processes have added since it was read. They wait for a short time.
    fn change(&mut self, change: impl FnOnce(&mut Vec<Entry>)) -> Result<(), Failure> {
        // Held until the end of this function.
        let _held = locked(&self.path.with_extension("json.lock"))?;
        self.entries = entries(&self.path)?;
        change(&mut self.entries);
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let document = Document { schema: SCHEMA, entries: self.entries.clone() };
        let mut text = serde_json::to_vec_pretty(&document).map_err(Failure::failed)?;
        text.push(b'\n');
        atomic_file::write_with_parents(&self.path, text)
    }
}

/// Opens and locks a lock file. Fails if another process holds the lock for long, or after an interrupt.
fn locked(path: &Path) -> Result<File, Failure> {
    let failed = |error| Failure::failed(PathError::new(Operation::Write, path, error));
    let dir = path.parent().unwrap_or(Path::new("."));
    let file = std::fs::create_dir_all(dir).and_then(|()| open_lock(path)).map_err(failed)?;
    let start = Instant::now();
    while !make::try_lock(&file).map_err(failed)? {
        let path = quoted(path);
        if interrupt::is_raised() {
            let message = format!("cannot wait for the lock {path}: interrupted");
            return Err(Failure::new(interrupt::exit(), message));
        }
        if start.elapsed() >= LOCK_WAIT {
            return Err(Failure::failed(format!("the lock {path} is held by another process")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(file)
}

/// Opens a lock file, or creates it. A link is refused: another user may have planted it. A lock of another
/// user that can only be read is sufficient.
fn open_lock(path: &Path) -> io::Result<File> {
    let opened = make::open_or_shared_file(path).or_else(|error| {
        let how = OpenHow { nofollow: true, ..OpenHow::default() };
        match error.kind() {
            ErrorKind::PermissionDenied => file::open(path, how),
            _ => Err(error),
        }
    });
    opened.map(File::from)
}

/// Reads the entries of a file; without it there are none.
fn entries(path: &Path) -> Result<Vec<Entry>, Failure> {
    let text = match file::read_text(path, BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if matches!(error.kind(), ErrorKind::Other | ErrorKind::InvalidData) => {
            return Err(damaged(path, &error));
        }
        Err(error) => return Err(Failure::failed(PathError::new(Operation::Read, path, error))),
    };
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| damaged(path, &error))?;
    // Before the entries: those of another version may have other fields.
    match value["schema"].as_u64() {
        Some(schema) if schema > u64::from(SCHEMA) => Err(Failure::failed(format!(
            "cannot use {}: it was written by a newer version of ioloom (schema {schema}); use that \
             version or another --store",
            quoted(path)
        ))),
        Some(schema) if schema == u64::from(SCHEMA) => {
            let document: Document =
                serde_json::from_value(value).map_err(|error| damaged(path, &error))?;
            Ok(document.entries)
        }
        _ => Err(damaged(path, &format!("unknown version {}", value["schema"]))),
    }
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!(
        "cannot read {}: {why}; remove the file to start without profiles",
        quoted(path)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(condition: Condition) -> Key {
        Key::new(Path::new("/proc"), &Compute::None, condition, 5_000.0)
    }

    fn entry(condition: Condition, plan: &str) -> Entry {
        let plan = plan.to_owned();
        Entry { key: key(condition), plan, gain: 1.5, learnt_unix_ms: 1 }
    }

    #[test]
    fn what_is_learnt_warm_is_not_found_cold() {
        let dir = tempfile::tempdir().unwrap();
        let mut profiles = Profiles::read(dir.path()).unwrap();
        profiles.keep(entry(Condition::Warm, "read/threads:n=2")).unwrap();
        let profiles = Profiles::read(dir.path()).unwrap();
        assert_eq!(profiles.find(&key(Condition::Cold)), None);
        assert_eq!(profiles.find(&key(Condition::Warm)).unwrap().plan, "read/threads:n=2");
    }

    #[test]
    fn what_is_learnt_in_an_unknown_condition_is_neither_kept_nor_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut profiles = Profiles::read(dir.path()).unwrap();
        let unknown = entry(Condition::Unknown, "read/threads:n=2");
        profiles.keep(unknown.clone()).unwrap();
        assert!(Profiles::read(dir.path()).unwrap().entries.is_empty());
        // As an earlier version kept it.
        profiles.entries.push(unknown);
        assert_eq!(profiles.find(&key(Condition::Unknown)), None);
    }

    #[test]
    fn concurrent_trials_keep_the_profiles_of_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Profiles::read(dir.path()).unwrap();
        let (mut one, mut other) = (open(), open());
        one.keep(entry(Condition::Warm, "read/threads:n=2")).unwrap();
        other.keep(entry(Condition::Cold, "read/threads:n=8")).unwrap();
        assert_eq!(open().entries.len(), 2);
        let mut third = open();
        one.keep(entry(Condition::Mixed, "read/threads:n=4")).unwrap();
        assert_eq!(third.forget(|key| key.condition == Condition::Cold).unwrap(), 1);
        assert_eq!(open().entries.len(), 2);
    }

    #[test]
    fn a_lock_that_is_a_link_is_refused_and_its_target_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        std::fs::write(&target, "text").unwrap();
        let lock = dir.path().join("profiles.json.lock");
        std::os::unix::fs::symlink(&target, &lock).unwrap();
        let mut profiles = Profiles::read(dir.path()).unwrap();
        assert!(profiles.keep(entry(Condition::Warm, "read/threads:n=2")).is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "text");
        std::fs::remove_file(&lock).unwrap();
        profiles.keep(entry(Condition::Warm, "read/threads:n=2")).unwrap();
    }

    #[test]
    fn the_lock_is_shared_with_those_who_share_the_store() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mut profiles = Profiles::read(dir.path()).unwrap();
        profiles.keep(entry(Condition::Warm, "read/threads:n=2")).unwrap();
        std::fs::write(dir.path().join("by-umask"), "").unwrap();
        let mode =
            |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode("profiles.json.lock"), mode("by-umask"));
    }

    #[test]
    fn file_systems_of_the_same_source_differ() {
        let mount = |id, point: &str| Mount {
            id,
            parent: 0,
            device: (0, id as u32),
            point: point.into(),
            options: String::new(),
            file_system: "overlay".to_owned(),
            source: "overlay".into(),
        };
        assert_ne!(file_system(&mount(1, "/a")), file_system(&mount(2, "/b")));
        assert_eq!(file_system(&mount(1, "/a")), file_system(&mount(2, "/a")), "mounted again");
        assert!(file_systems(Path::new("/no/such/path")).is_err());
        let all = file_systems(Path::new("/")).unwrap();
        assert!(all.contains(&key(Condition::Cold).file_system), "{all:?}");
    }

    #[test]
    fn a_newer_entry_replaces_an_older_one_and_all_can_be_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut profiles = Profiles::read(dir.path()).unwrap();
        for (condition, plan) in [
            (Condition::Cold, "read/threads:n=2"),
            (Condition::Warm, "read/threads:n=2"),
            (Condition::Cold, "read/threads:n=8"),
        ] {
            profiles.keep(entry(condition, plan)).unwrap();
        }
        assert_eq!(profiles.entries.len(), 2);
        assert_eq!(profiles.find(&key(Condition::Cold)).unwrap().plan, "read/threads:n=8");
        assert_eq!(profiles.forget(|key| key.condition == Condition::Warm).unwrap(), 1);
        assert_eq!(profiles.forget(|_| true).unwrap(), 1);
        assert!(Profiles::read(dir.path()).unwrap().entries.is_empty());
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_empty() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["{", "[]", "{}", "{\"schema\": 0, \"entries\": []}"] {
            std::fs::write(dir.path().join("profiles.json"), text).unwrap();
            let message = Profiles::read(dir.path()).err().unwrap().message;
            assert!(message.contains("profiles.json") && message.contains("remove"), "{message}");
        }
    }

    #[test]
    fn the_file_of_a_newer_version_is_not_called_damaged() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["{\"schema\": 99, \"entries\": []}", "{\"schema\": 2, \"all\": {}}"] {
            std::fs::write(dir.path().join("profiles.json"), text).unwrap();
            let message = Profiles::read(dir.path()).err().unwrap().message;
            assert!(message.contains("newer version") && !message.contains("remove"), "{message}");
        }
    }

    #[test]
    fn pipes_and_huge_files_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("profiles.json");
        let message = || Profiles::read(dir.path()).err().unwrap().message;
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(message().contains("it is a named pipe"), "{}", message());
        std::fs::remove_file(&path).unwrap();
        File::create(&path).unwrap().set_len(3 << 30).unwrap();
        assert!(message().contains("it is larger than"), "{}", message());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(message().contains("it is a device"), "{}", message());
    }

    #[test]
    fn a_lock_of_another_process_is_not_awaited_without_limit() {
        let dir = tempfile::tempdir().unwrap();
        let mut profiles = Profiles::read(dir.path()).unwrap();
        profiles.keep(entry(Condition::Warm, "read/threads:n=2")).unwrap();
        let lock = File::open(dir.path().join("profiles.json.lock")).unwrap();
        assert!(make::try_lock(&lock).unwrap());
        let start = Instant::now();
        for failure in [
            profiles.keep(entry(Condition::Cold, "read/threads:n=2")).unwrap_err(),
            profiles.forget(|_| true).unwrap_err(),
        ] {
            assert!(failure.message.contains("held by another process"), "{}", failure.message);
        }
        assert!(start.elapsed() < Duration::from_secs(60));
        drop(lock);
        profiles.keep(entry(Condition::Cold, "read/threads:n=2")).unwrap();
        assert_eq!(profiles.entries.len(), 2);
    }
}
