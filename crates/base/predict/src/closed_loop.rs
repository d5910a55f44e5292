//! The closed loop: a fixed number of clients that send a request, wait for the reply, and think.
//!
//! A server that dedicates one of `T` threads to each connection for its lifetime serves `T`
//! clients at a time; the others wait until a client finishes. `N` clients with `K` orders each
//! therefore take `⌈N / T⌉ K Z` with think time `Z`, in steps, however fast the server is. The law
//! ignores the response time, the time to start the clients, and differences in finish time between
//! clients of one round.

/// Returns the time in seconds that clients need for their orders, with a sleep after each order
/// and an infinitely fast server. With `Some(threads)`, each thread serves one client to
/// completion; `None` serves all clients at once.
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
}
