//! Machine facts, with I/O features probed by using them.

use ioloom_failure::{Operation, PathError, reason};
use ioloom_model::MachineFacts;
use ioloom_sys::file::{self, Nowait, OpenHow};
use ioloom_sys::make::{private_file, random_number};
use ioloom_sys::{cache, ring};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Returns the machine facts from `root`; features are probed on the file system of `dir`.
pub(crate) fn facts(root: &Path, dir: &Path) -> MachineFacts {
    // Features of a captured tree are not probed.
    let sample = match root == Path::new("/") {
        true => Sample::make(dir),
        false => Err("not probed".to_owned()),
    };
    let with = |f: &dyn Fn(&Path) -> Result<(), String>| match &sample {
        Ok(sample) => f(&sample.0),
        Err(reason) => Err(reason.clone()),
    };
    let ring = || ring::Ring::new(2).map(drop).map_err(|error| no_ring(&error));
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

/// Returns why no ring can be created, and what usually causes that.
fn no_ring(error: &io::Error) -> String {
    let cause = match error.kind() {
        // The kernel does not know a flag.
        io::ErrorKind::InvalidInput => "; Linux 6.1 or newer is needed",
        io::ErrorKind::PermissionDenied => {
            "; kernel.io_uring_disabled or a seccomp filter may deny it"
        }
        io::ErrorKind::Unsupported => "; the kernel lacks it, or a seccomp filter denies it",
        _ => "",
    };
    format!("cannot create a ring: {}{cause}", reason(error))
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
        // Other users may be able to create links in the directory.
        let path = nearest(dir).join(format!(".ioloom-probe-{:016x}", random_number()));
        let fail = |operation| {
            let path = path.clone();
            move |e| format!("not probed: {}", PathError::new(operation, path, e))
        };
        let file = private_file(&path).map_err(fail(Operation::Create))?;
        let sample = Self(path.clone());
        File::from(file).write_all(&[7; 8192]).map_err(fail(Operation::Write))?;
        Ok(sample)
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
        Ok(None) => Err("not supported by this file system, or by Linux before 6.5".to_owned()),
        Err(e) => Err(reason(&e)),
    }
}

fn nowait(path: &Path) -> Result<(), String> {
    match file::read_nowait_at(open(path)?, &mut [0; 4096], 0) {
        Ok(Nowait::Hit(_) | Nowait::Miss) => Ok(()),
        Ok(Nowait::Unsupported) => Err("not supported by this file system".to_owned()),
        Ok(Nowait::Refused) => Err("refused for this file or process".to_owned()),
        Err(e) => Err(reason(&e)),
    }
}

fn direct(path: &Path) -> Result<(), String> {
    match file::direct_alignment(path) {
        Ok(Some(_)) => {}
        // Both leave the same bit of the answer unset.
        Ok(None) => {
            let why = "this file system, or a kernel before Linux 6.1, reports no alignment";
            return Err(why.to_owned());
        }
        Err(e) => return Err(reason(&e)),
    }
    let how = OpenHow { direct: true, nofollow: true };
    file::open(path, how)
        .map(drop)
        .map_err(|e| format!("cannot open with O_DIRECT: {}", reason(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_link_with_a_predictable_name_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let target = temp.path().join("target");
        std::fs::write(&target, "precious").unwrap();
        let link = temp.path().join(format!(".ioloom-probe-{}", std::process::id()));
        symlink(&target, &link).unwrap();
        let sample = Sample::make(temp.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
        let mode = std::fs::metadata(&sample.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let path = sample.0.clone();
        drop(sample);
        assert!(!path.exists() && link.is_symlink());
    }

    #[test]
    fn the_usual_cause_of_a_missing_ring_is_named() {
        for (code, part) in
            [(22, "6.1 or newer"), (1, "io_uring_disabled"), (38, "seccomp"), (24, "Too many open")]
        {
            let text = no_ring(&io::Error::from_raw_os_error(code));
            assert!(text.contains(part), "{code}: {text}");
        }
    }

    #[test]
    fn facts_of_another_root_write_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        File::open(temp.path()).unwrap().set_modified(time).unwrap();
        let modified = || std::fs::metadata(temp.path()).unwrap().modified().unwrap();
        facts(temp.path(), temp.path());
        assert_eq!(modified(), time, "a file was created");
        facts(Path::new("/"), temp.path());
        assert_ne!(modified(), time);
    }
}
