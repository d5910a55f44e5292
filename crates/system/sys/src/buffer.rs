//! Page-aligned buffers.
//!
//! One kind of buffer serves every method: it has a fixed capacity, is aligned to at least 4 KiB,
//! and can be used for direct I/O. The system zeroes the memory once, at allocation. A reused
//! buffer contains old bytes beyond those filled by the latest read, so callers only ever see `len`
//! bytes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of every buffer in bytes.
pub const ALIGN: usize = 4096;

/// Minimum capacity in bytes of a buffer with its own mapping.
pub const MAPPED_FROM: usize = 64 << 10;

/// Size and alignment of a huge page in bytes.
const HUGE_BYTES: usize = 2 << 20;

/// A page-aligned block of bytes with a fixed capacity.
pub struct Buffer {
    start: NonNull<u8>,
    capacity: usize,
    kind: Kind,
}

enum Kind {
    Heap,
    Mapped,
}

// SAFETY: a Buffer owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for Buffer {}
// SAFETY: shared access yields only shared slices.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates a buffer as [`try_new`](Self::try_new) does, and ends the process if memory is out.
    pub fn new(capacity: usize) -> Self {
        Self::try_new(capacity)
            .unwrap_or_else(|_| handle_alloc_error(Self::layout(capacity.next_multiple_of(ALIGN))))
    }

    /// Allocates a buffer of at least `capacity` bytes (rounded up to [`ALIGN`]). Small buffers
    /// come from the allocator. From [`MAPPED_FROM`] on, the buffer is a mapping whose pages are
    /// allocated on first use: an aligned allocation would be zeroed immediately even though a file
    /// may fill little of it.
    ///
    /// # Errors
    /// [`OutOfMemory`](std::io::ErrorKind::OutOfMemory) if the system has no memory of that size.
    pub fn try_new(capacity: usize) -> std::io::Result<Self> {
        let out_of_memory = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let capacity = capacity.max(1).checked_next_multiple_of(ALIGN).ok_or_else(out_of_memory)?;
        if capacity >= MAPPED_FROM
            && let Ok(mapped) = Self::fresh(capacity)
        {
            return Ok(mapped);
        }
        let layout = Layout::from_size_align(capacity, ALIGN).map_err(|_| out_of_memory())?;
        // SAFETY: the layout has a non-zero size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        Ok(Self { start, capacity, kind: Kind::Heap })
    }

    /// Maps a new buffer whose pages have not been touched: the first write to each page is a page
    /// fault, as in a program that maps memory for each file.
    pub fn fresh(capacity: usize) -> std::io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let capacity = capacity.max(1).next_multiple_of(ALIGN);
        let start = crate::fault::call("mmap", || {
            // SAFETY: an anonymous private mapping at an address chosen by the kernel touches no
            // existing memory.
            let start = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    capacity,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE,
                )
            }?;
            Ok(start)
        })?;
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null");
        Ok(Self { start, capacity, kind: Kind::Mapped })
    }

    /// Allocates a buffer in huge pages if the system has any. A large direct request then consists
    /// of few segments instead of one per page. Costs the time needed to zero the pages.
    pub fn huge(capacity: usize) -> std::io::Result<Self> {
        use rustix::mm::{Advice, madvise, munmap};
        let capacity = capacity.max(1).next_multiple_of(ALIGN);
        if capacity < HUGE_BYTES {
            return Self::fresh(capacity);
        }
        let wide = Self::fresh(capacity + HUGE_BYTES)?;
        let wide = std::mem::ManuallyDrop::new(wide);
        let before = wide.start.as_ptr().align_offset(HUGE_BYTES);
        // SAFETY: `before` is below HUGE_BYTES, so all three parts are inside the mapping of
        // `wide`, which is never dropped. The two outer parts are unmapped, and nothing points to
        // them. The advice concerns the remaining part, and a system without huge pages refuses it.
        unsafe {
            let start = wide.start.add(before);
            let _ = munmap(wide.start.as_ptr().cast(), before);
            let _ = munmap(start.as_ptr().add(capacity).cast(), HUGE_BYTES - before);
            let _ = madvise(start.as_ptr().cast(), capacity, Advice::LinuxHugepage);
            Ok(Self { start, capacity, kind: Kind::Mapped })
        }
    }

    /// Writes one byte in every page, so that later writes cause no page faults.
    pub fn touch_pages(&mut self) {
        for page in self.whole_mut().chunks_mut(ALIGN) {
            // A volatile write is not optimised away.
            // SAFETY: `page` is a valid exclusive slice of at least one byte.
            unsafe { std::ptr::write_volatile(page.as_mut_ptr(), 0) };
        }
    }

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the first `len` bytes.
    pub fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.capacity, "the requested bytes must fit the capacity");
        // SAFETY: the range is inside the allocation, which is initialized from the start.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) }
    }

    /// Returns the whole buffer for writing.
    pub fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }

    /// Returns the address, for requests during which a ring owns the buffer.
    pub(crate) fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGN).expect("capacity is a multiple of the alignment")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.kind {
            // SAFETY: allocated in `new` with the same layout.
            Kind::Heap => unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) },
            // SAFETY: mapped in `fresh` with the same length; no references remain.
            Kind::Mapped => unsafe {
                let _ = rustix::mm::munmap(self.start.as_ptr().cast(), self.capacity);
            },
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_writable() {
        for mut buffer in [Buffer::new(1), Buffer::new(5000), Buffer::fresh(9000).unwrap()] {
            assert_eq!(buffer.address() as usize % ALIGN, 0);
            assert_eq!(buffer.capacity() % ALIGN, 0);
            let all = buffer.capacity();
            assert!(buffer.bytes(all).iter().all(|b| *b == 0));
            buffer.whole_mut()[all - 1] = 7;
            buffer.touch_pages();
            assert_eq!(buffer.bytes(all)[all - 1], 7);
        }
    }

    #[test]
    fn a_buffer_that_no_memory_can_hold_is_an_error() {
        for capacity in [isize::MAX as usize / 2, isize::MAX as usize, usize::MAX] {
            let error = Buffer::try_new(capacity).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{capacity}");
        }
    }

    #[test]
    fn a_huge_buffer_is_aligned_to_huge_pages() {
        for capacity in [ALIGN, HUGE_BYTES, 5 << 20] {
            let mut buffer = Buffer::huge(capacity).unwrap();
            assert_eq!(buffer.capacity(), capacity);
            assert!(
                capacity < HUGE_BYTES || (buffer.address() as usize).is_multiple_of(HUGE_BYTES)
            );
            buffer.whole_mut().fill(7);
            assert!(buffer.bytes(capacity).iter().all(|b| *b == 7));
        }
    }

    #[test]
    #[should_panic(expected = "capacity")]
    fn reading_beyond_the_capacity_panics() {
        let buffer = Buffer::new(10);
        let _ = buffer.bytes(ALIGN + 1);
    }
}
