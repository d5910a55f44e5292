//! The media of a study: the work directory, memory, an image of ours, and a slow device.
//!
//! `--on` names directories. Without it, `--media` and `--full` take the work directory, memory
//! and, as root, an image behind a device that the kernel slows down. `--image` puts the work
//! directory itself into an image, because mounting it anew is the one way to make names and
//! inodes cold without dropping the cache of the whole machine. What cannot be had is said in one
//! line and left out; only an image that was asked for by name is refused.

use crate::exit::{Exit, Failure};
use crate::out::wrap;
use crate::stderr;
use clap::Args;
use ioloom_lab::{OwnImage, RunOptions, Touches, Workspace, media};
use ioloom_model::fileset::Medium;
use ioloom_model::units::format_size;
use ioloom_model::{Condition, StudySpec};
use ioloom_subjects::FileSets;
use ioloom_sys_lab::cgroup::ReadLimit;
use std::path::{Path, PathBuf};

/// What the slow device gives: a disk over a network, or an old one.
const SLOW: ReadLimit = ReadLimit { bytes_per_s: 200 << 20, reads_per_s: 5000 };
/// Where memory is a file system on every Linux.
const MEMORY: &str = "/dev/shm";
/// The word of that medium.
const TMPFS: &str = "tmpfs";

/// Which media a study runs on, beside `--on`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MediaArgs {
    /// Measure memory and, as root, a slowed disk as well: thread ladders alone (with --full always)
    #[arg(long, conflicts_with_all = ["on", "files"])]
    media: bool,

    /// Make the sets in an image of our own, so that names and inodes can be cold (root)
    #[arg(long, conflicts_with_all = ["on", "files"])]
    image: bool,
}

impl MediaArgs {
    /// Whether sets lie, or names are made cold, otherwise than in an image of our own.
    fn elsewhere(&self, options: &RunOptions<'_>) -> bool {
        let given = options.workspaces.first().is_some_and(|place| place.medium.name != "work");
        given || options.drop_caches || options.files.is_some() || options.overrides.after_reboot
    }

    /// Whether cold makes names and inodes cold as well.
    pub(crate) const fn image(&self) -> bool {
        self.image
    }
}

/// The media of one study; dropping it removes what was made for them.
#[derive(Debug, Default)]
pub(crate) struct Media {
    /// In the order of the tables.
    pub(crate) places: Vec<Workspace>,
    /// Those that are images of ours.
    pub(crate) images: Vec<OwnImage>,
    /// Whether media were added that only ladders run on.
    pub(crate) further: bool,
    memory: Option<PathBuf>,
}

impl Drop for Media {
    fn drop(&mut self) {
        // Sets in memory take memory, so they go with the study.
        if let Some(dir) = &self.memory {
            let _ = ioloom_lab::clean(dir, &FileSets);
            let _ = std::fs::remove_dir(dir);
        }
    }
}

impl Media {
    /// Makes the media that the arguments ask for, and with `full` all of them. `options` is the
    /// study as it would run in `work_dir` alone. Where its runs touch names alone and nothing that
    /// was asked for makes these cold, an image of our own takes its sets if it can be had.
    pub(crate) fn make(
        args: &MediaArgs,
        full: bool,
        touches: Touches,
        study: &StudySpec,
        options: &RunOptions<'_>,
        work_dir: &Path,
    ) -> Result<Self, Failure> {
        let mut made = Self::default();
        made.places.clone_from(&options.workspaces);
        let further = args.media || full;
        let wish =
            touches == Touches::Names && cold(study) && !args.image && !args.elsewhere(options);
        if !further && !args.image && !wish {
            return Ok(made);
        }
        remove_leftovers(work_dir);
        if args.image || wish {
            match sizes(work_dir, None, study, options).and_then(|s| s.image(work_dir, "image")) {
                Ok(own) => {
                    made.places = vec![Workspace::describe(own.word(), own.dir())];
                    made.images.push(own);
                }
                Err(reason) if wish => {
                    let text = format!(
                        "not measured: cold names and inodes: {reason}, or --drop-caches as root"
                    );
                    stderr::line(wrap(&text, 80, 2).trim_end());
                }
                Err(reason) => {
                    let text = format!("--image: {reason}, or leave out --image");
                    return Err(Failure::new(Exit::Refused, text));
                }
            }
        }
        if further {
            made.add_further(touches, study, options, work_dir);
        }
        Ok(made)
    }

    /// Adds memory and a slowed disk, where the study has ladders for them and their sets fit.
    fn add_further(
        &mut self,
        touches: Touches,
        study: &StudySpec,
        options: &RunOptions<'_>,
        work_dir: &Path,
    ) {
        self.further = true;
        // The first medium may be an image of ours by now, whose sets are not made yet.
        let options = &RunOptions { workspaces: self.places.clone(), ..options.clone() };
        let missing = |what: &str, reason: &str| {
            stderr::line(wrap(&format!("not measured: {what}: {reason}"), 80, 2).trim_end());
        };
        // Names in memory are never cold, and millions of inodes would fill it.
        if touches == Touches::Data {
            let available = options.machine.memory_available_bytes;
            match sizes(work_dir, Some(TMPFS), study, options) {
                Ok(sized) if sized.bytes == 0 => {}
                sized => match sized.and_then(|s| memory(s.bytes, available)) {
                    Ok(dir) => {
                        self.places.push(Workspace::describe(TMPFS, &dir));
                        self.memory = Some(dir);
                    }
                    Err(reason) => missing(TMPFS, &reason),
                },
            }
        }
        match sizes(work_dir, Some("slow"), study, options) {
            Ok(sized) if sized.bytes == 0 => {}
            sized => match sized.and_then(|s| s.image(work_dir, "slow")?.throttled(SLOW)) {
                Ok(own) => {
                    self.places.push(Workspace::describe(own.word(), own.dir()));
                    self.images.push(own);
                }
                Err(reason) => missing("slowed disk", &reason),
            },
        }
    }
}

