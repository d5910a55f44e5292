//! `shard plan --subtrees`: lists directories for `du` and `cp`.

use super::operands::check_local;
use crate::each::input::Planned;
use crate::each::selection::Selection;
use crate::exit::Failure;
use crate::subtrees::name;
use ioloom_du::subtrees::{Subtree, subtrees};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::dir;
use ioloom_walk::{Fields, PathList};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Shards of a plan, unless a number is given.
const SHARDS: u64 = 64;
/// Subtrees of a shard that a plan wants at least: their sizes even out.
const SUBTREES_PER_SHARD: u64 = 16;

/// Returns the number of shards of a plan, if there are so many subtrees.
pub(super) fn shards(given: Option<u64>) -> u64 {
    given.unwrap_or(SHARDS)
}

/// Lists the subtrees of directories.
pub(super) fn planned(
    paths: &[PathBuf],
    selection: &Selection,
    given: Option<u64>,
) -> Result<Planned, Failure> {
    if let Some(other) = selection.words().into_iter().find(|word| word != "--one-file-system") {
        return Err(Failure::usage(format!(
            "--subtrees cannot be combined with {}; of the flags that select files, only -x can",
            quoted(Path::new(&other))
        )));
    }
    if paths.iter().any(|path| path.as_os_str() == "-") {
        return Err(Failure::usage("--subtrees needs directories, not a list"));
    }
    paths.iter().try_for_each(|path| check_local(path))?;
    let once = outermost(paths, selection.one_file_system)?;
    let shards = shards(given);
    let wanted = usize::try_from(shards.saturating_mul(SUBTREES_PER_SHARD)).unwrap_or(usize::MAX);
    let found = subtrees(&once, wanted, selection.one_file_system);
    let skipped = found.not_entered.iter();
    let warnings = skipped.map(|(path, kind)| format!("skipped {} ({kind})", quoted(path)));
    let (warnings, paths) = (warnings.collect(), dealt(&found.list, shards));
    Ok(Planned { paths, tree: None, warnings, errors: Vec::new(), once })
}

/// Where an argument is, and what it is.
struct Place {
    /// Its path without symbolic links, except for itself.
    real: PathBuf,
    device: (u32, u32),
    inode: u64,
    is_directory: bool,
}

impl Place {
    fn of(path: &Path) -> Result<Self, PathError> {
        let refused = |error| PathError::new(Operation::Access, path, error);
        let meta =
            dir::meta(path.as_os_str().as_bytes(), false, Fields::IDENTITY).map_err(refused)?;
        // A link is where its directory is. With a slash at the end, it is what it leads to.
        let real = match (meta.kind, path.parent(), path.file_name()) {
            (dir::Kind::Symlink, Some(dir), Some(name)) => {
                let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
                dir.canonicalize().map_err(refused)?.join(name)
            }
            _ => path.canonicalize().map_err(refused)?,
        };
        let is_directory = meta.kind == dir::Kind::Directory;
        Ok(Self { real, device: meta.device, inode: meta.inode, is_directory })
    }

    fn identity(&self) -> ((u32, u32), u64) {
        (self.device, self.inode)
    }

    /// Returns whether a scan of this argument counts all of another one, whose path is below its own.
    fn contains(&self, other: &Self, one_file_system: bool) -> bool {
        self.is_directory && (!one_file_system || self.reaches(other))
    }

    /// Returns whether all directories down to one inside are on the same device.
    fn reaches(&self, other: &Self) -> bool {
        let above = other.real.ancestors().skip(1).take_while(|dir| dir.starts_with(&self.real));
        let device = |dir: &Path| {
            dir::meta(dir.as_os_str().as_bytes(), false, Fields::IDENTITY).map(|meta| meta.device)
        };
        self.device == other.device
            && above.into_iter().all(|dir| device(dir).is_ok_and(|found| found == self.device))
    }
}

