//! Runs a whole copy: resolves the target of each source, walks the sources and reports the result.

use crate::context::CopyContext;
use crate::dirs::{DirCounters, Parent, RootTo, Roots};
use crate::error::{CopyError, Errors};
use crate::facts;
use crate::meta::ParentAttr;
use crate::mode::Mode;
use crate::options::{CopyCounters, CopyOptions, Durable, Watcher, When};
use crate::report::{Counts, Report};
use crate::resume;
use crate::tree::{self, Worker};
use ioloom_failure::{Operation, quoted, reason};
use ioloom_sys::attr;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_walk::{Fields, Method, Threads, Waits, Walk};
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::canonicalize;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Number of sources to examine when estimating what threads will wait for.
const SOURCES_SAMPLED: usize = 16;

/// The target of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An existing directory. All sources are copied into it under their own names.
    Into(PathBuf),
    /// The path of the copy of a single source.
    As(PathBuf),
    /// `Into` if the path is a directory, otherwise `As`.
    Auto(PathBuf),
}

/// Copies `sources` to `target`. Files that cannot be copied are listed in the report; all others
/// are copied.
///
/// Sources that represent the contents of a directory (`dir/.`) can share names with other sources.
/// Each of them is copied after the sources before it, so if two files have the same name, the
/// later one wins. Hard links between two such sources are not preserved.
///
/// # Errors
/// Returns an error if nothing can be copied: a target that must be a directory is not one, several
/// sources have the same single target, or the walk cannot start.
pub fn copy(
    sources: &[PathBuf],
    target: &Target,
    options: &CopyOptions,
    watcher: &dyn Watcher,
    progress: &CopyCounters,
) -> Result<Report, CopyError> {
    let mut parts = sequential_parts(sources, target, options).into_iter();
    let first = parts.next().unwrap_or(sources);
    let mut claimed = ClaimedTargets::new();
    let mut run = |part| {
        let context = CopyContext::new(options, watcher, progress);
        copy_part(part, target, context, &mut claimed)
    };
    let mut report = run(first)?;
    for part in parts {
        if report.cancelled || report.out_of_space {
            break;
        }
        match run(part) {
            Ok(next) => report.append(next),
            Err(error) => report.failed(error),
        }
    }
    Ok(report)
}

