//! The machine with its features tried by use: a ring is made, a file is asked for.

use ioloom_model::MachineFacts;
use ioloom_sys::file::{self, Nowait, OpenHow};
use ioloom_sys::{cache, ring};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Facts of the machine below `root`; features are tried on the file system of `dir`.
pub(crate) fn facts(root: &Path, dir: &Path) -> MachineFacts {
    let sample = Sample::make(dir);
    let with = |f: &dyn Fn(&Path) -> Result<(), String>| match &sample {
        Ok(sample) => f(&sample.0),
        Err(reason) => Err(reason.clone()),
    };
    let ring = || ring::Ring::new(2).map(drop).map_err(|e| format!("making a ring: {e}"));
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

/// Where a directory will be made: itself or the nearest one above it that is there.
pub(crate) fn nearest(dir: &Path) -> PathBuf {
    let found = dir.ancestors().find(|d| !d.as_os_str().is_empty() && d.is_dir());
    found.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// A small file that is removed at the end.
struct Sample(PathBuf);

impl Sample {
    fn make(dir: &Path) -> Result<Self, String> {
        let path = nearest(dir).join(format!(".ioloom-probe-{}", std::process::id()));
        let fail = |e: io::Error| format!("cannot be tried: write {}: {e}", path.display());
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
    File::open(path).map_err(|e| format!("open {}: {e}", path.display()))
}

fn cachestat(path: &Path) -> Result<(), String> {
    match cache::state(open(path)?, 0, 0) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("this kernel or file system does not answer".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

fn nowait(path: &Path) -> Result<(), String> {
    match file::read_nowait_at(open(path)?, &mut [0; 4096], 0) {
        Ok(Nowait::Hit(_) | Nowait::Miss) => Ok(()),
        Ok(Nowait::Unsupported) => Err("this file system does not answer".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

fn direct(path: &Path) -> Result<(), String> {
    match file::direct_alignment(path) {
        Ok(Some(_)) => {}
        Ok(None) => return Err("this file system does not say its alignment".to_owned()),
        Err(e) => return Err(e.to_string()),
    }
    let how = OpenHow { direct: true, nofollow: true };
    file::open(path, how).map(drop).map_err(|e| format!("open: {e}"))
}
