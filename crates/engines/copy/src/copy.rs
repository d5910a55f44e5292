//! A whole copy: where each source goes, the walk over all of them, and what is told at the end.

use crate::dirs::{Held, Parent, RootTo, Roots};
use crate::error::{CopyError, Errors};
use crate::facts;
use crate::meta::Home;
use crate::options::{CopyCounters, CopyOptions, Durable, Watcher, When};
use crate::plan::Mode;
use crate::report::{Counts, Evidence, Report};
use crate::resume::Resume;
use crate::run::Run;
use crate::tree::{self, Worker};
use ioloom_sys::attr;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_walk::{Fields, Method, Threads, Waits, Walk};
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Sources whose place is looked at to know what threads wait for.
const SOURCES_LOOKED_AT: usize = 16;

/// Where sources go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Into this directory, which must be there, under their own names.
    Into(PathBuf),
    /// One source, to exactly this path.
    As(PathBuf),
    /// Into it if it is a directory, else one source to exactly this path.
    Auto(PathBuf),
}

/// Copies `sources` to `target`. What cannot be copied is in the report; the rest is copied.
///
/// Sources that mean what is in a directory (`dir/.`) may have names in common with others: each of
/// them is copied when those before it are, so that of two files the later one stays. Names of one
/// file in two such sources become two files.
///
/// # Errors
/// What makes the whole copy impossible: a target that is no directory where one is needed, more
/// sources than the target takes, a walk that cannot be.
pub fn copy(
    sources: &[PathBuf],
    target: &Target,
    options: &CopyOptions,
    watcher: &dyn Watcher,
    progress: &CopyCounters,
) -> Result<Report, CopyError> {
    let mut parts = one_after_another(sources, target, options).into_iter();
    let first = parts.next().unwrap_or(sources);
    let mut taken = Taken::new();
    let mut run = |part| {
        let run = Run::new(options, watcher, progress);
        at_once(part, target, run, &mut taken)
    };
    let mut report = run(first)?;
    for part in parts {
        if report.cancelled || report.out_of_space {
            break;
        }
        match run(part) {
            Ok(next) => report.then(next),
            Err(error) => report.failed(error),
        }
    }
    Ok(report)
}

/// The sources in parts that may not be copied at the same time: what means the content of a directory
/// may meet names of all others, and directories of one name go into one.
fn one_after_another<'s>(
    sources: &'s [PathBuf],
    target: &Target,
    options: &CopyOptions,
) -> Vec<&'s [PathBuf]> {
    let is_dir = |path: &Path| attr::of_path(path, true).is_ok_and(|a| a.kind == Kind::Directory);
    let into = match target {
        Target::Into(path) | Target::Auto(path) if !options.resume && sources.len() > 1 => path,
        // Several sources are refused as such.
        _ => return vec![sources],
    };
    let (mut parts, mut begin) = (Vec::new(), 0);
    let mut names: HashMap<&OsStr, &Path> = HashMap::with_capacity(sources.len());
    for (i, source) in sources.iter().enumerate() {
        let name = source.file_name().filter(|_| !means_content(source));
        let earlier = name.and_then(|name| names.insert(name, source));
        let merges = |a: &Path| is_dir(a) && is_dir(source) && !is_same(a, source, options.follow);
        let is_content = |i: usize| sources.get(i).is_some_and(|source| means_content(source));
        let apart = is_content(i) || is_content(i.wrapping_sub(1)) || earlier.is_some_and(merges);
        if apart && i > begin {
            parts.push(&sources[begin..i]);
            begin = i;
        }
    }
    parts.push(&sources[begin..]);
    if parts.len() > 1 && !is_dir(into) { vec![sources] } else { parts }
}

