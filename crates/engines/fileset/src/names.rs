//! The names of the manifest.

/// Name of the manifest.
pub const MANIFEST: &str = ".ioloom-set.json";

/// Name of a new manifest before it replaces the old one.
pub(crate) const MANIFEST_NEW: &str = ".ioloom-set.json.new";