/// Whether the study has runs that are to be cold.
fn cold(study: &StudySpec) -> bool {
    study.experiments.iter().any(|e| e.conditions.contains(&Condition::Cold))
}

/// Removes what killed studies left: images, groups of processes, sets in memory. Says how many
/// there were.
pub(crate) fn remove_leftovers(work_dir: &Path) -> usize {
    let mut found = media::remove_leftovers(work_dir).unwrap_or_else(|error| {
        stderr::message(&format!(
            "what a killed study left stays: {error}; try `ioloom clean` as root"
        ));
        0
    });
    let Ok(entries) = std::fs::read_dir(MEMORY) else { return found };
    for dir in entries.flatten().map(|entry| entry.path()) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let maker = name.strip_prefix("ioloom-").and_then(|text| text.parse::<u32>().ok());
        if maker.is_some_and(|process| !ioloom_sys_lab::cgroup::is_alive(process)) {
            let _ = ioloom_lab::clean(&dir, &FileSets);
            found += usize::from(std::fs::remove_dir(&dir).is_ok());
        }
    }
    found
}

/// A directory of ours on a file system in memory, for sets of so many bytes. They may take half of
/// what is available: the runs need memory as well, and a machine that swaps measures its swap.
fn memory(bytes: u64, available: Option<u64>) -> Result<PathBuf, String> {
    if let Some(available) = available.filter(|available| bytes > available / 2) {
        return Err(format!(
            "its sets take {} of memory, {} are available and half of that must stay; remedy: end \
             other programs, or name a tmpfs with --on",
            format_size(bytes),
            format_size(available),
        ));
    }
    let remedy = "remedy: mount a tmpfs and name it with --on";
    let below = Path::new(MEMORY);
    match ioloom_sys::cache::is_memory_backed(below) {
        Ok(true) => {}
        Ok(false) => return Err(format!("{MEMORY} does not lie in memory; {remedy}")),
        Err(e) => return Err(format!("{MEMORY}: {e}; {remedy}")),
    }
    let dir = below.join(format!("ioloom-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}; {remedy}", dir.display()))?;
    Ok(dir)
}

/// What the sets of one medium take.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    bytes: u64,
    files: u64,
}

impl Sizes {
    /// An image with room for them.
    fn image(&self, work_dir: &Path, word: &str) -> Result<OwnImage, String> {
        OwnImage::make(work_dir, word, self.bytes, self.files)
    }
}

/// What the sets of the study take on a medium that is not there yet, and lies in the work
/// directory unless it is memory: the first medium, or the one that is added under a word. Refused
/// when the work directory lacks the space for them, beside the sets that it still lacks itself.
fn sizes(
    work_dir: &Path,
    added: Option<&str>,
    study: &StudySpec,
    options: &RunOptions<'_>,
) -> Result<Sizes, String> {
    // Nothing lies in an image that is not there yet, so its sets are counted in full.
    let place = |word: &str| {
        let empty = Workspace::work(&work_dir.join("images").join("none"));
        Workspace { medium: Medium { name: word.to_owned(), ..empty.medium }, dir: empty.dir }
    };
    let first = options.workspaces.first().map_or("work", |p| p.medium.name.as_str());
    let places: Vec<Workspace> = match added {
        None => vec![place(first)],
        Some(word) => options.workspaces.iter().take(1).cloned().chain([place(word)]).collect(),
    };
    let mut overrides = options.overrides.clone();
    overrides.ladders_on_further = true;
    let options = RunOptions { overrides, workspaces: places.clone(), ..options.clone() };
    let planned = ioloom_lab::run::plan(study, &options).map_err(|e| e.to_string())?;
    let (reserve, unknown) = (options.reserve_bytes, ioloom_lab::estimate::History::default());
    let mut needs =
        ioloom_lab::needs::needs(&planned.comparisons, &places, &FileSets, reserve, 1, &unknown)
            .map_err(|e| e.to_string())?;
    let beside = if places.len() > 1 { needs.workspaces.remove(0).bytes } else { 0 };
    let Some(own) = needs.workspaces.first_mut() else { return Ok(Sizes::default()) };
    let sizes = Sizes { bytes: own.bytes, files: own.files };
    if sizes.bytes > 0 && added != Some(TMPFS) {
        own.bytes = own.bytes.saturating_add(beside);
        if let Some(reason) = needs.refusal() {
            return Err(format!("{reason}; remedy: --dir on a larger disk"));
        }
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_in_memory_leave_half_of_it() {
        let reason = memory(6 << 30, Some(11 << 30)).unwrap_err();
        assert!(
            reason.contains("6.00 GiB") && reason.contains("11.0 GiB are available"),
            "{reason}"
        );
        assert!(reason.contains("remedy: "), "{reason}");
    }
}
