//! A blocking connection, with TLS if the plan requires it.

use crate::plan::LoadPlan;
use ioloom_sys_net::Socket;
use ioloom_tls::TlsSession;
use std::io;
use std::time::Duration;

/// Size of the read buffer in bytes.
const BUFFER_BYTES: usize = 16 * 1024;

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

    /// Waits for bytes. The end of the stream is an error, of the kind `ConnectionAborted` during the handshake.
    pub(crate) fn recv(&mut self) -> io::Result<&[u8]> {
        loop {
            let is_handshaking = self.tls.as_ref().is_some_and(TlsSession::is_handshaking);
            let read = match self.socket.recv(&mut self.buffer) {
                // Before the handshake, a busy server cannot report its state.
                Ok(0) if is_handshaking => return Err(io::ErrorKind::ConnectionAborted.into()),
                Err(e) if is_handshaking && e.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Ok(0) => return Err(closed()),
                read => read?,
            };
            let Some(tls) = &mut self.tls else { return Ok(&self.buffer[..read]) };
            self.plain.clear();
            let opened = tls.open(&self.buffer[..read], &mut self.plain);
            // Handshake messages, or the alert after a failed handshake.
            let mut sealed = Vec::new();
            tls.seal(&[], &mut sealed);
            send(&self.socket, &sealed)?;
            opened.map_err(io::Error::other)?;
            if !self.plain.is_empty() {
                break;
            }
            if tls.has_ended() {
                return Err(closed());
            }
        }
        Ok(&self.plain)
    }
}

fn closed() -> io::Error {
    io::Error::other("the server closed the connection")
}

fn send(socket: &Socket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = socket.send(bytes)?;
        bytes = &bytes[sent..];
    }
    Ok(())
}
