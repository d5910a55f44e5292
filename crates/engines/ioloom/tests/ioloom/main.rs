//! Tests of the public library: the same bytes from every plan, every kind of input, every policy.

#![allow(clippy::print_stderr, reason = "skipped tests print what the machine lacks")]

mod bytes;
mod descriptors;
mod endings;
mod fuse;
mod inputs;
mod large;
mod layout;
mod memory;
mod policy;
mod properties;
mod reader;
mod reserve;
mod results;
mod stream;
mod support;
mod tail;
mod trace;
mod tree;
