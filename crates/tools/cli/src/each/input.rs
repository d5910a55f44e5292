//! Which files: directories, files, or a list on standard input.

use super::args::EachArgs;
use crate::exit::Failure;
use ioloom_sys::file::{self, Kind};
use ioloom_walk::{PathList, Separator, WalkOptions, read_list};
use std::collections::HashMap;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A stream of paths.
pub(super) type PathStream = Box<dyn Iterator<Item = PathBuf> + Send>;

/// What to read.
pub(crate) struct Input {
    /// All paths, when they are known before the start.
    pub(super) files: Option<PathList>,
    /// Paths as they come on standard input.
    pub(super) stream: Option<PathStream>,
    /// Why that stream ended before its end, once it has.
    pub(super) cut: Arc<OnceLock<String>>,
    /// What paths are told relative to.
    pub(super) roots: Roots,
    /// Words about what was left out.
    pub(super) warnings: Vec<String>,
    /// Errors of walking, counted as failures.
    pub(super) errors: Vec<String>,
}

/// How paths are told: relative to the one directory that was given, or as they are.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    one: Option<PathBuf>,
}

impl Roots {
    /// The path as the combined digest names it.
    pub(super) fn told<'a>(&self, path: &'a [u8]) -> &'a [u8] {
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
            "no path was given: name files or directories, or - to read a list from standard input",
        )),
        [only] if only.as_os_str() == "-" => Ok(stdin(args)),
        paths if paths.iter().any(|p| p.as_os_str() == "-") => {
            Err(Failure::usage("- reads all paths from standard input and stands alone"))
        }
        paths => {
            let (once, mut warnings) = once_each(paths);
            let mut input = trees(args, &once)?;
            warnings.append(&mut input.warnings);
            Ok(Input { warnings, ..input })
        }
    }
}

fn stdin(args: &EachArgs) -> Input {
    let separator = if args.zero { Separator::Nul } else { Separator::Newline };
    let reader = BufReader::with_capacity(1 << 20, std::io::stdin());
    let cut = Arc::new(OnceLock::new());
    let told = Arc::clone(&cut);
    // Nothing comes behind an error; what came before it is read.
    let stream = read_list(reader, separator).map_while(move |path| {
        path.map_err(|error| told.get_or_init(|| format!("standard input: {error}"))).ok()
    });
    Input {
        files: None,
        stream: Some(Box::new(stream)),
        cut,
        roots: Roots::default(),
        warnings: Vec::new(),
        errors: Vec::new(),
    }
}

/// Leaves out an argument that is the same as an earlier one, and says so; says too when one lies
/// inside another, whose files are then read once for each.
fn once_each(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
    let mut once: Vec<PathBuf> = Vec::new();
    let mut real: Vec<PathBuf> = Vec::new();
    let mut seen: HashMap<PathBuf, usize> = HashMap::new();
    let mut warnings = Vec::new();
    for path in paths {
        // What cannot be resolved is reported when it is looked at.
        let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
        if let Some(first) = seen.get(&whole) {
            let first = once[*first].display();
            warnings.push(format!("{} is the same as {first}: read once", path.display()));
            continue;
        }
        seen.insert(whole.clone(), once.len());
        once.push(path.clone());
        real.push(whole);
    }
    for (path, whole) in once.iter().zip(&real) {
        if let Some(outer) = whole.ancestors().skip(1).find_map(|a| seen.get(a)) {
            let outer = once[*outer].display();
            warnings.push(format!("{} lies in {outer}: its files count twice", path.display()));
        }
    }
    (once, warnings)
}

fn trees(args: &EachArgs, paths: &[PathBuf]) -> Result<Input, Failure> {
    let mut all = PathList::new();
    let (mut warnings, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        let kind = file::kind_of(path).map_err(|e| {
            Failure::failed(format!("cannot stat {}: {}", path.display(), words(&e)))
        })?;
        match kind {
            Kind::Directory => {
                let (mut list, summary) =
                    ioloom_walk::files(path, &WalkOptions::default()).map_err(Failure::failed)?;
                warnings.extend(summary.skipped.iter().map(|s| format!("{}: {s}", path.display())));
                errors.extend(summary.errors.iter().map(ToString::to_string));
                if args.per_file {
                    list.sort();
                }
                all.append(list);
            }
            Kind::Regular => all.push(path.as_os_str().as_bytes()),
            other => {
                return Err(Failure::failed(format!(
                    "cannot read {}: it is {}, not a regular file or a directory",
                    path.display(),
                    other.word()
                )));
            }
        }
    }
    let one = match paths {
        [root] if root.is_dir() => Some(root.clone()),
        _ => None,
    };
    let (stream, cut) = (None, Arc::default());
    Ok(Input { files: Some(all), stream, cut, roots: Roots { one }, warnings, errors })
}

/// The system's words without their number.
pub(super) fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.find(" (os error").map_or(text.clone(), |end| text[..end].to_lowercase())
}
