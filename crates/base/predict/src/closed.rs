//! The closed loop: so many clients that ask, wait for the answer, and think.
//!
//! With `N` clients, think time `Z` and response time `R` the rate is `N / (Z + R)` (Little's law over
//! the whole loop). A server whose threads each belong to one connection until it ends, `T` of them,
//! serves `T` clients at a time: the others wait for a whole client to end. So `N` clients of `K`
//! orders each need `⌈N / T⌉ K (Z + R)`, in steps, however fast the server is. What is left out: the
//! time to start the clients, and clients of one round that end at different times.

/// Orders per second of clients that wait for each answer and then think.
pub fn rate_per_s(clients: u64, think_s: f64, response_s: f64) -> f64 {
    clients as f64 / (think_s + response_s)
}

/// Seconds that clients need for their orders, each with a sleep, against a server that takes no time;
/// `threads` serve one client each until it ends, `None` serves all at once.
pub fn sleepers_elapsed_s(clients: u64, threads: Option<u64>, orders: u64, sleep_s: f64) -> f64 {
    let rounds = threads.map_or(1, |threads| clients.div_ceil(threads.max(1)));
    rounds as f64 * orders as f64 * sleep_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_wait_in_whole_rounds() {
        assert_eq!(sleepers_elapsed_s(100, None, 10, 1.0), 10.0);
        assert_eq!(sleepers_elapsed_s(100, Some(10), 10, 1.0), 100.0);
        assert_eq!(sleepers_elapsed_s(4, Some(10), 10, 1.0), 10.0);
        assert_eq!(sleepers_elapsed_s(101, Some(10), 10, 0.1), 11.0);
    }

    #[test]
    fn the_rate_of_a_loop_is_clients_over_their_round() {
        assert_eq!(rate_per_s(100, 1.0, 0.0), 100.0);
        assert_eq!(rate_per_s(10, 0.0, 0.001), 10_000.0);
    }
}