/// Splits the sources into parts that must be copied one after another: the contents of a directory
/// can share names with any other source, and directories with the same name are merged.
fn sequential_parts<'s>(
    sources: &'s [PathBuf],
    target: &Target,
    options: &CopyOptions,
) -> Vec<&'s [PathBuf]> {
    let is_dir = |path: &Path| attr::of_path(path, true).is_ok_and(|a| a.kind == Kind::Directory);
    let into = match target {
        Target::Into(path) | Target::Auto(path) if !options.resume && sources.len() > 1 => path,
        // Several sources are rejected later.
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

/// Copies sources in parallel.
fn copy_part(
    sources: &[PathBuf],
    target: &Target,
    mut context: CopyContext<'_>,
    claimed: &mut ClaimedTargets,
) -> Result<Report, CopyError> {
    let start = monotonic_ns();
    let options = context.options;
    let mut errors = Errors::default();
    let roots = TargetResolver { context: &context, errors: &mut errors, claimed }
        .roots(sources, target)?;
    // Without a root, the errors already explain why the only source cannot be copied.
    if options.resume && (sources.len() > 1 || !roots.from.is_empty()) {
        resume::begin(&context, sources, &roots)?;
    }
    let dirs = DirCounters::default();
    let walk = walk_of(options, &roots);
    let new_worker = || Worker::new(&context, &roots, &dirs);
    let walked = if is_one_file(options, &roots) {
        let mut worker = new_worker();
        walk.run_here(&roots.from, &mut worker).map(|report| (vec![worker], report))
    } else {
        walk.run(&roots.from, |_| new_worker())
    };
    let (workers, walked) = walked.map_err(|refused| {
        let first = sources.first().map_or(Path::new("."), PathBuf::as_path);
        CopyError::cannot(Operation::Copy, first, refused.to_string())
    })?;
    let mut counts = Counts::default();
    for worker in workers {
        counts.add(&worker.counts);
        errors.merge(worker.errors);
    }
    debug_assert!(
        context.ends() || dirs.pairs.load(Ordering::Relaxed) == 0,
        "every started directory must be completed; otherwise it lacks its name or attributes"
    );
    let sync_start = monotonic_ns();
    tree::sync_parents(&context, &roots, &mut errors);
    if let (Some(resume), [parent]) = (context.resume.take(), &roots.parents[..])
        && errors.count == 0
        && !context.cancelled()
        && let Err(error) = resume.remove(&parent.dir)
    {
        errors.add(CopyError::io(Operation::RemoveJournal, roots.to[0].path.clone(), error));
    }
    let end = monotonic_ns();

    Ok(Report {
        counts,
        bytes: context.progress.bytes.load(Ordering::Relaxed),
        errors: errors.kept,
        errors_count: errors.count,
        cancelled: context.cancelled(),
        out_of_space: context.out_of_space.load(Ordering::Relaxed),
        modes: context.modes(),
        facts: context.facts(),
        durable: options.durable,
        verify: options.verify,
        hash: options.hash,
        evidence: context.verified.load(),
        hashes: context.take_hashes(),
        elapsed_ns: end - start,
        sync_ns: end - sync_start,
        threads: walked.threads,
        threads_why: walked.threads_why,
        lost_xattrs: context.rules.no_xattrs.load(Ordering::Relaxed),
    })
}

/// Returns true if there is only work for one thread, so no thread count has to be chosen.
fn is_one_file(options: &CopyOptions, roots: &Roots) -> bool {
    options.threads.is_none() && matches!(&roots.from[..], [only] if !only.is_dir())
}

fn walk_of(options: &CopyOptions, roots: &Roots) -> Walk {
    Walk {
        method: Method::Statx,
        threads: options.threads.map_or(Threads::Auto, Threads::Count),
        fields: Fields::NONE,
        waits: waits_for(options, roots),
        follow: options.follow,
        cancel: Some(options.cancel.clone()),
        ..Walk::default()
    }
}

/// Returns what the threads of this copy wait for. Threads that create names in a single file
/// system tree wait for its locks, so adding threads does not help. It does help if every file is
/// synced or if the data is not on a local device.
fn waits_for(options: &CopyOptions, roots: &Roots) -> Waits {
    let sources = || roots.from.iter().take(SOURCES_SAMPLED);
    let is_moot = options.threads.is_some() || !sources().any(|from| from.is_dir());
    if is_moot || options.durable != Durable::None {
        return Waits::Anything;
    }
    let parents = || roots.parents.iter().take(SOURCES_SAMPLED);
    let target_is_here = |parent: &Parent| facts::is_local(&facts::proc_path(&parent.dir));
    if !sources().all(|from| facts::is_local(from)) || !parents().all(target_is_here) {
        return Waits::Anything;
    }
    let may_share =
        options.reflink != When::Never && options.mode.is_none_or(|mode| mode == Mode::Reflink);
    let in_one_tree = |from: &PathBuf| {
        parents().all(|parent| facts::in_one_tree(from, &facts::proc_path(&parent.dir)))
    };
    if may_share && sources().all(in_one_tree) { Waits::OneTree } else { Waits::Reads }
}

/// Resolves the target of each source.
struct TargetResolver<'a> {
    context: &'a CopyContext<'a>,
    errors: &'a mut Errors,
    claimed: &'a mut ClaimedTargets,
}

/// Maps each target, by directory and name, to the source that claimed it.
type ClaimedTargets = HashMap<(PathBuf, CString), PathBuf>;

