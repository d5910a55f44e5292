//! The differences of two copies that are not failures, each with its reason.

use super::copy_case::Case;
use super::copy_parents as parents;
use super::copy_run::{Run, group, is_of_source, resolved, unquoted, without_dots};
use super::snapshot::{Difference, Record, Snapshot, compare};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// The differences that are not failures, with their reasons.
pub(super) const ACCEPTED: [&str; 28] = [
    "access times of sources and of directories: programs read them in different ways, and the \
     kernel updates them by its own rules",
    "layout of data without --sparse=always: GNU's makes holes of zeros in some files; ours keeps \
     the layout of the source. In any case ours can have less data than GNU's. The contents are equal",
    "modification time of an existing directory whose times are not or cannot be preserved, and access time of an \
     existing file: ours gives the name to a new file, which changes the directory, where GNU's \
     writes into the old file",
    "set-id bits of a file that exists, or was written from another source, and whose mode is preserved \
     from a source without them: GNU's keeps them, ours has the mode of the source, so nothing gets \
     more rights than either file had",
    "what depends on the order in which names are found: the first name of a file with several, the \
     last source written into one file, links at the target to other targets, -L into the target. \
     Ours must have what GNU's has for a tree whose entries were created in another order; a name of \
     a file with several that GNU's fails to write can be a link in ours",
    "modes on FUSE: GNU's sets some by ACLs that fuse2fs stores but does not apply. Ours must have the \
     mode that GNU's has on tmpfs, or the preserved one of the source",
    "access times on FUSE: fuse2fs updates them at every read of a source, and the kernel caches them",
    "--remove-destination of a source that a plain user cannot read: GNU's removes the target and then \
     fails, ours keeps the target as it was",
    "-s and --link where both report that no link can be made: GNU's has removed the target, or moved it \
     to its backup and back; ours keeps it and its directory as they were",
    "-u without links preserved, and two targets of one source file that are newer: GNU's replaces one \
     by a link to the other, or fails to, ours keeps both as they were",
    "--sparse=never where blocks are shared: GNU's keeps holes of the source, ours allocates all",
    "--backup=simple: GNU's runs with --backup=existing, which does the same in these trees, because \
     GNU cp 9.1 looks for the old file in the working directory (fixed in 9.2). Names so long that it shortens \
     those of other backups are not compared",
    "attributes of a directory that is reached through a followed link: GNU's reads those of the link",
    "user attributes of an existing directory whose times a plain user cannot change: GNU's gives up \
     after the times, ours has those of the source",
    "a directory that is a source, and in another one: GNU's refuses to copy it again. Ours must have \
     what GNU's copies with one command for each source, apart from links between these copies",
    "a target below a link that its own copy replaces ('DIR/link/', where the link leads to DIR): GNU's \
     sets permissions by a path that no longer exists, and fails. Ours has those of the source",
    "a directory copied into itself: what is in the directories that they refuse to create, and when the \
     one above changed, depends on when they find it",
    "a directory whose attributes a plain user cannot read: GNU's leaves it open to its owner, as it was \
     while it was filled; ours has the mode of the source",
    "a file with several names of which one has a target whose attributes a plain user cannot set: GNU's \
     copies the others apart, ours links them",
    "--parents of a directory whose copy --parents has created, as that of 'source/.': GNU cp 9.1 fails \
     (File exists) and leaves it empty, ours has its entries, links and attributes",
    "times and extended attributes of the directories above a source with --parents: GNU's sets the times \
     only of those that it creates, and not again after the next source, and copies no user attributes",
    "--parents of a source that a plain user cannot reach: GNU's has created the directories above it, or \
     left one open to its owner",
    "a file with several names of which some have a target: the first name that is found is written into \
     its target or created, and decides the attributes of all",
    "backups of a target whose source a plain user cannot read: GNU's has moved it to its backup and back, \
     which changes the directory; ours keeps it as it was",
    "a source that is given twice, with numbered backups and links preserved: GNU's looks for its first \
     copy under the name that it has just backed up, and fails; ours links the two",
    "a pipe at the target that nothing reads: both wait until the time limit, and what they have copied by \
     then is not compared",
    "times called 'now': the programs run one after the other",
    "messages: compared by GNU's tests, not here",
];

