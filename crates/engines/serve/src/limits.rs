//! Everything that is bounded, with its default.

use std::time::Duration;

/// Bounds of a server and of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open connections; one more is told `BUSY` and closed.
    pub connections: usize,
    /// Requests of one connection that are taken at once; the others wait their turn.
    pub requests_at_once: usize,
    /// Bytes of answers that wait for one connection before nothing more is read from it.
    pub output_bytes: usize,
    /// How long the rest of a request that has begun may take, and a handshake of TLS until the token
    /// is shown, if one is asked for.
    pub request: Duration,
    /// How long a client may take to accept all answers that wait for it at one moment.
    pub drain: Duration,
    /// How long a connection may say nothing; zero for ever.
    pub idle: Duration,
    /// How long a connection that says nothing may keep others from being served, in models in
    /// which it can.
    pub hog: Duration,
    /// How long a single loop of epoll looks for the next request before it sleeps, where looking
    /// brings something; zero for never.
    pub spin: Duration,
    /// How long a server that was asked to stop may finish what it has begun.
    pub stop: Duration,
    /// Threads of models that have a number of them.
    pub threads: usize,
    /// Connections that wait in the bounded buffer of the pool.
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
