//! The media of a study: the work directory, memory, a private image, and a slowed device.
//!
//! `--on` specifies directories. Without it, `--media` and `--full` use the work directory, memory
//! and, as root, an image on a device throttled by the kernel. `--image` creates the file sets in an
//! image: remounting it is the only way to make names and inodes cold without dropping all caches of
//! the machine. Unavailable media are skipped with a message, but if an explicitly requested image is
//! unavailable, the study is refused.

use crate::exit::{Exit, Failure};
use crate::out::{columns_of_stderr, wrap};
use crate::stderr;
use clap::Args;
use ioloom_failure::{Operation, PathError};
use ioloom_lab::{OwnImage, Room, RunOptions, Subject, Touches, Workspace, media};
use ioloom_model::fileset::Medium;
use ioloom_model::units::format_size;
use ioloom_model::{Condition, StudySpec};
use ioloom_subjects::FileSets;
use ioloom_sys::mount::Space;
use ioloom_sys_lab::cgroup::ReadLimit;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Limits of the slowed device, similar to those of a network disk.
const SLOW: ReadLimit = ReadLimit { bytes_per_s: 200 << 20, reads_per_s: 5000 };
/// An in-memory file system present on every Linux system.
const MEMORY: &str = "/dev/shm";
/// Name of the in-memory medium.
const TMPFS: &str = "tmpfs";

/// Flags for media in addition to `--on`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MediaArgs {
    /// Also measure memory and a slowed disk
    ///
    /// Only the thread ladders run on them. The slowed disk is an image that the kernel limits to
    /// 200 MiB/s and 5000 reads per second; it needs root. Implied by --full unless --on, --files or
    /// --after-reboot is given.
    #[arg(long, conflicts_with_all = ["on", "files"])]
    media: bool,

    /// Create file sets in an image, for cold names
    ///
    /// The image is a file in the work directory, mounted through a loop device. Remounting it before
    /// each cold run makes names and inodes cold as well, without affecting other programs. Needs
    /// root.
    #[arg(long, conflicts_with_all = ["on", "files"])]
    image: bool,
}

impl MediaArgs {
    /// Returns the flags of a command that has its own.
    pub(crate) const fn new(media: bool, image: bool) -> Self {
        Self { media, image }
    }

    /// Returns whether any flag places sets elsewhere or makes an image unnecessary.
    fn elsewhere(&self, options: &RunOptions<'_>) -> bool {
        let given = options.workspaces.first().is_some_and(|place| place.medium.name != "work");
        given || options.drop_caches || options.files.is_some() || options.overrides.after_reboot
    }

    /// Returns whether --image was given.
    pub(crate) const fn image(&self) -> bool {
        self.image
    }
}

/// The media of one study. Images and directories created for them are removed on drop.
#[derive(Debug, Default)]
pub(crate) struct Media {
    /// The directories, in table order.
    pub(crate) places: Vec<Workspace>,
    /// The images among them.
    pub(crate) images: Vec<OwnImage>,
    /// Whether media for ladders only were added.
    pub(crate) further: bool,
    memory: Option<PathBuf>,
}

impl Drop for Media {
    fn drop(&mut self) {
        // Otherwise the sets would continue to occupy memory.
        if let Some(dir) = &self.memory {
            let _ = ioloom_lab::clean(dir, &FileSets);
            let _ = std::fs::remove_dir(dir);
        }
    }
}

