//! Establishes the cache condition of a run and proves it.
//!
//! Cold: the file system is flushed, then the pages of each file are evicted. Names and inodes
//! remain in memory, which the proof records. With the user's permission (`drop_caches`), the whole
//! page cache of the machine is dropped instead, including names and inodes. Files in an image
//! created by ioloom are made cold by remounting it, which affects only the names and inodes of
//! that file system. Warm: every file is read. As-is: nothing is changed; the state is only
//! recorded.
//!
//! Querying the page cache opens files and so loads their names and inodes. If these must be cold,
//! everything is dropped or remounted once more after the last query.
//!
//! The proof has two parts. Before the run, cachestat is called on a seeded sample (at most
//! [`SAMPLE_MAX`] files, plus the large ones): cold allows [`COLD_RESIDENT_MAX`] of the pages to be
//! resident, warm requires [`WARM_RESIDENT_MIN`]. After the run, the bytes that the child read from
//! devices count: cold requires at least [`COLD_DEVICE_MIN`] of the bytes of the files, warm allows
//! at most [`WARM_DEVICE_MAX`]. There is no upper limit for cold because small files occupy whole
//! pages. Direct reads always come from the device, so only the first part is evidence for them. If
//! the condition cannot be observed, it is `condition unknown`, never a guess. If cachestat is
//! unavailable, non-blocking reads can still prove warm. In-memory file systems cannot be cold and
//! are refused.
//!
//! For a walk, which needs only names and inodes, see [`names`].
//!
//! Cost: one open and one call per file, on a few threads; a million files take seconds.

mod error;
mod residency;

pub use self::error::ConditionError;
pub use self::residency::{LARGE_BYTES, SAMPLE_MAX};

use self::residency::{readable_share, resident_share, sample};
use crate::files::FileList;
use crate::media::OwnImage;
use crate::names;
use crate::subject::Touches;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::condition::Metadata;
use ioloom_model::{ColdBy, Condition, Doubt, Measured, Method, Proof};
use ioloom_sys::cache;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum share of sampled pages that may be resident before a cold run.
pub const COLD_RESIDENT_MAX: f64 = 0.01;
/// Minimum share of sampled pages that must be resident before a warm run.
pub const WARM_RESIDENT_MIN: f64 = 0.99;
/// Minimum share of the bytes that a cold run must read from the device.
pub const COLD_DEVICE_MIN: f64 = 0.95;
/// Maximum share of the bytes that a warm run may read from the device.
pub const WARM_DEVICE_MAX: f64 = 0.05;

/// Drops data, names and inodes of the whole machine from the page cache.
pub type DropAll = fn() -> io::Result<()>;

/// How to establish conditions.
#[derive(Debug, Clone, Copy)]
pub struct Maker<'a> {
    /// How to drop the machine's page cache, if permitted by the user.
    pub drop_caches: Option<DropAll>,
    /// Number of threads for a pass over the files.
    pub threads: usize,
    /// The image that contains the files, if any. Remounting it makes them cold.
    pub image: Option<&'a OwnImage>,
    /// What the run needs of the set. [`names`] handles names and inodes.
    pub touches: Touches,
    /// The only permitted way to make files cold, if the arm specifies one.
    pub cold_by: Option<ColdBy>,
    /// Whether the run lists the files before its measured time, as with a directory of the user. It
    /// then loads the names, so that they are not known to be cold.
    pub lists: bool,
}

/// An established condition with the evidence collected before the run.
#[derive(Debug, Clone)]
pub struct Made {
    condition: Condition,
    touches: Touches,
    names: u64,
    made_by: &'static str,
    metadata: Metadata,
    sampled: u64,
    resident: Option<f64>,
    /// Contents of the files.
    data_bytes: u64,
    /// What a device must deliver for them.
    stored_bytes: u64,
    diskstats: Option<u64>,
}

