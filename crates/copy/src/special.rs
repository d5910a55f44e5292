//! What has no bytes of its own: symbolic links, pipes, sockets, devices.

use crate::file::Way;
use crate::links::{Done, Ended};
use crate::meta::{Made, On};
use crate::place::with_hidden_name;
use crate::run::Run;
use ioloom_sys::attr::Attr;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use std::ffi::CStr;
use std::io;

/// Copies one, as it is, to where it belongs.
pub(crate) fn copy(run: &Run<'_>, way: &Way<'_>, source: &Attr) -> Ended {
    let mode = run.rules.mode_at_first(source);
    let make_as = |name: &CStr| match source.kind {
        Kind::Symlink => {
            let target = make::read_link(way.from, way.from_name)?;
            make::symlink(&target, way.to, name)
        }
        kind => make::node(way.to, name, kind, mode, source.stands_for),
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
        put(way.to_name)?;
        return Ok(Done::Copied);
    }
    let (hidden, ()) =
        with_hidden_name(way.to_name, make_as).map_err(|e| way.failed_to(what, e))?;
    let guard = Guard { dir: way.to, name: &hidden };
    put(&hidden)?;
    publish(way, &hidden).map_err(|e| way.failed_to("give its name to", e))?;
    std::mem::forget(guard);
    Ok(Done::Copied)
}

fn publish(way: &Way<'_>, hidden: &CStr) -> io::Result<()> {
    make::rename(way.to, hidden, way.to, way.to_name, true)
}

/// Removes what was made unless it got its name.
struct Guard<'a> {
    dir: &'a Dir,
    name: &'a CStr,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let _ = make::remove(self.dir, self.name);
    }
}
