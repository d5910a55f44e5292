//! Rules of `--parents`.

use super::copy_case::Case;
use super::copy_run::{Run, group, is_of_source, resolved, unquoted, without_dots};
use super::snapshot::Difference;
use std::path::{Path, PathBuf};

/// Accepts times and attributes of the directories above sources, and those that GNU's has created for a
/// source that cannot be reached.
pub(super) fn accepts(case: &Case, difference: &Difference, system: &Run, ours: &Run) -> bool {
    let path = Path::new(&difference.path);
    if !case.has(&["--parents"]) || !is_above_copy(case, path) {
        return false;
    }
    let exists_before = case.target.as_ref().is_some_and(|target| {
        path.strip_prefix("t").is_ok_and(|below| target.index_of(below).is_some())
    });
    let several = case.operands.len() > 2;
    match difference.field {
        "atime" => true,
        "mtime" if difference.ours == "now" => exists_before,
        "mtime" if difference.theirs == "now" => {
            several || exists_before || cannot_reach(system, ours)
        }
        "attributes" => is_of_source(case, difference, &ours.1),
        "entry" => {
            (&*difference.theirs, &*difference.ours) == ("directory", "absent")
                && cannot_reach(system, ours)
        }
        "mode" => {
            let bits = |text: &str| u32::from_str_radix(text, 8).unwrap_or(0);
            !case.root
                && bits(&difference.theirs) == bits(&difference.ours) | 0o700
                && both_say(system, ours, "failed to get attributes of ")
        }
        _ => false,
    }
}

fn cannot_reach(system: &Run, ours: &Run) -> bool {
    both_say(system, ours, "cannot stat ")
}

/// Returns true if both programs report that they have no permission for something.
fn both_say(system: &Run, ours: &Run, what: &str) -> bool {
    [system, ours].iter().all(|run| {
        let mut lines = run.0.err.lines();
        lines.any(|line| line.contains(what) && line.ends_with(": Permission denied"))
    })
}

/// Returns true if a directory is above the copy of a source. That of `source/.` is above its own entries.
fn is_above_copy(case: &Case, path: &Path) -> bool {
    let is_above = |(place, source): (PathBuf, &Path)| {
        let ends_here = source.as_os_str().as_encoded_bytes().ends_with(b"/.");
        let plain = without_dots(&place);
        plain.starts_with(path) && (plain != path || ends_here)
    };
    case.places().into_iter().any(is_above)
}

/// Removes what GNU's has not copied into directories that `--parents` has created. Returns true if
/// this is all that GNU's reports.
pub(super) fn retain_unparented(
    case: &Case,
    differences: &mut Vec<Difference>,
    (system, ours): (&Run, &Run),
) -> bool {
    let said = &system.0.err;
    let is_made = |line: &str| {
        line.starts_with("cp: cannot create directory") && line.ends_with(": File exists")
    };
    if !case.has(&["--parents"]) || said.is_empty() || !said.lines().all(is_made) {
        return false;
    }
    // Below a followed link, a copy has the path of no entry.
    let is_followed = |path: &Path| {
        let below = case.operands.last().and_then(|target| path.strip_prefix(target).ok());
        let source = below.map(|below| resolved(below, &ours.1));
        let follows = case.has(&["-rL", "-L"]);
        follows && source.is_some_and(|at| at.starts_with("source") && ours.1.contains_key(&at))
    };
    let is_copy = |path: &Path| !case.originals(path).is_empty() || is_followed(path);
    // GNU's has not given the directory its final mode, nor the mask of an inherited ACL.
    let is_unfinished = |path: &Path, difference: &Difference| {
        let bits = |text: &str| u32::from_str_radix(text, 8).unwrap_or(0);
        let is_named = said.lines().any(|line| {
            let quoted = line.strip_prefix("cp: cannot create directory ");
            let quoted = quoted.and_then(|rest| rest.strip_suffix(": File exists"));
            quoted.and_then(unquoted).is_some_and(|named| without_dots(&named) == path)
        });
        let inherits = |run: &Run| {
            let there = run.1.get(path).and_then(|record| record.fields.get("attributes"));
            there.is_some_and(|all| all.contains("system.posix_acl_default="))
        };
        let is_less = match difference.field {
            "mode" => bits(&difference.ours) & !bits(&difference.theirs) == 0,
            field => field == "attributes",
        };
        is_named && is_less && inherits(system) && inherits(ours)
    };
    differences.retain(|difference| {
        let path = Path::new(&difference.path);
        let is_missing = difference.field == "entry" && difference.theirs == "absent";
        // The source is one file with its copies.
        let is_linked = case.has(&["-l", "--link"])
            && difference.field == "links"
            && path.starts_with("source")
            && group(path, &ours.1).iter().any(|name| is_copy(name))
            && group(path, &ours.1).iter().all(|name| name.starts_with("source") || is_copy(name));
        // GNU's has not made another name of the copy.
        let is_alone = difference.field == "links" && {
            let names = group(path, &ours.1);
            let is_made = |name: &&PathBuf| system.1.contains_key(*name);
            names.iter().all(|name| is_copy(name)) && !names.iter().all(is_made)
        };
        let is_as_source = is_alone || is_missing || is_of_source(case, difference, &ours.1);
        !(is_copy(path) && is_as_source || is_linked || is_unfinished(path, difference))
    });
    ours.0.code == Some(0)
}
