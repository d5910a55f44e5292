//! Errors of a run and of a file.

pub use ioloom_failure::Operation;
use ioloom_failure::{Explained, PathError, quoted, reason};
use ioloom_model::units::{format_counted, format_size};
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What precedes the reason of a run that ended early.
const EARLY: &str = "the run ended early";

/// Any error of the caller's function, for functions that fail in several ways.
///
/// A run over such a function fails with `Error<FnError>`, which `?` cannot convert;
/// [`Error::into_boxed`] can.
pub type FnError = Box<dyn StdError + Send + Sync>;

/// Why a file failed. `E` is the error of the caller's function.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<E = Infallible> {
    /// A system call on the file failed. The error keeps its kind and number.
    Io(io::Error),
    /// A directory or entry could not be walked. The error keeps its kind and number.
    Walk(io::Error),
    /// The function returned this error.
    Function(E),
    /// The engine rejected the file for the reason given: it is not a regular file, for instance,
    /// or it does not fit in the memory budget.
    Rejected(String),
    /// The run ended early, for this reason. Only the last item of an iterator has it.
    Run(Arc<Error>),
}

/// A file that failed: its position in the input, the operation, the path and the cause.
///
/// ```
/// let error = ioloom::files(["/nope"]).map(|f| f.len()).sum::<u64>().unwrap_err();
/// let ioloom::Error::File(error) = error else { panic!("{error}") };
/// assert_eq!(error.to_string(), "cannot stat '/nope': No such file or directory");
/// assert_eq!(error.io_error().unwrap().kind(), std::io::ErrorKind::NotFound);
/// ```
///
/// Errors of the function keep their type:
///
/// ```
/// use ioloom::{Cause, Error};
/// let lines = ioloom::files(["Cargo.toml"]).try_map(|f| match f.len() {
///     0 => Ok(0),
///     n => Err(n),
/// });
/// match lines.run() {
///     Err(Error::File(error)) => match error.cause {
///         Cause::Function(n) => assert!(n > 100),
///         other => panic!("{other:?}"),
///     },
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct FileError<E = Infallible> {
    /// Position of the file in the input. A directory that could not be walked has a position among the
    /// files of the walk, and in a sorted walk before all of them. For a run that ended early,
    /// `usize::MAX`.
    pub index: usize,
    /// Path as given; empty for a run that ended early.
    pub path: PathBuf,
    /// The operation that failed.
    pub operation: Operation,
    /// Why it failed.
    pub cause: Cause<E>,
}

impl FileError {
    pub(crate) fn io(index: usize, path: &Path, operation: Operation, error: io::Error) -> Self {
        Self { index, path: path.to_owned(), operation, cause: Cause::Io(error) }
    }

    pub(crate) fn walk(index: usize, error: PathError) -> Self {
        let PathError { operation, path, source } = error;
        Self { index, path, operation, cause: Cause::Walk(source) }
    }

    pub(crate) fn rejected(
        index: usize,
        path: &Path,
        operation: Operation,
        reason: impl Into<String>,
    ) -> Self {
        Self { index, path: path.to_owned(), operation, cause: Cause::Rejected(reason.into()) }
    }

    /// Describes a run that ended early, for those who see only the results of files.
    pub(crate) fn of_run<E>(error: Arc<Error>) -> FileError<E> {
        let (path, operation) = (PathBuf::new(), Operation::Process);
        FileError { index: usize::MAX, path, operation, cause: Cause::Run(error) }
    }

    /// Converts an error of the engine, which never calls the function, to any type.
    pub(crate) fn widen<E>(self) -> FileError<E> {
        let cause = match self.cause {
            Cause::Io(error) => Cause::Io(error),
            Cause::Walk(error) => Cause::Walk(error),
            Cause::Function(never) => match never {},
            Cause::Rejected(reason) => Cause::Rejected(reason),
            Cause::Run(error) => Cause::Run(error),
        };
        FileError { index: self.index, path: self.path, operation: self.operation, cause }
    }
}

