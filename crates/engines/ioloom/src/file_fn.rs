//! The forms of the function: over whole files, folded over chunks, or called for each chunk.

use crate::engine::Piece;
use crate::error::FnError;
use crate::view::{Chunk, File};
use std::path::Path;

/// A function over files. Implemented by the forms that [`Files`](crate::Files) creates.
pub trait FileFn: Sync {
    /// Whether it takes chunks instead of whole files.
    const CHUNKS: bool;
    /// State of a file between its pieces.
    type State: Send;
    /// The result for a file.
    type Out: Send;

    /// Starts a file.
    fn begin(&self, path: &Path) -> Self::State;
    /// Processes one piece.
    fn piece(&self, state: &mut Self::State, piece: &Piece<'_>) -> Result<(), FnError>;
    /// Ends a file and returns its result.
    fn finish(&self, state: Self::State, path: &Path) -> Result<Self::Out, FnError>;
}

/// A function over whole files.
pub struct Whole<F>(pub(crate) F);

impl<T: Send, F: Fn(&File<'_>) -> Result<T, FnError> + Sync> FileFn for Whole<F> {
    const CHUNKS: bool = false;
    type State = Option<T>;
    type Out = T;

    fn begin(&self, _: &Path) -> Option<T> {
        None
    }

    fn piece(&self, state: &mut Option<T>, piece: &Piece<'_>) -> Result<(), FnError> {
        *state = Some(self.0(&File { piece })?);
        Ok(())
    }

    fn finish(&self, state: Option<T>, _: &Path) -> Result<T, FnError> {
        state.ok_or_else(|| "the file ended before it was read".into())
    }
}

/// A fold over the chunks of a file.
pub struct FoldFile<I, F, G> {
    pub(crate) init: I,
    pub(crate) step: F,
    pub(crate) finish: G,
}

impl<S, T, I, F, G> FileFn for FoldFile<I, F, G>
where
    S: Send,
    T: Send,
    I: Fn(&Path) -> S + Sync,
    F: Fn(&mut S, &Chunk<'_>) -> Result<(), FnError> + Sync,
    G: Fn(S, &Path) -> Result<T, FnError> + Sync,
{
    const CHUNKS: bool = true;
    type State = S;
    type Out = T;

    fn begin(&self, path: &Path) -> S {
        (self.init)(path)
    }

    fn piece(&self, state: &mut S, piece: &Piece<'_>) -> Result<(), FnError> {
        (self.step)(state, &Chunk { piece })
    }

    fn finish(&self, state: S, path: &Path) -> Result<T, FnError> {
        (self.finish)(state, path)
    }
}

/// A function called for each chunk.
pub struct MapChunks<F>(pub(crate) F);

impl<T: Send, F: Fn(&Chunk<'_>) -> Result<T, FnError> + Sync> FileFn for MapChunks<F> {
    const CHUNKS: bool = true;
    type State = Vec<T>;
    type Out = Vec<T>;

    fn begin(&self, _: &Path) -> Vec<T> {
        Vec::new()
    }

    fn piece(&self, state: &mut Vec<T>, piece: &Piece<'_>) -> Result<(), FnError> {
        state.push(self.0(&Chunk { piece })?);
        Ok(())
    }

    fn finish(&self, state: Vec<T>, _: &Path) -> Result<Vec<T>, FnError> {
        Ok(state)
    }
}
