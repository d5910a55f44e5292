//! Closed-form laws of overlap, windows and thread counts.
