//! Grants an unprivileged user access to the kernel's scheduler and device events.
//!
//! Root creates an instance, makes the user the owner of its switches and of the few recorded
//! events, and allows all users to traverse, but not list, the directories above it. The user can
//! then see names, IDs and switches of all processes on the machine and the requests to its
//! devices, but can change only the instance. [`revoke`] removes the instance and, with the last
//! one, restores everything above it. The changes are recorded in [`GRANT_RECORD`], which
//! disappears on reboot, like the changes themselves.

use super::event::Kind;
use super::names::{USER_PREFIX, USUAL_PATH, instance_of};
use ioloom_failure::{quoted, reason};
use ioloom_sys::fault::call;
use rustix::fs::{Mode, chmodat, statat};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Uid;
use std::io;
use std::path::{Path, PathBuf};

/// Permission for all users to traverse a directory.
const PASS: u32 = 0o001;
/// Permission for all users to read a file.
const READ: u32 = 0o004;
/// Changes made above the instances, one per line: `mount` or `pass DIRECTORY`.
pub const GRANT_RECORD: &str = "/run/ioloom-trace-grant";

/// Completed steps, one sentence each.
pub type Steps = Vec<String>;

fn failed(verb: &str, path: &Path) -> impl Fn(io::Error) -> io::Error {
    let head = format!("cannot {verb} {}", quoted(path));
    move |e| io::Error::new(e.kind(), format!("{head}: {}", reason(&e)))
}

/// Creates an instance for the user `uid`.
///
/// # Errors
///
/// Returns the system error; PermissionDenied without root, Unsupported if the kernel lets all users read the
/// files below the directories.
pub fn grant(uid: u32) -> io::Result<Steps> {
    let mut done = Vec::new();
    let root = Path::new(USUAL_PATH);
    let record = Record(Path::new(GRANT_RECORD));
    let instances = root.join("instances");
    let mounts = !instances.exists();
    if mounts {
        record.around("mount", || mount(root))?;
        done.push(format!("mounted tracefs on {}", quoted(root)));
    }
    let folders = [root, &instances];
    if let Err(e) = refuse_readable(root, &folders) {
        if mounts {
            undo(root, record)?;
        }
        return Err(e);
    }
    let dir = instances.join(instance_of(Uid::from_raw(uid)));
    match call("tracefs-create", || std::fs::create_dir(&dir)) {
        Ok(()) => done.push(format!("created {}", quoted(&dir))),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failed("create directory", &dir)(e)),
    }
    // Rings occupy kernel memory, so they stay small until the instance is used.
    std::fs::write(dir.join("buffer_size_kb"), "8").map_err(failed("write below", &dir))?;
    let count = make_owner(&dir, uid)?;
    done.push(format!("made user {uid} the owner of its {count} files"));
    done.extend(pass(&folders, record)?);
    Ok(done)
}

/// Allows all users to traverse the folders.
fn pass(folders: &[&Path], record: Record<'_>) -> io::Result<Steps> {
    let mut done = Vec::new();
    for folder in folders {
        if !passes(folder)? {
            record.around(&format!("pass {}", folder.display()), || set_pass(folder, true))?;
            done.push(format!("allowed all users to traverse {}", quoted(folder)));
        }
    }
    Ok(done)
}

