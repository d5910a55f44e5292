//! Finds processes that map files and so prevent their eviction.
//!
//! Reads the mappings of every accessible process once for all files. Without privilege, processes
//! of other users are not accessible, so an empty result proves nothing.

use std::collections::{BTreeMap, BTreeSet};

/// Device and inode number.
pub(crate) type Id = ((u32, u32), u64);

/// A process that maps a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) name: String,
}

/// Returns the first process that maps each of `files`.
pub(crate) fn mapping_processes(files: &BTreeSet<Id>) -> BTreeMap<Id, Holder> {
    let mut found = BTreeMap::new();
    if files.is_empty() {
        return found;
    }
    for process in ioloom_sys::proc::processes().unwrap_or_default() {
        for id in ioloom_sys::proc::mapped_files(process.pid).unwrap_or_default() {
            if files.contains(&id) {
                let holder = || Holder { pid: process.pid, name: process.name.clone() };
                found.entry(id).or_insert_with(holder);
            }
        }
    }
    found
}
