//! A file system in an image file: mounted, remounted, and removed without leftovers.
//!
//! Unmounting is the only way to drop the cached names and inodes of one file system without
//! affecting the rest of the machine. The image is a sparse file that contains ext4. It is attached
//! to a loop device with direct I/O, so its data is not cached twice. The loop device is not kept
//! open because an open device keeps its cache when the file system is unmounted.
//!
//! Requires `CAP_SYS_ADMIN`, loop devices and the command `mkfs.ext4`; [`can_mount_images`] reports
//! which of them is missing. Everything is undone on drop; [`remove_leftovers`] cleans up after a
//! killed process.

use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_sys::fault::call;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MKFS: &str = "mkfs.ext4";
const LOOP_CONTROL: &str = "/dev/loop-control";
const LOOP_CLR_FD: libc::Ioctl = 0x4C01 as libc::Ioctl;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A as libc::Ioctl;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82 as libc::Ioctl;
const BLOCK_FLUSH: libc::Ioctl = 0x1261 as libc::Ioctl;
const LOOP_DIRECT_IO: u32 = 16;

/// Number of attempts to attach a free loop device before another process takes it.
const ATTACH_TRIES: usize = 16;

/// Number of checks, 10 ms apart, for a device to release its image.
const DETACH_TRIES: usize = 50;

/// Minimum size of an image in which mkfs.ext4 creates a journal.
const IMAGE_BYTES_MIN: u64 = 8 << 20;

/// Why an image could not be created, mounted or removed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Images cannot be mounted on this machine or by this user.
    #[error("cannot mount images here: {0}")]
    Unable(String),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] PathError),
    /// mkfs.ext4 failed.
    #[error("cannot create an ext4 file system in {}: {output}", quoted(.path))]
    Mkfs {
        /// The image.
        path: PathBuf,
        /// Its error output.
        output: String,
    },
}

/// Checks whether images can be mounted here; `Err` names what is missing. Opens the loop control
/// device but mounts nothing.
pub fn can_mount_images() -> Result<(), String> {
    let status = ioloom_sys::proc::status()
        .map_err(|e| format!("cannot read '/proc/self/status': {}", reason(&e)))?;
    if !status.has_sys_admin() {
        return Err("root is required (CAP_SYS_ADMIN)".to_owned());
    }
    free_loop()
        .map_err(|e| format!("no loop device: cannot use '{LOOP_CONTROL}': {}", reason(&e)))?;
    mkfs()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .arg("-V")
        .status()
        .map_err(|e| format!("cannot run '{MKFS}': {}; install e2fsprogs", reason(&e)))?;
    Ok(())
}

fn mkfs() -> Command {
    let mut command = Command::new(MKFS);
    // In some sessions PATH does not include root's tools.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    if let Ok(path) = std::env::join_paths(dirs) {
        command.env("PATH", path);
    }
    command.stdin(Stdio::null());
    command
}

/// A mounted image. On drop it is unmounted, detached and removed.
#[derive(Debug)]
pub struct LoopImage {
    image: PathBuf,
    point: PathBuf,
    device: PathBuf,
    mounted: bool,
    direct_io: bool,
    made_point: bool,
}

impl LoopImage {
    /// Creates the sparse file `image` of `bytes`, which must not exist, with a new ext4 file
    /// system, and mounts it on the directory `point`, which is created if missing.
    pub fn create(image: &Path, point: &Path, bytes: u64) -> Result<Self, ImageError> {
        Self::create_for(image, point, bytes, None)
    }

    /// Like `create`, with inodes for `files` files; the default is one inode per 16 KiB.
    pub fn create_for(
        image: &Path,
        point: &Path,
        bytes: u64,
        files: Option<u64>,
    ) -> Result<Self, ImageError> {
        can_mount_images().map_err(ImageError::Unable)?;
        let bytes = bytes.max(IMAGE_BYTES_MIN);
        let file = make_sparse(image, bytes).map_err(PathError::on(Operation::Create, image))?;
        drop(file);
        let mut guard = Self {
            image: image.to_owned(),
            point: point.to_owned(),
            device: PathBuf::new(),
            mounted: false,
            direct_io: false,
            made_point: false,
        };
        guard.format(files)?;
        (guard.device, guard.direct_io) = attach(image)?;
        guard.made_point = match call("mkdir", || std::fs::create_dir(point)) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(PathError::new(Operation::CreateDir, point, e).into()),
        };
        guard.mount()?;
        Ok(guard)
    }

    /// Returns the mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Returns the loop device, such as `/dev/loop3`.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Reports whether the loop device bypasses the page cache of the file system below it. If not,
    /// image data remains cached there after [`Self::remount`].
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }

    /// Unmounts and mounts again, after which none of its data, names or inodes are in memory.
    /// Fails with `Device or resource busy` if a file in it is open.
    pub fn remount(&mut self) -> Result<(), ImageError> {
        self.unmount()?;
        // The device has its own cache, which contains inode tables.
        let device =
            open_device(&self.device).map_err(PathError::on(Operation::Open, &self.device))?;
        ioctl("blkflsbuf", &device, BLOCK_FLUSH, 0)
            .map_err(PathError::on(Operation::Sync, &self.device))?;
        drop(device);
        self.mount()
    }

    /// Unmounts; the image remains until the value is dropped.
    pub fn unmount(&mut self) -> Result<(), ImageError> {
        if self.mounted {
            unmount(&self.point, UnmountFlags::empty())
                .map_err(PathError::on(Operation::Unmount, &self.point))?;
            self.mounted = false;
        }
        Ok(())
    }

    /// Mounts again after [`Self::unmount`].
    pub fn mount(&mut self) -> Result<(), ImageError> {
        if !self.mounted {
            mount(&self.device, &self.point)
                .map_err(PathError::on(Operation::Mount, &self.point))?;
            self.mounted = true;
        }
        Ok(())
    }

    fn format(&self, files: Option<u64>) -> Result<(), ImageError> {
        // Have mkfs write the tables; otherwise the kernel would write them during the runs.
        let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        let mut command = mkfs();
        command.args(["-q", "-F", "-b", "4096", "-m", "0", "-E", options]);
        if let Some(files) = files {
            command.arg("-N").arg(files.to_string());
        }
        command.arg(&self.image);
        let output = call("mkfs", || command.output())
            .map_err(PathError::on(Operation::Execute, Path::new(MKFS)))?;
        if output.status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(ImageError::Mkfs { path: self.image.clone(), output })
    }
}

