//! Runs a whole copy: resolves the target of each source, walks the sources and reports the result.

use crate::context::{CopyContext, Created};
use crate::dirs::{DirCounters, MadeDirs, Parent, Roots, earlier_copies};
use crate::error::CopyError;
use crate::facts;
use crate::links::EarlierCopies;
use crate::mode::Mode;
use crate::options::{CopyCounters, CopyOptions, Durable, Existing, Follow, Watcher, When};
use crate::parents;
use crate::report::{Counts, Report};
use crate::resolve::{ClaimedTargets, TargetResolver};
use crate::resume;
use crate::target::{Target, is_repeated, means_content};
use crate::tree::{self, Worker};
use ioloom_failure::Operation;
use ioloom_sys::attr;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::dir::Kind;
use ioloom_walk::{Fields, Method, Threads, Waits, Walk};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering;

/// Number of sources to examine when estimating what threads will wait for.
const SOURCES_SAMPLED: usize = 16;

/// Maximum number of directories of sources in one part; each keeps a descriptor open.
const PARENTS_MAX: usize = 64;

/// Copies `sources` to `target`. Files that cannot be copied are listed in the report; all others
/// are copied.
///
/// Sources that represent the contents of a directory (`dir/.`) can share names with other sources.
/// Each of them is copied after the sources before it, so if two files have the same name, the
/// later one wins.
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
    let parts = sequential_parts(sources, target, options);
    let created = (parts.len() > 1).then(Created::default);
    let mut run = Run::new(options, watcher, progress, created.as_ref());
    let mut parts = parts.into_iter();
    let mut report = run.part(parts.next().unwrap_or(sources), target, false)?;
    for part in parts {
        if report.cancelled {
            break;
        }
        match run.part(part, target, false) {
            Ok(next) => report.append(next),
            Err(error) => {
                watcher.failed(&error);
                report.failed(error);
            }
        }
    }
    run.finish(&mut report);
    Ok(report)
}

/// A copy in parts, with what each of them must know about those before it.
pub(crate) struct Run<'a> {
    options: &'a CopyOptions,
    watcher: &'a dyn Watcher,
    progress: &'a CopyCounters,
    created: Option<&'a Created>,
    /// Directories created for `--parents`. They get their attributes after the last part.
    made: MadeDirs,
    claimed: ClaimedTargets,
    /// Copies of files with several names.
    pub(crate) links: EarlierCopies,
}

/// Splits the sources into parts that must be copied one after another: the contents of a directory
/// can share names with any other source, directories with the same name are merged, and a source can be
/// in the target of another. With `--parents`, a part also bounds the number of target directories that are
/// open at once.
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
    let mut names: HashMap<PathBuf, &Path> = HashMap::with_capacity(sources.len());
    let mut above = HashSet::new();
    let mut places = SourcePlaces::new(into, options.follow);
    let is_content = |source: &Path| own_name(source, options).is_none();
    for (i, source) in sources.iter().enumerate() {
        let own = own_name(source, options);
        let place = places.find(source);
        let overlaps = own.as_ref().is_some_and(|own| places.overlap(place.as_deref(), own));
        let earlier = own.clone().and_then(|name| names.insert(name, source));
        // The same file is copied once. Of different files, the later one comes second.
        let merges = |a: &Path| !is_repeated(a, source, options);
        let follows_content = i > begin && is_content(&sources[i - 1]);
        let mut apart = overlaps || own.is_none() || follows_content || earlier.is_some_and(merges);
        if options.parents {
            let is_new = above.insert(source.parent());
            apart |= is_new && above.len() > PARENTS_MAX;
        }
        if apart && i > begin {
            parts.push(&sources[begin..i]);
            begin = i;
            above = HashSet::from([source.parent()]);
            places.begin();
        }
        places.add(place.as_deref(), own);
    }
    parts.push(&sources[begin..]);
    if parts.len() > 1 && !is_dir(into) { vec![sources] } else { parts }
}

