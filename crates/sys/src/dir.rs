//! Reading directories.