impl Drop for LoopImage {
    fn drop(&mut self) {
        // Attempt every step, even if the previous one failed. Errors cannot be reported.
        if self.mounted && unmount(&self.point, UnmountFlags::empty()).is_err() {
            let _ = unmount(&self.point, UnmountFlags::DETACH);
        }
        if !self.device.as_os_str().is_empty() {
            let _ = detach(&self.device);
        }
        let _ = std::fs::remove_file(&self.image);
        if self.made_point {
            let _ = std::fs::remove_dir(&self.point);
        }
    }
}

/// Unmounts, detaches and removes what a killed process left of `image`; returns whether anything
/// was left. The mount point remains.
pub fn remove_leftovers(image: &Path) -> io::Result<bool> {
    let mut found = false;
    for device in devices_of(image)? {
        let numbers = ioloom_sys::proc::read_text(&sys_of(&device).join("dev"))?;
        for mount in ioloom_sys::mount::mounts()?.iter().rev() {
            if format!("{}:{}", mount.device.0, mount.device.1) == numbers.trim() {
                unmount(&mount.point, UnmountFlags::empty())?;
            }
        }
        detach(&device)?;
        found = true;
    }
    match call("unlink", || std::fs::remove_file(image)) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(found),
        Err(e) => Err(e),
    }
}