impl TargetResolver<'_> {
    fn roots(&mut self, sources: &[PathBuf], target: &Target) -> Result<Roots, CopyError> {
        let into = self.is_into(sources, target)?;
        let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
        let mut parents = Vec::new();
        let mut by_path = HashMap::new();
        let mut roots = Roots { from: Vec::new(), to: Vec::new(), parents: Vec::new() };
        for source in sources {
            let found = self.target_of(source, path, into).and_then(|to| {
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
                let is_new = self.claim(source, (dir, name.clone()))?;
                Ok(is_new.then_some(RootTo { parent, name, path: to }))
            });
            match found {
                Ok(Some(to)) => {
                    roots.from.push(source.clone());
                    roots.to.push(to);
                }
                Ok(None) => {
                    let text =
                        format!("{} is specified more than once; copied once", quoted(source));
                    self.context.watcher.note(&text);
                }
                Err(error) => self.errors.add(error),
            }
        }
        roots.parents = parents;
        Ok(roots)
    }

    /// Claims a target for a source. Returns false if the same source has already claimed it. A
    /// directory can claim the same target as a directory in an earlier part.
    fn claim(&mut self, source: &Path, target: (PathBuf, CString)) -> Result<bool, CopyError> {
        let follow = self.context.options.follow;
        let is_dir = |path: &Path| {
            let attr = attr::of_path(path, follow != crate::Follow::Never);
            attr.is_ok_and(|attr| attr.kind == Kind::Directory)
        };
        let earlier = self.claimed.insert(target, source.to_owned());
        match earlier.filter(|_| !means_content(source)) {
            None => Ok(true),
            Some(earlier) if is_same(&earlier, source, follow) => Ok(false),
            // A resumable copy has a single part.
            Some(earlier) if !self.context.options.resume && is_dir(&earlier) && is_dir(source) => {
                Ok(true)
            }
            Some(_) => {
                let why = "another source has the same target";
                Err(CopyError::cannot(Operation::Copy, source, why))
            }
        }
    }

    /// Returns true if the target is a directory into which sources are copied.
    fn is_into(&self, sources: &[PathBuf], target: &Target) -> Result<bool, CopyError> {
        let is_dir = |path: &Path| match attr::of_path(path, true) {
            Ok(attr) => Ok(attr.kind == Kind::Directory),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(CopyError::io(Operation::Stat, path.to_owned(), e)),
        };
        match target {
            Target::Into(path) if !is_dir(path)? => {
                Err(CopyError::cannot(Operation::CopyTo, path, "not an existing directory"))
            }
            Target::Into(_) => Ok(true),
            Target::Auto(path) if is_dir(path)? => Ok(true),
            Target::As(path) | Target::Auto(path) if sources.len() != 1 => {
                let why = "several sources require a directory";
                Err(CopyError::cannot(Operation::CopyTo, path, why))
            }
            Target::As(_) | Target::Auto(_) => Ok(false),
        }
    }

    /// Returns the target path of one source.
    fn target_of(&self, source: &Path, target: &Path, into: bool) -> Result<PathBuf, CopyError> {
        let follow = self.context.options.follow != crate::Follow::Never;
        let attr = attr::of_path(source, follow)
            .map_err(|e| CopyError::io(Operation::Stat, source.to_owned(), e))?;
        let to = target_path(source, target, into);
        if attr.kind != Kind::Directory && !into && means_directory(target) {
            let why = match attr::of_path(target, true) {
                Ok(_) => "it is a directory and the source is not",
                Err(_) => "the directory does not exist",
            };
            return Err(CopyError::cannot(Operation::CopyTo, target, why));
        }
        let elsewhere = || device_of(&to).is_some_and(|device| device != attr.device);
        let apart = || self.context.options.one_file_system && elsewhere();
        if attr.kind == Kind::Directory && self.context.options.recursive && !apart() {
            refuse_into_itself(source, &to)?;
        }
        if attr.kind == Kind::Regular {
            return through_link(&to);
        }
        Ok(to)
    }

    fn parent(&self, path: &Path) -> Result<Parent, CopyError> {
        let failed = |e| CopyError::io(Operation::OpenDir, path.to_owned(), e);
        // Syncing needs a descriptor that is open for reading.
        let waits = self.context.options.durable != Durable::None;
        let dir = if waits { Dir::open(path) } else { Dir::open_path_only(path) };
        let dir = dir.map_err(failed)?;
        let attr = attr::of_file(&dir).map_err(failed)?;
        let has_default_acl = self.context.rules.has_default_acl(&dir);
        Ok(Parent {
            dir,
            parent_attr: ParentAttr { device: attr.device, group: attr.group, has_default_acl },
        })
    }
}

