//! Reads and checks study files.
//!
//! An invalid file results in one error with the file, the line and the accepted values. The checks
//! go beyond the grammar: every referenced set exists, every arm expands, every plan could run on
//! some machine, and the arms of an experiment have distinct names. Therefore, [`crate::expand`]
//! does not fail on a checked study, and a study never stops midway because of a typo.

use crate::expand::{ARMS_MAX, concrete_arms};
use ioloom_failure::{Operation, PathError};
use ioloom_model::StudySpec;
use ioloom_model::study::Experiment;
use ioloom_sys_lab::sysctl;
use std::collections::BTreeSet;
use std::path::Path;

/// Maximum size of a study file in bytes.
const FILE_MAX: u64 = 1 << 20;
/// A study file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] PathError),
    /// The file is not TOML, or contains an invalid key or value.
    #[error("{origin}, line {line}: {reason}")]
    Text {
        /// Path, or `built-in study NAME`.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// The problem and, if known, the accepted values.
        reason: String,
    },
    /// There is no study of that name.
    #[error("no study '{name}'; there are: {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
}

/// Parses and checks the text of a study. Errors name `origin`.
///
/// # Errors
/// [`SpecError::Text`] with the line.
pub fn parse(text: &str, origin: &str) -> Result<StudySpec, SpecError> {
    let spec: StudySpec = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        let reason = error.message().trim().replace('\n', " ");
        SpecError::Text { origin: origin.to_owned(), line, reason }
    })?;
    check(&spec).map_err(|wrong| {
        let line = find(text, &wrong.near);
        SpecError::Text { origin: origin.to_owned(), line, reason: wrong.reason }
    })?;
    Ok(spec)
}

