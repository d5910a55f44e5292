//! Takes the place of `tables` in a build without the feature `inode-tables`.
//!
//! The method is still parsed and listed, so that a plan means the same in every build, but a walk
//! that needs the tables is refused before it starts. [`Tables`] has no values, which proves that
//! the code behind it is never reached.

use crate::method::Refused;
use crate::tables_use::{Counts, TablesUse};
use std::path::PathBuf;

/// The tables below the roots of one walk, which this build cannot read.
#[derive(Debug)]
pub(crate) enum Tables {}

/// Refuses: this build has no code for inode tables.
pub(crate) fn probe(_roots: &[PathBuf]) -> Result<(), Refused> {
    Err(Refused::InodeTables(
        "this build does not support it (cargo feature 'inode-tables'); use statx".to_owned(),
    ))
}

impl Tables {
    /// Refuses, as [`probe`] does.
    pub(crate) fn below(roots: &[PathBuf]) -> Result<Option<Self>, Refused> {
        probe(roots).map(|()| None)
    }

    /// Never called.
    pub(crate) fn use_of(&self, _counts: Counts) -> TablesUse {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{Fields, Method, Threads, Walk};
    use std::path::PathBuf;

    #[test]
    fn a_build_without_tables_says_so() {
        let walk = Walk {
            method: Method::InodeTables,
            threads: Threads::Count(1),
            fields: Fields::BYTES,
            ..Walk::default()
        };
        let refused = walk.probe(&[PathBuf::from("/")]).unwrap_err().to_string();
        assert!(refused.contains("this build does not support it"), "{refused}");
    }
}
