//! The file sets of the built-in studies at their published sizes.

use ioloom_model::study::SetSpec;
use ioloom_model::{FileSetSpec, StudySpec};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Published sets by study and name.
static SETS: LazyLock<BTreeMap<(String, String), FileSetSpec>> = LazyLock::new(|| {
    let texts = ioloom_studies::ALL.iter().map(|study| study.study);
    let studies = texts.filter_map(|text| toml::from_str::<StudySpec>(text).ok());
    let sets = studies.flat_map(|study| {
        let name = study.name;
        study.sets.into_iter().map(move |(set, spec)| ((name.clone(), set), spec.as_published()))
    });
    sets.collect()
});

/// Reports whether a set is smaller than the published one of the same study and name, or has
/// files of other sizes. `own` is the set in the study itself, for sets that no built-in study has.
pub(crate) fn is_scaled(study: &str, name: &str, set: &FileSetSpec, own: &SetSpec) -> bool {
    let built_in = SETS.get(&(study.to_owned(), name.to_owned())).cloned();
    let published = built_in.unwrap_or_else(|| own.as_published());
    set.count < published.count || set.size != published.size
}