impl Media {
    /// Creates the selected media, or all of them with `full`. `options` describes the study as it
    /// would run in `work_dir` alone. If its runs touch only names and no flag makes those cold, the
    /// sets are created in an image if possible.
    pub(crate) fn make(
        args: &MediaArgs,
        full: bool,
        subject: &dyn Subject,
        study: &StudySpec,
        options: &RunOptions<'_>,
        work_dir: &Path,
    ) -> Result<Self, Failure> {
        let touches = subject.touches();
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
            match sizes(work_dir, None, (study, subject), options)
                .and_then(|s| s.image(work_dir, "image"))
            {
                Ok(own) => {
                    made.places = vec![Workspace::describe(own.word(), own.dir())];
                    made.images.push(own);
                }
                Err(reason) if wish => {
                    let text = format!(
                        "not measured: cold names and inodes: {reason}, or use --drop-caches as root"
                    );
                    stderr::line(wrap(&text, columns_of_stderr(), 2).trim_end());
                }
                Err(reason) => {
                    let text = format!("cannot use --image: {reason}, or omit --image");
                    return Err(Failure::new(Exit::Refused, text));
                }
            }
        }
        if further {
            made.add_further(subject, study, options, work_dir);
        }
        Ok(made)
    }

    /// Adds memory and a slowed disk if the study has ladders for them and the sets fit.
    fn add_further(
        &mut self,
        subject: &dyn Subject,
        study: &StudySpec,
        options: &RunOptions<'_>,
        work_dir: &Path,
    ) {
        self.further = true;
        let of = (study, subject);
        // The first medium may now be an image, whose sets do not exist yet.
        let options = &RunOptions { workspaces: self.places.clone(), ..options.clone() };
        let missing = |what: &str, reason: &str| {
            let text = format!("not measured: {what}: {reason}");
            stderr::line(wrap(&text, columns_of_stderr(), 2).trim_end());
        };
        // Names in memory are never cold, and millions of inodes would fill it.
        if subject.touches() == Touches::Data {
            let available = options.machine.memory_available_bytes;
            match sizes(work_dir, Some(TMPFS), of, options) {
                Ok(sized) if sized.bytes == 0 => {}
                sized => match sized.and_then(|s| memory(&s, available, options.reserve_bytes)) {
                    Ok(dir) => {
                        self.places.push(Workspace::describe(TMPFS, &dir));
                        self.memory = Some(dir);
                    }
                    Err(reason) => missing(TMPFS, &reason),
                },
            }
        }
        match sizes(work_dir, Some("slow"), of, options) {
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

/// Returns whether the study includes cold runs.
fn cold(study: &StudySpec) -> bool {
    study.experiments.iter().any(|e| e.conditions.contains(&Condition::Cold))
}

/// Removes leftovers of killed studies: images, control groups and sets in memory. Returns their
/// number.
pub(crate) fn remove_leftovers(work_dir: &Path) -> usize {
    let mut found = media::remove_leftovers(work_dir).unwrap_or_else(|error| {
        stderr::message(&format!(
            "cannot remove leftovers of a killed study: {error}; run `ioloom clean` as root"
        ));
        0
    });
    found += remove_leftovers_in_memory(Path::new(MEMORY));
    found
}

/// Removes the sets of killed studies in `below`. Returns the number of studies.
fn remove_leftovers_in_memory(below: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(below) else { return 0 };
    let mut found = 0;
    for dir in entries.flatten().map(|entry| entry.path()) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let owner = name.strip_prefix("ioloom-").and_then(|text| text.parse::<u32>().ok());
        if owner.is_none_or(ioloom_sys_lab::cgroup::is_alive) || !is_private(&dir) {
            continue;
        }
        match ioloom_lab::clean(&dir, &FileSets) {
            Ok(all) => all.iter().filter_map(|set| set.failed.as_ref()).for_each(|reason| {
                stderr::message(reason);
            }),
            Err(error) => stderr::message(&error.to_string()),
        }
        found += usize::from(std::fs::remove_dir(&dir).is_ok());
    }
    found
}

/// Returns whether `dir` is a directory of this user, and no link, in which no other user can create
/// anything. Every user can create links and directories in memory that lead to files of this user. No
/// other user can replace this directory after the check, because `/dev/shm` is sticky.
fn is_private(dir: &Path) -> bool {
    std::fs::symlink_metadata(dir).is_ok_and(|meta| {
        meta.is_dir() && meta.uid() == ioloom_sys::attr::own_ids().0 && meta.mode() & 0o022 == 0
    })
}

/// Creates an in-memory directory for sets of `sizes`. `reserve_bytes` must stay free.
fn memory(sizes: &Sizes, available: Option<u64>, reserve_bytes: u64) -> Result<PathBuf, String> {
    let advice = "mount a tmpfs and specify it with --on";
    let below = Path::new(MEMORY);
    let failed = |e| format!("{}; {advice}", PathError::new(Operation::Stat, below, e));
    if !ioloom_sys::cache::is_memory_backed(below).map_err(failed)? {
        return Err(format!("{MEMORY} is not an in-memory file system; {advice}"));
    }
    let space = ioloom_sys::mount::space(below).map_err(failed)?;
    fits_in_memory(sizes.all_bytes(), available, &space, reserve_bytes)?;
    let dir = below.join(format!("ioloom-{}", std::process::id()));
    create_private(&dir)
        .map_err(|e| format!("{}; {advice}", PathError::new(Operation::CreateDir, &dir, e)))?;
    Ok(dir)
}

/// Checks that sets of `bytes` fit in memory. They are limited to half of the available memory: runs
/// need memory too, and swapping would distort the measurements. In containers, the file system is
/// often small, and a study whose sets do not fit would be refused as a whole.
fn fits_in_memory(
    bytes: u64,
    available: Option<u64>,
    space: &Space,
    reserve_bytes: u64,
) -> Result<(), String> {
    if let Some(available) = available.filter(|available| bytes > available / 2) {
        return Err(format!(
            "its sets need {}, but only half of the {} of available memory can be used; stop other \
             programs, or specify a tmpfs with --on",
            format_size(bytes),
            format_size(available),
        ));
    }
    let reserve_bytes = reserve_bytes.min(space.total_bytes / 10);
    if bytes.saturating_add(reserve_bytes) > space.available_bytes {
        return Err(format!(
            "its sets need {}, but {} are free in {MEMORY} and {} must stay free; enlarge it, or \
             specify a larger tmpfs with --on",
            format_size(bytes),
            format_size(space.available_bytes),
            format_size(reserve_bytes),
        ));
    }
    Ok(())
}

/// Creates a directory that only this user can enter.
fn create_private(dir: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(dir)
}

/// Total size of the sets on one medium, and what the largest run adds.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    bytes: u64,
    files: u64,
    run: Room,
}

