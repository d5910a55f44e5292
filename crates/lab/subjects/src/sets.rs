//! File sets for all subjects, which the crate `fileset` creates, locates and removes.

#[cfg(feature = "exchange")]
use ioloom_failure::quoted;
use ioloom_failure::{Operation, PathError};
use ioloom_fileset as fileset;
use ioloom_lab::files::SET_MANIFEST;
use ioloom_lab::subject::{Cost, Removed, SetProgress, Sets};
use ioloom_model::{FileSetRealised, FileSetSpec};
use ioloom_sys::{file, make};
use ioloom_walk::PathList;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Estimated bytes per file in addition to its data: inode, directory entry and the rest of its
/// last block.
const METADATA_BYTES: u64 = 4096;
/// Estimated bytes per file without data: inode and directory entry.
const SPARSE_BYTES: u64 = 512;
/// Set creation rates, for the estimate before the start.
const MAKE_FILES_PER_S: f64 = 20_000.0;
const MAKE_BYTES_PER_S: f64 = 250e6;
/// Directory next to the items of a set for files created by a run. It is removed after the run or,
/// if the run is killed, by the next study that uses the set, or with the set.
pub(crate) const SCRATCH: &str = "scratch";

/// Directory for files of a run in the work directory, which can contain files of the user. It is
/// removed after the run or, if the run is killed, by the next run or by `clean`.
pub(crate) const RUN_DIR: &str = "exchange-run";
/// File that marks a directory as created by a run.
const MARKER: &str = ".ioloom-run";

/// A directory for files of a run, removed with its contents on drop.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    /// Keeps other processes from removing a marked directory.
    _lock: Option<fileset::SetLock>,
}

impl Scratch {
    /// Creates the directory after removing leftovers of a killed run. Only for directories in which
    /// the name cannot belong to the user.
    pub(crate) fn fresh(path: PathBuf) -> Result<Self, String> {
        let fail = |operation, e| PathError::new(operation, &path, e).to_string();
        make::remove_tree(&path).map_err(|e| fail(Operation::Remove, e))?;
        std::fs::create_dir(&path).map_err(|e| fail(Operation::CreateDir, e))?;
        Ok(Self { path, _lock: None })
    }

    /// Like [`Scratch::fresh`] for [`RUN_DIR`] below a work directory: the new directory is marked,
    /// and an existing one is removed only if it is.
    #[cfg(feature = "exchange")]
    pub(crate) fn marked(work_dir: &Path) -> Result<Self, String> {
        make_way(work_dir)?;
        let path = work_dir.join(RUN_DIR);
        std::fs::create_dir(&path)
            .map_err(|e| PathError::new(Operation::CreateDir, &path, e).to_string())?;
        let lock = fileset::lock(&path).map_err(|e| {
            // Every later run would refuse a directory without a mark.
            let _ = std::fs::remove_dir(&path);
            e.to_string()
        })?;
        let scratch = Self { path, _lock: Some(lock) };
        let marker = scratch.path.join(MARKER);
        std::fs::File::create_new(&marker)
            .map_err(|e| PathError::new(Operation::Create, &marker, e).to_string())?;
        Ok(scratch)
    }
}

/// Returns the directory of the generated set with these items, in which a run can create files.
///
/// # Errors
/// The items are in a directory of the user.
pub(crate) fn set_of(items: &Path) -> Result<PathBuf, String> {
    // The items can be the current directory, whose path has no parent.
    let items = std::path::absolute(items)
        .map_err(|e| PathError::new(Operation::Resolve, items, e).to_string())?;
    let set = items.parent().filter(|set| set.join(SET_MANIFEST).exists());
    set.map(Path::to_owned).ok_or_else(|| {
        "files are created in generated file sets, never in your directory; omit --files".to_owned()
    })
}

/// Removes the [`RUN_DIR`] of a killed run from a work directory.
///
/// # Errors
/// No run created it, a run uses it, or it cannot be removed.
#[cfg(feature = "exchange")]
pub(crate) fn make_way(work_dir: &Path) -> Result<(), String> {
    let path = work_dir.join(RUN_DIR);
    if is_marked(&path) {
        return remove_marked(&path).map(drop);
    }
    match std::fs::symlink_metadata(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(PathError::new(Operation::Stat, &path, e).to_string()),
        Ok(_) => Err(format!(
            "cannot use {}: it exists and was not created by a run; rename it or use another work \
            directory (--dir)",
            quoted(&path)
        )),
    }
}

