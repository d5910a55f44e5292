//! The laboratory end to end, with a subject and children that are only made up.
//!
//! The children are shell scripts that answer from files. Where a process of our own must be
//! killed, this test program starts itself again with one test and a variable in the environment.

mod bench;
mod kill;
mod serve;
mod store;
mod study;
