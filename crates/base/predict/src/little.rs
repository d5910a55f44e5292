//! Little's law: requests in flight = rate × latency.
//!
//! `L = X R` holds for every system in which what enters leaves again, whatever the order and the
//! distributions (Little, 1961). It says why latency is the wrong signal for batch work: at the
//! device's highest rate every request more in flight only adds latency in proportion.
//! Arguments are not checked: a quotient by zero is infinite or NaN, as the law has it.

/// Mean number of requests in flight at a rate per second and a mean latency in seconds.
pub fn in_flight(rate_per_s: f64, latency_s: f64) -> f64 {
    rate_per_s * latency_s
}

/// Mean latency in seconds of requests of which so many are in flight at a rate per second.
pub fn latency_s(in_flight: f64, rate_per_s: f64) -> f64 {
    in_flight / rate_per_s
}

/// Rate per second of requests of which so many are in flight, each for so many seconds.
pub fn rate_per_s(in_flight: f64, latency_s: f64) -> f64 {
    in_flight / latency_s
}

/// Smallest window that keeps a device at its highest rate, if a lone request takes
/// `latency_alone_s`: the rate times that latency, rounded up, and at least 1.
pub fn window_for_rate(rate_max_per_s: f64, latency_alone_s: f64) -> u64 {
    // A tiny allowance: 8 computed as 8.000000000000002 must not become 9.
    let exact = in_flight(rate_max_per_s, latency_alone_s);
    ((exact * (1.0 - 1e-12)).ceil() as u64).max(1)
}
