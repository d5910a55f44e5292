//! A redb file whose changes stay in memory until they are accepted.
//!
//! redb repairs a file while it opens it: it returns to the commit before if the latest one is
//! damaged, and overwrites the evidence. Until [`Changes::apply`], written pages are therefore kept
//! in memory; from then on, all calls go to the file. A database that is refused leaves its file
//! unchanged. A repair rewrites few pages; later calls cost one atomic load more.

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE: usize = 4096;

/// The backend that redb uses.
#[derive(Debug)]
pub(super) struct Overlay(Arc<Layers>);

/// Applies the changes of an [`Overlay`].
pub(super) struct Changes(Arc<Layers>);

#[derive(Debug)]
struct Layers {
    file: FileBackend,
    is_applied: AtomicBool,
    pending: Mutex<Pending>,
}

#[derive(Debug)]
struct Pending {
    /// Length of the file with all changes.
    len: u64,
    /// Changed pages by number.
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

/// One page of a byte range: its number, the range within the page, and within the bytes.
type Part = (u64, std::ops::Range<usize>, std::ops::Range<usize>);

fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        // Smaller than a page.
        let start = (at % PAGE as u64) as usize;
        let count = (PAGE - start).min(len - done);
        let part = (at / PAGE as u64, start..start + count, done..done + count);
        done += count;
        (count > 0).then_some(part)
    })
}

impl Overlay {
    pub(super) fn new(file: File) -> Result<Self, redb::DatabaseError> {
        let file = FileBackend::new(file)?;
        let len = file.len().map_err(|e| redb::DatabaseError::Storage(e.into()))?;
        let pending = Mutex::new(Pending { len, pages: BTreeMap::new() });
        Ok(Self(Arc::new(Layers { file, is_applied: AtomicBool::new(false), pending })))
    }

    pub(super) fn changes(&self) -> Changes {
        Changes(Arc::clone(&self.0))
    }
}

impl Changes {
    /// Writes all changes to the file and syncs it. Must be called between transactions.
    pub(super) fn apply(&self) -> io::Result<()> {
        let layers = &self.0;
        let mut pending = layers.pending();
        if layers.file.len()? != pending.len {
            layers.file.set_len(pending.len)?;
        }
        for (number, page) in &pending.pages {
            let at = number * PAGE as u64;
            let count = usize::try_from(pending.len.saturating_sub(at)).unwrap_or(PAGE).min(PAGE);
            layers.file.write(at, &page[..count])?;
        }
        layers.file.sync_data()?;
        pending.pages.clear();
        layers.is_applied.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl Layers {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("no panic under this lock")
    }

    fn is_applied(&self) -> bool {
        self.is_applied.load(Ordering::Acquire)
    }

    /// Reads a page of the file; bytes after its end are zero.
    fn page(&self, number: u64) -> io::Result<Box<[u8; PAGE]>> {
        let mut page = Box::new([0; PAGE]);
        let at = number * PAGE as u64;
        let rest = self.file.len()?.saturating_sub(at);
        let count = usize::try_from(rest).unwrap_or(PAGE).min(PAGE);
        if count > 0 {
            self.file.read(at, &mut page[..count])?;
        }
        Ok(page)
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        if self.0.is_applied() { self.0.file.len() } else { Ok(self.0.pending().len) }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.0.is_applied() {
            return self.0.file.read(offset, out);
        }
        let pending = self.0.pending();
        if offset + out.len() as u64 > pending.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if pending.pages.is_empty() && pending.len == self.0.file.len()? {
            return self.0.file.read(offset, out);
        }
        for (number, within, bytes) in parts(offset, out.len()) {
            match pending.pages.get(&number) {
                Some(page) => out[bytes].copy_from_slice(&page[within]),
                None => out[bytes].copy_from_slice(&self.0.page(number)?[within]),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.0.is_applied() {
            return self.0.file.set_len(len);
        }
        let mut pending = self.0.pending();
        // Bytes that are cut off and then added again must be zero.
        let (first, end) = (len / PAGE as u64, pending.len.div_ceil(PAGE as u64));
        for number in first..end {
            let mut page = match pending.pages.remove(&number) {
                Some(page) => page,
                None => self.0.page(number)?,
            };
            let kept = usize::try_from(len.saturating_sub(number * PAGE as u64)).unwrap_or(PAGE);
            page[kept.min(PAGE)..].fill(0);
            pending.pages.insert(number, page);
        }
        pending.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.0.is_applied() { self.0.file.sync_data() } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.0.is_applied() {
            return self.0.file.write(offset, data);
        }
        let mut pending = self.0.pending();
        for (number, within, bytes) in parts(offset, data.len()) {
            let mut page = match pending.pages.remove(&number) {
                Some(page) => page,
                None => self.0.page(number)?,
            };
            page[within].copy_from_slice(&data[bytes]);
            pending.pages.insert(number, page);
        }
        pending.len = pending.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_visible_at_once_and_in_the_file_when_applied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let before: Vec<u8> = (0..3 * PAGE + 100).map(|n| n as u8).collect();
        std::fs::write(&path, &before).unwrap();
        let open = || {
            let file = File::options().read(true).write(true).open(&path).unwrap();
            Overlay::new(file).unwrap()
        };
        let overlay = open();
        let mut expected = before.clone();
        let check = |overlay: &Overlay, expected: &[u8]| {
            assert_eq!(overlay.len().unwrap(), expected.len() as u64);
            let mut all = vec![0; expected.len()];
            overlay.read(0, &mut all).unwrap();
            assert!(all == expected);
        };
        check(&overlay, &expected);
        overlay.write(PAGE as u64 - 3, &[9; 6]).unwrap();
        expected[PAGE - 3..PAGE + 3].fill(9);
        check(&overlay, &expected);
        overlay.set_len(5 * PAGE as u64).unwrap();
        expected.resize(5 * PAGE, 0);
        check(&overlay, &expected);
        overlay.set_len(2 * PAGE as u64 + 7).unwrap();
        overlay.set_len(4 * PAGE as u64).unwrap();
        expected.truncate(2 * PAGE + 7);
        expected.resize(4 * PAGE, 0);
        check(&overlay, &expected);
        assert!(overlay.read(4 * PAGE as u64 - 1, &mut [0; 2]).is_err());
        assert!(std::fs::read(&path).unwrap() == before, "nothing is written yet");
        overlay.changes().apply().unwrap();
        assert!(std::fs::read(&path).unwrap() == expected);
        overlay.write(1, &[7]).unwrap();
        expected[1] = 7;
        check(&overlay, &expected);
        assert!(std::fs::read(&path).unwrap() == expected);
    }
}