/// Returns whether `path` is a directory that a run has marked.
fn is_marked(path: &Path) -> bool {
    let is_dir = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    is_dir && std::fs::symlink_metadata(path.join(MARKER)).is_ok_and(|meta| meta.is_file())
}

/// Removes a marked directory, unless a run uses it.
fn remove_marked(path: &Path) -> Result<Removed, String> {
    let _locked = fileset::lock(path).map_err(|e| e.to_string())?;
    let (mut files, mut bytes) = (0_u64, 0_u64);
    // Files that cannot be listed are removed as well, but not counted.
    if let Ok(list) = walk_list(path) {
        files = list.len() as u64;
        let size = |at| file::stat(list.path(at)).map_or(0, |stat| stat.size);
        bytes = (0..list.len()).map(size).sum();
    }
    make::remove_tree(path).map_err(|e| PathError::new(Operation::Remove, path, e).to_string())?;
    Ok(Removed { files, bytes, left: None })
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the directory is removed by the next run or together with the set.
        let _ = make::remove_tree(&self.path);
    }
}

/// Generated sets and user directories.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSets;

impl Sets for FileSets {
    fn cost(&self, spec: &FileSetSpec) -> Cost {
        let data: u64 =
            (0..spec.count).map(|index| fileset::size(spec, index)).fold(0, u64::saturating_add);
        let data = if spec.making.sparse { 0 } else { data };
        let metadata = if spec.making.sparse { SPARSE_BYTES } else { METADATA_BYTES };
        let bytes = data.saturating_add(spec.count.saturating_mul(metadata));
        let seconds = (spec.count as f64 / MAKE_FILES_PER_S).max(data as f64 / MAKE_BYTES_PER_S);
        Cost { bytes, files: spec.count, seconds }
    }

    fn known(&self, spec: &FileSetSpec, dir: &Path) -> Option<FileSetRealised> {
        let manifest = fileset::load(dir).ok().filter(|m| m.spec == *spec)?;
        manifest.realised.filter(|_| manifest.state == fileset::State::Complete)
    }

    fn items(&self, dir: &Path) -> PathBuf {
        fileset::files_dir(dir)
    }

    fn prepare(
        &self,
        name: &str,
        spec: &FileSetSpec,
        dir: &Path,
        reserve_bytes: u64,
        progress: SetProgress<'_>,
    ) -> Result<FileSetRealised, String> {
        let options = fileset::CreateOptions {
            reserve_bytes: Some(reserve_bytes),
            ..fileset::CreateOptions::default()
        };
        let report = |p: fileset::CreateProgress| progress(p.files_done, p.files);
        let created = fileset::create(spec, dir, &options, &report).map_err(|e| e.to_string())?;
        Ok(FileSetRealised { name: name.to_owned(), ..created.set })
    }

    fn hold(&self, dir: &Path) -> Result<Option<Box<dyn Send>>, String> {
        let held = fileset::lock(dir).map_err(|e| e.to_string())?;
        Ok(Some(Box::new(held)))
    }

    fn clear(&self, dir: &Path) {
        let Ok(_locked) = fileset::lock(dir) else { return };
        // Without a manifest, that directory is not ours.
        if fileset::load(dir).is_ok() {
            // If this fails, the next run that needs the directory reports it.
            let _ = make::remove_tree(&dir.join(SCRATCH));
        }
    }

    fn remove(&self, dir: &Path) -> Result<Removed, String> {
        // A run that uses the set writes to its scratch directory.
        let locked = fileset::lock(dir).map_err(|e| e.to_string())?;
        // Without a manifest, that directory is not ours.
        fileset::load(dir).map_err(|e| e.to_string())?;
        let scratch = dir.join(SCRATCH);
        make::remove_tree(&scratch)
            .map_err(|e| PathError::new(Operation::Remove, &scratch, e).to_string())?;
        let fileset::Removed { files, bytes, left } =
            fileset::remove_locked(&locked).map_err(|e| e.to_string())?;
        Ok(Removed { files, bytes, left: left.into_iter().next() })
    }

    fn remove_left(&self, work_dir: &Path) -> Option<(PathBuf, Result<Removed, String>)> {
        let path = work_dir.join(RUN_DIR);
        is_marked(&path).then(|| {
            let removed = remove_marked(&path);
            (path, removed)
        })
    }

    fn survey(&self, dir: &Path) -> Result<FileSetRealised, String> {
        let shape = fileset::spec_from_tree(dir, 0).map_err(|e| e.to_string())?;
        if let Some(error) = shape.first_error {
            return Err(error);
        }
        let files = shape.spec.count;
        Ok(FileSetRealised {
            name: dir.display().to_string(),
            files,
            bytes_total: shape.bytes,
            bytes_mean: shape.bytes as f64 / files.max(1) as f64,
            compute_ns_mean: None,
            hash: survey_hash(dir)?,
            medium: fileset::medium(dir).ok(),
        })
    }
}

