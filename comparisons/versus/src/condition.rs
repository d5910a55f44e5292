//! Establishes the condition of a run and collects evidence for it.
//!
//! Cold: the data is evicted, a seeded sample of files is checked with cachestat for remaining
//! pages, and the device must have read at least 95 % of the data by the end of the run. The check
//! opens the sampled files, which loads several inodes at a time; so if the whole cache is dropped,
//! it is dropped again after the check. Then the arm's programs are loaded and the list is read,
//! because loading them from the device is not part of the work.
//!
//! If requested, memory is written to and released before each cold run, the same for every arm.
//!
//! Warm: every file is read before each block, and the sample must be in memory before each run.
//! The order is random: the kernel stores inodes in order of first lookup, and an arm that reads in
//! that order is about 5 % faster (observed with 100,000 files on two cores). With `--drop-caches`,
//! nothing remains from before the block; without it, that order is arbitrary.

use crate::cli::Condition;
use crate::record::Proof;
use crate::set::FileSet;
use anyhow::{Context, Result};
use ioloom_sys::cache;
use ioloom_versus::before::{load_programs, touch_memory};
use ioloom_versus::device::Medium;
use ioloom_versus::order::Draws;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum share of the sample that may be resident in a cold run.
const RESIDENT_COLD_MAX: f64 = 0.01;
/// Minimum share of the sample that must be resident in a warm run.
const RESIDENT_WARM_MIN: f64 = 0.99;
/// Minimum share of the data that the device must have read in a cold run.
const DEVICE_COLD_MIN: f64 = 0.95;

/// Random stream for the reading order before a block.
const WARM_ORDER: u64 = 3;

/// Creates one condition on one file set.
pub(crate) struct Maker<'a> {
    set: &'a FileSet,
    medium: &'a Medium,
    condition: Condition,
    drop_caches: bool,
    touch_memory_bytes: usize,
    seed: u64,
    sample: Vec<(&'a Path, u64)>,
}

/// Evidence from before a run.
pub(crate) struct Before {
    proof: Proof,
    device_bytes: Option<u64>,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(
        set: &'a FileSet,
        medium: &'a Medium,
        condition: Condition,
        (drop_caches, touch_memory_bytes): (bool, usize),
        seed: u64,
        sample: Vec<(&'a Path, u64)>,
    ) -> Self {
        Self { set, medium, condition, drop_caches, touch_memory_bytes, seed, sample }
    }

    /// Returns how the condition is established, for the record.
    pub(crate) fn name(&self) -> &'static str {
        match (self.condition, self.drop_caches) {
            (Condition::Warm, true) => "drop-caches, read-all",
            (Condition::Warm, false) => "read-all",
            (Condition::Cold, true) => "drop-caches",
            (Condition::Cold, false) => "fadvise",
        }
    }

