//! State of the page cache.
