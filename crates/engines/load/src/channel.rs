//! A blocking connection, with TLS if the plan requires it.

use crate::plan::LoadPlan;
use ioloom_sys_net::Socket;
use ioloom_tls::TlsSession;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Size of the read buffer in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
/// Maximum time between two checks for a stop request.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum read timeout: zero would disable it.
pub(crate) const READ_TIMEOUT_LEAST: Duration = Duration::from_millis(1);

/// Reason of a connection that ended before its TLS handshake did.
pub(crate) const CLOSED_IN_HANDSHAKE: &str =
    "the server closed the connection during the TLS handshake";

/// The wait for one complete answer, however many parts it arrives in.
#[derive(Clone, Copy)]
pub(crate) struct Wait<'a> {
    timeout: Duration,
    until: Instant,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Wait<'a> {
    /// Begins a wait that ends after `timeout`. A stop request interrupts it.
    pub(crate) fn new(timeout: Duration, stop: Option<&'a AtomicBool>) -> Self {
        Self { timeout, until: Instant::now() + timeout, stop }
    }

    /// Returns the remaining time.
    ///
    /// # Errors
    /// The kind is `TimedOut` at the end of the wait, and `Interrupted` after a stop request.
    fn left(&self) -> io::Result<Duration> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let reason = format!("no answer within {} s", self.timeout.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        Ok(left)
    }
}

pub(crate) struct Channel {
    socket: Socket,
    tls: Option<TlsSession>,
    buffer: Vec<u8>,
    /// Decrypted bytes from the latest read.
    plain: Vec<u8>,
}

impl Channel {
    /// Connects to the server in the plan within its timeout. The handshake takes place during the
    /// first sends and receives.
    pub(crate) fn connect(plan: &LoadPlan) -> io::Result<Self> {
        let socket = Socket::connect_within(plan.target, plan.timeout)?;
        let tls = plan.tls.as_ref().map(|trust| trust.session().map_err(io::Error::other));
        let (buffer, plain) = (vec![0; BUFFER_BYTES], Vec::new());
        Ok(Self { socket, tls: tls.transpose()?, buffer, plain })
    }

    /// Sets the timeouts for individual reads and writes.
    pub(crate) fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.socket.set_timeouts(Some(read), Some(write))
    }

    /// Sends all bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return send(&self.socket, bytes) };
        let mut sealed = Vec::new();
        tls.seal(bytes, &mut sealed);
        send(&self.socket, &sealed)
    }

    /// Waits for bytes, for at most the read timeout. With TLS the result can be empty: handshake messages
    /// and parts of records have no content. The end of the stream is an error, of the kind
    /// `ConnectionAborted` during the handshake.
    pub(crate) fn recv(&mut self) -> io::Result<&[u8]> {
        let read = self.read()?;
        Ok(self.content(read))
    }

    /// Waits for bytes like [`recv`](Self::recv), until the end of the wait instead of the read timeout.
    pub(crate) fn recv_within(&mut self, wait: &Wait<'_>) -> io::Result<&[u8]> {
        let read = loop {
            let read_timeout = wait.left()?.clamp(READ_TIMEOUT_LEAST, CHECK_INTERVAL);
            self.set_timeouts(read_timeout, wait.timeout)?;
            match self.read() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => break read?,
            }
        };
        Ok(self.content(read))
    }

    /// Returns the content of `read` bytes in the buffer.
    fn content(&self, read: usize) -> &[u8] {
        if self.tls.is_some() { &self.plain } else { &self.buffer[..read] }
    }

    /// Reads once, and decrypts what was read. Returns the number of bytes in the buffer.
    fn read(&mut self) -> io::Result<usize> {
        let is_handshaking = self.tls.as_ref().is_some_and(TlsSession::is_handshaking);
        let read = match self.socket.recv(&mut self.buffer) {
            // Before the handshake, a busy server cannot report its state.
            Ok(0) if is_handshaking => return Err(closed_in_handshake()),
            Err(e) if is_handshaking && e.kind() == io::ErrorKind::ConnectionReset => {
                return Err(closed_in_handshake());
            }
            Ok(0) => return Err(closed()),
            read => read?,
        };
        let Some(tls) = &mut self.tls else { return Ok(read) };
        self.plain.clear();
        let opened = tls.open(&self.buffer[..read], &mut self.plain);
        // Handshake messages, or the alert after a failed handshake.
        let mut sealed = Vec::new();
        tls.seal(&[], &mut sealed);
        send(&self.socket, &sealed)?;
        opened.map_err(io::Error::other)?;
        if self.plain.is_empty() && tls.has_ended() {
            return Err(closed());
        }
        Ok(read)
    }
}

fn closed() -> io::Error {
    io::Error::other("the server closed the connection")
}

fn closed_in_handshake() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, CLOSED_IN_HANDSHAKE)
}

fn send(socket: &Socket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = socket.send(bytes)?;
        bytes = &bytes[sent..];
    }
    Ok(())
}
