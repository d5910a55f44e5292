//! Copies parts of a tree while other processes copy its other parts.
//!
//! A tree is split at its upper directories: each part is a directory with all that is below it, or one
//! alone, that is, without the directories in it. The directories above a part are created first if they are
//! missing. The last step gives all of them their attributes: until then, others add entries to them.
//! Symbolic links below the copy of a root are not followed, because another part can have created them. Those
//! that replaced a directory above a part since the tree was split are not followed either.
//!
//! Cost: one walk per part, and two system calls for each directory above it.

use crate::context::CopyContext;
use crate::copy::Run;
use crate::dirs::{MadeDir, MadeDirs, c_name};
use crate::error::CopyError;
use crate::meta::{Creation, DirModes, OWNER_ALL, ParentAttr};
use crate::options::{CopyCounters, CopyOptions, Watcher};
use crate::parents;
use crate::report::Report;
use crate::target::{Target, targets_of};
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use std::collections::{HashMap, HashSet};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Permission bits without set-id and sticky bits.
const PERMISSIONS: u32 = 0o777;

/// A part of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subtree {
    /// The source that contains it.
    pub root: PathBuf,
    /// The path of the copy of that source.
    pub copy: PathBuf,
    /// Its path below both; empty for the source itself.
    pub below: PathBuf,
    /// Whether it is a directory that is copied without the directories in it.
    pub alone: bool,
}

impl Subtree {
    /// Returns its path.
    pub fn source(&self) -> PathBuf {
        below(&self.root, &self.below)
    }

    /// Returns the path of its copy.
    pub fn target(&self) -> PathBuf {
        below(&self.copy, &self.below)
    }
}

/// A file with several names, of which this copy found at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Linked {
    /// Device of the source, as (major, minor).
    pub device: (u32, u32),
    /// Inode of the source.
    pub inode: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The result of copying parts of a tree.
#[derive(Debug)]
pub struct SubtreesReport {
    /// The result of all parts together.
    pub report: Report,
    /// Files with several names. Other parts can have copied them under their other names.
    pub linked: Vec<Linked>,
}

/// Returns the path of the copy of each source.
pub fn copies_of(sources: &[PathBuf], target: &Target) -> Vec<PathBuf> {
    targets_of(sources, target)
}

/// Copies parts of a tree. The directories above them, and those copied alone, lack their attributes
/// until [`finish_subtrees`] has run. Parts that cannot be copied are listed in the report; a directory that
/// several of them need and that cannot be created is one error.
pub fn copy_subtrees(
    subtrees: &[Subtree],
    options: &CopyOptions,
    watcher: &dyn Watcher,
    progress: &CopyCounters,
) -> SubtreesReport {
    let created = Default::default();
    let mut run = Run::new(options, watcher, progress, Some(&created));
    let mut report = Report::empty(options);
    let mut unusable = HashSet::new();
    for subtree in subtrees {
        let (source, target) = (subtree.source(), Target::As(subtree.target()));
        let copied = match make_above(&run.context(), subtree, &mut unusable) {
            Ok(Above::Made) => run.part(&[source], &target, subtree.alone),
            Ok(Above::Reported) => continue,
            Err(error) => Err(error),
        };
        match copied {
            Ok(next) => report.append(next),
            Err(error) => {
                watcher.failed(&error);
                report.failed(error);
            }
        }
        if report.cancelled {
            break;
        }
    }
    let mut linked: Vec<Linked> = run
        .links
        .iter()
        .map(|(&(device, inode), copy)| Linked { device, inode, bytes: copy.attr.bytes })
        .collect();
    linked.sort();
    SubtreesReport { report, linked }
}

/// Gives the directories that were copied alone their attributes, the deepest first, and syncs them if
/// requested. Others are ignored. Returns the first errors, at most
/// [`ERRORS_KEPT_MAX`](crate::ERRORS_KEPT_MAX), and the number of all.
pub fn finish_subtrees(
    subtrees: &[Subtree],
    options: &CopyOptions,
    watcher: &dyn Watcher,
) -> (Vec<CopyError>, u64) {
    let (progress, earlier) = (CopyCounters::default(), HashMap::new());
    let context = CopyContext::new(options, watcher, &progress, None, &earlier);
    let mut alone: Vec<&Subtree> = subtrees.iter().filter(|subtree| subtree.alone).collect();
    // A directory comes before those in it.
    alone.sort();
    let mut made = MadeDirs::default();
    for subtree in alone {
        match unfinished(&context, subtree) {
            Ok(dir) => {
                made.seen.insert(dir.target.clone());
                made.dirs.push(dir);
            }
            Err(error) => context.failed(error),
        }
    }
    parents::finish(&context, &made);
    let errors = context.take_errors();
    (errors.kept, errors.count)
}

/// Joins paths, the second of which can be empty.
fn below(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) }
}

/// What became of the directories above a part.
enum Above {
    Made,
    /// One of them is unusable, which was reported for an earlier part.
    Reported,
}