/// Returns the differences that no rule accepts by what the programs left.
pub(super) fn by_result(case: &Case, system: &Run, ours: &Run, on_fuse: bool) -> Vec<Difference> {
    let [theirs, own] = [system, ours].map(into_itself);
    let both = !theirs.is_empty() && !own.is_empty();
    let outside = |path: &Path, run: &Run| -> BTreeSet<PathBuf> {
        let names = group(path, &run.1).into_iter();
        let is_refused = |name: &PathBuf| theirs.union(&own).any(|dir| name.starts_with(dir));
        let kept = names.filter(|name| !is_refused(name)).cloned();
        kept.chain(std::iter::once(path.to_owned())).collect()
    };
    let enters_itself = |difference: &Difference| {
        let path = Path::new(&difference.path);
        if both && difference.field == "links" && outside(path, system) == outside(path, ours) {
            return true;
        }
        both && theirs.union(&own).any(|refused| match difference.field {
            "mtime" if difference.theirs == "now" && refused.parent() == Some(path) => true,
            // Also what was there before, and only one of them has replaced.
            _ => path.starts_with(refused),
        })
    };
    let mut differences = compare(&system.1, &ours.1);
    differences.retain(|difference| {
        let of_fuse = match difference.field {
            "mode" => case.preserves() && is_mode_of_source(case, difference, &ours.1),
            field => field == "atime",
        };
        let is_listed = accepts(case, difference, &ours.1)
            || enters_itself(difference)
            || left_open(case, difference, system, ours)
            || parents::accepts(case, difference, system, ours)
            || gave_up(case, difference, system, ours);
        let is_changed = changed_and_forbidden(difference, ours)
            || case.preserves_links() && linked_to_forbidden(difference, ours);
        !(is_listed || is_changed || on_fuse && of_fuse)
    });
    differences
}

/// Returns the directories that a program refused to create, because they are below their own sources.
fn into_itself(run: &Run) -> BTreeSet<PathBuf> {
    let refused = |line: &str| {
        let (_, path) = line.split_once("into itself, ")?;
        unquoted(path)
    };
    let named = run.0.err.lines().filter_map(refused);
    named.map(|path: PathBuf| resolved(&path, &run.1)).collect()
}

/// Removes the differences of paths where ours has kept what was there `before`, for a reason.
pub(super) fn retain_unkept(
    case: &Case,
    differences: &mut Vec<Difference>,
    (system, ours): (&Run, &Run),
    before: &Snapshot,
) {
    let runs = Kept { case, system, ours, before };
    let paths = |test: &dyn Fn(&Difference) -> bool| -> BTreeSet<PathBuf> {
        let found = differences.iter().filter(|difference| test(difference));
        found.map(|difference| PathBuf::from(&difference.path)).collect()
    };
    let kept = paths(&|difference| runs.is_kept(difference));
    let relinked = paths(&|difference| runs.is_relinked(difference));
    let in_group = |path: &Path, snapshot: &Snapshot, with: &BTreeSet<PathBuf>| {
        group(path, snapshot).iter().any(|name| with.contains(*name))
    };
    let is_above =
        |path: &Path| kept.iter().chain(&relinked).any(|changed| changed.parent() == Some(path));
    differences.retain(|difference| {
        let path = Path::new(&difference.path);
        let only_names = match difference.field {
            // GNU's has one name less of this file, or one more.
            "links" => {
                in_group(path, before, &kept)
                    || in_group(path, before, &relinked)
                    || in_group(path, &system.1, &relinked)
            }
            "mtime" => {
                difference.theirs == "now"
                    && (is_above(path) || runs.cannot_link() || runs.cannot_read())
            }
            _ => false,
        };
        let is_changed = kept.contains(path) || relinked.contains(path);
        !(is_changed || only_names && runs.as_before(path, difference.field))
    });
}

/// Both runs of a case, and what was there before.
struct Kept<'a> {
    case: &'a Case,
    system: &'a Run,
    ours: &'a Run,
    before: &'a Snapshot,
}

