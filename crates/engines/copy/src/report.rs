//! The result of a copy.

use crate::error::{CopyError, Errors};
use crate::evidence::{Evidence, EvidenceCounters};
use crate::links::Copied;
use crate::mode::Mode;
use crate::options::{CopyOptions, Durable, HashKind, Verify};
use crate::plan::Facts;
use ioloom_sys::attr::Attr;
use ioloom_sys::dir::Kind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of hashes to keep.
pub(crate) const HASHES_KEPT_MAX: usize = 100_000;

/// The hash of one copied file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// The target.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// The hash in hexadecimal.
    pub hash: String,
}

/// Number of entries by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Regular files whose bytes were copied or shared; with `attributes_only`, those that got attributes.
    pub files: u64,
    /// Names that became hard links to a copy or, with [`crate::Make::HardLink`], to a source.
    pub hard_links: u64,
    /// Directories created or merged into.
    pub directories: u64,
    /// Symbolic links, copied or made to a source.
    pub symlinks: u64,
    /// Pipes, sockets and devices.
    pub specials: u64,
    /// Entries whose existing target was kept.
    pub skipped: u64,
    /// Files completed by an earlier, interrupted copy, according to its journal.
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

    /// Adds an entry that is about to be removed; `None` for a directory. All names of a file but the last were hard
    /// links.
    pub(crate) fn add_removed(&mut self, found: Option<&Attr>) {
        let count = match found {
            None => &mut self.directories,
            Some(found) if found.links > 1 => &mut self.hard_links,
            Some(found) if found.kind == Kind::Symlink => &mut self.symlinks,
            Some(found) if found.kind != Kind::Regular => &mut self.specials,
            Some(_) => &mut self.files,
        };
        *count += 1;
    }

    /// Subtracts entries that were removed again. Entries of an earlier copy were never added.
    pub(crate) fn take(&mut self, other: &Self) {
        let take = |from: &mut u64, count: u64| *from = from.saturating_sub(count);
        take(&mut self.files, other.files);
        take(&mut self.hard_links, other.hard_links);
        take(&mut self.directories, other.directories);
        take(&mut self.symlinks, other.symlinks);
        take(&mut self.specials, other.specials);
    }
}

/// Number of files by method, counted by all threads.
#[derive(Debug, Default)]
pub(crate) struct ModeCounters([AtomicU64; Mode::ALL.len()]);

