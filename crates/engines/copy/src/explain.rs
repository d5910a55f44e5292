//! Explains how a copy would be done without performing it: the facts, probed with a source file
//! and a temporary file, and the plan for each class of files.

use crate::error::CopyError;
use crate::facts;
use crate::new_file::{Destination, NewFile};
use crate::options::{CopyOptions, Verify, When};
use crate::plan::{self, CopyPlan, Facts, FileFacts, PlanRequest, Refused, SMALL_BYTES};
use crate::target::Target;
use ioloom_failure::Operation;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::file::{self, OpenHow};
use ioloom_sys::{attr, transfer};
use ioloom_walk::{Control, WalkOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const GIB: u64 = 1 << 30;

/// A class of files and how it would be copied.
#[derive(Debug)]
pub struct Class {
    /// A description of the class.
    pub name: &'static str,
    /// An example file size for the class, in bytes.
    pub bytes: u64,
    /// The plan, or the reason why the request is refused.
    pub plan: Result<CopyPlan, Refused>,
}

/// The explanation of a copy.
#[derive(Debug)]
pub struct Explanation {
    /// The probed facts.
    pub facts: Facts,
    /// The source file used for the probe.
    pub tried_with: PathBuf,
    /// The classes of files.
    pub classes: Vec<Class>,
}

/// Explains how `source` would be copied to `target`.
///
/// # Errors
/// Returns an error if the source contains no regular file or if no file can be created at the
/// target.
pub fn explain(
    source: &Path,
    target: &Target,
    options: &CopyOptions,
) -> Result<Explanation, CopyError> {
    let (Target::Into(path) | Target::As(path) | Target::Auto(path)) = target;
    let sample = sample(source)?;
    let from = file::open(&sample, OpenHow::default())
        .map_err(|e| CopyError::io(Operation::Open, sample.clone(), e))?;
    let is_dir = attr::of_path(path, true).is_ok_and(|attr| attr.kind == Kind::Directory);
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let dir_path = if is_dir { path.as_path() } else { above.unwrap_or(Path::new(".")) };
    let failed = |what, e| CopyError::io(what, dir_path.to_owned(), e);
    let dir = Dir::open(dir_path).map_err(|e| failed(Operation::OpenDir, e))?;
    let new =
        NewFile::make(&dir, c"explain", Destination::Free { replace: false, hidden: false }, 0o600)
            .map_err(|e| failed(Operation::CreateIn, e))?;
    let mut facts = facts::gather(&from, new.file()).map_err(|e| failed(Operation::StatFs, e))?;
    facts.reflink = Some(transfer::clone_file(&from, new.file()).is_ok());
    let classes = classes(&facts, &from, options);
    Ok(Explanation { facts, tried_with: sample, classes })
}

fn classes(facts: &Facts, from: &OwnedFd, options: &CopyOptions) -> Vec<Class> {
    let request = PlanRequest {
        mode: options.mode,
        reflink: options.reflink,
        durable: options.durable,
        sees_bytes: options.verify != Verify::None || options.sparse == When::Always,
    };
    let class = |name, bytes, resident| {
        let plan = plan::plan(facts, FileFacts { bytes, resident }, request);
        Class { name, bytes, plan }
    };
    let own = attr::of_file(from).map_or(0, |attr| attr.bytes);
    let huge = facts.memory_available_bytes.max(2 * GIB);
    vec![
        class("the probed file", own, facts::resident_share(from, own)),
        class("small", SMALL_BYTES / 8, None),
        class("medium", plan::BIG_BYTES / 4, None),
        class("big, not cached", GIB, Some(0.0)),
        class("big, cached", GIB, Some(1.0)),
        class("huge, cached", huge, Some(1.0)),
    ]
}

/// Returns a regular file from the source: the source itself or the first file that a walk finds.
fn sample(source: &Path) -> Result<PathBuf, CopyError> {
    let mut found = None;
    let mut visit = |entry: ioloom_walk::Entry<'_>| {
        found = Some(entry.as_path().to_owned());
        Control::Stop
    };
    let walked = ioloom_walk::walk(source, &WalkOptions::default(), &mut visit);
    let summary = walked.map_err(|e| CopyError::io(e.operation, e.path, e.source))?;
    match found {
        Some(path) => Ok(summary.base.join(path)),
        None => {
            Err(CopyError::cannot(Operation::PlanCopy, source, "no regular file to probe with"))
        }
    }
}