impl Kept<'_> {
    /// Returns true if ours has left a field as it was.
    fn as_before(&self, path: &Path, field: &str) -> bool {
        let value = |snapshot: &Snapshot| snapshot.get(path)?.fields.get(field).cloned();
        value(self.before) == value(&self.ours.1)
    }

    /// Returns true if ours has left a path as it was.
    fn is_unchanged(&self, path: &Path) -> bool {
        let pair = self.before.get(path).zip(self.ours.1.get(path));
        pair.is_some_and(|(old, new)| is_equal(old, new, &["atime"]))
    }

    /// Returns true if both programs report that a link could not be made.
    fn cannot_link(&self) -> bool {
        let all_say =
            |text: &str| [self.system, self.ours].iter().all(|run| run.0.err.contains(text));
        self.case.has(&["-s"])
            && all_say("can make relative symbolic links only in current directory")
            || self.case.has(&["-l", "--link"]) && all_say("cannot create hard link")
    }

    /// Returns true if a target has a backup, and both programs report a source that cannot be read.
    fn cannot_read(&self) -> bool {
        let say = [self.system, self.ours]
            .map(|run| run.0.err.contains("for reading: Permission denied"));
        !self.case.root && self.case.has(&["-b", "--backup", "-S"]) && say == [true, true]
    }

    /// Returns true if GNU's has removed a target that ours keeps.
    fn is_kept(&self, difference: &Difference) -> bool {
        let path = Path::new(&difference.path);
        let is_closed = path.file_name().is_some_and(|name| self.case.source.has_closed(name));
        let is_reasoned =
            self.cannot_link() || self.case.has(&["--rem"]) && !self.case.root && is_closed;
        let is_removed = difference.field == "entry" && difference.theirs == "absent";
        is_removed && is_reasoned && self.is_unchanged(path)
    }

    /// Returns true if GNU's has replaced a newer target by a link to another one.
    fn is_relinked(&self, difference: &Difference) -> bool {
        let path = Path::new(&difference.path);
        let is_other = |other: &Path| {
            let pair = self.before.get(other).zip(self.system.1.get(path));
            other != path
                && self.is_unchanged(other)
                && pair.is_some_and(|(old, new)| is_equal(old, new, &["atime", "links"]))
        };
        self.case.has(&["-u", "--update"])
            && !self.case.preserves_links()
            && difference.field == "links"
            && self.is_unchanged(path)
            && group(path, &self.system.1).into_iter().any(|other| is_other(other))
    }
}

/// Returns true if all that GNU's reports is that it could not replace newer targets by links, where
/// links are not preserved.
pub(super) fn only_relinks(case: &Case, system: &Run, ours: &Run) -> bool {
    let said = &system.0.err;
    case.has(&["-u", "--update"])
        && !case.preserves_links()
        && ours.0.code == Some(0)
        && !said.is_empty()
        && said.lines().all(|line| line.contains("cannot create hard link"))
}

/// Removes the differences of a target below a link that its own copy has replaced. Returns true if
/// this is all that GNU's reports.
pub(super) fn retain_reachable(
    case: &Case,
    differences: &mut Vec<Difference>,
    (system, ours): (&Run, &Run),
    before: &Snapshot,
) -> bool {
    let Some(target) = case.operands.last() else { return false };
    let is_link = |snapshot: &Snapshot| snapshot.get(target).is_some_and(|r| r.is("symlink"));
    let of_way = |line: &str| line.contains("preserving") && line.ends_with(": Not a directory");
    let said = &system.0.err;
    if !is_link(before) || is_link(&ours.1) || said.is_empty() || !said.lines().all(of_way) {
        return false;
    }
    differences.retain(|difference| {
        let is_way = Path::new(&difference.path) == target;
        let of_permissions = ["mode", "attributes"].contains(&difference.field);
        !(is_way && of_permissions && is_of_source(case, difference, &ours.1))
    });
    ours.0.code == Some(0)
}

/// Removes the differences of paths that ours has as GNU's with one command for each source.
pub(super) fn retain_repeated(
    case: &Case,
    differences: &mut Vec<Difference>,
    apart: &Run,
    ours: &Run,
    on_fuse: bool,
) {
    let is_one_source = |difference: &Difference| {
        let names = group(Path::new(&difference.path), &ours.1);
        let all: Vec<Vec<usize>> = names.iter().map(|name| case.originals(name)).collect();
        let first = all.first().cloned().unwrap_or_default();
        difference.field == "links"
            && first.iter().any(|one| all.iter().all(|others| others.contains(one)))
    };
    let mut others = by_result(case, apart, ours, on_fuse);
    others.retain(|other| !is_one_source(other));
    let different: BTreeSet<OsString> = others.into_iter().map(|other| other.path).collect();
    differences.retain(|difference| different.contains(&difference.path));
}

