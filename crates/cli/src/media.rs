//! The media of a study: the work directory, memory, an image of ours, and a slow device.
//!
//! `--on` names directories. Without it, `--media` and `--full` take the work directory, memory
//! and, as root, an image behind a device that the kernel slows down. `--image` puts the work
//! directory itself into an image, because mounting it anew is the one way to make names and
//! inodes cold without dropping the cache of the whole machine. What cannot be had is said in one
//! line and left out; only an image that was asked for by name is refused.

use crate::exit::{Exit, Failure};
use crate::out::wrap;
use crate::{tell, tell_plain};
use clap::Args;
use ioloom_lab::{LabError, OwnImage, Place, RunOptions, Touches, media};
use ioloom_model::Condition;
use ioloom_model::StudySpec;
use ioloom_subjects::FileSets;
use ioloom_sys::mount::ReadLimit;
use std::path::{Path, PathBuf};

/// What the slow device gives: a disk over a network, or an old one.
const SLOW: ReadLimit = ReadLimit { bytes_per_s: 200 << 20, reads_per_s: 5000 };
/// Where memory is a file system on every Linux.
const MEMORY: &str = "/dev/shm";

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
        let given = options.places.first().is_some_and(|place| place.medium.name != "work");
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
    pub(crate) places: Vec<Place>,
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
        made.places.clone_from(&options.places);
        let further = args.media || full;
        let wish =
            touches == Touches::Names && cold(study) && !args.image && !args.elsewhere(options);
        if !further && !args.image && !wish {
            return Ok(made);
        }
        undo_left(work_dir);
        if args.image || wish {
            match image(work_dir, "image", study, options) {
                Ok(own) => {
                    made.places = vec![Place::describe(own.word(), own.dir())];
                    made.images.push(own);
                }
                Err(reason) if wish => {
                    let text = format!(
                        "not measured: cold names and inodes: {reason}, or --drop-caches as root"
                    );
                    tell_plain(wrap(&text, 80, 2).trim_end());
                }
                Err(reason) => {
                    let text = format!("--image: {reason}, or leave out --image");
                    return Err(Failure::new(Exit::Refused, text));
                }
            }
        }
        if further {
            made.further = true;
            // Names in memory are never cold, and millions of inodes would fill it.
            match (touches == Touches::Data).then(memory) {
                None => {}
                Some(Ok(dir)) => {
                    made.places.push(Place::describe("tmpfs", &dir));
                    made.memory = Some(dir);
                }
                Some(Err(reason)) => tell_plain(&format!("not measured: tmpfs: {reason}")),
            }
            let slow = image(work_dir, "slow", study, options).and_then(|i| i.throttled(SLOW));
            match slow {
                Ok(own) => {
                    made.places.push(Place::describe(own.word(), own.dir()));
                    made.images.push(own);
                }
                Err(reason) => tell_plain(&format!("not measured: slowed disk: {reason}")),
            }
        }
        Ok(made)
    }
}

/// Whether the study has runs that are to be cold.
fn cold(study: &StudySpec) -> bool {
    study.experiments.iter().any(|e| e.conditions.contains(&Condition::Cold))
}

/// Removes what killed studies left: images, groups of processes, sets in memory. Says how many
/// there were.
pub(crate) fn undo_left(work_dir: &Path) -> usize {
    let mut found = media::undo_left(work_dir).unwrap_or_else(|error| {
        tell(&format!("what a killed study left stays: {error}; try `ioloom clean` as root"));
        0
    });
    let Ok(entries) = std::fs::read_dir(MEMORY) else { return found };
    for dir in entries.flatten().map(|entry| entry.path()) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let maker = name.strip_prefix("ioloom-").and_then(|text| text.parse::<u32>().ok());
        if maker.is_some_and(|process| !ioloom_sys::mount::lives(process)) {
            let _ = ioloom_lab::clean(&dir, &FileSets);
            found += usize::from(std::fs::remove_dir(&dir).is_ok());
        }
    }
    found
}

/// A directory of ours on a file system in memory.
fn memory() -> Result<PathBuf, String> {
    let remedy = "remedy: mount a tmpfs and name it with --on";
    let below = Path::new(MEMORY);
    match ioloom_sys::cache::lives_in_memory(below) {
        Ok(true) => {}
        Ok(false) => return Err(format!("{MEMORY} does not lie in memory; {remedy}")),
        Err(e) => return Err(format!("{MEMORY}: {e}; {remedy}")),
    }
    let dir = below.join(format!("ioloom-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}; {remedy}", dir.display()))?;
    Ok(dir)
}

/// An image with room for all sets of the study.
fn image(
    work_dir: &Path,
    word: &str,
    study: &StudySpec,
    options: &RunOptions<'_>,
) -> Result<OwnImage, String> {
    let text = |e: LabError| e.to_string();
    let planned = ioloom_lab::run::plan(study, options).map_err(text)?;
    // Nothing lies in an image that is not there yet, so the sets are counted in full.
    let empty = Place::work(&work_dir.join("images").join("none"));
    let name = options.places.first().map_or("work", |p| p.medium.name.as_str());
    let places = [Place {
        medium: ioloom_model::fileset::Medium { name: name.to_owned(), ..empty.medium },
        dir: empty.dir,
    }];
    let reserve = options.reserve_bytes;
    let unknown = ioloom_lab::estimate::History::default();
    let needs =
        ioloom_lab::work::needs(&planned.comparisons, &places, &FileSets, reserve, 1, &unknown)
            .map_err(|e| e.to_string())?;
    if let Some(reason) = needs.refusal() {
        return Err(format!("{reason}; remedy: --dir on a larger disk"));
    }
    let (bytes, files) = needs.places.first().map_or((0, 0), |p| (p.bytes, p.files));
    OwnImage::make(work_dir, word, bytes, files)
}
