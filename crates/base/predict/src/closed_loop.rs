//! The closed loop: a fixed number of clients that send a request, wait for the reply, and think.
//!
//! A server that gives each connection one of `T` threads until the connection ends serves `T`
//! clients at a time; the others wait until a client is finished. `N` clients with `K` orders each
//! therefore take `⌈N / T⌉ K Z` with think time `Z`, in steps, however fast the server is. Left
//! out: the response time, the time to start the clients, and clients of one round that finish at
//! different times.

/// Returns the seconds that clients take for their orders, with a sleep after each order, if the
/// server takes no time. With `threads` a server serves one client per thread until it ends; `None`
/// serves all clients at once.
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
