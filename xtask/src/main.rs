//! Automation of this repository.
fn main() {}