/// Copies sources side by side.
fn at_once(
    sources: &[PathBuf],
    target: &Target,
    mut run: Run<'_>,
    taken: &mut Taken,
) -> Result<Report, CopyError> {
    let start = monotonic_ns();
    let options = run.options;
    let mut errors = Errors::default();
    let roots = Finding { run: &run, errors: &mut errors, taken }.roots(sources, target)?;
    // A source that cannot be is told as such.
    if options.resume && (sources.len() > 1 || !roots.from.is_empty()) {
        Resume::begin(&run, &roots)?;
    }
    let held = Held::default();
    let walk = walk_of(options, &roots);
    let new_worker = || Worker::new(&run, &roots, &held);
    let walked = if is_one_file(options, &roots) {
        let mut worker = new_worker();
        walk.run_here(&roots.from, &mut worker).map(|report| (vec![worker], report))
    } else {
        walk.run(&roots.from, |_| new_worker())
    };
    let (workers, walked) = walked
        .map_err(|refused| CopyError::cannot("copy", Path::new("anything"), refused.to_string()))?;
    let mut counts = Counts::default();
    for worker in workers {
        counts.add(&worker.counts);
        errors.merge(worker.errors);
    }
    let sync_start = monotonic_ns();
    tree::sync_parents(&run, &roots, &mut errors);
    if let (Some(resume), [parent]) = (run.resume.take(), &roots.parents[..])
        && errors.count == 0
        && !run.cancelled()
        && let Err(error) = resume.end(&parent.dir)
    {
        errors.add(CopyError::io("remove the record of", roots.to[0].path.clone(), error));
    }
    let end = monotonic_ns();
    let seen = &run.verified;
    let evidence = Evidence {
        files: seen.files.load(Ordering::Relaxed),
        bytes: seen.bytes.load(Ordering::Relaxed),
        device_bytes: seen.device_bytes.load(Ordering::Relaxed),
        not_from_device: seen.not_from_device.load(Ordering::Relaxed),
    };
    Ok(Report {
        counts,
        bytes: run.progress.bytes.load(Ordering::Relaxed),
        errors: errors.kept,
        errors_count: errors.count,
        cancelled: run.cancelled(),
        out_of_space: run.out_of_space.load(Ordering::Relaxed),
        modes: run.modes(),
        facts: run.facts(),
        durable: options.durable,
        verify: options.verify,
        hash: options.hash,
        evidence,
        hashes: run.take_hashes(),
        elapsed_ns: end - start,
        sync_ns: end - sync_start,
        threads: walked.threads,
        threads_why: walked.threads_why,
        lost_xattrs: run.rules.no_xattrs.load(Ordering::Relaxed),
    })
}

/// Whether there is work for one thread only, so that nobody need ask how many there may be.
fn is_one_file(options: &CopyOptions, roots: &Roots) -> bool {
    options.threads.is_none() && matches!(&roots.from[..], [only] if !only.is_dir())
}

fn walk_of(options: &CopyOptions, roots: &Roots) -> Walk {
    Walk {
        method: Method::Statx,
        threads: options.threads.map_or(Threads::Auto, Threads::Count),
        fields: Fields::NONE,
        waits: waits_of(options, roots),
        follow: options.follow,
        cancel: Some(options.cancel.clone()),
        ..Walk::default()
    }
}

/// Threads that make names in one tree wait for its locks, and that is no reason for more of them. A
/// sync of every file is one, and so is anything that is not here.
fn waits_of(options: &CopyOptions, roots: &Roots) -> Waits {
    let sources = || roots.from.iter().take(SOURCES_LOOKED_AT);
    let is_moot = options.threads.is_some() || !sources().any(|from| from.is_dir());
    if is_moot || options.durable != Durable::None {
        return Waits::Anything;
    }
    let parents = || roots.parents.iter().take(SOURCES_LOOKED_AT);
    let target_is_here = |parent: &Parent| facts::is_here(&facts::proc_path(&parent.dir));
    if !sources().all(|from| facts::is_here(from)) || !parents().all(target_is_here) {
        return Waits::Anything;
    }
    let may_share =
        options.reflink != When::Never && options.mode.is_none_or(|mode| mode == Mode::Reflink);
    let in_one_tree = |from: &PathBuf| {
        parents().all(|parent| facts::in_one_tree(from, &facts::proc_path(&parent.dir)))
    };
    if may_share && sources().all(in_one_tree) { Waits::OneTree } else { Waits::Reads }
}

/// Finds where each source goes.
struct Finding<'a> {
    run: &'a Run<'a>,
    errors: &'a mut Errors,
    taken: &'a mut Taken,
}

/// Which source goes to a name in a directory.
type Taken = HashMap<(PathBuf, CString), PathBuf>;

