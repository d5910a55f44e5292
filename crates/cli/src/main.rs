//! The ioloom program.
fn main() {}
