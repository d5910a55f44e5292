//! Reading a copy again, before it gets its name, with the evidence of where its bytes came from.
//!
//! `device` first makes the copy durable, then reads past the page cache where the file system says
//! how, or puts the pages out of memory and proves that they are gone. The kernel counts what this
//! thread had read from devices; that count is the evidence. What a drive answers from its own
//! memory nobody outside can tell.

use crate::error::{CopyError, Reason};
use crate::file::Way;
use crate::hash::Hasher;
use crate::options::Verify;
use crate::run::Run;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::proc::parse;
use ioloom_sys::{attr, cache, file, make, proc, transfer};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one read.
const BLOCK_BYTES: usize = 1 << 20;

/// What verification found, over all files.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Of these, bytes that devices gave.
    pub(crate) device_bytes: AtomicU64,
    /// Files that were to be read from the device and of which that is not known: they live in memory,
    /// or nobody counts.
    pub(crate) not_from_device: AtomicU64,
}

/// Reads a new file whole and compares its hash with that of the bytes as they came from the source.
pub(crate) fn check(
    run: &Run<'_>,
    way: &Way<'_>,
    new: &OwnedFd,
    bytes: u64,
    hash: Option<&str>,
) -> Result<(), CopyError> {
    let from_device = run.options.verify == Verify::Device;
    if from_device {
        transfer::sync_data(new).map_err(|e| way.failed_to("sync", e))?;
    }
    run.watcher.before_verify(new.as_fd());
    let reading = Reading::open(new, from_device).map_err(|e| way.failed_to("read again", e))?;
    let before = thread_read_bytes();
    let mut hasher = Hasher::new(run.options.hash);
    let got = reading
        .each(&mut |part| hasher.update(part))
        .map_err(|e| way.failed_to("read again", e))?;
    let device_bytes = thread_read_bytes().saturating_sub(before);
    let again = hasher.finish();
    if got != bytes || hash != Some(again.as_str()) {
        let (_, path) = (way.paths)();
        let told =
            format!("{bytes} bytes, {} sent; {got} bytes, {again} found", hash.unwrap_or("-"));
        return Err(CopyError { operation: "verify", path, reason: Reason::Differs(told) });
    }
    let seen = &run.verified;
    seen.files.fetch_add(1, Ordering::Relaxed);
    seen.bytes.fetch_add(bytes, Ordering::Relaxed);
    seen.device_bytes.fetch_add(device_bytes.min(bytes), Ordering::Relaxed);
    // Where the kernel counts nothing there is no evidence either; a hole has no bytes to give.
    let evident = || device_bytes > 0 || attr::of_file(new).is_ok_and(|new| new.blocks_512 == 0);
    if from_device && bytes > 0 && !(reading.from_device && evident()) {
        seen.not_from_device.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A new file that is open for reading.
struct Reading {
    file: OwnedFd,
    /// What is read now comes from the device.
    from_device: bool,
}

impl Reading {
    fn open(new: &OwnedFd, from_device: bool) -> io::Result<Self> {
        if !from_device {
            return Ok(Self { file: make::open_again(new, false)?, from_device: false });
        }
        let path = format!("/proc/self/fd/{}", new.as_raw_fd());
        if file::direct_alignment(Path::new(&path)).is_ok_and(|found| found.is_some()) {
            return Ok(Self { file: make::open_again(new, true)?, from_device: true });
        }
        let file = make::open_again(new, false)?;
        let gone = !attr::file_system(new)?.in_memory && put_out_of_memory(new)?;
        Ok(Self { file, from_device: gone })
    }

    /// Reads to the end; returns the bytes.
    fn each(&self, part: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
        let mut buffer = Buffer::new(BLOCK_BYTES);
        let mut at = 0;
        loop {
            let got = file::read_at(&self.file, buffer.whole_mut(), at)?;
            if got == 0 {
                return Ok(at);
            }
            part(buffer.bytes(got));
            at += got as u64;
        }
    }
}

/// Drops the pages of a written file; says whether that is proved.
fn put_out_of_memory(file: &OwnedFd) -> io::Result<bool> {
    cache::evict_file(file)?;
    Ok(cache::state(file.as_fd(), 0, 0)?.is_some_and(|state| state.resident == 0))
}

/// Bytes that this thread had devices read.
fn thread_read_bytes() -> u64 {
    let text = proc::read_text(Path::new("/proc/thread-self/io")).unwrap_or_default();
    parse::parse_io(&text).map_or(0, |io| io.read_bytes)
}
