//! Decides what happens to a file that exists at the target.
//!
//! The rules are those of GNU cp, so that `cp` can be an alias, with one difference: a regular file
//! that can be replaced without changing anything but its content is replaced atomically. All other
//! files are written in place: through symbolic links, into files with several links, pipes and
//! devices, mount points, files of other users, and files with other flags than a new one would have. A file
//! that this copy created is never overwritten by another source, nor is anything written through a
//! link that it created. See decision 033.
//!
//! Cost: one statx, and one more if the target is a symbolic link.

use crate::backup;
use crate::context::CopyContext;
use crate::error::CopyError;
use crate::link_text::link_text;
use crate::newer;
use crate::options::{Existing, Follow, Make, Overwrite};
use crate::route::{Route, TargetState};
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::Kind;
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// What to do with one entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Placement {
    /// Copy it.
    Copy(TargetState),
    /// Keep the existing target.
    Keep,
    /// Keep the existing target because it is newer, unless a link to it belongs in its place.
    KeepNewer,
    /// The target is already what the copy would create.
    Done,
}

/// The target of one entry: itself, and what it leads to.
struct Target<'a> {
    context: &'a CopyContext<'a>,
    route: &'a Route<'a>,
    source: &'a Attr,
    /// Whether content is copied, rather than a link or special file created.
    as_file: bool,
    /// The target itself.
    there: Attr,
    /// The target, or the file it leads to if it is a symbolic link that will be followed.
    end: Attr,
}

/// Inspects the target and decides what happens to it. `as_file`: whether the source is read.
pub(crate) fn decide(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Attr,
    as_file: bool,
) -> Result<Placement, CopyError> {
    if route.hidden {
        return Ok(Placement::Copy(TargetState::Absent));
    }
    let there = match attr::of_name(route.to, route.to_name, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok(Placement::Copy(TargetState::Absent));
        }
        result => result.map_err(|e| route.failed_to(Operation::Stat, e))?,
    };
    let options = context.options;
    let itself = !as_file
        || options.make != Make::Copy
        || options.backup.is_some()
        || options.remove_destination;
    let mut end = there;
    if there.kind == Kind::Symlink && !itself {
        let found = attr::of_name(route.to, route.to_name, true);
        let leads_nowhere = found.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        if route.named || !leads_nowhere || options.through_dangling {
            just_created(context, route, &there)?;
        }
        match found {
            Ok(found) => end = found,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return dangling(context, route),
            Err(e) if Errno::from_io_error(&e) == Some(Errno::LOOP) && options.force => {
                if route.parent_attr.append_only {
                    return Err(route.failed_to(Operation::Remove, Errno::PERM.into()));
                }
                return Ok(Placement::Copy(TargetState::Fresh));
            }
            Err(e) => return Err(route.failed_to(Operation::Stat, e)),
        }
    }
    Target { context, route, source, as_file, there, end }.decide()
}

/// Refuses to write through a symbolic link that this copy created. Several entries can have one target also with a
/// single source: by a directory that is mounted twice, or names that differ only in case.
fn just_created(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    there: &Attr,
) -> Result<(), CopyError> {
    if there.kind != Kind::Symlink || !context.created_link(there, route.to) {
        return Ok(());
    }
    let (from, to) = (route.paths)();
    let text =
        format!("will not copy {} through just-created symlink {}", quoted(&from), quoted(&to));
    Err(CopyError::whole(&to, text))
}

/// Returns true if GNU cp removes, and reports, the existing file at the target before it creates a link to the
/// source. Otherwise it replaces the file without a message. Costs one statx.
pub(crate) fn is_removed_for_link(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Attr,
) -> bool {
    let found = attr::of_name(route.to, route.to_name, false);
    found.is_ok_and(|there| {
        Target { context, route, source, as_file: false, there, end: there }.is_removed_first()
    })
}

fn dangling(context: &CopyContext<'_>, route: &Route<'_>) -> Result<Placement, CopyError> {
    if context.options.through_dangling {
        return Ok(Placement::Copy(TargetState::Dangling));
    }
    let (_, to) = (route.paths)();
    let text = format!("not writing through dangling symlink {}", quoted(&to));
    Err(CopyError::whole(&to, text))
}

