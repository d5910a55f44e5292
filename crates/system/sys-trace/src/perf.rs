//! Kernel events about threads: context switches and page faults, on the monotonic clock.
//!
//! One [`Ring`] contains the records of one thread, or of one process tree on one processor. Two
//! kinds of events write to it: a dummy event that carries the switches, and major page faults with
//! their addresses. Only user space is observed (`exclude_kernel`), so an unprivileged user can
//! observe their own processes if `kernel.perf_event_paranoid` is at most 2.
//!
//! ```text
//! kernel: write record at head → head += size (release)
//! us:     read head (acquire) → copy tail..head → store tail (release)
//! ```
//!
//! The kernel never overwrites the bytes between tail and head. A record that does not fit is
//! counted, both by a record in the ring and by [`Ring::lost`]. No software event is opened twice
//! for one thread because the kernel confuses the identities of two events that fire together.
//! Costs about 2 µs per switch, and nothing while the thread runs.

pub mod calls;
pub mod paused;
pub mod record;

use ioloom_sys::fault::call;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size in bytes of the record area of a per-thread ring.
pub const RING_BYTES: usize = 64 << 10;

/// Events that a ring records in addition to switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// No page faults.
    None,
    /// Page faults that waited for a device.
    Major,
    /// Every page fault; for the clock self-test.
    All,
}

/// Threads whose events a ring records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The calling thread.
    ThisThread,
    /// One thread of this user.
    Thread(u32),
    /// A process with all its threads and all children started from now on, on one processor.
    Tree {
        /// The process.
        pid: u32,
        /// The processor.
        cpu: u32,
    },
}

/// The first fields of the kernel's structure `perf_event_attr`, up to its fifth version.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock_id: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const TYPE_SOFTWARE: u32 = 1;
const PAGE_FAULTS: u64 = 2;
const PAGE_FAULTS_MAJOR: u64 = 6;
const DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ADDRESS: u64 = 1 << 3;
const SAMPLE_CPU: u64 = 1 << 7;
const READ_LOST: u64 = 1 << 4;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FLAG_COMM: u64 = 1 << 9;
const FLAG_TASK: u64 = 1 << 13;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_USE_CLOCK_ID: u64 = 1 << 25;
const FLAG_CONTEXT_SWITCH: u64 = 1 << 26;
const OPEN_CLOEXEC: libc::c_ulong = 1 << 3;
const IOCTL_SET_OUTPUT: libc::c_ulong = 0x2405;

/// Offsets in the first page of a mapping.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;

