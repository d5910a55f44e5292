//! Names of a file with several hard links whose own target cannot be written.
//!
//! GNU cp copies a file under the first name that it finds, into whatever is there, and replaces
//! what is at the others by links. The order of the names decides, so a target that must not be
//! written, such as a dangling link, makes it fail only if its name comes first. This copy has no
//! order: such a name waits for the end of the walk, and becomes a link if any other name of its
//! file was copied. Otherwise its error is reported. Memory: about 200 bytes for each such name.

use super::Worker;
use super::location::Location;
use crate::dirs::CopiedName;
use crate::error::CopyError;
use crate::links::{Deferred, EntryResult, FirstName, Outcome};
use crate::options::{Follow, Make};
use crate::route::{Route, TargetState};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::Kind;
use std::ffi::CString;
use std::io;

impl Worker<'_> {
    /// Lets a name that failed wait, if another name of its file may be copied.
    pub(super) fn defer(
        &self,
        route: &Route<'_>,
        at: Location<'_>,
        kind: Kind,
        error: CopyError,
    ) -> EntryResult {
        let options = self.context.options;
        let is_at_target = error.path == (route.paths)().1;
        let may_be_linked = options.preserve.links
            && options.make == Make::Copy
            && !route.hidden
            && !route.parent_attr.append_only
            && !error.is_out_of_space()
            && !error.is_cancelled();
        if !may_be_linked || !is_at_target {
            return Err(error);
        }
        let Ok(attr) = attr::of_name(route.from, route.from_name, route.follow) else {
            return Err(error);
        };
        // What an earlier source left there is not replaced by a link either.
        let is_created =
            |there: Attr| route.named && self.context.created_file(&there, route.to, route.to_name);
        if attr::of_name(route.to, route.to_name, false).is_ok_and(is_created) {
            return Err(error);
        }
        let there = attr::of_name(route.to, route.to_name, true);
        let is_dir = there.is_ok_and(|there| there.kind == Kind::Directory);
        if attr.kind != kind || attr.links < 2 || is_dir {
            return Err(error);
        }
        let (at, identity) = (at.copied_name(route.from_name), attr.identity());
        self.context.links.defer(Deferred { at, kind, identity, error })
    }

    /// Links the names that waited, or reports their errors.
    pub(crate) fn finish_deferred(&mut self) {
        for Deferred { at, kind, identity, error } in self.context.links.take_deferred() {
            let name = match &at {
                CopiedName::In(_, name) => name.to_vec(),
                CopiedName::Root(root) => {
                    let name = self.roots.from[*root].file_name();
                    name.map_or_else(Vec::new, |name| name.as_encoded_bytes().to_vec())
                }
            };
            let location = match &at {
                CopiedName::In(dir, _) => Location::In(dir.get()),
                CopiedName::Root(root) => Location::Root(*root, &self.roots.from[*root]),
            };
            let copied = self.context.links.claim(identity);
            if copied.is_none() {
                self.context.links.release(identity, None);
            }
            let linked = copied.map(|copied| self.link_deferred((location, kind), &name, &copied));
            let ended = match linked {
                Some(Ok(linked)) => Ok(linked),
                _ => Err(error),
            };
            let roots = self.roots;
            self.done(kind, ended, &|| location.paths(roots, &name));
        }
    }

    /// Links one name; restores the attributes of its directory, and syncs that if requested.
    fn link_deferred(
        &mut self,
        (at, kind): (Location<'_>, Kind),
        name: &[u8],
        copied: &FirstName<CopiedName>,
    ) -> io::Result<Outcome> {
        let roots = self.roots;
        let paths = || at.paths(roots, name);
        let from_name = CString::new(name)?;
        let pair;
        let from;
        let backup = self.context.options.backup.as_ref();
        let route = match at {
            Location::In(dir) => {
                pair = self.open_or_take(dir)?;
                Route {
                    from: &pair.from,
                    from_name: &from_name,
                    follow: self.context.options.follow == Follow::Always,
                    to: &pair.to,
                    to_name: &from_name,
                    hidden: false,
                    named: false,
                    parent_attr: dir.data().parent_attr,
                    paths: &paths,
                }
            }
            Location::Root(root, _) => {
                from = self.above(root)?;
                let to = &roots.to[root];
                let parent = &roots.parents[to.parent];
                Route {
                    from: &from,
                    from_name: &from_name,
                    follow: self.context.options.follow != Follow::Never,
                    to: &parent.dir,
                    to_name: &to.name,
                    hidden: false,
                    named: true,
                    parent_attr: parent.parent_attr,
                    paths: &paths,
                }
            }
        };
        let linked = self.link(&route, copied, &TargetState::Fresh, backup);
        if linked.is_ok() && (route.named || kind == Kind::Symlink) {
            self.context.created(&route, kind);
        }
        // Also an attempt that fails changes its times. The sync at its end did not cover the link.
        if let Location::In(dir) = at {
            let ended = [self.preserve_attributes(dir), self.sync(dir)];
            for error in ended.into_iter().filter_map(Result::err) {
                self.context.failed(error);
            }
        }
        linked.map(Outcome::Linked)
    }
}