impl<E> FileError<E> {
    pub(crate) fn function(index: usize, path: &Path, error: E) -> Self {
        let (path, operation) = (path.to_owned(), Operation::Process);
        Self { index, path, operation, cause: Cause::Function(error) }
    }

    /// Returns the system's error, if a system call failed.
    pub fn io_error(&self) -> Option<&io::Error> {
        match &self.cause {
            Cause::Io(error) | Cause::Walk(error) => Some(error),
            Cause::Run(error) => error.io_error(),
            Cause::Function(_) | Cause::Rejected(_) => None,
        }
    }

    /// Returns the error of the function, if it failed.
    pub fn function_error(&self) -> Option<&E> {
        match &self.cause {
            Cause::Function(error) => Some(error),
            Cause::Io(_) | Cause::Walk(_) | Cause::Rejected(_) | Cause::Run(_) => None,
        }
    }

    /// Converts the error of the function.
    pub fn map_function<F>(self, f: impl FnOnce(E) -> F) -> FileError<F> {
        let cause = match self.cause {
            Cause::Io(error) => Cause::Io(error),
            Cause::Walk(error) => Cause::Walk(error),
            Cause::Function(error) => Cause::Function(f(error)),
            Cause::Rejected(reason) => Cause::Rejected(reason),
            Cause::Run(error) => Cause::Run(error),
        };
        FileError { index: self.index, path: self.path, operation: self.operation, cause }
    }

    /// Describes the failure without the error of the function, which need not be printable.
    pub(crate) fn outline(&self) -> String {
        let what = format!("cannot {} {}", self.operation, quoted(&self.path));
        match &self.cause {
            Cause::Io(error) | Cause::Walk(error) => {
                format!("{what}: {}", Explained::new(self.operation, error))
            }
            Cause::Function(_) => format!("{what}: the function returned an error"),
            Cause::Rejected(reason) => format!("{what}: {reason}"),
            Cause::Run(error) => format!("{EARLY}: {error}"),
        }
    }
}

impl<E: fmt::Display> fmt::Display for FileError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Cause::Run(error) = &self.cause {
            return write!(f, "{EARLY}: {error}");
        }
        write!(f, "cannot {} {}: ", self.operation, quoted(&self.path))?;
        match &self.cause {
            Cause::Io(error) | Cause::Walk(error) => Explained::new(self.operation, error).fmt(f),
            Cause::Function(error) => error.fmt(f),
            Cause::Rejected(reason) => f.write_str(reason),
            Cause::Run(error) => error.fmt(f),
        }
    }
}

impl<E: StdError + 'static> StdError for FileError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.cause {
            Cause::Io(error) | Cause::Walk(error) => Some(error),
            Cause::Function(error) => Some(error),
            Cause::Run(error) => Some(&**error),
            Cause::Rejected(_) => None,
        }
    }
}

