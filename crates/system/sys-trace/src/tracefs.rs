//! Kernel tracing through tracefs: scheduler, block and lock events of the whole machine.
//!
//! Events are read through an *instance*, a private set of per-processor rings, so other tracing is
//! not affected. Root creates an instance and removes it at the end; an unprivileged user gets one
//! that root created in advance for that user ([`grant`]). If tracefs is not mounted, root mounts
//! it detached, visible only to this process.
//!
//! Parsing is pure and has its own modules: [`mod@format`], [`page`], [`event`]. Costs about 0.4 µs
//! per event anywhere on the machine.

pub mod event;
pub mod format;
pub mod grant;
mod names;
pub mod page;

use event::{Decoder, Kind};
use format::Format;
use ioloom_failure::{quoted, reason};
use ioloom_sys::fault::call;
use ioloom_sys::mount::mounts;
use names::{OWN_PREFIX, USUAL_PATH, instance_of};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Maximum page size of the trace ring in bytes.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The tracefs file system, mounted globally or held only by this process.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Tree {
    /// Finds the mount, or mounts tracefs for this process only.
    ///
    /// # Errors
    ///
    /// Fails if it is not mounted and cannot be mounted.
    pub fn open() -> io::Result<Self> {
        let mounted = mounts()?.into_iter().filter(|m| m.file_system == "tracefs");
        if let Some(root) = preferred(mounted.map(|m| m.point)) {
            return Ok(Self { root, _mount: None });
        }
        let mount = mount_detached().map_err(|e| {
            let text = format!("tracefs is not mounted and cannot be mounted: {}", reason(&e));
            io::Error::new(e.kind(), text)
        })?;
        let root = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&mount));
        Ok(Self { root: root.into(), _mount: Some(mount) })
    }

    /// Returns its root, which is valid only in this process unless tracefs is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }

    /// Removes instances of this program whose process has exited; returns their number. The process of an
    /// instance in use can be invisible here, in another container. The kernel refuses to remove that
    /// instance, and it is not changed.
    pub fn remove_leftovers(&self) -> usize {
        let Ok(entries) = std::fs::read_dir(self.instances()) else { return 0 };
        let dead = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(OWN_PREFIX));
            owner.is_some_and(|owner| !is_running(owner))
        });
        dead.filter(|entry| std::fs::remove_dir(entry.path()).is_ok()).count()
    }
}

/// Returns the mount point to use: the usual one, below which access is granted, or else the first.
fn preferred(points: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let points: Vec<PathBuf> = points.collect();
    let usual = points.iter().find(|point| point.as_path() == Path::new(USUAL_PATH));
    usual.or(points.first()).cloned()
}

