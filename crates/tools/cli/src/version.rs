//! The version that the build script computes.

/// Version of the program with the commit it was built from.
pub(crate) const VERSION: &str = env!("IOLOOM_VERSION");
