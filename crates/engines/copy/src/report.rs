//! What a copy did, in numbers.

use crate::error::CopyError;
use crate::options::{Durable, HashKind, Verify};
use crate::plan::{Facts, Mode};
use std::path::PathBuf;

/// Hashes that are kept.
pub(crate) const HASHES_KEPT_MAX: usize = 100_000;

/// The hash of one file that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// The target.
    pub path: PathBuf,
    /// Its size, bytes.
    pub bytes: u64,
    /// Its hash in hexadecimal.
    pub hash: String,
}

/// Entries by what was done with them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Regular files whose bytes were copied or shared.
    pub files: u64,
    /// Names that became further names of a copy.
    pub hard_links: u64,
    /// Directories made or merged into.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Pipes, sockets and devices.
    pub specials: u64,
    /// Entries left as they are at the target.
    pub skipped: u64,
    /// Files that an earlier, interrupted copy had made and that are right by its record.
    pub resumed: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.hard_links += other.hard_links;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.specials += other.specials;
        self.skipped += other.skipped;
        self.resumed += other.resumed;
    }
}

/// What reading the copies again has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Files that were read again and are right.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that devices gave for it.
    pub device_bytes: u64,
    /// Files of which it is not known that a device gave their bytes.
    pub not_from_device: u64,
}

/// What a copy did.
#[derive(Debug)]
pub struct Report {
    /// Entries, by what was done with them; a directory that got no name in the end was taken away
    /// with what had been copied into it, and that is still counted here.
    pub counts: Counts,
    /// Bytes that are in their targets; shared blocks count.
    pub bytes: u64,
    /// What failed: the first [`crate::ERRORS_KEPT_MAX`].
    pub errors: Vec<CopyError>,
    /// All that failed.
    pub errors_count: u64,
    /// The user ended it.
    pub cancelled: bool,
    /// No space was left, so it ended early.
    pub out_of_space: bool,
    /// Files by the way their bytes went.
    pub modes: Vec<(Mode, u64)>,
    /// What is known of the pairs of file systems.
    pub facts: Vec<Facts>,
    /// What was asked to be on the device.
    pub durable: Durable,
    /// What was asked to be read again.
    pub verify: Verify,
    /// By which hash.
    pub hash: HashKind,
    /// What that showed.
    pub evidence: Evidence,
    /// Hashes of the copies, by path; the first hundred thousand.
    pub hashes: Vec<Hashed>,
    /// Time until every name was there, and with [`Durable`] on the device.
    pub elapsed_ns: u64,
    /// Of that, time of the last syncs.
    pub sync_ns: u64,
    /// Threads that took part, and why so many.
    pub threads: usize,
    /// The reason in a sentence.
    pub threads_why: String,
    /// The target takes no extended attributes, or not all.
    pub lost_xattrs: bool,
}

impl Evidence {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.device_bytes += other.device_bytes;
        self.not_from_device += other.not_from_device;
    }
}

impl Report {
    /// What came after, told together with this.
    pub(crate) fn then(&mut self, next: Self) {
        self.counts.add(&next.counts);
        self.evidence.add(&next.evidence);
        // CopyCounters counts on.
        self.bytes = next.bytes;
        self.errors_count += next.errors_count;
        let room = crate::ERRORS_KEPT_MAX.saturating_sub(self.errors.len());
        self.errors.extend(next.errors.into_iter().take(room));
        self.cancelled |= next.cancelled;
        self.out_of_space |= next.out_of_space;
        self.lost_xattrs |= next.lost_xattrs;
        for (mode, files) in next.modes {
            match self.modes.iter_mut().find(|(known, _)| *known == mode) {
                Some((_, all)) => *all += files,
                None => self.modes.push((mode, files)),
            }
        }
        let new: Vec<_> = next.facts.into_iter().filter(|f| !self.facts.contains(f)).collect();
        self.facts.extend(new);
        self.hashes.extend(next.hashes);
        self.hashes.sort_by(|a, b| a.path.cmp(&b.path));
        self.hashes.truncate(HASHES_KEPT_MAX);
        self.elapsed_ns += next.elapsed_ns;
        self.sync_ns += next.sync_ns;
        if next.threads > self.threads {
            (self.threads, self.threads_why) = (next.threads, next.threads_why);
        }
    }

    /// What came after could not begin.
    pub(crate) fn failed(&mut self, error: CopyError) {
        self.errors_count += 1;
        self.errors.push(error);
    }

    /// Bytes of this copy that a power cut right after it may lose: all of them where nothing was
    /// waited for, because their names may be lost too.
    pub fn may_be_lost_bytes(&self) -> u64 {
        if self.durable == Durable::None { self.bytes } else { 0 }
    }

    /// The word for how sure it is that the copies are right.
    pub fn verified_word(&self) -> &'static str {
        // What an earlier copy had made was not read again by this one; without a file read again
        // there is nothing to be sure of.
        let all = self.errors_count == 0 && !self.cancelled && self.counts.resumed == 0;
        let all = all && self.evidence.files > 0;
        match self.verify {
            Verify::Device if all && self.evidence.not_from_device == 0 => "verified-device",
            Verify::Device | Verify::Cache if all => "verified-cache",
            _ => "not verified",
        }
    }
}