impl ModeCounters {
    pub(crate) fn add(&self, mode: Mode) {
        self.0[mode as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn add_all(&self, other: &Self) {
        for (counter, other) in self.0.iter().zip(&other.0) {
            counter.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn take(&self, other: &Self) {
        for (counter, other) in self.0.iter().zip(&other.0) {
            counter.fetch_sub(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns the methods that were used.
    pub(crate) fn load(&self) -> Vec<(Mode, u64)> {
        let counts = Mode::ALL.map(|mode| (mode, self.0[mode as usize].load(Ordering::Relaxed)));
        counts.into_iter().filter(|(_, files)| *files > 0).collect()
    }
}

/// What was copied below a hidden directory, which is subtracted if the directory is removed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) bytes: AtomicU64,
    pub(crate) verified: EvidenceCounters,
    pub(crate) modes: ModeCounters,
}

impl Tally {
    /// Adds one file.
    pub(crate) fn add(&self, copied: &Copied) {
        self.bytes.fetch_add(copied.bytes, Ordering::Relaxed);
        self.verified.add(&copied.evidence);
        copied.mode.into_iter().for_each(|mode| self.modes.add(mode));
    }

    /// Adds the files of a directory below.
    pub(crate) fn add_all(&self, below: &Self) {
        self.bytes.fetch_add(below.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.verified.add(&below.verified.load());
        self.modes.add_all(&below.modes);
    }
}

/// The result of a copy.
#[derive(Debug)]
pub struct Report {
    /// Number of entries by outcome, without entries in directories that were removed because they
    /// could not be completed.
    pub counts: Counts,
    /// Number of bytes copied, including shared blocks.
    pub bytes: u64,
    /// The first [`crate::ERRORS_KEPT_MAX`] errors.
    pub errors: Vec<CopyError>,
    /// Total number of errors.
    pub errors_count: u64,
    /// Whether the user cancelled the copy.
    pub cancelled: bool,
    /// Whether the copy stopped because the device was full.
    pub out_of_space: bool,
    /// Number of files copied by each method.
    pub modes: Vec<(Mode, u64)>,
    /// Facts about each pair of file systems.
    pub facts: Vec<Facts>,
    /// The requested durability.
    pub durable: Durable,
    /// The requested verification.
    pub verify: Verify,
    /// The hash function.
    pub hash: HashKind,
    /// The evidence from verification.
    pub evidence: Evidence,
    /// Hashes of the copies, by path; at most 100,000.
    pub hashes: Vec<Hashed>,
    /// Time until every name was in place and, if requested, synced, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time of the final syncs in nanoseconds; included in `elapsed_ns`.
    pub sync_ns: u64,
    /// Number of threads.
    pub threads: usize,
    /// The reason for the number of threads.
    pub threads_why: String,
    /// Whether the target rejected some extended attributes.
    pub lost_xattrs: bool,
}

impl Report {
    /// The result of a copy of nothing.
    pub(crate) fn empty(options: &CopyOptions) -> Self {
        Self {
            counts: Counts::default(),
            bytes: 0,
            errors: Vec::new(),
            errors_count: 0,
            cancelled: false,
            out_of_space: false,
            modes: Vec::new(),
            facts: Vec::new(),
            durable: options.durable,
            verify: options.verify,
            hash: options.hash,
            evidence: Evidence::default(),
            hashes: Vec::new(),
            elapsed_ns: 0,
            sync_ns: 0,
            threads: 0,
            threads_why: String::new(),
            lost_xattrs: false,
        }
    }

    /// Adds the results of the next part of the same copy.
    pub(crate) fn append(&mut self, next: Self) {
        self.counts.add(&next.counts);
        self.evidence.add(&next.evidence);
        // These counters continue across parts.
        self.bytes = next.bytes;
        self.add_errors(Errors { kept: next.errors, count: next.errors_count });
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

    pub(crate) fn add_errors(&mut self, next: Errors) {
        self.errors_count += next.count;
        let room = crate::ERRORS_KEPT_MAX.saturating_sub(self.errors.len());
        self.errors.extend(next.kept.into_iter().take(room));
    }

    /// Adds the error from a part that could not start.
    pub(crate) fn failed(&mut self, error: CopyError) {
        self.out_of_space |= error.is_out_of_space();
        self.errors_count += 1;
        self.errors.push(error);
    }

    /// Returns the number of bytes that a power failure right after the copy can lose: all of them
    /// if nothing was synced, because their names can be lost too.
    pub fn may_be_lost_bytes(&self) -> u64 {
        if self.durable == Durable::None { self.bytes } else { 0 }
    }

    /// Returns the verification level reached.
    pub fn verified_word(&self) -> &'static str {
        // Files completed by an earlier copy were not read back by this one, and a copy in which no
        // file was read back proves nothing.
        let all = self.errors_count == 0 && !self.cancelled && self.counts.resumed == 0;
        let all = all && self.evidence.files > 0;
        match self.verify {
            Verify::Device if all && self.evidence.not_from_device == 0 => "verified-device",
            Verify::Device | Verify::Cache if all => "verified-cache",
            _ => "not verified",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_failure::Operation;
    use std::io;

    /// Goal: a directory that cannot be created because the target is full counts as lack of space, as a file does.
    #[test]
    fn a_part_that_finds_a_full_target_is_out_of_space() {
        let mut report = Report::empty(&CopyOptions::default());
        for (code, is_full) in [(13, false), (28, true), (13, true)] {
            let error = io::Error::from_raw_os_error(code);
            report.failed(CopyError::io(Operation::CreateDir, "x".into(), error));
            assert_eq!(report.out_of_space, is_full, "{code}");
        }
        assert_eq!(report.errors_count, 3);
    }
}
