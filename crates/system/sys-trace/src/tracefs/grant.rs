//! Lets one plain user see the kernel's scheduler and device events.
//!
//! Root makes an instance, gives the user its switches and the few events that are listened to, and
//! lets everybody pass through the folders above it, without listing them. The user then sees
//! names, numbers and switches of every process of the machine and requests to its devices;
//! nothing can be changed with it but the instance itself. [`revoke`] removes the
//! instance and, with the last one, puts back what was changed above it: that is noted in
//! [`NOTE`], which lasts as long as the change itself, until the machine stops.

use super::USUAL_PATH;
use super::event::Kind;
use ioloom_sys::fault::call;
use rustix::fs::{Mode, chmodat, statat};
use rustix::process::Uid;
use std::io;
use std::path::{Path, PathBuf};

/// Instances that outlive the process that made them.
const PREFIX: &str = "ioloom-user-";
/// Passing through a folder, for everybody.
const PASS: u32 = 0o001;
/// What was changed above the instances, one line each: `mount` or `pass FOLDER`.
pub const NOTE: &str = "/run/ioloom-trace-grant";

/// Returns the name of a user's instance.
pub fn instance_of(uid: Uid) -> String {
    format!("{PREFIX}{}", uid.as_raw())
}

/// What was done, one line each.
pub type Done = Vec<String>;

fn told(what: &str, path: &Path) -> impl Fn(io::Error) -> io::Error {
    let head = format!("{what} {}", path.display());
    move |e| io::Error::new(e.kind(), format!("{head}: {e}"))
}

/// Gives `uid` an instance of its own.
///
/// # Errors
///
/// What the system says; PermissionDenied without root.
pub fn grant(uid: u32) -> io::Result<Done> {
    let mut done = Vec::new();
    let root = Path::new(USUAL_PATH);
    if !root.join("instances").exists() {
        mount(root)?;
        note("mount")?;
        done.push(format!("mounted the trace file system on {}", root.display()));
    }
    let instances = root.join("instances");
    let dir = instances.join(instance_of(Uid::from_raw(uid)));
    match call("tracefs-create", || std::fs::create_dir(&dir)) {
        Ok(()) => done.push(format!("made {}", dir.display())),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(told("make", &dir)(e)),
    }
    // Small until it is used: rings take memory of the kernel.
    std::fs::write(dir.join("buffer_size_kb"), "8").map_err(told("write in", &dir))?;
    let count = give(&dir, uid)?;
    done.push(format!("gave its {count} files to user {uid}"));
    for folder in [root, &instances] {
        if set_pass(folder, true)? {
            note(&format!("pass {}", folder.display()))?;
            done.push(format!("let everybody pass through {}", folder.display()));
        }
    }
    Ok(done)
}

/// Takes the instance of `uid` away; without users left, the rights above go back to root.
///
/// # Errors
///
/// What the system says; NotFound when nothing was granted.
pub fn revoke(uid: u32) -> io::Result<Done> {
    let mut done = Vec::new();
    let root = Path::new(USUAL_PATH);
    let instances = root.join("instances");
    let dir = instances.join(instance_of(Uid::from_raw(uid)));
    call("tracefs-remove", || std::fs::remove_dir(&dir)).map_err(told("remove", &dir))?;
    done.push(format!("removed {}", dir.display()));
    if granted(&instances)?.is_empty() {
        done.extend(undo(root)?);
    }
    Ok(done)
}

/// Puts back what the note says; without a note nothing above the instances was ours.
fn undo(root: &Path) -> io::Result<Done> {
    let mut done = Vec::new();
    let text = std::fs::read_to_string(NOTE).unwrap_or_default();
    for folder in text.lines().rev().filter_map(|line| line.strip_prefix("pass ")) {
        let folder = Path::new(folder);
        if folder.starts_with(root) && set_pass(folder, false)? {
            done.push(format!("closed {} again", folder.display()));
        }
    }
    if text.lines().any(|line| line == "mount") {
        let unmounted = call("umount", || {
            let path = std::ffi::CString::new(root.as_os_str().as_encoded_bytes())?;
            // SAFETY: the text ends with a zero and outlives the call.
            match unsafe { libc::umount2(path.as_ptr(), 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        done.push(match unmounted {
            Ok(()) => format!("unmounted {}", root.display()),
            Err(e) => format!("left {} mounted: {e}", root.display()),
        });
    }
    if !text.is_empty() {
        std::fs::remove_file(NOTE).map_err(told("remove", Path::new(NOTE)))?;
    }
    Ok(done)
}

/// Adds a line to the note.
fn note(line: &str) -> io::Result<()> {
    use std::io::Write;
    let path = Path::new(NOTE);
    let open = std::fs::OpenOptions::new().create(true).append(true).open(path);
    open.and_then(|mut file| writeln!(file, "{line}")).map_err(told("write", path))
}

/// Users that have an instance.
///
/// # Errors
///
/// What the system says.
pub fn granted(instances: &Path) -> io::Result<Vec<u32>> {
    let mut users = Vec::new();
    for entry in std::fs::read_dir(instances).map_err(told("list", instances))? {
        let name = entry?.file_name();
        let user = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        users.extend(user.and_then(|user| user.parse::<u32>().ok()));
    }
    users.sort_unstable();
    Ok(users)
}

fn mount(root: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(root.as_os_str().as_encoded_bytes())?;
    call("mount", || {
        // SAFETY: all three texts end with a zero and outlive the call; no data are passed.
        let result = unsafe {
            let name = c"tracefs".as_ptr();
            libc::mount(name, path.as_ptr(), name, 0, std::ptr::null())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    })
    .map_err(told("mount the trace file system on", root))
}

/// Gives a user what an observation needs of an instance and nothing else: its switches, the rings
/// and the events that are listened to. Returns the number of entries.
fn give(dir: &Path, uid: u32) -> io::Result<usize> {
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
    for cpu in std::fs::read_dir(dir.join("per_cpu")).map_err(told("list", dir))? {
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
    // Older kernels have not all of them; what an observation misses then, the doctor tells.
    paths.retain(|path| path.exists());
    for path in &paths {
        call("chown", || std::os::unix::fs::lchown(path, Some(uid), None))
            .map_err(told("give away", path))?;
    }
    Ok(paths.len())
}

/// Sets or clears the right of everybody to pass; `false` when it was so already.
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
    .map_err(told("change the rights of", folder))?;
    Ok(true)
}

/// Returns the user that this process acts as.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_told_by_the_names_of_their_instances() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ioloom-user-1001", "ioloom-user-7", "ioloom-user-x", "ioloom-run-3-4-0"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(granted(dir.path()).unwrap(), [7, 1001]);
        assert_eq!(instance_of(Uid::from_raw(7)), "ioloom-user-7");
        assert!(granted(&dir.path().join("none")).is_err());
    }

    #[test]
    fn passing_is_changed_once_and_put_back() {
        use std::os::unix::fs::PermissionsExt;
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