    /// Prepares a block.
    pub(crate) fn before_block(&self, block: u32) -> Result<()> {
        if self.condition == Condition::Warm {
            if self.drop_caches {
                self.drop_data()?;
            }
            let paths = self.set.paths();
            let mut draws = Draws::new(self.seed, u64::from(block) << 8 | WARM_ORDER);
            let order = draws.sample(paths.len(), paths.len());
            // Reading from the device takes so long that a machine that reclaims idle memory may
            // already have evicted the first files, so read again.
            for _ in 0..if self.drop_caches { 2 } else { 1 } {
                for path in order.iter().map(|at| &paths[*at]) {
                    File::open(path)
                        .and_then(|mut file| io::copy(&mut file, &mut io::sink()))
                        .with_context(|| format!("cannot read {}", path.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Prepares a run of `command` and returns the evidence so far.
    pub(crate) fn before_run(
        &self,
        command: &[OsString],
        list: Option<&PathBuf>,
    ) -> Result<Before> {
        if self.condition == Condition::Cold {
            self.drop_data()?;
        }
        let proof = self.look()?;
        if self.condition == Condition::Cold && self.drop_caches {
            self.drop_data()?;
        }
        touch_memory(self.touch_memory_bytes);
        load_programs(command);
        if let Some(list) = list {
            std::fs::read(list).with_context(|| format!("cannot read {}", list.display()))?;
        }
        Ok(Before { proof, device_bytes: self.medium.read_bytes() })
    }

    /// Completes the evidence after a run.
    pub(crate) fn after_run(&self, before: Before) -> Proof {
        let mut proof = before.proof;
        proof.device_bytes = match (before.device_bytes, self.medium.read_bytes()) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before)),
            _ => None,
        };
        proof.doubt = doubt(self.condition, &proof);
        proof
    }

    fn drop_data(&self) -> Result<()> {
        if self.drop_caches {
            return cache::flush_and_drop_caches().context("cannot drop the caches of the machine");
        }
        let dir = File::open(self.set.dir()).context("cannot open the directory")?;
        cache::flush_file_system(&dir).context("cannot flush the file system")?;
        for path in self.set.paths() {
            File::open(path)
                .and_then(cache::evict_file)
                .with_context(|| format!("cannot evict {}", path.display()))?;
        }
        Ok(())
    }

    fn look(&self) -> Result<Proof> {
        let page = rustix::param::page_size() as u64;
        let mut proof = Proof { data_bytes: self.set.totals.bytes, ..Proof::default() };
        let mut resident = Some(0);
        for (path, size) in &self.sample {
            let pages = File::open(path)
                .and_then(|file| cache::resident_pages(file, *size))
                .with_context(|| format!("cannot query the pages of {}", path.display()))?;
            proof.sampled_files += 1;
            proof.sampled_pages += size.div_ceil(page);
            resident = resident.zip(pages).map(|(sum, pages)| sum + pages);
        }
        proof.resident_pages = resident;
        Ok(proof)
    }
}

/// Returns why the evidence does not prove the condition.
fn doubt(condition: Condition, proof: &Proof) -> Option<String> {
    let Some(resident) = proof.resident_pages else {
        return Some("residency unknown: no cachestat".to_owned());
    };
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let in_memory = share(resident, proof.sampled_pages);
    match condition {
        Condition::Warm => (proof.sampled_pages > 0 && in_memory < RESIDENT_WARM_MIN)
            .then(|| format!("only {:.1} % of the sample resident", in_memory * 100.0)),
        Condition::Cold if in_memory > RESIDENT_COLD_MAX => {
            Some(format!("{:.1} % of the sample still resident", in_memory * 100.0))
        }
        Condition::Cold => match proof.device_bytes {
            None => Some("bytes read unknown: the files are not on a block device".to_owned()),
            Some(bytes) => {
                let read = share(bytes, proof.data_bytes);
                (read < DEVICE_COLD_MIN)
                    .then(|| format!("the device read only {:.1} % of the data", read * 100.0))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(resident: Option<u64>, device: Option<u64>) -> Proof {
        Proof {
            sampled_files: 10,
            sampled_pages: 1000,
            resident_pages: resident,
            device_bytes: device,
            data_bytes: 1000,
            doubt: None,
        }
    }

    #[test]
    fn cold_needs_an_empty_sample_and_a_device_that_read() {
        let cold = |r, d| doubt(Condition::Cold, &proof(r, d));
        assert_eq!(cold(Some(0), Some(950)), None);
        assert_eq!(cold(Some(10), Some(1000)), None);
        assert!(cold(Some(11), Some(1000)).is_some_and(|d| d.contains("1.1 %")));
        assert!(cold(Some(0), Some(949)).is_some_and(|d| d.contains("94.9 %")));
        assert!(cold(None, Some(1000)).is_some());
        assert!(cold(Some(0), None).is_some());
    }

    #[test]
    fn warm_needs_a_full_sample() {
        assert_eq!(doubt(Condition::Warm, &proof(Some(990), None)), None);
        assert!(doubt(Condition::Warm, &proof(Some(989), Some(0))).is_some());
        assert!(doubt(Condition::Warm, &proof(None, Some(0))).is_some());
    }
}
