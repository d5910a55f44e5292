//! `cp --shard` and `cp --queue`: copy the subtrees of a shard, and write what was copied as its part.
//!
//! Directories that several shards fill get their attributes in `shard merge`, when all shards are done. The
//! part lists all files with several names: a link between names in different shards is not made, and the merge
//! reports it.

use super::args::CpArgs;
use super::notes::print_notes;
use super::progress::CopyProgress;
use crate::exit::{Ended, Failure};
use crate::sharding::absolute;
use crate::subtrees::{
    self, Comparison, Outcome, Sharding, Standing, SubtreeCommand, changed, identity, meta,
    one_file_system, subtree,
};
use crate::{out, remote, stderr};
use ioloom_copy::{
    Attributes, CopyCounters, CopyOptions, Durable, Linked, Overwrite, Preserve, Subtree,
    SubtreesReport, Target, copies_of, copy_subtrees,
};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::units::{format_counted, format_ns, format_size};
use ioloom_shard::copied::{self, Copied, Link, Shared};
use ioloom_shard::part::{PartHeader, Work};
use ioloom_shard::plan::Plan;
use ioloom_sys::cache::flush_file_system;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The target, in the work of a part.
const TARGET: &str = "target";
/// Whether the target is the name of the copy, in the work of a part.
const NAMED: &str = "no-target-directory";
const PRESERVE: &str = "preserve";
const NO_PRESERVE: &str = "no-preserve";
/// Preserved attributes whose failures are errors.
const REQUIRE: &str = "require";
const DURABLE: &str = "durable";

/// Runs the shard, or the shards of the queue, that the flags name.
pub(super) fn run(args: &CpArgs) -> Ended {
    let flags = &args.flags;
    if !(flags.recursive || flags.archive) {
        return Err(Failure::usage("--shard and --queue copy directories; add -r or -a"));
    }
    let target = match (flags.target_directory.as_slice(), flags.paths.as_slice()) {
        ([dir], []) if !flags.no_target_directory => dir,
        ([], [target]) => target,
        _ => {
            return Err(Failure::usage(
                "with --shard and --queue, the plan names the sources; give only the target",
            ));
        }
    };
    if let Some(url) = remote::url_of(target).map(remote::shown) {
        return Err(Failure::usage(format!("cannot copy shards to {url}; give a directory")));
    }
    let target = plain(&absolute(target.clone())?, flags.no_target_directory);
    let target = match flags.no_target_directory {
        true => Target::As(target),
        false => Target::Into(target),
    };
    // The work of a part is text.
    let Some(work) = work_of(args, &target)? else {
        return Err(Failure::usage(
            "the path of the target is not UTF-8, which parts need; choose another one",
        ));
    };
    let options = args.options(Arc::default())?;
    subtrees::run(&Copying { args, target, options, work })
}

/// Removes repeated slashes, `.`, and slashes at the end: the work of parts must not depend on them. A slash or `/.`
/// after the name of the copy follows a symbolic link, which is another target: one slash remains.
fn plain(target: &Path, is_name: bool) -> PathBuf {
    let plain: PathBuf = target.components().collect();
    let bytes = target.as_os_str().as_bytes();
    let follows = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
    if is_name && follows && plain.is_symlink() { plain.join("") } else { plain }
}

struct Copying<'a> {
    args: &'a CpArgs,
    target: Target,
    options: CopyOptions,
    work: BTreeMap<String, String>,
}

