//! How a run holds results and the states of files: as they are, or in boxes.
//!
//! A value passes through many calls between the function and the caller, and takes room in the frame of
//! each. The stack of a thread has no room for many copies of a large one, so it is boxed where it
//! arises.

/// Largest value that is not boxed, bytes.
const DIRECT_MAX: usize = 1 << 10;

/// Reports whether values of a type are boxed.
pub(crate) const fn is_large<T>() -> bool {
    size_of::<T>() > DIRECT_MAX
}

/// How values are held.
pub trait Hold: Send + Sync + 'static {
    /// A value that is held.
    type Of<T: Send>: Send;

    /// Holds a value.
    fn of<T: Send>(value: T) -> Self::Of<T>;
    /// Returns the value.
    fn out<T: Send>(held: Self::Of<T>) -> T;
    /// Returns the value of a result.
    fn result<T: Send, E>(held: Result<Self::Of<T>, E>) -> Result<T, E>;
    /// Calls `f` on the value where it is.
    fn with<T: Send, R>(held: &mut Self::Of<T>, f: impl FnOnce(&mut T) -> R) -> R;
    /// Returns the values without their positions.
    fn list<T: Send>(held: Vec<(usize, Self::Of<T>)>) -> Vec<T>;
}

/// Values are held as they are.
pub(crate) struct Direct;

impl Hold for Direct {
    type Of<T: Send> = T;

    #[inline]
    fn of<T: Send>(value: T) -> T {
        value
    }

    #[inline]
    fn out<T: Send>(held: T) -> T {
        held
    }

    #[inline]
    fn result<T: Send, E>(held: Result<T, E>) -> Result<T, E> {
        held
    }

    #[inline]
    fn with<T: Send, R>(held: &mut T, f: impl FnOnce(&mut T) -> R) -> R {
        f(held)
    }

    fn list<T: Send>(held: Vec<(usize, T)>) -> Vec<T> {
        held.into_iter().map(|(_, value)| value).collect()
    }
}

/// Values are held in boxes.
pub(crate) struct InBox;

impl Hold for InBox {
    type Of<T: Send> = Box<T>;

    fn of<T: Send>(value: T) -> Box<T> {
        Box::new(value)
    }

    fn out<T: Send>(held: Box<T>) -> T {
        *held
    }

    fn result<T: Send, E>(held: Result<Box<T>, E>) -> Result<T, E> {
        match held {
            Ok(held) => Ok(*held),
            Err(error) => Err(error),
        }
    }

    fn with<T: Send, R>(held: &mut Box<T>, f: impl FnOnce(&mut T) -> R) -> R {
        f(held)
    }

    fn list<T: Send>(held: Vec<(usize, Box<T>)>) -> Vec<T> {
        let mut values = Vec::with_capacity(held.len());
        // Iterator adaptors would copy each value several times.
        for (_, value) in held {
            values.push(*value);
        }
        values
    }
}
