//! Verifies a copy by reading it back before it gets its name, and collects evidence of where the
//! bytes were read from.
//!
//! With `device`, the copy is synced first. It is then read without the page cache if the file
//! system reports a direct I/O alignment; otherwise, its pages are evicted and the eviction is
//! checked. The evidence is the kernel's count of bytes that this thread read from devices. Reads
//! served from a drive's internal cache cannot be detected.

use crate::context::CopyContext;
use crate::error::{CopyError, Reason};
use crate::evidence::Evidence;
use crate::hash::Hasher;
use crate::options::Verify;
use crate::route::Route;
use ioloom_failure::Operation;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::descriptor::Descriptor;
use ioloom_sys::proc::parse;
use ioloom_sys::{attr, cache, file, make, proc, transfer};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Read size in bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// Reads a new file back and compares its hash with that of the bytes read from the source. Returns the
/// evidence.
pub(crate) fn check(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    new: &Descriptor,
    bytes: u64,
    hash: Option<&str>,
) -> Result<Evidence, CopyError> {
    let from_device = context.options.verify == Verify::Device;
    if from_device {
        transfer::sync_data(new).map_err(|e| route.failed_to(Operation::Sync, e))?;
    }
    context.watcher.before_verify(new.as_fd());
    let reading =
        Reading::open(new, from_device).map_err(|e| route.failed_to(Operation::Verify, e))?;
    let before = thread_read_bytes();
    let mut hasher = Hasher::new(context.options.hash);
    let got = reading
        .each(&mut |part| hasher.update(part))
        .map_err(|e| route.failed_to(Operation::Verify, e))?;
    let from_device_here = reading.from_device;
    reading.file.close().map_err(|e| route.failed_to(Operation::Close, e))?;
    let device_bytes = thread_read_bytes().saturating_sub(before);
    let again = hasher.finish();
    if got != bytes || hash != Some(again.as_str()) {
        let (_, path) = (route.paths)();
        let difference = format!(
            "wrote {bytes} bytes with hash {}, read {got} bytes with hash {again}",
            hash.unwrap_or("-")
        );
        let reason = Reason::Differs(difference);
        return Err(CopyError { operation: Operation::Verify, path, other: None, reason });
    }
    // Without a kernel count, the evidence is missing; a hole needs none.
    let evident = || device_bytes > 0 || attr::of_file(new).is_ok_and(|new| new.blocks_512 == 0);
    let is_missing = from_device && bytes > 0 && !(from_device_here && evident());
    Ok(Evidence {
        files: 1,
        bytes,
        device_bytes: device_bytes.min(bytes),
        not_from_device: is_missing.into(),
    })
}

/// A new file, opened for reading.
struct Reading {
    file: Descriptor,
    /// Whether reads come from the device.
    from_device: bool,
}

impl Reading {
    fn open(new: &Descriptor, from_device: bool) -> io::Result<Self> {
        if !from_device {
            return Ok(Self { file: make::open_again(new, false)?.into(), from_device: false });
        }
        let path = format!("/proc/self/fd/{}", new.as_raw_fd());
        if file::direct_alignment(Path::new(&path)).is_ok_and(|found| found.is_some()) {
            return Ok(Self { file: make::open_again(new, true)?.into(), from_device: true });
        }
        let file = Descriptor::new(make::open_again(new, false)?);
        let gone = !attr::file_system(new)?.in_memory && evict(new)?;
        Ok(Self { file, from_device: gone })
    }

    /// Reads to the end of the file; returns the number of bytes.
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

/// Evicts the pages of a written file; returns true if all of them are proved to be evicted.
fn evict(file: &Descriptor) -> io::Result<bool> {
    cache::evict_file(file)?;
    Ok(cache::state(file.as_fd(), 0, 0)?.is_some_and(|state| state.resident == 0))
}

/// Returns the number of bytes that this thread has read from devices.
fn thread_read_bytes() -> u64 {
    let text = proc::read_text(Path::new("/proc/thread-self/io")).unwrap_or_default();
    parse::parse_io(&text).map_or(0, |io| io.read_bytes)
}
