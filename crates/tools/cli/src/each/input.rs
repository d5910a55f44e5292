//! The files to read: directories, files, or a list on standard input.

use super::args::EachArgs;
use super::selection::SkippedCounts;
use crate::exit::Failure;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::file::{self, Kind};
use ioloom_walk::{ListError, PathList, Separator, read_list};
use std::collections::HashMap;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Paths that arrive during the run.
pub(super) type PathStream = Box<dyn Iterator<Item = PathBuf> + Send>;

/// The files to read, and what went wrong while finding them.
pub(crate) struct Input {
    /// All paths, when they are known before the start.
    pub(super) files: Option<PathList>,
    /// Paths that are read from standard input during the run.
    pub(super) stream: Option<PathStream>,
    /// The error that ended the stream early, once it has happened.
    pub(super) cut: Arc<OnceLock<String>>,
    /// How paths are shown.
    pub(super) roots: Roots,
    /// Warnings about arguments that were skipped.
    pub(super) warnings: Vec<String>,
    /// Whether directories were walked, so that --exclude applies.
    pub(super) walked: bool,
    /// What the walk skipped; `None` for a list on standard input.
    pub(super) skipped: Option<SkippedCounts>,
    /// Errors of the walk, which count as failures.
    pub(super) errors: Vec<String>,
}

impl Input {
    /// Returns an input without files.
    pub(super) fn none() -> Self {
        Self {
            files: Some(PathList::new()),
            stream: None,
            cut: Arc::default(),
            roots: Roots::default(),
            warnings: Vec::new(),
            walked: false,
            skipped: None,
            errors: Vec::new(),
        }
    }
}

/// How paths are shown: relative to a single directory argument, or unchanged.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    one: Option<PathBuf>,
}

impl Roots {
    /// Returns the path as the combined digest names it.
    pub(super) fn shown<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let Some(root) = &self.one else { return path };
        match path.strip_prefix(root.as_os_str().as_bytes()) {
            Some([b'/', rest @ ..]) => rest,
            Some(rest) => rest,
            None => path,
        }
    }
}

/// Finds the files that the arguments name.
pub(crate) fn read(args: &EachArgs) -> Result<Input, Failure> {
    match args.paths.as_slice() {
        [] => Err(Failure::usage(
            "missing operand: name files or directories, or - to read a list from standard input",
        )),
        [only] if only.as_os_str() == "-" && args.selection.is_given() => Err(Failure::usage(
            "-L, -x, --exclude, --ignore and --skip-hidden select files of directories; a list on \
             standard input names its files",
        )),
        [only] if only.as_os_str() == "-" => Ok(stdin(args)),
        paths if paths.iter().any(|p| p.as_os_str() == "-") => {
            Err(Failure::usage("- cannot be combined with other paths"))
        }
        paths => {
            let (once, mut warnings) = once_each(paths);
            let mut input = trees(args, &once);
            warnings.append(&mut input.warnings);
            Ok(Input { warnings, ..input })
        }
    }
}

fn stdin(args: &EachArgs) -> Input {
    let separator = if args.zero { Separator::Nul } else { Separator::Newline };
    let reader = BufReader::with_capacity(1 << 20, std::io::stdin());
    let cut = Arc::new(OnceLock::new());
    let stream_error = Arc::clone(&cut);
    // The list ends at the first error; paths before it are processed.
    let stream = read_list(reader, separator).map_while(move |path| {
        path.map_err(|error| stream_error.get_or_init(|| list_error(&error))).ok()
    });
    Input { files: None, stream: Some(Box::new(stream)), cut, ..Input::none() }
}

fn list_error(error: &ListError) -> String {
    match error {
        ListError::Zero { number } => format!(
            "standard input: path {number} contains a zero byte; add -0 if zero bytes separate the \
             paths"
        ),
        other => format!("standard input: {other}"),
    }
}

/// Returns a message about a file that --exclude does not apply to.
pub(super) fn without_exclusion(message: &str) -> String {
    message.replace(", or exclude it", "")
}

/// Removes repeated arguments with a warning. Also warns if one argument is inside another, because
/// those files are read twice.
fn once_each(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
    let mut once: Vec<PathBuf> = Vec::new();
    let mut real: Vec<PathBuf> = Vec::new();
    let mut seen: HashMap<PathBuf, usize> = HashMap::new();
    let mut warnings = Vec::new();
    for path in paths {
        // An argument that cannot be resolved is reported when it is opened.
        let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
        if let Some(first) = seen.get(&whole) {
            let first = quoted(&once[*first]);
            warnings.push(format!("{} is the same as {first}: read once", quoted(path)));
            continue;
        }
        seen.insert(whole.clone(), once.len());
        once.push(path.clone());
        real.push(whole);
    }
    for (path, whole) in once.iter().zip(&real) {
        if let Some(outer) = whole.ancestors().skip(1).find_map(|a| seen.get(a)) {
            let outer = quoted(&once[*outer]);
            warnings.push(format!("{} is inside {outer}: its files count twice", quoted(path)));
        }
    }
    (once, warnings)
}

fn trees(args: &EachArgs, paths: &[PathBuf]) -> Input {
    let mut all = PathList::new();
    let (mut warnings, mut errors) = (Vec::new(), Vec::new());
    let mut walked = false;
    let mut skipped = SkippedCounts::default();
    // As in sha256sum, an operand that cannot be read is one error, and the others are processed.
    for path in paths {
        let kind = match file::kind_of(path).map_err(PathError::on(Operation::Stat, path)) {
            Ok(kind) => kind,
            Err(error) => {
                errors.push(without_exclusion(&error.to_string()));
                continue;
            }
        };
        match kind {
            Kind::Directory => {
                let mut found = match args.selection.list(path) {
                    Ok(found) => found,
                    Err(error) => {
                        errors.push(without_exclusion(&error.to_string()));
                        continue;
                    }
                };
                warnings.append(&mut found.warnings);
                walked = true;
                skipped.add(found.skipped);
                errors.append(&mut found.errors);
                if args.ordered {
                    found.list.sort();
                }
                all.append(found.list);
            }
            Kind::Regular => all.push(path.as_os_str().as_bytes()),
            other => errors.push(format!(
                "cannot read {}: it is {}, not a regular file or a directory",
                quoted(path),
                other.word()
            )),
        }
    }
    let one = match paths {
        [root] if root.is_dir() => Some(root.clone()),
        _ => None,
    };
    let (stream, cut) = (None, Arc::default());
    let (files, skipped) = (Some(all), Some(skipped));
    Input { files, stream, cut, roots: Roots { one }, warnings, walked, skipped, errors }
}