impl Sizes {
    /// Creates an image large enough for the sets and one run.
    fn image(&self, work_dir: &Path, word: &str) -> Result<OwnImage, String> {
        let files = self.files.saturating_add(self.run.files);
        OwnImage::make(work_dir, word, self.all_bytes(), files)
    }

    fn all_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.run.bytes)
    }
}

/// Returns the size of the study's sets on a medium that does not exist yet: the first medium, or
/// the one named `added`. Unless the medium is memory, it occupies space in the work directory. It is
/// refused if that space is too small for it and the sets still missing there.
fn sizes(
    work_dir: &Path,
    added: Option<&str>,
    (study, subject): (&StudySpec, &dyn Subject),
    options: &RunOptions<'_>,
) -> Result<Sizes, String> {
    // An image that does not exist yet is empty, so its sets are counted in full.
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
        ioloom_lab::needs::needs(&planned.comparisons, &places, subject, reserve, 1, &unknown)
            .map_err(|e| e.to_string())?;
    let missing_bytes = if places.len() > 1 { needs.workspaces.remove(0).all_bytes() } else { 0 };
    let Some(own) = needs.workspaces.first_mut() else { return Ok(Sizes::default()) };
    let sizes = Sizes { bytes: own.bytes, files: own.files, run: own.run };
    if sizes.bytes > 0 && added != Some(TMPFS) {
        own.bytes = own.bytes.saturating_add(missing_bytes);
        if let Some(reason) = needs.refusal() {
            return Err(format!("{reason}; use --dir on a larger disk"));
        }
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_lab::subject::Sets;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A process identifier that the kernel never assigns.
    const NO_PROCESS: u32 = u32::MAX - 1;

    fn set_in(dir: &Path) -> PathBuf {
        let text: ioloom_fileset::SetText = "count=2,size=1".parse().unwrap();
        let set = dir.join("sets/s");
        FileSets.prepare("s", &text.resolve().unwrap(), &set, 0, &|_, _| true).unwrap();
        set
    }

    #[test]
    fn only_private_directories_are_leftovers_in_memory() {
        let temp = tempfile::tempdir().unwrap();
        let (below, mine) = (temp.path().join("shm"), temp.path().join("mine"));
        std::fs::create_dir(&below).unwrap();
        create_private(&mine).unwrap();
        let leftover = below.join(format!("ioloom-{NO_PROCESS}"));
        // A link of another user to a directory of this user.
        let set = set_in(&mine);
        symlink(&mine, &leftover).unwrap();
        assert_eq!(remove_leftovers_in_memory(&below), 0);
        assert!(set.join("files").exists());
        // A directory in which another user can create a link.
        std::fs::remove_file(&leftover).unwrap();
        create_private(&leftover).unwrap();
        std::fs::set_permissions(&leftover, PermissionsExt::from_mode(0o777)).unwrap();
        symlink(mine.join("sets"), leftover.join("sets")).unwrap();
        assert_eq!(remove_leftovers_in_memory(&below), 0);
        assert!(set.join("files").exists());
        std::fs::remove_dir_all(&leftover).unwrap();
        create_private(&leftover).unwrap();
        assert_eq!(std::fs::metadata(&leftover).unwrap().mode() & 0o777, 0o700);
        set_in(&leftover);
        assert_eq!(remove_leftovers_in_memory(&below), 1);
        assert!(!leftover.exists());
    }

    #[test]
    fn sets_take_at_most_half_of_the_memory() {
        let (total_bytes, available_bytes) = (40 << 30, 20 << 30);
        let space = Space { total_bytes, available_bytes, ..Space::default() };
        let fits = |bytes, available| fits_in_memory(bytes, available, &space, 5 << 30);
        let reason = fits(6 << 30, Some(11 << 30)).unwrap_err();
        assert!(
            reason.contains("6.00 GiB") && reason.contains("11.0 GiB of available"),
            "{reason}"
        );
        assert!(reason.contains("--on"), "{reason}");
        assert_eq!(fits(6 << 30, Some(12 << 30)), Ok(()));
    }

    #[test]
    fn sets_in_memory_leave_its_reserve_free() {
        let of = |available_bytes| {
            // As in most containers.
            let space = Space { total_bytes: 64 << 20, available_bytes, ..Space::default() };
            fits_in_memory(50 << 20, Some(8 << 30), &space, 5 << 30)
        };
        assert_eq!(of(60 << 20), Ok(()), "the reserve is at most a tenth");
        for free in [56 << 20, 40 << 20, 0] {
            let reason = of(free).unwrap_err();
            assert!(reason.contains("50.0 MiB") && reason.contains(MEMORY), "{reason}");
        }
    }
}
