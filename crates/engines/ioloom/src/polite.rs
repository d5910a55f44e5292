//! The lower I/O priority of a polite run.
//!
//! The threads that read lower their own priority; reads that the kernel does ahead in their name
//! inherit it. Whether that changes anything depends on the I/O scheduler of the device, so a run
//! reports it.

use ioloom_model::{Plan, Tuning};
use ioloom_sys::disks::{Disk, disks_of};
use ioloom_sys::mount::{Mount, mount_of, mounts};
use ioloom_sys::priority::{honours_levels, lower_io_priority};
use std::cmp::Reverse;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// Most mounts whose effect is reported.
const MOUNTS_MAX: usize = 8;

/// Whether a run is polite, and what became of it.
#[derive(Debug)]
pub(crate) struct Polite {
    wanted: bool,
    refused: OnceLock<String>,
    points: OnceLock<Points>,
    /// The first file of each mount.
    files: Mutex<Vec<PathBuf>>,
}

/// Mount points. The mount of a path follows from its text, because a query for each file would cost a
/// system call.
#[derive(Debug)]
struct Points {
    /// Each ends with a slash; the longest is first.
    all: Vec<Vec<u8>>,
    /// Those below the current directory, relative to it, with their index.
    below: Vec<(Vec<u8>, usize)>,
    /// Index of the mount of the current directory.
    here: usize,
    /// Whether a file of the mount was read.
    seen: Vec<AtomicBool>,
}

impl Points {
    fn find() -> Self {
        let here = std::env::current_dir().unwrap_or_default();
        Self::of(&mounts().unwrap_or_default(), &here)
    }

    fn of(mounts: &[Mount], here: &Path) -> Self {
        let with_slash = |path: &Path| {
            let mut point = path.as_os_str().as_bytes().to_vec();
            if point.last() != Some(&b'/') {
                point.push(b'/');
            }
            point
        };
        let mut all: Vec<Vec<u8>> = mounts.iter().map(|mount| with_slash(&mount.point)).collect();
        all.sort_by_key(|point| Reverse(point.len()));
        let here = with_slash(here);
        let below = all.iter().enumerate().filter_map(|(i, point)| {
            let rest = point.strip_prefix(here.as_slice())?;
            (!rest.is_empty()).then(|| (rest.to_vec(), i))
        });
        let below = below.collect();
        let here = all.iter().position(|point| here.starts_with(point)).unwrap_or(0);
        // Without mounts, all files count as those of one.
        let seen = (0..all.len().max(1)).map(|_| AtomicBool::new(false)).collect();
        Self { all, below, here, seen }
    }

    /// Returns the index of the mount of a path.
    fn index(&self, path: &Path) -> usize {
        let mut path = path.as_os_str().as_bytes();
        while let Some(rest) = path.strip_prefix(b"./") {
            path = rest;
        }
        if path.first() == Some(&b'/') {
            return self.all.iter().position(|point| path.starts_with(point)).unwrap_or(0);
        }
        let below = self.below.iter().find(|(point, _)| path.starts_with(point));
        below.map_or(self.here, |(_, index)| *index)
    }
}

impl Polite {
    pub(crate) fn new(plan: &Plan) -> Self {
        let wanted = plan.tuning == Tuning::Polite;
        Self {
            wanted,
            refused: OnceLock::new(),
            points: OnceLock::new(),
            files: Mutex::new(Vec::new()),
        }
    }

    /// Reports whether the threads of the run lower their priority.
    pub(crate) fn lowers_priority(&self) -> bool {
        self.wanted
    }

    /// Lowers the priority of the calling thread, which reads.
    pub(crate) fn begin_thread(&self) {
        if self.wanted
            && let Err(error) = lower_io_priority()
        {
            self.refused.get_or_init(|| ioloom_failure::reason(&error));
        }
    }

    /// Notes a file that is read.
    #[inline]
    pub(crate) fn reads(&self, path: &Path) {
        if self.wanted {
            self.note(path);
        }
    }

    /// Keeps the first file of each mount.
    fn note(&self, path: &Path) {
        let points = self.points.get_or_init(Points::find);
        let seen = &points.seen[points.index(path)];
        if seen.load(Ordering::Relaxed) || seen.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Ok(mut files) = self.files.lock()
            && files.len() < MOUNTS_MAX
        {
            files.push(path.to_owned());
        }
    }

    /// Describes the effect of the priority, if the run is polite.
    pub(crate) fn effect(&self) -> Option<String> {
        if !self.wanted {
            return None;
        }
        if let Some(reason) = self.refused.get() {
            return Some(format!("the I/O priority could not be lowered: {reason}"));
        }
        let files = self.files.lock().map(|files| files.clone()).unwrap_or_default();
        let mut effects: Vec<String> = Vec::new();
        for path in &files {
            let effect = match mount_of(path) {
                Ok(mount) => effect_on(&mount, &disks_of(&mount)),
                Err(_) => "the device of the files is unknown".to_owned(),
            };
            if !effects.contains(&effect) {
                effects.push(effect);
            }
        }
        Some(match effects.is_empty() {
            true => "no file was read".to_owned(),
            false => effects.join("; "),
        })
    }
}

