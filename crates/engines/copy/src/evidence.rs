//! The evidence that copies were read back, and its counters while the copy runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// The evidence from reading the copies back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Number of files that were read back and match.
    pub files: u64,
    /// Total size of these files in bytes.
    pub bytes: u64,
    /// Number of bytes read from devices.
    pub device_bytes: u64,
    /// Number of files without evidence that their bytes were read from a device: they are only in
    /// memory, or the kernel provides no count.
    pub not_from_device: u64,
}

/// [`Evidence`] while the copy runs, counted by all threads.
#[derive(Debug, Default)]
pub(crate) struct EvidenceCounters {
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) device_bytes: AtomicU64,
    pub(crate) not_from_device: AtomicU64,
}

impl EvidenceCounters {
    fn all(&self) -> [&AtomicU64; 4] {
        [&self.files, &self.bytes, &self.device_bytes, &self.not_from_device]
    }

    pub(crate) fn add(&self, seen: &Evidence) {
        for (counter, count) in self.all().into_iter().zip(seen.all()) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn take(&self, seen: &Evidence) {
        for (counter, count) in self.all().into_iter().zip(seen.all()) {
            counter.fetch_sub(count, Ordering::Relaxed);
        }
    }

    /// Returns the current counts.
    pub(crate) fn load(&self) -> Evidence {
        Evidence {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            device_bytes: self.device_bytes.load(Ordering::Relaxed),
            not_from_device: self.not_from_device.load(Ordering::Relaxed),
        }
    }
}

impl Evidence {
    fn all(&self) -> [u64; 4] {
        [self.files, self.bytes, self.device_bytes, self.not_from_device]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.device_bytes += other.device_bytes;
        self.not_from_device += other.not_from_device;
    }
}