impl Finding<'_> {
    fn roots(&mut self, sources: &[PathBuf], target: &Target) -> Result<Roots, CopyError> {
        let into = self.is_into(sources, target)?;
        let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
        let mut parents = Vec::new();
        let mut by_path = HashMap::new();
        let mut roots = Roots { from: Vec::new(), to: Vec::new(), parents: Vec::new() };
        for source in sources {
            let found = self.place(source, path, into).and_then(|to| {
                let (dir, name) = split(&to)?;
                let parent = match by_path.get(&dir) {
                    Some(number) => *number,
                    None => {
                        let parent = self.parent(&dir)?;
                        parents.push(parent);
                        by_path.insert(dir.clone(), parents.len() - 1);
                        parents.len() - 1
                    }
                };
                let is_new = self.takes(source, (dir, name.clone()))?;
                Ok(is_new.then_some(RootTo { parent, name, path: to }))
            });
            match found {
                Ok(Some(to)) => {
                    roots.from.push(source.clone());
                    roots.to.push(to);
                }
                Ok(None) => {
                    let text = format!("{} is given more than once: copied once", source.display());
                    self.run.watcher.note(&text);
                }
                Err(error) => self.errors.add(error),
            }
        }
        roots.parents = parents;
        Ok(roots)
    }

    /// Whether a source is the first one to go to a place; a directory may join one of a part before.
    fn takes(&mut self, source: &Path, place: (PathBuf, CString)) -> Result<bool, CopyError> {
        let follow = self.run.options.follow;
        let is_dir = |path: &Path| {
            let attr = attr::of_path(path, follow != crate::Follow::Never);
            attr.is_ok_and(|attr| attr.kind == Kind::Directory)
        };
        let earlier = self.taken.insert(place, source.to_owned());
        match earlier.filter(|_| !means_content(source)) {
            None => Ok(true),
            Some(earlier) if is_same(&earlier, source, follow) => Ok(false),
            // What is to be gone on with is copied side by side.
            Some(earlier) if !self.run.options.resume && is_dir(&earlier) && is_dir(source) => {
                Ok(true)
            }
            Some(_) => {
                let why = "another source has the same name and goes to the same place";
                Err(CopyError::cannot("copy", source, why))
            }
        }
    }

    /// Whether sources go into the target.
    fn is_into(&self, sources: &[PathBuf], target: &Target) -> Result<bool, CopyError> {
        let is_dir = |path: &Path| match attr::of_path(path, true) {
            Ok(attr) => Ok(attr.kind == Kind::Directory),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(CopyError::io("ask for", path.to_owned(), e)),
        };
        match target {
            Target::Into(path) if !is_dir(path)? => {
                Err(CopyError::cannot("copy into", path, "it is no directory that is there"))
            }
            Target::Into(_) => Ok(true),
            Target::Auto(path) if is_dir(path)? => Ok(true),
            Target::As(path) | Target::Auto(path) if sources.len() != 1 => {
                Err(CopyError::cannot("copy several sources to", path, "it is no directory"))
            }
            Target::As(_) | Target::Auto(_) => Ok(false),
        }
    }

    /// The path that one source goes to.
    fn place(&self, source: &Path, target: &Path, into: bool) -> Result<PathBuf, CopyError> {
        let follow = self.run.options.follow != crate::Follow::Never;
        let attr = attr::of_path(source, follow)
            .map_err(|e| CopyError::io("ask for", source.to_owned(), e))?;
        let to = goes_to(source, target, into);
        if attr.kind != Kind::Directory && !into && means_directory(target) {
            let why = match attr::of_path(target, true) {
                Ok(_) => "it is a directory and the source is none",
                Err(_) => "there is no such directory",
            };
            return Err(CopyError::cannot("copy to", target, why));
        }
        let elsewhere = || device_of(&to).is_some_and(|device| device != attr.device);
        let apart = || self.run.options.one_file_system && elsewhere();
        if attr.kind == Kind::Directory && self.run.options.recursive && !apart() {
            refuse_into_itself(source, &to)?;
        }
        if attr.kind == Kind::Regular {
            return through_link(&to);
        }
        Ok(to)
    }

    fn parent(&self, path: &Path) -> Result<Parent, CopyError> {
        let failed = |e| CopyError::io("open the target directory", path.to_owned(), e);
        // What cannot be listed cannot be synced either.
        let waits = self.run.options.durable != Durable::None;
        let dir = if waits { Dir::open(path) } else { Dir::open_path_only(path) };
        let dir = dir.map_err(failed)?;
        let attr = attr::of_file(&dir).map_err(failed)?;
        let gives_acl = self.run.rules.gives_acl(&dir);
        Ok(Parent { dir, home: Home { device: attr.device, group: attr.group, gives_acl } })
    }
}

