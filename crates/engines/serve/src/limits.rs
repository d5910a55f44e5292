//! Limits and their defaults.

use std::time::Duration;

/// Limits of a server and of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open connections; another one gets `BUSY` and is closed.
    pub connections: usize,
    /// Maximum number of requests of one connection per turn.
    pub requests_at_once: usize,
    /// Bytes of unsent answers at which the server stops reading from a connection.
    pub output_bytes: usize,
    /// Time limit for the rest of a request that has begun, and for a TLS handshake up to the
    /// token, if one is required.
    pub request: Duration,
    /// Time limit for a client to accept all answers that are pending at one moment.
    pub drain: Duration,
    /// Time after which an idle connection is closed; zero disables this.
    pub idle: Duration,
    /// Time after which an idle connection is closed if others wait for its thread, in models where
    /// that can happen.
    pub hog: Duration,
    /// Maximum time that a single epoll loop polls for the next request before it sleeps; zero
    /// disables polling.
    pub spin: Duration,
    /// Time limit for a stopping server to finish requests.
    pub stop: Duration,
    /// Number of threads, for models with a configurable number.
    pub threads: usize,
    /// Number of connections that may wait in the queue of the pool.
    pub waiting: usize,
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
            hog: Duration::from_secs(1),
            spin: Duration::from_micros(50),
            stop: Duration::from_secs(5),
            threads: 10,
            waiting: 16,
        }
    }
}
