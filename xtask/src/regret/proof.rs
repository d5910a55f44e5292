//! The proof that a condition was established: what is in the page cache, and what the device reads.

use super::command::run;
use anyhow::Context;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Arguments of one command.
const ARGUMENTS: usize = 2_000;
/// Attempts to evict or load files, and the pause between two: pages that another processor is adding
/// to its lists survive the first.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);
/// How much the resident share may differ from the wanted one.
const TOLERANCE: f64 = 0.01;
/// Share of the bytes that the device must read if the files are cold.
const COLD_MIN: f64 = 0.95;
/// Overlays on overlays that are followed to their device.
const OVERLAYS_MAX: u32 = 4;

/// Pages of files.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pages {
    pub(super) all: u64,
    pub(super) resident: u64,
    pub(super) unknown: u64,
}

impl Pages {
    /// Returns the resident share, if it is known.
    pub(super) fn share(self) -> Option<f64> {
        (self.unknown == 0).then(|| self.resident as f64 / self.all.max(1) as f64)
    }

    fn of(document: &Value) -> Option<Self> {
        let number = |field: &str| document["total"][field].as_u64();
        Some(Self {
            all: number("pages")?,
            resident: number("resident_pages")?,
            unknown: number("unknown_pages")?,
        })
    }
}

/// Runs `ioloom cache` with `drop`, `warm` or `status`, and returns the pages afterwards.
pub(crate) fn cache(program: &Path, what: &str, paths: &[PathBuf]) -> anyhow::Result<Pages> {
    let mut pages = Pages::default();
    for part in paths.chunks(ARGUMENTS) {
        let mut attempt = 1;
        let output = loop {
            match run(Command::new(program).args(["cache", what, "--json"]).args(part)) {
                Ok(output) => break output,
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
            attempt += 1;
        };
        let document: Value =
            serde_json::from_slice(&output.stdout).context("the JSON of cache")?;
        let of = Pages::of(&document).context("the pages in the JSON of cache")?;
        pages.all += of.all;
        pages.resident += of.resident;
        pages.unknown += of.unknown;
    }
    Ok(pages)
}

/// Returns the reason if the resident share does not prove the condition.
pub(super) fn resident_failure(wanted: f64, resident: Option<f64>) -> Option<String> {
    let Some(resident) = resident else {
        return Some("the condition is not proved: the page cache cannot be queried".to_owned());
    };
    ((resident - wanted).abs() > TOLERANCE).then(|| {
        format!("{:.1} % of the pages are resident, not {:.1} %", 100.0 * resident, 100.0 * wanted)
    })
}

/// Returns the reason if the bytes that the device read do not prove that `bytes` were cold.
pub(super) fn cold_failure(read: Option<u64>, bytes: u64) -> Option<String> {
    match read {
        None => Some("cold is not proved: the device is unknown".to_owned()),
        Some(read) if (read as f64) < COLD_MIN * bytes as f64 => {
            Some("not cold: the device read too little".to_owned())
        }
        Some(_) => None,
    }
}

/// Returns the number of the block device below a directory, such as `254:0`.
pub(super) fn device_of(dir: &Path) -> Option<String> {
    let shown = |device| format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut dir = dir.canonicalize().ok()?;
    for _ in 0..OVERLAYS_MAX {
        let device = fs::metadata(&dir).ok()?.dev();
        if rustix::fs::major(device) != 0 {
            return Some(shown(device));
        }
        match below(&mounts, &dir)? {
            Below::Device(path) => {
                let found = fs::metadata(path).ok()?;
                return found.file_type().is_block_device().then(|| shown(found.rdev()));
            }
            Below::Directory(upper) => dir = Path::new(upper).canonicalize().ok()?,
        }
    }
    None
}

/// Where a file system with an anonymous device number stores its data.
#[derive(Debug, PartialEq)]
enum Below<'a> {
    Device(&'a str),
    /// The upper directory of an overlay.
    Directory(&'a str),
}

/// Returns what is below the mount that contains a directory, from mountinfo.
fn below<'a>(mounts: &'a str, dir: &Path) -> Option<Below<'a>> {
    let above = mounts.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let point = head.split(' ').nth(4).filter(|point| dir.starts_with(point))?;
        Some((point.len(), tail))
    });
    // The last of several mounts on the same directory hides the others.
    let (_, tail) = above.max_by_key(|(length, _)| *length)?;
    let mut words = tail.split(' ');
    let (kind, source, options) = (words.next()?, words.next()?, words.next()?);
    if kind == "overlay" {
        let upper = options.split(',').find_map(|option| option.strip_prefix("upperdir="));
        return upper.map(Below::Directory);
    }
    source.starts_with("/dev/").then_some(Below::Device(source))
}

/// Returns the bytes that a device has read.
pub(super) fn bytes_read(device: &str) -> Option<u64> {
    let (major, minor) = device.split_once(':')?;
    let text = fs::read_to_string("/proc/diskstats").ok()?;
    let line = text.lines().find(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(major) && words.next() == Some(minor)
    })?;
    let sectors: u64 = line.split_whitespace().nth(5)?.parse().ok()?;
    Some(sectors * 512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_is_proved_by_the_resident_share() {
        for (wanted, resident, proved) in [
            (0.0, Some(0.0), true),
            (0.0, Some(0.02), false),
            (1.0, Some(1.0), true),
            (1.0, Some(0.9), false),
            (0.5, Some(0.501), true),
            (0.5, Some(0.0), false),
            (0.1, Some(1.0), false),
            (0.0, None, false),
        ] {
            let failure = resident_failure(wanted, resident);
            assert_eq!(failure.is_none(), proved, "{wanted} {resident:?}");
        }
        let failure = resident_failure(1.0, Some(0.25)).unwrap();
        assert_eq!(failure, "25.0 % of the pages are resident, not 100.0 %");
    }

    #[test]
    fn pages_are_read_from_the_document() {
        let total = json!({"pages": 8, "resident_pages": 2, "unknown_pages": 0});
        let pages = Pages::of(&json!({"total": total})).unwrap();
        assert_eq!(pages.share(), Some(0.25));
        assert_eq!(Pages { unknown: 1, ..pages }.share(), None);
        assert_eq!(Pages::of(&json!({})), None);
    }

    #[test]
    fn cold_needs_a_device_that_read_everything() {
        assert_eq!(cold_failure(Some(96), 100), None);
        assert!(cold_failure(Some(94), 100).unwrap().starts_with("not cold"));
        assert!(cold_failure(None, 100).unwrap().contains("device is unknown"));
    }

    #[test]
    fn the_device_of_a_mount_is_found() {
        let mounts = "27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
                      30 27 0:25 / /m/mount rw - btrfs /dev/loop0 rw,ssd\n\
                      31 27 0:26 / /m/over rw - overlay overlay rw,lowerdir=/m/l,upperdir=/m/u\n\
                      32 27 0:27 / /m/tmp rw - tmpfs tmpfs rw\n\
                      33 27 0:28 / /m/fuse rw - fuse delayfs rw\n";
        let below = |dir: &str| below(mounts, Path::new(dir));
        assert_eq!(below("/m/mount/set"), Some(Below::Device("/dev/loop0")));
        assert_eq!(below("/m/over/set"), Some(Below::Directory("/m/u")));
        assert_eq!(below("/m/mounted"), Some(Below::Device("/dev/vda")));
        assert_eq!((below("/m/tmp"), below("/m/fuse")), (None, None));
    }
}