/// Returns true if two records have the same values, except for some fields.
fn is_equal(one: &Record, other: &Record, except: &[&str]) -> bool {
    let fields = |record: &Record| -> Vec<(&'static str, String)> {
        let kept = record.fields.iter().filter(|(name, _)| !except.contains(name));
        kept.map(|(name, value)| (*name, value.clone())).collect()
    };
    fields(one) == fields(other)
}

/// Returns true if a source of this name and type has the mode of our copy, which can also have bits
/// that the target had, and lacks those of the umask if modes are not preserved.
pub(super) fn is_mode_of_source(case: &Case, difference: &Difference, snapshot: &Snapshot) -> bool {
    let bits = |text: &str| u32::from_str_radix(text, 8).ok();
    let copy = Path::new(&difference.path);
    let below = copy.strip_prefix("t").unwrap_or(copy);
    let old = case.target.as_ref().map_or(0, |target| target.special_bits(below));
    let word = snapshot.get(copy).map(Record::word);
    let Some(ours) = bits(&difference.ours) else { return false };
    let is_it = |mode: u32| match case.preserves() {
        // New directories inherit the bit.
        true => ours & !old & !0o2000 == mode & !old & !0o2000,
        false => ours & !old == mode & 0o777 & !case.umask,
    };
    let sources = snapshot.iter().filter(|(path, record)| {
        path.starts_with("source")
            && path.file_name() == copy.file_name()
            && Some(record.word()) == word
    });
    let modes = sources.filter_map(|(_, record)| bits(record.fields.get("mode")?));
    is_of_source(case, difference, snapshot) || modes.into_iter().any(is_it)
}

/// Returns true if a file is a link to one whose attributes cannot be preserved.
fn linked_to_forbidden(difference: &Difference, ours: &Run) -> bool {
    let path = Path::new(&difference.path);
    let is_named = |name: &&PathBuf| {
        let name = name.to_string_lossy();
        let mut lines = ours.0.err.lines();
        lines.any(|line| line.contains("preserving ") && line.contains(name.as_ref()))
    };
    let fields = ["atime", "mtime", "owner", "mode", "attributes", "links"];
    let names = group(path, &ours.1);
    fields.contains(&difference.field)
        && names.iter().any(is_named)
        && !names.iter().filter(|name| **name == path).any(is_named)
}

/// Returns true if a directory got another time because names in it were replaced, and its owner
/// alone can restore it.
fn changed_and_forbidden(difference: &Difference, ours: &Run) -> bool {
    let path = Path::new(&difference.path);
    let is_it = |line: &str| {
        let (_, rest) = line.split_once("preserving times for ")?;
        let named: PathBuf = unquoted(rest.rsplit_once(": ")?.0)?;
        Some(without_dots(&named) == path)
    };
    difference.field == "mtime"
        && difference.ours == "now"
        && ours.1.get(path).is_some_and(|record| record.is("directory"))
        && ours.0.err.lines().any(|line| is_it(line) == Some(true))
}

/// Returns true if only user attributes differ, of an existing directory whose times GNU's could
/// not set, and ours has those of a source.
fn gave_up(case: &Case, difference: &Difference, system: &Run, ours: &Run) -> bool {
    let path = Path::new(&difference.path);
    let all =
        |text: &str| -> BTreeSet<String> { text.split_whitespace().map(str::to_owned).collect() };
    let (theirs, own) = (all(&difference.theirs), all(&difference.ours));
    let name = |attribute: &str| attribute.split('=').next().unwrap_or_default().to_owned();
    let added: Vec<&String> = own.difference(&theirs).collect();
    let is_replaced =
        |old: &String| added.iter().any(|new| name(new.as_str()) == name(old.as_str()));
    let of_source = |record: &Record| {
        let there = record.fields.get("attributes").map(|text| all(text)).unwrap_or_default();
        added.iter().all(|attribute| there.contains(*attribute))
    };
    !case.root
        && difference.field == "attributes"
        && system.0.err.contains("preserving times for")
        && ours.0.err.contains("preserving times for")
        && ours.1.get(path).is_some_and(|record| record.is("directory"))
        && !added.is_empty()
        && added.iter().all(|attribute| attribute.starts_with("user."))
        && theirs.difference(&own).all(is_replaced)
        && ours.1.iter().any(|(path, record)| path.starts_with("source") && of_source(record))
}

