//! How a copy would be done, without doing it: the facts, tried on a file of the source and a new one
//! that goes away, and the plan for each class of files.

use crate::copy::Target;
use crate::error::CopyError;
use crate::facts;
use crate::options::{CopyOptions, Verify, When};
use crate::place::{NewFile, Spot};
use crate::plan::{self, CopyPlan, Facts, FileFacts, Refused, SMALL_BYTES, Wanted};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::file::{self, OpenHow};
use ioloom_sys::{attr, transfer};
use ioloom_walk::{Control, WalkOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const GIB: u64 = 1 << 30;

/// One class of files and how it would be copied.
#[derive(Debug)]
pub struct Class {
    /// In words.
    pub name: &'static str,
    /// An example of the class.
    pub bytes: u64,
    /// The plan, or why there is none.
    pub plan: Result<CopyPlan, Refused>,
}

/// How a copy would be done.
#[derive(Debug)]
pub struct Explanation {
    /// What was tried and found.
    pub facts: Facts,
    /// The file of the source that it was tried with.
    pub tried_with: PathBuf,
    /// Each class of files.
    pub classes: Vec<Class>,
}

/// Explains how `source` would be copied to `target`.
///
/// # Errors
/// A source without a regular file, a target that takes no new file.
pub fn explain(
    source: &Path,
    target: &Target,
    options: &CopyOptions,
) -> Result<Explanation, CopyError> {
    let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
    let sample = sample(source)?;
    let from = file::open(&sample, OpenHow::default())
        .map_err(|e| CopyError::io("open", sample.clone(), e))?;
    let is_dir = attr::of_path(path, true).is_ok_and(|attr| attr.kind == Kind::Directory);
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let dir_path = if is_dir { path.as_path() } else { above.unwrap_or(Path::new(".")) };
    let failed = |what, e| CopyError::io(what, dir_path.to_owned(), e);
    let dir = Dir::open(dir_path).map_err(|e| failed("open the target directory", e))?;
    let new = NewFile::make(&dir, c"explain", Spot::Free, 0o600)
        .map_err(|e| failed("try with a new file in", e))?;
    let mut facts =
        facts::gather(&from, &new.file).map_err(|e| failed("ask for the file system of", e))?;
    facts.reflink = Some(transfer::clone_file(&from, &new.file).is_ok());
    let classes = classes(&facts, &from, options);
    Ok(Explanation { facts, tried_with: sample, classes })
}

fn classes(facts: &Facts, from: &OwnedFd, options: &CopyOptions) -> Vec<Class> {
    let wanted = Wanted {
        mode: options.mode,
        reflink: options.reflink,
        durable: options.durable,
        sees_bytes: options.verify != Verify::None || options.sparse == When::Always,
    };
    let class = |name, bytes, resident| {
        let plan = plan::plan(facts, FileFacts { bytes, resident }, wanted);
        Class { name, bytes, plan }
    };
    let own = attr::of_file(from).map_or(0, |attr| attr.bytes);
    let huge = facts.memory_available_bytes.max(2 * GIB);
    vec![
        class("the file tried with", own, facts::resident_share(from, own)),
        class("small", SMALL_BYTES / 8, None),
        class("of middle size", plan::BIG_BYTES / 4, None),
        class("big, not in memory", GIB, Some(0.0)),
        class("big, in memory", GIB, Some(1.0)),
        class("huge, in memory", huge, Some(1.0)),
    ]
}

/// A regular file of the source: itself, or the first that a walk finds.
fn sample(source: &Path) -> Result<PathBuf, CopyError> {
    let mut found = None;
    let mut visit = |entry: ioloom_walk::Entry<'_>| {
        found = Some(entry.as_path().to_owned());
        Control::Stop
    };
    let walked = ioloom_walk::walk(source, &WalkOptions::default(), &mut visit);
    let summary = walked.map_err(|e| CopyError::io("walk", e.path, e.source))?;
    match found {
        Some(path) => Ok(summary.base.join(path)),
        None => Err(CopyError::cannot("explain", source, "there is no regular file to try with")),
    }
}
