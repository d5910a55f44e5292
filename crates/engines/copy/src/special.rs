//! What has no bytes of its own: symbolic links, pipes, sockets, devices.

use crate::file::{There, Way};
use crate::links::{Done, Ended};
use crate::meta::{Made, On};
use crate::place::with_hidden_name;
use crate::run::Run;
use ioloom_sys::attr::Attr;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use std::ffi::CStr;

/// Copies one, as it is, to where it belongs. What came to that place since `there` was looked at is
/// not replaced.
pub(crate) fn copy(run: &Run<'_>, way: &Way<'_>, source: &Attr, there: &There) -> Ended {
    let mode = run.rules.mode_at_first(source);
    let make_as = |name: &CStr| match source.kind {
        Kind::Symlink => {
            let target = make::read_link(way.from, way.from_name)?;
            make::symlink(&target, way.to, name)
        }
        kind => make::node(way.to, name, kind, mode, source.rdev),
    };
    let what = match source.kind {
        Kind::Symlink => "make the symbolic link",
        Kind::Fifo => "make the pipe",
        Kind::Socket => "make the socket",
        _ => "make the device",
    };
    let made = Made {
        mode,
        home: way.home,
        is_link: source.kind == Kind::Symlink,
        is_dir: false,
        is_old: false,
    };
    let put = |name: &CStr| {
        let from = On::Name(way.from, way.from_name);
        let on = On::Name(way.to, name);
        run.rules.put(source, from, on, made).map_err(|(what, e)| way.failed_to(what, e))
    };
    if way.hidden {
        make_as(way.to_name).map_err(|e| way.failed_to(what, e))?;
        let guard = Guard { dir: way.to, name: way.to_name };
        put(way.to_name)?;
        std::mem::forget(guard);
        return Ok(Done::Copied(0));
    }
    let (hidden, ()) =
        with_hidden_name(way.to_name, make_as).map_err(|e| way.failed_to(what, e))?;
    let guard = Guard { dir: way.to, name: &hidden };
    put(&hidden)?;
    let replace = matches!(there, There::Old(_));
    make::rename(way.to, &hidden, way.to, way.to_name, replace)
        .map_err(|e| way.failed_to("give its name to", e))?;
    std::mem::forget(guard);
    Ok(Done::Copied(0))
}

/// Removes what was made unless it becomes whole.
struct Guard<'a> {
    dir: &'a Dir,
    name: &'a CStr,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let _ = make::remove(self.dir, self.name);
    }
}