/// Mounts tracefs without attaching it to a directory.
fn mount_detached() -> io::Result<OwnedFd> {
    call("tracefs-mount", || {
        let context = fsopen(c"tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
    })
}

/// Returns the ID and start time of a process, which identify the owner of an instance.
fn owner(pid: u32) -> Option<String> {
    let text = ioloom_sys::proc::read_text(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
    let stat = ioloom_sys::proc::parse::parse_process_stat(&text)?;
    Some(format!("{pid}-{}", stat.start_ticks))
}

/// Reports whether the process identified by `owner` is still running. Any further numbers in
/// `owner` distinguish its instances.
fn is_running(owner_text: &str) -> bool {
    let mut parts = owner_text.split('-');
    let Some(pid) = parts.next().and_then(|pid| pid.parse().ok()) else { return true };
    let same = |now: String| now.split('-').nth(1) == parts.next();
    owner(pid).is_some_and(same)
}

/// Returns the page size of a trace ring in bytes: that of the system, unless the instance reports a
/// larger one in KiB, which it does since Linux 6.8.
fn ring_page_bytes(system: u64, reported: &str) -> usize {
    let system = usize::try_from(system).unwrap_or(PAGE_BYTES_MAX).min(PAGE_BYTES_MAX);
    let kib = reported.trim().parse::<usize>().unwrap_or(0);
    kib.saturating_mul(1024).clamp(system, PAGE_BYTES_MAX)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    call("tracefs-write", || std::fs::write(path, text)).map_err(|e| {
        io::Error::new(e.kind(), format!("cannot write to {}: {}", quoted(path), reason(&e)))
    })
}

fn read(path: &Path) -> io::Result<String> {
    ioloom_sys::proc::read_text(path).map_err(|e| {
        io::Error::new(e.kind(), format!("cannot read {}: {}", quoted(path), reason(&e)))
    })
}

/// A private set of trace rings.
#[derive(Debug)]
pub struct Instance {
    dir: PathBuf,
    owned: bool,
    enabled: Vec<Kind>,
    page_bytes: usize,
    lock: Option<OwnedFd>,
    _tree: Tree,
}

impl Instance {
    /// Creates an instance, or opens the one that root created for this user.
    ///
    /// # Errors
    ///
    /// Returns the system error; ResourceBusy if this user's instance is in use.
    pub fn open() -> io::Result<Self> {
        let tree = Tree::open()?;
        tree.remove_leftovers();
        match Self::create(&tree) {
            // The open file keeps the instance from being removed by a process that does not see this one.
            Ok(dir) => {
                let lock = lock(&dir).ok();
                Self::prepare(tree, dir, true, lock)
            }
            Err(error) => {
                let dir = tree.instances().join(instance_of(rustix::process::geteuid()));
                match lock(&dir) {
                    Ok(lock) => Self::prepare(tree, dir, false, Some(lock)),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::Error::new(
                        io::ErrorKind::ResourceBusy,
                        format!("{} is in use by another trace", quoted(&dir)),
                    )),
                    Err(_) => Err(error),
                }
            }
        }
    }

    fn create(tree: &Tree) -> io::Result<PathBuf> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let me = std::process::id();
        let owner = owner(me).unwrap_or_else(|| me.to_string());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = tree.instances().join(format!("{OWN_PREFIX}{owner}-{count}"));
        call("tracefs-create", || std::fs::create_dir(&dir)).map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("cannot create directory {}: {}", quoted(&dir), reason(&e)),
            )
        })?;
        Ok(dir)
    }

    fn prepare(tree: Tree, dir: PathBuf, owned: bool, lock: Option<OwnedFd>) -> io::Result<Self> {
        let reported = read(&dir.join("buffer_subbuf_size_kb")).unwrap_or_default();
        let page_bytes = ring_page_bytes(ioloom_sys::proc::page_bytes(), &reported);
        let instance = Self { dir, owned, enabled: Vec::new(), page_bytes, lock, _tree: tree };
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", "mono")?;
        Ok(instance)
    }

    /// Reports whether root created the instance for this user.
    pub fn is_delegated(&self) -> bool {
        !self.owned
    }

    fn set(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.dir.join(file), text)
    }

    /// Sets the ring size of each processor.
    ///
    /// # Errors
    ///
    /// Returns the system error, such as ENOMEM.
    pub fn set_ring_kib(&self, kib: u32) -> io::Result<()> {
        self.set("buffer_size_kb", &kib.to_string())
    }

    /// Enables an event with a filter on its fields; an empty filter passes all events.
    ///
    /// # Errors
    ///
    /// Returns NotFound if the kernel has no such event, otherwise the system error.
    pub fn enable(&mut self, kind: Kind, filter: &str, decoder: &mut Decoder) -> io::Result<()> {
        let dir = self.dir.join("events").join(kind.path());
        let text = read(&dir.join("format"))?;
        let unknown = || {
            let text = format!("{} does not have the expected fields", quoted(&dir));
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let format = Format::parse(&text).ok_or_else(unknown)?;
        if !decoder.learn(kind, &format) {
            return Err(unknown());
        }
        // Marks are always enabled and have no switch.
        if kind != Kind::Mark {
            write(&dir.join("filter"), if filter.is_empty() { "0" } else { filter })?;
            write(&dir.join("enable"), "1")?;
            self.enabled.push(kind);
        }
        Ok(())
    }

    /// Changes the filter of an enabled event; an empty filter passes all events.
    ///
    /// # Errors
    ///
    /// Returns InvalidInput if the kernel rejects the filter.
    pub fn filter(&self, kind: Kind, filter: &str) -> io::Result<()> {
        let path = self.dir.join("events").join(kind.path()).join("filter");
        write(&path, if filter.is_empty() { "0" } else { filter })
    }

    /// Starts or stops recording.
    ///
    /// # Errors
    ///
    /// Returns the system error.
    pub fn set_recording(&self, on: bool) -> io::Result<()> {
        self.set("tracing_on", if on { "1" } else { "0" })
    }

    /// Writes a mark into the event stream.
    ///
    /// # Errors
    ///
    /// Returns the system error.
    pub fn mark(&self, text: &str) -> io::Result<()> {
        self.set("trace_marker", text)
    }

    /// Opens the rings of all processors and discards their contents.
    ///
    /// # Errors
    ///
    /// Returns the system error.
    pub fn pipes(&self) -> io::Result<Vec<Pipe>> {
        let mut pipes = Vec::new();
        for entry in std::fs::read_dir(self.dir.join("per_cpu"))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(cpu) = name.strip_prefix("cpu").and_then(|n| n.parse().ok()) else { continue };
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let raw = path.join("trace_pipe_raw");
            let file = call("tracefs-open", || Ok(rustix::fs::open(&raw, flags, Mode::empty())?))?;
            let mut pipe = Pipe { cpu, file, stats: path.join("stats"), page: Vec::new() };
            pipe.page.resize(self.page_bytes, 0);
            while pipe.next_page()?.is_some() {}
            pipes.push(pipe);
        }
        pipes.sort_by_key(|pipe| pipe.cpu);
        Ok(pipes)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.set_recording(false);
        for kind in &self.enabled {
            let dir = self.dir.join("events").join(kind.path());
            let _ = write(&dir.join("enable"), "0");
            let _ = write(&dir.join("filter"), "0");
        }
        if self.owned {
            self.lock = None;
            // Fails while a ring is still open; in that case the next start removes the instance.
            let _ = std::fs::remove_dir(&self.dir);
        } else {
            let _ = self.set("buffer_size_kb", "8");
        }
    }
}

