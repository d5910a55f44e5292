//! Run a function over many files as fast as the machine allows, and tell why.
