//! Facts of one computer, read from a given root.