/// Creates the directories above a part, and its own if it is copied alone. `unusable` contains those of the target that
/// could not be created.
fn make_above(
    context: &CopyContext<'_>,
    subtree: &Subtree,
    unusable: &mut HashSet<PathBuf>,
) -> Result<Above, CopyError> {
    let names: Vec<_> = subtree.below.components().collect();
    let wanted = names.len() + usize::from(subtree.alone);
    let (mut from, mut to) = (subtree.root.clone(), subtree.copy.clone());
    for at in 0..wanted {
        if let Some(name) = at.checked_sub(1).and_then(|above| names.get(above)) {
            from.push(name);
            to.push(name);
        }
        if unusable.contains(&to) {
            return Ok(Above::Reported);
        }
        if let Err(error) = make_directory(context, &from, &to) {
            unusable.insert(to);
            return Err(error);
        }
    }
    Ok(Above::Made)
}

fn make_directory(context: &CopyContext<'_>, from: &Path, to: &Path) -> Result<(), CopyError> {
    // Also if the directory of the target exists: a link in the place of its source leads out of the tree.
    let attr = directory_attr(from)?;
    match attr::of_path(to, false) {
        Ok(there) if there.kind == Kind::Directory => return Ok(()),
        Ok(_) => return Err(not_a_directory(from, to)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(CopyError::io(Operation::Stat, to.to_owned(), error)),
    }
    let failed = |e| CopyError::io(Operation::CreateDir, to.to_owned(), e);
    let parent_attr = parents::parent_attr_of(context, to).map_err(failed)?;
    let mode = mode_until_finished(context, &attr, parent_attr);
    match DirBuilder::new().mode(mode).create(to) {
        Ok(()) => parents::widen(to, false).map(drop).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    if context.watcher.wants_names() {
        context.watcher.copied(from, to, None);
    }
    // Another part can have created something else meanwhile.
    match attr::of_path(to, false) {
        Ok(there) if there.kind == Kind::Directory => Ok(()),
        Ok(_) => Err(not_a_directory(from, to)),
        Err(error) => Err(CopyError::io(Operation::Stat, to.to_owned(), error)),
    }
}

fn not_a_directory(from: &Path, to: &Path) -> CopyError {
    let text =
        format!("cannot overwrite non-directory {} with directory {}", quoted(to), quoted(from));
    CopyError::whole(to, text)
}

fn directory_attr(path: &Path) -> Result<Attr, CopyError> {
    let found = attr::of_path(path, false);
    let found = found.map_err(|e| CopyError::io(Operation::Stat, path.to_owned(), e))?;
    match found.kind {
        Kind::Directory => Ok(found),
        _ => Err(CopyError::cannot(Operation::Copy, path, "it is not a directory any more")),
    }
}

/// Returns the attributes of a directory of the source. Links below the root are refused.
fn source_attr(subtree: &Subtree) -> Result<Attr, CopyError> {
    let mut path = subtree.root.clone();
    let mut attr = directory_attr(&path)?;
    for name in subtree.below.components() {
        path.push(name);
        attr = directory_attr(&path)?;
    }
    Ok(attr)
}

/// Returns the mode with which a directory is created that several parts fill.
fn mode_until_finished(context: &CopyContext<'_>, source: &Attr, above: ParentAttr) -> u32 {
    let rules = &context.rules;
    // The umask does not apply where an ACL is inherited.
    let withheld = if above.has_default_acl { rules.withheld() } else { 0 };
    rules.visible_mode(rules.initial_mode(source) & !withheld) | OWNER_ALL
}

/// Describes a directory of the target that lacks its attributes. Whether it existed before the copy is known
/// only from its mode, and matters only if modes are not preserved.
fn unfinished(context: &CopyContext<'_>, subtree: &Subtree) -> Result<MadeDir, CopyError> {
    let (source, target) = (subtree.source(), subtree.target());
    let attr = source_attr(subtree)?;
    let failed = |e| CopyError::io(Operation::Stat, target.clone(), e);
    let own = attr::of_path(&target, false).map_err(failed)?;
    if own.kind != Kind::Directory {
        return Err(not_a_directory(&source, &target));
    }
    let own = open_copy(subtree).and_then(|dir| attr::of_file(&dir)).map_err(failed)?;
    let rules = &context.rules;
    let parent_attr = parents::parent_attr_of(context, &target).map_err(failed)?;
    let mode = mode_until_finished(context, &attr, parent_attr);
    let found = own.mode & PERMISSIONS;
    let is_as_created = match parent_attr.has_default_acl {
        // The ACL can only have taken permissions away.
        true => found & !mode == 0,
        false => found == (mode & !rules.umask() | OWNER_ALL) & PERMISSIONS,
    };
    // Preserved modes include ACLs, which an old directory can have.
    let is_old = rules.preserve.mode || !is_as_created;
    let modes = DirModes { found: own.mode, withheld: rules.withheld() };
    let owner = Some((own.user, own.group));
    let made = Creation { owner, ..Creation::dir(mode, parent_attr, is_old, modes) };
    Ok(MadeDir { source, target, own: own.identity(), attr, made })
}

/// Opens the copy of a directory. Links below the copy of the root are refused.
fn open_copy(subtree: &Subtree) -> io::Result<Dir> {
    let mut at = Dir::open_path_only(&subtree.copy)?;
    for name in subtree.below.components() {
        at = at.open_child_path_only(&c_name(name.as_os_str().as_bytes())?, false)?;
    }
    Ok(at)
}
