//! The forms of the function: over whole files, with a state per worker, folded over chunks, or
//! called for each chunk. A [`Form`] says what its return value means.

use crate::engine::Piece;
use crate::hold::{Direct, Hold, is_large};
use crate::view::{Chunk, File};
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;

/// The result of a form: a value, `Break` with the last value that is wanted, or an error.
pub(crate) type Flow<T, E> = Result<ControlFlow<T, T>, E>;

/// A function over files: one of the forms that [`Files`](crate::Files) and
/// [`Chunks`](crate::Chunks) create. Cannot be implemented elsewhere.
pub trait FileFn: Sync + Sealed {
    /// Whether it takes chunks instead of whole files.
    #[doc(hidden)]
    const CHUNKS: bool;
    /// Whether results, or states of files, are so large that they are boxed.
    #[doc(hidden)]
    const LARGE: bool;
    /// State of a file between its pieces.
    #[doc(hidden)]
    type State<H: Hold>: Send;
    /// The result for a file.
    type Out: Send;
    /// The error of the function; [`Infallible`] if it cannot fail.
    type Error: Send;

    #[doc(hidden)]
    fn begin<H: Hold>(&self, path: &Path) -> Self::State<H>;
    #[doc(hidden)]
    fn piece<H: Hold>(
        &self,
        state: &mut Self::State<H>,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, Self::Error>;
    #[doc(hidden)]
    fn finish<H: Hold>(
        &self,
        state: Self::State<H>,
        path: &Path,
    ) -> Flow<H::Of<Self::Out>, Self::Error>;
}

pub(crate) use sealed::Sealed;

mod sealed {
    pub trait Sealed {}
    impl<F, M> Sealed for super::Whole<F, M> {}
    impl<I, F, S, M> Sealed for super::WithInit<I, F, S, M> {}
    impl<I, F, G, M> Sealed for super::FoldFile<I, F, G, M> {}
    impl<F, M> Sealed for super::MapChunks<F, M> {}
}

/// What the return value of a function means.
pub trait Form<R>: Sync {
    /// The result for a file.
    type Out: Send;
    /// The error of the function.
    type Error: Send;

    #[doc(hidden)]
    fn flow<H: Hold>(returned: R) -> Flow<H::Of<Self::Out>, Self::Error>;
}

/// The function returns the result.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl<T: Send> Form<T> for Plain {
    type Out = T;
    type Error = Infallible;

    #[inline]
    fn flow<H: Hold>(returned: T) -> Flow<H::Of<T>, Infallible> {
        Ok(ControlFlow::Continue(H::of(returned)))
    }
}

/// The function returns the result or an error.
#[derive(Debug, Clone, Copy)]
pub struct Fallible;

impl<T: Send, E: Send> Form<Result<T, E>> for Fallible {
    type Out = T;
    type Error = E;

    #[inline]
    fn flow<H: Hold>(returned: Result<T, E>) -> Flow<H::Of<T>, E> {
        match returned {
            Ok(value) => Ok(ControlFlow::Continue(H::of(value))),
            Err(error) => Err(error),
        }
    }
}

/// The function returns the result, and may stop the run with it.
#[derive(Debug, Clone, Copy)]
pub struct Until;

impl<T: Send> Form<ControlFlow<T, T>> for Until {
    type Out = T;
    type Error = Infallible;

    #[inline]
    fn flow<H: Hold>(returned: ControlFlow<T, T>) -> Flow<H::Of<T>, Infallible> {
        Ok(match returned {
            ControlFlow::Continue(value) => ControlFlow::Continue(H::of(value)),
            ControlFlow::Break(value) => ControlFlow::Break(H::of(value)),
        })
    }
}

/// A function over whole files.
#[derive(Clone, Copy)]
pub struct Whole<F, M> {
    pub(crate) function: F,
    pub(crate) form: PhantomData<M>,
}

