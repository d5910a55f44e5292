//! The version computed by the build script.

/// Program version with the commit it was built from.
pub(crate) const VERSION: &str = env!("IOLOOM_VERSION");