impl SubtreeCommand for Copying<'_> {
    const NAME: &'static str = "cp";

    fn sharding(&self) -> &Sharding {
        &self.args.flags.sharding
    }

    fn json(&self) -> bool {
        self.args.flags.json
    }

    fn work(&self, plan: &Plan) -> Work {
        let mut options = self.work.clone();
        if one_file_system(plan) {
            options.insert("one-file-system".to_owned(), "yes".to_owned());
        }
        Work { command: Self::NAME.to_owned(), options }
    }

    fn run(
        &self,
        plan: &Plan,
        paths: &[&[u8]],
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Outcome>, Failure> {
        let mut options = self.options.clone();
        options.cancel = stop.clone();
        options.one_file_system = one_file_system(plan);
        // A shard that runs again finds its own read-only files.
        options.force = true;
        // A worker that lost its lease must not truncate files of a shard that is complete.
        options.overwrite = Overwrite::Replace;
        check_target(&self.target)?;
        let (mut comparison, copies) = (Comparison::new(plan), copies(plan, &self.target)?);
        let (mut wanted, mut directories, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (index, name) in (0..).zip(paths) {
            let (path, alone) = subtree(name);
            match comparison.standing(&path, alone) {
                Standing::Same => {
                    let part = part_of(&copies, &path, alone);
                    if let Some(part) = part.as_ref().filter(|part| part.alone) {
                        directories.push((index, identity(&path), part.target()));
                    }
                    wanted.extend(part);
                }
                Standing::OtherDevice | Standing::Reported => {}
                Standing::Changed(directory) => errors.push(changed("copy", &directory)),
            }
        }
        errors.iter().for_each(|error| stderr::message(error));
        let progress = Arc::new(CopyCounters::default());
        let watcher = CopyProgress::start(self.args, None, &options, progress.clone());
        let mut systems = FileSystems::new();
        open_file_systems(&mut systems, &self.target, &wanted);
        let copied = copy_subtrees(&wanted, &options, &watcher, &progress);
        watcher.finish();
        if let Some(failure) = watcher.stream_failure() {
            return Err(failure);
        }
        if copied.report.cancelled {
            return Ok(None);
        }
        if copied.report.out_of_space {
            let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = &self.target;
            return Err(Failure::failed(format!(
                "cannot complete the shard: {} is full; free space, then run it again",
                quoted(path)
            )));
        }
        sync(systems, &self.target, &wanted)?;
        if !self.args.flags.json {
            print_notes(self.args, &copied.report);
        }
        let shared = directories.into_iter().filter_map(|(index, source, copy)| {
            Some(Shared { index, source: source?, copy: identity(&copy) })
        });
        Ok(Some(outcome(plan, copied, shared.collect(), errors)))
    }

    fn print(&self, plan: &Plan, part: &PartHeader, own: bool) -> Result<(), Failure> {
        print(self.args, plan, part, own)
    }
}

/// A target that does not exist would mean something else for the next shard, and one without a parent
/// would fail for each directory.
fn check_target(target: &Target) -> Result<(), Failure> {
    let (path, what, advice) = match target {
        Target::Into(path) => {
            (path.as_path(), "target directory", "create it, or give its new name with -T")
        }
        Target::As(path) | Target::Auto(path) => match path.parent() {
            Some(parent) => (parent, "directory of the target", "create it"),
            None => return Ok(()),
        },
    };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Failure::failed(format!("target {}: Not a directory", quoted(path)))),
        Err(error) => Err(Failure::failed(format!(
            "{what} {}: {}; {advice}",
            quoted(path),
            ioloom_failure::reason(&error)
        ))),
    }
}

/// A directory of each file system that a shard copies to, by device, or nothing if none can be opened.
type FileSystems = BTreeMap<u64, Option<(PathBuf, File)>>;

/// Opens a directory of each file system with copies of subtrees. A descriptor reports errors of the device only since
/// it was opened, so those that exist are opened before the copy.
fn open_file_systems(found: &mut FileSystems, target: &Target, copied: &[Subtree]) {
    let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
    for path in std::iter::once(path.clone()).chain(copied.iter().map(Subtree::target)) {
        let mut existing = path.ancestors().filter_map(|path| Some((path, device_of(path)?)));
        let Some((path, device)) = existing.next() else { continue };
        let of_device = found.entry(device).or_insert(None);
        if of_device.is_none() {
            let above = existing.take_while(|(_, other)| *other == device).map(|(path, _)| path);
            *of_device = std::iter::once(path).chain(above).find_map(opened);
        }
    }
}

