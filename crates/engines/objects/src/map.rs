//! A function on whole objects.

use crate::error::{Action, Kind, ObjectError};
use crate::options::Options;
use crate::run::{Run, run};
use crate::store::Store;
use crate::work::{Piece, Work, WorkError};

/// Errors that are kept.
const ERRORS_KEPT: usize = 1000;

/// An object in memory.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    url: &'a str,
    bytes: &'a [u8],
}

impl<'a> Object<'a> {
    /// Returns its URL.
    pub fn url(&self) -> &'a str {
        self.url
    }

    /// Returns its contents.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// What a function returned for each object.
#[derive(Debug)]
pub struct Mapped<T> {
    /// URLs and values in the order of the listing.
    pub values: Vec<(String, T)>,
    /// The first 1000 errors in the order of the listing.
    pub errors: Vec<ObjectError>,
    /// The run.
    pub run: Run<()>,
}

/// Runs a function on every object of a location. An object that cannot
/// be read is an entry of [`Mapped::errors`]; objects larger than a quarter of the memory budget are
/// such errors, too: process them in pieces with [`run`].
///
/// ```no_run
/// use ioloom_objects::{Location, Options, Store, objects};
/// let store = Store::open(Location::parse("s3://bucket/prefix")?)?;
/// let mapped = objects(&store, &Options::default(), |object| object.bytes().len())?;
/// for (url, len) in &mapped.values {
///     println!("{len} {url}");
/// }
/// # Ok::<(), ioloom_objects::ObjectError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the client cannot be started.
pub fn objects<T: Send>(
    store: &Store,
    options: &Options<'_>,
    function: impl Fn(Object<'_>) -> T + Sync,
) -> Result<Mapped<T>, ObjectError> {
    let work = Whole { function, largest: options.budget() / 4 };
    let mut run = run(store, options, &work)?;
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    for local in std::mem::take(&mut run.locals) {
        values.extend(local.values);
        errors.extend(local.errors);
    }
    values.sort_unstable_by_key(|(index, ..)| *index);
    errors.sort_by_key(|(index, _)| index.unwrap_or(usize::MAX));
    let values = values.into_iter().map(|(_, url, value)| (url, value)).collect();
    let errors = errors.into_iter().take(ERRORS_KEPT).map(|(_, error)| error).collect();
    Ok(Mapped { values, errors, run: run.without_locals() })
}

struct Whole<F> {
    function: F,
    largest: u64,
}

/// The values and errors of a thread, with positions.
struct Found<T> {
    values: Vec<(usize, String, T)>,
    errors: Vec<(Option<usize>, ObjectError)>,
}

impl<T: Send, F: Fn(Object<'_>) -> T + Sync> Work for Whole<F> {
    /// The bytes of an object of several pieces, and its value.
    type State = (Vec<u8>, Option<T>, String);
    type Local = Found<T>;

    fn local(&self) -> Found<T> {
        Found { values: Vec::new(), errors: Vec::new() }
    }

    fn copied_max(&self) -> u64 {
        self.largest
    }

    fn begin(&self, _: usize, url: &str) -> Self::State {
        (Vec::new(), None, url.to_owned())
    }

    fn piece(
        &self,
        (bytes, value, url): &mut Self::State,
        piece: Piece<'_>,
    ) -> Result<(), WorkError> {
        let whole = piece.is_last && piece.offset == 0;
        if !whole {
            if (bytes.len() + piece.bytes.len()) as u64 > self.largest {
                return Err("it is larger than a quarter of the memory budget".into());
            }
            bytes.extend_from_slice(piece.bytes);
        }
        if piece.is_last {
            let bytes = if whole { piece.bytes } else { bytes };
            *value = Some((self.function)(Object { url, bytes }));
        }
        Ok(())
    }

    fn finish(
        &self,
        local: &mut Found<T>,
        state: Self::State,
        index: usize,
        _: &str,
    ) -> Result<(), WorkError> {
        let (_, value, url) = state;
        local.values.push((index, url, value.ok_or("the object has no piece")?));
        Ok(())
    }

    fn function_failed(&self, local: &mut Found<T>, index: usize, url: &str, error: WorkError) {
        let error = ObjectError::new(Action::Read, url, Kind::Memory, error.to_string());
        self.failed(local, Some(index), &error);
    }

    fn failed(&self, local: &mut Found<T>, index: Option<usize>, error: &ObjectError) {
        if local.errors.len() < ERRORS_KEPT {
            local.errors.push((index, error.clone()));
        }
    }
}
