//! The names of manifest files.

/// The manifest.
pub const MANIFEST: &str = ".ioloom-set.json";

/// The new manifest before it replaces the old one.
pub(crate) const MANIFEST_NEW: &str = ".ioloom-set.json.new";
