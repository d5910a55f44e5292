//! Results in; terminal text, SVG and one-file HTML out; no I/O of its own.
