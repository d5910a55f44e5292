//! The lower I/O priority of a polite run.
//!
//! The threads that read lower their own priority; reads that the kernel does ahead in their name
//! inherit it. Whether that changes anything depends on the I/O scheduler of the device, so a run
//! reports it.

use ioloom_model::{Plan, Tuning};
use ioloom_sys::disks::{Disk, disks_of};
use ioloom_sys::mount::{Mount, mount_of};
use ioloom_sys::priority::{honours_levels, lower_io_priority};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Whether a run is polite, and what became of it.
#[derive(Debug)]
pub(crate) struct Polite {
    wanted: bool,
    refused: OnceLock<String>,
    /// The first file, whose device stands for all.
    file: OnceLock<PathBuf>,
}

impl Polite {
    pub(crate) fn new(plan: &Plan) -> Self {
        let wanted = plan.tuning == Tuning::Polite;
        Self { wanted, refused: OnceLock::new(), file: OnceLock::new() }
    }

    /// Lowers the priority of the calling thread, which reads.
    pub(crate) fn begin_thread(&self) {
        if self.wanted
            && let Err(error) = lower_io_priority()
        {
            self.refused.get_or_init(|| ioloom_failure::reason(&error));
        }
    }

    /// Notes a file that was read.
    #[inline]
    pub(crate) fn reads(&self, path: &Path) {
        if self.wanted && self.file.get().is_none() {
            let _ = self.file.set(path.to_owned());
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
        let Some(path) = self.file.get() else {
            return Some("no file was read".to_owned());
        };
        Some(match mount_of(path) {
            Ok(mount) => effect_on(&mount, &disks_of(&mount)),
            Err(_) => "the device of the files is unknown".to_owned(),
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
    fn only_polite_runs_report() {
        let of = |tuning| Polite::new(&Plan::auto(tuning)).effect();
        assert_eq!((of(Tuning::Fixed), of(Tuning::Auto)), (None, None));
        assert_eq!(of(Tuning::Polite).as_deref(), Some("no file was read"));
    }
}
