//! Resolves the target of each source.

use crate::context::CopyContext;
use crate::dirs::{MadeDirs, Parent, RootTo, Roots};
use crate::error::CopyError;
use crate::meta::ParentAttr;
use crate::options::{Durable, Existing, Follow, Make};
use crate::parents;
use crate::target::{Target, is_repeated, means_content, means_directory, target_path};
use crate::tree::{into_itself, not_recursive, same_file};
use ioloom_failure::{Operation, quoted, reason};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::canonicalize;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Maps each target, by directory and name, to the source that claimed it.
pub(crate) type ClaimedTargets = HashMap<(PathBuf, CString), PathBuf>;

/// Resolves the target of each source.
pub(crate) struct TargetResolver<'a> {
    pub(crate) context: &'a CopyContext<'a>,
    pub(crate) claimed: &'a mut ClaimedTargets,
    /// Directories created for the paths of all sources.
    pub(crate) made: &'a mut MadeDirs,
}

impl TargetResolver<'_> {
    pub(crate) fn roots(
        mut self,
        sources: &[PathBuf],
        target: &Target,
    ) -> Result<Roots, CopyError> {
        let into = self.is_into(sources, target)?;
        let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
        let mut by_path = HashMap::new();
        let mut roots = Roots::default();
        for source in sources {
            let found = self.target_of(source, path, into);
            let found = found.and_then(|(path, to, kind)| {
                let (dir, name) = split(&to)?;
                let known = by_path.get(&dir).copied();
                let is_usable = |number: &usize| {
                    !roots.parents[*number].unlisted || changes_no_name(&dir, &to, kind)
                };
                let parent = match known.filter(is_usable) {
                    Some(number) => number,
                    None => {
                        let parent = self.parent(&dir, &to, source, kind)?;
                        roots.parents.push(parent);
                        by_path.insert(dir.clone(), roots.parents.len() - 1);
                        roots.parents.len() - 1
                    }
                };
                let is_new = self.claim(source, (dir, name.clone()))?;
                if !is_new && !self.is_linked_to_itself(source, &to) {
                    self.note_repeated(source);
                }
                Ok(is_new.then_some(RootTo { parent, name, path, kind }))
            });
            match found {
                Ok(Some(to)) => {
                    roots.from.push(source.clone());
                    roots.to.push(to);
                }
                Ok(None) => {}
                Err(error) => self.context.failed(error),
            }
        }
        Ok(roots)
    }

    fn note_repeated(&self, source: &Path) {
        let follow = self.context.options.follow != Follow::Never;
        let is_dir = attr::of_path(source, follow).is_ok_and(|a| a.kind == Kind::Directory);
        let what = if is_dir { "directory" } else { "file" };
        let text = format!("warning: source {what} {} specified more than once", quoted(source));
        self.context.watcher.note(&text);
    }

    /// Reports whether a directory would be created with hard links at its own path, which has no effect however often
    /// it is specified.
    fn is_linked_to_itself(&self, source: &Path, to: &Path) -> bool {
        let options = self.context.options;
        let of = |path: &Path, follow| attr::of_path(path, follow).ok();
        let found = of(source, options.follow != Follow::Never).zip(of(to, true));
        options.make == Make::HardLink
            && found.is_some_and(|(from, to)| {
                from.kind == Kind::Directory && from.identity() == to.identity()
            })
    }

    /// Claims a target for a source. Returns false if the same source has already claimed it.
    /// Another source can claim the target of an earlier part, and is then checked when it is
    /// copied.
    fn claim(&mut self, source: &Path, target: (PathBuf, CString)) -> Result<bool, CopyError> {
        let options = self.context.options;
        let earlier = self.claimed.insert(target, source.to_owned());
        // The contents of several directories are merged; those of one that is given twice are there already.
        let counts =
            |earlier: &PathBuf| !means_content(source) || is_repeated(earlier, source, options);
        match earlier.filter(counts) {
            None => Ok(true),
            Some(earlier) if is_repeated(&earlier, source, options) => Ok(false),
            // A resumable copy has a single part.
            Some(_) if options.resume => {
                let why = "another source has the same target";
                Err(CopyError::cannot(Operation::Copy, source, why))
            }
            Some(_) => Ok(true),
        }
    }

    /// Returns true if the target is a directory into which sources are copied.
    fn is_into(&self, sources: &[PathBuf], target: &Target) -> Result<bool, CopyError> {
        let (path, before) = match target {
            Target::As(path) if sources.len() == 1 => {
                let _ = path;
                return Ok(false);
            }
            Target::Into(path) => (path, "target directory"),
            Target::As(path) | Target::Auto(path) => (path, "target"),
        };
        let found = attr::of_path(path, true);
        if found.as_ref().is_ok_and(|attr| attr.kind == Kind::Directory) {
            return Ok(!matches!(target, Target::As(_)));
        }
        let error = found.err().unwrap_or_else(|| Errno::NOTDIR.into());
        if matches!(target, Target::Auto(_)) && sources.len() == 1 {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
                _ if Errno::from_io_error(&error) == Some(Errno::LOOP) => Ok(false),
                // The link itself can be replaced, whatever prevents following it.
                _ if attr::of_path(path, false).is_ok_and(|at| at.kind == Kind::Symlink) => {
                    Ok(false)
                }
                _ => Err(CopyError::io(Operation::Stat, path.clone(), error)),
            };
        }
        let text = format!("{before} {}: {}", quoted(path), reason(&error));
        Err(CopyError::whole(path, text))
    }

    /// Returns the target path of one source, as shown and as used, and its type.
    fn target_of(
        &mut self,
        source: &Path,
        target: &Path,
        into: bool,
    ) -> Result<(PathBuf, PathBuf, Kind), CopyError> {
        let options = self.context.options;
        let to = match options.parents {
            true => parents::make(self.context, source, target, self.made)?,
            false => target_path(source, target, into),
        };
        let attr = attr::of_path(source, options.follow != Follow::Never)
            .map_err(|e| CopyError::io(Operation::Stat, source.to_owned(), e))?;
        if attr.kind == Kind::Directory && !options.recursive {
            // The target does not matter.
            return Err(not_recursive(source));
        }
        if to.as_os_str().is_empty() {
            let operation = self.creates(attr.kind);
            return Err(CopyError::io(operation, to, Errno::NOENT.into()));
        }
        if !into
            && means_directory(target)
            && let Err(e) = attr::of_path(target, true)
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(CopyError::io(Operation::Stat, to, e));
        }
        if attr.kind == Kind::Directory && !into && is_missing_dot(target) {
            return Err(CopyError::io(Operation::CreateDir, to, Errno::NOENT.into()));
        }
        // A file that may be kept is skipped before that is an error, as in GNU cp.
        let may_stay = || match options.existing {
            Existing::Replace => false,
            Existing::Keep => attr::of_path(target, true).is_ok(),
            Existing::Update | Existing::UpdateAsk | Existing::Ask => is_directory_itself(target),
        };
        if attr.kind != Kind::Directory && !into && means_directory(target) && !may_stay() {
            return Err(self.not_a_directory(source, target, attr.kind));
        }
        let elsewhere = || device_of(&to).is_some_and(|device| device != attr.device);
        let apart = || options.one_file_system && elsewhere();
        if attr.kind == Kind::Directory && !apart() {
            self.refuse_into_itself(source, &attr, &to)?;
        }
        // A link to the directory into which the contents are copied is followed.
        let follows = into && means_content(source) && !options.parents;
        let used = match follows {
            true => self.through_link(target.to_owned(), &attr, true),
            false => self.through_link(to.clone(), &attr, false),
        };
        Ok((to, used, attr.kind))
    }

    /// Refuses to copy a directory into itself, which would recurse forever, or onto itself, unless that has no effect:
    /// the walk handles it then.
    fn refuse_into_itself(&self, source: &Path, attr: &Attr, to: &Path) -> Result<(), CopyError> {
        // A bind mount has another path, but the same identity.
        if attr::of_path(to, true).is_ok_and(|there| there.identity() == attr.identity()) {
            let options = self.context.options;
            let is_allowed = options.make == Make::HardLink || options.existing == Existing::Keep;
            return if is_allowed { Ok(()) } else { Err(same_file(source, to)) };
        }
        let Ok(source_real) = canonicalize(source) else { return Ok(()) };
        let to_real = canonicalize(to).or_else(|e| match (to.parent(), to.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                canonicalize(parent).map(|parent| parent.join(name))
            }
            _ => Err(e),
        });
        match to_real {
            Ok(real) if real.starts_with(&source_real) || contains(source, attr, &real) => {
                Err(into_itself(source, to))
            }
            _ => Ok(()),
        }
    }

    /// A link to a directory with a slash after it is that directory, and so is any with `follows`.
    fn through_link(&self, to: PathBuf, source: &Attr, follows: bool) -> PathBuf {
        let follows = follows || to.as_os_str().as_bytes().ends_with(b"/");
        if follows && source.kind == Kind::Directory && to.is_dir() {
            return canonicalize(&to).unwrap_or(to);
        }
        to
    }

    /// Returns the operation that creates the target of a source.
    fn creates(&self, kind: Kind) -> Operation {
        match (kind, self.context.options.make) {
            (Kind::Directory, _) => Operation::CreateDir,
            (_, Make::HardLink) => Operation::HardLink,
            (Kind::Symlink, _) | (_, Make::Symlink) => Operation::Symlink,
            _ => Operation::Create,
        }
    }

    /// Opens the directory of a target, or fails as creating the target there would.
    fn parent(
        &self,
        path: &Path,
        to: &Path,
        source: &Path,
        kind: Kind,
    ) -> Result<Parent, CopyError> {
        let operation = self.creates(kind);
        let links = kind != Kind::Directory && self.context.options.make != Make::Copy;
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound if links => {
                CopyError::io(operation, to.to_owned(), e).and(source.to_owned())
            }
            io::ErrorKind::NotFound => self
                .not_readable(source, kind)
                .unwrap_or_else(|| CopyError::io(operation, to.to_owned(), e)),
            io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => {
                CopyError::io(Operation::Stat, to.to_owned(), e)
            }
            _ if Errno::from_io_error(&e) == Some(Errno::LOOP) => {
                match (self.context.options.force, operation) {
                    (false, _) => CopyError::io(Operation::Stat, to.to_owned(), e),
                    (true, Operation::Create) => {
                        let operation = match kind {
                            Kind::Fifo => Operation::MakeFifo,
                            Kind::Regular => Operation::Remove,
                            _ => Operation::MakeNode,
                        };
                        CopyError::io(operation, to.to_owned(), e)
                    }
                    (true, _) if links => {
                        CopyError::io(operation, to.to_owned(), e).and(source.to_owned())
                    }
                    (true, _) => CopyError::io(operation, to.to_owned(), e),
                }
            }
            _ => CopyError::io(operation, to.to_owned(), e),
        };
        // Syncing needs a descriptor that is open for reading. Without new names, it is not needed.
        let waits = self.context.options.durable != Durable::None;
        let opened = if waits { Dir::open(path) } else { Dir::open_path_only(path) };
        let (dir, unlisted) = match opened {
            Err(e)
                if waits
                    && e.kind() == io::ErrorKind::PermissionDenied
                    && changes_no_name(path, to, kind) =>
            {
                (Dir::open_path_only(path).map_err(failed)?, true)
            }
            opened => (opened.map_err(failed)?, false),
        };
        let attr = attr::of_file(&dir).map_err(failed)?;
        let has_default_acl = self.context.rules.has_default_acl(&dir);
        let is_remote = attr::file_system(&dir).is_ok_and(|system| system.remote);
        let Attr { device, group, append_only, .. } = attr;
        Ok(Parent {
            path: path.to_owned(),
            dir,
            unlisted,
            parent_attr: ParentAttr { device, group, has_default_acl, is_remote, append_only },
            swept: AtomicBool::new(false),
        })
    }

    /// Returns the error for a file whose target can only be a directory.
    fn not_a_directory(&self, source: &Path, target: &Path, kind: Kind) -> CopyError {
        if attr::of_path(target, true).is_ok() {
            let target_quoted = quoted(target);
            let text = format!("cannot overwrite directory {target_quoted} with non-directory");
            return CopyError::whole(target, text);
        }
        if let Some(error) = self.not_readable(source, kind) {
            return error;
        }
        let slash = target.as_os_str().as_bytes().ends_with(b"/");
        let error = if slash { Errno::NOTDIR } else { Errno::NOENT };
        CopyError::io(Operation::Create, target.to_owned(), error.into())
    }

    /// Returns the error of a source that cannot be read, which GNU cp opens before it creates the target.
    fn not_readable(&self, source: &Path, kind: Kind) -> Option<CopyError> {
        let options = self.context.options;
        let is_read =
            kind == Kind::Regular && options.make == Make::Copy && !options.attributes_only;
        let error = is_read.then(|| std::fs::File::open(source).err()).flatten()?;
        Some(CopyError::io(Operation::Open, source.to_owned(), error))
    }
}

