//! Where file number `index` lies, how large it is, and which set this is.

use ioloom_model::{Compute, FileSetSpec, Layout};
use ioloom_walk::PathList;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Most entries of a nested directory.
pub(crate) const FAN_OUT: u64 = 256;

/// Digits of a file name at least.
const DIGITS_MIN: usize = 8;

/// The directory of a set that holds its files and nothing else.
pub fn files_dir(dir: &Path) -> PathBuf {
    dir.join("files")
}

/// Size of file `index` in bytes.
pub fn size(spec: &FileSetSpec, index: u64) -> u64 {
    spec.size.value(spec.seed, index)
}

/// Compute time that file `index` demands, in nanoseconds; 0 when the set demands none.
pub fn demand_ns(spec: &FileSetSpec, index: u64) -> u64 {
    let demand = spec.compute.as_ref();
    Compute::Spin(None).demand_ns(demand, spec.seed, index).unwrap_or(0)
}

/// Levels of directories.
pub(crate) fn levels(spec: &FileSetSpec) -> u32 {
    match spec.layout {
        Layout::Flat => 0,
        Layout::Nested => {
            let mut levels = 2;
            while FAN_OUT.checked_pow(levels + 1).is_some_and(|room| room < spec.count) {
                levels += 1;
            }
            levels
        }
    }
}

/// The directory of file `index`, with a slash behind each name: `0a/ff/`, or nothing when flat.
pub(crate) fn leaf(spec: &FileSetSpec, index: u64) -> String {
    let leaf = index / FAN_OUT;
    let name = |level: u32| format!("{:02x}/", leaf / FAN_OUT.pow(level) % FAN_OUT);
    (0..levels(spec)).rev().map(name).collect()
}

/// The last name of file `index`.
pub(crate) fn name(spec: &FileSetSpec, index: u64) -> String {
    let digits = spec.count.saturating_sub(1).to_string().len().max(DIGITS_MIN);
    format!("{index:0digits$}")
}

/// The path of file `index` below [`files_dir`]; all have the same length, and their order by
/// bytes is that of their numbers.
pub fn relative_path(spec: &FileSetSpec, index: u64) -> String {
    leaf(spec, index) + &name(spec, index)
}

/// All paths of the set in `dir`, in order, without asking the file system.
pub fn paths(spec: &FileSetSpec, dir: &Path) -> PathList {
    let files = files_dir(dir);
    let mut list = PathList::new();
    for index in 0..spec.count {
        let relative = relative_path(spec, index);
        // Made by us as regular files; the inode is not known here.
        list.push_found(&[files.as_os_str().as_bytes(), b"/", relative.as_bytes()], 0);
    }
    list
}

/// Which set this is: XXH3-64 over the lines `SIZE  PATH` in the order of their bytes, 16 digits.
/// `find files -type f -printf '%s  %P\n' | LC_ALL=C sort | xxhsum -H3` gives the same.
/// Needs memory for all lines, about 30 bytes each.
pub fn hash(spec: &FileSetSpec) -> String {
    let mut lines = PathList::new();
    for index in 0..spec.count {
        let line = format!("{}  {}\n", size(spec, index), relative_path(spec, index));
        lines.push(line.as_bytes());
    }
    hash_lines(lines)
}

pub(crate) fn hash_lines(mut lines: PathList) -> String {
    lines.sort();
    let mut hash = Xxh3::new();
    for line in lines.iter() {
        hash.update(line);
    }
    format!("{:016x}", hash.digest())
}

#[cfg(test)]
pub(crate) fn spec(text: &str) -> FileSetSpec {
    match text.parse().unwrap() {
        crate::SetText::Spec(spec) => spec,
        other => panic!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn names_are_of_one_width() {
        let nested = spec("count=70000,size=1");
        assert_eq!(relative_path(&nested, 0), "00/00/00000000");
        assert_eq!(relative_path(&nested, 69_999), "01/11/00069999");
        assert_eq!(relative_path(&spec("count=5,size=1,layout=flat"), 4), "00000004");
        let huge = FileSetSpec { count: 20_000_000, ..nested };
        assert_eq!(levels(&huge), 3);
        assert_eq!(relative_path(&huge, 16_777_216), "01/00/00/16777216");
    }

    #[test]
    fn a_nested_directory_holds_at_most_256() {
        let nested = spec("count=70000,size=1");
        let mut counts: HashMap<String, u64> = HashMap::new();
        let mut upper: HashMap<String, std::collections::HashSet<String>> = HashMap::new();
        for index in 0..nested.count {
            let leaf = leaf(&nested, index);
            upper.entry(leaf[..3].to_owned()).or_default().insert(leaf.clone());
            *counts.entry(leaf).or_default() += 1;
        }
        assert!(counts.values().all(|n| *n <= FAN_OUT));
        assert!(upper.values().all(|n| n.len() as u64 <= FAN_OUT));
        assert!(upper.len() as u64 <= FAN_OUT);
    }

    #[test]
    fn another_size_or_place_is_another_set() {
        let base = spec("count=300,size=exp(mean=4KiB),seed=1");
        assert_eq!(hash(&base), hash(&base.clone()));
        assert_ne!(hash(&base), hash(&FileSetSpec { seed: 2, ..base.clone() }));
        assert_ne!(hash(&base), hash(&FileSetSpec { layout: Layout::Flat, ..base.clone() }));
        assert_ne!(hash(&base), hash(&FileSetSpec { count: 299, ..base }));
    }

    #[test]
    fn the_hash_is_that_of_the_sorted_lines() {
        let set = spec("count=3,size=list(10;9;100),layout=flat");
        let lines = "10  00000000\n100  00000002\n9  00000001\n";
        assert_eq!(hash(&set), format!("{:016x}", xxhash_rust::xxh3::xxh3_64(lines.as_bytes())));
    }

    proptest! {
        #[test]
        fn paths_order_as_numbers(count in 1u64..40_000_000, a: u64, b: u64, flat: bool) {
            let layout = if flat { Layout::Flat } else { Layout::Nested };
            let set = FileSetSpec { count, layout, ..spec("count=1,size=1") };
            let (a, b) = (a % count, b % count);
            let (x, y) = (relative_path(&set, a), relative_path(&set, b));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x.len(), y.len());
        }
    }
}
