//! `shard plan --subtrees`: lists directories for `du`.

use super::operands::check_local;
use crate::du::ALONE;
use crate::each::input::{Planned, once_each};
use crate::each::selection::Selection;
use crate::exit::Failure;
use ioloom_du::subtrees::{Subtree, subtrees};
use ioloom_failure::quoted;
use ioloom_walk::PathList;
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
    let (once, mut warnings) = once_each(paths);
    let once = outermost(once);
    let shards = shards(given);
    let wanted = usize::try_from(shards.saturating_mul(SUBTREES_PER_SHARD)).unwrap_or(usize::MAX);
    let found = subtrees(&once, wanted, selection.one_file_system);
    let skipped = found.not_entered.iter();
    warnings.extend(skipped.map(|(path, kind)| format!("skipped {} ({kind})", quoted(path))));
    let errors = found.errors.iter().map(|e| (e.path.clone(), e.to_string()));
    let paths = dealt(&found.list, shards);
    Ok(Planned { paths, tree: None, warnings, errors: errors.collect(), once })
}

/// Leaves out directories inside others: shards do not know what other shards count.
fn outermost(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let real: Vec<Option<PathBuf>> = paths.iter().map(|path| path.canonicalize().ok()).collect();
    let is_inside = |at: usize| {
        let Some(own) = real[at].as_ref().filter(|_| !paths[at].is_symlink()) else { return false };
        let above = |(other, dir): (usize, &Option<PathBuf>)| {
            dir.as_ref().is_some_and(|dir| {
                let is_above = own != dir || other < at;
                other != at && !paths[other].is_symlink() && is_above && own.starts_with(dir)
            })
        };
        real.iter().enumerate().any(above)
    };
    let inside: Vec<bool> = (0..paths.len()).map(is_inside).collect();
    paths.into_iter().zip(inside).filter(|(_, inside)| !inside).map(|(path, _)| path).collect()
}

/// Deals subtrees out to shards one by one, because neighbours are often of similar size.
fn dealt(subtrees: &[Subtree], shards: u64) -> PathList {
    let step = usize::try_from(shards).unwrap_or(usize::MAX).min(subtrees.len()).max(1);
    let mut paths = PathList::new();
    for first in 0..step {
        for subtree in subtrees.iter().skip(first).step_by(step) {
            paths.push(&name(subtree));
        }
    }
    paths
}

fn name(subtree: &Subtree) -> Vec<u8> {
    let mut name = subtree.path.as_os_str().as_bytes().to_vec();
    if subtree.alone {
        while name.ends_with(b"/") {
            name.pop();
        }
        name.extend_from_slice(ALONE.as_bytes());
    }
    name
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
        let of = |names: &[&str]| outermost(names.iter().map(|name| at(name)).collect());
        assert_eq!(of(&["a/b", "a", "ab", "a/b/c"]), [at("a"), at("ab")]);
        assert_eq!(of(&["a/b", "a/../a/b"]), [at("a/b")]);
        assert_eq!(of(&["a", "link", "gone"]), [at("a"), at("link"), at("gone")]);
    }

    #[test]
    fn every_subtree_is_dealt_once_and_has_its_name() {
        let subtree = |path: &str, alone| Subtree { path: path.into(), alone };
        let all = [subtree("/", true), subtree("/a", false), subtree("/b/", true)];
        let names: Vec<Vec<u8>> = dealt(&all, 2).iter().map(<[u8]>::to_vec).collect();
        assert_eq!(names, [&b"/."[..], b"/b/.", b"/a"]);
        assert_eq!(dealt(&all, 9).len(), 3);
        assert_eq!(dealt(&[], 9).len(), 0);
    }
}