/// Refuses to open folders if all users could then read the events of the whole machine: older kernels protect
/// their files only by the permissions of the root.
fn refuse_readable(root: &Path, folders: &[&Path]) -> io::Result<()> {
    let closed = folders.iter().map(|folder| passes(folder)).collect::<io::Result<Vec<bool>>>()?;
    let trace = root.join("trace");
    let mode = statat(rustix::fs::CWD, &trace, rustix::fs::AtFlags::empty())
        .map_err(|e| failed("stat", &trace)(e.into()))?
        .st_mode;
    if closed.iter().all(|passes| *passes) || mode & READ == 0 {
        return Ok(());
    }
    let text = format!(
        "all users could read {}, which contains the events of all programs; trace as root instead",
        quoted(&trace)
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Removes the instance of `uid` and, if it was the last one, restores the permissions above it.
///
/// # Errors
///
/// Returns the system error; NotFound if nothing was granted.
pub fn revoke(uid: u32) -> io::Result<Steps> {
    let mut done = Vec::new();
    let root = Path::new(USUAL_PATH);
    let record = Record(Path::new(GRANT_RECORD));
    let changed = !record.read()?.is_empty();
    let instances = root.join("instances");
    let dir = instances.join(instance_of(Uid::from_raw(uid)));
    match call("tracefs-remove", || std::fs::remove_dir(&dir)) {
        Ok(()) => done.push(format!("removed {}", quoted(&dir))),
        // An earlier revocation removed the instance and failed to restore the permissions.
        Err(e) if e.kind() == io::ErrorKind::NotFound && changed => {
            if !granted(&instances)?.is_empty() {
                return Err(failed("remove", &dir)(e));
            }
        }
        Err(e) => return Err(failed("remove", &dir)(e)),
    }
    if granted(&instances)?.is_empty() {
        done.extend(undo(root, record)?);
    }
    Ok(done)
}

/// Reverts the recorded changes. Without a record, nothing above the instances was changed.
fn undo(root: &Path, record: Record<'_>) -> io::Result<Steps> {
    let mut done = Vec::new();
    let text = record.read()?;
    for folder in text.lines().rev().filter_map(|line| line.strip_prefix("pass ")) {
        let folder = Path::new(folder);
        if folder.starts_with(root) && set_pass(folder, false)? {
            done.push(format!("restored the permissions of {}", quoted(folder)));
        }
    }
    if text.lines().any(|line| line == "mount") {
        let unmounted = call("umount", || Ok(rustix::mount::unmount(root, UnmountFlags::empty())?));
        done.push(match unmounted {
            Ok(()) => format!("unmounted {}", quoted(root)),
            Err(e) => format!("left {} mounted: {}", quoted(root), reason(&e)),
        });
    }
    if !text.is_empty() {
        std::fs::remove_file(record.0).map_err(failed("remove", record.0))?;
    }
    Ok(done)
}

/// The file that lists the changes.
#[derive(Debug, Clone, Copy)]
struct Record<'a>(&'a Path);

impl Record<'_> {
    /// Returns the contents, which are empty without the file.
    fn read(self) -> io::Result<String> {
        match std::fs::read_to_string(self.0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            result => result.map_err(failed("read", self.0)),
        }
    }

    /// Adds a line, then makes the change. A change that cannot be recorded is not made, and one that fails is
    /// removed from the record.
    fn around<T>(self, line: &str, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        use std::io::Write;
        let before = self.read()?;
        let open = std::fs::OpenOptions::new().create(true).append(true).open(self.0);
        open.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .map_err(failed("write to", self.0))?;
        change().inspect_err(|_| {
            let _ = if before.is_empty() {
                std::fs::remove_file(self.0)
            } else {
                std::fs::write(self.0, &before)
            };
        })
    }
}

/// Returns the users that have an instance.
///
/// # Errors
///
/// Returns the system error.
pub fn granted(instances: &Path) -> io::Result<Vec<u32>> {
    let mut users = Vec::new();
    for entry in std::fs::read_dir(instances).map_err(failed("read directory", instances))? {
        let name = entry?.file_name();
        let user = name.to_str().and_then(|name| name.strip_prefix(USER_PREFIX));
        users.extend(user.and_then(|user| user.parse::<u32>().ok()));
    }
    users.sort_unstable();
    Ok(users)
}

fn mount(root: &Path) -> io::Result<()> {
    let none = MountFlags::empty();
    call("mount", || Ok(rustix::mount::mount(c"tracefs", root, c"tracefs", none, None)?))
        .map_err(failed("mount tracefs on", root))
}

/// Makes the user the owner of only the files needed for a trace: switches, rings and the recorded
/// events. Returns the number of files.
fn make_owner(dir: &Path, uid: u32) -> io::Result<usize> {
    const FILES: [&str; 8] = [
        "",
        "trace_clock",
        "tracing_on",
        "buffer_size_kb",
        "buffer_subbuf_size_kb",
        "trace_marker",
        "events",
        "per_cpu",
    ];
    let mut paths: Vec<PathBuf> = FILES.iter().map(|file| dir.join(file)).collect();
    for cpu in std::fs::read_dir(dir.join("per_cpu")).map_err(failed("read directory", dir))? {
        let cpu = cpu?.path();
        paths.extend(["trace_pipe_raw", "stats"].map(|file| cpu.join(file)));
        paths.push(cpu);
    }
    for kind in Kind::ALL {
        let event = dir.join("events").join(kind.path());
        paths.extend(["format", "filter", "enable"].map(|file| event.join(file)));
        paths.extend(event.parent().map(Path::to_owned));
        paths.push(event);
    }
    paths.sort();
    paths.dedup();
    // Older kernels lack some of them; `ioloom machine --doctor` reports what a trace then lacks.
    paths.retain(|path| path.exists());
    for path in &paths {
        call("chown", || std::os::unix::fs::lchown(path, Some(uid), None))
            .map_err(failed("change the owner of", path))?;
    }
    Ok(paths.len())
}

