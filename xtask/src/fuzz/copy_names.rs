//! Accepted differences of files with several names, and of sources that are given twice.

use super::copy_case::Case;
use super::copy_run::{Run, group};
use super::snapshot::{Difference, Record, Snapshot};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Removes differences that follow from which name of a file is found first: one that has a target is
/// written into it and keeps its attributes, one that has none is created. The other names become links
/// to it. One of the programs must have left what was there `before`.
pub(super) fn retain_named(
    case: &Case,
    differences: &mut Vec<Difference>,
    (system, ours): (&Run, &Run),
    before: &Snapshot,
) {
    if !case.preserves_links() || case.preserves() {
        return;
    }
    let is_old = |names: &[&PathBuf], field: &str, value: &str| {
        let mut old = names.iter().filter_map(|name| before.get(*name)?.fields.get(field));
        old.any(|old| old == value || field == "mtime" && seconds(old) == seconds(value))
    };
    differences.retain(|difference| {
        let path = Path::new(&difference.path);
        let names = group(path, &ours.1);
        let is_file = ours.1.get(path).is_some_and(|record: &Record| record.is("file"));
        let field = difference.field;
        let of_name = ["mode", "owner", "attributes", "mtime", "atime"].contains(&field)
            && is_file
            && names.len() > 1
            && names == group(path, &system.1)
            && [&difference.theirs, &difference.ours].iter().any(|it| is_old(&names, field, it));
        !of_name
    });
}

fn seconds(time: &str) -> &str {
    time.split('.').next().unwrap_or_default()
}

/// Removes the differences of targets of sources that are given twice with numbered backups: GNU's moves
/// what it has copied to its backup, cannot find it for a link, and fails. Returns true if this is all
/// that GNU's reports.
pub(super) fn retain_doubled(
    case: &Case,
    differences: &mut Vec<Difference>,
    (system, ours): (&Run, &Run),
) -> bool {
    let itself = |line: &str| {
        let (_, names) = line.split_once("cannot create hard link '")?;
        let (made, rest) = names.split_once("' to '")?;
        let of_itself = rest.strip_suffix("': No such file or directory") == Some(made);
        of_itself.then(|| PathBuf::from(made))
    };
    let doubled: Vec<Option<PathBuf>> = system.0.err.lines().map(itself).collect();
    let all_are = !doubled.is_empty() && doubled.iter().all(Option::is_some);
    let doubled: BTreeSet<PathBuf> = doubled.into_iter().flatten().collect();
    if doubled.is_empty() || !case.preserves_links() {
        return false;
    }
    let is_of = |path: &Path| {
        let text = path.to_string_lossy();
        doubled.iter().any(|name| {
            let rest = text.strip_prefix(&*name.to_string_lossy());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(".~"))
        })
    };
    // Ours has both names of one file.
    let linked = |path: &Path| group(path, &ours.1).iter().filter(|name| is_of(name)).count() > 1;
    differences.retain(|difference| {
        let path = Path::new(&difference.path);
        !(is_of(path) && linked(path))
    });
    all_are && ours.0.code == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::program::Ended;
    use crate::fuzz::snapshot::compare;

    fn tree(paths: &[(&str, &str, &str)]) -> Snapshot {
        let record = |(path, mode, links): &(&str, &str, &str)| {
            let fields = [("type", "file"), ("mode", mode), ("links", links)];
            let given = fields.into_iter().filter(|(_, value)| !value.is_empty());
            let fields = given.map(|(name, value)| (name, (*value).to_owned())).collect();
            (PathBuf::from(path), Record { fields })
        };
        paths.iter().map(record).collect()
    }

    fn run(err: &str, snapshot: &Snapshot) -> Run {
        (Ended { code: Some(0), out: Vec::new(), err: err.to_owned() }, snapshot.clone())
    }

    fn case(options: &[&str]) -> Case {
        let options = options.iter().map(|word| (*word).to_owned()).collect();
        Case { options, ..Case::draw(1, true) }
    }

    #[test]
    fn the_first_name_decides_only_between_old_and_new() {
        let before = tree(&[("t/a", "644", "")]);
        let both = |mode| tree(&[("t/a", mode, "a = b"), ("t/b", mode, "a = b")]);
        let left = |options: &[&str], system: &Snapshot, ours: &Snapshot| {
            let mut differences = compare(system, ours);
            let (system, ours) = (run("", system), run("", ours));
            retain_named(&case(options), &mut differences, (&system, &ours), &before);
            differences.len()
        };
        assert_eq!(left(&["-dR"], &both("600"), &both("644")), 0);
        assert_eq!(left(&["-dR"], &both("644"), &both("600")), 0);
        assert_eq!(left(&["-dR"], &both("600"), &both("640")), 2, "neither is the old one");
        assert_eq!(left(&["-r"], &both("600"), &both("644")), 2, "links are not preserved");
        assert_eq!(left(&["-a"], &both("600"), &both("644")), 2, "modes are preserved");
        let apart = tree(&[("t/a", "644", ""), ("t/b", "600", "")]);
        assert_ne!(left(&["-dR"], &both("600"), &apart), 0);
    }

    #[test]
    fn a_source_given_twice_is_two_names_of_one_file() {
        const SAID: &str = "cp: cannot create hard link 't/f' to 't/f': No such file or directory";
        let system = tree(&[("t/f", "644", "")]);
        let linked = tree(&[("t/f", "644", "f = f.~1~"), ("t/f.~1~", "644", "f = f.~1~")]);
        let apart = tree(&[("t/f", "644", ""), ("t/f.~1~", "644", "")]);
        let left = |said: &str, ours: &Snapshot| {
            let mut differences = compare(&system, ours);
            let (system, ours) = (run(said, &system), run("", ours));
            let same = retain_doubled(&case(&["-dR"]), &mut differences, (&system, &ours));
            (differences.len(), same)
        };
        assert_eq!(left(SAID, &linked), (0, true));
        assert_ne!(left(SAID, &apart).0, 0);
        assert_ne!(left("", &linked).0, 0);
        assert!(!left(&format!("{SAID}\nother"), &linked).1);
    }
}
