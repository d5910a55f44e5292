//! What runs on the objects.

use crate::error::ObjectError;
use std::error::Error;

/// Any error of the caller's function.
pub type WorkError = Box<dyn Error + Send + Sync>;

/// A part of an object.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// Position of the object in the listing.
    pub index: usize,
    /// Position of the part in the object.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether the object ends with this part.
    pub is_last: bool,
    /// The MD5 of the whole object in 32 digits, if the store has one.
    pub md5: Option<&'a str>,
}

/// A function on objects. The pieces of an object arrive in order, each object has at least one, and
/// several objects are processed at the same time.
pub trait Work: Sync {
    /// The state of an object between its pieces.
    type State: Send;
    /// The state of a thread.
    type Local: Send;

    /// Creates the state of a thread.
    fn local(&self) -> Self::Local;

    /// Returns how many objects may be begun and not ended at the same time.
    fn begun_max(&self) -> usize {
        usize::MAX
    }

    /// Returns the size of the largest object of which the function keeps a copy until its last piece.
    /// Copies count towards the memory budget. At most a quarter of the budget.
    fn copied_max(&self) -> u64 {
        0
    }

    /// Begins an object.
    fn begin(&self, index: usize, url: &str) -> Self::State;

    /// Processes the next part.
    ///
    /// # Errors
    ///
    /// Returns an error to give up the object.
    fn piece(&self, state: &mut Self::State, piece: Piece<'_>) -> Result<(), WorkError>;

    /// Ends an object.
    ///
    /// # Errors
    ///
    /// Returns an error if the object failed after all.
    fn finish(
        &self,
        local: &mut Self::Local,
        state: Self::State,
        index: usize,
        url: &str,
    ) -> Result<(), WorkError>;

    /// Takes an object that the function failed on.
    fn function_failed(&self, local: &mut Self::Local, index: usize, url: &str, error: WorkError);

    /// Takes an object that could not be read, or a listing that ended early. The latter
    /// and objects whose keys are not supported have no index.
    fn failed(&self, local: &mut Self::Local, index: Option<usize>, error: &ObjectError);
}