/// Reports whether all users can traverse a directory.
fn passes(folder: &Path) -> io::Result<bool> {
    let stat = statat(rustix::fs::CWD, folder, rustix::fs::AtFlags::empty());
    Ok(stat.map_err(|e| failed("stat", folder)(e.into()))?.st_mode & PASS != 0)
}

/// Allows or forbids all users to traverse a directory; returns whether anything changed.
fn set_pass(folder: &Path, pass: bool) -> io::Result<bool> {
    let stat = statat(rustix::fs::CWD, folder, rustix::fs::AtFlags::empty())?;
    let old = stat.st_mode & 0o7777;
    let new = if pass { old | PASS } else { old & !PASS };
    if new == old {
        return Ok(false);
    }
    call("chmod", || {
        let mode = Mode::from_raw_mode(new);
        Ok(chmodat(rustix::fs::CWD, folder, mode, rustix::fs::AtFlags::empty())?)
    })
    .map_err(failed("change the permissions of", folder))?;
    Ok(true)
}

/// Returns the effective user of this process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_the_names_of_their_instances() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ioloom-user-1001", "ioloom-user-7", "ioloom-user-x", "ioloom-run-3-4-0"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(granted(dir.path()).unwrap(), [7, 1001]);
        assert_eq!(instance_of(Uid::from_raw(7)), "ioloom-user-7");
        assert!(granted(&dir.path().join("none")).is_err());
    }

    use std::os::unix::fs::PermissionsExt;

    fn closed(dir: &Path) -> io::Result<()> {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
    }

    #[test]
    fn a_change_that_cannot_be_recorded_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        closed(&root).unwrap();
        let missing = dir.path().join("missing/record");
        let refused = pass(&[&root], Record(&missing)).unwrap_err().to_string();
        assert!(refused.contains("missing/record"), "{refused}");
        assert!(!passes(&root).unwrap());
        // An unreadable record is an error instead of an empty one.
        assert!(undo(&root, Record(dir.path())).is_err());
        let path = dir.path().join("record");
        let done = pass(&[&root], Record(&path)).unwrap();
        assert_eq!(done.len(), 1);
        assert!(passes(&root).unwrap());
        let lines = Record(&path).read().unwrap();
        assert_eq!(lines, format!("pass {}\n", root.display()));
        assert_eq!(pass(&[&root], Record(&path)).unwrap(), Steps::new());
        assert_eq!(Record(&path).read().unwrap(), lines);
        assert_eq!(undo(&root, Record(&path)).unwrap().len(), 1);
        assert!(!passes(&root).unwrap() && !path.exists());
    }

    #[test]
    fn a_failed_change_is_not_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let record = Record(&path);
        let fails = || Err::<(), _>(io::Error::other("no"));
        record.around("mount", fails).unwrap_err();
        assert!(!path.exists());
        record.around("mount", || Ok(())).unwrap();
        record.around("pass /x", fails).unwrap_err();
        assert_eq!(record.read().unwrap(), "mount\n");
    }

    #[test]
    fn files_that_all_users_could_read_stay_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, trace) = (dir.path(), dir.path().join("trace"));
        closed(root).unwrap();
        std::fs::write(&trace, "").unwrap();
        for (mode, allowed) in [(0o644, false), (0o640, true), (0o440, true)] {
            std::fs::set_permissions(&trace, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(refuse_readable(root, &[root]).is_ok(), allowed, "{mode:o}");
        }
        // Nothing changes for directories that are already open.
        std::fs::set_permissions(&trace, std::fs::Permissions::from_mode(0o644)).unwrap();
        set_pass(root, true).unwrap();
        refuse_readable(root, &[root]).unwrap();
    }

    #[test]
    fn permission_to_traverse_is_changed_once_and_restored() {
        let dir = tempfile::tempdir().unwrap();
        let mode = || std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o7777;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
        let before = mode();
        assert!(set_pass(dir.path(), true).unwrap() && !set_pass(dir.path(), true).unwrap());
        assert_eq!(mode(), before | 0o001);
        assert!(set_pass(dir.path(), false).unwrap());
        assert_eq!(mode(), before);
    }
}