/// Syncs the file systems with the copies of subtrees, which were opened before the copy. The part is durable and says
/// that they are complete, so they must not be lost if the host loses power after it was written, with any `--durable`.
fn sync(mut found: FileSystems, target: &Target, copied: &[Subtree]) -> Result<(), Failure> {
    let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
    open_file_systems(&mut found, target, copied);
    for (device, file) in found {
        let Some((path, file)) = file.or_else(|| copied_file(device, copied)) else {
            let denied = std::io::ErrorKind::PermissionDenied.into();
            return Err(Failure::failed(PathError::new(Operation::SyncFileSystem, path, denied)));
        };
        let failed = PathError::on(Operation::SyncFileSystem, &path);
        flush_file_system(file).map_err(|error| Failure::failed(failed(error)))?;
    }
    Ok(())
}

/// Returns the device of a file or a directory, or nothing if it is absent or cannot be examined: nothing was copied
/// there, or a directory above it shows its device. Opening other kinds can block.
fn device_of(path: &Path) -> Option<u64> {
    let found = std::fs::metadata(path).ok()?;
    (found.is_dir() || found.is_file()).then(|| found.dev())
}

fn opened(path: &Path) -> Option<(PathBuf, File)> {
    Some((path.to_owned(), File::open(path).ok()?))
}

/// Returns a file that was copied to a device, by its name in the source: the directory may not be readable.
fn copied_file(device: u64, copied: &[Subtree]) -> Option<(PathBuf, File)> {
    copied.iter().find_map(|subtree| {
        let (source, target) = (subtree.source(), subtree.target());
        let names = std::fs::read_dir(source).ok()?.flatten().map(|entry| entry.file_name());
        let mut paths = names.map(|name| target.join(name));
        paths.find_map(|path| (device_of(&path)? == device).then(|| opened(&path))?)
    })
}

/// Returns the path of the copy of each argument of a plan.
pub(crate) fn copies(plan: &Plan, target: &Target) -> Result<HashMap<PathBuf, PathBuf>, Failure> {
    let roots: Vec<PathBuf> = plan.header.roots.iter().map(|root| root.path().to_owned()).collect();
    if matches!(target, Target::As(_)) && roots.len() > 1 {
        return Err(Failure::usage("-T needs a plan of one directory; this one has several"));
    }
    if plan.header.contained > 0 {
        return Err(Failure::usage(
            "the plan left out arguments inside others, which have copies of their own; plan them apart",
        ));
    }
    let copies = copies_of(&roots, target);
    // Without dots at the end.
    let plain = |path: &PathBuf| path.components().collect::<PathBuf>();
    let plain: Vec<PathBuf> = copies.iter().map(plain).collect();
    if let Some((other, at)) = first_meeting(&plain) {
        return Err(Failure::usage(format!(
            "the copies of {} and {} meet in {}; plan them apart",
            quoted(&roots[other]),
            quoted(&roots[at]),
            quoted(&plain[at])
        )));
    }
    Ok(roots.into_iter().zip(copies).collect())
}

/// Returns the first path that is equal to, above or below an earlier one, after the first such one.
fn first_meeting(paths: &[PathBuf]) -> Option<(usize, usize)> {
    // The first path that is each one, and the first that is it or below it.
    let mut by_path: HashMap<&Path, usize> = HashMap::new();
    let mut by_above: HashMap<&Path, usize> = HashMap::new();
    for (at, path) in paths.iter().enumerate() {
        let above = path.ancestors().filter_map(|above| by_path.get(above));
        if let Some(other) = above.chain(by_above.get(path.as_path())).min() {
            return Some((*other, at));
        }
        by_path.insert(path.as_path(), at);
        for above in path.ancestors() {
            by_above.entry(above).or_insert(at);
        }
    }
    None
}

/// Returns a path of a plan as a part of its tree. With `-x` an argument can be a mount inside another one: then it is
/// a part of the inner one.
pub(crate) fn part_of(
    copies: &HashMap<PathBuf, PathBuf>,
    path: &Path,
    alone: bool,
) -> Option<Subtree> {
    let (root, copy) = path.ancestors().find_map(|above| copies.get_key_value(above))?;
    let below = path.strip_prefix(root).ok()?.to_owned();
    Some(Subtree { root: root.to_owned(), copy: copy.clone(), below, alone })
}