fn sys_of(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Returns the loop devices to which `image` is attached.
fn devices_of(image: &Path) -> io::Result<Vec<PathBuf>> {
    let image = std::path::absolute(image)?;
    let image = std::fs::canonicalize(&image).unwrap_or(image);
    let mut devices = Vec::new();
    let entries = match call("read-dir", || std::fs::read_dir("/sys/block")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(devices),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Ok(mut backing) = std::fs::read(entry.path().join("loop/backing_file")) else {
            continue;
        };
        while backing.last() == Some(&b'\n') {
            backing.pop();
        }
        if backing.strip_suffix(b" (deleted)").unwrap_or(&backing) == image.as_os_str().as_bytes() {
            devices.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    Ok(devices)
}

fn make_sparse(image: &Path, bytes: u64) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = call("open", || Ok(rustix::fs::open(image, flags, mode)?))?;
    let sized = call("ftruncate", || Ok(rustix::fs::ftruncate(&file, bytes)?));
    if let Err(error) = sized {
        let _ = std::fs::remove_file(image);
        return Err(error);
    }
    Ok(file)
}

#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

/// Returns the number of a free loop device.
fn free_loop() -> io::Result<u32> {
    let control = open_device(Path::new(LOOP_CONTROL))?;
    let number = ioctl("loop-free", &control, LOOP_CTL_GET_FREE, 0)?;
    Ok(number as u32)
}

/// Attaches `image` to a loop device; returns the device and whether direct I/O is on.
fn attach(image: &Path) -> Result<(PathBuf, bool), ImageError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = call("open", || Ok(rustix::fs::open(image, flags, Mode::empty())?))
        .map_err(PathError::on(Operation::Open, image))?;
    let mut config = LoopConfig {
        fd: file.as_raw_fd() as u32,
        block_size: 4096,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LOOP_DIRECT_IO,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for _ in 0..ATTACH_TRIES {
        let number = free_loop().map_err(PathError::on(Operation::AttachLoop, image))?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open_device(&path).map_err(PathError::on(Operation::Open, &path))?;
        let argument = (&raw mut config) as libc::c_ulong;
        match ioctl("loop-configure", &device, LOOP_CONFIGURE, argument) {
            Ok(_) => {
                let direct = ioloom_sys::proc::read_text(&sys_of(&path).join("loop/dio"));
                return Ok((path, direct.is_ok_and(|text| text.trim() == "1")));
            }
            // Another process took the device between the two calls.
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => last = e,
            Err(e) => return Err(PathError::new(Operation::AttachLoop, image, e).into()),
        }
    }
    Err(PathError::new(Operation::AttachLoop, image, last).into())
}

fn detach(device: &Path) -> io::Result<()> {
    let file = open_device(device)?;
    ioctl("loop-clear", &file, LOOP_CLR_FD, 0)?;
    drop(file);
    // Detaching completes once every other descriptor of the device is closed, such as that of a
    // child process that was just forked.
    let attached = sys_of(device).join("loop/backing_file");
    for _ in 0..DETACH_TRIES {
        if !attached.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}

fn open_device(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    call("open", || Ok(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Makes an ioctl call. `argument` is a number or the address of the data that the request reads or
/// writes.
fn ioctl(
    op: &'static str,
    file: &OwnedFd,
    request: libc::Ioctl,
    argument: libc::c_ulong,
) -> io::Result<i32> {
    loop {
        let result = call(op, || {
            // SAFETY: the requests in this module take either no argument or, for LOOP_CONFIGURE,
            // the address of a `LoopConfig` that outlives the call.
            match unsafe { libc::ioctl(file.as_raw_fd(), request, argument) } {
                -1 => Err(io::Error::last_os_error()),
                value => Ok(value),
            }
        });
        match result {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn mount(device: &Path, point: &Path) -> io::Result<()> {
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::RELATIME;
    call("mount", || Ok(rustix::mount::mount(device, point, c"ext4", flags, None)?))
}

fn unmount(point: &Path, flags: UnmountFlags) -> io::Result<()> {
    call("umount", || Ok(rustix::mount::unmount(point, flags)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able() -> bool {
        match can_mount_images() {
            Ok(()) => true,
            Err(reason) => {
                println!("skipped: {reason}");
                false
            }
        }
    }

    /// Repeats `done` for a minute, until it is true. A child process that another test is starting can
    /// hold a file of the image or its device open until it executes its program.
    fn eventually(mut done: impl FnMut() -> bool) -> bool {
        (0..6000).any(|_| {
            let is_done = done();
            if !is_done {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            is_done
        })
    }

    fn is_released(image: &Path) -> bool {
        eventually(|| devices_of(image).unwrap().is_empty())
    }

    #[test]
    fn an_image_is_remounted_and_leaves_nothing() {
        if !able() {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let (image, point) = (temp.path().join("image"), temp.path().join("point"));
        let mut own = match LoopImage::create(&image, &point, 16 << 20) {
            Ok(own) => own,
            Err(e) => {
                // A container may have the capability and the device but not the permission.
                println!("skipped: {e}");
                assert!(!image.exists() && !point.exists());
                return;
            }
        };
        std::fs::write(point.join("f"), b"kept").unwrap();
        std::fs::write(point.join("big"), vec![1u8; 1 << 20]).unwrap();
        let resident = || {
            let file = std::fs::File::open(point.join("big")).unwrap();
            ioloom_sys::cache::resident_pages(&file, 1 << 20).unwrap()
        };
        let before = resident();
        let medium = ioloom_sys::mount::medium(&point).unwrap();
        assert_eq!(medium.mount.file_system, "ext4");
        assert_eq!(medium.mount.source, own.device());
        let mut remounted = Ok(());
        eventually(|| {
            remounted = own.remount();
            !remounted.as_ref().is_err_and(|e| e.to_string().contains("busy"))
        });
        remounted.unwrap();
        match (before, resident()) {
            (Some(before), after) => assert!(before > 0 && after == Some(0), "{before} {after:?}"),
            (None, _) => println!("skipped: this kernel does not report what is cached"),
        }
        assert_eq!(std::fs::read(point.join("f")).unwrap(), b"kept");
        let open = std::fs::File::open(point.join("f")).unwrap();
        let busy = own.remount().unwrap_err().to_string();
        assert!(busy.contains("unmount") && busy.contains("busy"), "{busy}");
        drop(open);
        let device = own.device().to_owned();
        drop(own);
        assert!(!image.exists() && !point.exists());
        assert!(is_released(&image), "{device:?} is still attached");
    }

    #[test]
    fn leftovers_of_a_killed_process_are_removed() {
        if !able() {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let (image, point) = (temp.path().join("image"), temp.path().join("point"));
        match LoopImage::create(&image, &point, 16 << 20) {
            Ok(own) => std::mem::forget(own),
            Err(e) => {
                println!("skipped: {e}");
                return;
            }
        }
        assert!(remove_leftovers(&image).unwrap());
        assert!(!image.exists() && is_released(&image));
        assert!(!remove_leftovers(&image).unwrap());
    }

    #[test]
    fn an_existing_image_is_not_touched() {
        if !able() {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let image = temp.path().join("image");
        std::fs::write(&image, b"mine").unwrap();
        let error = LoopImage::create(&image, &temp.path().join("p"), 16 << 20).unwrap_err();
        assert!(error.to_string().contains("File exists"), "{error}");
        assert_eq!(std::fs::read(&image).unwrap(), b"mine");
    }
}
