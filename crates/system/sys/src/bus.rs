//! Turns SIGBUS in registered mappings into errors.
//!
//! Accessing a mapped page raises SIGBUS if its file was truncated, if a copy-on-write file system
//! has no space for a changed page, or if the device fails. A program whose mapping only avoids
//! system calls should then fail like a system call, with an error. The handler therefore replaces
//! the page by private memory, so the access completes, and notes the loss, which the owner of the
//! mapping checks after each write. Any other SIGBUS gets the action that was installed before.
//!
//! The cost is one load per check, and a process-wide handler from the first registration on.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Maximum number of registered mappings of a process.
const MAPPINGS_MAX: usize = 1024;

/// A registered mapping; free while `start` is 0.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
}

static SLOTS: [Slot; MAPPINGS_MAX] = [const {
    Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; MAPPINGS_MAX];
static PAGE: AtomicUsize = AtomicUsize::new(0);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static REGISTERING: Mutex<()> = Mutex::new(());

/// A mapping whose lost pages are noted instead of ending the process. Drop it after unmapping.
#[derive(Debug)]
pub(crate) struct Guarded(usize);

impl Guarded {
    /// Registers a mapping of this process.
    ///
    /// # Errors
    /// Fails if the handler cannot be installed, or if there are too many mappings.
    pub(crate) fn new(start: usize, len: usize) -> io::Result<Self> {
        let _registering = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
        install()?;
        let free = SLOTS.iter().position(|slot| slot.start.load(Ordering::SeqCst) == 0);
        let at = free.ok_or_else(|| io::Error::other("too many mapped files"))?;
        let slot = &SLOTS[at];
        slot.is_lost.store(false, Ordering::SeqCst);
        slot.end.store(start + len, Ordering::SeqCst);
        slot.start.store(start, Ordering::SeqCst);
        Ok(Self(at))
    }

    /// Returns an error if an access to the mapping failed.
    #[inline]
    pub(crate) fn check(&self) -> io::Result<()> {
        if SLOTS[self.0].is_lost.load(Ordering::Relaxed) {
            return Err(lost());
        }
        Ok(())
    }
}

#[cold]
fn lost() -> io::Error {
    io::Error::other("it was truncated while in use, or its device failed or is full")
}

impl Drop for Guarded {
    fn drop(&mut self) {
        SLOTS[self.0].start.store(0, Ordering::SeqCst);
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    PAGE.store(usize::try_from(crate::proc::page_bytes()).unwrap_or(4096), Ordering::SeqCst);
    // SAFETY: an all-zero action is valid, and the fields that matter are set below.
    let (mut action, mut previous): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both actions are initialised; the handler calls only async-signal-safe functions and
    // reads only atomics.
    let failed = unsafe {
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous) != 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    let _ = PREVIOUS.set(previous);
    Ok(())
}

extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `info` to a handler with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A positive code means that the kernel raised the signal, and only then is there an address.
    let slot = SLOTS.iter().find(|slot| {
        let start = slot.start.load(Ordering::SeqCst);
        start != 0 && (start..slot.end.load(Ordering::SeqCst)).contains(&address)
    });
    if let Some(slot) = slot.filter(|_| code > 0)
        && replace_page(address)
    {
        slot.is_lost.store(true, Ordering::SeqCst);
        return;
    }
    // The access is repeated after this and raises the signal again; one sent by a process is not.
    // SAFETY: `previous` is an action that the system returned, or the all-zero default action.
    unsafe {
        let previous = PREVIOUS.get().copied().unwrap_or_else(|| std::mem::zeroed());
        libc::sigaction(signal, &raw const previous, std::ptr::null_mut());
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

/// Replaces the page that contains an address of a registered mapping by private memory.
fn replace_page(address: usize) -> bool {
    let page = PAGE.load(Ordering::SeqCst);
    let start = address - address % page;
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
    );
    // SAFETY: the page belongs to a registered mapping, to which no references are given out except
    // to atomics, and stays mapped. mmap is a system call without locks in this process. errno
    // belongs to the interrupted code, so it is preserved.
    unsafe {
        let errno = *libc::__errno_location();
        let mapped = libc::mmap(start as *mut libc::c_void, page, access, flags, -1, 0);
        *libc::__errno_location() = errno;
        mapped != libc::MAP_FAILED
    }
}
