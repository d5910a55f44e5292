//! File paths and sizes, and the identity of a set.

use ioloom_model::{Compute, DirectoryLayout, FileSetSpec};
use ioloom_walk::PathList;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Maximum number of entries in a nested directory.
pub(crate) const FAN_OUT: u64 = 256;

/// Number of files per directory in a tree.
const TREE_FILES: u64 = 40;

/// Number of directory levels in a tree, below the top.
const TREE_LEVELS: u32 = 5;

/// Number of files per directory in a chain, and number of directories per chain.
const DEEP_FILES: u64 = 4;
const DEEP_LEVELS: u64 = 64;

/// Minimum number of digits in a file name.
const DIGITS_MIN: usize = 8;

/// Returns the directory that contains only the files of the set.
pub fn files_dir(dir: &Path) -> PathBuf {
    dir.join("files")
}

/// Returns the size of file `index` in bytes.
pub fn size(spec: &FileSetSpec, index: u64) -> u64 {
    spec.size.value(spec.seed, first_name(spec, index))
}

/// Returns the file that name `index` refers to: `index` itself, or an earlier file that it is a
/// hard link to.
pub(crate) fn first_name(spec: &FileSetSpec, index: u64) -> u64 {
    let links = u64::from(spec.making.links);
    if links > 0 && index % links == links - 1 { index - 1 } else { index }
}

/// Returns the length of aligned runs of files that share a directory.
pub(crate) fn run_files(spec: &FileSetSpec) -> u64 {
    match spec.layout {
        DirectoryLayout::Flat | DirectoryLayout::Nested => FAN_OUT,
        DirectoryLayout::Tree => TREE_FILES,
        DirectoryLayout::Deep => DEEP_FILES,
    }
}