/// Returns true if a directory is copied into one that exists, or a file into one that is written in place because this
/// user cannot change the names in its directory `above`.
fn changes_no_name(above: &Path, to: &Path, source: Kind) -> bool {
    let exists = |follow| attr::of_path(to, follow).is_ok_and(|found| found.kind == source);
    let is_fixed = |above: Dir| !attr::may_write_at(&above, c".");
    match source {
        Kind::Directory => exists(false),
        Kind::Regular => exists(true) && Dir::open_path_only(above).is_ok_and(is_fixed),
        _ => false,
    }
}

/// Returns true if the directory `source`, which has the attributes `attr`, is above the absolute path `to`, which can
/// lead through a bind mount. The search ends at the root of the mount: a bind mount of a directory need not include
/// what is mounted below. The source can also have another mount where the target is.
fn contains(source: &Path, attr: &Attr, to: &Path) -> bool {
    let mut nearest = None;
    for above in to.ancestors() {
        // The target may not exist yet.
        let Ok(found) = attr::of_path(above, true) else { continue };
        let (at, identity) = *nearest.get_or_insert((above, found.identity()));
        if found.identity() == attr.identity() {
            let inside = at.strip_prefix(above).map(|below| source.join(below));
            let seen = inside.ok().and_then(|inside| attr::of_path(&inside, true).ok());
            return seen.is_some_and(|seen| seen.identity() == identity);
        }
        if found.mount_root || found.device != attr.device {
            return false;
        }
    }
    false
}

/// Returns true if a path is that of a directory, not of a link to one, whatever slashes are at its end.
fn is_directory_itself(path: &Path) -> bool {
    let found = attr::of_path(path.components().as_path(), false);
    found.is_ok_and(|found| found.kind == Kind::Directory)
}

/// Returns true if a target ends with `/.` but does not exist: it cannot be created.
fn is_missing_dot(target: &Path) -> bool {
    target.as_os_str().as_bytes().ends_with(b"/.") && attr::of_path(target, true).is_err()
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
