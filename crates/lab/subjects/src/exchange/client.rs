//! A simple client for tasks outside the load generator: staying idle, sending a partial line, and
//! observing a server. It speaks the line dialect without padding and reads counters over HTTP.

use crate::stage::cannot;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_net::Socket;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Time limit for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit in ns for a counter to reach a value.
const COUNTER_TIMEOUT_NS: u64 = 10_000_000_000;
/// Interval for polling a counter.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum answer size in bytes.
const ANSWER_MAX: usize = 64 * 1024;

/// One connection.
pub(super) struct Client(Socket);

impl Client {
    /// Connects to a server.
    pub(super) fn connect(address: SocketAddr) -> Result<Self, String> {
        let socket = Socket::connect(address).map_err(|e| cannot("connect to the server", &e))?;
        let waits = socket.set_timeouts(Some(ANSWER_TIMEOUT), Some(ANSWER_TIMEOUT));
        waits.map_err(|e| cannot("set a timeout", &e))?;
        Ok(Self(socket))
    }

    /// Sends all bytes.
    pub(super) fn send(&self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let sent = self.0.send(bytes).map_err(|e| cannot("send to the server", &e))?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Reads until `enough` returns true or the connection is closed.
    fn read(&self, enough: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while !enough(&all) && all.len() < ANSWER_MAX {
            match self.0.recv(&mut buffer)? {
                0 => break,
                n => all.extend_from_slice(&buffer[..n]),
            }
        }
        Ok(all)
    }

    /// Sends a request and returns the first line of the answer.
    fn request(&self, request: &str) -> Result<String, String> {
        self.send(request.as_bytes())?;
        let all = self.read(|bytes| bytes.contains(&b'\n'));
        let all =
            all.map_err(|e| cannot(&format!("read the answer to {:?}", request.trim()), &e))?;
        let text = String::from_utf8_lossy(&all);
        match text.split_once('\n') {
            Some((line, _)) => Ok(line.to_owned()),
            None => Err(format!("the server closed the connection after {:?}", request.trim())),
        }
    }

    /// Sells one item of the first stock and verifies the answer.
    pub(super) fn sell(&self) -> Result<(), String> {
        match self.request("sell 1 1\n")?.as_str() {
            "[sell] success" => Ok(()),
            other => Err(format!("a sale was answered with {other:?}")),
        }
    }

    /// Returns the remaining items of the first stock.
    pub(super) fn left(&self) -> Result<u32, String> {
        let line = self.request("show\n")?;
        let mut words = line.split(' ');
        match (words.next(), words.next().and_then(|left| left.parse().ok())) {
            (Some("1"), Some(left)) => Ok(left),
            _ => Err(format!("a list began with {line:?}")),
        }
    }

    /// Returns whether the server has rejected the client. Takes `wait` if the server sends
    /// nothing.
    pub(super) fn is_turned_away(&self, wait: Duration) -> Result<bool, String> {
        let fail = |e: io::Error| cannot("find out whether the server has room", &e);
        self.0.set_timeouts(Some(wait), None).map_err(fail)?;
        let mut buffer = [0; 64];
        match self.0.recv(&mut buffer) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(true),
            Err(e) => Err(fail(e)),
        }
    }
}

/// Returns a counter of the server.
pub(super) fn counter(address: SocketAddr, name: &str) -> Result<u64, String> {
    let client = Client::connect(address)?;
    client.send(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let all = client.read(|_| false).map_err(|e| cannot("read the counters", &e))?;
    let text = String::from_utf8_lossy(&all);
    let mut found = text.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.next().ok_or_else(|| format!("the server has no counter {name}"))
}

/// Waits until `connections` connections are open, excluding the one that reads the counter.
pub(super) fn until_open(address: SocketAddr, connections: usize) -> Result<(), String> {
    let until_ns = monotonic_ns() + COUNTER_TIMEOUT_NS;
    loop {
        let open = counter(address, "ioloom_connections ")?;
        if open > connections as u64 {
            return Ok(());
        }
        if monotonic_ns() > until_ns {
            let open = open.saturating_sub(1);
            return Err(format!(
                "only {open} of {connections} idle connections were accepted in 10 s"
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