/// Returns the n-th file to create. Each file comes up exactly once; in shuffled order, consecutive
/// files are far apart.
pub(crate) fn made_as(spec: &FileSetSpec, nth: u64) -> u64 {
    if !spec.making.shuffled {
        return nth;
    }
    // A stride near the golden ratio that is coprime to the count.
    let mut stride = (spec.count as f64 * 0.618_033_988_75) as u64;
    while gcd(stride.max(1), spec.count) != 1 {
        stride += 1;
    }
    (u128::from(nth) * u128::from(stride.max(1)) % u128::from(spec.count)) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the maximum number of directories in the set.
pub(crate) fn directories(spec: &FileSetSpec) -> u64 {
    match spec.layout {
        DirectoryLayout::Flat => 1,
        DirectoryLayout::Nested => {
            spec.count.div_ceil(FAN_OUT) + spec.count.div_ceil(FAN_OUT * FAN_OUT) + 1
        }
        DirectoryLayout::Tree => spec.count.div_ceil(TREE_FILES),
        DirectoryLayout::Deep => spec.count.div_ceil(DEEP_FILES) + 1,
    }
}

/// Returns how many subdirectories each directory needs to fit `directories` into a tree of the
/// permitted depth.
fn tree_fan_out(directories: u64) -> u64 {
    let room = |fan: u64| (0..=TREE_LEVELS).map(|level| fan.saturating_pow(level)).sum::<u64>();
    (2..).find(|fan| room(*fan) >= directories).unwrap_or(directories)
}

/// Returns the path of directory `number` in a tree. Directories are numbered in path order, each
/// one before its subdirectories, and descendants are distributed evenly.
fn tree_path(directories: u64, mut number: u64) -> String {
    let (fan, mut below, mut path) = (tree_fan_out(directories), directories, String::new());
    while number > 0 {
        number -= 1;
        below -= 1;
        for child in 0..fan {
            let share = below / fan + u64::from(child < below % fan);
            if number < share {
                path.push_str(&format!("d{child:03}/"));
                below = share;
                break;
            }
            number -= share;
        }
    }
    path
}

/// Returns the path of the directory of file `index` in chains.
fn deep_path(index: u64) -> String {
    let (chain, level) = (index / DEEP_FILES / DEEP_LEVELS, index / DEEP_FILES % DEEP_LEVELS);
    format!("c{chain:07}/{}", "d/".repeat(level as usize))
}

/// Returns the compute time of file `index` in nanoseconds; 0 if the set has no compute times.
pub fn demand_ns(spec: &FileSetSpec, index: u64) -> u64 {
    let demand = spec.compute.as_ref();
    Compute::Spin(None).demand_ns(demand, spec.seed, index).unwrap_or(0)
}

/// Returns the number of nested directory levels.
fn levels(spec: &FileSetSpec) -> u32 {
    match spec.layout {
        DirectoryLayout::Flat | DirectoryLayout::Tree | DirectoryLayout::Deep => 0,
        DirectoryLayout::Nested => {
            let mut levels = 2;
            while FAN_OUT.checked_pow(levels + 1).is_some_and(|room| room < spec.count) {
                levels += 1;
            }
            levels
        }
    }
}

/// Returns the directory of file `index`, with a slash after each name: `0a/ff/`; empty if flat.
pub(crate) fn leaf(spec: &FileSetSpec, index: u64) -> String {
    match spec.layout {
        DirectoryLayout::Tree => return tree_path(directories(spec), index / TREE_FILES),
        DirectoryLayout::Deep => return deep_path(index),
        DirectoryLayout::Flat | DirectoryLayout::Nested => {}
    }
    let leaf = index / FAN_OUT;
    let name = |level: u32| format!("{:02x}/", leaf / FAN_OUT.pow(level) % FAN_OUT);
    (0..levels(spec)).rev().map(name).collect()
}

/// Returns the name of file `index` within its directory.
pub(crate) fn name(spec: &FileSetSpec, index: u64) -> String {
    let digits = spec.count.saturating_sub(1).to_string().len().max(DIGITS_MIN);
    format!("{index:0digits$}")
}

/// Returns the path of file `index` relative to [`files_dir`]. Sorting paths by bytes yields the
/// order of indices.
pub fn relative_path(spec: &FileSetSpec, index: u64) -> String {
    leaf(spec, index) + &name(spec, index)
}

/// Returns the directories that contain files, in path order, each with a slash after every name,
/// and the total size of their files. Does not access the file system. A second name of a file is
/// counted with the first.
pub fn leaves(spec: &FileSetSpec) -> impl Iterator<Item = (String, u64)> {
    let (run, count) = (run_files(spec), spec.count);
    let first = (0..count.div_ceil(run)).map(move |n| n * run);
    first.map(move |first| {
        let files = first..(first + run).min(count);
        (leaf(spec, first), files.map(|index| size(spec, index)).sum())
    })
}

/// Returns all paths of the set in `dir`, in order, without accessing the file system.
pub fn paths(spec: &FileSetSpec, dir: &Path) -> PathList {
    let files = files_dir(dir);
    let mut list = PathList::new();
    for index in 0..spec.count {
        let relative = relative_path(spec, index);
        // The set contains only regular files; the inode number is unknown here.
        list.push_found(&[files.as_os_str().as_bytes(), b"/", relative.as_bytes()], 0);
    }
    list
}

/// Returns the hash of the names and sizes of a set: XXH3-64 over the lines `SIZE  PATH` in byte order, as 16 digits.
/// `find files -type f -printf '%s  %P\n'
/// LC_ALL=C sort
/// xxhsum -H3` produces the same value. Keeps all lines in memory, about 30 bytes each.
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
    fn names_have_one_width() {
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
    fn another_size_or_path_is_another_set() {
        let base = spec("count=300,size=exp(mean=4KiB),seed=1");
        assert_eq!(hash(&base), hash(&base.clone()));
        assert_ne!(hash(&base), hash(&FileSetSpec { seed: 2, ..base.clone() }));
        assert_ne!(
            hash(&base),
            hash(&FileSetSpec { layout: DirectoryLayout::Flat, ..base.clone() })
        );
        assert_ne!(hash(&base), hash(&FileSetSpec { count: 299, ..base }));
    }

    #[test]
    fn the_hash_covers_the_sorted_lines() {
        let set = spec("count=3,size=list(10;9;100),layout=flat");
        let lines = "10  00000000\n100  00000002\n9  00000001\n";
        assert_eq!(hash(&set), format!("{:016x}", xxhash_rust::xxh3::xxh3_64(lines.as_bytes())));
    }

    #[test]
    fn a_tree_is_five_deep_and_holds_forty_files_in_a_directory() {
        let tree = spec("count=40000,size=1,layout=tree");
        let mut counts: HashMap<String, u64> = HashMap::new();
        for index in 0..tree.count {
            *counts.entry(leaf(&tree, index)).or_default() += 1;
        }
        assert_eq!(counts.len() as u64, directories(&tree));
        assert!(counts.values().all(|n| *n == TREE_FILES));
        let deepest = counts.keys().map(|path| path.matches('/').count()).max();
        assert_eq!(deepest, Some(TREE_LEVELS as usize));
        let full = FileSetSpec { count: 2_835_154, ..tree };
        let path = leaf(&full, full.count - 1);
        assert!(path.matches('/').count() <= TREE_LEVELS as usize, "{path}");
        assert_eq!(tree_fan_out(directories(&full)), 10);
    }

    #[test]
    fn a_chain_is_64_deep() {
        let deep = spec("count=1000,size=1,layout=deep");
        assert_eq!(relative_path(&deep, 5), "c0000000/d/00000005");
        assert_eq!(leaf(&deep, 255).matches('/').count(), 64);
        assert_eq!(leaf(&deep, 256), "c0000001/");
    }

    #[test]
    fn leaves_hold_all_bytes() {
        for layout in ["tree", "deep", "flat", "nested"] {
            let set = spec(&format!("count=1003,size=exp(mean=900),layout={layout}"));
            let all: u64 = leaves(&set).map(|(_, bytes)| bytes).sum();
            assert_eq!(all, (0..set.count).map(|index| size(&set, index)).sum::<u64>());
            let mut paths: Vec<String> = leaves(&set).map(|(path, _)| path).collect();
            paths.dedup();
            let own: std::collections::BTreeSet<String> =
                (0..set.count).map(|index| leaf(&set, index)).collect();
            assert!(paths.iter().eq(&own), "{layout}");
        }
    }

    #[test]
    fn shuffled_files_are_each_created_once() {
        for count in [1u64, 2, 3, 40, 1000, 4096] {
            let text = format!("count={count},size=1,layout=tree,order=shuffled");
            let set = spec(&text);
            let mut made: Vec<u64> = (0..count).map(|nth| made_as(&set, nth)).collect();
            made.sort_unstable();
            assert_eq!(made, (0..count).collect::<Vec<_>>());
        }
        let set = spec("count=4000,size=1,layout=tree,order=shuffled");
        let apart = |nth: u64| made_as(&set, nth).abs_diff(made_as(&set, nth + 1));
        assert!((0..3999).all(|nth| apart(nth) > 40), "neighbours must be far apart");
    }

    proptest! {
        #[test]
        fn paths_of_trees_order_as_numbers(count in 1u64..3_000_000, a: u64, b: u64, deep: bool) {
            let layout = if deep { DirectoryLayout::Deep } else { DirectoryLayout::Tree };
            let set = FileSetSpec { count, layout, ..spec("count=1,size=1") };
            let (a, b) = (a % count, b % count);
            let (x, y) = (relative_path(&set, a), relative_path(&set, b));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        }
        #[test]
        fn paths_order_as_numbers(count in 1u64..40_000_000, a: u64, b: u64, flat: bool) {
            let layout = if flat { DirectoryLayout::Flat } else { DirectoryLayout::Nested };
            let set = FileSetSpec { count, layout, ..spec("count=1,size=1") };
            let (a, b) = (a % count, b % count);
            let (x, y) = (relative_path(&set, a), relative_path(&set, b));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x.len(), y.len());
        }
    }
}
