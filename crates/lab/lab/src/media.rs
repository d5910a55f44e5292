//! Media created by ioloom: a file system in an image, optionally with limited read speed.
//!
//! An image is stored in `images/NAME-PROCESS` below the work directory, next to a manifest that
//! its creator keeps locked. The lock is released when the process exits, so an image with an
//! unlocked manifest was left behind by a killed study. [`remove_leftovers`] removes it, and so do
//! the next study with an image and [`clean`](crate::clean()). The study computes the image size;
//! the file is sparse and takes only as much space as the sets.
//!
//! Everything here requires root. Errors are sentences with the missing requirement and advice.

use ioloom_failure::{quoted, reason};
use ioloom_sys_lab::cgroup::{ReadLimit, Throttle, remove_leftover_groups};
use ioloom_sys_lab::image::{ImageError, LoopImage};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the manifest that identifies a directory with an image.
pub const IMAGE_MANIFEST: &str = ".ioloom-image.json";
/// File name of an image.
pub const IMAGE_FILE: &str = "image";

/// Directory of images below a work directory.
const IMAGES: &str = "images";
/// Name of the mount point next to the image.
const POINT: &str = "point";

/// A mounted image as a medium. Dropping it unmounts and removes it.
#[derive(Debug)]
pub struct OwnImage {
    word: String,
    dir: PathBuf,
    // The field order matters: the directory is dropped last, when it is empty.
    image: Mutex<LoopImage>,
    throttle: Option<Throttle>,
    _image_dir: ImageDir,
}

/// The directory of an image and its locked manifest.
#[derive(Debug)]
struct ImageDir {
    dir: PathBuf,
    _lock: File,
}

impl Drop for ImageDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.dir.join(IMAGE_MANIFEST));
        let _ = std::fs::remove_dir(&self.dir);
        if let Some(parent) = self.dir.parent() {
            let _ = std::fs::remove_dir(parent);
        }
    }
}

impl OwnImage {
    /// Creates and mounts an image in `work_dir` with room for sets of `bytes` in `files` files.
    /// `word` is the medium name in tables.
    ///
    /// # Errors
    /// A sentence with the missing requirement and advice.
    pub fn make(work_dir: &Path, word: &str, bytes: u64, files: u64) -> Result<Self, String> {
        let advice = "run as root on a machine with loop devices";
        ioloom_sys_lab::image::can_mount_images().map_err(|e| format!("{e}; {advice}"))?;
        let image_dir = image_dir(work_dir, word)
            .map_err(|e| format!("{}: {}; choose another --dir", quoted(work_dir), reason(&e)))?;
        let (image, point) = (image_dir.dir.join(IMAGE_FILE), image_dir.dir.join(POINT));
        // Leave room for partly filled blocks, inodes, the journal and the reserve.
        let room = bytes.saturating_add(files.saturating_mul(8 << 10)).saturating_add(128 << 20);
        let room = room.saturating_add(room / 4);
        let made = LoopImage::create_for(&image, &point, room, Some(files + files / 8 + 1024))
            .map_err(|e| format!("{e}; {advice}"))?;
        if !made.direct_io() {
            let text = "the file system of the work directory does not support direct reads \
                through a loop device; choose a --dir on a disk";
            return Err(text.to_owned());
        }
        let dir = std::path::absolute(&point).map_err(|e| e.to_string())?;
        let image = Mutex::new(made);
        Ok(Self { word: word.to_owned(), dir, image, throttle: None, _image_dir: image_dir })
    }

    /// Limits the read speed of every run on this medium.
    ///
    /// # Errors
    /// A sentence with the missing requirement and advice.
    pub fn throttled(mut self, limit: ReadLimit) -> Result<Self, String> {
        let medium = ioloom_sys::mount::medium(&self.dir).map_err(|e| {
            format!(
                "cannot find the device of {}: {}; mount /proc and /sys",
                quoted(&self.dir),
                reason(&e)
            )
        })?;
        self.throttle = Some(Throttle::create(medium.mount.device, limit)?);
        Ok(self)
    }

    /// Returns the medium name in tables.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Returns the mount point.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the cgroup that a run's process must enter, if reads are limited.
    pub fn throttle(&self) -> Option<&Throttle> {
        self.throttle.as_ref()
    }

    /// Remounts the image, which evicts all of its data, names and inodes from memory.
    ///
    /// # Errors
    /// A file in the image is open, or the system rejects the call.
    pub fn remount(&self) -> Result<(), ImageError> {
        self.image().remount()
    }

