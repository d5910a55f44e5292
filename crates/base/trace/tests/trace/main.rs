//! The crate from outside: planted threads whose states are known, wild input, and every format
//! read back by a second reader.

mod classify;
mod export;
mod file;
mod findings;
mod planted;
mod sample;
mod schema;
mod shares;
mod viewer;
mod wild;
