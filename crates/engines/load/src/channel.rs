//! A connection that blocks: bytes of the protocol out and in, under TLS if the plan says so.

use crate::plan::LoadPlan;
use ioloom_sys_net::Socket;
use ioloom_tls::TlsSession;
use std::io;
use std::time::Duration;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 16 * 1024;

pub(crate) struct Channel {
    socket: Socket,
    shield: Option<TlsSession>,
    buffer: Vec<u8>,
    /// What was read last, opened.
    plain: Vec<u8>,
}

impl Channel {
    /// Connects to the server of a plan. A handshake is part of the first sending and reading.
    pub(crate) fn connect(plan: &LoadPlan) -> io::Result<Self> {
        let socket = Socket::connect(plan.target)?;
        let shield = plan.tls.as_ref().map(|trust| trust.session().map_err(io::Error::other));
        let (buffer, plain) = (vec![0; BUFFER_BYTES], Vec::new());
        Ok(Self { socket, shield: shield.transpose()?, buffer, plain })
    }

    /// Limits how long one reading and one writing wait.
    pub(crate) fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        self.socket.set_timeouts(Some(read), Some(write))
    }

    /// Sends everything.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(shield) = &mut self.shield else { return send(&self.socket, bytes) };
        let mut sealed = Vec::new();
        shield.seal(bytes, &mut sealed);
        send(&self.socket, &sealed)
    }

    /// Waits for bytes of the protocol. The end of the server is an error.
    pub(crate) fn recv(&mut self) -> io::Result<&[u8]> {
        loop {
            let is_handshaking = self.shield.as_ref().is_some_and(TlsSession::is_handshaking);
            let read = match self.socket.recv(&mut self.buffer) {
                // A server without room has no way to say so before a handshake.
                Ok(0) if is_handshaking => return Err(io::ErrorKind::ResourceBusy.into()),
                Err(e) if is_handshaking && e.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                Ok(0) => return Err(closed()),
                read => read?,
            };
            let Some(shield) = &mut self.shield else { return Ok(&self.buffer[..read]) };
            self.plain.clear();
            let opened = shield.open(&self.buffer[..read], &mut self.plain);
            // What a handshake says, and why it has failed.
            let mut sealed = Vec::new();
            shield.seal(&[], &mut sealed);
            send(&self.socket, &sealed)?;
            opened.map_err(io::Error::other)?;
            if !self.plain.is_empty() {
                break;
            }
            if shield.has_ended() {
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
