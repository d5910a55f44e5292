//! Who has a file mapped: the reason for which its pages cannot be dropped.
//!
//! Reads the mappings of every process that we may look at, once for all files. A process of
//! somebody else cannot be looked at without privilege, so finding nobody proves nothing.

use std::collections::{BTreeMap, BTreeSet};

/// A file by device and inode.
pub(crate) type Id = ((u32, u32), u64);

/// A process that has a file mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) name: String,
}

/// The first process that has each of `files` mapped.
pub(crate) fn who_maps(files: &BTreeSet<Id>) -> BTreeMap<Id, Holder> {
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