/// Why a run returned no result. `E` is the error of the caller's function; a function that cannot
/// fail has none, and its runs return `Error<Infallible>`, written `Error`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error<E = Infallible> {
    /// The plan cannot run as asked on this machine or on these files.
    Refused(String),
    /// A file failed and the policy is to stop. Its [`Cause`] distinguishes failed reads, failed
    /// walks and failures of the function.
    File(FileError<E>),
    /// The run was cancelled; everything in flight was drained.
    Cancelled {
        /// Files processed before.
        files: u64,
    },
    /// Bytes retained by the caller fill the memory budget, and no thread has dropped any for 200 ms,
    /// so nothing more can be read. See [`File::keep`](crate::File::keep).
    BudgetHeld {
        /// Bytes retained.
        kept: u64,
        /// The budget, bytes.
        budget: u64,
    },
    /// The trace of a run could not be written.
    Trace {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A call that concerns no single file failed.
    System {
        /// What failed, as in "cannot start a thread".
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// The operation of [`Error::System`] when a thread does not start.
pub(crate) const START_THREAD: &str = "start a thread";

impl Error {
    /// Converts an error of the engine, which never calls the function, to any type.
    pub(crate) fn widen<E>(self) -> Error<E> {
        self.map_function(|never| match never {})
    }
}

impl<E> Error<E> {
    /// Converts the error of the function.
    ///
    /// ```
    /// let run = ioloom::files(["Cargo.toml"]).try_map(|f| Err::<(), _>(f.len())).run();
    /// let error = run.unwrap_err().map_function(|len| format!("{len} bytes"));
    /// assert!(error.to_string().ends_with(" bytes"));
    /// ```
    pub fn map_function<F>(self, f: impl FnOnce(E) -> F) -> Error<F> {
        match self {
            Self::Refused(reason) => Error::Refused(reason),
            Self::File(error) => Error::File(error.map_function(f)),
            Self::Cancelled { files } => Error::Cancelled { files },
            Self::BudgetHeld { kept, budget } => Error::BudgetHeld { kept, budget },
            Self::Trace { path, source } => Error::Trace { path, source },
            Self::System { operation, source } => Error::System { operation, source },
        }
    }

    /// Boxes the error, for functions that return [`FnError`] or another error that is only
    /// convertible to a box, so that `?` cannot convert the error of the run.
    ///
    /// ```
    /// fn words() -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
    ///     ioloom::files(["Cargo.toml"])
    ///         .try_map(|f| -> Result<usize, ioloom::FnError> {
    ///             let text = std::str::from_utf8(f.bytes())?;
    ///             Ok(text.split(' ').count() + "2".parse::<usize>()?)
    ///         })
    ///         .sum()
    ///         .map_err(ioloom::Error::into_boxed)
    /// }
    /// assert!(words().unwrap() > 10);
    /// ```
    ///
    /// An error of the function becomes an `Error<`[`BoxedFn`]`>`, any other one an `Error`. `downcast`
    /// returns them.
    ///
    /// ```
    /// let error = ioloom::files(["/nope"])
    ///     .try_map(|_| Err::<(), ioloom::FnError>("failed".into()))
    ///     .run()
    ///     .unwrap_err()
    ///     .into_boxed();
    /// assert!(matches!(error.downcast_ref::<ioloom::Error>(), Some(ioloom::Error::File(_))));
    /// ```
    pub fn into_boxed(self) -> FnError
    where
        E: Into<FnError>,
    {
        if let Self::File(FileError { cause: Cause::Function(_), .. }) = &self {
            return self.map_function(|error| BoxedFn(error.into())).into();
        }
        let error: Error = self.map_function(|_| unreachable!("no error of the function"));
        error.into()
    }

    /// Returns the system's error, if a system call failed.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::File(error) => error.io_error(),
            Self::Trace { source, .. } | Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "refused: {reason}"),
            Self::File(error) => error.fmt(f),
            Self::Cancelled { files } => {
                write!(f, "cancelled after {}", format_counted(*files, "file", "files"))
            }
            Self::BudgetHeld { kept, budget } => write!(
                f,
                "the function retains {} of a memory budget of {}; drop retained bytes sooner, or \
                 raise .memory()",
                format_size(*kept),
                format_size(*budget)
            ),
            Self::Trace { path, source } => {
                let why = Explained::new(Operation::Create, source);
                write!(f, "cannot write the trace {}: {why}", quoted(path))
            }
            Self::System { operation, source } => {
                write!(f, "cannot {operation}: {}", reason(source))?;
                let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::OutOfMemory];
                if *operation == START_THREAD && kinds.contains(&source.kind()) {
                    f.write_str(
                        "; use fewer threads, or raise the limits on address space and processes \
                         ('ulimit -v', 'ulimit -u')",
                    )?;
                }
                Ok(())
            }
        }
    }
}

impl<E: StdError + 'static> StdError for Error<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            // The message is that of the file, so its cause follows.
            Self::File(error) => error.source(),
            Self::Trace { source, .. } | Self::System { source, .. } => Some(source),
            Self::Refused(_) | Self::Cancelled { .. } | Self::BudgetHeld { .. } => None,
        }
    }
}

/// The error of a function after [`Error::into_boxed`]. A box of any error does not implement
/// [`Error`](StdError) itself. The text is that of the error of the function, which is also the
/// [`source`](StdError::source) and can be downcast from there.
pub struct BoxedFn(FnError);

impl BoxedFn {
    /// Returns the error of the function.
    pub fn into_inner(self) -> FnError {
        self.0
    }
}