impl Target<'_> {
    fn to(&self) -> std::path::PathBuf {
        (self.route.paths)().1
    }

    fn whole<T>(&self, text: impl FnOnce(&Path, &Path) -> String) -> Result<T, CopyError> {
        let (from, to) = (self.route.paths)();
        Err(CopyError::whole(&to, text(&from, &to)))
    }

    fn decide(&self) -> Result<Placement, CopyError> {
        let (options, end) = (self.context.options, &self.end);
        let mut done = false;
        if options.existing != Existing::Keep {
            match self.same_file() {
                Sameness::Different => {}
                Sameness::Done => done = true,
                Sameness::Same => {
                    return self.whole(|from, to| {
                        format!("{} and {} are the same file", quoted(from), quoted(to))
                    });
                }
            }
        }
        match options.existing {
            Existing::Keep => return Ok(Placement::Keep),
            Existing::Update | Existing::UpdateAsk if !self.is_newer() => {
                return Ok(Placement::KeepNewer);
            }
            Existing::Ask | Existing::UpdateAsk
                if !self.context.watcher.may_replace(&self.to(), &self.end) =>
            {
                return Ok(Placement::Keep);
            }
            _ if done => return Ok(Placement::Done),
            _ => {}
        }
        if end.kind == Kind::Directory {
            return self.whole(|_, to| {
                format!("cannot overwrite directory {} with non-directory", quoted(to))
            });
        }
        self.not_just_created()?;
        self.may_remove(self.choose()?).map(Placement::Copy)
    }

    fn is_newer(&self) -> bool {
        let cuts = self.context.options.preserve.times;
        newer::is_newer(self.source.modified, &self.end, cuts, || {
            newer::has_long_steps(self.route.to, self.route.to_name, &self.there)
        })
    }

    /// Returns true if a symbolic link at this place would be copied as a link, not followed.
    fn keeps_links(&self) -> bool {
        match self.context.options.follow {
            Follow::Never => true,
            Follow::Roots => !self.route.named && self.context.options.recursive,
            Follow::Always => false,
        }
    }

    /// Refuses to overwrite what an earlier source left there.
    fn not_just_created(&self) -> Result<(), CopyError> {
        let numbered = |backup: &crate::Backup| backup.names == crate::BackupNames::Numbered;
        if self.context.options.backup.as_ref().is_some_and(numbered) {
            return Ok(());
        }
        let name = self.route.to_name;
        if !self.route.named || !self.context.created_file(&self.end, self.route.to, name) {
            return Ok(());
        }
        self.whole(|from, to| {
            format!("will not overwrite just-created {} with {}", quoted(to), quoted(from))
        })
    }

    /// Chooses how an existing file that is not a directory is overwritten.
    fn choose(&self) -> Result<TargetState, CopyError> {
        let options = self.context.options;
        if options.backup.is_some() {
            self.backup_spares_source()?;
            return Ok(TargetState::Fresh);
        }
        if self.is_removed_first() {
            return Ok(TargetState::Fresh);
        }
        let is_link = self.source.kind == Kind::Symlink && !self.as_file;
        // As in GNU cp, a yes also permits to replace the file by a hard link.
        let is_asked = matches!(options.existing, Existing::Ask | Existing::UpdateAsk)
            && options.make == Make::HardLink;
        if ((options.make != Make::Copy || is_link) && options.force) || is_asked {
            return Ok(TargetState::Fresh);
        }
        if options.make != Make::Copy || !self.as_file {
            return Err(self.not_made(Errno::EXIST));
        }
        self.overwrite()
    }

    /// Returns true if the old file is removed before anything is created, as in GNU cp.
    fn is_removed_first(&self) -> bool {
        let options = self.context.options;
        let loses_links = options.preserve.links && self.end.links > 1;
        let special = self.keeps_links() && self.source.kind != Kind::Regular;
        options.remove_destination || (!options.attributes_only && (loses_links || special))
    }

    /// Returns the error of a link or special file that cannot be created.
    fn not_made(&self, errno: Errno) -> CopyError {
        let make = self.context.options.make;
        if make == Make::Symlink
            && let Err(error) = link_text(self.route)
        {
            return error;
        }
        let (from, to) = (self.route.paths)();
        let operation = match (make, self.source.kind) {
            (Make::HardLink, _) => Operation::HardLink,
            (Make::Symlink, _) | (_, Kind::Symlink) => Operation::Symlink,
            (_, Kind::Fifo) => Operation::MakeFifo,
            _ => Operation::MakeNode,
        };
        let error = CopyError::io(operation, to, errno.into());
        if make == Make::Copy { error } else { error.and(from) }
    }

    /// Refuses to remove or replace a name that not even root can change: the new file would remain
    /// under its hidden name in an append-only directory.
    fn may_remove(&self, state: TargetState) -> Result<TargetState, CopyError> {
        let options = self.context.options;
        let stays = self.route.parent_attr.append_only || self.there.stays();
        let denied = |operation| Err(self.route.failed_to(operation, Errno::PERM.into()));
        match state {
            _ if !stays => Ok(state),
            TargetState::Replace(_) => denied(Operation::Replace),
            TargetState::Fresh if options.backup.is_some() => denied(Operation::Backup),
            TargetState::Fresh if self.is_removed_first() => denied(Operation::Remove),
            TargetState::Fresh if options.make != Make::Copy || !self.as_file => {
                Err(self.not_made(Errno::PERM))
            }
            TargetState::Fresh => denied(Operation::Remove),
            _ => Ok(state),
        }
    }

    /// Chooses how the content of an existing file is overwritten.
    fn overwrite(&self) -> Result<TargetState, CopyError> {
        let (options, rules, there, end) =
            (self.context.options, &self.context.rules, self.there, self.end);
        let in_place = Ok(TargetState::InPlace(end));
        if options.attributes_only || end.kind != Kind::Regular {
            return in_place;
        }
        match options.overwrite {
            Overwrite::InPlace => return in_place,
            // A link has no permissions that a file could take over. What a pipe or device has can be read only once,
            // so it is written through the link.
            Overwrite::Replace if there.kind == Kind::Symlink => {
                let is_stream = self.source.kind != Kind::Regular;
                return if is_stream { in_place } else { Ok(TargetState::Fresh) };
            }
            Overwrite::Replace => return Ok(TargetState::Replace(there)),
            Overwrite::Auto => {}
        }
        if there.stays() {
            return if options.force { Ok(TargetState::Fresh) } else { in_place };
        }
        if self.route.parent_attr.append_only {
            return in_place;
        }
        let is_plain = there.kind == Kind::Regular && there.links == 1 && !there.mount_root;
        if !is_plain || !rules.may_own(&there) {
            return in_place;
        }
        if attr::may_write_at(self.route.to, self.route.to_name) {
            return Ok(TargetState::Replace(there));
        }
        // As in GNU cp, a file that this user may not write is replaced only if asked for.
        if options.force {
            return Ok(TargetState::Fresh);
        }
        in_place
    }

    /// Refuses a backup whose name is that of the source.
    fn backup_spares_source(&self) -> Result<(), CopyError> {
        if !backup::is_source(self.context, self.route, self.source) {
            return Ok(());
        }
        self.whole(|from, to| {
            let (from, to) = (quoted(from), quoted(to));
            format!("backing up {to} might destroy source;  {from} not copied")
        })
    }

    /// Compares source and target, by the rules of GNU cp for symbolic links and options that
    /// remove the target first.
    fn same_file(&self) -> Sameness {
        let options = self.context.options;
        let same = self.source.identity() == self.end.identity();
        let links_only = options.make == Make::HardLink;
        if same && links_only {
            return Sameness::Done;
        }
        let keeps_links = self.keeps_links();
        let (from, to) = if keeps_links {
            if self.source.kind == Kind::Symlink && self.end.kind == Kind::Symlink {
                return self.two_links(same);
            }
            (*self.source, self.end)
        } else {
            if !same {
                return Sameness::Different;
            }
            let itself = attr::of_name(self.route.from, self.route.from_name, false);
            let Ok(itself) = itself else { return Sameness::Different };
            let both_links = itself.kind == Kind::Symlink && self.there.kind == Kind::Symlink;
            if both_links && options.remove_destination {
                return Sameness::Different;
            }
            (itself, self.there)
        };
        let same_itself = from.identity() == to.identity();
        let (from_link, to_link) = (from.kind == Kind::Symlink, to.kind == Kind::Symlink);
        if options.backup.is_some() {
            let hides_source = !keeps_links && from_link && !to_link;
            return Sameness::of(if same_itself { self.is_one_name() } else { hides_source });
        }
        if options.remove_destination
            && (to_link || (same_itself && to.links > 1 && !self.is_one_name()))
        {
            return Sameness::Different;
        }
        if !from_link && !to_link && !same_itself {
            return Sameness::Different;
        }
        if options.make == Make::Symlink && to_link {
            return Sameness::Different;
        }
        if keeps_links { self.ends_are_same(&from, &to) } else { Sameness::Same }
    }

    /// Two symbolic links that are copied as links.
    fn two_links(&self, same: bool) -> Sameness {
        if self.is_one_name() {
            return Sameness::Same;
        }
        // Two names of one link: the target is already a copy.
        let done = same && self.context.options.backup.is_none();
        if done { Sameness::Done } else { Sameness::Different }
    }

    /// One of the two is a symbolic link that is copied as a link: compares where they lead.
    fn ends_are_same(&self, from: &Attr, to: &Attr) -> Sameness {
        let route = self.route;
        let end = |attr: &Attr, dir, name| match attr.kind {
            Kind::Symlink => attr::of_name(dir, name, true).ok(),
            _ => Some(*attr),
        };
        let from = end(from, route.from, route.from_name);
        let ends = from.zip(end(to, route.to, route.to_name));
        if ends.is_none_or(|(from, to)| from.identity() != to.identity()) {
            return Sameness::Different;
        }
        if self.context.options.make == Make::HardLink {
            let done = to.kind != Kind::Symlink;
            return if done { Sameness::Done } else { Sameness::Different };
        }
        Sameness::Same
    }

    /// Returns true if source and target are the same name in the same directory.
    fn is_one_name(&self) -> bool {
        let route = self.route;
        let identity = |dir| attr::of_file(dir).map(|attr| attr.identity()).ok();
        route.from_name == route.to_name
            && identity(route.from).is_some_and(|from| identity(route.to) == Some(from))
    }
}

/// How source and target relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sameness {
    /// Copying does not destroy the source.
    Different,
    /// The target already is what would be created.
    Done,
    /// Copying would destroy the source.
    Same,
}

impl Sameness {
    fn of(same: bool) -> Self {
        if same { Self::Same } else { Self::Different }
    }
}
