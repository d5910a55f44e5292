//! Media of our own: a file system in an image, and the same behind a slow device.
//!
//! An image lies in the work directory, in `images/NAME-PROCESS`, beside a manifest that its maker
//! holds locked. The lock ends with the process, whatever ended it, so an image whose manifest can
//! be locked was left behind by a killed study; [`undo_left`] removes it, and so do the next study
//! with an image and [`clean`](crate::clean). What an image must have room for is asked of the
//! study; the file is sparse and takes only what the sets take.
//!
//! Everything here needs root. What is missing is told as one sentence with a remedy.

use ioloom_sys_lab::cgroup::{ReadLimit, Throttle, remove_leftover_groups};
use ioloom_sys_lab::image::{ImageError, LoopImage};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the file by which a directory with an image of ours is known. Beside it lies
/// [`IMAGE_FILE`] and nothing else that [`clean`] would remove.
pub const IMAGE_MANIFEST: &str = ".ioloom-image.json";
/// Name of an image in its directory.
pub const IMAGE_FILE: &str = "image";

/// Directory below a work directory in which images lie.
const IMAGES: &str = "images";
/// Directory beside an image on which it is mounted.
const POINT: &str = "point";

/// A mounted image of ours as a medium. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct OwnImage {
    word: String,
    dir: PathBuf,
    // Dropped in this order: the directory goes when nothing is in it any more.
    image: Mutex<LoopImage>,
    throttle: Option<Throttle>,
    _home: ImageHome,
}

/// The directory of an image and its locked manifest.
#[derive(Debug)]
struct ImageHome {
    dir: PathBuf,
    _lock: File,
}

impl Drop for ImageHome {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.dir.join(IMAGE_MANIFEST));
        let _ = std::fs::remove_dir(&self.dir);
        if let Some(parent) = self.dir.parent() {
            let _ = std::fs::remove_dir(parent);
        }
    }
}

impl OwnImage {
    /// Makes and mounts an image in `work_dir` with room for sets of `bytes` in `files` files; `word`
    /// is the medium's word for tables.
    ///
    /// # Errors
    /// One sentence: what is missing, and the remedy.
    pub fn make(work_dir: &Path, word: &str, bytes: u64, files: u64) -> Result<Self, String> {
        let remedy = "run as root on a machine with loop devices";
        ioloom_sys_lab::image::can_mount_images().map_err(|e| format!("{e}; remedy: {remedy}"))?;
        let home = home(work_dir, word)
            .map_err(|e| format!("{}: {e}; remedy: another --dir", work_dir.display()))?;
        let (image, point) = (home.dir.join(IMAGE_FILE), home.dir.join(POINT));
        // Room for blocks that are not full, for inodes, for the journal, and for the reserve.
        let room = bytes.saturating_add(files.saturating_mul(8 << 10)).saturating_add(128 << 20);
        let room = room.saturating_add(room / 4);
        let made = LoopImage::create_for(&image, &point, room, Some(files + files / 8 + 1024))
            .map_err(|e| format!("{e}; remedy: {remedy}"))?;
        if !made.direct_io() {
            let text = "the file system of the work directory gives a loop device no direct reads; \
                        remedy: --dir on a disk";
            return Err(text.to_owned());
        }
        let dir = std::path::absolute(&point).map_err(|e| e.to_string())?;
        let image = Mutex::new(made);
        Ok(Self { word: word.to_owned(), dir, image, throttle: None, _home: home })
    }

    /// Slows the reads of every run on this medium.
    ///
    /// # Errors
    /// One sentence: what is missing, and the remedy.
    pub fn throttled(mut self, limit: ReadLimit) -> Result<Self, String> {
        let medium = ioloom_sys::mount::medium(&self.dir)
            .map_err(|e| format!("{}: {e}; remedy: mount /proc and /sys", self.dir.display()))?;
        self.throttle = Some(Throttle::create(medium.mount.device, limit)?);
        Ok(self)
    }

    /// The word of the medium.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The group that the process of a run must enter.
    pub fn throttle(&self) -> Option<&Throttle> {
        self.throttle.as_ref()
    }

    /// Unmounts and mounts anew: no data, name or inode of it is in memory afterwards.
    ///
    /// # Errors
    /// A file in it is open, or the system refuses.
    pub fn remount(&self) -> Result<(), ImageError> {
        self.image().remount()
    }

    fn image(&self) -> MutexGuard<'_, LoopImage> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn home(work_dir: &Path, word: &str) -> io::Result<ImageHome> {
    undo_left(work_dir)?;
    let dir = work_dir.join(IMAGES).join(format!("{word}-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let lock = File::create(dir.join(IMAGE_MANIFEST))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(ImageHome { dir, _lock: lock })
}

/// Removes what killed studies left: images in `work_dir`, mounted or not, and throttled groups.
/// Says how many there were. Images in use stay.
///
/// # Errors
/// Something that was left cannot be removed.
pub fn undo_left(work_dir: &Path) -> io::Result<usize> {
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

/// Unmounts and removes the image in `dir`, with its manifest: files and bytes given back.
pub(crate) fn remove_image(dir: &Path) -> io::Result<(u64, u64)> {
    let manifest = File::open(dir.join(IMAGE_MANIFEST))?;
    flock(&manifest, FlockOperation::NonBlockingLockExclusive).map_err(|e| {
        let e = io::Error::from(e);
        io::Error::new(e.kind(), "a study is using it; let it end first")
    })?;
    let image = dir.join(IMAGE_FILE);
    let found = match std::fs::symlink_metadata(&image) {
        Ok(meta) if meta.is_file() => (1, meta.len()),
        Ok(_) => return Err(io::Error::other("the image is no regular file")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (0, 0),
        Err(e) => return Err(e),
    };
    ioloom_sys_lab::image::remove_leftovers(&image)?;
    // Empty once nothing is mounted on it; anything in it is not ours.
    let _ = std::fs::remove_dir(dir.join(POINT));
    std::fs::remove_file(dir.join(IMAGE_MANIFEST))?;
    let _ = std::fs::remove_dir(dir);
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
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
                assert!(reason.contains("remedy: "), "{reason}");
                assert!(!dir.join(IMAGES).exists(), "a failed image leaves nothing");
                None
            }
        }
    }

    #[test]
    fn mounting_anew_makes_data_and_names_cold() {
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
        let maker =
            Maker { drop_caches: None, threads: 4, image: Some(&own), touches, cold_by: None };
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
        assert!(crate::clean::clean(work.path(), &Nobody).unwrap()[0].failed.is_some(), "in use");
        drop(own);
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_study_left_is_removed() {
        let work = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let Some(own) = made(work.path()) else { return };
        let OwnImage { image, _home, .. } = own;
        let dir = _home.dir.clone();
        assert_eq!(undo_left(work.path()).unwrap(), 0, "an image in use stays");
        // As after a kill: the lock is gone, the mount is there.
        std::mem::forget(image);
        let keep = std::fs::read(dir.join(IMAGE_MANIFEST)).unwrap();
        drop(_home);
        std::fs::write(dir.join(IMAGE_MANIFEST), keep).unwrap();
        assert!(dir.join(IMAGE_FILE).exists());
        assert!(undo_left(work.path()).unwrap() >= 1);
        assert!(!dir.exists());
    }

    struct Nobody;

    impl crate::Sets for Nobody {
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