/// The path that one source goes to; `into`: it goes into the target under its own name.
fn goes_to(source: &Path, target: &Path, into: bool) -> PathBuf {
    match source.file_name() {
        Some(name) if into && !means_content(source) => target.join(name),
        _ => target.to_owned(),
    }
}

/// The path that each source goes to, as long as nothing stands in the way.
pub(crate) fn targets_of(sources: &[PathBuf], target: &Target) -> Vec<PathBuf> {
    let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
    let into = match target {
        Target::Into(_) => true,
        Target::As(_) => false,
        Target::Auto(path) => path.is_dir(),
    };
    sources.iter().map(|source| goes_to(source, path, into)).collect()
}

/// Whether two sources are one file.
fn is_same(a: &Path, b: &Path, follow: crate::Follow) -> bool {
    let identity = |path: &Path| {
        attr::of_path(path, follow != crate::Follow::Never).map(|attr| attr.identity()).ok()
    };
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

/// Whether a source names what is in a directory, not the directory: `dir/.`, `..`, `/`.
fn means_content(source: &Path) -> bool {
    let bytes = source.as_os_str().as_bytes();
    source.file_name().is_none() || bytes.ends_with(b"/.") || bytes.ends_with(b"/./")
}

/// Whether a path can only be that of a directory: `new/`, `new/.`, `new/..`.
fn means_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.") || path.file_name().is_none()
}

/// The device that a target lies on, or will; none where nobody can tell.
fn device_of(to: &Path) -> Option<(u32, u32)> {
    let above =
        || to.parent().map(|above| if above == Path::new("") { Path::new(".") } else { above });
    let attr = attr::of_path(to, true)
        .or_else(|e| above().map_or(Err(e), |above| attr::of_path(above, true)));
    attr.ok().map(|attr| attr.device)
}

/// The directory and the last name of a path.
fn split(path: &Path) -> Result<(PathBuf, CString), CopyError> {
    let failed = |e| CopyError::io("find", path.to_owned(), e);
    let ends_in_dot = path.file_name().is_none();
    let path = if ends_in_dot { std::fs::canonicalize(path).map_err(failed)? } else { path.into() };
    let Some(name) = path.file_name() else {
        return Ok((PathBuf::from("/"), c".".to_owned()));
    };
    let name = CString::new(name.as_bytes())
        .map_err(|_| CopyError::cannot("copy to", &path, "its name holds a zero byte"))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), name))
}

/// The path without links and dots.
pub(crate) fn real(path: &Path) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

/// A directory is not copied into itself: the copy would never end.
fn refuse_into_itself(source: &Path, to: &Path) -> Result<(), CopyError> {
    let Ok(source_real) = real(source) else { return Ok(()) };
    let to_real = real(to).or_else(|e| match (to.parent(), to.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            real(parent).map(|parent| parent.join(name))
        }
        _ => Err(e),
    });
    if to_real.is_ok_and(|to| to.starts_with(&source_real)) {
        let why = format!("the target {} lies in it", to.display());
        return Err(CopyError::cannot("copy", source, why));
    }
    Ok(())
}

/// A target that the user names is written through a symbolic link, as every program does; below
/// that, links at the target are replaced, never followed.
fn through_link(to: &Path) -> Result<PathBuf, CopyError> {
    match attr::of_path(to, false) {
        Ok(attr) if attr.kind == Kind::Symlink => std::fs::canonicalize(to).map_err(|e| {
            let why = match attr::of_path(to, true) {
                // As /dev/stdout leads to what has no path.
                Ok(end) => {
                    format!("it leads to a {}; ioloom cp makes files only", end.kind.singular())
                }
                Err(_) => format!("it is a symbolic link that leads nowhere ({e}); remove it"),
            };
            CopyError::cannot("copy to", to, why)
        }),
        _ => Ok(to.to_owned()),
    }
}
