//! Admission, budget and controllers: events in, decisions out; no clock, no atomics.