/// Returns the target path of one source; with `into`, its own name inside the target.
fn target_path(source: &Path, target: &Path, into: bool) -> PathBuf {
    match source.file_name() {
        Some(name) if into && !means_content(source) => target.join(name),
        _ => target.to_owned(),
    }
}

/// Returns the target path of each source without checking that it can be used.
pub(crate) fn targets_of(sources: &[PathBuf], target: &Target) -> Vec<PathBuf> {
    let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
    let into = match target {
        Target::Into(_) => true,
        Target::As(_) => false,
        Target::Auto(path) => path.is_dir(),
    };
    sources.iter().map(|source| target_path(source, path, into)).collect()
}

/// Returns true if two sources are the same file.
fn is_same(a: &Path, b: &Path, follow: crate::Follow) -> bool {
    let identity = |path: &Path| {
        attr::of_path(path, follow != crate::Follow::Never).map(|attr| attr.identity()).ok()
    };
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

/// Returns true if a source represents the contents of a directory: `dir/.`, `..`, `/`.
fn means_content(source: &Path) -> bool {
    let bytes = source.as_os_str().as_bytes();
    source.file_name().is_none() || bytes.ends_with(b"/.") || bytes.ends_with(b"/./")
}

/// Returns true if a path can only name a directory: `new/`, `new/.`, `new/..`.
fn means_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.") || path.file_name().is_none()
}

/// Returns the device of a target, or of its parent if it does not exist; `None` if both fail.
fn device_of(to: &Path) -> Option<(u32, u32)> {
    let above =
        || to.parent().map(|above| if above == Path::new("") { Path::new(".") } else { above });
    let attr = attr::of_path(to, true)
        .or_else(|e| above().map_or(Err(e), |above| attr::of_path(above, true)));
    attr.ok().map(|attr| attr.device)
}

/// Splits a path into its parent and last component.
fn split(path: &Path) -> Result<(PathBuf, CString), CopyError> {
    let failed = |e| CopyError::io(Operation::Resolve, path.to_owned(), e);
    let ends_in_dot = path.file_name().is_none();
    let path = if ends_in_dot { canonicalize(path).map_err(failed)? } else { path.into() };
    let Some(name) = path.file_name() else {
        return Ok((PathBuf::from("/"), c".".to_owned()));
    };
    let name = CString::new(name.as_bytes())
        .map_err(|_| CopyError::cannot(Operation::CopyTo, &path, "the name contains a NUL byte"))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_owned(), name))
}

/// Refuses to copy a directory into itself, which would recurse forever.
fn refuse_into_itself(source: &Path, to: &Path) -> Result<(), CopyError> {
    let Ok(source_real) = canonicalize(source) else { return Ok(()) };
    let to_real = canonicalize(to).or_else(|e| match (to.parent(), to.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            canonicalize(parent).map(|parent| parent.join(name))
        }
        _ => Err(e),
    });
    if to_real.is_ok_and(|to| to.starts_with(&source_real)) {
        let why = format!("the target {} is inside it", quoted(to));
        return Err(CopyError::cannot(Operation::Copy, source, why));
    }
    Ok(())
}

/// Resolves a target that is a symbolic link. Like other programs, follows a link that the user
/// specified as the target; links below the target are replaced.
fn through_link(to: &Path) -> Result<PathBuf, CopyError> {
    match attr::of_path(to, false) {
        Ok(attr) if attr.kind == Kind::Symlink => canonicalize(to).map_err(|e| {
            let why = match attr::of_path(to, true) {
                // For example /dev/stdout, which can refer to a pipe without a path.
                Ok(end) => {
                    format!(
                        "it is a link to a {}; ioloom cp only writes files",
                        end.kind.singular()
                    )
                }
                Err(_) => format!("it is a broken symbolic link ({}); remove it", reason(&e)),
            };
            CopyError::cannot(Operation::CopyTo, to, why)
        }),
        _ => Ok(to.to_owned()),
    }
}