/// The sources of one part that are in the common target, and the targets of all its sources. Paths are relative to
/// the common target.
struct SourcePlaces<'s> {
    /// The common target; `None` if it does not exist.
    into: Option<PathBuf>,
    follow: Follow,
    /// The canonical paths of directories that contain sources.
    known: HashMap<&'s Path, Option<PathBuf>>,
    /// Sources in the common target, and the directories above them.
    sources: HashSet<PathBuf>,
    targets: HashSet<PathBuf>,
}

impl<'s> SourcePlaces<'s> {
    fn new(into: &Path, follow: Follow) -> Self {
        let (known, sources, targets) = (HashMap::new(), HashSet::new(), HashSet::new());
        Self { into: fs::canonicalize(into).ok(), follow, known, sources, targets }
    }

    /// Returns the relative path of a source that is in the common target. One stat, and a search for the directory
    /// above if that is another one.
    fn find(&mut self, source: &'s Path) -> Option<PathBuf> {
        let into = self.into.as_ref()?;
        let is_link = |path: &Path| attr::of_path(path, false).map(|a| a.kind == Kind::Symlink);
        // A slash at the end follows a link.
        let has_slash = source.as_os_str().as_encoded_bytes().ends_with(b"/");
        let canonical = if has_slash || (self.follow != Follow::Never && is_link(source).ok()?) {
            fs::canonicalize(source).ok()?
        } else {
            let above = source.parent().filter(|above| !above.as_os_str().is_empty());
            let above = above.unwrap_or(Path::new("."));
            let known = self.known.entry(above).or_insert_with(|| fs::canonicalize(above).ok());
            known.as_ref()?.join(source.file_name()?)
        };
        canonical.strip_prefix(into).ok().map(Path::to_owned)
    }

    /// Returns true if a source is in the target of an earlier one, or an earlier one is in its target.
    fn overlap(&self, place: Option<&Path>, own_name: &Path) -> bool {
        let is_in_target = |place: &Path| place.ancestors().any(|a| self.targets.contains(a));
        self.sources.contains(own_name)
            || place.is_some_and(|place| place != own_name && is_in_target(place))
    }

    fn add(&mut self, place: Option<&Path>, own_name: Option<PathBuf>) {
        let with_above = place.into_iter().flat_map(Path::ancestors);
        self.sources.extend(with_above.map(Path::to_owned));
        self.targets.extend(own_name);
    }

    /// Begins a new part.
    fn begin(&mut self) {
        self.sources.clear();
        self.targets.clear();
    }
}

/// Returns the path of a source's target below the common target; `None` if other sources can mean
/// the same or a part of it.
fn own_name(source: &Path, options: &CopyOptions) -> Option<PathBuf> {
    if !options.parents {
        let name = source.file_name().filter(|_| !means_content(source));
        return name.map(PathBuf::from);
    }
    let mut name = PathBuf::new();
    for component in source.components() {
        match component {
            Component::Normal(part) => name.push(part),
            Component::ParentDir => return None,
            _ => {}
        }
    }
    Some(name).filter(|name| !name.as_os_str().is_empty() && !means_content(source))
}

impl<'a> Run<'a> {
    /// `created` is needed for several parts.
    pub(crate) fn new(
        options: &'a CopyOptions,
        watcher: &'a dyn Watcher,
        progress: &'a CopyCounters,
        created: Option<&'a Created>,
    ) -> Self {
        let (made, claimed, links) = (MadeDirs::default(), ClaimedTargets::new(), HashMap::new());
        Self { options, watcher, progress, created, made, claimed, links }
    }

