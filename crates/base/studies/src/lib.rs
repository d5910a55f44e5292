//! The built-in studies, each registered in one place.
//!
//! A study is a directory `studies/NAME` with `study.toml` (its experiments), `claims.toml` (the
//! published statements it tests) and `data/*.csv` (the published tables). [`for_each_study!`] is
//! the only list of studies. It also names the code for a study: its subject in the crate
//! `subjects` and its chapter in the crate `report`. This crate contains only text; `lab` and
//! `claims` parse it.

/// Files of a built-in study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Name of the study and its directory.
    pub name: &'static str,
    /// Text of `study.toml`.
    pub study: &'static str,
    /// Text of `claims.toml`.
    pub claims: &'static str,
}

/// Passes the list of built-in studies to the macro `$receive`.
///
/// The order of the list is the order in which studies run and claims are listed. Each entry is
/// `NAME, subject TYPE, chapter MODULE;`. `subject` is the type in `ioloom_subjects` that runs the
/// plans of the study; omit it if the study uses another study's subject. `chapter` is the module
/// in `ioloom_report::chapter` that renders its chapter; omit it if there is none.
#[macro_export]
macro_rules! for_each_study {
    ($receive:ident) => {
        $receive! {
            pipeline, subject Files;
            walk, subject Walk, chapter walk;
            memory, subject Memory, chapter memory;
            pagecache, subject PageCache, chapter pagecache;
            copy, subject Copy, chapter copy;
            exchange, subject Exchange, chapter exchange;
        }
    };
}

macro_rules! built_in {
    ($($name:ident $(, subject $subject:ident)? $(, chapter $chapter:ident)?;)*) => {
        /// Every built-in study.
        pub const ALL: &[BuiltIn] = &[$(BuiltIn {
            name: stringify!($name),
            study: include_str!(concat!("../studies/", stringify!($name), "/study.toml")),
            claims: include_str!(concat!("../studies/", stringify!($name), "/claims.toml")),
        }),*];
    };
}

for_each_study!(built_in);

/// Name and text of every published table, sorted by name.
pub const TABLES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/tables.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_is_a_registered_study() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/studies");
        let mut folders: Vec<String> = std::fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        let mut names: Vec<&str> = ALL.iter().map(|study| study.name).collect();
        folders.sort();
        names.sort_unstable();
        assert_eq!(folders, names);
    }

    #[test]
    fn every_table_is_compiled_in_once() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/studies");
        for study in ALL {
            let Ok(data) = std::fs::read_dir(format!("{root}/{}/data", study.name)) else {
                continue;
            };
            for file in data {
                let path = file.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                let found: Vec<_> = TABLES.iter().filter(|(known, _)| *known == name).collect();
                assert_eq!(found.len(), 1, "{name}");
                assert_eq!(found[0].1, std::fs::read_to_string(&path).unwrap());
            }
        }
        assert!(TABLES.len() >= 41);
    }
}