fn outcome(
    plan: &Plan,
    copied: SubtreesReport,
    shared: Vec<Shared>,
    mut errors: Vec<String>,
) -> Outcome {
    let SubtreesReport { report, linked } = copied;
    let own = plan.header.roots.first().and_then(|root| meta(root.path()).ok()).map(|m| m.device);
    let number = |(major, minor): (u32, u32)| u64::from(major) << 32 | u64::from(minor);
    let links = linked.into_iter().map(|Linked { device, inode, bytes }| Link {
        device: (Some(device) != own).then(|| number(device)),
        inode,
        bytes,
    });
    let errors_count = report.errors_count + errors.len() as u64;
    errors.extend(report.errors.iter().map(|error| stderr::without_errno(&error.to_string())));
    let counts = &report.counts;
    let copied = Copied {
        files: counts.files,
        hard_links: counts.hard_links,
        directories: counts.directories,
        symlinks: counts.symlinks,
        specials: counts.specials,
        skipped: counts.skipped,
        bytes: report.bytes,
        links: links.collect(),
        shared,
        errors,
    };
    Outcome {
        files: counts.files + counts.hard_links + counts.symlinks + counts.specials,
        bytes: report.bytes,
        errors: errors_count,
        method: report
            .modes
            .iter()
            .max_by_key(|(_, files)| *files)
            .map_or_else(|| "none".to_owned(), |(mode, _)| mode.word().to_owned()),
        body: copied::encode(&copied),
    }
}

/// Returns the flags that change the result, or nothing if the target is not text.
fn work_of(args: &CpArgs, target: &Target) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
    let Some(path) = path.to_str() else { return Ok(None) };
    let options = args.options(Arc::default())?;
    let mut work = BTreeMap::from([
        (TARGET.to_owned(), path.to_owned()),
        (PRESERVE.to_owned(), preserve_words(options.preserve)),
    ]);
    let mut note = |is_set: bool, name: &str, value: &str| {
        if is_set {
            work.insert(name.to_owned(), value.to_owned());
        }
    };
    note(matches!(target, Target::As(_)), NAMED, "yes");
    note(options.plain_mode, NO_PRESERVE, "mode");
    let required = required_words(&options);
    note(!required.is_empty(), REQUIRE, &required);
    note(options.durable == Durable::File, DURABLE, "file");
    note(options.durable == Durable::Full, DURABLE, "full");
    note(options.existing != Default::default(), "existing", &word_of(options.existing));
    note(options.reflink != Default::default(), "reflink", &word_of(options.reflink));
    note(options.sparse != Default::default(), "sparse", &word_of(options.sparse));
    note(options.verify != Default::default(), "verify", &word_of(options.verify));
    note(options.strict_source, "strict-source", "yes");
    Ok(Some(work))
}