impl Maker<'_> {
    /// Establishes `condition` for the first `files_max` files of the list and collects evidence.
    ///
    /// # Errors
    /// See [`ConditionError`].
    pub fn make(
        &self,
        condition: Condition,
        list: &FileList,
        files_max: Option<u64>,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Made, ConditionError> {
        let (mut made_by, mut metadata) = ("none", Metadata::Unknown);
        let data = self.touches == Touches::Data;
        let sample = if data { sample(list, files_max, seed) } else { Vec::new() };
        let mut resident = None;
        let mut diskstats = None;
        match condition {
            Condition::Cold => {
                self.refuse_memory(list)?;
                (made_by, metadata) = self.cold_method()?;
                if made_by == ColdBy::Reboot.name() {
                    // Querying the page cache now would load names and inodes that must stay cold.
                } else if !data {
                    self.cool(list, files_max, stop)?;
                } else {
                    // The first eviction misses pages that another CPU is adding.
                    for _ in 0..3 {
                        self.cool(list, files_max, stop)?;
                        resident = resident_share(list, &sample, stop)?;
                        if metadata == Metadata::Cold
                            || resident.is_none_or(|r| r <= COLD_RESIDENT_MAX)
                        {
                            break;
                        }
                    }
                    // Sampling opened files, which loaded their names and inodes again. Drop them
                    // once more; no file is opened after that.
                    if metadata == Metadata::Cold {
                        diskstats = device_bytes(list);
                        self.cool(list, files_max, stop)?;
                    }
                }
            }
            Condition::Warm if !data => {
                (made_by, metadata) = ("walk", Metadata::Warm);
                names::warm(list.root())?;
            }
            Condition::Warm => {
                metadata = Metadata::Warm;
                // The set may still be in memory after the previous run.
                resident = resident_share(list, &sample, stop)?;
                if resident.is_none_or(|r| r < 1.0) {
                    self.heat(list, files_max, stop)?;
                    made_by = "read";
                    resident = match resident_share(list, &sample, stop)? {
                        None => readable_share(list, &sample, stop)?,
                        seen => seen,
                    };
                }
            }
            Condition::AsIs if data => resident = resident_share(list, &sample, stop)?,
            Condition::AsIs => {}
        }
        if self.lists && metadata == Metadata::Cold {
            metadata = Metadata::Unknown;
        }
        Ok(Made {
            condition,
            touches: self.touches,
            names: list.count(files_max) as u64,
            made_by,
            metadata,
            sampled: sample.len() as u64,
            resident,
            data_bytes: list.bytes(files_max),
            stored_bytes: list.stored_bytes(files_max),
            diskstats: diskstats.or_else(|| device_bytes(list)),
        })
    }

    /// Returns how to make the files cold, and the resulting state of names and inodes.
    fn cold_method(&self) -> Result<(&'static str, Metadata), ConditionError> {
        let refuse = |text: &str| Err(ConditionError::Refused(text.to_owned()));
        match (self.cold_by, self.image, self.drop_caches) {
            (Some(ColdBy::Reboot), ..) => Ok((ColdBy::Reboot.name(), Metadata::Cold)),
            (Some(ColdBy::Remount) | None, Some(_), _) => Ok(("remount", Metadata::Cold)),
            (Some(ColdBy::Remount), None, _) => refuse(names::NEEDS_IMAGE),
            (Some(ColdBy::DropCaches) | None, _, Some(_)) => Ok(("drop-caches", Metadata::Cold)),
            (Some(ColdBy::DropCaches), _, None) => refuse(names::NEEDS_DROP),
            (None, None, None) if self.touches == Touches::Data => Ok(("fadvise", Metadata::Warm)),
            (None, None, None) => refuse(names::NEEDS_EITHER),
        }
    }

    fn refuse_memory(&self, list: &FileList) -> Result<(), ConditionError> {
        match cache::is_memory_backed(list.root()) {
            Ok(true) => Err(ConditionError::Refused(format!(
                "{} is on an in-memory file system, where nothing can be cold; use --on with a \
                directory on a disk",
                quoted(list.root())
            ))),
            // If the query fails, the proof still detects the state.
            Ok(false) | Err(_) => Ok(()),
        }
    }

    fn cool(
        &self,
        list: &FileList,
        files_max: Option<u64>,
        stop: &AtomicBool,
    ) -> Result<(), ConditionError> {
        let by = |method: ColdBy| self.cold_by.is_none_or(|asked| asked == method);
        if let Some(image) = self.image.filter(|_| by(ColdBy::Remount)) {
            return Ok(image.remount()?);
        }
        if let Some(drop_all) = self.drop_caches {
            return drop_all().map_err(ConditionError::DropCaches);
        }
        let path = list.root();
        let root = File::open(path).map_err(PathError::on(Operation::Open, path))?;
        cache::flush_file_system(&root).map_err(PathError::on(Operation::SyncFileSystem, path))?;
        let all: Vec<usize> = (0..list.count(files_max)).collect();
        list.each(&all, self.threads, stop, Operation::Evict, |file, size| {
            if size == 0 { Ok(()) } else { cache::evict_file(file) }
        })?;
        Ok(())
    }

    fn heat(
        &self,
        list: &FileList,
        files_max: Option<u64>,
        stop: &AtomicBool,
    ) -> Result<(), ConditionError> {
        let all: Vec<usize> = (0..list.count(files_max)).collect();
        list.each(&all, self.threads, stop, Operation::Read, |mut file, _| {
            let mut buffer = [0u8; 64 << 10];
            loop {
                match file.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(_) if stop.load(Ordering::Relaxed) => return Ok(()),
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        })?;
        Ok(())
    }
}

fn device_bytes(list: &FileList) -> Option<u64> {
    cache::device_read_bytes(&File::open(list.root()).ok()?)
}

impl Made {
    /// Combines the evidence from before and after the run into a proof, with a doubt if the
    /// condition is not proved. `device` is the number of bytes that the child read from devices.
    /// `measured` is `None` if the run did not finish; then only the first part counts.
    pub fn conclude(
        &self,
        method: Option<Method>,
        device: Option<u64>,
        measured: Option<&Measured>,
        list: &FileList,
    ) -> (Proof, Option<Doubt>) {
        // If files vanished during the run, compare with what it actually read. Without holes, a run that
        // reads all can bring more than it returns, as whole pages of small files.
        let wanted = measured.map_or(0, |m| match m.bytes < self.data_bytes {
            true => self.stored_bytes.min(m.bytes),
            false => self.stored_bytes,
        });
        let share = device
            .filter(|_| wanted > 1 && measured.is_some())
            .map(|bytes| bytes as f64 / wanted as f64);
        let speaks = method.is_none_or(|m| !m.is_direct() && m != Method::Null);
        let (proved, reason) = if self.touches == Touches::Names {
            let device = device.filter(|_| measured.is_some());
            names::judge(self.condition, device, measured.map_or(self.names, |m| m.files))
        } else {
            judge(self.condition, self.resident, share.filter(|_| speaks))
        };
        let doubt = match (self.condition, proved) {
            (Condition::AsIs, _) | (_, Some(true)) => None,
            (Condition::Cold, Some(false)) => Some(Doubt::NotCold),
            (Condition::Warm, Some(false)) => Some(Doubt::NotWarm),
            (_, None) => Some(Doubt::ConditionUnknown),
        };
        let diskstats = self.diskstats.zip(device_bytes(list)).map(|(b, a)| a.saturating_sub(b));
        let proof = Proof {
            asked: self.condition,
            proved,
            made_by: self.made_by.to_owned(),
            metadata: self.metadata,
            sampled_files: self.sampled,
            resident_before: self.resident,
            device_bytes: device,
            device_share: share,
            diskstats_bytes: diskstats,
            second_read: None,
            reason,
        };
        (proof, doubt)
    }
}

/// Judges the two parts of the evidence, either of which may be missing.
fn judge(asked: Condition, before: Option<f64>, after: Option<f64>) -> (Option<bool>, String) {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let seen = |b: f64| format!("{} of the sampled pages were resident before the run", percent(b));
    let came = |a: f64| format!("{} of the bytes came from the device", percent(a));
    let (before_ok, after_ok) = match asked {
        Condition::AsIs => {
            let reason = match before {
                Some(b) => format!("unchanged: {}", seen(b)),
                None => "unchanged; the page cache cannot be queried here".to_owned(),
            };
            return (before.map(|_| true), reason);
        }
        Condition::Cold => {
            (before.map(|b| b <= COLD_RESIDENT_MAX), after.map(|a| a >= COLD_DEVICE_MIN))
        }
        Condition::Warm => {
            (before.map(|b| b >= WARM_RESIDENT_MIN), after.map(|a| a <= WARM_DEVICE_MAX))
        }
    };
    let parts: Vec<String> = before.map(seen).into_iter().chain(after.map(came)).collect();
    let evidence = parts.join(", ");
    match (before_ok, after_ok) {
        (None, Some(true)) if asked == Condition::Cold => (
            None,
            format!(
                "{evidence}, but the page cache cannot be queried here, so part may have been in it"
            ),
        ),
        (None, None) => {
            (None, "neither the page cache nor device reads can be observed here".to_owned())
        }
        (a, b) if a == Some(false) || b == Some(false) => {
            (Some(false), format!("not {asked}: {evidence}"))
        }
        _ => (Some(true), format!("{asked}: {evidence}")),
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests {
    use super::*;

    pub(super) const MAKER: Maker<'_> = Maker {
        drop_caches: None,
        threads: 4,
        image: None,
        touches: Touches::Data,
        cold_by: None,
        lists: false,
    };

    pub(super) fn set(files: usize, bytes: usize) -> (tempfile::TempDir, FileList) {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for i in 0..files {
            std::fs::write(dir.path().join(format!("{i:05}")), vec![i as u8; bytes]).unwrap();
        }
        let list = FileList::below(dir.path()).unwrap();
        (dir, list)
    }

    fn measured(bytes: u64) -> Measured {
        Measured { bytes, ..Measured::default() }
    }

    #[test]
    fn cold_and_warm_are_established_and_proved() {
        let (_dir, list) = set(300, 10_000);
        let stop = AtomicBool::new(false);
        if cache::is_memory_backed(list.root()).unwrap() {
            println!("skipped: the source tree is on an in-memory file system");
            return;
        }
        let cold = MAKER.make(Condition::Cold, &list, None, 1, &stop).unwrap();
        let Some(resident) = cold.resident else {
            println!("skipped: this kernel has no cachestat");
            return;
        };
        assert!(resident <= COLD_RESIDENT_MAX, "{resident}");
        assert_eq!(cold.sampled, sample(&list, None, 1).len() as u64);
        let full = measured(3_000_000);
        let (proof, doubt) = cold.conclude(Some(Method::Read), Some(3_600_000), Some(&full), &list);
        assert_eq!((proof.proved, doubt), (Some(true), None), "{proof:?}");
        assert_eq!((proof.made_by.as_str(), proof.metadata), ("fadvise", Metadata::Warm));
        let make_warm = || MAKER.make(Condition::Warm, &list, None, 1, &stop).unwrap();
        // The kernel can evict a page between these steps.
        let warm = (0..20).find_map(|_| {
            let (warm, again) = (make_warm(), make_warm());
            (warm.resident == Some(1.0) && again.made_by == "none").then_some(warm)
        });
        let warm = warm.expect("a warm set is in memory and is not read again");
        let (proof, doubt) = warm.conclude(Some(Method::Read), Some(0), Some(&full), &list);
        assert_eq!((proof.proved, doubt), (Some(true), None), "{proof:?}");
    }

    thread_local! {
        /// Number of calls to the substitute below.
        static DROPPED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
        /// The image to remount.
        static IMAGE: std::cell::RefCell<Option<OwnImage>> =
            const { std::cell::RefCell::new(None) };
    }

    /// Replaces dropping the machine's page cache, which a test must not do. Remounts the test
    /// image, which has the same effect on the files in it.
    fn drop_image() -> io::Result<()> {
        DROPPED.set(DROPPED.get() + 1);
        IMAGE.with_borrow(|image| {
            image.as_ref().map_or(Ok(()), |own| own.remount().map_err(io::Error::other))
        })
    }

    #[test]
    fn the_whole_cache_is_dropped_again_after_sampling() {
        let (_dir, list) = set(5, 100);
        if cache::is_memory_backed(list.root()).unwrap() {
            println!("skipped: the source tree is on an in-memory file system");
            return;
        }
        let maker = Maker { drop_caches: Some(drop_image), ..MAKER };
        let made = maker.make(Condition::Cold, &list, None, 1, &AtomicBool::new(false)).unwrap();
        assert_eq!((made.made_by, made.metadata), ("drop-caches", Metadata::Cold));
        assert_eq!(DROPPED.get(), 2, "once before sampling and once after it");
        let maker = Maker { lists: true, ..maker };
        let made = maker.make(Condition::Cold, &list, None, 1, &AtomicBool::new(false)).unwrap();
        assert_eq!((made.made_by, made.metadata), ("drop-caches", Metadata::Unknown));
    }

    #[test]
    fn no_inode_of_the_sample_is_in_memory_after_a_dropped_cache() {
        let work = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let own = match OwnImage::make(work.path(), "own", 8 << 20, 200) {
            Ok(own) => own,
            Err(reason) => {
                println!("skipped: {reason}");
                return;
            }
        };
        let dir = own.dir().join("set");
        std::fs::create_dir(&dir).unwrap();
        for i in 0..100 {
            std::fs::write(dir.join(format!("{i:03}")), [i as u8; 100]).unwrap();
        }
        let list = FileList::below(&dir).unwrap();
        IMAGE.set(Some(own));
        let maker = Maker { drop_caches: Some(drop_image), ..MAKER };
        maker.make(Condition::Cold, &list, None, 1, &AtomicBool::new(false)).unwrap();
        let root = File::open(list.root()).unwrap();
        let Some(before) = cache::device_read_bytes(&root) else {
            println!("skipped: reads from the image's device are not counted");
            return;
        };
        for i in 0..list.len() {
            std::fs::metadata(list.path(i)).unwrap();
        }
        let read = cache::device_read_bytes(&root).unwrap() - before;
        assert!(read > 0, "names and inodes were read from memory");
        drop(root);
        drop(IMAGE.take());
    }

    #[test]
    fn device_reads_can_refute_the_cache_state() {
        let (_dir, list) = set(3, 4096);
        let made = |condition, resident| Made {
            condition,
            touches: Touches::Data,
            names: 3,
            made_by: "fadvise",
            metadata: Metadata::Warm,
            sampled: 3,
            resident,
            data_bytes: 12_288,
            stored_bytes: 12_288,
            diskstats: None,
        };
        let full = measured(12_288);
        let end = |condition, resident, method, device| {
            made(condition, resident).conclude(Some(method), device, Some(&full), &list).1
        };
        use Condition::{AsIs, Cold, Warm};
        let (read, direct) = (Method::Read, Method::DirectRead);
        for (condition, resident, method, device, doubt) in [
            (Cold, Some(0.0), read, Some(12_288), None),
            (Cold, Some(0.0), read, Some(9_000), Some(Doubt::NotCold)),
            (Cold, Some(0.2), read, Some(12_288), Some(Doubt::NotCold)),
            (Cold, None, read, Some(12_288), Some(Doubt::ConditionUnknown)),
            (Cold, None, read, Some(9_000), Some(Doubt::NotCold)),
            (Cold, None, read, None, Some(Doubt::ConditionUnknown)),
            (Cold, Some(0.0), direct, Some(0), None),
            (Cold, Some(0.0), Method::Null, Some(0), None),
            (Warm, Some(1.0), read, Some(0), None),
            (Warm, Some(1.0), read, Some(4096), Some(Doubt::NotWarm)),
            (Warm, Some(1.0), direct, Some(12_288), None),
            (Warm, Some(0.5), read, Some(0), Some(Doubt::NotWarm)),
            (Warm, None, direct, None, Some(Doubt::ConditionUnknown)),
            (AsIs, None, read, None, None),
        ] {
            let found = end(condition, resident, method, device);
            assert_eq!(found, doubt, "{condition} {resident:?} {method} {device:?}");
        }
    }

    #[test]
    fn memory_file_systems_cannot_be_cold() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            println!("skipped: no /dev/shm");
            return;
        };
        if !cache::is_memory_backed(dir.path()).unwrap() {
            println!("skipped: /dev/shm is not tmpfs");
            return;
        }
        std::fs::write(dir.path().join("x"), "x").unwrap();
        let list = FileList::below(dir.path()).unwrap();
        let stop = AtomicBool::new(false);
        let error = MAKER.make(Condition::Cold, &list, None, 1, &stop).unwrap_err();
        assert!(matches!(error, ConditionError::Refused(_)), "{error}");
        assert!(MAKER.make(Condition::Warm, &list, None, 1, &stop).is_ok());
    }
}
