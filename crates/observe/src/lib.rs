//! Per-thread spans and states, samplers, and the words for a bottleneck.
