//! The lower I/O priority of a polite run.
//!
//! The threads that read lower their own priority; reads that the kernel does ahead in their name
//! inherit it. Whether that changes anything depends on the I/O scheduler of the device, so a run
//! reports it.

use ioloom_model::{Plan, Tuning};
use ioloom_sys::mount;
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
        Some(match mount::medium(path) {
            Ok(medium) => effect_on(&medium.mount.file_system, medium.disk.zip(medium.scheduler)),
            Err(_) => "the device of the files is unknown".to_owned(),
        })
    }
}

/// Describes the effect on a file system on a disk with a scheduler.
fn effect_on(file_system: &str, disk: Option<(String, String)>) -> String {
    match disk {
        None => format!("the lower I/O priority has no effect on {file_system}"),
        Some((disk, scheduler)) if honours_levels(&scheduler) => {
            format!("reads from {disk} have the lowest best-effort I/O priority ({scheduler})")
        }
        Some((disk, scheduler)) => format!(
            "the lower I/O priority has no effect on {disk}, whose I/O scheduler is {scheduler}; \
             bfq would honour it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::Tuning;

    #[test]
    fn the_effect_depends_on_the_scheduler() {
        let disk = |scheduler: &str| Some(("sda".to_owned(), scheduler.to_owned()));
        assert!(effect_on("ext4", disk("bfq")).starts_with("reads from sda have the lowest"));
        for scheduler in ["mq-deadline", "none", "kyber"] {
            let text = effect_on("ext4", disk(scheduler));
            assert!(text.contains("no effect") && text.contains(scheduler), "{text}");
        }
        for kind in ["tmpfs", "fuse"] {
            assert!(effect_on(kind, None).ends_with(&format!("no effect on {kind}")));
        }
    }

    #[test]
    fn only_polite_runs_report() {
        let of = |tuning| Polite::new(&Plan::auto(tuning)).effect();
        assert_eq!((of(Tuning::Fixed), of(Tuning::Auto)), (None, None));
        assert_eq!(of(Tuning::Polite).as_deref(), Some("no file was read"));
    }
}
