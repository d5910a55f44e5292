//! The library from outside: the same bytes from every plan, every kind of input, every policy.

mod bytes;
mod inputs;
mod memory;
mod policy;
mod properties;
mod support;
