//! Opening, asking and reading files.
