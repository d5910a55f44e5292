//! Limits and their defaults.

use std::time::Duration;

/// Limits of a server and of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open connections; any further connection gets `BUSY` and is closed.
    pub connections: usize,
    /// Maximum number of requests per connection and turn.
    pub requests_at_once: usize,
    /// Number of unsent answer bytes at which the server stops reading from a connection.
    pub output_bytes: usize,
    /// Time limit for the rest of a request once it has started, and for a TLS handshake including
    /// the token, if required.
    pub request: Duration,
    /// Time limit for a client to accept all answers pending at a given moment.
    pub drain: Duration,
    /// Time after which an idle connection is closed; zero disables this.
    pub idle: Duration,
    /// Time after which an idle connection is closed if others are waiting for its thread, in
    /// models where that can happen.
    pub hog: Duration,
    /// Maximum time for which a single epoll loop polls for the next request before it sleeps; zero
    /// disables polling.
    pub spin: Duration,
    /// Time limit for finishing requests when the server stops.
    pub stop: Duration,
    /// Time for which connections are still served when another program takes over.
    pub grace: Duration,
    /// Number of threads, for models with a configurable number.
    pub threads: usize,
    /// Maximum number of connections waiting in the queue of the pool.
    pub waiting: usize,
    /// Maximum number of open connections per client address; 0 for no limit. Further ones get
    /// `BUSY`.
    pub client_connections: usize,
    /// Maximum number of orders and lists per second and client address; 0 for no limit. Further
    /// ones are answered `busy`.
    pub client_rate: u32,
    /// Maximum number of received bytes per second and client address; 0 for no limit. While it is
    /// exceeded, orders and lists are answered `busy`.
    pub client_bytes: u64,
    /// Whether connections beyond that queue get `BUSY`. Otherwise they wait in the backlog of the
    /// kernel.
    pub busy_when_full: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 15_000,
            requests_at_once: 64,
            output_bytes: 256 * 1024,
            request: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            idle: Duration::ZERO,
            hog: Duration::from_secs(3),
            spin: Duration::from_micros(50),
            stop: Duration::from_secs(5),
            grace: Duration::from_millis(100),
            threads: 10,
            waiting: 16,
            client_connections: 0,
            client_rate: 0,
            client_bytes: 0,
            busy_when_full: false,
        }
    }
}
