//! Kinds of requests that are counted and delayed.

/// What the kernel requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Lookup,
    Getattr,
    Open,
    Read,
}
