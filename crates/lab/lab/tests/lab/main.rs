//! The laboratory end to end, with a fake subject and fake children.
//!
//! The children are shell scripts that answer from files. To kill a study, this test program starts
//! itself with one test and an environment variable.

mod bench;
mod fixtures;
mod kill;
mod serve;
mod store;
mod study;