fn word_of(value: impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// The names of preserved attributes, and how to get and set them.
type Attribute = (&'static str, fn(&mut Preserve) -> &mut bool);
const ATTRIBUTES: [Attribute; 6] = [
    ("mode", |preserve| &mut preserve.mode),
    ("ownership", |preserve| &mut preserve.owner),
    ("timestamps", |preserve| &mut preserve.times),
    ("links", |preserve| &mut preserve.links),
    ("xattr", |preserve| &mut preserve.xattrs),
    ("context", |preserve| &mut preserve.context),
];

fn preserve_words(mut preserve: Preserve) -> String {
    let kept = ATTRIBUTES.iter().filter(|(_, of)| *of(&mut preserve));
    let kept: Vec<&str> = kept.map(|(name, _)| *name).collect();
    if kept.is_empty() { "none".to_owned() } else { kept.join(",") }
}

fn required_words(options: &CopyOptions) -> String {
    let of = [("xattr", options.attributes), ("context", options.context)];
    let required = of.iter().filter(|(_, of)| *of == Attributes::Required);
    required.map(|(name, _)| *name).collect::<Vec<&str>>().join(",")
}

/// Returns the target and the options that directories need, from the work of a part.
pub(crate) fn options_of(work: &Work) -> Option<(Target, CopyOptions)> {
    let value = |name: &str| work.options.get(name).map(String::as_str);
    let target = PathBuf::from(value(TARGET)?);
    let target = if value(NAMED).is_some() { Target::As(target) } else { Target::Into(target) };
    let mut preserve = Preserve::default();
    for word in value(PRESERVE)?.split(',').filter(|word| *word != "none") {
        let (_, of) = ATTRIBUTES.iter().find(|(name, _)| *name == word)?;
        *of(&mut preserve) = true;
    }
    let durable = match value(DURABLE) {
        None => Durable::None,
        Some("file") => Durable::File,
        Some("full") => Durable::Full,
        Some(_) => return None,
    };
    let plain_mode = value(NO_PRESERVE).is_some();
    let mut options = CopyOptions { preserve, plain_mode, durable, ..CopyOptions::default() };
    for word in value(REQUIRE).into_iter().flat_map(|words| words.split(',')) {
        match word {
            "xattr" => options.attributes = Attributes::Required,
            "context" => options.context = Attributes::Required,
            _ => return None,
        }
    }
    Some((target, options))
}

fn print(args: &CpArgs, plan: &Plan, part: &PartHeader, own: bool) -> Result<(), Failure> {
    let found = &part.found;
    if args.flags.json {
        return out::print_json_to_slow_reader(&json!({
            "schema": 1,
            "command": "cp",
            "files": found.files,
            "bytes": found.bytes,
            "errors": found.errors,
            "shard": {
                "number": part.shard,
                "of": part.shards,
                "plan": plan.checksum,
                "written": own,
            },
        }));
    }
    let done = if own { "copied" } else { "had a part" };
    out::print_to_slow_reader(&format!(
        "shard {}/{} {done}: {}, {}, {}\n",
        part.shard,
        part.shards,
        format_counted(found.files, "file", "files"),
        format_size(found.bytes),
        format_ns(found.elapsed_ns as f64),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_meet_are_found_as_by_comparing_all_pairs() {
        let all = ["/a", "/a/b", "/a/b/c", "/ab", "/d", "/d/e", "/"].map(PathBuf::from);
        let count = all.len();
        for number in 0..count.pow(4) {
            let digits = [1, count, count.pow(2), count.pow(3)];
            let paths = digits.map(|digit| all[number / digit % count].clone());
            let expected = (0..paths.len()).find_map(|at| {
                let copy = &paths[at];
                let meets = |other: &PathBuf| other.starts_with(copy) || copy.starts_with(other);
                Some((paths[..at].iter().position(meets)?, at))
            });
            assert_eq!(first_meeting(&paths), expected, "{paths:?}");
        }
    }

    #[test]
    fn targets_that_differ_in_slashes_are_one_unless_they_follow_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let text = |end: &str, is_name| {
            let typed = format!("{}/.//{end}", dir.path().display());
            plain(Path::new(&typed), is_name).into_os_string()
        };
        let followed = link.join("").into_os_string();
        assert_eq!(text("link", true), link.as_os_str());
        assert_eq!([text("link//", true), text("link/.", true)], [followed.clone(), followed]);
        assert_eq!(text("link/", false), link.as_os_str());
        assert_eq!(text("new/", true), dir.path().join("new").into_os_string());
    }

    #[test]
    fn the_work_of_a_part_contains_what_directories_need() {
        let all = Preserve::ALL;
        let some = Preserve { mode: true, times: true, ..Preserve::default() };
        for (preserve, words) in [
            (all, "mode,ownership,timestamps,links,xattr,context"),
            (some, "mode,timestamps"),
            (Preserve::default(), "none"),
        ] {
            assert_eq!(preserve_words(preserve), words);
            let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            let options = [
                option(TARGET, "/x"),
                option(PRESERVE, words),
                option(NO_PRESERVE, "mode"),
                option(DURABLE, "full"),
                option(REQUIRE, "xattr,context"),
            ];
            let work = Work { command: "cp".to_owned(), options: options.into() };
            let (target, found) = options_of(&work).unwrap();
            assert_eq!(target, Target::Into("/x".into()));
            assert_eq!((found.preserve, found.durable), (preserve, Durable::Full));
            assert!(found.plain_mode);
            assert_eq!(required_words(&found), "xattr,context");
        }
        assert_eq!(required_words(&CopyOptions::default()), "");
        let unknown = BTreeMap::from([(TARGET.to_owned(), "/x".to_owned())]);
        assert!(options_of(&Work { command: "cp".to_owned(), options: unknown }).is_none());
    }
}