impl<R, F, M> FileFn for Whole<F, M>
where
    F: Fn(&File<'_>) -> R + Sync,
    M: Form<R>,
{
    const CHUNKS: bool = false;
    const LARGE: bool = is_large::<M::Out>();
    type State<H: Hold> = Option<ControlFlow<H::Of<M::Out>, H::Of<M::Out>>>;
    type Out = M::Out;
    type Error = M::Error;

    #[inline]
    fn begin<H: Hold>(&self, _: &Path) -> Self::State<H> {
        None
    }

    #[inline]
    fn piece<H: Hold>(
        &self,
        state: &mut Self::State<H>,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, M::Error> {
        *state = Some(M::flow::<H>((self.function)(&File::of(piece)))?);
        Ok(ControlFlow::Continue(()))
    }

    #[inline]
    fn finish<H: Hold>(&self, state: Self::State<H>, _: &Path) -> Flow<H::Of<M::Out>, M::Error> {
        Ok(state.expect("a whole file is one piece"))
    }
}

/// A function over whole files that borrows a state, of which there are at most as many as
/// functions run at once.
pub struct WithInit<I, F, S, M> {
    pub(crate) init: I,
    pub(crate) function: F,
    pub(crate) idle: Mutex<Vec<S>>,
    pub(crate) form: PhantomData<M>,
}

impl<I, F, S, M> WithInit<I, F, S, M> {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<S>> {
        self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<R, I, F, S, M> FileFn for WithInit<I, F, S, M>
where
    S: Send,
    I: Fn() -> S + Sync,
    F: Fn(&mut S, &File<'_>) -> R + Sync,
    M: Form<R>,
{
    const CHUNKS: bool = false;
    const LARGE: bool = is_large::<M::Out>();
    type State<H: Hold> = Option<ControlFlow<H::Of<M::Out>, H::Of<M::Out>>>;
    type Out = M::Out;
    type Error = M::Error;

    fn begin<H: Hold>(&self, _: &Path) -> Self::State<H> {
        None
    }

    fn piece<H: Hold>(
        &self,
        state: &mut Self::State<H>,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, M::Error> {
        // The guard must not live while the function runs.
        let idle = self.idle().pop();
        let mut own = idle.unwrap_or_else(&self.init);
        let returned = (self.function)(&mut own, &File::of(piece));
        self.idle().push(own);
        *state = Some(M::flow::<H>(returned)?);
        Ok(ControlFlow::Continue(()))
    }

    fn finish<H: Hold>(&self, state: Self::State<H>, _: &Path) -> Flow<H::Of<M::Out>, M::Error> {
        Ok(state.expect("a whole file is one piece"))
    }
}

/// A fold over the chunks of a file.
#[derive(Clone, Copy)]
pub struct FoldFile<I, F, G, M> {
    pub(crate) init: I,
    pub(crate) step: F,
    pub(crate) finish: G,
    pub(crate) form: PhantomData<M>,
}

impl<S, R, Q, E, I, F, G, M> FileFn for FoldFile<I, F, G, M>
where
    S: Send,
    E: Send,
    I: Fn(&Path) -> S + Sync,
    F: Fn(&mut S, &Chunk<'_>) -> R + Sync,
    G: Fn(S, &Path) -> Q + Sync,
    M: Form<R, Out = (), Error = E> + Form<Q, Error = E>,
{
    const CHUNKS: bool = true;
    const LARGE: bool = is_large::<S>() || is_large::<<M as Form<Q>>::Out>();
    type State<H: Hold> = H::Of<S>;
    type Out = <M as Form<Q>>::Out;
    type Error = E;

    #[inline]
    fn begin<H: Hold>(&self, path: &Path) -> H::Of<S> {
        H::of((self.init)(path))
    }

    #[inline]
    fn piece<H: Hold>(
        &self,
        state: &mut H::Of<S>,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, E> {
        let returned = H::with::<S, _>(state, |state| (self.step)(state, &Chunk { piece }));
        <M as Form<R>>::flow::<Direct>(returned)
    }

    #[inline]
    fn finish<H: Hold>(&self, state: H::Of<S>, path: &Path) -> Flow<H::Of<Self::Out>, E> {
        <M as Form<Q>>::flow::<H>((self.finish)(H::out::<S>(state), path))
    }
}

/// A function called for each chunk.
#[derive(Clone, Copy)]
pub struct MapChunks<F, M> {
    pub(crate) function: F,
    pub(crate) form: PhantomData<M>,
}

impl<R, F, M> FileFn for MapChunks<F, M>
where
    F: Fn(&Chunk<'_>) -> R + Sync,
    M: Form<R>,
{
    const CHUNKS: bool = true;
    const LARGE: bool = is_large::<M::Out>();
    type State<H: Hold> = Vec<M::Out>;
    type Out = Vec<M::Out>;
    type Error = M::Error;

    fn begin<H: Hold>(&self, _: &Path) -> Self::State<H> {
        Vec::new()
    }

    fn piece<H: Hold>(
        &self,
        state: &mut Self::State<H>,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, M::Error> {
        let (ControlFlow::Continue(value) | ControlFlow::Break(value)) =
            M::flow::<H>((self.function)(&Chunk { piece }))?;
        state.push(H::out::<M::Out>(value));
        Ok(ControlFlow::Continue(()))
    }

    fn finish<H: Hold>(&self, state: Self::State<H>, _: &Path) -> Flow<H::Of<Self::Out>, M::Error> {
        Ok(ControlFlow::Continue(H::of(state)))
    }
}

macro_rules! opaque_debug {
    ($($name:ident<$($parameter:ident),*>)*) => {$(
        impl<$($parameter),*> fmt::Debug for $name<$($parameter),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

opaque_debug! { Whole<F, M> WithInit<I, F, S, M> FoldFile<I, F, G, M> MapChunks<F, M> }