/// Describes the effect on a mount, given its disk and those of which that consists.
fn effect_on(mount: &Mount, disks: &[Disk]) -> String {
    let kind = &mount.file_system;
    let Some(top) = disks.first() else {
        return if mount.may_hide_disks() {
            unknown(kind)
        } else {
            format!("the lower I/O priority has no effect on {kind}")
        };
    };
    // Requests to a stacked device wait in the queues of the disks below it.
    let real: Vec<&Disk> = disks.iter().filter(|disk| !disk.is_stacked).collect();
    let of = |disk: &Disk| disk.scheduler.clone().unwrap_or_else(|| "none".to_owned());
    let honouring: Vec<&Disk> =
        real.iter().copied().filter(|disk| honours_levels(&of(disk))).collect();
    if let Some(first) = honouring.first() {
        let names: Vec<&str> = honouring.iter().map(|disk| disk.name.as_str()).collect();
        return format!(
            "reads from {} have the lowest best-effort I/O priority ({})",
            names.join(", "),
            of(first)
        );
    }
    let mut schedulers: Vec<String> = real.iter().map(|disk| of(disk)).collect();
    schedulers.sort();
    schedulers.dedup();
    match (top.is_stacked, schedulers.join(", ")) {
        (true, used) if used.is_empty() => unknown(&top.name),
        (true, used) => format!(
            "the lower I/O priority has no effect on {}, whose disks have the I/O scheduler {used}",
            top.name
        ),
        (false, used) => format!(
            "the lower I/O priority has no effect on {}, whose I/O scheduler is {used}; bfq would \
             honour it",
            top.name
        ),
    }
}

fn unknown(place: &str) -> String {
    format!("whether the lower I/O priority has an effect on {place} is unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::Tuning;

    fn mount(file_system: &str) -> Mount {
        Mount {
            id: 1,
            parent: 0,
            device: (0, 1),
            point: "/".into(),
            options: String::new(),
            file_system: file_system.to_owned(),
            source: "none".into(),
        }
    }

    fn disk(name: &str, scheduler: Option<&str>, is_stacked: bool) -> Disk {
        let scheduler = scheduler.map(str::to_owned);
        Disk { name: name.to_owned(), number: (8, 0), scheduler, is_stacked }
    }

    #[test]
    fn the_effect_depends_on_the_scheduler() {
        let on = |scheduler| effect_on(&mount("ext4"), &[disk("sda", Some(scheduler), false)]);
        assert!(on("bfq").starts_with("reads from sda have the lowest"));
        for scheduler in ["mq-deadline", "none", "kyber"] {
            let text = on(scheduler);
            assert!(text.contains("no effect") && text.contains(scheduler), "{text}");
        }
        for kind in ["tmpfs", "fuse", "nfs4", "proc"] {
            assert!(effect_on(&mount(kind), &[]).ends_with(&format!("no effect on {kind}")));
        }
        for kind in ["overlay", "btrfs"] {
            assert!(effect_on(&mount(kind), &[]).ends_with(&format!("on {kind} is unknown")));
        }
    }

    #[test]
    fn below_a_stacked_device_the_schedulers_of_its_disks_count() {
        let on = |below: &[Disk]| {
            let disks = [&[disk("dm-0", None, true)][..], below].concat();
            effect_on(&mount("ext4"), &disks)
        };
        let disks = [disk("sda", Some("none"), false), disk("sdb", Some("bfq"), false)];
        assert!(on(&disks).starts_with("reads from sdb have the lowest"), "{}", on(&disks));
        let text = on(&disks[..1]);
        assert!(text.ends_with("dm-0, whose disks have the I/O scheduler none"), "{text}");
        assert!(on(&[]).ends_with("on dm-0 is unknown"), "{}", on(&[]));
    }

    #[test]
    fn a_path_belongs_to_the_longest_mount_point_above_it() {
        let points =
            ["/", "/a", "/a/b", "/home/c/d"].map(|p| Mount { point: p.into(), ..mount("x") });
        let points = Points::of(&points, Path::new("/home/c"));
        let of = |path: &str| String::from_utf8(points.all[points.index(Path::new(path))].clone());
        for (path, point) in [
            ("/x", "/"),
            ("/ab/x", "/"),
            ("/a/x", "/a/"),
            ("/a/b/x", "/a/b/"),
            ("x", "/"),
            ("d/x", "/home/c/d/"),
            ("./d/x", "/home/c/d/"),
            ("dd/x", "/"),
        ] {
            assert_eq!(of(path).unwrap(), point, "{path}");
        }
        let none = Points::of(&[], Path::new(""));
        assert_eq!((none.index(Path::new("/x")), none.index(Path::new("x"))), (0, 0));
    }

    #[test]
    fn the_first_file_of_each_of_many_mounts_is_kept() {
        let points = (0..70).map(|i| format!("/long/{i}")).chain(["/a".to_owned(), "/".to_owned()]);
        let all: Vec<Mount> = points.map(|p| Mount { point: p.into(), ..mount("x") }).collect();
        let polite = Polite::new(&Plan::auto(Tuning::Polite));
        polite.points.set(Points::of(&all, Path::new("/"))).unwrap();
        for path in ["/a/x", "/x", "/a/y"] {
            polite.reads(Path::new(path));
        }
        assert_eq!(*polite.files.lock().unwrap(), ["/a/x", "/x"].map(PathBuf::from));
    }

    #[test]
    fn the_effect_on_each_file_system_is_reported() {
        let Ok(shared) = tempfile::NamedTempFile::new_in("/dev/shm") else { return };
        let disk = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let polite = Polite::new(&Plan::auto(Tuning::Polite));
        for path in [shared.path(), disk.as_path(), shared.path()] {
            polite.reads(path);
        }
        let text = polite.effect().unwrap();
        for path in [shared.path(), disk.as_path()] {
            let mount = mount_of(path).unwrap();
            let effect = effect_on(&mount, &disks_of(&mount));
            assert_eq!(text.matches(&effect).count(), 1, "{text}");
        }
    }

    #[test]
    fn only_polite_runs_report() {
        let of = |tuning| Polite::new(&Plan::auto(tuning)).effect();
        assert_eq!((of(Tuning::Fixed), of(Tuning::Auto)), (None, None));
        assert_eq!(of(Tuning::Polite).as_deref(), Some("no file was read"));
    }
}