/// Leaves out arguments that others contain: shards do not know what other shards count.
fn outermost(paths: &[PathBuf], one_file_system: bool) -> Result<Vec<PathBuf>, Failure> {
    let places: Result<Vec<Place>, PathError> = paths.iter().map(|path| Place::of(path)).collect();
    let places = places.map_err(Failure::failed)?;
    // The first argument with each path, and the first that is each directory.
    let (mut by_path, mut by_identity) = (HashMap::new(), HashMap::new());
    for (at, place) in places.iter().enumerate() {
        by_path.entry(place.real.as_path()).or_insert(at);
        if place.is_directory {
            by_identity.entry(place.identity()).or_insert(at);
        }
    }
    let is_inside = |at: &usize| {
        let place = &places[*at];
        let is_other = |first: Option<&usize>| first.is_some_and(|first| first != at);
        let mut above = place.real.ancestors().skip(1).filter_map(|path| by_path.get(path));
        is_other(by_path.get(place.real.as_path()))
            || place.is_directory && is_other(by_identity.get(&place.identity()))
            || above.any(|outer| {
                let other = &places[*outer];
                // Of two that contain each other, the first one remains.
                let remains = outer < at || other.identity() != place.identity();
                remains && other.contains(place, one_file_system)
            })
    };
    let outer = (0..paths.len()).filter(|at| !is_inside(at));
    Ok(outer.map(|at| paths[at].clone()).collect())
}

/// Deals subtrees out to shards one by one, because neighbours are often of similar size.
fn dealt(subtrees: &[Subtree], shards: u64) -> PathList {
    let step = usize::try_from(shards).unwrap_or(usize::MAX).min(subtrees.len()).max(1);
    let mut paths = PathList::new();
    for first in 0..step {
        for subtree in subtrees.iter().skip(first).step_by(step) {
            paths.push(&name(&subtree.path, subtree.alone));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_inside_others_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        std::fs::create_dir_all(at("ab")).unwrap();
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        std::os::unix::fs::symlink("../a", at("a/self")).unwrap();
        let of = |names: &[&str]| {
            let paths: Vec<PathBuf> = names.iter().map(|name| at(name)).collect();
            let outer = outermost(&paths, true).unwrap();
            outer
                .into_iter()
                .map(|path| path.strip_prefix(dir.path()).unwrap().to_owned())
                .collect()
        };
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let same = |given: &[&str], left: &[&str]| {
            let found: Vec<PathBuf> = of(given);
            assert_eq!(found, paths(left), "{given:?}");
        };
        same(&["a/b", "a", "ab", "a/b/c"], &["a", "ab"]);
        same(&["a/b", "a/../a/b"], &["a/b"]);
        // A link is not what it leads to, unless a slash follows.
        same(&["link", "a"], &["link", "a"]);
        same(&["a", "link"], &["a", "link"]);
        same(&["a", "link/"], &["a"]);
        same(&["link/b", "a"], &["a"]);
        same(&["a", "a/self"], &["a"]);
        assert!(outermost(&[at("gone")], false).is_err());
    }

    /// Compares all pairs.
    fn outermost_by_pairs(paths: &[PathBuf], one_file_system: bool) -> Vec<PathBuf> {
        let places: Vec<Place> = paths.iter().map(|path| Place::of(path).unwrap()).collect();
        let contains = |a: usize, b: usize| {
            let (a, b) = (&places[a], &places[b]);
            let is_inside = b.real.starts_with(&a.real) && a.contains(b, one_file_system);
            a.real == b.real || a.is_directory && a.identity() == b.identity() || is_inside
        };
        let is_inside = |at: &usize| {
            (0..places.len()).any(|other| {
                other != *at && contains(other, *at) && (other < *at || !contains(*at, other))
            })
        };
        let outer = (0..paths.len()).filter(|at| !is_inside(at));
        outer.map(|at| paths[at].clone()).collect()
    }

    #[test]
    fn arguments_are_left_out_as_by_comparing_all_pairs() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        std::fs::create_dir_all(at("ab")).unwrap();
        std::fs::write(at("a/file"), "").unwrap();
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        let all = ["a", "a/b", "a/b/c", "ab", "a/file", "link", "link/", "a/../ab"].map(at);
        let count = all.len();
        for number in 0..count.pow(3) {
            let at = [number % count, number / count % count, number / count / count];
            let paths = at.map(|at| all[at].clone());
            for one_file_system in [false, true] {
                let found = outermost(&paths, one_file_system).unwrap();
                assert_eq!(found, outermost_by_pairs(&paths, one_file_system), "{paths:?}");
            }
        }
    }

    #[test]
    fn every_subtree_is_dealt_once_and_has_its_name() {
        let subtree = |path: &str, alone| Subtree { path: path.into(), alone };
        let all = [subtree("/", true), subtree("a/.", false), subtree("/b/", true)];
        let names: Vec<Vec<u8>> = dealt(&all, 2).iter().map(<[u8]>::to_vec).collect();
        assert_eq!(names, [&b"//."[..], b"/b//.", b"a/./"]);
        assert_eq!(dealt(&all, 9).len(), 3);
        assert_eq!(dealt(&[], 9).len(), 0);
    }
}
