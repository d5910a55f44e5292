//! Treemap of the directory tree of a walk study.
//!
//! A description determines its file set, so the map can be drawn from any stored session without the
//! files. It is drawn only if the description matches the recorded number of files and bytes.

use ioloom_lab::Mode;
use ioloom_model::{FileSetSpec, RunRecord, StudySpec};
use ioloom_report::TreeRow;
use ioloom_report::svg::treemap::Tile;
use std::collections::BTreeMap;

/// Number of directory levels drawn.
const LEVELS: usize = 2;

/// Returns the tree used by most runs of a walk study.
pub(crate) fn walked(study: &StudySpec, mode: Mode, records: &[RunRecord]) -> Option<TreeRow> {
    if !ioloom_subjects::named(&study.subject).is_ok_and(|subject| subject.maps_tree()) {
        return None;
    }
    let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records.iter().filter(|record| record.measured().is_some()) {
        *runs.entry(&record.key.set).or_default() += 1;
    }
    let (name, _) = runs.into_iter().max_by_key(|(_, count)| *count)?;
    let set = study.sets.get(name)?;
    let spec = set.quick.as_ref().filter(|_| mode == Mode::Quick).unwrap_or(&set.full);
    let realised = &records.iter().find(|record| record.key.set == name)?.set;
    let (tiles, bytes) = tiles(spec);
    let same = realised.files == spec.count && realised.bytes_total == bytes;
    same.then(|| TreeRow { set: name.to_owned(), files: spec.count, bytes, tiles })
}

/// Returns the tiles and the total size of a set.
fn tiles(spec: &FileSetSpec) -> (Vec<Tile>, u64) {
    let mut top: BTreeMap<String, (u64, BTreeMap<String, u64>)> = BTreeMap::new();
    let mut bytes = 0;
    for (path, held) in ioloom_fileset::leaves(spec) {
        bytes += held;
        let mut names = path.split('/').filter(|name| !name.is_empty()).take(LEVELS);
        let first = names.next().unwrap_or("own files");
        let (all, inside) = top.entry(first.to_owned()).or_default();
        *all += held;
        if let Some(second) = names.next() {
            *inside.entry(second.to_owned()).or_default() += held;
        }
    }
    let tile = |name: String, value: u64, inside| Tile { name, value: value as f64, inside };
    let tiles = top.into_iter().map(|(name, (value, inside))| {
        let inside = inside.into_iter().map(|(name, value)| tile(name, value, Vec::new()));
        tile(name, value, inside.collect())
    });
    (tiles.collect(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_add_up_to_the_set() {
        let study = ioloom_lab::spec::load("walk", None).unwrap();
        for set in study.sets.values() {
            let spec = set.quick.as_ref().unwrap_or(&set.full);
            let spec = FileSetSpec { count: spec.count.min(20_000), ..spec.clone() };
            let (tiles, bytes) = tiles(&spec);
            assert_eq!(tiles.iter().map(|tile| tile.value as u64).sum::<u64>(), bytes);
            for tile in &tiles {
                let inside: f64 = tile.inside.iter().map(|tile| tile.value).sum();
                assert!(inside <= tile.value, "{}", tile.name);
            }
        }
    }
}