impl fmt::Debug for BoxedFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for BoxedFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for BoxedFn {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, thiserror::Error)]
    #[error("checksum {0} differs")]
    struct Own(u32);

    #[test]
    fn errors_of_the_function_keep_their_type() {
        let error = Error::File(FileError::function(3, Path::new("a b"), Own(7)));
        assert_eq!(error.to_string(), "cannot process 'a b': checksum 7 differs");
        assert_eq!(error.source().unwrap().downcast_ref::<Own>(), Some(&Own(7)));
        let Error::File(error) = error else { panic!() };
        assert_eq!(error.function_error(), Some(&Own(7)));
        assert_eq!(error.outline(), "cannot process 'a b': the function returned an error");
    }

    #[test]
    fn boxed_errors_keep_their_sources() {
        let error = Error::File(FileError::function(0, Path::new("x"), FnError::from(Own(1))));
        let boxed = error.into_boxed();
        assert_eq!(boxed.to_string(), "cannot process 'x': checksum 1 differs");
        let mut chain = std::iter::successors(boxed.source(), |error| (*error).source());
        assert!(chain.any(|error| error.downcast_ref() == Some(&Own(1))));
    }

    #[test]
    fn boxed_errors_keep_their_variants() {
        let full = || io::Error::from_raw_os_error(28);
        let path = Path::new("x");
        let of_files = [
            FileError::io(0, path, Operation::Open, full()),
            FileError::rejected(0, path, Operation::Open, "not a regular file"),
            FileError::of_run(Arc::new(Error::Cancelled { files: 1 })),
        ];
        let of_runs = [
            Error::Refused("no".to_owned()),
            Error::Cancelled { files: 1 },
            Error::BudgetHeld { kept: 1, budget: 1 },
            Error::Trace { path: "t".into(), source: full() },
            Error::System { operation: START_THREAD, source: full() },
        ];
        for error in of_files.map(Error::File).into_iter().chain(of_runs) {
            let variant = std::mem::discriminant(&error);
            let (text, number) =
                (error.to_string(), error.io_error().and_then(io::Error::raw_os_error));
            let boxed = error.widen::<FnError>().into_boxed();
            let error = boxed.downcast::<Error>().unwrap();
            assert_eq!(std::mem::discriminant(&*error), variant);
            assert_eq!(error.to_string(), text);
            assert_eq!(error.io_error().and_then(io::Error::raw_os_error), number);
        }
        let boxed = Error::File(FileError::function(3, path, FnError::from(Own(1)))).into_boxed();
        let Error::File(error) = *boxed.downcast::<Error<BoxedFn>>().unwrap() else { panic!() };
        let Cause::Function(own) = error.cause else { panic!() };
        assert_eq!((error.index, own.into_inner().downcast_ref()), (3, Some(&Own(1))));
    }

    #[test]
    fn numbers_have_their_nouns_and_units() {
        let text = |files| Error::<Infallible>::Cancelled { files }.to_string();
        assert_eq!(
            (text(1), text(20)),
            ("cancelled after 1 file".into(), "cancelled after 20 files".into())
        );
        let held = Error::<Infallible>::BudgetHeld { kept: 987_136, budget: 1 << 20 }.to_string();
        assert!(
            held.starts_with("the function retains 964 KiB of a memory budget of 1.00 MiB;"),
            "{held}"
        );
    }

    #[test]
    fn system_errors_keep_their_number() {
        let full = io::Error::from_raw_os_error(24);
        let error = FileError::io(0, Path::new("x"), Operation::Open, full);
        assert_eq!(
            error.to_string(),
            "cannot open 'x': Too many open files; raise the limit with 'ulimit -n'"
        );
        assert_eq!(error.io_error().unwrap().raw_os_error(), Some(24));
        let source = io::Error::from_raw_os_error(28);
        let untraced = Error::Trace { path: "t".into(), source };
        let error = FileError::<Infallible>::of_run::<Infallible>(Arc::new(untraced));
        assert_eq!(error.io_error().unwrap().raw_os_error(), Some(28));
    }
}
