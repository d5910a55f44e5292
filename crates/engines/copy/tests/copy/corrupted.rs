//! A byte corrupted on the device is detected by reading the device, but not by reading the cache.

use crate::test_dir::TestDir;
use ioloom_copy::{CopyCounters, CopyOptions, Reason, Report, Target, Verify, Watcher, copy};
use std::fs::{self, File};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Changes one byte of the copy in the image after it is written and before it is read back.
struct Saboteur {
    image: PathBuf,
    marker: Vec<u8>,
}

impl Watcher for Saboteur {
    fn before_verify(&self, file: BorrowedFd<'_>) {
        rustix::fs::fsync(file).unwrap();
        let image = File::options().read(true).write(true).open(&self.image).unwrap();
        let bytes = fs::read(&self.image).unwrap();
        let at = bytes.windows(self.marker.len()).position(|part| part == self.marker).unwrap();
        image.write_all_at(b"X", at as u64).unwrap();
        image.sync_all().unwrap();
    }
}

fn attempt(disk: &TestDir, from: &Path, verify: Verify) -> (Report, PathBuf) {
    let to = disk.path().join(format!("{verify:?}"));
    let image = disk.image().unwrap();
    let marker = fs::read(from).unwrap()[1_000_000..1_000_064].to_vec();
    let options = CopyOptions { verify, ..CopyOptions::default() };
    let saboteur = Saboteur { image: image.to_owned(), marker };
    let target = Target::As(to.clone());
    let sources = [from.to_owned()];
    let report = copy(&sources, &target, &options, &saboteur, &CopyCounters::default()).unwrap();
    (report, to)
}

#[test]
fn corruption_on_the_device_is_found_only_by_reading_the_device() {
    let place = TestDir::disk();
    let from = place.path().join("from");
    let mut state = 1u64;
    let mut bytes = Vec::new();
    for _ in 0..400_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    fs::write(&from, &bytes).unwrap();
    let Some(disk) = TestDir::mounted("ext4", 64) else { return };
    let (report, to) = attempt(&disk, &from, Verify::Cache);
    assert_eq!((report.errors_count, report.verified_word()), (0, "verified-cache"));
    assert!(to.exists());
    fs::remove_file(&to).unwrap();
    // The freed blocks still contain their bytes, which must not be mistaken for the new ones.
    drop(disk);
    let Some(disk) = TestDir::mounted("ext4", 64) else { return };
    let (report, to) = attempt(&disk, &from, Verify::Device);
    assert_eq!((report.errors_count, report.verified_word()), (1, "not verified"));
    assert!(matches!(report.errors[0].reason, Reason::Differs(_)), "{}", report.errors[0]);
    assert!(!to.exists(), "a corrupted copy must not get its name");
    assert_eq!(fs::read(&from).unwrap(), bytes);
}
