//! The files to read: directories, files, or a list on standard input.
//!
//! Directories are walked while files are read, after a short start that finds small trees whole. In
//! input order, and for plans that need all paths, they are listed before.

use super::args::EachArgs;
use super::selection::{Selection, SkippedCounts};
use crate::exit::Failure;
use crate::standard_input;
use ioloom::{Files, Plan, Tree};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::layout::layout;
use ioloom_model::{ReadAhead, Tuning};
use ioloom_sys::file::{self, Kind};
use ioloom_walk::{ListError, PathList, Separator, read_list};
use std::collections::{BTreeSet, HashMap};
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a tree is walked before the first file is read. Small trees are then read as a list, which
/// costs less per file.
const WALK_AHEAD: Duration = Duration::from_millis(50);

/// The files to read, and what went wrong while finding them.
pub(crate) struct Input {
    /// The files.
    pub(super) files: Files<'static>,
    /// Whether the list may wait for lines of output.
    pub(super) awaited: bool,
    /// The error that ended the stream early, once it has happened.
    pub(super) cut: Arc<OnceLock<String>>,
    /// How paths are shown.
    pub(super) roots: Roots,
    /// Warnings about arguments.
    pub(super) warnings: Vec<String>,
    /// If directories are walked, the arguments, to which --exclude does not apply.
    pub(super) named: Option<BTreeSet<PathBuf>>,
    /// What was skipped by walks before the run; `None` for a list on standard input.
    pub(super) skipped: Option<SkippedCounts>,
    /// Paths that cannot be read and why, which count as failures.
    pub(super) errors: Vec<(PathBuf, String)>,
}

impl Input {
    /// Returns an input without files.
    pub(super) fn none() -> Self {
        Self::of(Files::from(PathList::new()))
    }

    /// Returns the files of a shard. `tree` is omitted from the lines of the digest, and --exclude
    /// would not apply to `named`.
    pub(super) fn shard(paths: PathList, tree: Option<PathBuf>, named: Vec<PathBuf>) -> Self {
        let named = (!named.is_empty()).then(|| named.into_iter().collect());
        Self { roots: Roots { one: tree }, named, ..Self::of(Files::from(paths)) }
    }