fn lock(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = call("tracefs-lock", || {
        let file = rustix::fs::open(dir.join("trace_clock"), flags, Mode::empty())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    })?;
    Ok(file)
}

/// Events lost by the ring of one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PipeStats {
    /// Events overwritten by newer ones.
    pub overrun: u64,
    /// Events that did not fit.
    pub dropped: u64,
}

impl PipeStats {
    /// Returns the total.
    pub fn lost(self) -> u64 {
        self.overrun + self.dropped
    }

    /// Parses the text of `per_cpu/cpuN/stats`.
    pub fn parse(text: &str) -> Self {
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
        };
        let commit: u64 = number("commit overrun");
        Self { overrun: number("overrun"), dropped: commit + number("dropped events") }
    }
}

/// The ring of one processor.
#[derive(Debug)]
pub struct Pipe {
    /// The processor.
    pub cpu: u16,
    file: OwnedFd,
    stats: PathBuf,
    page: Vec<u8>,
}

impl Pipe {
    /// Reads the next page of events; `None` if there is none at present.
    ///
    /// # Errors
    ///
    /// Returns the system error.
    pub fn next_page(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            let page = &mut self.page;
            match call("tracefs-read", || Ok(rustix::io::read(&self.file, &mut **page)?)) {
                Ok(0) => return Ok(None),
                Ok(n) => return Ok(Some(&self.page[..n])),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// Returns the losses since the instance was created.
    ///
    /// # Errors
    ///
    /// Returns the system error.
    pub fn stats(&self) -> io::Result<PipeStats> {
        read(&self.stats).map(|text| PipeStats::parse(&text))
    }
}

#[cfg(test)]
#[path = "tracefs/tests.rs"]
mod tests;
