//! Affinity and per-thread accounting.
