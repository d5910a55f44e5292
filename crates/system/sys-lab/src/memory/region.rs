//! Anonymous memory with a preferred page size, and a check of the page sizes actually granted.

use ioloom_sys::fault::call;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// Alignment of every region: a huge page on x86-64, and on 64-bit ARM with 4 KiB pages.
pub const HUGE_BYTES: usize = 2 << 20;

/// The preferred page size of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The smallest pages; huge pages are disabled for the region.
    Small,
    /// Huge pages if the kernel has any; this is only a preference.
    Huge,
}

/// Anonymous private memory, zeroed, aligned to [`HUGE_BYTES`].
pub struct Region {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the region owns its memory exclusively, as a `Vec` does.
unsafe impl Send for Region {}
// SAFETY: shared access only reads.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `bytes`, rounded up to a multiple of [`HUGE_BYTES`], without touching the
    /// pages.
    ///
    /// # Errors
    /// Fails if memory is exhausted. A refused page size is not an error: see
    /// [`Region::huge_bytes`].
    pub fn new(bytes: usize, pages: Pages) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE_BYTES);
        let mapped_bytes = bytes + HUGE_BYTES;
        let mapped = call("mmap", || {
            // SAFETY: a new anonymous mapping at an address chosen by the kernel touches no
            // existing memory.
            let start = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    mapped_bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            }?;
            Ok(start)
        })?;
        let mapped = NonNull::new(mapped.cast::<u8>()).expect("mmap never returns null");
        let ahead = mapped.as_ptr().align_offset(HUGE_BYTES);
        // SAFETY: the mapping is one huge page longer than requested, so the aligned start and the
        // following `bytes` are inside it.
        let start = unsafe { mapped.add(ahead) };
        let region = Self { mapped, mapped_bytes, start, bytes };
        let advice = match pages {
            Pages::Small => Advice::LinuxNoHugepage,
            Pages::Huge => Advice::LinuxHugepage,
        };
        // A kernel without huge pages refuses both; in that case all pages are small.
        let _ = call("madvise", || {
            // SAFETY: the range is inside the new mapping, and the advice changes no contents.
            unsafe { madvise(region.start.as_ptr().cast(), region.bytes, advice) }?;
            Ok(())
        });
        Ok(region)
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory as words.
    pub fn words(&self) -> &[u64] {
        // SAFETY: the range is mapped readable and writable until drop, zeroed by the kernel and
        // aligned, and every bit pattern is a valid number.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / 8) }
    }

    /// Returns the memory as mutable words.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes / 8) }
    }

    /// Writes one word in every page of `page_bytes`, so that every page is allocated.
    pub fn touch(&mut self, page_bytes: usize) {
        for page in self.words_mut().chunks_mut((page_bytes / 8).max(1)) {
            // SAFETY: `page` is a valid exclusive slice of at least one word; a volatile write is
            // not optimised away.
            unsafe { std::ptr::write_volatile(page.as_mut_ptr(), 0) };
        }
    }

    /// Returns the number of bytes of the region currently in huge pages, from /proc/self/smaps;
    /// `None` if that file cannot be read or lacks the information.
    pub fn huge_bytes(&self) -> Option<u64> {
        let text = ioloom_sys::proc::read_text(Path::new("/proc/self/smaps")).ok()?;
        huge_bytes_of(&text, self.start.as_ptr() as u64, self.bytes as u64)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no reference outlives `self`.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes)", self.bytes)
    }
}

/// Returns the bytes in huge pages of the mappings that overlap `start .. start + bytes`. A
/// partially overlapping mapping counts in full; the result is at most `bytes`.
fn huge_bytes_of(smaps: &str, start: u64, bytes: u64) -> Option<u64> {
    let (mut inside, mut sum, mut found) = (false, 0u64, false);
    for line in smaps.lines() {
        if let Some((from, to)) = range_of(line) {
            inside = from < start + bytes && start < to;
        } else if inside && let Some(rest) = line.strip_prefix("AnonHugePages:") {
            let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
            (sum, found) = (sum + (kib << 10), true);
        }
    }
    found.then_some(sum.min(bytes))
}

fn range_of(line: &str) -> Option<(u64, u64)> {
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zeroed_aligned_and_writable() {
        for pages in [Pages::Small, Pages::Huge] {
            let mut region = Region::new(3 << 20, pages).unwrap();
            assert_eq!(region.bytes(), 4 << 20);
            assert_eq!(region.words().as_ptr() as usize % HUGE_BYTES, 0);
            region.touch(4096);
            assert!(region.words().iter().all(|w| *w == 0));
            region.words_mut()[7] = 9;
            assert_eq!(region.words()[7], 9);
            if let Some(huge) = region.huge_bytes() {
                assert!(huge == 0 || pages == Pages::Huge, "{huge}");
            }
        }
    }

    #[test]
    fn huge_pages_are_counted_per_mapping() {
        let text = "1000-3000 rw-p 0 0:0 0\nRss: 8 kB\nAnonHugePages:      4096 kB\n\
                    5000-900000 rw-p 0 0:0 0 [heap]\nAnonHugePages:      2048 kB\n";
        assert_eq!(huge_bytes_of(text, 0x5000, 0x80_0000), Some(2 << 20));
        assert_eq!(huge_bytes_of(text, 0x1000, 0x2000), Some(0x2000));
        assert_eq!(huge_bytes_of(text, 0x4000, 0x1000), None);
    }
}