    pub(crate) fn context(&self) -> CopyContext<'_> {
        CopyContext::new(self.options, self.watcher, self.progress, self.created, &self.links)
    }

    /// Copies sources in parallel. With `alone`, leaves out the directories in them, and leaves their
    /// own attributes as they are.
    pub(crate) fn part(
        &mut self,
        sources: &[PathBuf],
        target: &Target,
        alone: bool,
    ) -> Result<Report, CopyError> {
        let start = monotonic_ns();
        let options = self.options;
        let mut context =
            CopyContext::new(options, self.watcher, self.progress, self.created, &self.links);
        context.alone = alone;
        let resolver =
            TargetResolver { context: &context, claimed: &mut self.claimed, made: &mut self.made };
        let roots = resolver.roots(sources, target)?;
        // Without a root, the errors already explain why the only source cannot be copied.
        if options.resume && (sources.len() > 1 || !roots.from.is_empty()) {
            resume::begin(&context, sources, &roots)?;
        }
        let (counts, walked) = walk_roots(&context, &roots, sources)?;
        let sync_start = monotonic_ns();
        tree::sync_parents(&context, &roots);
        if let (Some(resume), [parent]) = (context.resume.take(), &roots.parents[..]) {
            resume::end(&context, resume, &parent.dir, &roots.to[0].path);
        }
        let copied = context.links.take_copied();
        let errors = context.take_errors();
        let end = monotonic_ns();
        let report = Report {
            counts,
            bytes: context.progress.bytes.load(Ordering::Relaxed),
            errors: errors.kept,
            errors_count: errors.count,
            cancelled: context.cancelled(),
            out_of_space: context.is_out_of_space(),
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
        };
        if self.created.is_some() {
            self.links.extend(earlier_copies(&roots, copied));
        }
        Ok(report)
    }

    /// Completes the directories created for `--parents`.
    fn finish(&self, report: &mut Report) {
        if self.made.dirs.is_empty() {
            return;
        }
        let start = monotonic_ns();
        let context = self.context();
        parents::finish(&context, &self.made);
        report.add_errors(context.take_errors());
        let took = monotonic_ns() - start;
        report.elapsed_ns += took;
        report.sync_ns += took;
    }
}

/// Copies the sources by a walk, or in this thread if there is only one file.
fn walk_roots(
    context: &CopyContext<'_>,
    roots: &Roots,
    sources: &[PathBuf],
) -> Result<(Counts, ioloom_walk::Report), CopyError> {
    let options = context.options;
    let dirs = DirCounters::new(ioloom_sys::proc::open_files_limit());
    let walk = walk_of(options, roots);
    let new_worker = || Worker::new(context, roots, &dirs);
    let walked = if is_one_file(options, roots) {
        let mut worker = new_worker();
        walk.run_here(&roots.from, &mut worker).map(|report| (vec![worker], report))
    } else {
        walk.run(&roots.from, |_| new_worker())
    };
    let (mut workers, walked) = walked.map_err(|refused| {
        let first = sources.first().map_or(Path::new("."), PathBuf::as_path);
        CopyError::cannot(Operation::Copy, first, refused.to_string())
    })?;
    if let Some(worker) = workers.first_mut() {
        worker.finish_deferred();
    }
    let mut counts = Counts::default();
    for worker in workers {
        counts.add(&worker.counts);
    }
    counts.take(&context.removed());
    debug_assert!(
        context.cancelled() || dirs.pairs.load(Ordering::Relaxed) == 0,
        "every started directory must be completed; otherwise it lacks its name or attributes"
    );
    Ok((counts, walked))
}

/// Returns true if there is only work for one thread, so no thread count has to be chosen.
fn is_one_file(options: &CopyOptions, roots: &Roots) -> bool {
    options.threads.is_none() && matches!(&roots.to[..], [only] if only.kind != Kind::Directory)
}

fn walk_of(options: &CopyOptions, roots: &Roots) -> Walk {
    // The answers to questions can be written in advance, so their order must not change.
    let asks = matches!(options.existing, Existing::Ask | Existing::UpdateAsk);
    let automatic = if asks { Threads::Count(1) } else { Threads::Auto };
    Walk {
        method: Method::Statx,
        threads: options.threads.map_or(automatic, Threads::Count),
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
    // Following a symbolic link would change its access time before it is copied.
    let sampled = || roots.from.iter().zip(&roots.to).take(SOURCES_SAMPLED);
    let sources = || sampled().filter(|(_, to)| to.kind != Kind::Symlink).map(|(from, _)| from);
    let is_moot = options.threads.is_some() || !sampled().any(|(_, to)| to.kind == Kind::Directory);
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
