//! Machine facts, with I/O features probed by using them.

use ioloom_failure::{Operation, PathError, reason};
use ioloom_model::MachineFacts;
use ioloom_sys::file::{self, Nowait, OpenHow};
use ioloom_sys::{cache, ring};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the machine facts from `root`; features are probed on the file system of `dir`.
pub(crate) fn facts(root: &Path, dir: &Path) -> MachineFacts {
    let sample = Sample::make(dir);
    let with = |f: &dyn Fn(&Path) -> Result<(), String>| match &sample {
        Ok(sample) => f(&sample.0),
        Err(reason) => Err(reason.clone()),
    };
    let ring = || {
        ring::Ring::new(2).map(drop).map_err(|e| format!("cannot create a ring: {}", reason(&e)))
    };
    let cachestat = || with(&cachestat);
    let nowait = || with(&nowait);
    let direct = || with(&direct);
    ioloom_machine::facts(
        root,
        &[
            ("io_uring", &ring),
            ("cachestat", &cachestat),
            ("RWF_NOWAIT", &nowait),
            ("O_DIRECT", &direct),
        ],
    )
}

/// Returns `dir` or its nearest existing ancestor.
pub(crate) fn nearest(dir: &Path) -> PathBuf {
    let found = dir.ancestors().find(|d| !d.as_os_str().is_empty() && d.is_dir());
    found.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// A small file that is removed on drop.
struct Sample(PathBuf);

impl Sample {
    fn make(dir: &Path) -> Result<Self, String> {
        let path = nearest(dir).join(format!(".ioloom-probe-{}", std::process::id()));
        let fail =
            |e: io::Error| format!("not probed: {}", PathError::new(Operation::Write, &path, e));
        std::fs::write(&path, [7; 8192]).map_err(fail)?;
        Ok(Self(path))
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(path: &Path) -> Result<File, String> {
    File::open(path).map_err(|e| PathError::new(Operation::Open, path, e).to_string())
}

fn cachestat(path: &Path) -> Result<(), String> {
    match cache::state(open(path)?, 0, 0) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("not supported by this kernel or file system".to_owned()),
        Err(e) => Err(reason(&e)),
    }
}

fn nowait(path: &Path) -> Result<(), String> {
    match file::read_nowait_at(open(path)?, &mut [0; 4096], 0) {
        Ok(Nowait::Hit(_) | Nowait::Miss) => Ok(()),
        Ok(Nowait::Unsupported) => Err("not supported by this file system".to_owned()),
        Err(e) => Err(reason(&e)),
    }
}

fn direct(path: &Path) -> Result<(), String> {
    match file::direct_alignment(path) {
        Ok(Some(_)) => {}
        Ok(None) => return Err("this file system does not report its alignment".to_owned()),
        Err(e) => return Err(reason(&e)),
    }
    let how = OpenHow { direct: true, nofollow: true };
    file::open(path, how)
        .map(drop)
        .map_err(|e| format!("cannot open with O_DIRECT: {}", reason(&e)))
}