/// Returns true if a directory whose attributes a plain user cannot read is still as open as GNU's needed
/// it to fill it.
fn left_open(case: &Case, difference: &Difference, system: &Run, ours: &Run) -> bool {
    let bits = |text: &str| u32::from_str_radix(text, 8).unwrap_or(0);
    let is_directory = |run: &Run| {
        run.1.get(Path::new(&difference.path)).is_some_and(|record| record.is("directory"))
    };
    let of_source = |record: &Record| {
        let there = record.fields.get("attributes").map_or("", String::as_str);
        difference.ours.split_whitespace().all(|one| there.split_whitespace().any(|it| it == one))
    };
    let is_unread = match difference.field {
        "mode" => {
            bits(&difference.theirs) == bits(&difference.ours) | 0o700
                || is_mode_of_source(case, difference, &ours.1)
        }
        "attributes" => {
            let mut sources = ours.1.iter().filter(|(path, _)| path.starts_with("source"));
            difference.theirs.is_empty() && sources.any(|(_, record)| of_source(record))
        }
        _ => false,
    };
    is_unread
        && !case.root
        && is_directory(ours)
        && system.0.err.contains("getting attribute")
        && ours.0.err.contains("setting attributes for")
}

/// Applies the rules that need only the result.
pub(super) fn accepts(case: &Case, difference: &Difference, snapshot: &Snapshot) -> bool {
    let Difference { path, field, theirs, ours } = difference;
    let path = Path::new(path);
    let times = case.preserves_times();
    let directory = snapshot.get(path).is_some_and(|record| record.is("directory"));
    match *field {
        "atime" => !path.starts_with("t") || theirs == "now" || ours == "now" && !times,
        "mtime" => {
            let renamed = ours == "now" && (!times || case.is_above_target(path));
            directory && path.starts_with("t") && case.target.is_some() && renamed
        }
        "mode" => {
            let bits = |text: &str| u32::from_str_radix(text, 8).unwrap_or(0);
            let (theirs, ours) = (bits(theirs), bits(ours));
            let only_more = theirs & 0o777 == ours & 0o777 && theirs & ours == ours;
            // A name can now be one of a file that another name had, and a link can lead to it.
            let leads = snapshot.iter().filter(|(other, record)| {
                other.starts_with("t") && record.is("symlink") && resolved(other, snapshot) == path
            });
            let names = group(path, snapshot).into_iter().map(PathBuf::as_path).chain([path]);
            let names = names.chain(leads.map(|(other, _)| other.as_path()));
            let names: Vec<&Path> = names.collect();
            let old = case.target.as_ref().map_or(0, |target| {
                let below = |name: &Path| name.strip_prefix("t").unwrap_or(name).to_owned();
                names.iter().fold(0, |bits, name| bits | target.special_bits(&below(name)))
            });
            let old = old | case.bits_of_other_sources(&names, ours);
            only_more && case.preserves() && !directory && theirs & !ours & !old == 0
        }
        "attributes" => {
            let is_real = |record: &Record| record.fields.get("attributes") == Some(ours);
            let of_source = |path: &PathBuf| path.starts_with("source");
            directory
                && case.has(&["-rL", "-L", "-l", "--link", "-rH", "-H"])
                && case.source.has_symlink()
                && snapshot.iter().any(|(path, record)| of_source(path) && is_real(record))
        }
        "extents" => accepts_layout(case, path, (theirs, ours), snapshot),
        _ => false,
    }
}

fn accepts_layout(
    case: &Case,
    path: &Path,
    (theirs, ours): (&str, &str),
    snapshot: &Snapshot,
) -> bool {
    let value = |record: &Record, name| record.fields.get(name).cloned();
    let contents = snapshot.get(path).and_then(|record| value(record, "contents"));
    let mut sources = snapshot.iter().filter(|(path, _)| path.starts_with("source"));
    let same = sources.any(|(_, record)| {
        value(record, "contents") == contents
            && value(record, "extents").is_some_and(|own| own == ours)
    });
    let less = data_bytes(ours) <= data_bytes(theirs);
    match () {
        () if case.has(&["--sparse=never"]) => !less,
        () if case.has(&["--sparse=always"]) => less,
        () => same || less,
    }
}

/// Returns the sum of the ranges of data.
fn data_bytes(extents: &str) -> u64 {
    let range = |text: &str| {
        let (start, end) = text.split_once('-')?;
        Some(end.parse::<u64>().ok()?.saturating_sub(start.parse().ok()?))
    };
    extents.split_whitespace().filter_map(range).sum()
}