fn line_at(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

/// Returns the line of the last name when searching for the names in sequence, quoted or as a set
/// name. Stops at the first name that is not found.
fn find(text: &str, near: &[String]) -> usize {
    let mut at = 0;
    for part in near {
        let quoted = text[at..].find(&format!("\"{part}\""));
        match text[at..].find(&format!("[sets.{part}]")).or(quoted) {
            Some(found) => at += found,
            None => break,
        }
    }
    line_at(text, at)
}

/// Reads and checks a study file.
///
/// # Errors
/// The file cannot be read, is not a study, or is larger than 1 MiB.
pub fn read(path: &Path) -> Result<StudySpec, SpecError> {
    let fail = PathError::on(Operation::Read, path);
    if std::fs::metadata(path).map_err(&fail)?.len() > FILE_MAX {
        return Err(fail(std::io::Error::other("not a study file: larger than 1 MiB")).into());
    }
    let text = std::fs::read_to_string(path).map_err(&fail)?;
    parse(&text, &path.display().to_string())
}

/// Returns all studies: those in the directory (`*.toml` and `*/study.toml`), or the built-in ones.
///
/// # Errors
/// The first invalid file, or a directory without a study file.
pub fn all(dir: Option<&Path>) -> Result<Vec<StudySpec>, SpecError> {
    let Some(dir) = dir else {
        let built_in = ioloom_studies::ALL.iter();
        return built_in
            .map(|study| parse(study.study, &format!("built-in study {}", study.name)))
            .collect();
    };
    let fail = PathError::on(Operation::ReadDir, dir);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(&fail)? {
        let path = entry.map_err(&fail)?.path();
        let inside = path.join("study.toml");
        if path.extension().is_some_and(|e| e == "toml") {
            paths.push(path);
        } else if inside.is_file() {
            paths.push(inside);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(fail(std::io::Error::other("no *.toml or */study.toml found")).into());
    }
    paths.iter().map(|path| read(path)).collect()
}

/// Returns a study by name. A name with `/` or ending in `.toml` is a path.
///
/// # Errors
/// Same as [`all`], or there is no study of that name.
pub fn load(name: &str, dir: Option<&Path>) -> Result<StudySpec, SpecError> {
    if name.contains('/') || name.ends_with(".toml") {
        return read(Path::new(name));
    }
    let mut studies = all(dir)?;
    match studies.iter().position(|s| s.name == name) {
        Some(at) => Ok(studies.swap_remove(at)),
        None => {
            let known: Vec<_> = studies.into_iter().map(|s| s.name).collect();
            Err(SpecError::Unknown { name: name.to_owned(), known: known.join(", ") })
        }
    }
}

/// Returns whether a study is identical to the built-in study of its name, in which case its file
/// is not needed.
pub fn is_built_in(spec: &StudySpec) -> bool {
    let built_in = ioloom_studies::ALL.iter().find(|study| study.name == spec.name);
    built_in.is_some_and(|built_in| {
        parse(built_in.study, &spec.name).is_ok_and(|built_in| built_in == *spec)
    })
}

/// The problem, and the quoted names that locate it in the file.
struct Wrong {
    near: Vec<String>,
    reason: String,
}

fn check(spec: &StudySpec) -> Result<(), Wrong> {
    let wrong = |near: &[&str], reason: String| {
        Err(Wrong { near: near.iter().map(|n| (*n).to_owned()).collect(), reason })
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // Files are named after the study; a leading dot would hide them.
    if spec.name.is_empty() || spec.name.starts_with('.') || !spec.name.chars().all(plain) {
        let reason = format!(
            "study name '{}': use letters, digits, '-', '_', '.', and no '.' at the start",
            spec.name
        );
        return wrong(&[&spec.name], reason);
    }
    if !(spec.quick_budget_s.is_finite() && spec.quick_budget_s > 0.0) {
        return wrong(&[], "quick_budget_s must be above zero".to_owned());
    }
    for (name, set) in &spec.sets {
        if !name.chars().all(plain) || name.is_empty() || name.starts_with('.') {
            let reason = format!("set name '{name}': use letters, digits, '-', '_', '.'");
            return wrong(&[name], reason);
        }
        if set.full.count == 0 || set.quick.as_ref().is_some_and(|q| q.count == 0) {
            return wrong(&[name], format!("set {name} has no files"));
        }
    }
    if spec.experiments.is_empty() {
        return wrong(&[], "a study needs at least one [[experiment]]".to_owned());
    }
    let mut names = BTreeSet::new();
    for experiment in &spec.experiments {
        if !names.insert(&experiment.name) {
            let reason = format!("two experiments are named '{}'", experiment.name);
            return wrong(&[&experiment.name], reason);
        }
        check_experiment(spec, experiment)?;
    }
    Ok(())
}

fn check_experiment(spec: &StudySpec, experiment: &Experiment) -> Result<(), Wrong> {
    let near = vec![experiment.name.clone()];
    let wrong = |reason: String| {
        let reason = format!("experiment '{}': {reason}", experiment.name);
        Err(Wrong { near: near.clone(), reason })
    };
    for set in &experiment.sets {
        if !spec.sets.contains_key(set) {
            return wrong(format!("no set '{set}'; there are: {}", set_names(spec)));
        }
    }
    if experiment.sets.is_empty() && !spec.sets.is_empty() {
        return wrong("sets = [\"NAME\"] is missing".to_owned());
    }
    if experiment.conditions.is_empty() || experiment.computes.is_empty() {
        return wrong("conditions and computes must not be empty lists".to_owned());
    }
    if experiment.blocks_full == 0 || experiment.blocks_quick == 0 {
        return wrong("at least one block is needed".to_owned());
    }
    if experiment.arms.is_empty() {
        return wrong("at least one arm is needed".to_owned());
    }
    if experiment.sets.len() > 1 && experiment.arms.iter().any(|a| a.set.is_some()) {
        return wrong(
            "an arm with its own set needs an experiment with exactly one set".to_owned(),
        );
    }
    let mut names = BTreeSet::new();
    let mut factors = BTreeSet::new();
    for arm in &experiment.arms {
        let near = || vec![experiment.name.clone(), arm.name.clone()];
        let wrong = |reason: String| {
            let reason = format!("experiment '{}', arm '{}': {reason}", experiment.name, arm.name);
            Err(Wrong { near: near(), reason })
        };
        let concrete = match concrete_arms(arm, 1) {
            Ok(concrete) => concrete,
            Err(reason) => return wrong(reason),
        };
        factors.extend(arm.with.keys());
        let known = |name: &String| sysctl::KNOWN.iter().any(|(known, _)| known == name);
        if let Some(name) = arm.settings.keys().find(|name| !known(name)) {
            let all: Vec<_> = sysctl::KNOWN.iter().map(|(known, _)| *known).collect();
            let all = all.join(", ");
            return wrong(format!("invalid setting '{name}'; valid settings are: {all}"));
        }
        for one in concrete {
            if let Some(set) = one.set.as_ref().filter(|s| !spec.sets.contains_key(*s)) {
                return wrong(format!("no set '{set}'; there are: {}", set_names(spec)));
            }
            if one.name.is_empty() {
                return wrong("an arm needs a name".to_owned());
            }
            if !names.insert(one.name.clone()) {
                return wrong(format!("two arms of the experiment are named '{}'", one.name));
            }
            if names.len() > ARMS_MAX {
                return wrong(format!("more than {ARMS_MAX} arms"));
            }
        }
    }
    if let Some(picture) = experiment.pictures.iter().find(|p| !names.contains(*p)) {
        return wrong(format!("pictures names an unknown arm '{picture}'"));
    }
    match &experiment.axis {
        Some(axis) if !factors.contains(axis) => {
            wrong(format!("axis '{axis}' is not a factor of any arm"))
        }
        _ => Ok(()),
    }
}

fn set_names(spec: &StudySpec) -> String {
    spec.sets.keys().cloned().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "s"
title = "T"
question = "Q?"
[sets.E]
about = "small"
full = { count = 10, size = "4KiB" }
[[experiment]]
name = "x"
question = "Which?"
sets = ["E"]
axis = "n"
[[experiment.arm]]
name = "sync-{n}"
plan = "read/threads:n={n}"
with = { n = [1, 2] }
headline_with = { n = [2] }
"#;

    proptest::proptest! {
        #[test]
        fn a_damaged_study_is_an_error_and_no_panic(at in 0usize..400, with in "\\PC{0,4}", cut in 0usize..6) {
            let at = at.min(GOOD.len());
            let end = (at + cut).min(GOOD.len());
            let text = format!("{}{with}{}", &GOOD[..at], &GOOD[end..]);
            if let Err(error) = parse(&text, "x") {
                proptest::prop_assert!(error.to_string().starts_with("x, line "));
            }
        }
    }

    #[test]
    fn built_in_studies_are_sound() {
        let studies = all(None).unwrap();
        assert_eq!(studies.len(), ioloom_studies::ALL.len());
        for (study, built_in) in studies.iter().zip(ioloom_studies::ALL) {
            assert_eq!(study.name, built_in.name);
        }
        let error = load("pipelin", None).unwrap_err().to_string();
        assert!(error.contains("pipeline"), "{error}");
    }

    #[test]
    fn one_clear_error_with_the_line_for_each_wrong_file() {
        assert!(parse(GOOD, "good").is_ok());
        for (from, to, line, word) in [
            ("title = \"T\"", "title = T", 3, ""),
            ("title = \"T\"", "titel = \"T\"", 3, "titel"),
            ("count = 10", "count = -10", 7, ""),
            ("count = 10", "count = 0", 5, "no files"),
            ("4KiB", "4XiB", 7, "4XiB"),
            ("axis = \"n\"", "axis = \"m\"", 9, "not a factor"),
            ("axis = \"n\"", "conditions = [\"tepid\"]", 12, "tepid"),
            ("axis = \"n\"", "computes = [\"sha9\"]", 12, "sha9"),
            ("axis = \"n\"", "colour = 1", 12, "colour"),
            ("sets = [\"E\"]", "sets = [\"F\"]", 9, "no set 'F'"),
            ("threads:n={n}", "threads:n={m}", 14, "{m}"),
            ("threads:n={n}", "threads:n={n", 14, "'}'"),
            ("read/threads", "reed/threads", 14, "reed"),
            ("read/threads:n={n}", "mmap:plain/window:l={n}", 14, "mmap:willneed"),
            ("sync-{n}", "sync", 14, "two arms"),
            ("headline_with = { n = [2] }", "headline_with = { n = [3] }", 14, "3"),
            ("headline_with = { n = [2] }", "set = \"F\"", 14, "no set 'F'"),
            ("headline_with = { n = [2] }", "files_max = \"x\"", 14, "files_max"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = parse(&GOOD.replace(from, to), "some.toml").unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
            let line_now: usize = error
                .strip_prefix("some.toml, line ")
                .and_then(|rest| rest.split(':').next())
                .and_then(|n| n.parse().ok())
                .unwrap_or(0);
            assert!(error.contains(word), "{to}: {error}");
            // A quoted name locates the error to within one line.
            assert!(line_now.abs_diff(line) <= 1, "{to}: wanted line {line}: {error}");
        }
    }

    /// A study survives a round trip through JSON.
    #[test]
    fn a_study_reads_back_from_json_and_only_an_unchanged_one_is_built_in() {
        for mut study in all(None).unwrap() {
            let text = serde_json::to_string(&study).unwrap();
            assert_eq!(serde_json::from_str::<StudySpec>(&text).unwrap(), study);
            assert!(is_built_in(&study), "{}", study.name);
            study.title.push('!');
            assert!(!is_built_in(&study), "{}", study.name);
        }
        assert!(!is_built_in(&parse(GOOD, "good").unwrap()));
    }

    #[test]
    fn a_directory_of_studies_replaces_the_built_in_ones() {
        let dir = tempfile::tempdir().unwrap();
        assert!(all(Some(dir.path())).unwrap_err().to_string().contains("no *.toml"));
        std::fs::write(dir.path().join("s.toml"), GOOD).unwrap();
        assert_eq!(load("s", Some(dir.path())).unwrap().name, "s");
        assert!(load("pipeline", Some(dir.path())).is_err());
        std::fs::create_dir(dir.path().join("u")).unwrap();
        let inside = GOOD.replace("name = \"s\"", "name = \"u\"");
        std::fs::write(dir.path().join("u/study.toml"), inside).unwrap();
        assert_eq!(load("u", Some(dir.path())).unwrap().name, "u");
        std::fs::write(dir.path().join("t.toml"), "name = 3").unwrap();
        let error = all(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("t.toml"), "{error}");
    }
}