    fn of(files: Files<'static>) -> Self {
        Self {
            files,
            awaited: false,
            cut: Arc::default(),
            roots: Roots::default(),
            warnings: Vec::new(),
            named: None,
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
    /// Returns how the paths below a directory, if there is only one, are shown.
    pub(crate) fn new(one: Option<PathBuf>) -> Self {
        Self { one }
    }

    /// Returns the path as the combined digest names it.
    pub(crate) fn shown<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        let Some(root) = &self.one else { return path };
        match path.strip_prefix(root.as_os_str().as_bytes()) {
            Some([b'/', rest @ ..]) => rest,
            Some(rest) if !rest.is_empty() => rest,
            // Not below the root, or the root itself, which is an object then.
            _ => path,
        }
    }
}

impl Roots {
    /// Returns the only root, if there is one.
    pub(super) fn one(&self) -> Option<&Path> {
        self.one.as_deref()
    }
}

/// Finds the files that the arguments name, for a run with this plan.
pub(crate) fn read(args: &EachArgs, plan: &Plan) -> Result<Input, Failure> {
    match args.paths.as_slice() {
        [] => Err(Failure::usage(
            "missing operand: name files or directories, or - to read a list from standard input",
        )),
        [only] if only.as_os_str() == "-" && args.selection.is_given() => Err(Failure::usage(
            "-L, -x, --exclude, --ignore and --skip-hidden select files of directories; a list on \
             standard input names its files",
        )),
        [only] if only.as_os_str() == "-" => check_stdin(args).map(|()| stdin(args)),
        paths if paths.iter().any(|p| p.as_os_str() == "-") => {
            Err(Failure::usage("- cannot be combined with other paths"))
        }
        paths => {
            let (once, mut warnings) = arguments(args, paths);
            let mut input = operands(args, plan, &once);
            warnings.append(&mut input.warnings);
            Ok(Input { warnings, ..input })
        }
    }
}

/// Refuses a list on standard input if that was closed, where it would seem to be empty.
pub(super) fn check_stdin(args: &EachArgs) -> Result<(), Failure> {
    match args.paths.as_slice() {
        [only] if only.as_os_str() == "-" => standard_input::required().map(drop),
        _ => Ok(()),
    }
}

/// All files that arguments name, in the order of `each --ordered`.
pub(crate) struct Planned {
    pub(crate) paths: PathList,
    /// The only argument, if it is a directory.
    pub(crate) tree: Option<PathBuf>,
    /// The arguments without repetitions.
    pub(crate) once: Vec<PathBuf>,
    pub(crate) warnings: Vec<String>,
    /// Paths that cannot be listed, and why.
    pub(crate) errors: Vec<(PathBuf, String)>,
}

/// Lists the files of arguments without reading them.
pub(crate) fn planned(selection: &Selection, paths: &[PathBuf]) -> Planned {
    let (once, mut warnings) = once_each(paths);
    let usable = Usable::of(&once);
    let tree = match once.as_slice() {
        [root] if usable.directories => Some(root.clone()),
        _ => None,
    };
    let mut listed = Listed::of(selection, usable, false);
    warnings.append(&mut listed.warnings);
    Planned { paths: listed.paths, tree, once, warnings, errors: listed.errors }
}

/// Returns the path of file `index`, for a plan whose input is listed before the run.
pub(super) fn path_of(args: &EachArgs, index: usize) -> Option<PathBuf> {
    let (once, _) = arguments(args, &args.paths);
    let usable = Usable::of(&once);
    let listed = Listed::of(&args.selection, usable, false);
    (index < listed.paths.len()).then(|| listed.paths.path(index).to_owned())
}

fn stdin(args: &EachArgs) -> Input {
    let separator = if args.null { Separator::Nul } else { Separator::Newline };
    let reader = BufReader::with_capacity(1 << 20, std::io::stdin());
    let cut = Arc::new(OnceLock::new());
    let stream_error = Arc::clone(&cut);
    // The list ends at the first error; paths before it are processed.
    let stream = read_list(reader, separator).map_while(move |path| {
        path.map_err(|error| stream_error.get_or_init(|| list_error("standard input", &error))).ok()
    });
    Input { awaited: true, cut, ..Input::of(ioloom::files(stream)) }
}

/// Returns the message about a list with this name.
pub(crate) fn list_error(name: &str, error: &ListError) -> String {
    match error {
        ListError::Zero { number } => format!(
            "{name}: path {number} contains a zero byte; add -0 if zero bytes separate the paths"
        ),
        other => format!("{name}: {other}"),
    }
}

/// Returns a message about a file that --exclude applies to.
pub(super) fn with_exclusion(message: String) -> String {
    let is_denied = message.ends_with("; run as a user with permission");
    if is_denied { message + ", or exclude it" } else { message }
}

/// Returns the arguments to process: all of them if each file has a line or a command of its own.
fn arguments(args: &EachArgs, paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
    // Shards are planned without repetitions.
    let apart = (args.per_file || args.exec.is_some()) && args.sharding.part.is_none();
    if apart { (paths.to_vec(), Vec::new()) } else { once_each(paths) }
}

/// Removes repeated arguments with a warning. Also warns if one argument is inside another, because
/// those files are read twice.
pub(crate) fn once_each(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
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

/// Arguments by what they are.
#[derive(Default)]
struct Usable {
    /// Directories and regular files, in the order of the arguments.
    paths: Vec<(PathBuf, Kind)>,
    directories: bool,
    /// Arguments that cannot be read, and why.
    errors: Vec<(PathBuf, String)>,
}

impl Usable {
    /// As in sha256sum, an operand that cannot be read is one error, and the others are processed.
    fn of(paths: &[PathBuf]) -> Self {
        let mut usable = Self::default();
        for path in paths {
            match usable_kind(path) {
                Ok(kind) => {
                    usable.directories |= kind == Kind::Directory;
                    usable.paths.push((path.clone(), kind));
                }
                Err(error) => usable.errors.push((path.clone(), error)),
            }
        }
        usable
    }
}

/// Returns whether an argument is a directory or a regular file, or why it cannot be read.
pub(crate) fn usable_kind(path: &Path) -> Result<Kind, String> {
    match file::kind_of(path) {
        Ok(kind @ (Kind::Directory | Kind::Regular)) => Ok(kind),
        Ok(other) => Err(format!(
            "cannot read {}: it is {}, not a regular file or a directory",
            quoted(path),
            other.word()
        )),
        Err(error) => Err(PathError::new(Operation::Stat, path, error).to_string()),
    }
}

/// All files, and what was skipped.
#[derive(Default)]
struct Listed {
    paths: PathList,
    warnings: Vec<String>,
    skipped: SkippedCounts,
    errors: Vec<(PathBuf, String)>,
}

impl Listed {
    /// Lists argument by argument, and the files of a directory by path. `polite`: with a lower I/O priority.
    fn of(selection: &Selection, usable: Usable, polite: bool) -> Self {
        let mut listed = Self { errors: usable.errors, ..Self::default() };
        for (path, kind) in usable.paths {
            if kind == Kind::Regular {
                listed.paths.push(path.as_os_str().as_bytes());
                continue;
            }
            let found = trees(selection, [&path], polite).walk();
            let skipped = SkippedCounts::of(&found.walked);
            listed.warnings.extend(skipped.sentence(Some(&path)));
            listed.skipped.add(skipped);
            listed.paths.append(found.files);
            for error in found.errors {
                let message = error.to_string();
                let named = error.path == path;
                let message = if named { message } else { with_exclusion(message) };
                listed.errors.push((error.path, message));
            }
        }
        listed
    }
}

/// Returns the selected files below directories. A walk begins before the run, so its priority is set here.
fn trees<P: AsRef<Path>>(
    selection: &Selection,
    roots: impl IntoIterator<Item = P>,
    polite: bool,
) -> Files<'static, Tree> {
    let trees = selection.trees(roots);
    if polite { trees.polite() } else { trees }
}

fn operands(args: &EachArgs, plan: &Plan, paths: &[PathBuf]) -> Input {
    let usable = Usable::of(paths);
    let one = match paths {
        [root] if usable.directories => Some(root.clone()),
        _ => None,
    };
    let roots = Roots { one };
    let named = usable.directories.then(|| paths.iter().cloned().collect());
    let skipped = Some(SkippedCounts::default());
    let polite = plan.tuning == Tuning::Polite;
    if !usable.directories || args.ordered || needs_list(plan) {
        let Listed { paths, warnings, skipped, errors } =
            Listed::of(&args.selection, usable, polite);
        let skipped = Some(skipped);
        let listed = Input::of(Files::from(paths));
        return Input { roots, named, warnings, skipped, errors, ..listed };
    }
    let roots_given = usable.paths.iter().map(|(path, _)| path);
    let trees = trees(&args.selection, roots_given, polite);
    let files = trees.walk_ahead(WALK_AHEAD).into_files();
    Input { roots, named, skipped, errors: usable.errors, ..Input::of(files) }
}

/// Returns whether a plan needs all paths before it starts: its window has no limit, or a file whose
/// mapping fails is named by its position.
fn needs_list(plan: &Plan) -> bool {
    reads_all(plan) || plan.method.is_mmap()
}

/// Returns whether a plan reads files ahead without a limit on their number.
pub(super) fn reads_all(plan: &Plan) -> bool {
    layout(plan).is_ok_and(|layout| layout.window == ReadAhead::All)
}