fn open_event(mut attr: Attr, target: Target) -> io::Result<OwnedFd> {
    let (pid, cpu) = match target {
        Target::ThisThread => (0, -1),
        Target::Thread(tid) => (tid as libc::pid_t, -1),
        Target::Tree { pid, cpu } => (pid as libc::pid_t, cpu as libc::c_int),
    };
    if matches!(target, Target::Tree { .. }) {
        attr.flags |= FLAG_INHERIT;
    }
    attr.kind = TYPE_SOFTWARE;
    attr.size = size_of::<Attr>() as u32;
    attr.sample_type |= SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU;
    attr.flags |=
        FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HYPERVISOR | FLAG_SAMPLE_ID_ALL | FLAG_USE_CLOCK_ID;
    attr.clock_id = libc::CLOCK_MONOTONIC;
    call("perf_event_open", || {
        // SAFETY: the structure is initialized, contains its own size and outlives the call.
        let fd = unsafe {
            let attr = std::ptr::from_ref(&attr);
            libc::syscall(libc::SYS_perf_event_open, attr, pid, cpu, -1, OPEN_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    })
}

/// Opens an event that counts lost records, or one that does not if the kernel is too old.
fn open_counted(attr: impl Fn() -> Attr, target: Target) -> io::Result<(OwnedFd, bool)> {
    match open_event(Attr { read_format: READ_LOST, ..attr() }, target) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::INVAL) => {
            open_event(attr(), target).map(|fd| (fd, false))
        }
        opened => opened.map(|fd| (fd, true)),
    }
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is shared memory that is accessed only through atomics at head and tail, and
// by copying the bytes between them, which the kernel does not write.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped until drop, the offset is within it and aligned, and the
        // kernel accesses it as one word.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `Ring::open`; no references to it remain.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Records of one thread, or of one process tree on one processor.
#[derive(Debug)]
pub struct Ring {
    events: Vec<(OwnedFd, bool)>,
    map: Arc<Mapping>,
    page_bytes: usize,
    data_bytes: usize,
    tail: u64,
}

/// Shows without a system call whether a ring has new records.
#[derive(Debug, Clone)]
pub struct Head(Arc<Mapping>);

impl Head {
    /// Returns the position of the next record, which increases with each record.
    #[inline]
    pub fn position(&self) -> u64 {
        self.0.word(HEAD_AT).load(Ordering::Relaxed)
    }
}

impl Ring {
    /// Starts recording. `data_bytes` must be a power of two and at least a page.
    ///
    /// # Errors
    ///
    /// Returns EACCES or EPERM if the system does not permit it, ENOSYS or EINVAL if the kernel
    /// does not support it, or EPERM from the mapping if too much memory is already locked.
    pub fn open(target: Target, faults: Faults, data_bytes: usize) -> io::Result<Self> {
        let page_bytes = ioloom_sys::proc::page_bytes() as usize;
        if !data_bytes.is_power_of_two() || data_bytes < page_bytes {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut flags = FLAG_CONTEXT_SWITCH;
        if matches!(target, Target::Tree { .. }) {
            flags |= FLAG_TASK | FLAG_COMM;
        }
        let switches = || Attr { config: DUMMY, flags, ..Attr::default() };
        let main = open_counted(switches, target)?;
        let len = page_bytes + data_bytes;
        let start = call("perf-mmap", || {
            let protect = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address chosen by the kernel touches no existing memory.
            let start =
                unsafe { mmap(std::ptr::null_mut(), len, protect, MapFlags::SHARED, &main.0, 0) }?;
            Ok(start)
        })?;
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null");
        assert!(
            TAIL_AT + size_of::<u64>() <= page_bytes,
            "head and tail must be inside the first page, which the mapping includes"
        );
        let map = Arc::new(Mapping { start, len });
        let mut ring = Self { events: vec![main], map, page_bytes, data_bytes, tail: 0 };
        let config = match faults {
            Faults::None => return Ok(ring),
            Faults::Major => PAGE_FAULTS_MAJOR,
            Faults::All => PAGE_FAULTS,
        };
        ring.join(config, target)?;
        Ok(ring)
    }

    /// Adds an event that writes to this ring.
    fn join(&mut self, config: u64, target: Target) -> io::Result<()> {
        let sample_type = SAMPLE_ADDRESS;
        let attr = || Attr { config, sample_period: 1, sample_type, ..Attr::default() };
        let event = open_counted(attr, target)?;
        let main = self.events[0].0.as_raw_fd();
        call("perf-set-output", || {
            // SAFETY: both descriptors are open events; the call takes no pointer.
            match unsafe { libc::ioctl(event.0.as_raw_fd(), IOCTL_SET_OUTPUT as _, main) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        self.events.push(event);
        Ok(())
    }

    /// Returns a handle that shows whether there are new records.
    pub fn head(&self) -> Head {
        Head(self.map.clone())
    }

    /// Appends all new records to `into`; returns the share of the ring that they occupied.
    pub fn drain(&mut self, into: &mut Vec<u8>) -> f64 {
        let head = self.map.word(HEAD_AT).load(Ordering::Acquire);
        let filled = usize::try_from(head.wrapping_sub(self.tail)).unwrap_or(usize::MAX);
        debug_assert!(
            filled <= self.data_bytes,
            "the kernel must stop at the tail: unread records were overwritten"
        );
        let filled = filled.min(self.data_bytes);
        let from = (self.tail as usize) & (self.data_bytes - 1);
        let first = filled.min(self.data_bytes - from);
        into.reserve(filled);
        // SAFETY: the data area follows the first page and is `data_bytes` long. Both ranges are
        // inside it and between tail and head, where the kernel does not write until the store
        // below.
        unsafe {
            let data = self.map.start.as_ptr().add(self.page_bytes);
            into.extend_from_slice(std::slice::from_raw_parts(data.add(from), first));
            into.extend_from_slice(std::slice::from_raw_parts(data, filled - first));
        }
        self.tail = head;
        self.map.word(TAIL_AT).store(head, Ordering::Release);
        filled as f64 / self.data_bytes as f64
    }

    /// Returns how many records have not fit so far; `None` if the kernel does not count them.
    pub fn lost(&self) -> Option<u64> {
        let mut sum = 0u64;
        for (event, counted) in &self.events {
            if !counted {
                return None;
            }
            let mut numbers = [0u8; 16];
            let read = call("perf-read", || Ok(rustix::io::read(event, &mut numbers)?)).ok()?;
            let lost = numbers.get(8..16).filter(|_| read == 16)?;
            sum = sum.saturating_add(u64::from_ne_bytes(lost.try_into().ok()?));
        }
        Some(sum)
    }
}

/// Returns the ID of the calling thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

#[cfg(test)]
#[path = "perf/tests.rs"]
mod tests;