    fn image(&self) -> MutexGuard<'_, LoopImage> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn image_dir(work_dir: &Path, word: &str) -> io::Result<ImageDir> {
    remove_leftovers(work_dir)?;
    let dir = work_dir.join(IMAGES).join(format!("{word}-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let lock = File::create(dir.join(IMAGE_MANIFEST))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(ImageDir { dir, _lock: lock })
}

/// Removes leftovers of killed studies: images in `work_dir`, mounted or not, and cgroups with a
/// read limit. Returns their number. Images in use are left alone.
///
/// # Errors
/// A leftover cannot be removed.
pub fn remove_leftovers(work_dir: &Path) -> io::Result<usize> {
    let mut found = remove_leftover_groups()?;
    let entries = match std::fs::read_dir(work_dir.join(IMAGES)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let dir = entry?.path();
        if std::fs::symlink_metadata(dir.join(IMAGE_MANIFEST)).is_ok_and(|m| m.is_file()) {
            match remove_image(&dir) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                removed => {
                    removed?;
                    found += 1;
                }
            }
        }
    }
    Ok(found)
}

/// Unmounts and removes the image in `dir` and its manifest. Returns the files and bytes removed.
pub(crate) fn remove_image(dir: &Path) -> io::Result<(u64, u64)> {
    let manifest = File::open(dir.join(IMAGE_MANIFEST))?;
    flock(&manifest, FlockOperation::NonBlockingLockExclusive).map_err(|e| {
        let e = io::Error::from(e);
        io::Error::new(e.kind(), "in use by a study; wait until it has finished")
    })?;
    let image = dir.join(IMAGE_FILE);
    let found = match std::fs::symlink_metadata(&image) {
        Ok(meta) if meta.is_file() => (1, meta.len()),
        Ok(_) => return Err(io::Error::other("the image is not a regular file")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (0, 0),
        Err(e) => return Err(e),
    };
    ioloom_sys_lab::image::remove_leftovers(&image)?;
    // The mount point is empty when nothing is mounted; any contents belong to the user.
    let _ = std::fs::remove_dir(dir.join(POINT));
    std::fs::remove_file(dir.join(IMAGE_MANIFEST))?;
    let _ = std::fs::remove_dir(dir);
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests {
    use super::*;
    use crate::condition::Maker;
    use crate::files::FileList;
    use ioloom_model::condition::Metadata;
    use ioloom_model::{Condition, Measured, Method};
    use std::sync::atomic::AtomicBool;

    fn made(dir: &Path) -> Option<OwnImage> {
        match OwnImage::make(dir, "own", 8 << 20, 50) {
            Ok(own) => Some(own),
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(reason.contains("; "), "{reason}");
                assert!(!dir.join(IMAGES).exists(), "a failed image should leave nothing behind");
                None
            }
        }
    }

    #[test]
    fn remounting_makes_data_and_names_cold() {
        let work = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let Some(own) = made(work.path()) else { return };
        let dir = own.dir().join("set");
        std::fs::create_dir(&dir).unwrap();
        for i in 0..50 {
            std::fs::write(dir.join(format!("{i:03}")), vec![i as u8; 20_000]).unwrap();
        }
        let list = FileList::below(&dir).unwrap();
        let stop = AtomicBool::new(false);
        let touches = crate::Touches::Data;
        let maker = Maker {
            drop_caches: None,
            threads: 4,
            image: Some(&own),
            touches,
            cold_by: None,
            lists: false,
        };
        let made = maker.make(Condition::Cold, &list, None, 1, &stop).unwrap();
        let before = ioloom_sys::proc::process_io().unwrap().read_bytes;
        for i in 0..50 {
            assert_eq!(std::fs::read(dir.join(format!("{i:03}"))).unwrap()[0], i as u8);
        }
        let device = ioloom_sys::proc::process_io().unwrap().read_bytes - before;
        let full = Measured { bytes: 1_000_000, ..Measured::default() };
        let (proof, doubt) = made.conclude(Some(Method::Read), Some(device), Some(&full), &list);
        assert_eq!((proof.made_by.as_str(), proof.metadata), ("remount", Metadata::Cold));
        if proof.resident_before.is_some() {
            assert_eq!((proof.resident_before, proof.proved, doubt), (Some(0.0), Some(true), None));
        }
        assert!(device >= 1_000_000, "{device}");
        assert!(crate::clean::clean(work.path(), &NoSets).unwrap()[0].failed.is_some(), "in use");
        drop(own);
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
    }

    #[test]
    fn leftovers_of_a_killed_study_are_removed() {
        let work = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let Some(own) = made(work.path()) else { return };
        let OwnImage { image, _image_dir, .. } = own;
        let dir = _image_dir.dir.clone();
        assert_eq!(
            remove_leftovers(work.path()).unwrap(),
            0,
            "an image in use must not be \
            removed"
        );
        // As after a kill: the lock is gone, but the mount remains.
        std::mem::forget(image);
        let keep = std::fs::read(dir.join(IMAGE_MANIFEST)).unwrap();
        drop(_image_dir);
        std::fs::write(dir.join(IMAGE_MANIFEST), keep).unwrap();
        assert!(dir.join(IMAGE_FILE).exists());
        assert!(remove_leftovers(work.path()).unwrap() >= 1);
        assert!(!dir.exists());
    }

    struct NoSets;

    impl crate::Sets for NoSets {
        fn cost(&self, _: &ioloom_model::FileSetSpec) -> crate::Cost {
            crate::Cost { bytes: 0, files: 0, seconds: 0.0 }
        }
        fn known(
            &self,
            _: &ioloom_model::FileSetSpec,
            _: &Path,
        ) -> Option<ioloom_model::FileSetRealised> {
            None
        }
        fn items(&self, dir: &Path) -> PathBuf {
            dir.to_owned()
        }
        fn prepare(
            &self,
            _: &str,
            _: &ioloom_model::FileSetSpec,
            _: &Path,
            _: u64,
            _: crate::SetProgress<'_>,
        ) -> Result<ioloom_model::FileSetRealised, String> {
            Err("makes nothing".to_owned())
        }
        fn remove(&self, _: &Path) -> Result<crate::Removed, String> {
            Err("removes nothing".to_owned())
        }
        fn survey(&self, _: &Path) -> Result<ioloom_model::FileSetRealised, String> {
            Err("surveys nothing".to_owned())
        }
    }
}
