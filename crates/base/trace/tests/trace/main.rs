//! Tests of the public interface: synthetic threads with known states, random input, and every
//! format decoded by an independent reader.

mod classify;
mod export;
mod file;
mod findings;
mod fixtures;
mod planted;
mod sample;
mod schema;
mod shares;
mod viewer;
mod wild;