/// Returns the XXH3-64 of the sorted lines `SIZE  PATH` of a tree.
fn survey_hash(dir: &Path) -> Result<String, String> {
    let list = walk_list(dir)?;
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    let mut lines: Vec<Vec<u8>> = Vec::with_capacity(list.len());
    for index in 0..list.len() {
        let path = list.path(index);
        let size = file::stat(path)
            .map_err(|e| PathError::new(Operation::Stat, path, e).to_string())?
            .size;
        let relative = path.strip_prefix(dir).unwrap_or(path);
        let mut line = format!("{size}  ").into_bytes();
        line.extend_from_slice(relative.as_os_str().as_bytes());
        line.push(b'\n');
        lines.push(line);
    }
    lines.sort();
    for line in &lines {
        hasher.update(line);
    }
    Ok(format!("{:016x}", hasher.digest()))
}

pub(crate) fn walk_list(dir: &Path) -> Result<PathList, String> {
    let (mut list, summary) =
        ioloom_walk::files(dir, &ioloom_walk::WalkOptions::default()).map_err(|e| e.to_string())?;
    if let Some(error) = summary.errors.first() {
        return Err(error.to_string());
    }
    list.sort();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(dir: &Path) -> FileSetRealised {
        let text = "count=40,size=100".parse().unwrap();
        let fileset::SetText::Spec(spec) = text else { panic!("{text:?}") };
        FileSets.prepare("t", &spec, dir, 0, &|_, _| true).unwrap()
    }

    #[test]
    fn a_set_in_use_keeps_its_scratch_directory() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("set");
        prepared(&dir);
        let scratch = Scratch::fresh(dir.join(SCRATCH)).unwrap();
        std::fs::write(scratch.path.join("output"), "x").unwrap();
        let held = FileSets.hold(&dir).unwrap();
        let refused = FileSets.remove(&dir).unwrap_err();
        assert!(refused.contains("locked by another process"), "{refused}");
        FileSets.clear(&dir);
        assert!(scratch.path.join("output").exists());
        drop(held);
        FileSets.clear(&dir);
        assert!(!scratch.path.exists());
        assert_eq!(FileSets.remove(&dir).unwrap().files, 40);
        assert!(!dir.exists());
    }

    /// Runs itself in the directory of the items, as a child of the laboratory whose path is not UTF-8.
    #[test]
    fn the_items_of_a_set_can_be_the_current_directory() {
        const IN_ITEMS: &str = "IOLOOM_TEST_IN_ITEMS";
        if std::env::var_os(IN_ITEMS).is_some() {
            assert!(set_of(Path::new(".")).unwrap().ends_with("set"));
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("set");
        prepared(&dir);
        let name = "sets::tests::the_items_of_a_set_can_be_the_current_directory";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(IN_ITEMS, "1")
            .current_dir(FileSets.items(&dir))
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    }

    #[test]
    fn bytes_of_removed_files_count_and_what_remains_is_reported() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("sets/set");
        prepared(&dir);
        let files = fileset::files_dir(&dir);
        std::fs::write(files.join("mine"), "x").unwrap();
        let first = walk_list(&files).unwrap();
        std::fs::remove_file(first.path(0)).unwrap();
        let cleaned = || {
            let all = ioloom_lab::clean(temp.path(), &FileSets).unwrap();
            let [set] = &all[..] else { panic!("{all:?}") };
            assert_eq!(set.dir, dir);
            (set.files, set.bytes, set.failed.clone())
        };
        let (count, bytes, reason) = cleaned();
        assert_eq!((count, bytes), (39, 3900));
        let reason = reason.unwrap();
        for part in ["removed 39 files", "(3.81 KiB)", "it contains other files"] {
            assert!(reason.contains(part), "{reason}");
        }
        assert!(files.join("mine").exists());
        std::fs::remove_file(files.join("mine")).unwrap();
        assert_eq!(cleaned(), (0, 0, None));
        prepared(&dir);
        std::fs::remove_file(first.path(0)).unwrap();
        assert_eq!(cleaned(), (39, 3900, None));
        // The file of the user next to the set remains, and the set is gone.
        prepared(&dir);
        std::fs::write(dir.join("mine"), "x").unwrap();
        assert_eq!(cleaned(), (40, 4000, None));
        assert!(dir.join("mine").exists());
    }
}
